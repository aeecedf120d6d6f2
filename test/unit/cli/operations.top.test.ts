/** The picture of `waypost top`: figures, plots and checks as lines that fit the terminal. */
import { describe, expect, test } from "bun:test";
import { renderTop } from "../../../src/cli/operations.ts";

const status = {
  version: "9.9.9",
  roles: ["relay", "cache"],
  started_at_ms: Date.now() - 3 * 3_600_000 - 125_000,
  ready: true,
  samples: [
    { requests: 10, p99: 0.004, entries: 12_345, residentBytes: 1_048_576 },
    { requests: 20, p99: 2.5, entries: 12_345, residentBytes: 2_097_152 },
  ],
  checks: [
    { name: "store main", ok: true },
    { name: "relay recipients", ok: false },
  ],
  facts: [{ name: "disk of main", value: "3.0 GiB free" }],
  warnings: [{ atMs: 0, level: "warn", message: "a store \u001b[31mfailed" }],
};

describe("renderTop", () => {
  const lines = renderTop(status, 80).split("\n");
  const line = (start: string): string => lines.find((one) => one.startsWith(start)) ?? "";

  test("names version, roles, readiness and age", () => {
    expect(lines[0]).toBe("waypost 9.9.9  relay, cache  ready  up 3 h 2 min");
    expect(renderTop({ ...status, ready: false }, 80)).toContain("NOT READY");
  });

  test("shows the last value of each figure in its unit, and its course", () => {
    expect(line("requests")).toBe(`requests${" ".repeat(20)}20/s  ▅█`);
    expect(line("latency p99")).toMatch(/ 2\.5 s {2}▁█$/);
    expect(line("envelopes waiting")).toContain("12.3 k");
    expect(line("memory")).toContain("2.0 MiB");
    expect(line("live sessions")).toMatch(/ – {2}/);
  });

  test("shows checks, stores and the latest warnings, and no control characters", () => {
    expect(lines).toContain("  FAIL  relay recipients");
    expect(lines).toContain("  disk of main          3.0 GiB free");
    expect(line("  1970-01-01")).toBe("  1970-01-01T00:00:00.000Z  warn  a store \ufffd[31mfailed");
  });

  test("keeps to the width, and says when there are no figures yet", () => {
    const narrow = renderTop(status, 40).split("\n");
    expect(Math.max(...narrow.map((one) => one.length))).toBeLessThanOrEqual(40);
    expect(renderTop({ ...status, samples: [] }, 80)).toContain("ten seconds after the start");
  });
});

test("a plot is one bar a value; the largest is full and a gap is empty", () => {
  const plotOf = (requests: readonly (number | null)[]) => {
    const text = renderTop({ ...status, samples: requests.map((one) => ({ requests: one })) }, 80);
    return text
      .split("\n")
      .find((one) => one.startsWith("requests"))
      ?.slice(34);
  };
  expect(plotOf([0, null, 5, 10])).toBe("▁ ▅█");
  expect(plotOf([0, 0])).toBe("▁▁");
});
