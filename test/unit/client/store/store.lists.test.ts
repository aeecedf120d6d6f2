/**
 * Lists of a local store: rows that earlier versions have stored in another form are left out, and
 * nothing else is: what a program does wrong in a list reaches the caller.
 */
import { expect, test } from "bun:test";
import { newRow } from "../../../../src/client/groups/bundles.ts";
import {
  emptyGroup,
  type GroupState,
  withChange,
} from "../../../../src/client/groups/statements.ts";
import { memoryStore } from "../../../../src/client/store/driver.ts";
import { upgradeGroups } from "../../../../src/client/store/group-upgrade.ts";
import { keyOfGroup, rowsOf } from "../../../../src/client/store/keys.ts";
import { addMessage, type MessageRow, putReaction } from "../../../../src/client/store/rows.ts";
import { Table, type TableScan } from "../../../../src/client/store/table.ts";
import { ownStoreOf, partsOf } from "../../../support/own-store.ts";
import { from, plan, to } from "../../../support/send-plan.ts";

const hello: MessageRow = {
  id: plan.id,
  from,
  verified: true,
  trust: null,
  distrusted: null,
  name: "",
  mediaType: "text/plain",
  sizeBytes: 5,
  replyTo: null,
  group: null,
  wantsReceipt: false,
  messageIds: [],
  sentMs: 1_000,
  conversation: from,
  isOwn: false,
  arrivedMs: 1_000,
  reaction: null,
  target: null,
  digest: "",
  body: { is: "inline", base64: btoa("hello") },
  to: [],
};

async function opened() {
  const table = await Table.open(memoryStore(), new Uint8Array(32).fill(7));
  const { store, groups } = await partsOf(await ownStoreOf(table, to));
  await table.change((batch) => addMessage(table, batch, hello));
  return { table, store, groups };
}

/** Rows of a group of another form. */
const formlessGroups = (state: GroupState): unknown[] => [
  ...[null, 5, true, "x", [], {}, { v: 2 }, { v: 2, state: 5 }],
  ...[{ maker: 5 }, { nonce: null }, { name: 5 }, { members: null }, { left: null }].map(
    (change) => ({ v: 2, state: { ...state, ...change } }),
  ),
];

/** A row with one member of another form. */
const formless = (change: object): MessageRow => ({ ...hello, ...change });

test("a list leaves out what can't be read, and nothing else", async () => {
  const { table, store } = await opened();
  const changes = [{ body: {} }, { body: { is: "inline" } }, { body: null }, { mediaType: 5 }];
  const rows = [...changes, { to: 5 }, { to: [null] }, { id: null }].map(formless);
  const [page = ["", hello]] = await table.scan<MessageRow>({ prefix: rowsOf.messages });
  await table.change(async (batch) => {
    for (const [i, row] of rows.entries()) batch.put(`${page[0]}${i}`, row);
    const target = { reaction: "+", target: plan.id };
    const key = await putReaction(table, batch, formless(target), false);
    batch.put(`${key}0`, formless({ ...target, mediaType: null }));
  });
  const shown = await store.messages(from);
  expect(shown.map(({ text, reactions }) => [text, reactions])).toEqual([
    ["hello", [{ from, reaction: "+" }]],
  ]);
  expect((await store.conversations()).map(({ id, last }) => [id, last?.text])).toEqual([
    [from, "hello"],
  ]);
});

test("a conversation is not shown when its group can't be read", async () => {
  const { table, store } = await opened();
  const state = emptyGroup(to, "nonce");
  const inGroup = { id: crypto.randomUUID(), group: state.id, conversation: state.id };
  await table.change((batch) => addMessage(table, batch, formless(inGroup)));
  const listed = async (row: unknown) => {
    await table.change(async (batch) => batch.put(keyOfGroup(table, state.id), row));
    return (await store.conversations()).map(({ id }) => id).sort();
  };
  const both = [from, state.id].sort();
  expect(await listed({ v: 2, state, joined: 0 })).toEqual(both);
  for (const row of formlessGroups(state)) expect(await listed(row)).toEqual([from]);
});

test("a group that can't be read ends no start, and is in no list", async () => {
  const { table, groups } = await opened();
  const state = withChange(emptyGroup(to, "nonce"), { name: "here", add: [to] }, 1_000);
  const { id } = emptyGroup(to, "other");
  await table.change(async (batch) =>
    batch.put(keyOfGroup(table, state.id), { ...newRow(state), joined: 0 }),
  );
  for (const row of formlessGroups(emptyGroup(to, "other"))) {
    await table.change(async (batch) => batch.put(keyOfGroup(table, id), row));
    await upgradeGroups(table);
    expect((await groups.list()).map(({ name }) => name)).toEqual(["here"]);
    expect(await groups.get(id)).toBeNull();
  }
});

test("a list has what stands behind more rows that can't be read than are read at once", async () => {
  const { table, groups } = await opened();
  const state = withChange(emptyGroup(to, "nonce"), { name: "here", add: [to] }, 1_000);
  await table.change(async (batch) => {
    for (let i = 0; i < 1_000; i++) batch.put(`${rowsOf.groups}${i}`, { v: 2, state: 5 });
    batch.put(`${rowsOf.groups}f`, { ...newRow(state), joined: 0 });
  });
  expect((await groups.list()).map(({ name }) => name)).toEqual(["here"]);
});

test("a mistake of the program in a list is not taken for a row that can't be read", async () => {
  const { table, store } = await opened();
  const mistake = new TypeError("undefined is not an object");
  const scan = table.scan.bind(table);
  // Reading the reactions of a message.
  table.scan = async <T>(range: TableScan) => {
    if (!range.prefix.startsWith(rowsOf.messages)) throw mistake;
    return scan<T>(range);
  };
  expect(await store.messages(from).catch((error: unknown) => error)).toBe(mistake);
  table.scan = scan;
  table.get = async () => {
    throw mistake;
  };
  expect(await store.conversations().catch((error: unknown) => error)).toBe(mistake);
});
