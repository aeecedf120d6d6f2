/**
 * One request, in this order: client and id, host, drain, rate, capacity, body under its
 * cap, the route's own work, rendering, log and metrics. Cost without the handler: 2 to 5
 * µs over a bare server that reads the body.
 * Source: interface "Errors", rules sections 3 and 9.
 */
import type { Config } from "../../config/schema.ts";
import { isDid } from "../../core/codec/did.ts";
import { errorStack, type Fault, fault, isFault } from "../../core/fault.ts";
import { type ClientAddress, clientAddress, clientNetwork } from "../../core/message/address.ts";
import type { Envelope } from "../../core/message/envelope.ts";
import { BoundedMap } from "../../core/std/bounded.ts";
import { StoreError } from "../../storage/contract.ts";
import type { RequestedEnvelope, Results } from "../results.ts";
import {
  announcedBytes,
  type BodyOutcome,
  checkBodyHead,
  discardBody,
  isBodiless,
  longParts,
  noBody,
  type ReadBody,
  readBody,
  streamParts,
} from "./body.ts";
import {
  type Capacity,
  type CapacityLimit,
  createCapacity,
  delayRefusal,
  type FairShare,
  iterationEnd,
  overCapacity,
  type Room,
} from "./capacity.ts";
import { type Floods, watchFloods } from "./floods.ts";
import { type Log, loggedOutcome, maskAddress, onceAMinute, traceparentOf } from "./log.ts";
import type { HttpMetrics } from "./metrics.ts";
import type { Peer } from "./peer.ts";
import {
  type Answer,
  type Call,
  type Cors,
  type CorsOrigins,
  checkPathValues,
  createCors,
  faultOf,
  internalError,
  type JsonParts,
  type Route,
  type RoutedRequest,
  renderResponse,
} from "./route.ts";

export type AppOptions = {
  readonly routes: readonly Route[];
  readonly settings: Config["server"];
  readonly corsOrigins: CorsOrigins;
  /** Headers of refusals that no route makes. */
  readonly headers?: Readonly<Record<string, string>>;
  /** Answers a program that asks for a path without a route; `not_found` unless it is given. */
  readonly elsewhere?: Fault;
  /** Refuses writes while there is maintenance. */
  readonly maintenance?: () => Fault | null;
  /** Which `Host` values are accepted; all unless it is given. */
  readonly acceptsHost?: (host: string) => boolean;
  readonly now: () => number;
  readonly log: Log;
  readonly metrics: HttpMetrics;
  /** Called for each answer, with the length of the request's body. */
  readonly answered?: (bodyBytes: number) => void;
  /** Remembers what became of envelopes; the digest names the recipient in the log. */
  readonly results?: Pick<Results, "add" | "digest">;
};

/** What the listener knows about a request's connection; Bun's server implements it. */
export type HttpConnection<R extends Request = Request> = {
  /** Of a TCP listener, where every client has an address. */
  readonly port?: number | undefined;
  readonly requestIP: (request: R) => { readonly address: string } | null;
  /**
   * Makes the connection a WebSocket that carries `data`; `false` when the request asks for
   * none.
   */
  readonly upgrade: (request: R, socket: { readonly data: unknown }) => boolean;
  /** Who is at the other end of a Unix socket of the admin listener. */
  readonly peer?: Peer | null;
};

/** An app at work. */
export type Http = AppOptions & {
  readonly capacity: Capacity;
  readonly addressOf: ClientAddress;
  readonly readsForwarded: boolean;
  readonly cors: Cors;
  /**
   * Facts about recent clients, by address: parsing an address costs more than the rest of
   * the head.
   */
  readonly clients: BoundedMap<string, Client>;
  /** Whether a warning is to be logged again. */
  readonly isDue: (what: string) => boolean;
  readonly floods: Floods;
  draining: boolean;
};

type Client = { readonly address: string; readonly network: string; readonly masked: string };
const clientsMax = 10_000;

export function createHttp(options: AppOptions): Http {
  const { settings, corsOrigins } = options;
  return {
    ...options,
    capacity: createCapacity(settings),
    cors: createCors(corsOrigins),
    addressOf: clientAddress(settings.trusted_proxies),
    readsForwarded: settings.trusted_proxies.length > 0,
    clients: new BoundedMap(clientsMax),
    isDue: onceAMinute(options.now),
    floods: watchFloods(options),
    draining: false,
  };
}

// ------------------------------------------------------------------------------------------ routes

