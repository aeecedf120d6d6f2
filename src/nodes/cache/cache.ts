/**
 * The Cache stores envelopes for the recipients that publish it. Reading and removing them needs a
 * proof of the recipient. This file assembles the node and describes its routes; the handlers are
 * in `store.ts` and `retrieve.ts`.
 * Source: interface "Cache ({cache_url})", rules section 6.
 */

import type { TSchema } from "@sinclair/typebox";
import type { Config } from "../../config/schema.ts";
import { encodeHex, type VerifySignature } from "../../core/codec/bytes.ts";
import { sha256 } from "../../core/codec/crypto.ts";
import { type Did, didOf, type MailboxKey } from "../../core/codec/did.ts";
import { type Fault, type FaultCode, isFault } from "../../core/fault.ts";
import type { KeyBundle } from "../../core/message/bundle.ts";
import type { StoreReceipt } from "../../core/message/delivery.ts";
import {
  decodeEnvelope,
  type Envelope,
  type EnvelopeLimits,
  renderEnvelopeLimits,
} from "../../core/message/envelope.ts";
import { passHeader } from "../../core/message/pass.ts";
import {
  ackBodyShape,
  ackShape,
  chunksShape,
  envelopeShape,
  messageStateShape,
  messagesShape,
  pushBodyShape,
  pushListedShape,
  pushListShape,
  pushShape,
  storeReceiptShape,
  summaryShape,
} from "../../core/schema/messages.ts";
import { inOrder, Slots } from "../../core/std/order.ts";
import type { Mailbox, Receipts, Replay } from "../../storage/contract.ts";
import type { Log } from "../http/log.ts";
import type { Metrics } from "../http/metrics.ts";
import type { Answer, Call, RatedRequest, Route } from "../http/route.ts";
import { type Admission, senderHomeHeader } from "../parties/admission.ts";
import { authorLabel } from "../parties/author.ts";
import type { Blocks } from "../parties/blocks.ts";
import type { Members } from "../parties/members.ts";
import {
  chargeBody,
  checkClientRate,
  createRateLimiter,
  limitOf,
  type RateLimiter,
} from "../parties/rates.ts";
import type { RecipientSource } from "../parties/recipients.ts";
import type { Bell } from "../parties/signals.ts";
import { type BundleStore, bundleRoutes, createBundleStore, currentBundle } from "./bundles.ts";
import { createFullReports } from "./full.ts";
import { createKnownSenders, sendingOf } from "./known.ts";
import type { ProveOwner } from "./owner.ts";
import { passRoute, readPasses } from "./passes.ts";
import type { MailboxSender } from "./pools.ts";
import { createPush, type Push, pushListSubject, pushSubject } from "./push.ts";
import type { SenderParts } from "./push-sender.ts";
import { createReporters, type ReporterParts } from "./reporters.ts";
import {
  ackIdsMax,
  acknowledge,
  proofHeaderNames,
  provenRead,
  type RetrieveParts,
  readChunks,
  readMessage,
  readMessages,
  readSummary,
  summaryIdsMax,
} from "./retrieve.ts";
import {
  checkDisk,
  type EventSigner,
  isQuiet,
  recallEnvelope,
  type StoreParts,
  type Submitted,
  storeEnvelope,
  storeRules,
} from "./store.ts";

/** `operator`: in whose mailbox members have places for reports. */
export type CacheParts = Pick<StoreParts, "tiers"> &
  Pick<Partial<ReporterParts>, "operator"> & {
    readonly mailbox: Mailbox;
    readonly replay: Replay;
    /** Remembers which senders a mailbox knows. */
    readonly receipts: Receipts;
    readonly recipients: RecipientSource;
    readonly verify: VerifySignature;
    /** Signs event proofs with the node's own key; `null` leaves their signatures `null`. */
    readonly sign: EventSigner["sign"];
    readonly now: () => number;
    /** Of the public endpoints, which recipients publish and sign for, events name the first. */
    readonly settings: Config["cache"];
    readonly limits: EnvelopeLimits;
    readonly log: Log;
    /** Names a recipient in the log. */
    readonly digest: (did: Did) => string;
    readonly metrics: Metrics;
    /** The operator's block list. */
    readonly blocks?: Blocks;
    /** Learns of each owner that proves itself. */
    readonly members?: Pick<Members, "seen" | "of" | "counts">;
    /** How pushes go out; without it none do. */
    readonly push?: Pick<SenderParts, "egress" | "confirmations" | "key"> & {
      readonly settings: Config["push"];
    };
    /** Live sessions of the recipients. */
    readonly bell: Pick<Bell, "ring" | "isHeard">;
  };

