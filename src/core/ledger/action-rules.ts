/**
 * What calls change: the types of a change, the one place where version, time and counters
 * of a record move, and the rule of every signed action. Payload, expiry, nonce and
 * signature have been checked before (`rules.ts`). The rules work on aliases in normal
 * form.
 * Source: docs/ledger.md 1.4, 1.5, 1.11, 2.2, 2.3 ("Component operations"), 2.5 and 2.6,
 * rules section 4 ("Operation refusals").
 */
import { isAdmissibleKey } from "../codec/crypto.ts";
import type { Did } from "../codec/did.ts";
import {
  type Account,
  type AccountId,
  type AliasReserve,
  aliasReserveMs,
  type CounterName,
  type DeliveryPolicy,
  type DeliveryPolicyLinks,
  type DidRecord,
  isReservedFrom,
  type LedgerBoundName,
  type LedgerBounds,
  type LedgerProofs,
  longerThan,
  type PersonaPolicy,
  type PolicyScope,
  type Service,
} from "./account.ts";
import {
  type ActionName,
  type DocumentAction,
  type Intent,
  type IntentOf,
  type Items,
  isDocumentAction,
  itemsOf,
} from "./actions.ts";
import type { LedgerCall } from "./calls.ts";
import {
  checkKeyAgreement,
  checkService,
  checkVerificationMethod,
  emptyDocument,
} from "./document.ts";
import { type ComponentList, changeComponent, componentOf } from "./key-proof.ts";
import { isSelfCertifying } from "./names.ts";
import { type LedgerError, type LedgerRefusal, refuse } from "./refusals.ts";

/** What the rules of a call read. */
export type LedgerInput = {
  /** The account of `call.did`. */
  readonly account: Account;
  /** Who holds an alias in normal form. Only `aliasesNamed(call)` are asked for. */
  readonly aliasHolder: (alias: string) => Did | null;
  /** For whom such an alias is reserved. */
  readonly aliasReserve: (alias: string) => AliasReserve | null;
  /**
   * Whose alias the owner's account replaces: that of no DID, of those that are not
   * self-certifying, or of all.
   */
  readonly ownerReplaces: "none" | "uncertified" | "all";
  readonly call: LedgerCall;
  /** The time of the block, or of the dry run. */
  readonly nowMs: number;
  /** The account that signs owner calls and owns what is registered. */
  readonly operator: AccountId;
  readonly proofs: LedgerProofs;
  readonly bounds: LedgerBounds;
};

/**
 * Entries of the alias index: those that now name the DID, and those that name no one and
 * are reserved for it.
 */
type AliasChange = { readonly set: readonly string[]; readonly removed: readonly string[] };

/** A `policy` of `null` removes the entry. A persona policy has the scope `persona` only. */
type PolicyChange = {
  readonly scope: PolicyScope;
  readonly key: Did;
  readonly policy: DeliveryPolicy | PersonaPolicy | null;
};

/** Everything that follows from a call. What is not named here stays as it is. */
export type Applied = {
  readonly account: Account;
  readonly aliases: AliasChange;
  /** The reserve of every alias that is removed. */
  readonly reserve: AliasReserve;
  readonly policies: readonly PolicyChange[];
};

/**
 * What the rule of one operation decides. Version, time and counter of the record follow in
 * `applyChange`.
 */
type RecordChange = {
  /** The members of the record that change; `null` removes the record. */
  readonly record: Partial<DidRecord> | null;
  readonly aliases?: AliasChange;
  readonly policies?: readonly PolicyChange[];
};

/** The account that a change is made to. */
type ChangedAccount = {
  readonly did: Did;
  readonly account: Account;
  readonly record: DidRecord;
  readonly nowMs: number;
  /** The counter that the call uses up. */
  readonly counter: CounterName | null;
};

const noAliases: AliasChange = { set: [], removed: [] };

export const reserveOf = (did: Did, { life }: Account, nowMs: number): AliasReserve => ({
  did,
  life,
  untilMs: BigInt(nowMs + aliasReserveMs),
});

/**
 * Version and time move, the counter is used up, the others stay. A deletion ends a life of
 * the DID.
 */
