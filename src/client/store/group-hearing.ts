/**
 * What a device hears of a group, joined in its row: statements, leavings and hand-overs that were
 * judged (`group-judging.ts`), what waits, and what a change of it is for the program.
 * Source: docs/client.md "People and groups", docs/protocol.md "Groups".
 */
import { encodeBase64, utf8 } from "../../core/codec/bytes.ts";
import type { Did } from "../../core/codec/did.ts";
import { dayMs, secondMs } from "../../core/codec/time.ts";
import { localError } from "../base/failure.ts";
import {
  addWaiting,
  type Bundle,
  followedIn,
  type GroupRow,
  historyLine,
  keepHandOvers,
  keepLeavings,
  keepStatements,
  membersMax,
  newRow,
  overtaken,
  type SignedHandOver,
  type SignedLeaving,
  type SignedStatement,
  type Standing,
  standingOf,
  upgradeRow,
  withSignedNext,
  withState,
} from "../groups/bundles.ts";
import { follow, goOnMs, isHandedOver, namesOf, withoutNext } from "../groups/handing.ts";
import { keepFormer, missingRemovals, ownStatements, withRemovals } from "../groups/removals.ts";
import {
  emptyGroup,
  type GroupState,
  hear,
  hearLeaving,
  isDue,
  isIn,
  isSameState,
  membersOf,
  mergeOwn,
  nearState,
  withNearVersions,
} from "../groups/statements.ts";
import { doneHandOvers, isWitnessed, withShown } from "../groups/witnesses.ts";
import type { Body } from "./files.ts";
import { groupAt, isEmpty, putGroup, refile } from "./group-rows.ts";
import { rowsOf } from "./keys.ts";
import type { OwnStore } from "./own-store.ts";
import type { Batch, Table } from "./table.ts";

/** So long after a restoration a hand-over may be missing: as long as messages are on their way. */
const restoredForMs = 30 * dayMs;
/** Of all, and of those whom strangers put this identity into: further ones are ignored. */
const [groupsMax, askedMax] = [1_000, 50];

export type Judged = "in_force" | "earlier" | "other" | "unknown";
/** A bundle whose signatures were looked at. */
export type Examined = {
  readonly from: Did;
  readonly statements: readonly { readonly one: SignedStatement; readonly by: Judged }[];
  readonly leavings: readonly { readonly one: SignedLeaving; readonly by: Judged }[];
  readonly handOvers: readonly { readonly one: SignedHandOver; readonly by: Judged }[];
  /** The hand-over that this device knows of is by a key that was replaced since. */
  readonly isNextOld: boolean;
  readonly sinceMs: number;
};

export type GroupListener = {
  readonly own: Did;
  /** Of this identity, in hex. */
  readonly root: string;
  readonly isKnown: boolean;
  readonly nowMs: number;
};

export type Heard = { readonly before: GroupRow | null; readonly after: GroupRow };

/** Joins what counts. `null`: it means nothing here. */
export async function hearBundle(
  table: Table,
  batch: Batch,
  { id, said }: { readonly id: string; readonly said: Examined },
  listener: GroupListener,
): Promise<Heard | null> {
  const before = await rowNamed(table, [id, ...said.handOvers.map(({ one }) => one.id)], batch);
  const begun = before?.state ?? said.statements[0]?.one.statement;
  if (begun === undefined) return null;
  const { maker, nonce } = begun;
  const known = before ?? newRow(emptyGroup(maker, nonce));
  const first = hearAll(known, said, listener);
  // What its admin has said of it comes first: the next one goes on with that.
  const mayFollow = first.waits.statements.length === 0;
  const gone = mayFollow ? followed(first.row, said, listener) : first.row;
  const isElsewhere = gone.state.id !== known.state.id;
  const last = isElsewhere ? hearAll(gone, said, listener) : { ...first, row: gone };
  const heard = last.row;
  const later = said.handOvers.filter(({ by }) => by === "unknown" || !mayFollow);
  const waits: Bundle = { ...last.waits, handOvers: later.map(({ one }) => one) };
  const { own, isKnown, nowMs } = listener;
  const waiting =
    waits.statements.length + waits.leavings.length + (waits.handOvers ?? []).length > 0;
  const { from, sinceMs } = said;
  let row: GroupRow = {
    ...heard,
    waiting: addWaiting(heard, waiting ? { bundle: waits, from, sinceMs } : null),
  };
  const { removals = [] } = row;
  if (removals.length > 0 && !isEmpty(row))
    row = { ...row, removals: missingRemovals(row, removals, nowMs) };
  const isFirst = before === null || isEmpty(before);
  const wasJoined = before !== null && standingOf(before, own) === "joined";
  if ((isFirst && isKnown) || (wasJoined && row.state.id !== before.state.id))
    row = isIn(row.state, own) ? { ...row, joined: row.state.members[own]?.[1] ?? 0 } : row;
  // Of a group of which nothing is known so far only its maker can make this identity wait.
  const isAwaited = waiting && isKnown && from === maker;
  if (before === null && !isIn(row.state, own) && !isAwaited) return null;
  if (before === null && !(await hasRoomForGroup(table, standingOf(row, own), own))) return null;
  if (before !== null && JSON.stringify(before) === JSON.stringify(row))
    return { before, after: row };
  await putGroup(table, batch, row);
  await refile(table, batch, row, own);
  return { before, after: row };
}

