/**
 * What members of a group show one another: signed statements of its maker and signed leavings, in
 * the form in which they are sent; and the row in which a device keeps a group.
 * Source: docs/protocol.md ("Groups").
 */
import { type Did, isDid } from "../../core/codec/did.ts";
import { isInteger, isRecord } from "../base/shapes.ts";
import {
  furtherOf,
  goOnMs,
  type HandOverWish,
  handOversMax,
  isFollowed,
  joinWishes,
  type Succession,
  wishIn,
} from "./handing.ts";
import {
  emptyGroup,
  type GroupState,
  groupIdOf,
  type HandOver,
  isIn,
  joinStates,
  type Leaving,
  membersOf,
  mergeOwn,
  nearState,
  nonceCharactersMax,
  parseStatement,
  type Statement,
  undominated,
} from "./statements.ts";
import type { Shown } from "./witnesses.ts";

export const membersMax = 64;
/** Of one bundle. */
const [statementsMax, leavingsMax] = [8, membersMax];
/** A bundle in JSON, so that it is small content. */
const bundleCharactersMax = 60_000;
/** Of a statement what is no part of the state: names of members, key and signature. */
const signedCharactersMax = 400;
/**
 * Of one group: of its admin, of members, and of others, who can be as many as one
 * likes. Of one member two.
 */
const [waitingOfMakerMax, waitingOfMembersMax, waitingOfOthersMax] = [4, 8, 4];
const waitingOfOneMax = 2;
const owedMax = 4;

/** `key` is the root key in hex, `signature` in Base64. */
export type BySignature = { readonly key: string; readonly signature: string };
export type SignedStatement = { readonly statement: Statement } & BySignature;
export type SignedLeaving = Leaving & BySignature;
export type SignedHandOver = HandOver & BySignature;
export type Bundle = {
  readonly statements: readonly SignedStatement[];
  readonly leavings: readonly SignedLeaving[];
  /** Of this group, and those by which it came from another one. */
  readonly handOvers?: readonly SignedHandOver[];
};
const nothing: Bundle = { statements: [], leavings: [] };

/** A group as a device keeps it. */
export type GroupRow = Bundle &
  Succession & {
    readonly v: 2;
    /** To whom own devices are asked to hand it over. */
    readonly handing?: HandOverWish | null;
    /** At the maker's devices the root key, in hex, under which the state counts. */
    readonly root: string;
    /** The version in which this identity accepted to be in it; 0 when it did not. */
    readonly joined: number;
    /**
     * Of the groups that it was: what their admins have signed, which the
     * next one may not have heard.
     */
    readonly removals?: readonly SignedStatement[];
    /** What can't be judged yet, and since when. */
    readonly waiting: readonly {
      readonly bundle: Bundle;
      readonly from: Did;
      readonly sinceMs: number;
    }[];
    /**
     * The versions that changes of this identity's devices replaced, by DID; of the name under "".
     */
    readonly was: Readonly<Record<string, number>>;
    /** What other own devices have, of which this one can't judge everything so far. */
    readonly owed?: readonly OwedRow[];
    /**
     * The maker's root key, in hex, when they last wrote to the group of this id: they had
     * not handed it over before.
     */
    readonly spoke?: { readonly id: string; readonly key: string };
    /** Hand-overs by replaced keys that members have shown, until one of them counts. */
    readonly shown?: Shown;
    /**
     * When its identity was restored from a backup: a hand-over of an own
     * group may be missing since.
     */
    readonly restoredMs?: number;
    /** Of which id this device has signed a hand-over: under new keys it says so again. */
    readonly handedOver?: string;
    /** At the maker's devices, the version of when this one began with the keys in force. */
    readonly keysSince?: number;
    /**
     * At the device that made the keys in force: the members have not been told so far what
     * the group is under them.
     */
    readonly isUntold?: boolean;
    /**
     * Of another's group: nothing in its state but what its maker has signed. Missing in
     * rows of earlier versions.
     */
    readonly isSigned?: true;
  };
