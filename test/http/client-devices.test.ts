/**
 * Devices of one identity over running nodes: a new one is linked by its code and gets keys and
 * history; both then show the same, whichever received or sent it, also after one was away for
 * long; and a removed one can do nothing any more.
 */
import { expect, spyOn, test } from "bun:test";
import type { ClientError } from "../../src/client/base/failure.ts";
import { restore } from "../../src/client/identity/backup.ts";
import { ed25519PublicKey, x25519PublicKey } from "../../src/client/keys/crypto.ts";
import { memoryKeys } from "../../src/client/keys/key-stores.ts";
import { changeIdentity, loadIdentity } from "../../src/client/keys/stored.ts";
import { memoryStore } from "../../src/client/store/driver.ts";
import { cachesOf } from "../../src/client/trust/caches.ts";
import { activeDocument, rootKeyOf } from "../../src/client/trust/client.ts";
import { Waypost } from "../../src/client/waypost.ts";
import { sealingKeyOf } from "../../src/core/ledger/account.ts";
import { peopleAtNodes, untilWaiting, waiting } from "../support/people.ts";
import { pause } from "../support/wait.ts";
import { devicesAt, shows, textsOf, until } from "./own-devices.ts";

const people = peopleAtNodes();
const { open } = people;
const { place, linked } = devicesAt(people);

test("a new device gets keys and history, and both show the same from then on", async () => {
  const [alice, phone] = await Promise.all([open(), open(place())]);
  for (const text of ["one", "two"]) await alice.send(phone.did, text);
  const file = crypto.getRandomValues(new Uint8Array(60_000)).slice();
  const large = new Uint8Array(200_000).map((_, i) => file[i % 60_000] as number);
  await alice.send(phone.did, large, { name: "large.bin" });
  await shows(phone, alice.did, ["one", "two", null]);
  await phone.store.savePerson(alice.did, { name: "Alice" });
  await phone.store.markRead(alice.did);
  await (await phone.send(alice.did, "three")).delivered;

  const laptop = await linked(phone);
  expect(laptop.did).toBe(phone.did);
  expect((await laptop.devices.list()).map(({ name, isThis }) => [name, isThis])).toEqual([
    ["device", true],
    ["device", false],
  ]);
  const all = ["one", "two", null, "three"];
  await shows(laptop, alice.did, all);
  const person = await until(
    () => laptop.store.person(alice.did),
    (found) => found?.name === "Alice",
  );
  expect(person).toMatchObject({ name: "Alice", isKnown: true });
  const got = await until(
    async () => (await laptop.store.messages(alice.did))[2],
    (found) => found?.content === "whole",
  );
  if (got === undefined) throw new Error("no file");
  expect(Bun.hash(await (await laptop.store.file(got)).arrayBuffer())).toBe(Bun.hash(large));
  expect(
    await until(
      () => laptop.store.unread(),
      (unread) => unread === 0,
    ),
  ).toBe(0);

  await alice.send(phone.did, "four");
  for (const device of [phone, laptop]) await shows(device, alice.did, [...all, "four"]);
  expect([await phone.store.unread(), await laptop.store.unread()]).toEqual([1, 1]);
  await laptop.store.markRead(alice.did);
  expect(
    await until(
      () => phone.store.unread(),
      (unread) => unread === 0,
    ),
  ).toBe(0);

  // What one sends the other shows, with what became of it.
  const sent = await laptop.send(alice.did, "five");
  await sent.delivered;
  await shows(phone, alice.did, [...all, "four", "five"]);
  const state = async () => (await phone.store.message(sent.id))?.delivery?.state;
  expect(await until(state, (now) => now === "sent")).toBe("sent");
  await laptop.react(alice.did, got.id, "👍");
  const reactions = async () => (await phone.store.message(got.id))?.reactions ?? [];
  expect(await until(reactions, (found) => found.length > 0)).toEqual([
    { from: phone.did, reaction: "👍" },
  ]);
  const [first] = await phone.store.messages(alice.did);
  if (first !== undefined) await phone.store.remove(first);
  for (const device of [phone, laptop])
    await shows(device, alice.did, [...all.slice(1), "four", "five"]);
  await untilWaiting(phone, 0);
}, 60_000);

