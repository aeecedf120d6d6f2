/**
 * What a device takes of another one of its identity: of times far ahead nothing that would
 * override later choices, and of rows of another form nothing at all.
 */
import { expect, test } from "bun:test";
import { applyItem, type Item, parseItem } from "../../../../src/client/devices/items.ts";
import { newRow } from "../../../../src/client/groups/bundles.ts";
import { emptyGroup, withChange } from "../../../../src/client/groups/statements.ts";
import type { Authorship } from "../../../../src/client/mail/authorship.ts";
import { chosenAt } from "../../../../src/client/store/chosen.ts";
import { memoryStore } from "../../../../src/client/store/driver.ts";
import { putGroup } from "../../../../src/client/store/group-rows.ts";
import {
  keyOfConversation,
  keyOfPerson,
  keyOfProfile,
  reactionsOf,
} from "../../../../src/client/store/keys.ts";
import type { Person } from "../../../../src/client/store/person-shape.ts";
import { putProfile } from "../../../../src/client/store/profiles.ts";
import {
  addMessage,
  type ConversationRow,
  type MessageRow,
} from "../../../../src/client/store/rows.ts";
import { Table } from "../../../../src/client/store/table.ts";
import { identityOf } from "../../../support/identity.ts";

const nowMs = 1_790_000_000_000;
const last = Number.MAX_SAFE_INTEGER;
const [alice, bob] = [identityOf("alice").did, identityOf("bob").did];
const open = () => Table.open(memoryStore(), new Uint8Array(32).fill(7));
const message: MessageRow = {
  ...{ conversation: bob, isOwn: false, id: "a", from: bob, verified: true, trust: "proven" },
  ...{
    name: "",
    mediaType: "text/plain",
    sizeBytes: 1,
    replyTo: null,
    group: null,
    target: null,
  },
  ...{ wantsReceipt: false, messageIds: ["a"], sentMs: nowMs, arrivedMs: nowMs, reaction: null },
  ...{ distrusted: null, digest: "a", body: { is: "inline", base64: "" }, to: [] },
};

test("a name that Bob has from the end of time is none, and the one that he chooses later shows", async () => {
  const table = await open();
  const named = (name: string, atMs: number) => ({
    did: bob,
    name,
    picture: "",
    atMs,
    isOpen: null,
  });
  const shown = async () => (await table.get<Person>(keyOfPerson(table, bob)))?.claimed?.name;
  await applyItem(table, { is: "b", row: named("Police", last) }, nowMs);
  expect(await shown()).toBeUndefined();
  await applyItem(table, { is: "b", row: named("Bob", nowMs) }, nowMs);
  const held = (await table.get<Person>(keyOfPerson(table, bob))) as Person;
  const claimed = { name: "Police", atMs: last };
  await applyItem(table, { is: "p", row: { ...held, claimed } }, nowMs);
  expect(await shown()).toBe("Bob");
});

test("a name that another device has of a person from the hours ahead gives way to what the person says later", async () => {
  const table = await open();
  const aheadMs = nowMs + 23 * 3_600_000;
  const row = { did: bob, name: "Police", picture: "", atMs: aheadMs, isOpen: null };
  const shown = async () => (await table.get<Person>(keyOfPerson(table, bob)))?.claimed?.name;
  await applyItem(table, { is: "b", row }, nowMs, nowMs - 2_000);
  const held = (await table.get<Person>(keyOfPerson(table, bob))) as Person;
  const claimed = { name: "Police", atMs: aheadMs };
  await applyItem(table, { is: "p", row: { ...held, claimed } }, nowMs, nowMs - 2_000);
  expect(await shown()).toBe("Police");
  await table.change((batch) =>
    putProfile(table, batch, { ...row, name: "Bob", atMs: nowMs - 1_000 }),
  );
  expect(await shown()).toBe("Bob");
});

test("a timer of a time to come is none, and in a group only that of its admin counts", async () => {
  const table = await open();
  const state = withChange(emptyGroup(alice, "n"), { name: "G", add: [alice, bob] }, nowMs);
  await table.change((batch) => putGroup(table, batch, newRow(state)));
  const timerAt = async (id: string) => (await chosenAt(table, id))?.timer?.seconds;
  const say = (id: string, seconds: number, by: typeof alice, version: number) =>
    applyItem(table, { is: "w", row: { id, timer: { seconds, by, version } } }, nowMs);
  const version = nowMs / 1_000;
  for (const id of [alice, state.id]) {
    await say(id, 5, alice, last);
    expect(await timerAt(id)).toBeUndefined();
    await say(id, 60, alice, version);
    expect(await timerAt(id)).toBe(60);
  }
  await say(state.id, 7, bob, version + 1);
  expect(await timerAt(state.id)).toBe(60);
});

