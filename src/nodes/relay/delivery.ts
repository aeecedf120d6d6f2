/**
 * The attempts of a delivery over their channels, and what became of each; no rule of the
 * delivery is decided here.
 * Source: rules section 5.
 */
import { type Did, parseUuid, type Uuid } from "../../core/codec/did.ts";
import {
  isJsonObject,
  type JsonObject,
  type JsonValue,
  jsonObjectOf,
} from "../../core/codec/json.ts";
import { parseDuration, parseTimestamp } from "../../core/codec/time.ts";
import {
  describeFault,
  type Fault,
  type FaultCode,
  fault,
  faultCodes,
  isFault,
} from "../../core/fault.ts";
import {
  type Attempt,
  type AttemptOutcome,
  type DeliveryActions,
  type DeliveryResult,
  deliver,
  heldResult,
  type StoreReceipt,
} from "../../core/message/delivery.ts";
import type { Envelope } from "../../core/message/envelope.ts";
import { passHeader } from "../../core/message/pass.ts";
import type { Channel, DeliveryPlan, Destination } from "../../core/message/plan.ts";
import { sameEndpoint } from "../../core/message/proof.ts";
import { StoreError } from "../../storage/contract.ts";
import type { Cache } from "../cache/cache.ts";
import { isQuiet } from "../cache/store.ts";
import type { Egress, EgressAnswer } from "../egress/egress.ts";
import { traceparentOf } from "../http/log.ts";
import type { Call } from "../http/route.ts";
import { type Admission, type AdmissionFacts, senderHomeHeader } from "../parties/admission.ts";
import { otherContent } from "../parties/author.ts";
import type { LiveSessions } from "./live/session.ts";

/** An admitted envelope, and how it came here. */
export type Relayed = {
  readonly envelope: Envelope;
  /** `Svc-Hops` of the request. */
  readonly hops: number;
  readonly admission: Admission;
  /** What the admission rests on. */
  readonly facts: AdmissionFacts;
  /** Called once the sessions that get it are chosen. */
  readonly begun: () => void;
  /** Outbound slots and mailboxes are shared between client networks. */
  readonly call: Pick<Call, "client" | "network" | "nowMs" | "headers">;
};

/** The Cache of this process: the same checks as over HTTP, without HTTP. */
export type LocalCache = Pick<Cache, "store" | "recall"> & {
  readonly endpoints: readonly string[];
};

export type DeliveryParts = Pick<DeliveryActions, "now" | "sleep" | "random"> & {
  readonly egress: Egress;
  readonly localCache: LocalCache | null;
  readonly sessions: LiveSessions;
  /** Whether the client network may cause another request to the host. */
  readonly mayAsk: (call: Relayed["call"], host: string) => boolean;
  readonly onAttempt: (channel: Channel, outcome: AttemptOutcome) => void;
};

/** A result. `isKept`: the entry in the Cache of this process is the record of the delivery. */
export type DeliveredResult = { readonly result: DeliveryResult; readonly isKept: boolean };

/**
 * Delivers, unless the Cache of this process was given the envelope before: what was
 * delivered goes to no destination that the recipient has published or connected since.
 * When that Cache is the only destination, its own answer says so.
 */
export async function deliverBy(
  parts: DeliveryParts,
  relayed: Relayed,
  plan: DeliveryPlan,
): Promise<DeliveredResult | Fault> {
  const { localCache, now } = parts;
  const [only] = plan.caches;
  const isOnly = plan.direct.length === 0 && plan.caches.length === 1 && plan.copies === 1;
  const isOwn = isOnly && only !== undefined && localCache !== null && isLocal(localCache, only);
  const held = isOwn
    ? null
    : ((await localCache?.recall(relayed.envelope, relayed.admission, now())) ?? null);
  if (held !== null) return isFault(held) ? held : { result: heldResult(held), isKept: true };
  const result = await deliver(plan, {
    ...parts,
    attempt: (attempt) => makeAttempt(parts, relayed, attempt),
  });
  return isFault(result) ? result : { result, isKept: isOwn && result.success };
}

type Made = Omit<AttemptOutcome, "durationMs">;

/**
 * Never throws for what a destination does. `no-session`: it turned out that no session
 * listens. 409 `duplicate_conflict` ends the delivery: a destination has something else
 * under the id, and the next one would hide that from the sender.
 */
