/**
 * Passes in the SDK over running nodes: whom the user has accepted comes through a flood that
 * closes the mailbox to others.
 */
import { expect, test } from "bun:test";
import { memoryKeys } from "../../src/client/keys/key-stores.ts";
import { memoryStore } from "../../src/client/store/driver.ts";
import { Waypost } from "../../src/client/waypost.ts";
import { freePort } from "../support/executable.ts";
import { relayAt, startTestNodes } from "../support/nodes.ts";
import { waiting } from "../support/people.ts";
import { until } from "../support/wait.ts";
import { devicesAt, shows } from "./own-devices.ts";

/** Pools of 160 and 100, 120 and 100 entries. */
const limits = { cache: { recipient_entries_max: 400, rate_limit_loopback: false } };

async function stage() {
  const nodes = await startTestNodes({}, limits);
  const { url } = nodes;
  const opened: Waypost[] = [];
  const keep = async (opening: Promise<Waypost>) => {
    const me = await opening;
    opened.push(me);
    return me;
  };
  const open = (store = memoryStore(), keys = memoryKeys()) =>
    keep(Waypost.open({ url, keys, store, waiting }));
  /** What Caches have taken, by the DID. */
  const taken = new Map<string, { passes: number; revoked: string[] }>();
  const { fetch: request } = globalThis;
  globalThis.fetch = Object.assign(async (...asked: [string | URL | Request, RequestInit?]) => {
    const answer = await request(...asked);
    const [where, init] = asked;
    const did = /\/cache\/pass\/(.+)$/.exec(String(where))?.[1];
    if (did !== undefined && answer.status === 200)
      taken.set(decodeURIComponent(did), await new Response(init?.body).json());
    return answer;
  }, request);
  const untilTold = async (me: Waypost, passes: number, revoked = 0) => {
    const isTold = () => {
      const told = taken.get(me.did);
      return told?.passes === passes && told.revoked.length === revoked;
    };
    while (!isTold()) await Bun.sleep(20);
  };
  /** Fills what newcomers of this network may use. */
  const flood = async (did: string) => {
    for (let n = 0; ; n++) {
      const envelope = {
        message_id: crypto.randomUUID(),
        to: did,
        timestamp: new Date().toISOString(),
        payload: { ciphertext_b64: "aGVsbG8=" },
      };
      const answer = await fetch(`${url}/cache/store`, {
        method: "POST",
        headers: { "content-type": "application/json" },
        body: JSON.stringify(envelope),
      });
      if (answer.status === 507) return n;
      expect(answer.status).toBe(202);
    }
  };
  const end = async () => {
    await Promise.all(opened.map((me) => me.close()));
    await nodes.stop();
    globalThis.fetch = request;
  };
  return { at: { url }, keep, open, taken, untilTold, flood, [Symbol.asyncDispose]: end };
}

const strangers = Array.from({ length: 400 }, (_, n) =>
  `did:svc:${"stranger".padEnd(17, "x")}${1_111 + n}`.replaceAll("0", "z"),
);

/** Where a message ends: at the Relay, or waiting, and why. */
async function outcome(me: Waypost, to: string): Promise<string> {
  const { id, delivered } = await me.send(to, "hello");
  const waits = Promise.withResolvers<string>();
  const look = async () => {
    const copy = (await me.store.message(id))?.delivery?.to[0];
    if (copy?.code != null) waits.resolve(copy.code);
  };
  const end = me.on((event) => {
    if (event.type === "changed") void look();
  });
  await look();
  const sent = delivered?.then(() => "sent") ?? "";
  return Promise.race([sent, waits.promise]).finally(end);
}

/** Resolves with the next message. */
async function next(me: Waypost): Promise<string> {
  for await (const message of me.messages()) return message.text ?? "";
  return "";
}

test("who was written to comes through a flood, and who was not waits; a blocked one too", async () => {
  await using at = await stage();
  const [store, keys] = [memoryStore(), memoryKeys()];
  const [bob, alice, carol] = [await at.open(store, keys), await at.open(), await at.open()];
  await at.untilTold(bob, 0);
  await (await bob.send(alice.did, "this is me")).delivered;
  expect(await next(alice)).toBe("this is me");
  await bob.close();
  await at.flood(bob.did);
  expect(await outcome(alice, bob.did)).toBe("sent");
  expect(await outcome(carol, bob.did)).toBe("mailbox_full");

  const again = await at.open(store, keys);
  expect(await next(again)).toBe("hello");
  await again.store.savePerson(alice.did, { isBlocked: true });
  // Of this quarter and of the one before.
  await at.untilTold(again, 0, 2);
  // More strangers than a Cache keeps revocations of give her none of hers back.
  for (const stranger of strangers)
    await again.store.savePerson(stranger, { isBlocked: true, isKnown: false });
  await at.untilTold(again, 0, 256);
  await again.close();
  await at.flood(bob.did);
  expect(await outcome(alice, bob.did)).toBe("mailbox_full");
});

