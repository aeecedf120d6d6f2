/**
 * Stays connected for an identity: a live session at every Relay, and a poll of the Caches whenever a session says that
 * they stored something. Each reconnects after a pause that grows with its failures. What arrives goes to the host, which
 * decides what is acknowledged.
 * Source: docs/client.md "Receiving", interface "Live sessions" and "Cache", rules sections 5 and 6.
 */
import { parseUuid } from "../core/codec/did.ts";
import { dayMs, parseDuration, parseTimestamp } from "../core/codec/time.ts";
import { parseRecord } from "./answers.ts";
import {
  type CacheClient,
  cachesOf,
  type EnvelopeJson,
  type LiveEnvelope,
  liveEndpoints,
  prove,
  type Reader,
  type Unreachable,
} from "./caches.ts";
import { type Client, readLimits } from "./client.ts";
import { attempt, backoffMs, ClientError, localError, orNull, path, pause } from "./http.ts";
import type { Identity } from "./keys.ts";
import type { WaypostEvent } from "./message.ts";

/** One poll of the Caches. Of an incomplete one something could not be fetched and should be tried again soon. */
export type PollResult = { readonly isComplete: boolean; readonly unreachable: readonly Unreachable[] };

type ConnectionHost = {
  readonly client: Client;
  readonly identity: () => Identity;
  /** Names the live session; a second session of the same device replaces the first. */
  readonly device: string;
  readonly emit: (event: WaypostEvent) => void;
  /** Pause between two reads of the Caches when nothing wakes. */
  readonly pollMs: number;
  /** Woken, the Caches are polled next. */
  readonly news: Wakeup;
  readonly receiveWaiting: (caches: readonly CacheClient[]) => Promise<PollResult>;
  readonly receiveLive: LiveEvents["onEnvelope"];
};

type Connections = Omit<ConnectionHost, "emit"> & { readonly signal: AbortSignal; readonly report: Report };

/** Runs until `signal` is aborted. Throws only for bugs, and when the document names no Cache. */
export async function stayConnected(host: ConnectionHost, signal: AbortSignal): Promise<void> {
  const failed = new AbortController();
  const report = createReport(host.emit);
  const connections = { ...host, report, signal: AbortSignal.any([signal, failed.signal]) };
  const { caches, relays } = await readEndpoints(connections);
  const loops = [...relays.map((relay) => listen(connections, relay)), catchUp(connections, caches)];
  // A loop that fails because of a bug ends the others.
  const endAll = (error: unknown) => {
    failed.abort();
    throw error;
  };
  await Promise.all(loops.map((loop) => loop.catch(endAll)));
}

type What = Extract<WaypostEvent, { type: "disconnected" }>["what"];

/** Reports that something is there, or why it is lost: `null` when it ended normally. */
type Report = (what: What, url: string, lost?: ClientError | null) => void;

/** Each loss is an event once, and so is its end. The first connection is one only of a live session. */
function createReport(emit: ConnectionHost["emit"]): Report {
  const isUp = new Map<string, boolean>();
  return (what, url, error) => {
    const before = isUp.get(`${what} ${url}`);
    isUp.set(`${what} ${url}`, error === undefined);
    if (error !== undefined && before !== false) emit({ type: "disconnected", what, url, error });
    if (error === undefined && (before === false || (before === undefined && what === "live")))
      emit({ type: "connected", what, url });
  };
}

type Endpoints = { readonly caches: readonly CacheClient[]; readonly relays: readonly Reader[] };

/** Where to receive, from the document; asked until the Directory answers. */
async function readEndpoints({ client, identity, signal, report }: Connections): Promise<Endpoints> {
  const { url } = client.directory.endpoint;
  for (let failures = 0; !signal.aborted; failures++) {
    const found = await attempt(async () => {
      const caches = await cachesOf(client, identity());
      const canListen = typeof WebSocket !== "undefined";
      const relays = canListen ? await orNull(liveEndpoints(client, identity()), "no_relay") : null;
      return { caches, relays: relays ?? [] };
    });
    if (!(found instanceof ClientError)) {
      report("directory", url);
      return found;
    }
    if (found.kind === "local") throw found;
    report("directory", url, found);
    await pause(backoffMs(failures), signal);
  }
  return { caches: [], relays: [] };
}

async function listen({ signal, news, report, device, receiveLive }: Connections, relay: Reader): Promise<void> {
  const { url } = relay.at;
  for (let failures = 0; !signal.aborted; failures++) {
    const onReady = () => {
      failures = 0;
      report("live", url);
      news.wake();
    };
    const events = { onReady, onEnvelope: receiveLive, onStored: () => news.wake() };
    const error = (await attempt(() => listenLive(relay, device, events, signal))) ?? null;
    // A proof that is refused for its time is made again with the node's, which its limits tell.
    if (error?.code === "proof_invalid" && (await learnsClock(relay))) continue;
    if (!signal.aborted || error === null) report("live", url, error);
    await pause(backoffMs(failures), signal);
  }
}

async function learnsClock({ at }: Reader): Promise<boolean> {
  const before = at.clock.aheadMs;
  await readLimits(at);
  return at.clock.aheadMs !== before;
}

