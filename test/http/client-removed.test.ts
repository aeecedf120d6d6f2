/**
 * Removals over running nodes: what another device still logs of a removed one, a device that is
 * linked after it, two removals at once, and a removed device that is linked again.
 */
import { expect, test } from "bun:test";
import { attempt, ClientError } from "../../src/client/base/failure.ts";
import type { Head } from "../../src/client/devices/keyring.ts";
import { change } from "../../src/client/identity/change.ts";
import { ed25519PublicKey } from "../../src/client/keys/crypto.ts";
import { freshSeed, parseIdentity, rootSignerId } from "../../src/client/keys/keys.ts";
import { memoryStore, type StoreDriver } from "../../src/client/store/driver.ts";
import { keyOfPerson, ringKey, rowsOf } from "../../src/client/store/keys.ts";
import { type MessageRow, putPerson } from "../../src/client/store/rows.ts";
import { Table } from "../../src/client/store/table.ts";
import { rootKeyOf } from "../../src/client/trust/client.ts";
import type { Waypost } from "../../src/client/waypost.ts";
import { identityOf } from "../support/identity.ts";
import { peopleAtNodes, waiting } from "../support/people.ts";
import { devicesAt, killedKeys, shows, until } from "./own-devices.ts";

const people = peopleAtNodes();
const { open } = people;
const { place, linked } = devicesAt(people);

const ownDid = async (me: Waypost): Promise<string> =>
  (await me.devices.list()).find(({ isThis }) => isThis)?.did ?? "";
const othersOf = async (me: Waypost): Promise<string[]> =>
  (await me.devices.list())
    .filter(({ isThis }) => !isThis)
    .map(({ did }) => did)
    .sort();
const knowsJust = async (me: Waypost, others: readonly Waypost[]) => {
  const wanted = (await Promise.all(others.map(ownDid))).sort();
  const read = () => othersOf(me);
  expect(await until(read, (found) => Bun.deepEquals(found, wanted))).toEqual(wanted);
};
/** Both have the keys that the ledger has. */
async function shareKeys(one: Waypost, other: Waypost): Promise<void> {
  const areShared = async () =>
    Bun.deepEquals(one.identity.rootSeed, other.identity.rootSeed) &&
    other.identity.nextRootSeed === null;
  expect(await until(areShared, (is) => is)).toBe(true);
  const inForce = await rootKeyOf(one.client, one.did);
  for (const { identity } of [one, other])
    expect(await ed25519PublicKey(identity.rootSeed)).toEqual(inForce);
}

test("a device that is linked later hears of no removed one, and has the keys in force, whatever others still log", async () => {
  const [alice, phone] = await Promise.all([open(), open(place())]);
  const laptop = await linked(phone);
  const lost = await linked(phone);
  await knowsJust(laptop, [phone, lost]);
  await laptop.devices.remove(await ownDid(lost));
  await shareKeys(laptop, phone);
  await knowsJust(phone, [laptop]);
  const thief = await linked(laptop);
  await knowsJust(phone, [laptop, thief]);
  await phone.devices.remove(await ownDid(thief));
  await shareKeys(phone, laptop);
  await knowsJust(laptop, [phone]);

  const where = place();
  const tablet = await linked(phone, where);
  await knowsJust(laptop, [phone, tablet]);
  // What the tablet misses before this it asks for.
  await laptop.store.savePerson(alice.did, { name: "Alice" });
  const name = async () => (await tablet.store.person(alice.did))?.name;
  expect(await until(name, (is) => is === "Alice")).toBe("Alice");
  await knowsJust(tablet, [phone, laptop]);
  await shareKeys(phone, tablet);
  const table = await Table.open(where.store, tablet.identity.storeKey);
  const removed = await Promise.all([lost, thief].map(ownDid));
  expect((await table.values<string>("x/")).sort()).toEqual(removed.sort());
}, 90_000);

test("of two removals at once both hold, and no removed device has the keys", async () => {
  const phone = await open(place());
  const laptop = await linked(phone);
  const [one, other] = [await linked(phone), await linked(phone)];
  await knowsJust(laptop, [phone, one, other]);
  const [oneDid, otherDid] = [await ownDid(one), await ownDid(other)];
  const removals = await Promise.allSettled([
    phone.devices.remove(oneDid),
    laptop.devices.remove(otherDid),
  ]);
  expect(removals.some(({ status }) => status === "fulfilled")).toBe(true);
  await knowsJust(phone, [laptop]);
  await knowsJust(laptop, [phone]);
  await shareKeys(phone, laptop);
  await shareKeys(laptop, phone);
  for (const { identity } of [one, other])
    for (const seed of [identity.rootSeed, identity.nextRootSeed])
      expect(seed).not.toEqual(phone.identity.rootSeed);
}, 90_000);

