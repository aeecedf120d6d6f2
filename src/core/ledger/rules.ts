/**
 * The ledger as a pure function: account + call + time → changed account or a refusal. The
 * embedded ledger runs it, and so does the chain driver before it submits a call; the
 * reference runtime of the chain follows the same rules.
 * Source: docs/ledger.md 1.3 to 1.11 and 2, rules section 4.
 */
import { equalBytes, publicKeyBytes, signatureBytes } from "../codec/bytes.ts";
import { isAdmissibleKey, verifyEd25519 } from "../codec/crypto.ts";
import { isDid, normalizeAlias } from "../codec/did.ts";
import {
  type Account,
  type AccountId,
  type CounterName,
  checkDeliveryPolicy,
  checkPersonaPolicy,
  type DidDocument,
  type DidRecord,
  longerThan,
  type PolicyScope,
} from "./account.ts";
import {
  type Applied,
  applyChange,
  checkFree,
  decideChange,
  type LedgerInput,
  reserveOf,
  setLinks,
  setPrimaryAlias,
} from "./action-rules.ts";
import { actionRows, actions, counters, type Intent } from "./actions.ts";
import {
  type DocumentCall,
  intentOfCall,
  ledgerAlias,
  type OwnerCall,
  type ProofCall,
  type RegistrationCall,
} from "./calls.ts";
import { checkDocument, keyFor, rootKeyId } from "./document.ts";
import {
  authorizationMessage,
  decodeDidDocument,
  documentMessage,
  type ProofTimestamp,
  parseProofTimestamp,
  proofAheadMsMax,
  proofLifeMsMax,
  registrationMessage,
} from "./document-codec.ts";
import { componentCallsMax, rotationsMax } from "./key-proof.ts";
import { deriveDid, isSelfCertifying } from "./names.ts";
import { isRefusal, type LedgerError, type LedgerRefusal, refuse } from "./refusals.ts";
import { decodePayload, encodeAuthorization, type Payload } from "./structures.ts";

/**
 * What a call changes, or why it changes nothing. Pure; costs one signature check, about 60
 * µs, or two.
 */
export function applyCall(input: LedgerInput): Applied | LedgerRefusal {
  const { call } = input;
  if (call.name === "register_with_document_proof_signed") return registerAccount(input, call);
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
  const { counter } = actions[intent.action];
  const counted = isSelfCertified(input) ? countForProof(account, counter) : account;
  return isRefusal(counted)
    ? counted
    : applyChange({ did: call.did, account: counted, record, nowMs, counter }, change);
}

/**
 * The checks of every authorization, in the order of docs/ledger.md 2.4; then the record to
 * work on.
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
  if (
    call.signerKeyId !== rootKeyId &&
    isSelfCertified(input) &&
    actionRows[intent.action].isOnlyForRoot
  )
    return refuse("OnlyRootSigns");
  const key = keyFor(record, call.signerKeyId, "change");
  if (key === null || !isSigned(input, call, { domain, key })) return refuse("InvalidSignature");
  return record;
}

/**
 * Version 3 first; a ledger that accepts plain payloads as well pays for a second check of
 * those.
 */
function isSigned(
  input: LedgerInput,
  { signature, signedPayload }: ProofCall,
  { domain, key }: { readonly domain: CounterName; readonly key: Uint8Array },
): boolean {
  const { proofs } = input;
  const message = authorizationMessage(domain, proofs.genesisHash, signedPayload);
  return (
    (proofs.bound && verifyEd25519(signature, message, key)) ||
    (proofs.plain && !isSelfCertified(input) && verifyEd25519(signature, signedPayload, key))
  );
}

/** Byte equality stands for equality of every item: there is one encoding of a payload. */
function isAuthorizationOf(intent: Intent, terms: Payload, call: ProofCall): boolean {
  return (
    terms.signerKeyId === call.signerKeyId &&
    equalBytes(encodeAuthorization(intent, terms), call.signedPayload)
  );
}

