/**
 * Carries out a delivery plan: asks the reducer for the next step, makes the attempt over its channel,
 * tells the reducer how it went. No rule is decided here.
 * Source: decisions section 5.
 */

import { type Fault, isFault } from "../../core/fault.ts";
import type { DidDocument } from "../../core/ledger/document.ts";
import {
  type AttemptOutcome,
  beginDelivery,
  type Channel,
  type DeliveryPlan,
  type DeliveryResult,
  type Destination,
  nextStep,
} from "../../core/message/delivery.ts";
import type { Envelope } from "../../core/message/envelope.ts";
import { withoutTrailingSlashes } from "../../core/message/proof.ts";
import { parseForwardResult, parseRefusal, parseStoreReceipt } from "../../core/message/upstream.ts";
import { StoreError } from "../../storage/contract.ts";
import type { Courier, CourierAnswer } from "./egress.ts";
import type { LiveSessions } from "./live/sessions.ts";

/** The Cache of this process: the same checks as over HTTP, without HTTP. */
export type CacheDoor = {
  readonly endpoints: readonly string[];
  readonly store: (envelope: Envelope, nowMs: number) => Promise<Readonly<Record<string, unknown>> | Fault>;
};

export type Carriers = {
  readonly courier: Courier;
  readonly cacheDoor: CacheDoor | null;
  readonly sessions: LiveSessions | null;
  readonly now: () => number;
  readonly sleep: (ms: number) => Promise<void>;
  /** Uniform in 0..1. */
  readonly random: () => number;
  readonly onAttempt: (channel: Channel, outcome: AttemptOutcome) => void;
};

/** One envelope under way. */
export type Shipment = {
  readonly envelope: Envelope;
  readonly document: DidDocument | null;
  readonly plan: DeliveryPlan;
  /** Values of `Svc-Hops` and `Svc-Via` for the next Relay. */
  readonly hopsNext: number;
  readonly viaNext: string;
};

/** Ends within the bounds of the plan's limits; never throws for what a destination does. */
export async function carry(carriers: Carriers, shipment: Shipment): Promise<DeliveryResult> {
  let turn = beginDelivery(shipment.plan, carriers.now());
  for (;;) {
    const { step, state } = turn;
    if (step.kind === "finished") return step.result;
    if (step.kind === "wait") {
      await carriers.sleep(step.waitMs);
      turn = nextStep(state, { kind: "waited", nowMs: carriers.now() });
      continue;
    }
    const startMs = performance.now();
    const made = await makeAttempt(carriers, shipment, step);
    const outcome = { ...made, durationMs: performance.now() - startMs };
    carriers.onAttempt(step.destination.channel, outcome);
    turn = nextStep(state, { kind: "outcome", outcome, jitter: carriers.random(), nowMs: carriers.now() });
  }
}

type Attempt = { readonly destination: Destination; readonly timeoutMs: number };
type Made = Omit<AttemptOutcome, "durationMs">;

function makeAttempt(carriers: Carriers, shipment: Shipment, attempt: Attempt): Promise<Made> {
  switch (attempt.destination.channel) {
    case "live":
      return deliverLive(carriers, shipment, attempt.timeoutMs);
    case "inbox":
      return deliverToInbox(carriers, shipment, attempt);
    case "relay":
      return forward(carriers, shipment, attempt);
    case "cache":
      return storeInCache(carriers, shipment, attempt);
  }
}

async function deliverLive({ sessions }: Carriers, shipment: Shipment, timeoutMs: number): Promise<Made> {
  const { envelope, document } = shipment;
  const end = await sessions?.deliver({ envelope, document, timeoutMs });
  switch (end) {
    case "acknowledged":
      return { httpStatus: null, error: null };
    case "silent":
      return { httpStatus: null, error: "not_acknowledged" };
    default:
      return { httpStatus: null, error: "destination_unavailable" };
  }
}

function madeOf(answer: CourierAnswer): Made {
  return { httpStatus: answer.httpStatus, error: answer.error, giveUp: answer.giveUp };
}

function hopHeaders(shipment: Shipment): Record<string, string> {
  return { "svc-hops": String(shipment.hopsNext), "svc-via": shipment.viaNext };
}

async function deliverToInbox({ courier }: Carriers, shipment: Shipment, attempt: Attempt): Promise<Made> {
  const answer = await courier.post({
    endpoint: attempt.destination.endpoint ?? "",
    suffix: "",
    body: shipment.envelope.bytes,
    headers: hopHeaders(shipment),
    wantsBody: false,
    timeoutMs: attempt.timeoutMs,
  });
  return madeOf(answer);
}

function isSuccess(answer: CourierAnswer): boolean {
  return answer.error === null && answer.httpStatus !== null && answer.httpStatus >= 200 && answer.httpStatus < 300;
}

/** An answer of success that does not say what it should is no success, and asking again would not help. */
function invalid(answer: CourierAnswer): Made {
  return { httpStatus: answer.httpStatus, error: "invalid_answer", giveUp: true };
}

async function forward({ courier }: Carriers, shipment: Shipment, attempt: Attempt): Promise<Made> {
  const answer = await courier.post({
    endpoint: attempt.destination.endpoint ?? "",
    suffix: `/relay/${encodeURIComponent(shipment.envelope.to)}`,
    body: shipment.envelope.bytes,
    headers: hopHeaders(shipment),
    wantsBody: true,
    timeoutMs: attempt.timeoutMs,
  });
  if (!isSuccess(answer) || answer.body === null) return madeOf(answer);
  const downstream = parseForwardResult(answer.body);
  return downstream === null ? invalid(answer) : { ...madeOf(answer), downstream };
}

async function storeInCache(carriers: Carriers, shipment: Shipment, attempt: Attempt): Promise<Made> {
  const { envelope } = shipment;
  const endpoint = attempt.destination.endpoint ?? "";
  const door = carriers.cacheDoor;
  const own = door?.endpoints.some((known) => withoutTrailingSlashes(known) === withoutTrailingSlashes(endpoint));
  if (door !== null && own === true) return storeThroughDoor(door, envelope, carriers.now());
  const answer = await carriers.courier.post({
    endpoint,
    suffix: "/cache/store",
    body: envelope.bytes,
    wantsBody: true,
    timeoutMs: attempt.timeoutMs,
  });
  if (answer.body === null) return madeOf(answer);
  if (isSuccess(answer)) {
    const receipt = parseStoreReceipt(answer.body, { messageId: envelope.messageId, recipient: envelope.to });
    return receipt === null ? invalid(answer) : { ...madeOf(answer), receipt };
  }
  const refusal = parseRefusal(answer.body);
  return refusal === null ? madeOf(answer) : { ...madeOf(answer), refusal };
}

/** A store that fails is a Cache that is not available: other Caches may still take the envelope. */
async function storeThroughDoor(door: CacheDoor, envelope: Envelope, nowMs: number): Promise<Made> {
  try {
    const receipt = await door.store(envelope, nowMs);
    if (!isFault(receipt)) return { httpStatus: 202, error: null, receipt };
    return { httpStatus: receipt.status, error: null, refusal: { code: receipt.code, message: receipt.detail } };
  } catch (error) {
    if (!(error instanceof StoreError)) throw error;
    const code = error.code === "full" ? "storage_full" : "service_unavailable";
    return {
      httpStatus: error.code === "full" ? 507 : 503,
      error: null,
      refusal: { code, message: "the store of the Cache does not take it at the moment" },
    };
  }
}
