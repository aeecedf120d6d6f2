/**
 * The ledger as a pure function: account + call + time → changed account, events, or a refusal.
 * The embedded ledger of the drivers and the pre-check of the Directory both run it; the reference
 * runtime of the chain follows the same rules.
 * Source: docs/ledger.md 1.3 to 1.11 and 2, decisions sections 4 and 10 ("Stricter than the family's chain").
 */

import { equalBytes } from "../codec/bytes.ts";
import { type Did, normalizeAlias } from "../codec/did.ts";
import { isAdmissibleKey, publicKeyBytes, verifyEd25519 } from "../codec/ed25519.ts";
import type { PolicyScope } from "../message/policy.ts";
import type { AccountId, CounterName, DidRecord } from "./account.ts";
import { type AliasIntent, changeAlias, setPrimaryAlias } from "./alias.ts";
import { counters, operations } from "./authorization.ts";
import { longerThan } from "./bounds.ts";
import type { LedgerCall } from "./call.ts";
import type { LedgerInput } from "./change.ts";
import { type Applied, applyChange, type Change } from "./change.ts";
import { type ComponentIntent, changeComponent } from "./component.ts";
import { control, setLinks } from "./control.ts";
import {
  authorizedKey,
  decodeTerms,
  encodeAuthorization,
  type Intent,
  intentOfCall,
  ledgerAlias,
  type ProofCall,
  type Terms,
} from "./intent.ts";
import { checkDeliveryPolicy, checkPersonaPolicy } from "./policy-rules.ts";
import { parseProofTimestamp } from "./proof-message.ts";
import { isRefusal, type LedgerRefusal, refuse } from "./refusal.ts";
import { register, setDocument } from "./registration.ts";

// ------------------------------------------------------------------------------------------------ applying

/** What a call changes, or why it changes nothing. Pure; costs one signature check, about 60 µs. */
export function applyCall(input: LedgerInput): Applied | LedgerRefusal {
  const { call } = input;
  if (call.name === "register_with_document_proof_signed") return register(input, call);
  if (call.name === "set_document_with_proof") return setDocument(input, call);
  return "signedPayload" in call ? applyAuthorized(input, call) : applyOwned(input, call);
}

/** Calls that a DID key authorizes. */
function applyAuthorized(input: LedgerInput, call: ProofCall): Applied | LedgerRefusal {
  const { account, bounds, nowMs } = input;
  if (longerThan(call.did, bounds.didBytes)) return refuse("DidTooLong");
  if (call.name === "update_root_pubkey" && call.newRootPubkey.length !== publicKeyBytes) {
    return refuse("InvalidRootPubkey");
  }
  const intent = intentOfCall(call, bounds.aliasBytes);
  if (isRefusal(intent)) return intent;
  const record = authorize(input, call, intent);
  if (isRefusal(record)) return record;
  const change = decideChange(input, intent, record);
  if (isRefusal(change)) return change;
  return applyChange({ account, record, nowMs, counter: operations[intent.action].counter }, change);
}

/**
 * The checks that every authorization passes, in the order of docs/ledger.md 2.4: payload, expiry, DID, its
 * state, nonce, signature. Answers the record that the operation's own rules then work on.
 */
function authorize(input: LedgerInput, call: ProofCall, intent: Intent): DidRecord | LedgerRefusal {
  const { account, bounds, nowMs } = input;
  const domain = operations[intent.action].counter;
  const { payloadError, nonceError, expiredError } = counters[domain];
  if (longerThan(call.signerKeyId, bounds.idBytes)) return refuse(payloadError);
  const terms = decodeTerms(domain, call.signedPayload);
  if (terms === null || !isAuthorizationOf(intent, terms, call)) return refuse(payloadError);
  if (terms.validUntilMs <= BigInt(nowMs)) return refuse(expiredError);
  const { record } = account;
  if (record === null) return refuse("DidNotFound");
  if (record.deactivated) return refuse("DidDeactivated");
  const expected = account.counters[domain];
  if (terms.nonce !== expected) return refuse(nonceError, { expected });
  const key = authorizedKey(record, call.signerKeyId);
  if (key === null || !verifyEd25519(call.signature, call.signedPayload, key)) return refuse("InvalidSignature");
  return record;
}

/** Byte equality stands for equality of every item: there is one encoding of a payload. */
function isAuthorizationOf(intent: Intent, terms: Terms, call: ProofCall): boolean {
  return terms.signerKeyId === call.signerKeyId && equalBytes(encodeAuthorization(intent, terms), call.signedPayload);
}

function decideChange(input: LedgerInput, intent: Intent, record: DidRecord): Change | LedgerRefusal {
  if ("control" in intent) return control(input, intent.control, record);
  if (intent.action === "UpdateRootPubkey") return rotateRoot(intent.did, intent.newRootPubkey);
  if (operations[intent.action].counter === "alias") return changeAlias(input, intent as AliasIntent, record);
  return changeComponent(input, intent as ComponentIntent, record);
}

