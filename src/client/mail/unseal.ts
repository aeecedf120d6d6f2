/**
 * Opening what was sealed for this device; a page that only sends does not load it. Nothing is
 * trusted: every member is checked before and after decryption.
 * Source: docs/protocol.md ("Sealing").
 */
import { chacha20poly1305 } from "@noble/ciphers/chacha.js";
import { decodeBase64, decodeUtf8, equalBytes } from "../../core/codec/bytes.ts";
import { localError } from "../base/failure.ts";
import { isRecord, type Of, parseValue, problemOf, type Shape } from "../base/shapes.ts";
import { x25519SharedSecret } from "../keys/crypto.ts";
import { recordShape, sealedPayloadShape } from "../net/answers.ts";
import {
  additionalData,
  contentKey,
  encodeCborRecord,
  type FileFacts,
  keyBytes,
  nonceBytes,
  placeOf,
  recordFormat,
  type SealBinding,
  sealProfile,
} from "./seal.ts";

export type Opened = { readonly file: FileFacts; readonly data: Uint8Array };

/** Of one payload: with it, and with what was sealed, the same ciphertext is made again. */
export type Cipher = {
  readonly key: Uint8Array;
  readonly nonce: Uint8Array;
  /** Length of what was encrypted, with padding. */
  readonly plainBytes: number;
};

/**
 * The secrets held under the id of a key agreement: several when its key was
 * replaced, none when unknown.
 */
export type SecretsOf = (keyId: string) => readonly Uint8Array[];

/**
 * The opened payload. Throws a `local` ClientError: `unknown_profile`, `unknown_key`,
 * `not_authentic` or `record_unreadable`.
 */
export async function openPayload(
  payload: unknown,
  binding: SealBinding,
  secretsOf: SecretsOf,
): Promise<Opened> {
  const { file, data } = await openWithCipher(payload, binding, secretsOf);
  return { file, data };
}

export async function openWithCipher(
  payload: unknown,
  binding: SealBinding,
  secretsOf: SecretsOf,
): Promise<Opened & { readonly cipher: Cipher }> {
  const sealed = parseSealed(payload);
  const secrets = secretsOf(sealed.keyId);
  if (secrets.length === 0)
    throw localError(
      "unknown_key",
      `sealed to ${sealed.keyId}, whose secret is not on this device`,
    );
  const additional = additionalData(binding);
  for (const secret of secrets) {
    const found = await decrypt(sealed, secret, additional);
    if (found === null) continue;
    const { opened } = openedOf(decodeRecord(found.plaintext), recordShape, binding);
    const cipher = { key: found.key, nonce: sealed.nonce, plainBytes: found.plaintext.length };
    return { ...opened, cipher };
  }
  throw notAuthentic("it can't be decrypted");
}

type Sealed = {
  readonly keyId: string;
  readonly ephemeral: Uint8Array;
  readonly nonce: Uint8Array;
  readonly ciphertext: Uint8Array;
};

function parseSealed(payload: unknown): Sealed {
  if (!isRecord(payload) || payload["profile"] !== sealProfile)
    throw localError("unknown_profile", "sealed in a way that this program does not know");
  const texts = parseValue(payload, sealedPayloadShape);
  const ephemeral = decodeBase64(texts?.ephemeral_x25519_b64 ?? "");
  const nonce = decodeBase64(texts?.nonce_b64 ?? "");
  const ciphertext = decodeBase64(texts?.ciphertext_b64 ?? "");
  if (
    texts === null ||
    ephemeral?.length !== keyBytes ||
    nonce?.length !== nonceBytes ||
    ciphertext === null
  )
    throw notAuthentic("its payload is malformed");
  return { keyId: texts.key_id, ephemeral, nonce, ciphertext };
}

function notAuthentic(why: string) {
  return localError("not_authentic", `the message is not what its sender sealed: ${why}`);
}

async function decrypt(
  sealed: Sealed,
  secret: Uint8Array,
  additional: Uint8Array,
): Promise<{ readonly plaintext: Uint8Array; readonly key: Uint8Array } | null> {
  try {
    const key = contentKey(await x25519SharedSecret(secret, sealed.ephemeral), additional);
    return {
      plaintext: chacha20poly1305(key, sealed.nonce, additional).decrypt(sealed.ciphertext),
      key,
    };
  } catch {
    return null;
  }
}

type RecordMembers = Of<typeof recordShape>;

/**
 * What a sender sealed is still a stranger's: its shape is checked, and that it says the same as
 * the envelope. It decrypts, so no one changed it on the way: its sender wrote what this client
 * can't read (`record_unreadable`).
 */
function openedOf<Members extends RecordMembers>(
  decoded: Record<string, unknown> | null,
  shape: Shape<Members>,
  binding: SealBinding,
): { readonly opened: Opened; readonly record: Members } {
  if (decoded === null) throw unreadable("it must be one map of CBOR in its deterministic form");
  const record = parseValue(decoded, shape);
  if (record === null) throw unreadable(problemOf(shape, decoded, "the record") ?? "");
  const { name, media_type: mediaType, size_bytes: sizeBytes, sha256, data } = record;
  const expected = Object.entries({ format: recordFormat, ...placeOf(binding) });
  const other = expected.find(([member, value]) => decoded[member] !== value);
  if (other !== undefined) throw unreadable(`${other[0]} must be ${other[1]}`);
  if (sizeBytes < data.length) throw unreadable("size_bytes is smaller than the data");
  return { opened: { file: { name, mediaType, sizeBytes, sha256 }, data }, record };
}

function unreadable(why: string) {
  return localError(
    "record_unreadable",
    `the message decrypts, but its sealed record can't be read: ${why}`,
  );
}

/** `null` for anything but a map in the deterministic form of RFC 8949 section 4.2.1. */
function decodeRecord(plaintext: Uint8Array): Record<string, unknown> | null {
  try {
    const record = decodeMap(plaintext);
    return equalBytes(encodeCborRecord(record), plaintext) ? record : null;
  } catch {
    return null;
  }
}

/** A flat map; in which form is compared afterwards. Throws for anything else. */
function decodeMap(bytes: Uint8Array): Record<string, unknown> {
  let at = 0;
  const head = (): readonly [major: number, argument: number] => {
    const first = bytes[at++] ?? Number.NaN;
    const [major, low] = [first >> 5, first & 31];
    if (low < 24) return [major, low];
    let argument = 0;
    for (const end = at + 2 ** (low - 24); at < end; at++)
      argument = argument * 256 + (bytes[at] ?? Number.NaN);
    if (low > 27 || !Number.isSafeInteger(argument)) throw new RangeError("not a length");
    return [major, argument];
  };
  const item = (): unknown => {
    const [major, argument] = head();
    if (major === 0) return argument;
    if (major === 1) return -1 - argument;
    if ((major !== 2 && major !== 3) || at + argument > bytes.length)
      throw new RangeError("not a value of a record");
    const content = bytes.slice(at, at + argument);
    at += argument;
    return major === 2 ? content : decodeUtf8(content);
  };
  const [major, count] = head();
  if (major !== 5 || count > recordPairsMax) throw new RangeError("not the map of a record");
  const pairs = Array.from({ length: count }, () => [String(item()), item()] as const);
  if (at !== bytes.length) throw new RangeError("more than a record");
  return Object.fromEntries(pairs);
}

/** More than a record has, so that one with unknown members can be named. */
const recordPairsMax = 64;

/**
 * For the second version, whose part does not bring them: a page that only
 * sends has no use for them.
 */
export const recordReader = { decode: decodeRecord, openedOf, notAuthentic, unreadable } as const;
