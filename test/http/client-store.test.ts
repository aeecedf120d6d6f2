/**
 * The local store of the SDK over running nodes: what arrives is saved before it is acknowledged
 * and kept once; people, conversations and unread counts; files in pieces; what happens when the
 * store is full.
 */
import { describe, expect, test } from "bun:test";
import { memoryKeys } from "../../src/client/keys/key-stores.ts";
import type { WaypostEvent } from "../../src/client/mail/message.ts";
import { memoryStore } from "../../src/client/store/driver.ts";
import type { StoredMessage } from "../../src/client/store/shown.ts";
import type { Waypost } from "../../src/client/waypost.ts";
import { peopleAtNodes, untilWaiting, waitingCount } from "../support/people.ts";

const people = peopleAtNodes();
const { open, openStored } = people;

/** Resolves with the first value that is wanted, after each change of the store. */
async function until<T>(
  me: Waypost,
  read: () => Promise<T>,
  isWanted: (value: T) => boolean,
): Promise<T> {
  const changed = Promise.withResolvers<T>();
  const look = async () => {
    const value = await read();
    if (isWanted(value)) changed.resolve(value);
  };
  const end = me.on((event) => {
    if (event.type === "changed") void look().catch(changed.reject);
  });
  await look();
  return changed.promise.finally(end);
}

const stored = (me: Waypost, conversation: string, count: number): Promise<StoredMessage[]> =>
  until(
    me,
    () => me.store.messages(conversation),
    (all) => all.length >= count,
  );

async function take(me: Waypost, count: number): Promise<string[]> {
  const taken: string[] = [];
  for await (const message of me.messages()) if (taken.push(message.text ?? "") === count) break;
  return taken;
}

const texts = (messages: readonly StoredMessage[]) => messages.map(({ text }) => text);

test("a message is saved and acknowledged without the program, and counted until it is read", async () => {
  const [alice, bob] = await Promise.all([openStored(), openStored()]);
  const first = await alice.send(bob.did, "one");
  await first.delivered;
  await (await alice.send(bob.did, "two", { replyTo: first.id })).delivered;
  const got = await stored(bob, alice.did, 2);
  expect(texts(got)).toEqual(["one", "two"]);
  expect(
    got.map(({ id, isOwn, from, verified, isRead, replyTo }) => [
      id === first.id,
      isOwn,
      from,
      verified,
      isRead,
      replyTo,
    ]),
  ).toEqual([
    [true, false, alice.did, true, false, null],
    [false, false, alice.did, true, false, first.id],
  ]);
  await untilWaiting(bob, 0);
  expect([
    await bob.store.unread(),
    (await bob.store.conversations()).map(({ id, unread }) => [id, unread]),
  ]).toEqual([2, [[alice.did, 2]]]);
  await bob.store.markRead(alice.did);
  expect([
    await bob.store.unread(),
    (await bob.store.messages(alice.did)).every(({ isRead }) => isRead),
  ]).toEqual([0, true]);
  expect(texts(await stored(alice, bob.did, 2))).toEqual(["one", "two"]);
  expect((await alice.store.people()).map(({ did, isKnown }) => [did, isKnown])).toEqual([
    [bob.did, true],
  ]);
  expect((await bob.store.person(alice.did))?.isKnown).toBe(false);
});

test("the loop hands over each message once, also in the next run, and in the order of arrival", async () => {
  const store = memoryStore();
  const keys = memoryKeys();
  const [alice, bob] = await Promise.all([open(), open({ store, keys })]);
  for (const text of ["a", "b", "c"]) await alice.send(bob.did, text);
  expect(await take(bob, 2)).toEqual(["a", "b"]);
  await stored(bob, alice.did, 3);
  await bob.close();
  await alice.send(bob.did, "d");
  const again = await open({ store, keys });
  expect(await take(again, 2)).toEqual(["c", "d"]);
  expect(texts(await again.store.messages(alice.did))).toEqual(["a", "b", "c", "d"]);
});

test("messages are read by pages, the last page first, and removed ones are gone", async () => {
  const [alice, bob] = await Promise.all([open(), openStored()]);
  for (let i = 0; i < 5; i++) await alice.send(bob.did, String(i));
  await stored(bob, alice.did, 5);
  const last = await bob.store.messages(alice.did, { limit: 2 });
  const [before] = last;
  expect(texts(last)).toEqual(["3", "4"]);
  expect(
    texts(await bob.store.messages(alice.did, { limit: 2, ...(before && { before }) })),
  ).toEqual(["1", "2"]);
  await bob.store.remove(last[1] as StoredMessage);
  const [conversation] = await bob.store.conversations();
  expect([conversation?.unread, conversation?.last?.text]).toEqual([4, "3"]);
  expect(await bob.store.message(last[1]?.id ?? "")).toBeNull();
  await bob.store.removeConversation(alice.did);
  expect([await bob.store.conversations(), await bob.store.messages(alice.did)]).toEqual([[], []]);
});

