/**
 * Bytes and their text forms: UTF-8, hex, Base64, base58btc, and public keys as multibase. Decoders are strict: they
 * return `null` for white space, missing padding and leftover bits. The runtime's native methods are used where they exist.
 * Source: rules section 1.
 */

const encoder = new TextEncoder();
const strictDecoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

export function utf8(text: string): Uint8Array {
  return encoder.encode(text);
}

/** The text of UTF-8 bytes, or `null` when they are not well-formed UTF-8. A BOM is kept as a character. */
export function decodeUtf8(bytes: Uint8Array): string | null {
  try {
    return strictDecoder.decode(bytes);
  } catch {
    return null;
  }
}

export function equalBytes(a: Uint8Array, b: Uint8Array): boolean {
  if (a.length !== b.length) return false;
  for (let i = 0; i < a.length; i++) if (a[i] !== b[i]) return false;
  return true;
}

export function concatBytes(...parts: readonly Uint8Array[]): Uint8Array {
  return joinBytes(parts);
}

/** For parts whose number strangers choose. A single one is not copied. */
export function joinBytes(parts: readonly Uint8Array[]): Uint8Array {
  const [first] = parts;
  if (first !== undefined && parts.length === 1) return first;
  let length = 0;
  for (const part of parts) length += part.length;
  const out = new Uint8Array(length);
  let at = 0;
  for (const part of parts) {
    out.set(part, at);
    at += part.length;
  }
  return out;
}

// -------------------------------------------------------------------------------------------------------- hex and Base64

/** Of ECMAScript 2026; older browsers have none of them. */
type Native = {
  readonly toHex?: () => string;
  readonly toBase64?: () => string;
};
type NativeClass = {
  readonly fromHex?: (text: string) => Uint8Array;
  readonly fromBase64?: (text: string, how: { readonly lastChunkHandling: "strict" }) => Uint8Array;
};
const native: NativeClass = Uint8Array as object;

export function encodeHex(bytes: Uint8Array): string {
  const { toHex } = bytes as Native;
  if (toHex !== undefined) return toHex.call(bytes);
  let text = "";
  for (const byte of bytes) text += byte.toString(16).padStart(2, "0");
  return text;
}

/** `0x` and lower-case hex. */
export function encodeHex0x(bytes: Uint8Array): string {
  return `0x${encodeHex(bytes)}`;
}

/** Bytes of an even number of hex digits, with or without `0x`; `null` otherwise. */
export function decodeHex(text: string): Uint8Array | null {
  const digits = text.startsWith("0x") ? text.slice(2) : text;
  if (digits.length % 2 !== 0 || /[^0-9a-f]/i.test(digits)) return null;
  if (native.fromHex !== undefined) return native.fromHex(digits);
  const bytes = new Uint8Array(digits.length / 2);
  for (let i = 0; i < bytes.length; i++)
    bytes[i] = Number.parseInt(digits.slice(2 * i, 2 * i + 2), 16);
  return bytes;
}

/** Standard alphabet with padding. */
export function encodeBase64(bytes: Uint8Array): string {
  const { toBase64 } = bytes as Native;
  return toBase64 === undefined ? btoa(binaryOf(bytes)) : toBase64.call(bytes);
}

/** One character for each byte. */
function binaryOf(bytes: Uint8Array): string {
  let text = "";
  for (const byte of bytes) text += String.fromCharCode(byte);
  return text;
}

/** Standard alphabet, padded, canonical trailing bits, no white space. */
export function decodeBase64(text: string): Uint8Array | null {
  if (text.length % 4 !== 0 || /[^A-Za-z0-9+/=]/.test(text)) return null;
  try {
    if (native.fromBase64 !== undefined)
      return native.fromBase64(text, { lastChunkHandling: "strict" });
    const bytes = Uint8Array.from(atob(text), (one) => one.charCodeAt(0));
    const end = bytes.length - (bytes.length % 3 || 3);
    return text.endsWith(encodeBase64(bytes.subarray(Math.max(end, 0)))) ? bytes : null;
  } catch {
    return null;
  }
}

/** Without padding: for texts in headers and in members that browsers make. */
export function encodeBase64Url(bytes: Uint8Array): string {
  return encodeBase64(bytes).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}

