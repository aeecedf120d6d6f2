/**
 * What a call changes once the ledger has accepted it: events with the runtime's names and fields, and the
 * one place where version, time and counters of a record move.
 * Source: docs/ledger.md 1.11 and 2.5.
 */
import type { Did } from "../codec/did.ts";
import type { Account, AccountId, CounterName, DidRecord, LedgerBounds, LedgerProofs } from "./account.ts";
import type { actions, DocumentAction } from "./actions.ts";
import type { LedgerCall } from "./calls.ts";
import type { DeliveryPolicy, PersonaPolicy, PolicyScope } from "./policy.ts";

/** What the rules of a call look at. */
export type LedgerInput = {
  /** The account of `call.did`. */
  readonly account: Account;
  /** Who holds an alias in normal form. Only `aliasesNamed(call)` are asked for. */
  readonly aliasHolder: (alias: string) => Did | null;
  readonly call: LedgerCall;
  /** The time of the block, or of the question whether the call would be accepted. */
  readonly nowMs: number;
  /** The account that signs owner calls and owns what is registered. */
  readonly operator: AccountId;
  readonly proofs: LedgerProofs;
  readonly bounds: LedgerBounds;
};

/** Fields in the runtime's order. */
export type LedgerEvent =
  | { readonly name: "Registered"; readonly did: Did; readonly account: AccountId | null }
  | {
      readonly name: "AliasSet" | "AliasAdded" | "AliasRemoved" | "AliasConflict";
      readonly did: Did;
      readonly alias: string;
    }
  | { readonly name: "AliasUpdated"; readonly did: Did; readonly oldAlias: string; readonly newAlias: string }
  | {
      readonly name: "DeviceAdded" | "DeviceTombstoned" | "DeviceRemoved";
      readonly did: Did;
      readonly deviceId: string;
    }
  | { readonly name: "DeviceUpdated"; readonly did: Did; readonly oldDeviceId: string; readonly newDeviceId: string }
  | { readonly name: ComponentEventName; readonly did: Did; readonly id: string }
  | {
      readonly name:
        | "AliasInvalid"
        | "DocumentSet"
        | "RootPubkeyUpdated"
        | "DeliveryPolicyLinksSet"
        | "DeliveryPolicyLinksCleared"
        | "DidDeactivated"
        | "DidDeleted";
      readonly did: Did;
    }
  | { readonly name: "PolicySet"; readonly scope: PolicyScope; readonly did: Did };

type ComponentEventName = (typeof actions)[DocumentAction]["event"];

/** Entries of the alias index: those that now name the DID, and those that name nobody. */
type AliasChange = { readonly set: readonly string[]; readonly removed: readonly string[] };

/** `policy` is `null` when the entry goes. A persona policy has the scope `persona` only. */
type PolicyChange = {
  readonly scope: PolicyScope;
  readonly key: Did;
  readonly policy: DeliveryPolicy | PersonaPolicy | null;
};

/** Everything that follows from a call. What is not named here stays as it is. */
export type Applied = {
  readonly account: Account;
  readonly aliases: AliasChange;
  readonly policies: readonly PolicyChange[];
  readonly events: readonly LedgerEvent[];
};

/** What one operation decides; the record's version, time and counter are not its business. */
export type Change = {
  /** The members of the record that become different; `null` removes the record. */
  readonly record: Partial<DidRecord> | null;
  readonly aliases?: AliasChange;
  readonly policies?: readonly PolicyChange[];
  readonly events: readonly LedgerEvent[];
};

/** The account that a change is made to. */
type ChangedAccount = {
  readonly account: Account;
  readonly record: DidRecord;
  readonly nowMs: number;
  /** The counter that the call uses up. */
  readonly counter: CounterName | null;
};

const noAliases: AliasChange = { set: [], removed: [] };

/**
 * The account after a change of its record: version and time move, the counter is used up, the others stay. A
 * deletion ends a life of the DID.
 */
export function applyChange(changed: ChangedAccount, change: Change): Applied {
  const { account, record, nowMs, counter } = changed;
  const { counters } = account;
  const touched = { version: record.version + 1n, updatedAtMs: BigInt(nowMs) };
  return {
    account: {
      ...account,
      life: change.record === null ? account.life + 1 : account.life,
      record: change.record === null ? null : { ...record, ...change.record, ...touched },
      counters: counter === null ? counters : { ...counters, [counter]: counters[counter] + 1n },
    },
    aliases: change.aliases ?? noAliases,
    policies: change.policies ?? [],
    events: change.events,
  };
}
