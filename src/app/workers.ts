/**
 * The threads that answer requests, and what makes one process of them: one log, one set of metrics and one end. The
 * main thread gives its stores and its bus to workers over message ports. With one or two threads it answers itself; with
 * more it has enough to do with the stores. A worker that ends by itself ends the process.
 * Source: D190, D199.
 */
import { readFileSync } from "node:fs";
import { availableParallelism } from "node:os";
import { Worker } from "node:worker_threads";
import type { Config } from "../config/schema.ts";
import { errorText } from "../core/fault.ts";
import { parseListenAddress } from "../core/message/address.ts";
import { late, withDeadline } from "../core/std/bounded.ts";
import { type CountingMemory, createCountingMemory, ownCounting, sharedCounting } from "../nodes/counting.ts";
import type { Log, LogLevel } from "../nodes/http/log.ts";
import type { FamilySample } from "../nodes/http/metrics.ts";
import { createRelayId } from "../nodes/relay/relay.ts";
import { Channel } from "../plugins/port/channel.ts";
import {
  type BusDescription,
  type StoreDescription,
  serveBus,
  serveStore,
  ThreadsBus,
} from "../plugins/port/contracts.ts";
import { failed } from "./failure.ts";
import { loopLagFamily } from "./metrics.ts";
import { type Serving, type SharedParts, startServing } from "./serving.ts";
import { type Ahead, giveUp, listenOnAll } from "./takeover.ts";

/** What a worker begins with. It crosses by structured clone, the memory of the counts is shared. */
export type WorkerStart = {
  readonly index: number;
  readonly threads: number;
  readonly config: Config;
  readonly stores: readonly StoreDescription[];
  readonly bus: BusDescription;
  readonly counting: CountingMemory;
  readonly relayId: string;
  readonly startedAtMs: number;
  readonly ca: readonly string[] | null;
};

/** A line of a worker's log. */
export type WorkerLine = readonly [level: LogLevel, message: string, fields: Readonly<Record<string, unknown>> | null];

/** Threads that wait for what they serve with. */
export type Threads = {
  /** Every thread that will answer listens on the ports of a process that it takes over from. */
  readonly listenAhead: (config: Config) => Promise<void>;
  readonly serve: (config: Config, parts: SharedParts) => Promise<ServingThreads>;
  readonly end: () => Promise<void>;
};

export type ServingThreads = Serving & {
  /** Every worker reads the key of event proofs again. */
  readonly readEventKey: () => Promise<void>;
  /** The samples of every worker that answers in time. */
  readonly collect: () => Promise<FamilySample[][]>;
  /** The largest delay of an event loop that the workers had when they were last asked. */
  readonly loopLagSeconds: () => number;
};

type ThreadParts = {
  /** How many answer. */
  readonly count: number;
  readonly log: Log;
  readonly workerEntry?: URL;
  readonly onFatal: (reason: string) => void;
};

/**
 * How many threads answer requests: as set, or one for each core.
 * Source: D199.
 */
export function threadCount({ server }: Config, log: Log, cores: number = coresHere()): number {
  const wanted = server.workers ?? Math.min(defaultThreadsMax, cores);
  if (wanted === 1) return 1;
  const reason = whyAlone(server);
  if (reason === null) return wanted;
  if (server.workers !== null) log("warn", "the node runs without workers", { workers: wanted, reason });
  return 1;
}

const defaultThreadsMax = 8;
/**
 * A store takes 23 µs of the thread of the stores when a worker asks for it, and 74 µs when that thread answers it
 * itself. Answering a third of all requests, it would be the busiest of three threads, which the others wait for.
 */
const mainAnswersMax = 2;

/** What this process may use of the machine: a container's quota counts. */
function coresHere(): number {
  const cores = availableParallelism();
  try {
    return Math.min(cores, parseQuota(readFileSync("/sys/fs/cgroup/cpu.max", "utf8")) ?? cores);
  } catch {
    // Not Linux, or no such limits.
    return cores;
  }
}

/** Whole cores of a line such as `200000 100000`; `null` for `max`. */
export function parseQuota(line: string): number | null {
  const [quota, period] = line.split(" ").map(Number);
  const cores = Math.floor(Number(quota) / Number(period));
  return Number.isFinite(cores) ? Math.max(1, cores) : null;
}

function whyAlone({ listen }: Config["server"]): string | null {
  if (process.platform !== "linux") return "only Linux spreads the connections of a port over several threads";
  const isUnix = listen.every((address) => address.startsWith("unix:"));
  return isUnix ? "a Unix socket can't be shared by several threads" : null;
}

type Ready = Pick<Serving, "urls" | "adminUrls">;
type Running = { readonly thread: Worker; readonly channel: Channel; readonly ready: Promise<Ready> };
/** What the workers serve with, once there is something. */
type Given = {
  readonly start: Omit<WorkerStart, "index" | "stores" | "bus">;
  readonly parts: SharedParts;
};

