/**
 * A worker thread: answers requests as the main thread would, over the stores and the bus of the main thread. Its
 * log, its metrics and its end are the main thread's.
 */
import { monitorEventLoopDelay } from "node:perf_hooks";
import { parentPort } from "node:worker_threads";
import type { ReloadPlan } from "../config/config.ts";
import type { Config } from "../config/schema.ts";
import { errorStack, errorText } from "../core/fault.ts";
import { sharedCounting } from "../nodes/counting.ts";
import type { HistoryView } from "../nodes/dashboard/dashboard.ts";
import { type LogLevel, type LogSink, logLevels } from "../nodes/http/log.ts";
import { createMetrics, type Metrics } from "../nodes/http/metrics.ts";
import { Channel } from "../plugins/port/channel.ts";
import { PortBus, portStore } from "../plugins/port/contracts.ts";
import { type EventKey, openEventKey } from "./credentials.ts";
import { CommandFailure, logLibraryOutput, logUncaught } from "./failure.ts";
import { loopLagFamily } from "./metrics.ts";
import { type Serving, startServing } from "./serving.ts";
import { bindOpenStores } from "./stores.ts";
import { type Ahead, listenOnAll } from "./takeover.ts";
import type { WorkerLine, WorkerStart } from "./workers.ts";

/** Runs until the main thread ends this one. */
export async function runWorker(): Promise<void> {
  if (parentPort === null) throw new Error("this is not a worker");
  const channel = new Channel(parentPort);
  let ahead: Ahead | null = null;
  channel.serve("worker", (method, [config, threads]) => {
    if (method !== "listen ahead") throw new Error(`a worker that has not started has no ${method}`);
    try {
      ahead = listenOnAll(config as Config, Number(threads));
      return null;
    } catch (error) {
      return errorText(error);
    }
  });
  const start = (await channel.call("process", "start", [])) as WorkerStart;
  const { config } = start;
  const sink = createWorkerLog(channel, () => config.server.log_level);
  logUncaught(sink);
  logLibraryOutput(sink);
  const metrics = createMetrics();
  registerLoopLag(metrics);
  try {
    // The main thread has warned of a file that others may read.
    const eventKey = await openEventKey(config.cache.enabled ? config.cache.signing_key_file : null, () => {});
    const { urls, adminUrls, ...serving } = await serve(start, { channel, sink, metrics, eventKey, ahead });
    channel.serve("worker", (method, [next]) => {
      switch (method) {
        case "collect":
          return metrics.collect();
        case "reload":
          return serving.reload(next as Config);
        case "read blocks":
          // A list that can't be read now is read within ten seconds.
          return serving.readBlocks().catch(() => undefined);
        case "leaving":
          return serving.setLeaving(next === true);
        case "read key":
          return eventKey.read().catch((error: unknown) => errorText(error));
        case "drain":
          return serving.drain().then(() => sink.flush());
        default:
          throw new Error(`a worker has no ${method}`);
      }
    });
    channel.watch((silentMs) => sink.log("warn", "the thread of the stores did not answer", { ms: silentMs }));
    channel.send("process", "ready", [{ urls, adminUrls }]);
  } catch (error) {
    const isForOperator = error instanceof CommandFailure;
    const text = isForOperator ? error.message : errorStack(error);
    await channel.call("process", "failed", [text, isForOperator]);
  }
}

type Parts = {
  readonly channel: Channel;
  readonly sink: LogSink;
  readonly metrics: Metrics;
  readonly eventKey: EventKey;
  readonly ahead: Ahead | null;
};

function serve(start: WorkerStart, { channel, sink, metrics, eventKey, ahead }: Parts): Promise<Serving> {
  const { config, threads, relayId, startedAtMs, ca } = start;
  const stores = new Map(start.stores.map((description) => [description.name, portStore(channel, description)]));
  return startServing(config, {
    stores: bindOpenStores(config, stores),
    bus: new PortBus(channel, start.bus, sink.log),
    now: Date.now,
    log: sink.log,
    metrics,
    eventKey,
    counting: sharedCounting(start.counting),
    threads,
    relayId,
    sharePort: true,
    ...(ahead === null ? {} : { ahead }),
    view: {
      startedAtMs,
      renderMetrics: async () => String(await channel.call("process", "metrics", [])),
      history: async () => (await channel.call("process", "history", [])) as HistoryView,
      reloadFile: async () => (await channel.call("process", "reload", [])) as ReloadPlan | string,
      blocksChanged: async () => void (await channel.call("process", "blocks changed", [])),
      leave: async (isNow, pid) => (await channel.call("process", "leave", [isNow, pid])) as string | null,
    },
    onStored:
      config.cache.wake_url === null
        ? null
        : (recipient, streamed) => channel.send("process", "stored", [recipient, streamed]),
    ...(ca === null ? {} : { ca }),
  });
}

// --------------------------------------------------------------------------------------------------- log

const gatherMs = 20;
/** Lines that wait while the main thread writes earlier ones. */
const waitingMax = 10_000;

/** Lines go to the main thread in batches, one batch at a time; further ones wait, and are dropped beyond a bound. */
function createWorkerLog(channel: Channel, level: () => LogLevel): LogSink {
  let waiting: WorkerLine[] = [];
  let dropped = 0;
  let sending: Promise<void> | null = null;
  let timer: ReturnType<typeof setTimeout> | null = null;
  const sendAll = async (): Promise<void> => {
    for (let isTaken = true; isTaken && waiting.length > 0; ) {
      const lines = waiting;
      waiting = [];
      if (dropped > 0) lines.push(["warn", "log lines were dropped", { dropped }]);
      dropped = 0;
      isTaken = await channel.call("process", "log", [lines]).then(
        () => true,
        () => false,
      );
      // The main thread hangs or is gone.
      if (!isTaken) dropped += lines.length;
    }
    sending = null;
  };
  const flush = (): Promise<void> => {
    if (timer !== null) clearTimeout(timer);
    timer = null;
    sending ??= sendAll();
    return sending;
  };
  return {
    log: (one, message, fields) => {
      if (logLevels.indexOf(one) < logLevels.indexOf(level())) return;
      if (waiting.length >= waitingMax) dropped++;
      else waiting.push([one, message, fields ?? null]);
      if (sending === null) timer ??= setTimeout(() => void flush(), gatherMs);
    },
    flush,
    // The level is a setting that a reload changes in place.
    setLevel: () => {},
  };
}

// ----------------------------------------------------------------------------------------------- metrics

const lagWindowMs = 10_000;

function registerLoopLag(metrics: Metrics): void {
  const delay = monitorEventLoopDelay({ resolution: 20 });
  delay.enable();
  let seconds = 0;
  const take = (): void => {
    seconds = Number.isFinite(delay.max) ? Math.max(0, delay.max / 1e9) : 0;
    delay.reset();
  };
  setInterval(take, lagWindowMs).unref();
  metrics.gauge(loopLagFamily, () => seconds);
}
