/**
 * Groups, read receipts, typing and profiles over running nodes: several people, two devices of
 * one, strangers, and changes that count for nothing.
 */
import { expect, test } from "bun:test";
import { type GroupRow, renderBundle } from "../../src/client/groups/bundles.ts";
import { type GroupState, statementText } from "../../src/client/groups/statements.ts";
import type { WaypostOptions } from "../../src/client/identity/opening.ts";
import { ed25519PublicKey, signEd25519 } from "../../src/client/keys/crypto.ts";
import { memoryKeys } from "../../src/client/keys/key-stores.ts";
import { groupType, profileType, receiptType, typingType } from "../../src/client/mail/content.ts";
import type { WaypostEvent } from "../../src/client/mail/message.ts";
import { memoryStore } from "../../src/client/store/driver.ts";
import { rowsOf } from "../../src/client/store/keys.ts";
import { Waypost } from "../../src/client/waypost.ts";
import { encodeBase64, encodeHex } from "../../src/core/codec/bytes.ts";
import { clientCode } from "../support/client-code.ts";
import { lyingDirectory } from "../support/lying-directory.ts";
import { peopleAtNodes, waiting } from "../support/people.ts";
import { dids, meet } from "./own-group-facts.ts";

const people = peopleAtNodes();
const { openStored: open } = people;

/** People who know one another. */
async function friends<N extends number>(
  count: N,
  options: Partial<WaypostOptions> = {},
): Promise<Waypost[]> {
  const all = await Promise.all(Array.from({ length: count }, () => open(options)));
  await meet(...all);
  return all;
}

/** What is read as soon as it is what is wanted; the test's limit ends the wait. */
async function until(read: () => Promise<unknown>, wanted: unknown): Promise<void> {
  for (const endMs = performance.now() + 30_000; ; await Bun.sleep(20)) {
    const value = await read();
    if (Bun.deepEquals(value, wanted) || performance.now() > endMs)
      return expect(value).toEqual(wanted);
  }
}
const groupAt = async (me: Waypost, id: string) => {
  const group = await me.groups.get(id);
  return group === null ? null : [group.name, [...group.members].sort(), group.standing];
};
/** Texts of a conversation; changes of a group as their version, or who left. */
const textsAt = async (me: Waypost, id: string) =>
  (await me.store.messages(id)).map(({ text, mediaType }) =>
    mediaType === groupType ? "change" : (text ?? mediaType),
  );
/** A group of three; a test sets the clock of its admin, Alice. */
async function groupWithClock() {
  const clock = { aheadMs: 0 };
  const nowMs = () => Date.now() + clock.aheadMs;
  const [alice, bob, carol] = [await open({ nowMs }), await open(), await open()];
  await meet(alice, bob, carol);
  const group = await alice.groups.create("Hiking", [bob.did, carol.did]);
  for (const me of [bob, carol])
    await until(() => groupAt(me, group.id), ["Hiking", dids(alice, bob, carol), "joined"]);
  return { clock, alice, bob, carol, group };
}
const events = (me: Waypost) => {
  const heard: WaypostEvent[] = [];
  me.on((event) => heard.push(event));
  return (type: WaypostEvent["type"]) => heard.filter((event) => event.type === type);
};

