/**
 * What a new Directory reads of an old chain, in the virtual world: over an upgrade that moved the
 * indices of calls, from nodes that have discarded the states of before, with and without an
 * archive node; from a node that shows other blocks by their numbers; and what a disagreement about
 * one DID costs the others. What can't be read is said. Then the canaries: each takes one rule out
 * of the driver again, and its schedule must find that.
 */
import { describe, expect, test } from "bun:test";
import { Endpoints } from "../../src/plugins/chain/endpoints.ts";
import { History } from "../../src/plugins/chain/history.ts";
import { KeyProofs } from "../../src/plugins/chain/proofs.ts";
import { StoreError } from "../../src/storage/contract.ts";
import { methodOf, type ownValues, replace } from "./virtual-replace.ts";
import { runSchedule, type ScheduleOptions } from "./virtual-schedule.ts";
import { isClean, type Verdict } from "./virtual-verdict.ts";

const minuteMs = 60_000;
const hourMs = 60 * minuteMs;
/**
 * When another Directory begins: the states of the first blocks are gone from nodes that keep 64.
 */
const freshMs = hourMs;
const named = { calls: 3, names: true, callsUntilMs: 2 * minuteMs, lasting: [] } as const;

async function run(options: ScheduleOptions): Promise<Verdict> {
  const verdict = await runSchedule(1, options);
  expect(isClean(verdict) ? [] : verdict.notes.slice(-3)).toEqual([]);
  return verdict;
}

async function during<T>(undo: () => void, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } finally {
    undo();
  }
}

/** Changes before and after the upgrade; then a Directory that has seen none of it. */
const upgraded = (keepsStates: readonly number[]): ScheduleOptions => ({
  ...named,
  endpoints: keepsStates.length,
  keepsStates,
  movedAt: 60,
  freshAtMs: freshMs,
  restMs: freshMs,
});
const archive = Number.POSITIVE_INFINITY;

describe("a new Directory, after an upgrade that moved indices", () => {
  test("has no proofs without the states of before, and says so", async () => {
    const { unprovenAtEnd, lines } = await run(upgraded([64]));
    expect(unprovenAtEnd).toBe(named.calls);
    expect(lines).toBeGreaterThan(0);
  });

  test("has them all when an archive node is among its endpoints", async () => {
    expect((await run(upgraded([64, archive]))).unprovenAtEnd).toBe(0);
  });

  test("would be silent if the newest runtime were taken for that of every block", async () => {
    const undo = replace(History.prototype, { missRuntime: () => {} });
    const { unprovenAtEnd, lines } = await during(undo, () => run(upgraded([64])));
    expect([unprovenAtEnd, lines]).toEqual([named.calls, 0]);
  });

  test("would not have them if the archive node were not asked", async () => {
    const undo = replace(Endpoints.prototype, {
      agreedRuntime(this: Endpoints, hash: string) {
        return this.session()
          .metadataAt(hash)
          .catch(() => null);
      },
    });
    const { unprovenAtEnd } = await during(undo, () => run(upgraded([64, archive])));
    expect(unprovenAtEnd).toBe(named.calls);
  });
});

test("a Directory that was there before the upgrade keeps its proofs", async () => {
  const { freshAtMs: _, ...options } = upgraded([64]);
  expect((await run(options)).unprovenAtEnd).toBe(0);
});

test("a new Directory needs no states of before where no upgrade was", async () => {
  const { movedAt: _, ...options } = upgraded([64]);
  const { unprovenAtEnd, lines } = await run(options);
  expect([unprovenAtEnd, lines]).toEqual([0, 0]);
});

/**
 * The node in use gives the blocks before the upgrade the runtime of after, while a new Directory
 * reads.
 */
const wrongRuntime = (endpoints: number): ScheduleOptions => ({
  ...upgraded(Array.from({ length: endpoints }, () => archive)),
  lasting: [
    {
      node: 0,
      fault: "runtime",
      fromMs: freshMs - minuteMs,
      untilMs: freshMs + 10 * minuteMs,
    },
  ],
});

describe("the runtime of an old block", () => {
  test.each([2, 3])("is that of a second endpoint too, of %i", async (endpoints) => {
    expect((await run(wrongRuntime(endpoints))).unprovenAtEnd).toBe(0);
  });

  test("would hide calls if that of one endpoint were believed", async () => {
    const undo = replace(Endpoints.prototype, {
      agreedRuntime: methodOf(Endpoints.prototype, "runtimeAfter"),
    });
    const { unprovenAtEnd } = await during(undo, () => run(wrongRuntime(2)));
    expect(unprovenAtEnd).toBe(named.calls);
  });
});

/** The node in use shows a chain of its own by numbers, while a new Directory reads. */
const ownNumbers = (endpoints: number): ScheduleOptions => ({
  ...named,
  endpoints,
  freshAtMs: freshMs,
  restMs: freshMs,
  lasting: [
    {
      node: 0,
      fault: "numbers",
      fromMs: freshMs - minuteMs,
      untilMs: freshMs + 10 * minuteMs,
    },
  ],
});

describe("blocks that a node shows by their numbers", () => {
  test.each([1, 2, 3])("lead to the head, with %i endpoints", async (endpoints) => {
    expect((await run(ownNumbers(endpoints))).unprovenAtEnd).toBe(0);
  });

  test("would hide calls if they did not have to", async () => {
    const undo = replace(KeyProofs.prototype, { isOnChain: async () => true });
    const { unprovenAtEnd } = await during(undo, () => run(ownNumbers(1)));
    expect(unprovenAtEnd).toBe(named.calls);
  });
});

/** One of two endpoints lies about the registration of one DID, for two hours. */
const oneExpiry: ScheduleOptions = {
  ...named,
  endpoints: 2,
  lasting: [{ node: 1, fault: "expiry", fromMs: 1_000, untilMs: 2 * hourMs }],
};

/** The calls that ended before the lie did. */
const endedMeanwhile = ({ waits }: Verdict): number =>
  waits.filter(({ atMs, waitMs }) => atMs + waitMs < 2 * hourMs).length;

describe("a disagreement of two endpoints about one DID", () => {
  test("stops the proofs of no other one, and ends with the lie", async () => {
    const verdict = await run(oneExpiry);
    expect(verdict.unprovenAtEnd).toBe(0);
    // Each of the other two makes six.
    expect(endedMeanwhile(verdict)).toBe(12);
  });

  test("would stop all of them if it were taken for a missing answer", async () => {
    const values = methodOf<typeof ownValues>(Endpoints.prototype, "values");
    const undo = replace(Endpoints.prototype, {
      values(this: Endpoints, keys: readonly Uint8Array[], of: { hash: string }) {
        return values.call(this, keys, of).catch((error: Error) => {
          throw new StoreError("unavailable", error.message);
        });
      },
    });
    expect(endedMeanwhile(await during(undo, () => run(oneExpiry)))).toBeLessThan(6);
  });
});
