/**
 * What the process measures besides its requests: itself, its stores, its ledgers and its
 * disks. Names follow the conventions of Prometheus: base units, `_total` for counters, one
 * meaning for each name.
 */
import { statfs } from "node:fs/promises";
import type { Config } from "../config/schema.ts";
import { minuteMs } from "../core/codec/time.ts";
import { late, withDeadline } from "../core/std/bounded.ts";
import type { App } from "../nodes/http/app.ts";
import type { GaugeReading, Metrics } from "../nodes/http/metrics.ts";
import type { Members } from "../nodes/parties/members.ts";
import type { OpenStores } from "../storage/bind.ts";
import type { Store } from "../storage/contract.ts";
import type { GaugeValues, RegisterGauge } from "../storage/gauge.ts";
import { version } from "../version.ts";

/** `null` for a store without a folder. */
async function freeBytesOf(
  options: Readonly<Record<string, unknown>> | undefined,
): Promise<number | null> {
  const path = options?.["path"];
  if (typeof path !== "string") return null;
  const found = await statfs(path).catch(() => null);
  return found === null ? null : found.bavail * found.bsize;
}

type ProcessParts = {
  readonly startedAtMs: number;
  readonly loopLagSeconds: () => number;
  /** The one in use. */
  readonly certificate: { readonly notAfterMs: number } | null;
};

export function registerProcessMetrics(
  metrics: Metrics,
  { startedAtMs, ...parts }: ProcessParts,
): void {
  const { loopLagSeconds, certificate } = parts;
  const gauge = (name: string, help: string, read: () => number): void =>
    metrics.gauge({ name, help }, read);
  metrics.gauge(
    { name: "build_info", help: "1, with the version as a label.", labels: ["version"] },
    () => [[[version], 1]],
  );
  gauge(
    "process_start_time_seconds",
    "Start of the process, as Unix time.",
    () => startedAtMs / 1_000,
  );
  gauge("process_resident_memory_bytes", "Resident memory.", () => process.memoryUsage.rss());
  const cpuSeconds = () => {
    const { user, system } = process.cpuUsage();
    return (user + system) / 1e6;
  };
  metrics.count(
    { name: "process_cpu_seconds_total", help: "Processor time used since the start." },
    cpuSeconds,
  );
  gauge(
    "event_loop_lag_seconds",
    "Largest delay of the event loop in the last ten seconds.",
    loopLagSeconds,
  );
  if (certificate !== null) {
    const help = "End of the certificate in use, as Unix time.";
    gauge("tls_certificate_not_after_seconds", help, () => certificate.notAfterMs / 1_000);
  }
}

/** Counts that are at most five minutes old; none where the store does not answer in time. */
export function registerMemberMetrics(metrics: Metrics, members: Members, now: () => number): void {
  const help =
    "Members: DIDs that registered here or whose mailboxes are here, all, and by when they were last seen.";
  metrics.gauge({ name: "members", help, labels: ["seen"] }, async () => {
    const counted = members.counts(now()).catch(() => null);
    const counts = await withDeadline(counted, readingDeadlineMs);
    if (counts === late || counts === null) return [];
    return Object.entries(counts).map(([within, count]) => [[within], count]);
  });
}

export function registerHttpGauges(metrics: Metrics, app: App): void {
  const gauge = (name: string, help: string, read: () => number): void =>
    metrics.gauge({ name, help }, read);
  gauge("http_requests_in_flight", "Requests being worked on.", () => app.inFlight().requests);
  gauge("http_body_bytes_in_flight", "Request bodies in memory.", () => app.inFlight().bodyBytes);
  gauge("http_answer_bytes_waiting", "Bytes of long answers that clients have not read yet.", () =>
    app.waitingAnswerBytes(),
  );
  gauge(
    "http_refusals_delayed",
    "Refusals over capacity being delayed.",
    () => app.inFlight().delayedRefusals,
  );
}