test("three people make a group, write, change it and leave it, and all see the same", async () => {
  const [alice, bob, carol] = (await friends(3)) as [Waypost, Waypost, Waypost];
  const group = await alice.groups.create("Hiking", [bob.did]);
  for (const me of [alice, bob])
    await until(() => groupAt(me, group.id), ["Hiking", dids(alice, bob), "joined"]);
  await (await bob.groups.get(group.id))?.send("from Bob");
  await until(() => textsAt(alice, group.id), ["change", "from Bob"]);
  await group.change({ name: "Climbing", add: [carol.did] });
  for (const me of [alice, bob, carol])
    await until(() => groupAt(me, group.id), ["Climbing", dids(alice, bob, carol), "joined"]);
  const carols = await carol.groups.get(group.id);
  await carols?.send("from Carol");
  const [said] = (await alice.store.messages(group.id)).filter(({ text }) => text === "from Bob");
  await carols?.react(said?.id ?? "", "👍");
  await until(() => textsAt(bob, group.id), ["change", "from Bob", "change", "from Carol"]);
  await until(
    async () => (await bob.store.message(said?.id ?? ""))?.reactions,
    [{ from: carol.did, reaction: "👍" }],
  );

  expect(
    await clientCode(async () => (await bob.groups.get(group.id))?.change({ name: "Mine" })),
  ).toBe("not_admin");
  await (await bob.groups.get(group.id))?.leave();
  for (const me of [alice, carol])
    await until(() => groupAt(me, group.id), ["Climbing", dids(alice, carol), "joined"]);
  expect(await groupAt(bob, group.id)).toEqual(["Climbing", dids(alice, carol), "out"]);
  expect(await clientCode(async () => (await bob.groups.get(group.id))?.send("still?"))).toBe(
    "not_member",
  );
  await (await alice.groups.get(group.id))?.send("without Bob");
  await until(async () => (await textsAt(carol, group.id)).at(-1), "without Bob");

  await (await alice.groups.get(group.id))?.change({ remove: [carol.did] });
  await until(() => groupAt(carol, group.id), ["Climbing", dids(alice), "out"]);
  // Who left is asked before they are in it again, also by somebody they know.
  await (await alice.groups.get(group.id))?.change({ add: [bob.did] });
  await until(() => groupAt(bob, group.id), ["Climbing", dids(alice, bob), "asked"]);
  await (await bob.groups.get(group.id))?.join();
  await (await bob.groups.get(group.id))?.send("back");
  await until(async () => (await textsAt(alice, group.id)).at(-1), "back");
  const [row] = (await alice.store.conversations()).filter(({ id }) => id === group.id);
  expect(row?.group).toEqual({
    ...{ id: group.id, name: "Climbing", admin: alice.did },
    members: dids(alice, bob),
    standing: "joined",
    next: null,
    second: null,
  });
});

test("a stranger's group asks first, learns nothing, and a blocked one's is nowhere", async () => {
  const [alice, bob, eve] = [await open(), await open(), await open()];
  const group = await eve.groups.create("Free money", [bob.did, alice.did]);
  await group.send("come in");
  await until(() => textsAt(bob, group.id), ["change", "come in"]);
  expect(await groupAt(bob, group.id)).toEqual(["Free money", dids(alice, bob, eve), "asked"]);
  const bobs = await bob.groups.get(group.id);
  expect(await clientCode(async () => bobs?.send("hello"))).toBe("not_member");
  expect((await bob.store.people()).map(({ did, isKnown }) => [did, isKnown])).toEqual([
    [eve.did, false],
  ]);
  await bobs?.leave();
  expect((await bob.groups.get(group.id))?.standing).toBe("out");
  await group.send("are you there?");
  await until(async () => (await textsAt(alice, group.id)).at(-1), "are you there?");
  expect((await eve.groups.get(group.id))?.members.length).toBe(3);
  await alice.store.savePerson(eve.did, { isBlocked: true });
  const other = await eve.groups.create("More money", [alice.did]);
  await (await eve.send(alice.did, "a last one")).delivered;
  await alice.store.savePerson(eve.did, { isBlocked: false });
  await eve.send(alice.did, "heard");
  await until(async () => (await textsAt(alice, eve.did)).at(-1), "heard");
  expect(await alice.groups.get(other.id)).toBeNull();
});

test("foreign, repeated and hostile changes count for nothing, and who is no member writes as themselves", async () => {
  const [alice, bob] = (await friends(2)) as [Waypost, Waypost];
  const eve = await people.open();
  await bob.store.savePerson(eve.did, { isKnown: true });
  const group = await alice.groups.create("Two", [bob.did]);
  await until(() => groupAt(bob, group.id), ["Two", dids(alice, bob), "joined"]);
  const [change] = await bob.store.messages(group.id);
  const said = JSON.parse(change?.text ?? "{}");
  const typed = { mediaType: groupType, group: group.id };
  const forged = { ...said, version: 7, name: "Eve's", members: { [eve.did]: 7, [bob.did]: 1 } };
  for (const json of [
    forged,
    { ...forged, admin: eve.did },
    { ...said, name: "again" },
    { v: 1, left: 1 },
    { v: 1, version: 9 },
    [],
  ])
    await eve.send(bob.did, json as never, typed);
  await eve.send(bob.did, "from outside", { group: group.id });
  await until(() => textsAt(bob, eve.did), ["from outside"]);
  expect([await groupAt(bob, group.id), await textsAt(bob, group.id)]).toEqual([
    ["Two", dids(alice, bob), "joined"],
    ["change"],
  ]);
  const many = Array.from(
    { length: 64 },
    (_, i) => `did:svc:${"2".repeat(20)}${"23456789"[i >> 3]}${"ABCDEFGH"[i & 7]}`,
  );
  expect(await clientCode(() => alice.groups.create("Many", many))).toBe("invalid_argument");
  expect(await clientCode(() => alice.groups.create("x".repeat(101), []))).toBe("invalid_argument");
});

