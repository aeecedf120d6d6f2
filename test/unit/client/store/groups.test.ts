/** What devices tell one another of a group, and how many groups strangers can put somebody into. */
import { expect, test } from "bun:test";
import { memoryStore } from "../../../../src/client/store/driver.ts";
import { groupIdOf, mergeGroups, standingOf } from "../../../../src/client/store/group-rules.ts";
import { keyOfGroup, putChange } from "../../../../src/client/store/groups.ts";
import type { GroupRow } from "../../../../src/client/store/rows.ts";
import { Table } from "../../../../src/client/store/table.ts";
import type { Did } from "../../../../src/core/codec/did.ts";
import { identityOf } from "../../../support/identity.ts";

const [admin, own, other] = [identityOf("admin").did, identityOf("own").did, identityOf("other").did];
const rowOf = (change: Partial<GroupRow>): GroupRow => ({
  ...{ id: groupIdOf(admin, "n"), admin, maker: admin, nonce: "n", version: 2, name: "now" },
  ...{ members: { [admin]: 1, [own]: 1, [other]: 2 }, left: {}, joined: 1, claim: null },
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
  expect(await put(other, Number.MAX_SAFE_INTEGER)).toBe(true);
  expect(await put(admin, 1)).toBe(true);
  expect([standingOf(await seen(), own), (await seen()).claim?.admin]).toEqual(["asked", admin]);
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
