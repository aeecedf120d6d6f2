/**
 * The bytes that keys sign to change an identity: the payload of an action (a SCALE structure per counter), and what
 * registers a DID or replaces its whole document, in version 1 (a time), version 2 (`v2:<nonce>:<expiry ms>`, which
 * binds the document and works once) and version 3 (`v3:…`, which binds the ledger and who submits it as well).
 * Payloads are rebuilt from the request and compared as bytes, by the Directory and by the ledger alike: a payload that
 * says anything else than the request is no authorization of it.
 * Source: interface "Signed DID-document updates", rules sections 4 ("Registration proof", "Full document") and 10,
 * docs/ledger.md 1.4, 1.5 and 1.8.
 */
import { blake2b256 } from "#blake2";
import { concatBytes, equalBytes, utf8 } from "../codec/bytes.ts";
import { aliasBytesMax, normalizeAlias } from "../codec/did.ts";
import { decodeWith, encodeWith } from "../codec/scale.ts";
import { hourMs, minuteMs, parseTimestamp } from "../codec/time.ts";
import { parseU64 } from "../codec/u64.ts";
import { jsonPointer } from "../std/json-pointer.ts";
import type { AccountId, CounterName } from "./account.ts";
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
  registrationBindingCodec,
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

/** A proof of version 2 or 3 expires at most this long after it is used. */
export const proofLifeMsMax = hourMs;
/** A version 1 proof is dated at most this far ahead of the ledger's clock. */
export const proofAheadMsMax = 5 * minuteMs;

export type ProofVersion = "v1" | "v2" | "v3";

export type ProofTimestamp =
  | { readonly version: "v1"; readonly timestampMs: number }
  | { readonly version: "v2" | "v3"; readonly nonce: bigint; readonly expiryMs: bigint };

/** Reads the `timestamp` of a registration or full-document proof; `null` when it is of no version. */
export function parseProofTimestamp(text: string): ProofTimestamp | null {
  if (text.length > 64) return null;
  const version = text.slice(0, 2);
  if ((version !== "v2" && version !== "v3") || text[2] !== ":") {
    const timestampMs = parseTimestamp(text);
    return timestampMs === null ? null : { version: "v1", timestampMs };
  }
  const parts = text.split(":");
  if (parts.length !== 3) return null;
  const [nonce, expiryMs] = [parseU64(parts[1] as string), parseU64(parts[2] as string)];
  return nonce === null || expiryMs === null ? null : { version, nonce, expiryMs };
}

/** The `timestamp` of a proof that has a counter value and an end. */
export function renderProofTimestamp(nonce: bigint, expiryMs: bigint, version: "v2" | "v3" = "v2"): string {
  return `${version}:${nonce}:${expiryMs}`;
}

/** What version 3 binds: the ledger, and the account that submits a registration (no ledger of ours takes none). */
export type ProofBinding = { readonly genesisHash: Uint8Array; readonly submitter: AccountId | null };

type RegistrationProof = {
  readonly did: string;
  /** As sent: its normal form is covered, but not by version 1. */
  readonly alias: string | null;
  readonly timestamp: string;
  readonly pubkey: Uint8Array;
  readonly docBlob: Uint8Array;
};

/**
 * The bytes that a registration signs; version 3 needs a `binding`. `null` when nothing can have been signed: the
 * timestamp is of no version, the nonce of a later one is not 0, or its alias has no normal form.
 */
export function registrationMessage(
  proof: RegistrationProof,
  binding: ProofBinding | null = null,
  aliasBytes: number = aliasBytesMax,
): Uint8Array | null {
  const { did, timestamp, pubkey, docBlob } = proof;
  const parsed = parseProofTimestamp(timestamp);
  if (parsed === null) return null;
  if (parsed.version === "v1") return utf8(`${did}|${timestamp}`);
  const alias = proof.alias === null ? null : normalizeAlias(proof.alias, aliasBytes);
  if (parsed.nonce !== 0n || (alias === null && proof.alias !== null)) return null;
  const { nonce, expiryMs } = parsed;
  const tail = encodeWith(registrationTailCodec, {
    did,
    alias,
    rootPubkey: pubkey,
    documentHash: blake2b256(docBlob),
    nonce,
    expiryMs,
  });
  if (parsed.version === "v2") return concatBytes(utf8("svc:register:v2|"), tail);
  if (binding === null) return null;
  return concatBytes(utf8("svc:register:v3|"), tail, encodeWith(registrationBindingCodec, binding));
}

type DocumentProof = { readonly did: string; readonly timestamp: string; readonly docBlob: Uint8Array };

/** The bytes that a full document signs; version 3 needs the `genesisHash`. `null` as for registrations. */
export function documentMessage(proof: DocumentProof, genesisHash: Uint8Array | null = null): Uint8Array | null {
  const { did, timestamp, docBlob } = proof;
  const parsed = parseProofTimestamp(timestamp);
  if (parsed === null) return null;
  const documentHash = blake2b256(docBlob);
  if (parsed.version === "v1") {
    return concatBytes(utf8(`svc:set_document:v1|${did}|`), documentHash, utf8(`|${timestamp}`));
  }
  const { nonce, expiryMs } = parsed;
  const tail = encodeWith(setDocumentTailCodec, { did, documentHash, nonce, expiryMs });
  if (parsed.version === "v2") return concatBytes(utf8("svc:set_document:v2|"), tail);
  return genesisHash === null ? null : concatBytes(utf8("svc:set_document:v3|"), tail, genesisHash);
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