/** Calls without a proof, which need the record's owner account, which is the operator's. */
function applyOwned(input: LedgerInput, call: OwnerCall): Applied | LedgerRefusal {
  if (longerThan(call.did, input.bounds.didBytes)) return refuse("DidTooLong");
  if (call.name === "set_alias" || call.name === "set_delivery_policy_links")
    return changeOwned(input, call);
  return setPolicy(input, call);
}

type OwnedChangeCall = Extract<
  OwnerCall,
  { readonly name: "set_alias" | "set_delivery_policy_links" }
>;

function changeOwned(input: LedgerInput, call: OwnedChangeCall): Applied | LedgerRefusal {
  const { account, operator, nowMs, bounds } = input;
  const alias = call.name === "set_alias" ? ledgerAlias(call.alias, bounds.aliasBytes) : "";
  if (isRefusal(alias)) return alias;
  const { record } = account;
  if (record === null) return refuse("DidNotFound");
  if (record.deactivated) return refuse("DidDeactivated");
  if (!isOwner(record, operator)) return refuse("NotDidOwner");
  const change =
    call.name === "set_alias" ? setPrimaryAlias(input, alias, record) : setLinks(call, bounds);
  return isRefusal(change)
    ? change
    : applyChange({ did: call.did, account, record, nowMs, counter: null }, change);
}

type PolicyCall = Exclude<OwnerCall, OwnedChangeCall>;

export const policyScopes = {
  set_delivery_policy: "recipient",
  set_tag_policy: "tag",
  set_persona_policy: "persona",
} as const satisfies Record<PolicyCall["name"], PolicyScope>;

/** Policies treat a deactivated DID as absent. The record itself does not change. */
function setPolicy(input: LedgerInput, call: PolicyCall): Applied | LedgerRefusal {
  const { account, operator } = input;
  const { record } = account;
  if (record === null || record.deactivated) return refuse("DidNotFound");
  if (!isOwner(record, operator)) return refuse("NotPolicyController");
  const breach =
    call.name === "set_persona_policy"
      ? checkPersonaPolicy(call.policy)
      : checkDeliveryPolicy(call.policy);
  if (breach !== null) return breach;
  const scope = policyScopes[call.name];
  return {
    account,
    aliases: { set: [], removed: [] },
    reserve: reserveOf(call.did, account, input.nowMs),
    policies: [{ scope, key: call.did, policy: call.policy }],
  };
}

function isOwner(record: DidRecord, operator: AccountId): boolean {
  return record.owner !== null && equalBytes(record.owner, operator);
}

// --------------------------------------------------------------- registrations and whole documents

// The two calls whose proof is a message and not a payload. Their checks follow the order
// of the runtime; the checks of time are ours (docs/ledger.md 2.3 to 2.5).

/** Makes a record that the operator owns. The counters of an earlier record of the DID continue. */
function registerAccount(input: LedgerInput, call: RegistrationCall): Applied | LedgerRefusal {
  const { account, bounds, nowMs } = input;
  if (!hasProofSizes(call)) return refuse("InvalidSignature");
  if (longerThan(call.did, bounds.didBytes)) return refuse("DidTooLong");
  if (!isDid(call.did)) return refuse("InvalidDidFormat");

  const stamp = acceptedTimestamp(input, call.timestamp);
  if (isRefusal(stamp)) return stamp;
  if (stamp.version !== "v1" && stamp.nonce !== 0n) return refuse("InvalidProofTimestamp");
  const untimely = checkExpiry(stamp, nowMs, "RegistrationExpired");
  if (untimely !== null) return untimely;

  if (account.record !== null) return refuse("DidAlreadyExists");
  const misnamed = isSelfCertified(input) ? checkName(input, call) : null;
  if (misnamed !== null) return misnamed;
  if (isStaleRegistration(account, stamp)) return refuse("DocumentStale");

  if (!isAdmissibleKey(call.pubkey)) return refuse("InvalidRootPubkey");
  const binding = { genesisHash: input.proofs.genesisHash, submitter: input.operator };
  const message = registrationMessage(call, binding, bounds.aliasBytes);
  if (message === null || !verifyEd25519(call.signature, message, call.pubkey))
    return refuse("InvalidSignature");

  const document = readDocument(input, call);
  if (isRefusal(document)) return document;
  const aliases = registrationAliases(input, call.alias);

  return {
    account: {
      ...account,
      componentCallsLeft: isSelfCertified(input) ? componentCallsMax : 0,
      record: newRecord(input, { document, aliases, rootPubkey: call.pubkey }),
      ...timesAfter(account, stamp, nowMs),
      registrationExpiryMs: stamp.version === "v1" ? account.registrationExpiryMs : stamp.expiryMs,
    },
    aliases: { set: aliases, removed: [] },
    reserve: reserveOf(call.did, account, nowMs),
    policies: [],
  };
}

