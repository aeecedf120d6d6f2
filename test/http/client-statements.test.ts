/**
 * Groups by signed statements over running nodes: what forked before, and what a thief, a removed
 * member and a lost message can do. Each schedule ends with one state at all who are in the group.
 */
import { expect, test } from "bun:test";
import type { GroupRow } from "../../src/client/groups/bundles.ts";
import {
  emptyGroup,
  type GroupState,
  leavingText,
  statementText,
  withChange,
} from "../../src/client/groups/statements.ts";
import type { WaypostOptions } from "../../src/client/identity/opening.ts";
import { ed25519PublicKey, signEd25519 } from "../../src/client/keys/crypto.ts";
import { memoryKeys } from "../../src/client/keys/key-stores.ts";
import { groupType } from "../../src/client/mail/content.ts";
import { memoryStore, type StoreDriver } from "../../src/client/store/driver.ts";
import { groupAt } from "../../src/client/store/group-rows.ts";
import { keyOfGroup } from "../../src/client/store/keys.ts";
import { Table } from "../../src/client/store/table.ts";
import { Waypost } from "../../src/client/waypost.ts";
import { encodeBase64, encodeHex } from "../../src/core/codec/bytes.ts";
import { clientCode } from "../support/client-code.ts";
import { peopleAtNodes, waiting } from "../support/people.ts";
import { meet } from "./own-group-facts.ts";

const people = peopleAtNodes();

async function until(read: () => Promise<unknown>, wanted: unknown): Promise<void> {
  for (const endMs = performance.now() + 40_000; ; await Bun.sleep(20)) {
    const value = await read();
    if (Bun.deepEquals(value, wanted) || performance.now() > endMs)
      return expect(value).toEqual(wanted);
  }
}

async function friends(count: number): Promise<Waypost[]> {
  const all = await Promise.all(Array.from({ length: count }, () => people.openStored()));
  await meet(...all);
  return all;
}
const groupOf = async (me: Waypost, id: string) => {
  const group = await me.groups.get(id);
  return group === null ? null : [group.name, group.members, group.standing];
};
const dids = (...all: Waypost[]) => all.map(({ did }) => did).sort();
const textsAt = async (me: Waypost, id: string) =>
  (await me.store.messages(id)).flatMap(({ text, mediaType }) =>
    mediaType.startsWith("text/plain") ? [text] : [],
  );
const say = async (me: Waypost, id: string, text: string) =>
  (await me.groups.get(id))?.send(text, { receipt: false });

/** In front of the Relay: posts wait while it is held, and go nowhere where they are lost. */
function relayBefore() {
  const state = { isHeld: false, isLost: (_to: string): boolean => false };
  const posts: string[] = [];
  const server = Bun.serve({
    hostname: "127.0.0.1",
    port: 0,
    fetch: async (request) => {
      const { pathname, search } = new URL(request.url);
      const { method, headers } = request;
      const body = method === "GET" ? null : await request.text();
      const isMessage = pathname.startsWith("/relay/");
      const to = isMessage ? String(JSON.parse(body ?? "{}").to) : "";
      if (isMessage && state.isHeld) return Response.json({ code: "busy" }, { status: 503 });
      if (isMessage) posts.push(to);
      const said = { success: true, code: "delivered", message: "as it says" };
      if (isMessage && state.isLost(to)) return Response.json(said);
      const real = await fetch(`${people.at.url}${pathname}${search}`, { method, headers, body });
      return new Response(await real.bytes(), real);
    },
  });
  const url = `http://127.0.0.1:${server.port}`;
  return { url, state, posts, stop: () => server.stop(true) };
}

/** Behind such a Relay; registered at the nodes before. */
async function behind(url: string, options: Partial<WaypostOptions> = {}): Promise<Waypost> {
  const keys = memoryKeys();
  await people.open({ keys });
  return people.openStored({ relayUrl: url, keys, rotateMs: false, ...options });
}

async function link(me: Waypost, relayUrl: string | null = null): Promise<Waypost> {
  const place = { keys: memoryKeys(), store: memoryStore(), rotateMs: false } as const;
  const linking = await Waypost.link({ url: people.at.url, waiting, ...place });
  await me.devices.acceptLink(linking.code, "second");
  const linked = await people.keep(linking.opened);
  if (relayUrl === null) return linked;
  await linked.close();
  return people.open({ relayUrl, ...place });
}

