/**
 * Intents in requests: parsed from the members of a body and rendered into them, and the route that accepts each. Apart
 * from the table of actions, which readers of key proofs need and load without this.
 * Source: interface "Signed DID-document updates", docs/ledger.md 1.4, rules section 4.
 */
import { parsePublicKey, renderPublicKey } from "../codec/bytes.ts";
import { type Did, normalizeAlias, parseDidUrl } from "../codec/did.ts";
import { badInput, type Fault, isFault, jsonPointer } from "../fault.ts";
import { renderService, type VerificationMethod } from "./account.ts";
import {
  type ActionName,
  actionRows,
  actions,
  type Intent,
  type ItemName,
  type Items,
  itemsOf,
  type Route,
} from "./actions.ts";
import { normalizeMethod, normalizeService } from "./document.ts";

// ---------------------------------------------------------------------------------------------------- items in a body

/** The form of an item in a body. */
type ItemForm<T> = {
  readonly member: string;
  /** Parses JSON that has the item's shape (`core/schema`). Refuses with `invalid_request` and the pointer. */
  readonly parse: (json: never, did: Did, pointer: string) => T | Fault;
  readonly render: (value: T) => unknown;
  /** What a path that leads to the item must name, and its place in the item. */
  readonly subject?: { readonly of: (value: T) => string; readonly at: string };
};

const itself = { of: (text: string) => text, at: "" };
const itsId = { of: (component: { readonly id: string }) => component.id, at: "/id" };

const method = { parse: normalizeMethod, render: (value: VerificationMethod) => value, subject: itsId } as const;

/** An alias from a body, in normal form. Refuses with `invalid_request`. */
export function parseAlias(text: string, pointer: string): string | Fault {
  const rule = "an alias has 1 to 64 of a to z, 0 to 9, dot, hyphen and underscore";
  return normalizeAlias(text) ?? badInput("invalid_request", pointer, rule);
}

const aliasText = {
  parse: (json: string, _did: Did, pointer: string) => parseAlias(json, pointer),
  render: (value: string) => value,
  subject: itself,
} as const;

export const itemForms = {
  verificationMethod: { member: "verification_method", ...method },
  keyAgreement: { member: "key_agreement", ...method },
  service: { member: "service", parse: normalizeService, render: renderService, subject: itsId },
  id: {
    member: "id",
    parse: (json: string, did: Did, pointer: string) =>
      parseDidUrl(json, did) ?? badInput("invalid_request", pointer, "must be an id of this DID"),
    render: (value: string) => value,
    subject: itself,
  },
  alias: { member: "alias", ...aliasText },
  oldAlias: { member: "old_alias", ...aliasText },
  newAlias: { member: "new_alias", ...aliasText },
  newRootPubkey: {
    member: "new_root_pubkey",
    parse: (json: string, _did: Did, pointer: string) =>
      parsePublicKey(json) ?? badInput("invalid_request", pointer, "must be a public key"),
    render: renderPublicKey,
  },
} as const satisfies { readonly [I in ItemName]: ItemForm<Items[I]> };

type AnyForm = Omit<ItemForm<never>, "parse">;
const formOf = (item: string): AnyForm => itemForms[item as ItemName];

// ---------------------------------------------------------------------------------------------------------- intents

/** The intent in the members of a body, which already has the shape of the action. Refuses with `invalid_request`. */
export function parseIntent(action: ActionName, body: Readonly<Record<string, unknown>>, did: Did): Intent | Fault {
  const intent: Record<string, unknown> = { action, did };
  for (const name of actions[action].items) {
    const { member, parse } = itemForms[name];
    const value = parse(body[member] as never, did, jsonPointer(member));
    if (isFault(value)) return value;
    intent[name] = value;
  }
  return intent as Intent;
}

/** The members of a body that name the change. */
export function renderItems(intent: Intent): Record<string, unknown> {
  const members: Record<string, unknown> = {};
  for (const [name, value] of Object.entries(itemsOf(intent))) {
    const { member, render } = formOf(name);
    members[member] = render(value as never);
  }
  return members;
}

/** The component or alias that an intent is about, and where the body names it; `null` when it is about the DID. */
export function subjectOf(intent: Intent): { readonly value: string; readonly pointer: string } | null {
  const [first] = Object.entries(itemsOf(intent));
  if (first === undefined) return null;
  const [{ member, subject }, value] = [formOf(first[0]), first[1] as never];
  return subject === undefined ? null : { value: subject.of(value), pointer: `${jsonPointer(member)}${subject.at}` };
}

/** The name of the path value that holds the subject, or `null`. */
export function subjectParameter(path: string): string | null {
  return path.match(/:[A-Za-z]+/g)?.[1]?.slice(1) ?? null;
}

/** A path template with its values, percent-encoded. */
export function fillPath(template: string, values: Readonly<Record<string, string>>): string {
  return template.replace(/:([A-Za-z]+)/g, (_, name: string) => encodeURIComponent(values[name] ?? ""));
}

/** Where an intent is submitted. */
export function requestOf(intent: Intent): { readonly method: Route["method"]; readonly path: string } {
  const { route } = actionRows[intent.action];
  const parameter = subjectParameter(route.path);
  const subject = parameter === null ? {} : { [parameter]: subjectOf(intent)?.value ?? "" };
  return { method: route.method, path: fillPath(route.path, { did: intent.did, ...subject }) };
}
