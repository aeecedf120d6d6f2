/** A program that keeps messages itself, on one of two devices. */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { memoryKeys } from "../../src/client/key-stores.ts";
import { memoryStore } from "../../src/client/store/driver.ts";
import { Waypost } from "../../src/client/waypost.ts";
import { startTestNodes, type TestNodes } from "../support/nodes.ts";

let nodes: TestNodes;
beforeAll(async () => {
  nodes = await startTestNodes();
});
afterAll(async () => {
  await nodes.stop();
});

test("what it receives at once after its start the other device has, though its own DID opens late", async () => {
  const optionsOf = () =>
    ({ url: nodes.url, keys: memoryKeys(), store: memoryStore(), acknowledge: "by-hand" }) as const;
  const [at, other] = [optionsOf(), optionsOf()];
  const friend = await Waypost.open({ url: nodes.url, keys: memoryKeys() });
  const phone = await Waypost.open(at);
  const { code, opened } = await Waypost.link(other);
  await phone.devices.acceptLink(code, "laptop");
  const laptop = await opened;
  while ((await phone.devices.list()).some(({ isCurrent }) => !isCurrent)) await Bun.sleep(20);
  await phone.close();
  await (await friend.send(phone.did, "hello")).delivered;
  const keys = { ...at.keys };
  keys.load = async (name) => {
    if (name.endsWith(".device")) await Bun.sleep(700);
    return at.keys.load(name);
  };
  const again = await Waypost.open({ ...at, keys });
  expect(await again.receiveWaiting()).toEqual({ isComplete: true, unreachable: [] });
  await again.close();
  const endMs = performance.now() + 5_000;
  const held = () => laptop.store.messages(friend.did);
  while ((await held()).length === 0 && performance.now() < endMs) await Bun.sleep(20);
  expect((await held()).map(({ text }) => text)).toEqual(["hello"]);
  for (const me of [laptop, friend]) await me.close();
}, 30_000);
