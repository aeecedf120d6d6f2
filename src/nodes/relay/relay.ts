/**
 * The Relay: accepts one envelope per request and delivers it as the recipient's document lists. It
 * reads the outer members of the envelope and nothing else, admits by the rules that the Cache has too, and
 * answers a DeliveryResult for everything, refusals included.
 * Source: interface "Relay" and "Errors", rules sections 5 and 10 ("Order of checks on an envelope").
 */
import type { Config } from "../../config/schema.ts";
import { parseDid } from "../../core/codec/did.ts";
import { renderDuration } from "../../core/codec/time.ts";
import { type Fault, type FaultCode, fault, isFault } from "../../core/fault.ts";
import { storingNetwork } from "../../core/message/address.ts";
import {
  type AttemptOutcome,
  type Channel,
  type DeliveryPlan,
  hopsMax,
  planDelivery,
} from "../../core/message/delivery.ts";
import {
  checkEnvelopeTime,
  decodeEnvelope,
  type Envelope,
  type EnvelopeLimits,
  renderEnvelopeLimits,
} from "../../core/message/envelope.ts";
import { checkRelay } from "../../core/message/policy.ts";
import { deliveryResultShape, envelopeShape, signedSending } from "../../core/schema/messages.ts";
import type { Receipts } from "../../storage/contract.ts";
import { type AdmissionFacts, type AdmissionRules, decideAdmission, type FactsSource, factsOf } from "../admission.ts";
import type { Log } from "../http/log.ts";
import { type CounterSeries, type HistogramSeries, type Metrics, observe } from "../http/metrics.ts";
import type { Answer, Call, Operation, Route } from "../http/route.ts";
import type { Blocks } from "../operations/blocks.ts";
import { checkClientRate, checkRate, createRateLimiter, limitOf, type RateLimiter } from "../rates.ts";
import type { RecipientSource } from "../recipients.ts";
import {
  abandonTurn,
  beginTurn,
  type Dedup,
  type Delivered,
  type DeliveryParts,
  endTurn,
  type LocalCache,
  onlyLocalCache,
  type Relayed,
  recallDelivery,
  recordedOutcome,
  remember,
  runDelivery,
  type Turn,
} from "./delivery.ts";
import type { Egress } from "./egress.ts";
import type { LiveOutcome } from "./live/registry.ts";
import type { LiveSessions } from "./live/session.ts";

type RelayParts = {
  readonly recipients: RecipientSource;
  readonly receipts: Receipts;
  readonly egress: Egress;
  readonly localCache: LocalCache | null;
  readonly sessions: LiveSessions | null;
  readonly settings: Config["relay"];
  readonly limits: EnvelopeLimits;
  /** The operator's block list. */
  readonly blocks?: Blocks;
  readonly now: () => number;
  readonly sleep: (ms: number) => Promise<void>;
  readonly random: () => number;
  readonly log: Log;
  readonly metrics: Metrics;
  /** Tests give one. */
  readonly id?: string;
};

function createRelayId(): string {
  return crypto.getRandomValues(new Uint8Array(8)).toHex();
}

export type Relay = {
  readonly routes: readonly Route[];
  /** What this node adds to `/limits`. */
  readonly limits: () => Readonly<Record<string, number | string>>;
  readonly stats: () => { readonly inFlight: number };
  /** Ends live sessions and outbound requests. */
  readonly close: () => void;
};

type RelayNode = RelayParts & {
  readonly delivery: DeliveryParts;
  readonly dedup: Dedup;
  readonly counts: RelayMetrics;
  readonly clientRate: RateLimiter;
  readonly recipientRate: RateLimiter;
  readonly resultRate: RateLimiter;
  readonly facts: FactsSource;
  readonly rules: AdmissionRules;
  /** Names this process in `Svc-Via`, so that an envelope that comes back is recognized. */
  readonly id: string;
};

