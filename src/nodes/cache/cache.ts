/**
 * The Cache: stores envelopes for recipients that publish it, and gives them back, counted and removed
 * only on a proof of the recipient. Each route is decode, gather, decide, commit, render.
 * Source: interface "Cache ({cache_url})", decisions sections 6 and 10.
 */
import type { TSchema } from "@sinclair/typebox";
import { mailboxOf } from "../../core/codec/did.ts";
import { minuteMs } from "../../core/codec/time.ts";
import { type Fault, type FaultCode, isFault } from "../../core/fault.ts";
import { type AdmissionRules, admitEveryone } from "../../core/message/admission.ts";
import {
  decideEnvelopeTime,
  decodeEnvelope,
  type Envelope,
  type EnvelopeLimits,
  envelopeLimitsDefault,
  renderEnvelopeLimits,
} from "../../core/message/envelope.ts";
import { decideRetrievalProof } from "../../core/message/proof.ts";
import {
  ackBodyShape,
  ackShape,
  chunksShape,
  envelopeShape,
  messageStateShape,
  messagesShape,
  storeReceiptShape,
  summaryShape,
} from "../../core/schema/messages.ts";
import type { Mailbox, MailboxQuota, PageRequest, Replay } from "../../storage/contract.ts";
import type { Answer, Call, Operation, Route } from "../http/route.ts";
import type { RecipientSource } from "../recipients.ts";
import { claimed, decodeAck, decodePathUuid, decodeRead, proofHeaderNames } from "./proof.ts";
import {
  type AnswerContext,
  type EventSigner,
  renderAck,
  renderChunks,
  renderMessages,
  renderReceipt,
  renderState,
  renderSummary,
  type StoreReceipt,
} from "./render.ts";
import { decideStore, gatherStoreFacts, refusedOutcome } from "./store.ts";
import { createStreams, type StreamLimits, type Streams, streamLimitsDefault } from "./stream.ts";

export type CacheOptions = {
  /** The URLs by which recipients publish this Cache and sign for it; at least one. Events name the first. */
  readonly publicEndpoints: readonly [string, ...string[]];
  readonly limits: EnvelopeLimits;
  readonly admission: AdmissionRules;
  readonly quota: MailboxQuota;
  readonly skewMs: number;
  readonly pageEntriesMax: number;
  /** Sum of the envelopes of one answer; the first is answered however large it is. */
  readonly pageBytesMax: number;
  readonly summaryEntriesMax: number;
  readonly ackIdsMax: number;
  readonly stream: StreamLimits;
};

/** The defaults of decisions section 6. The endpoints have none. */
export const cacheDefaults: Omit<CacheOptions, "publicEndpoints"> = {
  limits: envelopeLimitsDefault,
  admission: admitEveryone,
  quota: {
    recipientEntriesMax: 10_000,
    recipientBytesMax: 256 * 1024 ** 2,
    shares: [],
    storeEntriesMax: 10_000_000,
    storeBytesMax: 64 * 1024 ** 3,
  },
  skewMs: 5 * minuteMs,
  pageEntriesMax: 100,
  pageBytesMax: 1024 ** 2,
  summaryEntriesMax: 1_000,
  ackIdsMax: 1_000,
  stream: streamLimitsDefault,
};

export type CacheParts = {
  readonly mailbox: Mailbox;
  readonly replay: Replay;
  readonly recipients: RecipientSource;
  /** Signs event proofs with the node's own key; `null` leaves their signatures `null`. */
  readonly sign: EventSigner["sign"];
  /** For streams, which outlive the request that opened them. */
  readonly now: () => number;
  readonly options: CacheOptions;
  /** Told of every new entry and whether a stream of its recipient is open. */
  readonly onStored?: (recipient: Envelope["to"], streamed: boolean) => void;
};

export type Cache = {
  readonly routes: readonly Route[];
  /** For a Relay in the same process: the same checks in the same order as the route. */
  readonly store: (envelope: Envelope, nowMs: number) => Promise<StoreReceipt | Fault>;
  /** What this node adds to `/limits`. */
  readonly limits: Readonly<Record<string, number | string>>;
  /** Ends all streams. */
  readonly close: () => void;
};

type CacheNode = CacheParts & { readonly signer: EventSigner; readonly streams: Streams };

