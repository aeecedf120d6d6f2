/**
 * What the process measures besides its requests: itself, its stores, its ledgers and its disks. Names follow
 * the conventions of Prometheus: base units, `_total` for counters, one meaning for each name.
 */
import type { Config } from "../config/schema.ts";
import { late, withDeadline } from "../core/std/deadline.ts";
import type { App } from "../nodes/http/app.ts";
import type { GaugeReading, Metrics } from "../nodes/http/metrics.ts";
import type { OpenStores } from "../storage/bind.ts";
import type { Store } from "../storage/contract.ts";
import { version } from "../version.ts";
import { freeBytesOf } from "./dashboard.ts";

type ProcessParts = { readonly startedAtMs: number; readonly loopLagSeconds: () => number };

export function registerProcessMetrics(metrics: Metrics, { startedAtMs, loopLagSeconds }: ProcessParts): void {
  const gauge = (name: string, help: string, read: () => number): void => metrics.gauge({ name, help }, read);
  metrics.gauge({ name: "build_info", help: "1, with the version as a label.", labels: ["version"] }, () => [
    [[version], 1],
  ]);
  gauge("process_start_time_seconds", "Start of the process, as Unix time.", () => startedAtMs / 1_000);
  gauge("process_resident_memory_bytes", "Resident memory.", () => process.memoryUsage.rss());
  gauge("process_cpu_seconds", "Processor time used since the start.", () => {
    const { user, system } = process.cpuUsage();
    return (user + system) / 1e6;
  });
  metrics.gauge(loopLagFamily, loopLagSeconds);
}

export const loopLagFamily = {
  name: "event_loop_lag_seconds",
  help: "Largest delay of an event loop in the last ten seconds.",
  merge: "max",
} as const;

export function registerHttpGauges(metrics: Metrics, app: App): void {
  // What all threads count together is the same in each; refusals are delayed by each for itself.
  const gauge = (name: string, help: string, read: () => number): void =>
    metrics.gauge({ name, help, merge: "max" }, read);
  gauge("http_requests_in_flight", "Requests being worked on.", () => app.inFlight().requests);
  gauge("http_requests_reading", "Requests whose bodies are still arriving.", () => app.inFlight().reading);
  gauge("http_body_bytes_in_flight", "Request bodies in memory.", () => app.inFlight().bodyBytes);
  gauge("http_answer_bytes_waiting", "Long answers that clients have not taken yet.", () => app.waitingAnswerBytes());
  metrics.gauge(
    { name: "http_refusals_delayed", help: "Refusals over capacity being delayed." },
    () => app.inFlight().delayedRefusals,
  );
}

type StoreParts = { readonly config: Config; readonly stores: OpenStores; readonly now: () => number };

/** A store that does not answer in time has no value: a scrape never waits for one. */
const readingDeadlineMs = 2_000;

export function registerStoreMetrics(metrics: Metrics, { config, stores, now }: StoreParts): void {
  const all = [...stores.stores];
  const gauge = (name: string, help: string, read: (store: Store, name: string) => Promise<number | null>): void =>
    metrics.gauge({ name, help, labels: ["store"] }, () => readingsOf(all, read));
  gauge("mailbox_entries", "Entries held.", async (store) => (await statsOf(store, now))?.entries ?? null);
  gauge("mailbox_bytes", "Bytes of envelopes held.", async (store) => (await statsOf(store, now))?.bytes ?? null);
  gauge("ledger_finalized_block", "Number of the last finalized block.", async (store) => {
    const head = await store.capabilities.ledger?.head();
    return head === undefined ? null : Number(head.finalized.number);
  });
  gauge("ledger_head_age_seconds", "Age of the last finalized block.", async (store) => {
    const head = await store.capabilities.ledger?.head();
    return head === undefined ? null : Math.max(0, now() - head.finalized.timeMs) / 1_000;
  });
  gauge(
    "store_scrub_passes",
    "Times that the scrub has read every record.",
    async ({ scrubbed }) => scrubbed?.().passes ?? null,
  );
  gauge(
    "store_scrub_problems",
    "Damaged records that the scrub has found.",
    async ({ scrubbed }) => scrubbed?.().problems ?? null,
  );
  gauge("store_disk_free_bytes", "Free space on the file system of the store.", (_, name) =>
    freeBytesOf(config.stores[name]),
  );
}

async function statsOf({ capabilities }: Store, now: () => number) {
  return capabilities.mailbox === undefined ? null : capabilities.mailbox.stats(now());
}

async function readingsOf(
  stores: readonly (readonly [name: string, store: Store])[],
  read: (store: Store, name: string) => Promise<number | null>,
): Promise<GaugeReading> {
  const readings = await Promise.all(
    stores.map(async ([name, store]) => {
      const value = await withDeadline(
        read(store, name).catch(() => null),
        readingDeadlineMs,
      );
      return value === late || value === null ? [] : [[[name], value] as const];
    }),
  );
  return readings.flat();
}