/** Nothing waits for the end of its pause. */
const retrying = () => {
  const timer = setInterval(() => globalThis.dispatchEvent(new Event("online")), 50);
  return { [Symbol.dispose]: () => clearInterval(timer) };
};

test("of two devices that change a group apart none undoes a removal, and nothing is sealed to who was removed", async () => {
  using _ = retrying();
  const [one, two] = [relayBefore(), relayBefore()];
  const [bob, eve, carol] = (await friends(3)) as [Waypost, Waypost, Waypost];
  const place = { keys: memoryKeys(), store: memoryStore(), rotateMs: false } as const;
  const first = await people.open(place);
  await meet(first, bob, eve, carol);
  const tablet = await link(first, two.url);
  await first.close();
  const phone = await people.open({ ...place, relayUrl: one.url });
  const group = await phone.groups.create("G", [bob.did, eve.did]);
  for (const me of [phone, tablet, bob, eve])
    await until(() => groupOf(me, group.id), ["G", dids(phone, bob, eve), "joined"]);
  for (const { state } of [one, two]) state.isHeld = true;
  await group.change({ remove: [eve.did] });
  await (await tablet.groups.get(group.id))?.change({ name: "Renamed" });
  for (const { state } of [one, two]) state.isHeld = false;
  for (const me of [phone, tablet, bob])
    await until(() => groupOf(me, group.id), ["Renamed", dids(phone, bob), "joined"]);
  // What the tablet had said before it heard of the removal reaches her; nothing later does.
  await until(() => groupOf(eve, group.id), ["Renamed", dids(phone, bob), "out"]);
  const before = [one, two].map(({ posts }) => posts.length);
  await say(phone, group.id, "from the phone");
  await say(tablet, group.id, "from the tablet");
  await until(
    async () => (await textsAt(bob, group.id)).toSorted(),
    ["from the phone", "from the tablet"],
  );
  const after = [one, two].flatMap(({ posts }, i) => posts.slice(before[i]));
  expect(after).not.toContain(eve.did);
  await (await tablet.groups.get(group.id))?.change({ add: [carol.did] });
  for (const me of [phone, tablet, bob, carol])
    await until(() => groupOf(me, group.id), ["Renamed", dids(phone, bob, carol), "joined"]);
  await say(bob, group.id, "from Bob");
  await until(async () => (await textsAt(carol, group.id)).at(-1), "from Bob");
  expect(await textsAt(eve, group.id)).toEqual([]);
  await Promise.all([one.stop(), two.stop()]);
}, 120_000);

/** What a group says of itself, signed by a root key. */
async function bundleBy(rootSeed: Uint8Array, state: GroupState, signs: "state" | "leaving") {
  const key = encodeHex(await ed25519PublicKey(rootSeed));
  const { id, maker, nonce, name, members } = state;
  const [[did = "", version = 0] = []] = Object.entries(state.left);
  const text =
    signs === "state" ? statementText(state) : leavingText({ id, did: did as never, version });
  const by = { key, signature: encodeBase64(await signEd25519(text, rootSeed)) };
  const statements = signs === "state" ? [{ maker, nonce, name, members, ...by }] : [];
  const leavings = signs === "leaving" ? [{ did, version, ...by }] : [];
  return { v: 2, statements, leavings };
}

const stateOf = async (store: StoreDriver, me: Waypost, id: string): Promise<GroupRow> => {
  const table = await Table.open(store, me.identity.storeKey);
  return (await groupAt(table, id)) as GroupRow;
};