test("files lie in pieces, are sent from there, and come out as they went in", async () => {
  const [alice, bob] = await Promise.all([openStored(), openStored()]);
  const bytes = crypto.getRandomValues(new Uint8Array(65_536));
  const data = new Uint8Array(3 * 1_048_576 + 17).map((_, i) => bytes[(i * 7) % 65_536] as number);
  const progress: number[] = [];
  const onProgress = ({ sentBytes }: { readonly sentBytes: number }) => progress.push(sentBytes);
  const sent = await alice.send(bob.did, data, {
    name: "a.bin",
    mediaType: "application/x-a",
    onProgress,
  });
  expect((await sent.delivered)?.chunks).toBe(4);
  expect(progress.at(-1)).toBe(data.length);
  const [got] = await stored(bob, alice.did, 1);
  if (got === undefined) throw new Error("nothing was stored");
  expect([got.id, got.text, got.name, got.mediaType, got.sizeBytes]).toEqual([
    sent.id,
    null,
    "a.bin",
    "application/x-a",
    data.length,
  ]);
  const file = await bob.store.file(got);
  expect([file.name, Bun.hash(await file.arrayBuffer())]).toEqual(["a.bin", Bun.hash(data)]);
  const { bytes: used } = await bob.store.usage();
  expect(used > data.length && used < data.length + 20_000).toBe(true);
  await bob.store.remove(got);
  expect((await bob.store.usage()).bytes).toBeLessThan(20_000);
}, 30_000);

test("receipts and reactions change the message that they name, and are no messages themselves", async () => {
  const [alice, bob] = await Promise.all([
    openStored({ receipts: true }),
    openStored({ receipts: true }),
  ]);
  await bob.store.savePerson(alice.did, { isKnown: true });
  const sent = await alice.send(bob.did, "hello");
  const state = async () => (await alice.store.message(sent.id))?.delivery?.state;
  expect(await until(alice, state, (now) => now === "received")).toBe("received");
  await stored(bob, alice.did, 1);
  await bob.react(alice.did, sent.id, "👍");
  await bob.react(alice.did, sent.id, "🎉");
  const reactions = async () => (await alice.store.message(sent.id))?.reactions ?? [];
  const isLast = (all: StoredMessage["reactions"]) => all[0]?.reaction === "🎉";
  expect(await until(alice, reactions, isLast)).toEqual([{ from: bob.did, reaction: "🎉" }]);
  expect((await bob.store.message(sent.id))?.reactions).toEqual([
    { from: bob.did, reaction: "🎉" },
  ]);
  await bob.react(alice.did, sent.id, "");
  expect(await until(alice, reactions, (all) => all.length === 0)).toEqual([]);
  expect([texts(await alice.store.messages(bob.did)), await alice.store.unread()]).toEqual([
    ["hello"],
    0,
  ]);
});

test("a group message is one message with a copy for each member, and all know it by one id", async () => {
  const [alice, bob, carol] = await Promise.all([openStored(), openStored(), openStored()]);
  const group = await alice.groups.create("both", [bob.did, carol.did]);
  await Promise.all((await group.send("to all")).map(({ delivered }) => delivered));
  const [, own] = await stored(alice, group.id, 2);
  // Members have the order of their DIDs.
  const inOrder = [bob.did, carol.did].sort();
  expect([own?.delivery?.state, own?.delivery?.to.map(({ did, state }) => [did, state])]).toEqual([
    "sent",
    inOrder.map((did) => [did, "sent"]),
  ]);
  for (const member of [bob, carol])
    expect((await stored(member, group.id, 2)).map(({ id }) => id).at(-1)).toEqual(own?.id ?? "");
});

test("what an unproven sender writes is in no person's conversation, and a blocked one's nowhere", async () => {
  const [alice, bob] = await Promise.all([open(), openStored()]);
  await alice.send(bob.did, "unsigned", { anonymous: true });
  expect(texts(await stored(bob, "unverified", 1))).toEqual(["unsigned"]);
  await bob.store.savePerson(alice.did, { isBlocked: true, name: "Alice" });
  await alice.send(bob.did, "unwanted");
  await untilWaiting(bob, 0);
  await bob.store.savePerson(alice.did, { isBlocked: false });
  await alice.send(bob.did, "wanted again");
  expect(texts(await stored(bob, alice.did, 1))).toEqual(["wanted again"]);
  await untilWaiting(bob, 0);
  expect([await bob.store.person(alice.did), await waitingCount(bob)]).toEqual([
    {
      did: alice.did,
      name: "Alice",
      alias: null,
      isKnown: true,
      isBlocked: false,
      setMs: expect.any(Number),
    },
    0,
  ]);
});

test("acknowledged by hand, a message is saved when the program acknowledges it, and comes again until then", async () => {
  const store = memoryStore();
  const keys = memoryKeys();
  const options = { store, keys, acknowledge: "by-hand" } as const;
  const [alice, bob] = await Promise.all([open(), open(options)]);
  await alice.send(bob.did, "kept");
  await alice.send(bob.did, "not kept");
  for await (const message of bob.messages()) {
    if (message.text === "not kept") break;
    await message.ack();
  }
  expect(texts(await bob.store.messages(alice.did))).toEqual(["kept"]);
  await bob.close();
  const again = await open(options);
  expect(await take(again, 1)).toEqual(["not kept"]);
});

