/**
 * What own devices take from each other of groups that other people made: signed statements, as
 * from a member. A device that a thief had linked leaves no one in a group, and moves no
 * conversation to another one.
 */
import { expect, test } from "bun:test";
import { attempt } from "../../src/client/base/failure.ts";
import {
  type GroupRow,
  newRow,
  renderBundle,
  type SignedStatement,
} from "../../src/client/groups/bundles.ts";
import {
  emptyGroup,
  type GroupState,
  handOverText,
  statementText,
  successorOf,
  withChange,
} from "../../src/client/groups/statements.ts";
import { ed25519PublicKey, signEd25519 } from "../../src/client/keys/crypto.ts";
import { groupType } from "../../src/client/mail/content.ts";
import type { StoreDriver } from "../../src/client/store/driver.ts";
import { groupAt, putGroup } from "../../src/client/store/group-rows.ts";
import { keyOfPerson, messagesOf } from "../../src/client/store/keys.ts";
import { Table } from "../../src/client/store/table.ts";
import type { Waypost } from "../../src/client/waypost.ts";
import { encodeBase64, encodeHex } from "../../src/core/codec/bytes.ts";
import type { Did } from "../../src/core/codec/did.ts";
import { peopleAtNodes } from "../support/people.ts";
import { devicesAt, until } from "./own-devices.ts";
import { dids, factsAt, makeGroup, meet, rowAt, say, shows } from "./own-group-facts.ts";

const people = peopleAtNodes();
const { open } = people;
const { place, linked } = devicesAt(people);

/** The other device has taken all that this one said before. */
async function taken(from: Waypost, at: Waypost): Promise<void> {
  const { did } = from;
  const name = `mark ${crypto.randomUUID()}`;
  await from.store.savePerson(did, { name });
  await until(
    async () => (await at.store.people()).find((one) => one.did === did)?.name,
    (found) => found === name,
  );
}

test("a linked device of a thief leaves no one in another's group, and takes it nowhere else", async () => {
  const [alice, mallory] = [await open(place()), await open(place())];
  const [phone, where] = [await open(place()), place()];
  await meet(alice, mallory, phone);
  const { id, facts } = await makeGroup(alice, phone);
  const thief = await linked(phone, where);
  await shows(thief, id, facts);
  // In the state alone.
  const wish = { name: "Stolen", add: [mallory.did] };
  const edit = (row: GroupRow): GroupRow => {
    return { ...row, state: withChange(row.state, wish, Date.now() + 60_000) };
  };
  const again = await say(thief, where, { id, edit, open });
  await taken(again, phone);
  await shows(phone, id, facts);
  // As if Alice had handed it over: the conversation would go on as a group of Mallory's, or of
  // this identity's own.
  let last = again;
  for (const next of [mallory.did, phone.did]) {
    last = await say(last, where, {
      id,
      open,
      edit: (row) => {
        const { id: before, maker, nonce } = row.former?.[0] ?? row.state;
        const state = successorOf({ ...row.state, id: before, maker, nonce, next });
        const gone = { id: before, maker, nonce, next, atMs: 1 };
        const handOver = { id: before, maker, nonce, next, key: "ab".repeat(32), signature: "" };
        const begun = state === null ? row : { ...row, state, former: [gone] };
        return { ...begun, joined: Number.MAX_SAFE_INTEGER, handOvers: [handOver] };
      },
    });
    await taken(last, phone);
    await shows(phone, id, facts);
  }
  await (await phone.groups.get(id))?.send("for Alice alone");
  await until(
    async () => (await alice.store.messages(id)).at(-1)?.text,
    (text) => text === "for Alice alone",
  );
  expect(await mallory.store.conversations()).toEqual([]);
  // Nor does the admin's next word bring anything of it back.
  await (await alice.groups.get(id))?.change({ name: "Climbing" });
  await shows(phone, id, { ...facts, name: "Climbing" });
}, 60_000);

