/**
 * Identifiers: DIDs, DID URLs of components, UUIDs, aliases. Parsing answers the one normal form or a
 * Fault; a branded string has been parsed.
 * Source: decisions section 1, docs/ledger.md 2.1 and 2.2.
 */
import { utf8 } from "./bytes.ts";
import { type Fault, fault } from "./fault.ts";

export type Did = string & { readonly __brand: "Did" };
/** `<did>#<fragment>`, absolute. */
export type DidUrl = string & { readonly __brand: "DidUrl" };
/** Lower-case 8-4-4-4-12 form. */
export type Uuid = string & { readonly __brand: "Uuid" };
/** Normal form: trimmed, lower case. */
export type Alias = string & { readonly __brand: "Alias" };

export const didBytesMax = 128;
/** Upper bound of component ids in the embedded ledger and the reference runtime. */
export const didUrlBytesMax = 192;
export const aliasBytesMax = 64;

const didForm = /^did:svc:[1-9A-HJ-NP-Za-km-z]{16,96}$/;
const uuidForm = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i;
const nilUuid = "00000000-0000-0000-0000-000000000000";
const aliasForm = /^[a-z0-9_.-]+$/;

export function isDid(text: string): text is Did {
  return text.length <= didBytesMax && didForm.test(text);
}

/** Refuses with `invalid_did`. */
export function parseDid(text: string): Did | Fault {
  return isDid(text) ? text : fault("invalid_did", "a DID is did:svc: and 16 to 96 base58btc characters");
}

/** The lower-case form of a UUID of any version, or `null`; the nil UUID is none. */
export function parseUuid(text: string): Uuid | null {
  if (text.length !== 36 || !uuidForm.test(text)) return null;
  const lower = text.toLowerCase();
  return lower === nilUuid ? null : (lower as Uuid);
}

/**
 * The absolute form of a component id: `#key` is expanded against `did`, an absolute id must belong to
 * it. `null` when the fragment is empty, holds characters outside RFC 3986 fragments, or is too long.
 */
export function parseDidUrl(text: string, did: Did): DidUrl | null {
  const absolute = text.startsWith("#") ? `${did}${text}` : text;
  if (!absolute.startsWith(`${did}#`)) return null;
  const fragment = absolute.slice(did.length + 1);
  if (!/^[A-Za-z0-9\-._~!$&'()*+,;=:@/?%]+$/.test(fragment)) return null;
  return absolute.length <= didUrlBytesMax ? (absolute as DidUrl) : null;
}

/** The DID in front of the fragment of an absolute DID URL, or `null`. */
export function didOfUrl(url: string): Did | null {
  const hash = url.indexOf("#");
  const did = hash < 0 ? url : url.slice(0, hash);
  return isDid(did) ? did : null;
}

/** Trims ASCII white space and lowers ASCII case; `null` when the result breaks the alias grammar. */
export function normalizeAlias(text: string): Alias | null {
  if (text.length > 4 * aliasBytesMax) return null;
  const alias = text.replace(/^[\t\n\f\r ]+|[\t\n\f\r ]+$/g, "").replace(/[A-Z]/g, (c) => c.toLowerCase());
  return aliasForm.test(alias) && utf8(alias).length <= aliasBytesMax ? (alias as Alias) : null;
}
