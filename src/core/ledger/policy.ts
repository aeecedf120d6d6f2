/**
 * Policy records: how a recipient, a tag or a persona wants to be served, as the ledger keeps it, and the limits that
 * the ledger and the Directory check. What they mean for an envelope is in `core/message/policy.ts`.
 * Source: docs/ledger.md 2.7, rules section 10 ("Policy writes", "Persona policy on the ledger").
 */
import { u64Max } from "../codec/json.ts";
import { longerThan, scaleBounds } from "./account.ts";
import { type LedgerRefusal, refuse } from "./refusals.ts";

/** What becomes of an entry that expires; the order is that of the ledger's enumeration. */
export const expirationBehaviors = ["DeleteOnExpiry", "KeepHeaderPreview", "TombstoneReference"] as const;
export type ExpirationBehavior = (typeof expirationBehaviors)[number];

/** Whom a policy is about. */
export type PolicyScope = "recipient" | "tag" | "persona";

/** The record of a recipient or a tag. `null` members were not set. */
export type DeliveryPolicy = {
  readonly effectiveTtlBlocks: number;
  readonly maxMessageBytes: number;
  readonly cacheEligible: boolean;
  readonly replication: number | null;
  readonly encryptedHeaderPreviewBytes: number | null;
  readonly releasePricing: { readonly baseFee: bigint; readonly perKibFee: bigint } | null;
  readonly expirationBehavior: ExpirationBehavior | null;
};

/** The record of a persona. Only `allowedRelays` acts on delivery. */
export type PersonaPolicy = {
  readonly releasePricing: { readonly asset: string; readonly amount: bigint } | null;
  readonly expirationBehavior: { readonly mode: ExpirationBehavior; readonly retainUntilMs: bigint | null } | null;
  readonly allowedRelays: readonly string[];
};

/** All inclusive. Fees are in the smallest currency unit, the life in blocks (30 days of 6 s). */
export const policyLimits = {
  effectiveTtlBlocksMax: 432_000,
  maxMessageBytesMax: 16_777_216,
  replicationMax: 4,
  headerPreviewBytesMax: 4_096,
  releaseFeeMax: 10n ** 15n,
} as const;

const u128Max = 2n ** 128n - 1n;

/** The rules of a recipient's or tag's policy. */
export function checkDeliveryPolicy(policy: DeliveryPolicy): LedgerRefusal | null {
  const limits = policyLimits;
  if (!within(policy.effectiveTtlBlocks, 1, limits.effectiveTtlBlocksMax)) return refuse("InvalidTtl");
  if (!within(policy.maxMessageBytes, 1, limits.maxMessageBytesMax)) return refuse("MaxMessageSizeExceeded");
  if (!within(policy.replication ?? 1, 1, limits.replicationMax)) return refuse("InvalidReplication");
  if (!within(policy.encryptedHeaderPreviewBytes ?? 0, 0, limits.headerPreviewBytesMax)) {
    return refuse("HeaderPreviewTooLarge");
  }
  const pricing = policy.releasePricing ?? { baseFee: 0n, perKibFee: 0n };
  const fees = [pricing.baseFee, pricing.perKibFee];
  return fees.every((fee) => fee >= 0n && fee <= limits.releaseFeeMax) ? null : refuse("ReleaseFeeTooLarge");
}

function within(value: number, min: number, max: number): boolean {
  return Number.isInteger(value) && value >= min && value <= max;
}

/** The rules of a persona's policy. */
export function checkPersonaPolicy(policy: PersonaPolicy): LedgerRefusal | null {
  const { releasePricing, expirationBehavior, allowedRelays } = policy;
  if (allowedRelays.length > scaleBounds.allowedRelays) return breach("too many entries in allowed_relays");
  if (allowedRelays.some((relay) => longerThan(relay, scaleBounds.allowedRelayBytes))) {
    return breach("an entry of allowed_relays is too long");
  }
  if (releasePricing !== null) {
    if (longerThan(releasePricing.asset, scaleBounds.assetBytes)) return breach("asset is too long");
    if (releasePricing.amount < 0n || releasePricing.amount > u128Max) return breach("amount is out of range");
  }
  const retainUntilMs = expirationBehavior?.retainUntilMs ?? 0n;
  return retainUntilMs >= 0n && retainUntilMs <= u64Max ? null : breach("retain_until is out of range");
}

function breach(detail: string): LedgerRefusal {
  return refuse("InvalidConstraints", { detail });
}