type StoreParts = {
  readonly config: Config;
  readonly stores: OpenStores;
  readonly now: () => number;
};

/** A store that does not answer in time has no value: a scrape never waits for one. */
const readingDeadlineMs = 2_000;

export function registerStoreMetrics(metrics: Metrics, { config, stores, now }: StoreParts): void {
  const all = [...stores.stores];
  const gauge = (name: string, help: string, read: ReadFigure): void =>
    metrics.gauge({ name, help, labels: ["store"] }, () => readingsOf(all, read));
  const oldest = seldom(async ({ capabilities }) => capabilities.mailbox?.oldest(now()) ?? null);
  const { cache } = config;
  if (cache.enabled)
    for (const [name, help, most] of [
      ["cache_store_entries_max", "Entries that the Cache may store.", cache.store_entries_max],
      ["cache_store_bytes_max", "Bytes that the Cache may store.", cache.store_bytes_max],
    ] as const)
      metrics.gauge({ name, help }, () => most);
  gauge(
    "mailbox_entries",
    "Entries held.",
    async (store) => (await statsOf(store, now))?.entries ?? null,
  );
  gauge(
    "mailbox_bytes",
    "Bytes of envelopes held.",
    async (store) => (await statsOf(store, now))?.bytes ?? null,
  );
  gauge(
    "mailbox_oldest_seconds",
    "Age of the entry that has waited longest; 0 without any. Read each minute at most.",
    async (store) => {
      if (store.capabilities.mailbox === undefined) return null;
      const oldestMs = await oldest(store);
      return oldestMs === null ? 0 : Math.max(0, now() - oldestMs) / 1_000;
    },
  );
  gauge("ledger_finalized_block", "Number of the last finalized block.", async (store) => {
    const head = await store.capabilities.ledger?.head();
    return head === undefined ? null : Number(head.finalized.number);
  });
  gauge("ledger_head_age_seconds", "Age of the finalized state.", async (store) => {
    const head = await store.capabilities.ledger?.head();
    return head === undefined ? null : Math.max(0, now() - head.asOfMs) / 1_000;
  });
  gauge("store_disk_free_bytes", "Free space on the file system of the store.", (_, name) =>
    freeBytesOf(config.stores[name]),
  );
}

type ReadFigure = (store: Store, name: string) => Promise<number | null>;

/**
 * For a figure that costs a look at each mailbox: read again after a minute, or after a
 * hundred times as long as that took, so that it takes a hundredth of the store's time at
 * most.
 */
function seldom<T>(read: (store: Store) => Promise<T>): (store: Store) => Promise<T> {
  const known = new Map<Store, { dueMs: number; readonly value: Promise<T> }>();
  return (store) => {
    const startedMs = performance.now();
    const before = known.get(store);
    if (before !== undefined && startedMs < before.dueMs) return before.value;
    const fresh = { dueMs: Number.POSITIVE_INFINITY, value: read(store) };
    known.set(store, fresh);
    const setDue = (): void => {
      const tookMs = performance.now() - startedMs;
      fresh.dueMs = startedMs + Math.max(minuteMs, 100 * tookMs);
    };
    fresh.value.then(setDue, setDue);
    return fresh.value;
  };
}

async function statsOf({ capabilities }: Store, now: () => number) {
  return capabilities.mailbox === undefined ? null : capabilities.mailbox.stats(now());
}

async function readingsOf(
  stores: readonly (readonly [name: string, store: Store])[],
  read: ReadFigure,
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

/** Registers the figures of drivers: several stores may have one of them. */
export function storeGauges(metrics: Metrics): RegisterGauge {
  const readers = new Map<string, (() => GaugeValues)[]>();
  return ({ name, help }, read) => {
    const known = readers.get(name);
    if (known !== undefined) {
      known.push(read);
      return;
    }
    const all = [read];
    readers.set(name, all);
    metrics.gauge({ name, help, labels: ["store", "database"] }, () => all.flatMap((one) => one()));
  };
}
