/**
 * Runs a delivery plan: asks the reducer for the next step, makes the attempt over its channel, and reports the outcome
 * to the reducer; no rule is decided here. And idempotency, one delivery for one message: a repeated request waits for the
 * first, answers its result after a success, and tries again after a failure; the same id with other content is a
 * conflict. The record lasts as long as the envelope, or less for a network that fills the store with results. It is
 * written after the answer, because a delivered message is safe at its destination. What the Cache of this process got at
 * the first attempt has no record: its entry in the mailbox is one. Source: rules section 5, with "Repeats".
 */
import { utf8 } from "../../core/codec/bytes.ts";
import { sha256 } from "../../core/codec/crypto.ts";
import { type Did, parseUuid, type Uuid } from "../../core/codec/did.ts";
import { isJsonObject, type JsonObject, type JsonValue, parseJson } from "../../core/codec/json.ts";
import { parseDuration, parseTimestamp, secondMs } from "../../core/codec/time.ts";
import { describeFault, type Fault, type FaultCode, fault, faultCodes, isFault } from "../../core/fault.ts";
import type { DidDocument } from "../../core/ledger/account.ts";
import {
  type AttemptOutcome,
  beginDelivery,
  type Channel,
  cachedMessage,
  type DeliveryPlan,
  type DeliveryResult,
  type DeliveryTurn,
  type Destination,
  nextStep,
  type StoreReceipt,
} from "../../core/message/delivery.ts";
import type { Envelope } from "../../core/message/envelope.ts";
import { sameEndpoint } from "../../core/message/proof.ts";
import { type Receipts, StoreError } from "../../storage/contract.ts";
import { type Counting, ownCounting } from "../counting.ts";
import type { FairShare } from "../http/capacity.ts";
import type { Log } from "../http/log.ts";
import type { Egress, EgressAnswer } from "./egress.ts";
import type { LiveOutcome } from "./live/registry.ts";
import type { LiveSessions } from "./live/session.ts";

/** The client that submitted an envelope, and the network under which it is counted. */
type Origin = { readonly client: string; readonly network: string };

/**
 * A receipt, its JSON text, and how the Cache came to hold the message: by this delivery, from elsewhere, or by an earlier
 * delivery of the same envelope, whose receipt it is.
 */
type LocalReceipt = {
  readonly receipt: StoreReceipt;
  readonly text: string;
  readonly as: "stored" | "held" | "repeat";
};

/** The Cache of this process: the same checks as over HTTP, without HTTP. */
export type LocalCache = {
  readonly endpoints: readonly string[];
  readonly store: (envelope: Envelope, arrival: Origin & Asked) => Promise<LocalReceipt | Fault>;
  /** The receipt of an earlier delivery, 409 `duplicate_conflict` when that was another envelope, or `null`. */
  readonly recall: (envelope: Envelope, of: Asked & RecipientNow) => Promise<LocalReceipt | Fault | null>;
};
type Asked = { readonly nowMs: number; readonly digest: string };
type RecipientNow = { readonly life: number; readonly ttlMsMax: number };

export type DeliveryParts = {
  readonly egress: Egress;
  readonly localCache: LocalCache | null;
  readonly sessions: LiveSessions | null;
  readonly now: () => number;
  readonly sleep: (ms: number) => Promise<void>;
  /** Uniform in 0..1. */
  readonly random: () => number;
  readonly onAttempt: (channel: Channel, outcome: AttemptOutcome) => void;
};

/** One envelope on its way. */
type Delivery = {
  readonly envelope: Envelope;
  /** What the mailbox remembers of the envelope. */
  readonly digest: string;
  /** What an earlier delivery to the Cache of this process answers. */
  readonly recall: () => Promise<Delivered | Fault | null>;
  /** Who submitted the envelope: outbound slots and mailboxes are shared between networks. */
  readonly origin: Origin;
  readonly document: DidDocument | null;
  readonly plan: DeliveryPlan;
  /** The outcome in other processes, which are asked when no session of this one listens. */
  readonly elsewhere: LiveOutcome;
  /** Values of `Svc-Hops` and `Svc-Via` for the next Relay. */
  readonly hopsNext: number;
  readonly viaNext: string;
  /** Of the request that brought the envelope, when it is traced. */
  readonly traceparent?: string | null;
};

