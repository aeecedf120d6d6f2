/** What a device tells another: all of a history that does not fit one message, and profiles, which its log only names. */
import { expect, test } from "bun:test";
import { applyItem, logStart, parseSync, type SentItem } from "../../../../src/client/devices/items.ts";
import { type DeviceLink, type PeerRow, peerKey, Sync } from "../../../../src/client/devices/sync.ts";
import { memoryStore } from "../../../../src/client/store/driver.ts";
import { keyOfProfile, putProfile } from "../../../../src/client/store/profiles.ts";
import {
  addMessage,
  type ConversationRow,
  keyOfConversation,
  keyOfPerson,
  log,
  type MessageRow,
  type ProfileRow,
  putPerson,
} from "../../../../src/client/store/rows.ts";
import { LocalStore } from "../../../../src/client/store/store.ts";
import { Table } from "../../../../src/client/store/table.ts";
import { encodeBase64 } from "../../../../src/core/codec/bytes.ts";
import { identityOf } from "../../../support/identity.ts";

const [device, other] = [identityOf("device").did, identityOf("other").did];
const picture = encodeBase64(new Uint8Array(32_768).fill(5));
const openTable = () => Table.open(memoryStore(), new Uint8Array(32).fill(7));
const profileOf = (did: typeof other, atMs = 1): ProfileRow => ({ did, name: "Other", picture, atMs, isOpen: null });

const begun = { name: "", addedMs: 0, seen: logStart, sent: logStart, isLeaving: false };

async function withDevice(history: string | null): Promise<Table> {
  const table = await openTable();
  const peer: PeerRow = { ...begun, did: device, history };
  await table.change(async (batch) => {
    batch.meta = { hasDevices: true };
    batch.put(peerKey(table, device), peer);
  });
  return table;
}

/** The items of each message to the device, until it has all. */
async function toldOf(table: Table): Promise<SentItem[][]> {
  const told: SentItem[][] = [];
  const send: DeviceLink["send"] = async (to, message) => {
    const parsed = parseSync(message);
    told.push(parsed !== null && "items" in parsed ? [...parsed.items] : []);
    const recipient = { did: device, trust: "proven", name: null } as const;
    return { id: to, chunks: 1, groupId: null, messageIds: [], last: null, recipient };
  };
  const stop = new AbortController();
  const link = { send, messages: async function* () {} };
  const { logged } = await table.meta();
  const host = { table, nowMs: Date.now, answerMs: 60_000, tell: () => undefined, link, take: async () => undefined };
  const sync = new Sync(host, logged, stop.signal);
  await sync.refresh();
  for (let isAll = false; !isAll; await Bun.sleep(5)) {
    const peer = await table.get<PeerRow>(peerKey(table, device));
    isAll = peer?.history === null && (peer.sent?.number ?? 0) >= logged;
  }
  stop.abort();
  return told;
}

const messageOf = (id: string, sentMs: number, sizeBytes: number): MessageRow => ({
  ...{ id, conversation: other, isOwn: false, from: other, verified: true, trust: "proven", distrusted: null },
  ...{ sentMs, arrivedMs: sentMs, name: "", mediaType: "image/png", sizeBytes, replyTo: null, group: null },
  ...{ wantsReceipt: false, messageIds: [id], reaction: null, target: null, digest: id, to: [] },
  body: { is: "inline", base64: encodeBase64(new Uint8Array(sizeBytes).fill(sentMs)) },
});

test("a new device gets the whole history, also when a page of it is more than one message holds", async () => {
  const table = await withDevice("");
  const ids = Array.from({ length: 5 }, () => crypto.randomUUID());
  await table.change(async (batch) => {
    await putPerson(table, batch, other, { name: "Other" });
    for (const [i, id] of ids.entries()) await addMessage(table, batch, messageOf(id, i + 1, 400_000));
  });
  const told = await toldOf(table);
  const messages = told.map((items) => items.flatMap((item) => (item.kind === "message" ? [item.row.id] : [])));
  expect(messages.flat()).toEqual(ids);
  expect(messages.filter((part) => part.length > 0).length).toBe(ids.length);
});

test("who was away for longer than the log reaches back gets what the log has, and then all there is", async () => {
  const dayMs = 86_400_000;
  let nowMs = 100 * dayMs;
  const table = await Table.open(memoryStore(), new Uint8Array(32).fill(7), () => nowMs);
  const names = ["first", "second", "third"];
  await table.change(async (batch) => {
    batch.meta = { hasDevices: true };
    batch.put(peerKey(table, device), { ...begun, did: device, history: null } satisfies PeerRow);
  });
  for (const name of names) {
    const { did } = identityOf(name);
    await table.change(async (batch) => {
      await putPerson(table, batch, did, { name });
      log(batch, { kind: "row", key: keyOfPerson(table, did) });
    });
    nowMs += 20 * dayMs;
  }
  const { signal } = new AbortController();
  const link = { send: () => Promise.reject(new Error("nothing is sent")), messages: async function* () {} };
  const host = { table, nowMs: () => nowMs, answerMs: 0, tell: () => undefined, link, take: async () => undefined };
  await new Sync(host, names.length, signal).sweep();
  expect((await table.values("y/")).length).toBe(1);
  const told = await toldOf(table);
  const namesIn = (items: readonly SentItem[]) => items.map((item) => (item.kind === "person" ? item.row.name : ""));
  expect(told.map((items) => namesIn(items).sort())).toEqual([["third"], names]);
});