/** `root`: the root key of this identity under which it came, in hex. */
type OwedRow = { readonly row: GroupRow; readonly sinceMs: number; readonly root: string };

export const newRow = (state: GroupState): GroupRow => ({
  ...{ v: 2, state, root: "", joined: 0, waiting: [], was: {}, isSigned: true },
  ...nothing,
});

/** Of a conversation: the id under which its rows are, the first that this identity knew. */
export const placeOf = ({ former = [], state }: GroupRow): string => former[0]?.id ?? state.id;

export type Standing = "joined" | "asked" | "out";

export function standingOf(row: GroupRow | null, own: Did): Standing {
  if (row === null || !isIn(row.state, own)) return "out";
  return row.joined >= (row.state.members[own]?.[1] ?? 0) ? "joined" : "asked";
}

/** Who has accepted a group stays in it while each later state has them in it. */
export function withState(row: GroupRow, state: GroupState, own: Did): GroupRow {
  const stays = standingOf(row, own) === "joined" && isIn(state, own);
  return { ...row, state, joined: stays ? (state.members[own]?.[1] ?? 0) : row.joined };
}

// -------------------------------------------------------------------------------------------- form

export function renderBundle({
  statements,
  leavings,
  handOvers = [],
}: Bundle): Readonly<Record<string, unknown>> {
  const said = ({ statement, key, signature }: SignedStatement) => {
    const { maker, nonce, name, members } = statement;
    return { maker, nonce, name, members, key, signature };
  };
  const gone = leavings.map(({ did, version, key, signature }) => ({
    did,
    version,
    key,
    signature,
  }));
  const next = handOvers.map(({ maker, nonce, next, key, signature }) => ({
    maker,
    nonce,
    next,
    key,
    signature,
  }));
  const given = { v: 2, statements: statements.map(said), leavings: gone };
  return next.length === 0 ? given : { ...given, next };
}

/** `null` for JSON of another form. What belongs to another group is left out. */
export function parseBundle(json: unknown, id: string): Bundle | null {
  if (!isRecord(json) || json["v"] !== 2) return null;
  const { statements, leavings } = json;
  if (!Array.isArray(statements) || statements.length > statementsMax) return null;
  if (!Array.isArray(leavings) || leavings.length > leavingsMax) return null;
  const next: readonly unknown[] = Array.isArray(json["next"]) ? json["next"] : [];
  return {
    handOvers: next.slice(0, handOversMax).flatMap(handOverIn),
    statements: statements.flatMap((one: unknown) => {
      const statement = parseStatement(one);
      const by = signatureIn(one);
      if (by === null || statement?.id !== id || countIn(statement) > membersMax) return [];
      return [{ statement, ...by }];
    }),
    leavings: leavings.flatMap((one: unknown) => {
      const by = signatureIn(one);
      const { did, version } = isRecord(one) ? one : {};
      if (by === null || typeof did !== "string" || !isDid(did) || !isInteger(version)) return [];
      return [{ id, did, version, ...by }];
    }),
  };
}

function handOverIn(json: unknown): SignedHandOver[] {
  const by = signatureIn(json);
  const { maker, nonce, next } = isRecord(json) ? json : {};
  const isFit =
    typeof maker === "string" &&
    isDid(maker) &&
    typeof nonce === "string" &&
    nonce.length <= nonceCharactersMax &&
    typeof next === "string" &&
    isDid(next);
  return isFit && by !== null ? [{ id: groupIdOf(maker, nonce), maker, nonce, next, ...by }] : [];
}

function signatureIn(json: unknown): BySignature | null {
  const { key, signature } = isRecord(json) ? json : {};
  if (typeof key !== "string" || !/^[0-9a-f]{64}$/.test(key)) return null;
  return typeof signature === "string" && signature.length <= 100 ? { key, signature } : null;
}

