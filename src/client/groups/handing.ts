/**
 * Handing a group over, as pure rules. The admin of a group id is its maker for good, so the next
 * admin founds another id, that of (their DID, the id before), and the conversation goes on there.
 * A hand-over is written once: the first that was followed holds. Before an admin signs one, each
 * of their own devices says that it has signed no other.
 * Source: docs/protocol.md ("Groups"), test/vectors/groups.
 */
import { type Did, isDid } from "../../core/codec/did.ts";
import { minuteMs } from "../../core/codec/time.ts";
import { isInteger, isRecord } from "../base/shapes.ts";
import {
  emptyGroup,
  type GroupState,
  groupIdOf,
  type HandOver,
  hearHandOver,
  isIn,
  successorOf,
} from "./statements.ts";

/** After so long the user may go on without the other devices. */
export const goOnMs = 10 * minuteMs;
/** Of one conversation. */
export const handOversMax = 16;

/** A group that this conversation was, and when this identity went on to the next. */
export type Former = HandOver & { readonly atMs: number };

export type Succession = {
  readonly state: GroupState;
  readonly former?: readonly Former[];
  /**
   * Somebody else to whom a former admin has handed the group over, too: not followed, and shown.
   */
  readonly second?: Did | null;
};

/** Ids under which others may know the conversation, the first one first. */
export const namesOf = ({ former = [], state }: Succession): readonly string[] => [
  ...former.map(({ id }) => id),
  state.id,
];

/**
 * Goes on to the next group as far as hand-overs lead that count: when its admin has said something
 * there (`founded` has its id), or has handed it over in turn. The state of the next group is empty
 * until what its admin said is joined.
 */
export function follow<Row extends Succession>(
  row: Row,
  handOvers: readonly HandOver[],
  { founded, nowMs }: { readonly founded: ReadonlySet<string>; readonly nowMs: number },
): Row {
  let now = row;
  for (const one of handOvers) now = withHandOver(now, one);
  const next = successorOf(now.state);
  const isNamed = next !== null && handOvers.some(({ id }) => id === next.id);
  const isFull = (now.former ?? []).length >= handOversMax;
  if (next === null || isFull || !(isNamed || founded.has(next.id))) return now;
  const { maker, nonce } = next;
  const gone = { ...goneOn(now, nowMs), state: emptyGroup(maker, nonce) };
  return follow(gone, handOvers, { founded, nowMs });
}

/** Whether this conversation has gone on by it, or will: of others its maker says nothing more. */
export function isFollowed(
  { state, former = [] }: Succession,
  { id, next }: Pick<HandOver, "id" | "next">,
): boolean {
  const isOf = (one: { readonly id: string; readonly next?: Did }) =>
    one.id === id && one.next === next;
  return isOf(state) || former.some(isOf);
}

/**
 * How often the conversation was handed over, as far as it is known here; no more often than
 * `handOversMax` it may be.
 */
export function timesHandedOver(
  { state, former = [] }: Succession,
  handOvers: readonly HandOver[],
): number {
  const ways = new Map(handOvers.map((one) => [groupIdOf(one.next, one.id), one.id]));
  let times = 0;
  for (let id = ways.get(state.id); id !== undefined && times < handOversMax; id = ways.get(id))
    times++;
  return Math.max(times, former.length);
}

/** Whether another one is the admin as soon as they know: until they are in, the maker stays it. */
export const isHandedOver = (state: GroupState): boolean =>
  state.next !== undefined && isIn(state, state.next);

/** For who has not followed: what it came from doesn't count any more. */
export function withoutNext({ next: _, ...state }: GroupState): GroupState {
  return state;
}

/**
 * The next admin goes on with the state as it is. The same object when this identity is not
 * the next admin, or not in.
 */
export function found<Row extends Succession>(row: Row, own: Did, nowMs: number): Row {
  const isFull = (row.former ?? []).length >= handOversMax;
  const state = isHandedOver(row.state) && !isFull ? successorOf(row.state) : null;
  return state?.maker === own ? { ...goneOn(row, nowMs), state } : row;
}

