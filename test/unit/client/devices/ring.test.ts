/**
 * Keyrings of two devices over a proof that says what the test wants, and a thief who has the keys
 * of an earlier one.
 */
import { expect, test } from "bun:test";
import { attempt, ClientError } from "../../../../src/client/base/failure.ts";
import type { Head, ProvenRoot } from "../../../../src/client/devices/keyring.ts";
import { beginRing, Ring } from "../../../../src/client/devices/ring.ts";
import { openHead, sealHead, withoutOwn } from "../../../../src/client/devices/sealing.ts";
import { nextIdentity } from "../../../../src/client/identity/new-keys.ts";
import { ed25519PublicKey, x25519PublicKey } from "../../../../src/client/keys/crypto.ts";
import { memoryKeys } from "../../../../src/client/keys/key-stores.ts";
import {
  createIdentity,
  freshAgreement,
  freshSeed,
  type Identity,
} from "../../../../src/client/keys/keys.ts";
import { memoryStore } from "../../../../src/client/store/driver.ts";
import { ringKey } from "../../../../src/client/store/keys.ts";
import { Table } from "../../../../src/client/store/table.ts";
import { encodeHex } from "../../../../src/core/codec/bytes.ts";
import type { Did } from "../../../../src/core/codec/did.ts";
import { identityOf } from "../../../support/identity.ts";

const didOf = (name: string) => identityOf(name).did;
const [phone, laptop] = [didOf("phone"), didOf("laptop")];
const [thief, evil] = [didOf("thief"), didOf("evil")];
/** In a user's hands, the third device of these worlds. */
const tablet = thief;

async function place(identity: Identity, proven: { root: ProvenRoot }) {
  const held = { identity, added: [] as string[], seen: null as ProvenRoot | null };
  const table = await Table.open(memoryStore(), freshSeed());
  const memory = memoryKeys();
  const ring = new Ring({
    table,
    nowMs: Date.now,
    identity: () => held.identity,
    change: async (edit) => {
      held.identity = await edit(held.identity);
      return held.identity;
    },
    proven: async () => proven.root,
    lastProven: () => held.seen,
    added: async () => held.added,
    memory: () => memory,
  });
  return { held, table, ring };
}

const rootOf = async (seed: Uint8Array, number: number): Promise<ProvenRoot> => {
  return { number, root: encodeHex(await ed25519PublicKey(seed)) };
};

/** Phone, laptop and a device in a thief's hands, all with the same keys. */
async function world() {
  const first = createIdentity("default");
  const proven = { root: await rootOf(first.rootSeed, 0) };
  const one = await place(first, proven);
  await one.ring.begin(phone, "phone");
  const secrets = [freshSeed(), freshSeed()] as const;
  const devices = [laptop, thief] as const;
  for (const [i, did] of devices.entries()) {
    const key = encodeHex(await x25519PublicKey(secrets[i] as Uint8Array));
    await one.ring.add({ did, name: did, key, addedMs: i, addedBy: phone });
  }
  const linked = async (did: Did, secret: Uint8Array) => {
    const deviceKey = await x25519PublicKey(secret);
    const given = await one.ring.forNewDevice({}, { from: phone, to: did }, deviceKey);
    const opened = await openHead(String(given["head"]), secret, "default");
    if (opened === null) throw new Error("it was sealed to another key");
    const two = await place({ ...first, storeKey: freshSeed() }, proven);
    await beginRing(two.table, opened.head, secret);
    return two;
  };
  const two = await linked(laptop, secrets[0]);
  const three = await linked(thief, secrets[1]);
  return { first, proven, one, two, three };
}

test("a device whose list is of an earlier root key than its seed gives no new device either", async () => {
  const { proven, one } = await world();
  one.held.identity = { ...one.held.identity, rootSeed: freshSeed() };
  const key = await x25519PublicKey(freshSeed());
  const give = () => one.ring.forNewDevice({}, { from: phone, to: evil }, key);
  expect(await attempt(give)).toMatchObject({ code: "behind" });
  // As soon as the Directory has shown it.
  proven.root = await rootOf(one.held.identity.rootSeed, 1);
  await one.ring.settle();
  expect(await attempt(give)).not.toBeInstanceOf(ClientError);
});

const items = { v: 1, items: [], after: 0, at: 1, tried: [] };

test("keys of a replacement wait for the proof, and then no other devices count", async () => {
  const { first, proven, one, two, three } = await world();
  const next = nextIdentity(first, 1);
  await one.ring.replace(next, phone, [laptop]);
  // Nothing goes to who is missing in the replacement, on both devices.
  expect(await one.ring.audience(phone)).toEqual([laptop]);
  const offer = await one.ring.seal(items, { from: phone, to: laptop, acked: "" });
  await two.ring.open(offer, { from: phone, to: laptop });
  expect(await two.ring.audience(laptop)).toEqual([phone]);
  expect(two.held.identity.rootSeed).toEqual(first.rootSeed);

  proven.root = await rootOf(next.nextRootSeed as Uint8Array, 1);
  expect((await one.ring.settle()).isChanged).toBe(true);
  const said = await one.ring.seal(items, { from: phone, to: laptop, acked: "" });
  const heard = await two.ring.open(said, { from: phone, to: laptop });
  expect([heard.said, two.held.identity.rootSeed]).toEqual([items, next.nextRootSeed]);
  expect(await two.ring.devices()).toHaveLength(2);

  // The thief has the keys of before: it is read by no one, and reads nothing.
  const late = await three.ring.seal(items, { from: thief, to: laptop, acked: "" });
  expect((await two.ring.open(late, { from: thief, to: laptop })).said).toBe(null);
  expect((await three.ring.open(said, { from: phone, to: laptop })).said).toBe(null);
  expect(three.held.identity.rootSeed).toEqual(first.rootSeed);
});

