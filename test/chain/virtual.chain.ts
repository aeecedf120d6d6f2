/**
 * The driver in the virtual world: whatever nodes, connections and the process do, every call that
 * was answered ends once and truthfully. Here ten schedules of 100 calls, and 79 and one of 1,000
 * with `WAYPOST_TEST_WHOLE=1`; `bun run chain:virtual 100000 1000` runs as many as wanted, a second
 * of a processor for 400 calls. A seed that finds something is kept in `kept`.
 */
import { describe, expect, test } from "bun:test";
import { times } from "../support/whole.ts";
import { firstFaultKinds, runSchedule, type ScheduleOptions } from "./virtual-schedule.ts";
import { isClean } from "./virtual-verdict.ts";

/** 64 blocks. */
const lifeMs = 384_000;
const groups = times(2, 16);
const groupSize = 5;

async function findings(seeds: readonly number[], options: ScheduleOptions): Promise<string[]> {
  const { calls } = options;
  const found: string[] = [];
  for (const seed of seeds) {
    const verdict = await runSchedule(seed, options);
    expect(verdict.accepted).toBeGreaterThan(calls / 2);
    if (!isClean(verdict))
      found.push(JSON.stringify({ ...verdict, notes: verdict.notes.slice(0, 5) }));
  }
  return found;
}

describe("no call is lost, doubled, falsely ended or stuck", () => {
  test.each(Array.from({ length: groups }, (_, n) => n * groupSize + 1))(
    "in five schedules from %d on",
    async (first) => {
      const seeds = Array.from({ length: groupSize - 1 }, (_, n) => first + n);
      expect(await findings(seeds, { calls: 100 })).toEqual([]);
      const calls = first === 1 ? times(100, 1_000) : 100;
      expect(await findings([first + groupSize - 1], { calls })).toEqual([]);
    },
  );

  test("where a minority builds a fork of its own, which is dropped when it rejoins", async () => {
    const seeds = Array.from({ length: times(5, 20) }, (_, n) => 500 + n);
    expect(
      await findings(seeds, { calls: 40, faults: ["partition", "kill"], endpoints: 2 }),
    ).toEqual([]);
  });

  test("where all nodes stop for a new runtime", async () => {
    const seeds = Array.from({ length: times(3, 10) }, (_, n) => 600 + n);
    expect(await findings(seeds, { calls: 40, faults: ["slow upgrade", "kill", "down"] })).toEqual(
      [],
    );
  });

  test("and none waits for the end of its life, because its node banned it or has a new runtime", async () => {
    for (const fault of ["ban", "upgrade"] as const) {
      for (let seed = 1; seed <= times(3, 6); seed++) {
        const { waits } = await runSchedule(seed, { calls: 40, endpoints: 1, faults: [fault] });
        expect(Math.max(...waits.map(({ waitMs }) => waitMs))).toBeLessThan(lifeMs);
      }
    }
  });

  /**
   * A lagging second endpoint without the DID yet, an endpoint that bore itself out, a proof that
   * lived twice.
   */
  const kept = [1099, 1136, 58, 3075];
  test("in the schedules that found something once", async () => {
    for (const seed of kept)
      expect(
        await findings([seed], {
          calls: 100,
          faults: firstFaultKinds,
          scheme: (seed & 1) as 0 | 1,
        }),
      ).toEqual([]);
    // The only node stands still for a life of the calls that it has, and is back.
    expect(await findings([40024], { calls: 100 })).toEqual([]);
    // The only node's pool is full of calls that wait for the one which it lost.
    expect(await findings([15], { calls: 1_000 })).toEqual([]);
  });
});
