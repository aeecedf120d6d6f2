/**
 * `GET /status` and `GET /status.json`: what this process does, for the operator. The page is served on the
 * admin listener, or on a node that only this machine reaches.
 */
import { Type } from "@sinclair/typebox";
import type { Route } from "../http/route.ts";
import type { History } from "./history.ts";
import { pageSecurityPolicy, renderStatusPage } from "./page.ts";

export type DashboardParts = {
  readonly version: string;
  readonly roles: readonly string[];
  readonly startedAtMs: number;
  readonly history: History;
  /** Name of each thing that must work, and whether it does. */
  readonly checks: () => Promise<readonly { readonly name: string; readonly ok: boolean }[]>;
  /** Further figures as text: chain head, free disk space, queue lengths. */
  readonly facts: () => Promise<readonly { readonly name: string; readonly value: string }[]>;
};
