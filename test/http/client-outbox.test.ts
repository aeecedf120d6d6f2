/**
 * The outbox of the SDK's local store: messages that are sent without a network arrive later, in
 * order, each once and with the same bytes; what becomes of one whose time is over; and what a
 * refusal leaves.
 */
import { expect, test } from "bun:test";
import type { ClientError } from "../../src/client/base/failure.ts";
import type { WaypostOptions } from "../../src/client/identity/opening.ts";
import { memoryKeys } from "../../src/client/keys/key-stores.ts";
import type { Message } from "../../src/client/mail/message.ts";
import { memoryStore } from "../../src/client/store/driver.ts";
import type { Waypost } from "../../src/client/waypost.ts";
import { peopleAtNodes } from "../support/people.ts";
import { pause, until } from "../support/wait.ts";

const people = peopleAtNodes();
const { open } = people;

/** In the order of their times: several are sent at once. */
async function take(me: Waypost, count: number): Promise<(string | null)[]> {
  const taken: Message[] = [];
  for await (const message of me.messages()) {
    await message.ack();
    if (taken.push(message) === count) break;
  }
  return taken.toSorted((a, b) => a.sentMs - b.sentMs).map(({ text }) => text);
}

/** With a store, behind a Relay that does not name this address: registered at the nodes before. */
async function openBehind(
  relayUrl: string,
  options: Partial<WaypostOptions> = {},
): Promise<Waypost> {
  const keys = memoryKeys();
  await open({ keys });
  return open({ relayUrl, keys, store: memoryStore(), rotateMs: false, ...options });
}

/** A number: the status of the answer to a message that was delivered. */
type Answer = "pass" | "refuse" | "lose" | number;

/**
 * In front of the nodes: passes posts to the Relay on, refuses them, or loses them before or after
 * they were delivered.
 */
function relayAt(
  decide: (body: string) => Answer,
  answering: Promise<unknown> = Promise.resolve(),
) {
  const bodies: string[] = [];
  const server = Bun.serve({
    hostname: "127.0.0.1",
    port: 0,
    fetch: async (request) => {
      const { pathname, search } = new URL(request.url);
      const body = request.method === "GET" ? null : await request.text();
      const isMessage = pathname.startsWith("/relay/");
      const answer = isMessage ? decide(body ?? "") : "pass";
      if (isMessage) bodies.push(body ?? "");
      if (isMessage) await answering;
      if (answer === "refuse") return Response.json({ code: "busy" }, { status: 503 });
      if (answer === "lose") return new Response("", { status: 502 });
      const { method, headers } = request;
      const real = await fetch(`${people.at.url}${pathname}${search}`, { method, headers, body });
      return typeof answer === "number"
        ? new Response("", { status: answer })
        : new Response(await real.bytes(), real);
    },
  });
  return { url: `http://127.0.0.1:${server.port}`, bodies, stop: () => server.stop(true) };
}

const numbers = Array.from({ length: 10 }, (_, i) => String(i));

test("ten messages sent at once without a network arrive in their order, each once, also in a later run", async () => {
  const state = { answer: "lose" as Answer };
  const relay = relayAt(() => state.answer);
  const [keys, store] = [memoryKeys(), memoryStore()];
  const bob = await open();
  const first = await open({ keys, store });
  await first.close();
  // The identity is known, so it opens when nothing can be reached.
  const dead = await open({ url: "http://127.0.0.1:1", keys, store });
  const offline = await Promise.all(numbers.map((text) => dead.send(bob.did, text)));
  expect(
    (await dead.store.messages(bob.did)).map(({ text, delivery }) => [text, delivery?.state]),
  ).toEqual(numbers.map((text) => [text, "waiting"]));
  await dead.close();
  const alice = await open({ relayUrl: relay.url, keys, store });
  const last = await alice.send(bob.did, "last");
  await until(() => relay.bodies.length > 0);
  state.answer = 502;
  while (relay.bodies.length < 5) await Bun.sleep(10);
  state.answer = "pass";
  await last.delivered;
  expect(await take(bob, 11)).toEqual([...numbers, "last"]);
  expect(
    (await alice.store.messages(bob.did)).every(({ delivery }) => delivery?.state === "sent"),
  ).toBe(true);
  // Of each message the same bytes, however often.
  const idOf = (body: string) => String(JSON.parse(body).message_id);
  expect(new Set(relay.bodies).size).toBe(11);
  expect(new Set(relay.bodies.map(idOf))).toEqual(new Set([...offline, last].map(({ id }) => id)));
  const times = [...new Set(relay.bodies)].map((body) => Date.parse(JSON.parse(body).timestamp));
  expect(times.every((ms, i) => i === 0 || ms > (times[i - 1] ?? ms))).toBe(true);
  await relay.stop();
}, 60_000);