/** Padded or not. */
export function decodeBase64Url(text: string): Uint8Array | null {
  if (/[+/]/.test(text)) return null;
  const padded = text.endsWith("=") ? text : text + "=".repeat(-text.length & 3);
  return decodeBase64(padded.replaceAll("-", "+").replaceAll("_", "/"));
}

/** The forms of `canonical_payload` and `doc_blob`: `0x` hex, or Base64 of either alphabet, padded or not. */
export function decodePayloadText(text: string): Uint8Array | null {
  if (text.startsWith("0x")) return decodeHex(text);
  const padded = text.includes("=") ? text : text + "=".repeat(-text.length & 3);
  return decodeBase64(padded) ?? decodeBase64Url(padded);
}

// ---------------------------------------------------------------------------------------------------- other alphabets

/** Crockford's, without I, L, O and U. */
const alphabet32 = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";
const alphabet58 = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz";

/** For texts that people compare or type. */
export function encodeBase32(bytes: Uint8Array): string {
  let text = "";
  let [held, bits] = [0, 0];
  for (const byte of bytes) {
    held = ((held << 8) | byte) & 0xfff;
    for (bits += 8; bits >= 5; bits -= 5) text += alphabet32[(held >> (bits - 5)) & 31];
  }
  return bits === 0 ? text : text + alphabet32[(held << (5 - bits)) & 31];
}

/** The digits of a number in another base, the most significant one first; leading zeros stay. */
function inBase(digits: Iterable<number>, from: number, to: number): number[] {
  const out: number[] = [];
  let zeros = 0;
  for (const digit of digits) {
    if (digit === 0 && out.length === 0) zeros++;
    let carry = digit;
    for (let i = 0; i < out.length; i++) {
      carry += (out[i] as number) * from;
      out[i] = carry % to;
      carry = Math.floor(carry / to);
    }
    for (; carry > 0; carry = Math.floor(carry / to)) out.push(carry % to);
  }
  return [...new Array<number>(zeros).fill(0), ...out.reverse()];
}

/** Its cost is quadratic in the length: callers bound it. */
export function encodeBase58(bytes: Uint8Array): string {
  return inBase(bytes, 256, 58)
    .map((digit) => alphabet58[digit])
    .join("");
}

/** Likewise quadratic. */
function decodeBase58(text: string): Uint8Array | null {
  const digits = [...text].map((one) => alphabet58.indexOf(one));
  return digits.includes(-1) ? null : Uint8Array.from(inBase(digits, 58, 256));
}

// -------------------------------------------------------------------------------------------------------- public keys

export const publicKeyBytes = 32;

/** Whether an Ed25519 key made a signature of a message. Never throws and never rejects. */
export type VerifySignature = (
  signature: Uint8Array,
  message: Uint8Array,
  publicKey: Uint8Array,
) => boolean | Promise<boolean>;

export const signatureBytes = 64;

/** From hex with or without `0x`, or multibase; else `null`. Whether the bytes are a key is `isAdmissibleKey`. */
export function parsePublicKey(text: string): Uint8Array | null {
  if (text.startsWith("z")) return parseMultibaseKey(text);
  if (text.length !== 64 && text.length !== 66) return null;
  const bytes = decodeHex(text);
  return bytes?.length === publicKeyBytes ? bytes : null;
}

/** The longest text of 34 bytes with its `z`: looked at first, because the cost of base58 is quadratic. */
const multibaseCharsMax = 49;

/** A key as multibase: `z` and base58btc of the bare 32 bytes, or of a multicodec prefix (`code`, 01) and the key. */
const parseMultikey =
  (code: number) =>
  (text: string): Uint8Array | null => {
    if (!text.startsWith("z") || text.length > multibaseCharsMax) return null;
    const bytes = decodeBase58(text.slice(1));
    if (bytes?.length === publicKeyBytes) return bytes;
    return bytes?.length === publicKeyBytes + 2 && bytes[0] === code && bytes[1] === 0x01
      ? bytes.slice(2)
      : null;
  };
const renderMultikey =
  (code: number) =>
  (publicKey: Uint8Array): string =>
    `z${encodeBase58(Uint8Array.of(code, 0x01, ...publicKey))}`;

const ed25519Code = 0xed;
export const parseMultibaseKey = parseMultikey(ed25519Code);
export const renderPublicKey = renderMultikey(ed25519Code);

const x25519Code = 0xec;
export const parseAgreementKey = parseMultikey(x25519Code);
export const renderAgreementKey = renderMultikey(x25519Code);
