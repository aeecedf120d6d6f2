/**
 * What a group says of itself, as pure rules. The admin of a group is its maker. A statement is a
 * whole state that the maker's root key signed; each part of it (the name, whether somebody is in)
 * has a version, and of two parts the later one counts. So states join in any order to the same
 * one, on every device and at every member. Who leaves signs that with the own root key.
 * Source: docs/protocol.md ("Groups"), test/vectors/groups.
 */
import { sha256 } from "#sha256";
import { encodeHex, utf8 } from "../../core/codec/bytes.ts";
import { type Did, isDid } from "../../core/codec/did.ts";
import { dayMs, hourMs, secondMs } from "../../core/codec/time.ts";
import { isInteger, isName, isRecord } from "../base/shapes.ts";
import { isReached } from "../base/times.ts";
import { uuidOf } from "../keys/crypto.ts";

/** Parts of one statement: of each who was ever in it one stays. */
const partsMax = 1_000;
/**
 * Beyond it an earlier key or another own device adds nobody: a statement has room
 * for what its maker says.
 */
const addedPartsMax = 500;
/** Likewise, in JSON: a DID may be long. Half of a bundle. */
const addedCharactersMax = 30_000;
export const nonceCharactersMax = 64;

type VersionedPart<Value extends string = string> = readonly [value: Value, version: number];
export type MemberPart = VersionedPart<"in" | "out">;

export type GroupState = {
  readonly id: string;
  /** The admin. With the nonce it makes the id. */
  readonly maker: Did;
  readonly nonce: string;
  readonly name: VersionedPart;
  readonly members: Readonly<Record<string, MemberPart>>;
  /** Who left, and the version in which they had come. */
  readonly left: Readonly<Record<string, number>>;
  /** To whom the maker has handed the group over, once and for good. */
  readonly next?: Did;
};

/** What a signature of the maker covers. */
export type Statement = Pick<GroupState, "id" | "maker" | "nonce" | "name" | "members">;
export type Leaving = { readonly id: string; readonly did: Did; readonly version: number };

/** What a signature of the maker covers that hands the group `id` over. */
export type HandOver = {
  readonly id: string;
  readonly maker: Did;
  readonly nonce: string;
  readonly next: Did;
};

/** Only who knows the nonce can make a statement of the group. */
export const groupIdOf = (maker: string, nonce: string): string =>
  uuidOf(sha256(utf8(`waypost:group:${maker}:${nonce}`)).subarray(0, 16));

export function emptyGroup(maker: Did, nonce: string): GroupState {
  return { id: groupIdOf(maker, nonce), maker, nonce, name: ["", 0], members: {}, left: {} };
}

// ---------------------------------------------------------------------------------- canonical form

/** Of a group, by DID: JSON without spaces, integers and text as in RFC 8785. */
const sortedEntries = <T>(record: Readonly<Record<string, T>>): [string, T][] =>
  Object.entries(record).sort(([a], [b]) => (a < b ? -1 : 1));

const comparedParts = ({ id, maker, nonce, name, members }: Statement) =>
  [id, maker, nonce, name, sortedEntries(members).map(([did, part]) => [did, ...part])] as const;

/** What the maker's root key signs. */
export const statementText = (statement: Statement): Uint8Array =>
  utf8(`svc:group:v2|${JSON.stringify(comparedParts(statement))}`);

/** What the root key of who leaves signs. */
export const leavingText = ({ id, did, version }: Leaving): Uint8Array =>
  utf8(`svc:group-left:v2|${JSON.stringify([id, did, version])}`);

/** What the root key of a maker signs who hands the group over. */
export const handOverText = ({ id, next }: HandOver): Uint8Array =>
  utf8(`svc:group-next:v2|${JSON.stringify([id, next])}`);

/**
 * Of a whole state: of those who left only who would be in otherwise. Names the state in
 * each message to the group.
 */
export function stateDigest(state: GroupState): string {
  const gone = sortedEntries(state.left).filter(
    ([did, version]) => state.members[did]?.[0] === "in" && state.members[did][1] <= version,
  );
  const next = state.next === undefined ? [] : [state.next];
  const text = JSON.stringify([...comparedParts(state), gone, ...next]);
  return encodeHex(sha256(utf8(`svc:group-state:v2|${text}`)).subarray(0, 16));
}