test("rows of other forms that an earlier version has stored end no start, and hide neither their group nor their person", async () => {
  const where = place();
  const [phone, bob] = [await open(where), await open(place())];
  await meet(phone, bob);
  const { id } = await phone.groups.create("Hiking", [bob.did]);
  await until(
    async () => (await bob.groups.get(id))?.standing,
    (standing) => standing === "joined",
  );
  await bob.send(phone.did, "before");
  await until(
    () => phone.store.messages(bob.did),
    (all) => all.length === 1,
  );
  await phone.close();
  // As a device of a thief's had said it.
  const wish = { to: bob.did, by: bob.did, sinceMs: Date.now(), agreed: null };
  const leaving = { id, did: phone.did, version: 1, key: "0".repeat(64) };
  const odd = { handing: wish, second: 5, statements: [{ statement: null }], handOvers: [{ id }] };
  const leavings = [null, { ...leaving, signature: "A".repeat(61_000) }];
  const table = await Table.open(where.store, phone.identity.storeKey);
  await table.change(async (batch) => {
    const row = await groupAt(table, id, batch);
    await putGroup(table, batch, { ...row, ...odd, leavings } as never);
    const person = { did: bob.did, name: "Bob", isKnown: true, alias: 5, claimed: { name: null } };
    batch.put(keyOfPerson(table, bob.did), { ...person, isBlocked: [], toldMs: "x" });
    for (const [key, message] of await table.scan<object>({ prefix: messagesOf(table, bob.did) }))
      batch.put(key, { ...message, replyTo: 5 });
  });
  const again = await open(where);
  await bob.send(again.did, "alive?");
  const texts = async () => (await again.store.messages(bob.did)).map(({ text }) => text);
  expect(await until(texts, (all) => all.length === 2)).toEqual(["before", "alive?"]);
  const [first] = await again.store.messages(bob.did);
  expect(first === undefined ? undefined : await again.store.answered(first)).toBeNull();
  const people = await again.store.people();
  expect(people.find(({ did }) => did === bob.did)).toMatchObject({ name: "Bob", alias: null });
  await (await again.groups.get(id))?.change({ name: "Climbing" });
  const name = async () => (await bob.groups.get(id))?.name;
  expect(await until(name, (now) => now === "Climbing")).toBe("Climbing");
}, 60_000);

async function signedBy(rootSeed: Uint8Array, state: GroupState): Promise<SignedStatement> {
  const { id, maker, nonce, name, members } = state;
  const statement = { id, maker, nonce, name, members };
  const signature = encodeBase64(await signEd25519(statementText(statement), rootSeed));
  return { statement, key: encodeHex(await ed25519PublicKey(rootSeed)), signature };
}

/** Of two devices the one that isn't this. */
async function removeOther(at: Waypost): Promise<void> {
  const other = (await at.devices.list()).find(({ isThis }) => !isThis);
  await at.devices.remove(other?.did as Did);
}

test("a linked device of a thief empties no group by a way whose first id is made up", async () => {
  const [alice, mallory] = [await open(place()), await open(place())];
  const [phone, where] = [await open(place()), place()];
  await meet(alice, mallory, phone);
  const { id, facts } = await makeGroup(alice, phone);
  const thief = await linked(phone, where);
  await shows(thief, id, facts);
  const edit = ({ state: { maker, nonce } }: GroupRow): GroupRow => {
    const gone = { id: crypto.randomUUID(), maker, nonce, next: mallory.did, atMs: 1 };
    return { ...newRow(emptyGroup(mallory.did, crypto.randomUUID())), former: [gone] };
  };
  const again = await say(thief, where, { id, edit, open });
  await taken(again, phone);
  expect(await factsAt(phone, id)).toEqual(facts);
  await removeOther(phone);
  expect(await factsAt(phone, id)).toEqual(facts);
}, 60_000);