async function catchUp(
  { signal, news, report, receiveWaiting, pollMs }: Connections,
  caches: readonly CacheClient[],
): Promise<void> {
  for (let failures = 0; !signal.aborted; ) {
    news.begin();
    const poll = await attempt(() => receiveWaiting(caches));
    failures = !(poll instanceof ClientError) && poll.isComplete ? 0 : failures + 1;
    for (const { reader } of caches) {
      const { url } = reader.at;
      const error =
        poll instanceof ClientError ? poll : poll.unreachable.find(({ endpoint }) => endpoint === url)?.error;
      if (error === undefined || !signal.aborted) report("cache", url, error);
    }
    await news.next(failures === 0 ? pollMs : backoffMs(failures), signal);
  }
}

// ------------------------------------------------------------------------------------------------------- live sessions

export type LiveEvents = {
  /** The Relay has accepted the session: later messages arrive here, earlier ones are in the Caches. */
  readonly onReady: () => void;
  /** Whether the envelope is taken over and acknowledged; otherwise it is passed to the next destination. Its sender waits. */
  readonly onEnvelope: (envelope: LiveEnvelope) => Promise<boolean>;
  /** A Cache beside the Relay has stored something. */
  readonly onStored?: () => void;
};

const welcomeMs = 10_000;
const closingMs = 1_000;
/** Close codes of a proof that was refused: trying again would not help. */
const refusedCodes: Readonly<Record<number, string>> = {
  4401: "proof_invalid",
  4403: "proof_not_authorized",
  4409: "proof_replayed",
};

type Ending = { readonly code: number; readonly reason: string };

/**
 * Listens until the session ends or `signal` is aborted. Throws `refused` when the Relay refuses the proof, and
 * `unreachable` when the Relay can't be reached.
 */
export async function listenLive(
  reader: Reader,
  device: string,
  events: LiveEvents,
  signal: AbortSignal,
): Promise<void> {
  if (typeof WebSocket === "undefined") throw localError("no_websocket", "this runtime has no WebSocket");
  const at = path`/ws/${reader.did}/${device}`;
  const socket = new WebSocket(`${reader.at.url.replace(/^http/, "ws")}${at}?pass=1`);
  let isReady = false;
  let close: () => void = () => undefined;
  const ended = new Promise<Ending>((resolve, reject) => {
    // Closing needs an answer, and a dead network gives none.
    close = () => {
      socket.close(1000, "done");
      setTimeout(() => resolve({ code: 1006, reason: "" }), closingMs);
    };
    socket.addEventListener("close", resolve);
    socket.addEventListener("open", () => void authFrame(reader, device).then((frame) => socket.send(frame), reject));
    socket.addEventListener("message", ({ data }) => {
      const frame = typeof data === "string" ? parseRecord(data) : null;
      if (isReady) void receiveFrame(socket, frame, { reader, events }).catch(reject);
      else if (frame?.["type"] === "welcome" && frame["status"] === "ok") {
        isReady = true;
        events.onReady();
      }
    });
  });
  const late = setTimeout(() => isReady || close(), welcomeMs);
  signal.addEventListener("abort", close);
  try {
    const { code, reason } = await ended;
    const refused = refusedCodes[code];
    if (refused !== undefined) throw new ClientError("refused", refused, reason || "the Relay refused the proof");
    if (!isReady && !signal.aborted)
      throw new ClientError("unreachable", "unreachable", `${reader.at.url} can't be reached`);
  } finally {
    clearTimeout(late);
    signal.removeEventListener("abort", close);
    socket.close(1000, "done");
  }
}

async function authFrame(reader: Reader, device: string): Promise<string> {
  return JSON.stringify({ type: "auth", ...(await prove(reader, "connect", device)) });
}

/** A frame that is not an envelope to this recipient is not acknowledged; the Relay handles it. */
async function receiveFrame(
  socket: WebSocket,
  frame: Record<string, unknown> | null,
  { reader, events }: { readonly reader: Reader; readonly events: LiveEvents },
): Promise<void> {
  if (frame?.["type"] === "stored") events.onStored?.();
  const messageId = typeof frame?.["message_id"] === "string" ? parseUuid(frame["message_id"]) : null;
  if (frame === null || messageId === null || frame["to"] !== reader.did) return;
  const envelope = { messageId, expiresAtMs: expiryOf(frame), envelope: frame as EnvelopeJson };
  const type = (await events.onEnvelope(envelope)) ? "ack" : "pass";
  if (socket.readyState === WebSocket.OPEN) socket.send(JSON.stringify({ type, message_id: messageId }));
}

function expiryOf({ timestamp, ttl }: Record<string, unknown>): number {
  const sentAtMs = typeof timestamp === "string" ? parseTimestamp(timestamp) : null;
  const lifeMs = typeof ttl === "string" ? parseDuration(ttl) : null;
  return (sentAtMs ?? Date.now()) + (lifeMs ?? dayMs);
}

// ------------------------------------------------------------------------------------------------------------- waiting

/** Wakes a waiting loop. It calls `begin` before it reads, and `next` when nothing is left: what came since ends that wait. */
export class Wakeup {
  #isWoken = false;
  #abortWait: () => void = () => undefined;

  begin(): void {
    this.#isWoken = false;
  }

  wake(): void {
    this.#isWoken = true;
    this.#abortWait();
  }

  async next(timeoutMs: number, signal: AbortSignal): Promise<void> {
    if (this.#isWoken) return;
    const woken = new AbortController();
    this.#abortWait = () => woken.abort();
    await pause(timeoutMs, AbortSignal.any([woken.signal, signal]));
  }
}
