/**
 * An app: a list of routes, and what answers each path and method, refused ones too. Nodes never see the framework: they
 * give `Route`s and answer `Answer | Fault`. The server's own table finds the path; what has none goes to Elysia (D157).
 * Source: rules sections 3, 9 and D140.
 */
import { type Fault, fault } from "../../core/fault.ts";
import { type InFlight, inFlight } from "./capacity.ts";
import {
  type AppOptions,
  type Connection,
  createHttp,
  type Http,
  planOf,
  serve,
} from "./pipeline.ts";
import { preflightHeaders, type Route, type RoutedRequest } from "./route.ts";

/** `undefined` when the connection became a WebSocket. */
export type Respond = (
  request: RoutedRequest,
  connection: Connection,
) => Promise<Response | undefined>;

export type App = {
  /** Each path of the routes with what answers all its methods, for the server's own table. */
  readonly paths: Readonly<Record<string, Respond>>;
  /** Answers a path that no route has. Never rejects. */
  readonly respondElsewhere: Respond;
  /** From now on every request is answered 503 `shutting_down`. */
  readonly startDraining: () => void;
  readonly draining: () => boolean;
  /** What has not been answered yet, and whose body is still arriving. */
  readonly inFlight: () => InFlight;
  /** Bytes of long answers that clients have not read yet. */
  readonly waitingAnswerBytes: () => number;
};

export function createApp(options: AppOptions): App {
  const http = createHttp(options);
  const byPath = Object.groupBy(options.routes, ({ path }) => path);
  return {
    paths: Object.fromEntries(
      Object.entries(byPath).map(([path, routes = []]) => [path, answerPath(http, routes)]),
    ),
    respondElsewhere: createElsewhere(http),
    startDraining: () => {
      http.draining = true;
    },
    draining: () => http.draining,
    inFlight: () => inFlight(http.capacity),
    waitingAnswerBytes: () => http.capacity.answerBytes.total,
  };
}

/** Answers every method of one path: those of its routes, preflights, and 405 for the others. */
function answerPath(http: Http, routes: readonly Route[]): Respond {
  const plans = new Map(routes.map((route) => [route.method as string, planOf(http, route)]));
  const get = plans.get("GET");
  if (get !== undefined) plans.set("HEAD", get);
  const allow = [...plans.keys()].join(", ");
  const refusal = fault("method_not_allowed", `this path accepts ${allow}`, { headers: { allow } });
  const others = planOf(http, refusing(http, refusal, routes[0]?.faults));
  const preflight = planOf(http, {
    ...refusing(http, refusal),
    path: "(preflight)",
    rateLimit: () => null,
    handle: () => ({
      status: 204,
      headers: preflightHeaders,
      body: { contentType: "text/plain", content: "" },
    }),
  });
  return (request, connection) => {
    const isPreflight =
      request.method === "OPTIONS" && request.headers.has("access-control-request-method");
    const plan = plans.get(request.method) ?? (isPreflight ? preflight : others);
    return serve(http, plan, request, connection);
  };
}

/** Stands for the paths and methods that no route has. */
function refusing(http: Http, refusal: Fault, faults: Route["faults"] = "problem"): Route {
  return {
    method: "GET",
    path: "(none)",
    id: "(none)",
    summary: "",
    tag: "Node",
    answer: [refusal.status, ""],
    capacity: "reserved",
    faults,
    answerHeaders: http.headers ?? {},
    rateLimit: () => refusal,
    handle: () => refusal,
  };
}

/**
 * Elysia gets what the server's own table doesn't list; it is loaded when such a path is first asked for. Below the paths
 * of the Relay every refusal is a DeliveryResult.
 */
function createElsewhere(http: Http): Respond {
  const unknown = fault("not_found", "there is no such route");
  const connections = new WeakMap<Request, Connection>();
  const load = async () => {
    const { Elysia } = await import("elysia");
    const app = new Elysia({
      strictPath: true,
      normalize: false,
      handler: { standardHostname: false },
    });
    const problem = planOf(http, refusing(http, unknown));
    const delivery = planOf(http, refusing(http, unknown, "delivery"));
    const delivering = http.routes
      .filter(({ faults }) => faults === "delivery")
      .map(({ path }) => path.split("/")[1]);
    const answer = ({ request }: { readonly request: Request }) => {
      // The path as it was sent: Elysia's patterns see it without `..`.
      const first = /^\w+:\/\/[^/]*\/([^/?]*)/.exec(request.url)?.[1] ?? "";
      const plan = delivering.includes(first) ? delivery : problem;
      return serve(http, plan, request, connections.get(request) as Connection);
    };
    app.all("/*", answer, { parse: "none" });
    return app;
  };
  let loading: ReturnType<typeof load> | null = null;
  return async (request, connection) => {
    loading ??= load();
    connections.set(request, connection);
    return (await loading).fetch(request);
  };
}
