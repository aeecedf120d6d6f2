/**
 * The ledger as a pure function: account + call + time → changed account, events, or a refusal.
 * The embedded ledger of the drivers and the pre-check of the Directory both run it; the reference
 * runtime of the chain follows the same rules.
 * Source: docs/ledger.md 1.3 to 1.11 and 2, rules sections 4 and 10 ("Stricter than the family's chain").
 */

import { equalBytes } from "../codec/bytes.ts";
import { verifyEd25519 } from "../codec/ed25519.ts";
import { publicKeyBytes } from "../codec/public-key.ts";
import type { AccountId, CounterName, DidRecord } from "./account.ts";
import { decideChange, setLinks, setPrimaryAlias } from "./action-rules.ts";
import { actions, counters } from "./actions.ts";
import { authorizationMessage, decodePayload, encodeAuthorization, type Payload } from "./authorization.ts";
import { longerThan } from "./bounds.ts";
import { intentOfCall, ledgerAlias, type OwnerCall, type ProofCall } from "./calls.ts";
import { keyFor } from "./document.ts";
import { type Applied, applyChange, type LedgerInput } from "./effects.ts";
import type { Intent } from "./intents.ts";
import { checkDeliveryPolicy, checkPersonaPolicy, type PolicyScope } from "./policy.ts";
import { isRefusal, type LedgerRefusal, refuse } from "./refusals.ts";
import { register, setDocument } from "./registration.ts";

/** What a call changes, or why it changes nothing. Pure; costs one signature check, about 60 µs, or two. */
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
  return applyChange({ account, record, nowMs, counter: actions[intent.action].counter }, change);
}

/**
 * The checks that every authorization passes, in the order of docs/ledger.md 2.4: payload, expiry, DID, its
 * state, nonce, signature. Answers the record that the operation's own rules then work on.
 */
function authorize(input: LedgerInput, call: ProofCall, intent: Intent): DidRecord | LedgerRefusal {
  const { account, bounds, nowMs } = input;
  const domain = actions[intent.action].counter;
  const { payloadError, nonceError, expiredError } = counters[domain];
  if (longerThan(call.signerKeyId, bounds.idBytes)) return refuse(payloadError);
  const terms = decodePayload(domain, call.signedPayload);
  if (terms === null || !isAuthorizationOf(intent, terms, call)) return refuse(payloadError);
  if (terms.validUntilMs <= BigInt(nowMs)) return refuse(expiredError);
  const { record } = account;
  if (record === null) return refuse("DidNotFound");
  if (record.deactivated) return refuse("DidDeactivated");
  const expected = account.counters[domain];
  if (terms.nonce !== expected) return refuse(nonceError, { expected });
  const key = keyFor(record, call.signerKeyId, "change");
  if (key === null || !isSigned(input, call, { domain, key })) return refuse("InvalidSignature");
  return record;
}

/** Version 3 first; a ledger that takes plain payloads as well pays for a second check of those. */
function isSigned(
  { proofs }: LedgerInput,
  { signature, signedPayload }: ProofCall,
  { domain, key }: { readonly domain: CounterName; readonly key: Uint8Array },
): boolean {
  const message = authorizationMessage(domain, proofs.genesisHash, signedPayload);
  return (
    (proofs.bound && verifyEd25519(signature, message, key)) ||
    (proofs.plain && verifyEd25519(signature, signedPayload, key))
  );
}

/** Byte equality stands for equality of every item: there is one encoding of a payload. */
function isAuthorizationOf(intent: Intent, terms: Payload, call: ProofCall): boolean {
  return terms.signerKeyId === call.signerKeyId && equalBytes(encodeAuthorization(intent, terms), call.signedPayload);
}

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
