/**
 * What shows others who wrote a message: its author's signature, and what that covers besides the
 * content. A recipient keeps it with the message, for a report to the operator; from the content
 * and this the signed bytes are made again. A signature outside covers the ciphertext, so the key
 * of that one payload is kept; one inside covers the record.
 * Source: docs/protocol.md ("Sealing", "Reports"), D638.
 */
import { encodeBase64 } from "../../core/codec/bytes.ts";
import { isRecord } from "../base/shapes.ts";
import type { EnvelopeJson } from "../net/caches.ts";
import type { Cipher } from "./unseal.ts";
import type { HybridOpened, InnerSignature } from "./unseal-hybrid.ts";

/** Bytes in Base64, digests in lower hex. */
export type Authorship = {
  /** As it was sealed, with the parameters of these conventions. */
  readonly mediaType: string;
} & (
  | {
      readonly is: "outside";
      /** Without its ciphertext. */
      readonly envelope: EnvelopeJson;
      readonly key: string;
      readonly nonce: string;
      readonly plainBytes: number;
    }
  | {
      readonly is: "inside";
      readonly keyId: string;
      readonly proofSha256: string;
      readonly keySha256: string;
      readonly envelopeSha256: string;
      readonly signature: string;
    }
);

/** Longer ones are not kept: a sender may write millions of characters into an envelope. */
const charactersMax = 4_096;

/** Of a message whose signature verifies; `null` when it would be too long to keep. */
export function authorshipOf(
  envelope: EnvelopeJson,
  { file, inner, cipher }: HybridOpened,
): Authorship | null {
  const { mediaType } = file;
  const kept =
    inner === null
      ? { mediaType, ...outsideOf(envelope, cipher) }
      : { mediaType, ...insideOf(inner) };
  return JSON.stringify(kept).length > charactersMax ? null : kept;
}

function outsideOf({ payload, ...outer }: EnvelopeJson, { key, nonce, plainBytes }: Cipher) {
  const { ciphertext_b64: _, ...sealed } = isRecord(payload) ? payload : {};
  const envelope = { ...outer, payload: sealed } as EnvelopeJson;
  const bytes = { key: encodeBase64(key), nonce: encodeBase64(nonce) };
  return { is: "outside", envelope, ...bytes, plainBytes } as const;
}

function insideOf({ keyId, proofSha256, signature, place }: InnerSignature) {
  const { keySha256, envelopeSha256 } = place;
  const bytes = { proofSha256: encodeBase64(proofSha256), signature: encodeBase64(signature) };
  return { is: "inside", keyId, keySha256, envelopeSha256, ...bytes } as const;
}
