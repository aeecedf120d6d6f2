/**
 * The Relay: takes one envelope a request and brings it to where the recipient's document says. It reads
 * the outer members of the envelope and nothing else, admits by the rules that the Cache has too, and
 * answers a DeliveryResult for everything, refusals included.
 * Source: interface "Relay" and "Errors", decisions sections 5 and 10 ("Order of checks on an envelope").
 */

import { type Did, parseDid } from "../../core/codec/did.ts";
import { renderDuration } from "../../core/codec/time.ts";
import { type Fault, type FaultCode, fault, isFault } from "../../core/fault.ts";
import { isLoopbackAddress } from "../../core/message/address.ts";
import { type AdmissionRules, decideAdmission, type SenderFacts } from "../../core/message/admission.ts";
import {
  type DeliveryLimits,
  type DeliveryPlan,
  type DeliveryResult,
  deliveryLimits,
  planDelivery,
} from "../../core/message/delivery.ts";
import {
  appliedTtlMs,
  decideEnvelopeTime,
  decideExpiry,
  decodeEnvelope,
  type Envelope,
  type EnvelopeLimits,
  renderEnvelopeLimits,
} from "../../core/message/envelope.ts";
import {
  decidePayloadSize,
  decidePolicy,
  decideRelay,
  type EffectivePolicy,
  type PolicyFacts,
} from "../../core/message/policy.ts";
import { deliveryResultShape, envelopeShape } from "../../core/schema/messages.ts";
import type { Receipts } from "../../storage/contract.ts";
import type { Log } from "../http/log.ts";
import type { Metrics } from "../http/metrics.ts";
import type { Answer, Call, Operation, Route } from "../http/route.ts";
import type { RecipientSource, Subject } from "../recipients.ts";
import { gatherPolicyFacts } from "../recipients-policy.ts";
import { createRepeats, type Repeats } from "./dedup.ts";
import type { Courier } from "./egress.ts";
import type { Peers } from "./live/live.ts";
import type { LiveSessions } from "./live/sessions.ts";
import { type RelayMetrics, relayMetrics } from "./metrics.ts";
import { createRateLimiter, type RateLimit, type RateLimiter } from "./rate.ts";
import { type CacheDoor, type Carriers, carry } from "./runner.ts";

export type RelayOptions = {
  /** Name of this Relay in `allowed_relays`; `null` stands in no list. */
  readonly publicId: string | null;
  /** URLs by which others reach this Relay: it does not forward to them. */
  readonly publicEndpoints: readonly string[];
  readonly envelope: EnvelopeLimits;
  readonly delivery: DeliveryLimits;
  readonly admission: AdmissionRules;
  readonly clientRate: RateLimit;
  readonly recipientRate: RateLimit;
  /** Clients of this machine are not counted. */
  readonly exemptLoopback: boolean;
  readonly skewMs: number;
};

/** Keys remembered by each limiter: about 10 MB when full. */
export const rateKeysMax = 65_536;

/** The defaults of decisions section 5. */
export const relayDefaults: Pick<RelayOptions, "delivery" | "clientRate" | "recipientRate" | "exemptLoopback"> = {
  delivery: deliveryLimits,
  clientRate: { perSecond: 50, burst: 200, keysMax: rateKeysMax },
  recipientRate: { perSecond: 20, burst: 200, keysMax: rateKeysMax },
  exemptLoopback: false,
};

export type RelayParts = {
  readonly recipients: RecipientSource;
  readonly receipts: Receipts;
  readonly courier: Courier;
  readonly cacheDoor: CacheDoor | null;
  readonly sessions: LiveSessions | null;
  readonly peers: Peers | null;
  readonly options: RelayOptions;
  readonly now: () => number;
  readonly sleep: (ms: number) => Promise<void>;
  readonly random: () => number;
  readonly log: Log;
  readonly metrics: Metrics;
};

export type Relay = {
  readonly routes: readonly Route[];
  /** What this node adds to `/limits`. */
  readonly limits: Readonly<Record<string, number | string>>;
  readonly stats: () => { readonly inFlight: number };
  /** Ends live sessions and outbound requests. */
  readonly close: () => void;
};

type RelayNode = RelayParts & {
  readonly carriers: Carriers;
  readonly repeats: Repeats;
  readonly counts: RelayMetrics;
  readonly clients: RateLimiter;
  readonly addressees: RateLimiter;
  /** Names this process in `Svc-Via`, so that an envelope that comes back is recognised. */
  readonly mark: string;
};

