/**
 * Stores one envelope for its recipient: admission, one write, and the receipt with its event
 * proof. The route and the Relay of the same process use the same function. A `202` means that the
 * entry is durable.
 * Source: interface "Cache entry" and "Cache store receipt", rules section 6.
 */
import type { Config } from "../../config/schema.ts";
import { encodeBase64, type VerifySignature } from "../../core/codec/bytes.ts";
import { type Did, type MailboxKey, mailboxOf, type Uuid } from "../../core/codec/did.ts";
import { renderDuration, renderTimestamp } from "../../core/codec/time.ts";
import { type Fault, fault, isFault } from "../../core/fault.ts";
import type { StoreReceipt } from "../../core/message/delivery.ts";
import {
  checkEnvelopeTime,
  type Envelope,
  type EnvelopeLimits,
} from "../../core/message/envelope.ts";
import { encodeEventProof, sameEndpoint } from "../../core/message/proof.ts";
import {
  type Mailbox,
  type MailboxEntry,
  StoreError,
  type StoreOutcome,
} from "../../storage/contract.ts";
import { shortDigest } from "../../storage/mailbox-rules.ts";
import type { MailboxQuota } from "../../storage/quota.ts";
import {
  type Admission,
  type AdmissionFacts,
  type AdmissionRules,
  decideAdmission,
  gatherFacts,
} from "../parties/admission.ts";
import { authorOf, contentDigest, isRepeat, otherContent } from "../parties/author.ts";
import type { Blocks } from "../parties/blocks.ts";
import type { RecipientSource, Subject } from "../parties/recipients.ts";
import type { MailboxLimits, Tiers } from "../parties/tiers.ts";
import type { FullReports } from "./full.ts";
import { type KnownSenders, type ShownSender, sendingOf } from "./known.ts";
import { labelsOf, type MailboxSender, type Origin, placesOf, storeShareOf } from "./pools.ts";
import type { Push } from "./push.ts";
import type { PlaceReporter, Reporting } from "./reporters.ts";

export type StoreParts = {
  readonly mailbox: Mailbox;
  readonly known: KnownSenders;
  readonly recipients: RecipientSource;
  readonly verify: VerifySignature;
  readonly settings: Config["cache"];
  /** Of members; without it all have the quota of the settings. */
  readonly tiers?: Pick<Tiers, "mailboxOf">;
  readonly placeReporter: PlaceReporter;
  readonly rules: AdmissionRules;
  readonly signer: EventSigner;
  readonly reports: FullReports;
  /** `null` where nothing is pushed. */
  readonly push: Pick<Push, "stored"> | null;
  /** Called for every new entry. */
  readonly onStored: (mailbox: MailboxKey) => void;
};

/** When and by which client an envelope is submitted. */
export type Submitted = Origin & {
  readonly nowMs: number;
  /** No one need be woken for it (RFC 8030 `Urgency: low`): a receipt, say. */
  readonly isQuiet?: boolean;
  /** Where the sender may be at home. */
  readonly senderHome?: string | null;
  /** `Svc-Pass` of the request. */
  readonly pass?: string | null;
  /** By the Relay of this process, with what it has gathered: a signature is verified once. */
  readonly relayed?: AdmissionFacts;
};

/**
 * Refuses as `decideAdmission`, and with 404 `service_not_found`, 422 `not_deliverable` for a hint
 * that forbids a Cache, 409 `duplicate_conflict` or `chunk_conflict`, 507 `mailbox_full` or
 * `storage_full`.
 */
export async function storeEnvelope(
  parts: StoreParts,
  envelope: Envelope,
  submitted: Submitted,
): Promise<StoreReceipt | Fault> {
  const { nowMs } = submitted;
  const untimely = checkEnvelopeTime(envelope, nowMs, parts.rules.limits);
  if (untimely !== null) return untimely;
  const { senderHome: home = null, network, relayed } = submitted;
  const gathered = relayed ?? gatherFacts(parts, envelope, { home, network });
  const facts = gathered instanceof Promise ? await gathered : gathered;
  const admission = admitEnvelope(parts, envelope, facts, nowMs);
  if (isFault(admission)) return admission;
  const mailbox = mailboxOf(envelope.to, admission.recipient.life);
  const author = authorOf(envelope, admission.sender);
  const from = { author, pass: submitted.pass ?? null, envelope: envelope.bytes };
  const { sender } = admission;
  const seen = senderAt(parts, from, { mailbox, sender, nowMs });
  const sending = seen instanceof Promise ? await seen : seen;
  const entry = entryOf(envelope, admission, {
    mailbox,
    labels: labelsOf(sending, submitted),
    nowMs,
  });
  const own = parts.tiers?.mailboxOf(envelope.to) ?? parts.settings;
  const quota = quotaOf(parts.settings, own, { sending, origin: submitted });
  let decided: StoreOutcome;
  try {
    decided = await parts.mailbox.store(entry, quota);
  } catch (error) {
    return parts.reports.failed(error);
  }
  const outcome = decided;
  const refused = checkOutcome(parts, outcome, envelope.to);
  if (refused !== null) return refused;
  const deduped = outcome.kind === "duplicate";
  if (deduped && !isRepeat(outcome, author)) return otherContent;
  const { expiresAtMs } = deduped ? outcome : entry;
  if (!deduped) parts.onStored(mailbox);
  // A repeat is announced too: a crash may have lost the notice.
  if (parts.push !== null && submitted.isQuiet !== true && (!deduped || outcome.isSame)) {
    await parts.push.stored({ mailbox, isKnown: sending.isKnown, expiresAtMs, nowMs });
  }
  return receiptOf(parts, envelope, { deduped, expiresAtMs, ttlMsMax: admission.ttlMsMax, nowMs });
}

