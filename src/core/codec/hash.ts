/**
 * Hashes: BLAKE2b for the chain (document blobs, storage keys), SHA-256 for proofs and files. Native
 * where the runtime has it; the 16-byte BLAKE2b only comes from @noble/hashes.
 * Source: decisions sections 2 and 4, docs/ledger.md 1.8 and 1.9.
 */
import { createHash } from "node:crypto";
import { blake2b } from "@noble/hashes/blake2.js";

export function sha256(bytes: Uint8Array): Uint8Array {
  return new Uint8Array(createHash("sha256").update(bytes).digest());
}

/** BLAKE2b with a 32-byte digest, as the chain hashes document blobs and extrinsics. */
export function blake2b256(bytes: Uint8Array): Uint8Array {
  return new Uint8Array(createHash("blake2b256").update(bytes).digest());
}

/** BLAKE2b with a 16-byte digest, the hash part of `Blake2_128Concat` storage keys. About 5 µs for a DID. */
export function blake2b128(bytes: Uint8Array): Uint8Array {
  return blake2b(bytes, { dkLen: 16 });
}
