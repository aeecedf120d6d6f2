/**
 * Hand-overs that only a replaced key of their maker has signed: a thief may have that key, and no
 * signature has a time. One of them has done its work where the next admin has founded their group,
 * and where people who are in say that they went there; then it counts, since it says nothing that
 * the next admin has not signed.
 * Source: docs/trust.md ("Own devices"), docs/protocol.md ("Groups"), D676.
 */
import type { Did } from "../../core/codec/did.ts";
import { type GroupState, groupIdOf, type HandOver, membersOf } from "./statements.ts";

/** So many people are enough, apart from the two whom it is about. */
const witnessesMax = 2;
const idsMax = 16;

/** By DID of a member, the groups to which hand-overs lead that they have shown last. */
export type Shown = Readonly<Record<string, readonly string[]>>;

/** The group to which a hand-over leads. */
export const successorIdOf = ({ id, next }: Pick<HandOver, "id" | "next">): string =>
  groupIdOf(next, id);

/** With what a member shows. The same object when nothing changes, and when nothing is shown. */
export function withShown(shown: Shown, from: Did, all: readonly HandOver[]): Shown {
  const ids = all.slice(0, idsMax).map(successorIdOf).sort();
  if (ids.length === 0 || shown[from]?.join() === ids.join()) return shown;
  return { ...shown, [from]: ids };
}

type Seen = { readonly state: GroupState; readonly shown: Shown; readonly own: Did };

/**
 * Whether enough people show that they have followed it: two, or the only one there is; to the
 * maker all. They are in by the state that is known here, and neither this identity nor one of
 * the two whom it is about.
 */
export function isWitnessed(one: HandOver, { state, shown, own }: Seen): boolean {
  const about: readonly string[] = [own, one.maker, one.next];
  const others = membersOf(state).filter((did) => !about.includes(did));
  const id = successorIdOf(one);
  const witnesses = others.filter((did) => shown[did]?.includes(id));
  const needed = own === one.maker ? others.length : Math.min(witnessesMax, others.length);
  return witnesses.length > 0 && witnesses.length >= needed;
}

/**
 * Whether its maker has written to the group under a later key: they had not handed it over.
 * `roots`: all of theirs, in order.
 */
export function isOverruled(
  { id, key }: HandOver & { readonly key: string },
  spoke: { readonly id: string; readonly key: string } | undefined,
  roots: readonly string[],
): boolean {
  return spoke?.id === id && roots.indexOf(spoke.key) > roots.indexOf(key);
}

/**
 * Of hand-overs by an earlier key those that have done their work. `founded` are the
 * groups of which an admin has said something by their key in force: what they are, or
 * whose they are from then on.
 */
export function doneHandOvers<One extends HandOver>(
  earlier: readonly One[],
  founded: ReadonlySet<string>,
  isBelieved: (one: One) => boolean,
): One[] {
  const known = new Set(founded);
  const done: One[] = [];
  for (;;) {
    const next = earlier.find(
      (one) => !done.includes(one) && known.has(successorIdOf(one)) && isBelieved(one),
    );
    if (next === undefined) return done;
    done.push(next);
    known.add(next.id);
  }
}
