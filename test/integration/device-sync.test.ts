/**
 * What a device tells another: all rows that do not fit one message, and each that changed as it is
 * when it is sent.
 */

import { expect, test } from "bun:test";
import { ClientError } from "../../src/client/base/failure.ts";
import { applyItem, type Item, queueHistory } from "../../src/client/devices/items.ts";
import { isCurrent, type PeerRow } from "../../src/client/devices/replica.ts";
import { memoryStore } from "../../src/client/store/driver.ts";
import {
  deliveryKey,
  keyOfConversation,
  keyOfPerson,
  keyOfProfile,
  peerKey,
} from "../../src/client/store/keys.ts";
import type { Person } from "../../src/client/store/person-shape.ts";
import { putProfile } from "../../src/client/store/profiles.ts";
import {
  addMessage,
  type ConversationRow,
  type MessageRow,
  type ProfileRow,
  putPerson,
  removeMessage,
} from "../../src/client/store/rows.ts";
import { Table } from "../../src/client/store/table.ts";
import { encodeBase64 } from "../../src/core/codec/bytes.ts";
import { DeviceMail, type Letter, plainSpeech, saidIn } from "../support/device-mail.ts";
import { identityOf } from "../support/identity.ts";
import { ownStoreOf, partsOf, syncOf } from "../support/own-store.ts";
import { pause, until } from "../support/wait.ts";

const [device, other, own] = [
  identityOf("device").did,
  identityOf("other").did,
  identityOf("own").did,
];
const picture = encodeBase64(new Uint8Array(32_768).fill(5));
const openTable = () => Table.open(memoryStore(), new Uint8Array(32).fill(7));
const profileOf = (did: typeof other, atMs = 1): ProfileRow => ({
  did,
  name: "Other",
  picture,
  atMs,
  isOpen: null,
});
const peerOf = (did: typeof other): PeerRow => ({
  did,
  name: "",
  addedMs: 0,
  seen: 0,
  sent: 0,
  isLeaving: false,
});

async function withDevice(): Promise<Table> {
  const table = await openTable();
  await table.change(async (batch) => {
    batch.meta = { hasDevices: true, deviceDid: own };
    batch.put(peerKey(table, device), peerOf(device));
  });
  return table;
}

const unused = { speech: plainSpeech, tell: () => undefined };

/** The items of each message to the device, until it has all. */
async function toldOf(table: Table): Promise<Item[][]> {
  const stop = new AbortController();
  const mail = new DeviceMail();
  const { logged } = await table.meta();
  const sync = syncOf(
    { table, nowMs: Date.now, ...unused, ...mail.link(own) },
    logged,
    stop.signal,
  );
  await sync.refresh();
  for (let isAll = false; !isAll; await Bun.sleep(5)) {
    const peer = await table.get<PeerRow>(peerKey(table, device));
    isAll = peer !== null && (await isCurrent(table, peer));
  }
  stop.abort();
  return mail.boxOf(device).map((letter) => (saidIn(letter)["items"] ?? []) as Item[]);
}

const messageOf = (id: string, sentMs: number, sizeBytes: number): MessageRow => ({
  ...{
    id,
    conversation: other,
    isOwn: false,
    from: other,
    verified: true,
    trust: "proven",
    distrusted: null,
  },
  ...{
    sentMs,
    arrivedMs: sentMs,
    name: "",
    mediaType: "image/png",
    sizeBytes,
    replyTo: null,
    group: null,
  },
  ...{ wantsReceipt: false, messageIds: [id], reaction: null, target: null, digest: id, to: [] },
  body: { is: "inline", base64: encodeBase64(new Uint8Array(sizeBytes).fill(sentMs)) },
});

test("a new device gets all rows, also when a page of them is more than one message holds", async () => {
  const table = await withDevice();
  const ids = Array.from({ length: 5 }, () => crypto.randomUUID());
  await table.change(async (batch) => {
    await putPerson(table, batch, other, { name: "Other" });
    for (const [i, id] of ids.entries())
      await addMessage(table, batch, messageOf(id, i + 1, 400_000));
  });
  await queueHistory(table, device, new AbortController().signal);
  const told = await toldOf(table);
  const messages = told.map((items) =>
    items.flatMap((item) => (item.is === "m" ? [item.row.id] : [])),
  );
  expect(messages.flat()).toEqual(ids);
  expect(messages.filter((part) => part.length > 0).length).toBe(ids.length);
  expect(await table.scan({ prefix: "h/" })).toEqual([]);
});

