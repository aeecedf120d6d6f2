/**
 * Removals that the next admin of a group has not heard. An admin's device that goes on from an
 * older copy of its store may hand the group over without one that only a member had heard, and
 * another device of the admin may take somebody out before it hears of the hand-over. So members
 * keep what the former admin has signed, and the admin's devices what they had; they show it to the
 * next one, who takes it up as a maker does after new keys: a removal, and nothing else.
 * Source: docs/protocol.md ("Groups"), D643.
 */
import type { Did } from "../../core/codec/did.ts";
import { dayMs, secondMs } from "../../core/codec/time.ts";
import type { Succession } from "./handing.ts";
import { type GroupState, type MemberPart, mustWait, type Statement } from "./statements.ts";

/** After a hand-over, as long as a message may be on its way. */
const lateMs = 30 * dayMs;
const keptMax = 8;

/**
 * The state of the next admin with what a former one has signed. It counts of people of whom the
 * next one has said nothing since, and in no version that could count only later. The same
 * object when nothing changes.
 */
export function withRemovals(
  { state, former = [] }: Succession,
  statement: Statement,
  nowMs: number,
): GroupState {
  const handedOver = former.find(({ id }) => id === statement.id);
  if (handedOver === undefined || nowMs - handedOver.atMs > lateMs) return state;
  // A device of the former admin may not have heard of the hand-over for a long time.
  const lastMs = Math.max(handedOver.atMs, nowMs - dayMs);
  const gone: Record<string, MemberPart> = {};
  for (const [did, part] of Object.entries(statement.members)) {
    const [value, version] = part;
    const held = state.members[did];
    if (value !== "out" || held?.[0] !== "in" || did === state.maker) continue;
    const isOpen = held[1] <= version && held[1] * secondMs <= handedOver.atMs;
    if (isOpen && !mustWait([version], lastMs)) gone[did] = part;
  }
  if (Object.keys(gone).length === 0) return state;
  return { ...state, members: { ...state.members, ...gone } };
}

/** Statements of former admins by which somebody is out who is in here. */
export const missingRemovals = <Signed extends { readonly statement: Statement }>(
  row: Succession,
  kept: readonly Signed[],
  nowMs: number,
): Signed[] => kept.filter(({ statement }) => withRemovals(row, statement, nowMs) !== row.state);

/** What the one who is asked has not heard, as the next admin. */
export const removalsFor = <Signed extends { readonly statement: Statement }>(
  row: Succession & { readonly removals?: readonly Signed[] },
  to: Did,
  nowMs: number,
): Signed[] => (to === row.state.maker ? missingRemovals(row, row.removals ?? [], nowMs) : []);

/**
 * What a device of the former admin keeps: it signs that when it shows it,
 * by the key in force then.
 */
export function ownStatements({ id, maker, nonce, name, members }: GroupState, root: string) {
  const statement: Statement = { id, maker, nonce, name, members };
  return [{ statement, key: root, signature: "" }];
}

/** What a member keeps of the groups that the conversation was. */
export const keepFormer = <Signed>(...all: readonly (readonly Signed[])[]): Signed[] =>
  all.flat().slice(0, keptMax);