async function makeAttempt(
  parts: DeliveryParts,
  relayed: Relayed,
  attempt: Attempt,
): Promise<AttemptOutcome | "no-session" | Fault> {
  const { channel } = attempt.destination;
  const over = { live: deliverLive, cache: storeInCache, inbox: postToHost, relay: postToHost }[
    channel
  ];
  const startMs = performance.now();
  const made = await over(parts, relayed, attempt);
  if (made === "no-session" || isFault(made)) return made;
  const outcome = { ...made, durationMs: performance.now() - startMs };
  parts.onAttempt(channel, outcome);
  return outcome;
}

async function deliverLive(
  { sessions }: DeliveryParts,
  { envelope, admission, begun }: Relayed,
  { timeoutMs }: Attempt,
): Promise<Made | "no-session"> {
  const delivering = sessions.deliver({
    envelope,
    document: admission.recipient.document,
    timeoutMs,
  });
  begun();
  const outcome = await delivering;
  if (outcome === "no-session") return "no-session";
  if (outcome === "acknowledged") return { httpStatus: null, error: null };
  return {
    httpStatus: null,
    error: outcome === "silent" ? "not_acknowledged" : "destination_unavailable",
  };
}

/** The path behind the endpoint that a recipient publishes. */
function suffixOf(channel: Channel, to: Did): string {
  if (channel === "relay") return `/relay/${encodeURIComponent(to)}`;
  return channel === "cache" ? "/cache/store" : "";
}

/** To another host. An inbox gets no more than the envelope and its way. */
async function postToHost(
  parts: DeliveryParts,
  relayed: Relayed,
  attempt: Attempt,
): Promise<Made | Fault> {
  const { channel } = attempt.destination;
  const endpoint = attempt.destination.endpoint ?? "";
  const { envelope, call } = relayed;
  if (!parts.mayAsk(call, URL.parse(endpoint)?.host ?? ""))
    return { httpStatus: null, error: "destination_unavailable", giveUp: true };
  const answer = await parts.egress.send({
    endpoint,
    suffix: suffixOf(channel, envelope.to),
    body: envelope.bytes,
    headers: headersTo(channel, relayed),
    wantsBody: (httpStatus) => channel !== "inbox" || httpStatus === otherContent.status,
    client: call.network,
    timeoutMs: attempt.timeoutMs,
  });
  const { httpStatus, error, giveUp, body } = answer;
  if (isOtherContent(answer)) return otherContent;
  const said =
    body === null || httpStatus === null ? {} : readAnswer(channel, { httpStatus, body }, envelope);
  // A retry would not help.
  return said === null
    ? { httpStatus, error: "invalid_answer", giveUp: true }
    : { httpStatus, error, giveUp, ...said };
}

function isOtherContent({ httpStatus, body }: EgressAnswer): boolean {
  const { status, code } = otherContent;
  return httpStatus === status && body !== null && parseRefusal(body)?.code === code;
}

function headersTo(channel: Channel, { hops, call, facts }: Relayed): Record<string, string> {
  const trace = traceparentOf(call.headers);
  const pass = call.headers.get(passHeader);
  return {
    ...(channel === "cache" ? {} : { "svc-hops": String(hops + 1) }),
    // Not to an inbox, which is the recipient's own.
    ...(facts.senderHome === null || channel === "inbox"
      ? {}
      : { [senderHomeHeader]: facts.senderHome }),
    ...(pass === null || channel === "inbox" ? {} : { [passHeader]: pass }),
    ...(isQuiet(call.headers) ? { urgency: "low" } : {}),
    ...(trace === null ? {} : { traceparent: trace.text }),
  };
}

async function storeInCache(
  parts: DeliveryParts,
  relayed: Relayed,
  attempt: Attempt,
): Promise<Made | Fault> {
  const { localCache, now } = parts;
  if (localCache === null || !isLocal(localCache, attempt.destination))
    return postToHost(parts, relayed, attempt);
  const { client, network, headers } = relayed.call;
  const submitted = {
    client,
    network,
    nowMs: now(),
    isQuiet: isQuiet(headers),
    pass: headers.get(passHeader),
    relayed: relayed.facts,
  };
  const stored = await localCache.store(relayed.envelope, submitted).catch(storeFailure);
  if (isFault(stored) && stored.code === otherContent.code) return stored;
  return isFault(stored)
    ? madeOfRefusal(stored)
    : { httpStatus: 202, error: null, receipt: stored };
}