export function applyChange(changed: ChangedAccount, change: RecordChange): Applied {
  const { did, account, record, nowMs, counter } = changed;
  const { counters } = account;
  const touched = { version: record.version + 1n, updatedAtMs: BigInt(nowMs) };
  return {
    account: {
      ...account,
      ...(change.record === null ? { life: account.life + 1, componentCallsLeft: 0 } : {}),
      record: change.record === null ? null : { ...record, ...change.record, ...touched },
      counters: counter === null ? counters : { ...counters, [counter]: counters[counter] + 1n },
    },
    aliases: change.aliases ?? noAliases,
    reserve: reserveOf(did, account, nowMs),
    policies: change.policies ?? [],
  };
}

// -------------------------------------------------------------------------------- rules of actions

type RuleResult = RecordChange | LedgerRefusal;
type Rule<A extends ActionName> = (
  input: LedgerInput,
  intent: IntentOf<A>,
  record: DidRecord,
) => RuleResult;

const rules: { readonly [A in Exclude<ActionName, DocumentAction>]: Rule<A> } = {
  UpdateRootPubkey: (_input, { newRootPubkey }) => rotateRoot(newRootPubkey),
  add_alias: addAlias,
  update_alias: updateAlias,
  remove_alias: (_input, { alias }, record) => removeAlias(alias, record),
  deactivate_did: () => ({ record: { deactivated: true } }),
  delete_did: (_input, { did }, record) => deleteDid(did, record),
};

/** What an authorized intent changes. */
export function decideChange(input: LedgerInput, intent: Intent, record: DidRecord): RuleResult {
  if (isDocumentAction(intent.action))
    return changeDocument(input, intent as DocumentIntent, record);
  const rule = rules[intent.action] as (
    input: LedgerInput,
    intent: Intent,
    record: DidRecord,
  ) => RuleResult;
  return rule(input, intent, record);
}

// -------------------------------------------------------------------------------------- components

type DocumentIntent = Extract<Intent, { readonly action: DocumentAction }>;

/** What the ledger says of a list of a document, and what it demands of an entry. */
type ListRule = {
  readonly exists: LedgerError;
  readonly missing: LedgerError;
  readonly full: LedgerError;
  readonly max: LedgerBoundName;
  readonly check: (entry: never, did: Did, bounds: LedgerBounds) => LedgerRefusal | null;
};

const listRules: { readonly [L in ComponentList]: ListRule } = {
  verificationMethod: {
    exists: "VerificationMethodAlreadyExists",
    missing: "VerificationMethodNotFound",
    full: "InvalidDocument",
    max: "verificationMethods",
    check: checkVerificationMethod,
  },
  authentication: {
    exists: "AuthenticationAlreadyExists",
    missing: "AuthenticationNotFound",
    full: "InvalidDocument",
    max: "authentications",
    check: () => null,
  },
  keyAgreement: {
    exists: "KeyAgreementAlreadyExists",
    missing: "KeyAgreementNotFound",
    full: "InvalidDocument",
    max: "keyAgreements",
    check: checkKeyAgreement,
  },
  service: {
    exists: "ServiceAlreadyExists",
    missing: "ServiceNotFound",
    full: "ServiceTooLong",
    max: "services",
    check: (service: Service, _did, bounds) => checkService(service, bounds),
  },
};

/**
 * Adding a method, key agreement or service creates a document where there is none; nothing
 * else does.
 */
function changeDocument(
  { bounds }: LedgerInput,
  intent: DocumentIntent,
  record: DidRecord,
): RuleResult {
  const { action, did } = intent;
  const { verb, list } = componentOf(action);
  const makes = verb === "Add" && list !== "authentication";
  const document = record.document ?? (makes ? emptyDocument(did) : null);
  if (document === null) return refuse("InvalidDocument", { detail: "the DID has no document" });
  const { check, max, ...errors } = listRules[list];
  const entry = "id" in intent ? null : (itemsOf(intent)[list as keyof Items] as never);
  const flaw = entry === null ? null : check(entry, did, bounds);
  if (flaw !== null) return flaw;
  const changed = changeComponent(document, action, itemsOf(intent));
  if (changed === "unlisted") return refuse("VerificationMethodNotFound");
  if (changed === "in use") return refuse("VerificationMethodInUse");
  if (typeof changed === "string") return refuse(errors[changed]);
  if (verb === "Add" && document[list].length >= bounds[max])
    return refuse(errors.full, { detail: "the list holds as many entries as it may" });
  return { record: { document: changed } };
}

