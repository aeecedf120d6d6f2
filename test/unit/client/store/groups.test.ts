/** Who is asked about a group, what devices tell one another of it, and how many groups strangers can put somebody into. */
import { expect, test } from "bun:test";
import { memoryStore } from "../../../../src/client/store/driver.ts";
import { groupIdOf, mergeGroups, standingOf } from "../../../../src/client/store/group-rules.ts";
import { factsOf, Groups, keyOfGroup, putChange } from "../../../../src/client/store/groups.ts";
import type { GroupRow, GroupState } from "../../../../src/client/store/rows.ts";
import { Table } from "../../../../src/client/store/table.ts";
import type { Did } from "../../../../src/core/codec/did.ts";
import { identityOf } from "../../../support/identity.ts";

const [admin, own, other] = [identityOf("admin").did, identityOf("own").did, identityOf("other").did];
const rowOf = (change: Partial<GroupRow>): GroupRow => ({
  ...{ id: groupIdOf(admin, "n"), admin, maker: admin, nonce: "n", version: 2, name: "now" },
  ...{ members: { [admin]: 1, [own]: 1, [other]: 2 }, left: {}, joined: 1, claim: null, declined: {} },
  ...change,
});

test("of two devices the later state counts, in whatever order they speak, with all who left and what was accepted", () => {
  const late = rowOf({});
  const early = rowOf({ version: 1, name: "before", members: { [admin]: 1, [own]: 1 }, left: { [own]: 1 }, joined: 0 });
  for (const merged of [mergeGroups(late, early), mergeGroups(early, late)]) {
    expect([merged.version, merged.name, merged.left, merged.joined]).toEqual([2, "now", { [own]: 1 }, 1]);
    expect(standingOf(merged, own)).toBe("out");
  }
});

test("who put themselves into somebody's group first keeps nobody from the true one, and numbers of theirs bind nobody", async () => {
  const table = await Table.open(memoryStore(), new Uint8Array(32).fill(7));
  const nonce = "n";
  const id = groupIdOf(admin, nonce);
  const put = (from: Did, version: number) =>
    table.change(async (batch) => {
      const json = { v: 1, version, maker: admin, nonce, name: from, admin: from, members: { [from]: 1, [own]: 1 } };
      return putChange(table, batch, { id, from, json, own, isKnown: false });
    });
  const seen = async () => (await table.get<GroupRow>(keyOfGroup(table, id))) as GroupRow;
  expect(await put(other, Number.MAX_SAFE_INTEGER)).toBe("change");
  expect(await put(admin, 1)).toBe("claim");
  expect([standingOf(await seen(), own), factsOf(await seen(), own).claim?.admin]).toEqual(["asked", admin]);
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
  expect(asked.map(({ isPut }) => isPut)).toEqual([...Array<"change">(50).fill("change"), null]);
  expect(await table.get(asked.at(-1)?.key ?? "")).toBeNull();
  expect((await put(other, true)).isPut).toBe("change");
});

/** A group in a store of `me`, who is known to all, and what is told to it. */
async function groupOf(row: GroupRow, me: Did = own) {
  const table = await Table.open(memoryStore(), new Uint8Array(32).fill(7));
  await table.change(async (batch) => batch.put(keyOfGroup(table, row.id), row));
  const told = (from: Did, change: object) => {
    const { maker, nonce, name, admin, members } = row;
    const json = { ...{ v: 1, maker, nonce, name, admin, members }, ...change };
    return table.change((batch) => putChange(table, batch, { id: row.id, from, json, own: me, isKnown: true }));
  };
  const seen = async () => (await table.get<GroupRow>(keyOfGroup(table, row.id))) as GroupRow;
  const facts = async () => factsOf(await seen(), me);
  return { told, seen, facts };
}

test("a claim asks without silencing anybody, says it once, and its version is not asked about again", async () => {
  const group = await groupOf(rowOf({}));
  const claim = { admin: other, version: 5 };
  expect(await group.told(other, claim)).toBe("claim");
  const { standing, admin: shown, claim: asked } = await group.facts();
  expect([standing, shown, asked?.admin]).toEqual(["joined", admin, other]);
  for (const version of [5, 4]) expect(await group.told(other, { ...claim, version })).toBeNull();
  const declined = await groupOf(rowOf({ declined: { [other]: 5 } }));
  expect(await declined.told(other, claim)).toBeNull();
  expect(await declined.told(other, { ...claim, version: 6 })).toBe("claim");
  // The admin is asked by nobody.
  const admins = await groupOf(rowOf({}), admin);
  expect(await admins.told(other, claim)).toBeNull();
  expect((await admins.facts()).standing).toBe("joined");
});

