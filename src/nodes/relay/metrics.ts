/**
 * Metrics of the Relay: results by code, attempts by channel and outcome, time of attempts, and what is in
 * flight. Labels come from fixed lists, never from what a sender or a destination says.
 * Source: rules section 9 ("/metrics").
 */
import type { AttemptOutcome, Channel, DeliveryResult } from "../../core/message/delivery.ts";
import type { Metrics } from "../http/metrics.ts";

export type RelayMetrics = {
  readonly result: (result: DeliveryResult) => void;
  readonly attempt: (channel: Channel, outcome: AttemptOutcome) => void;
};

export type RelayReadings = {
  readonly inFlight: () => number;
  readonly outbound: () => { readonly active: number; readonly waiting: number };
  readonly sessions: () => number;
};

export function relayMetrics(metrics: Metrics, readings: RelayReadings): RelayMetrics {
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
  return {
    result: (result) => results.add([result.code, String(result.details["deduped"] === true)]),
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
