/**
 * What the nodes take of Bun, over Node's modules, for the thread of a test's node in
 * other runtimes: the server, a few functions, and methods of the language that older
 * runtimes lack. In a thread of its own, so an app under test sees none of it. Simple
 * before fast: answers are held whole.
 */
import { createHash, createHmac, type Hash, type Hmac } from "node:crypto";
import { lookup } from "node:dns/promises";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { Duplex } from "node:stream";
import { Readable } from "node:stream";
import { acceptSocket, type FrameHandlers } from "./sockets.ts";

const isBun = "bun" in process.versions;

/** Those of 2024 and later, in the form of the standard. */
function addLanguage(): void {
  const add = (target: object, name: string, value: unknown) => {
    if (!(name in target))
      Object.defineProperty(target, name, { value, configurable: true, writable: true });
  };
  add(Promise, "withResolvers", () => {
    let resolve: unknown;
    let reject: unknown;
    const promise = new Promise((fulfil, fail) => {
      [resolve, reject] = [fulfil, fail];
    });
    return { promise, resolve, reject };
  });
  add(Promise, "try", async (work: (...values: unknown[]) => unknown, ...values: unknown[]) =>
    work(...values),
  );
  add(Map, "groupBy", (items: Iterable<unknown>, keyOf: (item: unknown) => unknown) => {
    const groups = new Map<unknown, unknown[]>();
    for (const item of items) {
      const key = keyOf(item);
      groups.set(key, [...(groups.get(key) ?? []), item]);
    }
    return groups;
  });
  add(Object, "groupBy", (items: Iterable<unknown>, keyOf: (item: unknown) => string) => {
    const groups: Record<string, unknown[]> = Object.create(null);
    for (const item of items) {
      const key = keyOf(item);
      groups[key] = [...(groups[key] ?? []), item];
    }
    return groups;
  });
  add(Uint8Array, "fromHex", (text: string) => new Uint8Array(Buffer.from(text, "hex")));
  add(Uint8Array, "fromBase64", (text: string) => new Uint8Array(Buffer.from(text, "base64")));
  add(Uint8Array.prototype, "setFromHex", function setFromHex(this: Uint8Array, text: string) {
    const bytes = Buffer.from(text, "hex");
    this.set(bytes);
    return { read: text.length, written: bytes.length };
  });
  add(Uint8Array.prototype, "toHex", function toHex(this: Uint8Array) {
    return Buffer.from(this).toString("hex");
  });
  add(Uint8Array.prototype, "toBase64", toBase64);
}

type Alphabet = { readonly alphabet?: string; readonly omitPadding?: boolean };

function toBase64(this: Uint8Array, { alphabet, omitPadding }: Alphabet = {}): string {
  const text = Buffer.from(this).toString(alphabet === "base64url" ? "base64url" : "base64");
  return omitPadding === true ? text.replace(/=+$/, "") : text;
}

// ------------------------------------------------------------------------------------------ server

type Routed = Request & { params?: Record<string, string> };

type Connection = {
  readonly port: number;
  readonly requestIP: () => { readonly address: string };
  readonly upgrade: (request: Request, options: { readonly data: unknown }) => boolean;
};

type Respond = (request: Routed, connection: Connection) => Promise<Response | undefined>;

type ServeOptions = {
  readonly hostname: string;
  readonly port: number;
  /** Paths with `:names`. */
  readonly routes: Readonly<Record<string, Respond>>;
  readonly fetch: Respond;
  readonly websocket: FrameHandlers;
};

/** A path as it was sent, and the values in it; `null` for another path. */
function valuesOf(pattern: string, path: string): Record<string, string> | null {
  const [wanted, given] = [pattern.split("/"), path.split("/")];
  if (wanted.length !== given.length) return null;
  const values: Record<string, string> = {};
  for (const [i, part] of wanted.entries()) {
    const value = given[i] ?? "";
    if (part.startsWith(":") && value !== "") values[part.slice(1)] = decoded(value);
    else if (part !== value) return null;
  }
  return values;
}

function decoded(value: string): string {
  try {
    return decodeURIComponent(value);
  } catch {
    return value;
  }
}

