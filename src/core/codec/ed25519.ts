/**
 * Ed25519 for all nodes: one acceptance rule for signatures (the native verifier), one rule for which
 * keys are admitted, and the text forms of public keys. Nothing here throws on hostile input, and what
 * is remembered is bounded.
 * Source: decisions sections 1 and 8.
 */
import { createPrivateKey, createPublicKey, type KeyObject, sign, verify } from "node:crypto";
import { ed25519 } from "@noble/curves/ed25519.js";
import { BoundedMap } from "../std/bounded-map.ts";
import { decodeBase58, decodeHex, encodeBase58 } from "./bytes.ts";

export const publicKeyBytes = 32;
export const signatureBytes = 64;

/** Keys remembered in each of the two memos; the oldest leaves first. About 1 KiB each. */
const memoEntriesMax = 4_096;

/** DER of SubjectPublicKeyInfo for Ed25519, up to the 32 key bytes (RFC 8410). */
const spkiPrefix = new Uint8Array([0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00]);

const importedKeys = new BoundedMap<string, KeyObject>(memoEntriesMax);
const admissions = new BoundedMap<string, boolean>(memoEntriesMax);

/**
 * The one acceptance rule: RFC 8032 without the cofactor, S below the group order, R compared as bytes.
 * `false` for anything of a wrong length. Cost: about 50 µs.
 */
export function verifyEd25519(signature: Uint8Array, message: Uint8Array, publicKey: Uint8Array): boolean {
  if (signature.length !== signatureBytes || publicKey.length !== publicKeyBytes) return false;
  try {
    return verify(null, message, importKey(publicKey), signature);
  } catch {
    return false;
  }
}

function importKey(publicKey: Uint8Array): KeyObject {
  const name = publicKey.toHex();
  const known = importedKeys.get(name);
  if (known !== undefined) return known;
  const der = new Uint8Array(spkiPrefix.length + publicKeyBytes);
  der.set(spkiPrefix);
  der.set(publicKey, spkiPrefix.length);
  const key = createPublicKey({ key: Buffer.from(der.buffer), format: "der", type: "spki" });
  importedKeys.set(name, key);
  return key;
}

/** DER of an Ed25519 private key in PKCS #8, up to the 32 seed bytes (RFC 8410). */
const pkcs8Prefix = Uint8Array.fromHex("302e020100300506032b657004220420");

/** The signing function of a node's own key, from its 32-byte seed; `null` for another length. About 25 µs a signature. */
export function createSigner(seed: Uint8Array): ((message: Uint8Array) => Uint8Array) | null {
  if (seed.length !== 32) return null;
  const der = Buffer.concat([pkcs8Prefix, seed]);
  const key = createPrivateKey({ key: der, format: "der", type: "pkcs8" });
  return (message) => new Uint8Array(sign(null, message, key));
}

/**
 * Whether a key may enter a record: 32 bytes, the canonical encoding of a point on the curve, and not of
 * small order, because a small-order key verifies signatures that nobody made. Cost: about 0.1 ms, once
 * per key.
 */
export function isAdmissibleKey(publicKey: Uint8Array): boolean {
  if (publicKey.length !== publicKeyBytes) return false;
  const name = publicKey.toHex();
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
