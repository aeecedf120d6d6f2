/**
 * Load for the HTTP benchmark: so many raw sockets, one request at a time on each, the next as soon as the
 * answer is complete. It reads the status and the length of an answer and nothing else, so that the
 * machine is left to what is measured. Answers are counted; any status from 300 up ends the run.
 */
import type { Socket } from "bun";

export type Load = {
  readonly url: string;
  readonly connections: number;
  readonly durationMs: number;
  /** Bytes of the next request; every one with an id or a nonce of its own. */
  readonly request: () => Buffer<ArrayBuffer>;
};

/** Where the answer that is arriving stands. */
type Place = { missing: number; head: Buffer | null };

const headEnd = Buffer.from("\r\n\r\n");

/** Answers a second. */
export async function measureLoad(load: Load): Promise<number> {
  const { hostname, port } = new URL(load.url);
  let answered = 0;
  let open = true;
  let refuse: (reason: Error) => void = () => undefined;
  const refused = new Promise<never>((_, reject) => {
    refuse = reject;
  });
  const end = (socket: Socket<Place>, reason: string): void => {
    if (open) refuse(new Error(reason));
    socket.end();
  };
  const socketRules = {
    open: (socket: Socket<Place>) => void socket.write(load.request()),
    data: (socket: Socket<Place>, chunk: Buffer) => {
      const left = take(socket.data, chunk);
      if (typeof left === "string") end(socket, left);
      if (left !== true) return;
      answered += 1;
      if (open && socket.write(load.request()) < 0) end(socket, "a connection was closed");
    },
    close: (socket: Socket<Place>) => end(socket, "a connection was closed"),
    error: (socket: Socket<Place>, error: Error) => end(socket, error.message),
  };
  const sockets = await Promise.all(
    Array.from({ length: load.connections }, () =>
      Bun.connect<Place>({ hostname, port: Number(port), data: { missing: 0, head: null }, socket: socketRules }),
    ),
  );
  const startedMs = performance.now();
  const before = answered;
  await Promise.race([Bun.sleep(load.durationMs), refused]);
  const perSecond = ((answered - before) * 1_000) / (performance.now() - startedMs);
  open = false;
  for (const socket of sockets) socket.end();
  return perSecond;
}

/** `true` when the answer is complete, `false` while it is not, a text when it is none of success. */
function take(place: Place, chunk: Buffer): boolean | string {
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
  const length = /content-length: (\d+)/.exec(head)?.[1];
  if (length === undefined) return `an answer without a length: ${head}`;
  place.missing = Number(length) - (bytes.length - at - headEnd.length);
  return place.missing === 0;
}
