/**
 * An app: the routes of the nodes as Elysia plugins, and what answers every other path and
 * method. A node declares `Route`s and answers `Answer | Fault`. Elysia composes each
 * route; the server's own table finds the composed one by the path as it was sent (D157).
 * The order of work of a request stays one function, `serve` (D510).
 * Source: rules sections 3, 9 and D140.
 */
import { type Context, Elysia } from "elysia";
import { type Fault, fault } from "../../core/fault.ts";
import { inFlight, type RequestsInFlight } from "./capacity.ts";
import {
  type AppOptions,
  createHttp,
  type Http,
  type HttpConnection,
  planOf,
  serve,
} from "./pipeline.ts";
import { preflightHeaders, type Route, type RoutedRequest } from "./route.ts";

/** `undefined` when the connection became a WebSocket. */
export type Respond = (
  request: RoutedRequest,
  connection: HttpConnection,
) => Response | undefined | Promise<Response | undefined>;

export type App = {
  /** Each path of the routes with what answers all its methods, for the server's own table. */
  readonly paths: Readonly<Record<string, Respond>>;
  /** Answers a path that no route has. Never rejects. */
  readonly respondElsewhere: Respond;
  /** From now on every request is answered 503 `shutting_down`. */
  readonly startDraining: () => void;
  readonly draining: () => boolean;
  /** What has not been answered yet, and whose body is still arriving. */
  readonly inFlight: () => RequestsInFlight;
  /** Bytes of long answers that clients have not read yet. */
  readonly waitingAnswerBytes: () => number;
};

export function createApp(options: AppOptions): App {
  const http = createHttp(options);
  const elysia = new Elysia(elysiaOptions);
  const nodes = Object.groupBy(options.routes, ({ tag }) => tag);
  for (const [name, routes] of Object.entries(nodes)) elysia.use(nodePlugin(http, name, routes));
  elysia.use(elsewherePlugin(http));
  const { [elsewherePath]: respondElsewhere, ...paths } = tableOf(elysia.routes);
  return {
    paths,
    respondElsewhere: respondElsewhere as Respond,
    startDraining: () => {
      http.draining = true;
    },
    draining: () => http.draining,
    inFlight: () => inFlight(http.capacity),
    waitingAnswerBytes: () => http.capacity.answerBytes.total,
  };
}

// ------------------------------------------------------------------------------------------ Elysia

/** Schemas are checked by the handlers, which name the code and the member at fault (D510). */
const elysiaOptions = { strictPath: true, normalize: false } as const;

/** Bodies are read by the pipeline, under their cap. */
const routeOptions = { parse: "none" } as const;

/** Of the context before a request has come. */
const noConnection: HttpConnection = { requestIP: () => null, upgrade: () => false };

/**
 * What our handlers take from Elysia's context: they name it in their parameters, and
 * Elysia prepares nothing else.
 */
type RouteContext = { readonly request: RoutedRequest; readonly connection: HttpConnection };

const pluginOf = (name: string) =>
  new Elysia({ ...elysiaOptions, name }).decorate("connection", noConnection);

/**
 * The routes of one node. Each path answers all methods: those of its routes, preflights,
 * and 405 for the others.
 */
function nodePlugin(http: Http, name: string, routes: readonly Route[]) {
  const plugin = pluginOf(name);
  for (const [path, ofPath = []] of Object.entries(Object.groupBy(routes, (one) => one.path))) {
    const plans = new Map(ofPath.map((route) => [route.method as string, planOf(http, route)]));
    const get = plans.get("GET");
    if (get !== undefined) plans.set("HEAD", get);
    for (const [method, plan] of plans) {
      const answer = ({ request, connection }: RouteContext) =>
        serve(http, plan, request, connection);
      plugin.route(method, path, answer, routeOptions);
    }
    plugin.all(path, otherMethods(http, ofPath, [...plans.keys()]), routeOptions);
  }
  return plugin;
}

function otherMethods(http: Http, routes: readonly Route[], methods: readonly string[]) {
  const allow = methods.join(", ");
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
  return ({ request, connection }: RouteContext) => {
    const isPreflight =
      request.method === "OPTIONS" && request.headers.has("access-control-request-method");
    return serve(http, isPreflight ? preflight : others, request, connection);
  };
}

const elsewherePath = "/*";

/** Paths that no route has. Below the paths of the Relay every refusal is a DeliveryResult. */
function elsewherePlugin(http: Http) {
  const unknown = fault("not_found", "there is no such route");
  const problem = planOf(http, refusing(http, unknown));
  const delivery = planOf(http, refusing(http, unknown, "delivery"));
  const forPrograms = http.elsewhere && planOf(http, refusing(http, http.elsewhere));
  const delivering = http.routes
    .filter(({ faults }) => faults === "delivery")
    .map(({ path }) => path.split("/")[1]);
  const answer = ({ request, connection }: RouteContext) => {
    const first = /^\w+:\/\/[^/]*\/([^/?]*)/.exec(request.url)?.[1] ?? "";
    const plan = delivering.includes(first) ? delivery : problem;
    const isProgram = request.headers.get("accept") === "application/json";
    return serve(http, (isProgram && forPrograms) || plan, request, connection);
  };
  return pluginOf("elsewhere").all(elsewherePath, answer, routeOptions);
}

/**
 * The composed routes by path. Elysia's own listener hands what its table lacks to a router
 * that reads the path after `..` and `%2e%2e` were rewritten, so that a request could reach
 * a route that it does not name.
 */
function tableOf(routes: Elysia["routes"]): Record<string, Respond> {
  return Object.fromEntries(
    Object.entries(Object.groupBy(routes, ({ path }) => path)).map(([path, ofPath = []]) => {
      const composed = new Map(ofPath.map((route) => [route.method as string, route.compile()]));
      const others = composed.get("ALL");
      const respond: Respond = (request, connection) => {
        const answer = composed.get(request.method) ?? others;
        return answer?.(elysiaContext(request, connection));
      };
      return [path, respond];
    }),
  );
}

/** Read by Elysia where a handler throws, which `serve` never does. */
const set: Context["set"] = { headers: {}, status: 200 };

/** What Elysia's composed function reads, and what our handlers take. */
function elysiaContext(request: RoutedRequest, connection: HttpConnection): Context {
  const context = { request, connection, set };
  return context as Partial<Context> as Context;
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
