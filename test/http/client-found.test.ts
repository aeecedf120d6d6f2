/**
 * An identity that was lost is found again: from a backup, with people and history, and by two of
 * three guardians.
 */
import { afterAll, beforeAll, expect, jest, test } from "bun:test";
import { backup, restore } from "../../src/client/identity/backup.ts";
import { change } from "../../src/client/identity/change.ts";
import { restoreFromGuardians } from "../../src/client/identity/guardians.ts";
import { memoryKeys } from "../../src/client/keys/key-stores.ts";
import { freshSeed, renderIdentity } from "../../src/client/keys/keys.ts";
import { lockedKeys, passphraseLock } from "../../src/client/keys/locks.ts";
import { shareType } from "../../src/client/mail/content.ts";
import type { Message } from "../../src/client/mail/message.ts";
import { memoryStore } from "../../src/client/store/driver.ts";
import { Table } from "../../src/client/store/table.ts";
import { activeDocument } from "../../src/client/trust/client.ts";
import { Waypost } from "../../src/client/waypost.ts";
import { startTestNodes, type TestNodes } from "../support/nodes.ts";

let nodes: TestNodes;
beforeAll(async () => {
  nodes = await startTestNodes();
}, 60_000);
afterAll(() => nodes.stop());

const waiting = { timeoutMs: 60_000, intervalMs: 20 };
const open = (options: Partial<Parameters<typeof Waypost.open>[0]> = {}) =>
  Waypost.open({
    url: nodes.url,
    keys: memoryKeys(),
    waiting: { ...waiting } as never,
    ...options,
  });
const codeOf = (work: Promise<unknown>) =>
  work.then(
    () => "ok",
    (error: { code?: string }) => error.code,
  );

const bytesOf = (stream: ReadableStream<Uint8Array>): Promise<Uint8Array> =>
  new Response(stream).bytes();
/** In pieces as a network brings them. */
function streamOf(bytes: Uint8Array, size = 777): ReadableStream<Uint8Array> {
  let at = 0;
  return new ReadableStream({
    pull: (controller) => {
      if (at >= bytes.length) return controller.close();
      controller.enqueue(bytes.slice(at, at + size));
      at += size;
    },
  });
}

async function nextMessage(me: Waypost): Promise<Message> {
  for await (const message of me.messages()) {
    await message.ack();
    return message;
  }
  throw new Error("there is no message");
}

test("a backup brings back identity, people and history, and is worth nothing without its passphrase", async () => {
  const [alice, bob] = await Promise.all([open({ store: memoryStore() }), open()]);
  const sent = await alice.send(bob.did, "hello");
  await sent.delivered;
  const file = crypto.getRandomValues(new Uint8Array(60_000));
  await (await alice.send(bob.did, file, { name: "photo.raw" })).delivered;
  await alice.store.savePerson(bob.did, { name: "Bob" });
  const saved = await bytesOf(await alice.backup({ passphrase: "correct horse" }));
  expect(Buffer.from(saved).includes("hello") || Buffer.from(saved).includes(alice.did)).toBe(
    false,
  );
  expect(await codeOf(bytesOf(await alice.backup({ passphrase: "" })))).toBe("invalid_argument");
  expect(await alice.backupState()).toBe("current");
  await alice.close();

  const [keys, store] = [memoryKeys(), memoryStore()];
  expect(
    await codeOf(
      restore(streamOf(saved), { passphrase: "wrong", keys, store, areOthersLost: false }),
    ),
  ).toBe("wrong_passphrase");
  expect(await keys.load("default")).toBeNull();
  const options = { passphrase: "correct horse", keys, store, areOthersLost: true };
  expect(await codeOf(restore(streamOf(saved), options))).toBe("invalid_argument");
  const here = { ...options, directoryUrl: nodes.url };
  expect(await restore(streamOf(saved), here)).toEqual({ did: alice.did, isHistoryOnly: false });
  expect(await codeOf(restore(streamOf(saved), here))).toBe("name_taken");
  const again = await open({ keys, store });
  expect(again.did).toBe(alice.did);
  // Who has the keys of before, a thief of the device say, has nothing any more; nor has the file.
  expect(again.identity.rootSeed).not.toEqual(alice.identity.rootSeed);
  expect(await again.backupState()).toBe("outdated");
  const [conversation] = await again.store.conversations();
  expect(conversation?.person?.name).toBe("Bob");
  const [first, second] = await again.store.messages(bob.did);
  expect([first?.text, second?.name]).toEqual(["hello", "photo.raw"]);
  expect(new Uint8Array(await (await again.store.file(second as never)).arrayBuffer())).toEqual(
    file,
  );
  await (await again.send(bob.did, "found again")).delivered;
  for (;;) if ((await nextMessage(bob)).text === "found again") break;
  await again.close();
}, 60_000);