test("what looks like a change and comes from nobody, or without a group, is kept nowhere", async () => {
  // A client without a store sends what it likes.
  const [alice, bob] = [await people.open(), await open()];
  const forms = ["x", "null", '{"name":5}', '{"v":1,"left":1}'];
  for (const form of forms)
    for (const anonymous of [true, false])
      await alice.send(bob.did, new TextEncoder().encode(form), {
        mediaType: groupType,
        anonymous,
      });
  await alice.send(bob.did, "after them");
  await until(() => textsAt(bob, alice.did), ["after them"]);
  expect(await textsAt(bob, "unverified")).toEqual([]);
});

test("an admin removes by alias as by DID, and nobody who is not in the group", async () => {
  const alias = `carol-${crypto.randomUUID().slice(0, 8)}`;
  const [[alice, bob], carol] = [(await friends(2)) as [Waypost, Waypost], await open({ alias })];
  const group = await alice.groups.create("Hiking", [bob.did, carol.did]);
  const change = async (remove: readonly string[]) =>
    (await alice.groups.get(group.id))?.change({ remove });
  await change([alias]);
  await until(() => groupAt(alice, group.id), ["Hiking", dids(alice, bob), "joined"]);
  for (const nobody of [alias, alice.did])
    expect(await clientCode(() => change([nobody]))).toBe("not_member");
});

test("two devices of the admin know the same group, and either changes it", async () => {
  const [alice, bob] = (await friends(2)) as [Waypost, Waypost];
  const group = await alice.groups.create("Before", [bob.did]);
  const linking = await Waypost.link({
    url: people.at.url,
    keys: memoryKeys(),
    store: memoryStore(),
    waiting,
  });
  await alice.devices.acceptLink(linking.code, "second");
  const second = await people.keep(linking.opened);
  await alice.store.saveProfile({ name: "Alice", isOpen: true });
  await until(() => groupAt(second, group.id), ["Before", dids(alice, bob), "joined"]);
  await until(async () => (await second.store.profile()).name, "Alice");
  await (await second.groups.get(group.id))?.change({ name: "After" });
  for (const me of [alice, bob])
    await until(() => groupAt(me, group.id), ["After", dids(alice, bob), "joined"]);
  await (await bob.groups.get(group.id))?.send("to both");
  for (const me of [alice, second])
    await until(
      async () => (await textsAt(me, group.id)).filter((text) => text !== "change"),
      ["to both"],
    );
  await (await bob.groups.get(group.id))?.leave();
  for (const me of [alice, second])
    await until(() => groupAt(me, group.id), ["After", dids(alice), "joined"]);
});

test("who asks learns that a message was read, when the reader says so and knows them; strangers and who is blocked learn nothing", async () => {
  const [alice, bob, eve, mallory] = (await Promise.all(
    [1, 2, 3, 4].map(() => open({ receipts: true })),
  )) as [Waypost, Waypost, Waypost, Waypost];
  const [heard, unheard] = [events(alice), [events(eve), events(mallory)]];
  const stateOf = async (id: string) => (await alice.store.message(id))?.delivery?.state;
  const read = async (text: string, options = {}) => {
    const { id } = await alice.send(bob.did, text, options);
    await until(async () => (await textsAt(bob, alice.did)).at(-1), text);
    await bob.store.markRead(alice.did);
    return id;
  };
  await bob.store.saveProfile({ isOpen: true });
  await bob.store.savePerson(mallory.did, { isKnown: true, isBlocked: true });
  for (const unwanted of [eve, mallory])
    await (await unwanted.send(bob.did, "are you there?")).delivered;
  await until(() => textsAt(bob, eve.did), ["are you there?"]);
  await bob.store.markRead(eve.did);
  await bob.store.savePerson(alice.did, { isKnown: true });
  const unasked = await read("asks for nothing", { receipt: false });
  const asked = await read("asks");
  await until(() => stateOf(asked), "read");
  await bob.store.saveProfile({ isOpen: false });
  const closed = await read("to somebody who tells nothing");
  await until(() => stateOf(closed), "received");
  expect([
    await stateOf(unasked),
    ...unheard.flatMap((of) => [...of("receipt"), ...of("read")]),
  ]).toEqual(["sent"]);
  expect(heard("read")).toEqual([{ type: "read", from: bob.did, messageIds: [asked] }]);
  expect(heard("receipt")).toEqual(
    [asked, closed].map((id) => ({ type: "receipt", from: bob.did, messageIds: [id] })),
  );
});

