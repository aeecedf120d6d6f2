/**
 * What one device has seen of people holds on the others, on one that is linked later, and after a
 * restoration: a Directory that shows them an older record, or another branch, is not believed. Nor
 * is one of two own devices that have seen keys which contradict each other.
 */
import { afterAll, expect, test } from "bun:test";
import type { ClientError } from "../../src/client/base/failure.ts";
import { restore } from "../../src/client/identity/backup.ts";
import { memoryKeys } from "../../src/client/keys/key-stores.ts";
import { memoryStore } from "../../src/client/store/driver.ts";
import { rowsOf } from "../../src/client/store/keys.ts";
import { Table } from "../../src/client/store/table.ts";
import { Waypost } from "../../src/client/waypost.ts";
import { encodeKeyProof } from "../../src/core/ledger/key-proof.ts";
import { forgeDocument } from "../support/forged-proofs.ts";
import { keyOf } from "../support/identity.ts";
import { parsedProof, rotateRoot } from "../support/lie-stage.ts";
import { type LyingDirectory, lyingDirectory } from "../support/lying-directory.ts";
import { peopleAtNodes } from "../support/people.ts";
import { devicesAt, until } from "./own-devices.ts";

const people = peopleAtNodes();
const { open, keep } = people;
const { place } = devicesAt(people);
const proxies: LyingDirectory[] = [];
afterAll(() => Promise.all(proxies.map((proxy) => proxy.stop())));

/** A place whose Directory can lie. */
function lied(where = place()) {
  const proxy = lyingDirectory(people.at.url);
  proxies.push(proxy);
  const { url, ...rest } = where;
  return { proxy, where: { ...rest, directoryUrl: proxy.url, relayUrl: url, cacheUrl: url } };
}

const codeOf = (work: Promise<{ readonly delivered?: Promise<unknown> }>): Promise<string> =>
  work
    .then(async ({ delivered }) => {
      await delivered;
      return "believed";
    })
    .catch((error: ClientError) => error.code);

/** Bob, whose first root key was stolen and rotated away, and what its thief can show. */
async function bobAndThief() {
  const bob = await open();
  const before = await parsedProof(people.at.url, bob.did);
  const seed = bob.identity.rootSeed;
  await rotateRoot(bob, `${bob.did} true`);
  const branch = forgeDocument(before, { seed, nonce: 70n });
  const fork = forgeDocument(before, { seed, nonce: 70n, next: keyOf("thief") });
  return { bob, branch: encodeKeyProof(branch), fork: encodeKeyProof(fork) };
}

const hasEvidence = async (
  { store }: { readonly store: ReturnType<typeof memoryStore> },
  me: Waypost,
) => (await (await Table.open(store, me.identity.storeKey)).values(rowsOf.evidence)).length > 0;

test("a device that is linked later believes no older record of a person than the others have seen", async () => {
  const { bob, branch } = await bobAndThief();
  const where = place();
  const phone = await open(where);
  await (await phone.send(bob.did, "hello")).delivered;
  expect(await until(() => hasEvidence(where, phone), Boolean)).toBe(true);
  const { proxy, where: there } = lied();
  proxy.lie = { proof: (did) => (did === bob.did ? branch : null) };
  const linking = await Waypost.link(there);
  await phone.devices.acceptLink(linking.code, "laptop");
  const laptop = await keep(linking.opened);
  await until(
    () => laptop.devices.isWaiting(),
    (isWaiting) => !isWaiting,
  );
  expect(await codeOf(laptop.send(bob.did, "hello"))).toBe("record_went_back");
  proxy.lie = {};
  expect(await codeOf(laptop.send(bob.did, "hello again"))).toBe("believed");
}, 60_000);

test("an identity that is restored from a backup believes none either", async () => {
  const { bob, branch } = await bobAndThief();
  const where = place();
  const phone = await open(where);
  await (await phone.send(bob.did, "hello")).delivered;
  await until(() => hasEvidence(where, phone), Boolean);
  const saved = await new Response(await phone.backup({ passphrase: "p" })).bytes();
  await phone.close();
  const [keys, store] = [memoryKeys(), memoryStore()];
  await restore(new Blob([saved]).stream(), {
    ...{ passphrase: "p", keys, store },
    ...{ areOthersLost: true, directoryUrl: people.at.url },
  });
  const { proxy, where: there } = lied({ ...place(), keys, store });
  proxy.lie = { proof: (did) => (did === bob.did ? branch : null) };
  const found = await keep(Waypost.open(there));
  expect(await codeOf(found.send(bob.did, "hello"))).toBe("record_went_back");
}, 60_000);