export type Cache = {
  readonly routes: readonly Route[];
  /** For a Relay in the same process: the same checks in the same order as the route. */
  readonly store: (envelope: Envelope, submitted: Submitted) => Promise<StoreReceipt | Fault>;
  /**
   * For a Relay: the receipt of an envelope that was stored here before; 409 `duplicate_conflict`,
   * or `null` when its id is not known.
   */
  readonly recall: (
    envelope: Envelope,
    admission: Admission,
    nowMs: number,
  ) => Promise<StoreReceipt | Fault | null>;
  /** The key bundle of a mailbox that counts now. */
  readonly bundle: (mailbox: MailboxKey, nowMs: number) => Promise<KeyBundle | null>;
  /** What this node adds to `/limits`. */
  readonly limits: () => Readonly<Record<string, number | string>>;
  /** For `waypost explain`. */
  readonly explained: Pick<CacheParts, "mailbox" | "settings" | "tiers"> & {
    /** How the mailbox sees a sender that shows no pass. */
    readonly sendingOf: (mailbox: MailboxKey, sender: Did, nowMs: number) => Promise<MailboxSender>;
    readonly bundleOf: Cache["bundle"];
    /** How many passes count there; `null` where acknowledgements make people known. */
    readonly passesOf: (mailbox: MailboxKey, nowMs: number) => Promise<number | null>;
    /** Why the store takes no envelope of so many bytes, as it says itself; `null` when it does. */
    readonly checkDisk: (
      mailbox: MailboxKey,
      trial: { readonly bytes: number; readonly nowMs: number },
    ) => Promise<string | null>;
    /** A sentence about each of its subscriptions to pushes; `null` where nothing is pushed. */
    readonly pushesOf: Push["describe"] | null;
  };
  /** Ends pushes. */
  readonly close: () => void;
};

type CacheNode = StoreParts &
  RetrieveParts & {
    readonly clientRate: RateLimiter;
    /** A rate of its own: stores must not use up the acknowledgements that make room for them. */
    readonly ackRate: RateLimiter;
    readonly blocks?: Blocks;
  };

/**
 * Pages that are read at once: half of the connections to a database. Without a bound, 200 pulls in
 * one moment held 300 MiB of envelopes of 1.5 MB before any was refused.
 */
const readsAtOnce = 4;

export function createCache(parts: CacheParts): Cache {
  const { settings, mailbox, receipts, log, bell } = parts;
  const [endpoint] = settings.public_endpoints;
  if (endpoint === undefined)
    throw new Error("a Cache needs a public endpoint; the configuration checks it");
  const push = pushOf(parts);
  const placeReporter = createReporters(parts);
  const known = createKnownSenders(receipts, log);
  const bundles = createBundleStore({ ...parts, skewMs: parts.limits.clock_skew });
  const bundleOf: Cache["bundle"] = (mailbox, nowMs) => currentBundle(bundles, mailbox, nowMs);
  const node: CacheNode = {
    ...parts,
    known,
    rules: storeRules(settings, parts.limits, parts.blocks),
    reports: createFullReports(parts),
    clientRate: createRateLimiter(limitOf(settings, "client_rate", "client_burst")),
    ackRate: createRateLimiter(limitOf(settings, "client_rate", "client_burst")),
    chunkRate: createRateLimiter(limitOf(settings, "client_rate", "client_burst")),
    reading: new Slots(readsAtOnce),
    inTurn: inOrder<string>(),
    signer: { sign: parts.sign, endpoint },
    push,
    placeReporter,
    onStored: (mailbox) => bell.ring(didOf(mailbox)),
  };
  return {
    routes: [
      storeRoute(node),
      ackRoute(node),
      ...ownerRoutes(node, bundles),
      ...reads.map((plan) => readRoute(node, plan)),
      ...(push === null ? [] : pushRoutes(node, push)),
    ],
    store: (envelope, submitted) => storeEnvelope(node, envelope, submitted),
    recall: (envelope, admission, nowMs) => recallEnvelope(node, envelope, admission, nowMs),
    bundle: bundleOf,
    limits: () => renderCacheLimits(settings, parts.limits),
    explained: {
      mailbox,
      settings,
      ...(parts.tiers === undefined ? {} : { tiers: parts.tiers }),
      sendingOf: async (mailbox, sender, nowMs) => {
        const from = { author: authorLabel(sender), pass: null, envelope: new Uint8Array() };
        const of = { mailbox, sender, nowMs };
        return placeReporter(await sendingOf(known, mailbox, from, nowMs), of);
      },
      passesOf: async (mailbox, nowMs) =>
        (await readPasses(known.passes, mailbox, nowMs))?.count ?? null,
      bundleOf,
      checkDisk: (mailbox, trial) => checkDisk(node, mailbox, trial),
      pushesOf: push?.describe ?? null,
    },
    close: () => push?.close(),
  };
}