test("a call under a replaced root key isn't signed, and holds up no later one", async () => {
  const me = await open(place());
  const { rootSeed: before } = me.identity;
  await me.devices.replaceKeys();
  const rotate = async (seed: Uint8Array) => {
    const newRootPubkey = await ed25519PublicKey(freshSeed());
    const intent = { action: "UpdateRootPubkey", did: me.did, newRootPubkey } as const;
    return change(me.client, intent, { signer: { keyId: rootSignerId, seed }, waiting });
  };
  expect(await attempt(() => rotate(before))).toMatchObject({ code: "root_replaced" });
  expect(await attempt(() => rotate(me.identity.rootSeed))).not.toBeInstanceOf(ClientError);
}, 60_000);

test("a removed device is linked again, under another DID", async () => {
  const phone = await open(place());
  const where = place();
  const laptop = await linked(phone, where);
  const before = await ownDid(laptop);
  await phone.devices.remove(before);
  await laptop.close();
  await where.keys.save("default", null);
  const again = await linked(phone, { ...where, store: memoryStore() });
  await knowsJust(phone, [again]);
  await knowsJust(again, [phone]);
  expect(await ownDid(again)).not.toBe(before);
  await shareKeys(phone, again);
}, 60_000);

test("a removal that is asked for again when it is done changes nothing, and of no device it says so", async () => {
  const phone = await open(place());
  const [laptop, other] = [await linked(phone), await linked(phone)];
  await knowsJust(laptop, [phone, other]);
  const gone = await ownDid(other);
  await phone.devices.remove(gone);
  await knowsJust(laptop, [phone]);
  const inForce = await rootKeyOf(phone.client, phone.did);
  for (const one of [phone, laptop]) await one.devices.remove(gone);
  expect(await rootKeyOf(phone.client, phone.did)).toEqual(inForce);
  const refused = await attempt(() => phone.devices.remove(identityOf("nobody").did));
  expect(refused).toMatchObject({ code: "no_device" });
}, 60_000);

test("a device that was off during a removal receives by itself when it is back", async () => {
  const where = place();
  const [phone, bob] = [await open(place()), await open()];
  const tablet = await linked(phone, where);
  const other = await linked(phone);
  await knowsJust(tablet, [phone, other]);
  await tablet.close();
  await phone.devices.remove(await ownDid(other));
  const back = await open(where);
  await knowsJust(back, [phone]);
  await shareKeys(phone, back);
  await phone.close();
  await bob.send(phone.did, "to the tablet");
  await shows(back, bob.did, ["to the tablet"]);
}, 90_000);

test("a device that was off during a removal receives what waits, and what its program acknowledges by hand", async () => {
  const [where, there] = [place(), place()];
  const [phone, bob] = [await open(place()), await open()];
  const [tablet, laptop] = [await linked(phone, where), await linked(phone, there)];
  const other = await linked(phone);
  for (const one of [tablet, laptop]) {
    await until(
      () => one.devices.list(),
      (all) => all.length === 4,
    );
    await one.close();
  }
  await phone.devices.remove(await ownDid(other));
  await phone.close();
  const byHand = await open({ ...where, acknowledge: "by-hand" });
  await bob.send(phone.did, "to the tablet");
  for await (const message of byHand.messages()) {
    expect(message.text).toBe("to the tablet");
    await message.ack();
    break;
  }
  const byCommand = await open({ ...there, acknowledge: "by-hand" });
  expect(await byCommand.receiveWaiting()).toMatchObject({ isComplete: true });
}, 90_000);

/** The rows of a store as they are now; returns what sets it back to them. */
async function copyOf(store: StoreDriver): Promise<() => Promise<void>> {
  const range = { from: "", to: "\uffff", limit: 1_000_000, isReverse: false };
  const before = await store.scan(range);
  return async () => {
    const kept = new Set(before.map(([key]) => key));
    const since = (await store.scan(range)).filter(([key]) => !kept.has(key));
    await store.apply([...since.map(([key]) => [key, null] as const), ...before]);
  };
}

