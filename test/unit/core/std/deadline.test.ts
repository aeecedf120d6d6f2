/** The one race of a promise against time: who wins, and what becomes of the loser. */
import { describe, expect, test } from "bun:test";
import { late, withDeadline } from "../../../../src/core/std/deadline.ts";

const never = () => new Promise<never>(() => undefined);

describe("withDeadline", () => {
  test("answers the value that comes in time", async () => {
    expect(await withDeadline(Promise.resolve(7), 1_000)).toBe(7);
  });

  test("passes a rejection in time through", async () => {
    await expect(withDeadline(Promise.reject(new Error("no")), 1_000)).rejects.toThrow("no");
  });

  test("answers late when the time is over", async () => {
    expect(await withDeadline(never(), 5)).toBe(late);
    expect(await withDeadline(never(), 0)).toBe(late);
    expect(await withDeadline(never(), -1)).toBe(late);
  });

  test("a settled promise wins over a deadline that has passed", async () => {
    expect(await withDeadline(Promise.resolve("done"), -1)).toBe("done");
  });

  test("a rejection after the deadline is nobody's", async () => {
    const { promise, reject } = Promise.withResolvers<never>();
    expect(await withDeadline(promise, 1)).toBe(late);
    reject(new Error("too late to matter"));
    await Bun.sleep(1);
  });

  test("a deadline beyond the range of timers is not over at once", async () => {
    expect(
      await withDeadline(
        Bun.sleep(5).then(() => "slept"),
        2 ** 40,
      ),
    ).toBe("slept");
  });
});
