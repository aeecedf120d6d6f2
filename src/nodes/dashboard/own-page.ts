/**
 * Operations answer programs that may open the socket, and of browsers the page of this process
 * alone. A person who forwards the socket to a port of their machine has all pages of their browser
 * at that port: a stranger's must change nothing (CSRF, DNS rebinding). A browser names itself by
 * `Sec-Fetch-Site` or `Origin`, which no page can leave out or forge.
 * Source: Fetch Metadata Request Headers; Fetch standard, "Origin header".
 */
import { encodeHex, equalBytes, utf8 } from "../../core/codec/bytes.ts";
import { type Fault, fault } from "../../core/fault.ts";
import type { Route } from "../http/route.ts";

/** Random for one process: what the page shows with each request. */
export const newPageToken = (): string => encodeHex(crypto.getRandomValues(new Uint8Array(32)));

/** The same routes, which refuse a browser's request that is not from the page with the token. */
export const forOwnPage = (routes: readonly Route[], token: string): Route[] =>
  routes.map((route) => ({
    ...route,
    handle: (call) => checkPage(call.headers, token) ?? route.handle(call),
  }));

function checkPage(headers: Headers, token: string): Fault | null {
  const [origin, site] = [headers.get("origin"), headers.get("sec-fetch-site")];
  const shown = headers.get("x-waypost-token");
  if (origin === null && site === null && shown === null) return null;
  const isOwnOrigin = origin === null || origin === `http://${headers.get("host")}`;
  const isOwnSite = site === null || site === "same-origin";
  if (isOwnOrigin && isOwnSite && equalBytes(utf8(shown ?? ""), utf8(token))) return null;
  return fault(
    "policy_denied",
    "a browser may ask this from the node's own page alone; load it again",
  );
}
