/**
 * Delivery policies of a recipient, a tag and a persona as the ledger has them, and the facts that
 * decide over an envelope.
 */
import type { DeliveryPolicy, PersonaPolicy } from "../../src/core/ledger/account.ts";
import type { PolicyFacts } from "../../src/core/message/policy.ts";

/** A day, a megabyte, the Cache allowed; the other members are not set. */
export function policyOf(change: Partial<DeliveryPolicy> = {}): DeliveryPolicy {
  return {
    effectiveTtlBlocks: 14_400,
    maxMessageBytes: 1_000_000,
    cacheEligible: true,
    replication: null,
    encryptedHeaderPreviewBytes: null,
    releasePricing: null,
    expirationBehavior: null,
    ...change,
  };
}

export function personaOf(allowedRelays: readonly string[]): PersonaPolicy {
  return { releasePricing: null, expirationBehavior: null, allowedRelays };
}

/** A recipient without any policy, on a chain with a block every six seconds. */
export function policyFacts(change: Partial<PolicyFacts> = {}): PolicyFacts {
  return {
    links: null,
    tag: null,
    tagPolicy: null,
    recipientPolicy: null,
    personaPolicies: [],
    blockTimeMs: 6_000,
    ...change,
  };
}