test("a linked device of a thief leads a group that was handed over to no one else", async () => {
  const [bob, mallory] = [await open(place()), await open(place())];
  const [phone, where] = [await open(place()), place()];
  await meet(bob, mallory, phone);
  const { id, facts: before } = await makeGroup(phone, bob);
  const facts = { ...before, admin: bob.did };
  await (await phone.groups.get(id))?.change({ admin: bob.did });
  await shows(phone, id, facts);
  const thief = await linked(phone, where);
  await shows(thief, id, facts);
  const { did: next, identity } = mallory;
  const [first] = (await rowAt(thief, where, id)).former ?? [];
  if (first === undefined) throw new Error("the group was not handed over");
  const { maker, nonce } = first;
  const made = withChange(emptyGroup(maker, nonce), { add: [phone.did, next] }, Date.now());
  const state = successorOf({ ...made, next }) as GroupState;
  const statements = [await signedBy(identity.rootSeed, state)];
  const edit = (row: GroupRow): GroupRow => {
    return { ...row, state, former: [{ ...first, next, atMs: 1 }], statements };
  };
  const again = await say(thief, where, { id, edit, open });
  await taken(again, phone);
  expect(await factsAt(phone, id)).toEqual(facts);
  await removeOther(phone);
  await (await phone.groups.get(id))?.send("for Bob alone");
  await until(
    async () => (await bob.store.messages(id)).at(-1)?.text,
    (text) => text === "for Bob alone",
  );
  expect(await mallory.store.conversations()).toEqual([]);
}, 60_000);

test("a linked device of a thief accepts no later invitation, and shuts the identity out of no group", async () => {
  const [alice, phone, where] = [await open(place()), await open(place()), place()];
  await meet(alice, phone);
  const { id } = await makeGroup(alice, phone);
  const thief = await linked(phone, where);
  await until(
    () => factsAt(thief, id),
    (found) => found?.standing === "joined",
  );
  const last = Number.MAX_SAFE_INTEGER;
  const edit = (row: GroupRow): GroupRow => {
    return { ...row, joined: last, state: { ...row.state, left: { [phone.did]: last } } };
  };
  const again = await say(thief, where, { id, edit, open });
  await taken(again, phone);
  // What it may say for this identity: that it has left.
  expect((await factsAt(phone, id))?.standing).toBe("out");
  await (await alice.groups.get(id))?.change({ remove: [phone.did] });
  await (await alice.groups.get(id))?.change({ add: [phone.did] });
  await until(
    () => factsAt(phone, id),
    (found) => found?.standing === "asked",
  );
  expect((await factsAt(phone, id))?.standing).toBe("asked");
}, 60_000);

test("what a removed device said of a group counts no more, also of a later invitation", async () => {
  const [alice, mine, where] = [await open(place()), place(), place()];
  const phone = await open(mine);
  await meet(alice, phone);
  const { id } = await makeGroup(alice, phone);
  const standsAt = async (me: Waypost, wanted: "joined" | "asked" | "out") =>
    expect(
      await until(
        async () => (await factsAt(me, id))?.standing,
        (found) => found === wanted,
      ),
    ).toBe(wanted);
  const thief = await linked(phone, where);
  await standsAt(thief, "joined");
  const last = Number.MAX_SAFE_INTEGER;
  const unknown = crypto.getRandomValues(new Uint8Array(32));
  const { maker, nonce } = (await rowAt(thief, where, id)).state;
  const foreign = withChange(emptyGroup(maker, nonce), { name: "Foreign" }, Date.now());
  const statement = await signedBy(unknown, foreign);
  const edit = (row: GroupRow): GroupRow => {
    return { ...row, joined: last, statements: [...row.statements, statement] };
  };
  const again = await say(thief, where, { id, edit, open });
  await taken(again, phone);
  await removeOther(phone);
  await (await alice.groups.get(id))?.change({ remove: [phone.did] });
  await standsAt(phone, "out");
  await (await alice.groups.get(id))?.change({ add: [phone.did] });
  await standsAt(phone, "asked");
  expect((await rowAt(phone, mine, id)).owed?.length).toBe(1);
  await phone.close();
  const later = await open(mine);
  // Each start looks at what waits.
  const owed = await until(
    async () => (await rowAt(later, mine, id)).owed?.length,
    (found) => found === 0,
  );
  expect([owed, (await factsAt(later, id))?.standing]).toEqual([0, "asked"]);
}, 60_000);