test("a device that was away shows all, in order and once, also when its Cache has kept nothing", async () => {
  const [alice, phone] = await Promise.all([open(), open(place())]);
  const where = place();
  const laptop = await linked(phone, where);
  await alice.send(phone.did, "before");
  await shows(laptop, alice.did, ["before"]);
  await laptop.close();
  // More than devices tell each other at once.
  const texts = Array.from({ length: 120 }, (_, i) => String(i));
  for (const text of texts) await alice.send(phone.did, text);
  await (await phone.send(alice.did, "mine")).delivered;
  await shows(phone, alice.did, ["before", ...texts, "mine"]);
  await untilWaiting(phone, 0);
  const back = await open(where);
  await shows(back, alice.did, ["before", ...texts, "mine"]);
  await back.close();

  for (const text of ["later", "last"]) await alice.send(phone.did, text);
  await shows(phone, alice.did, ["before", ...texts, "mine", "later", "last"]);
  // Everything has expired at the Cache of the device's own DID.
  const device = await open({
    url: people.at.url,
    keys: where.keys,
    waiting,
    name: "default.device",
  });
  const [cache] = await cachesOf(device.client, device.identity);
  const { messages = [] } =
    (await until(
      async () => cache?.summary(),
      (found) => (found?.count ?? 0) > 0,
    )) ?? {};
  expect(messages.length).toBeGreaterThan(0);
  await cache?.ack(
    messages.map(({ message_id }) => message_id),
    { isAccepted: true },
  );
  await device.close();
  // What comes then shows that something is missing.
  await alice.send(phone.did, "behind the gap");
  await shows(phone, alice.did, ["before", ...texts, "mine", "later", "last", "behind the gap"]);
  const again = await open(where);
  await shows(again, alice.did, ["before", ...texts, "mine", "later", "last", "behind the gap"]);
}, 120_000);

test("a third device gets what the second has, and all three hear of each other", async () => {
  const [alice, phone] = await Promise.all([open(), open(place())]);
  const laptop = await linked(phone);
  await alice.send(phone.did, "for all");
  await shows(laptop, alice.did, ["for all"]);
  const tablet = await linked(laptop);
  await shows(tablet, alice.did, ["for all"]);
  expect(
    (
      await until(
        () => phone.devices.list(),
        (all) => all.length === 3,
      )
    ).length,
  ).toBe(3);
  await (await tablet.send(alice.did, "from the third")).delivered;
  for (const device of [phone, laptop, tablet])
    await shows(device, alice.did, ["for all", "from the third"]);
}, 60_000);

test("content above 8 MiB comes when it is opened, of received and of sent messages", async () => {
  const [alice, phone] = await Promise.all([open(), open(place())]);
  const where = place();
  const away = await linked(phone, where);
  await away.close();
  const large = new Uint8Array(8 * 1_048_576 + 5).map((_, i) => (i * 2_654_435_761) >>> 24);
  await alice.send(phone.did, large, { name: "received.bin" });
  await phone.send(alice.did, large, { name: "sent.bin" });
  const named = (me: Waypost, name: string) => async () =>
    (await me.store.messages(alice.did)).find((message) => message.name === name);
  await until(named(phone, "received.bin"), (found) => found !== undefined);
  await untilWaiting(phone, 0);
  const laptop = await open(where);
  for (const name of ["received.bin", "sent.bin"]) {
    const message = await until(named(laptop, name), (found) => found !== undefined);
    if (message === undefined) throw new Error("nothing came");
    expect(message.content).toBe("elsewhere");
    expect(await laptop.store.file(message).catch((error: ClientError) => error.code)).toBe(
      "content_elsewhere",
    );
    await until(named(laptop, name), (found) => found?.content === "whole");
    expect(Bun.hash(await (await laptop.store.file(message)).arrayBuffer())).toBe(Bun.hash(large));
  }
  expect((await phone.store.messages(alice.did)).map(({ content }) => content)).toEqual([
    "whole",
    "whole",
  ]);
}, 120_000);

