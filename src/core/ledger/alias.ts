/**
 * The rules of aliases: one global index in which an alias names one DID, and a bounded list in each record.
 * Everything here works on aliases in normal form.
 * Source: docs/ledger.md 2.2, decisions section 10 ("Operation refusals").
 */

import { type Did, normalizeAlias } from "../codec/did.ts";
import type { DidRecord } from "./account.ts";
import type { Change, LedgerEvent, LedgerInput } from "./change.ts";
import type { Intent } from "./intent.ts";
import { type LedgerRefusal, refuse } from "./refusal.ts";

export type AliasIntent = Extract<Intent, { readonly action: "add_alias" | "update_alias" | "remove_alias" }>;

export function changeAlias(input: LedgerInput, intent: AliasIntent, record: DidRecord): Change | LedgerRefusal {
  if ("oldAlias" in intent) return updateAlias(input, intent, record);
  return intent.action === "add_alias" ? addAlias(input, intent, record) : removeAlias(intent, record);
}

type AliasIntentOf<A> = Extract<AliasIntent, { readonly action: A }>;

function addAlias(
  input: LedgerInput,
  intent: AliasIntentOf<"add_alias" | "remove_alias">,
  record: DidRecord,
): Change | LedgerRefusal {
  const { did, alias } = intent;
  const held = checkFree(input, alias, did);
  if (held !== null) return held;
  if (record.aliases.length >= input.bounds.aliases) return refuse("TooManyAliases");
  return {
    record: { aliases: [...record.aliases, alias] },
    aliases: { set: [alias], removed: [] },
    events: [{ name: "AliasAdded", did, alias }],
  };
}

/** The new alias takes the place of the old one in the list. */
function updateAlias(
  input: LedgerInput,
  intent: AliasIntentOf<"update_alias">,
  record: DidRecord,
): Change | LedgerRefusal {
  const { did, oldAlias, newAlias } = intent;
  if (oldAlias === newAlias) return refuse("AliasAlreadyExists");
  const held = checkFree(input, newAlias, did);
  if (held !== null) return held;
  if (!record.aliases.includes(oldAlias)) return refuse("AliasNotFound");
  return {
    record: { aliases: record.aliases.map((alias) => (alias === oldAlias ? newAlias : alias)) },
    aliases: { set: [newAlias], removed: [oldAlias] },
    events: [{ name: "AliasUpdated", did, oldAlias, newAlias }],
  };
}

function removeAlias(intent: AliasIntentOf<"add_alias" | "remove_alias">, record: DidRecord): Change | LedgerRefusal {
  const { did, alias } = intent;
  if (!record.aliases.includes(alias)) return refuse("AliasNotFound");
  return {
    record: { aliases: record.aliases.filter((held) => held !== alias) },
    aliases: { set: [], removed: [alias] },
    events: [{ name: "AliasRemoved", did, alias }],
  };
}

/** The primary alias: it replaces the whole list, and every other alias of the DID becomes free. */
export function setPrimaryAlias(
  input: LedgerInput,
  given: { readonly did: Did; readonly alias: string },
  record: DidRecord,
): Change | LedgerRefusal {
  const { did, alias } = given;
  const holder = input.aliasHolder(alias);
  if (holder !== null && holder !== did) return refuse("AliasTaken");
  return {
    record: { aliases: [alias] },
    aliases: { set: [alias], removed: record.aliases.filter((held) => held !== alias) },
    events: [{ name: "AliasSet", did, alias }],
  };
}

function checkFree(input: LedgerInput, alias: string, did: Did): LedgerRefusal | null {
  const holder = input.aliasHolder(alias);
  if (holder === null) return null;
  return refuse(holder === did ? "AliasAlreadyExists" : "AliasTaken");
}

/** The alias of a registration is soft: one that can't be given is left out and reported as an event. */
export function registrationAlias(
  input: LedgerInput,
  text: string | null,
): { readonly aliases: readonly string[]; readonly events: readonly LedgerEvent[] } {
  const { did } = input.call;
  if (text === null) return { aliases: [], events: [] };
  const alias = normalizeAlias(text, input.bounds.aliasBytes);
  if (alias === null) return { aliases: [], events: [{ name: "AliasInvalid", did }] };
  if (input.aliasHolder(alias) !== null) return { aliases: [], events: [{ name: "AliasConflict", did, alias }] };
  return { aliases: [alias], events: [{ name: "AliasSet", did, alias }] };
}