test("a row stands in the log once, where it changed last, and one that was removed does not", async () => {
  const table = await withDevice();
  const rename = (name: string) =>
    table.change(async (batch) => {
      await putPerson(table, batch, other, { name });
      batch.log(keyOfPerson(table, other));
    });
  await rename("first");
  const key = await table.change(async (batch) => {
    const added = await addMessage(table, batch, messageOf(crypto.randomUUID(), 1, 1));
    for (const one of [added, deliveryKey(added)]) batch.log(one);
    return added;
  });
  await rename("second");
  expect(await table.values<string>("y/")).toEqual([
    key,
    deliveryKey(key),
    keyOfPerson(table, other),
  ]);
  await table.change((batch) => removeMessage(table, batch, key));
  expect(await table.values<string>("y/")).toEqual([keyOfPerson(table, other)]);
  expect((await toldOf(table)).flat().map(({ row }) => (row as Person).name)).toEqual(["second"]);
});

test("numbers go by the clock, and on where it goes back", async () => {
  let nowMs = 5_000;
  const table = await Table.open(memoryStore(), new Uint8Array(32).fill(7), () => nowMs);
  const logged = async (key: string) => {
    await table.change(async (batch) => {
      batch.meta = { hasDevices: true };
      batch.log(key);
    });
    return (await table.meta()).logged;
  };
  const numbers = [await logged("p/1"), await logged("p/2")];
  nowMs = 1;
  numbers.push(await logged("p/3"));
  nowMs = 6_000;
  numbers.push(await logged("p/4"));
  expect(numbers).toEqual([5_000_000, 5_000_001, 5_000_002, 6_000_000]);
});

const readAt = (readAtMs: number): Item => ({ is: "c", row: { id: other, readAtMs } });

test("a read mark counts all that came later, also when that is much", async () => {
  const table = await openTable();
  const count = 1_100;
  await table.change(async (batch) => {
    for (let i = 0; i < count; i++)
      await addMessage(table, batch, messageOf(crypto.randomUUID(), i + 2, 1));
  });
  await after([readAt(1)], table);
  expect((await table.get<ConversationRow>(keyOfConversation(table, other)))?.unread).toBe(count);
  await after([readAt(501)], table);
  expect((await table.get<ConversationRow>(keyOfConversation(table, other)))?.unread).toBe(
    count - 500,
  );
});

test("a profile is named in the log, read when it is sent, and not told again by who applies it", async () => {
  const table = await withDevice();
  await table.change((batch) => putProfile(table, batch, profileOf(other)));
  const rows = await table.values("y/");
  expect([rows.length, JSON.stringify(rows).length < 200]).toEqual([1, true]);
  const [[item]] = (await toldOf(table)) as [[Item]];
  expect(item).toEqual({ is: "b", row: profileOf(other) });

  const second = await withDevice();
  await applyItem(second, item, Date.now());
  expect(await second.get<ProfileRow>(keyOfProfile(second, other))).toEqual(profileOf(other));
  expect(await second.values("y/")).toEqual([]);
});

test("of strangers at most 500 profiles are kept, beside those of people who are known", async () => {
  const table = await openTable();
  const put = (profile: ProfileRow) => table.change((batch) => putProfile(table, batch, profile));
  await table.change(async (batch) => {
    for (let i = 0; i < 500; i++)
      await putPerson(table, batch, identityOf(`stranger ${i}`).did, {
        claimed: { name: "", atMs: 1 },
      });
  });
  expect(await put(profileOf(other))).toBe(false);
  expect([
    await table.get(keyOfProfile(table, other)),
    await table.get(keyOfPerson(table, other)),
  ]).toEqual([null, null]);
  // One that is kept changes; one that is blocked or known makes room.
  const held = identityOf("stranger 0").did;
  expect(await put(profileOf(held, 2))).toBe(true);
  await table.change((batch) => putPerson(table, batch, held, { isKnown: true }));
  expect(await put(profileOf(other))).toBe(true);
  expect(await put(profileOf(device))).toBe(false);
  await table.change((batch) => putPerson(table, batch, device, { isKnown: true }));
  expect(await put(profileOf(device))).toBe(true);
});

