/**
 * Intents in requests: parsed from the members of a body and rendered into them, and the
 * route that accepts each. Apart from the table of actions, which readers of key proofs
 * need and load without this.
 * Source: interface "Signed DID-document updates", docs/ledger.md 1.4, rules section 4.
 */
import { parsePublicKey, renderPublicKey } from "../codec/bytes.ts";
import { type Did, normalizeAlias } from "../codec/did.ts";
import { badInput, type Fault, isFault } from "../fault.ts";
import { renderService } from "./account.ts";
import {
  type ActionItem,
  type ActionName,
  actionRows,
  actions,
  type Intent,
  type Items,
  itemsOf,
} from "./actions.ts";
import { normalizeId, normalizeMethod, normalizeService } from "./document.ts";

// --------------------------------------------------------------------------------- items in a body

/** The member of a body that holds an item: `old_alias`. */
export function memberOf(item: ActionItem): string {
  return item.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
}

/** An alias from a body, in normal form. Refuses with `invalid_request`. */
export function parseAlias(text: string, pointer: string): string | Fault {
  const rule = "an alias has 1 to 64 of a to z, 0 to 9, dot, hyphen and underscore";
  return normalizeAlias(text) ?? badInput("invalid_request", pointer, rule);
}

type ParseItem<T> = (json: never, did: Did, pointer: string) => T | Fault;

const alias = (json: string, _did: Did, pointer: string) => parseAlias(json, pointer);

/**
 * Parse JSON that has the item's shape (`core/schema`). They refuse with `invalid_request`
 * and the pointer.
 */
const parsers: { readonly [I in ActionItem]: ParseItem<Items[I]> } = {
  verificationMethod: normalizeMethod,
  keyAgreement: normalizeMethod,
  service: normalizeService,
  id: normalizeId,
  alias,
  oldAlias: alias,
  newAlias: alias,
  newRootPubkey: (json: string, _did: Did, pointer: string) =>
    parsePublicKey(json) ?? badInput("invalid_request", pointer, "must be a public key"),
};

function renderItem(value: Items[ActionItem]): unknown {
  if (value instanceof Uint8Array) return renderPublicKey(value);
  return typeof value === "object" && "serviceEndpoint" in value ? renderService(value) : value;
}

// ----------------------------------------------------------------------------------------- intents

/**
 * The intent in the members of a body, which already has the shape of the action. Refuses
 * with `invalid_request`.
 */
export function parseIntent(
  action: ActionName,
  body: Readonly<Record<string, unknown>>,
  did: Did,
): Intent | Fault {
  const intent: Record<string, unknown> = { action, did };
  for (const name of actions[action].items) {
    const member = memberOf(name);
    const value = parsers[name](body[member] as never, did, `/${member}`);
    if (isFault(value)) return value;
    intent[name] = value;
  }
  return intent as Intent;
}

const entriesOf = (intent: Intent) =>
  Object.entries(itemsOf(intent)) as [ActionItem, Items[ActionItem]][];

/** The members of a body that name the change. */
export function renderItems(intent: Intent): Record<string, unknown> {
  return Object.fromEntries(
    entriesOf(intent).map(([name, value]) => [memberOf(name), renderItem(value)]),
  );
}

/**
 * The component or alias that an intent is about, and where the body names it; `null` when
 * it is about the DID.
 */
export function subjectOf(
  intent: Intent,
): { readonly value: string; readonly pointer: string } | null {
  const [[name, value] = ["id", null] as const] = entriesOf(intent);
  if (value === null || value instanceof Uint8Array) return null;
  const pointer = `/${memberOf(name)}`;
  return typeof value === "string"
    ? { value, pointer }
    : { value: value.id, pointer: `${pointer}/id` };
}

/** The name of the path value that holds the subject, or `null`. */
export function subjectParameter(path: string): string | null {
  return path.match(/:[A-Za-z]+/g)?.[1]?.slice(1) ?? null;
}

/** A path template with its values in order, percent-encoded. */
export function fillPath(template: string, ...values: readonly string[]): string {
  const rest = [...values];
  return template.replace(/:[A-Za-z]+/g, () => encodeURIComponent(rest.shift() ?? ""));
}

/** Where an intent is submitted. */
export function requestOf(intent: Intent) {
  const { method, path } = actionRows[intent.action].route;
  return { method, path: fillPath(path, intent.did, subjectOf(intent)?.value ?? "") };
}
