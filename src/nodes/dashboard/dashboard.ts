/**
 * `GET /status`: what this process does, for the operator, on the admin listener or on a node that
 * only this machine reaches. The page, `status.html`, fetches `/metrics` and `/readyz` every ten
 * seconds, and keeps what it has read for an hour: first the figures since the start of the
 * process. The node keeps nothing for it. On the Unix sockets of the admin listener it has a part
 * more, `operate.html`: forms and lists over the operations.
 */
import { encodeBase64, utf8 } from "../../core/codec/bytes.ts";
import { sha256 } from "../../core/codec/crypto.ts";
import type { Route } from "../http/route.ts";
import { nodeRoute } from "../http/status.ts";
import operating from "./operate.html" with { type: "text" };
import page from "./status.html" with { type: "text" };

// Bun's types take every page for a bundle.
const [statusPage, operatingPart] = [String(page), String(operating)];

/** `token`: what the part with actions shows the operations; `null` without that part. */
export function dashboardRoute(token: string | null = null): Route {
  const content = token === null ? statusPage : withActions(token);
  const body = { contentType: "text/html; charset=utf-8", content };
  const headers = pageHeaders(content);
  return nodeRoute({
    path: "/status",
    id: "statusPage",
    summary: "Status of this process, as a page",
    answer: [200, "A page without external assets.", "text/html; charset=utf-8"],
    handle: () => ({ status: 200, headers, body }),
  });
}

/** Its script comes last, since it uses that of the page. */
function withActions(token: string): string {
  const start = operatingPart.indexOf("<script>");
  return statusPage
    .replace("<title>", `<meta name="waypost-token" content="${token}">\n<title>`)
    .replace("<!-- operate -->", () => operatingPart.slice(0, start))
    .replace("<!-- operate script -->", () => operatingPart.slice(start));
}

/** The hash of what is between the tags of each element of this name, as sources of a policy. */
function hashesOf(content: string, element: "script" | "style"): string {
  const found = content.matchAll(new RegExp(`<${element}>([\\s\\S]*?)</${element}>`, "g"));
  return [...found]
    .map(([, text = ""]) => `'sha256-${encodeBase64(sha256(utf8(text)))}'`)
    .join(" ");
}

/** It loads nothing and runs nothing but its own scripts, and no other page may frame it. */
function pageHeaders(content: string): Record<string, string> {
  const policy = [
    "default-src 'none'",
    `style-src ${hashesOf(content, "style")}`,
    `script-src ${hashesOf(content, "script")}`,
    "connect-src 'self'",
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
  ];
  return {
    "content-security-policy": policy.join("; "),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
  };
}
