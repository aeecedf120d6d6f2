/** Work in turns: in order, one at a time, and nothing else waits for all of it. */
import { expect, test } from "bun:test";
import { pageTurns } from "../../../../src/client/keys/hpke.ts";

/** Holds the thread up, as sealing does where curves are JavaScript. */
function busy(forMs: number): void {
  for (const endsMs = performance.now() + forMs; performance.now() < endsMs; );
}

test("a timer has its turn among much work, which without turns it would not have", async () => {
  const ticksDuring = async (run: (work: () => Promise<void>) => Promise<void>) => {
    let ticks = 0;
    const ticking = setInterval(() => ticks++, 0);
    await Promise.all(Array.from({ length: 20 }, () => run(async () => busy(5))));
    clearInterval(ticking);
    return ticks;
  };
  expect(await ticksDuring((work) => work())).toBe(0);
  expect(await ticksDuring((work) => pageTurns.run(work))).toBeGreaterThan(3);
});

test("the work is done in order, one at a time, and a failure is that of its caller alone", async () => {
  const seen: string[] = [];
  const step = (name: string) =>
    pageTurns.run(async () => {
      seen.push(`${name} begins`);
      await Promise.resolve();
      seen.push(`${name} ends`);
      if (name === "b") throw new Error("b failed");
      return name;
    });
  const settled = await Promise.allSettled([step("a"), step("b"), step("c")]);
  expect(seen).toEqual(["a", "b", "c"].flatMap((name) => [`${name} begins`, `${name} ends`]));
  expect(settled.map(({ status }) => status)).toEqual(["fulfilled", "rejected", "fulfilled"]);
});
