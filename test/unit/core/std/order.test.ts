/** Work that runs one after the other, or only so much of it at once. */
import { expect, test } from "bun:test";
import { deferred } from "../../../../src/core/std/deferred.ts";
import { Slots } from "../../../../src/core/std/order.ts";

test("so much work runs at once, the rest in the order of the calls, also behind work that fails", async () => {
  const slots = new Slots(2);
  const gates = Array.from({ length: 4 }, () => deferred<void>());
  const begun: number[] = [];
  const ended = gates.map(({ promise }, n) =>
    slots.use(async () => {
      begun.push(n);
      await promise;
      if (n === 1) throw new Error("failed");
      return n;
    }),
  );
  const outcome = Promise.allSettled(ended);
  await Promise.resolve();
  expect(begun).toEqual([0, 1]);
  gates[1]?.resolve();
  await expect(ended[1]).rejects.toThrow("failed");
  await Promise.resolve();
  expect(begun).toEqual([0, 1, 2]);
  for (const { resolve } of gates) resolve();
  expect((await outcome).map(({ status }) => status)).toEqual([
    "fulfilled",
    "rejected",
    "fulfilled",
    "fulfilled",
  ]);
  expect(await slots.use(async () => "free again")).toBe("free again");
});