test("typing is heard at once, by those who are known, and kept nowhere", async () => {
  const [alice, bob] = (await friends(2)) as [Waypost, Waypost];
  const heard = events(bob);
  const typed = (isTyping: boolean) => ({
    type: "typing",
    from: alice.did,
    conversation: alice.did,
    isTyping,
  });
  await alice.typing(bob.did);
  await alice.store.saveProfile({ isOpen: true });
  await (await alice.send(bob.did, "a message")).delivered;
  await until(() => textsAt(bob, alice.did), ["a message"]);
  await alice.typing(bob.did, false);
  expect(heard("typing")).toEqual([]);
  for (const isTyping of [true, true, false]) await alice.typing(bob.did, isTyping);
  await until(async () => heard("typing"), [typed(true), typed(false)]);
  expect(await textsAt(bob, alice.did)).toEqual(["a message"]);
  const group = await alice.groups.create("Both", [bob.did]);
  await until(() => groupAt(bob, group.id), ["Both", dids(alice, bob), "joined"]);
  await alice.typing(group.id);
  await until(async () => heard("typing").at(-1), { ...typed(true), conversation: group.id });
  // A stranger's is not heard.
  const eve = await open();
  await eve.send(bob.did, { v: 1, typing: true }, { mediaType: typingType });
  await eve.send(bob.did, "after it");
  await until(() => textsAt(bob, eve.did), ["after it"]);
  expect(heard("typing").length).toBe(3);
});

test("a profile goes ahead of the next message, is a claim, and of another form is none", async () => {
  const [alice, bob] = (await friends(2)) as [Waypost, Waypost];
  const png = new Blob([new Uint8Array([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a, 1, 2, 3])]);
  for (const picture of [
    new Blob(["<svg>"]),
    new Blob([await png.bytes(), new Uint8Array(32_768)]),
  ])
    expect(await clientCode(() => alice.store.saveProfile({ picture }))).toBe("invalid_argument");
  await alice.store.saveProfile({ name: "Ali", picture: png });
  await bob.store.savePerson(alice.did, { name: "Alice from work" });
  await alice.send(bob.did, "one");
  await until(() => textsAt(bob, alice.did), ["one"]);
  const person = async () => {
    const { name = "", claimed } = (await bob.store.person(alice.did)) ?? {};
    return [name, claimed?.name];
  };
  // They are on their way at once, and may arrive in any order.
  await until(person, ["Alice from work", "Ali"]);
  const { picture } = await bob.store.profile(alice.did);
  expect([picture?.type, await picture?.bytes()]).toEqual(["image/png", await png.bytes()]);
  const html = { v: 1, name: "Mallory", picture: btoa("<script>alert(1)</script>") };
  for (const json of [
    html,
    { v: 1, name: "x".repeat(101) },
    { v: 1, name: 5 },
    { v: 2, name: "Two" },
  ])
    await alice.send(bob.did, json, { mediaType: profileType });
  await alice.send(bob.did, { v: 1, read: ["no id"] }, { mediaType: receiptType });
  await alice.store.saveProfile({ name: "Alison", picture: null });
  await alice.send(bob.did, "two");
  await until(() => textsAt(bob, alice.did), ["one", "two"]);
  const shown = async () => [await person(), (await bob.store.profile(alice.did)).picture === null];
  await until(shown, [["Alice from work", "Alison"], true]);
  await alice.store.saveProfile({ isOpen: true });
  await alice.send(alice.did, "to myself");
  await until(async () => (await textsAt(alice, alice.did)).length, 2);
  expect(await alice.store.profile()).toEqual({ name: "Alison", picture: null, isOpen: true });
});

