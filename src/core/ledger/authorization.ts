/**
 * The bytes that keys sign to change an identity: the payload of an action (a SCALE structure per counter), and what
 * registers a DID or replaces its whole document, in version 1 (a time) and version 2 (`v2:<nonce>:<expiry ms>`, which
 * binds the document and works once). Payloads are rebuilt from the request and compared as bytes, by the Directory and
 * by the ledger alike: a payload that says anything else than the request is no authorization of it.
 * Source: interface "Signed DID-document updates", rules sections 4 ("Registration proof", "Full document") and 10,
 * docs/ledger.md 1.4, 1.5 and 1.8.
 */
import { blake2b256 } from "#blake2";
import { concatBytes, equalBytes, utf8 } from "../codec/bytes.ts";
import { aliasBytesMax, normalizeAlias } from "../codec/did.ts";
import { decodeWith, encodeWith } from "../codec/scale.ts";
import { hourMs, parseTimestamp } from "../codec/time.ts";
import { parseU64 } from "../codec/u64.ts";
import { jsonPointer } from "../std/json-pointer.ts";
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
  registrationTailCodec,
  rootPubkeyPayloadCodec,
  setDocumentTailCodec,
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

/** What a payload says. A payload may name any action of its structure with any of its items: compare it as bytes. */
export type Payload = Terms & {
  readonly did: string;
  readonly action: ActionName;
  readonly items: { readonly [I in keyof Items]?: Items[I] | null };
};

/** What the bytes say, or `null` when they are no payload of that counter's structure. */
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
 * The JSON pointer to the first member of a request, in the order of the payload, that says something else than the
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

// -------------------------------------------------------------------------------------------- full documents

/** A version 2 proof expires at most this long after it is used. */
export const proofLifeMsMax = hourMs;

export type ProofTimestamp =
  | { readonly version: 1; readonly timestampMs: number }
  | { readonly version: 2; readonly nonce: bigint; readonly expiryMs: bigint };

/** Reads the `timestamp` of a registration or full-document proof; `null` when it is of neither version. */
export function parseProofTimestamp(text: string): ProofTimestamp | null {
  if (text.length > 64) return null;
  if (!text.startsWith("v2:")) {
    const timestampMs = parseTimestamp(text);
    return timestampMs === null ? null : { version: 1, timestampMs };
  }
  const parts = text.split(":");
  if (parts.length !== 3) return null;
  const [nonce, expiryMs] = [parseU64(parts[1] as string), parseU64(parts[2] as string)];
  return nonce === null || expiryMs === null ? null : { version: 2, nonce, expiryMs };
}

/** The `timestamp` of a version 2 proof. */
export function renderProofTimestamp(nonce: bigint, expiryMs: bigint): string {
  return `v2:${nonce}:${expiryMs}`;
}

type RegistrationProof = {
  readonly did: string;
  /** As sent: version 2 covers its normal form, version 1 does not cover it. */
  readonly alias: string | null;
  readonly timestamp: string;
  readonly pubkey: Uint8Array;
  readonly docBlob: Uint8Array;
};

/**
 * The bytes that a registration signs. `null` when nothing can have been signed: the timestamp is of
 * neither version, a version 2 nonce is not 0, or its alias has no normal form.
 */
export function registrationMessage(proof: RegistrationProof, aliasBytes: number = aliasBytesMax): Uint8Array | null {
  const { did, timestamp, pubkey, docBlob } = proof;
  const parsed = parseProofTimestamp(timestamp);
  if (parsed === null) return null;
  if (parsed.version === 1) return utf8(`${did}|${timestamp}`);
  const alias = proof.alias === null ? null : normalizeAlias(proof.alias, aliasBytes);
  if (parsed.nonce !== 0n || (alias === null && proof.alias !== null)) return null;
  const { nonce, expiryMs } = parsed;
  const tail = { did, alias, rootPubkey: pubkey, documentHash: blake2b256(docBlob), nonce, expiryMs };
  return concatBytes(utf8("svc:register:v2|"), encodeWith(registrationTailCodec, tail));
}

type DocumentProof = { readonly did: string; readonly timestamp: string; readonly docBlob: Uint8Array };

/** The bytes that a full document signs, or `null` when the timestamp is of neither version. */
export function documentMessage(proof: DocumentProof): Uint8Array | null {
  const { did, timestamp, docBlob } = proof;
  const parsed = parseProofTimestamp(timestamp);
  if (parsed === null) return null;
  const documentHash = blake2b256(docBlob);
  if (parsed.version === 1) {
    return concatBytes(utf8(`svc:set_document:v1|${did}|`), documentHash, utf8(`|${timestamp}`));
  }
  const { nonce, expiryMs } = parsed;
  return concatBytes(
    utf8("svc:set_document:v2|"),
    encodeWith(setDocumentTailCodec, { did, documentHash, nonce, expiryMs }),
  );
}