export function createCache(parts: CacheParts): Cache {
  const { options } = parts;
  const streams = createStreams({ mailbox: parts.mailbox, now: parts.now, limits: options.stream });
  const node = { ...parts, streams, signer: { sign: parts.sign, endpoint: options.publicEndpoints[0] } };
  return {
    routes: cacheRoutes(node),
    store: (envelope, nowMs) => storeEnvelope(node, envelope, nowMs),
    limits: renderCacheLimits(options),
    close: () => streams.close(),
  };
}

function renderCacheLimits(options: CacheOptions): Record<string, number | string> {
  return {
    ...renderEnvelopeLimits(options.limits, options.skewMs),
    max_mailbox_entries: options.quota.recipientEntriesMax,
    max_mailbox_bytes: options.quota.recipientBytesMax,
    max_page_entries: options.pageEntriesMax,
    max_page_bytes: options.pageBytesMax,
    max_summary_ids: options.summaryEntriesMax,
    max_ack_ids: options.ackIdsMax,
    max_streams_per_recipient: options.stream.perRecipientMax,
  };
}

// ------------------------------------------------------------------------------------------------ store

async function store(node: CacheNode, call: Call): Promise<Answer | Fault> {
  const envelope = decodeEnvelope(call.body, node.options.limits);
  if (isFault(envelope)) return envelope;
  const receipt = await storeEnvelope(node, envelope, call.nowMs);
  return isFault(receipt) ? receipt : { status: 202, json: receipt };
}

async function storeEnvelope(node: CacheNode, envelope: Envelope, nowMs: number): Promise<StoreReceipt | Fault> {
  const { limits, admission, quota, publicEndpoints } = node.options;
  const untimely = decideEnvelopeTime(envelope, nowMs, limits);
  if (untimely !== null) return untimely;
  const facts = await gatherStoreFacts(node.recipients, envelope);
  const admitted = decideStore(envelope, facts, { endpoints: publicEndpoints, limits, admission, nowMs });
  if (isFault(admitted)) return admitted;
  const outcome = await node.mailbox.store(admitted.entry, quota);
  const refused = refusedOutcome(outcome);
  if (refused !== null) return refused;
  if (outcome.kind === "stored") {
    // Streams are woken whether or not anybody else is told.
    const streamed = node.streams.wake(envelope.to);
    node.onStored?.(envelope.to, streamed);
  }
  const deduped = outcome.kind === "duplicate";
  const expiresAtMs = deduped ? outcome.expiresAtMs : admitted.entry.expiresAtMs;
  // The life of the entry that is held, which a repeat with another `ttl` does not change.
  const appliedTtlMs = Math.max(0, expiresAtMs - envelope.timestampMs);
  const life = { expiresAtMs, appliedTtlMs, maxTtlMs: admitted.maxTtlMs };
  const receipt = { messageId: envelope.messageId, deduped, ...life, chunked: envelope.chunk !== null };
  return renderReceipt(receipt, { recipient: envelope.to, nowMs, signer: node.signer });
}

// ------------------------------------------------------------------------------------------------- reads

async function messages(node: CacheNode, call: Call): Promise<Answer | Fault> {
  const read = decodeRead(call, { operation: "pull", subject: "*" }, proofTerms(node));
  if (isFault(read)) return read;
  const claim = decideRetrievalProof(read.proof, await node.recipients.subject(read.did));
  if (isFault(claim)) return claim;
  const page = await claimed(stake(node, claim, call), () =>
    node.mailbox.list(mailboxOf(read.did, 0), pageOf(node, call)),
  );
  return isFault(page) ? page : renderMessages(page, context(node, read, call));
}

async function chunks(node: CacheNode, call: Call): Promise<Answer | Fault> {
  const groupId = decodePathUuid(call, "messageGroupId");
  if (isFault(groupId)) return groupId;
  const subject = call.params["messageGroupId"] as string;
  const read = decodeRead(call, { operation: "chunks", subject }, proofTerms(node));
  if (isFault(read)) return read;
  const claim = decideRetrievalProof(read.proof, await node.recipients.subject(read.did));
  if (isFault(claim)) return claim;
  const page = await claimed(stake(node, claim, call), () =>
    node.mailbox.group(mailboxOf(read.did, 0), groupId, pageOf(node, call)),
  );
  return isFault(page) ? page : renderChunks(page, context(node, read, call));
}

