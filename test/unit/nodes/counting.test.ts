/** Token buckets (rates, bursts, clocks that step back, bounded tables), and limits that several threads count together. */
import { expect, test } from "bun:test";
import fc from "fast-check";
import { clientNetwork } from "../../../src/core/message/address.ts";
import { createCountingMemory, ownCounting, rateKeysMax, sharedCounting } from "../../../src/nodes/counting.ts";

test("a burst passes, then the rate holds, and the wait that is named is enough", () => {
  const limiter = ownCounting.limiter("relay clients", { perSecond: 50, burst: 200, keysMax: 10 });
  for (let i = 0; i < 200; i++) expect(limiter.claim("a", 1_000)).toBe(0);
  const waitMs = limiter.claim("a", 1_000);
  expect(waitMs).toBe(20);
  expect(limiter.claim("a", 1_000 + waitMs - 1)).toBeGreaterThan(0);
  expect(limiter.claim("a", 1_000 + waitMs)).toBe(0);
  expect(limiter.claim("b", 1_000)).toBe(0);
});

test("a clock that steps back takes nothing away", () => {
  const limiter = ownCounting.limiter("relay clients", { perSecond: 10, burst: 10, keysMax: 10 });
  expect(limiter.claim("a", 100_000)).toBe(0);
  for (let i = 0; i < 9; i++) expect(limiter.claim("a", 1_000)).toBe(0);
  expect(limiter.claim("a", 1_000)).toBe(100);
});

test("over any stretch of time no more passes than burst plus rate", () => {
  const steps = fc.array(fc.integer({ min: -50, max: 200 }), { minLength: 1, maxLength: 300 });
  fc.assert(
    fc.property(
      steps,
      fc.integer({ min: 1, max: 100 }),
      fc.integer({ min: 1, max: 50 }),
      (deltas, perSecond, burst) => {
        const limiter = ownCounting.limiter("relay clients", { perSecond, burst, keysMax: 4 });
        let nowMs = 1_000_000;
        let forwardMs = 0;
        let passed = 0;
        for (const delta of deltas) {
          nowMs += delta;
          forwardMs += Math.max(0, delta);
          if (limiter.claim("k", nowMs) === 0) passed++;
        }
        expect(passed).toBeLessThanOrEqual(burst + (forwardMs * perSecond) / 1_000 + 1e-6);
      },
    ),
    { numRuns: 200 },
  );
});

test("the table stays bounded and forgets the key used longest ago", () => {
  const limiter = ownCounting.limiter("relay clients", { perSecond: 1, burst: 1, keysMax: 100 });
  expect(limiter.claim("kept", 0)).toBe(0);
  for (let i = 0; i < 1_000; i++) {
    limiter.claim(`other${i}`, 0);
    expect(limiter.claim("kept", 0)).toBeGreaterThan(0);
  }
  expect(limiter.size).toBe(100);
});

test("clients are counted by IPv4 address or by IPv6 /64", () => {
  expect(clientNetwork("::ffff:1.2.3.4")).toBe(clientNetwork("1.2.3.4"));
  expect(clientNetwork("1.2.3.4")).not.toBe(clientNetwork("1.2.3.5"));
  expect(clientNetwork("2a00:1:2:3::1")).toBe(clientNetwork("2a00:1:2:3:ffff::9"));
  expect(clientNetwork("2a00:1:2:3::1")).not.toBe(clientNetwork("2a00:1:2:4::1"));
  expect(clientNetwork("unix")).toBe("unix");
});

const limit = { perSecond: 10, burst: 5, keysMax: 100 };
const twoEnds = () => {
  const memory = createCountingMemory();
  return [sharedCounting(memory), sharedCounting(memory)] as const;
};

test("a rate is one rate for all threads, and waits as long as within one thread", () => {
  const [here, there] = twoEnds().map((end) => end.limiter("relay clients", limit));
  const alone = ownCounting.limiter("relay clients", limit);
  const claims = [0, 0, 0, 0, 0, 0, 40, 100, 350, 350, 350, 340, 900].map((nowMs, i) => ({ nowMs, i }));
  const shared = claims.map(({ nowMs, i }) => (i % 2 === 0 ? here : there)?.claim("10.0.0.0/24", nowMs));
  expect(shared).toEqual(claims.map(({ nowMs }) => alone.claim("10.0.0.0/24", nowMs)));
  expect(shared.slice(0, 6).map((wait) => wait === 0)).toEqual([true, true, true, true, true, false]);
  expect(here?.claim("10.0.1.0/24", 0)).toBe(0);
  expect([here?.size, there?.size]).toEqual([2, 2]);
});

test("limits of different names know nothing of each other", () => {
  const [here, there] = twoEnds();
  const once = { ...limit, burst: 1 };
  expect(here.limiter("relay clients", once).claim("a", 0)).toBe(0);
  expect(there.limiter("cache clients", once).claim("a", 0)).toBe(0);
  expect(there.limiter("relay clients", once).claim("a", 0)).toBeGreaterThan(0);
});

test("a budget is one budget: the whole, and the half of a client", () => {
  const [here, there] = twoEnds().map((end) => end.share("public bodies", 10));
  expect(here?.take("a", 3)).toBe(true);
  expect(there?.take("a", 3)).toBe(false);
  expect(there?.take("a", 2)).toBe(true);
  expect(here?.hasRoom("a")).toBe(false);
  expect(here?.take("b", 5)).toBe(true);
  expect(there?.take("c", 1)).toBe(false);
  expect([here?.total, there?.total]).toEqual([10, 10]);
  there?.give("a", 5);
  there?.give("b", 5);
  expect(here?.total).toBe(0);
  expect(here?.take("a", 5)).toBe(true);
});

test("one amount larger than the whole is admitted when nothing else is held, in any thread", () => {
  const [here, there] = twoEnds().map((end) => end.share("public answers", 10, { allowOversizeWhenIdle: true }));
  expect(here?.take("a", 50)).toBe(true);
  expect(there?.take("b", 1)).toBe(false);
  here?.give("a", 50);
  expect(there?.take("b", 50)).toBe(true);
});

test("a message is delivered by one thread at a time", () => {
  const [here, there] = twoEnds().map((end) => end.share("deliveries", Number.POSITIVE_INFINITY, { clientMax: 1 }));
  expect([here?.take("m", 1), there?.take("m", 1), there?.take("n", 1)]).toEqual([true, false, true]);
  here?.give("m", 1);
  expect(there?.take("m", 1)).toBe(true);
});

test("a full table that threads share forgets the key that was used longest ago, and never grows", () => {
  const [here, there] = twoEnds().map((end) => end.limiter("relay clients", { ...limit, burst: 1, perSecond: 1e-6 }));
  // Eight keys share a set of cells; so many keys fill each set several times over.
  const keys = 300_000;
  for (let i = 0; i < keys; i++) if (here?.claim(`key ${i}`, i) !== 0) throw new Error(`key ${i} was refused`);
  expect(here?.size).toBe(rateKeysMax);
  expect(there?.claim("key 0", keys)).toBe(0);
  expect(there?.claim(`key ${keys - 1}`, keys)).toBeGreaterThan(0);
  expect(there?.size).toBe(rateKeysMax);
});