test("what an older copy of a device's store logs reaches the others, also when it is less than what was lost", async () => {
  const [alice, where] = [await open(), place()];
  const phone = await open(where);
  const laptop = await linked(phone);
  const older = memoryStore();
  await older.apply(await where.store.scan({ from: "", to: "~", limit: 1_000 }));
  const names = Array.from({ length: 20 }, (_, i) => `Alice ${i}`);
  for (const name of names) await phone.store.savePerson(alice.did, { name });
  const nameAt = (me: Waypost) => async () => (await me.store.person(alice.did))?.name;
  expect(await until(nameAt(laptop), (name) => name === names.at(-1))).toBe(names.at(-1) as string);
  await phone.close();

  const again = await open({ ...where, store: older });
  await (await again.send(alice.did, "after")).delivered;
  await shows(laptop, alice.did, ["after"]);
  await again.store.savePerson(alice.did, { name: "Alicia" });
  expect(await until(nameAt(laptop), (name) => name === "Alicia")).toBe("Alicia");
}, 90_000);

test("a device that is restored where the others are lost is alone, under a DID of its own, and links others anew", async () => {
  const [alice, where] = [await open(), place()];
  const phone = await open(where);
  const laptop = await linked(phone);
  const [{ did: before = "" } = {}] = await phone.devices.list();
  const saved = await new Response(await phone.backup({ passphrase: "p" })).bytes();
  await Promise.all([phone.close(), laptop.close()]);
  // The DID of the lost device may still be there.
  await where.keys.save("default", null);
  const store = memoryStore();
  await restore(new Blob([saved]).stream(), {
    ...{ passphrase: "p", keys: where.keys, store },
    ...{ areOthersLost: true, directoryUrl: people.at.url },
  });
  const found = await open({ ...where, store });
  const list = await until(
    () => found.devices.list(),
    ([own]) => own?.isThis === true,
  );
  expect(list.map(({ did, isThis }) => [did === before, isThis])).toEqual([[false, true]]);
  const tablet = await linked(found);
  await alice.send(found.did, "found again");
  for (const device of [found, tablet]) await shows(device, alice.did, ["found again"]);
}, 60_000);

const secretsOf = ({ agreements }: Waypost["identity"]) => agreements.map(({ secret }) => secret);

test("a removed device can't read, sign or change anything, and the others go on by themselves", async () => {
  const [alice, phone] = await Promise.all([open(place()), open(place())]);
  const [laptop, thief] = [await linked(phone), await linked(phone)];
  await alice.send(phone.did, "while it was trusted");
  for (const device of [phone, laptop, thief])
    await shows(device, alice.did, ["while it was trusted"]);
  const held = thief.identity;
  const [thiefDid] = (await thief.devices.list())
    .filter(({ isThis }) => isThis)
    .map(({ did }) => did);
  if (thiefDid === undefined) throw new Error("the device has no DID");
  expect((await phone.devices.list()).map(({ did }) => did)).toContain(thiefDid);
  await phone.devices.remove(thiefDid);

  await (await alice.send(phone.did, "without it")).delivered;
  for (const device of [phone, laptop])
    await shows(device, alice.did, ["while it was trusted", "without it"]);
  await (await laptop.send(alice.did, "still here")).delivered;
  await shows(alice, phone.did, ["while it was trusted", "without it", "still here"]);
  expect((await alice.store.messages(phone.did)).map(({ verified }) => verified)).toEqual([
    true,
    true,
    true,
  ]);
  expect(phone.identity.rootSeed).not.toEqual(held.rootSeed);
  expect(laptop.identity.rootSeed).toEqual(phone.identity.rootSeed);

  // With all that it had.
  await pause(300, "it would have got the new keys");
  expect(thief.identity).toEqual(held);
  expect(secretsOf(phone.identity)).not.toEqual(secretsOf(held));
  expect(await textsOf(thief, alice.did)).toEqual(["while it was trusted"]);
  const keys = memoryKeys();
  const { renderIdentity } = await import("../../src/client/keys/keys.ts");
  await keys.replace("default", null, renderIdentity(held));
  const stolen = await open({ url: people.at.url, keys, waiting, rotateMs: false });
  expect(await cachesOf(stolen.client, held).catch((error: ClientError) => error.code)).toBe(
    "no_cache",
  );
  expect(await stolen.send(alice.did, "as him").catch((error: ClientError) => error.code)).toBe(
    "unknown_key",
  );
  // Its own SDK does not sign it; another program of a thief does, with all that is right but the
  // key.
  const { change, signIntent } = await import("../../src/client/identity/change.ts");
  const signer = { keyId: "root", seed: held.rootSeed };
  const intent = {
    action: "UpdateRootPubkey",
    did: phone.did,
    newRootPubkey: new Uint8Array(32).fill(9),
  } as const;
  expect(await change(stolen.client, intent, { signer, waiting }).catch(({ code }) => code)).toBe(
    "root_replaced",
  );
  const { genesisHash, rootKeys } = await phone.client.trust.prove(phone.did, null);
  const terms = { nonce: BigInt(rootKeys.length - 1), nowMs: Date.now(), genesisHash };
  const refused = await stolen.client.directory
    .submit(await signIntent(intent, signer, terms))
    .catch((error: ClientError) => [error.kind, error.message]);
  expect(refused).toEqual(["refused", "The signature does not authorize this"]);
  expect((await phone.devices.list()).length).toBe(2);
  expect(
    (
      await until(
        () => laptop.devices.list(),
        (all) => all.length === 2,
      )
    ).length,
  ).toBe(2);
}, 60_000);

