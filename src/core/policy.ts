/**
 * Delivery policies: their records, which of them applies to an envelope, and what it permits.
 * Source: interface "Recipient delivery policy", decisions sections 4 and 10, chain-facts 1.6 and 2.7.
 */

export type ExpirationBehavior = "DeleteOnExpiry" | "KeepHeaderPreview" | "TombstoneReference";

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

export type DeliveryPolicyLinks = {
  readonly recipientPolicy: string | null;
  readonly tagPolicies: readonly string[];
  readonly personaPolicies: readonly string[];
};