test("a device that is linked after the admin's keys were replaced asks for what they had signed before, and shows it then", async () => {
  const [alice, phone] = [await open(place()), await open(place())];
  await meet(alice, phone);
  const { id, facts } = await makeGroup(alice, phone);
  await alice.devices.replaceKeys();
  const tablet = await linked(phone);
  await shows(tablet, id, facts);
  await (await tablet.groups.get(id))?.send("from the tablet");
  await until(
    async () => (await alice.store.messages(id)).at(-1)?.text,
    (text) => text === "from the tablet",
  );
}, 60_000);

test("what a device of a thief says of a time to come keeps no own group as it is, nor a wish to hand it over", async () => {
  const [phone, bob, mallory] = [await open(place()), await open(place()), await open(place())];
  const where = place();
  await meet(phone, bob, mallory);
  const { id, facts } = await makeGroup(phone, bob, mallory);
  const thief = await linked(phone, where);
  await shows(thief, id, facts);
  const inAYear = Math.floor(Date.now() / 1_000) + 365 * 86_400;
  const last = Number.MAX_SAFE_INTEGER;
  const again = await say(thief, where, {
    id,
    open,
    edit: (row) => ({
      ...row,
      state: {
        ...row.state,
        name: ["Stolen", last],
        members: { ...row.state.members, [mallory.did]: ["in", inAYear] },
        left: { [bob.did]: last },
      },
      handing: { to: bob.did, by: phone.did, sinceMs: 4_102_444_800_000, agreed: [] },
    }),
  });
  await taken(again, phone);
  await shows(phone, id, facts);
  await removeOther(phone);
  const group = await phone.groups.get(id);
  await group?.change({ name: "Climbing", remove: [mallory.did] });
  const after = { ...facts, name: "Climbing", members: dids(phone, bob) };
  await shows(bob, id, after);
  await until(
    async () => (await mallory.groups.get(id))?.standing,
    (standing) => standing === "out",
  );
}, 60_000);

test("leavings and a wish of another form in the row of a thief's device keep no change from being heard, and no start from receiving", async () => {
  const mine = place();
  const [phone, bob, mallory] = [await open(mine), await open(place()), await open(place())];
  await meet(phone, bob, mallory);
  const { id, facts } = await makeGroup(phone, bob, mallory);
  const thief = await linked(phone, place());
  await shows(thief, id, facts);
  const leaving = { id, did: bob.did, version: 1, key: "00".repeat(32) };
  const wish = { to: bob.did, by: bob.did, sinceMs: Date.now(), agreed: null };
  const edit = (row: GroupRow): GroupRow => {
    const said = { leavings: [{ ...leaving, signature: "A".repeat(61_000) }], handing: wish };
    return { ...row, ...JSON.parse(JSON.stringify(said)), second: mallory.did };
  };
  const { table } = thief.groups.own;
  await table.change(async (batch) => {
    const row = await groupAt(table, id, batch);
    if (row !== null) await putGroup(table, batch, edit(row));
  });
  await taken(thief, phone);
  const { leavings, handing, second } = await rowAt(phone, mine, id);
  expect([leavings, handing, second]).toEqual([[], null, null]);
  await phone.close();
  const back = await open(mine);
  await bob.send(back.did, "still there?");
  await until(
    async () => (await back.store.messages(bob.did)).at(-1)?.text,
    (text) => text === "still there?",
  );
  await removeOther(back);
  await (await back.groups.get(id))?.change({ name: "Climbing", remove: [mallory.did] });
  await shows(bob, id, { ...facts, name: "Climbing", members: dids(back, bob) });
}, 60_000);

