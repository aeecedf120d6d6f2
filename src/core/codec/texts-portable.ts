/**
 * Hex, Base64, base32 and base58btc of the SDK outside Bun: `#texts`, by what the platform
 * has. The library that nodes use (`texts.ts`) would be 1.7 of the 55 KB that a page may
 * load. Tests compare both sides.
 * Source: rules section 1.
 */

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

/** Bytes of an even number of hex digits; `null` otherwise. */
export function decodeHexDigits(digits: string): Uint8Array | null {
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

/** How many bytes `decodeBase64` would give; `null` where it would. */
export function lengthOfBase64(text: string): number | null {
  return decodeBase64(text)?.length ?? null;
}

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
export function decodeBase58(text: string): Uint8Array | null {
  const digits = [...text].map((one) => alphabet58.indexOf(one));
  return digits.includes(-1) ? null : Uint8Array.from(inBase(digits, 58, 256));
}
