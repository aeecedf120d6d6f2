/**
 * Native Ed25519, SHA-256 and BLAKE2b: `#crypto`, `#sha256` and `#blake2` in Bun, and so in every node. Elsewhere these
 * are `crypto-portable.ts`, `blake2-portable.ts` and the SHA-256 of @noble/hashes: three modules, so that a page loads
 * each only when it needs it. Tests compare both sides.
 * Source: rules section 8.
 */
import { createHash, createPrivateKey, createPublicKey, hash, type KeyObject, sign, verify } from "node:crypto";
import { BoundedMap } from "../std/bounded.ts";

/** Keys remembered; the oldest leaves first. About 1 KiB each. */
const importedKeysMax = 4_096;

/** DER of SubjectPublicKeyInfo for Ed25519, up to the 32 key bytes (RFC 8410). */
const spkiPrefix = new Uint8Array([0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00]);
/** DER of an Ed25519 private key in PKCS #8, up to the 32 seed bytes (RFC 8410). */
const pkcs8Prefix = Uint8Array.fromHex("302e020100300506032b657004220420");

const importedKeys = new BoundedMap<string, KeyObject>(importedKeysMax);

/** 64 and 32 bytes; `false` for whatever can't be read as a key or a signature. Cost: about 50 µs. */
export function verifySignature(signature: Uint8Array, message: Uint8Array, publicKey: Uint8Array): boolean {
  try {
    return verify(null, message, importKey(publicKey), signature);
  } catch {
    return false;
  }
}

/** WebCrypto copies what it gets. */
type Bytes = Uint8Array<ArrayBuffer>;

const poolKeys = new BoundedMap<string, CryptoKey>(importedKeysMax);
/** Beyond this, signatures are verified at once: the threads of the pool, which also write to disk, have work for 1 ms. */
const poolQueueMax = 32;
let poolQueue = 0;

/** The same in the runtime's pool of threads, beside the event loop. Cost: 7 µs here and 57 µs there. */
export function verifySignatureInPool(
  signature: Uint8Array,
  message: Uint8Array,
  publicKey: Uint8Array,
): boolean | Promise<boolean> {
  return poolQueue < poolQueueMax
    ? verifyInPool(signature, message, publicKey)
    : verifySignature(signature, message, publicKey);
}

async function verifyInPool(signature: Uint8Array, message: Uint8Array, publicKey: Uint8Array): Promise<boolean> {
  poolQueue++;
  try {
    const name = publicKey.toHex();
    let key = poolKeys.get(name);
    if (key === undefined) {
      key = await crypto.subtle.importKey("raw", publicKey as Bytes, "Ed25519", false, ["verify"]);
      poolKeys.set(name, key);
    }
    return await crypto.subtle.verify("Ed25519", key, signature as Bytes, message as Bytes);
  } catch {
    return false;
  } finally {
    poolQueue--;
  }
}

/** From a 32-byte seed. About 25 µs a signature. */
export function signerFromSeed(seed: Uint8Array): (message: Uint8Array) => Uint8Array {
  const key = createPrivateKey({ key: Buffer.concat([pkcs8Prefix, seed]), format: "der", type: "pkcs8" });
  return (message) => new Uint8Array(sign(null, message, key));
}

function importKey(publicKey: Uint8Array): KeyObject {
  const name = publicKey.toHex();
  const known = importedKeys.get(name);
  if (known !== undefined) return known;
  const der = new Uint8Array(spkiPrefix.length + publicKey.length);
  der.set(spkiPrefix);
  der.set(publicKey, spkiPrefix.length);
  const key = createPublicKey({ key: Buffer.from(der.buffer), format: "der", type: "spki" });
  importedKeys.set(name, key);
  return key;
}

// ------------------------------------------------------------------------------------------------------------- hashes

/** A hash of bytes that come in parts. Nothing may follow `digest`. */
type PartialHash = { readonly update: (bytes: Uint8Array) => PartialHash; readonly digest: () => Uint8Array };

/** The parts of the interface of @noble/hashes that are used here. */
export const sha256 = Object.assign(
  (bytes: Uint8Array): Uint8Array => new Uint8Array(hash("sha256", bytes, "buffer")),
  { create: (): PartialHash => createHash("sha256") },
);

/** BLAKE2b with a 32-byte digest, as the chain hashes document blobs and extrinsics. */
export function blake2b256(bytes: Uint8Array): Uint8Array {
  return new Uint8Array(createHash("blake2b256").update(bytes).digest());
}
