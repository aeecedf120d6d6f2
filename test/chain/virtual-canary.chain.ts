/**
 * Canaries of the virtual chain: each puts one of the faults M1 to M6, or another that was found on
 * real nodes, back into the driver by replacing methods of its classes, and schedules that provoke
 * it must find it. What they answer takes the fault out again. (M7 was in the Directory;
 * test/http/directory.test.ts holds it.)
 */
import { describe, expect, test } from "bun:test";
import { Endpoints } from "../../src/plugins/chain/endpoints.ts";
import { type Entry, type PoolAction, SubmissionPool } from "../../src/plugins/chain/pool.ts";
import { ChainReader } from "../../src/plugins/chain/reader.ts";
import { ChainSession, StateGone } from "../../src/plugins/chain/session.ts";
import { StoreError } from "../../src/storage/contract.ts";
import { methodOf, ownValues, replace, replaceAnchor, submitToOne } from "./virtual-replace.ts";
import { runSchedule, type ScheduleOptions } from "./virtual-schedule.ts";
import { isClean } from "./virtual-verdict.ts";

type Canary = {
  readonly name: string;
  readonly put: () => () => void;
  readonly schedule: Omit<ScheduleOptions, "calls">;
  /** The seed that finds it today; 1 unless it is given. */
  readonly firstSeed?: number;
};

/** A call whose era is over is dropped, whether or not it had its chance. */
function dropAtOnce(this: SubmissionPool, entry: Entry): PoolAction[] {
  return [{ do: "end", entry, end: { state: "dropped", reason: null, block: null } }];
}

const canaries: readonly Canary[] = [
  {
    name: "M1: an old block whose state is gone stops the queue",
    put: () => {
      const ask = methodOf<(...given: unknown[]) => Promise<unknown>>(
        ChainSession.prototype,
        "ask",
      );
      return replace(ChainSession.prototype, {
        async ask(this: ChainSession, ...given: never[]) {
          try {
            return await ask.apply(this, given);
          } catch (error) {
            if (error instanceof StateGone) throw new StoreError("unavailable", error.message);
            throw error;
          }
        },
      });
    },
    schedule: { faults: ["long kill"], endpoints: 1 },
    firstSeed: 5,
  },
  {
    name: "M2: any head is believed, and one endpoint is enough",
    put: () => {
      const undo = [
        replace(ChainSession.prototype, { checkHead: () => {} }),
        replace(Endpoints.prototype, { confirm: async (_: never, head: never) => head }),
        replace(SubmissionPool.prototype, { onAbsent: dropAtOnce }),
      ];
      return () => {
        for (const one of undo) one();
      };
    },
    schedule: { faults: ["lie"], lies: ["head"] },
  },
  {
    name: "M2: a lying state of one endpoint ends calls",
    put: () =>
      replace(Endpoints.prototype, {
        confirm: async (_: never, head: never) => head,
        values: ownValues,
      }),
    schedule: { faults: ["lie"], lies: ["nonce"], endpoints: 2 },
    firstSeed: 6,
  },
  {
    name: "M3: the last finalized block is forgotten at a restart",
    put: () => replaceAnchor(() => null),
    schedule: { faults: ["freeze", "kill"], endpoints: 2 },
    firstSeed: 32,
  },
  {
    name: "M4: what no node took is dropped when its era is over",
    put: () => replace(SubmissionPool.prototype, { onAbsent: dropAtOnce }),
    schedule: { faults: ["stall"] },
    firstSeed: 3,
  },
  {
    name: "M5: what a node bans is dropped when its era is over",
    put: () => replace(SubmissionPool.prototype, { onAbsent: dropAtOnce }),
    schedule: { faults: ["ban"], endpoints: 1 },
    firstSeed: 2,
  },
  {
    name: "M6: what can still enter is forgotten when another one is signed",
    put: () =>
      replace(SubmissionPool.prototype, {
        reconsider(this: SubmissionPool, entry: Entry, head: { readonly nonce: number }) {
          const nonce = entry.nonce === null ? null : this.freeNonce(head.nonce);
          if (nonce !== null)
            methodOf<(entry: Entry, nonce: number) => void>(this, "moveTo").call(
              this,
              entry,
              nonce,
            );
          methodOf<(entry: Entry, state: Entry["state"]) => void>(this, "move").call(
            this,
            entry,
            "signing",
          );
          return [{ do: "sign", entry, nonce }];
        },
      }),
    schedule: { faults: ["down"], endpoints: 1 },
    firstSeed: 2,
  },
  {
    name: "what a block holds has failed, though the state shows it",
    put: () => replace(ChainReader.prototype, { showsEffect: async () => false }),
    schedule: { faults: ["down"], endpoints: 1 },
  },
  {
    name: "one node alone gets the calls, and its pool fails for good",
    put: () => replace(Endpoints.prototype, { submit: submitToOne }),
    schedule: { faults: ["ill pool"], endpoints: 2 },
  },
];

const isCleanIn = async ({ schedule }: Canary, seed: number): Promise<boolean> =>
  isClean(await runSchedule(seed, { ...schedule, calls: 40, endMs: 75 * 60_000 }));

/** The first seed of at most 60 whose schedule finds something; `null` when none does. */
async function findingSeed(canary: Canary): Promise<number | null> {
  const first = canary.firstSeed ?? 1;
  for (let seed = first; seed < first + 60; seed++)
    if (!(await isCleanIn(canary, seed))) return seed;
  return null;
}

describe("a schedule finds the fault", () => {
  test.each(canaries.map((canary) => [canary.name, canary] as const))("%s", async (_, canary) => {
    const undo = canary.put();
    let found: number | null;
    try {
      found = await findingSeed(canary);
    } finally {
      undo();
    }
    expect(found).not.toBeNull();
    // Nothing but the fault is found: without it the same schedule is clean.
    expect(await isCleanIn(canary, found as number)).toBe(true);
  });
});