const countIn = ({ members }: Statement): number =>
  Object.values(members).filter(([value]) => value === "in").length;

// ----------------------------------------------------------------------------------------- keeping

/**
 * What others don't already say; of the same, what the key in force has signed. The newest first.
 */
export function keepStatements(
  held: readonly SignedStatement[],
  given: SignedStatement,
): SignedStatement[] {
  const inForce = held.filter(({ key }) => key === given.key);
  const earlier = held.filter(({ key }) => key !== given.key);
  return undominated([given, ...inForce, ...earlier]).slice(0, statementsMax);
}

/** Of each who left the last one. */
export function keepLeavings(
  held: readonly SignedLeaving[],
  given: readonly SignedLeaving[],
): SignedLeaving[] {
  const last = new Map<string, SignedLeaving>();
  for (const one of [...held, ...given])
    if ((last.get(one.did)?.version ?? -1) < one.version) last.set(one.did, one);
  return [...last.values()].slice(-leavingsMax);
}

/** Of each one, the first. */
export function keepHandOvers(...all: readonly (readonly SignedHandOver[])[]): SignedHandOver[] {
  const kept: SignedHandOver[] = [];
  for (const one of all.flat())
    if (!kept.some(({ id, next }) => id === one.id && next === one.next)) kept.push(one);
  return kept.slice(0, handOversMax);
}

/**
 * As much as is small content: before all else the newest statement, which counts without the rest.
 */
export function fitting({ statements, leavings, handOvers = [] }: Bundle): Bundle {
  let left = bundleCharactersMax;
  const fits = (one: unknown): boolean => {
    const characters = JSON.stringify(one).length + 1;
    const isFit = characters <= left;
    if (isFit) left -= characters;
    return isFit;
  };
  const newest = statements.slice(0, 1).filter(fits);
  const [ways, gone] = [handOvers.filter(fits), leavings.filter(fits)];
  return {
    statements: [...newest, ...statements.slice(1).filter(fits)],
    leavings: gone,
    handOvers: ways,
  };
}

/** Whether a signed statement of the state has room in a bundle. */
export const hasRoomInBundle = ({ maker, nonce, name, members }: GroupState): boolean =>
  JSON.stringify([maker, nonce, name, members]).length + signedCharactersMax <= bundleCharactersMax;

/**
 * The last ones, each once. What others bring pushes out nothing of the admin's, nor what one
 * member brings another's.
 */
export function addWaiting(
  { state, waiting }: GroupRow,
  one: GroupRow["waiting"][number] | null,
): GroupRow["waiting"] {
  if (one === null) return waiting;
  const text = JSON.stringify([one.from, one.bundle]);
  const before = waiting.filter(({ from, bundle }) => JSON.stringify([from, bundle]) !== text);
  const all = [...before, one];
  const ofMaker = all.filter(({ from }) => from === state.maker);
  const ofMembers = all.filter(({ from }) => from !== state.maker && isIn(state, from));
  const ofEach = [...Map.groupBy(ofMembers, ({ from }) => from).values()];
  const ofOthers = all.filter(({ from }) => from !== state.maker && !isIn(state, from));
  const kept = new Set([
    ...ofMaker.slice(-waitingOfMakerMax),
    ...ofEach.flatMap((theirs) => theirs.slice(-waitingOfOneMax)).slice(-waitingOfMembersMax),
    ...ofOthers.slice(-waitingOfOthersMax),
  ]);
  return all.filter((each) => kept.has(each));
}

/** The last ones, each once. */
export function addOwed(owed: readonly OwedRow[], one: OwedRow): OwedRow[] {
  const text = JSON.stringify(one.row);
  const others = owed.filter(({ row }) => JSON.stringify(row) !== text);
  return [...others, one].slice(-owedMax);
}

// ------------------------------------------------------------------------------------- own devices

