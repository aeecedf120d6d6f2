/** Timestamps and durations: which texts are read, and as what. */
import { expect, test } from "bun:test";
import { parseDuration, parseTimestamp, renderTimestamp } from "../../../../src/core/codec/time.ts";

test("a timestamp that was rendered is read back", () => {
  const lastMs = Date.parse("9999-12-31T23:59:59.999Z");
  const spread = Array.from({ length: 2_000 }, (_, i) => Math.floor((lastMs / 2_000) * i) + i);
  for (const ms of [0, 1, 999, 86_399_999, 86_400_000, ...spread, lastMs]) {
    expect(parseTimestamp(renderTimestamp(ms))).toBe(ms);
  }
  expect(parseTimestamp("1969-12-31T23:59:59.999Z")).toBeNull();
  expect(parseTimestamp("0026-07-16T12:00:00Z")).toBeNull();
});

test("days that a month lacks are refused, and those it has are read", () => {
  for (const [text, ms] of [
    ["2026-02-28T00:00:00Z", Date.UTC(2026, 1, 28)],
    ["2024-02-29T00:00:00Z", Date.UTC(2024, 1, 29)],
    ["2026-02-29T00:00:00Z", null],
    ["2026-04-30T00:00:00.001Z", Date.UTC(2026, 3, 30, 0, 0, 0, 1)],
    ["2026-04-31T00:00:00Z", null],
    ["2026-12-31T23:59:59.999Z", Date.UTC(2026, 11, 31, 23, 59, 59, 999)],
    ["2026-13-01T00:00:00Z", null],
    ["2026-01-00T00:00:00Z", null],
    ["2026-01-01T24:00:00Z", null],
    ["2026-01-01T00:00:60Z", null],
    ["2026-01-01T00:00:00.00/Z", null],
  ] as const)
    expect([text, parseTimestamp(text)]).toEqual([text, ms]);
});

test("the shortest durations agree with their long forms", () => {
  for (const [short, long] of [
    ["1h", "PT1H"],
    ["99m", "PT99M"],
    ["4w", "P28D"],
    ["30d", "P30D"],
  ] as const)
    expect(parseDuration(short)).toBe(parseDuration(long));
  for (const text of ["0h", "00s", "31d", "5w", "h", "1x", "+1h", " 1h"])
    expect(parseDuration(text)).toBeNull();
});
