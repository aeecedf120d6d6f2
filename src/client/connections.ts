/**
 * Stays connected for an identity: a live session at every Relay, a stream of every Cache, and a look at the Caches
 * whenever one of them announces a message. Each reconnects after a pause that grows with its failures. What arrives goes to
 * the host, which decides what is acknowledged.
 * Source: docs/client.md "Receiving", interface "Cache", rules sections 5 and 6.
 */

import { type Client, readLimits } from "./client.ts";
import type { Unreachable } from "./copies.ts";
import type { WaypostEvent } from "./events.ts";
import { ClientError } from "./http.ts";
import type { Identity } from "./keys.ts";
import { type LiveEnvelope, listenLive } from "./live.ts";
import type { CacheClient, Reader } from "./reader.ts";
import { cachesOf, liveEndpoints } from "./recipient.ts";

/** `true` acknowledges. `leave` ends the session for a while: the Relay gives the envelope to the Cache at once. */
export type LiveAnswer = boolean | "leave";

/** One look at the Caches. Of an incomplete one something could not be fetched and should be tried again soon. */
export type Look = { readonly isComplete: boolean; readonly unreachable: readonly Unreachable[] };

type ConnectionHost = {
  readonly client: Client;
  readonly identity: () => Identity;
  /** The device to read the Caches as; empty for all. */
  readonly cacheDevice: string;
  /** Names the live session; a second session of the same device replaces the first. `null`: Caches only. */
  readonly liveDevice: string | null;
  readonly emit: (event: WaypostEvent) => void;
  /** Woken, the Caches are looked at next. */
  readonly news: Signal;
  readonly receiveWaiting: (caches: readonly CacheClient[]) => Promise<Look>;
  /** Decides what becomes of an envelope of a live session. */
  readonly receiveLive: (envelope: LiveEnvelope) => Promise<LiveAnswer>;
};

/** Pause between two reads of the Caches when no stream announces anything. */
export const lookMs = 60_000;
/** How long a session is left. */
const leaveMs = 3_000;

type Connections = Omit<ConnectionHost, "emit"> & { readonly signal: AbortSignal; readonly report: Reporter };

/** Runs until `signal` is aborted. Throws only for bugs, and when the document names no Cache. */
export async function stayConnected(host: ConnectionHost, signal: AbortSignal): Promise<void> {
  const failed = new AbortController();
  const report = createReporter(host.emit);
  const connections = { ...host, report, signal: AbortSignal.any([signal, failed.signal]) };
  const { caches, relays } = await readEndpoints(connections);
  const loops = [
    ...caches.map((cache) => follow(connections, cache)),
    ...relays.map((relay) => listen(connections, relay)),
    catchUp(connections, caches),
  ];
  // A loop that fails because of a bug ends the others.
  const endAll = (error: unknown) => {
    failed.abort();
    throw error;
  };
  await Promise.all(loops.map((loop) => loop.catch(endAll)));
}

type What = Extract<WaypostEvent, { type: "disconnected" }>["what"];

type Reporter = {
  readonly up: (what: What, url: string) => void;
  readonly down: (what: What, url: string, error: ClientError | null) => void;
};

/** Each loss is an event once, and so is its end. The first connection is one only of a live session. */
function createReporter(emit: ConnectionHost["emit"]): Reporter {
  const states = new Map<string, "up" | "down">();
  return {
    up: (what, url) => {
      const before = states.get(`${what} ${url}`);
      states.set(`${what} ${url}`, "up");
      if (before === "down" || (before === undefined && what === "live")) emit({ type: "connected", what, url });
    },
    down: (what, url, error) => {
      if (states.get(`${what} ${url}`) === "down") return;
      states.set(`${what} ${url}`, "down");
      emit({ type: "disconnected", what, url, error });
    },
  };
}

type Endpoints = { readonly caches: readonly CacheClient[]; readonly relays: readonly Reader[] };

/** Where to receive, from the document; asked until the Directory answers. */
async function readEndpoints({ client, identity, signal, report, ...host }: Connections): Promise<Endpoints> {
  const { url } = client.directory.endpoint;
  for (let failures = 0; !signal.aborted; failures++) {
    try {
      const caches = await cachesOf(client, identity(), host.cacheDevice);
      const device = typeof WebSocket === "undefined" ? null : host.liveDevice;
      const relays = device === null ? [] : await relaysOf(client, identity(), device);
      report.up("directory", url);
      return { caches, relays };
    } catch (error) {
      if (!(error instanceof ClientError) || error.kind === "local") throw error;
      report.down("directory", url, error);
      await pause(backoffMs(failures), signal);
    }
  }
  return { caches: [], relays: [] };
}