test("a backup that was cut, changed or put together otherwise restores no identity", async () => {
  const driver = memoryStore();
  const table = await Table.open(driver, freshSeed());
  // As much as a piece has.
  for (let n = 0; n < 4; n++)
    await driver.apply([[`${table.place}key${n}`, new Uint8Array(1_100_000).fill(n)]]);
  const text = renderIdentity((await open()).identity);
  const saved = await bytesOf(backup(text, table, "p"));
  const ends = saved.length - 32;
  const piece = (ends - "waypost-backup:v1 ".length - 16 - 32 - text.length) / 4;
  const damages: Record<string, Uint8Array> = {
    "cut in a piece": saved.slice(0, saved.length - 100),
    "cut between two pieces": saved.slice(0, ends),
    "a piece less": new Uint8Array([
      ...saved.slice(0, ends - 2 * piece),
      ...saved.slice(ends - piece),
    ]),
    "two pieces exchanged": new Uint8Array([
      ...saved.slice(0, ends - 2 * piece),
      ...saved.slice(ends - piece, ends),
      ...saved.slice(ends - 2 * piece, ends - piece),
      ...saved.slice(ends),
    ]),
    "a bit changed": saved.with(ends - 10, (saved[ends - 10] ?? 0) ^ 1),
    "an early end": new Uint8Array([...saved.slice(0, ends - piece), ...saved.slice(ends)]),
    "another file": new TextEncoder().encode("no backup at all".repeat(100)),
  };
  for (const [what, damaged] of Object.entries(damages)) {
    const keys = memoryKeys();
    expect([
      what,
      await codeOf(restore(streamOf(damaged), { passphrase: "p", keys, areOthersLost: false })),
    ]).toEqual([what, "backup_damaged"]);
    expect(await keys.load("default")).toBeNull();
  }
  const keys = memoryKeys();
  await restore(streamOf(saved, 1_000), { passphrase: "p", keys, areOthersLost: false });
  expect(await keys.load("default")).toBe(text);
}, 60_000);

test("a backup that is not read any more lets the store go on after a minute", async () => {
  const table = await Table.open(memoryStore(), freshSeed());
  jest.useFakeTimers();
  try {
    const reader = backup("identity", table, "p").getReader();
    await reader.read();
    const changed = table.change(async () => "changed");
    for (let n = 0; n < 20; n++) await Promise.resolve();
    jest.advanceTimersByTime(60_000);
    expect(await changed).toBe("changed");
    const readOn = async () => {
      while (!(await reader.read()).done);
    };
    expect(await codeOf(readOn())).toBe("timed_out");
  } finally {
    jest.useRealTimers();
  }
});

