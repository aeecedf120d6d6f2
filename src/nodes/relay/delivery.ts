/**
 * Runs a delivery plan: asks the reducer for the next step, makes the attempt over its channel, and reports the outcome
 * to the reducer; no rule is decided here. And idempotency, one delivery for one message: a repeat waits for the first,
 * answers its result after a success, and tries again after a failure; the same id with other content is a conflict. Its
 * record lasts as long as the envelope, or less for a network that fills the store with results. What the Cache of this
 * process got at the first attempt has no record: its entry in the mailbox is one. Source: rules section 5, D228.
 */
import { utf8 } from "../../core/codec/bytes.ts";
import { sha256 } from "../../core/codec/crypto.ts";
import { type Did, parseUuid, type Uuid } from "../../core/codec/did.ts";
import { isJsonObject, type JsonObject, type JsonValue, parseJson } from "../../core/codec/json.ts";
import { parseDuration, parseTimestamp } from "../../core/codec/time.ts";
import { describeFault, type Fault, type FaultCode, fault, faultCodes, isFault } from "../../core/fault.ts";
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
import type { Admission, FactsSource } from "../admission.ts";
import type { Log } from "../http/log.ts";
import type { Call } from "../http/route.ts";
import type { Egress, EgressAnswer } from "./egress.ts";
import { endOf, type InFlight, type LiveOutcome } from "./live/registry.ts";
import type { LiveSessions } from "./live/session.ts";

/** An admitted envelope, and how it came here. */
export type Relayed = {
  readonly envelope: Envelope;
  /** `Svc-Hops` and `Svc-Via` of the request. */
  readonly hops: number;
  readonly via: string | null;
  readonly admission: Admission;
  /** Outbound slots and mailboxes are shared between client networks. */
  readonly call: Pick<Call, "client" | "network" | "nowMs" | "trace">;
};

/** The Cache of this process: the same checks as over HTTP, without HTTP. Receipts are JSON. */
export type LocalCache = {
  readonly endpoints: readonly string[];
  readonly facts: FactsSource;
  /** `admitted`: what the Relay has decided just now of the same facts, or `null`. */
  readonly store: <T>(
    envelope: Envelope,
    arrival: Pick<Call, "client" | "network"> & Asked & { readonly admitted: Admission | null },
    answer: (receipt: string, as: StoredAs) => T,
  ) => Promise<T | Fault>;
  /** The receipt of an earlier delivery, 409 `duplicate_conflict` when that was another envelope, or `null`. */
  readonly recall: (
    envelope: Envelope,
    of: Asked & Pick<Admission, "ttlMsMax"> & { readonly life: number },
  ) => Promise<string | Fault | null>;
};
type Asked = { readonly nowMs: number; readonly digest: string };
/** By this delivery, from elsewhere, or by an earlier delivery of the same envelope, whose receipt it is. */
type StoredAs = "stored" | "held" | "repeat";

export type DeliveryParts = {
  readonly egress: Egress;
  readonly localCache: LocalCache | null;
  /** Relay and Cache learn about recipients from one source. */
  readonly sharesAdmission: boolean;
  readonly sessions: LiveSessions | null;
  /** Names the Relay in `Svc-Via`. */
  readonly id: string;
  readonly now: () => number;
  readonly sleep: (ms: number) => Promise<void>;
  /** Uniform in 0..1. */
  readonly random: () => number;
  readonly onAttempt: (channel: Channel, outcome: AttemptOutcome) => void;
};

/** One envelope on its way. */
type Delivery = {
  readonly relayed: Relayed;
  /** What the mailbox remembers of the envelope. */
  readonly digest: string;
  readonly plan: DeliveryPlan;
  /** The outcome in other processes, which are asked when no session of this one listens. */
  readonly elsewhere: LiveOutcome;
};

/** What is answered, and remembered: the JSON text of a DeliveryResult, and what else is asked of it. */
export type Delivered = {
  readonly text: string;
  readonly status: number;
  readonly code: DeliveryResult["code"];
  readonly deduped: boolean;
  /** A repeat is recognized: by the mailbox of this process, or by a record. */
  readonly isRemembered: boolean;
};

function deliveredOf(result: DeliveryResult): Delivered {
  const deduped = result.details["deduped"] === true;
  const { http_status: status, code } = result;
  return { text: JSON.stringify(result), status, code, deduped, isRemembered: false };
}

