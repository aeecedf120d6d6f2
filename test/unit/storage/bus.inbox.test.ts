/** The inbox of a subscription: what is handled when, and what goes when too much waits. */
import { expect, test } from "bun:test";
import { BusQueue, type BusQueueLimits } from "../../../src/storage/bus.ts";

function inboxOf(limits: BusQueueLimits) {
  const gates: PromiseWithResolvers<undefined>[] = [];
  const seen: number[] = [];
  const reports = { dropped: 0, missed: 0 };
  const inbox = new BusQueue({
    subject: "a",
    handler: (message) => {
      seen.push(message.length);
      const gate = Promise.withResolvers<undefined>();
      gates.push(gate);
      return gate.promise;
    },
    missed: () => reports.missed++,
    log: () => {},
    onDrop: () => reports.dropped++,
    limits,
  });
  const answers: unknown[] = [];
  const add = (bytes: number) =>
    inbox.add({
      message: new Uint8Array(bytes),
      answer: (given) => void answers.push(given ?? "none"),
    });
  const turn = () => new Promise((resolve) => void setImmediate(resolve));
  return { inbox, add, turn, gates, seen, reports, answers };
}

test("messages are handled in a later task, in order, without waiting for each other", async () => {
  const { add, turn, seen } = inboxOf({ messagesMax: 10, bytesMax: 1_000 });
  for (const bytes of [1, 2, 3]) add(bytes);
  expect(seen).toEqual([]);
  await turn();
  expect(seen).toEqual([1, 2, 3]);
});

test("when too many are not handled yet, new ones are dropped, and the subscriber is notified", async () => {
  const { add, turn, gates, seen, reports, answers } = inboxOf({ messagesMax: 2, bytesMax: 1_000 });
  for (const bytes of [1, 2, 3]) add(bytes);
  await turn();
  expect([seen, reports, answers]).toEqual([[1, 2], { dropped: 1, missed: 1 }, ["none"]]);
  gates[0]?.resolve(undefined);
  await turn();
  add(4);
  await turn();
  expect([seen, reports.dropped]).toEqual([[1, 2, 4], 1]);
});

test("their bytes are bounded, but for one that is alone", async () => {
  const { add, turn, seen, reports } = inboxOf({ messagesMax: 9, bytesMax: 100 });
  add(500);
  add(1);
  await turn();
  expect([seen, reports.dropped]).toEqual([[500], 1]);
});

test("what was not begun when the subscription ends is not handled, and has no answer", async () => {
  const { inbox, add, turn, seen, answers } = inboxOf({ messagesMax: 9, bytesMax: 100 });
  add(1);
  inbox.close();
  await turn();
  expect([seen, answers]).toEqual([[], ["none"]]);
});