// ----------------------------------------------------------------------------------------- reading

const isVersion = (value: unknown): value is number => isInteger(value) && value >= 0;

/** `null` for JSON of another form, and for one whose id is not that of its maker and nonce. */
export function parseStatement(json: unknown): Statement | null {
  if (!isRecord(json)) return null;
  const { maker, nonce, name, members } = json;
  if (typeof maker !== "string" || !isDid(maker) || typeof nonce !== "string") return null;
  if (nonce.length > nonceCharactersMax || !nonce.isWellFormed()) return null;
  if (!Array.isArray(name) || name.length !== 2 || !isRecord(members)) return null;
  const [text, version] = name as readonly unknown[];
  if (!isName(text) || !text.isWellFormed() || !isVersion(version)) return null;
  const all = Object.entries(members);
  if (all.length > partsMax || !all.every(([did, part]) => isDid(did) && isMemberPart(part)))
    return null;
  const id = groupIdOf(maker, nonce);
  return { id, maker, nonce, name: [text, version], members: members as Statement["members"] };
}

const isMemberPart = (part: unknown): part is MemberPart =>
  Array.isArray(part) &&
  part.length === 2 &&
  (part[0] === "in" || part[0] === "out") &&
  isVersion(part[1]);

/**
 * Of what another own device says only what others would read: one part of another form makes a
 * whole statement none. `null` when it names no group.
 */
export function readableState(json: unknown): GroupState | null {
  const state = isRecord(json) ? json : {};
  const { id, maker, nonce, next } = state;
  if (typeof id !== "string" || typeof maker !== "string" || !isDid(maker)) return null;
  if (typeof nonce !== "string" || nonce.length > nonceCharactersMax || !nonce.isWellFormed())
    return null;
  const [text, version] = Array.isArray(state["name"]) ? (state["name"] as readonly unknown[]) : [];
  const isNamed = isName(text) && text.isWellFormed() && isVersion(version);
  const members = partsIn(state["members"]).filter(([, part]) => isMemberPart(part));
  const left = partsIn(state["left"]).filter(([, version]) => isVersion(version));
  return {
    ...{ id, maker, nonce },
    name: isNamed ? [text, version] : ["", 0],
    members: Object.fromEntries(members) as GroupState["members"],
    left: Object.fromEntries(left) as GroupState["left"],
    ...(typeof next === "string" && isDid(next) ? { next } : {}),
  };
}

const partsIn = (json: unknown): [string, unknown][] =>
  Object.entries(isRecord(json) ? json : {}).filter(([did]) => isDid(did));

/**
 * Without people of whom nothing is known here, where there is no room for them;
 * those who are in come first.
 */
export function withRoom(given: GroupState, known: GroupState): GroupState {
  const members = membersWithRoom(given.members, known.members);
  if (members === given.members) return given;
  const left = Object.entries(given.left).filter(([did]) => members[did] !== undefined);
  return { ...given, members, left: Object.fromEntries(left) };
}

type Members = GroupState["members"];

function membersWithRoom(given: Members, known: Members): Members {
  const added = Object.entries(given).filter(([did]) => known[did] === undefined);
  const held = Object.entries(known);
  let [count, characters] = [held.length, JSON.stringify(held).length];
  const kept = added
    .toSorted(([, [a]], [, [b]]) => compareText(a, b))
    .filter((part) => {
      count += 1;
      characters += JSON.stringify(part).length + 1;
      return count <= addedPartsMax && characters <= addedCharactersMax;
    });
  if (kept.length === added.length) return given;
  const others = Object.entries(given).filter(([did]) => known[did] !== undefined);
  return Object.fromEntries([...others, ...kept]);
}

// ----------------------------------------------------------------------------------------- joining

/**
 * The later part. Of one version "out" counts before "in", and of names the one with greater bytes.
 */