// ---------------------------------------------------------------------------------------- root key

/**
 * Rotation leaves the document alone: an old key that it still lists stays a signer until
 * it is removed.
 */
function rotateRoot(newRootPubkey: Uint8Array): RuleResult {
  if (!isAdmissibleKey(newRootPubkey)) return refuse("InvalidRootPubkey");
  return { record: { rootPubkey: newRootPubkey } };
}

// ----------------------------------------------------------------------------------------- aliases

function addAlias(
  input: LedgerInput,
  intent: IntentOf<"add_alias">,
  record: DidRecord,
): RuleResult {
  const { did, alias } = intent;
  const held = checkFree(input, alias, did);
  if (held !== null) return held;
  if (record.aliases.length >= input.bounds.aliases) return refuse("TooManyAliases");
  return {
    record: { aliases: [...record.aliases, alias] },
    aliases: { set: [alias], removed: [] },
  };
}

/** The new alias takes the place of the old one in the list. */
function updateAlias(
  input: LedgerInput,
  intent: IntentOf<"update_alias">,
  record: DidRecord,
): RuleResult {
  const { did, oldAlias, newAlias } = intent;
  if (oldAlias === newAlias) return refuse("AliasAlreadyExists");
  const held = checkFree(input, newAlias, did);
  if (held !== null) return held;
  if (!record.aliases.includes(oldAlias)) return refuse("AliasNotFound");
  return {
    record: { aliases: record.aliases.map((alias) => (alias === oldAlias ? newAlias : alias)) },
    aliases: { set: [newAlias], removed: [oldAlias] },
  };
}

function removeAlias(alias: string, record: DidRecord): RuleResult {
  if (!record.aliases.includes(alias)) return refuse("AliasNotFound");
  return {
    record: { aliases: record.aliases.filter((held) => held !== alias) },
    aliases: { set: [], removed: [alias] },
  };
}

/** By the owner. Senders to an alias rely on it: where the ledger says so, only keys change it. */
export function setPrimaryAlias(input: LedgerInput, alias: string, record: DidRecord): RuleResult {
  const { did } = input.call;
  const removed = record.aliases.filter((held) => held !== alias);
  const replaces =
    input.ownerReplaces === "all" ||
    (input.ownerReplaces === "uncertified" && !isSelfCertifying(did));
  if (removed.length > 0 && record.rootPubkey !== null && !replaces)
    return refuse("RootKeyRequired");
  const taken = checkFree(input, alias, did);
  if (taken?.error === "AliasTaken") return taken;
  return { record: { aliases: [alias] }, aliases: { set: [alias], removed } };
}

/** Refuses an alias that a DID has, and one that is reserved for another DID or another life. */
export function checkFree(input: LedgerInput, alias: string, did: Did): LedgerRefusal | null {
  const holder = input.aliasHolder(alias);
  if (holder !== null) return refuse(holder === did ? "AliasAlreadyExists" : "AliasTaken");
  return isReservedFrom({ did, life: input.account.life }, input.aliasReserve(alias), input.nowMs)
    ? refuse("AliasTaken")
    : null;
}

// ----------------------------------------------------------------------------- links, end of a DID

/**
 * Frees the DID, its aliases and its policies. Its counters are not part of the record and
 * stay.
 */
function deleteDid(did: Did, record: DidRecord): RecordChange {
  return {
    record: null,
    aliases: { set: [], removed: record.aliases },
    policies: (["recipient", "tag", "persona"] as const).map((scope) => ({
      scope,
      key: did,
      policy: null,
    })),
  };
}

export function setLinks(links: DeliveryPolicyLinks, bounds: LedgerBounds): RuleResult {
  const { recipientPolicy, tagPolicies, personaPolicies } = links;
  if (tagPolicies.length > bounds.policyRefs || personaPolicies.length > bounds.policyRefs) {
    return refuse("TooManyPolicyRefs");
  }
  for (const ref of [recipientPolicy ?? "", ...tagPolicies, ...personaPolicies]) {
    if (longerThan(ref, bounds.policyRefBytes)) return refuse("PolicyRefTooLong");
  }
  return { record: { links: { recipientPolicy, tagPolicies, personaPolicies } } };
}
