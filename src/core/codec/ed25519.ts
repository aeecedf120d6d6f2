/**
 * Ed25519 for all nodes: one acceptance rule for signatures (`#crypto`), and one rule for which keys are
 * admitted. Nothing here throws on hostile input, and what is remembered is bounded. Clients have the same
 * rule in `client/curves.ts`; the text forms of keys are in `public-key.ts`.
 * Source: rules sections 1 and 8.
 */
import { ed25519 } from "@noble/curves/ed25519.js";
import { signerFromSeed, verifySignature } from "#crypto";
import { BoundedMap } from "../std/bounded-map.ts";
import { encodeHex } from "./bytes.ts";
import { publicKeyBytes, signatureBytes } from "./public-key.ts";

/** Keys remembered; the oldest leaves first. */
const admissionsMax = 4_096;

const admissions = new BoundedMap<string, boolean>(admissionsMax);

/**
 * The one acceptance rule: RFC 8032 without the cofactor, S below the group order, R compared as bytes.
 * `false` for anything of a wrong length. Cost: about 50 µs in a node.
 */
export function verifyEd25519(signature: Uint8Array, message: Uint8Array, publicKey: Uint8Array): boolean {
  if (signature.length !== signatureBytes || publicKey.length !== publicKeyBytes) return false;
  return verifySignature(signature, message, publicKey);
}

/** The signing function of a key, from its 32-byte seed; `null` for another length. */
export function createSigner(seed: Uint8Array): ((message: Uint8Array) => Uint8Array) | null {
  return seed.length === 32 ? signerFromSeed(seed) : null;
}

/**
 * Whether a key may enter a record: 32 bytes, the canonical encoding of a point on the curve, and not of
 * small order, because a small-order key verifies signatures that nobody made. Cost: about 0.1 ms, once
 * per key.
 */
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
