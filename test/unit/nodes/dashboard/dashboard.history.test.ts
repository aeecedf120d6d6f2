/** The history behind the status page: rates, quantiles and bounds, computed from the text of /metrics. */
import { describe, expect, test } from "bun:test";
import { createHistory } from "../../../../src/nodes/dashboard/dashboard.ts";

function scene() {
  let nowMs = 1_000_000;
  let text = "";
  const history = createHistory({ readMetrics: async () => text, now: () => nowMs, loopLagSeconds: () => 0.002 });
  const step = async (metrics: string, ms = 10_000): Promise<void> => {
    nowMs += ms;
    text = metrics;
    await history.sample();
  };
  return { history, step };
}

const counters = (store: number, refused: number, failed: number): string => `
waypost_http_requests_total{method="POST",route="/cache/store",status="202"} ${store}
waypost_http_requests_total{method="POST",route="/cache/store",status="429"} ${refused}
waypost_http_requests_total{method="GET",route="/resolve/:did",status="500"} ${failed}
`;

const latencies = (fast: number, slow: number): string => `
waypost_http_request_seconds_bucket{route="/a",le="0.001"} ${fast}
waypost_http_request_seconds_bucket{route="/a",le="0.1"} ${fast + slow}
waypost_http_request_seconds_bucket{route="/a",le="+Inf"} ${fast + slow}
`;

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

  test("counts series whose labels have escaped quotes", async () => {
    const { history, step } = scene();
    const labels = String.raw`method="GET",route="/say \"hi\"",status="500"`;
    await step(`# HELP x y\nwaypost_http_requests_total{${labels}} 100\n`);
    await step(`# HELP x y\nwaypost_http_requests_total{${labels}} 120\n`);
    expect(history.samples()[0]).toMatchObject({ requests: 2, serverErrors: 2 });
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