/** A phone and a laptop that have believed different keys of Bob, and then heard of the other's. */
async function contradicted() {
  const { bob, fork } = await bobAndThief();
  const phone = await open(place());
  const { proxy, where } = lied();
  const linking = await Waypost.link(where);
  await phone.devices.acceptLink(linking.code, "laptop");
  const laptop = await keep(linking.opened);
  const said = [phone, laptop].map((me) => {
    const codes: string[] = [];
    me.on(
      (event) => event.type === "failed" && event.what === "person" && codes.push(event.error.code),
    );
    return codes;
  });
  // Both look before either learns of the other.
  proxy.lie = { proof: (did) => (did === bob.did ? fork : null) };
  for (const me of [phone, laptop]) await me.store.savePerson(bob.did, { isKnown: true });
  expect(await Promise.all([phone, laptop].map((me) => codeOf(me.send(bob.did, "hello"))))).toEqual(
    ["believed", "believed"],
  );
  await until(
    async () => said,
    (all) => all.every((codes) => codes.includes("identity_changed")),
  );
  expect(said.map((codes) => codes.includes("identity_changed"))).toEqual([true, true]);
  return { bob, phone, laptop };
}

test("a proof of somebody who was a stranger is kept next to the one that contradicts it, also after a restart", async () => {
  for (const isRestarted of [false, true]) {
    const { bob, fork } = await bobAndThief();
    const forge = { proof: (did: string) => (did === bob.did ? fork : null) };
    const own = place();
    let phone = await open(own);
    const { proxy, where } = lied();
    const linking = await Waypost.link(where);
    await phone.devices.acceptLink(linking.code, "laptop");
    const laptop = await keep(linking.opened);
    await phone.client.trust.prove(bob.did, null);
    expect(await hasEvidence(own, phone)).toBe(false);
    if (isRestarted) {
      await phone.close();
      phone = await open(own);
    }
    const said: string[] = [];
    phone.on((event) => event.type === "failed" && said.push(event.error.code));
    proxy.lie = forge;
    await laptop.store.savePerson(bob.did, { isKnown: true });
    expect(await codeOf(laptop.send(bob.did, "hello"))).toBe("believed");
    await until(
      async () => said,
      (codes) => codes.includes("identity_changed"),
    );
    await laptop.close();
    const { proxy: other, where: there } = lied();
    other.lie = forge;
    const link = await Waypost.link(there);
    await phone.devices.acceptLink(link.code, "tablet");
    const tablet = await keep(link.opened);
    await until(
      () => tablet.devices.isWaiting(),
      (isWaiting) => !isWaiting,
    );
    expect(await codeOf(tablet.send(bob.did, "hello"))).toBe("identity_changed");
  }
}, 90_000);

test("who is accepted has the proof kept that was seen of them before", async () => {
  const [where, bob] = [place(), await open()];
  const phone = await open(where);
  await phone.client.trust.prove(bob.did, null);
  expect(await hasEvidence(where, phone)).toBe(false);
  await phone.store.savePerson(bob.did, { isKnown: true });
  expect(await until(() => hasEvidence(where, phone), Boolean)).toBe(true);
}, 60_000);

test("of two own devices that have seen keys which contradict each other neither believes either, until one is compared", async () => {
  const { bob, phone, laptop } = await contradicted();
  for (const me of [phone, laptop])
    expect(await codeOf(me.send(bob.did, "hello"))).toBe("identity_changed");
  // The phone, which sees what the person sees, compares.
  const { is, distrusted } = await phone.fingerprint(bob.did);
  expect(distrusted).toBe("identity_changed");
  await phone.setCompared(bob.did, is);
  expect(await codeOf(phone.send(bob.did, "it is you"))).toBe("believed");
  // The laptop's Directory goes on lying.
  expect(await codeOf(laptop.send(bob.did, "hello"))).toBe("identity_changed");
}, 60_000);

test("nor does a device that is linked when the other one is gone, or an identity that is restored", async () => {
  const { bob, phone, laptop } = await contradicted();
  await laptop.close();
  const saved = await new Response(await phone.backup({ passphrase: "p" })).bytes();
  const linking = await Waypost.link(place());
  await phone.devices.acceptLink(linking.code, "tablet");
  const tablet = await keep(linking.opened);
  await until(
    () => tablet.devices.isWaiting(),
    (isWaiting) => !isWaiting,
  );
  expect(await codeOf(tablet.send(bob.did, "hello"))).toBe("identity_changed");
  await phone.close();
  await tablet.close();
  const [keys, store] = [memoryKeys(), memoryStore()];
  await restore(new Blob([saved]).stream(), {
    ...{ passphrase: "p", keys, store },
    ...{ areOthersLost: true, directoryUrl: people.at.url },
  });
  const found = await keep(Waypost.open({ ...place(), keys, store }));
  expect(await codeOf(found.send(bob.did, "hello"))).toBe("identity_changed");
}, 60_000);
