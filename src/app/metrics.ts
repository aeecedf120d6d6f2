/**
 * What the process measures besides its requests: itself, its stores, its ledgers and its disks. Names follow
 * the conventions of Prometheus: base units, `_total` for counters, one meaning for each name. A write of a store is
 * measured from the call until it is as durable as the store promises, which for `lmdb` is the commit with its sync;
 * that costs two looks at the clock.
 */
import { statfs } from "node:fs/promises";
import type { Config } from "../config/schema.ts";
import { late, withDeadline } from "../core/std/bounded.ts";
import type { App } from "../nodes/http/app.ts";
import type { GaugeReading, Histogram, Metrics } from "../nodes/http/metrics.ts";
import { capabilityMethods, type OpenStores } from "../storage/bind.ts";
import type { Capabilities, CapabilityName, LedgerReader, Store } from "../storage/contract.ts";
import { version } from "../version.ts";
import { bindOpenStores } from "./stores.ts";

const probeDeadlineMs = 2_000;

export async function factsOf(config: Config, stores: OpenStores): Promise<{ name: string; value: string }[]> {
  const perStore = await Promise.all(
    [...stores.stores].map(async ([name, store]) => {
      const head = await headOf(store.capabilities.ledger);
      const free = await freeBytesOf(config.stores[name]);
      return [
        { name: `store ${name}`, value: `${store.plugin}, ${store.durability}` },
        ...(head === null ? [] : [{ name: `ledger of ${name}`, value: head }]),
        ...(free === null ? [] : [{ name: `disk of ${name}`, value: `${(free / 2 ** 30).toFixed(1)} GiB free` }]),
      ];
    }),
  );
  return perStore.flat();
}

async function headOf(ledger: LedgerReader | undefined): Promise<string | null> {
  if (ledger === undefined) return null;
  const asked = ledger.head().catch(() => null);
  const head = await withDeadline(asked, probeDeadlineMs);
  if (head === late || head === null) return "does not answer";
  const { number, timeMs } = head.finalized;
  return `finalized block ${number}, ${new Date(timeMs).toISOString()}`;
}

/** `null` for a store without a folder. */
async function freeBytesOf(options: Readonly<Record<string, unknown>> | undefined): Promise<number | null> {
  const path = options?.["path"];
  if (typeof path !== "string") return null;
  const found = await statfs(path).catch(() => null);
  return found === null ? null : found.bavail * found.bsize;
}

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
  gauge("event_loop_lag_seconds", "Largest delay of the event loop in the last ten seconds.", loopLagSeconds);
}

export function registerHttpGauges(metrics: Metrics, app: App): void {
  const gauge = (name: string, help: string, read: () => number): void => metrics.gauge({ name, help }, read);
  gauge("http_requests_in_flight", "Requests being worked on.", () => app.inFlight().requests);
  gauge("http_requests_reading", "Requests whose bodies are still arriving.", () => app.inFlight().reading);
  gauge("http_body_bytes_in_flight", "Request bodies in memory.", () => app.inFlight().bodyBytes);
  gauge("http_answer_bytes_waiting", "Bytes of long answers that clients have not read yet.", () =>
    app.waitingAnswerBytes(),
  );
  gauge("http_refusals_delayed", "Refusals over capacity being delayed.", () => app.inFlight().delayedRefusals);
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

/** The writes that are measured, and under which operation. A ledger writes in its own time, and has its own metrics. */
const measuredWrites: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  mailbox: { store: "store", remove: "remove", claimAndRemove: "remove" },
  replay: { claim: "claim" },
  receipts: { put: "put", putIfAbsent: "put" },
};

type Call = (...given: unknown[]) => Promise<unknown>;

function measureStore(name: string, store: Store, seconds: Histogram): Store {
  const timed = (operation: string, call: Call): Call => {
    const labels = [name, operation];
    return (...given) => {
      const beganMs = performance.now();
      const end = () => seconds.observe(labels, (performance.now() - beganMs) / 1_000);
      const promise = call(...given);
      promise.then(end, end);
      return promise;
    };
  };
  const capabilities = Object.entries(store.capabilities).map(([capability, own]: [string, object | undefined]) => {
    const writes = measuredWrites[capability];
    if (writes === undefined || own === undefined) return [capability, own];
    const methods = Object.keys(capabilityMethods[capability as CapabilityName]).map((method) => {
      const call = (Reflect.get(own, method) as Call).bind(own);
      return [method, writes[method] === undefined ? call : timed(writes[method], call)];
    });
    return [capability, Object.fromEntries(methods)];
  });
  return {
    plugin: store.plugin,
    durability: store.durability,
    capabilities: Object.fromEntries(capabilities) as Capabilities,
    probe: () => store.probe(),
    close: () => store.close(),
  };
}
