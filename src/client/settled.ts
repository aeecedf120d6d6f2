/**
 * Whether a resolved record shows a change: what `confirm.ts` waits for besides the counter.
 * Source: docs/ledger.md 3.1 ("Confirmation after 202").
 */
import { equalBytes } from "../core/codec/bytes.ts";
import { parsePublicKey } from "../core/codec/public-key.ts";
import { actionRows } from "../core/ledger/actions.ts";
import { type Intent, renderItems } from "../core/ledger/intents.ts";
import type { Resolved } from "./answers.ts";

export function recordShows(intent: Intent, record: Resolved): boolean {
  const { change } = actionRows[intent.action];
  if (change !== undefined) {
    const list = change.list === "aliases" ? record.aliases : (record.document?.[change.list] ?? null);
    // What an action puts is its last item: a new alias comes behind the old one.
    const item = Object.values(renderItems(intent)).at(-1);
    return change.effect === "put" ? holds(list ?? [], item) : list !== null && !names(list, String(item));
  }
  if (intent.action === "UpdateRootPubkey") {
    const key = parsePublicKey(record.root_pubkey ?? "");
    return key !== null && equalBytes(key, intent.newRootPubkey);
  }
  return intent.action !== "deactivate_did" || record.deactivated;
}

type Entry = string | { readonly id: string };

function names(list: readonly Entry[], id: string): boolean {
  return list.some((entry) => (typeof entry === "string" ? entry : entry.id) === id);
}

/** The list has an entry with the same members, in whatever order. */
function holds(list: readonly Entry[], wanted: unknown): boolean {
  return list.some((entry) => sorted(entry) === sorted(wanted));
}

function sorted(value: unknown): string {
  if (typeof value !== "object" || value === null) return JSON.stringify(value);
  return JSON.stringify(Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1)));
}
