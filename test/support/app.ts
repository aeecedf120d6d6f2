/**
 * Apps for tests: a shell around a list of routes with small limits, asked with `respond` and no socket,
 * or bound to a free port of the loopback interface.
 */

import { createMetrics, type Metrics } from "../../src/nodes/http/metrics.ts";
import { type App, type AppOptions, createApp, shellMetrics } from "../../src/nodes/http/pipeline.ts";
import type { Route } from "../../src/nodes/http/route.ts";
import { listen } from "../../src/nodes/http/server.ts";

export type LoggedLine = { level: string; message: string; fields: Record<string, unknown> };

export type TestApp = {
  readonly app: App;
  readonly metrics: Metrics;
  readonly lines: LoggedLine[];
  readonly ask: (path: string, init?: RequestInit) => Promise<Response>;
};

export const testLimits = {
  requestsMax: 64,
  reservedMax: 16,
  arrivingMax: 64,
  parkedMax: 64,
  refusalDelayMs: 20,
  bodyBytesInFlightMax: 64 << 20,
  bodyDeadlineMs: 2_000,
};

export function testApp(routes: readonly Route[], options: Partial<AppOptions> = {}): TestApp {
  const metrics = createMetrics();
  const lines: LoggedLine[] = [];
  const app = createApp({
    routes,
    limits: testLimits,
    trustedProxies: [],
    now: () => Date.now(),
    log: (level, message, fields) => lines.push({ level, message, fields: { ...fields } }),
    metrics: shellMetrics(metrics),
    ...options,
  });
  const ask = (path: string, init?: RequestInit): Promise<Response> =>
    app.respond(new Request(`http://waypost.invalid${path}`, init), { peer: "192.0.2.7" });
  return { app, metrics, lines, ask };
}

/** A route with everything that a test does not care about filled in. */
export function testRoute(parts: Partial<Route> & Pick<Route, "path" | "handle">): Route {
  return {
    method: "GET",
    operation: { id: parts.path, summary: "a route of a test", tag: "Node", responses: {}, codes: [] },
    bodyBytesMax: null,
    lane: "normal",
    faults: "problem",
    ...parts,
  };
}

export function listenForTest(app: App): { url: string; stop: () => Promise<void> } {
  const listener = listen({ app, address: "127.0.0.1:0", now: () => Date.now() });
  return { url: listener.url, stop: () => listener.drain(1_000) };
}