test("a store that fails while a message goes out holds it up, and sends it again with the same bytes", async () => {
  const state = { isAway: false, reads: 0, writes: 0 };
  const inner = memoryStore();
  const failOr = <T>(what: "reads" | "writes", work: () => Promise<T>): Promise<T> => {
    if (!state.isAway) return work();
    state[what]++;
    state.isAway = state.reads === 0 || state.writes === 0;
    return Promise.reject(new Error("the disk is away"));
  };
  const store = {
    ...inner,
    scan: (range: Parameters<typeof inner.scan>[0]) => failOr("reads", () => inner.scan(range)),
    apply: (batch: Parameters<typeof inner.apply>[0]) => failOr("writes", () => inner.apply(batch)),
  };
  // When the Relay has the message for the first time, the store can neither keep that nor be read.
  const relay = relayAt(() => {
    state.isAway = relay.bodies.length === 0;
    return "pass";
  });
  const [bob, alice] = await Promise.all([open(), openBehind(relay.url, { store })]);
  const sent = await alice.send(bob.did, "once");
  await sent.delivered;
  expect([state.reads > 0, state.writes > 0, new Set(relay.bodies).size]).toEqual([true, true, 1]);
  expect(await take(bob, 1)).toEqual(["once"]);
  await relay.stop();
}, 60_000);

test("when its time is over, a message that surely never left is prepared anew", async () => {
  const state = { answer: "refuse" as Answer, aheadMs: 0 };
  const relay = relayAt(() => state.answer);
  const [bob, alice] = await Promise.all([
    open(),
    openBehind(relay.url, { nowMs: () => Date.now() + state.aheadMs }),
  ]);
  const sent = await alice.send(bob.did, "late", { ttl: "1h" });
  while (relay.bodies.length < 2) await Bun.sleep(10);
  expect(new Set(relay.bodies).size).toBe(1);
  state.aheadMs = 2 * 3_600_000;
  while (new Set(relay.bodies).size < 2) await Bun.sleep(10);
  state.aheadMs = 0;
  state.answer = "pass";
  expect((await sent.delivered)?.last?.success).toBe(true);
  expect(await take(bob, 1)).toEqual(["late"]);
  const ids = relay.bodies.map((body) => JSON.parse(body).message_id);
  expect(new Set(ids)).toEqual(new Set([sent.id]));
  await relay.stop();
}, 30_000);

test.each([502, 504])(
  "when its time is over, one that was answered %d is uncertain, and the program decides",
  async (status) => {
    const state = { answer: status as Answer, aheadMs: 0 };
    const relay = relayAt(() => state.answer);
    const [bob, alice] = await Promise.all([
      open(),
      openBehind(relay.url, { nowMs: () => Date.now() + state.aheadMs }),
    ]);
    const sent = await alice.send(bob.did, "maybe", { ttl: "1h" });
    const behind = await alice.send(bob.did, "behind");
    while (relay.bodies.length < 1) await Bun.sleep(10);
    state.aheadMs = 2 * 3_600_000;
    expect(await sent.delivered?.catch((error: ClientError) => error.code)).toBe("uncertain");
    state.aheadMs = 0;
    state.answer = "pass";
    await behind.delivered;
    const view = async () => (await alice.store.message(sent.id))?.delivery;
    expect(await view()).toMatchObject({
      state: "uncertain",
      to: [{ did: bob.did, code: "uncertain" }],
    });
    await alice.store.resend(sent.id);
    while ((await view())?.state !== "sent") await Bun.sleep(10);
    await (await alice.send(bob.did, "after")).delivered;
    // The same message in another envelope is not shown again.
    expect(await take(bob, 3)).toEqual(["maybe", "behind", "after"]);
    await relay.stop();
  },
  30_000,
);