test("a device whose local store is an older copy than its keys gives a removed device nothing", async () => {
  const where = place();
  const first = await open(where);
  const tablet = await linked(first);
  const thief = await linked(first);
  await knowsJust(tablet, [first, thief]);
  const gone = await ownDid(thief);
  await first.close();
  const setBack = await copyOf(where.store);
  const phone = await open(where);
  await phone.devices.remove(gone);
  await shareKeys(phone, tablet);
  await phone.close();
  await setBack();
  const again = await open(where);
  await knowsJust(again, [tablet]);
  // It has said something to all whom it lists, and they to it.
  const names = async (me: Waypost) => (await me.store.people()).map(({ name }) => name);
  for (const [from, to] of [
    [again, tablet],
    [tablet, again],
  ] as const) {
    const name = crypto.randomUUID();
    await from.store.savePerson(from.did, { name });
    expect(
      await until(
        () => names(to),
        (all) => all.includes(name),
      ),
    ).toContain(name);
  }
  await knowsJust(tablet, [again]);
  const inForce = await rootKeyOf(again.client, again.did);
  expect(await ed25519PublicKey(thief.identity.rootSeed)).not.toEqual(inForce);
}, 60_000);

test("a device that is killed as soon as it has the keys of a removal, and whose store is an older copy then, gives the removed one nothing", async () => {
  const where = place();
  const phone = await open(place());
  let isArmed = false;
  const seedOf = (text: string | null, name: string) => parseIdentity(text ?? "", name)?.rootSeed;
  const { keys, isDead } = killedKeys(
    where.keys,
    (name, before, after) => isArmed && !Bun.deepEquals(seedOf(before, name), seedOf(after, name)),
  );
  const tablet = await linked(phone, { ...where, keys });
  const thief = await linked(phone);
  await knowsJust(tablet, [phone, thief]);
  const gone = await ownDid(thief);
  const setBack = await copyOf(where.store);
  isArmed = true;
  await phone.devices.remove(gone);
  expect(
    await until(
      async () => isDead(),
      (is) => is,
    ),
  ).toBe(true);
  await tablet.close();
  await setBack();
  const again = await open(where);
  await knowsJust(phone, [again]);
  await knowsJust(again, [phone]);
  const inForce = await rootKeyOf(again.client, again.did);
  expect(await ed25519PublicKey(again.identity.rootSeed)).toEqual(inForce);
  const name = crypto.randomUUID();
  await again.store.savePerson(phone.did, { name });
  const names = async () => (await phone.store.people()).map((one) => one.name);
  expect(await until(names, (all) => all.includes(name))).toContain(name);
  expect(await ed25519PublicKey(thief.identity.rootSeed)).not.toEqual(inForce);
}, 60_000);

test("a device that another one lists after the user has looked stays in no new keys", async () => {
  const where = place();
  const phone = await open(place());
  const thief = await linked(phone, where);
  await knowsJust(phone, [thief]);
  const gone = await ownDid(thief);
  await thief.close();
  const table = await Table.open(where.store, thief.identity.storeKey);
  const row = (await table.get<{ head: Head }>(ringKey)) as { head: Head };
  const helper = { did: identityOf("helper").did, name: "", key: "ab".repeat(32) };
  const devices = [...row.head.devices, { ...helper, addedMs: 1, addedBy: null }];
  await table.change(async (batch) =>
    batch.put(ringKey, { ...row, head: { ...row.head, devices } }),
  );
  await phone.devices.list();
  await open(where);
  const isListed = (all: readonly { readonly did: string }[]) =>
    all.some(({ did }) => did === helper.did);
  expect(isListed(await until(() => phone.devices.listed(), isListed))).toBe(true);
  const removing = attempt(() => phone.devices.remove(gone));
  // As an app does by itself when something has changed, which the user sees after the press.
  await phone.devices.list();
  const refused = await removing;
  expect(refused instanceof ClientError && refused.code).toBe("devices_changed");
  await phone.devices.replaceKeys({ keep: [] });
  expect((await phone.devices.list()).filter(({ isThis }) => !isThis)).toEqual([]);
}, 60_000);

test("a device that another one accepted is looked at before one is removed, and stays under new keys for all", async () => {
  const phone = await open(place());
  const laptop = await linked(phone);
  const lost = await linked(phone);
  await knowsJust(phone, [laptop, lost]);
  await knowsJust(laptop, [phone, lost]);
  const tablet = await linked(laptop);
  const all = async () => (await phone.devices.listed()).length;
  expect(await until(all, (is) => is === 4)).toBe(4);
  const refused = await attempt(async () => phone.devices.remove(await ownDid(lost)));
  expect(refused instanceof ClientError && refused.code).toBe("devices_changed");
  await phone.devices.replaceKeys();
  await knowsJust(phone, [laptop, lost, tablet]);
  await phone.devices.remove(await ownDid(lost));
  await knowsJust(tablet, [phone, laptop]);
  await shareKeys(phone, tablet);
}, 90_000);

