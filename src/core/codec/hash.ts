/**
 * Hashes: BLAKE2b for the chain (document blobs, storage keys), SHA-256 for proofs and files. Native
 * where the runtime has it; the 16-byte BLAKE2b only comes from @noble/hashes.
 * Source: rules sections 2 and 4, docs/ledger.md 1.8 and 1.9.
 */
import { blake2b } from "@noble/hashes/blake2.js";

export { blake2b256 } from "#blake2";
export { sha256 } from "#sha256";

/** BLAKE2b with a 16-byte digest, the hash part of `Blake2_128Concat` storage keys. About 5 µs for a DID. */
export function blake2b128(bytes: Uint8Array): Uint8Array {
  return blake2b(bytes, { dkLen: 16 });
}
