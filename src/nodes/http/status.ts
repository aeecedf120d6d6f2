/**
 * The routes that every node has: what it is, health, readiness, limits, metrics, the catalogue of refusals, the
 * description of the interface. Readiness alone reads a store.
 * Source: rules sections 3 and 9.
 */
import type { TSchema } from "@sinclair/typebox";
import { utf8 } from "../../core/codec/bytes.ts";
import { describeFault, fault, faultCodes } from "../../core/fault.ts";
import { nodeLimitsShape } from "../../core/schema/directory.ts";
import {
  type About,
  aboutAnswer,
  healthAnswer,
  type ProblemEntry,
  problemEntryShape,
  problemListAnswer,
  readyAnswer,
} from "../../core/schema/schema.ts";
import { late, withDeadline } from "../../core/std/bounded.ts";
import { StoreError } from "../../storage/contract.ts";
import { describeInterface } from "./openapi.ts";
import type { Route } from "./route.ts";

type StatusOptions = {
  readonly version: string;
  /** The routes of the nodes on the same listener, for the description. */
  readonly routes: readonly Route[];
  readonly notes: readonly string[];
  /** Where this node is reached from outside; by default the address that was asked. */
  readonly servers?: readonly string[];
  /** What `/limits` answers: the limits of all nodes of the listener. */
  readonly limits: () => Promise<Readonly<Record<string, unknown>>>;
  /** The text of `/metrics`. */
  readonly renderMetrics: () => Promise<string>;
  readonly withMetrics: boolean;
  /** What a ledger that does not answer is called. */
  readonly unavailable: NonNullable<Route["unavailable"]>;
  readonly probes: Probes;
  readonly draining: () => boolean;
};

export function statusRoutes(options: StatusOptions): Route[] {
  const routes = [health(options), readiness(options), limits(options), ...problemRoutes()];
  if (options.withMetrics) routes.push(metrics(options));
  return [...routes, description(options, routes)];
}

type Description = Pick<Route, "id" | "summary" | "codes"> & {
  readonly answer: readonly [description: string, schema?: TSchema];
};

/** A read of the node itself, which is served even when the node is over capacity. */
export function nodeRoute(path: string, { answer, ...described }: Description, handle: Route["handle"]): Route {
  return { ...described, method: "GET", path, tag: "Node", capacity: "reserved", answer: [200, ...answer], handle };
}

function health({ version }: StatusOptions): Route {
  const description: Description = {
    id: "health",
    summary: "Whether the process is up",
    answer: ["The process is up.", healthAnswer],
  };
  return nodeRoute("/healthz", description, () => ({ status: 200, json: { status: "ok", version } }));
}

const probeDeadlineMs = 2_000;
/** Readiness is asked often and by strangers; one round of probes serves everybody for this long. */
const probeMemoMs = 500;

/** Names of what must work, and the probe of each; a probe throws when it does not. */
type Probes = Readonly<Record<string, () => Promise<unknown>>>;

function readiness(options: StatusOptions): Route {
  let memo: { readonly atMs: number; readonly checks: ReturnType<typeof checkProbes> } | null = null;
  const description: Description = {
    id: "readiness",
    summary: "Whether stores, ledger and sources answer",
    answer: ["Everything answers.", readyAnswer],
    codes: ["service_unavailable", "shutting_down"],
  };
  return nodeRoute("/readyz", description, async () => {
    if (options.draining()) return fault("shutting_down", "the node is shutting down");
    const nowMs = performance.now();
    if (memo === null || nowMs - memo.atMs > probeMemoMs) memo = { atMs: nowMs, checks: checkProbes(options.probes) };
    const checks = await memo.checks;
    const failed = checks.filter(({ ok }) => !ok).map(({ name }) => name);
    if (failed.length > 0) return fault("service_unavailable", `not ready: ${failed.join(", ")}`);
    const json = { status: "ready", checks: Object.fromEntries(checks.map(({ name, text }) => [name, text])) };
    return { status: 200, json };
  });
}