/** Whether a request says that no one need be woken for what it brings. */
export function isQuiet(headers: Headers): boolean {
  return /^(very-)?low$/.test(headers.get("urgency") ?? "");
}

/**
 * For the Relay: the receipt of an envelope that was stored before, also when it was acknowledged
 * since; `null` when the id is not known, and 409 `duplicate_conflict` for another message under
 * its id.
 */
export async function recallEnvelope(
  parts: StoreParts,
  envelope: Envelope,
  { recipient, sender, ttlMsMax }: Admission,
  nowMs: number,
): Promise<StoreReceipt | Fault | null> {
  const { to, messageId } = envelope;
  const named = { messageId, digest: contentDigest(envelope) };
  const known = await parts.mailbox.known(mailboxOf(to, recipient.life), named, nowMs);
  if (known === null) return null;
  if (!isRepeat(known, authorOf(envelope, sender))) return otherContent;
  const { expiresAtMs } = known;
  return receiptOf(parts, envelope, { deduped: true, expiresAtMs, ttlMsMax, nowMs });
}

/** Who sends, as the mailbox sees it. Of an unsigned envelope without waiting: most are. */
function senderAt(
  { known, placeReporter }: StoreParts,
  from: ShownSender,
  of: Reporting,
): MailboxSender | Promise<MailboxSender> {
  const seen = sendingOf(known, of.mailbox, from, of.nowMs);
  return seen instanceof Promise
    ? seen.then((sender) => placeReporter(sender, of))
    : placeReporter(seen, of);
}

// ------------------------------------------------------------------------------------------ decide

/** The rules that a Cache adds to those of every node; made once. */
export function storeRules(
  settings: Config["cache"],
  limits: EnvelopeLimits,
  blocks: Blocks | undefined,
): AdmissionRules {
  return {
    operator: settings,
    blocks,
    limits,
    checkRecipient: (recipient) => checkService(recipient, settings.public_endpoints),
    checkPolicy: (policy) =>
      policy.cacheEligible ? null : fault("policy_denied", "the recipient does not permit a Cache"),
  };
}

function admitEnvelope(
  { rules }: StoreParts,
  envelope: Envelope,
  facts: AdmissionFacts,
  nowMs: number,
): Admission | Fault {
  const admission = decideAdmission(envelope, facts, rules, nowMs);
  if (isFault(admission) || envelope.hint !== "direct") return admission;
  return fault("not_deliverable", "the sender does not allow a Cache for this envelope");
}

/** The recipient's document must list this Cache. */
export function checkService({ document }: Subject, endpoints: readonly string[]): Fault | null {
  if (document === null) return fault("recipient_not_found", "the recipient does not exist");
  for (const { type, serviceEndpoint } of document.service)
    if (type === "SvcCacheService")
      for (const endpoint of serviceEndpoint)
        for (const own of endpoints) if (sameEndpoint(own, endpoint)) return null;
  return fault("service_not_found", "the recipient publishes no service of this Cache");
}

/** Bound of the contract for `headerPreview`. */
const previewBytesMax = 4_096;

function entryOf(
  envelope: Envelope,
  { policy, ttlMs, expiresAtMs }: Admission,
  at: Pick<MailboxEntry, "labels"> & { readonly mailbox: MailboxKey; readonly nowMs: number },
): MailboxEntry {
  const keeps = policy.expiration !== "DeleteOnExpiry";
  const previews = policy.expiration === "KeepHeaderPreview" && envelope.header !== null;
  return {
    recipient: at.mailbox,
    messageId: envelope.messageId,
    chunk: envelope.chunk,
    storedAtMs: at.nowMs,
    expiresAtMs,
    onExpiry: policy.expiration,
    keptUntilMs: keeps ? expiresAtMs + ttlMs : expiresAtMs,
    labels: at.labels,
    headerPreview: previews
      ? envelope.header.slice(0, Math.min(policy.headerPreviewBytes, previewBytesMax))
      : null,
    envelope: envelope.bytes,
    digest: contentDigest(envelope),
  };
}

