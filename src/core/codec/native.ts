/**
 * Native Ed25519, SHA-256 and BLAKE2b: `#crypto`, `#sha256` and `#blake2` in Bun, and so in
 * every node. Elsewhere these are `crypto-portable.ts`, `blake2-portable.ts` and the
 * SHA-256 of @noble/hashes: three modules, so that a page loads each only when it needs it.
 * Tests compare both sides.
 * Source: rules section 8.
 */

import {
  createHash,
  createPrivateKey,
  createPublicKey,
  type KeyObject,
  sign,
  verify,
} from "node:crypto";
import { BoundedMap } from "../std/bounded.ts";
import { deferred } from "../std/deferred.ts";
import { publicKeyBytes, signatureBytes, type VerifySignature } from "./bytes.ts";

/** DER of SubjectPublicKeyInfo for Ed25519, up to the 32 key bytes (RFC 8410). */
const spkiPrefix = Uint8Array.fromHex("302a300506032b6570032100");
/** DER of an Ed25519 private key in PKCS #8, up to the 32 seed bytes (RFC 8410). */
const pkcs8Prefix = Uint8Array.fromHex("302e020100300506032b657004220420");

/** A way to the runtime's form of the bytes of a key. Throws for what is not a key. */
type ImportKey = (publicKey: Uint8Array) => KeyObject;

const importKey: ImportKey = (publicKey) =>
  createPublicKey({
    key: Buffer.concat([spkiPrefix, publicKey]),
    format: "der",
    type: "spki",
  });

/** About 2 MiB. */
const importedMax = 4_096;

/** Imports each key once: with what it leaves to the collector, an import costs some µs. */
function importOnce(): ImportKey {
  const imported = new BoundedMap<string, KeyObject>(importedMax);
  return (publicKey) => {
    const name = publicKey.toHex();
    const known = imported.get(name);
    if (known !== undefined) return known;
    const key = importKey(publicKey);
    imported.set(name, key);
    return key;
  };
}

/**
 * `false` for whatever can't be read as a key of 32 or a signature of 64 bytes. About 36
 * µs.
 */
export const verifyEd25519 = verifierOf(importKey);

/** The same for a process that verifies many signatures of the same keys. */
export const createVerifier = () => verifierOf(importOnce());

function verifierOf(importKey: ImportKey) {
  return (signature: Uint8Array, message: Uint8Array, publicKey: Uint8Array): boolean => {
    try {
      return (
        haveSizes(signature, publicKey) && verify(null, message, importKey(publicKey), signature)
      );
    } catch {
      return false;
    }
  };
}

/**
 * Beyond this, signatures are verified at once: the threads of the pool, which also write
 * to disk, have work for 1 ms.
 */
const poolQueueMax = 32;

/**
 * A verifier that works in the runtime's pool of threads, off the event loop, when that has
 * time for it: 4 µs here. A process has one pool, so it needs one verifier: this counts
 * what waits for the pool.
 */
export function createPoolVerifier(): VerifySignature {
  const importKey = importOnce();
  const verifyHere = verifierOf(importKey);
  let waiting = 0;
  return (signature, message, publicKey) => {
    if (waiting >= poolQueueMax || !haveSizes(signature, publicKey))
      return verifyHere(signature, message, publicKey);
    const { promise, resolve } = deferred<boolean>();
    try {
      verify(null, message, importKey(publicKey), signature, (error, isValid) => {
        waiting--;
        resolve(!error && isValid);
      });
      waiting++;
    } catch {
      return false;
    }
    return promise;
  };
}

function haveSizes(signature: Uint8Array, publicKey: Uint8Array): boolean {
  return signature.length === signatureBytes && publicKey.length === publicKeyBytes;
}

/**
 * The signing function of a key, from its 32-byte seed; `null` for another length. About 25
 * µs a signature.
 */
export function createSigner(seed: Uint8Array): ((message: Uint8Array) => Uint8Array) | null {
  if (seed.length !== 32) return null;
  const key = createPrivateKey({
    key: Buffer.concat([pkcs8Prefix, seed]),
    format: "der",
    type: "pkcs8",
  });
  return (message) => new Uint8Array(sign(null, message, key));
}

// ------------------------------------------------------------------------------------------ hashes

/** A hash of bytes that come in parts. Nothing may follow `digest`. */
type PartialHash = {
  readonly update: (bytes: Uint8Array) => PartialHash;
  readonly digest: () => Uint8Array;
};

/** The parts of the interface of @noble/hashes that are used here. */
export const sha256 = Object.assign(
  (bytes: Uint8Array): Uint8Array => {
    const digest = new Uint8Array(32);
    Bun.SHA256.hash(bytes, digest);
    return digest;
  },
  { create: (): PartialHash => createHash("sha256") },
);

/** BLAKE2b with a 32-byte digest, as the chain hashes document blobs and extrinsics. */
export function blake2b256(bytes: Uint8Array): Uint8Array {
  return new Uint8Array(createHash("blake2b256").update(bytes).digest());
}
