/**
 * What the changes of a group mean: a change is the whole state and a version. Its admin makes changes, its maker first and
 * then whom each admin names; everybody may leave. A member who names themselves is the admin for those who accept that.
 * Source: docs/protocol.md ("Groups"), test/vectors/groups.
 */
import { sha256 } from "#sha256";
import { utf8 } from "../../core/codec/bytes.ts";
import { type Did, isDid } from "../../core/codec/did.ts";
import { isRecord } from "../answers.ts";
import { uuidOf } from "../crypto.ts";
import { isName } from "../notes.ts";
import type { GroupRow, GroupState } from "./rows.ts";

export const membersMax = 64;

/** Nobody who does not know the nonce can make a change of it. */
export const groupIdOf = (maker: string, nonce: string): string =>
  uuidOf(sha256(utf8(`waypost:group:${maker}:${nonce}`)).subarray(0, 16));

export const membersOf = ({ members, left }: Pick<GroupState, "members" | "left">): Did[] =>
  (Object.keys(members) as Did[]).filter((did) => isIn({ members, left }, did));

export const isIn = ({ members, left }: Pick<GroupState, "members" | "left">, did: string): boolean =>
  (members[did] ?? 0) > (left[did] ?? 0);

export type GroupChange = { readonly id: string; readonly from: Did; readonly json: unknown };

/** The state after a change; `null` for one that counts for nothing: malformed, foreign, repeated or overtaken. */
export function decideChange(before: GroupState | null, { id, from, json }: GroupChange): GroupState | null {
  if (!isRecord(json) || json["v"] !== 1) return null;
  const { left: gone, version, maker, nonce, name, admin, members } = json;
  if (gone !== undefined) {
    if (before === null || !isVersion(gone) || !isIn(before, from)) return null;
    return { ...before, left: { ...before.left, [from]: gone } };
  }
  if (!isVersion(version) || version <= (before?.version ?? 0) || !isName(name)) return null;
  if (typeof maker !== "string" || !isDid(maker) || typeof nonce !== "string" || nonce.length > 64) return null;
  if (groupIdOf(maker, nonce) !== id || from !== (before?.admin ?? admin)) return null;
  if (!isRecord(members) || !isFollowing(before, members, version)) return null;
  const state = { members: members as GroupState["members"], left: leftOf(members, before?.left ?? {}) };
  return typeof admin !== "string" || !isIn(state, admin)
    ? null
    : { id, maker, nonce, version, name, admin: admin as Did, ...state };
}

/** Who is out of the list needs no mark. */
const leftOf = (members: object, left: GroupState["left"]): GroupState["left"] =>
  Object.fromEntries(Object.entries(left).filter(([did]) => did in members));

/** The change that makes this state. */
export function changeTo({ version, maker, nonce, name, admin, members }: GroupState) {
  return { v: 1, version, maker, nonce, name, admin, members };
}

/** What a change would make of the group if this identity accepted its sender as the admin. `null` when nobody is asked. */
export function decideClaim(before: GroupRow, change: GroupChange, own: Did): GroupState | null {
  const claim = decideChange(null, change);
  const waits = before.claim;
  const isRepeated = claim !== null && waits?.admin === claim.admin && claim.version <= waits.version;
  return isRepeated ? null : openClaim({ ...before, claim }, own);
}

/** The claim that this user accepts or declines: one that leaves them in the group. */
export function waitingClaim(row: GroupRow, own: Did): GroupState | null {
  const claim = openClaim(row, own);
  return claim !== null && isIn(claim, own) ? claim : null;
}

/**
 * A claim that may hold: a member was named while this identity was away, or the admin is lost. Who has accepted nothing of
 * the group hears everybody, so that who puts them into it first keeps nobody from the true one.
 */
function openClaim({ claim: given, ...row }: GroupRow, own: Did): GroupState | null {
  if (given === null || row.admin === own || standingOf(row, own) === "out") return null;
  const claim = { ...given, left: leftOf(given.members, row.left) };
  const { admin, version } = claim;
  if (admin === row.admin || version <= (row.declined[admin] ?? 0) || !isIn(claim, admin)) return null;
  const isHeard = row.joined === 0 ? isIn(claim, own) : isIn(row, admin) && version > row.version;
  return isHeard ? claim : null;
}

/** After the admin was heard, who names nobody or whom the claim is of: their change had overtaken this one, and follows. */
export function withHeard({ claim, ...row }: GroupRow): GroupRow {
  if (claim === null) return { ...row, claim };
  const state = decideChange(row, { id: row.id, from: claim.admin, json: changeTo(claim) });
  return { ...row, ...state, claim: null };
}

const isVersion = (value: unknown): value is number => Number.isSafeInteger(value) && Number(value) > 0;

/** Members came with an earlier version, as they stood, or came since: who left can't be in it again unnoticed. */
function isFollowing(before: GroupState | null, members: Record<string, unknown>, version: number): boolean {
  const all = Object.entries(members);
  const isFit = ([did, since]: [string, unknown]) => {
    if (!isDid(did) || !isVersion(since) || since > version) return false;
    return since > (before?.version ?? 0) || since === before?.members[did];
  };
  return all.length > 0 && all.length <= membersMax && all.every(isFit);
}

export type Standing = "joined" | "asked" | "out";

export const standingOf = (row: Omit<GroupRow, "claim"> | null, own: Did): Standing => {
  if (row === null || !isIn(row, own)) return "out";
  return row.joined >= (row.members[own] ?? 0) ? "joined" : "asked";
};

/** Of two devices: the later state, all that either knows of who left and what was accepted or declined, and what waits. */
export function mergeGroups(before: GroupRow | null, given: GroupRow): GroupRow {
  if (before === null) return given;
  const later = given.version > before.version ? given : before;
  const left = leftOf(later.members, latest(before.left, given.left));
  const declined = latest(before.declined, given.declined);
  const row = { ...later, left, declined, joined: Math.max(before.joined, given.joined) };
  const isOpen = (claim: GroupState) => claim.version > (declined[claim.admin] ?? 0);
  let waits: GroupState | null = null;
  for (const { claim, version } of [before, given]) {
    if (claim === null || !isOpen(claim)) continue;
    if (claim.admin === later.admin && claim.version > later.version) return withHeard({ ...row, claim });
    if (version === later.version && (waits === null || isBehind(waits, claim))) waits = claim;
  }
  return { ...row, claim: waits };
}

/** In one order on all devices. */
const isBehind = (one: GroupState, other: GroupState): boolean =>
  one.version < other.version || (one.version === other.version && one.admin < other.admin);

function latest(before: GroupState["left"], given: GroupState["left"]): GroupState["left"] {
  const all = { ...before };
  for (const [did, version] of Object.entries(given)) all[did] = Math.max(version, all[did] ?? 0);
  return all;
}