/** The versions of parts that the next state replaces, by DID; of the name under "". */
export function replacedBy(before: GroupState | null, after: GroupState): Record<string, number> {
  const was: Record<string, number> = {};
  if (before === null) return was;
  if (after.name[1] !== before.name[1]) was[""] = before.name[1];
  for (const [did, [, version]] of Object.entries(after.members)) {
    const held = before.members[did]?.[1] ?? 0;
    if (held !== version) was[did] = held;
  }
  return was;
}

/**
 * Whether a change by one of this identity's devices has lost against what another one
 * says without knowing it.
 */
export function overtaken(before: GroupRow, given: GroupRow, merged: GroupRow): boolean {
  const partsOf = ({ name, members }: GroupState): Record<string, readonly [string, number]> => {
    return { ...members, "": name };
  };
  const [held, other, now] = [before, given, merged].map(({ state }) => partsOf(state));
  return Object.keys(before.was).some((part) => {
    const [mine, theirs] = [held?.[part], other?.[part]];
    if (mine === undefined || now?.[part]?.[0] === mine[0]) return false;
    return (given.was[part] ?? theirs?.[1] ?? 0) < mine[1];
  });
}

/**
 * What counts so far of an own device's word of a group of this identity: nothing that no clock has
 * reached. `root`: in force.
 */
export function nearRow(
  row: GroupRow,
  { own, root, nowMs }: { readonly own: Did; readonly root: string; readonly nowMs: number },
): GroupRow {
  const state = nearState(row.state, nowMs);
  const { handing = null } = row;
  // New keys end what devices had wished before: one of them may be removed.
  const isWished = handing === null || (row.root === root && handing.sinceMs - nowMs < goOnMs);
  if (state === row.state && isWished) return row;
  const isKnown = ({ did, version }: SignedLeaving) => state.left[did] === version;
  return {
    ...row,
    state,
    joined: Math.min(row.joined, state.members[own]?.[1] ?? 0),
    leavings: state === row.state ? row.leavings : row.leavings.filter(isKnown),
    handing: isWished ? handing : null,
  };
}

/** What this device itself has signed, it says under the keys in force as well. */
export function withSignedNext(row: GroupRow, state: GroupState): GroupState {
  const { id, next } = row.state;
  const isMine = row.handedOver === id && state.id === id && next !== undefined;
  return isMine && state.next === undefined ? { ...state, next } : state;
}

/** What only this device knows of itself. */
export const notesIn = ({
  handedOver,
  keysSince,
  isUntold,
  spoke,
}: GroupRow): Pick<GroupRow, "handedOver" | "keysSince" | "isUntold" | "spoke"> => ({
  ...(handedOver === undefined ? {} : { handedOver }),
  ...(keysSince === undefined ? {} : { keysSince }),
  ...(isUntold === undefined ? {} : { isUntold }),
  ...(spoke === undefined ? {} : { spoke }),
});

/** Of own hand-overs those that the conversation has followed, or will. */
export const followedIn = (
  row: GroupRow,
  handOvers: readonly SignedHandOver[],
  own: Did,
): SignedHandOver[] => handOvers.filter((one) => one.maker !== own || isFollowed(row, one));

/**
 * Of two devices, for a group of their own. `root` is the root key of this identity, under
 * which its own groups count.
 */
