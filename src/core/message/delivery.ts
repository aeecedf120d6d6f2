/**
 * A delivery as a pure reducer: it gets a plan and then the outcomes of attempts, and returns
 * the next attempt, a wait, or the DeliveryResult. It reads no clock and draws no random numbers: both come with the
 * events. It always ends: its limits bound the attempts at each destination, and the time of all.
 * Source: interface "DeliveryResult", rules section 5 and section 10 ("Relay", "Failed deliveries").
 */
import { describeFault, type FaultCode } from "../fault.ts";
import type { DeliveryAnswer } from "../schema/messages.ts";
import type { Channel, DeliveryPlan, Destination } from "./plan.ts";

/** The answer of the Relay, with the names of the wire. */
export type DeliveryResult = Readonly<Omit<DeliveryAnswer, "code" | "cache_result" | "details">> & {
  readonly code: "delivered" | "forwarded" | "cached" | FaultCode;
  readonly cache_result: StoreReceipt | CacheRefusal | null;
  readonly details: Readonly<Record<string, unknown>>;
};

/** A store receipt as the Cache gave it. */
export type StoreReceipt = Readonly<Record<string, unknown>>;
type CacheRefusal = { readonly code: string; readonly message: string; readonly http_status: number };
type AttemptReport = NonNullable<DeliveryAnswer["ndr"]>["attempts"][number];

/**
 * Why an attempt got no answer. Every way in which a host can't be reached has the one name
 * `destination_unavailable`, so that a sender can't use the Relay to look around in networks.
 */
export type AttemptError =
  | "destination_refused"
  | "destination_unavailable"
  | "upstream_timeout"
  | "invalid_answer"
  | "not_acknowledged";

export type AttemptOutcome = {
  /** The status of the answer; `null` when there was none. */
  readonly httpStatus: number | null;
  readonly error: AttemptError | null;
  readonly durationMs: number;
  /** Trying the same destination again at once is pointless (an open circuit, a full queue). */
  readonly giveUp?: boolean;
  /** What a Cache answered to a store that it accepted. */
  readonly receipt?: StoreReceipt;
  /** Code and text of a Cache's refusal. */
  readonly refusal?: { readonly code: string; readonly message: string };
  /** What another Relay reported of a success. */
  readonly downstream?: { readonly deliveryMode: string; readonly code: string };
};

// --------------------------------------------------------------------------------------------- reducer

/** What the Cache keeps of the budget when it is the last resort: 4 s of 10 s. */
const cacheReserveShare = 0.4;

/** How the attempts at a destination ended. `final`: the recipient's own refusal, after which no other is tried. */
type AttemptVerdict = "success" | "final" | "refused" | "unreachable" | "timeout";

type Attempted = {
  readonly destination: Destination;
  readonly verdict: AttemptVerdict;
  readonly outcome: AttemptOutcome;
};

type DeliveryState = {
  readonly plan: DeliveryPlan;
  /** Index of the current destination in `direct` and then `caches`. */
  readonly at: number;
  readonly attemptsHere: number;
  readonly retryCount: number;
  /** Reported only when the delivery fails. */
  readonly attempts: readonly Attempted[];
  /** The last attempt at each destination that was left. */
  readonly left: readonly Attempted[];
  /** The last attempt at the current destination, while another one there is still to come. */
  readonly pending: Attempted | null;
  /** When the first request began; `null` before it. Live sessions are not requests. */
  readonly startedMs: number | null;
  readonly cacheAttempted: boolean;
};

type DeliveryEvent =
  | { readonly kind: "begin"; readonly nowMs: number }
  | { readonly kind: "waited"; readonly nowMs: number }
  /** Instead of an outcome: no session listens, so that the plan goes on as if it had none. */
  | { readonly kind: "nobody"; readonly nowMs: number }
  /** `jitter` is uniform in 0..1 and spreads the next wait between half and one and a half of its length. */
  | { readonly kind: "outcome"; readonly outcome: AttemptOutcome; readonly jitter: number; readonly nowMs: number };

