/**
 * Ed25519 for all nodes and clients: one acceptance rule for signatures (`#crypto`), one rule for which
 * keys are admitted, and the text forms of public keys. Nothing here throws on hostile input, and what
 * is remembered is bounded.
 * Source: rules sections 1 and 8.
 */
import { ed25519 } from "@noble/curves/ed25519.js";
import { signerFromSeed, verifySignature } from "#crypto";
import { BoundedMap } from "../std/bounded-map.ts";
import { decodeBase58, decodeHex, encodeBase58, encodeHex } from "./bytes.ts";

export const publicKeyBytes = 32;
export const signatureBytes = 64;

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

/**
 * 32 bytes from `0x` and 64 hex digits, 64 hex digits, or `z` and base58btc of the bare key or of
 * `ed 01` and the key; `null` for anything else. Whether the bytes are a key is `isAdmissibleKey`.
 */
export function parsePublicKey(text: string): Uint8Array | null {
  if (text.startsWith("z")) return parseMultibaseKey(text);
  if (text.length !== 64 && text.length !== 66) return null;
  const bytes = decodeHex(text);
  return bytes?.length === publicKeyBytes ? bytes : null;
}

/** Longest base58btc text of 34 bytes, with its `z`. Base58 is quadratic, so length is looked at first. */
const multibaseCharactersMax = 49;

/** The key of a multibase text, of either form; `null` for anything else. */
export function parseMultibaseKey(text: string): Uint8Array | null {
  if (!text.startsWith("z") || text.length > multibaseCharactersMax) return null;
  const bytes = decodeBase58(text.slice(1));
  if (bytes === null) return null;
  if (bytes.length === publicKeyBytes) return bytes;
  return bytes.length === publicKeyBytes + 2 && bytes[0] === 0xed && bytes[1] === 0x01 ? bytes.slice(2) : null;
}

/** `z` and base58btc of `ed 01` and the 32 bytes. */
export function renderPublicKey(publicKey: Uint8Array): string {
  const bytes = new Uint8Array(2 + publicKey.length);
  bytes.set([0xed, 0x01]);
  bytes.set(publicKey, 2);
  return `z${encodeBase58(bytes)}`;
}