test("a backup from before a replacement restores history, says so, and a linked device has it", async () => {
  const [alice, bob] = await Promise.all([open({ store: memoryStore() }), open()]);
  await (await alice.send(bob.did, "before")).delivered;
  const saved = await bytesOf(await alice.backup({ passphrase: "p" }));
  expect(await alice.backupState()).toBe("current");
  await alice.devices.replaceKeys();
  expect(await alice.backupState()).toBe("outdated");
  await alice.store.removeConversation(bob.did);
  const [keys, store] = [memoryKeys(), memoryStore()];
  const options = { passphrase: "p", keys, directoryUrl: nodes.url };
  for (const areOthersLost of [true, false])
    expect(await codeOf(restore(streamOf(saved), { ...options, areOthersLost }))).toBe(
      "root_replaced",
    );
  const restored = await restore(streamOf(saved), { ...options, store, areOthersLost: true });
  expect(restored).toEqual({ did: alice.did, isHistoryOnly: true });
  expect(await keys.load("default")).toBeNull();
  const linking = await Waypost.link({ url: nodes.url, keys, store, waiting });
  await alice.devices.acceptLink(linking.code);
  const laptop = await linking.opened;
  expect((await laptop.store.messages(bob.did)).map(({ text }) => text)).toEqual(["before"]);
  expect(laptop.identity.rootSeed).toEqual(alice.identity.rootSeed);
  await Promise.all([laptop.close(), alice.close()]);
}, 60_000);

test("two copies that are restored from one file next to the device that made it are two devices, everywhere", async () => {
  const [phone, bob] = await Promise.all([open({ store: memoryStore() }), open()]);
  await (await phone.send(bob.did, "before")).delivered;
  const saved = await bytesOf(await phone.backup({ passphrase: "p" }));
  await (await phone.send(bob.did, "after")).delivered;
  const added: string[] = [];
  phone.on((event) => event.type === "device_added" && added.push(event.did));
  const copy = async () => {
    const [keys, store] = [memoryKeys(), memoryStore()];
    const options = { passphrase: "p", keys, store, areOthersLost: false };
    await restore(streamOf(saved), { ...options, directoryUrl: nodes.url });
    return open({ keys, store });
  };
  const all = [phone, await copy(), await copy()];
  const until = async <T>(read: () => Promise<T>, isWanted: (value: T) => boolean) => {
    for (const end = Date.now() + 60_000; ; await Bun.sleep(20)) {
      const value = await read();
      if (isWanted(value) || Date.now() > end) return value;
    }
  };
  const lists = await until(
    () => Promise.all(all.map(async ({ devices }) => (await devices.list()).map(({ did }) => did))),
    (each) => each.every((list) => list.length === 3),
  );
  expect(new Set(lists.map((list) => list.toSorted().join())).size).toBe(1);
  expect([lists[0]?.length, added.length]).toEqual([3, 2]);
  // What was sent since the file was made, and what comes now, shows on each.
  await bob.send(phone.did, "to all");
  for (const device of all) {
    const texts = await until(
      async () => (await device.store.messages(bob.did)).map(({ text }) => text),
      (shown) => shown.length === 3,
    );
    expect(texts).toEqual(["before", "after", "to all"]);
  }
  await Promise.all(all.map((device) => device.close()));
}, 90_000);

const stored = (options: Partial<Parameters<typeof Waypost.open>[0]> = {}) =>
  open({ store: memoryStore(), ...options });

/** A person with a store, whom she knows and who knows her. */
async function friendOf(alice: Waypost): Promise<Waypost> {
  const friend = await stored();
  await friend.store.savePerson(alice.did, { isKnown: true });
  await alice.store.savePerson(friend.did, { isKnown: true });
  return friend;
}

const choicesOf = (alice: Waypost, friends: readonly Waypost[]) =>
  Promise.all(
    friends.map(async ({ did }) => ({ to: did, fingerprint: (await alice.fingerprint(did)).is })),
  );

async function shareOf(guardian: Waypost): Promise<string> {
  const message = await nextMessage(guardian);
  expect([message.mediaType, message.verified]).toEqual([shareType, true]);
  return new TextDecoder().decode(message.bytes());
}

