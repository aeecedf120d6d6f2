/**
 * The HTTP shell of every node: one app from a list of routes. A request passes here in this order:
 * address and id, drain, pace, capacity, body under its cap, the route's own work, rendering, log and metrics.
 * Nodes never see the framework: they give `Route`s and answer `Answer | Fault`; elysia only routes.
 * Source: interface "Errors", decisions sections 3 and 9.
 */

import { Elysia } from "elysia";
import { type Fault, fault, isFault } from "../../core/fault.ts";
import { errorStack } from "../../core/std/error-text.ts";
import { StoreError } from "../../storage/contract.ts";
import { type Capacity, createCapacity, type Hold, type IntakeLimits, overCapacity, readBody } from "./capacity.ts";
import { type ClientAddress, clientAddress, clientKey, requestIdOf } from "./client-address.ts";
import { type Log, maskAddress } from "./log.ts";
import type { Counter, Histogram, Metrics } from "./metrics.ts";
import { renderResponse } from "./render.ts";
import { createOutgoing, type Outgoing, shortAnswerBytesMax } from "./response-stream.ts";
import type { Answer, Call, Route } from "./route.ts";

export type AppOptions = {
  readonly routes: readonly Route[];
  readonly limits: IntakeLimits;
  readonly trustedProxies: readonly string[];
  readonly now: () => number;
  readonly log: Log;
  readonly metrics: ShellMetrics;
};

export type App = {
  readonly routes: readonly Route[];
  /** `peer` is the address of the connection, `null` when there is none. Never rejects. */
  readonly respond: (request: Request, connection: Connection) => Promise<Response>;
  /** A refusal of the shell itself, for requests that reach no route. */
  readonly refuse: (request: Request, refusal: Fault) => Response;
  readonly clientOf: ClientAddress;
  /** From now on every request is answered 503 `shutting_down`. */
  readonly startDraining: () => void;
  readonly draining: () => boolean;
  /** What has not been answered yet, and whose body is still arriving. */
  readonly inFlight: Capacity["inFlight"];
  /** Bytes of long answers that clients have not taken yet. */
  readonly outgoingBytes: () => number;
};

/** What the listener knows of a connection. */
export type Connection = {
  readonly peer: string | null;
  /** Seconds the connection may be silent. */
  readonly setIdle?: (seconds: number) => void;
};

export type ShellMetrics = {
  readonly requests: Counter;
  readonly seconds: Histogram;
  readonly refusals: Counter;
};

/** Registers what every listener measures; one set for all apps of a process. */
export function shellMetrics(metrics: Metrics): ShellMetrics {
  const latency = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30];
  return {
    requests: metrics.counter({
      name: "http_requests_total",
      help: "Answered requests.",
      labels: ["method", "route", "status"],
    }),
    seconds: metrics.histogram(
      { name: "http_request_seconds", help: "Time from the request's head to the answer's head.", labels: ["route"] },
      latency,
    ),
    refusals: metrics.counter({ name: "http_refusals_total", help: "Refusals by code.", labels: ["code"] }),
  };
}

type Shell = AppOptions & {
  readonly capacity: Capacity;
  readonly outgoing: Outgoing;
  readonly clientOf: ClientAddress;
  draining: boolean;
};

