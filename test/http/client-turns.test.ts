/**
 * In which order `messages()` hands over what one person sent: that of sending, though up to eight
 * are on their way at once and one of them comes later than the others; and what one that never
 * comes holds up.
 */
import { expect, test } from "bun:test";
import type { WaypostOptions } from "../../src/client/identity/opening.ts";
import { memoryKeys } from "../../src/client/keys/key-stores.ts";
import { memoryStore } from "../../src/client/store/driver.ts";
import type { Waypost } from "../../src/client/waypost.ts";
import { peopleAtNodes } from "../support/people.ts";

const people = peopleAtNodes();
const { open } = people;

/** In front of the nodes: what goes to the Relay is refused where `isRefused` says so. */
function relayAt(isRefused: (messageId: string) => boolean) {
  const server = Bun.serve({
    hostname: "127.0.0.1",
    port: 0,
    fetch: async (request) => {
      const { pathname, search } = new URL(request.url);
      const body = request.method === "GET" ? null : await request.text();
      const isMessage = pathname.startsWith("/relay/");
      if (isMessage && isRefused(JSON.parse(body ?? "{}").message_id))
        return Response.json({ code: "busy" }, { status: 503 });
      const { method, headers } = request;
      const real = await fetch(`${people.at.url}${pathname}${search}`, { method, headers, body });
      return new Response(await real.bytes(), real);
    },
  });
  return { url: `http://127.0.0.1:${server.port}`, stop: () => server.stop(true) };
}

/** Texts in the order of `messages()`. */
async function handed(me: Waypost, count: number): Promise<(string | null)[]> {
  const texts: (string | null)[] = [];
  for await (const message of me.messages()) {
    await message.ack();
    if (texts.push(message.text) === count) break;
  }
  return texts;
}

const numbers = Array.from({ length: 12 }, (_, i) => String(i));

const readers: readonly (readonly [string, () => Partial<WaypostOptions>])[] = [
  ["a store", () => ({ store: memoryStore() })],
  ["no store", () => ({})],
  ["a store by hand", () => ({ store: memoryStore(), acknowledge: "by-hand" })],
];

test.each(readers)(
  "with %s, what others have overtaken on the way is handed over before them",
  async (_name, options) => {
    // The first of each run of four is refused once, and comes behind the three others.
    const seen = new Set<string>();
    let refusals = 0;
    const relay = relayAt((id) => {
      const isRefused = !seen.has(id) && seen.size % 4 === 0;
      seen.add(id);
      if (isRefused) refusals++;
      return isRefused;
    });
    const keys = memoryKeys();
    await open({ keys });
    const alice = await open({ relayUrl: relay.url, keys, store: memoryStore(), rotateMs: false });
    const bob = await open(options());
    const got = handed(bob, numbers.length);
    for (const text of numbers) await alice.send(bob.did, text);
    expect(await got).toEqual(numbers);
    expect(refusals).toBeGreaterThanOrEqual(3);
    await relay.stop();
  },
  30_000,
);

test("what waits in a store is handed over in that order by commands too", async () => {
  let first = "";
  const relay = relayAt((id) => {
    const isFirst = first === "";
    first ||= id;
    return isFirst;
  });
  const keys = memoryKeys();
  await open({ keys });
  const alice = await open({ relayUrl: relay.url, keys, store: memoryStore(), rotateMs: false });
  const bob = await open({ store: memoryStore() });
  const sent = await Promise.all(numbers.map((text) => alice.send(bob.did, text)));
  await Promise.all(sent.map(({ delivered }) => delivered));
  while ((await bob.store.messages(alice.did)).length < numbers.length) await Bun.sleep(10);
  const texts: (string | null)[] = [];
  for await (const text of bob.store.handOver(async (message) => message.text)) texts.push(text);
  expect(texts).toEqual(numbers);
  await relay.stop();
}, 30_000);

test("what never comes holds up nothing for long, and what is known to have failed nothing at all", async () => {
  const lost = new Set<string>();
  const relay = relayAt((id) => lost.has(id));
  const keys = memoryKeys();
  await open({ keys });
  const alice = await open({ relayUrl: relay.url, keys, store: memoryStore(), rotateMs: false });
  const [bob, kept] = [await open(), await open({ store: memoryStore() })];
  // Without a store one that never comes is waited for until the second is over.
  const never = await alice.send(bob.did, "never");
  lost.add(never.id);
  const behind = await alice.send(bob.did, "behind");
  await behind.delivered;
  const message = await alice.store.message(never.id);
  if (message !== null) await alice.store.remove(message);
  expect(await handed(bob, 1)).toEqual(["behind"]);
  // Half a minute, with a store, would be longer than this test may take.
  const failed = await alice.send(kept.did, "failed", { ttl: "never" });
  expect(await failed.delivered?.catch(() => "failed")).toBe("failed");
  await alice.send(kept.did, "next");
  expect(await handed(kept, 1)).toEqual(["next"]);
  await relay.stop();
}, 20_000);