export function createRelay(parts: RelayParts): Relay {
  const { options } = parts;
  const repeats = createRepeats(parts.receipts, parts.log);
  const counts = relayMetrics(parts.metrics, {
    inFlight: () => repeats.inFlight,
    outbound: () => parts.courier.stats(),
    sessions: () => parts.sessions?.stats().sockets ?? 0,
    peers: () => parts.peers?.stats() ?? [],
  });
  const node: RelayNode = {
    ...parts,
    carriers: { ...parts, onAttempt: counts.attempt },
    repeats,
    counts,
    clients: createRateLimiter(options.clientRate),
    addressees: createRateLimiter(options.recipientRate),
    mark: crypto.getRandomValues(new Uint8Array(8)).toHex(),
  };
  return {
    routes: relayRoutes(node),
    limits: renderRelayLimits(options),
    stats: () => ({ inFlight: node.repeats.inFlight }),
    close: () => {
      parts.sessions?.close();
      parts.courier.close();
    },
  };
}

function renderRelayLimits(options: RelayOptions): Record<string, number | string> {
  return {
    ...renderEnvelopeLimits(options.envelope, options.skewMs),
    max_hops: options.delivery.hopsMax,
    max_delivery_time: renderDuration(options.delivery.totalMs + options.delivery.liveAckMs),
    attempts_per_destination: options.delivery.attemptsPerDestination,
    client_rate_per_second: options.clientRate.perSecond,
    client_burst: options.clientRate.burst,
    recipient_rate_per_second: options.recipientRate.perSecond,
    recipient_burst: options.recipientRate.burst,
  };
}

// ----------------------------------------------------------------------------------------------- the routes

async function relay(node: RelayNode, call: Call): Promise<Answer | Fault> {
  const arrival = decodeArrival(node, call);
  if (isFault(arrival)) return arrival;
  const facts = await gatherFacts(node, arrival.envelope);
  const admitted = decideDelivery(node, arrival, { ...facts, nowMs: call.nowMs });
  if (isFault(admitted)) return admitted;
  const result = await deliverOnce(node, admitted, call.nowMs);
  return isFault(result) ? result : renderResult(node, result);
}

function renderResult(node: RelayNode, result: DeliveryResult): Answer {
  node.counts.result(result);
  return { status: result.http_status, json: result };
}

// ---------------------------------------------------------------------------------------------- decode

type Arrival = { readonly envelope: Envelope; readonly hops: number; readonly via: string | null };

/** In this order: size and shape, path, way, time, pace of the recipient. */
function decodeArrival(node: RelayNode, call: Call): Arrival | Fault {
  const { options } = node;
  const named = call.params["did"] === undefined ? null : parseDid(call.params["did"]);
  if (isFault(named)) return named;
  const envelope = decodeEnvelope(call.body, options.envelope);
  if (isFault(envelope)) return envelope;
  if (named !== null && named !== envelope.to)
    return fault("recipient_mismatch", "the path names another recipient than the envelope");
  const way = decodeWay(node, call.headers);
  if (isFault(way)) return way;
  const untimely = decideEnvelopeTime(envelope, call.nowMs, options.envelope);
  if (untimely !== null) return untimely;
  return pace(node.addressees, envelope.to, call.nowMs) ?? { envelope, ...way };
}

/** The rate of the client, asked before the body is read. */
function paceClient(
  node: RelayNode,
  { client, network, nowMs }: Pick<Call, "client" | "network" | "nowMs">,
): Fault | null {
  if (node.options.exemptLoopback && isLoopbackAddress(client)) return null;
  return pace(node.clients, network, nowMs);
}

function pace(limiter: RateLimiter, key: string, nowMs: number): Fault | null {
  const waitMs = limiter.take(key, nowMs);
  if (waitMs === 0) return null;
  return fault("rate_limited", "too many envelopes in a short time", { retryAfterSeconds: Math.ceil(waitMs / 1_000) });
}

const viaForm = /^[0-9a-f]{16}(?:,[0-9a-f]{16}){0,7}$/;

/** How an envelope came here. One that has passed this Relay on its way would wait for itself. */
function decodeWay(node: RelayNode, headers: Headers): { readonly hops: number; readonly via: string | null } | Fault {
  const hops = headers.get("svc-hops") ?? "0";
  if (!/^\d{1,3}$/.test(hops)) return fault("invalid_request", "Svc-Hops must be a small number");
  const given = headers.get("svc-via");
  const via = given !== null && viaForm.test(given) ? given : null;
  if (via?.split(",").includes(node.mark)) return fault("not_deliverable", "the envelope has come back to this Relay");
  return { hops: Number(hops), via };
}

// ---------------------------------------------------------------------------------------------- gather

