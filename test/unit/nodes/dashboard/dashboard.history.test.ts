/** The history behind the status page: rates, quantiles and bounds, computed from the numbers of /metrics. */
import { describe, expect, test } from "bun:test";
import { createHistory } from "../../../../src/nodes/dashboard/dashboard.ts";
import type { Reading } from "../../../../src/nodes/http/metrics.ts";

function scene() {
  let nowMs = 1_000_000;
  let readings: Reading[] = [];
  const history = createHistory(
    async () => readings,
    () => nowMs,
  );
  const step = async (metrics: Reading[], ms = 10_000): Promise<void> => {
    nowMs += ms;
    readings = metrics;
    await history.sample();
  };
  return { history, step };
}

const requests = (method: string, route: string, status: string, value: number): Reading => ({
  name: "http_requests_total",
  labels: { method, route, status },
  value,
});

const counters = (store: number, refused: number, failed: number): Reading[] => [
  requests("POST", "/cache/store", "202", store),
  requests("POST", "/cache/store", "429", refused),
  requests("GET", "/resolve/:did", "500", failed),
];

const latencies = (fast: number, slow: number): Reading[] =>
  [
    { le: "0.001", value: fast },
    { le: "0.1", value: fast + slow },
    { le: "+Inf", value: fast + slow },
  ].map(({ le, value }) => ({ name: "http_request_seconds_bucket", labels: { route: "/a", le }, value }));

describe("a sample", () => {
  test("holds rates per second since the sample before", async () => {
    const { history, step } = scene();
    await step(counters(100, 0, 0));
    expect(history.samples()).toEqual([]);
    await step(counters(300, 20, 10));
    expect(history.samples()[0]).toMatchObject({ requests: 23, stored: 20, refusals: 2, serverErrors: 1 });
  });

  test("holds the quantiles of the requests in between, or null without requests", async () => {
    const { history, step } = scene();
    await step(latencies(1_000, 0));
    await step(latencies(1_060, 40));
    await step(latencies(1_060, 40));
    const [busy, idle] = history.samples();
    expect([busy?.p50, busy?.p99, idle?.p50, idle?.p99]).toEqual([0.001, 0.1, null, null]);
  });

  test("never shows a negative rate when a counter begins again", async () => {
    const { history, step } = scene();
    await step(counters(100, 0, 0));
    await step(counters(5, 0, 0));
    expect(history.samples()[0]?.stored).toBe(0);
  });
});

test("the history holds one hour and no more", async () => {
  const { history, step } = scene();
  for (let i = 0; i < 365; i++) await step(counters(i, 0, 0));
  expect(history.samples().length).toBe(360);
});

test("warnings are remembered without their fields, and everything is logged", () => {
  const { history } = scene();
  const lines: string[] = [];
  const log = history.watch((level, message) => lines.push(`${level} ${message}`));
  log("info", "a request", { did: "did:svc:x" });
  log("warn", "the disk is nearly full", { path: "/secret" });
  for (let i = 0; i < 60; i++) log("error", `failure ${i}`);
  expect(lines.length).toBe(62);
  expect(history.warnings().length).toBe(50);
  expect(JSON.stringify(history.warnings())).not.toContain("secret");
});
