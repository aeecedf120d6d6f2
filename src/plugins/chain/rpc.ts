/**
 * JSON-RPC over one WebSocket to one node, and what nodes answer, parsed. Every request has
 * a deadline; a node that sends anything else than JSON-RPC loses the connection.
 *
 * Why not a library's connection: `@polkadot/rpc-provider` 16, `polkadot-api` 2.2 and
 * `dedot` 1.3 each raise an uncaught `SyntaxError` on one malformed frame, which ends a
 * server, and put whole addresses and requests into their errors. When one of them parses
 * frames inside a `try`, this file may go.
 *
 * Law: nothing that leaves this file holds more of an endpoint than its scheme, host and
 * port, because the rest may be a provider's access key.
 */
import { compactFromU8a, compactToU8a } from "@polkadot/util";
import { z } from "zod";
import { concatBytes, encodeHex0x } from "../../core/codec/bytes.ts";
import { blake2b256 } from "../../core/codec/crypto.ts";
import { type After, late, withDeadline } from "../../core/std/bounded.ts";
import { isLight } from "./chain.ts";
import { isRootOf } from "./trie.ts";

/** Time and network, which tests replace to run faster than time passes. */
export type Host = {
  /** Wall clock. */
  readonly nowMs: () => number;
  /** Monotonic; only differences mean anything. */
  readonly elapsedMs: () => number;
  readonly after: After;
  readonly connect: (endpoint: string, events: SocketEvents) => Socket;
  /** From 0 up to, not including, 1. */
  readonly chance: () => number;
};

export type SocketEvents = {
  readonly onOpen: () => void;
  readonly onMessage: (data: unknown) => void;
  /** The socket is over. */
  readonly onClose: (reason: string) => void;
};

export type Socket = { readonly send: (text: string) => void; readonly close: () => void };

export const systemHost = (nowMs: () => number): Host => ({
  nowMs,
  elapsedMs: () => performance.now(),
  after: (ms, work) => {
    const timer = setTimeout(work, ms);
    return () => clearTimeout(timer);
  },
  connect: connectWebSocket,
  chance: Math.random,
});

/** A node, or the light client, answered with an error instead of a result. */
export class NodeRefusal extends Error {
  constructor(
    readonly code: number,
    message: string,
  ) {
    super(message);
  }
}

/** The name of an endpoint in logs and answers. */
export const endpointName = (endpoint: string): string =>
  isLight(endpoint) ? endpoint : new URL(endpoint).origin;

/** Far above the largest block, which has 5 MiB of extrinsics in hex, and their events. */
const frameCharsMax = 64 * 1024 * 1024;
/** Logs show a node's text up to this length. */
const textCharsMax = 300;
const notRpc = "the node sent an invalid JSON-RPC message";
/** A shorter part is not a key, and may be a word of the text around it. */
const secretCharsMin = 4;

/** A message of a node. Nothing in it is verified yet. */
type RpcFrame = {
  readonly id?: unknown;
  readonly result?: unknown;
  readonly error?: {
    readonly code?: unknown;
    readonly message?: unknown;
    readonly data?: unknown;
  } | null;
};

/** To one node, or to the light client. */
export type RpcConnection = {
  /**
   * Throws a `NodeRefusal`, or another error when no answer came within `waitMs` or the
   * connection is over.
   */
  readonly ask: (method: string, params: readonly unknown[], waitMs: number) => Promise<unknown>;
  /** Resolves with the reason when the connection is over. */
  readonly over: Promise<string>;
  readonly close: () => void;
};

export type OpenOptions = {
  readonly waitMs: number;
  readonly signal: AbortSignal;
  readonly host: Host;
};

export class Rpc implements RpcConnection {
  private readonly requests = new Map<number, PromiseWithResolvers<unknown>>();
  private readonly opened = Promise.withResolvers<void>();
  private readonly ended = Promise.withResolvers<string>();
  private readonly clean: (text: string) => string;
  private readonly socket: Socket;
  private nextId = 1;
  private reason: string | null = null;

  private constructor(
    endpoint: string,
    private readonly host: Host,
  ) {
    this.clean = withoutSecrets(endpoint);
    // Only `open` waits for it.
    this.opened.promise.catch(() => {});
    this.socket = host.connect(endpoint, {
      onOpen: () => this.opened.resolve(),
      onMessage: (data) => this.onMessage(data),
      onClose: (reason) => this.end(this.clean(reason)),
    });
  }

  /**
   * Throws when there is no connection within `waitMs`. An aborted `signal` ends the
   * connection at any time.
   */
  static async open(endpoint: string, { waitMs, signal, host }: OpenOptions): Promise<Rpc> {
    signal.throwIfAborted();
    const rpc = new Rpc(endpoint, host);
    const abort = () => rpc.close();
    signal.addEventListener("abort", abort);
    void rpc.over.then(() => signal.removeEventListener("abort", abort));
    try {
      await within(host, { work: rpc.opened.promise, ms: waitMs, missing: "no connection" });
      return rpc;
    } catch (error) {
      rpc.close();
      throw error;
    }
  }

