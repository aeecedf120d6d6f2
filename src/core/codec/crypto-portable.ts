/**
 * Ed25519 in JavaScript: `#crypto` outside Bun. The SDK loads it only where WebCrypto does
 * not suffice (`client/keys/crypto.ts`). Accepts and refuses the same signatures as
 * `native.ts`; a test compares both over the edge vectors.
 * Source: rules section 8, RFC 8032 section 5.1.7.
 */
import { ed25519 } from "@noble/curves/ed25519.js";
import { sha512 } from "@noble/hashes/sha2.js";
import { concatBytes, equalBytes, signatureBytes } from "./bytes.ts";

const { Point } = ed25519;

/**
 * The native rule; the library's `verify` multiplies by the cofactor and accepts what nodes
 * refuse. About 2 ms.
 */
export function verifyEd25519(
  signature: Uint8Array,
  message: Uint8Array,
  publicKey: Uint8Array,
): boolean {
  if (signature.length !== signatureBytes) return false;
  try {
    const s = littleEndian(signature.subarray(32));
    if (s >= Point.Fn.ORDER) return false;
    const key = Point.fromBytes(publicKey, true);
    const encodedR = signature.subarray(0, 32);
    const k = littleEndian(sha512(concatBytes(encodedR, publicKey, message))) % Point.Fn.ORDER;
    const base = s === 0n ? Point.ZERO : Point.BASE.multiplyUnsafe(s);
    return equalBytes(base.subtract(key.multiplyUnsafe(k)).toBytes(), encodedR);
  } catch {
    return false;
  }
}

function littleEndian(bytes: Uint8Array): bigint {
  let value = 0n;
  for (let i = bytes.length - 1; i >= 0; i--) value = (value << 8n) | BigInt(bytes[i] as number);
  return value;
}
