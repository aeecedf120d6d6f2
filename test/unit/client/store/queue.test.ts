/**
 * What a program that acknowledges by itself is given next, while messages wait for others that
 * their sender sent before.
 */
import { expect, test } from "bun:test";
import type { Message } from "../../../../src/client/mail/message.ts";
import { Handed, Queue } from "../../../../src/client/store/queue.ts";

/** Nothing but its text is looked at here. */
const messageOf = (text: string) => ({ text }) as Message;

function queueOf() {
  const queue = new Queue(new Handed());
  const add = (text: string, follows: string | null = null) =>
    queue.add({
      message: messageOf(text),
      marks: new Set([text]),
      follows,
      onGiven: () => undefined,
    });
  return { queue, add, take: () => queue.take()?.text ?? null };
}

test("a message waits for the one before it, and holds up no other sender's", () => {
  const { add, take } = queueOf();
  add("second", "first");
  add("other");
  expect([take(), take()]).toEqual(["other", null]);
  add("first");
  expect([take(), take(), take()]).toEqual(["first", "second", null]);
});

test("in a full queue no message waits for one that has no place", () => {
  const { queue, add, take } = queueOf();
  const taken: (string | null)[] = [];
  for (let number = 0; number < 300; number++) {
    add(`held ${number}`, `unknown ${number}`);
    if (queue.isFull) taken.push(take());
  }
  expect(taken).toEqual(Array.from({ length: 269 }, (_, number) => `held ${number}`));
  add("other");
  expect([queue.isFull, take(), take()]).toEqual([true, "other", null]);
});

test("what can be taken goes before what waits, in a full queue too", () => {
  const { queue, add, take } = queueOf();
  for (let number = 0; number < 31; number++) add(`held ${number}`, `unknown ${number}`);
  add("other");
  expect([queue.isFull, take(), queue.isFull, take()]).toEqual([true, "other", false, null]);
});