function isLocal({ endpoints }: LocalCache, { endpoint }: Destination): boolean {
  return endpoint !== null && endpoints.some((own) => sameEndpoint(own, endpoint));
}

/** A failing store counts as an unavailable Cache: other Caches may still accept the envelope. */
function storeFailure(error: unknown): Fault {
  if (!(error instanceof StoreError)) throw error;
  const code = error.code === "full" ? "storage_full" : "service_unavailable";
  return fault(code, "the Cache can't store envelopes at the moment");
}

function madeOfRefusal({ status, code, detail }: Fault): Made {
  return { httpStatus: status, error: null, refusal: { code, message: detail } };
}

// ------------------------------------------------------------------------- what other nodes answer

// These bytes are untrusted. A receipt or a refusal is rebuilt from the members we know, so
// that a destination can't speak to the sender through the Relay.

type NodeAnswer = { readonly httpStatus: number; readonly body: Uint8Array };

/**
 * What a Relay or a Cache says with its status; `null` for a 2xx that is not what its route
 * answers.
 */
function readAnswer(
  channel: Channel,
  { httpStatus, body }: NodeAnswer,
  { messageId, to }: Envelope,
): Pick<Made, "receipt" | "refusal"> | null {
  const isSuccess = httpStatus >= 200 && httpStatus < 300;
  if (!isSuccess) {
    const refusal = channel === "cache" ? parseRefusal(body) : null;
    return refusal === null ? {} : { refusal };
  }
  if (channel === "cache") {
    const receipt = parseStoreReceipt(body, { messageId, recipient: to });
    return receipt === null ? null : { receipt };
  }
  return jsonObjectOf(body)?.["success"] === true ? {} : null;
}

type MessageIds = { readonly messageId: Uuid; readonly recipient: Did };

/**
 * The receipt of a Cache for this very message, or `null` when the answer is none. It must
 * state that the envelope is accepted; of the other members those are kept that have their
 * form.
 */
function parseStoreReceipt(bytes: Uint8Array, asked: MessageIds): StoreReceipt | null {
  const answer = jsonObjectOf(bytes);
  if (answer === null || answer["accepted"] !== true) return null;
  const messageId = answer["message_id"];
  if (typeof messageId !== "string" || parseUuid(messageId) !== asked.messageId) return null;
  if (answer["recipient"] !== undefined && answer["recipient"] !== asked.recipient) return null;
  return {
    accepted: true,
    deduped: answer["deduped"] === true,
    message_id: asked.messageId,
    recipient: asked.recipient,
    ...checkedMembers(answer, {
      expires_at: isTimestamp,
      max_ttl: isDuration,
      applied_ttl: isDuration,
      chunked: isFlag,
    }),
    ...(isJsonObject(answer["proof"]) ? { proof: receiptProof(answer["proof"], asked) } : {}),
  };
}

function receiptProof(proof: JsonObject, asked: MessageIds) {
  return {
    event_type: "delivery",
    message_id: asked.messageId,
    recipient_did: asked.recipient,
    ...checkedMembers(proof, { timestamp: isTimestamp }),
    reason: null,
    signature: isSignature(proof["signature"]) ? proof["signature"] : null,
  };
}

type Check = (value: JsonValue | undefined) => boolean;

function checkedMembers(
  members: JsonObject,
  checks: Readonly<Record<string, Check>>,
): Record<string, JsonValue> {
  const result: Record<string, JsonValue> = {};
  for (const [name, accepts] of Object.entries(checks)) {
    const value = members[name];
    if (value !== undefined && accepts(value)) result[name] = value;
  }
  return result;
}

const isTimestamp: Check = (value) => typeof value === "string" && parseTimestamp(value) !== null;
const isDuration: Check = (value) => typeof value === "string" && parseDuration(value) !== null;
const isFlag: Check = (value) => typeof value === "boolean";
const isSignature: Check = (value) =>
  typeof value === "string" && /^[A-Za-z0-9+/]{86}==$/.test(value);

/** The code of a refusal, when it is one of ours, with our own words for it; `null` otherwise. */
function parseRefusal(
  bytes: Uint8Array,
): { readonly code: FaultCode; readonly message: string } | null {
  const answer = jsonObjectOf(bytes);
  const code = answer?.["code"] ?? answer?.["error"];
  const known = faultCodes.find((candidate) => candidate === code);
  return known === undefined ? null : { code: known, message: describeFault(known).title };
}