test("devices whose local stores are older than their keys know who made them, whoever of them speaks first", async () => {
  const { first, proven, one, two, three } = await world();
  const copies = await Promise.all([one, three].map(({ table }) => table.get(ringKey)));
  const next = nextIdentity(first, 1);
  const rootSeed = next.nextRootSeed as Uint8Array;
  two.held.identity = next;
  await two.ring.replace(next, laptop, [phone, tablet]);
  const offers = [phone, tablet].map((to) => two.ring.seal(items, { from: laptop, to, acked: "" }));
  proven.root = await rootOf(rootSeed, 1);
  two.held.identity = { ...next, rootSeed, nextRootSeed: null };
  await two.ring.settle();
  for (const [i, { ring, table }] of [one, three].entries()) {
    const to = i === 0 ? phone : tablet;
    await ring.open(await offers[i], { from: laptop, to });
    expect(await ring.maker()).toBe(laptop);
    await table.change(async (batch) => batch.put(ringKey, copies[i]));
    expect(await ring.maker()).toBe(phone);
    await ring.settle();
  }
  const said = await one.ring.seal(items, { from: phone, to: tablet, acked: "" });
  await three.ring.open(said, { from: phone, to: tablet });
  expect([await one.ring.maker(), await three.ring.maker()]).toEqual([laptop, laptop]);
});

test("a thief's head is no more than a candidate, and ends with its time", async () => {
  const { first, one, two } = await world();
  const own = nextIdentity(first, 1);
  const root = encodeHex(await ed25519PublicKey(own.nextRootSeed as Uint8Array));
  const text = withoutOwn({ ...own, rootSeed: own.nextRootSeed as Uint8Array, nextRootSeed: null });
  const devices = await two.ring.devices();
  const key = devices.find(({ did }) => did === laptop)?.key ?? "";
  const headOf = (untilMs: number) => ({
    did: first.did,
    ...{ number: 1, root, maker: thief, untilMs },
    devices: [{ did: evil, name: "", key, addedMs: 0, addedBy: null }],
  });
  const deviceKey = Uint8Array.from(Buffer.from(key, "hex"));
  for (const untilMs of [Date.now() - 120_000, Date.now() + 86_400_000]) {
    const given = { head: headOf(untilMs), identity: text };
    const sealed = await sealHead(given, own.nextRootSeed as Uint8Array, deviceKey);
    await two.ring.open({ v: 2, root, heads: [sealed], sealed: "" }, { from: thief, to: laptop });
    expect(await two.ring.audience(laptop)).toEqual([phone, thief].sort());
  }
  // Signed with another key than its root key's: it isn't opened at all.
  const forged = { ...headOf(Date.now() + 60_000), root: encodeHex(freshSeed()) };
  const sealed = await sealHead({ head: forged, identity: text }, first.rootSeed, deviceKey);
  await two.ring.open({ v: 2, root, heads: [sealed], sealed: "" }, { from: thief, to: laptop });
  expect(await two.ring.audience(laptop)).toHaveLength(2);
  expect(await one.ring.audience(phone)).toHaveLength(2);
});

test("a head that someone who isn't listed has made up, or of a number that is not the next one, silences no device", async () => {
  const { first, proven, two } = await world();
  const own = nextIdentity(first, 1);
  const seed = own.nextRootSeed as Uint8Array;
  const root = encodeHex(await ed25519PublicKey(seed));
  const identity = withoutOwn({ ...own, rootSeed: seed, nextRootSeed: null });
  const devices = (await two.ring.devices()).filter(({ did }) => did === laptop);
  const deviceKey = Uint8Array.from(Buffer.from(devices[0]?.key ?? "", "hex"));
  const say = async (from: Did, number: number) => {
    const untilMs = Date.now() + 600_000;
    const head = { did: first.did, number, root, maker: from, untilMs, devices };
    const sealed = await sealHead({ head, identity }, seed, deviceKey);
    await two.ring.open({ v: 2, root, heads: [sealed], sealed: "" }, { from, to: laptop });
    return two.ring.audience(laptop);
  };
  const all = [phone, thief].sort();
  expect(await say(evil, 1)).toEqual(all);
  expect(await say(phone, 7)).toEqual(all);
  // The next one of a listed device waits for the proof.
  expect(await say(phone, 1)).toEqual([]);
  expect(proven.root.number).toBe(0);
});