test("a device that was accepted after the user has looked stays", async () => {
  const phone = await open(place());
  await linked(phone);
  const [other = ""] = await othersOf(phone);
  const tablet = await linked(phone);
  await phone.devices.remove(other);
  await knowsJust(phone, [tablet]);
  await shareKeys(phone, tablet);
}, 60_000);

test("what a removed device had chosen at the end of time overrides no later choice on a device that was off", async () => {
  const [where, tabletAt] = [place(), place()];
  const [phone, bob] = [await open(place()), await open()];
  const isBlocked = async (me: Waypost) =>
    (await me.store.people()).find(({ did }) => did === bob.did)?.isBlocked;
  await phone.store.savePerson(bob.did, { isBlocked: false });
  const tablet = await linked(phone, tabletAt);
  const thief = await linked(phone, where);
  const thiefDid = await ownDid(thief);
  await knowsJust(tablet, [phone, thief]);
  await tablet.close();
  await thief.close();
  const table = await Table.open(where.store, thief.identity.storeKey);
  await table.change(async (batch) => {
    const last = Number.MAX_SAFE_INTEGER;
    await putPerson(table, batch, bob.did, { isBlocked: true, setMs: last });
    batch.log(keyOfPerson(table, bob.did));
  });
  const again = await open(where);
  expect(await until(() => isBlocked(phone), Boolean)).toBe(true);
  await again.devices.sync?.synced();
  await again.close();
  await phone.devices.remove(thiefDid);
  await phone.store.savePerson(bob.did, { isBlocked: false });
  const back = await open(tabletAt);
  await knowsJust(back, [phone]);
  // What comes last has all before it.
  await phone.store.savePerson(phone.did, { name: "the end" });
  const nameAt = async () =>
    (await back.store.people()).find(({ did }) => did === phone.did)?.name === "the end";
  expect(await until(nameAt, Boolean)).toBe(true);
  expect([await isBlocked(phone), await isBlocked(back)]).toEqual([false, false]);
}, 60_000);

test("what a removed device had passed on in another form is not stored, and what was stored before keeps nothing else from a list", async () => {
  const [where, thiefAt] = [place(), place()];
  const [phone, bob] = [await open(where), await open()];
  await phone.store.savePerson(bob.did, { name: "Bob" });
  await bob.send(phone.did, "hello");
  await shows(phone, bob.did, ["hello"]);
  const thief = await linked(phone, thiefAt);
  await shows(thief, bob.did, ["hello"]);
  const thiefDid = await ownDid(thief);
  await thief.close();
  const table = await Table.open(thiefAt.store, thief.identity.storeKey);
  const [[at, row] = ["", null]] = await table.scan<MessageRow>({ prefix: rowsOf.messages });
  if (row === null) throw new Error("the thief has no message");
  const formless = (change: object) => {
    return { ...row, id: crypto.randomUUID(), digest: crypto.randomUUID(), ...change };
  };
  await table.change(async (batch) => {
    const given = [formless({ conversation: null }), formless({ body: {} }), formless({ to: 5 })];
    for (const [i, one] of given.entries()) {
      batch.put(`${at}${i}`, one);
      batch.log(`${at}${i}`);
    }
    await putPerson(table, batch, phone.did, { name: "the end" });
    batch.log(keyOfPerson(table, phone.did));
  });
  const again = await open(thiefAt);
  const isHeard = async () => (await phone.store.person(phone.did))?.name === "the end";
  expect(await until(isHeard, Boolean)).toBe(true);
  await again.close();
  await phone.devices.remove(thiefDid);
  await phone.close();
  const own = await Table.open(where.store, phone.identity.storeKey);
  expect(await own.values(rowsOf.messages)).toHaveLength(1);

  // As an earlier version has stored them.
  const [[key, held] = ["", null]] = await own.scan<MessageRow>({ prefix: rowsOf.messages });
  await own.change(async (batch) => {
    batch.put(`${key}0`, { ...held, id: "x", to: 5 });
    batch.put(`${rowsOf.conversations}0`, { id: null, unread: 1, at: 1, last: null });
    batch.put(`${rowsOf.people}0`, { did: null, name: 5 });
  });
  const { store } = await open(where);
  const [talk, ...others] = await store.conversations();
  expect([talk?.id, talk?.last?.text, others]).toEqual([bob.did, "hello", []]);
  expect((await store.messages(bob.did)).map(({ text }) => text)).toEqual(["hello"]);
  expect((await store.people()).map(({ name }) => name).sort()).toEqual(["Bob", "the end"]);
  expect(await store.unread()).toBe(1);
}, 60_000);
