/**
 * What the process measures besides its requests: itself, its stores, its ledgers and its disks. Names follow
 * the conventions of Prometheus: base units, `_total` for counters, one meaning for each name. A write of a store is
 * measured from the call until it is as durable as the store promises, which for `lmdb` is the commit with its sync;
 * that costs two looks at the clock.
 */
import type { Config } from "../config/schema.ts";
import { late, withDeadline } from "../core/std/bounded.ts";
import type { App } from "../nodes/http/app.ts";
import {
  type GaugeReading,
  type Histogram,
  type HistogramSeries,
  type Metrics,
  observe,
} from "../nodes/http/metrics.ts";
import type { OpenStores } from "../storage/bind.ts";
import type { Capabilities, Mailbox, Receipts, Replay, Store } from "../storage/contract.ts";
import { version } from "../version.ts";
import { freeBytesOf } from "./dashboard.ts";
import { bindOpenStores } from "./stores.ts";

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
  gauge("http_answer_bytes_waiting", "Bytes of long answers that clients have not read yet.", () =>
    app.waitingAnswerBytes(),
  );
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

// ---------------------------------------------------------------------------------------- times of writes

const buckets = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5];

/** The same stores, whose writes are measured. */
export function measureStores(config: Config, stores: OpenStores, metrics: Metrics): OpenStores {
  const help = "Time of a write, until it is as durable as the store promises.";
  const seconds = metrics.histogram({ name: "store_write_seconds", help, labels: ["store", "operation"] }, buckets);
  const measured = new Map([...stores.stores].map(([name, store]) => [name, measureStore(name, store, seconds)]));
  return { ...bindOpenStores(config, measured), close: () => stores.close() };
}

type Timed = <T>(operation: string, promise: Promise<T>) => Promise<T>;

function measureStore(name: string, store: Store, seconds: Histogram): Store {
  const series = new Map<string, HistogramSeries>();
  const timed: Timed = (operation, promise) => {
    const beganMs = performance.now();
    const own = series.get(operation) ?? seconds.series([name, operation]);
    series.set(operation, own);
    const end = (): void => observe(own, (performance.now() - beganMs) / 1_000);
    promise.then(end, end);
    return promise;
  };
  const capabilities = measureCapabilities(store.capabilities, timed);
  const scrubbed = store.scrubbed?.bind(store);
  return {
    plugin: store.plugin,
    durability: store.durability,
    capabilities,
    probe: () => store.probe(),
    close: () => store.close(),
    ...(scrubbed === undefined ? {} : { scrubbed }),
  };
}

function measureCapabilities({ mailbox, replay, receipts, ledger }: Capabilities, timed: Timed): Capabilities {
  return {
    ...(mailbox === undefined ? {} : { mailbox: measureMailbox(mailbox, timed) }),
    ...(replay === undefined ? {} : { replay: measureReplay(replay, timed) }),
    ...(receipts === undefined ? {} : { receipts: measureReceipts(receipts, timed) }),
    // A submission is written and signed in its own time; the ledger has metrics of its own.
    ...(ledger === undefined ? {} : { ledger }),
  };
}

function measureMailbox(mailbox: Mailbox, timed: Timed): Mailbox {
  return {
    store: (entry, quota) => timed("store", mailbox.store(entry, quota)),
    remove: (recipient, ids, nowMs) => timed("remove", mailbox.remove(recipient, ids, nowMs)),
    list: (recipient, page) => mailbox.list(recipient, page),
    summary: (recipient, page) => mailbox.summary(recipient, page),
    read: (recipient, ids, nowMs) => mailbox.read(recipient, ids, nowMs),
    group: (recipient, groupId, page) => mailbox.group(recipient, groupId, page),
    message: (recipient, id, nowMs) => mailbox.message(recipient, id, nowMs),
    expire: (nowMs, limit) => mailbox.expire(nowMs, limit),
    stats: (nowMs) => mailbox.stats(nowMs),
  };
}

function measureReplay(replay: Replay, timed: Timed): Replay {
  return {
    claim: (tag, untilMs, nowMs) => timed("claim", replay.claim(tag, untilMs, nowMs)),
    expire: (nowMs, limit) => replay.expire(nowMs, limit),
  };
}

function measureReceipts(receipts: Receipts, timed: Timed): Receipts {
  return {
    put: (key, value, untilMs) => timed("put", receipts.put(key, value, untilMs)),
    putIfAbsent: (key, value, untilMs, nowMs) => timed("put", receipts.putIfAbsent(key, value, untilMs, nowMs)),
    get: (key, nowMs) => receipts.get(key, nowMs),
    remove: (key) => receipts.remove(key),
    expire: (nowMs, limit) => receipts.expire(nowMs, limit),
  };
}
