/**
 * No sender waits for a reader of the SDK: what it can't take over at once is passed to the Cache.
 * The Relay would wait ten minutes for an acknowledgement, longer than any request here.
 */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { memoryKeys } from "../../src/client/keys/key-stores.ts";
import type { Message, WaypostEvent } from "../../src/client/mail/message.ts";
import { Waypost } from "../../src/client/waypost.ts";
import { startTestNodes, type TestNodes } from "../support/nodes.ts";

let nodes: TestNodes;
beforeAll(async () => {
  nodes = await startTestNodes({}, { relay: { live_ack_timeout: 600_000 } });
});
afterAll(() => nodes.stop());

const open = (keys = memoryKeys()) =>
  Waypost.open({
    url: nodes.url,
    keys,
    waiting: { timeoutMs: 60_000, intervalMs: 20 },
  });

/**
 * A reader with a live session, which hands its messages to `onMessage`; and its events of live
 * sessions.
 */
async function listen(me: Waypost, onMessage: (message: Message) => unknown) {
  const events: WaypostEvent[] = [];
  const connected = Promise.withResolvers<void>();
  me.on((event) => {
    events.push(event);
    if (event.type === "connected" && event.what === "live") connected.resolve();
  });
  const reading = (async () => {
    for await (const message of me.messages()) await onMessage(message);
  })();
  await Promise.race([connected.promise, reading]);
  const stop = async () => {
    await me.close();
    await reading;
  };
  const sessions = () =>
    events.flatMap((event) => ("what" in event && event.what === "live" ? [event.type] : []));
  return { events, sessions, stop };
}

test("a reader that acknowledges late gets every message once, and no sender waits for it", async () => {
  const keys = memoryKeys();
  const [alice, bob] = await Promise.all([open(), open(keys)]);
  const [got, all] = [[] as Message[], Promise.withResolvers<void>()];
  const reader = await listen(bob, (message) => got.push(message) === 100 && all.resolve());
  const modes: unknown[] = [];
  const beganMs = performance.now();
  for (let i = 0; i < 100; i++)
    modes.push((await alice.send(bob.did, String(i))).last?.delivery_mode);
  expect(new Set(modes)).toEqual(new Set(["cache"]));
  // Half a second for each would be 50 s.
  expect(performance.now() - beganMs).toBeLessThan(40_000);
  await all.promise;
  expect(got.map(({ text }) => text)).toEqual(Array.from({ length: 100 }, (_, i) => String(i)));
  for (const message of got) await message.ack();
  await reader.stop();
  // What was acknowledged late is gone from the Cache.
  const again = await listen(await open(keys), (message) => got.push(message));
  await alice.send(bob.did, "last");
  while (got.at(-1)?.text !== "last") await Bun.sleep(5);
  await again.stop();
  expect(got.length).toBe(101);
}, 120_000);

test("a reader that is busy with one message makes no sender of others wait", async () => {
  const [alice, carol, bob] = await Promise.all([open(), open(), open()]);
  const [taken, free] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  const texts: (string | null)[] = [];
  const reader = await listen(bob, async (message) => {
    texts.push(message.text);
    taken.resolve();
    await free.promise;
    await message.ack();
  });
  const first = alice.send(bob.did, "first");
  await taken.promise;
  for (let i = 0; i < 50; i++) await carol.send(bob.did, `beside ${i}`);
  await first;
  free.resolve();
  while (texts.length < 51) await Bun.sleep(5);
  await reader.stop();
  expect(texts.slice(1)).toEqual(Array.from({ length: 50 }, (_, i) => `beside ${i}`));
}, 120_000);

test("garbage is passed at once, reported from the Cache, and holds up no other sender's live message", async () => {
  const [alice, bob] = await Promise.all([open(), open()]);
  const reader = await listen(bob, (message) => message.ack());
  const garbage = (more: object) => ({
    message_id: crypto.randomUUID(),
    to: bob.did,
    timestamp: new Date().toISOString(),
    payload: { ciphertext_b64: "AAAA" },
    ...more,
  });
  const relay = async (envelope: object) => {
    const headers = { "Content-Type": "application/json" };
    const answer = await fetch(`${nodes.url}/relay`, {
      method: "POST",
      body: JSON.stringify(envelope),
      headers,
    });
    return ((await answer.json()) as { code: string }).code;
  };
  for (let i = 0; i < 10; i++) expect(await relay(garbage({}))).toBe("cached");
  // It reaches no Cache, so that no look will ever show it.
  expect(await relay(garbage({ delivery_hint: "direct" }))).toBe("destination_unavailable");
  expect((await alice.send(bob.did, "live all the same")).last?.delivery_mode).toBe("direct");
  while (reader.events.filter(({ type }) => type === "unreadable").length < 10) await Bun.sleep(5);
  await reader.stop();
}, 120_000);

test("a transfer in chunks leaves the live session as it is, and small messages beside it still come live", async () => {
  const [alice, carol, bob] = await Promise.all([open(), open(), open()]);
  const sizes: number[] = [];
  const reader = await listen(bob, (message) => {
    sizes.push(message.sizeBytes);
    return message.ack();
  });
  const modes: unknown[] = [];
  await alice.send(bob.did, new Uint8Array(20_000), {
    chunkBytes: 1_000,
    onProgress: async () => modes.push((await carol.send(bob.did, "small")).last?.delivery_mode),
  });
  while (sizes.length < 21) await Bun.sleep(5);
  expect(sizes.filter((bytes) => bytes === 20_000).length).toBe(1);
  expect(modes).toContain("direct");
  expect(reader.sessions()).toEqual(["connected"]);
  await reader.stop();
}, 120_000);
