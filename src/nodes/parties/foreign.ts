/**
 * What routes answer of DIDs, aliases and log entries that are at home at another Directory:
 * `?home=` names it. Questions end at the Directory that another one asks.
 * Source: docs/trust.md "Between providers", docs/interface.md "Directory".
 */
import { type Did, normalizeAlias } from "../../core/codec/did.ts";
import { type Fault, fault, isFault } from "../../core/fault.ts";
import { parseHome } from "../../core/ledger/home.ts";
import type { Answer, Call, Route } from "../http/route.ts";
import { type Absence, hopsHeader } from "./home-questions.ts";
import type { Homes } from "./homes.ts";

/** Serves other providers' DIDs as well as the own ledger's; without homes there are none. */
export type HomesOf = { readonly homes?: Homes };

/**
 * A route that also reads another Directory, which `?home=` names. A text that is not a home
 * is 400, never an absence.
 */
export function readsHome(route: Route): Route {
  return {
    ...route,
    query: [...(route.query ?? []), "home"],
    codes: [...new Set([...(route.codes ?? []), "invalid_request" as const])],
    handle: (call) => checkHome(call) ?? route.handle(call),
  };
}

function checkHome({ query }: Call): Fault | null {
  const home = query.get("home");
  return home === null || parseHome(home) !== null
    ? null
    : fault("invalid_request", "home: must be the host name of a Directory");
}

/** A DID that the own ledger does not have. */
export async function foreignDid({ homes }: HomesOf, did: Did, { query, headers, network }: Call) {
  // Questions end at the Directory that another one asks.
  const isAsked = homes !== undefined && !headers.has(hopsHeader);
  const found = isAsked ? await homes.find(did, { home: query.get("home"), network }) : "unknown";
  return foundOr(found, fault("did_not_found", "the DID is not registered"));
}

/**
 * The home that a request names, if it is another's, and the request comes from no other Directory.
 */
function homeNamed(homes: Homes | undefined, { query, headers, network }: Call) {
  const home = query.get("home");
  const isAsked =
    homes !== undefined && home !== null && !headers.has(hopsHeader) && !homes.isOwn(home);
  return isAsked ? { homes, home, network } : null;
}

function foundOr<T>(found: T | Absence, unknown: Fault): Exclude<T, Absence> | Fault {
  if (found === "unknown") return unknown;
  if (found === "silent")
    return fault("service_unavailable", "that home can't be asked at the moment");
  return found as Exclude<T, Absence>;
}

/** The holder of an alias at the home that the request names; `null` when it names none. */
export async function foreignAlias({ homes }: HomesOf, call: Call): Promise<Did | null | Fault> {
  const asked = homeNamed(homes, call);
  if (asked === null) return null;
  const alias = normalizeAlias(call.params["alias"] ?? "");
  const found = alias === null ? "unknown" : await asked.homes.findAlias(alias, asked);
  return foundOr(found, fault("alias_not_found", "no DID has this alias there"));
}

/** What the log of another home says of a key; `null` for a key of the own log. */
export async function foreignEntry(
  homes: Homes | undefined,
  call: Call,
  from: number,
): Promise<Answer | Fault | null> {
  const asked = homeNamed(homes, call);
  if (asked === null) return null;
  const found = await asked.homes.entry(call.params["key"] ?? "", from, asked);
  const content = foundOr(found, fault("not_found", "that home shows no log"));
  return isFault(content)
    ? content
    : { status: 200, body: { contentType: "application/octet-stream", content } };
}