test("whom this user blocks, and what it calls somebody, can be changed after a word from the end of time", async () => {
  const table = await open();
  const person = { did: bob, name: "", alias: null, isKnown: true };
  const blocked = { ...person, isBlocked: true, setMs: last, toldMs: last };
  await applyItem(table, { is: "p", row: blocked }, nowMs);
  const unblocked = { ...person, isBlocked: false, setMs: nowMs + 1 };
  await applyItem(table, { is: "p", row: unblocked }, nowMs + 1);
  const held = await table.get<Person>(keyOfPerson(table, bob));
  expect(held).toMatchObject({ isBlocked: false, setMs: nowMs + 1, toldMs: nowMs });
});

test("a choice from the end of time counts as made when it was said, so what was chosen since then stays", async () => {
  const table = await open();
  const person = { did: bob, name: "", alias: null, isKnown: true };
  const unblocked = { ...person, isBlocked: false, setMs: nowMs - 1_000 };
  await applyItem(table, { is: "p", row: unblocked }, nowMs);
  const mine = { value: "mine", atMs: nowMs - 1_000 };
  await applyItem(table, { is: "w", row: { id: bob, draft: mine } }, nowMs);
  const saidMs = nowMs - 2_000;
  const blocked = { ...person, isBlocked: true, setMs: last };
  await applyItem(table, { is: "p", row: blocked }, nowMs, saidMs);
  const draft = { value: "stolen", atMs: last };
  const isPinned = { value: true, atMs: last };
  await applyItem(table, { is: "w", row: { id: bob, draft, isPinned } }, nowMs, saidMs);
  const held = await table.get<Person>(keyOfPerson(table, bob));
  expect(held).toMatchObject({ isBlocked: false, setMs: nowMs - 1_000 });
  const pinned = { value: true, atMs: saidMs };
  expect(await chosenAt(table, bob)).toEqual({ id: bob, draft: mine, isPinned: pinned });
});

test("a choice counts as made when it was said, however little ahead its time is", async () => {
  const table = await open();
  const person = { did: bob, name: "", alias: null, isKnown: true };
  const aheadMs = nowMs + 60_000;
  const blocked = { ...person, isBlocked: true, setMs: aheadMs };
  const draft = { value: "stolen", atMs: aheadMs };
  const profile = { did: alice, name: "stolen", picture: "", isOpen: true };
  await applyItem(table, { is: "p", row: blocked }, nowMs);
  await applyItem(table, { is: "w", row: { id: bob, draft } }, nowMs);
  await applyItem(table, { is: "b", row: { ...profile, atMs: aheadMs } }, nowMs);
  const laterMs = nowMs + 1;
  const mine = { value: "mine", atMs: laterMs };
  await applyItem(
    table,
    { is: "p", row: { ...person, isBlocked: false, setMs: laterMs } },
    laterMs,
  );
  await applyItem(table, { is: "w", row: { id: bob, draft: mine } }, laterMs);
  await applyItem(table, { is: "b", row: { ...profile, name: "mine", atMs: laterMs } }, laterMs);
  expect(await table.get<Person>(keyOfPerson(table, bob))).toMatchObject({ isBlocked: false });
  expect((await chosenAt(table, bob))?.draft).toEqual(mine);
  expect(await table.get(keyOfProfile(table, alice))).toMatchObject({ name: "mine" });
});

test("drafts and pins can be chosen again after a choice from the end of time", async () => {
  const table = await open();
  const draft = { value: "stolen", atMs: last };
  const isPinned = { value: true, atMs: last };
  await applyItem(table, { is: "w", row: { id: bob, draft, isPinned } }, nowMs);
  const later = { value: "mine", atMs: nowMs + 1 };
  await applyItem(table, { is: "w", row: { id: bob, draft: later } }, nowMs + 1);
  const pinnedNow = { value: true, atMs: nowMs };
  expect(await chosenAt(table, bob)).toEqual({ id: bob, draft: later, isPinned: pinnedNow });
});