async function relaysOf(client: Client, identity: Identity, device: string): Promise<Reader[]> {
  try {
    return await liveEndpoints(client, identity, device);
  } catch (error) {
    if (error instanceof ClientError && error.code === "no_relay") return [];
    throw error;
  }
}

async function follow({ signal, news, report }: Connections, cache: CacheClient): Promise<void> {
  const url = cache.reader.at.url;
  for (let failures = 0; !signal.aborted; failures++) {
    const begunMs = performance.now();
    try {
      news.wake();
      await cache.stream({ onOpen: () => report.up("stream", url), onNews: () => news.wake() }, signal);
    } catch (error) {
      if (!(error instanceof ClientError)) throw error;
      if (!signal.aborted) report.down("stream", url, error);
    }
    if (performance.now() - begunMs > backoffMs(10)) failures = 0;
    await pause(backoffMs(failures), signal);
  }
}

async function listen({ signal, news, report, receiveLive }: Connections, relay: Reader): Promise<void> {
  const { url } = relay.at;
  for (let failures = 0; !signal.aborted; failures++) {
    const session = new AbortController();
    let leaves = false;
    const events = {
      onReady: () => {
        failures = 0;
        report.up("live", url);
        news.wake();
      },
      onEnvelope: async (envelope: LiveEnvelope) => {
        const answer = await receiveLive(envelope);
        if (answer === "leave") {
          leaves = true;
          session.abort();
        }
        return answer === true;
      },
    };
    let error: ClientError | null = null;
    try {
      await listenLive(relay, events, AbortSignal.any([signal, session.signal]));
    } catch (cause) {
      if (!(cause instanceof ClientError)) throw cause;
      error = cause;
    }
    // A proof that is refused for its time is made again with the node's, which its limits tell.
    if (error?.code === "proof_invalid" && (await learnsClock(relay))) continue;
    if (!signal.aborted || error === null) report.down("live", url, error);
    await pause(leaves ? leaveMs : backoffMs(failures), signal);
  }
}

async function learnsClock({ at }: Reader): Promise<boolean> {
  const before = at.clock.aheadMs;
  await readLimits(at);
  return at.clock.aheadMs !== before;
}

async function catchUp(
  { signal, news, report, receiveWaiting }: Connections,
  caches: readonly CacheClient[],
): Promise<void> {
  for (let failures = 0; !signal.aborted; ) {
    const woken = news.next(failures === 0 ? lookMs : backoffMs(failures), signal);
    let lost: readonly Unreachable[] = [];
    try {
      const { isComplete, unreachable } = await receiveWaiting(caches);
      failures = isComplete ? 0 : failures + 1;
      lost = unreachable;
    } catch (error) {
      if (!(error instanceof ClientError)) throw error;
      failures++;
      lost = caches.map(({ reader }) => ({ endpoint: reader.at.url, error }));
    }
    for (const { reader } of caches) {
      const { url } = reader.at;
      const failure = lost.find(({ endpoint }) => endpoint === url);
      if (failure === undefined) report.up("cache", url);
      else if (!signal.aborted) report.down("cache", url, failure.error);
    }
    await woken;
  }
}

// ------------------------------------------------------------------------------------------------------------- waiting

/** Wakes a waiting loop. A wake-up while nothing waits is lost, so a loop calls `next` before it reads. */
export class Signal {
  #abortWait: () => void = () => undefined;

  wake(): void {
    this.#abortWait();
  }

  next(timeoutMs: number, signal: AbortSignal): Promise<void> {
    const woken = new AbortController();
    this.#abortWait = () => woken.abort();
    return pause(timeoutMs, AbortSignal.any([woken.signal, signal]));
  }
}

/** Resolves after `ms`, or at once when `signal` is aborted. */
export function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) return resolve();
    const end = () => {
      clearTimeout(timer);
      signal.removeEventListener("abort", end);
      resolve();
    };
    const timer = setTimeout(end, ms);
    signal.addEventListener("abort", end);
  });
}

const backoffMsMin = 500;
const backoffMsMax = 30_000;

/** A random part of a time that doubles with each failure, so that clients of one node don't come back together. */
export function backoffMs(failures: number): number {
  const most = Math.min(backoffMsMin * 2 ** Math.min(failures, 10), backoffMsMax);
  return most / 2 + Math.random() * (most / 2);
}
