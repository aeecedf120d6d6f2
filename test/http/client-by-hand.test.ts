/** A program that keeps messages itself, on one of two devices. */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { memoryKeys } from "../../src/client/keys/key-stores.ts";
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
  expect(await again.receiveWaiting()).toEqual({ isComplete: true, unreachable: [], failed: [] });
  await again.close();
  const endMs = performance.now() + 5_000;
  const held = () => laptop.store.messages(friend.did);
  while ((await held()).length === 0 && performance.now() < endMs) await Bun.sleep(20);
  expect((await held()).map(({ text }) => text)).toEqual(["hello"]);
  for (const me of [laptop, friend]) await me.close();
}, 30_000);

test("a store that fails says why, and nobody waits for ever", async () => {
  const store = memoryStore();
  const breaks = { apply: false, scan: false };
  const failing =
    <A extends unknown[], R>(kind: keyof typeof breaks, work: (...args: A) => Promise<R>) =>
    async (...args: A) => {
      if (breaks[kind]) throw new Error("a broken disk");
      return work(...args);
    };
  const driver = {
    ...store,
    apply: failing("apply", store.apply),
    scan: failing("scan", store.scan),
  };
  const options = {
    url: nodes.url,
    keys: memoryKeys(),
    store: driver,
    acknowledge: "by-hand",
  } as const;
  const friend = await Waypost.open({ url: nodes.url, keys: memoryKeys() });
  const me = await Waypost.open(options);
  const { id } = await friend.send(me.did, "hello");
  breaks.apply = true;
  const missed = { endpoint: id, error: { code: "unusable" } };
  expect(await me.receiveWaiting()).toMatchObject({
    isComplete: false,
    unreachable: [],
    failed: [missed],
  });
  breaks.apply = false;
  await me.close();
  breaks.scan = true;
  const again = await Waypost.open(options);
  const received = again.receiveWaiting().then(
    () => "received",
    ({ code }) => code,
  );
  expect(await Promise.race([received, Bun.sleep(5_000).then(() => "waits")])).toBe("unusable");
  await again.close();
  await friend.close();
});