function goneOn<Row extends Succession>(row: Row, atMs: number): Row {
  const { id, maker, nonce, next } = row.state;
  const left: Former = { id, maker, nonce, next: next as Did, atMs };
  return { ...row, former: [...(row.former ?? []), left] };
}

function withHandOver<Row extends Succession>(row: Row, one: HandOver): Row {
  const { state, former = [] } = row;
  const before = one.id === state.id ? state.next : former.find(({ id }) => id === one.id)?.next;
  if (before !== undefined && before !== one.next) {
    const heard = hearHandOver(state, one);
    const second = heard.next === one.next && heard !== state ? before : one.next;
    return { ...row, state: heard, second };
  }
  const heard = hearHandOver(state, one);
  return heard === state ? row : { ...row, state: heard };
}

/**
 * Of two own devices the one that has gone further on the same way. Where they went different ways
 * each keeps its own: what was followed holds, and of when a device did so there is only its word.
 */
export function furtherOf(held: Succession, given: Succession): "held" | "given" | "both" {
  if (held.state.id === given.state.id) return "both";
  return namesOf(given).includes(held.state.id) ? "given" : "held";
}

/**
 * The way as another own device has gone on, from where this one stands: the
 * conversation stays at its place.
 */
export function wayOn(held: Succession, given: Succession): readonly Former[] {
  const { former = [] } = given;
  const at = former.findIndex(({ id }) => id === held.state.id);
  return at < 0 ? (held.former ?? []) : [...(held.former ?? []), ...former.slice(at)];
}

// ------------------------------------------------------------------------------------- own devices

/** Whether each id is that of its maker and nonce. */
export const isNamedRight = ({ former = [], state }: Succession): boolean =>
  [...former, state].every(({ id, maker, nonce }) => id === groupIdOf(maker, nonce));

/** Whether the way that another own device says it has gone is one of hand-overs that count. */
export function isBacked(
  { former = [], state }: Succession,
  counting: readonly HandOver[],
): boolean {
  const isWay = former.every(({ id, maker, nonce, next }, at) => {
    const after = former[at + 1] ?? state;
    const leads = id === groupIdOf(maker, nonce) && after.maker === next && after.nonce === id;
    const isOf = (one: HandOver) => one.id === id && one.next === next;
    return leads && counting.some(isOf);
  });
  return isWay && state.id === groupIdOf(state.maker, state.nonce);
}

/** To whom a device of the admin wants to hand the group over, and which others have answered. */
export type HandOverWish = {
  readonly to: Did;
  /** The device. */
  readonly by: Did;
  readonly sinceMs: number;
  readonly agreed: readonly Did[];
};

const answersMax = 64;

const isDidText = (json: unknown): json is Did => typeof json === "string" && isDid(json);

/** `null` for another form. */
export function wishIn(json: unknown): HandOverWish | null {
  const { to, by, sinceMs, agreed } = isRecord(json) ? json : {};
  // Where there is one device it has no name.
  const isNamed = by === "" || isDidText(by);
  if (!isDidText(to) || !isNamed || !isInteger(sinceMs) || !Array.isArray(agreed)) return null;
  return { to, by: by as Did, sinceMs, agreed: agreed.filter(isDidText).slice(0, answersMax) };
}

/** Of two the earlier one counts: its device gets answers, and the other one's gives its own up. */
export function joinWishes(a: HandOverWish | null, b: HandOverWish | null): HandOverWish | null {
  if (a === null || b === null) return a ?? b;
  if (a.to === b.to && a.by === b.by && a.sinceMs === b.sinceMs)
    return { ...a, agreed: [...new Set([...a.agreed, ...b.agreed])].sort() };
  if (a.sinceMs !== b.sinceMs) return a.sinceMs < b.sinceMs ? a : b;
  return a.by < b.by ? a : b;
}

/** The answer of a device to what another one wants; the same when it has answered. */
export function agreeTo(wish: HandOverWish, device: Did): HandOverWish {
  if (wish.by === device || wish.agreed.includes(device)) return wish;
  return { ...wish, agreed: [...wish.agreed, device].sort() };
}

/** Whether the device may sign: all others have answered it. */
export const mayHandOver = (wish: HandOverWish, device: Did, others: readonly Did[]): boolean =>
  wish.by === device && others.every((one) => wish.agreed.includes(one));
