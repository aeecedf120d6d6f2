/**
 * Identifiers: DIDs, DID URLs of components, UUIDs, aliases. Parsing returns the one normal
 * form or a Fault; a branded string has been parsed.
 * Source: rules section 1, docs/ledger.md 2.1 and 2.2.
 */
import { type Fault, fault } from "../fault.ts";

export type Did = string & { readonly __brand: "Did" };
/** Lower-case 8-4-4-4-12 form. */
export type Uuid = string & { readonly __brand: "Uuid" };

/**
 * Names the mailbox of one life of a DID: the DID itself, or `<did>~<life>` after it was
 * deleted `life` times.
 */
export type MailboxKey = string & { readonly __brand: "MailboxKey" };

export const didBytesMax = 128;
/** Upper bound of component ids in the embedded ledger and the reference runtime. */
const didUrlBytesMax = 192;
export const aliasBytesMax = 64;

export const didForm = /^did:svc:[1-9A-HJ-NP-Za-km-z]{16,96}$/;
const uuidForm = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i;
const nilUuid = "00000000-0000-0000-0000-000000000000";
const aliasForm = /^[a-z0-9_.-]+$/;

export function isDid(text: string): text is Did {
  return text.length <= didBytesMax && didForm.test(text);
}

/** A message belongs to the life of the DID for which it was admitted; `life` counts deletions. */
export function mailboxOf(did: Did, life: number): MailboxKey {
  return (life === 0 ? did : `${did}~${life}`) as MailboxKey;
}

/** The DID whose mailbox this is, in whichever life. */
export function didOf(mailbox: MailboxKey): Did {
  return mailbox.split("~")[0] as Did;
}

/** Refuses with `invalid_did`. */
export function parseDid(text: string): Did | Fault {
  return isDid(text)
    ? text
    : fault("invalid_did", "a DID must be did:svc: and 16 to 96 base58btc characters");
}

/** A UUID of any version in either case, but not the nil UUID. */
export function isUuid(text: string): boolean {
  return text.length === 36 && uuidForm.test(text) && text !== nilUuid;
}

/** The lower-case form of a UUID, or `null`. */
export function parseUuid(text: string): Uuid | null {
  return isUuid(text) ? (text.toLowerCase() as Uuid) : null;
}

/**
 * The absolute form of a component id (`#key` is expanded); `null` for another DID or a bad
 * or long fragment.
 */
export function parseDidUrl(text: string, did: Did): string | null {
  const absolute = text.startsWith("#") ? `${did}${text}` : text;
  if (!absolute.startsWith(`${did}#`)) return null;
  const fragment = absolute.slice(did.length + 1);
  if (!/^[A-Za-z0-9\-._~!$&'()*+,;=:@/?%]+$/.test(fragment)) return null;
  return absolute.length <= didUrlBytesMax ? absolute : null;
}

/** The DID in front of the fragment of an absolute DID URL, or `null`. */
export function didOfUrl(url: string): Did | null {
  const hash = url.indexOf("#");
  const did = hash < 0 ? url : url.slice(0, hash);
  return isDid(did) ? did : null;
}

const asciiSpaces = "\t\n\f\r ";

/**
 * ASCII white space at both ends. Its cost is linear for every input; that of a regular
 * expression would not be.
 */
export function trimAscii(text: string): string {
  let [start, end] = [0, text.length];
  while (start < end && asciiSpaces.includes(text.charAt(start))) start++;
  while (end > start && asciiSpaces.includes(text.charAt(end - 1))) end--;
  return text.slice(start, end);
}

/**
 * Trimmed and in lower case; `null` where that breaks the grammar. A ledger may have a
 * smaller bound than ours.
 */
export function normalizeAlias(text: string, bytesMax: number = aliasBytesMax): string | null {
  const trimmed = trimAscii(text);
  // Every character of the grammar is one byte, so the length counts bytes.
  if (trimmed.length > bytesMax) return null;
  const alias = trimmed.replace(/[A-Z]/g, (c) => c.toLowerCase());
  return aliasForm.test(alias) ? alias : null;
}
