/**
 * The Directory: identity records, policies and authorization counters over a ledger. This file is the
 * table of its routes and the limits it applies; each idea has a file of its own beside it.
 * Source: interface "Directory", rules section 4.
 */

import { proofLifeMsMax } from "../../core/ledger/document-codec.ts";
import type { DirectoryLimits } from "../../core/schema/directory.ts";
import type { Route } from "../http/route.ts";
import { type DirectoryParts, directoryBodyBytesMax, readBinding, renderProofs } from "./parts.ts";
import { ownerRoutes, policyReadRoutes } from "./policy.ts";
import { prepareRoutes } from "./prepare.ts";
import { readRoutes } from "./read.ts";
import { registrationRoutes } from "./register.ts";
import { documentRoute, updateRoutes } from "./update.ts";

export type Directory = {
  readonly routes: readonly Route[];
  /** What the Directory adds to `GET /limits`. */
  readonly limits: () => Promise<DirectoryLimits>;
};

export function createDirectory(parts: DirectoryParts): Directory {
  const routes = [
    ...registrationRoutes(parts),
    ...readRoutes(parts),
    ...updateRoutes(parts),
    documentRoute(parts),
    ...ownerRoutes(parts),
    ...policyReadRoutes(parts),
    ...prepareRoutes(parts),
  ];
  const { blocks } = parts;
  return {
    // Asked before the body is read. What is public stays public.
    routes: routes.map((route) =>
      blocks === undefined || route.method === "GET"
        ? route
        : { ...route, rateLimit: ({ client }) => blocks.checkClient(client) },
    ),
    limits: () => directoryLimits(parts),
  };
}

/** The block time is among them: Relays and Caches elsewhere read policies here, which count in blocks. */
async function directoryLimits({
  ledger,
  settings,
  limits,
}: DirectoryParts): Promise<DirectoryLimits & { readonly max_clock_skew_seconds: number }> {
  const [{ blockTimeMs }, binding] = await Promise.all([ledger.head(), readBinding(ledger)]);
  return {
    block_time_ms: blockTimeMs,
    max_directory_body_bytes: directoryBodyBytesMax,
    max_clock_skew_seconds: limits.clock_skew / 1_000,
    max_authorization_ahead_seconds: settings.authorization_max_ahead / 1_000,
    max_proof_life_seconds: proofLifeMsMax / 1_000,
    ...renderProofs(settings, binding),
    unsigned_updates: settings.unsigned_updates,
    registration_rate_per_second: settings.registration_rate,
    registration_burst: settings.registration_burst,
    registration_work_bits: settings.registration_work_bits,
  };
}
