/**
 * A ledger of maps around `applyCall`: the smallest one that can hold several DIDs. It writes the
 * effects of a call and nothing else, so that tests of the rules see only the rules.
 */

import type { Did } from "../../src/core/codec/did.ts";
import {
  type Account,
  type AliasReserve,
  type DeliveryPolicy,
  type DidRecord,
  embeddedBounds,
  emptyAccount,
  type LedgerProofs,
  type PersonaPolicy,
} from "../../src/core/ledger/account.ts";
import type { LedgerCall } from "../../src/core/ledger/calls.ts";
import { isRefusal, type LedgerError, type LedgerRefusal } from "../../src/core/ledger/refusals.ts";
import { type AppliedWithEvents, applyWithEvents } from "../oracles/ledger-events.ts";

export const operatorAccount = new Uint8Array(32).fill(0xaa);

/** A ledger that takes proofs of every version, as the embedded one does. */
export const everyProof: LedgerProofs = {
  genesisHash: new Uint8Array(32).fill(0x11),
  bound: true,
  plain: true,
  selfCertifying: true,
};

export class World {
  readonly accounts = new Map<Did, Account>();
  readonly aliases = new Map<string, Did>();
  readonly reserves = new Map<string, AliasReserve>();
  readonly policies = new Map<string, DeliveryPolicy | PersonaPolicy>();
  operator = operatorAccount;
  proofs = everyProof;

  constructor(public nowMs: number) {}

  account(did: Did): Account {
    return this.accounts.get(did) ?? emptyAccount;
  }

  record(did: Did): DidRecord {
    const { record } = this.account(did);
    if (record === null) throw new Error(`${did} has no record`);
    return record;
  }

  try(call: LedgerCall): AppliedWithEvents | LedgerRefusal {
    return applyWithEvents({
      account: this.account(call.did),
      aliasHolder: (alias) => this.aliases.get(alias) ?? null,
      aliasReserve: (alias) => this.reserves.get(alias) ?? null,
      ownerReplaces: "none",
      call,
      nowMs: this.nowMs,
      operator: this.operator,
      proofs: this.proofs,
      bounds: embeddedBounds,
    });
  }

  /** Applies a call and answers its events' names, or the name of the refusal. */
  apply(call: LedgerCall): string[] | LedgerError {
    const outcome = this.try(call);
    if (isRefusal(outcome)) return outcome.error;
    this.accounts.set(call.did, outcome.account);
    // The other way round than the drivers: no alias may stand in both lists, so the order must not
    // matter.
    for (const alias of outcome.aliases.set) {
      this.aliases.set(alias, call.did);
      this.reserves.delete(alias);
    }
    for (const alias of outcome.aliases.removed) {
      this.aliases.delete(alias);
      this.reserves.set(alias, outcome.reserve);
    }
    for (const { scope, key, policy } of outcome.policies) {
      if (policy === null) this.policies.delete(`${scope} ${key}`);
      else this.policies.set(`${scope} ${key}`, policy);
    }
    return outcome.events.map((event) => event.name);
  }

  /** Changes a record behind the ledger's back, to stage what no call leads to. */
  stage(did: Did, patch: Partial<DidRecord>): void {
    this.accounts.set(did, { ...this.account(did), record: { ...this.record(did), ...patch } });
  }
}
