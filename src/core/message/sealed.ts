/**
 * What sealing of the second version binds, and how it hides sizes: the texts that are
 * sealed and signed with a message, the digest of the envelope around it, and padding. No
 * secret is used here.
 * Source: docs/protocol.md "Sealing, second version".
 */
import { utf8 } from "../codec/bytes.ts";
import type { JsonObject } from "../codec/json.ts";
import { digestCanonical } from "./proof.ts";

export const sealedProfile = "svc:sealed:xwing-hkdf-sha256-chacha20poly1305:v2";

/** The envelope as it is bound: digests in lower hex. */
export type SealedPlace = {
  readonly to: string;
  /** Of the recipient's public key. */
  readonly keySha256: string;
  readonly envelopeSha256: string;
};

/** The `info` of HPKE. */
export function encodeSealInfo({ to, keySha256, envelopeSha256 }: SealedPlace): Uint8Array {
  const lines = [`to=${to}`, `key_sha256=${keySha256}`, `envelope_sha256=${envelopeSha256}`];
  return utf8([sealedProfile, ...lines].join("\n"));
}

/** What a sender signs inside: who, for whom, in which envelope, and what. */
export function encodeSealedSenderText(
  sender: { readonly from: string; readonly keyId: string },
  { to, keySha256, envelopeSha256 }: SealedPlace,
  recordSha256: string,
): Uint8Array {
  const lines = [
    "svc:sealed-sender:v2",
    `from=${sender.from}`,
    `key_id=${sender.keyId}`,
    `to=${to}`,
    `key_sha256=${keySha256}`,
    `envelope_sha256=${envelopeSha256}`,
    `record_sha256=${recordSha256}`,
  ];
  return utf8(lines.join("\n"));
}

/**
 * Lower hex of SHA-256 of the canonical JSON (RFC 8785) of all members but `payload` and
 * `sender_signature`, under their usual names. Throws for text with a lone surrogate.
 */
export function digestEnvelope(members: JsonObject): string {
  const { payload: _, sender_signature: __, recipient, created_at: createdAt, ...others } = members;
  const named = {
    ...others,
    ...(recipient === undefined ? {} : { to: recipient }),
    ...(createdAt === undefined ? {} : { timestamp: createdAt }),
  };
  return digestCanonical(named);
}

/** Ends what is padded: only zeros come after it. */
const endMark = 0x80;

/**
 * The record, a mark and zeros: as many bytes as Padmé says, but at most `bytesMax`, and
 * none for a full chunk (0). So at most a ninth is added, and a size shows only its leading
 * bits.
 * Source: Nikitin et al., "Reducing Metadata Leakage from Encrypted Files and Communication
 * with PURBs", section 4.
 */
export function padRecord(record: Uint8Array, bytesMax: number): Uint8Array {
  const bytes = record.length + 1;
  return padRecordTo(record, Math.min(padmeBytes(bytes), bytesMax));
}

/** The same with so many bytes; or with one more than the record, where that is more. */
export function padRecordTo(record: Uint8Array, paddedBytes: number): Uint8Array {
  const padded = new Uint8Array(Math.max(record.length + 1, paddedBytes));
  padded.set(record);
  padded[record.length] = endMark;
  return padded;
}

/** `null` when no mark ends it. */
export function unpadRecord(padded: Uint8Array): Uint8Array | null {
  let end = padded.length - 1;
  while (end >= 0 && padded[end] === 0) end--;
  return padded[end] === endMark ? padded.subarray(0, end) : null;
}

/** Not less than `bytes`, a positive safe integer. */
function padmeBytes(bytes: number): number {
  const exponent = Math.floor(Math.log2(bytes));
  const unit = 2 ** Math.max(0, exponent - Math.floor(Math.log2(Math.max(1, exponent))) - 1);
  return Math.ceil(bytes / unit) * unit;
}
