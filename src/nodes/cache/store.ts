/**
 * Admission to the Cache: from an envelope and all that is known of its recipient to an entry of the
 * mailbox, or a refusal. The order of checks is law; the decision itself is pure.
 * Source: interface "Cache entry", decisions sections 6 and 10 ("Order of checks on an envelope").
 */

import { mailboxOf } from "../../core/codec/did.ts";
import { type Fault, fault, isFault } from "../../core/fault.ts";
import type { DidDocument } from "../../core/ledger/document.ts";
import { type AdmissionRules, decideAdmission, type SenderFacts } from "../../core/message/admission.ts";
import {
  appliedTtlMs,
  decideExpiry,
  type Envelope,
  type EnvelopeLimits,
  longestTtlMs,
} from "../../core/message/envelope.ts";
import { decidePayloadSize, decidePolicy, type EffectivePolicy, type PolicyFacts } from "../../core/message/policy.ts";
import { sameEndpoint } from "../../core/message/proof.ts";
import type { MailboxEntry, StoreOutcome } from "../../storage/contract.ts";
import type { RecipientSource, Subject } from "../recipients.ts";
import { gatherPolicyFacts } from "../recipients-policy.ts";

export type StoreFacts = {
  readonly recipient: Subject | null;
  readonly sender: SenderFacts;
  /** `null` when the recipient can't receive anyway, so that nobody asked. */
  readonly policy: PolicyFacts | null;
};

/** Throws `unavailable` when the source can't be asked: nothing is admitted on stale permission. */
export async function gatherStoreFacts(source: RecipientSource, envelope: Envelope): Promise<StoreFacts> {
  const [recipient, sender] = await Promise.all([
    source.subject(envelope.to),
    envelope.sender === null ? null : source.subject(envelope.sender.from),
  ]);
  const receives = recipient !== null && !recipient.deactivated && recipient.document !== null;
  return { recipient, sender, policy: receives ? await gatherPolicyFacts(source, recipient, envelope.tag) : null };
}

export type StoreRules = {
  readonly endpoints: readonly string[];
  readonly limits: EnvelopeLimits;
  readonly admission: AdmissionRules;
};

/** An entry ready for the mailbox, and the longest life that recipient and node together allow. */
export type Admitted = {
  readonly entry: MailboxEntry;
  readonly maxTtlMs: number;
};

/**
 * 404 `recipient_not_found`, 422 `did_deactivated`, 404 `service_not_found`, 403
 * `sender_signature_invalid` or `policy_denied`, 413 `too_large`, 422 `message_expired` under the
 * recipient's policy, 422 `not_deliverable` for a hint that forbids a Cache.
 */
export function decideStore(
  envelope: Envelope,
  facts: StoreFacts,
  rules: StoreRules & { readonly nowMs: number },
): Admitted | Fault {
  const { recipient } = facts;
  if (recipient === null || facts.policy === null) return unreachable(recipient);
  if (!publishesCache(recipient.document, rules.endpoints))
    return fault("service_not_found", "the recipient publishes no service of this Cache");
  const admission = decideAdmission(envelope, facts.sender, rules.admission);
  if (admission !== null) return admission;
  const policy = decidePolicy(facts.policy);
  if (isFault(policy)) return policy;
  if (!policy.cacheEligible) return fault("policy_denied", "the recipient does not permit a Cache");
  const size = decidePayloadSize(policy, envelope.payloadBytes);
  if (size !== null) return size;
  const ttlMs = appliedTtlMs(envelope, rules.limits, policy.ttlMs);
  const expiry = decideExpiry(envelope, ttlMs, rules.nowMs);
  if (expiry !== null) return expiry;
  if (envelope.hint === "direct") return fault("not_deliverable", "the sender asked for no Cache");
  const entry = entryOf(envelope, policy, { ttlMs, nowMs: rules.nowMs });
  return { entry, maxTtlMs: longestTtlMs(rules.limits, policy.ttlMs) };
}

function unreachable(recipient: Subject | null): Fault {
  if (recipient?.deactivated === true) return fault("did_deactivated", "the recipient is deactivated");
  return fault("recipient_not_found", "the recipient does not exist");
}

function publishesCache(document: DidDocument | null, endpoints: readonly string[]): boolean {
  const services = document?.service ?? [];
  return services.some(
    (service) =>
      service.type === "SvcCacheService" &&
      service.serviceEndpoint.some((published) => endpoints.some((own) => sameEndpoint(own, published))),
  );
}

function entryOf(
  envelope: Envelope,
  policy: EffectivePolicy,
  time: { readonly ttlMs: number; readonly nowMs: number },
): MailboxEntry {
  const expiresAtMs = envelope.timestampMs + time.ttlMs;
  const keeps = policy.expiration !== "DeleteOnExpiry";
  const previews = policy.expiration === "KeepHeaderPreview" && envelope.header !== null;
  return {
    recipient: mailboxOf(envelope.to, 0),
    messageId: envelope.messageId,
    chunk: envelope.chunk,
    storedAtMs: time.nowMs,
    expiresAtMs,
    onExpiry: policy.expiration,
    keptUntilMs: keeps ? expiresAtMs + time.ttlMs : expiresAtMs,
    labels: [],
    headerPreview: previews ? envelope.header.slice(0, Math.min(policy.headerPreviewBytes, previewBytesMax)) : null,
    envelope: envelope.bytes,
  };
}

/** Bound of the contract for `headerPreview`. */
const previewBytesMax = 4_096;

/** What the mailbox would not take: 409 `chunk_conflict`, 507 `mailbox_full` or `storage_full`. */
export function refusedOutcome(outcome: StoreOutcome): Fault | null {
  switch (outcome.kind) {
    case "chunk_conflict":
      return fault("chunk_conflict", "the group has another total, or another message holds the sequence number");
    case "full":
      return outcome.scope === "store"
        ? fault("storage_full", "this Cache is full")
        : fault("mailbox_full", "the mailbox of the recipient is full");
    default:
      return null;
  }
}