  get over(): Promise<string> {
    return this.ended.promise;
  }

  close(): void {
    this.end("the connection was closed");
  }

  async ask(method: string, params: readonly unknown[], waitMs: number): Promise<unknown> {
    if (this.reason !== null) throw new Error(this.reason);
    const id = this.nextId++;
    const request = Promise.withResolvers<unknown>();
    this.requests.set(id, request);
    try {
      this.socket.send(JSON.stringify({ id, jsonrpc: "2.0", method, params }));
      return await within(this.host, {
        work: request.promise,
        ms: waitMs,
        missing: `no answer to ${method}`,
      });
    } finally {
      this.requests.delete(id);
    }
  }

  /**
   * No caller could catch an exception of this method, and even turning a member into text
   * can throw.
   */
  private onMessage(text: unknown): void {
    try {
      const frame: RpcFrame | null = parseObject(text);
      if (frame !== null) this.receive(frame);
      else this.end(notRpc);
    } catch {
      this.end(notRpc);
    }
  }

  private receive({ id, error, result }: RpcFrame): void {
    const request = typeof id === "number" ? this.requests.get(id) : undefined;
    if (error !== undefined && error !== null) request?.reject(this.refusalOf(error));
    else request?.resolve(result);
  }

  private refusalOf({ code, message, data }: NonNullable<RpcFrame["error"]>): NodeRefusal {
    const detail =
      data === undefined ? "" : `: ${typeof data === "string" ? data : JSON.stringify(data)}`;
    return new NodeRefusal(Number(code), this.clean(`${message}${detail}`));
  }

  private end(reason: string): void {
    if (this.reason !== null) return;
    this.reason = reason;
    const error = new Error(reason);
    this.opened.reject(error);
    for (const { reject } of this.requests.values()) reject(error);
    this.socket?.close();
    this.ended.resolve(reason);
  }
}

function connectWebSocket(endpoint: string, { onOpen, onMessage, onClose }: SocketEvents): Socket {
  let socket: WebSocket;
  try {
    socket = new WebSocket(endpoint);
  } catch {
    // The exception holds the whole address.
    throw new Error("the endpoint is not the address of a WebSocket");
  }
  socket.onopen = onOpen;
  socket.onmessage = ({ data }) => onMessage(data);
  socket.onerror = (event) =>
    onClose("message" in event ? String(event.message) : "the connection failed");
  socket.onclose = ({ code }) => onClose(`the connection was lost (${code})`);
  return {
    send: (text) => socket.send(text),
    // At once: a silent node would not answer a closing handshake, and would keep the socket.
    close: () => {
      if ("terminate" in socket && typeof socket.terminate === "function") socket.terminate();
      else socket.close();
    },
  };
}

/** `null` for anything that is not a JSON object of a bounded length. Never throws. */
export function parseObject(text: unknown): object | null {
  if (typeof text !== "string" || text.length > frameCharsMax) return null;
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object" && value !== null && !Array.isArray(value) ? value : null;
  } catch {
    return null;
  }
}

/**
 * Removes from a text everything that an endpoint has behind its host, as a whole and in
 * its parts, and shortens it.
 */
export function withoutSecrets(endpoint: string): (text: string) => string {
  const { origin, href } = isLight(endpoint)
    ? { origin: endpoint, href: endpoint }
    : new URL(endpoint);
  const rest = href.slice(origin.length);
  const decoded = [...new URLSearchParams(rest.replaceAll(/[/?]/g, "&"))].flat();
  const secrets = [rest, ...rest.split(/[/?&=]/), ...decoded].filter(
    ({ length }) => length >= secretCharsMin,
  );
  secrets.sort((a, b) => b.length - a.length);
  return (text) => {
    let clean = text.replaceAll(endpoint, origin).replaceAll(href, origin);
    for (const secret of secrets) clean = clean.replaceAll(secret, "…");
    return clean.length > textCharsMax ? `${clean.slice(0, textCharsMax)}…` : clean;
  };
}

export async function within<T>(
  host: Host,
  given: { work: Promise<T>; ms: number; missing: string },
): Promise<T> {
  const outcome = await withDeadline(given.work, given.ms, host.after);
  if (outcome === late) throw new Error(`${given.missing} within ${given.ms} ms`);
  return outcome;
}

// ------------------------------------------------------------------------------ parsing of answers

