/**
 * Key bundles under a machine's clock that is set: the nodes, in a thread of their own, go on by
 * theirs, which counts.
 */
import { afterAll, beforeAll, expect, test } from "bun:test";
import type { WaypostOptions } from "../../src/client/identity/opening.ts";
import { memoryKeys } from "../../src/client/keys/key-stores.ts";
import { memoryStore } from "../../src/client/store/driver.ts";
import { Waypost } from "../../src/client/waypost.ts";
import { dayMs } from "../../src/core/codec/time.ts";
import { type TestNode, testNode } from "../../src/testing/package.ts";
import { waiting } from "../support/people.ts";
import { shows, until } from "./own-devices.ts";

const { now } = Date;
let node: TestNode;
let aheadMs = 0;
/**
 * How often Caches were asked whether they keep bundles, with which each look at the own one
 * begins.
 */
let looks = 0;
const { fetch: request } = globalThis;
const opened: Waypost[] = [];

beforeAll(async () => {
  node = await testNode();
  Date.now = () => now() + aheadMs;
  globalThis.fetch = Object.assign((...args: Parameters<typeof fetch>) => {
    if (new URL(String(args[0])).pathname === "/node") looks++;
    return request(...args);
  }, request);
});
afterAll(async () => {
  Date.now = now;
  globalThis.fetch = request;
  await Promise.all(opened.map((me) => me.close()));
  await node.stop();
});

async function open(where: Pick<WaypostOptions, "keys" | "store">): Promise<Waypost> {
  const me = await Waypost.open({ url: node.url, waiting, pollMs: 200, ...where });
  opened.push(me);
  return me;
}
const place = () => ({ keys: memoryKeys(), store: memoryStore() });

async function shownId(me: Waypost): Promise<string> {
  return String((await (await fetch(`${node.url}/cache/keys/${me.did}`)).json()).key_id);
}

test.each([
  ["forward", 9],
  ["back", -9],
])(
  "a clock that is set %s and right again leaves the bundle, and what friends send",
  async (_, days) => {
    const where = place();
    const me = await open(where);
    const friend = await open(place());
    const before = await shownId(me);
    await (await friend.send(me.did, "before")).delivered;
    await shows(me, friend.did, ["before"]);

    aheadMs = days * dayMs;
    await me.close();
    looks = 0;
    const again = await open(where);
    await until(
      async () => looks,
      (count) => count > 0,
    );
    // After the look that is under way.
    await again.rotate();
    expect(await shownId(again)).toBe(before);
    aheadMs = 0;
    await (await friend.send(me.did, "after")).delivered;
    await until(
      () => again.store.messages(friend.did, { limit: 10 }),
      ({ length }) => length === 2,
    );
    expect(await shownId(again)).toBe(before);
    expect(again.identity.bundleKeys.map(({ id }) => id)).toEqual([before]);
  },
  60_000,
);