test("a member whom no word of the group has reached asks the one who writes to it, if that one is known", async () => {
  const relay = lyingDirectory(people.at.url);
  const own = { keys: memoryKeys(), store: memoryStore() };
  await (await open(own)).close();
  const alice = await open({ ...own, relayUrl: relay.url });
  const [bob, carol] = [await open(), await open()];
  const all = [alice, bob, carol];
  for (const me of [alice, bob])
    for (const other of all)
      if (me !== other) await me.store.savePerson(other.did, { isKnown: true });
  const said = { success: true, code: "delivered", message: "as it says" };
  relay.lie = { swallows: { [`/relay/${bob.did}`]: said, [`/relay/${carol.did}`]: said } };
  const group = await alice.groups.create("Hiking", [bob.did, carol.did]);
  while (relay.swallowed < 2) await Bun.sleep(10);
  relay.lie = {};
  await group.send("who is there?");
  await until(() => groupAt(bob, group.id), ["Hiking", dids(...all), "joined"]);
  await until(() => textsAt(bob, group.id), ["who is there?", "change"]);
  // Carol has accepted nobody: a stranger makes her send nothing.
  expect(await groupAt(carol, group.id)).toBeNull();
  expect(await alice.store.messages(carol.did)).toEqual([]);
  await (await bob.groups.get(group.id))?.send("I am");
  await until(() => textsAt(alice, group.id), ["change", "who is there?", "I am"]);
  await relay.stop();
});

test("after a change by a clock that was far ahead the next one says that it would be lost, and new keys end that", async () => {
  const { clock, alice, bob, carol, group } = await groupWithClock();
  clock.aheadMs = 30 * 86_400_000;
  await group.change({ name: "Climbing" });
  clock.aheadMs = 0;
  const remove = async () => (await alice.groups.get(group.id))?.change({ remove: [carol.did] });
  expect(await clientCode(remove)).toBe("clock_wrong");
  expect((await alice.groups.get(group.id))?.members).toContain(carol.did);
  // Who is named could not follow, and nobody would be its admin.
  const handOver = async () => (await alice.groups.get(group.id))?.change({ admin: bob.did });
  expect(await clientCode(handOver)).toBe("clock_wrong");
  expect((await alice.groups.get(group.id))?.next).toBeNull();
  await alice.devices.replaceKeys();
  await remove();
  await until(() => groupAt(bob, group.id), ["Climbing", dids(alice, bob), "joined"]);
}, 60_000);

test("who has a replaced key of the admin keeps no change from being made, whatever the time of what they say", async () => {
  const [alice, bob, mallory] = (await friends(3)) as [Waypost, Waypost, Waypost];
  const group = await alice.groups.create("Hiking", [bob.did, mallory.did]);
  const all = dids(alice, bob, mallory);
  for (const me of [bob, mallory])
    await until(() => groupAt(me, group.id), ["Hiking", all, "joined"]);
  const seed = alice.identity.rootSeed.slice();
  await alice.devices.replaceKeys();
  const [row] = await alice.groups.own.table.values<GroupRow>(rowsOf.groups);
  if (row === undefined) throw new Error("no group");
  const version = Math.floor(Date.now() / 1_000) + 86_400;
  const statement: GroupState = { ...row.state, name: ["Stolen", version], members: {} };
  const key = encodeHex(await ed25519PublicKey(seed));
  const signature = encodeBase64(await signEd25519(statementText(statement), seed));
  const said = renderBundle({ statements: [{ statement, key, signature }], leavings: [] });
  await mallory.send(alice.did, said, { mediaType: groupType, group: group.id });
  await mallory.send(alice.did, "after it");
  await until(
    async () => (await alice.store.messages(mallory.did)).map(({ text }) => text),
    ["after it"],
  );
  await (await alice.groups.get(group.id))?.change({ remove: [mallory.did] });
  await until(() => groupAt(bob, group.id), ["Hiking", dids(alice, bob), "joined"]);
}, 60_000);

test("a leaving that is taken up while a clock is far ahead keeps no later change from counting", async () => {
  const { clock, alice, bob, carol, group } = await groupWithClock();
  clock.aheadMs = 10 * 86_400_000;
  await (await carol.groups.get(group.id))?.leave();
  await until(() => groupAt(alice, group.id), ["Hiking", dids(alice, bob), "joined"]);
  clock.aheadMs = 0;
  await group.change({ name: "Climbing" });
  await until(() => groupAt(bob, group.id), ["Climbing", dids(alice, bob), "joined"]);
}, 60_000);
