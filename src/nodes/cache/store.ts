/**
 * Stores one envelope for its recipient: admission, one write, and the receipt with its event proof. The
 * route and the Relay of the same process use the same function. A `202` means that the entry is durable.
 * Source: interface "Cache entry" and "Cache store receipt", rules sections 6 and 10.
 */
import type { Config } from "../../config/schema.ts";
import { encodeBase64 } from "../../core/codec/bytes.ts";
import { type Did, type MailboxKey, mailboxOf, type Uuid } from "../../core/codec/did.ts";
import { renderDuration, renderTimestamp } from "../../core/codec/time.ts";
import { type Fault, fault, isFault } from "../../core/fault.ts";
import { checkEnvelopeTime, type Envelope, type EnvelopeLimits } from "../../core/message/envelope.ts";
import { encodeEventProof, sameEndpoint } from "../../core/message/proof.ts";
import { BoundedMap } from "../../core/std/bounded.ts";
import type { KnownEntry, Mailbox, MailboxEntry, MailboxQuota, StoreOutcome } from "../../storage/contract.ts";
import {
  type Admission,
  type AdmissionFacts,
  type AdmissionRules,
  checkParties,
  decideAdmission,
  type FactsSource,
} from "../admission.ts";
import type { Trace } from "../http/tracing.ts";
import type { Blocks } from "../operations/blocks.ts";
import type { Subject } from "../recipients.ts";
import {
  isKnown,
  isSpared,
  type KnownSenders,
  labelsOf,
  type Origin,
  type Sending,
  type ShareReports,
  senderLabel,
  sharesOf,
  storeShareOf,
} from "./shares.ts";

export type StoreParts = {
  readonly mailbox: Mailbox;
  readonly known: KnownSenders;
  readonly facts: FactsSource;
  readonly settings: Config["cache"];
  readonly limits: EnvelopeLimits;
  readonly rules: AdmissionRules;
  readonly signer: EventSigner;
  readonly reports: ShareReports;
  readonly quotas: QuotaSource;
  /** Called for every new entry. */
  readonly onStored: (recipient: Did, mailbox: MailboxKey) => void;
};

/** When and by which client an envelope is submitted. */
export type Arrival = Origin & {
  readonly nowMs: number;
  readonly trace?: Trace | null;
  /** Of the envelope that the Relay of this process delivers: stored with the entry, to recognize repeats. */
  readonly digest?: string;
  /** What that Relay has decided just now: this Cache is a destination, and only its operator's lists are left. */
  readonly admitted?: Admission | null;
};

/**
 * `held`: the mailbox had the message id already, and not from the Relay of this process. `repeat`: it had this very
 * envelope from the Relay, and the receipt is that of the first delivery.
 */
export type StoredAs = "stored" | "held" | "repeat";

/**
 * Refuses as `decideAdmission`, and with 409 `chunk_conflict` (for a Relay also `duplicate_conflict`), 507 `mailbox_full`
 * or `storage_full`. `answer` makes the caller's answer of the receipt (as JSON) here, which costs no promise of its own.
 */
export async function storeEnvelope<T>(
  parts: StoreParts,
  envelope: Envelope,
  arrival: Arrival,
  answer: (receipt: string, as: StoredAs) => T,
): Promise<T | Fault> {
  const { nowMs, admitted = null } = arrival;
  const decided = admitted === null ? admit(parts, envelope, arrival) : checkAdmitted(parts, envelope, admitted);
  const admission = decided instanceof Promise ? await decided : decided;
  if (isFault(admission)) return admission;
  const mailbox = mailboxOf(envelope.to, admission.recipient.life);
  const asked = sendingOf(parts, envelope, { mailbox, nowMs });
  const sending = asked instanceof Promise ? await asked : asked;
  const { digest = null } = arrival;
  const entry = entryOf(envelope, admission, { mailbox, labels: labelsOf(sending, arrival), digest, nowMs });
  arrival.trace?.stage("commit");
  const outcome = await parts.mailbox.store(entry, parts.quotas(sending, arrival));
  arrival.trace?.stage("render");
  const refused = checkOutcome(parts, outcome, envelope.to, arrival);
  if (refused !== null) return refused;
  const { ttlMsMax } = admission;
  if (outcome.kind !== "duplicate") {
    parts.onStored(envelope.to, mailbox);
    const { expiresAtMs } = entry;
    return answer(receiptOf(parts, envelope, { deduped: false, expiresAtMs, ttlMsMax, nowMs }), "stored");
  }
  const repeat = digest === null ? null : repeatOf(parts, envelope, { known: outcome, digest, ttlMsMax });
  if (isFault(repeat)) return repeat;
  if (repeat !== null) return answer(repeat, "repeat");
  const { expiresAtMs } = outcome;
  return answer(receiptOf(parts, envelope, { deduped: true, expiresAtMs, ttlMsMax, nowMs }), "held");
}

