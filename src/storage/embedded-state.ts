/**
 * How the embedded ledger reads and writes its table: block numbers by time, what a verdict rested on,
 * which pending calls exclude each other, and the writes that follow from a call.
 */
import { concatBytes, decodeHex, decodeUtf8, encodeHex0x, equalBytes, utf8 } from "../core/codec/bytes.ts";
import type { Did } from "../core/codec/did.ts";
import { blake2b256 } from "../core/codec/hash.ts";
import { encodeWith } from "../core/codec/scale.ts";
import type { Fault } from "../core/fault.ts";
import type { AccountId, LedgerProofs } from "../core/ledger/account.ts";
import { aliasesNamed, claimsOf, decideClash, type LedgerCall } from "../core/ledger/calls.ts";
import type { Applied } from "../core/ledger/effects.ts";
import { accountCodec } from "../core/ledger/structures.ts";
import { type Block, StoreError, type Submission } from "./contract.ts";
import * as records from "./embedded-records.ts";
import type { TableChange, TableView } from "./table.ts";

/** A block of another process is committed within this time after it was begun, or not at all. */
export const sharedMarginMs = 30_000;

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

/**
 * Every version of proofs is taken: a client that knows the interface alone signs the oldest. The ledger's name, which
 * version 3 binds, follows from the first block, whose hash covers time and operator; a ledger from before there were
 * such proofs gets it from its last block.
 */
export function prepareProofs(view: TableChange): LedgerProofs {
  const standing = view.get(records.genesisKey);
  const genesisHash = standing ?? blake2b256(utf8(`svc:embedded-ledger:genesis|${readHead(view).last.hash}`));
  if (standing === null) view.put(records.genesisKey, genesisHash);
  return { genesisHash, bound: true, plain: true };
}

type HeadOptions = { readonly blockTimeMs: number; readonly operator: AccountId; readonly now: () => number };

/** Writes the first head, and starts a new count of blocks when the block time is another than before. */
export function prepareHead(view: TableChange, options: HeadOptions): records.Head {
  const { blockTimeMs, operator } = options;
  const nowMs = options.now();
  const bytes = view.get(records.headKey);
  if (bytes === null) {
    const hash = encodeHex0x(blake2b256(concatBytes(utf8(`svc:embedded-ledger:v1|${nowMs}|`), operator)));
    const last: Block = { number: 0n, hash, timeMs: nowMs };
    const clock = { number: 0n, timeMs: nowMs, blockTimeMs };
    const head = { last, clock, nextSequence: 0n, settledFirst: 0n, settledNext: 0n };
    view.put(records.headKey, records.encodeHead(head));
    return head;
  }
  const head = records.decodeHead(bytes);
  if (head.clock.blockTimeMs === blockTimeMs) return head;
  const number = maxOf(head.last.number, numberAt(head.clock, nowMs)) + 1n;
  const changed = { ...head, clock: { number, timeMs: nowMs, blockTimeMs } };
  view.put(records.headKey, records.encodeHead(changed));
  return changed;
}