const collectMs = 2_000;
const reloadMsMax = 10_000;

export function startThreads(parts: ThreadParts): Threads {
  const { count } = parts;
  const mainAnswers = count <= mainAnswersMax;
  /** The index of the first worker: the main thread has 0 where it answers. */
  const first = mainAnswers ? 1 : 0;
  let ahead: Ahead | null = null;
  let ending = false;
  const onDeath = (index: number, reason: string): void => {
    if (!ending) parts.onFatal(`worker ${index} ended: ${reason}`);
    ending = true;
    // No caller waits for its answers.
    running[index - first]?.channel.close();
  };
  const given = Promise.withResolvers<Given>();
  const running: Running[] = Array.from({ length: count - first }, (_, place) =>
    startWorker(first + place, { ...parts, given: given.promise }, onDeath),
  );
  const askAll = async (method: string, args: readonly unknown[]): Promise<void> => {
    // A worker that has ended never answers.
    const dead = Promise.all(running.map(({ ready }) => ready)).then(() => undefined);
    const answered = Promise.all(running.map(({ channel }) => channel.call("worker", method, args)));
    const refused = (await Promise.race([answered, dead.then(() => answered)])).find((one) => typeof one === "string");
    if (typeof refused === "string") throw failed(refused);
  };
  const inAll = (threads: readonly Serving[], { metrics }: SharedParts): ServingThreads => {
    metrics.gauge({ name: "workers", help: "Threads that answer requests." }, () => count);
    return { ...together(threads), ...measured(running), readEventKey: () => askAll("read key", []) };
  };
  return {
    listenAhead: async (config) => {
      ahead = mainAnswers ? listenOnAll(config, count) : new Map();
      await askAll("listen ahead", [configOf(config, 1, count), count]);
    },
    serve: async (config, shared) => {
      const own = { threads: count, relayId: createRelayId() };
      const listening = ahead === null ? {} : { ahead };
      if (count === 1) {
        const alone = { ...shared, ...own, ...listening, counting: ownCounting, sharePort: false };
        return inAll([await startServing(config, alone)], shared);
      }
      const { now, resolve, bus, view, ca } = shared;
      if (now !== Date.now || resolve !== undefined) throw new Error("workers can't get a clock or a resolver");
      const parts = { ...shared, bus: bus.plugin === "local" ? new ThreadsBus(bus) : bus };
      const fixed = { ...config, server: withFixedPorts(config.server, ahead !== null) };
      const counting = createCountingMemory();
      const start = { ...own, config: fixed, counting, startedAtMs: view.startedAtMs, ca: ca ?? null };
      given.resolve({ parts, start });
      const ofMain = { ...parts, ...own, ...listening, counting: sharedCounting(counting), sharePort: true };
      const workers = await Promise.all(running.map(async (one) => servingOf(one.channel, await one.ready)));
      // Last: when a worker can't start, nothing listens in this thread that would keep the process alive.
      const main = mainAnswers ? [await startServing(configOf(fixed, 0, count), ofMain)] : [];
      return inAll([...main, ...workers], shared);
    },
    end: async () => {
      ending = true;
      giveUp(ahead);
      for (const { channel } of running) channel.close();
      await Promise.all(running.map(({ thread }) => thread.terminate()));
    },
  };
}

/** One worker as it is seen from here. */
function servingOf(channel: Channel, { urls, adminUrls }: Ready): Serving {
  return {
    urls,
    adminUrls,
    reload: async (next) => {
      const taken = await withDeadline(channel.call("worker", "reload", [next]), reloadMsMax);
      if (taken === late) throw failed("a worker did not apply the configuration in time");
    },
    setLeaving: (isLeaving) => channel.send("worker", "leaving", [isLeaving]),
    // One that does not answer in time reads the list within ten seconds by itself.
    readBlocks: async () => void (await withDeadline(channel.call("worker", "read blocks", []), collectMs)),
    // One that has ended has nothing left to answer.
    drain: async () => void (await channel.call("worker", "drain", []).catch(() => undefined)),
  };
}

function together(threads: readonly Serving[]): Serving {
  const all = async (work: (one: Serving) => Promise<void>): Promise<void> =>
    void (await Promise.all(threads.map(work)));
  return {
    urls: threads[0]?.urls ?? [],
    adminUrls: threads[0]?.adminUrls ?? [],
    reload: (next) => all((one) => one.reload(next)),
    setLeaving: (isLeaving) => {
      for (const one of threads) one.setLeaving(isLeaving);
    },
    readBlocks: () => all((one) => one.readBlocks()),
    drain: () => all((one) => one.drain()),
  };
}