/** Ends within the bounds of the plan's limits; never throws for what a destination does. */
export async function runDelivery(
  parts: DeliveryParts,
  delivery: Delivery,
  only = onlyLocalCache(parts.localCache, delivery.plan),
): Promise<Delivered | Fault> {
  const { relayed, digest, plan } = delivery;
  const nowMs = parts.now();
  if (only === null || plan.expiresAtMs <= nowMs) return runPlan(parts, delivery, beginDelivery(plan, nowMs));
  const { client, network } = relayed.call;
  const admitted = parts.sharesAdmission ? relayed.admission : null;
  const startMs = performance.now();
  let stored: Delivered | Fault;
  try {
    stored = await only.store(relayed.envelope, { client, network, nowMs, digest, admitted }, cachedAtOnce);
  } catch (error) {
    stored = storeFailure(error);
  }
  const durationMs = performance.now() - startMs;
  if (!isFault(stored)) {
    if (!stored.deduped) parts.onAttempt("cache", { httpStatus: 202, error: null, durationMs });
    return stored;
  }
  // A refusal, which may come before the mailbox was asked, does not undo an earlier delivery.
  const known = stored.status < 500 ? await recallDelivery(parts, delivery) : null;
  if (known !== null) return known;
  const outcome = { ...madeOfRefusal(stored), durationMs };
  parts.onAttempt("cache", outcome);
  return runPlan(parts, delivery, turnAfter(parts, beginDelivery(plan, nowMs).state, outcome));
}

/** The Cache of this process when a plan has nothing else, as most have: the reducer is asked only when it refuses. */
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

/** What the reducer answers when the only destination is one Cache, which keeps the envelope at the first attempt. */
function cachedAtOnce(receipt: string, as: StoredAs): Delivered {
  const deduped = as === "repeat";
  const head = `{"success":true,"retry_count":0,"cache_attempted":true,"cache_result":${receipt},"ndr":null`;
  const code = `"delivery_mode":"cache","http_status":202,"code":"cached","message":"${cachedMessage}"`;
  const text = `${head},${code},"details":${deduped ? '{"deduped":true}' : "{}"}}`;
  return { text, status: 202, code: "cached", deduped, isRemembered: as !== "held" };
}

/** What the Cache of this process answers of an earlier delivery, or `null` without one. */
export async function recallDelivery(
  { localCache }: Pick<DeliveryParts, "localCache">,
  { relayed: { envelope, admission, call }, digest }: Pick<Delivery, "relayed" | "digest">,
): Promise<Delivered | Fault | null> {
  if (localCache === null) return null;
  const { ttlMsMax, recipient } = admission;
  const receipt = await localCache.recall(envelope, { digest, ttlMsMax, life: recipient.life, nowMs: call.nowMs });
  return typeof receipt === "string" ? cachedAtOnce(receipt, "repeat") : receipt;
}

