/**
 * The routes that every node has: what it is, health, readiness, limits, metrics, the
 * catalogue of refusals, the description of the interface. Readiness alone reads a store.
 * Source: rules sections 3 and 9.
 */
import { utf8 } from "../../core/codec/bytes.ts";
import { describeFault, type Fault, fault, faultCodes } from "../../core/fault.ts";
import { nodeLimitsShape } from "../../core/schema/directory.ts";
import {
  type AboutAnswer,
  aboutAnswer,
  descriptionAnswer,
  healthAnswer,
  type ProblemEntry,
  problemEntryShape,
  problemListAnswer,
  readyAnswer,
} from "../../core/schema/schema.ts";
import { late, withDeadline } from "../../core/std/bounded.ts";
import { StoreError } from "../../storage/contract.ts";
import { describeInterface } from "./openapi.ts";
import { type Answer, type Route, spliced } from "./route.ts";

type StatusOptions = {
  readonly version: string;
  /** The routes of the nodes on the same listener, for the description. */
  readonly routes: readonly Route[];
  /** Where this node is reached from outside; by default the address that was asked. */
  readonly servers?: readonly string[];
  /** What `/limits` answers: the limits of all nodes of the listener. */
  readonly limits: () => Promise<Readonly<Record<string, unknown>>>;
  /** The text of `/metrics`. */
  readonly renderMetrics: () => Promise<string>;
  readonly withMetrics: boolean;
  /** Whether the limits are those of a ledger too. */
  readonly readsLedger: boolean;
  readonly probes: Probes;
  readonly draining: () => boolean;
};

export function statusRoutes(options: StatusOptions): Route[] {
  const { version, readsLedger } = options;
  const routes = [
    nodeRoute({
      path: "/healthz",
      id: "health",
      summary: "Whether the process is up",
      answer: [200, "The process is up.", healthAnswer],
      handle: () => ({ status: 200, json: { status: "ok", version } }),
    }),
    readiness(options),
    nodeRoute({
      path: "/limits",
      id: "limits",
      summary: "Limits of this node",
      answer: [200, "The limits that this node applies.", nodeLimitsShape],
      codes: readsLedger ? ["chain_unavailable"] : [],
      handle: async () => ({ status: 200, json: await options.limits() }),
    }),
    ...problemRoutes(),
    ...(options.withMetrics ? [metricsRoute(options)] : []),
  ];
  return [...routes, description(options, routes)];
}

/** A read of the node itself, which is served even when the node is over capacity. */
export function nodeRoute(
  route: Pick<Route, "path" | "id" | "summary" | "answer" | "codes" | "handle">,
): Route {
  return { ...route, method: "GET", tag: "Node", capacity: "reserved" };
}

const probeDeadlineMs = 2_000;
/**
 * Readiness is asked often and by strangers; one round of probes serves everybody for this
 * long.
 */
const probeMemoMs = 500;

/** Names of what must work, and the probe of each; a probe throws when it does not. */
type Probes = Readonly<Record<string, () => Promise<unknown>>>;

function readiness({ draining, probes }: StatusOptions): Route {
  let memo: { readonly atMs: number; readonly checks: Promise<Checked[]> } | null = null;
  const handle = async (): Promise<Answer | Fault> => {
    if (draining()) return fault("shutting_down", "the node is shutting down");
    const nowMs = performance.now();
    if (memo === null || nowMs - memo.atMs > probeMemoMs)
      memo = { atMs: nowMs, checks: checkProbes(probes) };
    const checks = await memo.checks;
    const failed = checks.filter(({ ok }) => !ok).map(({ name }) => name);
    if (failed.length > 0) return fault("service_unavailable", `not ready: ${failed.join(", ")}`);
    const json = {
      status: "ready",
      checks: Object.fromEntries(checks.map(({ name, text }) => [name, text])),
    };
    return { status: 200, json };
  };
  return nodeRoute({
    path: "/readyz",
    id: "readiness",
    summary: "Whether stores, ledger and sources answer",
    answer: [200, "Everything answers.", readyAnswer],
    codes: ["service_unavailable", "shutting_down"],
    handle,
  });
}

type Checked = { readonly name: string; readonly ok: boolean; readonly text: string };

/**
 * Whether each probe succeeds in time. A store of which only a part is away is ready, and
 * says which.
 */
export async function checkProbes(probes: Probes): Promise<Checked[]> {
  return Promise.all(
    Object.entries(probes).map(async ([name, probe]) => {
      const state = probe().then(
        () => "ok",
        (error: unknown) =>
          error instanceof StoreError && error.code === "partial" ? error.message : late,
      );
      const text = await withDeadline(state, probeDeadlineMs);
      return text === late ? { name, ok: false, text: "away" } : { name, ok: true, text };
    }),
  );
}

const metricsType = "text/plain; version=0.0.4; charset=utf-8";

function metricsRoute({ renderMetrics }: StatusOptions): Route {
  return nodeRoute({
    path: "/metrics",
    id: "metrics",
    summary: "Measurements in the Prometheus text format",
    answer: [200, "Measurements.", metricsType],
    handle: async () => ({
      status: 200,
      body: {
        contentType: metricsType,
        content: await renderMetrics(),
      },
    }),
  });
}

function problemRoutes(): Route[] {
  const entries: ProblemEntry[] = faultCodes.map(describeFault);
  return [
    nodeRoute({
      path: "/problems",
      id: "problems",
      summary: "Every error code",
      answer: [200, "The catalogue of refusals.", problemListAnswer],
      handle: () => ({ status: 200, json: { problems: entries } }),
    }),
    nodeRoute({
      path: "/problems/:code",
      id: "problem",
      summary: "One code of the catalogue",
      answer: [200, "Status and title of the code.", problemEntryShape],
      codes: ["not_found"],
      handle: ({ params }) => {
        const entry = entries.find(({ code }) => code === params["code"]);
        return entry === undefined
          ? fault("not_found", "there is no such code")
          : { status: 200, json: entry };
      },
    }),
  ];
}

/** The description. It is made once: making it costs milliseconds, and anybody may ask. */
function description(options: StatusOptions, own: readonly Route[]): Route {
  const { version, servers = [] } = options;
  let json: Uint8Array | null = null;
  const route = nodeRoute({
    path: "/openapi.json",
    id: "openapi",
    summary: "This interface as OpenAPI 3.1",
    answer: [200, "The OpenAPI document.", descriptionAnswer],
    handle: () => {
      const routes = [...options.routes, ...own, route];
      json ??= utf8(JSON.stringify(describeInterface({ version, servers, routes })));
      return spliced([json]);
    },
  });
  return route;
}

/**
 * `GET /node`: what a node publishes about itself, so that a client can check an address
 * before it publishes it.
 */
export function aboutRoute(about: () => AboutAnswer): Route {
  return nodeRoute({
    path: "/node",
    id: "node",
    summary: "Roles, public endpoints, version and keys of this node",
    answer: [200, "What this node is.", aboutAnswer],
    handle: () => ({ status: 200, json: about() }),
  });
}
