/** The lock of what threads count together, when a thread ends while it has it: another one waits two seconds for it. */
import { expect, test } from "bun:test";
import { createCountingMemory, sharedCounting } from "../../src/nodes/counting.ts";

test("the lock of a thread that was ended while it had it is taken from it", () => {
  const memory = createCountingMemory();
  const share = sharedCounting(memory).share("deliveries", Number.POSITIVE_INFINITY);
  Atomics.store(new Int32Array(memory.deliveries.buffer, 0, 1), 0, 1);
  const startMs = performance.now();
  expect(share.take("m", 1)).toBe(true);
  expect(performance.now() - startMs).toBeGreaterThan(1_900);
  expect([share.take("n", 1), share.total]).toEqual([true, 2]);
}, 120_000);
