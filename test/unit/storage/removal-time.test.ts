/** Until when records may be removed and claims forgotten, with clocks that jump. */
import { expect, test } from "bun:test";
import { hourMs, minuteMs, secondMs } from "../../../src/core/codec/time.ts";
import { RemovalTime } from "../../../src/storage/removal-time.ts";

const startMs = 1_800_000_000_000;

/** Both clocks; `pass` lets both go on, with a look every two seconds. */
function clocks(lastMs: number | null = startMs) {
  const at = { wallMs: startMs, uptimeMs: 77 };
  const removal = new RemovalTime({ now: () => at.wallMs, uptimeMs: () => at.uptimeMs });
  removal.begin(lastMs);
  const pass = (ms: number) => {
    for (let passed = 0; passed < ms; passed += 2 * secondMs) {
      at.wallMs += 2 * secondMs;
      at.uptimeMs += 2 * secondMs;
      removal.look();
    }
  };
  return { at, removal, pass };
}

test("before it has begun nothing may be removed", () => {
  const removal = new RemovalTime({ now: () => startMs, uptimeMs: () => 0 });
  expect([removal.recordsMs(), removal.claimsMs()]).toEqual([0, 0]);
});

test("clocks that go alike count at once for records, and for claims ten minutes after the start", () => {
  const { at, removal, pass } = clocks();
  expect([removal.recordsMs(), removal.claimsMs(), removal.look()]).toEqual([startMs, 0, null]);
  pass(10 * minuteMs - 2 * secondMs);
  expect([removal.recordsMs(), removal.claimsMs()]).toEqual([at.wallMs, 0]);
  pass(2 * secondMs);
  expect(removal.claimsMs()).toBe(at.wallMs);
});

test("a jump of days is waited for an hour, and reported; when it goes back, nothing was removed", () => {
  const { at, removal, pass } = clocks();
  pass(20 * minuteMs);
  at.wallMs += 72 * hourMs;
  const trueMs = () => at.wallMs - 72 * hourMs;
  // Also before the next look.
  expect(removal.recordsMs()).toBe(trueMs());
  pass(hourMs - 2 * secondMs);
  expect([removal.recordsMs(), removal.claimsMs()]).toEqual([trueMs(), trueMs()]);
  expect(removal.look()).toEqual({ aheadMs: 72 * hourMs, isOfStart: false });
  at.wallMs -= 72 * hourMs;
  expect([removal.look(), removal.recordsMs()]).toEqual([null, at.wallMs]);
});

test("a jump that has lasted for an hour counts, for claims ten minutes later", () => {
  const { at, removal, pass } = clocks();
  at.wallMs += 72 * hourMs;
  pass(hourMs + 2 * secondMs);
  expect([removal.look(), removal.recordsMs()]).toEqual([null, at.wallMs]);
  expect(removal.claimsMs()).toBe(at.wallMs - 72 * hourMs);
  pass(10 * minuteMs);
  expect(removal.claimsMs()).toBe(at.wallMs);
});

test("a second jump is waited for anew", () => {
  const { at, removal, pass } = clocks();
  at.wallMs += hourMs;
  pass(50 * minuteMs);
  at.wallMs += hourMs;
  pass(50 * minuteMs);
  expect(removal.recordsMs()).toBe(at.wallMs - 2 * hourMs);
  pass(10 * minuteMs + 2 * secondMs);
  expect(removal.recordsMs()).toBe(at.wallMs);
});

test("a jump of five minutes counts at once for records, after ten minutes for claims, and back at once for both", () => {
  const { at, removal, pass } = clocks();
  pass(10 * minuteMs);
  at.wallMs += 5 * minuteMs;
  pass(10 * minuteMs - 2 * secondMs);
  expect([removal.look(), removal.recordsMs()]).toEqual([null, at.wallMs]);
  expect(removal.claimsMs()).toBe(at.wallMs - 5 * minuteMs);
  pass(4 * secondMs);
  expect(removal.claimsMs()).toBe(at.wallMs);
  at.wallMs -= 5 * minuteMs;
  // Never ahead of the wall clock, not even before the next look.
  expect([removal.recordsMs(), removal.claimsMs()]).toEqual([at.wallMs, at.wallMs]);
});

test("between two runs a jump is waited for too, and a clock that went back is not", () => {
  const late = clocks(startMs - 6 * minuteMs);
  expect(late.removal.recordsMs()).toBe(startMs - 6 * minuteMs);
  expect(late.removal.look()).toEqual({ aheadMs: 6 * minuteMs, isOfStart: true });
  late.pass(hourMs);
  expect(late.removal.recordsMs()).toBe(late.at.wallMs);
  for (const lastMs of [null, startMs - 5 * minuteMs, startMs + 72 * hourMs]) {
    const { removal } = clocks(lastMs);
    expect([lastMs, removal.look(), removal.recordsMs()]).toEqual([lastMs, null, startMs]);
  }
});
