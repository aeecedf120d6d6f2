/** What of a bundle of statements is taken in: its form and its bounds. */
import { expect, test } from "bun:test";
import {
  addWaiting,
  type GroupRow,
  membersMax,
  nearRow,
  newRow,
  parseBundle,
  renderBundle,
} from "../../../../src/client/groups/bundles.ts";
import { emptyGroup, withChange } from "../../../../src/client/groups/statements.ts";
import type { Did } from "../../../../src/core/codec/did.ts";
import { minuteMs, weekMs } from "../../../../src/core/codec/time.ts";
import { identityOf } from "../../../support/identity.ts";

const nowMs = 1_790_000_000_000;
const people = Array.from({ length: membersMax + 1 }, (_, n) => identityOf(`member ${n}`).did);
const maker = people[0] ?? identityOf("maker").did;
const bundleOf = (members: number) => {
  const add = people.slice(0, members);
  const statement = withChange(emptyGroup(maker, "n"), { name: "Hiking", add }, nowMs);
  const signed = { statement, key: "aa".repeat(32), signature: "" };
  const bundle = { statements: [signed], leavings: [], handOvers: [] };
  return { id: statement.id, json: JSON.parse(JSON.stringify(renderBundle(bundle))) };
};

test("a statement with 64 members is taken in, and one with 65 is left out", () => {
  const taken = (members: number) => {
    const { id, json } = bundleOf(members);
    return parseBundle(json, id)?.statements.length;
  };
  expect([taken(membersMax), taken(membersMax + 1)]).toEqual([1, 0]);
});

test("a statement of another group is left out, and more than eight statements are another form", () => {
  const { id, json } = bundleOf(2);
  expect(parseBundle(json, emptyGroup(maker, "other").id)?.statements).toEqual([]);
  const [one] = json.statements;
  const repeated = (count: number) => ({ ...json, statements: Array(count).fill(one) });
  expect(parseBundle(repeated(8), id)?.statements.length).toBe(8);
  expect(parseBundle(repeated(9), id)).toBeNull();
});

test("what people outside of a group bring pushes out nothing of its members' that waits", () => {
  const member = people[1] ?? maker;
  const state = withChange(emptyGroup(maker, "n"), { name: "Hiking", add: [maker, member] }, nowMs);
  const bundle = (name: string) => {
    const statement = { ...state, name: [name, 1] as const };
    const signed = { statement, key: "aa".repeat(32), signature: "" };
    return { statements: [signed], leavings: [], handOvers: [] };
  };
  const brought = (from: Did, name: string) => ({ bundle: bundle(name), from, sinceMs: nowMs });
  let row = newRow(state);
  const bring = (from: Did, name: string) => {
    row = { ...row, waiting: addWaiting(row, brought(from, name)) };
  };
  bring(member, "by a member");
  for (const [n, did] of people.slice(2, 42).entries()) bring(did, `flood ${n}`);
  for (let n = 0; n < 20; n++) bring(maker, "again and again");
  const names = row.waiting.map((one) => one.bundle.statements[0]?.statement.name[0]);
  const last = ["flood 36", "flood 37", "flood 38", "flood 39"];
  expect(names).toEqual(["by a member", ...last, "again and again"]);
  for (let n = 0; n < 20; n++) bring(member, `member ${n}`);
  expect(row.waiting.map((one) => one.bundle.statements[0]?.statement.name[0])).toEqual([
    ...[...last, "again and again"],
    ...["member 18", "member 19"],
  ]);
});

test("of an own device's word of a later day neither its state nor what follows from it counts so far", () => {
  const [member = maker] = people.slice(1);
  const soon = withChange(emptyGroup(maker, "n"), { name: "Hiking", add: [maker] }, nowMs);
  const inAWeek = withChange(soon, { add: [member] }, nowMs + weekMs);
  const later = inAWeek.members[member]?.[1] ?? 0;
  const leaving = { id: soon.id, did: member, version: later, key: "aa", signature: "" };
  const row: GroupRow = {
    ...newRow({ ...inAWeek, left: { [member]: later } }),
    leavings: [leaving],
    joined: later,
    root: "aa",
  };
  const asOf = (given: GroupRow) => nearRow(given, { own: maker, root: "aa", nowMs });
  const since = soon.members[maker]?.[1] ?? 0;
  expect(asOf(row)).toMatchObject({ state: soon, leavings: [], joined: since });
});

test("a wish to hand over counts under the key in force alone, and not from ten minutes ahead", () => {
  const [to = maker, by = maker] = people.slice(1);
  const state = withChange(emptyGroup(maker, "n"), { name: "Hiking", add: [maker, to] }, nowMs);
  const wishOf = (root: string, sinceMs: number) => {
    const row = { ...newRow(state), root, handing: { to, by, sinceMs, agreed: [] } };
    return nearRow(row, { own: maker, root: "aa", nowMs }).handing?.to ?? null;
  };
  expect(wishOf("aa", nowMs)).toBe(to);
  expect([wishOf("bb", nowMs), wishOf("aa", nowMs + 10 * minuteMs)]).toEqual([null, null]);
});
