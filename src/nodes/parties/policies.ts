/**
 * Delivery policies and links as nodes use them, made from the forms that requests and
 * answers have on the wire.
 */
import type { Static } from "@sinclair/typebox";
import { badInput, type Fault } from "../../core/fault.ts";
import type {
  DeliveryPolicy,
  DeliveryPolicyLinks,
  PersonaPolicy,
} from "../../core/ledger/account.ts";
import type {
  deliveryPolicyBody,
  linksBody,
  personaPolicyBody,
} from "../../core/schema/identity.ts";

/**
 * The links as one object or as three members of the body, never both; absent members are empty.
 */
export function parseLinks(body: Static<typeof linksBody>): DeliveryPolicyLinks | Fault {
  const { delivery_policy_links: nested, did: _, ...flat } = body;
  const [extra] = Object.keys(flat);
  if (nested !== undefined && extra !== undefined) {
    return badInput("invalid_request", `/${extra}`, "can't be combined with delivery_policy_links");
  }
  const links = nested ?? flat;
  return {
    recipientPolicy: links.recipient_policy ?? null,
    tagPolicies: links.tag_policies ?? [],
    personaPolicies: links.persona_policies ?? [],
  };
}

export function normalizePersonaPolicy(
  policy: Static<typeof personaPolicyBody>["policy"],
): PersonaPolicy {
  const {
    release_pricing: pricing,
    expiration_behavior: expiration,
    allowed_relays: relays,
  } = policy;
  const retainUntil = expiration?.retain_until;
  return {
    releasePricing:
      pricing === undefined ? null : { asset: pricing.asset, amount: BigInt(pricing.amount) },
    expirationBehavior:
      expiration === undefined
        ? null
        : {
            mode: expiration.mode,
            retainUntilMs: retainUntil === undefined ? null : BigInt(retainUntil),
          },
    allowedRelays: relays ?? [],
  };
}

export function normalizeDeliveryPolicy(
  policy: Static<typeof deliveryPolicyBody>["policy"],
): DeliveryPolicy {
  const pricing = policy.release_pricing;
  return {
    effectiveTtlBlocks: policy.effective_ttl,
    maxMessageBytes: policy.max_message_bytes,
    cacheEligible: policy.cache_eligible,
    replication: policy.replication ?? null,
    encryptedHeaderPreviewBytes: policy.encrypted_header_preview_bytes ?? null,
    releasePricing:
      pricing === undefined
        ? null
        : { baseFee: BigInt(pricing.base_fee), perKibFee: BigInt(pricing.per_kib_fee) },
    expirationBehavior: policy.expiration_behavior ?? null,
  };
}
