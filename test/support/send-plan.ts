/**
 * A file of three chunks that one DID sends to another: the plan, its source, and the reader's
 * secret.
 */
import { x25519 } from "@noble/curves/ed25519.js";
import { sha256 } from "@noble/hashes/sha2.js";
import type { SendPlan } from "../../src/client/mail/send.ts";
import type { Did } from "../../src/core/codec/did.ts";

export const to = "did:svc:1111111111111111111111" as Did;
export const from = "did:svc:2222222222222222222222" as Did;
/** Opens what the plan seals. */
export const readerSecret = new Uint8Array(32).fill(4);
export const senderSeed = new Uint8Array(32).fill(5);
export const content = new Uint8Array(2_500).map((_, i) => i & 0xff);

export const plan: SendPlan = {
  id: "3f7c1f0e-8d5b-4a35-9d51-0a7f6a1c2b3d",
  seed: new Uint8Array(32).fill(1),
  to,
  name: null,
  trust: "unproven",
  recipient: { keyId: `${to}#x25519-1`, publicKey: x25519.getPublicKey(readerSecret) },
  file: {
    name: "photo.jpg",
    mediaType: "image/jpeg",
    sizeBytes: content.length,
    sha256: sha256(content),
  },
  chunkBytes: 1_000,
  timestamp: "2026-07-16T12:00:00.000Z",
  ttl: "24h",
  tag: "news",
  hint: null,
  sender: { did: from, keyId: `${from}#root`, seed: senderSeed },
};

export const source = {
  file: plan.file,
  read: async (a: number, b: number) => content.subarray(a, b),
};
