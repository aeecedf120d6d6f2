/** What the next admin of a group takes up of what the former one had signed, and how far. */
import { expect, test } from "bun:test";
import { found, type Succession } from "../../../../src/client/groups/handing.ts";
import { missingRemovals, withRemovals } from "../../../../src/client/groups/removals.ts";
import {
  emptyGroup,
  type GroupState,
  membersOf,
  withChange,
} from "../../../../src/client/groups/statements.ts";
import type { Did } from "../../../../src/core/codec/did.ts";
import { dayMs } from "../../../../src/core/codec/time.ts";
import { identityOf } from "../../../support/identity.ts";

const [former, next, eve] = ["former", "next", "eve"].map((name) => identityOf(name).did) as [
  Did,
  Did,
  Did,
];
const nowMs = 1_790_000_000_000;
const all = { name: "Hiking", add: [former, next, eve] };
const before = withChange(emptyGroup(former, "n"), all, nowMs - 9_000);
const row: Succession = found({ state: { ...before, next } }, next, nowMs);
const said = (remove: readonly Did[], atMs: number): GroupState =>
  withChange(before, { name: "Stolen", remove }, atMs);
const takes = (statement: GroupState, atMs = nowMs, at = row) =>
  membersOf(withRemovals(at, statement, atMs));

test("the next admin takes up a removal of before the hand-over, and nothing else of its statement", () => {
  const removal = said([eve], nowMs - 5_000);
  const state = withRemovals(row, removal, nowMs + dayMs);
  expect(membersOf(state)).toEqual([former, next].sort());
  expect([state.name[0], state.maker]).toEqual(["Hiking", next]);
  expect(missingRemovals(row, [{ statement: removal }], nowMs)).toHaveLength(1);
  expect(missingRemovals({ ...row, state }, [{ statement: removal }], nowMs)).toEqual([]);
  expect(withRemovals({ ...row, state }, removal, nowMs)).toBe(state);
  const other = withChange(before, { add: [identityOf("mallory").did] }, nowMs - 5_000);
  expect(withRemovals(row, other, nowMs)).toBe(row.state);
});

test("a former admin takes out neither the next one nor who was added again, and not for ever", () => {
  const [whole, without] = [membersOf(row.state), [former, next].sort()];
  expect(takes(said([next], nowMs - 5_000))).toEqual(whole);
  const removal = said([eve], nowMs - 5_000);
  const gone = { ...row, state: withRemovals(row, removal, nowMs) };
  const again = { ...row, state: withChange(gone.state, { add: [eve] }, nowMs + 5_000) };
  expect(takes(removal, nowMs + 5_000, again)).toEqual(whole);
  // A clock may be a day ahead; a device that does not know of the hand-over may say so later.
  expect(takes(said([eve], nowMs + dayMs))).toEqual(without);
  const late = said([eve], nowMs + dayMs + 1_000);
  expect(takes(late)).toEqual(whole);
  expect(takes(late, nowMs + 2 * dayMs)).toEqual(without);
  expect(takes(said([eve], nowMs + dayMs), nowMs + dayMs, again)).toEqual(whole);
  expect(takes(removal, nowMs + 30 * dayMs)).toEqual(without);
  expect(takes(removal, nowMs + 30 * dayMs + 1)).toEqual(whole);
});

test("what was signed of a group that the conversation never was counts for nothing", () => {
  const elsewhere = withChange(emptyGroup(former, "other"), { add: [next, eve] }, nowMs - 9_000);
  const removal = withChange(elsewhere, { remove: [eve] }, nowMs - 5_000);
  expect(withRemovals(row, removal, nowMs)).toBe(row.state);
});
