/**
 * What a node gives the HTTP server: its routes, each with the facts for its documentation,
 * and the form of requests and answers that handlers see. And how an answer, or what a
 * handler throws, becomes a Response: JSON, problem+json (RFC 9457), or the DeliveryResult
 * of the Relay, with the headers of every answer: request id, no caching, and those that
 * let pages of other origins read it. Only the words of a Fault reach the client. A thrown
 * error goes to the log: one line with its stack for each bug, and one a minute for an
 * outage during which every request fails for the same reason.
 * Source: interface "Endpoints", "DeliveryResult" and "Errors", rules sections 3 and 9,
 * D140; Fetch standard, CORS protocol.
 */
import type { TSchema } from "@sinclair/typebox";
import { errorStack, type Fault, type FaultCode, fault, isFault } from "../../core/fault.ts";
import type { Envelope } from "../../core/message/envelope.ts";
import { StoreError } from "../../storage/contract.ts";
import type { Log } from "./log.ts";
import type { Peer } from "./peer.ts";

/** One request as a handler sees it. */
export type Call = {
  /** Percent-decoded path values, not yet parsed. */
  readonly params: Readonly<Record<string, string>>;
  readonly query: URLSearchParams;
  readonly headers: Headers;
  /** The body as sent, at most the route's `bodyBytesMax`; empty when the route has none. */
  readonly body: Uint8Array;
  readonly requestId: string;
  /** Address of the client after trusted proxies. */
  readonly client: string;
  /** The network under which the client is counted (`clientNetwork`). */
  readonly network: string;
  /**
   * Who asks over a Unix socket of the admin listener; `null` elsewhere, and where the
   * system does not say.
   */
  readonly peer: Peer | null;
  readonly nowMs: number;
  /**
   * Names the envelope that the request is about, for the log and for those who ask what
   * became of it.
   */
  readonly concerns: (envelope: Pick<Envelope, "messageId" | "to" | "sender">) => void;
  /**
   * Before the handler waits for what another client does: the request then counts among
   * those that wait, and others are handled meanwhile. `false` when its network has no room
   * there.
   */
  readonly waitsForOthers: () => boolean;
  /**
   * Makes the connection a WebSocket that carries `data`; the answer is then 101. `false`
   * when the request asks for none.
   */
  readonly upgrade: (data: unknown) => boolean;
};

export type Answer = {
  readonly status: number;
  readonly headers?: Readonly<Record<string, string>>;
  /** Exactly one of the three: a JSON value, JSON in parts, or another body with its type. */
  readonly json?: unknown;
  readonly jsonParts?: JsonParts;
  readonly body?: { readonly contentType: string; readonly content: Content };
};

type Content = string | Uint8Array | Spliced | ReadableStream;

/** JSON that is too long to hold. The next part is read when the client has read the one before. */
export type JsonParts = {
  /** About what the largest part has. */
  readonly bytes: number;
  readonly parts: Iterable<Uint8Array<ArrayBuffer>> | AsyncIterable<Uint8Array<ArrayBuffer>>;
};

/** Of an answer that is not JSON. */
export type MediaType = `${"application" | "text"}/${string}`;

/** A status of a route, what it means, and the schema of its JSON or the type of its bytes. */
type RouteAnswer = readonly [status: number, description: string, content?: TSchema | MediaType];

/** The credential of a request, in its headers; the schemes of the description have these names. */
export type Credential = "cacheProof" | "updateProof" | "invitation";

