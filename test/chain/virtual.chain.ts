/**
 * The driver in the virtual world: whatever nodes, connections and the process do, every call that was answered ends
 * once and truthfully. Here 200 schedules of 40 calls and one of 1,000; `bun run chain:virtual 100000 1000` runs
 * as many as wanted. A seed that finds something is kept in `kept`.
 */
import { describe, expect, test } from "bun:test";
import { firstFaultKinds, isClean, runSchedule, type ScheduleOptions } from "./virtual-schedule.ts";

const tenth = 20;

async function findings(seeds: readonly number[], options: ScheduleOptions): Promise<string[]> {
  const { calls } = options;
  const found: string[] = [];
  for (const seed of seeds) {
    const verdict = await runSchedule(seed, options);
    expect(verdict.accepted).toBeGreaterThan(calls / 2);
    if (!isClean(verdict)) found.push(JSON.stringify({ ...verdict, notes: verdict.notes.slice(0, 5) }));
  }
  return found;
}

describe("no call is lost, doubled, falsely ended or stuck", () => {
  const tenths = Array.from({ length: 10 }, (_, n) => [n * tenth + 1, (n + 1) * tenth] as const);
  test.each(tenths)("in the schedules %d to %d", async (first, last) => {
    const seeds = Array.from({ length: last - first + 1 }, (_, n) => first + n);
    expect(await findings(seeds, { calls: 40 })).toEqual([]);
  });

  test("in schedules of a thousand calls", async () => {
    expect(await findings([5], { calls: 1_000 })).toEqual([]);
  });

  test("where a minority builds a fork of its own, which goes when it comes back", async () => {
    const seeds = Array.from({ length: 20 }, (_, n) => 500 + n);
    expect(await findings(seeds, { calls: 40, faults: ["partition", "kill"], endpoints: 2 })).toEqual([]);
  });

  test("where all nodes stop for a new runtime", async () => {
    const seeds = Array.from({ length: 10 }, (_, n) => 600 + n);
    expect(await findings(seeds, { calls: 40, faults: ["slow upgrade", "kill", "down"] })).toEqual([]);
  });

  /** A lagging second endpoint without the DID yet, an endpoint that bore itself out, a proof that lived twice. */
  const kept = [1099, 1136, 58, 3075];
  test("in the schedules that found something once", async () => {
    expect(await findings(kept, { calls: 100, faults: firstFaultKinds })).toEqual([]);
  });
});