async function summary(node: CacheNode, call: Call): Promise<Answer | Fault> {
  const read = decodeRead(call, { operation: "summary", subject: "*" }, proofTerms(node));
  if (isFault(read)) return read;
  const claim = decideRetrievalProof(read.proof, await node.recipients.subject(read.did));
  if (isFault(claim)) return claim;
  const asked = { ...pageOf(node, call), entriesMax: node.options.summaryEntriesMax };
  const page = await claimed(stake(node, claim, call), () => node.mailbox.summary(mailboxOf(read.did, 0), asked));
  return isFault(page) ? page : renderSummary(page);
}

async function message(node: CacheNode, call: Call): Promise<Answer | Fault> {
  const messageId = decodePathUuid(call, "messageId");
  if (isFault(messageId)) return messageId;
  const subject = call.params["messageId"] as string;
  const read = decodeRead(call, { operation: "pull_message", subject }, proofTerms(node));
  if (isFault(read)) return read;
  const claim = decideRetrievalProof(read.proof, await node.recipients.subject(read.did));
  if (isFault(claim)) return claim;
  const found = await claimed(stake(node, claim, call), () =>
    node.mailbox.message(mailboxOf(read.did, 0), messageId, call.nowMs),
  );
  return isFault(found) ? found : renderState(found, messageId, context(node, read, call));
}

async function stream(node: CacheNode, call: Call): Promise<Answer | Fault> {
  const read = decodeRead(call, { operation: "stream", subject: "*" }, proofTerms(node));
  if (isFault(read)) return read;
  const claim = decideRetrievalProof(read.proof, await node.recipients.subject(read.did));
  if (isFault(claim)) return claim;
  // An empty Last-Event-ID is how an event source says that it has none.
  const after = call.headers.get("last-event-id") || call.query.get("cursor");
  const isPermitted = async () => !isFault(decideRetrievalProof(read.proof, await node.recipients.subject(read.did)));
  const start = { after, signal: call.signal, isPermitted };
  return claimed(stake(node, claim, call), () => node.streams.open(read.did, start));
}

// --------------------------------------------------------------------------------------------------- ack

async function ack(node: CacheNode, call: Call): Promise<Answer | Fault> {
  const request = decodeAck(call, { ...proofTerms(node), idsMax: node.options.ackIdsMax });
  if (isFault(request)) return request;
  const claim = decideRetrievalProof(request.proof, await node.recipients.subject(request.did));
  if (isFault(claim)) return claim;
  const remove = () => node.mailbox.remove(mailboxOf(request.did, 0), request.messageIds, call.nowMs);
  const removed = await claimed(stake(node, claim, call), remove);
  return isFault(removed) ? removed : renderAck(removed.map(({ messageId }) => messageId));
}

// -------------------------------------------------------------------------------------------- what routes share

function proofTerms(node: CacheNode) {
  return { endpoints: node.options.publicEndpoints, skewMs: node.options.skewMs };
}

function stake(node: CacheNode, claim: { tag: string; untilMs: number }, call: Call) {
  return { replay: node.replay, claim, nowMs: call.nowMs };
}

function context(node: CacheNode, read: { did: AnswerContext["recipient"] }, call: Call): AnswerContext {
  return { recipient: read.did, nowMs: call.nowMs, signer: node.signer };
}

function pageOf(node: CacheNode, call: Call): PageRequest {
  const { pageEntriesMax, pageBytesMax } = node.options;
  return { after: call.query.get("cursor"), entriesMax: pageEntriesMax, bytesMax: pageBytesMax, nowMs: call.nowMs };
}

// ------------------------------------------------------------------------------------------------ routes

const proofCodes = [
  "invalid_request",
  "invalid_did",
  "proof_missing",
  "proof_invalid",
  "proof_expired",
  "proof_not_authorized",
  "proof_replayed",
  "service_unavailable",
] as const satisfies readonly FaultCode[];

const storeCodes = [
  "invalid_json",
  "envelope_invalid",
  "sender_signature_invalid",
  "policy_denied",
  "recipient_not_found",
  "service_not_found",
  "chunk_conflict",
  "too_large",
  "unsupported_media_type",
  "message_expired",
  "not_deliverable",
  "did_deactivated",
  "service_unavailable",
  "mailbox_full",
  "storage_full",
] as const satisfies readonly FaultCode[];

/** Room for the proof of an acknowledgement, and for each of its ids with generous white space. */
const ackProofBytesMax = 16 * 1024;
const ackIdBytesMax = 128;

