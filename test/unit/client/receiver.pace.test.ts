/** Waiting of the SDK: pauses that grow up to a bound, that an abort ends, and a queue that holds so many. */
import { expect, test } from "bun:test";
import { backoffMs, pause } from "../../../src/client/http.ts";
import { Queue } from "../../../src/client/receiver.ts";

test("pauses double with each failure, are random in their upper half, and never exceed 30 seconds", () => {
  for (const [failures, most] of [
    [0, 500],
    [1, 1_000],
    [5, 16_000],
    [6, 30_000],
    [60, 30_000],
  ] as const) {
    for (let i = 0; i < 50; i++) {
      const ms = backoffMs(failures);
      expect([ms >= most / 2, ms <= most]).toEqual([true, true]);
    }
  }
});

test("an abort ends a pause at once, before it and during it", async () => {
  const controller = new AbortController();
  const waiting = pause(60_000, controller.signal);
  controller.abort();
  await waiting;
  await pause(60_000, controller.signal);
  expect(controller.signal.aborted).toBe(true);
});

test("a producer waits while the queue is full, until an item is consumed", async () => {
  const queue = new Queue<number>(2);
  queue.put(1);
  queue.put(2);
  expect(queue.isFull).toBe(true);
  let hasSpace = false;
  const space = queue.space().then(() => {
    hasSpace = true;
  });
  await Promise.resolve();
  expect(hasSpace).toBe(false);
  expect(await queue.take()).toBe(1);
  await space;
  expect([hasSpace, queue.isFull]).toEqual([true, false]);
});

test("a closed queue gives no more items and releases all who wait", async () => {
  const queue = new Queue<number>(1);
  const taker = queue.take();
  queue.close();
  expect([await taker, await queue.take()]).toEqual([null, null]);
  await queue.space();
});
