/**
 * What the changes of a group mean: a change is the whole state and a version. Its admin makes changes, its maker first and
 * then whom each admin names; everybody may leave.
 * Source: docs/protocol.md ("Groups"), test/vectors/groups.
 */
import { type Did, isDid } from "../../core/codec/did.ts";
import { isRecord } from "../base/shapes.ts";
import { isName } from "../mail/notes.ts";
import { groupIdOf } from "./statements.ts";

type Versions = Readonly<Record<string, number>>;

/** What the changes so far say of a group . */
export type GroupState = {
  readonly id: string;
  readonly admin: Did;
  readonly maker: Did;
  /** With the maker's DID it makes the id. */
  readonly nonce: string;
  readonly version: number;
  readonly name: string;
  /** Since which version each is in it. */
  readonly members: Versions;
  /** Who left, and the version that they knew then. */
  readonly left: Versions;
};

export type GroupRow = GroupState & {
  /** Since which version this identity accepts to be in it; 0 when it does not. */
  readonly joined: number;
};

export const membersMax = 64;

export const membersOf = ({ members, left }: Pick<GroupState, "members" | "left">): Did[] =>
  (Object.keys(members) as Did[]).filter((did) => isIn({ members, left }, did));

export const isIn = (
  { members, left }: Pick<GroupState, "members" | "left">,
  did: string,
): boolean => (members[did] ?? 0) > (left[did] ?? 0);

export type GroupChange = { readonly id: string; readonly from: Did; readonly json: unknown };

/** The state after a change; `null` for one that counts for nothing: malformed, foreign, repeated or overtaken. */
export function decideChange(
  before: GroupState | null,
  { id, from, json }: GroupChange,
): GroupState | null {
  if (!isRecord(json) || json["v"] !== 1) return null;
  const { left: gone, version, maker, nonce, name, admin, members } = json;
  if (gone !== undefined) {
    if (before === null || !isVersion(gone) || !isIn(before, from)) return null;
    return { ...before, left: { ...before.left, [from]: gone } };
  }
  if (!isVersion(version) || version <= (before?.version ?? 0) || !isName(name)) return null;
  if (typeof maker !== "string" || !isDid(maker) || typeof nonce !== "string" || nonce.length > 64)
    return null;
  if (groupIdOf(maker, nonce) !== id || from !== (before?.admin ?? admin)) return null;
  if (!isRecord(members) || !isFollowing(before, members, version)) return null;
  const state = {
    members: members as GroupState["members"],
    left: leftOf(members, before?.left ?? {}),
  };
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

/** Who has accepted nothing of a group follows any admin, so that who puts them into it first keeps no one from the true one. */
export function decideFirst(
  before: GroupRow | null,
  change: GroupChange,
  own: Did,
): GroupState | null {
  if (before === null || before.joined > 0 || standingOf(before, own) === "out") return null;
  const state = decideChange(null, change);
  return state === null || state.admin === before.admin || !isIn(state, own) ? null : state;
}

const isVersion = (value: unknown): value is number =>
  Number.isSafeInteger(value) && Number(value) > 0;

/** Members came with an earlier version, as they stood, or came since: who left can't be in it again unnoticed. */
function isFollowing(
  before: GroupState | null,
  members: Record<string, unknown>,
  version: number,
): boolean {
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

/** Of two devices: the later state, but of two admins the one who was accepted, and all that either knows of who left. */
export function mergeGroups(before: GroupRow | null, given: GroupRow): GroupRow {
  if (before === null) return given;
  const isOneAccepted =
    before.admin !== given.admin && (before.joined === 0) !== (given.joined === 0);
  const isGiven = isOneAccepted ? given.joined > 0 : given.version > before.version;
  const later = isGiven ? given : before;
  const left = leftOf(later.members, latest(before.left, given.left));
  return { ...later, left, joined: Math.max(before.joined, given.joined) };
}

function latest(before: GroupState["left"], given: GroupState["left"]): GroupState["left"] {
  const all = { ...before };
  for (const [did, version] of Object.entries(given)) all[did] = Math.max(version, all[did] ?? 0);
  return all;
}
