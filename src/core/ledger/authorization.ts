/**
 * The bytes that keys sign to change an identity: the payload of an action, a SCALE structure per counter. What
 * registers a DID or replaces its whole document is in `document-codec.ts`. Payloads are rebuilt from the request and
 * compared as bytes, by the Directory and by the ledger alike: a payload that differs from the request is no
 * authorization of it.
 * Source: interface "Signed DID-document updates", rules sections 4 and 10, docs/ledger.md 1.4, 1.5 and 1.8.
 */
import { concatBytes, equalBytes, utf8 } from "../codec/bytes.ts";
import { decodeWith, encodeWith } from "../codec/scale.ts";
import { jsonPointer } from "../fault.ts";
import type { CounterName } from "./account.ts";
import {
  type ActionName,
  type AliasAction,
  actions,
  type ControlName,
  type DocumentAction,
  type ItemName,
  type Items,
} from "./actions.ts";
import { type Intent, itemMember, itemsOf, type Terms } from "./intents.ts";
import {
  aliasPayloadCodec,
  type ControlAction,
  controlPayloadCodec,
  documentPayloadCodec,
  rootPubkeyPayloadCodec,
} from "./structures.ts";

// ----------------------------------------------------------------------------------------------- payloads

const noItems = {
  document: { verificationMethod: null, keyAgreement: null, service: null, id: null },
  alias: { alias: null, oldAlias: null, newAlias: null },
} as const;

/** The exact bytes that authorize `intent` on these terms. */
export function encodeAuthorization(intent: Intent, terms: Terms): Uint8Array {
  const { did, action } = intent;
  const { nonce, validUntilMs, signerKeyId } = terms;
  const items = itemsOf(intent);
  const end = { nonce, validUntilMs, signerKeyId };
  switch (actions[action].counter) {
    case "document":
      return encodeWith(documentPayloadCodec, {
        did,
        action: action as DocumentAction,
        ...noItems.document,
        ...items,
        ...end,
      });
    case "alias":
      return encodeWith(aliasPayloadCodec, { did, action: action as AliasAction, ...noItems.alias, ...items, ...end });
    case "rootPubkey":
      return encodeWith(rootPubkeyPayloadCodec, { did, newRootPubkey: items.newRootPubkey as Uint8Array, ...end });
    case "control":
      return encodeWith(controlPayloadCodec, { did, action: { kind: action, ...items } as ControlAction, ...end });
  }
}

/** The content of a payload. It may name any action of its structure with any of its items: compare it as bytes. */
export type Payload = Terms & {
  readonly did: string;
  readonly action: ActionName;
  readonly items: { readonly [I in keyof Items]?: Items[I] | null };
};

/** The payload that the bytes encode, or `null` when they do not have that counter's structure. */
export function decodePayload(counter: CounterName, bytes: Uint8Array): Payload | null {
  switch (counter) {
    case "document": {
      const payload = decodeWith(documentPayloadCodec, bytes);
      if (payload === null) return null;
      const { verificationMethod, keyAgreement, service, id, ...rest } = payload;
      return { ...rest, items: { verificationMethod, keyAgreement, service, id } };
    }
    case "alias": {
      const payload = decodeWith(aliasPayloadCodec, bytes);
      if (payload === null) return null;
      const { alias, oldAlias, newAlias, ...rest } = payload;
      return { ...rest, items: { alias, oldAlias, newAlias } };
    }
    case "rootPubkey": {
      const payload = decodeWith(rootPubkeyPayloadCodec, bytes);
      if (payload === null) return null;
      const { newRootPubkey, ...rest } = payload;
      return { ...rest, action: "UpdateRootPubkey", items: { newRootPubkey } };
    }
    case "control": {
      const payload = decodeWith(controlPayloadCodec, bytes);
      if (payload === null) return null;
      const { kind, ...items } = payload.action;
      return { ...payload, action: kind as ControlName, items };
    }
  }
}

/**
 * The JSON pointer to the first member of a request, in the order of the payload, that differs from the
 * payload does.
 */
export function firstDifference(payload: Payload, intent: Intent, terms: Terms): string {
  if (payload.did !== intent.did) return "/did";
  if (payload.action !== intent.action) return "/action";
  const asked = itemsOf(intent);
  for (const [name, value] of Object.entries(payload.items) as [ItemName, unknown][]) {
    const at = itemDifference(value, asked[name] ?? null);
    if (at !== null) return `${jsonPointer(itemMember(name))}${at}`;
  }
  if (payload.nonce !== terms.nonce) return "/nonce";
  if (payload.validUntilMs !== terms.validUntilMs) return "/valid_until";
  return payload.signerKeyId === terms.signerKeyId ? "/canonical_payload" : "/signer_key_id";
}

/** Where two values of an item differ, or `null`. Lists count as one value. */
function itemDifference(signed: unknown, asked: unknown): string | null {
  if (signed instanceof Uint8Array && asked instanceof Uint8Array) return equalBytes(signed, asked) ? null : "";
  if (!isComponent(signed) || !isComponent(asked)) return JSON.stringify(signed) === JSON.stringify(asked) ? null : "";
  const name = Object.keys(signed).find((key) => JSON.stringify(signed[key]) !== JSON.stringify(asked[key]));
  return name === undefined ? null : jsonPointer(name);
}

function isComponent(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !(value instanceof Uint8Array);
}

// -------------------------------------------------------------------------------------------- authorizations

const authorizationDomains = {
  document: "document",
  rootPubkey: "root_pubkey",
  alias: "alias",
  control: "control",
} as const satisfies Record<CounterName, string>;

/** The bytes that version 3 signs for a payload: which structure it is, and which ledger it is for. */
export function authorizationMessage(counter: CounterName, genesisHash: Uint8Array, payload: Uint8Array): Uint8Array {
  return concatBytes(utf8(`svc:authorization:v3:${authorizationDomains[counter]}|`), genesisHash, payload);
}
