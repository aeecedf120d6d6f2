/**
 * The cryptography of a node: Ed25519 signatures with one acceptance rule, the rule for
 * which keys are admitted, and the hashes. Native where the runtime has it (`#crypto`,
 * `#sha256`, `#blake2`). Nothing throws on hostile input. Clients have the same rule in
 * `client/keys/crypto.ts`.
 * Source: rules sections 1, 2, 4 and 8, docs/ledger.md 1.8 and 1.9.
 */
import { ED25519_TORSION_SUBGROUP, ed25519 } from "@noble/curves/ed25519.js";
import { blake2b } from "@noble/hashes/blake2.js";
import { encodeHex, publicKeyBytes } from "./bytes.ts";

/**
 * The one acceptance rule: RFC 8032 without the cofactor, S below the group order, R
 * compared as bytes.
 */
export { verifyEd25519 } from "#crypto";

/**
 * Encodings of the points of small order, in hex: such a key verifies what no one signed.
 * Two of them are not canonical: their x is 0 and has a sign.
 */
const smallOrder: ReadonlySet<string> = new Set([
  ...ED25519_TORSION_SUBGROUP,
  `01${"00".repeat(30)}80`,
  `ec${"ff".repeat(31)}`,
]);

/** Whether a key may be published: a canonical point, not of small order. Cost: about 0.1 ms. */
export function isAdmissibleKey(publicKey: Uint8Array): boolean {
  return isStrictEncoding(publicKey) && isPoint(publicKey);
}

/**
 * Whether only the holder of the secret can have made a signature that verifies under the
 * key: like `isAdmissibleKey`, but bytes that are no point pass, because no signature
 * verifies under them. Cost: 1 µs.
 */
export function isStrictEncoding(publicKey: Uint8Array): boolean {
  return (
    publicKey.length === publicKeyBytes &&
    isBelowPrime(publicKey) &&
    !smallOrder.has(encodeHex(publicKey))
  );
}

/** Whether y, the first 255 bits in little-endian order, is below 2^255 - 19. */
function isBelowPrime(publicKey: Uint8Array): boolean {
  if (publicKey[0]! < 0xed || (publicKey[31]! & 0x7f) !== 0x7f) return true;
  return publicKey.subarray(1, 31).some((byte) => byte !== 0xff);
}

function isPoint(publicKey: Uint8Array): boolean {
  try {
    ed25519.Point.fromBytes(publicKey, false);
    return true;
  } catch {
    return false;
  }
}

// ------------------------------------------------------------------------------------------ hashes

/** For document blobs, storage keys and extrinsics. */
export { blake2b256 } from "#blake2";
/** For proofs and files. */
export { sha256 } from "#sha256";

/**
 * The hash part of `Blake2_128Concat` storage keys, which only @noble/hashes offers. About
 * 5 µs for a DID.
 */
export function blake2b128(bytes: Uint8Array): Uint8Array {
  return blake2b(bytes, { dkLen: 16 });
}