type Checked = { readonly name: string; readonly ok: boolean; readonly text: string };

/** Whether each probe succeeds in time. A store of which only a part is away is ready, and says which. */
export async function checkProbes(probes: Probes): Promise<Checked[]> {
  return Promise.all(
    Object.entries(probes).map(async ([name, probe]) => {
      const state = probe().then(
        () => "ok",
        (error: unknown) => (error instanceof StoreError && error.code === "partial" ? error.message : late),
      );
      const text = await withDeadline(state, probeDeadlineMs);
      return text === late ? { name, ok: false, text: "away" } : { name, ok: true, text };
    }),
  );
}

function limits(options: StatusOptions): Route {
  const description: Description = {
    id: "limits",
    summary: "Limits of this node",
    answer: ["The limits that this node applies.", nodeLimitsShape],
    codes: [options.unavailable],
  };
  const route = nodeRoute("/limits", description, async () => ({ status: 200, json: await options.limits() }));
  return { ...route, unavailable: options.unavailable };
}

function metrics(options: StatusOptions): Route {
  const description: Description = {
    id: "metrics",
    summary: "Measurements in the Prometheus text format",
    answer: ["Measurements."],
  };
  return nodeRoute("/metrics", description, async () => ({
    status: 200,
    body: { contentType: "text/plain; version=0.0.4; charset=utf-8", content: await options.renderMetrics() },
  }));
}

function problemRoutes(): Route[] {
  const entries: ProblemEntry[] = faultCodes.map(describeFault);
  const list: Description = {
    id: "problems",
    summary: "Every error code",
    answer: ["The catalogue of refusals.", problemListAnswer],
  };
  const one: Description = {
    id: "problem",
    summary: "One code of the catalogue",
    answer: ["Status and title of the code.", problemEntryShape],
    codes: ["not_found"],
  };
  return [
    nodeRoute("/problems", list, () => ({ status: 200, json: { problems: entries } })),
    nodeRoute("/problems/:code", one, ({ params }) => {
      const entry = entries.find(({ code }) => code === params["code"]);
      return entry === undefined ? fault("not_found", "there is no such code") : { status: 200, json: entry };
    }),
  ];
}

/** The description. It is made once: making it costs milliseconds, and anybody may ask. */
function description(options: StatusOptions, own: readonly Route[]): Route {
  const { version, notes, servers = [] } = options;
  let json: Uint8Array | null = null;
  const route = nodeRoute(
    "/openapi.json",
    { id: "openapi", summary: "This interface as OpenAPI 3.1", answer: ["The OpenAPI document."] },
    () => {
      const routes = [...options.routes, ...own, route];
      json ??= utf8(JSON.stringify(describeInterface({ version, notes, servers, routes })));
      return { status: 200, jsonSpliced: [json] };
    },
  );
  return route;
}

/** A page that loads nothing but what its policy names, and that no other page may frame. */
export function pageRoute(
  path: string,
  described: Pick<Route, "id" | "summary">,
  page: { readonly html: () => string; readonly policy: string },
): Route {
  const headers = {
    "content-security-policy": `${page.policy}; frame-ancestors 'none'`,
    "x-content-type-options": "nosniff",
  };
  return nodeRoute(path, { ...described, answer: ["A page without external assets."] }, () => ({
    status: 200,
    headers,
    body: { contentType: "text/html; charset=utf-8", content: page.html() },
  }));
}

/** `GET /node`: what a node publishes about itself, so that a client can check an address before it publishes it. */
export function aboutRoute(about: () => About): Route {
  const description: Description = {
    id: "node",
    summary: "Roles, public endpoints, version and keys of this node",
    answer: ["What this node is.", aboutAnswer],
  };
  return nodeRoute("/node", description, () => ({ status: 200, json: about() }));
}
