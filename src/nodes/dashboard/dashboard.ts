/**
 * `GET /status` and `GET /status.json`: what this process does, for the operator. The page is served on the
 * admin listener, or on a node that only this machine reaches.
 */
import { StatusAnswer } from "../../core/schema/node.ts";
import type { Route } from "../http/route.ts";
import type { HistoryView } from "./history.ts";
import { pageSecurityPolicy, renderStatusPage } from "./page.ts";

export type DashboardParts = {
  readonly version: string;
  readonly roles: readonly string[];
  readonly startedAtMs: number;
  /** Of the process, which may be asked in another thread. */
  readonly history: () => Promise<HistoryView>;
  /** Name of each thing that must work, and whether it does. */
  readonly checks: () => Promise<readonly { readonly name: string; readonly ok: boolean }[]>;
  /** Further figures as text: chain head, free disk space, queue lengths. */
  readonly facts: () => Promise<readonly { readonly name: string; readonly value: string }[]>;
};

export function dashboardRoutes(parts: DashboardParts): Route[] {
  const shared = { method: "GET", bodyBytesMax: null, capacity: "reserved", faults: "problem" } as const;
  const page = renderStatusPage();
  return [
    {
      ...shared,
      path: "/status",
      operation: {
        id: "statusPage",
        summary: "What this process does, as a page",
        tag: "Node",
        responses: { 200: { description: "A page." } },
        codes: [],
      },
      handle: () => ({
        status: 200,
        headers: { "content-security-policy": pageSecurityPolicy, "x-content-type-options": "nosniff" },
        body: { contentType: "text/html; charset=utf-8", content: page },
      }),
    },
    {
      ...shared,
      path: "/status.json",
      operation: {
        id: "statusData",
        summary: "The figures of the page",
        tag: "Node",
        responses: { 200: { description: "The last hour of this process.", schema: StatusAnswer } },
        codes: [],
      },
      handle: async () => {
        const [checks, facts, history] = await Promise.all([parts.checks(), parts.facts(), parts.history()]);
        const json = {
          version: parts.version,
          roles: parts.roles,
          started_at_ms: parts.startedAtMs,
          ready: checks.every(({ ok }) => ok),
          samples: history.samples,
          checks,
          facts,
          warnings: history.warnings,
        };
        return { status: 200, headers: { "cache-control": "no-store" }, json };
      },
    },
  ];
}