function laterPart<Value extends string>(
  a: VersionedPart<Value> | undefined,
  b: VersionedPart<Value> | undefined,
): VersionedPart<Value> {
  if (a === undefined || b === undefined) return (a ?? b) as VersionedPart<Value>;
  if (a[1] !== b[1]) return a[1] > b[1] ? a : b;
  return compareText(a[0], b[0]) >= 0 ? a : b;
}

function compareText(a: string, b: string): number {
  const [left, right] = [utf8(a), utf8(b)];
  for (let i = 0; i < Math.min(left.length, right.length); i++)
    if (left[i] !== right[i]) return (left[i] as number) - (right[i] as number);
  return left.length - right.length;
}

/**
 * Commutative, associative and idempotent: who has heard the same has the same state. The same
 * object when nothing changes.
 */
export function joinStates(
  state: GroupState,
  other: Statement & Partial<Pick<GroupState, "left" | "next">>,
): GroupState {
  const members: Record<string, MemberPart> = {};
  for (const [did, part] of Object.entries(other.members)) {
    const later = laterPart(state.members[did], part);
    if (later !== state.members[did]) members[did] = later;
  }
  const left: Record<string, number> = {};
  for (const [did, version] of Object.entries(other.left ?? {}))
    if (version > (state.left[did] ?? 0)) left[did] = version;
  const name = laterPart(state.name, other.name);
  const next = nextOf(state.next, other.next);
  const isEmpty = Object.keys(members).length + Object.keys(left).length === 0;
  if (isEmpty && name === state.name && next === state.next) return state;
  const joined = {
    ...state,
    name,
    members: { ...state.members, ...members },
    left: { ...state.left, ...left },
  };
  return next === undefined ? joined : { ...joined, next };
}

/**
 * Of two to whom a maker has handed over, which the rules prevent: the same one for all
 * who have followed neither.
 */
const nextOf = (a: Did | undefined, b: Did | undefined): Did | undefined =>
  a === undefined || (b !== undefined && b < a) ? b : a;

export const isIn = ({ members, left }: GroupState, did: string): boolean => {
  const part = members[did];
  return part?.[0] === "in" && part[1] > (left[did] ?? 0);
};

export const membersOf = (state: GroupState): Did[] =>
  (Object.keys(state.members) as Did[]).filter((did) => isIn(state, did)).sort();

const versionsOf = ({ name, members }: Statement): number[] => [
  name[1],
  ...Object.values(members).map(([, version]) => version),
];

/** Greater than all that is known here, and at least the clock in seconds. */
const nextVersion = (state: GroupState, nowMs: number): number =>
  1 +
  Math.max(Math.floor(nowMs / secondMs) - 1, ...versionsOf(state), ...Object.values(state.left));

/** Versions are seconds of their maker's clock: one that is too far ahead waits for its time. */
export const mustWait = (versions: readonly number[], nowMs: number): boolean =>
  !isReached(Math.max(0, ...versions) * secondMs, nowMs);

/**
 * Without what is so far ahead: also an own device's word waits for its time. The
 * same object when nothing is.
 */
export function nearState(state: GroupState, nowMs: number): GroupState {
  const isNear = (version: number) => !mustWait([version], nowMs);
  if ([...versionsOf(state), ...Object.values(state.left)].every(isNear)) return state;
  const members = Object.entries(state.members).filter(([, [, version]]) => isNear(version));
  const left = Object.entries(state.left).filter(([, version]) => isNear(version));
  return {
    ...state,
    name: isNear(state.name[1]) ? state.name : ["", 0],
    members: Object.fromEntries(members),
    left: Object.fromEntries(left),
  };
}

/**
 * For the maker under new keys: what was said of a time to come is said of now, and a
 * leaving of then is none.
 */
export function withNearVersions(state: GroupState, nowMs: number): GroupState {
  const near = nearState(state, nowMs);
  if (near === state) return state;
  const version = nextVersion(near, nowMs);
  const members: Record<string, MemberPart> = { ...near.members };
  for (const [did, [value]] of Object.entries(state.members)) members[did] ??= [value, version];
  const isNameNear = near.name[1] === state.name[1];
  return { ...near, members, name: isNameNear ? near.name : [state.name[0], version] };
}