export function createApp(options: AppOptions): App {
  const shell: Shell = {
    ...options,
    capacity: createCapacity(options.limits),
    outgoing: createOutgoing({
      bytesMax: options.limits.bodyBytesInFlightMax,
      deadlineMs: options.limits.bodyDeadlineMs,
    }),
    clientOf: clientAddress(options.trustedProxies),
    draining: false,
  };
  const connections = new WeakMap<Request, Connection>();
  const prefixes = deliveryPrefixes(options.routes);
  const refuse = (request: Request, refusal: Fault): Response => {
    const requestId = requestIdOf(request.headers);
    const method = knownMethods.has(request.method) ? request.method : "(other)";
    options.metrics.refusals.add([refusal.code]);
    options.metrics.requests.add([method, "(none)", String(refusal.status)]);
    options.log("info", "request", { request_id: requestId, method, status: refusal.status, code: refusal.code });
    const faults = prefixes.has(firstSegment(request)) ? "delivery" : "problem";
    return renderResponse(refusal, { requestId, faults, close: true });
  };
  const router = createRouter(options.routes, {
    serve: (route, request) => pass(shell, route, { request, connection: connections.get(request) ?? noConnection }),
    refuse,
    log: options.log,
  });
  return {
    routes: options.routes,
    respond: async (request, connection) => {
      const refusal = refuseHead(request);
      if (refusal !== null) return refuse(request, refusal);
      connections.set(request, connection);
      return router(request);
    },
    refuse,
    clientOf: shell.clientOf,
    startDraining: () => {
      shell.draining = true;
    },
    draining: () => shell.draining,
    inFlight: () => shell.capacity.inFlight(),
    outgoingBytes: () => shell.outgoing.bytes(),
  };
}