/** A result, and its JSON text, which is both answered and remembered. */
export type Delivered = {
  readonly result: DeliveryResult;
  readonly text: string;
  /** The mailbox of this process recognizes a repeat. */
  readonly isInMailbox?: boolean;
};

/** Ends within the bounds of the plan's limits; never throws for what a destination does. */
export async function runDelivery(parts: DeliveryParts, delivery: Delivery): Promise<Delivered | Fault> {
  const { plan } = delivery;
  const nowMs = parts.now();
  const local = onlyLocalCache(parts.localCache, plan);
  if (local === null || plan.expiresAtMs <= nowMs) return runPlan(parts, delivery, beginDelivery(plan, nowMs));
  const startMs = performance.now();
  const stored = await storeInLocalCache(local, delivery, nowMs);
  const durationMs = performance.now() - startMs;
  if ("text" in stored) {
    if (stored.as === "repeat") return recalled(stored);
    parts.onAttempt("cache", { httpStatus: 202, error: null, durationMs });
    return cachedAtOnce(stored);
  }
  // A refusal, which may come before the mailbox was asked, does not undo an earlier delivery.
  const known = (stored.httpStatus ?? 500) < 500 ? await delivery.recall() : null;
  if (known !== null) return known;
  const outcome = { ...stored, durationMs };
  parts.onAttempt("cache", outcome);
  return runPlan(parts, delivery, turnAfter(parts, beginDelivery(plan, nowMs).state, outcome));
}

/**
 * The Cache of this process when a plan has nothing else, as most have. The reducer is asked only when it refuses: that
 * saves its states, a promise for each step and the encoding of the result.
 */
export function onlyLocalCache(local: LocalCache | null, { direct, caches, copies }: DeliveryPlan): LocalCache | null {
  const [only] = caches;
  const isOnly = direct.length === 0 && caches.length === 1 && copies === 1;
  return isOnly && only !== undefined && isLocal(local, only) ? local : null;
}

function isLocal(local: LocalCache | null, { endpoint }: Destination): local is LocalCache {
  return local !== null && endpoint !== null && local.endpoints.some((own) => sameEndpoint(own, endpoint));
}

function turnAfter(parts: DeliveryParts, state: DeliveryTurn["state"], outcome: AttemptOutcome): DeliveryTurn {
  return nextStep(state, { kind: "outcome", outcome, jitter: parts.random(), nowMs: parts.now() });
}

/**
 * What the reducer answers when the only destination is one Cache, which keeps the envelope at the first attempt. `text`
 * is the receipt as JSON, around which the text of the result is written.
 */
function cachedAtOnce({ receipt, text, as }: LocalReceipt): Delivered {
  const result: DeliveryResult = {
    success: true,
    retry_count: 0,
    cache_attempted: true,
    cache_result: receipt,
    ndr: null,
    delivery_mode: "cache",
    http_status: 202,
    code: "cached",
    message: cachedMessage,
    details: {},
  };
  const head = `{"success":true,"retry_count":0,"cache_attempted":true,"cache_result":${text},"ndr":null`;
  const tail = `"http_status":202,"code":"cached","message":"${cachedMessage}","details":{}}`;
  return { result, text: `${head},"delivery_mode":"cache",${tail}`, isInMailbox: as !== "held" };
}

/** The answer to a repeat that the Cache of this process has recognized. */
export function recalled(receipt: LocalReceipt): Delivered {
  return { ...again(cachedAtOnce(receipt)), isInMailbox: true };
}

async function runPlan(parts: DeliveryParts, delivery: Delivery, begun: DeliveryTurn): Promise<Delivered> {
  let turn = begun;
  for (;;) {
    const { step, state } = turn;
    if (step.kind === "finished") return { result: step.result, text: JSON.stringify(step.result) };
    if (step.kind === "wait") {
      await parts.sleep(step.waitMs);
      turn = nextStep(state, { kind: "waited", nowMs: parts.now() });
      continue;
    }
    const startMs = performance.now();
    const made = await makeAttempt(parts, delivery, step);
    const outcome = { ...made, durationMs: performance.now() - startMs };
    parts.onAttempt(step.destination.channel, outcome);
    turn = turnAfter(parts, state, outcome);
  }
}

type Attempt = { readonly destination: Destination; readonly timeoutMs: number };
type Made = Omit<AttemptOutcome, "durationMs">;

