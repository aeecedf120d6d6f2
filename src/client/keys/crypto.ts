/**
 * The cryptography of the SDK: Ed25519 and X25519, keys derived from keys, and random ids.
 * WebCrypto computes the curves where the runtime has both and signs as RFC 8032 says; elsewhere
 * JavaScript does (`curves-fallback.ts`, about 19 KB of gzip, loaded only then). The acceptance
 * rule for signatures is decided here, not by the runtime: it is the rule of every node, which a
 * test shows over the edge vectors.
 * Source: rules section 8, RFC 8032, RFC 8410 (PKCS #8), RFC 5869, "Secure Curves in
 * the Web Cryptography API".
 */
import { chacha20poly1305 } from "@noble/ciphers/chacha.js";
import { hkdf as hkdfOf } from "@noble/hashes/hkdf.js";
import { sha256 } from "@noble/hashes/sha2.js";
import {
  concatBytes,
  decodeBase64Url,
  decodeHex,
  encodeHex,
  equalBytes,
  publicKeyBytes,
  signatureBytes,
} from "../../core/codec/bytes.ts";

/** Who signs: `root` or the id of a method, and the seed of its key. */
export type Signer = { readonly keyId: string; readonly seed: Uint8Array };

type Curve = "Ed25519" | "X25519";

/**
 * DER of a private key in PKCS #8, up to the 32 secret bytes. Some runtimes
 * import no raw private keys.
 */
const pkcs8Prefixes: Readonly<Record<Curve, string>> = {
  Ed25519: "302e020100300506032b657004220420",
  X25519: "302e020100300506032b656e04220420",
};

function importSecret(curve: Curve, secret: Uint8Array): Promise<CryptoKey> {
  const prefix = decodeHex(pkcs8Prefixes[curve]) as Uint8Array;
  const der = concatBytes(prefix, secret) as Uint8Array<ArrayBuffer>;
  const usage = curve === "Ed25519" ? "sign" : "deriveBits";
  return crypto.subtle.importKey("pkcs8", der, curve, true, [usage]);
}

function importPublic(curve: Curve, key: Uint8Array): Promise<CryptoKey> {
  const usages: KeyUsage[] = curve === "Ed25519" ? ["verify"] : [];
  return crypto.subtle.importKey("raw", key.slice(), curve, true, usages);
}

/**
 * Over keys as their 32 bytes. Rejects where the runtime lacks the curves, and on pages
 * without a secure origin.
 */
const webCurves = {
  /** Of an Ed25519 seed. */
  publicKey: async (seed: Uint8Array): Promise<Uint8Array> => {
    const { x = "" } = await crypto.subtle.exportKey("jwk", await importSecret("Ed25519", seed));
    return decodeBase64Url(x) ?? new Uint8Array(0);
  },
  sign: async (message: Uint8Array, seed: Uint8Array): Promise<Uint8Array> => {
    // The caller may change the message while the key is imported.
    const bytes = message.slice();
    const key = await importSecret("Ed25519", seed);
    return new Uint8Array(await crypto.subtle.sign("Ed25519", key, bytes));
  },
  /**
   * For a signature and a key of the right lengths; `false` for bytes that are
   * not a point of the curve.
   */
  verify: async (
    signature: Uint8Array,
    message: Uint8Array,
    publicKey: Uint8Array,
  ): Promise<boolean> => {
    const [signed, bytes] = [signature.slice(), message.slice()];
    try {
      const key = await importPublic("Ed25519", publicKey);
      return await crypto.subtle.verify("Ed25519", key, signed, bytes);
    } catch {
      return false;
    }
  },
  /** The shared secret of X25519. Throws for a public key of small order. */
  agree: async (secret: Uint8Array, publicKey: Uint8Array): Promise<Uint8Array> => {
    const other = await importPublic("X25519", publicKey);
    const own = await importSecret("X25519", secret);
    const algorithm = { name: "X25519", public: other };
    return new Uint8Array(await crypto.subtle.deriveBits(algorithm, own, 256));
  },
};

export type Curves = typeof webCurves;

let chosen: Promise<Curves> | null = null;

/** A page without a secure origin has no WebCrypto, and older runtimes lack these curves. */
function curves(): Promise<Curves> {
  chosen ??= isUsable(webCurves).then(
    (isWeb) => (isWeb ? webCurves : fallback()),
    () => fallback(),
  );
  return chosen;
}

const fallback = async (): Promise<Curves> =>
  (await import("./curves-fallback.ts")).curvesInJavaScript;

const fromHex = (text: string): Uint8Array => decodeHex(text) ?? new Uint8Array(0);

const probe = fromHex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60");
const probeSignature = fromHex(
  "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b",
);
const probeAgreement = fromHex("b755ced64d4a27ce32afcf199f18a3ed1f31897028b0ff6e55191ea449db2644");

/**
 * Known answers (RFC 8032 section 7.1). Apple's signatures are random, and a repeat
 * must have the same bytes.
 */
async function isUsable({ publicKey, sign, agree }: Curves): Promise<boolean> {
  await publicKey(probe);
  const [signature, agreement] = [
    await sign(new Uint8Array(0), probe),
    await agree(probe, basePoint),
  ];
  return equalBytes(signature, probeSignature) && equalBytes(agreement, probeAgreement);
}

export const ed25519PublicKey = async (seed: Uint8Array): Promise<Uint8Array> =>
  (await curves()).publicKey(seed);

