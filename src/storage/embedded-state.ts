/**
 * How the embedded ledger reads and writes its table: block numbers by time, what a verdict rested on,
 * which pending calls exclude each other, and the writes that follow from a call.
 */
import { concatBytes, decodeHex, decodeUtf8, encodeHex0x, equalBytes, utf8 } from "../core/codec/bytes.ts";
import type { Did } from "../core/codec/did.ts";
import { blake2b256 } from "../core/codec/hash.ts";
import { encodeWith } from "../core/codec/scale.ts";
import type { Fault } from "../core/fault.ts";
import { aliasesNamed, claimsOf, decideClash, type LedgerCall } from "../core/ledger/calls.ts";
import type { Applied } from "../core/ledger/effects.ts";
import { accountCodec } from "../core/ledger/structures.ts";
import { type Block, StoreError, type Submission } from "./contract.ts";
import * as records from "./embedded-records.ts";
import type { TableChange, TableView } from "./table.ts";

export function maxOf(a: bigint, b: bigint): bigint {
  return a > b ? a : b;
}

/** The number of the block that is being made at a time. Before the clock's start it is the start's. */
export function numberAt(clock: records.Clock, nowMs: number): bigint {
  return clock.number + BigInt(Math.max(0, Math.floor((nowMs - clock.timeMs) / clock.blockTimeMs)));
}

/** What a dry run looked at: when it still stands, the verdict does too. */
export type Facts = { readonly account: Uint8Array | null; readonly holders: readonly (Uint8Array | null)[] };

export function readHead(view: TableView): records.Head {
  const bytes = view.get(records.headKey);
  if (bytes === null) throw new StoreError("corrupt", "the embedded ledger has lost its head");
  return records.decodeHead(bytes);
}

export function readHolder(view: TableView, alias: string): Did | null {
  return records.didOf(view.get(records.aliasKey(alias)));
}

export function readSubmission(view: TableView, txHash: string): records.Kept | null {
  const bytes = view.get(records.submissionKey(txHash));
  return bytes === null ? null : records.decodeSubmission(txHash, bytes);
}

export function readFacts(view: TableView, call: LedgerCall): Facts {
  return {
    account: view.get(records.accountKey(call.did)),
    holders: aliasesNamed(call).map((alias) => view.get(records.aliasKey(alias))),
  };
}

export function sameFacts(before: Facts, now: Facts): boolean {
  const same = (a: Uint8Array | null, b: Uint8Array | null) => (a === null || b === null ? a === b : equalBytes(a, b));
  return same(before.account, now.account) && before.holders.every((holder, i) => same(holder, now.holders[i] ?? null));
}

export function holdClaims(view: TableChange, call: LedgerCall, poolKey: string): void {
  for (const claim of claimsOf(call)) view.put(records.claimKey(claim), utf8(poolKey));
}

/** A claim that a later call of the same DID holds by now is left to it. */
export function releaseClaims(view: TableChange, call: LedgerCall, poolKey: string): void {
  for (const key of claimsOf(call).map(records.claimKey)) {
    const holder = view.get(key);
    if (holder !== null && decodeUtf8(holder) === poolKey) view.remove(key);
  }
}

/** The pending call that stands in the way: its submission when it is the same one, else why it excludes this one. */
export function findCollision(view: TableView, call: LedgerCall): Submission | Fault | null {
  for (const claim of claimsOf(call)) {
    const pointer = view.get(records.claimKey(claim));
    const pending = pointer === null ? null : view.get(decodeUtf8(pointer) ?? "");
    const standing = pending === null ? null : records.decodePending(pending);
    if (standing === null || standing.call === null) continue;
    const clash = decideClash(claim, standing.call, call);
    if (clash === "same") return readSubmission(view, standing.txHash)?.submission ?? null;
    if (clash !== null) return clash;
  }
  return null;
}

export function writeApplied(view: TableChange, did: Did, applied: Applied): void {
  view.put(records.accountKey(did), encodeWith(accountCodec, applied.account));
  for (const alias of applied.aliases.removed) view.remove(records.aliasKey(alias));
  for (const alias of applied.aliases.set) view.put(records.aliasKey(alias), utf8(did));
  for (const { scope, key, policy } of applied.policies) {
    if (policy === null) view.remove(records.policyKey(scope, key));
    else view.put(records.policyKey(scope, key), records.encodePolicy(scope, policy));
  }
}

/** A block's hash covers the block before it, its number and time, and its calls in order. */
export function blockHash(
  before: Block,
  block: { readonly number: bigint; readonly timeMs: number },
  calls: readonly { readonly txHash: string }[],
): string {
  const start = utf8(`${before.hash}|${block.number}|${block.timeMs}|`);
  const hashes = calls.map(({ txHash }) => decodeHex(txHash) ?? new Uint8Array(0));
  return encodeHex0x(blake2b256(concatBytes(start, ...hashes)));
}