function makeAttempt(parts: DeliveryParts, delivery: Delivery, attempt: Attempt): Promise<Made> {
  switch (attempt.destination.channel) {
    case "live":
      return deliverLive(parts, delivery, attempt.timeoutMs);
    case "inbox":
      return deliverToInbox(parts, delivery, attempt);
    case "relay":
      return forward(parts, delivery, attempt);
    case "cache":
      return storeInCache(parts, delivery, attempt);
  }
}

async function deliverLive({ sessions }: DeliveryParts, delivery: Delivery, timeoutMs: number): Promise<Made> {
  const { envelope, document, elsewhere } = delivery;
  const outcome = elsewhere === "gone" ? await sessions?.deliver({ envelope, document, timeoutMs }) : elsewhere;
  if (outcome === "acknowledged") return { httpStatus: null, error: null };
  return { httpStatus: null, error: outcome === "silent" ? "not_acknowledged" : "destination_unavailable" };
}

function madeOf(answer: EgressAnswer): Made {
  return { httpStatus: answer.httpStatus, error: answer.error, giveUp: answer.giveUp };
}

type Posting = { readonly suffix: string; readonly wantsBody: boolean; readonly countsHops: boolean };

function post({ egress }: DeliveryParts, delivery: Delivery, posting: Attempt & Posting): Promise<EgressAnswer> {
  const { envelope, origin, hopsNext, viaNext, traceparent } = delivery;
  const { destination, suffix, wantsBody, countsHops, timeoutMs } = posting;
  const hops = countsHops ? { "svc-hops": String(hopsNext), "svc-via": viaNext } : {};
  return egress.post({
    endpoint: destination.endpoint ?? "",
    suffix,
    body: envelope.bytes,
    headers: { ...hops, ...(traceparent == null ? {} : { traceparent }) },
    wantsBody,
    client: origin.network,
    timeoutMs,
  });
}

async function deliverToInbox(parts: DeliveryParts, delivery: Delivery, attempt: Attempt): Promise<Made> {
  return madeOf(await post(parts, delivery, { ...attempt, suffix: "", wantsBody: false, countsHops: true }));
}

function isSuccess(answer: EgressAnswer): boolean {
  return answer.error === null && answer.httpStatus !== null && answer.httpStatus >= 200 && answer.httpStatus < 300;
}

/** A 2xx whose body is not what the route answers counts as no success; a retry would not help. */
function invalid({ httpStatus }: EgressAnswer): Made {
  return { httpStatus, error: "invalid_answer", giveUp: true };
}

async function forward(parts: DeliveryParts, delivery: Delivery, attempt: Attempt): Promise<Made> {
  const suffix = `/relay/${encodeURIComponent(delivery.envelope.to)}`;
  const answer = await post(parts, delivery, { ...attempt, suffix, wantsBody: true, countsHops: true });
  if (!isSuccess(answer) || answer.body === null) return madeOf(answer);
  const downstream = parseForwardResult(answer.body);
  return downstream === null ? invalid(answer) : { ...madeOf(answer), downstream };
}

async function storeInCache(parts: DeliveryParts, delivery: Delivery, attempt: Attempt): Promise<Made> {
  const { localCache: local } = parts;
  if (!isLocal(local, attempt.destination)) return postToCache(parts, delivery, attempt);
  const stored = await storeInLocalCache(local, delivery, parts.now());
  return "text" in stored ? { httpStatus: 202, error: null, receipt: stored.receipt } : stored;
}

async function postToCache(parts: DeliveryParts, delivery: Delivery, attempt: Attempt): Promise<Made> {
  const { envelope } = delivery;
  const answer = await post(parts, delivery, {
    ...attempt,
    suffix: "/cache/store",
    wantsBody: true,
    countsHops: false,
  });
  if (answer.body === null) return madeOf(answer);
  if (isSuccess(answer)) {
    const receipt = parseStoreReceipt(answer.body, { messageId: envelope.messageId, recipient: envelope.to });
    return receipt === null ? invalid(answer) : { ...madeOf(answer), receipt };
  }
  const refusal = parseRefusal(answer.body);
  return refusal === null ? madeOf(answer) : { ...madeOf(answer), refusal };
}