/** A route, with what is made of it once. */
type Plan = {
  readonly route: Route;
  readonly room: Room;
  /** Whether its path has values. */
  readonly hasValues: boolean;
  /** Neither a read nor an acknowledgement: refused during maintenance. */
  readonly isWrite: boolean;
};

export function planOf(http: Http, route: Route): Plan {
  return {
    route,
    room: http.capacity[route.capacity],
    hasValues: route.path.includes(":"),
    isWrite: route.method !== "GET" && route.capacity === "normal",
  };
}

// ------------------------------------------------------------------------------- who asks, and ids

const requestIdForm = /^[A-Za-z0-9._-]{1,64}$/;

/** The client's own id when it has the form, else a new one. */
function requestIdOf(headers: Headers): string {
  const given = headers.get("x-request-id");
  return given !== null && requestIdForm.test(given) ? given : crypto.randomUUID();
}

/** Longer ones, as a stranger may send them through a proxy, are read each time. */
const rememberedForwardedMax = 64;

function clientOf(http: Http, request: Request, peer: string | null): Client {
  const forwarded = http.readsForwarded ? request.headers.get("x-forwarded-for") : null;
  const isShort = forwarded === null || forwarded.length <= rememberedForwardedMax;
  const name = forwarded === null ? (peer ?? "") : `${peer ?? ""} ${forwarded}`;
  const known = isShort ? http.clients.get(name) : undefined;
  if (known !== undefined) return known;
  const address = http.addressOf(forwarded, peer);
  const client = { address, network: clientNetwork(address), masked: maskAddress(address) };
  if (isShort) http.clients.set(name, client);
  return client;
}

// ------------------------------------------------------------------------------------- one request

/** Of the many requests without them: handlers only read these. */
const noQuery = new URLSearchParams();
const noValues: Readonly<Record<string, string>> = Object.freeze({});

/**
 * An active request: the `Call` that the handler sees. A class, so that rarely read members
 * cost nothing.
 */
class Exchange implements Call {
  readonly headers: Headers;
  readonly method: string;
  readonly requestId: string;
  readonly nowMs: number;
  /** Bytes of the body, by the head. */
  readonly announced: number | null;
  params: Readonly<Record<string, string>> = noValues;
  received: ReadBody = noBody;
  /** Whether there is a body that has not been read whole. */
  isUnread: boolean;
  /** The connection ends with the answer. */
  close = false;
  /** Where it counts as active. */
  places: FairShare | null = null;
  envelope: RequestedEnvelope | null = null;
  private parsedQuery: URLSearchParams | null = null;

  constructor(
    readonly http: Http,
    readonly plan: Plan,
    readonly request: RoutedRequest,
    readonly source: Client,
    private readonly connection: HttpConnection,
  ) {
    this.headers = request.headers;
    this.method = request.method;
    this.requestId = requestIdOf(request.headers);
    this.nowMs = http.now();
    this.announced = announcedBytes(this.headers);
    this.isUnread = !isBodiless(request, this.announced);
  }

  get body(): Uint8Array {
    return this.received.bytes;
  }

  get client(): string {
    return this.source.address;
  }

  get network(): string {
    return this.source.network;
  }

  get peer(): Peer | null {
    return this.connection.peer ?? null;
  }

  get query(): URLSearchParams {
    if (this.parsedQuery === null) {
      const { url } = this.request;
      const at = url.indexOf("?");
      this.parsedQuery = at < 0 ? noQuery : new URLSearchParams(url.slice(at + 1));
    }
    return this.parsedQuery;
  }

  concerns({ messageId, to, sender }: Pick<Envelope, "messageId" | "to" | "sender">): void {
    this.envelope = { messageId, to, from: sender?.from ?? null };
  }

  upgrade(data: unknown): boolean {
    return this.connection.upgrade(this.request, { data });
  }

  waitsForOthers(): boolean {
    const { waiting } = this.http.capacity;
    if (this.places === waiting) return true;
    if (!waiting.take(this.network, 1)) return false;
    this.places?.give(this.network, 1);
    this.places = waiting;
    return true;
  }
}

type Result = Answer | Fault;

/**
 * Never rejects; `undefined` when the connection became a WebSocket. Before the head and
 * after the body a request waits for those that arrived with it (`iterationEnd`). It is the
 * one function that waits between head and handler: another one costs a fiftieth of a store.
 */