const restoring = (given: string[], keys = memoryKeys()) =>
  restoreFromGuardians({ shares: given, directoryUrl: nodes.url, keys });

test("any two of three guardians restore, one alone does not, and a false share is noticed", async () => {
  const alice = await stored();
  const guardians = await Promise.all([friendOf(alice), friendOf(alice), friendOf(alice)]);
  const choices = await choicesOf(alice, guardians);
  expect(await codeOf(alice.appointGuardians(choices.slice(0, 2)))).toBe("invalid_argument");
  await alice.appointGuardians(choices);
  const shares = await Promise.all(guardians.map(shareOf));
  const [a = "", b = "", c = ""] = shares;
  for (const text of shares)
    expect(text).not.toContain(Buffer.from(alice.identity.rootSeed).toString("hex"));
  for (const alone of [[a], [a, a]]) expect(await codeOf(restoring(alone))).toBe("share_false");
  const json = JSON.parse(a);
  const bytes = Buffer.from(json.share, "hex");
  bytes[0] = (bytes[0] ?? 0) ^ 1;
  const wrong = JSON.stringify({ ...json, share: bytes.toString("hex") });
  expect(await codeOf(restoring([wrong, b]))).toBe("share_false");
  expect(await codeOf(restoring(["{}", b]))).toBe("share_unreadable");
  // A guardian names another DID, which they may have given the same root key.
  const renamed = JSON.stringify({ ...json, did: guardians[0]!.did });
  expect(await codeOf(restoring([renamed, b]))).toBe("share_false");
  const seed = alice.identity.rootSeed;
  const pairs = [
    [a, b],
    [a, c],
    [b, c],
    [wrong, b, c],
    [renamed, b, c],
  ];
  const keys = memoryKeys();
  const [first = [], ...others] = pairs;
  const { client, did } = alice;
  const service = {
    ...{ id: `${did}#evil`, type: "SvcCacheService", authorization: null, priority: null },
    serviceEndpoint: ["https://evil.example"],
  };
  const own = (await activeDocument(client, did)).service;
  await change(
    client,
    { action: "AddService", did, service },
    {
      signer: { keyId: "root", seed },
      waiting,
    },
  );
  const [friend] = guardians;
  const { is } = await alice.fingerprint(friend.did);
  await alice.setCompared(friend.did, is);
  await friend.setCompared(did, is);
  // The keys that were lost, or stolen, are no more in force.
  expect((await restoring(first, keys)).rootSeed).not.toEqual(seed);
  for (const pair of others) expect(await codeOf(restoring(pair))).toBe("root_replaced");
  // Nor does the document lead to a thief.
  expect((await activeDocument(client, did)).service.map(({ id }) => id)).toEqual(
    own.map(({ id }) => id),
  );
  await alice.close();
  const found = await open({ keys });
  expect(found.did).toBe(alice.did);
  await guardians[0]!.send(alice.did, "welcome back");
  expect((await nextMessage(found)).text).toBe("welcome back");
  await found.send(guardians[0]!.did, "thank you");
  const answer = await nextMessage(guardians[0]!);
  expect([answer.text, answer.verified]).toEqual(["thank you", true]);
  // What was compared was of other keys: here nothing is known of it, and the friend is shown what
  // it was.
  expect(await found.fingerprint(friend.did)).toMatchObject({ isCompared: false, was: null });
  expect(await friend.fingerprint(did)).toMatchObject({ isCompared: false, was: is });
}, 120_000);