function pushOf({ push, settings, bell, ...parts }: CacheParts): Push | null {
  if (push === undefined) return null;
  const isConnected = (mailbox: MailboxKey) => bell.isHeard(didOf(mailbox));
  // The contact may change with a reload.
  const own = { interval: settings.push_interval, contact: () => push.settings.contact };
  return createPush({ ...parts, ...push, settings: own, isConnected });
}

function renderCacheLimits(
  settings: Config["cache"],
  limits: EnvelopeLimits,
): Record<string, number | string> {
  return {
    ...renderEnvelopeLimits(limits),
    store_rate_per_second: settings.client_rate,
    store_burst: settings.client_burst,
    max_mailbox_entries: settings.recipient_entries_max,
    max_mailbox_bytes: settings.recipient_bytes_max,
    max_retrieval_entries: settings.retrieve_entries_max,
    max_retrieval_bytes: settings.retrieve_bytes_max,
    max_page_entries: settings.page_entries_max,
    max_page_bytes: settings.page_bytes_max,
    max_summary_ids: summaryIdsMax,
    max_ack_ids: ackIdsMax,
  };
}

async function store(node: CacheNode, call: Call): Promise<Answer | Fault> {
  chargeBody(node.clientRate, call, node.settings);
  const envelope = decodeEnvelope(call.body, node.limits);
  if (isFault(envelope)) return envelope;
  call.concerns(envelope);
  // Member by member: the getters of a call are not its own properties.
  const { client, network, nowMs, headers } = call;
  const submitted = {
    client,
    network,
    nowMs,
    isQuiet: isQuiet(headers),
    senderHome: headers.get(senderHomeHeader),
    pass: headers.get(passHeader),
  };
  const receipt = await storeEnvelope(node, envelope, submitted);
  return isFault(receipt) ? receipt : { status: 202, json: receipt };
}

// ------------------------------------------------------------------------------------------ routes

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
  "duplicate_conflict",
  "chunk_conflict",
  "too_large",
  "unsupported_media_type",
  "message_expired",
  "not_deliverable",
  "did_deactivated",
  "rate_limited",
  "service_unavailable",
  "mailbox_full",
  "storage_full",
] as const satisfies readonly FaultCode[];

/** Room for the proof of an acknowledgement, and for each of its ids with generous white space. */
const ackProofBytesMax = 16 * 1024;
const ackIdBytesMax = 128;
/** An endpoint, keys and what the device wants to get, with generous escapes. */
const pushBytesMax = 16 * 1024;

type ReadPlan = Pick<Route, "path" | "id" | "summary" | "query" | "codes"> & {
  readonly answer: readonly [description: string, schema?: TSchema];
  readonly handle: (parts: RetrieveParts, call: Call) => Promise<Answer | Fault> | Fault;
};

const reads: readonly ReadPlan[] = [
  {
    path: "/cache/messages/:did",
    id: "cacheMessages",
    summary: "Retrieve stored envelopes, oldest first",
    answer: ["The stored envelopes that are neither acknowledged nor expired", messagesShape],
    query: ["limit", "cursor"],
    handle: readMessages,
  },
  {
    path: "/cache/chunks/:did/:messageGroupId",
    id: "cacheChunks",
    summary: "Retrieve the chunks of one group by sequence number",
    answer: ["The chunks held, and whether the group is complete", chunksShape],
    query: ["limit", "cursor"],
    codes: ["rate_limited"],
    handle: readChunks,
  },
  {
    path: "/cache/summary/:did",
    id: "cacheSummary",
    summary: "List the ids of stored envelopes, oldest first",
    answer: ["Ids without envelopes", summaryShape],
    query: ["limit", "cursor"],
    handle: readSummary,
  },
  {
    path: "/cache/summary/:did/:deviceId",
    id: "cacheDeviceSummary",
    summary: "The same; the device in the path selects nothing",
    answer: ["Ids without envelopes", summaryShape],
    query: ["limit", "cursor"],
    handle: readSummary,
  },
  {
    path: "/cache/message/:did/:messageId",
    id: "cacheMessage",
    summary: "Retrieve one envelope, or its state when it is gone",
    answer: ["The state of the message", messageStateShape],
    handle: readMessage,
  },
];

const common = { tag: "Cache", capacity: "normal" } as const;
const proofHeaders = {
  requiredHeaders: proofHeaderNames,
  headers: ["X-Device-Id"],
  credential: "cacheProof",
} as const;