/**
 * The group that is known here by one of these ids: it may be shown under the one
 * that it has from now on.
 */
export async function rowNamed(
  table: Table,
  ids: readonly string[],
  from: Pick<Batch, "get"> = table,
): Promise<GroupRow | null> {
  for (const id of ids) {
    const row = await groupAt(table, id, from);
    if (row !== null) return row;
  }
  return null;
}

/** What a row that goes on to the next group keeps of it. */
export function removalsOf({ state, root, statements, removals = [] }: GroupRow, own: Did) {
  const said = state.maker === own ? ownStatements(state, root) : statements;
  return keepFormer<SignedStatement>(said, removals);
}

/** Ids of groups of which an admin has said something by their key in force. */
const foundedIn = ({ statements }: Examined): Set<string> =>
  new Set(statements.flatMap(({ one, by }) => (by === "in_force" ? [one.statement.id] : [])));

/**
 * With the hand-overs by earlier keys that a member shows. The same object where nothing changes.
 */
function heardShown(row: GroupRow, { from, handOvers }: Examined, own: Did): GroupRow {
  if (from === own || !isIn(row.state, from)) return row;
  const { shown = {} } = row;
  const earlier = handOvers.filter(({ by }) => by === "earlier").map(({ one }) => one);
  const after = withShown(shown, from, earlier);
  return after === shown ? row : { ...row, shown: after };
}

/**
 * Of an own group: whether this device has gone on under the keys in force, with all that it knew.
 */
const isUpToDate = (
  { root: under, restoredMs = 0 }: GroupRow,
  { root, nowMs }: Pick<GroupListener, "root" | "nowMs">,
): boolean => under === root && nowMs - restoredMs > restoredForMs;

/**
 * The hand-overs that count: by keys in force, and by earlier ones where they have done their work.
 * Of that another own device is believed where nothing is known of the group, or where it leads to
 * this identity; members where enough of them say so. `row`: before it was shown.
 */
export function countingHandOvers(
  row: GroupRow | null,
  said: Examined,
  listener: Pick<GroupListener, "own" | "root" | "nowMs">,
  alsoFounded: readonly string[] = [],
): SignedHandOver[] {
  const { own } = listener;
  const by = (wanted: Judged) =>
    said.handOvers.filter((all) => all.by === wanted).map(({ one }) => one);
  const inForce = by("in_force");
  const ids = new Set([...foundedIn(said), ...inForce.map(({ id }) => id), ...alsoFounded]);
  const { handOvers: held = [], shown = {} } = row ?? {};
  const isHeard = ({ id, next }: SignedHandOver) =>
    held.some((one) => one.id === id && one.next === next);
  const isBelieved = (one: SignedHandOver) => {
    const isNew = row === null || isEmpty(row);
    if (said.from === own && one.maker !== own && (isNew || one.next === own)) return true;
    if (one.maker !== own && isHeard(one)) return true;
    if (row === null || (one.maker === own && isUpToDate(row, listener))) return false;
    return isWitnessed(one, { state: row.state, shown, own });
  };
  return [...inForce, ...doneHandOvers(by("earlier"), ids, isBelieved)];
}

/**
 * As far as hand-overs lead that count, when nothing of this group waits that was said before them.
 */