test("what a device can't apply is left out, and what is too large, or comes from anybody else or a device that leaves, is not read", async () => {
  const table = await withDevice();
  const stop = new AbortController();
  const mail = new DeviceMail();
  const host = { table, nowMs: Date.now, ...unused };
  const receiving = syncOf({ ...host, ...mail.link(own) }, 0, stop.signal).run();
  const person = (name: string) => ({
    did: identityOf(name).did,
    name,
    alias: null,
    isKnown: true,
    isBlocked: false,
  });
  const items: unknown[] = [
    null,
    { is: "m", row: { id: 1 } },
    { is: "new", row: {} },
    { is: "p", row: person("first") },
  ];
  const say = (from: typeof other, told: unknown[], at: number, more = "") =>
    mail.link(from).send(own, { v: 1, items: told, after: at - 1, at, more }, syncJson);
  await say(device, items, 1);
  await say(device, [{ is: "p", row: person("large") }], 2, "x".repeat(2_000_000));
  await say(other, [{ is: "p", row: person("foreign") }], 2);
  const leaving = identityOf("leaving").did;
  await table.change(async (batch) =>
    batch.put(peerKey(table, leaving), { ...peerOf(leaving), isLeaving: true }),
  );
  await say(leaving, [{ is: "p", row: person("late") }], 1);
  await say(device, [{ is: "p", row: person("second") }], 2);
  while (mail.boxOf(own).length > 0) await Bun.sleep(5);
  expect((await table.values<Person>("p/")).map(({ name }) => name).sort()).toEqual([
    "first",
    "second",
  ]);
  stop.abort();
  await receiving;
});

const syncJson = { mediaType: "application/vnd.waypost.sync+json" };
const isItems = (letter: Letter) => saidIn(letter)["items"] !== undefined;

test("a device that was set back gets all, with what was removed but no keys, also from where it was asked once", async () => {
  const [table, mail, stop] = [await withDevice(), new DeviceMail(), new AbortController()];
  await table.change(async (batch) => {
    for (const key of ["x/1", "q/1"]) batch.put(key, key);
    await putPerson(table, batch, other, { name: "Other" });
  });
  void syncOf({ table, nowMs: Date.now, ...unused, ...mail.link(own) }, 0, stop.signal).run();
  const said = () => mail.boxOf(device).map(saidIn);
  while (!said().some(({ have }) => have === 0)) await Bun.sleep(20);
  const say = async (after: number, at: number, tried: number[]) => {
    await mail.link(device).send(own, { v: 1, items: [], after, at, tried }, syncJson);
    while ((await table.get<PeerRow>(peerKey(table, device)))?.seen !== at) await Bun.sleep(5);
    return (await table.scan({ prefix: "h/" })).length + mail.boxOf(device).filter(isItems).length;
  };
  // The next two only repeat, with what is new: an answer was lost, or the other had asked.
  expect([await say(0, 5, []), await say(0, 9, [5]), await say(5, 10, [7, 9])]).toEqual([0, 0, 0]);
  expect(await say(0, 12, [11])).toBeGreaterThan(0);
  while (!mail.boxOf(device).some(isItems)) await Bun.sleep(5);
  stop.abort();
  const items = said().flatMap((one) => (one["items"] ?? []) as Item[]);
  expect(items.map(({ is }) => is)).toEqual(["q", "p", "f"]);
}, 20_000);

test("what was sent without an answer, and what was asked for, is named beside what follows", async () => {
  const [table, stop] = [await withDevice(), new AbortController()];
  const faults = [new ClientError("timed_out", "timed_out", "no answer")];
  const mail: DeviceMail = new DeviceMail((letter) => {
    const fault = faults.pop();
    if (fault === undefined) return false;
    mail.put(letter);
    throw fault;
  });
  void syncOf({ table, nowMs: Date.now, ...unused, ...mail.link(own) }, 0, stop.signal).run();
  const told = () => mail.boxOf(device).filter(isItems).map(saidIn);
  const change = async (count: number) => {
    await table.change((batch) => putProfile(table, batch, profileOf(other, count)));
    while (told().length < count) await Bun.sleep(5);
  };
  await change(1);
  await change(2);
  const [first, second] = told();
  expect([first?.["tried"], second?.["after"], second?.["tried"]]).toEqual([
    [],
    0,
    [Number(first?.["at"])],
  ]);
  await mail.link(device).send(own, { v: 1, have: 0 }, syncJson);
  while (told().length < 3) await Bun.sleep(5);
  stop.abort();
  const { after, tried } = told()[2] as { after: number; tried: number[] };
  expect([after, tried.includes(Number(second?.["at"]))]).toEqual([0, true]);
}, 20_000);

