/**
 * Times of the writes of every store: a histogram for each kind of write, from the call until the write is as durable
 * as the store promises, which for `lmdb` is the commit with its sync. Cost: two looks at the clock for a write; the
 * promise that the node waits for is the driver's own.
 */
import type { Config } from "../config/schema.ts";
import type { Histogram, HistogramSeries, Metrics } from "../nodes/http/metrics.ts";
import { observe } from "../nodes/http/metrics.ts";
import type { OpenStores } from "../storage/bind.ts";
import type { Capabilities, Mailbox, Receipts, Replay, Store } from "../storage/contract.ts";
import { bindOpenStores } from "./stores.ts";

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
