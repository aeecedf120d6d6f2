/**
 * The status page in headless Chromium: it draws what the node did, in light and in dark, on the
 * width of a phone without a scroll bar across, asks nothing of any other host, and says so when
 * the node is gone.
 */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { startTestNodes, type TestNodes } from "../support/nodes.ts";
import { type Browser, chromiumPath, type Page, startChromium } from "./chromium.ts";

if (chromiumPath === null)
  console.log("SKIPPED: the status page in Chromium, which is not on this machine");

describe.skipIf(chromiumPath === null)("the status page", () => {
  let nodes: TestNodes;
  let browser: Browser;
  let page: Page;
  beforeAll(async () => {
    nodes = await startTestNodes();
    browser = await startChromium({ isLight: true });
    for (let i = 0; i < 50; i++) await fetch(`${nodes.url}/limits`);
    page = await browser.heard().open(`${nodes.url}/status`);
    await page.until('document.getElementById("state").textContent === "ready"', "the state");
  }, 60_000);
  afterAll(async () => {
    await browser.close();
    await nodes.stop();
  });

  test("shows every figure as a card with a plot, the checks and the stores", async () => {
    const cards = await page.evaluate(
      '[...document.querySelectorAll(".card .name span:first-child")].map((e) => e.textContent)',
    );
    expect(cards).toEqual([
      "Requests",
      "Latency, median",
      "Envelopes stored",
      "Envelopes relayed",
      "Refusals",
      "Active requests",
      "Live sessions",
      "Envelopes waiting",
      "Bytes waiting",
      "Memory",
      "Processor",
      "Event loop delay",
    ]);
    expect(
      await page.evaluate('document.querySelectorAll(".card svg path").length'),
    ).toBeGreaterThanOrEqual(12);
    expect(await page.evaluate('document.getElementById("checks").innerText')).toContain(
      "store main",
    );
    expect(await page.evaluate('document.getElementById("facts").innerText')).toContain(
      "finalized block of main",
    );
  });

  test("asks nothing of any other host, and breaks no rule of its own policy", async () => {
    const asked = await page.evaluate(
      'performance.getEntriesByType("resource").map((e) => e.name)',
    );
    expect(new Set(asked as string[])).toEqual(
      new Set(["/metrics", "/readyz"].map((path) => nodes.url + path)),
    );
    expect(page.console).toEqual([]);
  });

  describe("its figures", () => {
    const request = (route: string, status: string, value: number) =>
      `waypost_http_requests_total{method="POST",route="${route}",status="${status}"} ${value}`;
    const counted = (store: number, refused: number, failed: number) => [
      request("/cache/store", "202", store),
      request("/cache/store", "429", refused),
      request("/resolve/:did", "500", failed),
    ];
    const latencies = (fast: number, slow: number) =>
      [
        { le: "0.001", value: fast },
        { le: "0.1", value: fast + slow },
        { le: "+Inf", value: fast + slow },
      ].map(
        ({ le, value }) => `waypost_http_request_seconds_bucket{route="/a",le="${le}"} ${value}`,
      );
    /** Of two texts of `/metrics`, ten seconds apart. */
    const figures = (before: string[], after: string[]) => {
      const at = (atMs: number, lines: string[]) =>
        `{ atMs: ${atMs}, readings: readingsOf(${JSON.stringify(["# HELP x y", ...lines, ""].join("\n"))}) }`;
      return page.evaluate(`figuresOf(${at(0, before)}, ${at(10_000, after)})`);
    };

    test("are rates per second since the reading before", async () => {
      expect(await figures(counted(100, 0, 0), counted(300, 20, 10))).toMatchObject({
        requests: 23,
        stored: 20,
        refusals: 2,
        serverErrors: 1,
      });
    });

    test("have the quantiles of the requests in between, or null without requests", async () => {
      expect(await figures(latencies(1_000, 0), latencies(1_060, 40))).toMatchObject({
        p50: 0.001,
        p99: 0.1,
      });
      expect(await figures(latencies(1_060, 40), latencies(1_060, 40))).toMatchObject({
        p50: null,
        p99: null,
      });
    });

    test("are never negative when a counter begins again", async () => {
      expect(await figures(counted(100, 0, 0), counted(5, 0, 0))).toMatchObject({ stored: 0 });
    });
  });

  test("keeps an hour and no more", async () => {
    const samples = () => page.evaluate("samples.length");
    // All but the last of them as one that it took, since each refreshing draws twelve plots.
    await page.evaluate("while (samples.length < 355) samples.push(samples.at(-1))");
    await page.evaluate("(async () => { for (let i = 0; i < 10; i++) await refresh(); })()");
    expect(await samples()).toBe(360);
    expect(await page.evaluate('document.getElementById("state").textContent')).toBe("ready");
  }, 60_000);

  test("follows the light and the dark of the system", async () => {
    const background = () => page.evaluate("getComputedStyle(document.body).backgroundColor");
    await page.call("Emulation.setEmulatedMedia", {
      features: [{ name: "prefers-color-scheme", value: "light" }],
    });
    expect(await background()).toBe("rgb(246, 247, 249)");
    await page.call("Emulation.setEmulatedMedia", {
      features: [{ name: "prefers-color-scheme", value: "dark" }],
    });
    expect(await background()).toBe("rgb(16, 18, 22)");
  });

  test("fits the width of a phone", async () => {
    const metrics = { width: 360, height: 740, deviceScaleFactor: 2, mobile: true };
    await page.call("Emulation.setDeviceMetricsOverride", metrics);
    const widths = (await page.evaluate(
      "[document.documentElement.scrollWidth, window.innerWidth]",
    )) as number[];
    expect(widths[0]).toBeLessThanOrEqual(widths[1] ?? 0);
    await page.call("Emulation.clearDeviceMetricsOverride", {});
  });

  test("says that the node does not answer when the network is gone", async () => {
    await page.setOffline(true);
    await page.until(
      'document.getElementById("state").textContent === "does not answer"',
      "the end",
    );
  }, 120_000);
});
