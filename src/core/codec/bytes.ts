/**
 * Bytes and their text forms: UTF-8, hex, Base64, base58btc, and public keys as multibase. Decoders are strict: they
 * answer `null` for white space, missing padding and leftover bits. Native code does the work where the runtime has it
 * (every node); JavaScript does it elsewhere (Node, some browsers).
 * Source: rules section 1.
 */
/** ES2026 methods of `Uint8Array`: about ten times as fast as the same in JavaScript. */
type NativeText = {
  toHex(): string;
  toBase64(): string;
};
type NativeBytes = {
  fromHex(text: string): Uint8Array<ArrayBuffer>;
  fromBase64(text: string, options: object): Uint8Array<ArrayBuffer>;
};
const nativeBytes = Uint8Array as typeof Uint8Array & NativeBytes;
const hasNativeText = "toHex" in Uint8Array.prototype && "fromBase64" in Uint8Array;

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

export function concatBytes(...parts: Uint8Array[]): Uint8Array {
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

export function encodeHex(bytes: Uint8Array): string {
  return hasNativeText
    ? (bytes as Uint8Array & NativeText).toHex()
    : Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** `0x` and lower-case hex. */
export function encodeHex0x(bytes: Uint8Array): string {
  return `0x${encodeHex(bytes)}`;
}

/** Bytes of an even number of hex digits, with or without `0x`; `null` otherwise. */
export function decodeHex(text: string): Uint8Array | null {
  const digits = text.startsWith("0x") ? text.slice(2) : text;
  if (digits.length % 2 !== 0) return null;
  try {
    return hasNativeText ? nativeBytes.fromHex(digits) : hexInJavaScript(digits);
  } catch {
    return null;
  }
}

/** Standard alphabet with padding. */
export function encodeBase64(bytes: Uint8Array): string {
  return hasNativeText ? (bytes as Uint8Array & NativeText).toBase64() : base64InJavaScript(bytes);
}

/** Standard alphabet, padded, canonical trailing bits, no white space. Cost: one native pass over the text. */
export function decodeBase64(text: string): Uint8Array | null {
  return decodeStrictBase64(text, "base64");
}

/** Bytes that are decoded at once to count them. */
const measureBytes = 48 * 1024;
const measured = new Uint8Array(measureBytes);
type MeasuringBytes = { setFromBase64(text: string, options: object): { readonly written: number } };
const canMeasure = "setFromBase64" in Uint8Array.prototype;

/**
 * The number of bytes that `decodeBase64` would return, or `null`. Costs as much as decoding, but allocates nothing.
 */
export function measureBase64(text: string): number | null {
  if (!canMeasure) return decodeBase64(text)?.length ?? null;
  if (text.length % 4 !== 0) return null;
  const charsMax = (measureBytes / 3) * 4;
  let bytes = 0;
  try {
    for (let at = 0; at < text.length; at += charsMax) {
      const part = text.length <= charsMax ? text : text.slice(at, at + charsMax);
      const { written } = (measured as Uint8Array & MeasuringBytes).setFromBase64(part, strictly);
      bytes += written;
      // Padding or white space before the end.
      if (at + charsMax < text.length && written !== measureBytes) return null;
    }
  } catch {
    return null;
  }
  return Math.ceil(bytes / 3) * 4 === text.length ? bytes : null;
}

const strictly = { lastChunkHandling: "strict" } as const;

function decodeStrictBase64(text: string, alphabet: "base64" | "base64url"): Uint8Array | null {
  if (text.length % 4 !== 0) return null;
  try {
    if (!hasNativeText) return base64FromJavaScript(text, alphabet);
    const bytes = nativeBytes.fromBase64(text, { alphabet, lastChunkHandling: "strict" });
    // The native decoder skips white space; text that held some is longer than its bytes need.
    return Math.ceil(bytes.length / 3) * 4 === text.length ? bytes : null;
  } catch {
    return null;
  }
}

/**
 * The forms of `canonical_payload` and `doc_blob`: `0x` hex, or Base64 of either alphabet with or without
 * padding (whether a text shows its alphabet depends on the bytes). `null` when the text is none of them.
 */
export function decodePayloadText(text: string): Uint8Array | null {
  if (text.startsWith("0x")) return decodeHex(text);
  const padded = text.includes("=") ? text : text + "=".repeat(-text.length & 3);
  return decodeStrictBase64(padded, "base64") ?? decodeStrictBase64(padded, "base64url");
}

/** Throws for anything but a hex digit. */
function hexInJavaScript(digits: string): Uint8Array {
  if (!/^[0-9a-fA-F]*$/.test(digits)) throw new SyntaxError("not hex");
  return Uint8Array.from({ length: digits.length / 2 }, (_, i) => Number.parseInt(digits.slice(2 * i, 2 * i + 2), 16));
}

/** Bytes per call of `String.fromCharCode`, where each is an argument. */
const charactersAtOnce = 0x8000;

function base64InJavaScript(bytes: Uint8Array): string {
  let text = "";
  for (let at = 0; at < bytes.length; at += charactersAtOnce)
    text += String.fromCharCode(...bytes.subarray(at, at + charactersAtOnce));
  return btoa(text);
}

/** `atob` accepts white space and leftover bits, so the result must encode to the same text again. */
function base64FromJavaScript(text: string, alphabet: "base64" | "base64url"): Uint8Array | null {
  if (alphabet === "base64url" && /[+/]/.test(text)) return null;
  const standard = alphabet === "base64" ? text : text.replaceAll("-", "+").replaceAll("_", "/");
  const decoded = atob(standard);
  if (btoa(decoded) !== standard) return null;
  return Uint8Array.from(decoded, (character) => character.charCodeAt(0));
}

const base58Digits = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz";

/** The cost of base58btc is quadratic in the length: callers bound it. */
export function encodeBase58(bytes: Uint8Array): string {
  const digits = convertRadix(bytes, 256, 58);
  return Array.from(digits, (digit) => base58Digits[digit]).join("");
}

/** As `encodeBase58`. */
function decodeBase58(text: string): Uint8Array | null {
  const digits = Array.from(text, (character) => base58Digits.indexOf(character));
  return digits.includes(-1) ? null : Uint8Array.from(convertRadix(digits, 58, 256));
}

/** The digits of the same number in another base, the greatest first; each zero in front stays one. */
function convertRadix(digits: Iterable<number>, from: number, to: number): number[] {
  const converted: number[] = [];
  let zeros = 0;
  for (const digit of digits) {
    if (digit === 0 && converted.length === 0) zeros++;
    let carry = digit;
    for (let i = 0; i < converted.length; i++) {
      carry += (converted[i] as number) * from;
      converted[i] = carry % to;
      carry = Math.floor(carry / to);
    }
    for (; carry > 0; carry = Math.floor(carry / to)) converted.push(carry % to);
  }
  return [...new Array<number>(zeros).fill(0), ...converted.reverse()];
}

// -------------------------------------------------------------------------------------------------------- public keys

export const publicKeyBytes = 32;
export const signatureBytes = 64;

/**
 * 32 bytes from `0x` and 64 hex digits, 64 hex digits, or `z` and base58btc of the bare key or of
 * `ed 01` and the key; `null` for anything else. Whether the bytes are a key is `isAdmissibleKey`.
 */
export function parsePublicKey(text: string): Uint8Array | null {
  if (text.startsWith("z")) return parseMultibaseKey(text);
  if (text.length !== 64 && text.length !== 66) return null;
  const bytes = decodeHex(text);
  return bytes?.length === publicKeyBytes ? bytes : null;
}

/**
 * The longest base58btc text of 34 bytes, with its `z`. The length is checked first, because the cost of base58 is
 * quadratic.
 */
const multibaseCharsMax = 49;

/** The first byte of a multicodec prefix; the second one is always 01. */
const ed25519Code = 0xed;
const x25519Code = 0xec;

/** An Ed25519 key as multibase: `z` and base58btc of the bare 32 bytes or of `ed 01` and the key; else `null`. */
export function parseMultibaseKey(text: string): Uint8Array | null {
  return parseMultikey(text, ed25519Code);
}

/** An X25519 key as multibase: as above, with `ec 01`. */
export function parseAgreementKey(text: string): Uint8Array | null {
  return parseMultikey(text, x25519Code);
}

function parseMultikey(text: string, code: number): Uint8Array | null {
  if (!text.startsWith("z") || text.length > multibaseCharsMax) return null;
  const bytes = decodeBase58(text.slice(1));
  if (bytes === null) return null;
  if (bytes.length === publicKeyBytes) return bytes;
  return bytes.length === publicKeyBytes + 2 && bytes[0] === code && bytes[1] === 0x01 ? bytes.slice(2) : null;
}

/** An Ed25519 key as multibase: `z` and base58btc of `ed 01` and the 32 bytes. */
export function renderPublicKey(publicKey: Uint8Array): string {
  return `z${encodeBase58(Uint8Array.of(ed25519Code, 0x01, ...publicKey))}`;
}

/** An X25519 key as multibase: `z` and base58btc of `ec 01` and the 32 bytes. */
export function renderAgreementKey(publicKey: Uint8Array): string {
  return `z${encodeBase58(Uint8Array.of(x25519Code, 0x01, ...publicKey))}`;
}