/** A failing store counts as an unavailable Cache: other Caches may still accept the envelope. */
async function storeInLocalCache(
  local: LocalCache,
  { envelope, digest, origin: { client, network } }: Delivery,
  nowMs: number,
): Promise<LocalReceipt | Made> {
  try {
    const stored = await local.store(envelope, { client, network, nowMs, digest });
    if (!isFault(stored)) return stored;
    return { httpStatus: stored.status, error: null, refusal: { code: stored.code, message: stored.detail } };
  } catch (error) {
    if (!(error instanceof StoreError)) throw error;
    const code = error.code === "full" ? "storage_full" : "service_unavailable";
    return {
      httpStatus: error.code === "full" ? 507 : 503,
      error: null,
      refusal: { code, message: "the Cache can't store envelopes at the moment" },
    };
  }
}

// --------------------------------------------------------------------------------------------- what other nodes answer

// Nobody vouches for these bytes. A receipt or a refusal is rebuilt from the members we know, so that a destination
// can't speak to the sender through the Relay.

function parseMembers(bytes: Uint8Array): JsonObject | null {
  const value = parseJson(bytes);
  return isFault(value) || !isJsonObject(value) ? null : value;
}

type Message = { readonly messageId: Uuid; readonly recipient: Did };

/**
 * The receipt of a Cache for this very message, or `null` when the answer is none. It must state that the
 * envelope is accepted; of the other members those are kept that have their form.
 */
function parseStoreReceipt(bytes: Uint8Array, asked: Message): StoreReceipt | null {
  const answer = parseMembers(bytes);
  if (answer === null || answer["accepted"] !== true) return null;
  const messageId = answer["message_id"];
  if (typeof messageId !== "string" || parseUuid(messageId) !== asked.messageId) return null;
  if (answer["recipient"] !== undefined && answer["recipient"] !== asked.recipient) return null;
  return {
    accepted: true,
    deduped: answer["deduped"] === true,
    message_id: asked.messageId,
    recipient: asked.recipient,
    ...kept(answer, { expires_at: isTimestamp, max_ttl: isDuration, applied_ttl: isDuration, chunked: isFlag }),
    ...(isJsonObject(answer["proof"]) ? { proof: receiptProof(answer["proof"], asked) } : {}),
  };
}

function receiptProof(proof: JsonObject, asked: Message) {
  return {
    event_type: "delivery",
    message_id: asked.messageId,
    recipient_did: asked.recipient,
    ...kept(proof, { timestamp: isTimestamp }),
    reason: null,
    signature: isSignature(proof["signature"]) ? proof["signature"] : null,
  };
}

type Check = (value: JsonValue | undefined) => boolean;

