/** Waiting of the SDK: pauses that grow up to a bound and that an abort ends. */
import { expect, test } from "bun:test";
import { backoffMs, pause } from "../../../../src/client/base/failure.ts";

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
