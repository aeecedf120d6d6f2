/**
 * Delivery policies: which of them applies to an envelope, what it permits, and how a
 * sender learns it before sending. A policy only tightens the limits of a node; without a
 * policy the node's own limits hold.
 * Source: interface "Recipient delivery policy", rules section 4, docs/ledger.md 1.6 and
 * 2.7.
 */
import { secondMs } from "../codec/time.ts";
import { type Fault, fault, isFault } from "../fault.ts";
import {
  type DeliveryPolicy,
  type DeliveryPolicyLinks,
  type DidDocument,
  type ExpirationBehavior,
  type PersonaPolicy,
  sealingKeyOf,
  type VerificationMethod,
} from "../ledger/account.ts";

/** All that is known when an envelope's policy is decided. `null` is known absence. */
export type PolicyFacts = {
  readonly links: DeliveryPolicyLinks | null;
  readonly tag: string | null;
  readonly tagPolicy: DeliveryPolicy | null;
  /** Of the DID that `links.recipientPolicy` names, else the recipient's own. */
  readonly recipientPolicy: DeliveryPolicy | null;
  /** Those of the linked personas that have one. */
  readonly personaPolicies: readonly PersonaPolicy[];
  /** 0 when there is no policy: nothing reads it then. */
  readonly blockTimeMs: number;
};

/** What applies to one envelope. `null` limits leave the node's own. */
export type EffectivePolicy = {
  readonly ttlMs: number | null;
  readonly messageBytesMax: number | null;
  readonly cacheEligible: boolean;
  /** How many Caches should hold a copy. */
  readonly replication: number;
  readonly headerPreviewBytes: number;
  readonly expiration: ExpirationBehavior;
  /** A Relay must be in every one of these lists. */
  readonly allowedRelays: readonly (readonly string[])[];
};

/**
 * 403 `policy_denied` for a tag not admitted. A tag policy counts when its tag is listed,
 * and loosens nothing.
 */
export function decidePolicy(facts: PolicyFacts): EffectivePolicy | Fault {
  const admitted = facts.links?.tagPolicies ?? [];
  if (facts.tag !== null && admitted.length > 0 && !admitted.includes(facts.tag))
    return fault("policy_denied", "the recipient's policies do not accept this tag");

  const tagPolicy = isTagListed(facts.links, facts.tag) ? facts.tagPolicy : null;
  const policies = [facts.recipientPolicy, tagPolicy].filter((policy) => policy !== null);

  const allowedRelays = facts.personaPolicies
    .map((persona) => persona.allowedRelays)
    .filter((list) => list.length > 0);
  if (policies.length === 0) return { ...withoutPolicy, allowedRelays };

  const least = (value: (policy: DeliveryPolicy) => number) => Math.min(...policies.map(value));
  return {
    ttlMs: least((policy) => ttlMsOf(policy, facts.blockTimeMs)),
    messageBytesMax: least((policy) => policy.maxMessageBytes),
    cacheEligible: policies.every((policy) => policy.cacheEligible),
    replication: least((policy) => policy.replication ?? 1),
    headerPreviewBytes: least((policy) => policy.encryptedHeaderPreviewBytes ?? 0),
    expiration: leastKept(policies),
    allowedRelays,
  };
}

const withoutPolicy: Omit<EffectivePolicy, "allowedRelays"> = {
  ttlMs: null,
  messageBytesMax: null,
  cacheEligible: true,
  replication: 1,
  headerPreviewBytes: 0,
  expiration: "DeleteOnExpiry",
};

/** Whether the recipient lists the policy of this tag. */
export function isTagListed(links: DeliveryPolicyLinks | null, tag: string | null): boolean {
  return tag !== null && (links?.tagPolicies.includes(tag) ?? false);
}

/**
 * Whole seconds, at least one: answers show durations in seconds, and `expires_at` must
 * agree with them.
 */
function ttlMsOf(policy: DeliveryPolicy, blockTimeMs: number): number {
  return Math.max(1, Math.floor((policy.effectiveTtlBlocks * blockTimeMs) / secondMs)) * secondMs;
}

/** From what keeps least of an expired message to what keeps most. */
const expirations: readonly ExpirationBehavior[] = [
  "DeleteOnExpiry",
  "TombstoneReference",
  "KeepHeaderPreview",
];

function leastKept(policies: readonly DeliveryPolicy[]): ExpirationBehavior {
  const asked = policies.map((policy) => policy.expirationBehavior ?? "DeleteOnExpiry");
  return expirations.find((behavior) => asked.includes(behavior)) ?? "DeleteOnExpiry";
}

/**
 * 413 `too_large` when the payload (of one envelope or one chunk) is larger than the policy
 * allows.
 */
export function checkPayloadSize(policy: EffectivePolicy, payloadBytes: number): Fault | null {
  if (policy.messageBytesMax === null || payloadBytes <= policy.messageBytesMax) return null;
  return fault(
    "too_large",
    `the recipient accepts messages of at most ${policy.messageBytesMax} bytes`,
  );
}

/** 403 `policy_denied` when a linked persona names Relays and this one is not among them. */
export function checkRelay(policy: EffectivePolicy, relayPublicId: string | null): Fault | null {
  const allowed = policy.allowedRelays.every(
    (list) => relayPublicId !== null && list.includes(relayPublicId),
  );
  return allowed
    ? null
    : fault("policy_denied", "the recipient's policies do not accept this Relay");
}

// ----------------------------------------------------------------------------- delivery resolution

type ResolutionFacts = {
  readonly recipient: {
    readonly document: DidDocument | null;
    readonly deactivated: boolean;
  } | null;
  /** `null` when the recipient does not exist or is deactivated. */
  readonly policy: PolicyFacts | null;
};

/**
 * How to send to a recipient: the key to seal to, and the bound of the policy; `null` when
 * it sets none.
 */
export type DeliveryResolution = {
  readonly key: VerificationMethod;
  readonly messageBytesMax: number | null;
};

/**
 * 404 `did_not_found` or `component_not_found` (no key), 422 `did_deactivated`, 403
 * `policy_denied` for the tag.
 */
export function decideResolution(facts: ResolutionFacts): DeliveryResolution | Fault {
  const { recipient } = facts;
  if (recipient === null) return fault("did_not_found", "the DID is not registered");
  if (recipient.deactivated || facts.policy === null)
    return fault("did_deactivated", "the DID is deactivated");
  const key = recipient.document === null ? null : sealingKeyOf(recipient.document);
  if (key === null)
    return fault("component_not_found", "the recipient publishes no X25519 key to seal to");
  const policy = decidePolicy(facts.policy);
  return isFault(policy) ? policy : { key, messageBytesMax: policy.messageBytesMax };
}