function kept(members: JsonObject, checks: Readonly<Record<string, Check>>): Record<string, JsonValue> {
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
const isSignature: Check = (value) => typeof value === "string" && /^[A-Za-z0-9+/]{86}==$/.test(value);

/** The code of a refusal, when it is one of ours, with our own words for it; `null` otherwise. */
function parseRefusal(bytes: Uint8Array): { readonly code: FaultCode; readonly message: string } | null {
  const answer = parseMembers(bytes);
  const code = answer?.["code"] ?? answer?.["error"];
  const known = faultCodes.find((candidate) => candidate === code);
  return known === undefined ? null : { code: known, message: describeFault(known).title };
}

const successModes: Readonly<Record<string, string>> = { delivered: "direct", forwarded: "forwarded", cached: "cache" };

/** What another Relay achieved, or `null` without `success: true`. */
function parseForwardResult(bytes: Uint8Array): { readonly deliveryMode: string; readonly code: string } | null {
  const answer = parseMembers(bytes);
  if (answer?.["success"] !== true) return null;
  const code = typeof answer["code"] === "string" ? answer["code"] : "";
  const deliveryMode = successModes[code];
  // A Relay of the family may name its success otherwise; then only the success itself is known.
  return deliveryMode === undefined ? { deliveryMode: "forwarded", code: "forwarded" } : { deliveryMode, code };
}

// ------------------------------------------------------------------------------------------------------ idempotency

export type Dedup = {
  readonly receipts: Receipts;
  readonly log: Log;
  readonly inFlight: Map<string, InFlight>;
  /** The messages that any worker thread of the process is delivering. */
  readonly deliveries: FairShare;
  /** Results that are being written. */
  remembering: number;
};

type InFlight = { readonly digest: string; readonly delivered: Promise<Delivered | Fault> };

/** What is remembered of a message. `result` is `null` after a failure: only the content is compared. */
type Remembered = { readonly digest: string; readonly result: DeliveryResult | null };

/** Beyond this a delivery waits until its result is written, so that a slow store slows down those who fill it. */
const rememberingMax = 256;

export function createDedup(parts: Pick<Dedup, "receipts" | "log"> & { readonly counting?: Counting }): Dedup {
  const { receipts, log, counting = ownCounting } = parts;
  const deliveries = counting.share("deliveries", Number.POSITIVE_INFINITY, { clientMax: 1 });
  return { receipts, log, inFlight: new Map(), deliveries, remembering: 0 };
}

type DedupMessage = {
  readonly envelope: Envelope;
  readonly nowMs: number;
  /** How long the result is remembered; asked once there is one. */
  readonly untilMs: () => number;
};

type Deliver = (digest: string) => Promise<Delivered | Fault>;

/** What a mailbox remembers of the SHA-256: nobody finds a second envelope with the same 128 bits. */
const digestDigits = 32;

/** Runs `deliver` once for all requests of one message that are in flight together. 409 `duplicate_conflict`. */
export function deliverOnce(dedup: Dedup, message: DedupMessage, deliver: Deliver): Promise<Delivered | Fault> {
  const { envelope } = message;
  const key = `relay:${envelope.to}:${envelope.messageId}`;
  const digest = sha256(envelope.bytes).toHex();
  const first = dedup.inFlight.get(key);
  if (first !== undefined)
    return first.digest === digest ? first.delivered.then(repeated) : Promise.resolve(conflict());
  const delivered = deliverFirst(dedup, { key, digest, ...message }, deliver);
  dedup.inFlight.set(key, { digest, delivered });
  return delivered;
}

/** The key stays in flight until the result is stored, which the answer does not wait for, or until there is none. */
async function deliverFirst(
  dedup: Dedup,
  { key, digest, nowMs, untilMs }: DedupMessage & { readonly key: string; readonly digest: string },
  deliver: Deliver,
): Promise<Delivered | Fault> {
  const isAlone = dedup.deliveries.take(key, 1) || (await waitForOthers(dedup, key));
  const end = (): void => {
    dedup.inFlight.delete(key);
    if (isAlone) dedup.deliveries.give(key, 1);
  };
  let remembering: Promise<void> | null = null;
  try {
    const kept = await dedup.receipts.get(key, nowMs);
    const known = kept === null ? null : (JSON.parse(new TextDecoder().decode(kept)) as Remembered);
    if (known !== null && known.digest !== digest) return conflict();
    if (known?.result) return repeated({ result: known.result, text: "" });
    const delivered = await deliver(digest.slice(0, digestDigits));
    if (isFault(delivered) || delivered.isInMailbox === true) return delivered;
    const what = `{"digest":"${digest}","result":${delivered.result.success ? delivered.text : "null"}}`;
    remembering = remember(dedup, { key, what, untilMs: untilMs() }, end);
    if (dedup.remembering > rememberingMax) await remembering;
    return delivered;
  } finally {
    if (remembering === null) end();
  }
}

const othersPollMs = 20;
/** Longer than any delivery. */
const othersMsMax = 60 * secondMs;

/** Waits until another thread has ended its delivery of the message. `false`: it did not end in time. */
async function waitForOthers({ deliveries }: Dedup, key: string): Promise<boolean> {
  const endsAtMs = performance.now() + othersMsMax;
  while (!deliveries.take(key, 1)) {
    if (performance.now() > endsAtMs) return false;
    await Bun.sleep(othersPollMs);
  }
  return true;
}

/** What was delivered stays delivered, even when it can't be remembered. Never rejects but for a bug. */
async function remember(
  dedup: Dedup,
  { key, what, untilMs }: { readonly key: string; readonly what: string; readonly untilMs: number },
  end: () => void,
): Promise<void> {
  dedup.remembering += 1;
  try {
    await dedup.receipts.put(key, utf8(what), untilMs);
  } catch (error) {
    if (!(error instanceof StoreError)) throw error;
    dedup.log("warn", "a delivery result could not be stored; a repeated request would be delivered again", {
      error: error.code,
    });
  } finally {
    dedup.remembering -= 1;
    end();
  }
}

/** For those who waited: a failure is the same for all. */
function repeated(first: Delivered | Fault): Delivered | Fault {
  return isFault(first) || !first.result.success ? first : again(first);
}

function again({ result: first }: Delivered): Delivered {
  const result = { ...first, details: { ...first.details, deduped: true } };
  return { result, text: JSON.stringify(result) };
}

function conflict(): Fault {
  return fault("duplicate_conflict", "another envelope with this message_id was sent to this recipient");
}
