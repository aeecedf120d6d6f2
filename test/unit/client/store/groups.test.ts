/** Who is asked about a group, what devices tell one another of it, and how many groups strangers can put somebody into. */
import { expect, test } from "bun:test";
import type { GroupRow } from "../../../../src/client/groups/group-rules.ts";
import { mergeGroups, standingOf } from "../../../../src/client/groups/group-rules.ts";
import { groupIdOf } from "../../../../src/client/groups/statements.ts";
import { memoryStore } from "../../../../src/client/store/driver.ts";
import { factsOf, putChange } from "../../../../src/client/store/group-rows.ts";
import { keyOfGroup } from "../../../../src/client/store/keys.ts";
import { Table } from "../../../../src/client/store/table.ts";
import type { Did } from "../../../../src/core/codec/did.ts";
import { identityOf } from "../../../support/identity.ts";
import { ownStoreOf, partsOf } from "../../../support/own-store.ts";

const [admin, own, other] = [
  identityOf("admin").did,
  identityOf("own").did,
  identityOf("other").did,
];
const rowOf = (change: Partial<GroupRow>): GroupRow => ({
  ...{ id: groupIdOf(admin, "n"), admin, maker: admin, nonce: "n", version: 2, name: "now" },
  ...{ members: { [admin]: 1, [own]: 1, [other]: 2 }, left: {}, joined: 1 },
  ...change,
});

test("of two devices the later state counts, in whatever order they speak, with all who left and what was accepted", () => {
  const late = rowOf({});
  const early = rowOf({
    version: 1,
    name: "before",
    members: { [admin]: 1, [own]: 1 },
    left: { [own]: 1 },
    joined: 0,
  });
  for (const merged of [mergeGroups(late, early), mergeGroups(early, late)]) {
    expect([merged.version, merged.name, merged.left, merged.joined]).toEqual([
      2,
      "now",
      { [own]: 1 },
      1,
    ]);
    expect(standingOf(merged, own)).toBe("out");
  }
});

test("who put themselves into somebody's group first keeps nobody from the true one, and numbers of theirs bind nobody", async () => {
  const table = await Table.open(memoryStore(), new Uint8Array(32).fill(7));
  const nonce = "n";
  const id = groupIdOf(admin, nonce);
  const put = (from: Did, version: number) =>
    table.change(async (batch) => {
      const json = {
        v: 1,
        version,
        maker: admin,
        nonce,
        name: from,
        admin: from,
        members: { [from]: 1, [own]: 1 },
      };
      return putChange(table, batch, { id, from, json, own, isKnown: false });
    });
  const seen = async () => (await table.get<GroupRow>(keyOfGroup(table, id))) as GroupRow;
  expect(await put(other, Number.MAX_SAFE_INTEGER)).toBe(true);
  expect(await put(admin, 1)).toBe(true);
  expect(factsOf(await seen(), own)).toMatchObject({ admin, standing: "asked" });
  const { groups } = await partsOf(await ownStoreOf(table, own, { nowMs: () => 0 }));
  await (await groups.get(id))?.join();
  expect(await put(other, Number.MAX_SAFE_INTEGER)).toBe(false);
  expect(factsOf(await seen(), own)).toMatchObject({ admin, standing: "joined" });
  // So it is on another device, which has only what came first.
  const first = { ...(await seen()), admin: other, version: Number.MAX_SAFE_INTEGER, joined: 0 };
  for (const merged of [mergeGroups(first, await seen()), mergeGroups(await seen(), first)])
    expect(factsOf(merged, own)).toMatchObject({ admin, standing: "joined" });
});

test("strangers put somebody into at most fifty groups that wait for an answer; people who are known go on", async () => {
  const table = await Table.open(memoryStore(), new Uint8Array(32).fill(7));
  const put = (from: Did, isKnown: boolean) =>
    table.change(async (batch) => {
      const nonce = crypto.randomUUID();
      const id = groupIdOf(from, nonce);
      const json = {
        v: 1,
        version: 1,
        maker: from,
        nonce,
        name: "a group",
        admin: from,
        members: { [from]: 1, [own]: 1 },
      };
      const isPut = await putChange(table, batch, { id, from, json, own, isKnown });
      return { isPut, key: keyOfGroup(table, id) };
    });
  const asked = await Array.fromAsync({ length: 51 }, () => put(admin, false));
  expect(asked.map(({ isPut }) => isPut)).toEqual([...Array<boolean>(50).fill(true), false]);
  expect(await table.get(asked.at(-1)?.key ?? "")).toBeNull();
  expect((await put(other, true)).isPut).toBe(true);
});

