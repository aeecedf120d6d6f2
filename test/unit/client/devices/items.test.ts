/** What a device takes of another one of its identity that speaks of a time to come: nothing that would end all later words. */
import { expect, test } from "bun:test";
import { applyItem } from "../../../../src/client/devices/items.ts";
import { newRow } from "../../../../src/client/groups/bundles.ts";
import { emptyGroup, withChange } from "../../../../src/client/groups/statements.ts";
import { chosenAt } from "../../../../src/client/store/chosen.ts";
import { memoryStore } from "../../../../src/client/store/driver.ts";
import { putGroup } from "../../../../src/client/store/group-rows.ts";
import { keyOfPerson } from "../../../../src/client/store/keys.ts";
import type { Person } from "../../../../src/client/store/rows.ts";
import { Table } from "../../../../src/client/store/table.ts";
import { identityOf } from "../../../support/identity.ts";

const nowMs = 1_790_000_000_000;
const last = Number.MAX_SAFE_INTEGER;
const [alice, bob] = [identityOf("alice").did, identityOf("bob").did];
const open = () => Table.open(memoryStore(), new Uint8Array(32).fill(7));

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