function measured(workers: readonly Running[]): Pick<ServingThreads, "collect" | "loopLagSeconds"> {
  let lagSeconds = 0;
  const collectOf = ({ channel }: Running) => {
    const collected = channel.call("worker", "collect", []).catch(() => null);
    return withDeadline(collected, collectMs);
  };
  return {
    collect: async () => {
      const asked = await Promise.all(workers.map(collectOf));
      const samples = asked.filter((one) => one !== late && one !== null) as FamilySample[][];
      lagSeconds = Math.max(0, ...samples.flat().map(lagOf));
      return samples;
    },
    loopLagSeconds: () => lagSeconds,
  };
}

function lagOf({ family, series }: FamilySample): number {
  const lag = family.name === loopLagFamily.name ? series.get("") : 0;
  return typeof lag === "number" ? lag : 0;
}

function startWorker(
  index: number,
  { log, workerEntry, count, given }: ThreadParts & { readonly given: Promise<Given> },
  onDeath: (index: number, reason: string) => void,
): Running {
  const { promise: ready, resolve, reject } = Promise.withResolvers<Ready>();
  // Whoever waits for it hears of it; before, nobody does.
  ready.catch(() => undefined);
  let isReady = false;
  const dead = (reason: string): void => {
    if (isReady) onDeath(index, reason);
    else reject(failed(`worker ${index} ended before it was ready: ${reason}`));
  };
  // The main thread of the program, once more: it sees that it is a worker.
  const isCompiled = import.meta.path.startsWith("/$bunfs/") || import.meta.path.includes("~BUN");
  const program = isCompiled ? import.meta.path : new URL("../main.ts", import.meta.url);
  const thread = new Worker(workerEntry ?? program, { workerData: { index } });
  thread.on("error", (error) => dead(errorText(error)));
  thread.on("exit", (code) => dead(`exit code ${code}`));
  const channel = new Channel(thread);
  channel.beat();
  const startWith = ({ start, parts }: Given): WorkerStart => ({
    ...start,
    index,
    config: configOf(start.config, index, count),
    stores: [...parts.stores.stores].map(([name, store]) => serveStore(channel, name, store)),
    bus: serveBus(channel, parts.bus),
  });
  channel.serve("process", (method, args) => {
    const [first, second] = args;
    switch (method) {
      case "start":
        return given.then(startWith);
      case "ready":
        isReady = true;
        return resolve(first as Ready);
      case "failed":
        return reject(second === true ? failed(String(first)) : new Error(String(first)));
      case "log":
        for (const [level, message, fields] of first as readonly WorkerLine[])
          log(level, message, { ...fields, worker: index });
        return undefined;
      default:
        return given.then(({ parts }) => serveProcess(parts, method, args));
    }
  });
  return { thread, channel, ready };
}

function serveProcess({ view, onStored }: SharedParts, method: string, [first, second]: readonly unknown[]): unknown {
  switch (method) {
    case "metrics":
      return view.renderMetrics();
    case "history":
      return view.history();
    case "reload":
      return view.reloadFile();
    case "blocks changed":
      return view.blocksChanged();
    case "leave":
      return view.leave(first === true, Number(second));
    case "stored":
      return onStored?.(first as Parameters<NonNullable<typeof onStored>>[0], second === true);
    default:
      throw new Error(`the process has no ${method}`);
  }
}

// -------------------------------------------------------------------------------------------- configuration

/**
 * Finds out that every address is free, which sockets that share a port don't, and which port a free one is: all
 * workers listen on the same.
 */
function withFixedPorts(server: Config["server"], hasAddresses: boolean): Config["server"] {
  const fixed = (address: string, isShared: boolean): string => {
    const place = parseListenAddress(address);
    if (place === null || "unix" in place) return address;
    try {
      const { hostname, port } = place;
      const alone = Bun.serve({ hostname, port, reusePort: isShared, fetch: () => new Response() });
      void alone.stop(true);
      return `${hostname.includes(":") ? `[${hostname}]` : hostname}:${alone.port ?? port}`;
    } catch (error) {
      throw failed(`${address} can't be listened on: ${errorText(error)}`);
    }
  };
  return {
    ...server,
    listen: hasAddresses ? server.listen : server.listen.map((address) => fixed(address, server.share_port)),
    admin_listen: server.admin_listen.map((address) => fixed(address, false)),
  };
}

/** The limit of sessions is divided. A Unix socket is the first thread's: it can't be shared. */
function configOf(config: Config, index: number, count: number): Config {
  const { server, relay } = config;
  const own = (addresses: readonly string[]): string[] =>
    addresses.filter((address) => index === 0 || !address.startsWith("unix:"));
  return {
    ...config,
    server: { ...server, listen: own(server.listen), admin_listen: own(server.admin_listen) },
    relay: { ...relay, sessions_max: Math.ceil(relay.sessions_max / count) },
  };
}
