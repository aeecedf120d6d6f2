/**
 * End-to-end sealing of one envelope's payload: X25519 + HKDF-SHA256 +
 * ChaCha20-Poly1305 over a deterministic CBOR record, bound to message, recipient and
 * place in the file by the additional data.
 * Source: docs/protocol.md ("Sealing").
 */
import { chacha20poly1305 } from "@noble/ciphers/chacha.js";
import { sha256 } from "#sha256";
import { concatBytes, encodeBase64, utf8 } from "../../core/codec/bytes.ts";
import { hkdf, x25519PublicKey, x25519SharedSecret } from "../keys/crypto.ts";
import type { SealedPayload } from "../net/answers.ts";
import type { ChunkPlace } from "../net/caches.ts";

export const sealProfile = "svc:cbor-chunk:x25519-hkdf-sha256-chacha20poly1305:v1";
export const recordFormat = "svc:binary-chunk:v1";
export const keyBytes = 32;
export const nonceBytes = 12;

/** What the additional data binds a payload to. Unchunked: no group, 0 of 1. */
export type SealBinding = {
  readonly messageId: string;
  readonly to: string;
  readonly chunk: ChunkPlace | null;
};

/** The file as its every chunk describes it. */
export type FileFacts = {
  readonly name: string;
  readonly mediaType: string;
  readonly sizeBytes: number;
  /** Of the whole file. */
  readonly sha256: Uint8Array;
};

export type RecipientKey = { readonly keyId: string; readonly publicKey: Uint8Array };

export type SealInput = {
  readonly binding: SealBinding;
  readonly file: FileFacts;
  readonly data: Uint8Array;
  readonly recipient: RecipientKey;
  /**
   * Random for one payload and never used for another: the same pair seals the same bytes again.
   */
  readonly entropy: { readonly ephemeralSecret: Uint8Array; readonly nonce: Uint8Array };
};

export async function sealPayload(input: SealInput): Promise<SealedPayload> {
  const { binding, file, data, recipient, entropy } = input;
  const additional = additionalData(binding);
  const key = contentKey(
    await x25519SharedSecret(entropy.ephemeralSecret, recipient.publicKey),
    additional,
  );
  const plaintext = encodeCborRecord(recordOf(binding, file, data));
  return {
    profile: sealProfile,
    key_id: recipient.keyId,
    ephemeral_x25519_b64: encodeBase64(await x25519PublicKey(entropy.ephemeralSecret)),
    nonce_b64: encodeBase64(entropy.nonce),
    ciphertext_b64: encodeBase64(
      chacha20poly1305(key, entropy.nonce, additional).encrypt(plaintext),
    ),
  };
}

export const placeOf = ({ chunk }: SealBinding) => ({
  message_group_id: chunk?.groupId ?? "",
  sequence_number: chunk?.sequence ?? 0,
  total_chunks: chunk?.total ?? 1,
});

/** The members of a record, for both versions. */
export const recordOf = (binding: SealBinding, file: FileFacts, data: Uint8Array) => ({
  format: recordFormat,
  name: file.name,
  media_type: file.mediaType,
  size_bytes: file.sizeBytes,
  sha256: file.sha256,
  ...placeOf(binding),
  data,
});

/**
 * Deterministic CBOR of a flat map (RFC 8949 section 4.2.1): shortest heads, keys in the order of
 * their bytes. A library for all of CBOR would be an eighth of what a page loads to send. Throws
 * for values that no record has.
 */
export function encodeCborRecord(record: Readonly<Record<string, unknown>>): Uint8Array {
  const pairs = Object.entries(record).map(
    ([name, value]) => [encodeItem(name), encodeItem(value)] as const,
  );
  pairs.sort(([a], [b]) => a.length - b.length || compareBytes(a, b));
  return concatBytes(head(5, pairs.length), ...pairs.flat());
}

function encodeItem(value: unknown): Uint8Array {
  if (Number.isSafeInteger(value))
    return Number(value) >= 0 ? head(0, Number(value)) : head(1, -1 - Number(value));
  if (typeof value === "string") return concatBytes(head(3, utf8(value).length), utf8(value));
  if (value instanceof Uint8Array) return concatBytes(head(2, value.length), value);
  throw new TypeError("not a value of a record");
}

/** A major type and its argument, a safe integer. */
function head(major: number, argument: number): Uint8Array {
  const place = [24, 2 ** 8, 2 ** 16, 2 ** 32, Number.POSITIVE_INFINITY].findIndex(
    (end) => argument < end,
  );
  const bytes = new Uint8Array(1 + (place === 0 ? 0 : 2 ** (place - 1)));
  bytes[0] = (major << 5) | (place === 0 ? argument : 23 + place);
  for (let [i, rest] = [bytes.length - 1, argument]; i > 0; i--, rest = Math.floor(rest / 256))
    bytes[i] = rest % 256;
  return bytes;
}

function compareBytes(a: Uint8Array, b: Uint8Array): number {
  const at = a.findIndex((byte, i) => byte !== b[i]);
  return at < 0 ? 0 : (a[at] as number) - (b[at] as number);
}

/** UTF-8 of `profile|message_id|to|message_group_id|sequence_number|total_chunks`. */
export function additionalData(binding: SealBinding): Uint8Array {
  return utf8(
    [sealProfile, binding.messageId, binding.to, ...Object.values(placeOf(binding))].join("|"),
  );
}

export function contentKey(shared: Uint8Array, additional: Uint8Array): Uint8Array {
  return hkdf(shared, sha256(additional), utf8(sealProfile), keyBytes);
}