export function createRelay(parts: RelayParts): Relay {
  const { settings, limits } = parts;
  const { receipts, log } = parts;
  const dedup: Dedup = { receipts, log, inFlight: new Map(), remembering: 0 };
  const counts = relayMetrics(parts.metrics, {
    inFlight: () => dedup.inFlight.size,
    outbound: () => parts.egress.stats(),
    sessions: () => parts.sessions?.stats().sockets ?? 0,
  });
  const facts = factsOf(parts.recipients);
  const id = parts.id ?? createRelayId();
  const node: RelayNode = {
    ...parts,
    delivery: { ...parts, id, sharesAdmission: parts.localCache?.facts === facts, onAttempt: counts.attempt },
    dedup,
    counts,
    clientRate: createRateLimiter(limitOf(settings, "client_rate", "client_burst")),
    recipientRate: createRateLimiter(limitOf(settings, "recipient_rate", "recipient_burst")),
    resultRate: createRateLimiter(limitOf(settings, "results_rate", "results_burst")),
    facts,
    rules: {
      operator: settings,
      blocks: parts.blocks,
      limits,
      checkPolicy: (policy) => checkRelay(policy, settings.public_id),
    },
    id,
  };
  parts.sessions?.follow(dedup.inFlight);
  return {
    routes: relayRoutes(node),
    limits: () => renderRelayLimits(settings, limits),
    stats: () => ({ inFlight: dedup.inFlight.size }),
    close: () => {
      parts.sessions?.close();
      parts.egress.close();
    },
  };
}

function renderRelayLimits(settings: Config["relay"], limits: EnvelopeLimits): Record<string, number | string> {
  return {
    ...renderEnvelopeLimits(limits),
    max_hops: hopsMax,
    max_delivery_time: renderDuration(settings.delivery_budget + settings.live_ack_timeout),
    attempts_per_destination: settings.attempts,
    client_rate_per_second: settings.client_rate,
    client_burst: settings.client_burst,
    recipient_rate_per_second: settings.recipient_rate,
    recipient_burst: settings.recipient_burst,
  };
}

function relay(node: RelayNode, call: Call): Promise<Answer | Fault> | Fault {
  call.trace?.stage("decode");
  const arrival = decodeArrival(node, call);
  if (isFault(arrival)) return arrival;
  call.trace?.stage("gather");
  const facts = node.facts(arrival.envelope);
  if (facts instanceof Promise) return facts.then((gathered) => admit(node, arrival, gathered, call));
  return admit(node, arrival, facts, call);
}

function admit(node: RelayNode, arrival: Arrival, facts: AdmissionFacts, call: Call): Promise<Answer | Fault> | Fault {
  call.trace?.stage("decide");
  const admission = decideAdmission(arrival.envelope, facts, node.rules, call.nowMs);
  if (isFault(admission)) return admission;
  call.trace?.stage("commit");
  const { envelope, hops, via } = arrival;
  return deliverOnce(node, { envelope, hops, via, admission, call });
}

/** One delivery for all requests of one message that are in flight together. */
async function deliverOnce(node: RelayNode, relayed: Relayed): Promise<Answer | Fault> {
  const { dedup } = node;
  const turn = beginTurn(dedup, relayed.envelope);
  if (turn instanceof Promise) return answerOf(node, relayed.call, await turn);
  let outcome: Delivered | Fault;
  try {
    const known = recordedOutcome(await dedup.receipts.get(turn.key, relayed.call.nowMs), turn);
    outcome = known ?? (await deliver(node, relayed, turn));
  } catch (error) {
    abandonTurn(dedup, turn, error);
    throw error;
  }
  const unwritten = endTurn(dedup, turn, outcome);
  if (unwritten !== null) await remember(dedup, turn, unwritten, rememberedUntilMs(node, relayed));
  return answerOf(node, relayed.call, outcome);
}

function answerOf({ counts }: RelayNode, { trace }: Relayed["call"], outcome: Delivered | Fault): Answer | Fault {
  if (isFault(outcome)) return outcome;
  trace?.stage("render");
  counts.result(outcome);
  return { status: outcome.status, jsonText: outcome.text };
}

// ---------------------------------------------------------------------------------------------- decode

type Arrival = { readonly envelope: Envelope; readonly hops: number; readonly via: string | null };

/** In this order: size and shape, path, way, time, rate of the recipient. */
function decodeArrival(node: RelayNode, call: Call): Arrival | Fault {
  const named = call.params["did"] === undefined ? null : parseDid(call.params["did"]);
  if (isFault(named)) return named;
  const envelope = decodeEnvelope(call.body, node.limits);
  if (isFault(envelope)) return envelope;
  if (named !== null && named !== envelope.to)
    return fault("recipient_mismatch", "the recipient in the path differs from the one in the envelope");
  const way = decodeWay(node, call.headers);
  if (isFault(way)) return way;
  const untimely =
    checkEnvelopeTime(envelope, call.nowMs, node.limits) ?? checkRate(node.recipientRate, envelope.to, call.nowMs);
  return untimely ?? { envelope, hops: way.hops, via: way.via };
}