type DeliveryStep =
  | { readonly kind: "attempt"; readonly destination: Destination; readonly timeoutMs: number }
  | { readonly kind: "wait"; readonly waitMs: number }
  | { readonly kind: "finished"; readonly result: DeliveryResult };

export type DeliveryProgress = { readonly state: DeliveryState; readonly step: DeliveryStep };

export function beginDelivery(plan: DeliveryPlan, nowMs: number): DeliveryProgress {
  const state: DeliveryState = {
    plan,
    at: 0,
    attemptsHere: 0,
    retryCount: 0,
    attempts: [],
    left: [],
    pending: null,
    startedMs: null,
    cacheAttempted: false,
  };
  return nextStep(state, { kind: "begin", nowMs });
}

/** The next step after an event. After `finished` no event is expected. */
export function nextStep(state: DeliveryState, event: DeliveryEvent): DeliveryProgress {
  if (event.kind === "nobody") return attempt(withoutLive(state), event.nowMs);
  if (event.kind !== "outcome") return attempt(state, event.nowMs);
  const destination = destinationAt(state.plan, state.at) as Destination;
  const { outcome, nowMs } = event;
  const verdict = verdictOf(destination.channel, outcome);
  const entry = { destination, verdict, outcome };
  const recorded = { ...state, attempts: [...state.attempts, entry] };
  const waitMs = retryWait(recorded, entry, event);
  if (waitMs !== null) return { state: { ...recorded, pending: entry }, step: { kind: "wait", waitMs } };
  const left = [...recorded.left, entry];
  const moved: DeliveryState = { ...recorded, left, pending: null, at: state.at + 1, attemptsHere: 0 };
  if (destination.channel === "cache") {
    return verdict === "success" && stored(left).length >= state.plan.copies
      ? finish(moved, nowMs)
      : attempt(moved, nowMs);
  }
  return verdict === "success" || verdict === "final" ? finish(moved, nowMs) : attempt(moved, nowMs);
}

/** Live sessions come first, so the next destination takes their place. */
function withoutLive(state: DeliveryState): DeliveryState {
  return { ...state, plan: { ...state.plan, direct: state.plan.direct.slice(1) }, attemptsHere: 0 };
}

function destinationAt(plan: DeliveryPlan, at: number): Destination | null {
  return plan.direct[at] ?? plan.caches[at - plan.direct.length] ?? null;
}

/** The next attempt for which there is time, or the end. */
function attempt(state: DeliveryState, nowMs: number): DeliveryProgress {
  const destination = destinationAt(state.plan, state.at);
  if (destination === null) return finish(state, nowMs);
  const live = destination.channel === "live";
  const begun = live || state.startedMs !== null ? state : { ...state, startedMs: nowMs };
  const limitMs = live ? state.plan.limits.live_ack_timeout : state.plan.limits.request_timeout;
  const timeoutMs = Math.min(limitMs, leftMs(begun, state.at, nowMs));
  if (timeoutMs < 1) return attempt(passBy(begun), nowMs);
  const next: DeliveryState = {
    ...begun,
    pending: null,
    attemptsHere: state.attemptsHere + 1,
    retryCount: state.retryCount + (state.attemptsHere > 0 ? 1 : 0),
    cacheAttempted: state.cacheAttempted || destination.channel === "cache",
  };
  return { state: next, step: { kind: "attempt", destination, timeoutMs } };
}

/** Skips a destination for which no time is left. An answer that it gave before still counts. */
function passBy(state: DeliveryState): DeliveryState {
  const left = state.pending === null ? state.left : [...state.left, state.pending];
  return { ...state, left, pending: null, at: state.at + 1, attemptsHere: 0 };
}

/** Time left for a destination: of the whole, without the Cache's reserve, and never beyond the envelope's life. */
function leftMs(state: DeliveryState, at: number, nowMs: number): number {
  const { plan } = state;
  const lifeMs = plan.expiresAtMs - nowMs;
  const destination = destinationAt(plan, at);
  if (destination === null || destination.channel === "live" || state.startedMs === null) return lifeMs;
  const reserveMs =
    destination.channel !== "cache" && plan.caches.length > 0 ? cacheReserveShare * plan.limits.delivery_budget : 0;
  return Math.min(lifeMs, state.startedMs + plan.limits.delivery_budget - reserveMs - nowMs);
}