/** An alias that can't be given is left out and does not fail the registration. */
function registrationAliases(input: LedgerInput, text: string | null): readonly string[] {
  const alias = text === null ? null : normalizeAlias(text, input.bounds.aliasBytes);
  return alias === null || checkFree(input, alias, input.call.did) !== null ? [] : [alias];
}

function newRecord(
  input: LedgerInput,
  given: Pick<DidRecord, "document" | "aliases" | "rootPubkey">,
): DidRecord {
  return {
    ...given,
    owner: input.operator,
    devices: [],
    version: 1n,
    updatedAtMs: BigInt(input.nowMs),
    links: null,
    deactivated: false,
  };
}

/**
 * Replaces the whole document. A bad document is reported before a bad signature, as in the
 * runtime.
 */
function setDocument(input: LedgerInput, call: DocumentCall): Applied | LedgerRefusal {
  const { account, bounds, nowMs } = input;
  if (!hasProofSizes(call)) return refuse("InvalidSignature");
  if (longerThan(call.did, bounds.didBytes)) return refuse("DidTooLong");
  const stamp = acceptedTimestamp(input, call.timestamp);
  if (isRefusal(stamp)) return stamp;
  const document = readDocument(input, call);
  if (isRefusal(document)) return document;
  const untimely = checkExpiry(stamp, nowMs, "DocumentAuthorizationExpired");
  if (untimely !== null) return untimely;
  const { record } = account;
  if (record === null) return refuse("DidNotFound");
  if (record.deactivated) return refuse("DidDeactivated");
  const outdated = checkDocumentOrder(account, stamp);
  if (outdated !== null) return outdated;
  if (record.rootPubkey === null || !equalBytes(call.pubkey, record.rootPubkey))
    return refuse("InvalidSignature");
  const message = documentMessage(call, input.proofs.genesisHash);
  if (message === null || !verifyEd25519(call.signature, message, call.pubkey))
    return refuse("InvalidSignature");
  const timed = { ...account, ...timesAfter(account, stamp, nowMs) };
  const componentCallsLeft = isSelfCertified(input) ? componentCallsMax : 0;
  const counter = stamp.version === "v1" ? null : "document";
  return applyChange(
    { did: call.did, account: { ...timed, componentCallsLeft }, record, nowMs, counter },
    { record: { document } },
  );
}

// ---------------------------------------------------------------------------- self-certifying DIDs

/**
 * Bound to this ledger and its first root key (docs/trust.md "Names"): only version 3 names
 * the ledger.
 */
function isSelfCertified({ call, proofs }: LedgerInput): boolean {
  return proofs.selfCertifying && isSelfCertifying(call.did);
}

/** Under its first key, and once: a first key that was stolen later revives nothing. */
function checkName(
  { account, proofs }: LedgerInput,
  { did, pubkey }: RegistrationCall,
): LedgerRefusal | null {
  if (account.life > 0) return refuse("NameRetired");
  return deriveDid(proofs.genesisHash, pubkey) === did ? null : refuse("NameNotDerived");
}