async function runPlan(parts: DeliveryParts, delivery: Delivery, begun: DeliveryTurn): Promise<Delivered> {
  let turn = begun;
  for (;;) {
    const { step, state } = turn;
    if (step.kind === "finished") return deliveredOf(step.result);
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
  const { relayed, elsewhere } = delivery;
  const { envelope, admission } = relayed;
  const request = { envelope, document: admission.recipient.document, timeoutMs };
  const outcome = elsewhere === "gone" ? await sessions?.deliver(request) : elsewhere;
  if (outcome === "acknowledged") return { httpStatus: null, error: null };
  return { httpStatus: null, error: outcome === "silent" ? "not_acknowledged" : "destination_unavailable" };
}

function madeOf(answer: EgressAnswer): Made {
  return { httpStatus: answer.httpStatus, error: answer.error, giveUp: answer.giveUp };
}

type Posting = { readonly suffix: string; readonly wantsBody: boolean; readonly countsHops: boolean };

function post(
  { egress, id }: DeliveryParts,
  { relayed }: Delivery,
  { destination, suffix, wantsBody, countsHops, timeoutMs }: Attempt & Posting,
): Promise<EgressAnswer> {
  const { envelope, hops, via, call } = relayed;
  const viaNext = via === null ? id : [...via.split(",").slice(-7), id].join(",");
  const way = countsHops ? { "svc-hops": String(hops + 1), "svc-via": viaNext } : {};
  return egress.post({
    endpoint: destination.endpoint ?? "",
    suffix,
    body: envelope.bytes,
    headers: { ...way, ...(call.trace === null ? {} : { traceparent: call.trace.traceparent }) },
    wantsBody,
    client: call.network,
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
  const suffix = `/relay/${encodeURIComponent(delivery.relayed.envelope.to)}`;
  const answer = await post(parts, delivery, { ...attempt, suffix, wantsBody: true, countsHops: true });
  if (!isSuccess(answer) || answer.body === null) return madeOf(answer);
  const downstream = parseForwardResult(answer.body);
  return downstream === null ? invalid(answer) : { ...madeOf(answer), downstream };
}

async function storeInCache(parts: DeliveryParts, delivery: Delivery, attempt: Attempt): Promise<Made> {
  const { localCache: local } = parts;
  if (!isLocal(local, attempt.destination)) return postToCache(parts, delivery, attempt);
  const { envelope, call } = delivery.relayed;
  const { client, network } = call;
  const arrival = { client, network, nowMs: parts.now(), digest: delivery.digest, admitted: null };
  const stored = await local.store(envelope, arrival, (receipt) => ({ receipt })).catch(storeFailure);
  if (isFault(stored)) return madeOfRefusal(stored);
  return { httpStatus: 202, error: null, receipt: JSON.parse(stored.receipt) as StoreReceipt };
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

async function postToCache(parts: DeliveryParts, delivery: Delivery, attempt: Attempt): Promise<Made> {
  const { envelope } = delivery.relayed;
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
  readonly inFlight: Map<string, Turn>;
  /** Results that are being written. */
  remembering: number;
};

/** A message in delivery, and then its outcome until that is written. */
export type Turn = InFlight & {
  readonly key: string;
  readonly digest: string;
  outcome: Delivered | Fault | null;
};

/** Beyond this a delivery waits until its result is written, so that a slow store slows down those who fill it. */
const rememberingMax = 256;

/** The turn of a message, or what the delivery in flight answers this request. 409 `duplicate_conflict`. */
export function beginTurn({ inFlight }: Dedup, { to, messageId, bytes }: Envelope): Turn | Promise<Delivered | Fault> {
  const key = `relay:${to}:${messageId}`;
  const digest = sha256(bytes).toHex();
  const first = inFlight.get(key);
  if (first !== undefined) return outcomeOf(first, digest);
  const turn = { key, to, digest, delaysJoins: false, ended: null, outcome: null };
  inFlight.set(key, turn);
  return turn;
}

/** For those who wait: a failure is the same for all. */
async function outcomeOf(first: Turn, digest: string): Promise<Delivered | Fault> {
  if (first.digest !== digest) return conflict();
  if (first.outcome === null) await endOf(first);
  const outcome = first.outcome as Delivered | Fault;
  if (isFault(outcome) || outcome.status >= 300) return outcome;
  return deduped(JSON.parse(outcome.text) as DeliveryResult);
}

/** What a record answers; `null` without one, and after a failure of the same envelope, which is delivered again. */
export function recordedOutcome(record: Uint8Array | null, { digest }: Turn): Delivered | Fault | null {
  if (record === null) return null;
  type Remembered = { readonly digest: string; readonly result: DeliveryResult | null };
  const known = JSON.parse(new TextDecoder().decode(record)) as Remembered;
  if (known.digest !== digest) return conflict();
  return known.result === null ? null : { ...deduped(known.result), isRemembered: true };
}

/** Ends a turn, unless its result must be written first, which is the answer then. */
export function endTurn(dedup: Dedup, turn: Turn, outcome: Delivered | Fault): Delivered | null {
  turn.outcome = outcome;
  turn.delaysJoins = false;
  turn.ended?.resolve();
  if (!isFault(outcome) && !outcome.isRemembered) return outcome;
  dedup.inFlight.delete(turn.key);
  return null;
}

export function abandonTurn(dedup: Dedup, turn: Turn, error: unknown): void {
  turn.ended?.reject(error);
  dedup.inFlight.delete(turn.key);
}

/** Writes a result, which ends its turn. The answer waits for that only when many others are being written. */
export async function remember(dedup: Dedup, turn: Turn, result: Delivered, untilMs: number): Promise<void> {
  dedup.remembering += 1;
  const written = writeRecord(dedup, turn, result, untilMs);
  if (dedup.remembering > rememberingMax) await written;
}

/** What was delivered stays delivered, even when it can't be remembered. Never rejects but for a bug. */
async function writeRecord(dedup: Dedup, turn: Turn, { status, text }: Delivered, untilMs: number): Promise<void> {
  const record = `{"digest":"${turn.digest}","result":${status < 300 ? text : "null"}}`;
  try {
    await dedup.receipts.put(turn.key, utf8(record), untilMs);
  } catch (error) {
    if (!(error instanceof StoreError)) throw error;
    const loss = "a delivery result could not be stored; a repeated request would be delivered again";
    dedup.log("warn", loss, { error: error.code });
  } finally {
    dedup.remembering -= 1;
    dedup.inFlight.delete(turn.key);
  }
}

function deduped(first: DeliveryResult): Delivered {
  return deliveredOf({ ...first, details: { ...first.details, deduped: true } });
}

function conflict(): Fault {
  return fault("duplicate_conflict", "another envelope with this message_id was sent to this recipient");
}
