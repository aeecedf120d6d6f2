/**
 * Keys from keys: HKDF over HMAC with SHA-256. WebCrypto's takes no pages without a secure origin.
 * Source: RFC 5869, RFC 2104.
 */
import { sha256 } from "#sha256";
import { concatBytes } from "../core/codec/bytes.ts";

const blockBytes = 64;
const hashBytes = 32;

/** At most 8,160 bytes of key material; without `salt` as if it were zeros. */
export function hkdf(key: Uint8Array, salt: Uint8Array | null, info: Uint8Array, length: number): Uint8Array {
  const extracted = hmac(salt ?? new Uint8Array(hashBytes), key);
  let block: Uint8Array = new Uint8Array(0);
  const blocks: Uint8Array[] = [];
  for (let i = 1; blocks.length * hashBytes < length; i++) {
    block = hmac(extracted, concatBytes(block, info, Uint8Array.of(i)));
    blocks.push(block);
  }
  return concatBytes(...blocks).slice(0, length);
}

function hmac(key: Uint8Array, message: Uint8Array): Uint8Array {
  const padded = new Uint8Array(blockBytes);
  padded.set(key.length > blockBytes ? sha256(key) : key);
  const mixed = (byte: number) => padded.map((one) => one ^ byte);
  return sha256(concatBytes(mixed(0x5c), sha256(concatBytes(mixed(0x36), message))));
}
