/**
 * Hand-overs by replaced keys: where the next admin has founded their group, and enough people show
 * that they went there.
 */
import { expect, test } from "bun:test";
import {
  emptyGroup,
  type HandOver,
  successorOf,
  withChange,
} from "../../../../src/client/groups/statements.ts";
import {
  doneHandOvers,
  isOverruled,
  isWitnessed,
  type Shown,
  successorIdOf,
  withShown,
} from "../../../../src/client/groups/witnesses.ts";
import type { Did } from "../../../../src/core/codec/did.ts";
import { identityOf } from "../../../support/identity.ts";

const nowMs = 1_790_000_000_000;
const [alice, bob, carol, dave, eve, own] = ["alice", "bob", "carol", "dave", "eve", "own"].map(
  (name) => identityOf(name).did,
) as [Did, Did, Did, Did, Did, Did];
const groupOf = (...add: readonly Did[]) =>
  withChange(emptyGroup(alice, "n"), { name: "Hiking", add }, nowMs);
const { id, maker, nonce } = groupOf();
const one: HandOver = { id, maker, nonce, next: carol };

test("two people are enough, or the only one there is; never those whom it is about, and no one who is not in", () => {
  const asked = (members: readonly Did[], by: readonly Did[]) => {
    const shown = by.reduce<Shown>((all, from) => withShown(all, from, [one]), {});
    return isWitnessed(one, { state: groupOf(...members), shown, own });
  };
  const four = [alice, carol, own, bob];
  expect(asked(four, [bob])).toBe(true);
  expect(asked(four, [alice, carol, own, dave])).toBe(false);
  const six = [...four, dave, eve];
  expect([asked(six, [bob]), asked(six, [bob, carol]), asked(six, [bob, eve])]).toEqual([
    ...[false, false],
    true,
  ]);
  expect(asked([alice, carol, own], [alice, carol, own, bob])).toBe(false);
});

test("of a member what they have shown last counts, and what shows nothing changes nothing", () => {
  const first = withShown({}, bob, [one]);
  expect(withShown(first, bob, [one])).toBe(first);
  expect(withShown(first, bob, [])).toBe(first);
  const other = { ...one, next: dave };
  const many = Array.from({ length: 40 }, (_, n) => ({ ...one, id: `${n}` }));
  expect(withShown(first, bob, [other])).toEqual({ [bob]: [successorIdOf(other)] });
  expect(withShown(first, bob, many)[bob]?.length).toBe(16);
});

test("of a way of several hand-overs each counts whose next admin has handed over in turn, or has founded", () => {
  const state = successorOf({ ...groupOf(alice, carol), next: carol });
  const next: HandOver = { id: successorIdOf(one), maker: carol, nonce: id, next: dave };
  expect(state?.id).toBe(next.id);
  const all = [one, next];
  const done = (founded: readonly string[], isBelieved = (_: HandOver) => true) =>
    doneHandOvers(all, new Set(founded), isBelieved).length;
  expect([done([]), done([successorIdOf(one)]), done([successorIdOf(next)])]).toEqual([0, 1, 2]);
  expect(done([successorIdOf(next)], ({ next: to }) => to === carol)).toBe(0);
});

test("to the maker all others must show it, and to no one does it count once the maker has written under a later key", () => {
  const shown = [bob, dave].reduce<Shown>((all, from) => withShown(all, from, [one]), {});
  const five = groupOf(alice, carol, bob, dave, eve);
  expect(isWitnessed(one, { state: five, shown, own: eve })).toBe(true);
  expect(isWitnessed(one, { state: five, shown, own: alice })).toBe(false);
  const all = withShown(shown, eve, [one]);
  expect(isWitnessed(one, { state: five, shown: all, own: alice })).toBe(true);
  const [first, second] = ["11", "22"] as const;
  const roots = [first, second];
  const signed = { ...one, key: first };
  expect(isOverruled(signed, { id, key: second }, roots)).toBe(true);
  expect(isOverruled(signed, { id, key: first }, roots)).toBe(false);
  expect(isOverruled(signed, { id: successorIdOf(one), key: second }, roots)).toBe(false);
  expect(isOverruled(signed, undefined, roots)).toBe(false);
});
