/**
 * A group is handed over: its conversation stays where it was, and the next admin changes it; own
 * devices answer first; who was away comes after it; of random DIDs the admin's own word counts.
 */
import { expect, test } from "bun:test";
import { renderBundle } from "../../src/client/groups/bundles.ts";
import { statementText, withChange } from "../../src/client/groups/statements.ts";
import type { WaypostOptions } from "../../src/client/identity/opening.ts";
import { ed25519PublicKey, signEd25519 } from "../../src/client/keys/crypto.ts";
import { groupType } from "../../src/client/mail/content.ts";
import { memoryStore, type StoreDriver } from "../../src/client/store/driver.ts";
import { groupAt } from "../../src/client/store/group-rows.ts";
import { Table } from "../../src/client/store/table.ts";
import type { Waypost } from "../../src/client/waypost.ts";
import { encodeBase64, encodeHex } from "../../src/core/codec/bytes.ts";
import { clientCode } from "../support/client-code.ts";
import { lyingDirectory } from "../support/lying-directory.ts";
import { peopleAtNodes, untilWaiting } from "../support/people.ts";
import { devicesAt, until } from "./own-devices.ts";

const people = peopleAtNodes();
const { openStored: open } = people;
const { place, linked } = devicesAt(people);

/** People who know one another. */
async function friends(
  count: number,
  options: Partial<WaypostOptions> = {},
): Promise<[Waypost, Waypost, Waypost]> {
  const all = await Promise.all(Array.from({ length: count }, () => open(options)));
  for (const me of all) await knowAll(me, all);
  return all as [Waypost, Waypost, Waypost];
}
async function knowAll(me: Waypost, all: readonly Waypost[]): Promise<void> {
  for (const other of all)
    if (me !== other) await me.store.savePerson(other.did, { isKnown: true });
}

const dids = (...all: Waypost[]) => all.map(({ did }) => did).sort();
const groupOf = async (me: Waypost, id: string) => {
  const group = await me.groups.get(id);
  if (group === null) throw new Error("no group");
  return group;
};
const factsOf = async (me: Waypost, id: string) => {
  const group = await me.groups.get(id);
  if (group === null) return null;
  const { name, admin, members, standing } = group;
  return { name, admin, members: [...members].sort(), standing };
};
const shows = async (
  all: readonly Waypost[],
  id: string,
  wanted: { readonly name: string; readonly admin: Waypost; readonly members: readonly string[] },
) => {
  const facts = { ...wanted, admin: wanted.admin.did, standing: "joined" };
  for (const me of all)
    expect(
      await until(
        () => factsOf(me, id),
        (found) => Bun.deepEquals(found, facts),
      ),
    ).toEqual(facts as never);
};
const textsAt = async (me: Waypost, id: string) =>
  (await me.store.messages(id))
    .filter(({ mediaType }) => mediaType !== groupType)
    .map(({ text }) => text);
const hears = async (me: Waypost, id: string, texts: readonly string[]) =>
  expect(
    await until(
      () => textsAt(me, id),
      (all) => Bun.deepEquals(all, [...texts]),
    ),
  ).toEqual([...texts]);

test("a group that is handed over stays one conversation, its next admin changes it, and the former one leaves", async () => {
  const [alice, bob, carol] = await friends(3);
  const all = [alice, bob, carol];
  const { id } = await alice.groups.create("Hiking", [bob.did, carol.did]);
  await shows(all, id, { name: "Hiking", admin: alice, members: dids(...all) });
  await (await groupOf(bob, id)).send("before");
  for (const me of all) await hears(me, id, ["before"]);
  const leaves = async () => (await groupOf(alice, id)).leave();
  expect(await clientCode(leaves)).toBe("admin_leaves");
  expect(await clientCode(async () => (await groupOf(bob, id)).change({ admin: bob.did }))).toBe(
    "not_admin",
  );
  expect(
    await clientCode(async () => (await groupOf(alice, id)).change({ admin: alice.did })),
  ).toBe("not_member");
  await (await groupOf(alice, id)).change({ admin: bob.did });
  await shows(all, id, { name: "Hiking", admin: bob, members: dids(...all) });
  expect(await clientCode(async () => (await groupOf(alice, id)).change({ name: "Mine" }))).toBe(
    "not_admin",
  );
  await (await groupOf(bob, id)).change({ name: "Climbing" });
  await shows(all, id, { name: "Climbing", admin: bob, members: dids(...all) });
  await (await groupOf(carol, id)).send("after");
  for (const me of all) await hears(me, id, ["before", "after"]);
  const [message] = (await alice.store.messages(id)).filter(({ text }) => text === "before");
  await (await groupOf(carol, id)).react(message?.id ?? "", "👍");
  const reactions = async () => (await bob.store.message(message?.id ?? ""))?.reactions;
  expect(await until(reactions, (found) => found?.length === 1)).toEqual([
    { from: carol.did, reaction: "👍" },
  ]);
  await leaves();
  await shows([bob, carol], id, { name: "Climbing", admin: bob, members: dids(bob, carol) });
  // Again, and who comes after it knows the group by the id of then.
  await (await groupOf(bob, id)).change({ admin: carol.did });
  await shows([bob, carol], id, { name: "Climbing", admin: carol, members: dids(bob, carol) });
  const dave = await open();
  await knowAll(dave, [carol]);
  await (await groupOf(carol, id)).change({ add: [dave.did] });
  const [theirs] = await until(
    () => dave.groups.list(),
    (groups) => groups.length === 1,
  );
  await theirs?.send("new here");
  for (const me of [bob, carol]) await hears(me, id, ["before", "after", "new here"]);
  for (const me of [bob, carol, dave])
    expect((await me.groups.list()).map(({ members }) => members.length)).toEqual([3]);
  const conversations = (await bob.store.conversations()).filter(({ group }) => group !== null);
  expect(conversations.map((one) => one.id)).toEqual([id]);
}, 60_000);

