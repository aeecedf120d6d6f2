/**
 * The cryptography of a node: Ed25519 signatures with one acceptance rule, the rule for which keys are admitted, and
 * the hashes. Native where the runtime has it (`#crypto`, `#sha256`, `#blake2`). Nothing throws on hostile input, and
 * all memory is bounded. Clients have the same rule in `client/keys/crypto.ts`.
 * Source: rules sections 1, 2, 4 and 8, docs/ledger.md 1.8 and 1.9.
 */
import { ed25519 } from "@noble/curves/ed25519.js";
import { blake2b } from "@noble/hashes/blake2.js";
import { BoundedMap } from "../std/bounded.ts";
import { encodeHex, publicKeyBytes } from "./bytes.ts";

/** Keys remembered; the oldest leaves first. */
const admissionsMax = 4_096;

const admissions = new BoundedMap<string, boolean>(admissionsMax);

/** The one acceptance rule: RFC 8032 without the cofactor, S below the group order, R compared as bytes. */
export { verifyEd25519, verifyEd25519InPool } from "#crypto";

/** A canonical point, not of small order: such a key verifies what no one signed. Cost: about 0.1 ms, once per key. */
export function isAdmissibleKey(publicKey: Uint8Array): boolean {
  if (publicKey.length !== publicKeyBytes) return false;
  const name = encodeHex(publicKey);
  const known = admissions.get(name);
  if (known !== undefined) return known;
  const admitted = isCanonicalLargePoint(publicKey);
  admissions.set(name, admitted);
  return admitted;
}

function isCanonicalLargePoint(publicKey: Uint8Array): boolean {
  try {
    return !ed25519.Point.fromBytes(publicKey, false).isSmallOrder();
  } catch {
    return false;
  }
}

// ------------------------------------------------------------------------------------------------------------- hashes

/** For document blobs, storage keys and extrinsics. */
export { blake2b256 } from "#blake2";
/** For proofs and files. */
export { sha256 } from "#sha256";

/** The hash part of `Blake2_128Concat` storage keys, which only @noble/hashes offers. About 5 µs for a DID. */
export function blake2b128(bytes: Uint8Array): Uint8Array {
  return blake2b(bytes, { dkLen: 16 });
}
