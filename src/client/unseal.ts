/**
 * Opening what was sealed for this device. Nothing is trusted: every member is checked before and after decryption.
 * Source: docs/ledger.md 3.2 ("End-to-end cryptography"), with the `svc` prefix.
 */
import { chacha20poly1305 } from "@noble/ciphers/chacha.js";
import { decode, encode, rfc8949EncodeOptions } from "cborg";
import { decodeBase64, decodeHex, equalBytes } from "../core/codec/bytes.ts";
import { isRecord } from "./answers.ts";
import { x25519SharedSecret } from "./crypto.ts";
import { localError } from "./http.ts";
import {
  additionalData,
  type Binding,
  contentKey,
  type FileFacts,
  keyBytes,
  nonceBytes,
  recordFormat,
  sealProfile,
} from "./seal.ts";

const digestBytes = 32;

export type Opened = { readonly file: FileFacts; readonly data: Uint8Array };

/** The secrets held under the id of a key agreement: several when its key was replaced, none when unknown. */
export type SecretsOf = (keyId: string) => readonly Uint8Array[];

/** The opened payload. Throws a `local` ClientError: `unknown_profile`, `unknown_key`, `not_authentic` or `record_unreadable`. */
export async function openPayload(payload: unknown, binding: Binding, secretsOf: SecretsOf): Promise<Opened> {
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

const sealedMembers = ["profile", "key_id", "ephemeral_x25519_b64", "nonce_b64", "ciphertext_b64"];

function parseSealed(payload: unknown): Sealed {
  if (!isRecord(payload) || payload["profile"] !== sealProfile) {
    throw localError("unknown_profile", "sealed in a way that this program does not know");
  }
  const bytes = (name: string) => decodeBase64(typeof payload[name] === "string" ? payload[name] : "?");
  const keyId = payload["key_id"];
  const [ephemeral, nonce, ciphertext] = ["ephemeral_x25519_b64", "nonce_b64", "ciphertext_b64"].map(bytes);
  const whole =
    typeof keyId === "string" &&
    ephemeral?.length === keyBytes &&
    nonce?.length === nonceBytes &&
    ciphertext != null &&
    Object.keys(payload).every((name) => sealedMembers.includes(name));
  if (!whole) throw notAuthentic("its payload is malformed");
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

/** The message decrypts, so nobody changed it on the way: its sender wrote what this client can't read. */
function unreadableRecord(why: string) {
  return localError("record_unreadable", `the message decrypts, but its sealed record can't be read: ${why}`);
}

/** What a sender sealed is still a stranger's: its shape is checked, and that it says the same as the envelope. */
function parseRecord(plaintext: Uint8Array, binding: Binding): Opened {
  const record = decodeRecord(plaintext);
  if (record === null) throw unreadableRecord("it is not a CBOR map in deterministic form");
  checkMembers(record);
  checkPlace(record, binding);
  const { name, media_type: mediaType, data } = record;
  const hash = parseDigest(record["sha256"]);
  if (typeof name !== "string") throw unreadableRecord("name must be text");
  if (typeof mediaType !== "string") throw unreadableRecord("media_type must be text");
  if (hash === null) throw unreadableRecord("sha256 must be a byte string of 32 bytes");
  if (!(data instanceof Uint8Array)) throw unreadableRecord("data must be a byte string");
  const sizeBytes = record["size_bytes"];
  if (typeof sizeBytes !== "number" || !Number.isSafeInteger(sizeBytes) || sizeBytes < 0)
    throw unreadableRecord("size_bytes must be an unsigned integer");
  if (sizeBytes < data.length) throw unreadableRecord("size_bytes is smaller than the data");
  return { file: { name, mediaType, sizeBytes, sha256: hash }, data };
}

function checkMembers(record: Record<string, unknown>): void {
  const missing = recordMembers.find((member) => !Object.hasOwn(record, member));
  if (missing !== undefined) throw unreadableRecord(`${missing} is missing`);
  if (Object.keys(record).length > recordMembers.length) throw unreadableRecord("it has members that are not known");
  if (record["format"] !== recordFormat) throw unreadableRecord(`its format is not ${recordFormat}`);
}

/** The first release wrote `null` for the group of a whole message, where the family writes empty text. */
function checkPlace(record: Record<string, unknown>, { chunk }: Binding): void {
  if ((record["message_group_id"] ?? "") !== (chunk?.groupId ?? ""))
    throw unreadableRecord("message_group_id differs from the envelope's");
  if (record["sequence_number"] !== (chunk?.sequence ?? 0))
    throw unreadableRecord("sequence_number differs from the envelope's");
  if (record["total_chunks"] !== (chunk?.total ?? 1))
    throw unreadableRecord("total_chunks differs from the envelope's");
}

/** 32 bytes; the first release wrote them as lower hex. */
function parseDigest(value: unknown): Uint8Array | null {
  if (value instanceof Uint8Array) return value.length === digestBytes ? value : null;
  return typeof value === "string" && /^[0-9a-f]{64}$/.test(value) ? decodeHex(value) : null;
}

/** `null` for anything but a map in the deterministic form of RFC 8949 section 4.2.1. */
function decodeRecord(plaintext: Uint8Array): Record<string, unknown> | null {
  try {
    const value: unknown = decode(plaintext);
    return isRecord(value) && equalBytes(encode(value, rfc8949EncodeOptions), plaintext) ? value : null;
  } catch {
    return null;
  }
}