test("who was away when a group was handed over twice comes after it, and what they say is heard", async () => {
  const [alice, bob, carol] = await friends(3);
  const where = place();
  const dave = await people.open(where);
  await knowAll(dave, [alice, bob, carol]);
  const all = [alice, bob, carol, dave];
  const { id } = await alice.groups.create("Hiking", dids(bob, carol, dave));
  await shows(all, id, { name: "Hiking", admin: alice, members: dids(...all) });
  await dave.close();
  await (await groupOf(alice, id)).change({ admin: bob.did });
  await shows([alice, bob, carol], id, { name: "Hiking", admin: bob, members: dids(...all) });
  await (await groupOf(bob, id)).change({ admin: carol.did, name: "Climbing" });
  await shows([alice, bob, carol], id, { name: "Climbing", admin: carol, members: dids(...all) });
  await (await groupOf(carol, id)).send("while Dave is away");
  const again = await people.open(where);
  await shows([again], id, { name: "Climbing", admin: carol, members: dids(...all) });
  await hears(again, id, ["while Dave is away"]);
  await (await groupOf(again, id)).send("back");
  for (const me of [alice, bob, carol, again]) await hears(me, id, ["while Dave is away", "back"]);
}, 60_000);

test("own devices answer before a group is handed over, and only one of two devices does it", async () => {
  const [alice, bob, carol] = await friends(3);
  const where = place();
  const tablet = await linked(alice, where);
  const { id } = await alice.groups.create("Hiking", [bob.did, carol.did]);
  const members = dids(alice, bob, carol);
  await shows([alice, tablet, bob, carol], id, { name: "Hiking", admin: alice, members });
  await tablet.close();
  const handing = async (me: Waypost, to: Waypost) =>
    (await groupOf(me, id)).change({ admin: to.did });
  expect(await clientCode(() => handing(alice, bob))).toBe("devices_awaited");
  expect((await groupOf(alice, id)).next).toBe(bob.did);
  const changing = async () => (await groupOf(alice, id)).change({ name: "Mine" });
  expect(await clientCode(changing)).toBe("handing_over");
  expect((await groupOf(carol, id)).admin).toBe(alice.did);
  const again = await people.open(where);
  await shows([alice, again, bob, carol], id, { name: "Hiking", admin: bob, members });
  for (const me of [alice, again, bob, carol]) expect((await groupOf(me, id)).second).toBeNull();
}, 60_000);

test("a removal that the former admin forgot and a member had heard holds under the next admin", async () => {
  const where = place();
  const alice = await people.open(where);
  const [bob, carol, dave] = await friends(3);
  for (const me of [alice, bob, carol, dave]) await knowAll(me, [alice, bob, carol, dave]);
  const members = dids(alice, bob, carol, dave);
  const { id } = await alice.groups.create("Hiking", dids(bob, carol, dave));
  await shows([alice, bob, carol, dave], id, { name: "Hiking", admin: alice, members });
  // As if Alice's device went on from a copy of before it said this to Bob.
  const { rootSeed, storeKey } = alice.identity;
  const row = await groupAt(await Table.open(where.store, storeKey), id);
  if (row === null) throw new Error("no group");
  const without = withChange(row.state, { remove: [dave.did] }, Date.now());
  const key = encodeHex(await ed25519PublicKey(rootSeed));
  const signature = encodeBase64(await signEd25519(statementText(without), rootSeed));
  const removal = { statement: without, key, signature };
  const json = renderBundle({ statements: [removal], leavings: [] });
  await alice.send(bob.did, json as never, { mediaType: groupType, group: id });
  const left = dids(alice, bob, carol);
  await shows([bob], id, { name: "Hiking", admin: alice, members: left });
  await shows([alice, carol], id, { name: "Hiking", admin: alice, members });
  await (await groupOf(alice, id)).change({ admin: carol.did });
  await shows([alice, bob, carol], id, { name: "Hiking", admin: carol, members: left });
  // Who is out by it learns that, without a word of theirs.
  await until(
    async () => (await groupOf(dave, id)).standing,
    (standing) => standing === "out",
  );
  // The next admin's word is the last.
  await (await groupOf(carol, id)).change({ add: [dave.did] });
  await shows([alice, bob, carol], id, { name: "Hiking", admin: carol, members });
}, 60_000);

