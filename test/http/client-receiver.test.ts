/** What a receiver keeps, and how it ends. */

import { heapStats } from "bun:jsc";
import { afterAll, beforeAll, expect, test } from "bun:test";
import { memoryKeys } from "../../src/client/key-stores.ts";
import { type PollResult, Receiver } from "../../src/client/receiver.ts";
import { Waypost } from "../../src/client/waypost.ts";
import { startTestNodes, type TestNodes } from "../support/nodes.ts";

let nodes: TestNodes;
beforeAll(async () => {
  nodes = await startTestNodes();
});
afterAll(() => nodes.stop());

class Broken extends Receiver {
  override poll(): Promise<PollResult> {
    return Promise.reject(new TypeError("a bug"));
  }
}

test("a bug in a loop is thrown, and is no end", async () => {
  const me = await Waypost.open({ url: nodes.url, keys: memoryKeys() });
  const receiver = new Broken({
    client: me.client,
    identity: () => me.identity,
    device: "phone",
    emit: () => undefined,
    pollMs: 1_000,
    send: () => Promise.reject(new Error("sends nothing")),
    onAcked: () => undefined,
    refreshKeys: async () => undefined,
  });
  receiver.start();
  await expect(receiver.next()).rejects.toThrow("a bug");
  await receiver.stop();
  await me.close();
});

test("nothing of an acknowledged message stays in memory", async () => {
  const live = Promise.withResolvers<void>();
  const me = await Waypost.open({
    url: nodes.url,
    keys: memoryKeys(),
    onEvent: (event) => event.type === "connected" && live.resolve(),
  });
  const friend = await Waypost.open({ url: nodes.url, keys: memoryKeys() });
  const messages = me.messages();
  const first = messages.next();
  await live.promise;
  const size = () => {
    Bun.gc(true);
    return heapStats().heapSize;
  };
  await friend.send(me.did, "first");
  await (await first).value?.ack();
  const before = size();
  for (let i = 0; i < 40; i++) {
    const sent = friend.send(me.did, "x".repeat(500_000));
    await (await messages.next()).value?.ack();
    await sent;
  }
  expect(size() - before).toBeLessThan(15_000_000);
  await Promise.all([me.close(), friend.close()]);
}, 60_000);