/**
 * A device of a thief shows a hand-over of an own group to one device alone, and is removed by
 * another one.
 */
async function handedOverAside(isOff: boolean): Promise<void> {
  const [phone, bob, mallory] = [await open(place()), await open(place()), await open(place())];
  const [tabletAt, where] = [place(), place()];
  await meet(phone, bob, mallory);
  const { id, facts } = await makeGroup(phone, bob, mallory);
  const tablet = await linked(phone, tabletAt);
  await shows(tablet, id, facts);
  const thief = await linked(phone, where);
  await shows(thief, id, facts);
  const listed = async (me: Waypost) => (await me.devices.list()).map(({ did }) => did);
  await until(
    () => listed(tablet),
    (all) => all.length === 3,
  );
  const ownDid = async (me: Waypost) =>
    (await me.devices.list()).find(({ isThis }) => isThis)?.did ?? ("" as Did);
  const [phoneDid, thiefDid] = [await ownDid(phone), await ownDid(thief)];
  if (isOff) await tablet.close();
  const one = { id, maker: phone.did, nonce: (await rowAt(thief, where, id)).state.nonce };
  const named = { ...one, next: mallory.did };
  const { rootSeed } = thief.identity;
  const signature = encodeBase64(await signEd25519(handOverText(named), rootSeed));
  const handOver = { ...named, key: encodeHex(await ed25519PublicKey(rootSeed)), signature };
  // Its program sends nothing to the phone.
  const honestFetch = globalThis.fetch;
  const told: string[] = [];
  globalThis.fetch = Object.assign(
    async (...given: Parameters<typeof fetch>) => {
      const [url, { method = "GET", body = null } = {}] = given;
      const isSent = method === "POST" && String(url).includes("/relay/");
      const to = isSent ? JSON.parse(await new Response(body).text()).to : null;
      if (to === phoneDid) throw new TypeError("it sends nothing there");
      const answer = await honestFetch(...given);
      if (to !== null && answer.ok) told.push(to);
      return answer;
    },
    { preconnect: honestFetch.preconnect },
  );
  const edit = (row: GroupRow) => ({
    ...row,
    state: { ...row.state, next: mallory.did },
    handOvers: [handOver],
  });
  const again = await say(thief, where, { id, edit, open });
  await until(
    async () => told.length,
    (count) => count > 0,
  );
  if (!isOff) await shows(tablet, id, { ...facts, next: mallory.did });
  await again.close();
  globalThis.fetch = honestFetch;
  expect(new Set(told).has(phoneDid)).toBe(false);
  expect(told.length).toBeGreaterThan(0);
  await phone.devices.remove(thiefDid);
  const back = isOff ? await open(tabletAt) : tablet;
  await taken(phone, back);
  expect((await listed(back)).length).toBe(2);
  await (await phone.groups.get(id))?.change({ name: "Climbing" });
  await shows(back, id, { ...facts, name: "Climbing" });
  expect((await rowAt(back, tabletAt, id)).handOvers ?? []).toEqual([]);
}

test(
  "a hand-over that a removed device left in the mailbox of a device that was off is not followed",
  () => handedOverAside(true),
  60_000,
);

test(
  "a hand-over that a removed device showed to one device alone ends with the keys",
  () => handedOverAside(false),
  60_000,
);

test("a device that is linked after new keys follows the hand-over that the others had followed before", async () => {
  const [phone, bob] = [await open(place()), await open(place())];
  await meet(phone, bob);
  const { id, facts } = await makeGroup(phone, bob);
  await (await phone.groups.get(id))?.change({ admin: bob.did });
  const after = { ...facts, admin: bob.did };
  await shows(phone, id, after);
  await phone.devices.replaceKeys();
  const tablet = await linked(phone);
  await shows(tablet, id, after);
}, 60_000);