/** Rotation leaves the document alone: an old key that it still lists stays a signer until it is removed. */
function rotateRoot(did: Did, newRootPubkey: Uint8Array): Change | LedgerRefusal {
  if (!isAdmissibleKey(newRootPubkey)) return refuse("InvalidRootPubkey");
  return { record: { rootPubkey: newRootPubkey }, events: [{ name: "RootPubkeyUpdated", did }] };
}

type OwnerCall = Exclude<
  LedgerCall,
  ProofCall | { readonly name: "register_with_document_proof_signed" | "set_document_with_proof" }
>;

/** Calls that carry no proof and need the record's owner account, which is the operator's. */
function applyOwned(input: LedgerInput, call: OwnerCall): Applied | LedgerRefusal {
  if (longerThan(call.did, input.bounds.didBytes)) return refuse("DidTooLong");
  if (call.name === "set_alias" || call.name === "set_delivery_policy_links") return changeOwned(input, call);
  return setPolicy(input, call);
}

type OwnedChangeCall = Extract<OwnerCall, { readonly name: "set_alias" | "set_delivery_policy_links" }>;

function changeOwned(input: LedgerInput, call: OwnedChangeCall): Applied | LedgerRefusal {
  const { account, operator, nowMs, bounds } = input;
  const alias = call.name === "set_alias" ? ledgerAlias(call.alias, bounds.aliasBytes) : "";
  if (isRefusal(alias)) return alias;
  const { record } = account;
  if (record === null) return refuse("DidNotFound");
  if (record.deactivated) return refuse("DidDeactivated");
  if (!isOwner(record, operator)) return refuse("NotDidOwner");
  const change =
    call.name === "set_alias"
      ? setPrimaryAlias(input, { did: call.did, alias }, record)
      : setLinks(call.did, call, bounds);
  return isRefusal(change) ? change : applyChange({ account, record, nowMs, counter: null }, change);
}

type PolicyCall = Exclude<OwnerCall, OwnedChangeCall>;

const policyScopes = {
  set_delivery_policy: "recipient",
  set_tag_policy: "tag",
  set_persona_policy: "persona",
} as const satisfies Record<PolicyCall["name"], PolicyScope>;

/** For policies a deactivated DID does not exist, and the record itself stays untouched. */
function setPolicy(input: LedgerInput, call: PolicyCall): Applied | LedgerRefusal {
  const { account, operator } = input;
  const { record } = account;
  if (record === null || record.deactivated) return refuse("DidNotFound");
  if (!isOwner(record, operator)) return refuse("NotPolicyController");
  const breach =
    call.name === "set_persona_policy" ? checkPersonaPolicy(call.policy) : checkDeliveryPolicy(call.policy);
  if (breach !== null) return breach;
  const scope = policyScopes[call.name];
  return {
    account,
    aliases: { set: [], removed: [] },
    policies: [{ scope, key: call.did, policy: call.policy }],
    events: [{ name: "PolicySet", scope, did: call.did }],
  };
}

function isOwner(record: DidRecord, operator: AccountId): boolean {
  return record.owner !== null && equalBytes(record.owner, operator);
}

// ------------------------------------------------------------------------------------------ about a call

/** The aliases in normal form whose holder decides over a call. */
export function aliasesNamed(call: LedgerCall): string[] {
  const texts =
    call.name === "update_alias"
      ? [call.oldAlias, call.newAlias]
      : "alias" in call && call.alias !== null
        ? [call.alias]
        : [];
  return texts.map((text) => normalizeAlias(text)).filter((alias) => alias !== null);
}

/** The alias in normal form that a call takes for its DID. */
export function aliasTaken(call: LedgerCall): string | null {
  if (call.name === "update_alias") return normalizeAlias(call.newAlias);
  if (call.name === "remove_alias" || !("alias" in call) || call.alias === null) return null;
  return normalizeAlias(call.alias);
}

const countersByCall = new Map(Object.values(operations).map(({ call, counter }) => [call, counter]));

/**
 * The counter value that a call uses up, so that no two calls with the same one can both be taken. `null`
 * for calls without one, and for a payload that can't be read.
 */
export function counterOf(call: LedgerCall): { readonly domain: CounterName; readonly nonce: bigint } | null {
  if (call.name === "set_document_with_proof") {
    const stamp = parseProofTimestamp(call.timestamp);
    return stamp?.version === 2 ? { domain: "document", nonce: stamp.nonce } : null;
  }
  const domain = countersByCall.get(call.name);
  if (domain === undefined || !("signedPayload" in call)) return null;
  const terms = decodeTerms(domain, call.signedPayload);
  return terms === null ? null : { domain, nonce: terms.nonce };
}