/** What the Relay of this process must know to find out whether its Cache was given a message before. */
export type Recalling = {
  readonly life: number;
  readonly ttlMsMax: number;
  readonly digest: string;
  readonly nowMs: number;
};

/** The receipt of the first delivery, 409 `duplicate_conflict` for another envelope, or `null` without an earlier one. */
export async function recallDelivery(
  parts: StoreParts,
  envelope: Envelope,
  { life, ttlMsMax, digest, nowMs }: Recalling,
): Promise<string | Fault | null> {
  const known = await parts.mailbox.message(mailboxOf(envelope.to, life), envelope.messageId, nowMs);
  return "delivery" in known ? repeatOf(parts, envelope, { known, digest, ttlMsMax }) : null;
}

type Repeated = { readonly known: KnownEntry; readonly digest: string; readonly ttlMsMax: number };

function repeatOf(parts: StoreParts, envelope: Envelope, { known, digest, ttlMsMax }: Repeated) {
  const { expiresAtMs, delivery } = known;
  if (delivery === null) return null;
  if (delivery.digest !== digest)
    return fault("duplicate_conflict", "another envelope with this message_id was sent to this recipient");
  return receiptOf(parts, envelope, { deduped: false, expiresAtMs, ttlMsMax, nowMs: delivery.storedAtMs });
}

/** Whether the mailbox knows who signed. */
function sendingOf(
  { known }: StoreParts,
  { sender }: Envelope,
  { mailbox, nowMs }: { readonly mailbox: MailboxKey; readonly nowMs: number },
): Sending | Promise<Sending> {
  if (sender === null) return "unsigned";
  const label = senderLabel(sender.from);
  return isKnown(known, mailbox, sender.from, nowMs).then((isFriend) => ({ label, known: isFriend }));
}

// ------------------------------------------------------------------------------------------------ decide

/** The rules of a Cache beside those of every node; made once. */
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

type Admitted = Admission | Fault;

/** Besides `decideAdmission`: 404 `service_not_found`, 422 `not_deliverable` for a hint that forbids a Cache. */
function admit(
  { facts, rules, limits }: StoreParts,
  envelope: Envelope,
  arrival: Arrival,
): Admitted | Promise<Admitted> {
  const untimely = checkEnvelopeTime(envelope, arrival.nowMs, limits);
  if (untimely !== null) return untimely;
  arrival.trace?.stage("gather");
  const gathered = facts(envelope);
  return gathered instanceof Promise
    ? gathered.then((known) => decide(envelope, known, rules, arrival))
    : decide(envelope, gathered, rules, arrival);
}

function decide(envelope: Envelope, facts: AdmissionFacts, rules: AdmissionRules, { nowMs, trace }: Arrival): Admitted {
  trace?.stage("decide");
  const admission = decideAdmission(envelope, facts, rules, nowMs);
  if (isFault(admission) || envelope.hint !== "direct") return admission;
  return fault("not_deliverable", "the sender does not allow a Cache for this envelope");
}

/** A sender that the Relay admitted is verified. */
function checkAdmitted({ rules }: StoreParts, envelope: Envelope, admitted: Admission): Admitted {
  return checkParties(envelope, true, rules.operator) ?? admitted;
}

/** The recipient's document must list this Cache. */
function checkService({ document }: Subject, endpoints: readonly string[]): Fault | null {
  if (document === null) return fault("recipient_not_found", "the recipient does not exist");
  const published = document.service.some(
    (service) =>
      service.type === "SvcCacheService" &&
      service.serviceEndpoint.some((endpoint) => endpoints.some((own) => sameEndpoint(own, endpoint))),
  );
  return published ? null : fault("service_not_found", "the recipient publishes no service of this Cache");
}

/** Bound of the contract for `headerPreview`. */
const previewBytesMax = 4_096;

function entryOf(
  envelope: Envelope,
  { policy, ttlMs, expiresAtMs }: Admission,
  at: Pick<MailboxEntry, "labels" | "digest"> & { readonly mailbox: MailboxKey; readonly nowMs: number },
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
    digest: at.digest,
    headerPreview: previews ? envelope.header.slice(0, Math.min(policy.headerPreviewBytes, previewBytesMax)) : null,
    envelope: envelope.bytes,
  };
}

/** Client networks whose quotas are in the cache; about 1 KiB each. */
const quotasMax = 2_000;
/** The parts of a quota beside the client's network and whether it is spared. */
const quotaSettings = [
  "recipient_entries_max",
  "recipient_bytes_max",
  "store_entries_max",
  "store_bytes_max",
  "stranger_share",
  "network_share",
] as const satisfies readonly (keyof Config["cache"])[];

