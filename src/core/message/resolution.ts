/**
 * How a recipient is sent to, in one answer: the key to seal to, and the sizes that its policies and a node take.
 * Source: docs/ledger.md 3.1 (`GET /delivery-resolution/{target}`), D145.
 */
import { decodeBase58 } from "../codec/bytes.ts";
import { type Fault, fault, isFault } from "../fault.ts";
import type { DidDocument, KeyAgreement } from "../ledger/document-form.ts";
import { decidePolicy, type PolicyFacts } from "./policy.ts";

/** The largest payloads and bodies that a node takes. */
export type SizeLimits = {
  readonly chunk_bytes_max: number;
  readonly unchunked_bytes_max: number;
  readonly body_bytes_max: number;
};

export type ResolutionFacts = {
  readonly recipient: { readonly document: DidDocument | null; readonly deactivated: boolean } | null;
  /** `null` when there is no recipient who can be sent to. */
  readonly policy: PolicyFacts | null;
};

export type Resolution = {
  readonly keyId: string;
  readonly publicKeyMultibase: string;
  readonly chunkBytesMax: number;
  readonly unchunkedBytesMax: number;
  readonly bodyBytesMax: number;
  /** Of the policy; `null` when it sets none. */
  readonly messageBytesMax: number | null;
};

/**
 * 404 `did_not_found`, 422 `did_deactivated`, 404 `component_not_found` without a key to seal to, 403 `policy_denied`
 * for a tag that the recipient does not admit.
 */
export function decideResolution(facts: ResolutionFacts, limits: SizeLimits): Resolution | Fault {
  const { recipient } = facts;
  if (recipient === null) return fault("did_not_found", "the DID is not registered");
  if (recipient.deactivated || facts.policy === null) return fault("did_deactivated", "the DID is deactivated");
  const key = recipient.document?.keyAgreement.find(isX25519);
  if (key === undefined) return fault("component_not_found", "the recipient publishes no X25519 key to seal to");
  const policy = decidePolicy(facts.policy);
  if (isFault(policy)) return policy;
  const messageBytesMax = policy.messageBytesMax;
  const bounded = (bytesMax: number) => Math.min(bytesMax, messageBytesMax ?? bytesMax);
  return {
    keyId: key.id,
    publicKeyMultibase: key.publicKeyMultibase,
    chunkBytesMax: bounded(limits.chunk_bytes_max),
    unchunkedBytesMax: bounded(limits.unchunked_bytes_max),
    bodyBytesMax: limits.body_bytes_max,
    messageBytesMax,
  };
}

/** The longest base58btc text of 34 bytes, with its `z`. */
const multibaseCharsMax = 49;

/** Whether a key is 32 bytes as base58btc, bare or behind the prefix `ec 01` of X25519. */
function isX25519({ publicKeyMultibase: text }: KeyAgreement): boolean {
  if (!text.startsWith("z") || text.length > multibaseCharsMax) return false;
  const bytes = decodeBase58(text.slice(1));
  return bytes?.length === 32 || (bytes?.length === 34 && bytes[0] === 0xec && bytes[1] === 0x01);
}