test("a guardian is a known person whose keys the user was shown, never whom the Directory names", async () => {
  const alias = `carol-${crypto.randomUUID().slice(0, 8)}`;
  const alice = await stored();
  const [bob, dave] = await Promise.all([friendOf(alice), friendOf(alice)]);
  const [carol, stranger] = await Promise.all([open({ alias }), stored()]);
  const known = await choicesOf(alice, [bob, dave]);
  const third = async (to: string, did: string) =>
    codeOf(
      alice.appointGuardians([
        ...known,
        { to, fingerprint: (await alice.fingerprint(did as never)).is },
      ]),
    );
  expect(await third(stranger.did, stranger.did)).toBe("guardian_unknown");
  // At first contact an alias is the Directory's word.
  await alice.store.savePerson(carol.did, { isKnown: true });
  expect(await third(alias, carol.did)).toBe("guardian_unknown");
  expect(await third(carol.did, bob.did)).toBe("identity_changed");
  await alice.store.savePerson(carol.did, { isKnown: true, isBlocked: true });
  expect(await third(carol.did, carol.did)).toBe("guardian_unknown");
  expect(await alice.guardians()).toEqual([]);
  // Nothing was replaced for them.
  expect(await codeOf(alice.send(bob.did, "hello"))).toBe("ok");
  expect((await nextMessage(bob)).text).toBe("hello");
}, 60_000);

test("dismissed guardians can't combine their shares, and a share counts when it was acknowledged", async () => {
  const alice = await stored();
  const friends = await Promise.all(Array.from({ length: 5 }, () => friendOf(alice)));
  const [one, two, three, four] = friends as [Waypost, Waypost, Waypost, Waypost];
  // He has no store: no one says that he has it.
  const deaf = await open();
  await alice.store.savePerson(deaf.did, { isKnown: true });
  await alice.appointGuardians(await choicesOf(alice, [one, two, three]));
  const before = await Promise.all([one, two].map(shareOf));
  await alice.appointGuardians(await choicesOf(alice, [three, four, deaf]));
  expect(await codeOf(restoring(before))).toBe("root_replaced");
  const having = async () =>
    (await alice.guardians()).filter(({ hasShare }) => hasShare).map(({ did }) => did as string);
  for (const end = Date.now() + 30_000; (await having()).length < 2 && Date.now() < end; )
    await Bun.sleep(20);
  expect((await having()).sort()).toEqual([three.did, four.did].map(String).sort());
  expect((await alice.guardians()).map(({ did }) => String(did))).toContain(deaf.did);
}, 60_000);

test("new shares go out when the root key is another, and those of the old one are refused with new ones", async () => {
  const [keys, store] = [memoryKeys(), memoryStore()];
  const alice = await open({ keys, store });
  const guardians = await Promise.all([friendOf(alice), friendOf(alice), friendOf(alice)]);
  await alice.appointGuardians(await choicesOf(alice, guardians));
  const [a = "", b = ""] = await Promise.all(guardians.map(shareOf));
  await alice.devices.replaceKeys();
  expect((await alice.guardians()).some(({ hasShare }) => hasShare)).toBe(false);
  await alice.close();
  const again = await open({ keys, store });
  const [c = "", d = ""] = await Promise.all(guardians.map(shareOf));
  expect(await codeOf(restoring([a, b]))).toBe("root_replaced");
  expect(await codeOf(restoring([b, c]))).toBe("share_false");
  await again.close();
  expect(await codeOf(restoring([c, d]))).toBe("ok");
}, 60_000);

test("a locked identity holds no secrets, and opens again with its passphrase", async () => {
  const inner = memoryKeys();
  const keys = lockedKeys(inner);
  await keys.setUp(passphraseLock("p"));
  const [me, bob] = await Promise.all([open({ keys }), open()]);
  const { identity } = me;
  await me.lock();
  expect(
    [...identity.rootSeed, ...(identity.agreements[0]?.secret ?? [1])].every((byte) => byte === 0),
  ).toBe(true);
  expect(await codeOf(open({ keys }))).toBe("locked");
  await keys.unlock(passphraseLock("p"));
  const again = await open({ keys });
  expect(again.did).toBe(me.did);
  await again.send(bob.did, "unlocked");
  expect((await nextMessage(bob)).text).toBe("unlocked");
}, 60_000);