test("a device that is linked after new keys of a former admin who is gone shows the next admin's group", async () => {
  const [alice, bob, carol] = [await open(place()), await open(place()), await open(place())];
  await meet(alice, bob, carol);
  const { id, facts } = await makeGroup(alice, bob, carol);
  await (await alice.groups.get(id))?.change({ admin: carol.did });
  for (const me of [alice, bob, carol]) await shows(me, id, { ...facts, admin: carol.did });
  await alice.devices.replaceKeys();
  await alice.close();
  const tablet = await linked(bob, place());
  await shows(tablet, id, { ...facts, admin: carol.did });
}, 60_000);

test("what an admin with new keys has not said to the members when it is killed is said at the next start", async () => {
  const [aliceAt, bobAt] = [place(), place()];
  const { store } = aliceAt;
  // Nothing is written any more once the group stands under the new keys.
  let isEnding = (): Promise<boolean> => Promise.resolve(false);
  let isDead = false;
  const apply: StoreDriver["apply"] = async (rows) => {
    if (isDead) throw new Error("killed");
    await store.apply(rows);
    isDead = await isEnding();
  };
  const alice = await open({ ...aliceAt, store: { ...store, apply } });
  const bob = await open(bobAt);
  await meet(alice, bob);
  const { id } = await alice.groups.create("Hiking", [bob.did]);
  await until(
    async () => (await bob.groups.get(id))?.standing,
    (standing) => standing === "joined",
  );
  const { root } = await rowAt(alice, aliceAt, id);
  isEnding = async () => (await rowAt(alice, aliceAt, id)).root !== root;
  await attempt(() => alice.devices.replaceKeys());
  await until(
    async () => isDead,
    (ended) => ended,
  );
  await attempt(() => alice.close());
  await open(aliceAt);
  const keys = async () => (await rowAt(bob, bobAt, id)).statements.map(({ key }) => key);
  const now = (await rowAt(alice, aliceAt, id)).root;
  expect(await until(keys, (found) => found.includes(now))).toEqual([now]);
}, 60_000);

test("a member with a replaced key of the admin and a friend there lead neither the admin nor others away", async () => {
  const [aliceAt, bobAt] = [place(), place()];
  const [alice, bob] = [await open(aliceAt), await open(bobAt)];
  const [mallory, eve] = [await open(place()), await open(place())];
  await meet(alice, bob, mallory, eve);
  const { id, facts } = await makeGroup(alice, bob, mallory, eve);
  const seed = alice.identity.rootSeed.slice();
  await alice.devices.replaceKeys();
  // She says so by herself.
  const keys = async () => (await rowAt(bob, bobAt, id)).statements.map(({ key }) => key);
  const key = encodeHex(await ed25519PublicKey(alice.identity.rootSeed));
  expect(await until(keys, (found) => found.includes(key))).toEqual([key]);
  const { state } = await rowAt(alice, aliceAt, id);
  const named = { id, maker: alice.did, nonce: state.nonce, next: mallory.did };
  const founded = successorOf({ ...state, next: mallory.did });
  if (founded === null) throw new Error("no group");
  const old = encodeHex(await ed25519PublicKey(seed));
  const signature = encodeBase64(await signEd25519(handOverText(named), seed));
  const statements = [await signedBy(mallory.identity.rootSeed, founded)];
  const handOvers = [{ ...named, key: old, signature }];
  const said = renderBundle({ statements, leavings: [], handOvers });
  const about = { group: founded.id, mediaType: groupType, receipt: false };
  for (const from of [eve, mallory])
    for (const to of [alice, bob]) {
      await from.send(to.did, said, about);
      await from.send(to.did, "after it");
      await until(
        async () => (await to.store.messages(from.did)).map(({ text }) => text),
        (texts) => texts.includes("after it"),
      );
    }
  for (const me of [alice, bob]) expect((await me.groups.get(id))?.admin).toBe(alice.did);
  await (await alice.groups.get(id))?.change({ remove: [mallory.did, eve.did] });
  await shows(bob, id, { ...facts, members: dids(alice, bob) });
}, 60_000);