/** A group in a store of `me`, who is known to all, and what is told to it. */
async function groupOf(row: GroupRow, me: Did = own) {
  const table = await Table.open(memoryStore(), new Uint8Array(32).fill(7));
  await table.change(async (batch) => batch.put(keyOfGroup(table, row.id), row));
  const told = (from: Did, change: object) => {
    const { maker, nonce, name, admin, members } = row;
    const json = { ...{ v: 1, maker, nonce, name, admin, members }, ...change };
    return table.change((batch) =>
      putChange(table, batch, { id: row.id, from, json, own: me, isKnown: true }),
    );
  };
  const seen = async () => (await table.get<GroupRow>(keyOfGroup(table, row.id))) as GroupRow;
  const facts = async () => factsOf(await seen(), me);
  return { told, seen, facts };
}

test("only the admin changes a group that was accepted, and whom the admin names; who left stays out", async () => {
  const group = await groupOf(rowOf({}));
  expect(await group.told(other, { admin: other, version: 5 })).toBe(false);
  expect(await group.seen()).toEqual(rowOf({}));
  expect(await group.told(other, { left: 5 })).toBe(true);
  expect(await group.told(admin, { admin: own, version: 6 })).toBe(true);
  expect(await group.told(admin, { version: 7 })).toBe(false);
  expect(await group.facts()).toMatchObject({ admin: own, standing: "joined" });
  const members = { [own]: 1, [other]: 2 };
  for (const out of [{ left: { [own]: 1 } }, { members: { [admin]: 1, [other]: 2 } }]) {
    const ended = await groupOf(rowOf({ ...out, joined: 0 }));
    expect(await ended.told(other, { admin: other, version: 5, members })).toBe(false);
    expect((await ended.facts()).standing).toBe("out");
  }
});

test("before a group is accepted any admin who puts this identity into it replaces another", async () => {
  const group = await groupOf(rowOf({ joined: 0 }));
  expect(await group.told(other, { admin: other, version: 1, members: { [other]: 1 } })).toBe(
    false,
  );
  expect(await group.told(admin, { version: 2 })).toBe(false);
  expect(
    await group.told(other, { admin: other, version: 1, members: { [other]: 1, [own]: 1 } }),
  ).toBe(true);
  expect(await group.facts()).toMatchObject({ admin: other, standing: "asked" });
});

test("the maker of a group is a DID", async () => {
  const maker = "x".repeat(60_000);
  const table = await Table.open(memoryStore(), new Uint8Array(32).fill(7));
  const id = groupIdOf(maker, "n");
  const json = {
    v: 1,
    version: 1,
    maker,
    nonce: "n",
    name: "",
    admin,
    members: { [admin]: 1, [own]: 1 },
  };
  await table.change((batch) =>
    putChange(table, batch, { id, from: admin, json, own, isKnown: true }),
  );
  expect(await table.get(keyOfGroup(table, id))).toBeNull();
});

test("changes of an admin count who was restored from an older store", async () => {
  const restored = await Table.open(memoryStore(), new Uint8Array(32).fill(7));
  const row = rowOf({});
  await restored.change(async (batch) => batch.put(keyOfGroup(restored, row.id), row));
  const members = await groupOf(rowOf({ version: 1_700_000_000, members: row.members }));
  const said: unknown[] = [];
  const send = async (_: readonly string[], content: unknown) => {
    said.push(content);
    return [];
  };
  const nowMs = () => 1_800_000_000_999;
  const { groups } = await partsOf(await ownStoreOf(restored, admin, { nowMs }), { send });
  await (await groups.get(row.id))?.change({ name: "restored" });
  expect(await members.told(admin, said[0] as object)).toBe(true);
  expect(await members.facts()).toMatchObject({ name: "restored", standing: "joined" });
});
