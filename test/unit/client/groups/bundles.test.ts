/** What of a bundle of statements is taken in: its form and its bounds. */
import { expect, test } from "bun:test";
import { membersMax, parseBundle, renderBundle } from "../../../../src/client/groups/bundles.ts";
import { emptyGroup, withChange } from "../../../../src/client/groups/statements.ts";
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