type Way = Pick<Arrival, "hops" | "via">;
const firstWay: Way = { hops: 0, via: null };
const viaForm = /^[0-9a-f]{16}(?:,[0-9a-f]{16}){0,7}$/;

/** How an envelope came here. One that has passed this Relay before would wait for itself. */
function decodeWay(node: RelayNode, headers: Headers): Way | Fault {
  const hops = headers.get("svc-hops");
  const given = headers.get("svc-via");
  if (hops === null && given === null) return firstWay;
  if (hops !== null && !/^\d{1,3}$/.test(hops))
    return fault("invalid_request", "Svc-Hops must be a number of at most three digits");
  const via = given !== null && viaForm.test(given) ? given : null;
  if (via?.split(",").includes(node.id)) return fault("not_deliverable", "the envelope has come back to this Relay");
  return { hops: Number(hops ?? 0), via };
}

// ---------------------------------------------------------------------------------------------- commit

/** What a mailbox remembers of the SHA-256: nobody finds a second envelope with the same 128 bits. */
const digestDigits = 32;

/** A delivery begins when no session of the recipient is joining: those that join later wait for it. */
function deliver(node: RelayNode, relayed: Relayed, turn: Turn): Promise<Delivered | Fault> {
  const joins = node.sessions?.joinsEnding(relayed.envelope.to) ?? null;
  return joins === null ? begin(node, relayed, turn) : joins.then(() => begin(node, relayed, turn));
}

function begin(node: RelayNode, relayed: Relayed, turn: Turn): Promise<Delivered | Fault> {
  turn.delaysJoins = true;
  const digest = turn.digest.slice(0, digestDigits);
  if (!mayGoElsewhere(node, relayed.envelope)) {
    const plan = planOf(node, relayed, "gone");
    const only = onlyLocalCache(node.localCache, plan);
    // Its mailbox recognizes a repeat by itself.
    if (only !== null) return runDelivery(node.delivery, { relayed, digest, plan, elsewhere: "gone" }, only);
  }
  return deliverElsewhereToo(node, relayed, digest);
}

/** No other destination gets what the Cache of this process has got. */
async function deliverElsewhereToo(node: RelayNode, relayed: Relayed, digest: string): Promise<Delivered | Fault> {
  const known = await recallDelivery(node, { relayed, digest });
  if (known !== null) return known;
  const elsewhere = await deliverElsewhere(node, relayed);
  return runDelivery(node.delivery, { relayed, digest, plan: planOf(node, relayed, elsewhere), elsewhere });
}

/** A network that sends without end must not fill the store with results: those beyond its pace are forgotten soon. */
function rememberedUntilMs({ resultRate, settings }: RelayNode, { call, admission: { expiresAtMs } }: Relayed): number {
  const { client, network, nowMs } = call;
  const asked = { client, network: storingNetwork(network), nowMs };
  const isBeyond = checkClientRate(resultRate, asked, settings) !== null;
  return isBeyond ? Math.min(expiresAtMs, nowMs + settings.results_life_beyond) : expiresAtMs;
}

/** Whether sessions of other processes are asked: when none listens here. */
function mayGoElsewhere({ sessions }: RelayNode, { to, hint }: Envelope): boolean {
  return sessions !== null && hint !== "cache" && !sessions.listens(to) && sessions.mayListenElsewhere(to);
}

/** When no session listens here, one round trip finds out whether one does in another process. */
async function deliverElsewhere(node: RelayNode, { envelope, admission }: Relayed): Promise<LiveOutcome> {
  if (!mayGoElsewhere(node, envelope)) return "gone";
  const { document } = admission.recipient;
  const request = { envelope, document, timeoutMs: node.settings.live_ack_timeout };
  return (await node.sessions?.deliverElsewhere(request)) ?? "gone";
}

/** Sessions are counted only now: one that joined while this delivery waited for it counts. */
function planOf(node: RelayNode, { envelope, hops, admission }: Relayed, elsewhere: LiveOutcome): DeliveryPlan {
  const { recipient, policy, expiresAtMs } = admission;
  return planDelivery({
    messageId: envelope.messageId,
    recipient: envelope.to,
    hint: envelope.hint,
    expiresAtMs,
    services: recipient.document?.service ?? [],
    live: elsewhere !== "gone" || (node.sessions?.listens(envelope.to) ?? false),
    hops,
    cacheEligible: policy.cacheEligible,
    replication: policy.replication,
    ownEndpoints: node.settings.public_endpoints,
    limits: node.settings,
  });
}

// ---------------------------------------------------------------------------------------------- routes