test("of two devices that hand a group over at once one does it", async () => {
  const [alice, bob, carol] = await friends(3);
  const tablet = await linked(alice);
  const { id } = await alice.groups.create("Hiking", [bob.did, carol.did]);
  const members = dids(alice, bob, carol);
  await shows([alice, tablet, bob, carol], id, { name: "Hiking", admin: alice, members });
  const handing = async (me: Waypost, to: Waypost) =>
    clientCode(async () => (await groupOf(me, id)).change({ admin: to.did }));
  await Promise.all([handing(alice, bob), handing(tablet, carol)]);
  const adminAt = async (me: Waypost) => (await groupOf(me, id)).admin;
  const admin = await until(
    () => adminAt(bob),
    (one) => one !== alice.did,
  );
  const next = [bob, carol].find(({ did }) => did === admin) as Waypost;
  await shows([alice, tablet, bob, carol], id, { name: "Hiking", admin: next, members });
  for (const me of [alice, tablet, bob, carol]) expect((await groupOf(me, id)).second).toBeNull();
  expect(next.did === bob.did || next.did === carol.did).toBe(true);
}, 60_000);

test("random DIDs hand a group over by their own word", async () => {
  const front = lyingDirectory(people.at.url);
  const isLimits = (path: string) => path === "/limits";
  front.lie = {
    json: ({ path, json }) => (isLimits(path) ? { ...json, self_certifying_dids: false } : null),
  };
  const [url, at] = [people.at.url, front.url];
  const options = { allowRandom: true, url, directoryUrl: at, relayUrl: url, cacheUrl: url };
  const [alice, bob, carol] = await friends(3, options);
  expect(alice.did).not.toStartWith("did:svc:wp");
  const all = [alice, bob, carol];
  const { id } = await alice.groups.create("Hiking", [bob.did, carol.did]);
  await shows(all, id, { name: "Hiking", admin: alice, members: dids(...all) });
  await (await groupOf(alice, id)).change({ admin: bob.did });
  await shows(all, id, { name: "Hiking", admin: bob, members: dids(...all) });
  await (await groupOf(bob, id)).change({ name: "Climbing" });
  await shows(all, id, { name: "Climbing", admin: bob, members: dids(...all) });
  await Promise.all(all.map((me) => me.close()));
  await front.stop();
}, 60_000);

/** A store as it was. */
async function copyOf(store: StoreDriver): Promise<StoreDriver> {
  const copy = memoryStore();
  const rows = await store.scan({ from: "", to: "~~~~", limit: 1_000_000 });
  await copy.apply([...rows]);
  return copy;
}

test("a device that was set back before a hand-over comes to the group by a message under its new id", async () => {
  const where = place();
  const [alice, carol] = await friends(2);
  const before = await open(where);
  const all = [alice, carol, before];
  for (const me of all) await knowAll(me, all);
  const { id } = await alice.groups.create("Hiking", [carol.did, before.did]);
  const members = dids(...all);
  await shows(all, id, { name: "Hiking", admin: alice, members });
  await before.close();
  const store = await copyOf(where.store);
  const between = await open(where);
  await (await groupOf(alice, id)).change({ admin: carol.did });
  await shows([alice, carol, between], id, { name: "Hiking", admin: carol, members });
  // All that came meanwhile is acknowledged, and not in the copy.
  await untilWaiting(between, 0);
  await between.close();
  const back = await open({ ...where, store });
  await shows([back], id, { name: "Hiking", admin: alice, members });
  await (await groupOf(carol, id)).send("who is there?", { receipt: false });
  await hears(back, id, ["who is there?"]);
  await shows([back], id, { name: "Hiking", admin: carol, members });
  const groups = (await back.store.conversations()).filter(({ group }) => group !== null);
  expect(groups).toHaveLength(1);
}, 60_000);