function serve({ hostname, port, routes, fetch, websocket }: ServeOptions) {
  const place = { port };
  const answer = async (
    incoming: IncomingMessage,
    upgrade: Connection["upgrade"],
    signal: AbortSignal,
  ): Promise<Response | undefined> => {
    const request: Routed = requestOf(incoming, signal);
    const path = (incoming.url ?? "/").split("?")[0] ?? "/";
    const address = incoming.socket.remoteAddress ?? hostname;
    const connection = { port: place.port, requestIP: () => ({ address }), upgrade };
    for (const [pattern, respond] of Object.entries(routes)) {
      const params = valuesOf(pattern, path);
      if (params !== null) return respond(Object.assign(request, { params }), connection);
    }
    return fetch(request, connection);
  };
  const sockets = new Set<Duplex>();
  const server = createServer((incoming, outgoing) => {
    const left = new AbortController();
    outgoing.once("close", () => left.abort());
    void answer(incoming, () => false, left.signal).then((response) =>
      writeResponse(outgoing, response),
    );
  });
  server.on("upgrade", (incoming, socket: Duplex) => {
    sockets.add(socket);
    socket.once("close", () => sockets.delete(socket));
    let isTaken = false;
    const upgrade: Connection["upgrade"] = (_, { data }) => {
      isTaken = acceptSocket(incoming, socket, { data, events: websocket });
      return isTaken;
    };
    void answer(incoming, upgrade, new AbortController().signal).then((response) => {
      if (!isTaken) socket.end(`HTTP/1.1 ${response?.status ?? 400} refused\r\n\r\n`);
    });
  });
  server.listen(port, hostname);
  const stop = async (isAtOnce: boolean): Promise<void> => {
    const closed = new Promise<void>((resolve) => server.close(() => resolve()));
    if (isAtOnce) server.closeAllConnections();
    for (const socket of isAtOnce ? sockets : []) socket.destroy();
    await closed;
  };
  return { port, stop };
}

function requestOf(incoming: IncomingMessage, signal: AbortSignal): Request {
  const { method = "GET", url = "/", headers } = incoming;
  const given = new Headers();
  for (const [name, value] of Object.entries(headers)) given.set(name, String(value));
  const hasBody = method !== "GET" && method !== "HEAD";
  const init = { method, headers: given, signal };
  const body = hasBody ? { body: Readable.toWeb(incoming), duplex: "half" } : {};
  return new Request(`http://${headers.host ?? "localhost"}${url}`, {
    ...init,
    ...body,
  } as RequestInit);
}

async function writeResponse(
  outgoing: ServerResponse,
  response: Response | undefined,
): Promise<void> {
  if (response === undefined) return;
  const bytes = new Uint8Array(await response.arrayBuffer());
  outgoing.writeHead(response.status, Object.fromEntries(response.headers));
  outgoing.end(bytes);
}

// ---------------------------------------------------------------------------------------- the rest

/** For maps: never leaves the process. */
function hash(bytes: Uint8Array): bigint {
  return createHash("sha256").update(bytes).digest().readBigUInt64LE();
}

class CryptoHasher {
  readonly #hash: Hash | Hmac;
  constructor(name: string, key?: Uint8Array) {
    this.#hash = key === undefined ? createHash(name) : createHmac(name, key);
  }
  update(data: string | Uint8Array): this {
    this.#hash.update(data);
    return this;
  }
  digest(encoding: "hex"): string {
    return this.#hash.digest(encoding);
  }
}

const ofNode = {
  serve,
  hash,
  CryptoHasher,
  sleep: (ms: number) => new Promise((resolve) => setTimeout(resolve, ms)),
  gc: () => undefined,
  // Node does not say what became of a promise: it counts as pending, for which Bun
  // returns the promise itself.
  peek: Object.assign((promised: unknown) => promised, { status: () => "pending" }),
  dns: { lookup: (host: string) => lookup(host, { all: true }) },
};

if (!isBun) addLanguage();

export const native: unknown = isBun ? Reflect.get(globalThis, "Bun") : ofNode;
