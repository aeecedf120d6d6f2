/**
 * Nodes and a Chromium around the tests of a file, which are skipped where there is none, and
 * people whom several have.
 */
import { afterAll, afterEach, beforeAll, test } from "bun:test";
import type { TestNodes } from "../support/nodes.ts";
import { twoPeople } from "./app-page.ts";
import type { Place } from "./app-place.ts";
import { type Browser, chromiumPath, startChromium } from "./chromium.ts";

export const appTest = test.skipIf(chromiumPath === null);

/** What is there while the tests run. One that restarts the nodes puts the new ones here. */
export type Suite = Place & {
  nodes: TestNodes;
  readonly browser: Browser;
  /** Profiles that the end of a test leaves as they are. */
  readonly staying: Set<string>;
};

type SuiteOptions = {
  /** Of Chromium. */
  readonly flags?: readonly string[];
  /**
   * The worker that keeps the app is not what is tried: pages go without it, but for those of
   * `withWorkers`. Its installation takes a quarter of the processor time of a person that begins.
   */
  readonly isWithoutWorker?: boolean;
};

export function appSuite(
  place: Place,
  { flags = [], isWithoutWorker = false }: SuiteOptions = {},
): Suite {
  if (chromiumPath === null)
    console.log("SKIPPED: the chat app in Chromium, which is not on this machine");
  const staying = new Set<string>();
  const suite: Partial<Suite> & Place = { ...place, staying };
  beforeAll(async () => {
    if (chromiumPath === null) return;
    const [nodes, browser] = await Promise.all([
      place.start(),
      startChromium({ flags, isLight: true, isWithoutWorker }),
    ]);
    Object.assign(suite, { nodes, browser });
  }, 120_000);
  // The people of a test don't stay for the next: their pages would go on asking the nodes.
  afterEach(() => suite.browser?.endProfiles(staying));
  afterAll(async () => {
    await suite.browser?.close();
    await suite.nodes?.stop();
    place.remove();
  });
  return suite as Suite;
}

type Two = Awaited<ReturnType<typeof twoPeople>>;

/**
 * Two people who have met, for tests that begin where another has ended: their pages, keys and
 * meeting take more processor time than what most tests do. Those of a test that fails end with it,
 * and the next one begins with new ones.
 */
export function sharedPeople(
  suite: Suite,
  names: readonly [string, string],
): (work: (two: Two) => Promise<void>) => Promise<void> {
  let met: Two | null = null;
  return async (work) => {
    const before = met;
    met = null;
    suite.staying.clear();
    const two = before ?? (await twoPeople(suite.browser, suite.app, names, suite.scratch));
    await work(two);
    met = two;
    for (const { profile } of [two.alice, two.bob]) suite.staying.add(profile);
  };
}

/** A Chromium with windows, which alone shows notifications, for one test. */
export async function inWindows(work: (browser: Browser) => Promise<void>): Promise<void> {
  const browser = await startChromium();
  try {
    await work(browser);
  } finally {
    await browser.close();
  }
}