test("a member who was removed takes nobody in, and what only the maker may sign counts from nobody else", async () => {
  const store = memoryStore();
  const alice = await people.open({ store });
  const [bob, dave] = (await friends(2)) as [Waypost, Waypost];
  await meet(alice, bob, dave);
  const group = await alice.groups.create("Family", [bob.did]);
  await until(async () => (await bob.groups.get(group.id))?.standing, "joined");
  await group.change({ remove: [bob.did] });
  await until(async () => (await bob.groups.get(group.id))?.standing, "out");
  const { state } = await stateOf(store, alice, group.id);
  const mine = withChange(state, { name: "Bob's", add: [bob.did, dave.did] }, Date.now() + 60_000);
  const typed = { mediaType: groupType, group: group.id };
  const seed = bob.identity.rootSeed;
  const foreign = { ...mine, left: { [alice.did]: state.members[alice.did]?.[1] ?? 0 } };
  for (const json of [
    await bundleBy(seed, mine, "state"),
    await bundleBy(seed, foreign, "leaving"),
    { ...(await bundleBy(seed, mine, "state")), v: 1 },
    { v: 1, version: 9, maker: alice.did, nonce: state.nonce, name: "v1", admin: bob.did },
    { v: 2, statements: [{}], leavings: [{}] },
    { v: 2 },
    [],
  ])
    for (const to of [dave.did, alice.did]) await bob.send(to, json as never, typed);
  await bob.send(dave.did, "after them");
  await until(() => textsAt(dave, bob.did), ["after them"]);
  expect(await dave.groups.get(group.id)).toBeNull();
  await group.change({ add: [dave.did] });
  for (const me of [alice, dave])
    await until(() => groupOf(me, group.id), ["Family", dids(alice, dave), "joined"]);
  await say(dave, group.id, "secret of Dave");
  await until(async () => (await textsAt(alice, group.id)).at(-1), "secret of Dave");
  expect([await textsAt(bob, group.id), (await bob.groups.get(group.id))?.name]).toEqual([
    [],
    "Family",
  ]);
}, 60_000);

test("who has missed a change shows it by their next message, and the admin's answer brings them to the same state", async () => {
  const relay = relayBefore();
  const alice = await behind(relay.url);
  const [bob, eve] = (await friends(2)) as [Waypost, Waypost];
  await meet(alice, bob, eve);
  const group = await alice.groups.create("G", [bob.did, eve.did]);
  for (const me of [bob, eve])
    await until(() => groupOf(me, group.id), ["G", dids(alice, bob, eve), "joined"]);
  // The Relay says that it has delivered what it drops.
  relay.state.isLost = () => true;
  await group.change({ name: "Renamed", remove: [eve.did] });
  await until(async () => relay.posts.filter((to) => to === eve.did).length, 2);
  relay.state.isLost = () => false;
  await say(bob, group.id, "I know nothing of it");
  await until(() => groupOf(bob, group.id), ["Renamed", dids(alice, bob), "joined"]);
  await say(eve, group.id, "am I in it?");
  await until(async () => (await eve.groups.get(group.id))?.standing, "out");
  // Of the rest she learns nothing.
  expect((await eve.groups.get(group.id))?.name).toBe("G");
  await say(bob, group.id, "without her");
  await until(async () => (await textsAt(alice, group.id)).at(-1), "without her");
  expect(await textsAt(eve, group.id)).not.toContain("without her");
  await relay.stop();
}, 60_000);

test("after new keys the group goes on, and a thief with the earlier ones changes nothing but for a removal that is shown", async () => {
  const store = memoryStore();
  const alice = await people.open({ store, rotateMs: false });
  const [bob, mallory] = (await friends(2)) as [Waypost, Waypost];
  await meet(alice, bob, mallory);
  const group = await alice.groups.create("G", [bob.did]);
  await until(() => groupOf(bob, group.id), ["G", dids(alice, bob), "joined"]);
  const stolen = alice.identity.rootSeed.slice();
  const { state } = await stateOf(store, alice, group.id);
  await alice.devices.replaceKeys();
  await group.change({ name: "Under new keys" });
  await until(() => groupOf(bob, group.id), ["Under new keys", dids(alice, bob), "joined"]);
  const false_ = withChange(state, { name: "Stolen", add: [mallory.did] }, Date.now() + 60_000);
  const typed = { mediaType: groupType, group: group.id };
  const bundle = await bundleBy(stolen, false_, "state");
  for (const to of [alice.did, bob.did]) await mallory.send(to, bundle as never, typed);
  for (const me of [alice, bob]) {
    await mallory.send(me.did, "after it");
    await until(async () => (await textsAt(me, mallory.did)).at(-1), "after it");
  }
  for (const me of [alice, bob])
    await until(() => groupOf(me, group.id), ["Under new keys", dids(alice, bob), "joined"]);
  // Where a member had believed it, the maker says again what the thief had changed, with later
  // versions.
  await bob.send(alice.did, bundle as never, typed);
  const healed = async () => (await stateOf(store, alice, group.id)).state.members[mallory.did];
  await until(async () => (await healed())?.[0], "out");
  await say(bob, group.id, "still here");
  await until(async () => (await textsAt(alice, group.id)).at(-1), "still here");
}, 90_000);

