/**
 * The curves in JavaScript, for runtimes whose WebCrypto lacks them, and for signatures on whose
 * edge runtimes disagree. Loaded when it is needed (`crypto.ts`).
 */
import { ed25519, x25519 } from "@noble/curves/ed25519.js";
import { verifyEd25519 } from "#crypto";
import type { Curves } from "./crypto.ts";

export const curvesInJavaScript: Curves = {
  publicKey: async (seed) => ed25519.getPublicKey(seed),
  sign: async (message, seed) => ed25519.sign(message, seed),
  verify: async (signature, message, publicKey) => verifyEd25519(signature, message, publicKey),
  agree: async (secret, publicKey) => x25519.getSharedSecret(secret, publicKey),
};
