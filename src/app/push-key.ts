/**
 * The key by which push services know an installation (RFC 8292): 64 hex digits in a file beside the key of event proofs,
 * made once. Subscriptions are bound to it, so it is never replaced; all nodes of an installation need the same file.
 */
import { createECDH } from "node:crypto";
import { readFile } from "node:fs/promises";
import { decodeHex } from "../core/codec/bytes.ts";
import { errorText } from "../core/fault.ts";
import { base64url, type PushKey } from "../nodes/cache/push-message.ts";
import type { Log } from "../nodes/http/log.ts";
import { exposedText, isExposed } from "./credentials.ts";
import { failed } from "./failure.ts";
import { createDurably } from "./files.ts";

export const pushKeyFile = (signingKeyFile: string): string => `${signingKeyFile}.push`;

export async function openPushKey(file: string, log: Log): Promise<PushKey> {
  await createOnce(file, log).catch((error: unknown) => {
    throw failed(`push.enabled: ${file} can't be made: ${errorText(error)}`);
  });
  const text = await readFile(file, "utf8");
  if (isExposed(file)) log("warn", exposedText(file, "push.enabled"));
  const secret = decodeHex(text.trim());
  const pair = createECDH("prime256v1");
  try {
    pair.setPrivateKey(secret ?? new Uint8Array(0));
  } catch {
    throw failed(`push.enabled: ${file} must contain a key of P-256, 32 bytes in hex`);
  }
  const point = new Uint8Array(pair.getPublicKey());
  const [x, y, d] = [point.subarray(1, 33), point.subarray(33), secret as Uint8Array].map(base64url) as [
    string,
    string,
    string,
  ];
  const how = { name: "ECDSA", namedCurve: "P-256" } as const;
  const key = await crypto.subtle.importKey("jwk", { kty: "EC", crv: "P-256", x, y, d }, how, false, ["sign"]);
  const sign: PushKey["sign"] = async (message) =>
    new Uint8Array(
      await crypto.subtle.sign({ name: "ECDSA", hash: "SHA-256" }, key, message as Uint8Array<ArrayBuffer>),
    );
  return { publicKey: base64url(point), sign };
}

/** Whole or not at all, also when two processes start together. */
async function createOnce(file: string, log: Log): Promise<void> {
  if (await Bun.file(file).exists()) return;
  const pair = createECDH("prime256v1");
  pair.generateKeys();
  const secret = pair.getPrivateKey("hex").padStart(64, "0");
  if (await createDurably(file, `${secret}\n`))
    log("warn", "the key for pushes was made; keep it: subscriptions are bound to it", { file });
}