/**
 * By which key a statement was signed, as far as the reader has proven the maker's root keys. Of a
 * random DID it is `in_force` only when the message itself comes from the maker.
 */
type SignedBy = "in_force" | "earlier" | "other";

/**
 * What an earlier key says waits an hour longer: said again by the maker, with a later version, it
 * must not be what others wait for, nor any change after it.
 */
const healedMarginMs = hourMs;

type Hearing = {
  readonly own: Did;
  readonly signedBy: SignedBy;
  readonly nowMs: number;
  /**
   * At the maker, where a member brings it: the version of when this device
   * began with the keys in force.
   */
  readonly keysSince?: number | undefined;
};

/** The state after a statement, or `wait`. The same object when it counts for nothing here. */
export function hear(
  state: GroupState,
  statement: Statement,
  { own, signedBy, nowMs, keysSince }: Hearing,
): GroupState | "wait" {
  if (statement.id !== state.id) return state;
  const marginMs = signedBy === "earlier" ? healedMarginMs : 0;
  if (mustWait(versionsOf(statement), nowMs - marginMs)) return "wait";
  if (signedBy === "in_force") return joinStates(state, statement);
  return signedBy === "earlier" && own === state.maker ? heal(state, statement, keysSince) : state;
}

/** For a leaving that the root key in force of who leaves has signed. */
export function hearLeaving(
  state: GroupState,
  leaving: Leaving,
  nowMs: number,
): GroupState | "wait" {
  if (leaving.id !== state.id) return state;
  if (mustWait([leaving.version], nowMs)) return "wait";
  return joinStates(state, { ...state, left: { [leaving.did]: leaving.version } });
}

export const isSameState = (a: GroupState, b: GroupState): boolean =>
  JSON.stringify([...comparedParts(a), sortedEntries(a.left), a.next]) ===
  JSON.stringify([...comparedParts(b), sortedEntries(b.left), b.next]);

/**
 * What an earlier key of the maker has said, heard by a device of the maker: a removal is taken,
 * and anything else is said again as it is here, with a later version. A member of whom nothing is
 * known here is out. A removal of a later version than `until` is none: the key was replaced by
 * then. So whom its thief has taken out stays in once they are asked in again.
 */
export function heal(
  state: GroupState,
  statement: Statement,
  until: number = Number.MAX_SAFE_INTEGER,
): GroupState {
  const members: Record<string, MemberPart> = { ...state.members };
  const said = membersWithRoom(statement.members, state.members);
  for (const [did, part] of Object.entries(said)) {
    const held = members[did];
    const [value, version] = part;
    if (held !== undefined && (version < held[1] || value === held[0])) {
      // The same value with a later version would win elsewhere: both are the same then.
      if (value === held[0] && version > held[1]) members[did] = part;
      continue;
    }
    const isTaken = value === "out" && version <= until;
    members[did] = isTaken ? part : [held?.[0] ?? "out", version + 1];
  }
  const [text, version] = statement.name;
  const isNameLater = version >= state.name[1] && text !== state.name[0];
  const isVersionLater = version > state.name[1] && text === state.name[0];
  const name: VersionedPart = isNameLater ? [state.name[0], version + 1] : state.name;
  const healed = { ...state, members, name: isVersionLater ? statement.name : name };
  return isSameState(state, healed) ? state : healed;
}

/**
 * Of two devices of the maker, each with the number of the root key under which its state counts:
 * of one number they join. Otherwise the state under the later key is the beginning, and what the
 * other device had is healed. To whom that device had the group handed over ends with its key: a
 * removed one may have said so.
 */
export function mergeOwn(held: OwnState | null, given: OwnState): OwnState {
  if (held === null) return given;
  if (held.root === given.root)
    return { root: held.root, state: joinStates(held.state, given.state) };
  const [later, earlier] = held.root > given.root ? [held, given] : [given, held];
  const { left } = earlier.state;
  const state = heal(joinStates(later.state, { ...later.state, left }), earlier.state);
  return { root: later.root, state };
}
type OwnState = { readonly root: number; readonly state: GroupState };

// ------------------------------------------------------------------------------------ handing over

