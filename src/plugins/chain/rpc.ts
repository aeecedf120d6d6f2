/**
 * JSON-RPC over one WebSocket to one node. Every question has a limit of time; a node that sends anything
 * else than JSON-RPC loses the connection. The chain library's own provider is not used: it throws where
 * nobody can catch it when a node sends what is no JSON, and puts whole addresses and requests into its
 * errors.
 *
 * Law: nothing that leaves this file holds more of an endpoint than its scheme, host and port, because
 * the rest may be a provider's access key.
 */

/** What a node answered instead of a result. */
export class NodeRefusal extends Error {
  constructor(
    readonly code: number,
    message: string,
  ) {
    super(message);
  }
}

/** What may be told of an endpoint. */
export const nameOf = (endpoint: string): string => new URL(endpoint).origin;

/** The largest block is far below: 5 MiB of extrinsics in hex, and their events. */
const frameCharsMax = 64 * 1024 * 1024;
/** What a node says is shown this far. */
const wordsMax = 300;
const notRpc = "the node sent what is no JSON-RPC";
/** What is shorter is no key, and may well be a word of the text around it. */
const secretCharsMin = 4;

type Question = {
  readonly resolve: (result: unknown) => void;
  readonly reject: (error: Error) => void;
  /** Of a subscription: called whenever it has news, from the answer on. */
  readonly heard: (() => void) | null;
};

type Frame = {
  readonly id?: unknown;
  readonly method?: unknown;
  readonly params?: { readonly subscription?: unknown } | null;
  readonly result?: unknown;
  readonly error?: { readonly code?: unknown; readonly message?: unknown; readonly data?: unknown } | null;
};

export class Rpc {
  private readonly questions = new Map<number, Question>();
  private readonly subscriptions = new Map<string, () => void>();
  private readonly opened = Promise.withResolvers<void>();
  private readonly ended = Promise.withResolvers<string>();
  private readonly clean: (text: string) => string;
  private nextId = 1;
  private reason: string | null = null;

  private constructor(
    private readonly socket: WebSocket,
    endpoint: string,
  ) {
    this.clean = withoutSecrets(endpoint);
    // Whoever waits for the opening hears of it; nobody else has to.
    this.opened.promise.catch(() => {});
    socket.onopen = () => this.opened.resolve();
    socket.onmessage = ({ data }) => this.hear(data);
    socket.onerror = (event) =>
      this.end(this.clean("message" in event ? String(event.message) : "the connection failed"));
    socket.onclose = ({ code }) => this.end(`the connection was lost (${code})`);
  }

  /** Throws when there is no connection within `waitMs`. An aborted `signal` ends it at any time. */
  static async open(endpoint: string, { waitMs, signal }: { waitMs: number; signal: AbortSignal }): Promise<Rpc> {
    signal.throwIfAborted();
    const rpc = new Rpc(socketTo(endpoint), endpoint);
    const abort = () => rpc.close();
    signal.addEventListener("abort", abort);
    void rpc.over.then(() => signal.removeEventListener("abort", abort));
    try {
      await limited(rpc.opened.promise, waitMs, "no connection");
      return rpc;
    } catch (error) {
      rpc.close();
      throw error;
    }
  }

  /** Resolves with the reason when the connection is over. */
  get over(): Promise<string> {
    return this.ended.promise;
  }

  /** Throws a `NodeRefusal`, or another error when no answer came within `waitMs` or the connection is over. */
  ask(method: string, params: readonly unknown[], waitMs: number): Promise<unknown> {
    return this.question({ method, params, heard: null }, waitMs);
  }

  /** Resolves once the node agrees. What it says later is only that there is something new. */
  async subscribe(method: string, heard: () => void, waitMs: number): Promise<void> {
    await this.question({ method, params: [], heard }, waitMs);
  }

  close(): void {
    this.end("the connection was closed");
  }

