/**
 * Apps for tests: a pipeline around a list of routes with small limits, asked with `respond` and no
 * socket, or bound to a free port of the loopback interface.
 */

import type { TSchema } from "@sinclair/typebox";
import { configSchema } from "../../src/config/schema.ts";
import { type App, createApp, type Respond } from "../../src/nodes/http/app.ts";
import { createMetrics, httpMetrics, type Metrics } from "../../src/nodes/http/metrics.ts";
import type { AppOptions, HttpConnection } from "../../src/nodes/http/pipeline.ts";
import type { Route } from "../../src/nodes/http/route.ts";
import { listen } from "../../src/nodes/http/server.ts";

export type LoggedLine = { level: string; message: string; fields: Record<string, unknown> };

export type TestApp = {
  readonly app: App;
  readonly metrics: Metrics;
  readonly lines: LoggedLine[];
  readonly ask: (path: string, init?: RequestInit) => Promise<Response>;
};

/** The settings of a server as operators leave them. */
export const serverSettings = configSchema.parse({}).server;

export function testApp(
  routes: readonly Route[],
  {
    server = {},
    ...options
  }: Partial<AppOptions> & { readonly server?: Partial<AppOptions["settings"]> } = {},
): TestApp {
  const metrics = createMetrics();
  const lines: LoggedLine[] = [];
  const app = createApp({
    routes,
    settings: {
      ...serverSettings,
      requests_max: 64,
      body_deadline: 2_000,
      body_bytes_in_flight: 64 << 20,
      refusal_delay: 20,
      ...server,
    },
    corsOrigins: ["*"],
    now: () => Date.now(),
    log: (level, message, fields) => lines.push({ level, message, fields: { ...fields } }),
    metrics: httpMetrics(metrics),
    ...options,
  });
  const connection = connectionFrom("192.0.2.7");
  const ask = (path: string, init?: RequestInit): Promise<Response> =>
    respond(app, new Request(`http://waypost.invalid${path}`, init), connection);
  return { app, metrics, lines, ask };
}

/** A connection that answers no upgrade; without an address, that of a Unix socket. */
export function connectionFrom(address: string | null): HttpConnection {
  return {
    requestIP: () => (address === null ? null : { address }),
    upgrade: () => false,
  };
}

/** Finds the path and its values as the server's own table does, without a server. */
export async function respond(
  app: App,
  request: Request,
  connection: HttpConnection,
): Promise<Response> {
  const segments = request.url.replace(/^[^:]+:\/\/[^/]+|\?.*$/g, "").split("/");
  for (const [path, answer] of Object.entries(app.paths)) {
    const own = path.split("/");
    const fits = own.every(
      (one, i) => one === segments[i] || (one.startsWith(":") && segments[i] !== ""),
    );
    if (!fits || own.length !== segments.length) continue;
    const values = own.flatMap((one, i) =>
      one.startsWith(":")
        ? [[one.slice(1), new TextDecoder().decode(unescaped(segments[i] ?? ""))]]
        : [],
    );
    return answered(
      answer(Object.assign(request, { params: Object.fromEntries(values) }), connection),
    );
  }
  return answered(app.respondElsewhere(request, connection));
}

/** What is answered without an upgrade. */
export async function answered(responding: ReturnType<Respond>): Promise<Response> {
  return (await responding) ?? Promise.reject(new Error("the connection became a WebSocket"));
}

/** The bytes that a segment stands for; a broken escape is a byte that is no UTF-8. */
function unescaped(segment: string): Uint8Array {
  const parts = segment.match(/%[0-9a-fA-F]{2}|%|[^%]+/g) ?? [];
  return Buffer.concat(
    parts.map((part) =>
      part.startsWith("%")
        ? Buffer.from(part.length === 3 ? part.slice(1) : "ff", "hex")
        : Buffer.from(part),
    ),
  );
}

/**
 * A route with everything that a test does not care about filled in. It takes a body when it has a
 * bound for one.
 */
export function testRoute(parts: Partial<Route> & Pick<Route, "path" | "handle">): Route {
  return {
    method: "GET",
    id: parts.path,
    summary: "a route of a test",
    tag: "Node",
    answer: [200, "What the test wants."],
    capacity: "normal",
    ...(parts.bodyBytesMax === undefined ? {} : { request: {} as TSchema }),
    ...parts,
  };
}

export function listenForTest(app: App): { url: string; stop: () => Promise<void> } {
  const listener = listen({ app, address: "127.0.0.1:0" });
  return { url: listener.url, stop: () => listener.drain(1_000) };
}

/** Answers its path values. */
export const echo: Route = testRoute({
  path: "/things/:id",
  handle: (call) => ({ status: 200, json: call.params }),
});

/** Takes a body of up to 100 bytes and answers its size. */
export const take: Route = testRoute({
  method: "POST",
  path: "/things",
  bodyBytesMax: 100,
  handle: (call) => ({ status: 200, json: { bytes: call.body.length, requestId: call.requestId } }),
});

export const jsonType = { "content-type": "application/json" };

export const post = (body: BodyInit, headers: Record<string, string> = jsonType): RequestInit => ({
  method: "POST",
  body,
  headers,
});

export async function codeOf(response: Response): Promise<string> {
  return ((await response.json()) as { code: string }).code;
}
