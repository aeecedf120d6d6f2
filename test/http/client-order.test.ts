/**
 * The order of messages of the SDK: as they were sent, however many are sent at once, and what waited first for a reader
 * that comes back; and each lost connection is reported once, and once when it is back.
 */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { memoryKeys } from "../../src/client/key-stores.ts";
import type { Message, WaypostEvent } from "../../src/client/message.ts";
import { Waypost, type WaypostOptions } from "../../src/client/waypost.ts";
import { startTestNodes, type TestNodes } from "../support/nodes.ts";

let nodes: TestNodes;
beforeAll(async () => {
  nodes = await startTestNodes();
});
afterAll(() => nodes.stop());

const waiting = { timeoutMs: 10_000, intervalMs: 20 };
const open = (options: Partial<WaypostOptions> = {}) =>
  Waypost.open({ url: nodes.url, keys: memoryKeys(), waiting, ...options });

async function take(me: Waypost, count: number): Promise<Message[]> {
  const taken: Message[] = [];
  for await (const message of me.messages()) {
    await message.ack();
    if (taken.push(message) === count) break;
  }
  return taken;
}

const numbers = (count: number) => Array.from({ length: count }, (_, i) => String(i));

test("messages that are sent at once arrive in their order, with times that increase, to a DID and its alias", async () => {
  const alias = `bob${Date.now()}`;
  const [alice, bob] = await Promise.all([open(), open({ alias })]);
  await Promise.all(numbers(10).map((text) => alice.send(bob.did, text)));
  const got = await take(bob, 10);
  expect(got.map(({ text }) => text)).toEqual(numbers(10));
  const times = got.map(({ sentAt }) => sentAt.getTime());
  expect(times.every((ms, i) => i === 0 || ms > (times[i - 1] ?? ms))).toBe(true);

  const live = take(bob, 10);
  await Promise.all(numbers(10).map((text) => alice.send(alias, text)));
  expect((await live).map(({ text }) => text)).toEqual(numbers(10));
  const prepared = await Promise.all(numbers(5).map((text) => alice.prepare(bob.did, text)));
  await Promise.all(prepared.map((outgoing) => outgoing.send()));
  expect((await take(bob, 5)).map(({ text }) => text)).toEqual(numbers(5));
});

test("a send that fails does not keep the next from being sent", async () => {
  const [alice, bob] = await Promise.all([open(), open()]);
  const failed = alice.send(bob.did, "too short a life", { ttl: "never", retries: 0 }).catch(() => "failed");
  const sent = alice.send(bob.did, "next");
  expect(await failed).toBe("failed");
  expect((await sent).chunks).toBe(1);
});

test("a reader that comes back while the sender goes on gets what waited first", async () => {
  for (let round = 0; round < 4; round++) {
    const [alice, bob] = await Promise.all([open(), open()]);
    for (const text of numbers(9)) await alice.send(bob.did, text);
    const sending = (async () => {
      for (let i = 9; i < 40; i++) await alice.send(bob.did, String(i));
    })();
    const got = await take(bob, 40);
    await sending;
    expect(got.map(({ text }) => text)).toEqual(numbers(40));
  }
}, 60_000);

test("a live session lasts while chunks arrive, and ends with the loop", async () => {
  const [alice, bob] = await Promise.all([open(), open()]);
  const events: WaypostEvent[] = [];
  const connected = Promise.withResolvers<void>();
  bob.on((event) => {
    events.push(event);
    if (event.type === "connected") connected.resolve();
  });
  const got = take(bob, 1);
  await connected.promise;
  await alice.send(bob.did, new Uint8Array(3_000), { chunkBytes: 1_000 });
  expect((await got)[0]?.sizeBytes).toBe(3_000);
  const live = events.flatMap((event) => ("what" in event && event.what === "live" ? [event.type] : []));
  expect(live).toEqual(["connected", "disconnected"]);
});
