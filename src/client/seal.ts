/**
 * End-to-end sealing and opening of one envelope's payload: X25519 + HKDF-SHA256 + ChaCha20-Poly1305 over a deterministic
 * CBOR record, bound to message, recipient and place in the file by the additional data. Nothing that arrives is trusted:
 * every member is checked before and after decryption.
 * Source: docs/protocol.md ("Sealing"), docs/ledger.md 3.2.
 */
import { chacha20poly1305 } from "@noble/ciphers/chacha.js";
import { decode, encode, rfc8949EncodeOptions } from "cborg";
import { sha256 } from "#sha256";
import { decodeBase64, encodeBase64, equalBytes, utf8 } from "../core/codec/bytes.ts";
import { isInteger, isRecord, parseHex32 } from "./answers.ts";
import { hkdf, x25519PublicKey, x25519SharedSecret } from "./crypto.ts";
import { localError } from "./http.ts";

const sealProfile = "svc:cbor-chunk:x25519-hkdf-sha256-chacha20poly1305:v1";
const recordFormat = "svc:binary-chunk:v1";
const keyBytes = 32;
const nonceBytes = 12;

/** What the additional data binds a payload to. Unchunked: no group, 0 of 1. */
export type SealBinding = {
  readonly messageId: string;
  readonly to: string;
  readonly chunk: { readonly groupId: string; readonly sequence: number; readonly total: number } | null;
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
  /** Random for one payload and never used for another: the same pair seals the same bytes again. */
  readonly entropy: { readonly ephemeralSecret: Uint8Array; readonly nonce: Uint8Array };
};

type SealedPayload = {
  readonly profile: string;
  readonly key_id: string;
  readonly ephemeral_x25519_b64: string;
  readonly nonce_b64: string;
  readonly ciphertext_b64: string;
};

export async function sealPayload(input: SealInput): Promise<SealedPayload> {
  const { binding, file, data, recipient, entropy } = input;
  const additional = additionalData(binding);
  const key = contentKey(await x25519SharedSecret(entropy.ephemeralSecret, recipient.publicKey), additional);
  const plaintext = encode(recordOf(binding, file, data), rfc8949EncodeOptions);
  return {
    profile: sealProfile,
    key_id: recipient.keyId,
    ephemeral_x25519_b64: encodeBase64(await x25519PublicKey(entropy.ephemeralSecret)),
    nonce_b64: encodeBase64(entropy.nonce),
    ciphertext_b64: encodeBase64(chacha20poly1305(key, entropy.nonce, additional).encrypt(plaintext)),
  };
}

const placeOf = ({ chunk }: SealBinding) => ({
  message_group_id: chunk?.groupId ?? "",
  sequence_number: chunk?.sequence ?? 0,
  total_chunks: chunk?.total ?? 1,
});

const recordOf = (binding: SealBinding, file: FileFacts, data: Uint8Array) => ({
  format: recordFormat,
  name: file.name,
  media_type: file.mediaType,
  size_bytes: file.sizeBytes,
  sha256: file.sha256,
  ...placeOf(binding),
  data,
});

/** UTF-8 of `profile|message_id|to|message_group_id|sequence_number|total_chunks`. */
function additionalData(binding: SealBinding): Uint8Array {
  return utf8([sealProfile, binding.messageId, binding.to, ...Object.values(placeOf(binding))].join("|"));
}

function contentKey(shared: Uint8Array, additional: Uint8Array): Uint8Array {
  return hkdf(shared, sha256(additional), utf8(sealProfile), keyBytes);
}

// --------------------------------------------------------------------------------------------------------- opening

export type Opened = { readonly file: FileFacts; readonly data: Uint8Array };

/** The secrets held under the id of a key agreement: several when its key was replaced, none when unknown. */
export type SecretsOf = (keyId: string) => readonly Uint8Array[];

/** The opened payload. Throws a `local` ClientError: `unknown_profile`, `unknown_key`, `not_authentic` or `record_unreadable`. */
export async function openPayload(payload: unknown, binding: SealBinding, secretsOf: SecretsOf): Promise<Opened> {
  const sealed = parseSealed(payload);
  const secrets = secretsOf(sealed.keyId);
  if (secrets.length === 0)
    throw localError("unknown_key", `sealed to ${sealed.keyId}, whose secret is not on this device`);
  const additional = additionalData(binding);
  for (const secret of secrets) {
    const plaintext = await decrypt(sealed, secret, additional);
    if (plaintext !== null) return parseRecord(plaintext, binding);
  }
  throw notAuthentic("it can't be decrypted");
}