export async function serve(
  http: Http,
  plan: Plan,
  request: RoutedRequest,
  connection: HttpConnection,
): Promise<Response | undefined> {
  try {
    const startedMs = performance.now();
    // Known until the client disconnects.
    const peer = connection.requestIP(request)?.address ?? null;
    // No one reads the answer. Without an address it would count as sent over a Unix socket.
    if (peer === null && connection.port !== undefined) return new Response(null, { status: 400 });
    await iterationEnd();
    const exchange = new Exchange(http, plan, request, clientOf(http, request, peer), connection);
    let refusing = admitHead(exchange);
    if (refusing === null && exchange.isUnread) {
      const reading = arrivingBody(exchange);
      const body = reading instanceof Promise ? await reading : reading;
      await iterationEnd();
      refusing = admitBody(exchange, body);
    }
    const worked = await (refusing ?? takePlace(exchange) ?? runRoute(exchange));
    const parts = isFault(worked) ? null : longParts(worked, exchange.method);
    const result = parts === null ? worked : await boundLength(exchange, worked as Answer, parts);
    record(exchange, result, performance.now() - startedMs);
    return result.status === 101 ? undefined : render(exchange, result);
  } catch (error) {
    http.log("error", "the pipeline failed", { error: errorStack(error) });
    const bare = {
      requestId: requestIdOf(request.headers),
      faults: plan.route.faults,
      close: true,
      cors: {},
    };
    return renderResponse(internalError(), bare);
  }
}

/** What the head alone refuses. */
function admitHead(exchange: Exchange): Promise<Fault> | null {
  const { plan, network, headers, announced } = exchange;
  const refused =
    checkHead(exchange) ??
    (exchange.isUnread ? checkBodyHead(headers, announced, plan.route) : null);
  if (refused !== null) return refuseEarly(exchange, refused);
  // Slow senders can't use up the places, so a body arrives before it has one.
  const mayArrive = !exchange.isUnread || plan.room.work.hasRoom(network);
  return mayArrive ? null : refuseLate(exchange, "requests");
}

function arrivingBody({ http, plan, request, announced, network: client }: Exchange) {
  const { bodyBytesMax: bytesMax = 0 } = plan.route;
  const { body_deadline: deadlineMs } = http.settings;
  const rules = { bytesMax, deadlineMs, budget: plan.room.bodyBytes, client };
  return readBody(request, announced, rules);
}

function admitBody(exchange: Exchange, body: BodyOutcome): Promise<Fault> | null {
  if (body === "full") return refuseLate(exchange, "bytes");
  if (isFault(body)) return refuseEarly(exchange, body);
  exchange.received = body;
  exchange.isUnread = false;
  return null;
}

/** A place among the active requests. */
function takePlace(exchange: Exchange): Promise<Fault> | null {
  const { work } = exchange.plan.room;
  if (!work.take(exchange.network, 1)) {
    giveBody(exchange);
    return refuseLate(exchange, "requests");
  }
  exchange.places = work;
  return null;
}

const hostForm = /^[A-Za-z0-9._~[\]:-]{1,255}$/;

/**
 * Requests that can't be trusted: no or several `Host` values, or a host that this app
 * doesn't have.
 */
function checkHost(http: Http, { url, headers }: Request): Fault | null {
  const host = headers.get("host");
  const isNamed = host === null ? url.startsWith("http") : hostForm.test(host);
  if (!isNamed) return fault("invalid_request", "a request must name exactly one host");
  if (host !== null && http.acceptsHost?.(host) === false)
    return fault(
      "policy_denied",
      "this listener must be asked by an address or a local name, such as localhost",
    );
  return null;
}

/**
 * Refusals that do not depend on the body: a wrong host, while draining, a broken path, a
 * client above its rate.
 */
function checkHead(exchange: Exchange): Fault | null {
  const { http, plan, request } = exchange;
  const wrongHost = checkHost(http, request);
  if (wrongHost !== null) return wrongHost;
  if (http.draining) return fault("shutting_down", "the node is shutting down");
  const paused = plan.isWrite ? http.maintenance?.() : null;
  if (paused != null) return paused;
  // The server makes them when they are read.
  if (plan.hasValues) exchange.params = request.params ?? noValues;
  return checkPathValues(exchange.params) ?? plan.route.rateLimit?.(exchange) ?? null;
}

/**
 * The connection ends, because some of the request may be left. A body that was not read
 * whole is thrown away.
 */
