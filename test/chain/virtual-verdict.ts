/** The verdict on a schedule: what the driver answered against what the finalized chain holds. */
import { encodeLedgerCall, type LedgerCall } from "../../src/core/ledger/calls.ts";
import type { SubmissionState } from "../../src/storage/contract.ts";
import type { Identity } from "../support/identity.ts";
import type { VirtualChain } from "./virtual-chain.ts";

export type Verdict = {
  readonly seed: number;
  readonly accepted: number;
  /** Ended as dropped, and the chain never holds it. */
  readonly lost: number;
  /** Calls that more than one extrinsic of the finalized chain carries. */
  readonly doubled: number;
  /** Ended as finalized without effect, or otherwise with one. */
  readonly falselyEnded: number;
  readonly stuck: number;
  /** Answers that a DID is missing which was confirmed before. */
  readonly falselyMissing: number;
  /** Key proofs that were found, and self-certifying DIDs without one. */
  readonly proven: number;
  readonly unproven: number;
  /** Without one when nothing happens any more. */
  readonly unprovenAtEnd: number;
  /** Valid calls that were refused. */
  readonly refused: number;
  readonly notes: readonly string[];
  readonly retracted: number;
  readonly kills: number;
  readonly blocks: number;
  /** Of the calls that have ended: when they were accepted, after how long they ended. */
  readonly waits: readonly { readonly atMs: number; readonly waitMs: number }[];
  /** Lines of the log above `info`. */
  readonly lines: number;
};

export type Call = {
  readonly call: LedgerCall;
  readonly identity: Identity;
  txHash: string | null;
  state: SubmissionState | null;
  reason: string;
  acceptedMs: number;
  endedMs: number;
};

/** What a schedule is judged by: the calls and their ends, and what the finalized chain holds. */
export type VerdictParts = {
  readonly chain: VirtualChain;
  readonly calls: Call[];
  readonly notes: string[];
  readonly startMs: number;
  lines: number;
  kills: number;
  falselyMissing: number;
  refused: number;
  proven: number;
  unproven: number;
  unprovenAtEnd: number;
};

export function verdictOf(world: VerdictParts, seed: number): Verdict {
  const { chain, calls, notes } = world;
  const carried = new Map<string, { times: number; succeeded: boolean }>();
  for (let at: typeof chain.finalized | null = chain.finalized; at !== null; at = at.parent) {
    for (const [index, { call }] of at.extrinsics.entries()) {
      const name = encodeLedgerCall(call).toHex();
      const before = carried.get(name) ?? { times: 0, succeeded: false };
      carried.set(name, {
        times: before.times + 1,
        succeeded: before.succeeded || at.failed[index] === false,
      });
    }
  }
  const count = { accepted: 0, lost: 0, doubled: 0, falselyEnded: 0, stuck: 0 };
  for (const { call, txHash, state, reason } of calls) {
    const found = carried.get(encodeLedgerCall(call).toHex());
    if ((found?.times ?? 0) > 1) {
      count.doubled++;
      notes.push(`${call.name} of ${call.did} is in ${found?.times} extrinsics`);
    }
    if (txHash === null) continue;
    count.accepted++;
    const took = found?.succeeded === true;
    if (state === null) count.stuck++;
    else if (state === "dropped" && !took) count.lost++;
    else if ((state === "finalized") !== took) count.falselyEnded++;
    if (state !== "finalized")
      notes.push(`${call.name} of ${call.did}: ${state} ${reason}, on chain ${took}`);
  }
  const { falselyMissing, refused, kills, proven, unproven, unprovenAtEnd } = world;
  return {
    seed,
    ...count,
    falselyMissing,
    refused,
    proven,
    unproven,
    unprovenAtEnd,
    notes,
    retracted: chain.retracted,
    kills,
    blocks: chain.best.number,
    waits: calls
      .filter(({ state }) => state !== null)
      .map(({ acceptedMs, endedMs }) => ({
        atMs: acceptedMs - world.startMs,
        waitMs: endedMs - acceptedMs,
      })),
    lines: world.lines,
  };
}

export const isClean = (v: Verdict): boolean =>
  v.lost + v.doubled + v.falselyEnded + v.stuck + v.falselyMissing + v.refused === 0;
