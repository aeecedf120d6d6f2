/**
 * Whether the ledger would take a call now: the facts it decides by, read at the finalized head, and a
 * dry run of its own rules over them. So a rule lives in one place, and a client learns at once what the
 * chain would only say later, if at all.
 * Source: rules section 4 ("Signing order of checks"), docs/ledger.md 1.7 ("Any pool-level failure
 * surfaces only as BadProof").
 */

import type { Did } from "../../core/codec/did.ts";
import type { Fault } from "../../core/fault.ts";
import type { Account, AccountId } from "../../core/ledger/account.ts";
import type { LedgerBounds } from "../../core/ledger/bounds.ts";
import { aliasesNamed, type LedgerCall } from "../../core/ledger/calls.ts";
import { faultOfRefusal, isRefusal } from "../../core/ledger/refusals.ts";
import { applyCall } from "../../core/ledger/rules.ts";
import type { Ledger } from "../../storage/contract.ts";

export type Facts = {
  readonly account: Account;
  readonly aliasHolders: ReadonlyMap<string, Did | null>;
  readonly operator: AccountId;
  readonly bounds: LedgerBounds;
};

/** Everything at once: the reads don't depend on each other. */
export async function gatherFacts(ledger: Ledger, call: LedgerCall): Promise<Facts> {
  const [account, operator, bounds, aliasHolders] = await Promise.all([
    ledger.account(call.did),
    ledger.operator(),
    ledger.bounds(),
    Promise.all(aliasesNamed(call).map(async (alias) => [alias, await ledger.aliasHolder(alias)] as const)),
  ]);
  return { account, operator, bounds, aliasHolders: new Map(aliasHolders) };
}

/** The refusal that the ledger's rules have for a call, or `null`. Cost: one signature check. */
export function decideCall(call: LedgerCall, facts: Facts, nowMs: number): Fault | null {
  const { account, operator, bounds, aliasHolders } = facts;
  const aliasHolder = (alias: string) => aliasHolders.get(alias) ?? null;
  const outcome = applyCall({ account, aliasHolder, call, nowMs, operator, bounds });
  return isRefusal(outcome) ? faultOfRefusal(outcome) : null;
}