async function refuseEarly(exchange: Exchange, refusal: Fault): Promise<Fault> {
  const { plan, request, network } = exchange;
  exchange.close = true;
  if (exchange.isUnread)
    await discardBody(request, { budget: plan.room.bodyBytes, client: network });
  return refusal;
}

/** 503 after a delay. */
async function refuseLate(exchange: Exchange, limit: CapacityLimit): Promise<Fault> {
  const { http, source, isUnread } = exchange;
  const isDelayed = await delayRefusal(http.capacity);
  const refusal = overCapacity(http, limit, source.masked);
  return isDelayed && !isUnread ? refusal : refuseEarly(exchange, refusal);
}

async function runRoute(exchange: Exchange): Promise<Result> {
  const { http, plan, requestId, network } = exchange;
  try {
    return await plan.route.handle(exchange);
  } catch (error) {
    if (error instanceof StoreError && error.code === "corrupt") http.metrics.damage.add([]);
    return faultOf(http.log, error, { requestId, route: plan.route });
  } finally {
    exchange.places?.give(network, 1);
    giveBody(exchange);
  }
}

function giveBody({ plan, network, received }: Exchange): void {
  if (received.held > 0) plan.room.bodyBytes.give(network, received.held);
}

function render(
  { http, plan, requestId, close, headers, method }: Exchange,
  result: Result,
): Response {
  return renderResponse(result, {
    requestId,
    faults: plan.route.faults,
    close: close || http.draining,
    cors: http.cors(headers.get("origin")),
    headers: plan.route.answerHeaders,
    showSignedText: http.settings.show_signed_text,
    headOnly: method === "HEAD",
  });
}

/** A long answer goes out as the client reads it; when clients keep too much waiting, 503. */
async function boundLength(exchange: Exchange, answer: Answer, parts: JsonParts): Promise<Result> {
  const { http, plan, requestId, network: client } = exchange;
  const content = await streamParts(parts, {
    budget: http.capacity.answerBytes,
    client,
    deadlineMs: http.settings.body_deadline,
  }).catch((error: unknown) => faultOf(http.log, error, { requestId, route: plan.route }));
  if (content === null) return refuseLate(exchange, "bytes");
  if (isFault(content)) return content;
  const { jsonParts: _, ...rest } = answer;
  return {
    ...rest,
    body: { contentType: answer.body?.contentType ?? "application/json", content },
  };
}

// --------------------------------------------------------------------------------- log and metrics

/** Levels of the log that have a line for each request. */
const showsRequests: readonly string[] = ["info", "debug"];

function record(exchange: Exchange, result: Result, durationMs: number): void {
  const { http, plan, method, envelope, requestId, nowMs: atMs } = exchange;
  const { metrics, results } = http;
  const { path: route } = plan.route;
  const { status } = result;
  http.answered?.(exchange.received.bytes.length);
  metrics.requests.add([method, route, String(status)]);
  metrics.seconds.observe([route], durationMs / 1_000);
  if (isFault(result)) metrics.refusals.add([result.code]);
  if (envelope !== null && results !== undefined) {
    const { messageId, to, from } = envelope;
    const { code, detail } = loggedOutcome(result);
    results.add({ messageId, to, from, atMs, requestId, route, status, code, detail });
  }
  const isSampled = status === 429 || status === 503;
  const standsFor = isSampled ? http.floods.refused(exchange.source.masked) : 1;
  if (standsFor === 0) metrics.unlogged.add([]);
  if (standsFor === 0 || !showsRequests.includes(http.settings.log_level)) return;
  const trace = traceparentOf(exchange.headers);
  http.log("info", "request", {
    request_id: requestId,
    ...(trace === null ? {} : { trace_id: trace.traceId }),
    client: exchange.source.masked,
    method,
    route,
    status,
    ...(status < 400 ? {} : { code: loggedOutcome(result).code }),
    ...(standsFor === 1 ? {} : { one_of: standsFor }),
    ...namedBy(exchange),
    ms: Math.round(durationMs * 100) / 100,
  });
}

/** A request that is refused before its body is read names the recipient in its path alone. */
function namedBy({ http, plan, params, envelope }: Exchange): Record<string, unknown> {
  const { results } = http;
  if (envelope !== null)
    return { message_id: envelope.messageId, recipient: results?.digest(envelope.to) };
  const to = plan.route.faults === "delivery" ? params["did"] : undefined;
  return to !== undefined && isDid(to) ? { recipient: results?.digest(to) } : {};
}
