/**
 * Where a DID is at home: the Directory that its own signed document names, as a host. A
 * home is written `directory.example` and reached over HTTPS; only an address of this
 * machine, which development mode allows, is reached over HTTP.
 * Source: docs/trust.md "Between providers".
 */
import type { DidDocument } from "./account.ts";

const homeForm =
  /^(?:(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.){1,16}[a-z](?:[a-z0-9-]{0,61}[a-z0-9])?|localhost|127\.0\.0\.1|\[::1\])(?::[1-9]\d{1,4})?$/;
const homeCharsMax = 253;
const loopbackForm = /^(?:localhost|127\.0\.0\.1|\[::1\])(?::|$)/;

/**
 * A host by its name, with a port where it is not 443; `null` for any other text, addresses
 * included.
 */
export function parseHome(text: string): string | null {
  if (text.length > homeCharsMax) return null;
  const home = text.toLowerCase().replace(/:443$/, "");
  // A port above 65535, and punycode of nothing, have the form and are in no URL.
  if (!homeForm.test(home)) return null;
  const host = home.replace(/:\d+$/, "");
  return URL.parse(urlOfHome(home))?.hostname === host ? home : null;
}

/** Without a slash at the end; `http` for this machine only. */
export function urlOfHome(home: string): string {
  const scheme = loopbackForm.test(home) ? "http" : "https";
  return `${scheme}://${home}`;
}

/** The home that a URL without a path is the address of. */
export function homeOfUrl(url: string): string | null {
  const [, host = ""] = /^https?:\/\/([^/]+)\/?$/.exec(url) ?? [];
  const home = parseHome(host);
  if (home === null) return null;
  return url.startsWith(urlOfHome(home)) ? home : null;
}

export const homeServiceType = "SvcDirectoryService";

/** The homes that a document names, the first one first. */
export function homesOf(document: DidDocument | null): string[] {
  const services = (document?.service ?? []).filter(({ type }) => type === homeServiceType);
  return services
    .flatMap(({ serviceEndpoint }) => serviceEndpoint.map(homeOfUrl))
    .filter((home) => home !== null);
}

/**
 * A name or a DID, and the home that it is known at: `bob@directory.example`. Neither has
 * the sign in it.
 */
export function parsePlace(text: string): { readonly name: string; readonly home: string } | null {
  const at = text.lastIndexOf("@");
  const home = at < 1 ? null : parseHome(text.slice(at + 1));
  return home === null ? null : { name: text.slice(0, at), home };
}

/** Of the service by which an identity that has left its ledger names its new DID. */
export const movedType = "SvcMovedToService";