test("a device that was set back and changes nothing hears of it, and says so once", async () => {
  const [table, mail, stop] = [await withDevice(), new DeviceMail(), new AbortController()];
  void syncOf({ table, nowMs: Date.now, ...unused, ...mail.link(own) }, 0, stop.signal).run();
  const said = () => mail.boxOf(device).map(saidIn);
  const say = (told: object) => mail.link(device).send(own, { v: 1, ...told }, syncJson);
  await say({ items: [], after: 0, at: 5, tried: [] });
  await say({ have: 0, after: 0, tried: [] });
  while (!said().some(({ have }) => have === 5)) await Bun.sleep(20);
  // And here, where the other has more than it was told.
  await say({ have: 7, after: 5, tried: [] });
  while (!mail.boxOf(device).some(isItems) || mail.boxOf(own).length > 0) await Bun.sleep(5);
  await pause(50, "it would say so again");
  stop.abort();
  expect(said().flatMap(({ items, after }) => (items === undefined ? [] : [after]))).toEqual([0]);
}, 20_000);

test("the question how far another device is goes again until it could be sent", async () => {
  let failures = 2;
  const mail = new DeviceMail((letter) => {
    if (!("have" in saidIn(letter)) || failures-- <= 0) return false;
    throw new ClientError("unreachable", "unreachable", "the Cache of the device is away");
  });
  const [table, stop] = [await withDevice(), new AbortController()];
  void syncOf({ table, nowMs: Date.now, ...unused, ...mail.link(own) }, 0, stop.signal).run();
  while (!mail.boxOf(device).some((letter) => "have" in saidIn(letter))) await Bun.sleep(20);
  stop.abort();
  expect(failures).toBe(-1);
}, 20_000);

test("all that is queued again while it is told is told again", async () => {
  const [table, stop] = [await withDevice(), new AbortController()];
  await table.change((batch) => putPerson(table, batch, other, { name: "Other" }));
  const held = { reached: Promise.withResolvers<void>(), open: Promise.withResolvers<void>() };
  const mail = new DeviceMail(async () => {
    held.reached.resolve();
    await held.open.promise;
    return false;
  });
  await queueHistory(table, device, stop.signal);
  const sync = syncOf({ table, nowMs: Date.now, ...unused, ...mail.link(own) }, 0, stop.signal);
  await sync.refresh();
  await held.reached.promise;
  await queueHistory(table, device, stop.signal);
  held.open.resolve();
  while ((await table.scan({ prefix: "h/" })).length > 0) await Bun.sleep(5);
  stop.abort();
  const items = mail
    .boxOf(device)
    .map((letter) => (saidIn(letter)["items"] as Item[]).map(({ is }) => is));
  expect(items).toEqual([
    ["p", "f"],
    ["p", "f"],
  ]);
});

/** After a device has heard all this of another one. */
async function after(items: readonly Item[], table?: Table): Promise<Table> {
  const at = table ?? (await openTable());
  for (const item of items) await applyItem(at, item, Date.now());
  return at;
}

test("a message that was removed stays so, also when another device tells of it again, or only then", async () => {
  const received = messageOf("1", 1, 1);
  for (const row of [received, { ...received, isOwn: true, digest: "" }]) {
    const item: Item = { is: "m", row };
    const removed: Item = { is: "q", row: { id: row.id, digest: row.digest, untilMs: 0 } };
    expect(await (await after([item])).values("m/")).toHaveLength(1);
    for (const told of [
      [item, removed, item],
      [removed, item],
    ])
      expect(await (await after(told)).values("m/")).toEqual([]);
    // Also where the user removed it.
    const table = await after([item]);
    const { store } = await partsOf(await ownStoreOf(table, device));
    const [message] = await store.messages(other);
    if (message === undefined) throw new Error("no message");
    await store.remove(message);
    expect(await (await after([item], table)).values("m/")).toEqual([]);
  }
});