test("a read mark counts all that came later, also when that is much", async () => {
  const table = await openTable();
  const count = 1_100;
  await table.change(async (batch) => {
    for (let i = 0; i < count; i++) await addMessage(table, batch, messageOf(crypto.randomUUID(), i + 2, 1));
  });
  await after([{ kind: "read", conversation: other, atMs: 1 }], table);
  expect((await table.get<ConversationRow>(keyOfConversation(table, other)))?.unread).toBe(count);
  await after([{ kind: "read", conversation: other, atMs: 501 }], table);
  expect((await table.get<ConversationRow>(keyOfConversation(table, other)))?.unread).toBe(count - 500);
});

test("a profile is named in the log, read when it is sent, and not told again by who applies it", async () => {
  const table = await withDevice(null);
  await table.change((batch) => putProfile(table, batch, profileOf(other)));
  const rows = await table.values("y/");
  expect([rows.length, JSON.stringify(rows).length < 200]).toEqual([1, true]);
  const [[item]] = (await toldOf(table)) as [[SentItem]];
  expect(item).toEqual({ kind: "profile", row: profileOf(other) });

  const second = await withDevice(null);
  await applyItem({ table: second, nowMs: Date.now }, item);
  expect(await second.get<ProfileRow>(keyOfProfile(second, other))).toEqual(profileOf(other));
  expect(await second.values("y/")).toEqual([]);
});

test("of strangers at most 500 profiles are kept, beside those of people who are known", async () => {
  const table = await openTable();
  const put = (profile: ProfileRow) => table.change((batch) => putProfile(table, batch, profile));
  await table.change(async (batch) => {
    for (let i = 0; i < 500; i++)
      await putPerson(table, batch, identityOf(`stranger ${i}`).did, { claimed: { name: "", atMs: 1 } });
  });
  expect(await put(profileOf(other))).toBe(false);
  expect([await table.get(keyOfProfile(table, other)), await table.get(keyOfPerson(table, other))]).toEqual([
    null,
    null,
  ]);
  // One that is kept changes; one that is blocked or known makes room.
  const held = identityOf("stranger 0").did;
  expect(await put(profileOf(held, 2))).toBe(true);
  await table.change((batch) => putPerson(table, batch, held, { isKnown: true }));
  expect(await put(profileOf(other))).toBe(true);
  expect(await put(profileOf(device))).toBe(false);
  await table.change((batch) => putPerson(table, batch, device, { isKnown: true }));
  expect(await put(profileOf(device))).toBe(true);
});

test("an item counts by its kind: more in it changes nothing, and one of another form is none", async () => {
  const table = await openTable();
  const person = { did: other, name: "Other", alias: null, isKnown: true, isBlocked: false };
  const message = { kind: "message", row: messageOf("1", 1, 1), content: null };
  const parsed = (item: unknown) =>
    parseSync(JSON.parse(JSON.stringify({ v: 1, items: [item], after: null, at: null })));
  const more = parsed({ kind: "person", row: person, content: "bm8=" });
  if (more === null || !("items" in more)) throw new Error("it is no item");
  for (const item of more.items) await applyItem({ table, nowMs: Date.now }, item);
  expect(await table.get(keyOfPerson(table, other))).toEqual(person as never);
  const malformed = [
    { kind: "read", conversation: 1, atMs: 1 },
    { kind: "removed", conversation: other, id: null, digest: "" },
    { kind: "delivery", id: 1, to: [] },
    { kind: "delivery", id: "1", to: [null] },
    { kind: "devices", added: [], removed: null },
    { ...message, content: 1 },
    { ...message, row: { ...message.row, id: 1 } },
    { ...message, row: { ...message.row, to: [1] } },
  ];
  expect([parsed(message) === null, malformed.map(parsed)]).toEqual([false, malformed.map(() => null)]);
});

const unused = { sendReceipt: async () => undefined, want: () => undefined };

/** After a device has heard all this of another one. */
async function after(items: readonly SentItem[], table?: Table): Promise<Table> {
  const at = table ?? (await openTable());
  for (const item of items) await applyItem({ table: at, nowMs: Date.now }, item);
  return at;
}

test("a message that was removed stays so, also when another device tells of it again, or only then", async () => {
  const received: SentItem = { kind: "message", row: messageOf("1", 1, 1), content: "AA==" };
  const own: SentItem = { ...received, row: { ...received.row, isOwn: true, digest: "" } };
  for (const item of [received, own]) {
    const { id, digest } = item.row;
    const removed: SentItem = { kind: "removed", conversation: other, id, digest };
    expect(await (await after([item])).values("m/")).toHaveLength(1);
    for (const told of [
      [item, removed, item],
      [removed, item],
    ])
      expect(await (await after(told)).values("m/")).toEqual([]);
    // Also where the user removed it.
    const table = await after([item]);
    const host = { table, did: device, nowMs: Date.now, tell: () => undefined };
    const store = new LocalStore({ ...host, resend: async () => undefined, leads: () => true, ...unused });
    const [message] = await store.messages(other);
    if (message === undefined) throw new Error("no message");
    await store.remove(message);
    expect(await (await after([item], table)).values("m/")).toEqual([]);
  }
});

test("of what two devices say of a person the user's later change counts, and the later claim", async () => {
  const claim = (atMs: number) => ({ claimed: { name: `claim ${atMs}`, atMs } });
  const person = { did: other, name: "", alias: null, isKnown: true, isBlocked: false };
  const blocked: SentItem = { kind: "person", row: { ...person, isBlocked: true, setMs: 2, ...claim(1) } };
  const before: SentItem = { kind: "person", row: { ...person, name: "Other", setMs: 1, ...claim(2) } };
  for (const told of [
    [blocked, before],
    [before, blocked],
    [before, blocked, before],
  ]) {
    const row = await (await after(told)).get(keyOfPerson(await openTable(), other));
    expect(row).toEqual({ ...blocked.row, ...claim(2) });
  }
});
