/**
 * What is on its way to one recipient: pauses end, and what flies is read anew before it flies
 * again.
 */
import { expect, spyOn, test } from "bun:test";
import { type Courier, type Flight, Lane } from "../../../../src/client/store/lane.ts";
import { Slots } from "../../../../src/core/std/order.ts";
import { pause } from "../../../support/wait.ts";

type Row = { readonly text: string };

/** A lane with one row, which `send` flies; `null` from it removes the row. */
function laneWith(row: Row, send: (row: Row) => Promise<number | null>, slots = new Slots(1)) {
  const rows = new Map([["place", row]]);
  const closing = new AbortController();
  const courier: Courier<Row> = {
    waiting: async () => [...rows],
    isAlone: () => false,
    prepare:
      async (place, given): Promise<Flight> =>
      async () => {
        const pauseMs = await send(given);
        if (pauseMs === null) rows.delete(place);
        return pauseMs;
      },
  };
  const lane = new Lane("lane", courier, slots, closing.signal);
  return { lane, rows, courier, [Symbol.dispose]: () => closing.abort() };
}

test("a pause that ends while the lane looks at the clock ends", async () => {
  // Each look at the clock finds it 10 ms later, so that a pause of 25 ms ends between two looks.
  let nowMs = 0;
  using _ = spyOn(performance, "now").mockImplementation(() => {
    nowMs += 10;
    return nowMs;
  });
  for (const pauseMs of [5, 15, 25, 35, 45, 55, 65, 75]) {
    let attempts = 0;
    const send = async () => (attempts++ === 0 ? pauseMs : null);
    using at = laneWith({ text: "once more" }, send);
    at.lane.wake();
    await at.lane.ended();
    expect(attempts).toBe(2);
  }
}, 10_000);

test("what was read while it flew does not fly again: the row is read anew", async () => {
  const sent: string[] = [];
  const landed = Promise.withResolvers<void>();
  using at = laneWith({ text: "first" }, async ({ text }) => {
    sent.push(text);
    if (sent.length > 1) return null;
    await landed.promise;
    at.rows.set("place", { text: "second" });
    return 1;
  });
  const { waiting } = at.courier;
  let looks = 0;
  // The look that begins while it flies is answered when it has landed.
  Object.assign(at.courier, {
    waiting: async (lane: string, count: number) => {
      const rows = await waiting(lane, count);
      if (++looks !== 2) return rows;
      landed.resolve();
      await pause(5, "the pace of a store: the flight ends before its answer");
      return rows;
    },
  });
  at.lane.wake();
  while (sent.length === 0) await Bun.sleep(1);
  at.lane.wake();
  await at.lane.ended();
  expect(sent).toEqual(["first", "second"]);
});

test("a row that flies alone waits until the ones before it have landed, however many may fly", async () => {
  const landed = Promise.withResolvers<void>();
  let [flying, most] = [0, 0];
  using at = laneWith(
    { text: "first" },
    async () => {
      most = Math.max(most, ++flying);
      await landed.promise;
      flying--;
      return null;
    },
    new Slots(8),
  );
  at.rows.set("behind", { text: "second" });
  Object.assign(at.courier, { isAlone: ({ text }: Row) => text === "second" });
  at.lane.wake();
  while (flying === 0) await Bun.sleep(1);
  at.lane.wake();
  await pause(60, "the second would fly too");
  landed.resolve();
  await at.lane.ended();
  expect(most).toBe(1);
});
