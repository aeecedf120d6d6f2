/**
 * Ed25519 and X25519 by WebCrypto, over keys as their 32 bytes. Rejects where the runtime lacks the curves, and on pages
 * without a secure origin.
 * Source: "Secure Curves in the Web Cryptography API", RFC 8410 (PKCS #8).
 */
import { concatBytes, decodeBase64Url, decodeHex } from "../../core/codec/bytes.ts";

type Curve = "Ed25519" | "X25519";

/** DER of a private key in PKCS #8, up to the 32 secret bytes. Some runtimes import no raw private keys. */
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

export const webCurves = {
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
  /** For a signature and a key of the right lengths; `false` for bytes that are not a point of the curve. */
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