/**
 * After eight component calls or a rotation comes a whole document: proofs stay small, and
 * no call hides another.
 */
function countForProof(account: Account, counter: CounterName): Account | LedgerRefusal {
  if (counter === "rootPubkey") {
    const isLast = account.counters.rootPubkey >= BigInt(rotationsMax);
    return isLast ? refuse("TooManyRootKeys") : { ...account, componentCallsLeft: 0 };
  }
  if (counter !== "document") return account;
  const { componentCallsLeft } = account;
  return componentCallsLeft === 0
    ? refuse("DocumentNeeded")
    : { ...account, componentCallsLeft: componentCallsLeft - 1 };
}

function hasProofSizes(call: RegistrationCall | DocumentCall): boolean {
  return call.pubkey.length === publicKeyBytes && call.signature.length === signatureBytes;
}

function readDocument(
  input: LedgerInput,
  call: RegistrationCall | DocumentCall,
): DidDocument | LedgerRefusal {
  const document =
    call.docBlob.length > input.bounds.documentBytes ? null : decodeDidDocument(call.docBlob);
  if (document === null) {
    return refuse("InvalidDocument", {
      detail: "doc_blob is not a SCALE document within the bounds",
      wholeDocument: true,
    });
  }
  return checkDocument(document, call.did, input.bounds) ?? document;
}

/**
 * The time of a proof whose version this ledger accepts. The Directory checks how old a
 * version 1 time may be.
 */
function acceptedTimestamp(input: LedgerInput, text: string): ProofTimestamp | LedgerRefusal {
  const { proofs, nowMs } = input;
  const stamp = parseProofTimestamp(text);
  if (stamp === null) return refuse("InvalidProofTimestamp");
  const accepted = stamp.version === "v3" ? proofs.bound : proofs.plain && !isSelfCertified(input);
  if (!accepted) return refuse("ProofVersionRefused");
  const early = stamp.version === "v1" && stamp.timestampMs > nowMs + proofAheadMsMax;
  return early ? refuse("ProofTooFarAhead") : stamp;
}

/** Proofs of version 1 have no expiry. */
function checkExpiry(
  stamp: ProofTimestamp,
  nowMs: number,
  expired: LedgerError,
): LedgerRefusal | null {
  if (stamp.version === "v1") return null;
  if (stamp.expiryMs <= BigInt(nowMs)) return refuse(expired);
  return stamp.expiryMs > BigInt(nowMs + proofLifeMsMax) ? refuse("ProofTooFarAhead") : null;
}

/** A proof that registered this DID before must not revive it after a deletion. */
function isStaleRegistration(account: Account, stamp: ProofTimestamp): boolean {
  return stamp.version === "v1"
    ? BigInt(stamp.timestampMs) <= account.documentTimeMs
    : stamp.expiryMs <= account.registrationExpiryMs;
}

/** Version 1 must be later than the last document, the others have the next document nonce. */
function checkDocumentOrder(account: Account, stamp: ProofTimestamp): LedgerRefusal | null {
  if (stamp.version === "v1") {
    return BigInt(stamp.timestampMs) > account.documentTimeMs ? null : refuse("DocumentStale");
  }
  const expected = account.counters.document;
  return stamp.nonce === expected ? null : refuse("InvalidDocumentNonce", { expected });
}

/** The document time never moves back, else a version 1 proof from before could be used again. */
function timesAfter(
  account: Account,
  stamp: ProofTimestamp,
  nowMs: number,
): Pick<Account, "documentTimeMs"> {
  const timeMs = BigInt(stamp.version === "v1" ? stamp.timestampMs : nowMs);
  return { documentTimeMs: timeMs > account.documentTimeMs ? timeMs : account.documentTimeMs };
}