const noConnection: Connection = { peer: null };
const knownMethods: ReadonlySet<string> = new Set(["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]);

// ------------------------------------------------------------------------------------------------ routing

type Router = (request: Request) => Promise<Response>;

type RouterParts = {
  readonly serve: (route: Route, request: Request) => Promise<Response>;
  readonly refuse: (request: Request, refusal: Fault) => Response;
  readonly log: Log;
};

/**
 * Elysia finds the route by the raw path; path values are decoded afterwards, exactly. It neither
 * parses nor validates, and its one error path means a bug of this file.
 */
function createRouter(routes: readonly Route[], parts: RouterParts): Router {
  const app = new Elysia({ strictPath: true, normalize: false, handler: { standardHostname: false } });
  app.onError(({ error, request }) => {
    parts.log("error", "the router failed", { error: describeError(error) });
    return parts.refuse(request, internalError());
  });
  for (const route of routes) {
    app.route(route.method, positional(route.path), ({ request }) => parts.serve(route, request), { parse: "none" });
  }
  for (const [path, methods] of methodsByPath(routes)) {
    const allow = methods.join(", ");
    const refusal = fault("method_not_allowed", `this path takes ${allow}`);
    app.all(path, ({ request }) => allowing(parts.refuse(request, refusal), allow), { parse: "none" });
  }
  const unknown = fault("not_found", "there is no such route");
  app.all("/*", ({ request }) => parts.refuse(request, unknown), { parse: "none" });
  return async (request) => app.fetch(request);
}

function allowing(response: Response, methods: string): Response {
  response.headers.set("allow", methods);
  return response;
}

/** The router wants one name for a value in one place; the names of the routes are put back by `pathValues`. */
function positional(path: string): string {
  return path
    .split("/")
    .map((segment, i) => (segment.startsWith(":") ? `:v${i}` : segment))
    .join("/");
}

function methodsByPath(routes: readonly Route[]): Map<string, string[]> {
  const paths = new Map<string, string[]>();
  for (const route of routes) {
    const path = positional(route.path);
    const methods = route.method === "GET" ? ["GET", "HEAD"] : [route.method];
    paths.set(path, [...(paths.get(path) ?? []), ...methods]);
  }
  return paths;
}

/** Every answer below these first segments is a DeliveryResult, unknown routes too. */
function deliveryPrefixes(routes: readonly Route[]): ReadonlySet<string> {
  return new Set(routes.filter((route) => route.faults === "delivery").map((route) => route.path.split("/")[1] ?? ""));
}

function firstSegment(request: Request): string {
  return pathOf(request.url).split("/", 2)[1] ?? "";
}

/** The raw path. A URL without a host (HTTP/1.0) has been refused before. Cost: no parsing. */
export function pathOf(url: string): string {
  const start = url.indexOf("/", url.indexOf("://") + 3);
  if (start < 0) return "/";
  const query = url.indexOf("?", start);
  return query < 0 ? url.slice(start) : url.slice(start, query);
}

const hostForm = /^[A-Za-z0-9._~[\]:-]{1,255}$/;

/** Requests whose head can't be trusted: no or several `Host` values, a path that can't be decoded. */
function refuseHead(request: Request): Fault | null {
  const host = request.headers.get("host");
  const named = host === null ? request.url.startsWith("http") : hostForm.test(host);
  return named ? null : fault("invalid_request", "a request names exactly one host");
}

/** Values of the path by name, or a Fault when an escape is not UTF-8 in percent form. */
function pathValues(template: string, url: string): Record<string, string> | Fault {
  const names = template.split("/");
  const segments = pathOf(url).split("/");
  const values: Record<string, string> = Object.create(null);
  for (let i = 0; i < names.length; i++) {
    const name = names[i] as string;
    if (!name.startsWith(":")) continue;
    const value = decodeSegment(segments[i] ?? "");
    if (value === null) return fault("invalid_request", "the path has an invalid percent escape");
    values[name.slice(1)] = value;
  }
  return values;
}

function decodeSegment(segment: string): string | null {
  try {
    return decodeURIComponent(segment);
  } catch {
    return null;
  }
}

// ------------------------------------------------------------------------------------------- one request

/** One request on its way through the shell. */
type Passage = {
  readonly route: Route;
  readonly request: Request;
  readonly connection: Connection;
  readonly requestId: string;
  readonly client: string;
};

/** `close`: the body may be unread, so the connection ends with the answer. */
type Outcome = { readonly result: Answer | Fault; readonly close: boolean };

async function pass(
  shell: Shell,
  route: Route,
  arrival: { readonly request: Request; readonly connection: Connection },
): Promise<Response> {
  const startedMs = performance.now();
  const { request, connection } = arrival;
  const passage: Passage = {
    route,
    request,
    connection,
    requestId: requestIdOf(request.headers),
    client: shell.clientOf(request, connection.peer),
  };
  const outcome = await boundLength(shell, passage, await admit(shell, passage));
  const { result } = outcome;
  if (!isFault(result) && result.idleSeconds !== undefined) connection.setIdle?.(result.idleSeconds);
  const close = outcome.close || shell.draining;
  const response = renderResponse(result, { requestId: passage.requestId, faults: route.faults, close });
  if (route.headers !== undefined) {
    for (const [name, value] of Object.entries(route.headers)) response.headers.set(name, value);
  }
  record(shell, passage, { result, durationMs: performance.now() - startedMs });
  return request.method === "HEAD" ? withoutStream(response, result) : response;
}

/** The pace, the body, and a place in work, or the refusal that stands for one of them. */
async function admit(shell: Shell, passage: Passage): Promise<Outcome> {
  const { route, request } = passage;
  const { capacity } = shell;
  if (shell.draining) return { result: fault("shutting_down", "the node is shutting down"), close: true };
  const params = pathValues(route.path, request.url);
  if (isFault(params)) return { result: params, close: true };
  const paced = route.pace?.({ client: passage.client, nowMs: shell.now() }) ?? null;
  if (paced !== null) return { result: paced, close: true };
  if (!capacity.hasRoom(route.lane)) return refuseLate(shell, route.bodyBytesMax !== null);
  const hold = capacity.hold(route.lane, passage.client);
  try {
    const body = await receive(shell, passage, hold);
    if (body === null) return await refuseLate(shell, true);
    if (isFault(body)) return { result: body, close: true };
    const leave = capacity.enter(route.lane);
    if (leave === null) return await refuseLate(shell, false);
    try {
      return { result: await handleSafely(shell, passage, callOf(shell, passage, { params, body })), close: false };
    } finally {
      leave();
    }
  } finally {
    hold.release();
  }
}

/** The body as sent; `null` when there is no room for one more. */
async function receive(shell: Shell, passage: Passage, hold: Hold): Promise<Uint8Array | Fault | null> {
  const { route, request } = passage;
  const rules = { bytesMax: route.bodyBytesMax, deadlineMs: shell.limits.bodyDeadlineMs, hold };
  if (rules.bytesMax === null) return readBody(request, rules);
  const arrived = shell.capacity.arrive(route.lane);
  if (arrived === null) return null;
  try {
    return await readBody(request, rules);
  } finally {
    arrived();
  }
}

/** A long answer goes out as the client takes it; when clients keep too much waiting, 503. */
async function boundLength(shell: Shell, passage: Passage, outcome: Outcome): Promise<Outcome> {
  const { result, close } = outcome;
  if (isFault(result) || result.jsonBytes === undefined || passage.request.method === "HEAD") return outcome;
  const { jsonBytes, ...answer } = result;
  if (jsonBytes.length <= shortAnswerBytesMax) return outcome;
  const content = shell.outgoing.send(jsonBytes, clientKey(passage.client));
  if (content === null) return refuseLate(shell, close);
  return { result: { ...answer, body: { contentType: "application/json", content } }, close };
}

/** 503 after a moment. `unread`: the body has not been read, so the connection must end. */
async function refuseLate(shell: Shell, unread: boolean): Promise<Outcome> {
  const held = await shell.capacity.park();
  return { result: overCapacity(), close: unread || !held };
}

function callOf(
  shell: Shell,
  passage: Passage,
  input: { readonly params: Record<string, string>; readonly body: Uint8Array },
): Call {
  const { request } = passage;
  return {
    params: input.params,
    get query() {
      const at = request.url.indexOf("?");
      return new URLSearchParams(at < 0 ? "" : request.url.slice(at + 1));
    },
    headers: request.headers,
    body: input.body,
    requestId: passage.requestId,
    client: passage.client,
    nowMs: shell.now(),
    get signal() {
      return request.signal;
    },
  };
}

/** The one place where operating failures become refusals and bugs become a silent 500. */
async function handleSafely(shell: Shell, passage: Passage, call: Call): Promise<Answer | Fault> {
  try {
    return await passage.route.handle(call);
  } catch (error) {
    const { route, requestId } = passage;
    const refusal = error instanceof StoreError ? storeFault(error, route) : internalError();
    const level = refusal.code === "internal_error" ? "error" : "warn";
    shell.log(level, "a request failed", { request_id: requestId, route: route.path, error: describeError(error) });
    return refusal;
  }
}

function storeFault(error: StoreError, route: Route): Fault {
  switch (error.code) {
    case "unavailable":
      return route.unavailable === "chain_unavailable"
        ? fault("chain_unavailable", "the ledger can't be read at the moment")
        : fault("service_unavailable", "a store or a source of this node can't be reached at the moment");
    case "full":
      return fault("storage_full", "the store has no room for this");
    case "closed":
      return fault("shutting_down", "the node is shutting down");
    case "corrupt":
      return internalError();
  }
}

function internalError(): Fault {
  return fault("internal_error", "something went wrong in the node; the request id names the entry in its log");
}

function describeError(error: unknown): string {
  return errorStack(error);
}

/** Streams have no length, and nobody would read them: a HEAD request ends them at once. */
function withoutStream(response: Response, result: Answer | Fault): Response {
  if (isFault(result) || !(result.body?.content instanceof ReadableStream)) return response;
  response.body?.cancel().catch(() => undefined);
  return new Response(null, { status: response.status, headers: response.headers });
}

function record(
  shell: Shell,
  passage: Passage,
  end: { readonly result: Answer | Fault; readonly durationMs: number },
): void {
  const { route, request, requestId, client } = passage;
  const code = isFault(end.result) ? end.result.code : undefined;
  shell.metrics.requests.add([request.method, route.path, String(end.result.status)]);
  shell.metrics.seconds.observe([route.path], end.durationMs / 1_000);
  if (code !== undefined) shell.metrics.refusals.add([code]);
  shell.log("info", "request", {
    request_id: requestId,
    client: maskAddress(client),
    method: request.method,
    route: route.path,
    status: end.result.status,
    ...(code === undefined ? {} : { code }),
    ms: Math.round(end.durationMs * 100) / 100,
  });
}
