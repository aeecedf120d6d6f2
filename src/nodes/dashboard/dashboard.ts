/**
 * `GET /status`: what this process does, for the operator, on the admin listener or on a node that only this machine
 * reaches. The page, `status.html`, fetches `/metrics` and `/readyz` every ten seconds, and keeps what it has read
 * for an hour: first the figures since the start of the process. The node keeps nothing for it.
 */
import type { Route } from "../http/route.ts";
import { nodeRoute } from "../http/status.ts";
import page from "./status.html" with { type: "text" };

export function dashboardRoute(): Route {
  // Bun's types take every page for a bundle.
  const body = { contentType: "text/html; charset=utf-8", content: String(page) };
  return nodeRoute({
    path: "/status",
    id: "statusPage",
    summary: "Status of this process, as a page",
    answer: [200, "A page without external assets.", "text/html; charset=utf-8"],
    handle: () => ({ status: 200, headers: pageHeaders, body }),
  });
}

/** It loads nothing, and no other page may frame it. */
const pageHeaders = {
  "content-security-policy":
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
  "x-content-type-options": "nosniff",
};
