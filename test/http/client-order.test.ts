/**
 * The order of messages of the SDK: by their times as they were sent, however many are sent at
 * once, and what waited first for a reader that comes back; and each lost connection is reported
 * once, and once when it is back.
 */
import { afterAll, beforeAll, expect, test } from "bun:test";
import type { WaypostOptions } from "../../src/client/identity/opening.ts";
import { memoryKeys } from "../../src/client/keys/key-stores.ts";
import type { Message, WaypostEvent } from "../../src/client/mail/message.ts";
import { Waypost } from "../../src/client/waypost.ts";
import { freePort } from "../support/executable.ts";
import { startTestNodes, type TestNodes } from "../support/nodes.ts";

let nodes: TestNodes;
beforeAll(async () => {
  nodes = await startTestNodes();
});
afterAll(() => nodes.stop());

const waiting = { timeoutMs: 60_000, intervalMs: 20 };
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

/** Several are sent at once: times give the order. */
const inTime = (got: readonly Message[]) =>
  got.toSorted((a, b) => a.sentMs - b.sentMs).map(({ text }) => text);

test("messages that are sent at once have times in the order of the calls, to a DID and its alias", async () => {
  const alias = `bob${Date.now()}`;
  const [alice, bob] = await Promise.all([open(), open({ alias })]);
  await Promise.all(numbers(10).map((text) => alice.send(bob.did, text)));
  const got = await take(bob, 10);
  expect(inTime(got)).toEqual(numbers(10));
  expect(new Set(got.map(({ sentMs }) => sentMs)).size).toBe(10);

  const live = take(bob, 20);
  await Promise.all(numbers(20).map((text, i) => alice.send(i % 2 === 0 ? alias : bob.did, text)));
  expect(inTime(await live)).toEqual(numbers(20));
  await Promise.all(numbers(50).map((text) => alice.send(bob.did, text)));
  const last = await take(bob, 50);
  expect(inTime(last)).toEqual(numbers(50));
  expect(new Set(last.map(({ sentMs }) => sentMs)).size).toBe(50);
});

test("a send that fails does not keep the next from being sent", async () => {
  const [alice, bob] = await Promise.all([open(), open()]);
  const failed = alice
    .send(bob.did, "too short a life", { ttl: "never", retries: 0 })
    .catch(() => "failed");
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

test("what follows a message in chunks comes behind it, although it comes live", async () => {
  const [alice, bob] = await Promise.all([open(), open()]);
  const connected = Promise.withResolvers<void>();
  bob.on((event) => event.type === "connected" && event.what === "live" && connected.resolve());
  const got = take(bob, 10);
  await connected.promise;
  for (let i = 0; i < 5; i++) {
    await alice.send(bob.did, new Uint8Array(30_000), { chunkBytes: 1_000 });
    await alice.send(bob.did, "behind");
  }
  expect((await got).map(({ sizeBytes }) => sizeBytes)).toEqual(
    numbers(10).map((_, i) => (i % 2 === 0 ? 30_000 : 6)),
  );
}, 60_000);

/** In front of a Cache: while it is down, every request is refused. */
function switchAt(port: number, real: () => string) {
  let lost = new AbortController();
  const refused: string[] = [];
  const server = Bun.serve({
    hostname: "127.0.0.1",
    port,
    idleTimeout: 0,
    fetch: async (request) => {
      const { pathname, search } = new URL(request.url);
      if (lost.signal.aborted) {
        refused.push(pathname);
        return new Response("down", { status: 503 });
      }
      const body = request.method === "GET" ? {} : { body: await request.bytes() };
      const { method, headers } = request;
      const options = { method, headers, signal: lost.signal, ...body };
      const answer = await fetch(`${real()}${pathname}${search}`, options).catch(() => null);
      return answer === null
        ? new Response("down", { status: 503 })
        : new Response(answer.body, answer);
    },
  });
  const refusedAt = (part: string) => refused.filter((path) => path.includes(part)).length;
  return {
    refusedAt,
    down: () => lost.abort(),
    up: () => {
      lost = new AbortController();
    },
    stop: () => server.stop(true),
  };
}

test("a Cache that is lost is reported once, however often it is tried again, and once when it is back", async () => {
  const port = freePort();
  const cacheUrl = `http://127.0.0.1:${port}`;
  const own = await startTestNodes({ cache: { enabled: true, public_endpoints: [cacheUrl] } });
  const proxy = switchAt(port, () => own.url);
  try {
    const bob = await Waypost.open({
      url: own.url,
      cacheUrl,
      keys: memoryKeys(),
      waiting,
      pollMs: 100,
    });
    const events: string[] = [];
    const seen = async (wanted: string) => {
      while (!events.includes(wanted)) await Bun.sleep(5);
    };
    bob.on(
      (event) => "what" in event && "url" in event && events.push(`${event.type} ${event.what}`),
    );
    const reading = take(bob, 1);
    await seen("connected live");
    proxy.down();
    while (proxy.refusedAt("/cache/summary") < 3) await Bun.sleep(5);
    proxy.up();
    await seen("connected cache");
    const lost = events.filter((event) => !event.includes("live"));
    expect(lost).toEqual(["disconnected cache", "connected cache"]);
    await bob.close();
    expect(await reading).toEqual([]);
  } finally {
    await proxy.stop();
    await own.stop();
  }
}, 60_000);

test("a live session lasts while chunks arrive, and ends with the loop", async () => {
  const [alice, bob] = await Promise.all([open(), open()]);
  const events: WaypostEvent[] = [];
  const connected = Promise.withResolvers<void>();
  bob.on((event) => {
    events.push(event);
    if (event.type === "connected" && event.what === "live") connected.resolve();
  });
  const got = take(bob, 1);
  await connected.promise;
  await alice.send(bob.did, new Uint8Array(3_000), { chunkBytes: 1_000 });
  expect((await got)[0]?.sizeBytes).toBe(3_000);
  const live = events.flatMap((event) =>
    "what" in event && event.what === "live" ? [event.type] : [],
  );
  expect(live).toEqual(["connected", "disconnected"]);
});
