/** SHA-256 by the runtime's own code: what `#sha256` means in Bun, and so in every node. */
import { createHash } from "node:crypto";
import type { Sha256 } from "./sha256-portable.ts";

/** Hashes what comes in parts; after `digest` nothing more. */
export function createSha256(): Sha256 {
  const hash = createHash("sha256");
  return { update: (bytes) => void hash.update(bytes), digest: () => new Uint8Array(hash.digest()) };
}

export function sha256(bytes: Uint8Array): Uint8Array {
  return new Uint8Array(createHash("sha256").update(bytes).digest());
}