test("a head with more devices than an identity has is none, and new keys are for those alone who are to have them", async () => {
  const { first, proven, one, two, three } = await world();
  const { head } = (await three.table.get<{ head: Head }>(ringKey)) as { head: Head };
  const made = Array.from({ length: 8 }, (_, i) => ({
    ...{ did: didOf(`made ${i}`), name: "", key: "ab".repeat(32) },
    ...{ addedMs: i, addedBy: null },
  }));
  const row = { ...(await three.table.get<object>(ringKey)) };
  await three.table.change(async (batch) =>
    batch.put(ringKey, { ...row, head: { ...head, devices: [...head.devices, ...made] } }),
  );
  const said = await three.ring.seal(items, { from: thief, to: laptop, acked: "" });
  await two.ring.open(said, { from: thief, to: laptop });
  expect(await two.ring.devices()).toHaveLength(3);
  const next = nextIdentity(first, 1);
  await one.ring.replace(next, phone, []);
  proven.root = await rootOf(next.nextRootSeed as Uint8Array, 1);
  await one.ring.settle();
  expect((await one.ring.devices()).map(({ did }) => did)).toEqual([phone]);
});

test("what another device says of a device's key counts only where nothing is known of it", async () => {
  const { two, three, one } = await world();
  const keyAt = async (ring: Ring, of: Did) =>
    (await ring.devices()).find(({ did }) => did === of)?.key;
  const known = await keyAt(two.ring, phone);
  const forged = "ff".repeat(32);
  const row = (await three.table.get<{ head: { devices: { did: Did }[] } }>(ringKey)) as {
    head: { devices: { did: Did }[] };
  };
  const devices = row.head.devices.map((each) =>
    each.did === phone ? { ...each, key: forged } : each,
  );
  await three.table.change(async (batch) =>
    batch.put(ringKey, { ...row, head: { ...row.head, devices } }),
  );
  const said = await three.ring.seal(items, { from: thief, to: laptop, acked: "" });
  await two.ring.open(said, { from: thief, to: laptop });
  expect(await keyAt(two.ring, phone)).toBe(known);
  // Who had nothing but that learns it from the device itself.
  const answer = await one.ring.seal(items, { from: phone, to: thief, acked: "" });
  await three.ring.open(answer, { from: phone, to: thief });
  expect(await keyAt(three.ring, phone)).toBe(known);
});

test("a device that one device adds is listed by all, and one without the head of the keys in force says nothing", async () => {
  const { first, proven, one, two } = await world();
  await two.ring.add({ did: evil, name: "new", key: "ab".repeat(32), addedMs: 9, addedBy: laptop });
  const said = await two.ring.seal(items, { from: laptop, to: phone, acked: "" });
  expect((await one.ring.open(said, { from: laptop, to: phone })).isChanged).toBe(true);
  const added = (await one.ring.devices()).find(({ did }) => did === evil);
  expect(added).toMatchObject({ name: "new", addedBy: laptop });
  expect(await one.ring.stamp()).toBe(await two.ring.stamp());

  proven.root = await rootOf(freshSeed(), 1);
  one.held.seen = proven.root;
  const way = { from: phone, to: laptop, acked: "" };
  expect(one.ring.seal(items, way)).rejects.toMatchObject({ code: "behind" });
  expect(await one.ring.seal({ v: 1, have: 0 }, way)).toMatchObject({ v: 2 });
  expect(one.held.identity.rootSeed).toEqual(first.rootSeed);
});

test("secrets and methods of one root key join on all devices, and none of a replacement go with it", async () => {
  const { first, one, two } = await world();
  const id = first.agreements[0]?.id ?? "";
  const fresh = freshAgreement(first, { id, nowMs: Date.now(), destroyAtMs: null });
  const method = { id: `${first.did}#k2`, secret: freshSeed() };
  const before = await one.ring.stamp();
  one.held.identity = {
    ...first,
    agreements: [...first.agreements, fresh],
    methods: [...first.methods, method],
  };
  one.held.added = ["z6Mk2"];
  expect(await one.ring.stamp()).not.toBe(before);
  const next = nextIdentity(one.held.identity, Date.now());
  one.held.identity = next;
  await one.ring.replace(next, phone, [laptop]);
  const said = await one.ring.seal(items, { from: phone, to: laptop, acked: "" });
  await two.ring.open(said, { from: phone, to: laptop });
  const { agreements, methods, nextRootSeed } = two.held.identity;
  expect(agreements.map(({ secret }) => secret)).toEqual(
    [...first.agreements, fresh].map(({ secret }) => secret),
  );
  expect(methods.map((method) => [method.id, method.isShared === true])).toEqual([
    [`${first.did}#root`, false],
    [`${first.did}#k2`, true],
  ]);
  expect([nextRootSeed, await two.ring.methods()]).toEqual([null, ["z6Mk2"]]);
  // A replacement here keeps none that another device has made.
  expect(nextIdentity(two.held.identity, 1).methods.map((method) => method.id)).toEqual([
    `${first.did}#root`,
    `${first.did}#k2`,
    `${first.did}#root`,
  ]);
});