type Sealed = {
  readonly keyId: string;
  readonly ephemeral: Uint8Array;
  readonly nonce: Uint8Array;
  readonly ciphertext: Uint8Array;
};

const sealedMembers: readonly (keyof SealedPayload)[] = [
  "profile",
  "key_id",
  "ephemeral_x25519_b64",
  "nonce_b64",
  "ciphertext_b64",
];

function parseSealed(payload: unknown): Sealed {
  if (!isRecord(payload) || payload["profile"] !== sealProfile)
    throw localError("unknown_profile", "sealed in a way that this program does not know");
  const [, keyId, ...texts] = sealedMembers.map((name) => payload[name]);
  const [ephemeral, nonce, ciphertext] = texts.map((text) => (typeof text === "string" ? decodeBase64(text) : null));
  const isWhole = ephemeral?.length === keyBytes && nonce?.length === nonceBytes && ciphertext != null;
  if (!isWhole || typeof keyId !== "string" || Object.keys(payload).length !== sealedMembers.length)
    throw notAuthentic("its payload is malformed");
  return { keyId, ephemeral, nonce, ciphertext };
}

function notAuthentic(why: string) {
  return localError("not_authentic", `the message is not what its sender sealed: ${why}`);
}

async function decrypt(sealed: Sealed, secret: Uint8Array, additional: Uint8Array): Promise<Uint8Array | null> {
  try {
    const key = contentKey(await x25519SharedSecret(secret, sealed.ephemeral), additional);
    return chacha20poly1305(key, sealed.nonce, additional).decrypt(sealed.ciphertext);
  } catch {
    return null;
  }
}

/** What a sender sealed is still a stranger's: its shape is checked, and that it says the same as the envelope. */
function parseRecord(plaintext: Uint8Array, binding: SealBinding): Opened {
  const record = decodeRecord(plaintext);
  checkRecord(record !== null, "it is not a CBOR map in deterministic form");
  for (const member of recordMembers) checkRecord(Object.hasOwn(record, member), `${member} is missing`);
  checkRecord(Object.keys(record).length === recordMembers.length, "it has members that are not known");
  const { format, name, media_type: mediaType, size_bytes: sizeBytes, data } = record;
  checkRecord(format === recordFormat, `its format is not ${recordFormat}`);
  // Waypost's first build wrote `null` for no group, and the digest as lower hex.
  for (const [member, value] of Object.entries(placeOf(binding)))
    checkRecord((record[member] ?? "") === value, `${member} differs from the envelope's`);
  const digest = parseHex32(record["sha256"]) ?? record["sha256"];
  checkRecord(typeof name === "string", "name must be text");
  checkRecord(typeof mediaType === "string", "media_type must be text");
  checkRecord(digest instanceof Uint8Array && digest.length === 32, "sha256 must be a byte string of 32 bytes");
  checkRecord(data instanceof Uint8Array, "data must be a byte string");
  checkRecord(isInteger(sizeBytes) && sizeBytes >= 0, "size_bytes must be an unsigned integer");
  checkRecord(sizeBytes >= data.length, "size_bytes is smaller than the data");
  return { file: { name, mediaType, sizeBytes, sha256: digest }, data };
}

/** It decrypts, so nobody changed it on the way: its sender wrote what this client can't read. */
function checkRecord(holds: boolean, why: string): asserts holds {
  if (!holds)
    throw localError("record_unreadable", `the message decrypts, but its sealed record can't be read: ${why}`);
}

const recordMembers = [
  "format",
  "name",
  "media_type",
  "size_bytes",
  "sha256",
  "message_group_id",
  "sequence_number",
  "total_chunks",
  "data",
];

/** `null` for anything but a map in the deterministic form of RFC 8949 section 4.2.1. */
function decodeRecord(plaintext: Uint8Array): Record<string, unknown> | null {
  try {
    const value: unknown = decode(plaintext);
    return isRecord(value) && equalBytes(encode(value, rfc8949EncodeOptions), plaintext) ? value : null;
  } catch {
    return null;
  }
}
