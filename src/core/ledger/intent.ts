/**
 * From what a key is asked to authorize to the bytes it signs and the call that carries them, and back.
 * Payloads are rebuilt from the table in `authorization.ts` and compared as bytes, by the Directory and
 * by the ledger alike: a payload that says anything else than the request is no authorization of it.
 * Source: interface "Signed DID-document updates", docs/ledger.md 1.4, 1.5 and 1.8, decisions section 4.
 */

import { aliasBytesMax, type Did, normalizeAlias, trimAscii } from "../codec/did.ts";
import type { CounterName, DidRecord } from "./account.ts";
import { type AliasAction, type ControlAction, type DocumentAction, type Items, operations } from "./authorization.ts";
import { longerThan } from "./bounds.ts";
import type { LedgerCall, SignedPayload } from "./call.ts";
import { authorizedMethodKey } from "./document.ts";
import { type LedgerRefusal, refuse } from "./refusal.ts";
import {
  decodeAliasPayload,
  decodeControlPayload,
  decodeDocumentPayload,
  decodeRootPubkeyPayload,
  encodeAliasPayload,
  encodeControlPayload,
  encodeDocumentPayload,
  encodeRootPubkeyPayload,
} from "./structures.ts";

/** What a key is asked to authorize, without when and by whom. Aliases are in normal form. */
export type Intent = { readonly did: Did } & (
  | ({ readonly action: "AddVerificationMethod" | "UpdateVerificationMethod" } & Pick<Items, "verificationMethod">)
  | ({ readonly action: "AddKeyAgreement" | "UpdateKeyAgreement" } & Pick<Items, "keyAgreement">)
  | ({ readonly action: "AddService" | "UpdateService" } & Pick<Items, "service">)
  | ({
      readonly action:
        | "RemoveVerificationMethod"
        | "AddAuthentication"
        | "RemoveAuthentication"
        | "RemoveKeyAgreement"
        | "RemoveService";
    } & Pick<Items, "id">)
  | ({ readonly action: "add_alias" | "remove_alias" } & Pick<Items, "alias">)
  | ({ readonly action: "update_alias" } & Pick<Items, "oldAlias" | "newAlias">)
  | ({ readonly action: "UpdateRootPubkey" } & Pick<Items, "newRootPubkey">)
  | ({ readonly action: ControlAction["kind"] } & Pick<Items, "control">)
);

/** The rest of a payload: which counter value, until when (strictly before), signed by whom. */
export type Terms = { readonly nonce: bigint; readonly validUntilMs: bigint; readonly signerKeyId: string };

/** The exact bytes that authorize `intent` on these terms. */
export function encodeAuthorization(intent: Intent, terms: Terms): Uint8Array {
  const { counter, items } = operations[intent.action];
  const given: Partial<Items> = intent;
  const item = <K extends keyof Items>(name: K): Items[K] | null =>
    items.includes(name) ? (given[name] ?? null) : null;
  const { did } = intent;
  const { nonce, validUntilMs, signerKeyId } = terms;
  const end = { nonce, validUntilMs, signerKeyId };
  if (counter === "rootPubkey") {
    return encodeRootPubkeyPayload({ did, newRootPubkey: item("newRootPubkey") as Uint8Array, ...end });
  }
  if (counter === "control") return encodeControlPayload({ did, action: item("control") as ControlAction, ...end });
  if (counter === "alias") {
    return encodeAliasPayload({
      did,
      action: intent.action as AliasAction,
      alias: item("alias"),
      oldAlias: item("oldAlias"),
      newAlias: item("newAlias"),
      ...end,
    });
  }
  return encodeDocumentPayload({
    did,
    action: intent.action as DocumentAction,
    verificationMethod: item("verificationMethod"),
    keyAgreement: item("keyAgreement"),
    service: item("service"),
    id: item("id"),
    ...end,
  });
}

const payloadDecoders: {
  readonly [C in CounterName]: (bytes: Uint8Array) => (Terms & { readonly did: string }) | null;
} = {
  document: decodeDocumentPayload,
  alias: decodeAliasPayload,
  rootPubkey: decodeRootPubkeyPayload,
  control: decodeControlPayload,
};

/** The terms that a payload states, or `null` when the bytes are no payload of that counter's structure. */
export function decodeTerms(counter: CounterName, payload: Uint8Array): Terms | null {
  return payloadDecoders[counter](payload);
}

