/**
 * Load for the comparison with other servers: so many raw connections, one request at a time on
 * each, over the protocol of the server that is measured. It reads of an answer whether it is
 * complete and whether it is a success.
 */
import type { Socket } from "bun";

/** How a store is asked of one kind of server. */
export type Protocol = {
  /**
   * What a connection sends at first, each part after the answer to the one before. Connections
   * count from 0.
   */
  readonly hello: (connection: number) => readonly Uint8Array[];
  /** The next store; every one with an id of its own. */
  readonly request: (connection: number) => Uint8Array;
  /** Whether the bytes are a whole answer; a text when they are an answer of failure. */
  readonly isComplete: (bytes: Buffer) => boolean | string;
};

export type Load = {
  /** Of the processes that answer as one: connections go round them. */
  readonly ports: readonly number[];
  readonly connections: number;
  readonly durationMs: number;
  readonly protocol: Protocol;
};

type Conversation = {
  readonly connection: number;
  readonly hello: readonly Uint8Array[];
  received: Buffer;
  said: number;
  askedAtMs: number;
};

/** Answers in the time, and the 99th percentile of their milliseconds. */
export type Measured = {
  readonly answers: number;
  readonly durationMs: number;
  readonly p99Ms: number;
};

export async function measure({
  ports,
  connections,
  durationMs,
  protocol,
}: Load): Promise<Measured> {
  const times: number[] = [];
  let open = true;
  const { promise: failed, reject } = Promise.withResolvers<never>();
  const fail = (reason: string): void => {
    if (open) reject(new Error(reason));
  };
  const next = (socket: Socket<Conversation>): void => {
    const { data } = socket;
    const part = data.hello[data.said++] ?? protocol.request(data.connection);
    data.askedAtMs = performance.now();
    if (socket.write(part) < 0) fail("a connection was closed");
  };
  const take = (socket: Socket<Conversation>, chunk: Buffer): void => {
    const { data } = socket;
    const bytes = data.received.length === 0 ? chunk : Buffer.concat([data.received, chunk]);
    const complete = protocol.isComplete(bytes);
    data.received = complete === true ? nothing : Buffer.from(bytes);
    if (typeof complete === "string") fail(complete);
    if (complete !== true) return;
    if (data.said > data.hello.length) times.push(performance.now() - data.askedAtMs);
    if (open) next(socket);
  };
  const sockets = await Promise.all(
    Array.from({ length: connections }, (_, connection) =>
      Bun.connect<Conversation>({
        hostname: "127.0.0.1",
        port: ports[connection % ports.length] as number,
        data: {
          connection,
          hello: protocol.hello(connection),
          received: nothing,
          said: 0,
          askedAtMs: 0,
        },
        socket: {
          open: next,
          data: take,
          close: () => fail("a connection was closed"),
          error: (_, e) => fail(e.message),
        },
      }),
    ),
  );
  const begunMs = performance.now();
  await Promise.race([Bun.sleep(durationMs), failed]);
  const elapsedMs = performance.now() - begunMs;
  const answers = times.length;
  open = false;
  for (const socket of sockets) socket.end();
  times.sort((a, b) => a - b);
  return { answers, durationMs: elapsedMs, p99Ms: times[Math.floor(answers * 0.99)] ?? 0 };
}

const nothing = Buffer.alloc(0);