export type Route = {
  readonly method: "GET" | "POST" | "PUT" | "PATCH" | "DELETE";
  /** `/dids/:did/nonces`. Path values arrive percent-decoded. */
  readonly path: string;
  readonly id: string;
  readonly summary: string;
  readonly tag: "Directory" | "Relay" | "Cache" | "Node";
  /** Of the JSON that it takes. */
  readonly request?: TSchema;
  /** Headers that every request needs, and others that the route reads. */
  readonly requiredHeaders?: readonly string[];
  readonly headers?: readonly string[];
  readonly query?: readonly string[];
  /** Required where its headers are. */
  readonly credential?: Credential;
  readonly answer: RouteAnswer;
  readonly also?: RouteAnswer;
  /**
   * Of its refusals, without those of the server. With `chain_unavailable`, that is what an
   * unavailable store means here.
   */
  readonly codes?: readonly FaultCode[];
  /** Where it takes a body. */
  readonly bodyBytesMax?: number;
  /** Takes bodies of any media type: another protocol than ours. */
  readonly takesAnyType?: boolean;
  /**
   * `reserved`: acknowledgements and health, which are served even when the node is over
   * capacity.
   */
  readonly capacity: "normal" | "reserved";
  /** How a `Fault` (also of the server itself) is rendered: as a problem unless it is said. */
  readonly faults?: "problem" | "delivery";
  /** Headers of every answer of the route, refusals too. */
  readonly answerHeaders?: Readonly<Record<string, string>>;
  /** Called before the body is read: nothing is kept of a client above its rate. */
  readonly rateLimit?: (request: RatedRequest) => Fault | null;
  readonly handle: (call: Call) => Promise<Answer | Fault> | Answer | Fault;
};

/** What a rate is checked by, before the body is read. */
export type RatedRequest = Pick<Call, "client" | "network" | "nowMs">;

// -------------------------------------------------------------------------------- values of a path

/**
 * Values of the path as the server's own router read them: it decodes escapes, and an
 * invalid one becomes U+FFFD.
 */
export type RoutedRequest = Request & { readonly params?: Readonly<Record<string, string>> };

/** What no escape, dot segment or other rewriting can stand behind, however the router read it. */
const plainValue = /^[A-Za-z0-9:_-]+$/;
const rewrittenValue = /^\.\.?$|[\\\x00-\x1f\x7f\ufffd]/;

/**
 * Refuses values that a rewriting of URLs changes, and escapes that are not UTF-8. No
 * identifier holds any of them.
 */
export function checkPathValues(params: NonNullable<RoutedRequest["params"]>): Fault | null {
  for (const name in params) {
    const value = params[name] as string;
    if (plainValue.test(value) || !rewrittenValue.test(value)) continue;
    const expected =
      "UTF-8 in percent form, without dot segments, backslashes and control characters";
    return fault("invalid_request", `path values must be ${expected}`);
  }
  return null;
}

// ----------------------------------------------------------------------------------------- answers

type RenderOptions = {
  readonly requestId: string;
  readonly faults: Route["faults"];
  /** Ends the connection: the body of the request was not read. */
  readonly close: boolean;
  readonly cors: Readonly<Record<string, string>>;
  /** Headers of every answer of the route. */
  readonly headers?: Readonly<Record<string, string>> | undefined;
  /** Whether refusals of signatures show what was verified: for development. */
  readonly showSignedText?: boolean;
  /** Of a HEAD request, whose answer has the length that the content would have. */
  readonly headOnly?: boolean;
};

export function renderResponse(outcome: Answer | Fault, options: RenderOptions): Response {
  const answer = isFault(outcome) ? renderFault(outcome, options) : outcome;
  const base = baseOf(options.cors, answer.body?.contentType ?? "application/json");
  base.set("x-request-id", options.requestId);
  const response = new Response(answerContent(answer, options.headOnly === true), {
    status: answer.status,
    headers: base,
  });
  if (options.headers !== undefined) setAll(response.headers, options.headers);
  if (answer.headers !== undefined) setAll(response.headers, answer.headers);
  if (options.close) response.headers.set("connection", "close");
  return response;
}

/**
 * Headers that all answers have, which a response copies: naming them again for each costs
 * twice as much.
 */
const bases = new WeakMap<CorsHeaders, Map<string, Headers>>();

function baseOf(cors: CorsHeaders, contentType: string): Headers {
  const ofCors = bases.get(cors) ?? new Map<string, Headers>();
  const known = ofCors.get(contentType);
  if (known !== undefined) return known;
  const made = new Headers({ "content-type": contentType, "cache-control": "no-store", ...cors });
  bases.set(cors, ofCors.set(contentType, made));
  return made;
}

