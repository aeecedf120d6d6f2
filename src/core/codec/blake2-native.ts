/** BLAKE2b by the runtime's own code: what `#blake2` means in Bun, and so in every node. */
import { createHash } from "node:crypto";

/** BLAKE2b with a 32-byte digest, as the chain hashes document blobs and extrinsics. */
export function blake2b256(bytes: Uint8Array): Uint8Array {
  return new Uint8Array(createHash("blake2b256").update(bytes).digest());
}
