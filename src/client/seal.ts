/**
 * End-to-end sealing of one envelope's payload: X25519 + HKDF-SHA256 + ChaCha20-Poly1305 over a
 * deterministic CBOR record, bound to message, recipient and place in the file by the additional data.
 * Opening trusts nothing: every member is checked before and after decryption.
 * Source: docs/ledger.md 3.2 ("End-to-end cryptography"), with the `svc` prefix.
 */
import { chacha20poly1305 } from "@noble/ciphers/chacha.js";
import { sha256 } from "#sha256";
import { concatBytes, decodeBase64, decodeHex, decodeUtf8, encodeBase64, utf8 } from "../core/codec/bytes.ts";
import { isRecord } from "./answers.ts";
import { hkdf, x25519PublicKey, x25519SharedSecret } from "./crypto.ts";
import { localError } from "./http.ts";

const sealProfile = "svc:cbor-chunk:x25519-hkdf-sha256-chacha20poly1305:v1";
const recordFormat = "svc:binary-chunk:v1";
const keyBytes = 32;
const nonceBytes = 12;
const digestBytes = 32;

/** What the additional data binds a payload to. Unchunked: no group, 0 of 1. */
export type Binding = {
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

type SealedPayload = {
  readonly profile: string;
  readonly key_id: string;
  readonly ephemeral_x25519_b64: string;
  readonly nonce_b64: string;
  readonly ciphertext_b64: string;
};

export type RecipientKey = { readonly keyId: string; readonly publicKey: Uint8Array };

/** Random for one payload and never used for another: the same pair seals the same bytes again. */
type SealEntropy = { readonly ephemeralSecret: Uint8Array; readonly nonce: Uint8Array };

export type SealInput = {
  readonly binding: Binding;
  readonly file: FileFacts;
  readonly data: Uint8Array;
  readonly recipient: RecipientKey;
  readonly entropy: SealEntropy;
};

export async function sealPayload(input: SealInput): Promise<SealedPayload> {
  const { binding, file, data, recipient, entropy } = input;
  const additional = additionalData(binding);
  const key = contentKey(await x25519SharedSecret(entropy.ephemeralSecret, recipient.publicKey), additional);
  const record = {
    format: recordFormat,
    name: file.name,
    media_type: file.mediaType,
    size_bytes: file.sizeBytes,
    sha256: file.sha256,
    message_group_id: binding.chunk?.groupId ?? "",
    sequence_number: binding.chunk?.sequence ?? 0,
    total_chunks: binding.chunk?.total ?? 1,
    data,
  };
  const plaintext = encodeCborMap(record);
  return {
    profile: sealProfile,
    key_id: recipient.keyId,
    ephemeral_x25519_b64: encodeBase64(await x25519PublicKey(entropy.ephemeralSecret)),
    nonce_b64: encodeBase64(entropy.nonce),
    ciphertext_b64: encodeBase64(chacha20poly1305(key, entropy.nonce, additional).encrypt(plaintext)),
  };
}

/** UTF-8 of `profile|message_id|to|message_group_id|sequence_number|total_chunks`. */
function additionalData({ messageId, to, chunk }: Binding): Uint8Array {
  return utf8(
    [sealProfile, messageId, to, chunk?.groupId ?? "", `${chunk?.sequence ?? 0}`, `${chunk?.total ?? 1}`].join("|"),
  );
}

function contentKey(shared: Uint8Array, additional: Uint8Array): Uint8Array {
  return hkdf(shared, sha256(additional), utf8(sealProfile), keyBytes);
}

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
  const record = decodeCborMap(plaintext);
  if (record === null) throw unreadableRecord("it is not a deterministic CBOR map of text, bytes and integers");
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

// --------------------------------------------------------------------------------------------------------------- CBOR

// As sealed records need it: one map of text keys to text, byte strings, integers and null, in the deterministic
// form of RFC 8949 section 4.2.1. A general codec would be a fifth of what a page loads; tests compare this one with
// `cborg`.

type CborValue = string | Uint8Array | number | null;

const unsignedMajor = 0;
/** No sound record holds one; it is read nevertheless, so that the refusal names its member. */
const negativeMajor = 1;
const bytesMajor = 2;
const textMajor = 3;
const mapMajor = 5;
const nullByte = 0xf6;

export function encodeCborMap(members: Readonly<Record<string, CborValue>>): Uint8Array {
  const entries = Object.entries(members).map(([name, value]) => ({ key: encodeValue(name), value }));
  entries.sort((a, b) => compareBytes(a.key, b.key));
  const parts = entries.flatMap(({ key, value }) => [key, encodeValue(value)]);
  return concatBytes(encodeHead(mapMajor, entries.length), ...parts);
}

function encodeValue(value: CborValue): Uint8Array {
  if (value === null) return Uint8Array.of(nullByte);
  if (typeof value === "number")
    return value < 0 ? encodeHead(negativeMajor, -1 - value) : encodeHead(unsignedMajor, value);
  const bytes = typeof value === "string" ? utf8(value) : value;
  return concatBytes(encodeHead(typeof value === "string" ? textMajor : bytesMajor, bytes.length), bytes);
}

/** Major type and argument, the argument in the fewest bytes. */
function encodeHead(major: number, argument: number): Uint8Array {
  const size = argument < 24 ? 0 : argument < 0x100 ? 1 : argument < 0x1_0000 ? 2 : argument < 2 ** 32 ? 4 : 8;
  const head = new Uint8Array(1 + size);
  head[0] = (major << 5) | (size === 0 ? argument : 24 + Math.log2(size));
  for (let i = size, rest = argument; i > 0; i--, rest = Math.floor(rest / 0x100)) head[i] = rest % 0x100;
  return head;
}

function compareBytes(a: Uint8Array, b: Uint8Array): number {
  for (let i = 0; i < a.length && i < b.length; i++) {
    const difference = (a[i] as number) - (b[i] as number);
    if (difference !== 0) return difference;
  }
  return a.length - b.length;
}

/**
 * The members of a map, or `null` for anything else: a type that no record has, bytes left over, a key twice or out of
 * order, a length that is not in its shortest form.
 */
export function decodeCborMap(bytes: Uint8Array): Record<string, CborValue> | null {
  const at = { bytes, offset: 0 };
  const head = decodeHead(at);
  if (head?.major !== mapMajor) return null;
  const members: [string, CborValue][] = [];
  let before: Uint8Array | null = null;
  for (let i = 0; i < head.argument; i++) {
    const start = at.offset;
    const name = decodeValue(at);
    const key = bytes.subarray(start, at.offset);
    const value = decodeValue(at);
    if (typeof name !== "string" || value === undefined) return null;
    if (before !== null && compareBytes(before, key) >= 0) return null;
    before = key;
    members.push([name, value]);
  }
  return at.offset === bytes.length ? Object.fromEntries(members) : null;
}

type Position = { readonly bytes: Uint8Array; offset: number };

/** `undefined` when the value is of a kind that records do not hold. */
function decodeValue(at: Position): CborValue | undefined {
  if (at.bytes[at.offset] === nullByte) {
    at.offset++;
    return null;
  }
  const head = decodeHead(at);
  if (head === null) return undefined;
  const { major, argument } = head;
  if (major === unsignedMajor) return argument;
  if (major === negativeMajor) return -1 - argument;
  if (major !== bytesMajor && major !== textMajor) return undefined;
  if (argument > at.bytes.length - at.offset) return undefined;
  const content = at.bytes.subarray(at.offset, at.offset + argument);
  at.offset += argument;
  return major === bytesMajor ? content : (decodeUtf8(content) ?? undefined);
}

function decodeHead(at: Position): { readonly major: number; readonly argument: number } | null {
  const first = at.bytes[at.offset++];
  if (first === undefined) return null;
  const [major, additional] = [first >> 5, first & 0x1f];
  if (additional < 24) return { major, argument: additional };
  if (additional > 27) return null;
  const size = 2 ** (additional - 24);
  if (size > at.bytes.length - at.offset) return null;
  let argument = 0;
  for (let i = 0; i < size; i++) argument = argument * 0x100 + (at.bytes[at.offset++] as number);
  const isShortest = argument >= (size === 1 ? 24 : 2 ** (4 * size));
  return isShortest && Number.isSafeInteger(argument) ? { major, argument } : null;
}
