/**
 * Hex, Base64, base32 and base58btc by @scure/base: `#texts` in Bun, and so in every node.
 * It uses the runtime's native methods where they exist. Decoders are strict: they return
 * `null` for white space, missing padding and leftover bits.
 * Source: rules section 1.
 */
import { base32crockford, base58, base64, hex } from "@scure/base";

export function encodeHex(bytes: Uint8Array): string {
  return hex.encode(bytes);
}

/** Bytes of an even number of hex digits; `null` otherwise. */
export function decodeHexDigits(digits: string): Uint8Array | null {
  return decodeWith(hex, digits);
}

/** Standard alphabet with padding. */
export function encodeBase64(bytes: Uint8Array): string {
  return base64.encode(bytes);
}

/** Standard alphabet, padded, canonical trailing bits, no white space. */
export function decodeBase64(text: string): Uint8Array | null {
  return decodeWith(base64, text);
}

const scratch = new Uint8Array(48 * 1024);

/**
 * How many bytes `decodeBase64` would give; `null` where it would. A short text is copied nowhere.
 */
export function lengthOfBase64(text: string): number | null {
  if (text.length % 4 !== 0) return null;
  if ((text.length / 4) * 3 > scratch.length) return decodeBase64(text)?.length ?? null;
  const padding = text.endsWith("==") ? 2 : Number(text.endsWith("="));
  try {
    const { written } = scratch.setFromBase64(text, { lastChunkHandling: "strict" });
    // White space, which the runtime skips, would make it less.
    return written === (text.length / 4) * 3 - padding ? written : null;
  } catch {
    return null;
  }
}

/** Crockford's, without I, L, O and U: for texts that people compare or type. */
export function encodeBase32(bytes: Uint8Array): string {
  return base32crockford.encode(bytes);
}

/** Its cost is quadratic in the length: callers bound it. */
export function encodeBase58(bytes: Uint8Array): string {
  return base58.encode(bytes);
}

/** Likewise quadratic. */
export function decodeBase58(text: string): Uint8Array | null {
  return decodeWith(base58, text);
}

function decodeWith(
  codec: { readonly decode: (text: string) => Uint8Array },
  text: string,
): Uint8Array | null {
  try {
    return codec.decode(text);
  } catch {
    return null;
  }
}
