/**
 * The routes that every node has: what it is, health, readiness, limits, metrics, the catalogue of refusals, the
 * description of the interface and its pages. Readiness alone reads a store.
 * Source: rules sections 3 and 9.
 */
import { problems as catalogue, describeFault, type FaultCode, fault, faultCodes } from "../../core/fault.ts";
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
import { withDeadline } from "../../core/std/bounded.ts";
import { describeInterface, type InterfaceDescription, renderDocumentation, renderSigning } from "./openapi.ts";
import type { Answer, Operation, Route } from "./route.ts";

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
  /** Names of what must work, and the probe of each; a probe throws when it does not. */
  readonly probes: Readonly<Record<string, () => Promise<unknown>>>;
  readonly draining: () => boolean;
};

export function statusRoutes(options: StatusOptions): Route[] {
  const routes = [health(options), readiness(options), limits(options), ...problemRoutes()];
  if (options.withMetrics) routes.push(metrics(options));
  return [...routes, ...documentation(options, routes)];
}

type Description = Pick<Operation, "id" | "summary" | "responses"> & { readonly codes?: readonly FaultCode[] };

function nodeRoute(path: string, description: Description, handle: Route["handle"]): Route {
  return {
    method: "GET",
    path,
    operation: { tag: "Node", codes: [], ...description },
    bodyBytesMax: null,
    capacity: "reserved",
    faults: "problem",
    handle,
  };
}

function health(options: StatusOptions): Route {
  const answer: Answer = { status: 200, json: { status: "ok", version: options.version } };
  const responses = { 200: { description: "The process is up.", schema: healthAnswer } };
  return nodeRoute("/healthz", { id: "health", summary: "Whether the process is up", responses }, () => answer);
}

const probeDeadlineMs = 2_000;
/** Readiness is asked often and by strangers; one round of probes serves everybody for this long. */
const probeMemoMs = 500;

function readiness(options: StatusOptions): Route {
  let memo: { readonly atMs: number; readonly failed: Promise<string[]> } | null = null;
  const failed = (): Promise<string[]> => {
    const nowMs = performance.now();
    if (memo === null || nowMs - memo.atMs > probeMemoMs) memo = { atMs: nowMs, failed: failedProbes(options.probes) };
    return memo.failed;
  };
  const checks = Object.fromEntries(Object.keys(options.probes).map((name) => [name, "ok"]));
  const description: Description = {
    id: "readiness",
    summary: "Whether stores, ledger and sources answer",
    responses: { 200: { description: "Everything answers.", schema: readyAnswer } },
    codes: ["service_unavailable", "shutting_down"],
  };
  return nodeRoute("/readyz", description, async () => {
    if (options.draining()) return fault("shutting_down", "the node is shutting down");
    const names = await failed();
    return names.length === 0
      ? { status: 200, json: { status: "ready", checks } }
      : fault("service_unavailable", `not ready: ${names.join(", ")}`);
  });
}

async function failedProbes(probes: StatusOptions["probes"]): Promise<string[]> {
  const failures = await Promise.all(
    Object.entries(probes).map(async ([name, probe]) => ((await succeedsInTime(probe)) ? null : name)),
  );
  return failures.filter((name) => name !== null);
}

async function succeedsInTime(probe: () => Promise<unknown>): Promise<boolean> {
  const asked = probe().then(
    () => true,
    () => false,
  );
  return (await withDeadline(asked, probeDeadlineMs)) === true;
}

function limits(options: StatusOptions): Route {
  const description: Description = {
    id: "limits",
    summary: "Limits of this node",
    responses: { 200: { description: "The limits that this node applies.", schema: nodeLimitsShape } },
    codes: ["chain_unavailable"],
  };
  const route = nodeRoute("/limits", description, async () => ({ status: 200, json: await options.limits() }));
  return { ...route, unavailable: "chain_unavailable" };
}

function metrics(options: StatusOptions): Route {
  const description: Description = {
    id: "metrics",
    summary: "Measurements in the Prometheus text format",
    responses: { 200: { description: "Measurements." } },
  };
  return nodeRoute("/metrics", description, async () => ({
    status: 200,
    body: { contentType: "text/plain; version=0.0.4; charset=utf-8", content: await options.renderMetrics() },
  }));
}

function problemRoutes(): Route[] {
  const entries: ProblemEntry[] = faultCodes.map((code) => ({ ...describeFault(code), ...catalogue[code] }));
  const byCode = new Map(entries.map((entry) => [entry.code, entry]));
  return [
    nodeRoute(
      "/problems",
      {
        id: "problems",
        summary: "Every error code",
        responses: { 200: { description: "The catalogue of refusals.", schema: problemListAnswer } },
      },
      () => ({ status: 200, json: { problems: entries } }),
    ),
    nodeRoute(
      "/problems/:code",
      {
        id: "problem",
        summary: "One code of the catalogue",
        responses: { 200: { description: "Status, title, cause and remedy of the code.", schema: problemEntryShape } },
        codes: ["not_found"],
      },
      (call) => {
        const entry = byCode.get(call.params["code"] ?? "");
        return entry === undefined ? fault("not_found", "there is no such code") : { status: 200, json: entry };
      },
    ),
  ];
}

function documentation(options: StatusOptions, own: readonly Route[]): Route[] {
  let description: InterfaceDescription | null = null;
  const routes: Route[] = [];
  const described = (): InterfaceDescription => {
    const { version, notes, servers = [] } = options;
    description ??= describeInterface({ version, notes, servers, routes: [...options.routes, ...own, ...routes] });
    return description;
  };
  // All are made once: making them costs milliseconds, and anybody may ask.
  let bytes: Uint8Array | null = null;
  const pageOf = (render: (described: InterfaceDescription) => string): Route["handle"] => {
    let content: string | null = null;
    return () => {
      content ??= render(described());
      return { status: 200, headers: pageHeaders, body: { contentType: "text/html; charset=utf-8", content } };
    };
  };
  routes.push(
    nodeRoute(
      "/openapi.json",
      {
        id: "openapi",
        summary: "This interface as OpenAPI 3.1",
        responses: { 200: { description: "The OpenAPI document." } },
      },
      () => {
        bytes ??= new TextEncoder().encode(JSON.stringify(described()));
        return { status: 200, jsonSpliced: [bytes] };
      },
    ),
    nodeRoute(
      "/docs",
      {
        id: "documentation",
        summary: "This interface as a page",
        responses: { 200: { description: "A page without external assets." } },
      },
      pageOf(renderDocumentation),
    ),
    nodeRoute(
      "/docs/signing",
      {
        id: "signing",
        summary: "Texts that clients sign, and how to seal a message, as a page",
        responses: { 200: { description: "A page without external assets." } },
      },
      pageOf(renderSigning),
    ),
  );
  return routes;
}

/** The page needs nothing but its own style. */
const pageHeaders = {
  "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'",
  "x-content-type-options": "nosniff",
};

/** `GET /node`: what a node publishes about itself, so that a client can check an address before it publishes it. */
export function aboutRoute(about: () => About): Route {
  const description: Description = {
    id: "node",
    summary: "Roles, public endpoints, version and keys of this node",
    responses: { 200: { description: "What this node is.", schema: aboutAnswer } },
  };
  return nodeRoute("/node", description, () => ({ status: 200, json: about() }));
}