/**
 * The group that the next admin founds: the same state, which from then on
 * counts under their root key.
 */
export function successorOf({ next: maker, ...state }: GroupState): GroupState | null {
  if (maker === undefined) return null;
  return { ...state, id: groupIdOf(maker, state.id), maker, nonce: state.id };
}

/** With a hand-over of this group that its maker's root key in force has signed. */
export const hearHandOver = (state: GroupState, { id, next }: HandOver): GroupState =>
  id === state.id ? joinStates(state, { ...state, next }) : state;

// ---------------------------------------------------------------------------------------- changing

type Wish = {
  readonly name?: string;
  readonly add?: readonly Did[];
  readonly remove?: readonly Did[];
};

/** With a new version for what the user changed, and for nothing else. */
export function withChange(state: GroupState, wish: Wish, nowMs: number): GroupState {
  const version = nextVersion(state, nowMs);
  const members: Record<string, MemberPart> = { ...state.members };
  for (const did of wish.add ?? []) if (!isIn(state, did)) members[did] = ["in", version];
  for (const did of wish.remove ?? []) members[did] = ["out", version];
  const isRenamed = wish.name !== undefined && wish.name !== state.name[0];
  return { ...state, members, name: isRenamed ? [wish.name as string, version] : state.name };
}

/**
 * For the maker: who left is out, in the version after all that are known here. No clock has a say:
 * one that is far ahead would keep what the user changes later from counting.
 */
export function takeUpLeavings(state: GroupState): GroupState {
  const gone = Object.keys(state.left).filter(
    (did) => state.members[did]?.[0] === "in" && !isIn(state, did),
  ) as Did[];
  return gone.length === 0 ? state : withChange(state, { remove: gone }, 0);
}

// -------------------------------------------------------------------------------------- passing on

/** What the others don't already say together, so that each part of the state has who signed it. */
export function undominated<T extends { readonly statement: Statement }>(all: readonly T[]): T[] {
  const kept = [...all];
  for (let i = kept.length - 1; i >= 0; i--) {
    const others = kept.filter((_, at) => at !== i);
    const { statement } = kept[i] as T;
    if (others.length > 0 && addsNothing(others, statement)) kept.splice(i, 1);
  }
  return kept;
}

function addsNothing(
  others: readonly { readonly statement: Statement }[],
  one: Statement,
): boolean {
  const empty = { ...emptyGroup(one.maker, one.nonce), id: one.id };
  const all = others.reduce<GroupState>(
    (state, { statement }) => joinStates(state, statement),
    empty,
  );
  return joinStates(all, one) === all;
}

/**
 * How a message to the group that shows another state is answered: by the maker at once, by others
 * a while later, once an hour for each digest of each member. Who is out learns that from the maker
 * only, and shows it to members who write to them as if they were in.
 */
export function answerTo(
  state: GroupState,
  { own, from, digest }: { readonly own: Did; readonly from: Did; readonly digest: string | null },
): "now" | "later" | "out" | null {
  if (from === own) return null;
  if (!isIn(state, own)) {
    const wasIn = state.members[own] !== undefined;
    return wasIn && isIn(state, from) && digest !== stateDigest(state) ? "later" : null;
  }
  if (!isIn(state, from)) return own === state.maker ? "out" : null;
  if (digest === null || digest === stateDigest(state)) return null;
  return own === state.maker ? "now" : "later";
}

/**
 * What was said may have been sealed to a key that was lost: so long later it is
 * said again, and asked again.
 */
export const answerAgainMs = hourMs;
export const askAgainMs = dayMs;

/** Whether it was not said in the last `apartMs`. A clock that was set back delays nothing. */
export const isDue = (lastMs: number | undefined, nowMs: number, apartMs: number): boolean =>
  lastMs === undefined || Math.abs(nowMs - lastMs) >= apartMs;

/** For who is out: only that. */
export const outOnly = (state: GroupState, did: Did): Statement => {
  const { id, maker, nonce, members } = state;
  const part = members[did] ?? (["out", 0] as const);
  return { id, maker, nonce, name: ["", 0], members: { [did]: part } };
};