type ReadPlan = {
  readonly path: string;
  readonly id: string;
  readonly summary: string;
  readonly answer: readonly [description: string, schema?: TSchema];
  readonly paged: boolean;
  readonly headers?: readonly string[];
  readonly codes?: readonly FaultCode[];
  readonly handle: (node: CacheNode, call: Call) => Promise<Answer | Fault>;
};

const reads: readonly ReadPlan[] = [
  {
    path: "/cache/messages/:did",
    id: "cacheMessages",
    summary: "Retrieve stored envelopes, oldest first",
    answer: ["What is stored and neither acknowledged nor expired", messagesShape],
    paged: true,
    handle: messages,
  },
  {
    path: "/cache/chunks/:did/:messageGroupId",
    id: "cacheChunks",
    summary: "Retrieve the chunks of one group by sequence number",
    answer: ["The chunks held, and whether the group is complete", chunksShape],
    paged: true,
    handle: chunks,
  },
  {
    path: "/cache/summary/:did",
    id: "cacheSummary",
    summary: "List the ids of stored envelopes, oldest first",
    answer: ["Ids without envelopes", summaryShape],
    paged: true,
    handle: summary,
  },
  {
    path: "/cache/summary/:did/:deviceId",
    id: "cacheDeviceSummary",
    summary: "The same for a client that names its device in the path",
    answer: ["Ids without envelopes", summaryShape],
    paged: true,
    handle: summary,
  },
  {
    path: "/cache/message/:did/:messageId",
    id: "cacheMessage",
    summary: "Retrieve one envelope, or learn what became of it",
    answer: ["The state of the message", messageStateShape],
    paged: false,
    handle: message,
  },
  {
    path: "/cache/stream/:did",
    id: "cacheStream",
    summary: "Follow the ids of new envelopes as server-sent events",
    answer: ["An event `message` per stored envelope; its id continues as ?cursor= or Last-Event-ID"],
    paged: true,
    headers: ["Last-Event-ID"],
    codes: ["rate_limited"],
    handle: stream,
  },
];

function cacheRoutes(node: CacheNode): Route[] {
  return [storeRoute(node), ackRoute(node), ...reads.map((plan) => readRoute(node, plan))];
}

function readRoute(node: CacheNode, plan: ReadPlan): Route {
  const [description, schema] = plan.answer;
  const operation: Operation = {
    id: plan.id,
    summary: plan.summary,
    tag: "Cache",
    requiredHeaders: proofHeaderNames,
    headers: ["X-Device-Id", ...(plan.headers ?? [])],
    ...(plan.paged ? { query: ["cursor"] } : {}),
    responses: { 200: schema === undefined ? { description } : { description, schema } },
    codes: [...proofCodes, ...(plan.codes ?? [])],
  };
  const { path, handle } = plan;
  const shared = {
    bodyBytesMax: null,
    capacity: "normal",
    faults: "problem",
    unavailable: "service_unavailable",
  } as const;
  return { method: "GET", path, operation, ...shared, handle: (call) => handle(node, call) };
}

function storeRoute(node: CacheNode): Route {
  return {
    method: "POST",
    path: "/cache/store",
    hot: true,
    operation: {
      id: "cacheStore",
      summary: "Store an envelope for its recipient",
      tag: "Cache",
      request: envelopeShape,
      responses: {
        202: { description: "The envelope is on disk, now or since an earlier time", schema: storeReceiptShape },
      },
      codes: storeCodes,
    },
    bodyBytesMax: node.options.limits.bodyBytesMax,
    capacity: "normal",
    faults: "problem",
    unavailable: "service_unavailable",
    handle: (call) => store(node, call),
  };
}

function ackRoute(node: CacheNode): Route {
  return {
    method: "POST",
    path: "/cache/ack",
    hot: true,
    operation: {
      id: "cacheAck",
      summary: "Acknowledge stored envelopes, which removes them",
      tag: "Cache",
      request: ackBodyShape,
      responses: { 200: { description: "The ids that were removed, sorted", schema: ackShape } },
      codes: ["invalid_json", "too_large", "unsupported_media_type", ...proofCodes],
    },
    bodyBytesMax: ackProofBytesMax + ackIdBytesMax * node.options.ackIdsMax,
    capacity: "reserved",
    faults: "problem",
    unavailable: "service_unavailable",
    handle: (call) => ack(node, call),
  };
}