type Facts = {
  readonly recipient: Subject | null;
  readonly sender: SenderFacts;
  /** `null` when the recipient can't receive anyway, so that nobody asked. */
  readonly policy: PolicyFacts | null;
};

/** Throws `unavailable` when the source can't be asked: nothing is delivered on stale permission. */
async function gatherFacts(node: RelayNode, envelope: Envelope): Promise<Facts> {
  const { recipients } = node;
  const [recipient, sender] = await Promise.all([
    recipients.subject(envelope.to),
    envelope.sender === null ? null : recipients.subject(envelope.sender.from),
  ]);
  const receives = recipient !== null && !recipient.deactivated;
  return { recipient, sender, policy: receives ? await gatherPolicyFacts(recipients, recipient, envelope.tag) : null };
}

// ---------------------------------------------------------------------------------------------- decide

type Admitted = Arrival & {
  readonly recipient: Subject;
  readonly policy: EffectivePolicy;
  readonly expiresAtMs: number;
};

/**
 * 404 `recipient_not_found`, 422 `did_deactivated`, 403 `sender_signature_invalid` or `policy_denied`,
 * 413 `too_large`, 422 `message_expired` under the recipient's policy.
 */
function decideDelivery(
  node: RelayNode,
  arrival: Arrival,
  facts: Facts & { readonly nowMs: number },
): Admitted | Fault {
  const { envelope } = arrival;
  const { options } = node;
  const { recipient } = facts;
  if (recipient === null) return fault("recipient_not_found", "the recipient does not exist");
  if (recipient.deactivated || facts.policy === null) return fault("did_deactivated", "the recipient is deactivated");
  const admission = decideAdmission(envelope, facts.sender, options.admission);
  if (admission !== null) return admission;
  const policy = decidePolicy(facts.policy);
  if (isFault(policy)) return policy;
  const refusal = decideRelay(policy, options.publicId) ?? decidePayloadSize(policy, envelope.payloadBytes);
  if (refusal !== null) return refusal;
  const ttlMs = appliedTtlMs(envelope, options.envelope, policy.ttlMs);
  const expiry = decideExpiry(envelope, ttlMs, facts.nowMs);
  return expiry ?? { ...arrival, recipient, policy, expiresAtMs: envelope.timestampMs + ttlMs };
}

// ---------------------------------------------------------------------------------------------- commit

/** Delivers, or answers what an earlier delivery of the same envelope came to. */
async function deliverOnce(node: RelayNode, admitted: Admitted, nowMs: number): Promise<DeliveryResult | Fault> {
  const { envelope, expiresAtMs, hops, via } = admitted;
  return node.repeats.once({ envelope, expiresAtMs, nowMs }, async () => {
    const leave = await enterSessions(node, envelope.to);
    try {
      const shipment = {
        envelope,
        document: admitted.recipient.document,
        plan: planOf(node, admitted),
        hopsNext: hops + 1,
        viaNext: [...(via?.split(",").slice(-7) ?? []), node.mark].join(","),
      };
      return await carry(node.carriers, shipment);
    } finally {
      leave();
    }
  });
}

async function enterSessions(node: RelayNode, did: Did): Promise<() => void> {
  return node.sessions === null ? () => undefined : node.sessions.enter(did);
}

/** The session is looked for only now: one that joined while this delivery waited for it counts. */
function planOf(node: RelayNode, admitted: Admitted): DeliveryPlan {
  const { envelope, recipient, policy, expiresAtMs, hops } = admitted;
  return planDelivery({
    messageId: envelope.messageId,
    recipient: envelope.to,
    hint: envelope.hint,
    expiresAtMs,
    services: recipient.document?.service ?? [],
    live: node.sessions?.listens(envelope.to) ?? false,
    hops,
    cacheEligible: policy.cacheEligible,
    replication: policy.replication,
    ownEndpoints: node.options.publicEndpoints,
    limits: node.options.delivery,
  });
}

// -------------------------------------------------------------------------------------- descriptions

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
  202: { description: "Forwarded to another Relay, or kept by a Cache.", schema: deliveryResultShape },
};

function relayRoutes(node: RelayNode): Route[] {
  const route = (
    path: string,
    id: string,
    more: { readonly summary: string; readonly codes: readonly FaultCode[] },
  ): Route => ({
    method: "POST",
    path,
    operation: { id, tag: "Relay", request: envelopeShape, headers: ["Svc-Hops", "Svc-Via"], responses, ...more },
    bodyBytesMax: node.options.envelope.bodyBytesMax,
    capacity: "normal",
    faults: "delivery",
    unavailable: "service_unavailable",
    hot: true,
    rateLimit: (request) => paceClient(node, request),
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