const codes: readonly FaultCode[] = [
  "invalid_json",
  "invalid_request",
  "envelope_invalid",
  "sender_signature_invalid",
  "policy_denied",
  "recipient_not_found",
  "service_not_found",
  "unsupported_media_type",
  "duplicate_conflict",
  "too_large",
  "message_expired",
  "not_deliverable",
  "did_deactivated",
  "rate_limited",
  "destination_unavailable",
  "cache_unavailable",
  "service_unavailable",
  "upstream_timeout",
];

const responses: Operation["responses"] = {
  200: { description: "Delivered to a live session or an inbox.", schema: deliveryResultShape },
  202: { description: "Forwarded to another Relay, or stored by a Cache.", schema: deliveryResultShape },
};

function relayRoutes(node: RelayNode): Route[] {
  const route = (
    path: string,
    id: string,
    more: { readonly summary: string; readonly codes: readonly FaultCode[] },
  ): Route => ({
    method: "POST",
    path,
    operation: {
      id,
      tag: "Relay",
      request: envelopeShape,
      signed: signedSending,
      headers: ["Svc-Hops", "Svc-Via"],
      responses,
      ...more,
    },
    get bodyBytesMax() {
      return node.limits.body_bytes_max;
    },
    capacity: "normal",
    hot: true,
    faults: "delivery",
    unavailable: "service_unavailable",
    rateLimit: (request) =>
      node.blocks?.checkClient(request.client) ?? checkClientRate(node.clientRate, request, node.settings),
    handle: (call) => relay(node, call),
  });
  return [
    route("/relay", "relay", { summary: "Deliver an envelope to the recipient that it names", codes }),
    route("/relay/:did", "relayTo", {
      summary: "The same, bound to the recipient in the path",
      codes: [...codes, "invalid_did", "recipient_mismatch"],
    }),
  ];
}

// ---------------------------------------------------------------------------------------------------- metrics

type RelayMetrics = {
  readonly result: (delivered: Delivered) => void;
  readonly attempt: (channel: Channel, outcome: AttemptOutcome) => void;
};

type RelayReadings = {
  readonly inFlight: () => number;
  readonly outbound: () => { readonly active: number; readonly waiting: number };
  readonly sessions: () => number;
};

/** Labels come from fixed lists, never from a sender or a destination. */
function relayMetrics(metrics: Metrics, readings: RelayReadings): RelayMetrics {
  const results = metrics.counter({
    name: "relay_results_total",
    help: "Delivery results by code; deduped ones repeat an earlier result.",
    labels: ["code", "deduped"],
  });
  const attempts = metrics.counter({
    name: "relay_attempts_total",
    help: "Attempts to reach a destination, by channel and by status class or error.",
    labels: ["channel", "outcome"],
  });
  const seconds = metrics.histogram(
    { name: "relay_attempt_seconds", help: "Time of one attempt.", labels: ["channel"] },
    [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10],
  );
  metrics.gauge({ name: "relay_deliveries_in_flight", help: "Deliveries in flight." }, readings.inFlight);
  metrics.gauge(
    { name: "relay_outbound_active", help: "Outbound requests in flight." },
    () => readings.outbound().active,
  );
  metrics.gauge(
    { name: "relay_outbound_waiting", help: "Outbound requests that wait for a slot." },
    () => readings.outbound().waiting,
  );
  metrics.gauge({ name: "relay_live_sockets", help: "Open live sessions, proven or not." }, readings.sessions);
  // What most envelopes count is looked up once.
  let cached: CounterSeries | null = null;
  let stored: { readonly attempts: CounterSeries; readonly seconds: HistogramSeries } | null = null;
  return {
    result: ({ code, deduped }) => {
      if (code !== "cached" || deduped) return results.add([code, String(deduped)]);
      cached ??= results.series([code, "false"]);
      cached.value += 1;
    },
    attempt: (channel, outcome) => {
      if (channel === "cache" && outcome.httpStatus === 202 && outcome.error === null) {
        stored ??= { attempts: attempts.series([channel, "2xx"]), seconds: seconds.series([channel]) };
        stored.attempts.value += 1;
        observe(stored.seconds, outcome.durationMs / 1_000);
        return;
      }
      attempts.add([channel, outcomeLabel(outcome)]);
      seconds.observe([channel], outcome.durationMs / 1_000);
    },
  };
}

function outcomeLabel(outcome: AttemptOutcome): string {
  if (outcome.error !== null) return outcome.error;
  return outcome.httpStatus === null ? "acknowledged" : `${Math.floor(outcome.httpStatus / 100)}xx`;
}
