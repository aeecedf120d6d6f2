/**
 * A delivery: which destination is tried when, how often and how long, and the
 * DeliveryResult. It reads no clock and draws no random numbers: both come in from outside,
 * as the attempts do. It always ends: its limits bound the attempts at each destination,
 * and the time of all.
 * Source: interface "DeliveryResult", rules section 5 ("Failed deliveries").
 */
import { describeFault, type Fault, type FaultCode, isFault } from "../fault.ts";
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
type CacheRefusal = {
  readonly code: string;
  readonly message: string;
  readonly http_status: number;
};
/**
 * All ways of not reaching a host have one name, so that a sender can't look around in
 * networks.
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
};

// ---------------------------------------------------------------------------------------- attempts

/** What the Cache keeps of the budget when it is the last resort: 4 s of 10 s. */
const cacheReserveShare = 0.4;

/**
 * How the attempts at a destination ended. `final`: the recipient's own refusal, after
 * which no other is tried.
 */
type AttemptVerdict = "success" | "final" | "refused" | "unreachable" | "timeout";

type Attempted = {
  readonly destination: Destination;
  readonly verdict: AttemptVerdict;
  readonly outcome: AttemptOutcome;
};

export type Attempt = { readonly destination: Destination; readonly timeoutMs: number };

/** What a delivery does, and the clock and the chance that it keeps to. */
export type DeliveryActions = {
  readonly now: () => number;
  /**
   * One attempt, its outcome in time. `no-session`: no session listens, so that the
   * delivery goes on as if the plan had none. A Fault ends the delivery, and is its outcome
   * unless a Cache keeps the envelope already.
   */
  readonly attempt: (attempt: Attempt) => Promise<AttemptOutcome | "no-session" | Fault>;
  readonly sleep: (ms: number) => Promise<void>;
  /** Uniform in 0..1: spreads a wait between half and one and a half of its length. */
  readonly random: () => number;
};

/** How far a delivery has come. */
type Course = {
  plan: DeliveryPlan;
  retryCount: number;
  cacheAttempted: boolean;
  /** Reported only when the delivery fails. */
  readonly attempts: Attempted[];
  /** The last attempt at each destination that was given up. */
  readonly abandoned: Attempted[];
  /** When the first request began; `null` before it. Live sessions are not requests. */
  startedMs: number | null;
};

/**
 * Tries the destinations of a plan in order, each with its attempts and growing waits,
 * until one accepts or the budget of time is over. Returns the result for the sender, or
 * the refusal that ends a delivery. Never throws for what a destination does.
 */
export async function deliver(
  plan: DeliveryPlan,
  actions: DeliveryActions,
): Promise<DeliveryResult | Fault> {
  const { now, attempt, sleep, random } = actions;
  const course: Course = {
    plan,
    retryCount: 0,
    cacheAttempted: false,
    attempts: [],
    abandoned: [],
    startedMs: null,
  };
  for (const destination of [...plan.direct, ...plan.caches]) {
    let last: Attempted | null = null;
    for (let tries = 0; ; tries++) {
      const timeoutMs = timeoutOf(course, destination, now());
      if (timeoutMs < 1) break;
      if (tries > 0) course.retryCount++;
      if (destination.channel === "cache") course.cacheAttempted = true;
      const outcome = await attempt({ destination, timeoutMs });
      if (isFault(outcome))
        return stored(course.abandoned).length === 0 ? outcome : resultOf(course, now());
      if (outcome === "no-session") {
        // Live sessions come first, so the next destination takes their place.
        course.plan = { ...plan, direct: plan.direct.slice(1) };
        break;
      }
      last = { destination, verdict: verdictOf(destination.channel, outcome), outcome };
      course.attempts.push(last);
      const waitMs = retryWait(course, last, {
        attemptsHere: tries + 1,
        jitter: random(),
        nowMs: now(),
      });
      if (waitMs === null) break;
      await sleep(waitMs);
    }
    // Without time for another attempt, an answer that the destination gave before still counts.
    if (last !== null) course.abandoned.push(last);
    if (last !== null && isEnd(course, last)) break;
  }
  return resultOf(course, now());
}