/** A device that follows its mailbox. */
function pushRoutes(node: CacheNode, push: Push): Route[] {
  const proven = (
    call: Call,
    handle: (owner: { mailbox: MailboxKey; id: string }) => Promise<Answer | Fault>,
  ) => {
    const asked = pushSubject(call);
    if (isFault(asked)) return asked;
    const { id, subject } = asked;
    return provenRead(node, call, { operation: "push", subject }, ({ mailbox }) =>
      handle({ mailbox, id }),
    );
  };
  const shared = {
    ...common,
    ...proofHeaders,
    bodyBytesMax: pushBytesMax,
    rateLimit: (request: RatedRequest) => checkClientRate(node.clientRate, request, node.settings),
  };
  const codes = [...proofCodes, "rate_limited"] as const;
  const bodyCodes = [...codes, "invalid_json", "too_large", "unsupported_media_type"] as const;
  const path = "/cache/push/:did/:id";
  return [
    {
      ...shared,
      path: "/cache/push/:did",
      method: "PUT",
      id: "cachePushList",
      summary: "End the pushes to all devices but those that are named",
      request: pushListShape,
      answer: [200, "The subscriptions that are there", pushListedShape],
      codes: bodyCodes,
      handle: (call) => {
        const proof = { operation: "push", subject: pushListSubject(call) } as const;
        return provenRead(node, call, proof, ({ mailbox }) => push.keep(mailbox, call));
      },
    },
    {
      ...shared,
      path,
      method: "PUT",
      id: "cachePush",
      summary: "Subscribe a device to pushes, or confirm it with the token of the first push",
      request: pushBodyShape,
      answer: [200, "Pushes go there", pushShape],
      also: [202, "The first push brings the token", pushShape],
      codes: bodyCodes,
      handle: (call) => proven(call, (owner) => push.subscribe(owner, call)),
    },
    {
      ...shared,
      path,
      method: "DELETE",
      id: "cachePushEnd",
      summary: "End the pushes to a device",
      answer: [200, "No more pushes go there", pushShape],
      codes,
      handle: (call) => proven(call, (owner) => push.unsubscribe(owner)),
    },
  ];
}

/** What the owner of a mailbox puts there in addition to its mail. */
function ownerRoutes(node: CacheNode, bundles: BundleStore): readonly Route[] {
  const open = {
    ...common,
    rateLimit: (request: RatedRequest) => checkClientRate(node.clientRate, request, node.settings),
  };
  const codes = [
    ...proofCodes,
    ...(["rate_limited", "invalid_json", "too_large", "unsupported_media_type"] as const),
    "storage_full" as const,
  ];
  const owned = { ...open, ...proofHeaders, codes };
  const prove =
    (operation: "pass" | "keys"): ProveOwner =>
    (call, put) => {
      const subject = encodeHex(sha256(call.body));
      return provenRead(node, call, { operation, subject }, put);
    };
  return [
    passRoute(node.known.passes, owned, prove("pass")),
    ...bundleRoutes(bundles, { open, owned, prove: prove("keys") }),
  ];
}

function readRoute(node: CacheNode, { answer, codes = [], handle, ...plan }: ReadPlan): Route {
  return {
    ...common,
    ...plan,
    method: "GET",
    ...proofHeaders,
    answer: [200, ...answer],
    codes: [...proofCodes, ...codes],
    handle: (call) => handle(node, call),
  };
}

function storeRoute(node: CacheNode): Route {
  return {
    ...common,
    method: "POST",
    path: "/cache/store",
    id: "cacheStore",
    summary: "Store an envelope for its recipient",
    request: envelopeShape,
    headers: ["Svc-Sender-Home", "Svc-Pass", "Urgency"],
    answer: [
      202,
      "The envelope is on disk, stored by this or an earlier request",
      storeReceiptShape,
    ],
    codes: storeCodes,
    rateLimit: (request) =>
      node.blocks?.checkClient(request.client) ??
      checkClientRate(node.clientRate, request, node.settings),
    bodyBytesMax: node.limits.body_bytes_max,
    handle: (call) => store(node, call),
  };
}

function ackRoute(node: CacheNode): Route {
  return {
    ...common,
    method: "POST",
    path: "/cache/ack",
    id: "cacheAck",
    summary: "Acknowledge stored envelopes, which removes them",
    request: ackBodyShape,
    answer: [200, "The ids that were removed, sorted", ackShape],
    codes: ["invalid_json", "too_large", "unsupported_media_type", "rate_limited", ...proofCodes],
    rateLimit: (request) => checkClientRate(node.ackRate, request, node.settings),
    capacity: "reserved",
    bodyBytesMax: ackProofBytesMax + ackIdBytesMax * ackIdsMax,
    handle: (call) => acknowledge(node, call),
  };
}