/** How long to wait before the same destination is tried again; `null` when it is not. */
function retryWait(
  state: DeliveryState,
  { destination, verdict, outcome }: Attempted,
  { jitter, nowMs }: { readonly jitter: number; readonly nowMs: number },
): number | null {
  const { limits } = state.plan;
  const retryable = verdict === "unreachable" || verdict === "timeout";
  if (!retryable || destination.channel === "live" || outcome.giveUp === true) return null;
  if (state.attemptsHere >= limits.attempts) return null;
  const waitMs = Math.round(limits.retry_delay * 2 ** (state.attemptsHere - 1) * (0.5 + jitter));
  return waitMs + 1 < leftMs(state, state.at, nowMs) ? waitMs : null;
}

/**
 * What an outcome means. An inbox speaks for the recipient, so its 4xx ends the delivery; another Relay
 * or a Cache speaks only for itself.
 */
function verdictOf(channel: Channel, outcome: AttemptOutcome): AttemptVerdict {
  if (outcome.error === "destination_refused") return "refused";
  if (outcome.error === "upstream_timeout" || outcome.error === "not_acknowledged") return "timeout";
  const status = outcome.httpStatus;
  if (outcome.error !== null) return "unreachable";
  if (channel === "live" || (status !== null && status >= 200 && status < 300)) return "success";
  if (status === null || status < 400 || status >= 500) return "unreachable";
  if (status === 408 || status === 425 || status === 429) return "unreachable";
  return channel === "inbox" && status !== 404 && status !== 410 ? "final" : "refused";
}

function stored(left: readonly Attempted[]): Attempted[] {
  return left.filter((entry) => entry.destination.channel === "cache" && entry.verdict === "success");
}

function reportAttempt({ destination, outcome }: Attempted): AttemptReport {
  return {
    channel: destination.channel,
    origin: originOf(destination.endpoint),
    http_status: outcome.httpStatus,
    error: outcome.error,
    duration_ms: Math.max(0, Math.round(outcome.durationMs)),
  };
}

function originOf(endpoint: string | null): string | null {
  const url = endpoint === null || endpoint.length > 2_048 ? null : URL.parse(endpoint);
  return url === null || !/^https?:$/.test(url.protocol) ? null : url.origin;
}

// --------------------------------------------------------------------------------------------- results

function finish(state: DeliveryState, nowMs: number): DeliveryProgress {
  return { state, step: { kind: "finished", result: resultOf(state, nowMs) } };
}

function resultOf(state: DeliveryState, nowMs: number): DeliveryResult {
  const direct = state.left.find((entry) => entry.verdict === "success" && entry.destination.channel !== "cache");
  if (direct !== undefined)
    return direct.destination.channel === "relay" ? forwarded(state, direct) : delivered(state, direct);
  const kept = stored(state.left);
  return kept.length > 0 ? cached(state, kept) : failed(state, nowMs);
}

function delivered(state: DeliveryState, entry: Attempted): DeliveryResult {
  const channel = entry.destination.channel;
  return {
    ...successOf(state),
    delivery_mode: "direct",
    http_status: 200,
    code: "delivered",
    message:
      channel === "live" ? "the recipient acknowledged the envelope" : "the recipient's inbox accepted the envelope",
    details: { channel },
  };
}

function forwarded(state: DeliveryState, entry: Attempted): DeliveryResult {
  const { downstream } = entry.outcome;
  return {
    ...successOf(state),
    delivery_mode: "forwarded",
    http_status: 202,
    code: "forwarded",
    message: "another Relay of the recipient took the envelope",
    details:
      downstream === undefined ? {} : { downstream: { delivery_mode: downstream.deliveryMode, code: downstream.code } },
  };
}

const keptByCache = {
  delivery_mode: "cache",
  http_status: 202,
  code: "cached",
  message: "a Cache of the recipient keeps the envelope",
} as const;

