/**
 * Key proofs in the virtual world: after each change a self-certifying DID has the proof that leads
 * to its record, though the driver is killed between blocks, away while DIDs change, or on nodes
 * that have discarded what it needs. What no endpoint has any more is `null` and never wrong, and
 * an archive node fills it.
 */
import { describe, expect, test } from "bun:test";
import { ChainSession } from "../../src/plugins/chain/session.ts";
import { times } from "../support/whole.ts";
import { methodOf, replace } from "./virtual-replace.ts";
import { runSchedule, type ScheduleOptions } from "./virtual-schedule.ts";
import { isClean, type Verdict } from "./virtual-verdict.ts";

const minuteMs = 60_000;
const calls = 12;
/** Away for forty minutes, in which others would change these DIDs. */
const away = { atMs: 8 * minuteMs, awayMs: 40 * minuteMs };

async function run(options: Omit<ScheduleOptions, "calls" | "names">, seed = 1): Promise<Verdict> {
  const verdict = await runSchedule(seed, { calls, names: true, ...options });
  expect(isClean(verdict) ? [] : verdict.notes.slice(-3)).toEqual([]);
  return verdict;
}

/** The first seed in which a block that is gone had a change; `null` when none has one. */
async function seedWithLoss(
  options: Omit<ScheduleOptions, "calls" | "names">,
): Promise<number | null> {
  for (let seed = 1; seed <= 12; seed++)
    if ((await run(options, seed)).unprovenAtEnd > 0) return seed;
  return null;
}

describe("a self-certifying DID on a chain", () => {
  test("has the proof of its record, whatever nodes and the process do", async () => {
    for (let seed = 1; seed <= times(3, 6); seed++) {
      const { proven, unproven } = await run({}, seed);
      expect(proven).toBeGreaterThan(calls);
      expect(unproven).toBe(0);
    }
  });

  test("costs no second look at a block, whose calls of ours end meanwhile", async () => {
    const asked = new Map<string, number>();
    const block = methodOf<(hash: string) => Promise<unknown>>(ChainSession.prototype, "block");
    const undo = replace(ChainSession.prototype, {
      block(this: ChainSession, hash: string) {
        asked.set(hash, (asked.get(hash) ?? 0) + 1);
        return block.call(this, hash);
      },
    });
    try {
      const { proven } = await run({ endpoints: 2, lasting: [] });
      expect(proven).toBeGreaterThan(calls);
    } finally {
      undo();
    }
    expect([...asked.values()].filter((times) => times > 1)).toEqual([]);
    expect(asked.size).toBeGreaterThan(100);
  });

  test("has it after a kill of which blocks, but no states, are left", async () => {
    const { unproven } = await run({ endpoints: 1, lasting: [], kill: away });
    expect(unproven).toBe(0);
  });

  test("has none where no endpoint has its blocks any more, and never a wrong one", async () => {
    const options = { endpoints: 2, lasting: [], kill: away, keepsBodies: [30, 30, 30] };
    expect(await seedWithLoss(options)).not.toBeNull();
  });

  test("has it when an archive node is among the endpoints", async () => {
    const { unproven } = await run({ endpoints: 2, lasting: [], kill: away, keepsBodies: [30] });
    expect(unproven).toBe(0);
  });

  test("has it again when an archive node comes back, which makes blocks be read twice", async () => {
    const late = {
      endpoints: 2,
      lasting: [],
      kill: away,
      keepsBodies: [30],
      restMs: 80 * minuteMs,
    } as const;
    const untilEnd = { node: 1, fromMs: 8 * minuteMs, untilMs: 24 * 60 * minuteMs };
    const seed = (await seedWithLoss({ ...late, outage: untilEnd })) as number;
    expect(seed).not.toBeNull();
    const { unprovenAtEnd } = await run(
      { ...late, outage: { ...untilEnd, untilMs: 60 * minuteMs } },
      seed,
    );
    expect(unprovenAtEnd).toBe(0);
  });
});