function isEnd({ plan, abandoned }: Course, { destination, verdict }: Attempted): boolean {
  if (destination.channel === "cache")
    return verdict === "success" && stored(abandoned).length >= plan.copies;
  return verdict === "success" || verdict === "final";
}

/** For an attempt at a destination, whose first request begins the budget. */
function timeoutOf(course: Course, destination: Destination, nowMs: number): number {
  const { limits } = course.plan;
  const isLive = destination.channel === "live";
  if (!isLive) course.startedMs ??= nowMs;
  return Math.min(
    isLive ? limits.live_ack_timeout : limits.request_timeout,
    leftMs(course, destination, nowMs),
  );
}

/**
 * Time left for a destination: of the whole, without the Cache's reserve, and never beyond
 * the envelope's life.
 */
function leftMs({ plan, startedMs }: Course, { channel }: Destination, nowMs: number): number {
  const lifeMs = plan.expiresAtMs - nowMs;
  if (channel === "live" || startedMs === null) return lifeMs;
  const reserveMs =
    channel !== "cache" && plan.caches.length > 0
      ? cacheReserveShare * plan.limits.delivery_budget
      : 0;
  return Math.min(lifeMs, startedMs + plan.limits.delivery_budget - reserveMs - nowMs);
}

/** How long to wait before the same destination is tried again; `null` when it is not. */
function retryWait(
  course: Course,
  { destination, verdict, outcome }: Attempted,
  {
    attemptsHere,
    jitter,
    nowMs,
  }: { readonly attemptsHere: number; readonly jitter: number; readonly nowMs: number },
): number | null {
  const { limits } = course.plan;
  const retryable = verdict === "unreachable" || verdict === "timeout";
  if (!retryable || destination.channel === "live" || outcome.giveUp === true) return null;
  if (attemptsHere >= limits.attempts) return null;
  const waitMs = Math.round(limits.retry_delay * 2 ** (attemptsHere - 1) * (0.5 + jitter));
  return waitMs + 1 < leftMs(course, destination, nowMs) ? waitMs : null;
}

/**
 * An inbox speaks for the recipient, so its 4xx ends the delivery; another Relay or a Cache
 * only for itself.
 */
function verdictOf(channel: Channel, outcome: AttemptOutcome): AttemptVerdict {
  if (outcome.error === "destination_refused") return "refused";
  if (outcome.error === "upstream_timeout" || outcome.error === "not_acknowledged")
    return "timeout";
  const status = outcome.httpStatus;
  if (outcome.error !== null) return "unreachable";
  if (channel === "live" || (status !== null && status >= 200 && status < 300)) return "success";
  if (status === null || status < 400 || status >= 500) return "unreachable";
  if (status === 408 || status === 425 || status === 429) return "unreachable";
  return channel === "inbox" && status !== 404 && status !== 410 ? "final" : "refused";
}

function stored(abandoned: readonly Attempted[]): Attempted[] {
  return abandoned.filter(
    (entry) => entry.destination.channel === "cache" && entry.verdict === "success",
  );
}