export type Header = {
  readonly number: bigint;
  readonly parentHash: string;
  readonly extrinsicsRoot: string;
  readonly hash: string;
  /** Whether the next block has another runtime (`DigestItem::RuntimeEnvironmentUpdated`). */
  readonly changesRuntime: boolean;
};
export type SignedBlock = { readonly header: Header; readonly extrinsics: readonly Uint8Array[] };
export type RuntimeVersion = z.output<typeof version>;

const hash = z.string().regex(/^0x[0-9a-f]{64}$/, "no hash");
const isHex = (text: unknown): boolean =>
  typeof text === "string" && /^0x(?:[0-9a-f]{2})*$/.test(text);
const hex = z.custom<`0x${string}`>(isHex, "no hex");
const bytes = hex.transform((text) => Uint8Array.fromHex(text.slice(2)));
const count = z.int().min(0);
const version = z.object({ specName: z.string(), specVersion: count, transactionVersion: count });
const number = z
  .string()
  .regex(/^0x[0-9a-f]{1,8}$/, "no u32")
  .transform(BigInt);
const root = z.object({ parentHash: hash, number, stateRoot: hash, extrinsicsRoot: hash });
const header = root.extend({ digest: z.object({ logs: z.array(bytes) }) }).transform(withHash);
const block = z.object({ block: z.object({ header, extrinsics: z.array(bytes) }) }).nullable();
const changes = z.array(z.tuple([z.string(), bytes.nullish()]));
const storage = z.array(z.object({ block: z.string(), changes }));

/**
 * Parsers of answers throw when an answer has another form; the session then ends the
 * connection.
 */
const parserOf =
  <T>(schema: z.ZodType<T>) =>
  (answer: unknown): T => {
    const { success, data, error } = schema.safeParse(answer);
    if (success) return data;
    throw new Error(
      error.issues.map(({ path, message }) => `${path.join(".")} ${message}`.trim())[0],
    );
  };

export const parseHash = parserOf(hash);
export const parseHex = parserOf(hex);
export const parseHeader = parserOf(header);
export const parseVersion = parserOf(version);
const parseAnyBlock = parserOf(block);
const parseAnyStorage = parserOf(storage);

/** The item of a digest that says it; it has no content. */
const runtimeUpdated = 8;

/**
 * The hash that the header's own bytes have. The chain library would decode the logs, which
 * nothing here reads: it prints what it can't decode to the console, and refuses kinds that
 * it does not know.
 */
function withHash({
  digest,
  ...given
}: z.output<typeof root> & { digest: { logs: Uint8Array[] } }): Header {
  const { parentHash, number: height, stateRoot, extrinsicsRoot } = given;
  const encoded = concatBytes(
    Uint8Array.fromHex(parentHash.slice(2)),
    compactToU8a(height),
    Uint8Array.fromHex(stateRoot.slice(2)),
    Uint8Array.fromHex(extrinsicsRoot.slice(2)),
    compactToU8a(digest.logs.length),
    ...digest.logs,
  );
  return {
    number: height,
    parentHash,
    extrinsicsRoot,
    hash: encodeHex0x(blake2b256(encoded)),
    changesRuntime: digest.logs.some((log) => log.length === 1 && log[0] === runtimeUpdated),
  };
}

/**
 * The extrinsics are those that the header names, and each is one: its length before it.
 * `null` when the node no longer has the block.
 */
export function parseBlock(answer: unknown): SignedBlock | null {
  const found = parseAnyBlock(answer)?.block ?? null;
  if (found === null) return null;
  if (!found.extrinsics.every(isFramed) || !isRootOf(found.header.extrinsicsRoot, found.extrinsics))
    throw new Error("its extrinsics are not those of its header");
  return found;
}

/** Whatever a block holds, its author and every node have read by its length. */
function isFramed(extrinsic: Uint8Array): boolean {
  if (extrinsic.length === 0) return false;
  const [at, length] = compactFromU8a(extrinsic);
  return length.eqn(extrinsic.length - at);
}

export const parseSyncing = (answer: unknown): boolean =>
  parserOf(z.object({ isSyncing: z.unknown() }))(answer).isSyncing === true;

/**
 * The values of exactly the keys that were asked for, at the block that was asked for: an
 * answer without a key proves nothing about it. `null` when the node does not know the
 * block.
 */
export const parseStorage =
  (keys: readonly string[], at: string) =>
  (answer: unknown): (Uint8Array | null)[] | null => {
    const sets = parseAnyStorage(answer);
    if (sets.length === 0) return null;
    if (sets.some((set) => set.block !== at)) throw new Error("it is about another block");
    const values = new Map(
      sets.flatMap((set) => set.changes.map(([key, value]) => [key, value ?? null] as const)),
    );
    if (!keys.every((key) => values.has(key))) throw new Error("it leaves out a key");
    return keys.map((key) => values.get(key) ?? null);
  };