test("the keys of a removal stay, also on a device that replaces its own at that moment", async () => {
  const phone = await open(place());
  const inner = memoryKeys();
  const held = {
    isDue: false,
    reached: Promise.withResolvers<void>(),
    open: Promise.withResolvers<void>(),
  };
  const replace = async (name: string, before: string | null, text: string) => {
    const isHeld = held.isDue && name === "default";
    if (isHeld) {
      held.isDue = false;
      held.reached.resolve();
      await held.open.promise;
    }
    return inner.replace(name, before, text);
  };
  const laptop = await linked(phone, {
    ...place(),
    keys: { ...inner, replace },
    ...{ rotateMs: 0 },
  });
  const thief = await linked(phone);
  const [thiefDid = ""] = (await thief.devices.list())
    .filter(({ isThis }) => isThis)
    .map(({ did }) => did);
  held.isDue = true;
  const rotating = laptop.rotate();
  await held.reached.promise;
  await phone.devices.remove(thiefDid);
  await pause(1_500, "the keys come while the rotation is held up");
  held.open.resolve();
  await rotating;
  const hasAll = async () => Bun.deepEquals(laptop.identity.rootSeed, phone.identity.rootSeed);
  expect(await until(hasAll, (is) => is)).toBe(true);
  const { parseIdentity } = await import("../../src/client/keys/keys.ts");
  const stored = parseIdentity((await inner.load("default")) ?? "", "default");
  expect([stored?.rootSeed, stored?.nextRootSeed]).toEqual([phone.identity.rootSeed, null]);
}, 60_000);

test("a rotation and a removal on one device wait for each other, whichever begins first", async () => {
  for (const begins of ["rotation", "removal"]) {
    const inner = memoryKeys();
    const held = {
      isDue: false,
      reached: Promise.withResolvers<void>(),
      open: Promise.withResolvers<void>(),
    };
    const replace = async (name: string, before: string | null, text: string) => {
      const isReplaced = await inner.replace(name, before, text);
      if (!held.isDue || name !== "default") return isReplaced;
      held.isDue = false;
      held.reached.resolve();
      await held.open.promise;
      return isReplaced;
    };
    const phone = await open({ ...place(), keys: { ...inner, replace }, ...{ rotateMs: 0 } });
    const thief = await linked(phone);
    const [{ did: thiefDid = "" } = {}] = (await thief.devices.list()).filter(
      ({ isThis }) => isThis,
    );
    const work = [() => phone.rotate(), () => phone.devices.remove(thiefDid)];
    const [first, second] = begins === "rotation" ? work : work.reverse();
    held.isDue = true;
    const began = first?.();
    await held.reached.promise;
    const other = second?.();
    held.open.resolve();
    await Promise.all([began, other]);
    const { parseIdentity, agreementSecrets } = await import("../../src/client/keys/keys.ts");
    const stored = parseIdentity((await inner.load("default")) ?? "", "default");
    if (stored === null) throw new Error("no keys are stored");
    expect([begins, stored.rootSeed, stored.nextRootSeed]).toEqual([
      begins,
      phone.identity.rootSeed,
      null,
    ]);
    expect(await ed25519PublicKey(stored.rootSeed)).toEqual(
      await rootKeyOf(phone.client, phone.did),
    );
    const published = sealingKeyOf(await activeDocument(phone.client, phone.did));
    const secrets = agreementSecrets(stored, published?.id ?? "");
    const keys = await Promise.all(secrets.map(x25519PublicKey));
    expect(keys).toContainEqual(published?.publicKey as never);
    // The key of the rotation was in force, so what was sealed to it opens.
    const count = begins === "rotation" ? 3 : 2;
    expect([begins, stored.agreements.length >= count]).toEqual([begins, true]);
  }
}, 60_000);