test("only members ask, above the last version, and nobody who is out is asked", async () => {
  const removed = identityOf("removed").did;
  const members = { [own]: 1, [other]: 2, [removed]: 1 };
  const group = await groupOf(rowOf({}));
  await group.told(other, { admin: other, version: 5 });
  expect(await group.told(removed, { admin: removed, version: 6, members })).toBeNull();
  expect(await group.told(other, { admin: other, version: 2 })).toBeNull();
  expect((await group.facts()).claim?.admin).toBe(other);
  for (const out of [{ left: { [own]: 1 } }, { members: { [admin]: 1, [other]: 2 } }]) {
    const ended = await groupOf(rowOf(out));
    expect(await ended.told(other, { admin: other, version: 5, members })).toBeNull();
    expect(await ended.facts()).toMatchObject({ standing: "out", claim: null });
  }
  // Who claimed and has left asks no more.
  await group.told(other, { left: 5 });
  expect((await group.facts()).claim).toBeNull();
});

test("a change of the next admin that overtook the handover follows it, on one device or on two", async () => {
  const late = { admin: other, version: 4, members: { [own]: 1, [other]: 2 } };
  const group = await groupOf(rowOf({}));
  await group.told(other, late);
  const overtaken = await group.seen();
  expect(await group.told(admin, { admin: other, version: 3 })).toBe("change");
  const handed = rowOf({ version: 3, admin: other });
  for (const row of [await group.seen(), mergeGroups(overtaken, handed), mergeGroups(handed, overtaken)]) {
    expect(row).toMatchObject({ version: 4, admin: other, members: late.members, claim: null });
    expect(standingOf(row, own)).toBe("joined");
  }
  // So does one that takes this identity out; alone it asks nothing.
  const outer = await groupOf(rowOf({}));
  await outer.told(other, { ...late, members: { [other]: 2 } });
  expect(await outer.facts()).toMatchObject({ standing: "joined", claim: null });
  await outer.told(admin, { admin: other, version: 3 });
  expect(await outer.facts()).toMatchObject({ standing: "out", members: [other] });
  // Another claim waits no longer once the admin is heard.
  const third = await groupOf(rowOf({}));
  await third.told(other, { ...late, version: 9 });
  await third.told(admin, { version: 3 });
  expect(await third.facts()).toMatchObject({ admin, claim: null });
});

test("of two devices an old state takes no claim away, brings none back, and what one declined asks on neither", () => {
  const claim: GroupState = { ...rowOf({}), admin: other, version: 5 };
  const asked = rowOf({ claim });
  expect(mergeGroups(asked, rowOf({ version: 1 })).claim?.admin).toBe(other);
  const later = rowOf({ version: 6 });
  const declined = rowOf({ declined: { [other]: 5 } });
  for (const [before, given] of [
    [later, asked],
    [asked, later],
    [declined, asked],
    [asked, declined],
  ] as const)
    expect(factsOf(mergeGroups(before, given), own).claim).toBeNull();
});

test("the maker of a group is a DID", async () => {
  const maker = "x".repeat(60_000);
  const table = await Table.open(memoryStore(), new Uint8Array(32).fill(7));
  const id = groupIdOf(maker, "n");
  const json = { v: 1, version: 1, maker, nonce: "n", name: "", admin, members: { [admin]: 1, [own]: 1 } };
  await table.change((batch) => putChange(table, batch, { id, from: admin, json, own, isKnown: true }));
  expect(await table.get(keyOfGroup(table, id))).toBeNull();
});

test("changes of an admin count who was restored from an older store", async () => {
  const restored = await Table.open(memoryStore(), new Uint8Array(32).fill(7));
  const row = rowOf({});
  await restored.change(async (batch) => batch.put(keyOfGroup(restored, row.id), row));
  const members = await groupOf(rowOf({ version: 1_700_000_000, members: row.members }));
  const said: unknown[] = [];
  const groups = new Groups({
    ...{ table: restored, did: admin, nowMs: () => 1_800_000_000_999 },
    messages: async () => [],
    tell: () => undefined,
    find: async (to) => to as Did,
    send: async (_, content) => {
      said.push(content);
      return [];
    },
  });
  await (await groups.get(row.id))?.change({ name: "restored" });
  expect(await members.told(admin, said[0] as object)).toBe("change");
  expect(await members.facts()).toMatchObject({ name: "restored", standing: "joined" });
});
