/** Whom a mailbox knows: for 90 days, a thousand at most, and written only when it must be. */
import { expect, test } from "bun:test";
import { type Did, mailboxOf } from "../../../../src/core/codec/did.ts";
import { dayMs } from "../../../../src/core/codec/time.ts";
import { createKnownSenders, isKnown, remember, senderLabel } from "../../../../src/nodes/cache/known.ts";
import type { Receipts } from "../../../../src/storage/contract.ts";

const box = mailboxOf("did:svc:1111111111111111111111" as Did, 0);
const sender = (n: number) => `did:svc:sender${n}` as Did;
const day = (n: number) => (20_000 + n) * dayMs;

/** Receipts that count what is written and forget nothing by themselves. */
function memory() {
  const held = new Map<string, Uint8Array>();
  const writes: number[] = [];
  const receipts: Pick<Receipts, "get" | "put"> = {
    get: async (key) => held.get(key) ?? null,
    put: async (key, value, untilMs) => {
      held.set(key, value);
      writes.push(untilMs);
    },
  };
  const known = createKnownSenders(receipts as Receipts, () => {});
  const learn = (numbers: number[], nowMs: number) =>
    remember(
      known,
      box,
      numbers.map((n) => senderLabel(sender(n))),
      nowMs,
    );
  return { writes, learn, knows: (n: number, nowMs: number) => isKnown(known, box, sender(n), nowMs) };
}

test("a sender is known for 90 days after the last acknowledgement, and new on the next", async () => {
  const { learn, knows } = memory();
  await learn([1], day(0));
  expect([await knows(1, day(0)), await knows(1, day(90)), await knows(1, day(91))]).toEqual([true, true, false]);
  expect(await knows(2, day(0))).toBe(false);
});

test("a sender that is seen again is written again after 30 days, and not before", async () => {
  const { learn, knows, writes } = memory();
  await learn([1], day(0));
  await learn([1], day(30));
  expect(writes).toEqual([day(90)]);
  await learn([1], day(31));
  expect(writes).toEqual([day(90), day(121)]);
  expect(await knows(1, day(121))).toBe(true);
});

test("of more than a thousand those seen longest ago are forgotten", async () => {
  const { learn, knows } = memory();
  const numbers = Array.from({ length: 1_000 }, (_, n) => n);
  await learn(numbers, day(0));
  await learn([0], day(40));
  await learn([1_000], day(40));
  expect([await knows(0, day(40)), await knows(1_000, day(40))]).toEqual([true, true]);
  expect([await knows(1, day(40)), await knows(2, day(40))]).toEqual([false, true]);
});

test("an acknowledgement of unsigned entries writes nothing", async () => {
  const { writes, learn } = memory();
  await learn([], day(0));
  expect(writes).toEqual([]);
});
