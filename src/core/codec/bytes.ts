/**
 * Bytes and their text forms: UTF-8, hex, Base64, base58btc, and public keys as multibase.
 * Decoders are strict: they return `null` for white space, missing padding and leftover
 * bits. In Bun, and so in every node, `#texts` is @scure/base (`texts.ts`); elsewhere it is
 * `texts-portable.ts`, which adds less to a page.
 * Source: rules section 1.
 */
import {
  decodeBase58,
  decodeBase64,
  decodeHexDigits,
  encodeBase58,
  encodeBase64,
  encodeHex,
} from "#texts";

export {
  decodeBase64,
  encodeBase32,
  encodeBase58,
  encodeBase64,
  encodeHex,
  lengthOfBase64,
} from "#texts";

const encoder = new TextEncoder();
const strictDecoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

export function utf8(text: string): Uint8Array {
  return encoder.encode(text);
}

/**
 * The text of UTF-8 bytes, or `null` when they are not well-formed UTF-8. A BOM is kept as
 * a character.
 */
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

// ---------------------------------------------------------------------------------- forms of texts

/** `0x` and lower-case hex. */
export function encodeHex0x(bytes: Uint8Array): string {
  return `0x${encodeHex(bytes)}`;
}

/** Bytes of an even number of hex digits, with or without `0x`; `null` otherwise. */
export function decodeHex(text: string): Uint8Array | null {
  return decodeHexDigits(text.startsWith("0x") ? text.slice(2) : text);
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

/**
 * The forms of `canonical_payload` and `doc_blob`: `0x` hex, or Base64 of either alphabet,
 * padded or not.
 */
export function decodePayloadText(text: string): Uint8Array | null {
  if (text.startsWith("0x")) return decodeHex(text);
  const padded = text.includes("=") ? text : text + "=".repeat(-text.length & 3);
  return decodeBase64(padded) ?? decodeBase64Url(padded);
}

// ------------------------------------------------------------------------------------- public keys

export const publicKeyBytes = 32;

/** Whether an Ed25519 key made a signature of a message. Never throws and never rejects. */
export type VerifySignature = (
  signature: Uint8Array,
  message: Uint8Array,
  publicKey: Uint8Array,
) => boolean | Promise<boolean>;

export const signatureBytes = 64;

/**
 * From hex with or without `0x`, or multibase; else `null`. Whether the bytes are a key is
 * `isAdmissibleKey`.
 */
export function parsePublicKey(text: string): Uint8Array | null {
  if (text.startsWith("z")) return parseMultibaseKey(text);
  if (text.length !== 64 && text.length !== 66) return null;
  const bytes = decodeHex(text);
  return bytes?.length === publicKeyBytes ? bytes : null;
}

/**
 * The longest text of 34 bytes with its `z`: looked at first, because the cost of base58 is
 * quadratic.
 */
const multibaseCharsMax = 49;

/**
 * A key as multibase: `z` and base58btc of the bare 32 bytes, or of a multicodec prefix
 * (`code`, 01) and the key.
 */
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
