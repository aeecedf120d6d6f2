/**
 * An app: a list of routes, and what answers each of their paths. Nodes never see the framework: they give
 * `Route`s and answer `Answer | Fault`. The server's own table finds the path; what has none goes to Elysia (D157).
 * Source: rules sections 3, 9 and D140.
 */
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
import { internalError, preflightHeaders, type Route, type RoutedRequest } from "./route.ts";

type Respond = (request: RoutedRequest, connection: Connection) => Response | Promise<Response>;

export type App = {
  /** Each path of the routes with what answers all its methods, for the server's own table. */
  readonly paths: Readonly<Record<string, Respond>>;
  /** Answers a path that no route has. Never rejects. */
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
  const checked = (answer: Respond): Respond => {
    return (request, connection) => {
      const refusal = checkHead(http, request);
      return refusal === null ? answer(request, connection) : refuse(http, request, refusal);
    };
  };
  const byPath = Object.groupBy(options.routes, ({ path }) => path);
  return {
    paths: Object.fromEntries(
      Object.entries(byPath).map(([path, routes = []]) => [path, checked(answerPath(http, routes))]),
    ),
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
  const isNamed = host === null ? request.url.startsWith("http") : hostForm.test(host);
  if (!isNamed) return fault("invalid_request", "a request must name exactly one host");
  if (host !== null && http.acceptsHost?.(host) === false)
    return fault("policy_denied", "this listener must be asked by an address or a local name, such as localhost");
  return null;
}

/** Answers every method of one path: those of its routes, preflights, and 405 for the others. */
function answerPath(http: Http, routes: readonly Route[]): Respond {
  const plans = new Map<string, Plan>();
  for (const route of routes) {
    const plan = planOf(http, route);
    plans.set(route.method, plan);
    if (route.method === "GET") plans.set("HEAD", plan);
  }
  const methods = [...plans.keys()];
  const allow = methods.join(", ");
  const refusal = fault("method_not_allowed", `this path accepts ${allow}`, { headers: { allow } });
  const preflight = preflightHeaders(methods, headersReadBy(routes));
  return (request, connection) => {
    const plan = plans.get(request.method);
    if (plan !== undefined) return serve(http, plan, request, connection);
    return request.method === "OPTIONS" && request.headers.has("access-control-request-method")
      ? answerPreflight(http, request, preflight)
      : refuse(http, request, refusal);
  };
}

/** Elysia gets what the server's own table doesn't list; it is loaded when such a path is first asked for. */
function createElsewhere(http: Http): (request: Request) => Promise<Response> {
  const unknown = fault("not_found", "there is no such route");
  const load = async () => {
    const { Elysia } = await import("elysia");
    const app = new Elysia({ strictPath: true, normalize: false, handler: { standardHostname: false } });
    app.onError(({ error, request }) => {
      http.log("error", "the router failed", { error: errorStack(error) });
      return refuse(http, request, internalError());
    });
    return app.all("/*", ({ request }) => refuse(http, request, unknown), { parse: "none" });
  };
  let loading: ReturnType<typeof load> | null = null;
  return async (request) => {
    loading ??= load();
    return (await loading).fetch(request);
  };
}

function headersReadBy(routes: readonly Route[]): string[] {
  const read = routes.flatMap(({ requiredHeaders = [], headers = [] }) => [...requiredHeaders, ...headers]);
  return [...new Set(["Content-Type", "X-Request-Id", ...read])];
}

function answerPreflight(http: Http, request: Request, headers: Readonly<Record<string, string>>): Response {
  const requestId = requestIdOf(http, request.headers);
  http.metrics.requests.add(["OPTIONS", "(preflight)", "204"]);
  const cors = http.cors(request.headers.get("origin"));
  return new Response(null, { status: 204, headers: { ...cors, ...headers, "x-request-id": requestId } });
}