function setAll(headers: Headers, values: Readonly<Record<string, string>>): void {
  for (const name in values) headers.set(name, values[name] as string);
}

/** The server leaves the content of an answer to HEAD out; no one would read parts. */
function answerContent({ body, json, jsonParts }: Answer, isHead: boolean): BodyInit | null {
  if (jsonParts !== undefined) return null;
  const content = body === undefined ? JSON.stringify(json ?? null) : body.content;
  // A short text, which most answers are, needs none of the rest.
  if (typeof content === "string" && content.length < oneWriteBytesMax) return content;
  if (content instanceof ReadableStream) return content;
  const parts = partsOf(content);
  const bytes = splicedBytes(parts);
  return isHead || bytes < oneWriteBytesMax ? splice(parts) : inOneWrite(parts, bytes);
}

/** ASCII texts and bytes that are one JSON text when they follow each other. */
export type Spliced = readonly (string | Uint8Array)[];

export function spliced(parts: Spliced): Answer {
  return { status: 200, body: { contentType: "application/json", content: parts } };
}

export function partsOf(content: Exclude<Content, ReadableStream>): Spliced {
  return typeof content === "string" || content instanceof Uint8Array ? [content] : content;
}

/** Fewer than there are when a text is not ASCII. */
export function splicedBytes(parts: Spliced): number {
  let bytes = 0;
  for (const part of parts) bytes += part.length;
  return bytes;
}

/**
 * One buffer from the parts. Cost: one copy of each; a buffer for every text would cost
 * four times as much.
 */
export function splice(parts: Spliced): Uint8Array<ArrayBuffer> {
  let bytes = 0;
  for (const part of parts)
    bytes += typeof part === "string" ? Buffer.byteLength(part) : part.length;
  const joined = Buffer.allocUnsafeSlow(bytes);
  let at = 0;
  for (const part of parts) {
    if (typeof part !== "string") joined.set(part, at);
    at += typeof part === "string" ? joined.write(part, at) : part.length;
  }
  return joined;
}

/**
 * From this size on, Bun 1.4 sends each header in a separate packet if the handler awaited.
 * The node of `@waypost/client/testing` may run elsewhere.
 */
const oneWriteBytesMax = "bun" in process.versions ? 15 * 1024 : Number.POSITIVE_INFINITY;

/**
 * A direct stream that ends within its own buffer is one write, with its length: 20 KiB
 * cost 30 µs and not 170.
 */
function inOneWrite(parts: Spliced, bytes: number): BodyInit {
  const source: Bun.DirectUnderlyingSource = {
    type: "direct",
    pull: (sink) => {
      for (const part of parts) sink.write(part);
      sink.end();
    },
  };
  // The types of streams in browsers, which the SDK is written for, leave direct ones out.
  const stream: ReadableStream = Reflect.construct(ReadableStream, [
    source,
    { highWaterMark: bytes + 1 },
  ]);
  return stream;
}

function renderFault(
  fault: Fault,
  { faults, requestId, showSignedText = false }: RenderOptions,
): Answer {
  const delivery = faults === "delivery";
  const problem = delivery
    ? renderDeliveryFault(fault, requestId)
    : renderProblem(fault, requestId);
  const { signedText, headers, retryAfterSeconds } = fault.extra;
  const shown =
    showSignedText && signedText !== undefined ? { ...problem, signed_text: signedText } : problem;
  const retryAfter =
    retryAfterSeconds ?? (fault.status === 503 || fault.status === 429 ? 1 : undefined);
  return {
    status: fault.status,
    headers: {
      ...(retryAfter === undefined ? {} : { "retry-after": String(retryAfter) }),
      ...headers,
    },
    body: {
      contentType: delivery ? "application/json" : "application/problem+json",
      content: JSON.stringify(shown),
    },
  };
}

/**
 * The problem+json body of a refusal, with the members `error` and `message` for clients of
 * the family.
 */
