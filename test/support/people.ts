/**
 * People who use the SDK over nodes of their own: started before the tests of a file, closed after
 * them.
 */
import { afterAll, beforeAll } from "bun:test";
import type { WaypostOptions } from "../../src/client/identity/opening.ts";
import { memoryKeys } from "../../src/client/keys/key-stores.ts";
import { memoryStore } from "../../src/client/store/driver.ts";
import { cachesOf } from "../../src/client/trust/caches.ts";
import { Waypost } from "../../src/client/waypost.ts";
import { startTestNodes } from "./nodes.ts";
import { looking } from "./wait.ts";

export const waiting = { timeoutMs: 60_000, intervalMs: 20 };

export function peopleAtNodes() {
  const opened: Waypost[] = [];
  const at = { url: "" };
  let stop: () => Promise<unknown> = async () => undefined;
  beforeAll(async () => {
    const nodes = await startTestNodes();
    at.url = nodes.url;
    stop = nodes.stop;
  });
  afterAll(async () => {
    await Promise.all(opened.map((me) => me.close()));
    await stop();
  });
  /** Closed at the end. */
  const keep = async (opening: Promise<Waypost>): Promise<Waypost> => {
    const me = await opening;
    opened.push(me);
    return me;
  };
  const open = (options: Partial<WaypostOptions> = {}) =>
    keep(Waypost.open({ url: at.url, keys: memoryKeys(), waiting, ...options }));
  return {
    at,
    keep,
    open,
    openStored: (options: Partial<WaypostOptions> = {}) =>
      open({ store: memoryStore(), ...options }),
  };
}

/**
 * What is left in the person's Cache. What a store has saved is acknowledged a moment later; the
 * test's limit ends the wait.
 */
export async function untilWaiting(me: Waypost, count: number): Promise<void> {
  for (const look = looking(20); (await waitingCount(me)) !== count; ) await look.pause();
}

export async function waitingCount(me: Waypost): Promise<number> {
  const [cache] = await cachesOf(me.client, me.identity);
  return (await cache?.summary())?.count ?? -1;
}
