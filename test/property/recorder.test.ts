/**
 * Somebody who records everything, and once X25519 has fallen has every secret of it: of the
 * recipients, of each encapsulation, and of the X-Wing keys that part which is X25519. What was
 * sealed in the first version opens, and nothing of the second.
 * `RECORDED=10000 bun test test/property/recorder.test.ts` is the long form.
 */
import { expect, test } from "bun:test";
import { chacha20poly1305 } from "@noble/ciphers/chacha.js";
import { x25519 } from "@noble/curves/ed25519.js";
import { sha256 } from "@noble/hashes/sha2.js";
import { sha3_256 } from "@noble/hashes/sha3.js";
import { hpkeKeys } from "../../src/client/keys/hpke.ts";
import { decapsulate, expandSeed, type XwingSecret } from "../../src/client/keys/xwing.ts";
import { buildEnvelope, type SendPlan } from "../../src/client/mail/send.ts";
import { openPayload } from "../../src/client/mail/unseal.ts";
import { concatBytes, encodeHex, utf8 } from "../../src/core/codec/bytes.ts";
import type { JsonObject } from "../../src/core/codec/json.ts";
import { digestEnvelope, encodeSealInfo } from "../../src/core/message/sealed.ts";
import { content, plan, readerSecret } from "../support/send-plan.ts";

const messages = Number(process.env["RECORDED"] ?? 300);
const people = await Promise.all([1, 2, 3, 4].map((n) => expandSeed(new Uint8Array(32).fill(n))));
const data = content.subarray(0, 1_000);

/** The plan of one message: to the first version's key, or to somebody's X-Wing key. */
function planOf(n: number, version: 1 | 2): SendPlan {
  const { publicKey } = people[n % people.length] as XwingSecret;
  const seed = sha256(utf8(`message ${n}`));
  const hybrid = { keyId: "a-key", publicKey };
  return { ...plan, seed, recipient: version === 2 ? hybrid : plan.recipient };
}

const jsonOf = (body: Uint8Array): JsonObject => JSON.parse(new TextDecoder().decode(body));
const payloadOf = (envelope: JsonObject) => envelope["payload"] as Record<string, string>;

/**
 * Everything that can be made of the X25519 secrets, in the place of the shared secret of X-Wing.
 */
function guesses(curveShared: Uint8Array, enc: Uint8Array, publicKey: Uint8Array): Uint8Array[] {
  const [cipher, key] = [enc.subarray(1_088), publicKey.subarray(1_184)];
  const label = utf8("\\.//^\\");
  const lattices = [new Uint8Array(0), new Uint8Array(32), curveShared];
  const combined = lattices.map((one) =>
    sha3_256(concatBytes(one, curveShared, cipher, key, label)),
  );
  return [curveShared, sha3_256(curveShared), ...combined];
}

/** Whether the ciphertext opens under one of the shared secrets. */
function opensWith(envelope: JsonObject, publicKey: Uint8Array, shared: readonly Uint8Array[]) {
  const keySha256 = encodeHex(sha256(publicKey));
  const place = { to: plan.to, keySha256, envelopeSha256: digestEnvelope(envelope) };
  const ciphertext = Uint8Array.fromBase64(payloadOf(envelope)["ciphertext_b64"] ?? "");
  return shared.some((one) => {
    const { key, nonce } = hpkeKeys(one, encodeSealInfo(place));
    try {
      chacha20poly1305(key, nonce).decrypt(ciphertext);
      return true;
    } catch {
      return false;
    }
  });
}

test(`of ${messages} messages of each version the recorder opens all of the first and none of the second`, async () => {
  const opened = { first: 0, second: 0, owner: 0 };
  for (let n = 0; n < messages; n++) {
    const first = jsonOf((await buildEnvelope(planOf(n, 1), 0, data)).body);
    const chunk = { groupId: plan.id, sequence: 0, total: 3 };
    const binding = { messageId: String(first["message_id"]), to: plan.to, chunk };
    const found = await openPayload(first["payload"], binding, () => [readerSecret]).catch(
      () => null,
    );
    if (found !== null) opened.first++;

    const second = jsonOf((await buildEnvelope(planOf(n, 2), 0, data)).body);
    const secret = people[n % people.length] as XwingSecret;
    const enc = Uint8Array.fromBase64(payloadOf(second)["enc_b64"] ?? "");
    const curveShared = x25519.getSharedSecret(secret.curve, enc.subarray(1_088));
    if (opensWith(second, secret.publicKey, guesses(curveShared, enc, secret.publicKey)))
      opened.second++;
    // With the other half too: so the search itself is proven.
    if (n % 50 === 0 && opensWith(second, secret.publicKey, [await decapsulate(enc, secret)]))
      opened.owner++;
  }
  expect(opened).toEqual({ first: messages, second: 0, owner: Math.ceil(messages / 50) });
}, 600_000);
