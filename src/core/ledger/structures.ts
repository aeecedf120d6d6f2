/**
 * The payloads that keys sign to authorize an action, in SCALE. Field order here is the
 * order on the wire. What is decoded has kept every bound; decoding answers `null` for
 * anything else. Payloads are rebuilt from the request and compared as bytes, by the
 * Directory and by the ledger alike: a payload that differs from the request is not an
 * authorization of it.
 * Source: interface "Signed DID-document updates", docs/ledger.md 1.1 to 1.6, 1.8 and 1.9,
 * rules section 4.
 */
import { encodeHex0x } from "../codec/bytes.ts";
import {
  type Codec,
  decodeWith,
  encodeWith,
  enumeration,
  option,
  structure,
} from "../codec/scale.ts";
import { renderTimestamp } from "../codec/time.ts";
import { alias, type CounterName, did } from "./account.ts";
import {
  type ActionItem,
  type ActionName,
  actions,
  actionsOf,
  type Intent,
  type Items,
  itemsOf,
} from "./actions.ts";
import {
  documentPayloadCodec,
  rootPubkeyPayloadCodec,
  type Terms,
  termsCodecs,
} from "./document-codec.ts";
import { memberOf, renderItems } from "./intents.ts";

// -------------------------------------------------------------------------- authorization payloads

const aliasPayloadCodec = structure({
  did,
  action: enumeration(actionsOf("alias")),
  alias: option(alias),
  oldAlias: option(alias),
  newAlias: option(alias),
  ...termsCodecs,
});

/** A payload in the structure of its counter. */
export const payloadCodecs = {
  document: documentPayloadCodec,
  rootPubkey: rootPubkeyPayloadCodec,
  alias: aliasPayloadCodec,
  control: structure({ did, action: enumeration(actionsOf("control")), ...termsCodecs }),
};

// ---------------------------------------------------------------------------------------- payloads

/** The exact bytes that authorize `intent` on these terms. */
export function encodeAuthorization(intent: Intent, terms: Terms): Uint8Array {
  const { did, action } = intent;
  const codec = payloadCodecs[actions[action].counter] as Codec<object>;
  return encodeWith(codec, { ...terms, did, action, ...itemsOf(intent) });
}

/**
 * The body of a signed update without its signature, and the payload in it. Alias bodies
 * have a time of their own.
 */
export function renderUpdate(intent: Intent, terms: Terms, nowMs: number) {
  const { did, action } = intent;
  const payload = encodeAuthorization(intent, terms);
  const body = {
    did,
    action,
    ...renderItems(intent),
    ...(actions[action].counter === "alias" ? { timestamp: renderTimestamp(nowMs) } : {}),
    nonce: String(terms.nonce),
    valid_until: String(terms.validUntilMs),
    signer_key_id: terms.signerKeyId,
    canonical_payload: encodeHex0x(payload),
  };
  return { payload, body };
}

/**
 * The content of a payload. It may name any action of its structure with any of its items:
 * compare it as bytes.
 */
export type Payload = Terms & {
  readonly did: string;
  readonly action: ActionName;
  readonly items: { readonly [I in keyof Items]?: Items[I] | null };
};

/** The payload that the bytes encode, or `null` when they do not have that counter's structure. */
export function decodePayload(counter: CounterName, bytes: Uint8Array): Payload | null {
  const payload = decodeWith<AnyPayload>(payloadCodecs[counter] as Codec<AnyPayload>, bytes);
  if (payload === null) return null;
  const { did, nonce, validUntilMs, signerKeyId, action = "UpdateRootPubkey", ...items } = payload;
  return { did, nonce, validUntilMs, signerKeyId, action, items };
}

type AnyPayload = Terms & { readonly did: string; readonly action?: ActionName };

/**
 * The JSON pointer to the first member of a request, in the order of the payload, that
 * differs from the payload.
 */
export function firstDifference(payload: Payload, intent: Intent, terms: Terms): string {
  if (payload.did !== intent.did) return "/did";
  if (payload.action !== intent.action) return "/action";
  const asked = itemsOf(intent);
  for (const [name, value] of Object.entries(payload.items) as [ActionItem, unknown][])
    if (JSON.stringify(value) !== JSON.stringify(asked[name] ?? null)) return `/${memberOf(name)}`;
  if (payload.nonce !== terms.nonce) return "/nonce";
  if (payload.validUntilMs !== terms.validUntilMs) return "/valid_until";
  return payload.signerKeyId === terms.signerKeyId ? "/canonical_payload" : "/signer_key_id";
}