test.each([200, 500])(
  "one that was answered %d without a report is uncertain at once",
  async (status) => {
    const relay = relayAt(() => status);
    const [bob, alice] = await Promise.all([open(), openBehind(relay.url)]);
    const sent = await alice.send(bob.did, "maybe");
    expect(await sent.delivered?.catch((error: ClientError) => error.code)).toBe("uncertain");
    expect((await alice.store.message(sent.id))?.delivery?.state).toBe("uncertain");
    expect(await take(bob, 1)).toEqual(["maybe"]);
    await relay.stop();
  },
  30_000,
);

test("a refusal for good fails the message and holds no other up; a removed message is not sent", async () => {
  const state = { answer: "refuse" as Answer };
  const relay = relayAt(() => state.answer);
  const [bob, alice] = await Promise.all([open(), openBehind(relay.url)]);
  const failed = await alice.send(bob.did, "too short a life", { ttl: "never" });
  const removed = await alice.send(bob.did, "removed");
  const kept = await alice.send(bob.did, "kept");
  expect(await failed.delivered?.catch((error: ClientError) => error.code)).toBe(
    "invalid_argument",
  );
  const message = await alice.store.message(removed.id);
  if (message !== null) await alice.store.remove(message);
  // An attempt that is under way when its message is removed may still arrive: the next message's
  // comes after it.
  while (!relay.bodies.some((body) => body.includes(kept.id))) await Bun.sleep(5);
  state.answer = "pass";
  await kept.delivered;
  expect(await take(bob, 1)).toEqual(["kept"]);
  expect((await alice.store.message(failed.id))?.delivery?.to[0]).toMatchObject({
    state: "failed",
    code: "invalid_argument",
  });
  await relay.stop();
}, 30_000);

test("a profile that was refused comes with the next message, and waits longest for somebody who is away", async () => {
  // The profile and the message behind it are on their way at once: the profile is refused,
  // whichever comes first.
  const isProfile = (body: string) => JSON.parse(body).ttl === "30d";
  let refusals = 1;
  const relay = relayAt((body) => (isProfile(body) && refusals-- > 0 ? 403 : "pass"));
  const [bob, alice] = await Promise.all([open(), openBehind(relay.url)]);
  await alice.store.saveProfile({ name: "Alice" });
  for (const text of ["one", "two", "three"])
    await (await alice.send(bob.did, text, { ttl: "1h" })).delivered;
  const ttls = () => relay.bodies.map((body) => JSON.parse(body).ttl).toSorted();
  while (ttls().length < 5) await Bun.sleep(5);
  expect(ttls()).toEqual(["1h", "1h", "1h", "30d", "30d"]);
  await relay.stop();
}, 30_000);

test("after close no receipt is tried again, and nothing is said of it", async () => {
  const [sent, answer] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  const relay = relayAt(() => {
    sent.resolve();
    return "refuse";
  }, answer.promise);
  const [alice, keys] = [await open({ store: memoryStore() }), memoryKeys()];
  await open({ keys });
  const options = {
    relayUrl: relay.url,
    keys,
    store: memoryStore(),
    rotateMs: false,
    receipts: true,
  } as const;
  const bob = await open(options);
  await bob.store.savePerson(alice.did, { isKnown: true });
  const failures: string[] = [];
  bob.on((event) => event.type === "failed" && failures.push(event.what));
  await alice.send(bob.did, "hello", { receipt: true });
  expect(await take(bob, 1)).toEqual(["hello"]);
  await sent.promise;
  await bob.close();
  answer.resolve();
  await pause(1_500, "longer than the pause before another attempt");
  expect([relay.bodies.length, failures]).toEqual([1, []]);
  await relay.stop();
});