test("acknowledged by hand, receipts and profiles are saved all the same, and a receipt is one event", async () => {
  const [alice, bob] = await Promise.all([
    openStored({ receipts: true }),
    openStored({ receipts: true, acknowledge: "by-hand" }),
  ]);
  await alice.store.saveProfile({ name: "Alice A." });
  await alice.store.savePerson(bob.did, { isKnown: true });
  const receipts: WaypostEvent[] = [];
  bob.on((event) => void (event.type === "receipt" && receipts.push(event)));
  const reading = (async () => {
    for await (const message of bob.messages()) {
      await message.ack();
      if (message.text === "the end") break;
    }
  })();
  const sent = await bob.send(alice.did, "hello");
  await until(
    bob,
    async () => (await bob.store.message(sent.id))?.delivery?.state,
    (state) => state === "received",
  );
  await (await alice.send(bob.did, "hi")).delivered;
  await until(
    bob,
    async () => (await bob.store.person(alice.did))?.claimed?.name,
    (name) => name === "Alice A.",
  );
  await alice.send(bob.did, "the end");
  await reading;
  expect(receipts).toEqual([{ type: "receipt", from: alice.did, messageIds: [sent.id] }]);
});

describe("a full store", () => {
  test("loses the files of old messages first, and their messages stay", async () => {
    const [alice, bob] = await Promise.all([
      open(),
      openStored({ store: memoryStore({ bytesMax: 500_000 }) }),
    ]);
    for (let i = 0; i < 3; i++)
      await alice.send(bob.did, new Uint8Array(200_000).fill(i), { name: `${i}.bin` });
    const got = await stored(bob, alice.did, 3);
    expect(got.map(({ name, content }) => [name, content])).toEqual([
      ["0.bin", "removed"],
      ["1.bin", "whole"],
      ["2.bin", "whole"],
    ]);
    const failure = await bob.store
      .file(got[0] as StoredMessage)
      .catch((error: { code: string }) => error.code);
    expect(failure).toBe("content_removed");
  });

  test("acknowledges nothing more, says so once, and goes on when there is room", async () => {
    const [alice, bob] = await Promise.all([
      open(),
      openStored({ store: memoryStore({ bytesMax: 60_000 }) }),
    ]);
    const events: WaypostEvent[] = [];
    const full = Promise.withResolvers<void>();
    bob.on((event) => {
      events.push(event);
      if (event.type === "store_full") full.resolve();
    });
    await alice.send(bob.did, "x".repeat(30_000));
    await stored(bob, alice.did, 1);
    for (const letter of ["y", "z"]) await alice.send(bob.did, letter.repeat(30_000));
    await full.promise;
    expect((await stored(bob, alice.did, 1)).length).toBe(1);
    expect(await waitingCount(bob)).toBe(2);
    // Once for each time that it is full: after there was room for one more, it is so again.
    expect(events.filter(({ type }) => type === "store_full").length).toBe(1);
    await bob.store.removeConversation(alice.did);
    const [got] = await stored(bob, alice.did, 1);
    expect(["y", "z"]).toContain(got?.text?.[0] ?? "");
    await untilWaiting(bob, 1);
  }, 60_000);
});

test("a clock that was a month ahead for one message spoils no order: it stands where it was sent", async () => {
  const state = { aheadMs: 30 * 86_400_000 };
  const where = { keys: memoryKeys(), store: memoryStore() };
  const bob = await openStored();
  const first = await open({ ...where, nowMs: () => Date.now() + state.aheadMs, rotateMs: false });
  await (await first.send(bob.did, "one")).delivered;
  await first.store.markRead(bob.did);
  await first.close();
  const alice = await open(where);
  const count = async (me: Waypost, other: string) => (await me.store.messages(other)).length;
  for (const [i, text] of ["two", "three"].entries()) {
    await bob.send(alice.did, `re: ${text}`);
    while ((await count(alice, bob.did)) < 2 * i + 2) await Bun.sleep(10);
    await (await alice.send(bob.did, text)).delivered;
    while ((await count(bob, alice.did)) < 2 * i + 3) await Bun.sleep(10);
  }
  const wanted = ["one", "re: two", "two", "re: three", "three"];
  for (const [me, other] of [
    [alice, bob],
    [bob, alice],
  ] as const) {
    const shown = await me.store.messages(other.did);
    expect(shown.map(({ text }) => text)).toEqual(wanted);
    expect(shown.every(({ sentAt }) => sentAt.getTime() < Date.now() + 60_000)).toBe(true);
  }
  const [conversation] = await alice.store.conversations();
  expect([conversation?.last?.text, conversation?.unread]).toEqual(["three", 2]);
}, 30_000);
