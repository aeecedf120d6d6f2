/** Who is asked about a group, what devices tell one another of it, and how many groups strangers can put somebody into. */
import { expect, test } from "bun:test";
import { groupType } from "../../../../src/client/content.ts";
import { memoryStore } from "../../../../src/client/store/driver.ts";
import { groupIdOf, mergeGroups, standingOf } from "../../../../src/client/store/group-rules.ts";
import { factsOf, Groups, keyOfGroup, putChange } from "../../../../src/client/store/groups.ts";
import { addMessage, type GroupRow, type MessageRow, type StoredMessage } from "../../../../src/client/store/rows.ts";
import { Table } from "../../../../src/client/store/table.ts";
import { encodeBase64, utf8 } from "../../../../src/core/codec/bytes.ts";
import type { Did } from "../../../../src/core/codec/did.ts";
import { clientCode } from "../../../support/client-code.ts";
import { identityOf } from "../../../support/identity.ts";

const [admin, own, other] = [identityOf("admin").did, identityOf("own").did, identityOf("other").did];
const rowOf = (change: Partial<GroupRow>): GroupRow => ({
  ...{ id: groupIdOf(admin, "n"), admin, maker: admin, nonce: "n", version: 2, name: "now" },
  ...{ members: { [admin]: 1, [own]: 1, [other]: 2 }, left: {}, joined: 1 },
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
  expect(standingOf(await seen(), own)).toBe("asked");
  const tell = () => undefined;
  const nothing = async () => [];
  const groups = new Groups({
    ...{ table, did: own, nowMs: () => 0, tell, messages: nothing, send: nothing, find: async (to) => to as Did },
  });
  const claimed = { v: 1, version: 1, maker: admin, nonce, name: "", admin, members: { [admin]: 1, [own]: 1 } };
  const group = await groups.get(id);
  // Words that look like a change ask for nothing.
  const words = { from: other, text: JSON.stringify({ ...claimed, admin }) } as StoredMessage;
  for (const from of [admin, other])
    expect(await clientCode(async () => group?.accept({ ...words, from }))).toBe("group_changed");
  await group?.accept({ from: admin, text: JSON.stringify(claimed), isClaim: true } as StoredMessage);
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

test("a claim asks, changes nothing before it is accepted, and asks neither the admin nor who is out", async () => {
  const group = await groupOf(rowOf({}));
  const claim = { admin: other, version: 5 };
  expect(await group.told(other, claim)).toBe("claim");
  expect(await group.seen()).toEqual(rowOf({}));
  const admins = await groupOf(rowOf({}), admin);
  expect(await admins.told(other, claim)).toBeNull();
  const members = { [own]: 1, [other]: 2 };
  for (const out of [{ left: { [own]: 1 } }, { members: { [admin]: 1, [other]: 2 } }]) {
    const ended = await groupOf(rowOf(out));
    expect(await ended.told(other, { ...claim, members })).toBeNull();
    expect((await ended.facts()).standing).toBe("out");
  }
});

test("a change of the next admin that overtook the one that names them follows it", async () => {
  const table = await Table.open(memoryStore(), new Uint8Array(32).fill(7));
  const before = rowOf({});
  const { maker, nonce, members } = before;
  const key = keyOfGroup(table, before.id);
  const late = { v: 1, version: 5, maker, nonce, name: "theirs", admin: other, members: { [own]: 1, [other]: 2 } };
  const facts = {
    ...{ conversation: before.id, group: before.id, isOwn: false, verified: true, trust: null, distrusted: null },
    ...{ arrivedMs: 1, mediaType: groupType, replyTo: null, wantsReceipt: false, messageIds: [], digest: "" },
    ...{ name: "", sizeBytes: 0, reaction: null, target: null, to: [] },
  };
  const claim = (from: Did, sentMs: number, json: object): MessageRow => {
    const body = { is: "inline", base64: encodeBase64(utf8(JSON.stringify(json))) } as const;
    return { ...facts, id: crypto.randomUUID(), from, sentMs, body, isClaim: true };
  };
  await table.change(async (batch) => {
    batch.put(key, before);
    await addMessage(table, batch, claim(other, 1, late));
  });
  await table.change((batch) => addMessage(table, batch, claim(admin, 2, { ...late, version: 6, name: "not theirs" })));
  const named = { ...late, version: 4, name: "handed", members };
  const change = { id: before.id, from: admin, json: named, own, isKnown: true };
  expect(await table.change((batch) => putChange(table, batch, change))).toBe("change");
  expect(await table.get<GroupRow>(key)).toMatchObject({ version: 5, name: "theirs", admin: other, joined: 1 });
});

test("only members ask, above the last version, for a group that this identity stays in, and not after they have left", async () => {
  const removed = identityOf("removed").did;
  const members = { [own]: 1, [other]: 2, [removed]: 1 };
  const group = await groupOf(rowOf({}));
  expect(await group.told(removed, { admin: removed, version: 6, members })).toBeNull();
  expect(await group.told(other, { admin: other, version: 2 })).toBeNull();
  expect(await group.told(other, { admin: other, version: 5, members: { [other]: 2 } })).toBeNull();
  expect(await group.told(other, { left: 5 })).toBe("change");
  expect(await group.told(other, { admin: other, version: 5 })).toBeNull();
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
