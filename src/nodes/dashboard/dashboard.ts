/**
 * `GET /status`: what this process does, for the operator, on the admin listener or on a node that only this machine
 * reaches. The page, `status.html`, fetches `/metrics` and `/readyz` every ten seconds, and keeps what it has read
 * for an hour: first the figures since the start of the process. The node keeps nothing for it.
 */
import { encodeBase64, utf8 } from "../../core/codec/bytes.ts";
import { sha256 } from "../../core/codec/crypto.ts";
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

/** The hash of what is between the tags of the one element of this name, as a source of a policy. */
function hashOf(element: "script" | "style"): string {
  const [, content = ""] =
    new RegExp(`<${element}>([\\s\\S]*?)</${element}>`).exec(String(page)) ?? [];
  return `'sha256-${encodeBase64(sha256(utf8(content)))}'`;
}

/** It loads nothing and runs nothing but its own script, and no other page may frame it. */
const pageHeaders = {
  "content-security-policy": `default-src 'none'; style-src ${hashOf("style")}; script-src ${hashOf("script")}; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'`,
  "x-content-type-options": "nosniff",
};
