/** Slots for outbound requests: bounds per destination and over all, order, circuits, a bounded table. */
import { afterEach, describe, expect, jest, test } from "bun:test";
import fc from "fast-check";
import {
  createHostLimiter,
  type HostLimiter,
  type HostLimits,
  type NoSlot,
  type Slot,
} from "../../../../src/nodes/relay/host-limiter.ts";

const limits: HostLimits = {
  concurrentPerDestination: 2,
  queuedPerDestination: 3,
  concurrentTotal: 4,
  queuedTotal: 6,
  concurrentPerClient: 2,
  queuedPerClient: 6,
  concurrentPerNetwork: 2,
  slowMs: 1_000,
  failuresToOpen: 3,
  openMs: 1_000,
  destinationsMax: 10,
};

const isSlot = (result: Slot | NoSlot): result is Slot => typeof result !== "string";

test("under any traffic the bounds hold, and everybody who waits is answered", async () => {
  const step = fc.oneof(
    fc.record({ kind: fc.constant("enter" as const), destination: fc.constantFrom("a", "b", "c", "d", "e") }),
    fc.record({ kind: fc.constant("release" as const), pick: fc.nat(20), answered: fc.boolean() }),
    fc.record({ kind: fc.constant("pass" as const), ms: fc.nat(1_500) }),
  );
  await fc.assert(
    fc.asyncProperty(fc.array(step, { maxLength: 120 }), async (steps) => {
      let nowMs = 0;
      const limiter = createHostLimiter(limits, () => nowMs);
      const held: { destination: string; slot: Slot }[] = [];
      let asked = 0;
      let answered = 0;
      const check = () => {
        expect(limiter.stats().active).toBe(held.length);
        expect(held.length).toBeLessThanOrEqual(limits.concurrentTotal);
        expect(limiter.stats().waiting).toBeLessThanOrEqual(limits.queuedTotal);
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
          limiter.acquire(move.destination, 60_000).then((result) => {
            answered++;
            if (isSlot(result)) held.push({ destination: move.destination, slot: result });
          });
        }
        if (move.kind === "release" && held.length > 0) {
          const [taken] = held.splice(move.pick % held.length, 1);
          taken?.slot.release(move.answered);
          taken?.slot.release(false);
        }
        await flush();
        check();
      }
      while (held.length > 0) {
        held.pop()?.slot.release(true);
        await flush();
      }
      expect([limiter.stats().active, limiter.stats().waiting, answered]).toEqual([0, 0, asked]);
    }),
    { numRuns: 200 },
  );
});

test("who waits too long gets that answer, and leaves no trace", async () => {
  const limiter = createHostLimiter({ ...limits, concurrentPerDestination: 1 }, () => 0);
  const first = await limiter.acquire("a", 1_000);
  expect(await limiter.acquire("a", 10)).toBe("late");
  if (isSlot(first)) first.release(true);
  expect(limiter.stats()).toEqual({ active: 0, waiting: 0, destinations: 0 });
});

test("destinations that fail are remembered up to a bound, the oldest forgotten first", async () => {
  const limiter = createHostLimiter(limits, () => 0);
  for (let i = 0; i < 100; i++) {
    for (let failure = 0; failure < 3; failure++) {
      const slot = await limiter.acquire(`host${i}`, 1_000);
      if (isSlot(slot)) slot.release(false);
    }
    expect(await limiter.acquire(`host${i}`, 1_000)).toBe("open");
  }
  expect(limiter.stats().destinations).toBe(limits.destinationsMax);
  expect(await limiter.acquire("host99", 1_000)).toBe("open");
  expect(isSlot(await limiter.acquire("host0", 1_000))).toBe(true);
});

test("of those who come when an open circuit may be tried, one goes", async () => {
  let nowMs = 0;
  const limiter = createHostLimiter(limits, () => nowMs);
  for (let failure = 0; failure < 3; failure++) {
    const slot = await limiter.acquire("a", 1_000);
    if (isSlot(slot)) slot.release(false);
  }
  nowMs = 1_000;
  const results = await Promise.all([1, 2, 3].map(() => limiter.acquire("a", 1_000)));
  expect(results.filter(isSlot).length).toBe(1);
  expect(results.filter((result) => result === "open").length).toBe(2);
});

