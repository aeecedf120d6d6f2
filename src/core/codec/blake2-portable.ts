/**
 * BLAKE2b in JavaScript: what `#blake2` means outside Bun. Apart from the other hashes, because only changes
 * of an identity need it and clients load those when they are wanted.
 */
import { blake2b } from "@noble/hashes/blake2.js";

/** BLAKE2b with a 32-byte digest, as the chain hashes document blobs and extrinsics. */
export function blake2b256(bytes: Uint8Array): Uint8Array {
  return blake2b(bytes, { dkLen: 32 });
}