function reportAttempt({
  destination,
  outcome,
}: Attempted): NonNullable<DeliveryAnswer["ndr"]>["attempts"][number] {
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

// ----------------------------------------------------------------------------------------- results

function resultOf(course: Course, nowMs: number): DeliveryResult {
  const counts = { retry_count: course.retryCount, cache_attempted: course.cacheAttempted };
  const direct = course.abandoned.find(
    (entry) => entry.verdict === "success" && entry.destination.channel !== "cache",
  );
  if (direct !== undefined) return success(direct.destination.channel, counts, null);
  const [first, ...others] = stored(course.abandoned);
  if (first === undefined) return failed(course, nowMs);
  const receipt = first.outcome.receipt ?? {};
  return success(
    "cache",
    counts,
    course.plan.copies > 1 ? { ...receipt, copies: 1 + others.length } : receipt,
  );
}

const successes = {
  live: ["direct", 200, "delivered", "the recipient acknowledged the envelope"],
  inbox: ["direct", 200, "delivered", "the recipient's inbox accepted the envelope"],
  relay: ["forwarded", 202, "forwarded", "another Relay of the recipient took the envelope"],
  cache: ["cache", 202, "cached", "a Cache of the recipient keeps the envelope"],
} as const satisfies Readonly<Record<Channel, readonly unknown[]>>;

function success(
  channel: Channel,
  counts: Pick<DeliveryResult, "retry_count" | "cache_attempted">,
  cache_result: StoreReceipt | null,
): DeliveryResult {
  const [delivery_mode, http_status, code, message] = successes[channel];
  const details = delivery_mode === "direct" ? { channel } : {};
  return {
    success: true,
    delivery_mode,
    http_status,
    code,
    message,
    ...counts,
    cache_result,
    ndr: null,
    details,
  };
}

/** An earlier delivery gave it to a Cache, which answers this receipt. */
export function heldResult(receipt: StoreReceipt): DeliveryResult {
  return success("cache", { retry_count: 0, cache_attempted: true }, receipt);
}

function failed(course: Course, nowMs: number): DeliveryResult {
  const code = failureCode(course, nowMs);
  const { plan } = course;
  return {
    success: false,
    delivery_mode: "failed",
    http_status: describeFault(code).status,
    code,
    message: isRefusedNow(course, code) ? refusedNow : failureMessages[code],
    retry_count: course.retryCount,
    cache_attempted: course.cacheAttempted,
    cache_result: cacheRefusal(course),
    ndr: {
      message_id: plan.messageId,
      recipient: plan.recipient,
      reason: code,
      final:
        code === "not_deliverable" || code === "service_not_found" || code === "message_expired",
      attempts: course.attempts.map(reportAttempt),
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

const refusedNow = "a Cache of the recipient was reached, and does not take it now";

/** A Cache that answers, such as with a full mailbox, can be reached. */
function isRefusedNow({ abandoned }: Course, code: FailureCode): boolean {
  const caches = abandoned.filter(({ destination }) => destination.channel === "cache");
  const isAnswered = caches.some(({ outcome }) => outcome.httpStatus !== null);
  return code === "cache_unavailable" && isAnswered;
}

/**
 * 422 when all refused or were gone, or the Cache answered 4xx; 504 when the last timed
 * out; else 502.
 */
function failureCode(course: Course, nowMs: number): FailureCode {
  const { plan, abandoned } = course;
  if (plan.direct.length + plan.caches.length === 0) return plan.nowhere;
  if (abandoned.some((entry) => entry.verdict === "final")) return "not_deliverable";
  if (abandoned.length === 0 && plan.expiresAtMs <= nowMs + 1) return "message_expired";
  const caches = abandoned.filter((entry) => entry.destination.channel === "cache");
  const stillOpen = (entries: readonly Attempted[]) =>
    entries.filter((entry) => entry.verdict === "unreachable" || entry.verdict === "timeout");
  const openCaches = stillOpen(caches);
  if (openCaches.length > 0)
    return onlyTimedOut(openCaches) ? "upstream_timeout" : "cache_unavailable";
  if (caches.some((entry) => entry.outcome.httpStatus !== null)) return "not_deliverable";
  const openDirect = stillOpen(abandoned);
  if (openDirect.length === 0) return "not_deliverable";
  return onlyTimedOut(openDirect) ? "upstream_timeout" : "destination_unavailable";
}

function onlyTimedOut(entries: readonly Attempted[]): boolean {
  return entries.every((entry) => entry.verdict === "timeout");
}

/** The answer of the last Cache that was asked. */
function cacheRefusal(course: Course): CacheRefusal | null {
  const entry = course.abandoned.findLast((candidate) => candidate.destination.channel === "cache");
  if (entry === undefined) return null;
  const { outcome } = entry;
  return {
    code: outcome.refusal?.code ?? cacheErrorCode(outcome),
    message: outcome.refusal?.message ?? "the Cache did not accept the envelope",
    http_status: outcome.httpStatus ?? (entry.verdict === "timeout" ? 504 : 502),
  };
}

function cacheErrorCode(outcome: AttemptOutcome): string {
  if (outcome.error === "destination_refused" || outcome.error === "upstream_timeout")
    return outcome.error;
  return "cache_unavailable";
}