export function followed(begun: GroupRow, said: Examined, listener: GroupListener): GroupRow {
  const { own, nowMs } = listener;
  const row = heardShown(begun, said, own);
  const known = said.isNextOld ? { ...row, state: withoutNext(row.state) } : row;
  const counting = countingHandOvers(row, said, listener);
  const gone = follow(known, counting, { founded: foundedIn(said), nowMs });
  const held = said.isNextOld
    ? (row.handOvers ?? []).filter((one) => one.id !== row.state.id)
    : (row.handOvers ?? []);
  const handOvers = keepHandOvers(counting, held);
  const isOther = gone.state.id !== row.state.id;
  // What its former admin has signed says nothing of it.
  if (!isOther) return { ...gone, handOvers };
  const { shown: _, restoredMs: _before, ...next } = gone;
  return { ...next, handOvers, statements: [], root: "", removals: removalsOf(row, own) };
}

export function hearAll(begun: GroupRow, said: Examined, listener: GroupListener) {
  let row = begun;
  const statements: SignedStatement[] = [];
  const leavings: SignedLeaving[] = [];
  for (const { one, by } of said.statements) {
    if (one.statement.id !== row.state.id) {
      row = takeUpRemovals(row, { one, by, from: said.from }, listener);
      continue;
    }
    // Of an earlier key, which a thief may have, only what own devices and members have heard.
    const isOwn = said.from === listener.own;
    const isOfGroup = isOwn || isIn(row.state, said.from);
    if (by === "earlier" && !isOfGroup) continue;
    const heard = by === "unknown" ? "wait" : hearOne(row, { one, by, isOwn }, listener);
    if (heard === "wait") statements.push(one);
    else row = heard;
  }
  for (const { one, by } of said.leavings) {
    const heard = by === "unknown" ? "wait" : leaveOne(row, { one, by }, listener);
    if (heard === "wait") leavings.push(one);
    else row = heard;
  }
  return { row, waits: { statements, leavings } };
}

/**
 * At the next admin, from members: what a former admin has signed by the key in force. Who has a
 * replaced one takes out no one.
 */
function takeUpRemovals(
  row: GroupRow,
  said: Examined["statements"][number] & { readonly from: Did },
  { own, nowMs }: GroupListener,
): GroupRow {
  const { one, by, from } = said;
  const isHeard = row.state.maker === own && (from === own || isIn(row.state, from));
  if (by !== "in_force" || !isHeard) return row;
  const state = withRemovals(row, one.statement, nowMs);
  return state === row.state ? row : withState(row, state, own);
}

/** `isOwn`: another own device brings it. */
type StatementHeard = {
  readonly one: SignedStatement;
  readonly by: Exclude<Judged, "unknown">;
  readonly isOwn: boolean;
};

function hearOne(
  row: GroupRow,
  { one, by, isOwn }: StatementHeard,
  { own, root, nowMs }: GroupListener,
): GroupRow | "wait" {
  const { statement, key } = one;
  const isMaker = row.state.maker === own;
  // Another device has made the keys in force, and says with which states it begins.
  if (isMaker && by === "in_force" && key === root && row.root !== root && row.root !== "") {
    const begun = { ...emptyGroup(statement.maker, statement.nonce), ...statement };
    const before = nearState(row.state, nowMs);
    const merged = mergeOwn({ root: 0, state: before }, { root: 1, state: begun });
    const state = withSignedNext(row, merged.state);
    const keysSince = versionAt(nowMs);
    return { ...withState(row, state, own), root, keysSince, handing: null };
  }
  const keysSince = isOwn ? undefined : row.keysSince;
  const state = hear(row.state, statement, { own, signedBy: by, nowMs, keysSince });
  if (state === "wait") return "wait";
  const heard = withState(row, state, own);
  const isKept = by === "in_force" && !isMaker;
  return isKept ? { ...heard, statements: keepStatements(row.statements, one) } : heard;
}

function leaveOne(
  row: GroupRow,
  { one, by }: { readonly one: SignedLeaving; readonly by: Exclude<Judged, "unknown"> },
  { own, nowMs }: GroupListener,
): GroupRow | "wait" {
  if (by !== "in_force") return row;
  // Of whom nothing is known so far: what put them in may come later.
  if (row.state.members[one.did] === undefined) return "wait";
  // Who leaves may not know so far that the group was handed over.
  const id = namesOf(row).includes(one.id) ? row.state.id : one.id;
  const state = hearLeaving(row.state, { ...one, id }, nowMs);
  if (state === "wait") return "wait";
  return { ...withState(row, state, own), leavings: keepLeavings(row.leavings, [one]) };
}

