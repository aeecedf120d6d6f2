/** Token buckets (rates, bursts, clocks that step back, bounded tables). */
import { expect, test } from "bun:test";
import fc from "fast-check";
import { clientNetwork, storingNetwork } from "../../../../src/core/message/address.ts";
import { createRateLimiter, networkPlaces } from "../../../../src/nodes/parties/rates.ts";

test("a burst passes, then the rate holds, and the wait that is named is enough", () => {
  const limiter = createRateLimiter({ perSecond: 50, burst: 200, keysMax: 10 });
  for (let i = 0; i < 200; i++) expect(limiter.claim("a", 1_000)).toBe(0);
  const waitMs = limiter.claim("a", 1_000);
  expect(waitMs).toBe(20);
  expect(limiter.claim("a", 1_000 + waitMs - 1)).toBeGreaterThan(0);
  expect(limiter.claim("a", 1_000 + waitMs)).toBe(0);
  expect(limiter.claim("b", 1_000)).toBe(0);
});

test("a clock that steps back takes nothing away", () => {
  const limiter = createRateLimiter({ perSecond: 10, burst: 10, keysMax: 10 });
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
        const limiter = createRateLimiter({ perSecond, burst, keysMax: 4 });
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
  const limiter = createRateLimiter({ perSecond: 1, burst: 1, keysMax: 100 });
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
  const written = ["1.2.3.4", "2a00:1:2:3::1", "unix"].map((client) =>
    storingNetwork(clientNetwork(client)),
  );
  expect(written).toEqual(["1.2.3.4", "2a00:1:2::/48", "unix"]);
});

test("clients of this machine may have all places, and count in the total", () => {
  const places = networkPlaces(4);
  const take = (...clients: string[]) => clients.map((client) => places.take(client));
  expect(take("192.0.2.1", "192.0.2.1", "192.0.2.1")).toEqual([true, true, false]);
  expect(take("127.0.0.1", "127.0.0.1", "127.0.0.1", "198.51.100.1")).toEqual([
    true,
    true,
    false,
    false,
  ]);
  places.give("192.0.2.1");
  places.give("192.0.2.1");
  expect(take("127.0.0.1", "127.0.0.1", "::1")).toEqual([true, true, false]);
});

test("a wait that is no whole number of milliseconds is rounded up, so that it is enough", () => {
  const limiter = createRateLimiter({ perSecond: 3, burst: 1, keysMax: 10 });
  expect(limiter.claim("a", 1_000)).toBe(0);
  expect(limiter.claim("a", 1_000)).toBe(334);
  expect(limiter.claim("a", 1_333)).toBeGreaterThan(0);
  expect(limiter.claim("a", 1_334)).toBe(0);
});