type Sent = { readonly sending: MailboxSender; readonly origin: Origin };

/** `own`: what holds for the mailbox. */
function quotaOf(
  settings: Config["cache"],
  own: MailboxLimits,
  { sending, origin }: Sent,
): MailboxQuota {
  return {
    recipientEntriesMax: own.recipient_entries_max,
    recipientBytesMax: own.recipient_bytes_max,
    places: placesOf(sending, origin, own),
    storeEntriesMax: settings.store_entries_max,
    storeBytesMax: settings.store_bytes_max,
    storeShare: storeShareOf(origin, settings),
  };
}

/**
 * Whether the store takes an envelope of so many bytes, asked of the store itself: an entry for
 * which the mailbox has no room is refused unless there is none on the disk either. Nothing is
 * written. The reason, or `null`.
 */
export async function checkDisk(
  { mailbox, settings }: Pick<StoreParts, "mailbox" | "settings">,
  recipient: MailboxKey,
  { bytes, nowMs }: { readonly bytes: number; readonly nowMs: number },
): Promise<string | null> {
  const envelope = new Uint8Array(bytes);
  const entry: MailboxEntry = {
    recipient,
    messageId: crypto.randomUUID() as Uuid,
    chunk: null,
    storedAtMs: nowMs,
    expiresAtMs: nowMs + 1,
    onExpiry: "DeleteOnExpiry",
    keptUntilMs: nowMs + 1,
    labels: [],
    headerPreview: null,
    envelope,
    digest: shortDigest(envelope),
  };
  const sending: MailboxSender = { isKnown: false, label: null };
  const all = quotaOf(settings, settings, { sending, origin: trialOrigin });
  const quota = { ...all, recipientEntriesMax: 0 };
  return mailbox.store(entry, quota).then(
    () => null,
    (error: unknown) => {
      if (error instanceof StoreError) return error.message;
      throw error;
    },
  );
}

const trialOrigin: Origin = { client: "unix", network: "unix" };

/** What the mailbox refuses: 409 `chunk_conflict`, 507 `mailbox_full` or `storage_full`. */
function checkOutcome(
  { reports }: StoreParts,
  outcome: StoreOutcome,
  recipient: Did,
): Fault | null {
  if (outcome.kind === "chunk_conflict")
    return fault(
      "chunk_conflict",
      "the group has another total, or another message has this sequence number",
    );
  return outcome.kind === "full" ? reports.refuse(outcome, recipient) : null;
}

// ---------------------------------------------------------------------------------------- receipts

type ReceiptFacts = {
  readonly deduped: boolean;
  /** Of the entry that is held, whose life a repeat with another `ttl` does not change. */
  readonly expiresAtMs: number;
  readonly ttlMsMax: number;
  readonly nowMs: number;
};

function receiptOf({ signer }: StoreParts, envelope: Envelope, facts: ReceiptFacts): StoreReceipt {
  const { messageId, to: recipient, chunk, timestampMs } = envelope;
  const { deduped, expiresAtMs, ttlMsMax, nowMs } = facts;
  const timestamp = renderTimestamp(nowMs);
  return {
    accepted: true,
    deduped,
    message_id: messageId,
    recipient,
    expires_at: renderTimestamp(expiresAtMs),
    max_ttl: renderDuration(ttlMsMax),
    applied_ttl: renderDuration(Math.max(0, expiresAtMs - timestampMs)),
    chunked: chunk !== null,
    proof: {
      event_type: "delivery",
      message_id: messageId,
      recipient_did: recipient,
      timestamp,
      reason: null,
      signature: signEvent("delivery", { messageId, timestamp }, { recipient, nowMs, signer }),
    },
  };
}

/** How this Cache signs its events; without a key, signatures are `null`. */
export type EventSigner = {
  readonly sign: ((text: Uint8Array) => Uint8Array) | null;
  /** The endpoint that the signed text names. */
  readonly endpoint: string;
};

/** Recipient, endpoint and time of an answer. */
export type AnswerContext = {
  readonly recipient: Did;
  readonly nowMs: number;
  readonly signer: EventSigner;
};

/** What an answer says of one message. */
export type SignedEvent = { readonly messageId: Uuid; readonly timestamp: string };

/** Base64 of the Cache's signature of one event; `null` without a key. */
export function signEvent(
  eventType: "delivery" | "retrieval",
  event: SignedEvent,
  { recipient, signer }: AnswerContext,
): string | null {
  if (signer.sign === null) return null;
  const claims = {
    eventType,
    ...event,
    recipientDid: recipient,
    reason: null,
    endpoint: signer.endpoint,
  };
  return encodeBase64(signer.sign(encodeEventProof(claims)));
}
