/**
 * Ed25519 public keys as text, for nodes and clients. Apart from `ed25519.ts`, so that who only reads and writes
 * keys does not load the curve.
 * Source: rules section 1.
 */
import { decodeBase58, decodeHex, encodeBase58 } from "./bytes.ts";

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

/** Longest base58btc text of 34 bytes, with its `z`. Base58 is quadratic, so length is looked at first. */
const multibaseCharactersMax = 49;

/** The key of a multibase text, of either form; `null` for anything else. */
export function parseMultibaseKey(text: string): Uint8Array | null {
  if (!text.startsWith("z") || text.length > multibaseCharactersMax) return null;
  const bytes = decodeBase58(text.slice(1));
  if (bytes === null) return null;
  if (bytes.length === publicKeyBytes) return bytes;
  return bytes.length === publicKeyBytes + 2 && bytes[0] === 0xed && bytes[1] === 0x01 ? bytes.slice(2) : null;
}

/** `z` and base58btc of `ed 01` and the 32 bytes. */
export function renderPublicKey(publicKey: Uint8Array): string {
  const bytes = new Uint8Array(2 + publicKey.length);
  bytes.set([0xed, 0x01]);
  bytes.set(publicKey, 2);
  return `z${encodeBase58(bytes)}`;
}
