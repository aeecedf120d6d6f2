/**
 * An app: a list of routes, and the router that finds the route of a request. Nodes never see the framework: they give
 * `Route`s and answer `Answer | Fault`. Elysia finds most routes; hot ones go from the server's own route table straight
 * to the pipeline.
 * Source: rules sections 3, 9 and D140.
 */
import { Elysia } from "elysia";
import { errorStack, type Fault, fault } from "../../core/fault.ts";
import { type InFlight, inFlight } from "./capacity.ts";
import {
  type AppOptions,
  type Connection,
  clientOf,
  createHttp,
  type Http,
  type Plan,
  peerOf,
  planOf,
  readSettings,
  refuse,
  requestIdOf,
  serve,
} from "./pipeline.ts";
import { internalError, preflightHeaders, type Route } from "./route.ts";

type Respond = (request: Request, connection: Connection) => Response | Promise<Response>;

export type App = {
  readonly routes: readonly Route[];
  /** Finds the route of a request with the framework. Never rejects. */
  readonly respond: (request: Request, connection: Connection) => Promise<Response>;
  /** The hot routes, each with what answers its requests. */
  readonly hot: readonly { readonly route: Route; readonly serve: Respond }[];
  /** A refusal of the server itself, for requests that reach no route. */
  readonly refuse: (request: Request, refusal: Fault) => Response;
  readonly clientOf: (request: Request, connection: Connection) => string;
  /** From now on every request is answered 503 `shutting_down`. */
  readonly startDraining: () => void;
  readonly draining: () => boolean;
  /** Applies settings that a reload changed. */
  readonly readSettings: () => void;
  /** What has not been answered yet, and whose body is still arriving. */
  readonly inFlight: () => InFlight;
  /** Bytes of long answers that clients have not read yet. */
  readonly waitingAnswerBytes: () => number;
};

export function createApp(options: AppOptions): App {
  const http = createHttp(options);
  const plans = options.routes.map((route) => planOf(http, route));
  const router = createRouter(http, plans);
  return {
    routes: options.routes,
    respond: async (request, connection) => {
      const refusal = checkHead(request);
      return refusal === null ? router(request, connection) : refuse(http, request, refusal);
    },
    hot: plans
      .filter(({ route }) => route.hot === true)
      .map((plan) => ({
        route: plan.route,
        serve: (request, connection) => serveHot(http, plan, request, connection),
      })),
    refuse: (request, refusal) => refuse(http, request, refusal),
    clientOf: (request, connection) => clientOf(http, request, peerOf(request, connection)).address,
    startDraining: () => {
      http.draining = true;
    },
    draining: () => http.draining,
    readSettings: () => readSettings(http),
    inFlight: () => inFlight(http.capacity),
    waitingAnswerBytes: () => http.streams.budget.total,
  };
}

const hostForm = /^[A-Za-z0-9._~[\]:-]{1,255}$/;

/** The host that the last request named: nearly all name the same. */
let knownHost = "localhost";

/** Requests whose head can't be trusted: no or several `Host` values. */
function checkHead(request: Request): Fault | null {
  const host = request.headers.get("host");
  if (host === knownHost) return null;
  const named = host === null ? request.url.startsWith("http") : hostForm.test(host);
  if (named && host !== null) knownHost = host;
  return named ? null : fault("invalid_request", "a request must name exactly one host");
}

function serveHot(http: Http, plan: Plan, request: Request, connection: Connection): Response | Promise<Response> {
  const refusal = checkHead(request);
  return refusal === null ? serve(http, plan, request, connection) : refuse(http, request, refusal);
}

/**
 * Elysia finds the route by the raw path; path values are decoded afterwards, exactly. It neither
 * parses nor validates, and its one error path means a bug of this file.
 */
function createRouter(http: Http, plans: readonly Plan[]): App["respond"] {
  const app = new Elysia({ strictPath: true, normalize: false, handler: { standardHostname: false } });
  const connections = new WeakMap<Request, Connection>();
  app.onError(({ error, request }) => {
    http.log("error", "the router failed", { error: errorStack(error) });
    return refuse(http, request, internalError());
  });
  for (const plan of plans) {
    const answer = ({ request }: { request: Request }) =>
      serve(http, plan, request, connections.get(request) ?? noConnection);
    app.route(plan.route.method, positional(plan.route.path), answer, { parse: "none" });
  }
  for (const [path, routes] of routesByPath(plans)) {
    const methods = routes.flatMap(({ method }) => (method === "GET" ? ["GET", "HEAD"] : [method]));
    const allow = methods.join(", ");
    const refusal = fault("method_not_allowed", `this path accepts ${allow}`);
    const preflight = preflightHeaders(methods, headersReadBy(routes));
    const answer = ({ request }: { request: Request }) =>
      request.method === "OPTIONS" && request.headers.has("access-control-request-method")
        ? answerPreflight(http, request, preflight)
        : withHeader(refuse(http, request, refusal), "allow", allow);
    app.all(path, answer, { parse: "none" });
  }
  const unknown = fault("not_found", "there is no such route");
  app.all("/*", ({ request }) => refuse(http, request, unknown), { parse: "none" });
  return async (request, connection) => {
    connections.set(request, connection);
    // Elysia looks for the path from the eighth character on, where an https URL still has a slash of its scheme.
    if (request.url.startsWith("https:")) {
      const url = `http${request.url.slice("https".length)}`;
      Object.defineProperty(request, "url", { value: url });
    }
    return app.fetch(request);
  };
}

const noConnection: Connection = { requestIP: () => null, timeout: () => undefined };

function withHeader(response: Response, name: string, value: string): Response {
  response.headers.set(name, value);
  return response;
}

/** The router needs the same name for all values at one place of a path; `pathValues` knows the names of each route. */
function positional(path: string): string {
  return path
    .split("/")
    .map((segment, i) => (segment.startsWith(":") ? `:v${i}` : segment))
    .join("/");
}

function routesByPath(plans: readonly Plan[]): Map<string, Route[]> {
  const paths = new Map<string, Route[]>();
  for (const { route } of plans) {
    const path = positional(route.path);
    paths.set(path, [...(paths.get(path) ?? []), route]);
  }
  return paths;
}

function headersReadBy(routes: readonly Route[]): string[] {
  const read = routes.flatMap(({ operation }) => [...(operation.requiredHeaders ?? []), ...(operation.headers ?? [])]);
  return [...new Set(["Content-Type", "X-Request-Id", ...read])];
}

function answerPreflight(http: Http, request: Request, headers: Readonly<Record<string, string>>): Response {
  const requestId = requestIdOf(http, request.headers);
  http.metrics.requests.add(["OPTIONS", "(preflight)", "204"]);
  const cors = http.cors(request.headers.get("origin"));
  return new Response(null, { status: 204, headers: { ...cors, ...headers, "x-request-id": requestId } });
}