function cached(state: DeliveryState, kept: readonly Attempted[]): DeliveryResult {
  const receipt = (kept[0] as Attempted).outcome.receipt ?? {};
  return {
    ...successOf(state),
    ...keptByCache,
    cache_result: state.plan.copies > 1 ? { ...receipt, copies: kept.length } : receipt,
    details: {},
  };
}

/** An earlier delivery gave it to a Cache, which answers this receipt. */
export function heldResult(receipt: StoreReceipt): DeliveryResult {
  return { ...keptByCache, ...unretried, cache_attempted: true, cache_result: receipt, details: {} };
}

function successOf(state: DeliveryState) {
  return {
    ...unretried,
    retry_count: state.retryCount,
    cache_attempted: state.cacheAttempted,
  };
}

const unretried = { success: true, retry_count: 0, cache_attempted: false, cache_result: null, ndr: null };

function failed(state: DeliveryState, nowMs: number): DeliveryResult {
  const code = failureCode(state, nowMs);
  const { plan } = state;
  return {
    success: false,
    delivery_mode: "failed",
    http_status: describeFault(code).status,
    code,
    message: failureMessages[code],
    retry_count: state.retryCount,
    cache_attempted: state.cacheAttempted,
    cache_result: cacheRefusal(state),
    ndr: {
      message_id: plan.messageId,
      recipient: plan.recipient,
      reason: code,
      final: code === "not_deliverable" || code === "service_not_found" || code === "message_expired",
      attempts: state.attempts.map(reportAttempt),
    },
    details: {},
  };
}

type FailureCode =
  | "service_not_found"
  | "message_expired"
  | "not_deliverable"
  | "destination_unavailable"
  | "cache_unavailable"
  | "upstream_timeout";

const failureMessages: Record<FailureCode, string> = {
  service_not_found: "the recipient publishes no service that accepts envelopes",
  message_expired: "the envelope expired before a destination could be reached",
  not_deliverable: "no destination of the recipient accepts this envelope",
  destination_unavailable: "no destination of the recipient could be reached",
  cache_unavailable: "no Cache of the recipient could be reached",
  upstream_timeout: "the destinations of the recipient did not answer in time",
};

/**
 * 422 when every destination refused, no longer exists or must not be reached, or the Cache answered 4xx; 504 when the
 * last ones only timed out; otherwise 502. Caches come last.
 */
function failureCode(state: DeliveryState, nowMs: number): FailureCode {
  const { plan, left } = state;
  if (plan.direct.length + plan.caches.length === 0) return plan.nowhere;
  if (left.some((entry) => entry.verdict === "final")) return "not_deliverable";
  if (left.length === 0 && plan.expiresAtMs <= nowMs + 1) return "message_expired";
  const caches = left.filter((entry) => entry.destination.channel === "cache");
  const open = (entries: readonly Attempted[]) =>
    entries.filter((entry) => entry.verdict === "unreachable" || entry.verdict === "timeout");
  const openCaches = open(caches);
  if (openCaches.length > 0) return onlyTimedOut(openCaches) ? "upstream_timeout" : "cache_unavailable";
  if (caches.some((entry) => entry.outcome.httpStatus !== null)) return "not_deliverable";
  const openDirect = open(left);
  if (openDirect.length === 0) return "not_deliverable";
  return onlyTimedOut(openDirect) ? "upstream_timeout" : "destination_unavailable";
}

function onlyTimedOut(entries: readonly Attempted[]): boolean {
  return entries.every((entry) => entry.verdict === "timeout");
}

/** The answer of the last Cache that was asked. */
function cacheRefusal(state: DeliveryState): CacheRefusal | null {
  const entry = state.left.findLast((candidate) => candidate.destination.channel === "cache");
  if (entry === undefined) return null;
  const { outcome } = entry;
  return {
    code: outcome.refusal?.code ?? cacheErrorCode(outcome),
    message: outcome.refusal?.message ?? "the Cache did not accept the envelope",
    http_status: outcome.httpStatus ?? (entry.verdict === "timeout" ? 504 : 502),
  };
}

function cacheErrorCode(outcome: AttemptOutcome): string {
  if (outcome.error === "destination_refused" || outcome.error === "upstream_timeout") return outcome.error;
  return "cache_unavailable";
}
