/** Slots for outbound requests: bounds of a destination, order, circuits, a bounded table. */
import { expect, test } from "bun:test";
import fc from "fast-check";
import {
  createHostLimiter,
  type HostLimits,
  type NoSlot,
  type Release,
} from "../../../../src/nodes/egress/host-limiter.ts";

const limits: HostLimits = {
  concurrent: 2,
  queued: 3,
  failuresToOpen: 3,
  openMs: 1_000,
  destinationsMax: 10,
};

/** Of a request that no one ends. */
const never = new AbortController().signal;

const isSlot = (result: Release | NoSlot): result is Release => typeof result !== "string";

test("under any traffic the bounds hold, and everybody who waits is answered", async () => {
  const step = fc.oneof(
    fc.record({
      kind: fc.constant("enter" as const),
      destination: fc.constantFrom("a", "b", "c", "d", "e"),
    }),
    fc.record({ kind: fc.constant("release" as const), pick: fc.nat(20), answered: fc.boolean() }),
    fc.record({ kind: fc.constant("pass" as const), ms: fc.nat(1_500) }),
  );
  await fc.assert(
    fc.asyncProperty(fc.array(step, { maxLength: 120 }), async (steps) => {
      let nowMs = 0;
      const limiter = createHostLimiter(limits, () => nowMs);
      const held: { destination: string; release: Release }[] = [];
      let asked = 0;
      let answered = 0;
      const check = () => {
        expect(limiter.stats().active).toBe(held.length);
        expect(limiter.stats().waiting).toBeLessThanOrEqual(5 * limits.queued);
        for (const name of ["a", "b", "c", "d", "e"]) {
          expect(held.filter(({ destination }) => destination === name).length).toBeLessThanOrEqual(
            2,
          );
        }
      };
      const flush = async () => {
        for (let i = 0; i < 5; i++) await Promise.resolve();
      };
      for (const move of steps) {
        if (move.kind === "pass") nowMs += move.ms;
        if (move.kind === "enter") {
          asked++;
          limiter.acquire(move.destination, never).then((result) => {
            answered++;
            if (isSlot(result)) held.push({ destination: move.destination, release: result });
          });
        }
        if (move.kind === "release" && held.length > 0) {
          const [taken] = held.splice(move.pick % held.length, 1);
          taken?.release(move.answered);
        }
        await flush();
        check();
      }
      while (held.length > 0) {
        held.pop()?.release(true);
        await flush();
      }
      expect([limiter.stats().active, limiter.stats().waiting, answered]).toEqual([0, 0, asked]);
    }),
    { numRuns: 200 },
  );
});

test("who waits too long gets that answer, and leaves no trace", async () => {
  const limiter = createHostLimiter({ ...limits, concurrent: 1 }, () => 0);
  const first = await limiter.acquire("a", never);
  expect(await limiter.acquire("a", AbortSignal.timeout(10))).toBe("late");
  if (isSlot(first)) first(true);
  expect(limiter.stats()).toEqual({ active: 0, waiting: 0, destinations: 0 });
});

test("who waits leaves at once when told to, and the next one is admitted", async () => {
  const limiter = createHostLimiter({ ...limits, concurrent: 1 }, () => 0);
  const first = await limiter.acquire("a", never);
  const leaving = new AbortController();
  const second = limiter.acquire("a", leaving.signal);
  const third = limiter.acquire("a", new AbortController().signal);
  leaving.abort();
  expect(await second).toBe("late");
  expect(limiter.stats()).toMatchObject({ active: 1, waiting: 1 });
  if (isSlot(first)) first(true);
  expect(isSlot(await third)).toBe(true);
});

test("destinations that fail are remembered up to a bound, the oldest forgotten first", async () => {
  const limiter = createHostLimiter(limits, () => 0);
  for (let i = 0; i < 100; i++) {
    for (let failure = 0; failure < 3; failure++) {
      const slot = await limiter.acquire(`host${i}`, never);
      if (isSlot(slot)) slot(false);
    }
    expect(await limiter.acquire(`host${i}`, never)).toBe("open");
  }
  expect(limiter.stats().destinations).toBe(limits.destinationsMax);
  expect(await limiter.acquire("host99", never)).toBe("open");
  expect(isSlot(await limiter.acquire("host0", never))).toBe(true);
});

test("when an open circuit may be tried, no more go than at any time, and a failure opens it again", async () => {
  let nowMs = 0;
  const limiter = createHostLimiter(limits, () => nowMs);
  for (let failure = 0; failure < 3; failure++) {
    const slot = await limiter.acquire("a", never);
    if (isSlot(slot)) slot(false);
  }
  nowMs = 1_000;
  const tried = await Promise.all([1, 2].map(() => limiter.acquire("a", never)));
  const waiting = limiter.acquire("a", never);
  expect([tried.every(isSlot), limiter.stats().waiting]).toEqual([true, 1]);
  for (const slot of tried) if (isSlot(slot)) slot(false);
  expect([await waiting, await limiter.acquire("a", never)]).toEqual(["open", "open"]);
});

test("those who wait go in the order in which they came", async () => {
  const limiter = createHostLimiter({ ...limits, concurrent: 1 }, () => 0);
  const first = await limiter.acquire("a", never);
  const order: string[] = [];
  const waiting = ["b", "c"].map(async (name) => {
    const slot = await limiter.acquire("a", never);
    order.push(name);
    if (isSlot(slot)) slot(true);
  });
  if (isSlot(first)) first(true);
  await Promise.all(waiting);
  expect(order).toEqual(["b", "c"]);
});

test("as many wait for a destination as may, and the next one is told that it is busy", async () => {
  const limiter = createHostLimiter(limits, () => 0);
  const slots = await Promise.all([1, 2].map(() => limiter.acquire("a", never)));
  expect(slots.every(isSlot)).toBe(true);
  for (let waiting = 0; waiting < limits.queued; waiting++) void limiter.acquire("a", never);
  expect(limiter.stats().waiting).toBe(limits.queued);
  expect(await limiter.acquire("a", never)).toBe("busy");
});
