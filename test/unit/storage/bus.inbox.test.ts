/** The inbox of a subscription: how many handlers work at once, and what goes when too much waits. */
import { expect, test } from "bun:test";
import { Inbox, type InboxLimits } from "../../../src/storage/bus.ts";

function inboxOf(limits: InboxLimits) {
  const gates: PromiseWithResolvers<undefined>[] = [];
  const seen: number[] = [];
  const reports = { dropped: 0, missed: 0 };
  const inbox = new Inbox({
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
  const add = (bytes: number) => inbox.add({ message: new Uint8Array(bytes), answer: null });
  const turn = () => new Promise((resolve) => void setImmediate(resolve));
  return { add, turn, gates, seen, reports };
}

test("at most the allowed number of handlers run at once, and the next begins when one ends", async () => {
  const { add, turn, gates, seen } = inboxOf({ runningMax: 2, waitingMax: 10, waitingBytesMax: 1_000 });
  for (const bytes of [1, 2, 3]) add(bytes);
  await turn();
  expect(seen).toEqual([1, 2]);
  gates[0]?.resolve(undefined);
  await turn();
  await turn();
  expect(seen).toEqual([1, 2, 3]);
});

test("when too many messages wait, the oldest are dropped, and the subscriber is notified", async () => {
  const { add, turn, seen, reports } = inboxOf({ runningMax: 9, waitingMax: 2, waitingBytesMax: 1_000 });
  for (const bytes of [1, 2, 3]) add(bytes);
  await turn();
  expect([seen, reports]).toEqual([[2, 3], { dropped: 1, missed: 1 }]);
});

test("the newest message stays however large it is, and all others go", async () => {
  const { add, turn, seen, reports } = inboxOf({ runningMax: 9, waitingMax: 10, waitingBytesMax: 100 });
  add(60);
  add(500);
  await turn();
  expect([seen, reports.dropped]).toEqual([[500], 1]);
});

test("what a handler has taken counts no more towards what waits", async () => {
  const { add, turn, gates, seen, reports } = inboxOf({ runningMax: 1, waitingMax: 10, waitingBytesMax: 100 });
  add(90);
  await turn();
  for (const bytes of [30, 60]) add(bytes);
  gates[0]?.resolve(undefined);
  await turn();
  await turn();
  expect([seen, reports.dropped]).toEqual([[90, 30], 0]);
});