function renderProblem(fault: Fault, requestId: string): Record<string, unknown> {
  return {
    type: `/problems/${fault.code}`,
    title: fault.title,
    status: fault.status,
    detail: fault.detail,
    code: fault.code,
    request_id: requestId,
    ...(fault.extra.errors === undefined ? {} : { errors: fault.extra.errors }),
    ...(fault.extra.expected === undefined ? {} : { expected: fault.extra.expected }),
    error: fault.code,
    message: fault.detail,
  };
}

/** The DeliveryResult of a request that was refused before any delivery was tried. */
function renderDeliveryFault(fault: Fault, requestId: string): Record<string, unknown> {
  return {
    success: false,
    delivery_mode: "failed",
    http_status: fault.status,
    code: fault.code,
    message: fault.detail,
    retry_count: 0,
    cache_attempted: false,
    cache_result: null,
    ndr: null,
    details: {
      request_id: requestId,
      ...(fault.extra.errors === undefined ? {} : { errors: fault.extra.errors }),
    },
  };
}

// -------------------------------------------------------------------------------------------- CORS

/**
 * Which origins may read answers: all, some, or (`loopback`) pages that this machine itself
 * serves.
 */
export type CorsOrigins = readonly string[] | "loopback";

/** The headers of an answer to a page of `origin` (`null`: no page asks). */
export type Cors = (origin: string | null) => CorsHeaders;

type CorsHeaders = Readonly<Record<string, string>>;

const exposed = { "access-control-expose-headers": "Date, Retry-After, X-Request-Id" } as const;

export function createCors(origins: CorsOrigins): Cors {
  if (origins !== "loopback" && origins.includes("*")) {
    const everyone = { "access-control-allow-origin": "*", ...exposed };
    return () => everyone;
  }
  const others = { vary: "Origin" };
  const allowing = (origin: string) => ({
    "access-control-allow-origin": origin,
    ...exposed,
    vary: "Origin",
  });
  if (origins === "loopback")
    return (origin) => (origin !== null && isLoopbackOrigin(origin) ? allowing(origin) : others);
  const known = new Map(origins.map((origin) => [origin, allowing(origin)]));
  return (origin) => (origin === null ? others : (known.get(origin) ?? others));
}

function isLoopbackOrigin(origin: string): boolean {
  return /^https?:\/\/(localhost|127\.\d{1,3}\.\d{1,3}\.\d{1,3}|\[::1\])(:\d{1,5})?$/.test(origin);
}

/**
 * The answer to a preflight: proofs are the only credentials, so that nothing is left to
 * allow by path.
 */
export const preflightHeaders = {
  "access-control-allow-methods": "*",
  "access-control-allow-headers": "*",
  // Two hours: the longest that browsers remember it.
  "access-control-max-age": "7200",
};

// ---------------------------------------------------------------------------------------- failures

type Failed = { readonly requestId: string; readonly route: Pick<Route, "path" | "codes"> };

/**
 * An operating failure becomes a refusal, of which the log has one line a minute
 * (`joinOutages`), and a bug a silent 500.
 */
export function faultOf(log: Log, error: unknown, { requestId, route }: Failed): Fault {
  const refusal = error instanceof StoreError ? storeFault(error, route) : internalError();
  const where = { request_id: requestId, route: route.path };
  if (refusal.code === "internal_error")
    log("error", "a request failed", { ...where, error: errorStack(error) });
  else log("warn", "requests fail", { ...where, error });
  return refusal;
}

function storeFault(error: StoreError, { codes = [] }: Pick<Route, "codes">): Fault {
  switch (error.code) {
    case "unavailable":
    case "partial":
    case "busy":
      return codes.includes("chain_unavailable")
        ? fault("chain_unavailable", "the ledger can't be read at the moment")
        : fault(
            "service_unavailable",
            "a store or a source of this node can't be reached at the moment",
          );
    case "full":
      return fault("storage_full", "the store is full");
    case "closed":
      return fault("shutting_down", "the node is shutting down");
    case "corrupt":
      return internalError();
  }
}

export function internalError(): Fault {
  return fault(
    "internal_error",
    "something went wrong in the node; the request id names the entry in its log",
  );
}