test("a pass that one device got is shown by the others", async () => {
  await using at = await stage();
  const [store, keys] = [memoryStore(), memoryKeys()];
  const [bob, alice] = [await at.open(store, keys), await at.open()];
  const second = await devicesAt(at).linked(alice);
  await at.untilTold(bob, 0);
  await (await bob.send(alice.did, "to both")).delivered;
  await shows(second, bob.did, ["to both"]);
  await alice.close();
  await bob.close();
  await at.flood(bob.did);
  expect(await outcome(second, bob.did)).toBe("sent");
});

test("members of a group pass one another", async () => {
  await using at = await stage();
  const [admin, keys, store] = [await at.open(), memoryKeys(), memoryStore()];
  const [bob, carol] = [await at.open(store, keys), await at.open()];
  await Promise.all([at.untilTold(bob, 0), at.untilTold(carol, 0)]);
  for (const one of [bob, carol]) await one.store.savePerson(admin.did, { isKnown: true });
  const group = await admin.groups.create("walks", [bob.did, carol.did]);
  const joined = async (me: Waypost) => {
    while ((await me.store.conversations()).every(({ group: one }) => one?.standing !== "joined"))
      await Bun.sleep(20);
  };
  await Promise.all([joined(bob), joined(carol)]);
  await (await bob.groups.get(group.id))?.send("who comes?");
  const heard = async () => (await carol.store.messages(group.id)).map(({ text }) => text);
  while (!(await heard()).includes("who comes?")) await Bun.sleep(20);
  await bob.close();
  await at.flood(bob.did);
  // Neither has written to the other, or named the other.
  expect((await carol.store.person(bob.did))?.isKnown ?? false).toBe(false);
  const [sent] = (await (await carol.groups.get(group.id))?.send("I do")) ?? [];
  const states = async () =>
    (await carol.store.message(sent?.id ?? ""))?.delivery?.to.map(({ state }) => state);
  while ((await states())?.includes("waiting")) await Bun.sleep(20);
  expect(await states()).toEqual(["sent", "sent"]);
});

test("the Caches that the document names after a move get the passes at once", async () => {
  await using at = await stage();
  const [store, keys] = [memoryStore(), memoryKeys()];
  const bob = await at.open(store, keys);
  await at.untilTold(bob, 0);
  await bob.close();
  const url = `http://127.0.0.1:${freePort()}`;
  // The Directory stays; Relay and Cache are elsewhere.
  const next = await startTestNodes({
    server: {
      listen: [url.slice("http://".length)],
      recipients: at.at.url,
      drain_timeout: "2s",
    },
    directory: { enabled: false },
    relay: relayAt(url),
    cache: { enabled: true, public_endpoints: [url] },
  });
  const urls = { directoryUrl: at.at.url, relayUrl: next.url, cacheUrl: next.url };
  const moved = await at.keep(Waypost.open({ ...urls, keys, store, waiting }));
  const isThere = async () =>
    (await next.stores.capability("cache.store", "receipts").get(`passes:${bob.did}`, 0)) !== null;
  expect(await isThere()).toBe(false);
  await moved.move();
  while (!(await isThere())) await Bun.sleep(20);
  await moved.close();
  await next.stop();
}, 20_000);

test("a client that is told what to do with requests begins no passes: whom it accepts unasked gets none", async () => {
  await using at = await stage();
  const alice = await at.open();
  for (const acceptRequests of [true, false]) {
    const place = { ...at.at, keys: memoryKeys(), store: memoryStore(), waiting };
    const me = await at.keep(Waypost.open({ ...place, acceptRequests }));
    await (await alice.send(me.did, "hello")).delivered;
    expect(await next(me)).toBe("hello");
    await me.close();
    expect([acceptRequests, at.taken.has(me.did)]).toEqual([acceptRequests, false]);
  }
  // Without the option it begins them, as the others here do.
  await until(() => at.taken.has(alice.did));
});
