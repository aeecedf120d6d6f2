/**
 * What the changes of a group mean: a change is the whole state and a version. Only the creator, whom the id of the group
 * names, makes changes, and everybody may leave.
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

/** Nobody else can make a group with this id, or a change of it. */
export const groupIdOf = (admin: string, nonce: string): string =>
  uuidOf(sha256(utf8(`waypost:group:${admin}:${nonce}`)).subarray(0, 16));

export const membersOf = ({ members, left }: Pick<GroupState, "members" | "left">): Did[] =>
  (Object.keys(members) as Did[]).filter((did) => isIn({ members, left }, did));

export const isIn = ({ members, left }: Pick<GroupState, "members" | "left">, did: string): boolean =>
  (members[did] ?? 0) > (left[did] ?? 0);

export type GroupChange = { readonly id: string; readonly from: Did; readonly json: unknown };

/** The state after a change; `null` for one that counts for nothing: malformed, foreign, repeated or overtaken. */
export function decideChange(before: GroupState | null, { id, from, json }: GroupChange): GroupState | null {
  if (!isRecord(json) || json["v"] !== 1) return null;
  const { left, version, nonce, name, members } = json;
  if (left !== undefined) {
    if (before === null || !isVersion(left) || !isIn(before, from)) return null;
    return { ...before, left: { ...before.left, [from]: left } };
  }
  if (!isVersion(version) || version <= (before?.version ?? 0) || !isName(name)) return null;
  if (typeof nonce !== "string" || nonce.length > 64 || groupIdOf(from, nonce) !== id) return null;
  if (!isRecord(members) || !isFollowing(before, members, version)) return null;
  // Who is out of the list needs no mark.
  const stillLeft = Object.entries(before?.left ?? {}).filter(([did]) => did in members);
  const state = { id, admin: from, nonce, version, name, members: members as GroupState["members"] };
  return { ...state, left: Object.fromEntries(stillLeft) };
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

export const standingOf = (row: GroupRow | null, own: Did): Standing => {
  if (row === null || !isIn(row, own)) return "out";
  return row.joined >= (row.members[own] ?? 0) ? "joined" : "asked";
};

/** Of two devices: the later state, and all that either knows of who left and what was accepted. */
export function mergeGroups(before: GroupRow | null, given: GroupRow): GroupRow {
  if (before === null) return given;
  const later = given.version > before.version ? given : before;
  const left: Record<string, number> = {};
  for (const did of Object.keys(later.members)) {
    const version = Math.max(before.left[did] ?? 0, given.left[did] ?? 0);
    if (version > 0) left[did] = version;
  }
  return { ...later, left, joined: Math.max(before.joined, given.joined) };
}