type QuotaSource = (sending: Sending, origin: Origin) => MailboxQuota;

/** Quotas; those of unsigned senders are cached, because computing one costs as much as decoding an envelope. */
export function createQuotas(settings: Config["cache"]): QuotaSource {
  const cached = {
    spared: new BoundedMap<string, MailboxQuota>(quotasMax),
    others: new BoundedMap<string, MailboxQuota>(quotasMax),
  };
  let values: readonly number[] = [];
  return (sending, origin) => {
    if (sending !== "unsigned") return quotaOf(settings, sending, origin);
    if (!quotaSettings.every((name, i) => settings[name] === values[i])) {
      // The first envelope, or the first after a reload of the settings.
      values = quotaSettings.map((name) => settings[name]);
      cached.spared.clear();
      cached.others.clear();
    }
    const quotas = isSpared(origin, settings) ? cached.spared : cached.others;
    const known = quotas.get(origin.network);
    if (known !== undefined) return known;
    const quota = quotaOf(settings, sending, origin);
    quotas.set(origin.network, quota);
    return quota;
  };
}

function quotaOf(settings: Config["cache"], sending: Sending, origin: Origin): MailboxQuota {
  return {
    recipientEntriesMax: settings.recipient_entries_max,
    recipientBytesMax: settings.recipient_bytes_max,
    shares: sharesOf(sending, origin, settings),
    storeEntriesMax: settings.store_entries_max,
    storeBytesMax: settings.store_bytes_max,
    storeShare: storeShareOf(origin, settings),
  };
}

/** What the mailbox refuses: 409 `chunk_conflict`, 507 `mailbox_full` or `storage_full`. */
function checkOutcome({ reports }: StoreParts, outcome: StoreOutcome, recipient: Did, origin: Origin): Fault | null {
  if (outcome.kind === "chunk_conflict")
    return fault("chunk_conflict", "the group has another total, or another message has this sequence number");
  if (outcome.kind !== "full") return null;
  switch (outcome.scope) {
    case "recipient":
      return fault("mailbox_full", "the mailbox of the recipient is full");
    case "share":
    case "store_share":
      return reports.refuse(outcome.label, recipient, origin);
    case "store":
      return fault("storage_full", "this Cache is full");
  }
}

// ---------------------------------------------------------------------------------------------- receipts

type ReceiptFacts = {
  readonly deduped: boolean;
  /** Of the entry that is held, whose life a repeat with another `ttl` does not change. */
  readonly expiresAtMs: number;
  readonly ttlMsMax: number;
  readonly nowMs: number;
};

/** The receipt as JSON. None of its texts holds anything that JSON escapes, so they are written as they are. */
function receiptOf({ signer }: StoreParts, envelope: Envelope, facts: ReceiptFacts): string {
  const { messageId, to: recipient, chunk, timestampMs } = envelope;
  const { deduped, expiresAtMs, ttlMsMax, nowMs } = facts;
  const timestamp = renderTimestamp(nowMs);
  const signed = signEvent("delivery", { messageId, timestamp }, { recipient, nowMs, signer });
  const signature = signed === null ? "null" : `"${signed}"`;
  const life = `"expires_at":"${renderTimestamp(expiresAtMs)}","max_ttl":"${renderDuration(ttlMsMax)}"`;
  const applied = `"applied_ttl":"${renderDuration(Math.max(0, expiresAtMs - timestampMs))}","chunked":${chunk !== null}`;
  const head = `{"accepted":true,"deduped":${deduped},"message_id":"${messageId}","recipient":"${recipient}"`;
  const event = `"event_type":"delivery","message_id":"${messageId}","recipient_did":"${recipient}"`;
  const tail = `"timestamp":"${timestamp}","reason":null,"signature":${signature}}}`;
  return `${head},${life},${applied},"proof":{${event},${tail}`;
}

/** How this Cache signs its events; without a key, signatures are `null`. */
export type EventSigner = {
  readonly sign: ((text: Uint8Array) => Uint8Array) | null;
  /** The endpoint that the signed text names. */
  readonly endpoint: string;
};

/** Recipient, endpoint and time of an answer. */
export type AnswerContext = { readonly recipient: Did; readonly nowMs: number; readonly signer: EventSigner };

/** Base64 of the Cache's signature of one event; `null` without a key. */
export function signEvent(
  eventType: "delivery" | "retrieval",
  event: { readonly messageId: Uuid; readonly timestamp: string },
  { recipient, signer }: AnswerContext,
): string | null {
  if (signer.sign === null) return null;
  const claims = { eventType, ...event, recipientDid: recipient, reason: null, endpoint: signer.endpoint };
  return encodeBase64(signer.sign(encodeEventProof(claims)));
}