/** The same bytes for the same message, everywhere. */
export const signEd25519 = async (message: Uint8Array, seed: Uint8Array): Promise<Uint8Array> =>
  (await curves()).sign(message, seed);

export const x25519PublicKey = async (secret: Uint8Array): Promise<Uint8Array> =>
  (await curves()).agree(secret, basePoint);

/** Throws for a public key of small order, with which everybody would share the same secret. */
export const x25519SharedSecret = async (
  secret: Uint8Array,
  publicKey: Uint8Array,
): Promise<Uint8Array> => (await curves()).agree(secret, publicKey);

/**
 * The rule of the nodes: an admissible key (canonical, not of small order), S below the group
 * order, R compared as bytes without the cofactor. What runtimes disagree about is decided before
 * they are asked, or in JavaScript.
 */
export async function verifySignature(
  signature: Uint8Array,
  message: Uint8Array,
  publicKey: Uint8Array,
): Promise<boolean> {
  if (signature.length !== signatureBytes || publicKey.length !== publicKeyBytes) return false;
  const r = signature.subarray(0, 32);
  if (!isCanonical(publicKey) || isSmall(publicKey) || !isCanonical(r)) return false;
  if (!isBelow(signature.subarray(32), groupOrder)) return false;
  // Some verifiers refuse every R of small order; the nodes' verifier does not.
  const decider = isSmall(r) ? await fallback() : await curves();
  return decider.verify(signature, message, publicKey);
}

/** Little endian: 2^252 + 27742317777372353535851937790883648493. */
const groupOrder = fromHex("edd3f55c1a631258d69cf7a2def9de1400000000000000000000000000000010");
/** Little endian: 2^255 - 19. */
const fieldPrime = fromHex("edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f");
/** The y of every point of an order up to 8, canonical: of orders 4, 1, 2, and twice 8. */
const smallOrdinates = [
  "0000000000000000000000000000000000000000000000000000000000000000",
  "0100000000000000000000000000000000000000000000000000000000000000",
  "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
  "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
  "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
].map(fromHex);

/** The y coordinate, without the sign bit of x. */
function ordinate(point: Uint8Array): Uint8Array {
  const y = point.slice();
  y[31] = (y[31] as number) & 0x7f;
  return y;
}

const isCanonical = (point: Uint8Array): boolean => isBelow(ordinate(point), fieldPrime);

const isSmall = (point: Uint8Array): boolean =>
  smallOrdinates.some((y) => equalBytes(y, ordinate(point)));

/** Of 32 bytes each, little endian. */
function isBelow(a: Uint8Array, b: Uint8Array): boolean {
  for (let i = 31; i >= 0; i--) if (a[i] !== b[i]) return (a[i] as number) < (b[i] as number);
  return false;
}

/** u = 9, to which a public key is the agreement of its secret. */
const basePoint = Uint8Array.of(9, ...new Uint8Array(31));

/** HKDF with SHA-256. WebCrypto's would not work on pages without a secure origin. */
export function hkdf(
  key: Uint8Array,
  salt: Uint8Array | null,
  info: Uint8Array,
  length: number,
): Uint8Array {
  return hkdfOf(sha256, key, salt ?? undefined, info, length);
}

const sealNonceBytes = 12;

/** ChaCha20-Poly1305 (RFC 8439) under a random nonce, which comes first. */
export function sealBytes(key: Uint8Array, plain: Uint8Array, bound: Uint8Array): Uint8Array {
  const nonce = crypto.getRandomValues(new Uint8Array(sealNonceBytes));
  return concatBytes(nonce, chacha20poly1305(key, nonce, bound).encrypt(plain));
}

/** `null` when it was sealed with another key, bound to something else, or changed. */
export function openBytes(
  key: Uint8Array,
  sealed: Uint8Array,
  bound: Uint8Array,
): Uint8Array | null {
  try {
    const nonce = sealed.subarray(0, sealNonceBytes);
    return chacha20poly1305(key, nonce, bound).decrypt(sealed.subarray(sealNonceBytes));
  } catch {
    return null;
  }
}

/** One block of several under one key, which seals no other content. */
export const sealBlock = (key: Uint8Array, number: number, plain: Uint8Array): Uint8Array =>
  chacha20poly1305(key, blockNonce(number)).encrypt(plain);

/** `null` when it is another block, or was changed. */
export function openBlock(key: Uint8Array, number: number, sealed: Uint8Array): Uint8Array | null {
  try {
    return chacha20poly1305(key, blockNonce(number)).decrypt(sealed);
  } catch {
    return null;
  }
}

function blockNonce(number: number): Uint8Array {
  const nonce = new Uint8Array(sealNonceBytes);
  new DataView(nonce.buffer).setBigUint64(sealNonceBytes - 8, BigInt(number));
  return nonce;
}

/** A UUID of version 4. A page without a secure origin has no `crypto.randomUUID`. */
export function randomUuid(): string {
  return uuidOf(crypto.getRandomValues(new Uint8Array(16)));
}

/** The UUID of 16 random or derived bytes; six of their bits become version and variant. */
export function uuidOf(bytes: Uint8Array): string {
  const versioned = bytes.slice();
  versioned[6] = ((bytes[6] as number) & 0x0f) | 0x40;
  versioned[8] = ((bytes[8] as number) & 0x3f) | 0x80;
  return encodeHex(versioned).replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, "$1-$2-$3-$4-$5");
}
