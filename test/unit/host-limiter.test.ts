/** Places for outbound requests: bounds per destination and over all, order, circuits, a bounded table. */
import { expect, test } from "bun:test";
import fc from "fast-check";
import { createLanes, type LaneLimits, type NoPlace, type Place } from "../../src/nodes/relay/host-limiter.ts";

const limits: LaneLimits = {
  concurrentPerDestination: 2,
  queuedPerDestination: 3,
  concurrentTotal: 4,
  queuedTotal: 6,
  failuresToOpen: 3,
  openMs: 1_000,
  destinationsMax: 10,
};

const isPlace = (result: Place | NoPlace): result is Place => typeof result !== "string";

test("under any traffic the bounds hold, and everybody who waits is answered", async () => {
  const step = fc.oneof(
    fc.record({ kind: fc.constant("enter" as const), destination: fc.constantFrom("a", "b", "c", "d", "e") }),
    fc.record({ kind: fc.constant("release" as const), pick: fc.nat(20), answered: fc.boolean() }),
    fc.record({ kind: fc.constant("pass" as const), ms: fc.nat(1_500) }),
  );
  await fc.assert(
    fc.asyncProperty(fc.array(step, { maxLength: 120 }), async (steps) => {
      let nowMs = 0;
      const lanes = createLanes(limits, () => nowMs);
      const held: { destination: string; place: Place }[] = [];
      let asked = 0;
      let answered = 0;
      const check = () => {
        expect(lanes.stats().active).toBe(held.length);
        expect(held.length).toBeLessThanOrEqual(limits.concurrentTotal);
        expect(lanes.stats().waiting).toBeLessThanOrEqual(limits.queuedTotal);
        for (const name of ["a", "b", "c", "d", "e"]) {
          expect(held.filter(({ destination }) => destination === name).length).toBeLessThanOrEqual(2);
        }
      };
      const flush = async () => {
        for (let i = 0; i < 5; i++) await Promise.resolve();
      };
      for (const move of steps) {
        if (move.kind === "pass") nowMs += move.ms;
        if (move.kind === "enter") {
          asked++;
          lanes.enter(move.destination, 60_000).then((result) => {
            answered++;
            if (isPlace(result)) held.push({ destination: move.destination, place: result });
          });
        }
        if (move.kind === "release" && held.length > 0) {
          const [taken] = held.splice(move.pick % held.length, 1);
          taken?.place.release(move.answered);
          taken?.place.release(false);
        }
        await flush();
        check();
      }
      while (held.length > 0) {
        held.pop()?.place.release(true);
        await flush();
      }
      expect([lanes.stats().active, lanes.stats().waiting, answered]).toEqual([0, 0, asked]);
    }),
    { numRuns: 500 },
  );
});

test("who waits too long is told so, and leaves no trace", async () => {
  const lanes = createLanes({ ...limits, concurrentPerDestination: 1 }, () => 0);
  const first = await lanes.enter("a", 1_000);
  expect(await lanes.enter("a", 10)).toBe("late");
  if (isPlace(first)) first.release(true);
  expect(lanes.stats()).toEqual({ active: 0, waiting: 0, destinations: 0 });
});

test("destinations that fail are remembered up to a bound, the oldest forgotten first", async () => {
  const lanes = createLanes(limits, () => 0);
  for (let i = 0; i < 100; i++) {
    for (let failure = 0; failure < 3; failure++) {
      const place = await lanes.enter(`host${i}`, 1_000);
      if (isPlace(place)) place.release(false);
    }
    expect(await lanes.enter(`host${i}`, 1_000)).toBe("open");
  }
  expect(lanes.stats().destinations).toBe(limits.destinationsMax);
  expect(await lanes.enter("host99", 1_000)).toBe("open");
  expect(isPlace(await lanes.enter("host0", 1_000))).toBe(true);
});

test("of those who come when an open circuit may be tried, one goes", async () => {
  let nowMs = 0;
  const lanes = createLanes(limits, () => nowMs);
  for (let failure = 0; failure < 3; failure++) {
    const place = await lanes.enter("a", 1_000);
    if (isPlace(place)) place.release(false);
  }
  nowMs = 1_000;
  const results = await Promise.all([1, 2, 3].map(() => lanes.enter("a", 1_000)));
  expect(results.filter(isPlace).length).toBe(1);
  expect(results.filter((result) => result === "open").length).toBe(2);
});