test("a store of the version before goes on: its admin changes the group, and members come to the same", async () => {
  const [aliceAt, bobAt] = [
    { keys: memoryKeys(), store: memoryStore() },
    { keys: memoryKeys(), store: memoryStore() },
  ];
  const [alice, bob] = [await people.open(aliceAt), await people.open(bobAt)];
  const carol = await people.openStored();
  await meet(alice, bob, carol);
  const nonce = "before";
  const { id } = emptyGroup(alice.did, nonce);
  for (const [me, { store }] of [
    [alice, aliceAt],
    [bob, bobAt],
  ] as const) {
    const table = await Table.open(store, me.identity.storeKey);
    await table.change(async (batch) =>
      batch.put(keyOfGroup(table, id), {
        ...{ id, admin: alice.did, maker: alice.did, nonce, version: 4, name: "Before" },
        ...{ members: { [alice.did]: 1, [bob.did]: 1 }, left: {}, joined: 4 },
      }),
    );
    await me.close();
  }
  const [anew, again] = [await people.open(aliceAt), await people.open(bobAt)];
  for (const me of [anew, again])
    await until(() => groupOf(me, id), ["Before", dids(alice, bob), "joined"]);
  await say(again, id, "from Bob");
  await until(() => textsAt(anew, id), ["from Bob"]);
  await (await anew.groups.get(id))?.change({ name: "After", add: [carol.did] });
  for (const me of [anew, again, carol])
    await until(() => groupOf(me, id), ["After", dids(alice, bob, carol), "joined"]);
}, 60_000);

test("a device that is linked while others write has their messages in the group", async () => {
  const [alice, bob] = (await friends(2)) as [Waypost, Waypost];
  const group = await alice.groups.create("G", [bob.did]);
  await until(() => groupOf(bob, group.id), ["G", dids(alice, bob), "joined"]);
  const texts = Array.from({ length: 15 }, (_, i) => `message ${i}`);
  const writing = (async () => {
    for (const text of texts) {
      await group.send(text, { receipt: false });
      await Bun.sleep(40);
    }
  })();
  const tablet = await link(bob);
  await writing;
  for (const me of [bob, tablet]) {
    await until(async () => (await textsAt(me, group.id)).toSorted(), texts.toSorted());
    expect(await textsAt(me, alice.did)).toEqual([]);
  }
}, 60_000);

test("after one device has made new keys the other one changes the group under them", async () => {
  const [alice, bob] = (await friends(2)) as [Waypost, Waypost];
  const tablet = await link(alice);
  const group = await alice.groups.create("G", [bob.did]);
  for (const me of [tablet, bob])
    await until(() => groupOf(me, group.id), ["G", dids(alice, bob), "joined"]);
  await alice.devices.replaceKeys();
  const seedOf = ({ identity }: Waypost) => encodeHex(identity.rootSeed);
  // What it said before would be by an earlier key.
  await until(async () => seedOf(tablet), seedOf(alice));
  const change = async () => {
    const code = await clientCode(async () =>
      (await tablet.groups.get(group.id))?.change({ name: "By the tablet" }),
    );
    return ["behind", "root_replaced"].includes(code) ? code : "changed";
  };
  // It waits for the states that the device that made the keys begins with.
  await until(change, "changed");
  for (const me of [alice, tablet, bob])
    await until(() => groupOf(me, group.id), ["By the tablet", dids(alice, bob), "joined"]);
  await group.change({ name: "By the phone" });
  for (const me of [alice, tablet, bob])
    await until(() => groupOf(me, group.id), ["By the phone", dids(alice, bob), "joined"]);
}, 90_000);
