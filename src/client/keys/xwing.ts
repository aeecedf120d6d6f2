/**
 * X-Wing: ML-KEM-768 and X25519 as one key encapsulation. What it protects stays closed unless both
 * fall. A secret is a seed of 32 bytes. Loaded only where something is sealed or opened with it:
 * about 7 KB of gzip. Cost: about 1 ms for each of the three functions.
 * Source: draft-connolly-cfrg-xwing-kem, sections 5.2 to 5.4; FIPS 203.
 */
import { sha3_256, shake256 } from "@noble/hashes/sha3.js";
import { ml_kem768 } from "@noble/post-quantum/ml-kem.js";
import { concatBytes, utf8 } from "../../core/codec/bytes.ts";
import { x25519PublicKey, x25519SharedSecret } from "./crypto.ts";

/** Of what the recipient gets. */
export const encapsulatedBytes = 1_120;
const [publicKeyBytes, seedBytes, randomnessBytes] = [1_216, 32, 64];
/** Where the part of X25519 begins. */
const [latticeKeyBytes, latticeCipherBytes] = [1184, 1088];

/** `enc` is for the recipient; `shared` has 32 bytes. */
type Encapsulated = { readonly enc: Uint8Array; readonly shared: Uint8Array };

/** A seed, expanded: for one use, and kept nowhere. */
export type XwingSecret = {
  /** 1,216 bytes. */
  readonly publicKey: Uint8Array;
  readonly lattice: Uint8Array;
  readonly curve: Uint8Array;
};

export async function expandSeed(seed: Uint8Array): Promise<XwingSecret> {
  if (seed.length !== seedBytes) throw new RangeError("a seed has 32 bytes");
  const expanded = shake256(seed, { dkLen: 96 });
  const { publicKey, secretKey } = ml_kem768.keygen(expanded.subarray(0, 64));
  const curve = expanded.slice(64);
  return {
    publicKey: concatBytes(publicKey, await x25519PublicKey(curve)),
    lattice: secretKey,
    curve,
  };
}

/**
 * The same 64 bytes of randomness give the same result; they are used for one key and message
 * only. Throws for what is not a public key: of another length, with coefficients out of range, or
 * with a point of small order.
 */
export async function encapsulate(
  publicKey: Uint8Array,
  randomness: Uint8Array,
): Promise<Encapsulated> {
  if (publicKey.length !== publicKeyBytes || randomness.length !== randomnessBytes)
    throw new RangeError("a public key has 1,216 bytes, the randomness 64");
  const curveKey = publicKey.subarray(latticeKeyBytes);
  const ephemeral = randomness.slice(32);
  const [curveCipher, curveShared] = await Promise.all([
    x25519PublicKey(ephemeral),
    x25519SharedSecret(ephemeral, curveKey),
  ]);
  const lattice = ml_kem768.encapsulate(
    publicKey.slice(0, latticeKeyBytes),
    randomness.slice(0, 32),
  );
  return {
    enc: concatBytes(lattice.cipherText, curveCipher),
    shared: combine(lattice.sharedSecret, curveShared, curveCipher, curveKey),
  };
}

/**
 * 32 bytes: others than the sender's when `enc` was made for another key or changed, which the
 * cipher then notices. Throws for another length and a point of small order.
 */
export async function decapsulate(enc: Uint8Array, secret: XwingSecret): Promise<Uint8Array> {
  if (enc.length !== encapsulatedBytes) throw new RangeError("an encapsulation has 1,120 bytes");
  const curveCipher = enc.subarray(latticeCipherBytes);
  const curveShared = await x25519SharedSecret(secret.curve, curveCipher);
  const latticeShared = ml_kem768.decapsulate(enc.slice(0, latticeCipherBytes), secret.lattice);
  const curveKey = secret.publicKey.subarray(latticeKeyBytes);
  return combine(latticeShared, curveShared, curveCipher, curveKey);
}

/** The last part of the combiner's input. */
const label = utf8("\\.//^\\");

function combine(
  latticeShared: Uint8Array,
  curveShared: Uint8Array,
  curveCipher: Uint8Array,
  curveKey: Uint8Array,
): Uint8Array {
  return sha3_256(concatBytes(latticeShared, curveShared, curveCipher, curveKey, label));
}