test("a code is for its device alone, and for ten minutes", async () => {
  const clock = { aheadMs: 0 };
  const phone = await open({ ...place(), nowMs: () => Date.now() + clock.aheadMs });
  const codeOf = (code: string) =>
    phone.devices.acceptLink(code).catch((error: ClientError) => error.code);
  expect(await codeOf("nonsense")).toBe("invalid_code");
  const [one, other] = await Promise.all([Waypost.link(place()), Waypost.link(place())]);
  const [form, did = "", , ...rest] = one.code.split("~");
  const [, , foreign = ""] = other.code.split("~");
  // What is sealed to another key than that of the device opens nowhere.
  expect(await codeOf([form, did, foreign, ...rest].join("~"))).toBe(undefined as never);
  const isOpened = one.opened.then(() => "opened");
  isOpened.catch(() => undefined);
  expect(await Promise.race([isOpened, Bun.sleep(700).then(() => "waits")])).toBe("waits");
  clock.aheadMs = 11 * 60_000;
  expect(await codeOf(one.code)).toBe("code_expired");
  await Promise.all([one.cancel(), other.cancel()]);
  expect(await one.opened.catch((error: ClientError) => error.code)).toBe("code_expired");
  const plain = await open();
  expect(() => plain.devices).toThrow();
}, 30_000);

test("a secret that only one device has stays there when another one makes new keys", async () => {
  const [phone, where] = [await open(place()), place()];
  const laptop = await linked(phone, where);
  const thief = await linked(phone);
  const [thiefDid = ""] = (await thief.devices.list())
    .filter(({ isThis }) => isThis)
    .map(({ did }) => did);
  const added = { id: `${phone.did}#k2`, secret: new Uint8Array(32).fill(7) };
  await changeIdentity(where.keys, laptop.identity, (one) => ({
    ...one,
    methods: [...one.methods, added],
  }));
  await phone.devices.remove(thiefDid);
  const hasAll = async () => Bun.deepEquals(laptop.identity.rootSeed, phone.identity.rootSeed);
  expect(await until(hasAll, (is) => is)).toBe(true);
  const stored = await loadIdentity(where.keys, "default");
  expect(stored?.methods).toContainEqual(added);
  expect(stored?.agreements.map(({ secret }) => secret)).toEqual(
    phone.identity.agreements.map(({ secret }) => secret),
  );
}, 60_000);

test("a lock leaves no secret of the DID of this device", async () => {
  const phone = await open(place());
  const opening = Waypost.open;
  const spy = spyOn(Waypost, "open");
  const opened: Waypost[] = [];
  spy.mockImplementation(async (options) => {
    const one = await opening.call(Waypost, options);
    opened.push(one);
    return one;
  });
  await linked(phone).finally(() => spy.mockRestore());
  const own = (await phone.devices.list()).find(({ isThis }) => isThis);
  const link = opened.find(({ did }) => did === own?.did);
  if (link === undefined) throw new Error("the device has no DID");
  const { rootSeed, agreements } = link.identity;
  const [{ secret: sealing = rootSeed } = {}] = agreements;
  const isZero = () => [rootSeed, sealing].map((secret) => secret.every((byte) => byte === 0));
  expect(isZero()).toEqual([false, false]);
  await phone.lock();
  expect(isZero()).toEqual([true, true]);
}, 60_000);
