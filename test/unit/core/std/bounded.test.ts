/**
 * Bounds on memory and time: which entry leaves first, and which promise wins against a deadline.
 */
import { describe, expect, test } from "bun:test";
import { BoundedMap, late, Waiters, withDeadline } from "../../../../src/core/std/bounded.ts";
import { pause } from "../../../support/wait.ts";

describe("BoundedMap", () => {
  test("drops the entry that was set longest ago when there are too many", () => {
    const map = new BoundedMap<string, number>(2);
    map.set("a", 1);
    map.set("b", 2);
    map.set("a", 3);
    map.set("c", 4);
    expect([...map]).toEqual([
      ["a", 3],
      ["c", 4],
    ]);
    expect([map.size, map.has("b"), map.get("a")]).toEqual([2, false, 3]);
  });

  test("drops the oldest entries, as many as necessary, when they have too many bytes", () => {
    const map = new BoundedMap<string, number>(10, { max: 100, of: (value) => value });
    for (const [key, bytes] of [
      ["a", 40],
      ["b", 40],
      ["a", 10],
      ["c", 50],
    ] as const)
      map.set(key, bytes);
    const keys = () => [...map].map(([key]) => key);
    expect(keys()).toEqual(["b", "a", "c"]);
    map.set("d", 45);
    expect(keys()).toEqual(["c", "d"]);
    map.set("larger than all", 101);
    expect(map.size).toBe(0);
    map.set("e", 100);
    map.delete("e");
    map.set("f", 100);
    map.clear();
    map.set("g", 100);
    expect(map.get("g")).toBe(100);
  });

  test("deletes and clears", () => {
    const map = new BoundedMap<number, string>(8);
    map.set(1, "x");
    expect([map.delete(1), map.delete(1), map.size]).toEqual([true, false, 0]);
    map.set(2, "y");
    map.clear();
    expect(map.size).toBe(0);
  });
});

// -------------------------------------------------------------------------------------------- time

const never = () => new Promise<never>(() => undefined);

describe("withDeadline", () => {
  test("returns a value that comes in time", async () => {
    expect(await withDeadline(Promise.resolve(7), 1_000)).toBe(7);
  });

  test("rejects when the work rejects in time", async () => {
    await expect(withDeadline(Promise.reject(new Error("no")), 1_000)).rejects.toThrow("no");
  });

  test("returns late when time runs out", async () => {
    expect(await withDeadline(never(), 5)).toBe(late);
    expect(await withDeadline(never(), 0)).toBe(late);
    expect(await withDeadline(never(), -1)).toBe(late);
  });

  test("a settled promise wins over a deadline that has passed", async () => {
    expect(await withDeadline(Promise.resolve("done"), -1)).toBe("done");
  });

  test("ignores a rejection after the deadline", async () => {
    const { promise, reject } = Promise.withResolvers<never>();
    expect(await withDeadline(promise, 1)).toBe(late);
    reject(new Error("too late to matter"));
    await pause(1, "a rejection without a handler would fail the test");
  });

  test("uses another clock when it gets one, and cancels its timer", async () => {
    const pending = new Map<number, () => void>();
    const after = (ms: number, work: () => void) => {
      pending.set(ms, work);
      return () => pending.delete(ms);
    };
    const waiting = withDeadline(never(), 60_000, after);
    pending.get(60_000)?.();
    expect(await waiting).toBe(late);
    expect(await withDeadline(Promise.resolve(7), 1_000, after)).toBe(7);
    expect(pending.size).toBe(0);
  });

  test("a deadline beyond the range of timers does not end at once", async () => {
    expect(
      await withDeadline(
        Bun.sleep(5).then(() => "slept"),
        2 ** 40,
      ),
    ).toBe("slept");
  });
});

// ----------------------------------------------------------------------------------------- streams

describe("callers that wait for an event", () => {
  test("continue with it, or with their own work", async () => {
    const waiters = new Waiters();
    const [cut, done] = [
      waiters.orEvent(new Promise(never)),
      waiters.orEvent(Promise.resolve("done")),
    ];
    const waiting = waiters.wait(60_000);
    expect(await done).toBe("done");
    waiters.release();
    expect(await cut).toBe(late);
    await waiting;
  });

  test("leave nothing behind in either case", async () => {
    const waiters = new Waiters();
    await waiters.orEvent(Promise.resolve());
    await expect(waiters.orEvent(Promise.reject(new Error("cut")))).rejects.toThrow("cut");
    await waiters.wait(1);
    expect(waiters.size).toBe(0);
    const both = [waiters.wait(60_000), waiters.orEvent(new Promise(never))];
    expect(waiters.size).toBe(2);
    waiters.release();
    await Promise.all(both);
    expect(waiters.size).toBe(0);
  });
});