  private async question(
    { method, params, heard }: { method: string; params: readonly unknown[]; heard: (() => void) | null },
    waitMs: number,
  ): Promise<unknown> {
    if (this.reason !== null) throw new Error(this.reason);
    const id = this.nextId++;
    const { promise, resolve, reject } = Promise.withResolvers<unknown>();
    this.questions.set(id, { resolve, reject, heard });
    try {
      this.socket.send(JSON.stringify({ id, jsonrpc: "2.0", method, params }));
      return await limited(promise, waitMs, `no answer to ${method}`);
    } finally {
      this.questions.delete(id);
    }
  }

  /** Nobody could catch what is thrown here: even turning a member into text can throw. */
  private hear(text: unknown): void {
    try {
      const frame = parseFrame(text);
      if (frame !== null) this.receive(frame);
      else this.end(notRpc);
    } catch {
      this.end(notRpc);
    }
  }

  private receive(frame: Frame): void {
    if (frame.method !== undefined) {
      this.subscriptions.get(String(frame.params?.subscription))?.();
      return;
    }
    const question = typeof frame.id === "number" ? this.questions.get(frame.id) : undefined;
    if (question === undefined) return;
    if (frame.error !== undefined && frame.error !== null) {
      question.reject(this.refusalOf(frame.error));
      return;
    }
    if (question.heard !== null) this.subscriptions.set(String(frame.result), question.heard);
    question.resolve(frame.result);
  }

  private refusalOf({ code, message, data }: NonNullable<Frame["error"]>): NodeRefusal {
    const detail = data === undefined ? "" : `: ${typeof data === "string" ? data : JSON.stringify(data)}`;
    return new NodeRefusal(Number(code), this.clean(`${message}${detail}`));
  }

  private end(reason: string): void {
    if (this.reason !== null) return;
    this.reason = reason;
    const error = new Error(reason);
    this.opened.reject(error);
    for (const { reject } of this.questions.values()) reject(error);
    this.subscriptions.clear();
    drop(this.socket);
    this.ended.resolve(reason);
  }
}

function socketTo(endpoint: string): WebSocket {
  try {
    return new WebSocket(endpoint);
  } catch {
    // What is thrown holds the whole address.
    throw new Error("the endpoint is no address of a WebSocket");
  }
}

/** At once: a node that has fallen silent would not answer a farewell, and hold the socket. */
function drop(socket: WebSocket): void {
  if ("terminate" in socket && typeof socket.terminate === "function") socket.terminate();
  else socket.close();
}

function parseFrame(text: unknown): Frame | null {
  if (typeof text !== "string" || text.length > frameCharsMax) return null;
  try {
    const frame: unknown = JSON.parse(text);
    return typeof frame === "object" && frame !== null && !Array.isArray(frame) ? frame : null;
  } catch {
    return null;
  }
}

/** Takes out of a text whatever an endpoint has behind its host, as a whole and in its parts, and shortens it. */
export function withoutSecrets(endpoint: string): (text: string) => string {
  const { href, origin, pathname, search } = new URL(endpoint);
  const values = [...new URLSearchParams(search)].flat();
  const raw = `${pathname}/${search.slice(1)}`.split(/[/&=]/);
  const parts = [...raw, ...raw.map(decoded), ...values].filter((part) => part.length >= secretCharsMin);
  const rest = href.slice(href.indexOf(pathname, origin.length));
  const secrets = [...parts, ...(rest.length > 1 ? [rest] : [])].sort((a, b) => b.length - a.length);
  return (text) => {
    let clean = text.replaceAll(endpoint, origin).replaceAll(href, origin);
    for (const secret of secrets) clean = clean.replaceAll(secret, "…");
    return clean.length > wordsMax ? `${clean.slice(0, wordsMax)}…` : clean;
  };
}

function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

async function limited<T>(work: Promise<T>, ms: number, late: string): Promise<T> {
  const { promise, reject } = Promise.withResolvers<never>();
  const timer = setTimeout(() => reject(new Error(`${late} within ${ms} ms`)), ms);
  try {
    return await Promise.race([work, promise]);
  } finally {
    clearTimeout(timer);
  }
}
