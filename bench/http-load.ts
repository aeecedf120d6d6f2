/**
 * Load for the HTTP benchmark: so many raw sockets, one request at a time on each, the next as soon
 * as the answer is complete. It reads the status and the length of an answer and nothing else, so
 * that the machine is left to what is measured. Answers are counted; any status from 300 up ends
 * the run.
 */
import type { Socket } from "bun";

export type Load = {
  readonly url: string;
  readonly connections: number;
  readonly durationMs: number;
  /** Fewer end the run earlier. */
  readonly requestsMax?: number;
  /** Bytes of the next request; every one with an id or a nonce of its own. */
  readonly request: () => Buffer<ArrayBuffer>;
};

/**
 * Where the answer that is arriving stands, and when its request was due. Of one in chunks the tail
 * is known.
 */
type Place = { missing: number; head: Buffer | null; tail: Buffer | null; dueMs: number };

type Clients = {
  readonly sockets: readonly Socket<Place>[];
  /** Rejects when a connection ends or an answer is none of success. */
  readonly failed: Promise<never>;
  readonly close: () => void;
};

const headEnd = Buffer.from("\r\n\r\n");
/** Of an answer in chunks. No JSON holds it. */
const lastChunk = Buffer.from("\r\n0\r\n\r\n");

async function openClients(
  load: Load,
  answered: (socket: Socket<Place>) => void,
): Promise<Clients> {
  const { hostname, port } = new URL(load.url);
  let open = true;
  const { promise: failed, reject } = Promise.withResolvers<never>();
  const end = (socket: Socket<Place>, reason: string): void => {
    if (open) reject(new Error(reason));
    socket.end();
  };
  const socketRules = {
    data: (socket: Socket<Place>, chunk: Buffer) => {
      const left = take(socket.data, chunk);
      if (typeof left === "string") end(socket, left);
      else if (left && open) answered(socket);
    },
    close: (socket: Socket<Place>) => end(socket, "a connection was closed"),
    error: (socket: Socket<Place>, error: Error) => end(socket, error.message),
  };
  const sockets = await Promise.all(
    Array.from({ length: load.connections }, () => {
      const data = { missing: 0, head: null, tail: null, dueMs: 0 };
      return Bun.connect<Place>({ hostname, port: Number(port), data, socket: socketRules });
    }),
  );
  const close = (): void => {
    open = false;
    for (const socket of sockets) socket.end();
  };
  return { sockets, failed, close };
}

export type Measured = { readonly answers: number; readonly perSecond: number };

/**
 * Every request is answered before the connections end: a node goes on with what nobody waits for,
 * and counts it beside the next run, where the two together may be more than one client network may
 * have in work (503).
 */
export async function measureLoad({
  requestsMax = Number.POSITIVE_INFINITY,
  ...load
}: Load): Promise<Measured> {
  let [sent, answers, isOver] = [0, 0, false];
  const { promise: ended, resolve: end } = Promise.withResolvers<void>();
  const send = (socket: Socket<Place>): void => {
    if (isOver || sent === requestsMax) {
      if (answers === sent) end();
      return;
    }
    sent += 1;
    socket.write(load.request());
  };
  const { sockets, failed, close } = await openClients(load, (socket) => {
    answers += 1;
    send(socket);
  });
  const startedMs = performance.now();
  for (const socket of sockets) send(socket);
  await Promise.race([Bun.sleep(load.durationMs), ended, failed]);
  isOver = true;
  await Promise.race([ended, failed]);
  const perSecond = (answers * 1_000) / (performance.now() - startedMs);
  close();
  return { answers, perSecond };
}

/**
 * The 99th percentile, in milliseconds, of requests that come at an even pace whatever became of
 * those before: a request that finds no free connection waits, and its wait counts.
 */
export async function measureP99(load: Load, perSecond: number): Promise<number> {
  const times: number[] = [];
  const waiting: number[] = [];
  const send = (socket: Socket<Place>, dueMs: number): void => {
    socket.data.dueMs = dueMs;
    socket.write(load.request());
  };
  const free: Socket<Place>[] = [];
  const { sockets, failed, close } = await openClients(load, (socket) => {
    times.push(performance.now() - socket.data.dueMs);
    const next = waiting.shift();
    if (next === undefined) free.push(socket);
    else send(socket, next);
  });
  free.push(...sockets);
  const startedMs = performance.now();
  let sent = 0;
  const timer = setInterval(() => {
    for (const due = ((performance.now() - startedMs) * perSecond) / 1_000; sent < due; sent++) {
      const dueMs = startedMs + (sent * 1_000) / perSecond;
      const socket = free.pop();
      if (socket === undefined) waiting.push(dueMs);
      else send(socket, dueMs);
    }
  }, 1);
  await Promise.race([Bun.sleep(load.durationMs), failed]).finally(() => clearInterval(timer));
  close();
  times.sort((a, b) => a - b);
  return times[Math.floor(times.length * 0.99)] ?? Number.POSITIVE_INFINITY;
}

/**
 * `true` when the answer is complete, `false` while it is not, a text when it is none of success.
 */
function take(place: Place, chunk: Buffer): boolean | string {
  if (place.tail !== null) return isLastChunk(place, Buffer.concat([place.tail, chunk]));
  if (place.missing > 0) {
    place.missing -= chunk.length;
    return place.missing === 0;
  }
  const bytes = place.head === null ? chunk : Buffer.concat([place.head, chunk]);
  const at = bytes.indexOf(headEnd);
  place.head = at < 0 ? bytes : null;
  if (at < 0) return false;
  const head = bytes.toString("latin1", 0, at).toLowerCase();
  if (!head.startsWith("http/1.1 2")) return bytes.toString().slice(0, 1_000);
  if (head.includes("transfer-encoding: chunked")) return isLastChunk(place, bytes);
  const length = /content-length: (\d+)/.exec(head)?.[1];
  if (length === undefined) return `an answer without a length: ${head}`;
  place.missing = Number(length) - (bytes.length - at - headEnd.length);
  return place.missing === 0;
}

function isLastChunk(place: Place, bytes: Buffer): boolean {
  const isLast = bytes.subarray(-lastChunk.length).equals(lastChunk);
  place.tail = isLast ? null : bytes.subarray(-lastChunk.length);
  return isLast;
}
