/** How long a message lives: to its last millisecond, and never beyond 30 days. */
import { expect, test } from "bun:test";
import { decideLife } from "../../../../src/client/trust/life.ts";
import { dayMs, hourMs } from "../../../../src/core/codec/time.ts";

const sentMs = Date.UTC(2026, 10, 28);

test("a message lives through the last millisecond of its time, and is over in the next", () => {
  const at = (nowMs: number) => decideLife({ sentMs, ttlMs: hourMs, nowMs }).isOver;
  expect([at(sentMs), at(sentMs + hourMs), at(sentMs + hourMs + 1)]).toEqual([false, false, true]);
});

test("no message lives for more than 30 days, and its name is remembered for three more", () => {
  const nowMs = sentMs + 30 * dayMs;
  const seenUntilMs = nowMs + 3 * dayMs;
  const long = { sentMs, ttlMs: 90 * dayMs };
  expect(decideLife({ ...long, nowMs })).toEqual({ isOver: false, seenUntilMs });
  expect(decideLife({ ...long, nowMs: nowMs + 1 })).toEqual({ isOver: true, seenUntilMs });
});
