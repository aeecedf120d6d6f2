/**
 * An app: a list of routes, and the router that finds the route of a request. Nodes never see the framework: they give
 * `Route`s and answer `Answer | Fault`. The server's own table finds the route; what has none goes to Elysia.
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
  /** The routes, each with what answers its requests, for the server's own table. */
  readonly table: readonly { readonly route: Route; readonly serve: Respond }[];
  /** Answers what no route has: preflights, other methods, unknown paths. Never rejects. */
  readonly respondElsewhere: (request: Request) => Promise<Response>;
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
  const elsewhere = createElsewhere(http);
  return {
    table: options.routes.map((route) => {
      const plan = planOf(http, route);
      return { route, serve: (request, connection) => serveChecked(http, plan, request, connection) };
    }),
    respondElsewhere: async (request) => {
      const refusal = checkHead(http, request);
      return refusal === null ? elsewhere(request) : refuse(http, request, refusal);
    },
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

/** Requests whose head can't be trusted: no or several `Host` values, or a host that this app doesn't have. */
function checkHead(http: Http, request: Request): Fault | null {
  const host = request.headers.get("host");
  // Nearly all name the same.
  if (host !== null && host === http.knownHost) return null;
  const isNamed = host === null ? request.url.startsWith("http") : hostForm.test(host);
  if (!isNamed) return fault("invalid_request", "a request must name exactly one host");
  if (host !== null && http.acceptsHost?.(host) === false)
    return fault("policy_denied", "this listener must be asked by an address or a local name, such as localhost");
  http.knownHost = host;
  return null;
}

function serveChecked(http: Http, plan: Plan, request: Request, connection: Connection) {
  const refusal = checkHead(http, request);
  return refusal === null ? serve(http, plan, request, connection) : refuse(http, request, refusal);
}

/** Elysia finds the path of a request that no route answers. It neither parses nor validates. */
function createElsewhere(http: Http): App["respondElsewhere"] {
  const app = new Elysia({ strictPath: true, normalize: false, handler: { standardHostname: false } });
  app.onError(({ error, request }) => {
    http.log("error", "the router failed", { error: errorStack(error) });
    return refuse(http, request, internalError());
  });
  const unknown = fault("not_found", "there is no such route");
  for (const [path, routes] of routesByPath(http.routes)) {
    const methods = routes.flatMap(({ method }) => (method === "GET" ? ["GET", "HEAD"] : [method]));
    const allow = methods.join(", ");
    const refusal = fault("method_not_allowed", `this path accepts ${allow}`);
    const preflight = preflightHeaders(methods, headersReadBy(routes));
    const answer = ({ request }: { request: Request }) => {
      // The path became this one only by rewriting.
      if (methods.includes(request.method)) return refuse(http, request, unknown);
      return request.method === "OPTIONS" && request.headers.has("access-control-request-method")
        ? answerPreflight(http, request, preflight)
        : withHeader(refuse(http, request, refusal), "allow", allow);
    };
    app.all(path, answer, { parse: "none" });
  }
  app.all("/*", ({ request }) => refuse(http, request, unknown), { parse: "none" });
  return async (request) => {
    // Elysia looks for the path from the eighth character on, where an https URL still has a slash of its scheme.
    if (request.url.startsWith("https:")) {
      const url = `http${request.url.slice("https".length)}`;
      Object.defineProperty(request, "url", { value: url });
    }
    return app.fetch(request);
  };
}

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

function routesByPath(routes: readonly Route[]): Map<string, Route[]> {
  const paths = new Map<string, Route[]>();
  for (const route of routes) {
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