async function hasRoomForGroup(table: Table, standing: Standing, own: Did): Promise<boolean> {
  const rows = await table.scan<GroupRow>({ prefix: rowsOf.groups, limit: groupsMax });
  const asked = rows.filter(([, row]) => standingOf(upgradeRow(row), own) === "asked");
  return rows.length < groupsMax && (standing === "joined" || asked.length < askedMax);
}

/** What the history of a group shows of a change; `null` where people would see no difference. */
export function lineIn(before: GroupState | null, after: GroupState) {
  const isSeen =
    before === null ||
    before.maker !== after.maker ||
    before.name[0] !== after.name[0] ||
    membersOf(before).join() !== membersOf(after).join();
  const hasNewAdmin = before !== null && before.maker !== after.maker;
  return isSeen ? historyLine(after, before === null, hasNewAdmin) : null;
}

/**
 * The state, when others take it at once. Throws `clock_wrong` where a version is so far ahead that
 * they would wait for its time, and forget it: an earlier change was made while a clock was.
 */
export function countingState(state: GroupState, own: OwnStore): GroupState {
  const latestMs = own.latestMs();
  if (latestMs === null || nearState(state, latestMs) === state) return state;
  throw localError(
    "clock_wrong",
    "this group was changed while a clock was far ahead, so others would take no change now: replace the keys, and try again",
  );
}

export const isOther = (before: GroupRow | null, after: GroupRow): boolean =>
  before === null || !isSameState(before.state, after.state);

/**
 * What to say of it: whether a change by a device of this identity stays behind where another
 * person is the admin from now on.
 */
export function newsOf({ before, after }: Heard, own: Did): "group" | "overtaken" {
  const isLeft = before?.state.maker === own && after.state.maker !== own && !isEmpty(after);
  return isLeft && overtaken(before, { ...after, was: {} }, after) ? "overtaken" : "group";
}

/**
 * Who was in by an earlier key's word, of which nothing was known here, as on a restored device.
 */
export const putOut = (before: GroupState, after: GroupState): Did[] =>
  Object.entries(after.members)
    .filter(([did, [value]]) => value === "out" && before.members[did] === undefined)
    .map(([did]) => did as Did)
    .slice(0, membersMax);

/**
 * Not the next admin's group, nor one that own devices are handing over: for ten minutes
 * these wait for each other.
 */
export function mustBeAdmin({ state, handing = null }: GroupRow, nowMs: number): void {
  const { next } = state;
  if (isHandedOver(state)) throw localError("not_admin", `${next} is the admin from now on`);
  const isWaiting = handing !== null && next === undefined && isIn(state, handing.to);
  if (isWaiting && !isDue(handing.sinceMs, nowMs, goOnMs))
    throw localError("handing_over", `a device hands the group over to ${handing.to}`);
}

/** `isFirst`: at the device that has made the keys. */
export type UnderKeys = {
  readonly root: string;
  readonly isFirst: boolean;
  readonly own: Did;
  readonly nowMs: number;
};

/**
 * A group of this identity under its new keys: what devices had wished, or said of a time to come,
 * ends with the former ones.
 */
export function underKeys(row: GroupRow, { root, isFirst, own, nowMs }: UnderKeys): GroupRow {
  const near = withNearVersions(row.state, nowMs);
  const state = isFirst ? near : withSignedNext(row, withoutNext(near));
  const handOvers = followedIn({ ...row, state }, row.handOvers ?? [], own);
  const keysSince = versionAt(nowMs);
  return { ...row, state, root, keysSince, isUntold: isFirst, handOvers, handing: null };
}

/** Versions are seconds. */
export const versionAt = (nowMs: number): number => Math.floor(nowMs / secondMs);

export const inlineJson = (json: unknown): Body => ({
  is: "inline",
  base64: encodeBase64(utf8(JSON.stringify(json))),
});

export const waitingIn = ({
  waiting,
}: Pick<GroupRow, "waiting">): readonly (Bundle & {
  readonly from: Did;
  readonly sinceMs: number;
})[] => waiting.map(({ bundle, from, sinceMs }) => ({ ...bundle, from, sinceMs }));