test("a conversation that was read to the end of time is read to now", async () => {
  const table = await open();
  await table.change((batch) => addMessage(table, batch, message));
  const read = { readMs: last, readAtMs: last, at: last, arrivedMs: last };
  const given: ConversationRow = { id: bob, unread: 0, last: null, ...read };
  await applyItem(table, { is: "c", row: given }, nowMs);
  const held = await table.get<ConversationRow>(keyOfConversation(table, bob));
  expect(held).toMatchObject({ unread: 0, readAtMs: nowMs });
});

test("a reaction from the end of time gives way to one that is chosen later", async () => {
  const table = await open();
  const react = (reaction: string, sentMs: number) => {
    const row = { ...message, isOwn: true, id: reaction, from: alice, target: "a" };
    return applyItem(table, { is: "r", row: { ...row, reaction, sentMs } }, nowMs);
  };
  await react("👎", last);
  await react("👍", nowMs + 1);
  const rows = await table.values<MessageRow>(reactionsOf(table, bob, "a"));
  expect(rows.map(({ reaction }) => reaction)).toEqual(["👍"]);
});

const copy = { did: bob, id: "a", state: "sent", code: null, reason: null, out: null } as const;
const choice = { value: true, atMs: nowMs };
const authorship: Authorship = {
  is: "inside",
  ...{ mediaType: "text/plain", keyId: "k", proofSha256: "p" },
  ...{ keySha256: "k", envelopeSha256: "e", signature: "s" },
};
const remarks = { mentions: [alice], isForwarded: true, lastsSeconds: 5, state: "s", authorship };
/** One of each kind, with everything that it may have. */
const wholeItems: readonly Item[] = [
  {
    is: "p",
    row: {
      ...{ did: bob, name: "Bob", alias: null, isKnown: true, isBlocked: false, setMs: nowMs },
      ...{ claimed: { name: "B", atMs: nowMs }, invitedBy: "i", invitation: null, toldMs: nowMs },
    },
  },
  { is: "b", row: { did: bob, name: "Bob", picture: "", atMs: nowMs, isOpen: null } },
  { is: "j", row: { did: bob, pass: "p" } },
  { is: "m", row: { ...message, ...remarks, replyFrom: bob, to: [copy], placedMs: nowMs } },
  { is: "v", row: { id: "a", from: bob, to: [copy] } },
  { is: "r", row: { ...message, reaction: "x", target: "a", targetFrom: bob } },
  { is: "c", row: { id: bob, readAtMs: nowMs } },
  { is: "q", row: { id: "a", digest: "a", from: bob, untilMs: nowMs } },
  {
    is: "w",
    row: {
      ...{ id: bob, draft: { value: "d", atMs: nowMs }, isPinned: choice, isMuted: choice },
      ...{ isArchived: choice, timer: { seconds: 5, version: 1, by: bob } },
    },
  },
  { is: "z", row: { is: "proof", did: bob, proof: "" } },
  { is: "z", row: { is: "head", at: "a", logKey: "l", note: "n" } },
];

test("of each kind of row what it has is taken, and nothing that its form doesn't name", () => {
  for (const item of wholeItems) {
    expect(parseItem(item)).toEqual(item);
    expect(parseItem({ ...item, row: { ...item.row, further: 1 } })).toEqual(item);
  }
  const out = { ...copy, out: "o/1" };
  const told = parseItem({ is: "v", row: { id: "a", to: [out] } });
  expect(told?.row).toEqual({ id: "a", to: [copy] });
});

test("a row of which one member has another form is not taken, of whatever kind", () => {
  const formless = [{}, { is: "pieces", id: "a", sizeBytes: 1 }, [null], Number.NaN];
  const taken: string[] = [];
  for (const { is, row } of wholeItems)
    for (const name of Object.keys(row))
      for (const value of formless)
        if (parseItem({ is, row: { ...row, [name]: value } }) !== null)
          taken.push(`${is} ${name} ${JSON.stringify(value)}`);
  expect(taken).toEqual([]);
  for (const is of ["d", "toString", "__proto__", 5, null])
    expect(parseItem({ is, row: {} })).toBeNull();
  for (const json of [null, 5, [], "m", { is: "m" }, { is: "m", row: null }, { is: "g", row: [] }])
    expect(parseItem(json)).toBeNull();
});