test("of what two devices say of a person the user's later change counts, and the later claim", async () => {
  const claim = (atMs: number) => ({ claimed: { name: `claim ${atMs}`, atMs } });
  const person = { did: other, name: "", alias: null, isKnown: true, isBlocked: false };
  const blocked: Item = { is: "p", row: { ...person, isBlocked: true, setMs: 2, ...claim(1) } };
  const before: Item = { is: "p", row: { ...person, name: "Other", setMs: 1, ...claim(2) } };
  for (const told of [
    [blocked, before],
    [before, blocked],
    [before, blocked, before],
  ]) {
    const row = await (await after(told)).get(keyOfPerson(await openTable(), other));
    expect(row).toEqual({ ...blocked.row, ...claim(2) });
  }
});

test("what comes while new keys are on their way waits for them, and of a removed device no choice overrides a later one", async () => {
  const [table, mail, stop] = [await withDevice(), new DeviceMail(), new AbortController()];
  const keys = { areHere: false };
  const isBehind = async () => !keys.areHere;
  const speech: typeof plainSpeech = {
    ...plainSpeech,
    isBehind,
    open: async (_from, json) => ({ said: json, theirs: "", isEarly: await isBehind() }),
  };
  const thief = identityOf("thief").did;
  await table.change(async (batch) => batch.put(peerKey(table, thief), peerOf(thief)));
  const parts = { table, nowMs: Date.now, ...unused, speech, ...mail.link(own) };
  const sync = syncOf(parts, 0, stop.signal);
  void sync.run();
  const say = (from: typeof other, items: readonly Item[]) =>
    mail.link(from).send(own, { v: 1, items, after: 0, at: 1 }, syncJson);
  const person = { did: other, name: "", alias: null, isKnown: true };
  const aheadMs = Date.now() + 82_800_000;
  const blocked: Person = { ...person, isBlocked: true, setMs: aheadMs };
  await say(thief, [
    { is: "p", row: blocked },
    { is: "m", row: messageOf(crypto.randomUUID(), 5, 10) },
  ]);
  await say(device, [{ is: "p", row: { ...person, isBlocked: false, setMs: Date.now() } }]);
  while (mail.boxOf(own).length > 0) await Bun.sleep(5);
  const personAt = () => table.get<Person>(keyOfPerson(table, other));
  expect([await personAt(), await table.values("m/")]).toEqual([null, []]);
  keys.areHere = true;
  await table.change(async (batch) => batch.delete(peerKey(table, thief)));
  await sync.refresh();
  while ((await table.values("m/")).length === 0 || (await personAt())?.setMs === undefined)
    await Bun.sleep(5);
  await until(async () => (await personAt())?.isBlocked === false);
  expect((await table.get<PeerRow>(peerKey(table, device)))?.seen).toBe(1);
  stop.abort();
});

test("who has not acknowledged the keyring is told at the start, and then once a day", async () => {
  const [table, mail, stop] = [await withDevice(), new DeviceMail(), new AbortController()];
  const clock = { nowMs: Date.now() };
  const speech = { ...plainSpeech, stamp: async () => "of now" };
  const parts = { table, nowMs: () => clock.nowMs, ...unused, speech, ...mail.link(own) };
  const sync = syncOf(parts, 0, stop.signal);
  void sync.run();
  const told = () => mail.boxOf(device).filter((letter) => "have" in saidIn(letter)).length;
  while (told() < 1) await Bun.sleep(20);
  const hourMs = 3_600_000;
  const countAfter = async (hours: number, isExpected: (count: number) => boolean) => {
    clock.nowMs += hours * hourMs;
    await sync.refresh();
    for (let i = 0; i < 20 && !(i > 4 && isExpected(told())); i++) await Bun.sleep(20);
    return told();
  };
  expect(await countAfter(23, (count) => count === 1)).toBe(1);
  expect(await countAfter(1, (count) => count === 2)).toBe(2);
  expect(await countAfter(23, (count) => count === 2)).toBe(2);
  expect(await countAfter(1, (count) => count === 3)).toBe(3);
  const key = peerKey(table, device);
  const row = await table.get<PeerRow>(key);
  await table.change(async (batch) => batch.put(key, { ...row, acked: "of now" }));
  expect(await countAfter(48, (count) => count === 3)).toBe(3);
  stop.abort();
}, 20_000);
