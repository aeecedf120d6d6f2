/**
 * BLAKE2b in JavaScript: `#blake2` outside Bun. In a file of its own, because only changes
 * of an identity need it, and clients load the code for those on demand.
 */
import { blake2b } from "@noble/hashes/blake2.js";

/** BLAKE2b with a 32-byte digest, as the chain hashes document blobs and extrinsics. */
export function blake2b256(bytes: Uint8Array): Uint8Array {
  return blake2b(bytes, { dkLen: 32 });
}
