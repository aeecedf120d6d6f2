/** Turns: one for each iteration of the event loop, in order, and nothing for who comes alone. */
import { expect, test } from "bun:test";
import { createTurns } from "../../../../src/nodes/http/turns.ts";

const iteration = () => new Promise((resolve) => setImmediate(resolve));

test("whoever comes alone does not wait", async () => {
  const turns = createTurns();
  for (let i = 0; i < 3; i++) {
    expect(turns.take()).toBeUndefined();
    await iteration();
    await iteration();
  }
});

test("of many one goes in each iteration, in the order in which they came", async () => {
  const turns = createTurns();
  const gone: number[] = [];
  const all = [0, 1, 2, 3, 4].map(async (number) => {
    await turns.take();
    gone.push(number);
  });
  const seen: number[] = [];
  while (gone.length < 5) {
    await iteration();
    seen.push(gone.length);
  }
  await Promise.all(all);
  expect(gone).toEqual([0, 1, 2, 3, 4]);
  for (const [i, count] of seen.entries()) expect(count - (seen[i - 1] ?? 1)).toBeLessThanOrEqual(1);
});