/** The runtime call that carries an authorization. */
export function callOfIntent(intent: Intent, signed: SignedPayload): LedgerCall {
  const { signedPayload, signature, signerKeyId } = signed;
  const proof = { did: intent.did, signedPayload, signature, signerKeyId };
  switch (intent.action) {
    case "AddVerificationMethod":
      return { name: "add_verification_method", method: intent.verificationMethod, ...proof };
    case "UpdateVerificationMethod":
      return { name: "update_verification_method", method: intent.verificationMethod, ...proof };
    case "RemoveVerificationMethod":
      return { name: "remove_verification_method", methodId: intent.id, ...proof };
    case "AddAuthentication":
      return { name: "add_authentication", methodId: intent.id, ...proof };
    case "RemoveAuthentication":
      return { name: "remove_authentication", methodId: intent.id, ...proof };
    case "AddKeyAgreement":
      return { name: "add_key_agreement", keyAgreement: intent.keyAgreement, ...proof };
    case "UpdateKeyAgreement":
      return { name: "update_key_agreement", keyAgreement: intent.keyAgreement, ...proof };
    case "RemoveKeyAgreement":
      return { name: "remove_key_agreement", keyAgreementId: intent.id, ...proof };
    case "AddService":
      return { name: "add_service", service: intent.service, ...proof };
    case "UpdateService":
      return { name: "update_service", service: intent.service, ...proof };
    case "RemoveService":
      return { name: "remove_service", serviceId: intent.id, ...proof };
    case "add_alias":
      return { name: "add_alias", alias: intent.alias, ...proof };
    case "remove_alias":
      return { name: "remove_alias", alias: intent.alias, ...proof };
    case "update_alias":
      return { name: "update_alias", oldAlias: intent.oldAlias, newAlias: intent.newAlias, ...proof };
    case "UpdateRootPubkey":
      return { name: "update_root_pubkey", newRootPubkey: intent.newRootPubkey, ...proof };
    default:
      return { name: "apply_control_with_proof", ...proof };
  }
}

/** The `signer_key_id` of the record's root key. */
export const rootSigner = "root";

/**
 * The key that `signerKeyId` stands for when it may sign for the DID: `root`, the record's root key, or a
 * method id in the document's `authentication`. `null` when it may not.
 */
export function authorizedKey(record: DidRecord, signerKeyId: string): Uint8Array | null {
  if (signerKeyId === rootSigner) return record.rootPubkey;
  return record.document === null ? null : authorizedMethodKey(record.document, signerKeyId);
}

/** A call that a DID key authorizes. */
export type ProofCall = Extract<LedgerCall, SignedPayload>;

/**
 * What a call asks for. An alias that has no normal form and a control payload that can't be read are
 * refused; whether the payload says the same is not looked at here.
 */
export function intentOfCall(call: ProofCall, aliasBytes: number = aliasBytesMax): Intent | LedgerRefusal {
  const { did } = call;
  switch (call.name) {
    case "add_verification_method":
      return { action: "AddVerificationMethod", did, verificationMethod: call.method };
    case "update_verification_method":
      return { action: "UpdateVerificationMethod", did, verificationMethod: call.method };
    case "remove_verification_method":
      return { action: "RemoveVerificationMethod", did, id: call.methodId };
    case "add_authentication":
      return { action: "AddAuthentication", did, id: call.methodId };
    case "remove_authentication":
      return { action: "RemoveAuthentication", did, id: call.methodId };
    case "add_key_agreement":
      return { action: "AddKeyAgreement", did, keyAgreement: call.keyAgreement };
    case "update_key_agreement":
      return { action: "UpdateKeyAgreement", did, keyAgreement: call.keyAgreement };
    case "remove_key_agreement":
      return { action: "RemoveKeyAgreement", did, id: call.keyAgreementId };
    case "add_service":
      return { action: "AddService", did, service: call.service };
    case "update_service":
      return { action: "UpdateService", did, service: call.service };
    case "remove_service":
      return { action: "RemoveService", did, id: call.serviceId };
    case "update_root_pubkey":
      return { action: "UpdateRootPubkey", did, newRootPubkey: call.newRootPubkey };
    case "apply_control_with_proof":
      return controlIntent(call);
    default:
      return aliasIntent(call, aliasBytes);
  }
}

function controlIntent(call: ProofCall): Intent | LedgerRefusal {
  const control = decodeControlPayload(call.signedPayload)?.action;
  return control === undefined ? refuse("InvalidControlPayload") : { action: control.kind, did: call.did, control };
}

type AliasCall = Extract<ProofCall, { readonly name: `${string}alias` }>;

function aliasIntent(call: AliasCall, bytesMax: number): Intent | LedgerRefusal {
  const { did } = call;
  if (call.name === "update_alias") {
    const [oldAlias, newAlias] = [ledgerAlias(call.oldAlias, bytesMax), ledgerAlias(call.newAlias, bytesMax)];
    if (typeof oldAlias !== "string") return oldAlias;
    return typeof newAlias === "string" ? { action: "update_alias", did, oldAlias, newAlias } : newAlias;
  }
  const alias = ledgerAlias(call.alias, bytesMax);
  return typeof alias === "string" ? { action: call.name, did, alias } : alias;
}

/** The normal form of an alias argument, or the ledger's name for what is wrong with it: length comes first. */
export function ledgerAlias(text: string, bytesMax: number): string | LedgerRefusal {
  const alias = normalizeAlias(text, bytesMax);
  if (alias !== null) return alias;
  return refuse(longerThan(trimAscii(text), bytesMax) ? "AliasTooLong" : "InvalidAlias");
}
