/** What a receiver keeps, and how it ends. */

import { heapStats } from "bun:jsc";
import { afterAll, beforeAll, expect, test } from "bun:test";
import { ClientError } from "../../src/client/base/failure.ts";
import { memoryKeys } from "../../src/client/keys/key-stores.ts";
import { type Identity, parseIdentity, renderIdentity } from "../../src/client/keys/keys.ts";
import type { WaypostEvent } from "../../src/client/mail/message.ts";
import { OwnIdentity } from "../../src/client/mail/own-identity.ts";
import { readMessage } from "../../src/client/mail/retrieve.ts";
import type { CacheClient } from "../../src/client/net/caches.ts";
import { Handed } from "../../src/client/store/queue.ts";
import type { Inbox } from "../../src/client/store/receiver.ts";
import { type PollResult, Receiver } from "../../src/client/store/receiver.ts";
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

/** Its second Cache did not answer the first look, and does not answer the next one. */
class Blind extends Receiver {
  #looks = 0;
  override async poll(caches: readonly CacheClient[]): Promise<PollResult> {
    if (this.#looks++ > 0) await new Promise(() => undefined);
    await super.poll(caches);
    const endpoint = caches[0]?.reader.at.url ?? "";
    return {
      isComplete: false,
      failed: [],
      unreachable: [{ endpoint, error: new ClientError("timed_out", "timed_out", "") }],
    };
  }
}

/** A receiver of its own, next to an identity that receives nothing itself. */
function receives(me: Waypost, emit: (event: WaypostEvent) => void) {
  const own = new OwnIdentity(me.client, copyOf(me.identity), { keys: memoryKeys() });
  own.on(emit);
  const inbox: Inbox = {
    isSaved: false,
    handed: new Handed(),
    accepts: async () => true,
    has: async () => false,
    read: readMessage,
    acked: async () => undefined,
    send: () => Promise.reject(new Error("sends nothing")),
  };
  return [own, inbox, { device: "phone", pollMs: 1_000 }] as const;
}

/** An identity wipes the secrets that it replaces. */
const copyOf = (identity: Identity): Identity =>
  parseIdentity(renderIdentity(identity), identity.name) ?? identity;

test("a bug in a loop is thrown, and is no end", async () => {
  const me = await Waypost.open({ url: nodes.url, keys: memoryKeys() });
  const receiver = new Broken(...receives(me, () => undefined));
  receiver.start();
  await expect(receiver.next()).rejects.toThrow("a bug");
  await receiver.stop();
  await me.close();
});

test("a live session that begins does not wait for a Cache that is lost", async () => {
  const me = await Waypost.open({ url: nodes.url, keys: memoryKeys() });
  const friend = await Waypost.open({ url: nodes.url, keys: memoryKeys() });
  const both = Promise.withResolvers<void>();
  const seen = new Set<string>();
  const receiver = new Blind(
    ...receives(me, ({ type }) => {
      if (seen.add(type).size === 2) both.resolve();
    }),
  );
  receiver.start();
  await both.promise;
  const sent = friend.send(me.did, "live");
  await (await receiver.next())?.ack();
  expect((await sent).last?.delivery_mode).toBe("direct");
  // Its look never ends.
  void receiver.stop();
  await Promise.all([me.close(), friend.close()]);
}, 20_000);

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
  // What still runs may hold something for a moment.
  for (let looks = 0; size() - before > 15_000_000 && looks < 50; looks++) await Bun.sleep(100);
  expect(size() - before).toBeLessThan(15_000_000);
  await Promise.all([me.close(), friend.close()]);
}, 60_000);
