/**
 * The Relay: accepts one envelope per request and delivers it as the recipient's document
 * lists. It reads the outer members of the envelope and nothing else, admits by the rules
 * that the Cache has too, and answers a DeliveryResult for everything, refusals included.
 * Source: interface "Relay" and "Errors", rules sections 2 ("Order of checks on an
 * envelope") and 5.
 */

import type { Config } from "../../config/schema.ts";
import type { VerifySignature } from "../../core/codec/bytes.ts";
import { parseDid } from "../../core/codec/did.ts";
import { renderDuration } from "../../core/codec/time.ts";
import { type Fault, type FaultCode, fault, isFault } from "../../core/fault.ts";
import { storingNetwork } from "../../core/message/address.ts";
import type { AttemptOutcome, DeliveryResult } from "../../core/message/delivery.ts";
import {
  checkEnvelopeTime,
  decodeEnvelope,
  type EnvelopeLimits,
  renderEnvelopeLimits,
} from "../../core/message/envelope.ts";
import { type Channel, type DeliveryPlan, hopsMax, planDelivery } from "../../core/message/plan.ts";
import { checkRelay } from "../../core/message/policy.ts";
import { deliveryResultShape, envelopeShape } from "../../core/schema/messages.ts";
import type { Receipts } from "../../storage/contract.ts";
import type { Egress } from "../egress/egress.ts";
import type { Log } from "../http/log.ts";
import type { Metrics } from "../http/metrics.ts";
import type { Answer, Call, Route } from "../http/route.ts";
import {
  type AdmissionRules,
  decideAdmission,
  gatherFacts,
  senderHomeHeader,
} from "../parties/admission.ts";
import { authorOf } from "../parties/author.ts";
import type { Blocks } from "../parties/blocks.ts";
import {
  chargeBody,
  checkClientRate,
  checkRate,
  createRateLimiter,
  limitOf,
  type RateLimiter,
} from "../parties/rates.ts";
import type { RecipientSource } from "../parties/recipients.ts";
import type { Tiers } from "../parties/tiers.ts";
import { type Dedup, deliverOnce } from "./dedup.ts";
import {
  type DeliveredResult,
  type DeliveryParts,
  deliverBy,
  type LocalCache,
  type Relayed,
} from "./delivery.ts";
import type { LiveSessions } from "./live/session.ts";

type RelayParts = {
  readonly recipients: RecipientSource;
  readonly verify: VerifySignature;
  readonly receipts: Receipts;
  readonly egress: Egress;
  readonly localCache: LocalCache | null;
  readonly sessions: LiveSessions;
  readonly settings: Config["relay"];
  readonly limits: EnvelopeLimits;
  /** The operator's block list. */
  readonly blocks?: Blocks;
  /** Of members; without it all have the rate of the settings. */
  readonly tiers?: Pick<Tiers, "rateOf">;
  readonly now: () => number;
  readonly sleep: (ms: number) => Promise<void>;
  readonly random: () => number;
  readonly log: Log;
  readonly metrics: Metrics;
};

export type Relay = {
  readonly routes: readonly Route[];
  /** What this node adds to `/limits`. */
  readonly limits: () => Readonly<Record<string, number | string>>;
  readonly stats: () => { readonly inFlight: number };
  /** As `Egress` says. */
  readonly refuses: Egress["refuses"];
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
  readonly rules: AdmissionRules;
};

export function createRelay(parts: RelayParts): Relay {
  const { settings, limits } = parts;
  const { receipts, log, sessions } = parts;
  const dedup: Dedup = { receipts, log, inFlight: sessions.inFlight };
  const counts = relayMetrics(parts, dedup);
  const node: RelayNode = {
    ...parts,
    delivery: { ...parts, mayAsk: pacedByHost(settings, parts.now), onAttempt: counts.attempt },
    dedup,
    counts,
    clientRate: createRateLimiter(limitOf(settings, "client_rate", "client_burst")),
    recipientRate: createRateLimiter(limitOf(settings, "recipient_rate", "recipient_burst")),
    resultRate: createRateLimiter(limitOf(settings, "results_rate", "results_burst")),
    rules: {
      operator: settings,
      blocks: parts.blocks,
      limits,
      servesOwnSenders: true,
      checkPolicy: (policy) => checkRelay(policy, settings.public_id),
    },
  };
  return {
    routes: relayRoutes(node),
    limits: () => renderRelayLimits(settings, limits),
    stats: () => ({ inFlight: dedup.inFlight.size }),
    refuses: parts.egress.refuses,
    close: () => {
      sessions.close();
      parts.egress.close();
    },
  };
}