describe("shares", () => {
  afterEach(() => void jest.useRealTimers());

  const shared: HostLimits = { ...limits, concurrentPerDestination: 100, concurrentTotal: 8, queuedTotal: 100 };
  const acquire = async (limiter: HostLimiter, client: string, preempt?: () => void) => {
    const destination = `host ${Math.random()}`;
    return limiter.acquire(destination, 1_000, preempt === undefined ? { client } : { client, preempt });
  };

  test("a client alone takes half of the slots, and its share beyond that", async () => {
    jest.useFakeTimers();
    const limiter = createHostLimiter(shared, () => 0);
    for (let i = 0; i < 4; i++) expect(isSlot(await acquire(limiter, "a"))).toBe(true);
    const waiting = acquire(limiter, "a");
    expect(limiter.stats()).toMatchObject({ active: 4, waiting: 1 });
    expect(isSlot(await acquire(limiter, "b"))).toBe(true);
    expect(isSlot(await acquire(limiter, "b"))).toBe(true);
    void acquire(limiter, "b");
    expect(limiter.stats()).toMatchObject({ active: 6, waiting: 2 });
    jest.advanceTimersByTime(1_000);
    expect(await waiting).toBe("late");
  });

  test("a client's requests wait in a part of the queue only", async () => {
    const limiter = createHostLimiter(shared, () => 0);
    for (let i = 0; i < 4; i++) await acquire(limiter, "a");
    const waiting = Array.from({ length: 8 }, () => acquire(limiter, "a"));
    expect((await Promise.all(waiting.slice(6))).every((result) => result === "busy")).toBe(true);
    expect(limiter.stats().waiting).toBe(6);
  });

  test("the client with the fewest slots goes first", async () => {
    const limiter = createHostLimiter({ ...shared, concurrentTotal: 2, concurrentPerClient: 2 }, () => 0);
    const [first] = [await acquire(limiter, "a"), await acquire(limiter, "a")];
    const order: string[] = [];
    for (const client of ["a", "b"]) void acquire(limiter, client).then(() => order.push(client));
    if (first !== undefined && isSlot(first)) first.release(true);
    await Bun.sleep(1);
    expect(order).toEqual(["b"]);
  });

  test("a slow request gives way when all slots are in use, the oldest of the client with the most", async () => {
    jest.useFakeTimers();
    let nowMs = 0;
    const limiter = createHostLimiter({ ...shared, concurrentTotal: 4, concurrentPerClient: 3 }, () => nowMs);
    const ended: number[] = [];
    const slots = new Map<number, Slot>();
    const begin = async (number: number, client: string) => {
      const slot = await acquire(limiter, client, () => {
        ended.push(number);
        slots.get(number)?.release(true);
      });
      if (isSlot(slot)) slots.set(number, slot);
    };
    for (const number of [1, 2, 3]) await begin(number, "a");
    await begin(4, "b");
    void acquire(limiter, "c");
    expect([ended, limiter.stats().waiting]).toEqual([[], 1]);
    nowMs = 1_000;
    const waiting = acquire(limiter, "d");
    jest.advanceTimersByTime(1_000);
    expect(isSlot(await waiting)).toBe(false);
    expect(ended).toEqual([1]);
  });

  test("a destination network gets its share while more than half of the slots are in use", async () => {
    const limiter = createHostLimiter({ ...shared, concurrentPerClient: 100 }, () => 0);
    const entered: boolean[] = [];
    for (let i = 0; i < 6; i++) {
      const slot = await acquire(limiter, `client ${i}`);
      if (isSlot(slot)) entered.push(slot.enterNetwork("198.51.100"));
    }
    expect(entered).toEqual([true, true, true, false, false, false]);
  });

  test("a client whose share is used up by slow requests ends its oldest for the next", async () => {
    let nowMs = 0;
    const limiter = createHostLimiter({ ...shared, concurrentPerClient: 4 }, () => nowMs);
    const ended: number[] = [];
    const begin = async (number: number, client: string): Promise<boolean> => {
      const slots: Slot[] = [];
      const slot = await acquire(limiter, client, () => {
        ended.push(number);
        slots[0]?.release(true);
      });
      if (isSlot(slot)) slots.push(slot);
      return isSlot(slot);
    };
    for (let i = 0; i < 4; i++) expect(await begin(i, "a")).toBe(true);
    expect(await begin(4, "b")).toBe(true);
    nowMs = 1_000;
    expect(await begin(5, "a")).toBe(true);
    expect([ended, limiter.stats().active]).toEqual([[0], 5]);
  });
});
