/**
 * A plan as text, to go on with it after an interruption. It holds the seed of the message and is secret
 * until all of it is sent; the sender's own seed is not in it.
 */
import { decodeHex, encodeHex } from "../core/codec/bytes.ts";
import { isDid } from "../core/codec/did.ts";
import type { SendPlan } from "./send.ts";
import { parseRecord } from "./shape.ts";

/** What a plan is without its sender's seed, which stays with the keys. */
export type UnsignedPlan = Omit<SendPlan, "sender">;

export type SavedPlan = {
  readonly plan: UnsignedPlan;
  readonly senderKeyId: string | null;
  /** Chunks that were delivered. */
  readonly delivered: number;
};

export function renderPlan(plan: SendPlan, delivered: number): string {
  const { seed, to, recipient, file, chunkBytes, timestamp, ttl, tag, hint, sender } = plan;
  const state = {
    version: 1,
    seed: encodeHex(seed),
    to,
    recipient_key_id: recipient.keyId,
    recipient_key: encodeHex(recipient.publicKey),
    name: file.name,
    media_type: file.mediaType,
    size_bytes: file.sizeBytes,
    sha256: encodeHex(file.sha256),
    chunk_bytes: chunkBytes,
    timestamp,
    ttl,
    tag,
    hint,
    sender_key_id: sender?.keyId ?? null,
    delivered,
  };
  return `${JSON.stringify(state, null, 2)}\n`;
}

/** `null` when the text is not that of a plan. */
export function parsePlan(text: string): SavedPlan | null {
  const json = parseRecord(text);
  if (json === null || json["version"] !== 1) return null;
  const string = (name: string) => (typeof json[name] === "string" ? json[name] : "");
  const count = (value: unknown) => (typeof value === "number" && Number.isSafeInteger(value) ? value : -1);
  const hex = (name: string) => (/^[0-9a-f]{64}$/.test(string(name)) ? decodeHex(string(name)) : null);
  const [seed, publicKey, sha256] = [hex("seed"), hex("recipient_key"), hex("sha256")];
  // 0.1.0 called chunks pieces.
  const chunkBytes = count(json["chunk_bytes"] ?? json["piece_bytes"]);
  const [sizeBytes, delivered] = [count(json["size_bytes"]), count(json["delivered"])];
  const to = string("to");
  if (seed === null || publicKey === null || sha256 === null || !isDid(to)) return null;
  if (sizeBytes < 0 || chunkBytes < 1 || delivered < 0) return null;
  const hint = json["hint"] === "direct" || json["hint"] === "cache" ? json["hint"] : null;
  return {
    plan: {
      seed,
      to,
      recipient: { keyId: string("recipient_key_id"), publicKey },
      file: { name: string("name"), mediaType: string("media_type"), sizeBytes, sha256 },
      chunkBytes,
      timestamp: string("timestamp"),
      ttl: string("ttl"),
      tag: typeof json["tag"] === "string" ? json["tag"] : null,
      hint,
    },
    senderKeyId: typeof json["sender_key_id"] === "string" ? json["sender_key_id"] : null,
    delivered,
  };
}