/**
 * A client network makes the Relay send no more requests to a host than it may send
 * envelopes itself.
 */
function pacedByHost(settings: Config["relay"], now: () => number): DeliveryParts["mayAsk"] {
  const limiter = createRateLimiter(limitOf(settings, "client_rate", "client_burst"));
  return ({ client, network }, host) =>
    checkClientRate(limiter, { client, network: `${network} ${host}`, nowMs: now() }, settings) ===
    null;
}

function renderRelayLimits(
  settings: Config["relay"],
  limits: EnvelopeLimits,
): Record<string, number | string> {
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

async function relay(node: RelayNode, call: Call): Promise<Answer | Fault> {
  chargeBody(node.clientRate, call, node.settings);
  const received = decodeReceived(node, call);
  if (isFault(received)) return received;
  const { envelope } = received;
  const asked = { home: call.headers.get(senderHomeHeader), network: call.network };
  const facts = await gatherFacts(node, envelope, asked);
  const admission = decideAdmission(envelope, facts, node.rules, call.nowMs);
  if (isFault(admission)) return admission;
  // What is refused costs the recipient nothing, and no network uses up what others may send.
  const rate = node.tiers?.rateOf(envelope.to) ?? node.recipientRate;
  const tooFast = checkRate(rate, `${envelope.to} ${call.network}`, call.nowMs);
  if (tooFast !== null) return tooFast;
  // A session that never acknowledges must not keep the places of other requests.
  if (node.sessions.mayListen(envelope.to) && !call.waitsForOthers()) return tooManyWaiting;
  const relayed = { ...received, admission, facts, call };
  const outcome = await deliverOnce(node.dedup, {
    ...received,
    author: authorOf(envelope, admission.sender),
    nowMs: call.nowMs,
    untilMs: () => rememberedUntilMs(node, relayed),
    deliver: (begun) => deliver(node, relayed, begun),
  });
  if (isFault(outcome)) return outcome;
  node.counts.result(outcome);
  return { status: outcome.http_status, json: outcome };
}

const tooManyWaiting = fault(
  "service_unavailable",
  "too many deliveries of this network wait for live sessions",
  {
    retryAfterSeconds: 1,
  },
);

// ------------------------------------------------------------------------------------------ decode

type ReceivedEnvelope = Pick<Relayed, "envelope" | "hops">;

/** In this order: size and shape, path, hops, time. */
function decodeReceived(node: RelayNode, call: Call): ReceivedEnvelope | Fault {
  const named = call.params["did"] === undefined ? null : parseDid(call.params["did"]);
  if (isFault(named)) return named;
  const envelope = decodeEnvelope(call.body, node.limits);
  if (isFault(envelope)) return envelope;
  call.concerns(envelope);
  if (named !== null && named !== envelope.to)
    return fault(
      "recipient_mismatch",
      "the recipient in the path differs from the one in the envelope",
    );
  const hops = call.headers.get("svc-hops") ?? "0";
  if (!/^\d{1,3}$/.test(hops))
    return fault("invalid_request", "Svc-Hops must be a number of at most three digits");
  return checkEnvelopeTime(envelope, call.nowMs, node.limits) ?? { envelope, hops: Number(hops) };
}

// ------------------------------------------------------------------------------------------ commit

type Admitted = Omit<Relayed, "begun">;

/** A session that joins too late waits until the sessions were tried or ruled out. */
function deliver(
  node: RelayNode,
  relayed: Admitted,
  begun: () => void,
): Promise<DeliveredResult | Fault> {
  const plan = planOf(node, relayed);
  if (plan.direct[0]?.channel !== "live") begun();
  return deliverBy(node.delivery, { ...relayed, begun }, plan);
}

/**
 * A network that sends without end must not fill the store with results: those beyond its
 * pace are forgotten soon.
 */
function rememberedUntilMs(
  { resultRate, settings }: RelayNode,
  { call, admission: { expiresAtMs } }: Admitted,
): number {
  const { client, network, nowMs } = call;
  const isBeyond =
    checkClientRate(resultRate, { client, network: storingNetwork(network), nowMs }, settings) !==
    null;
  return isBeyond ? Math.min(expiresAtMs, nowMs + settings.results_life_beyond) : expiresAtMs;
}

function planOf(
  { sessions, settings }: RelayNode,
  { envelope, hops, admission }: Admitted,
): DeliveryPlan {
  const { recipient, policy, expiresAtMs } = admission;
  return planDelivery({
    messageId: envelope.messageId,
    recipient: envelope.to,
    hint: envelope.hint,
    expiresAtMs,
    services: recipient.document?.service ?? [],
    live: sessions.mayListen(envelope.to),
    hops,
    cacheEligible: policy.cacheEligible,
    replication: policy.replication,
    ownEndpoints: settings.public_endpoints,
    limits: settings,
  });
}

// ------------------------------------------------------------------------------------------ routes

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

function relayRoutes(node: RelayNode): Route[] {
  const route = (path: string, id: string, more: Pick<Route, "summary" | "codes">): Route => ({
    ...more,
    method: "POST",
    path,
    id,
    tag: "Relay",
    request: envelopeShape,
    headers: ["Svc-Hops", "Svc-Sender-Home", "Svc-Pass", "Urgency"],
    answer: [200, "Delivered to a live session or an inbox.", deliveryResultShape],
    also: [202, "Forwarded to another Relay, or stored by a Cache.", deliveryResultShape],
    capacity: "normal",
    faults: "delivery",
    bodyBytesMax: node.limits.body_bytes_max,
    rateLimit: (request) =>
      node.blocks?.checkClient(request.client) ??
      checkClientRate(node.clientRate, request, node.settings),
    handle: (call) => relay(node, call),
  });
  return [
    route("/relay", "relay", {
      summary: "Deliver an envelope to the recipient that it names",
      codes,
    }),
    route("/relay/:did", "relayTo", {
      summary: "The same, bound to the recipient in the path",
      codes: [...codes, "invalid_did", "recipient_mismatch"],
    }),
  ];
}

// ----------------------------------------------------------------------------------------- metrics

type RelayMetrics = {
  readonly result: (result: DeliveryResult) => void;
  readonly attempt: (channel: Channel, outcome: AttemptOutcome) => void;
};

const successCodes: readonly DeliveryResult["code"][] = ["delivered", "forwarded", "cached"];

/** Labels come from fixed lists, never from a sender or a destination. */
function relayMetrics(
  { metrics, egress, sessions }: RelayParts,
  { inFlight }: Dedup,
): RelayMetrics {
  const results = metrics.counter({
    name: "relay_results_total",
    help: "Delivery results by code; deduped ones repeat an earlier result.",
    labels: ["code", "deduped"],
    start: [...successCodes, ...codes].map((code) => [code, "false"]),
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
  const gauge = (name: string, help: string, read: () => number) =>
    metrics.gauge({ name, help }, read);
  gauge("relay_deliveries_in_flight", "Deliveries in flight.", () => inFlight.size);
  gauge("relay_outbound_active", "Outbound requests in flight.", () => egress.stats().active);
  gauge(
    "relay_outbound_waiting",
    "Outbound requests that wait for a slot.",
    () => egress.stats().waiting,
  );
  gauge("relay_live_sockets", "Open live sessions, proven or not.", () => sessions.stats().sockets);
  return {
    result: ({ code, details }) => results.add([code, String(details["deduped"] === true)]),
    attempt: (channel, outcome) => {
      attempts.add([channel, outcomeLabel(outcome)]);
      seconds.observe([channel], outcome.durationMs / 1_000);
    },
  };
}

function outcomeLabel(outcome: AttemptOutcome): string {
  if (outcome.error !== null) return outcome.error;
  return outcome.httpStatus === null ? "acknowledged" : `${Math.floor(outcome.httpStatus / 100)}xx`;
}