export function mergeRows(
  held: GroupRow,
  given: GroupRow,
  { own, root }: { readonly own: Did; readonly root: string },
): GroupRow {
  const further = furtherOf(held, given);
  const handOvers = keepHandOvers(held.handOvers ?? [], given.handOvers ?? []);
  if (further === "held") return { ...held, handOvers };
  if (further === "given") {
    const joined = isIn(given.state, own) ? given.joined : held.joined;
    const mine = notesIn(held);
    return { ...given, ...mine, handOvers, joined, waiting: held.waiting, owed: held.owed ?? [] };
  }
  const isMaker = held.state.maker === own && held.root !== given.root;
  const heldWish = held.root === root ? (held.handing ?? null) : null;
  const isLater = given.root === root;
  const numbered = (row: GroupRow, isFirst: boolean) => ({
    root: isFirst ? 1 : 0,
    state: row.state,
  });
  const state = isMaker
    ? withSignedNext(held, mergeOwn(numbered(held, !isLater), numbered(given, isLater)).state)
    : joinStates(held.state, given.state);
  return {
    v: 2,
    ...notesIn(held),
    state,
    root: isMaker && isLater ? given.root : held.root,
    statements: given.statements.reduce<readonly SignedStatement[]>(
      (all, one) =>
        all.some((other) => other.signature === one.signature) ? all : keepStatements(all, one),
      held.statements,
    ) as SignedStatement[],
    leavings: keepLeavings(held.leavings, given.leavings),
    joined: Math.max(held.joined, given.joined),
    waiting: held.waiting,
    owed: held.owed ?? [],
    ...(held.shown === undefined ? {} : { shown: held.shown }),
    ...(held.restoredMs === undefined ? {} : { restoredMs: held.restoredMs }),
    was: { ...held.was, ...given.was },
    handOvers: isMaker ? followedIn({ ...held, state }, handOvers, own) : handOvers,
    former: held.former ?? [],
    second: held.second ?? given.second ?? null,
    handing: joinWishes(heldWish, given.handing ?? null),
  };
}

// --------------------------------------------------------------------------------------- migration

type RowBefore = {
  readonly id: string;
  readonly maker: Did;
  readonly nonce: string;
  readonly version: number;
  readonly name: string;
  readonly members: Readonly<Record<string, number>>;
  readonly left: Readonly<Record<string, number>>;
  readonly joined: number;
};

/**
 * As this version keeps it. A group of an earlier one goes on with the same members; its maker is
 * its admin. And where that had stored what another own device said, as a thief's may be, parts of
 * another form are left out: they would end each start.
 */
export function upgradeRow(row: GroupRow | RowBefore, wereIn: readonly string[] = []): GroupRow {
  if ("v" in row) return readableParts(row);
  const { maker, nonce, version, name, members, left, joined } = row;
  const gone = wereIn.filter((did) => isDid(did) && members[did] === undefined);
  const state: GroupState = {
    ...emptyGroup(maker, nonce),
    id: groupIdOf(maker, nonce),
    name: [name, version],
    members: {
      ...Object.fromEntries(gone.map((did) => [did, ["out", version] as const])),
      ...Object.fromEntries(
        Object.entries(members).map(([did, since]) => [did, ["in", since] as const]),
      ),
    },
    left,
  };
  return { ...newRow(state), joined };
}

function readableParts(row: GroupRow): GroupRow {
  const { statements, leavings, handOvers = [], second = null, handing } = row;
  const isSaid = ({ statement }: SignedStatement) =>
    Array.isArray(statement?.name) && isRecord(statement.members);
  return {
    ...row,
    statements: signedIn(statements).filter(isSaid),
    leavings: signedIn(leavings).filter(({ did, version }) => isDid(did) && isInteger(version)),
    handOvers: handOvers.flatMap(handOverIn),
    second: second !== null && isDid(second) ? second : null,
    handing: wishIn(handing),
  };
}

const signedIn = <One>(all: readonly One[]): One[] =>
  Array.isArray(all) ? all.filter((one) => signatureIn(one) !== null) : [];

/**
 * What a change shows of a group, in its history. `hasNewAdmin`: who signed it
 * is the admin from then on.
 */
export const historyLine = (state: GroupState, isNew: boolean, hasNewAdmin: boolean) => ({
  v: 2,
  name: state.name[0],
  members: membersOf(state),
  isNew,
  ...(hasNewAdmin ? { hasNewAdmin } : {}),
});
