/**
 * What own devices take from each other of groups. Of a group that another person has made only
 * what is signed counts, by the same examination as from a member; of this identity's own
 * decisions, that it has accepted or left. What can't be judged so far waits, and who had
 * signed it by an earlier key is asked to say it again. So a device that a thief had linked
 * keeps no member in a group.
 * Source: docs/protocol.md "Groups", docs/trust.md "Own devices".
 */
import { encodeHex } from "../../core/codec/bytes.ts";
import type { Did } from "../../core/codec/did.ts";
import { dayMs, secondMs } from "../../core/codec/time.ts";
import { BoundedMap } from "../../core/std/bounded.ts";
import { attempt } from "../base/failure.ts";
import { isRecord } from "../base/shapes.ts";
import {
  addOwed,
  type GroupRow,
  mergeRows,
  nearRow,
  newRow,
  notesIn,
  overtaken,
  placeOf,
  upgradeRow,
  withState,
} from "../groups/bundles.ts";
import { bundleIn, parseRow } from "../groups/given.ts";
import {
  furtherOf,
  isBacked,
  isNamedRight,
  namesOf,
  wayOn,
  withoutNext,
} from "../groups/handing.ts";
import { withRemovals } from "../groups/removals.ts";
import {
  askAgainMs,
  emptyGroup,
  type GroupState,
  type HandOver,
  isDue,
  isSameState,
  joinStates,
  stateDigest,
  withRoom,
} from "../groups/statements.ts";
import { ed25519PublicKey } from "../keys/crypto.ts";
import type { StoreChange } from "../mail/message.ts";
import {
  countingHandOvers,
  type Examined,
  followed,
  type GroupListener,
  hearAll,
  removalsOf,
  versionAt,
} from "./group-hearing.ts";
import { groupAt, putGroup, refile } from "./group-rows.ts";
import type { GroupTalk } from "./group-talk.ts";
import { rowsOf } from "./keys.ts";
import type { OwnStore } from "./own-store.ts";
import type { Batch } from "./table.ts";

/** As long as what members say of a group is on its way. */
const owedMs = 30 * dayMs;
const askedMax = 1_000;

/** `until`: the last version of which it may say what this identity wills. */
type ExaminedGroup = {
  readonly given: GroupRow;
  readonly said: Examined;
  readonly until: number;
};
/** `isOwed`: something of it can't be judged so far. */
type Taken = { readonly row: GroupRow; readonly isOwed: boolean };

/** When it came, and under which root key of this identity, in hex. */
type Coming = { readonly sinceMs: number; readonly root: string };

/** As an earlier version of the SDK has it. */
const isOld = (row: Record<string, unknown>): boolean =>
  !("v" in row) && isRecord(row["members"]) && isRecord(row["left"]);

/** The row after what another own device has shown. */
function takeRow(
  held: GroupRow | null,
  { given, said, until }: ExaminedGroup,
  listener: GroupListener,
): Taken {
  const { own, root, nowMs } = listener;
  // What only an earlier own key has signed may be of a removed device: who has made the keys in
  // force signs it once more.
  const isOurs = given.state.maker === own && given.root === root;
  const founded = isOurs ? [given.state.id] : [];
  const counting = countingHandOvers(held, said, listener, founded);
  const handOvers = [...counting, ...(held?.handOvers ?? [])];
  const further = held === null ? "given" : furtherOf(held, given);
  if (held !== null && further === "held") {
    // What it has of the group before may be news to the next admin.
    const { row } = hearAll(followed(held, said, listener), { ...said, leavings: [] }, listener);
    return { row, isOwed: false };
  }
  const isWay = isBacked(given, handOvers);
  // Nothing is shown of the next admin's group before they have said something there.
  const isFounded =
    given.state.maker === own ||
    said.statements.some(({ one, by }) => by === "in_force" && one.statement.id === given.state.id);
  const isGoing = held !== null && given.state.id !== held.state.id;
  if (further === "given" && (!isWay || (isGoing && !isFounded))) {
    const [first = given.state] = given.former ?? [];
    return { row: held ?? newRow(emptyGroup(first.maker, first.nonce)), isOwed: true };
  }
  const way = held === null ? (given.former ?? []) : wayOn(held, given);
  if (given.state.maker === own) {
    const former = isWay ? way : [];
    const known = held?.state ?? emptyGroup(own, given.state.nonce);
    const state = withRoom(withBackedNext(given, handOvers), known);
    const removals = held === null ? [] : removalsOf(held, own);
    const backed = { ...given, ...signedOf(given, said), state, former, handOvers, removals };
    const near = nearRow(backed, { own, root, nowMs });
    const joint = held === null ? near : mergeRows(held, near, { own, root });
    const isBegun = held === null || joint.root !== held.root;
    const merged = isBegun ? { ...joint, keysSince: versionAt(nowMs) } : joint;
    const row = removals.reduce(
      (now, { statement }) => withState(now, withRemovals(now, statement, nowMs), own),
      merged,
    );
    const isUnknown = [...said.handOvers, ...said.leavings].some(({ by }) => by === "unknown");
    return { row, isOwed: isUnknown || near.state !== backed.state };
  }
  const { maker, nonce } = given.state;
  const removals = held === null ? [] : removalsOf(held, own);
  const begun = { ...newRow(emptyGroup(maker, nonce)), former: way, removals };
  const { waiting = [], owed = [], joined = 0 } = held ?? {};
  const mine = held === null ? {} : notesIn(held);
  const before =
    held !== null && further === "both" ? held : { ...begun, ...mine, waiting, owed, joined };
  const { row, waits } = hearAll(before, said, listener);
  const isHeard = waits.statements.length === 0;
  const gone = isHeard ? followed(row, said, listener) : row;
  const isOwed = !isHeard || waits.leavings.length > 0 || isMissing(gone, given, said);
  return { row: withOwnWill(gone, given, { own, until }), isOwed };
}

/**
 * Of an own group, whose statements this device signs itself: what holds of
 * what others have signed.
 */
function signedOf(
  { state, second = null }: GroupRow,
  { leavings, handOvers }: Examined,
): Pick<GroupRow, "statements" | "leavings" | "second"> {
  const isOf = ({ one, by }: Examined["leavings"][number]) =>
    by === "in_force" && one.id === state.id;
  const isSecond = ({ one, by }: Examined["handOvers"][number]) =>
    (by === "in_force" || by === "earlier") && one.next === second;
  return {
    statements: [],
    leavings: leavings.filter(isOf).map(({ one }) => one),
    second: handOvers.some(isSecond) ? second : null,
  };
}

/** Of an own group: to whom it is handed over only as far as that is signed. */
function withBackedNext({ state }: GroupRow, known: readonly HandOver[]): GroupState {
  const isSigned = known.some(({ id, next }) => id === state.id && next === state.next);
  return isSigned ? state : withoutNext(state);
}

/**
 * Whether an earlier key has signed something that isn't known here, or a key that the
 * record does not show so far.
 */
function isMissing(row: GroupRow, given: GroupRow, { statements, handOvers }: Examined): boolean {
  const { state } = row;
  const isLate = statements.some(
    ({ one: { statement }, by }) =>
      (by === "earlier" || by === "unknown") &&
      statement.id === state.id &&
      joinStates(state, statement) !== state,
  );
  const isNamed = ({ id, next }: HandOver) => id === state.id && next === given.state.next;
  const isUnnamed = handOvers.some(
    ({ one, by }) => (by === "earlier" || by === "unknown") && isNamed(one),
  );
  return isLate || (isUnnamed && state.next === undefined);
}

/**
 * Whether to be in it is this identity's to say, of the version in which others have
 * it in and of no later one.
 */
function withOwnWill(
  row: GroupRow,
  given: GroupRow,
  { own, until }: { readonly own: Did; readonly until: number },
): GroupRow {
  if (row.state.id !== given.state.id) return row;
  const version = Math.min(row.state.members[own]?.[1] ?? 0, until);
  const joined = Math.max(row.joined, Math.min(given.joined, version));
  const left = Math.min(given.state.left[own] ?? 0, version);
  const isLeft = left > (row.state.left[own] ?? 0);
  const state = isLeft ? { ...row.state, left: { ...row.state.left, [own]: left } } : row.state;
  return { ...row, state, joined };
}

export class OwnGroups {
  readonly #own: OwnStore;
  readonly #talk: GroupTalk;
  /** When this device has asked somebody in this run, by whom and with which state. */
  readonly #asked = new BoundedMap<string, number>(askedMax);

  constructor(own: OwnStore, talk: GroupTalk) {
    this.#own = own;
    this.#talk = talk;
    talk.hearOwed = () => this.#hearOwed();
  }

  /** Takes what another own device has of a group. Returns what changed. */
  async take(raw: GroupRow): Promise<StoreChange | null> {
    const given = parseRow(isRecord(raw) && isOld(raw) ? upgradeRow(raw) : raw);
    if (given === null) return null;
    const { nowMs } = this.#own;
    return this.#take(given, { sinceMs: nowMs(), root: await this.#root(), isFirst: true });
  }

  /** The root key of this device, in hex: another one after each removal. */
  async #root(): Promise<string> {
    return encodeHex(await ed25519PublicKey(this.#own.identity.secrets.rootSeed));
  }

  async #take(
    given: GroupRow,
    { sinceMs, root, isFirst }: Coming & { readonly isFirst: boolean },
  ): Promise<StoreChange | null> {
    const { table, did: own, nowMs } = this.#own;
    if (!isNamedRight(given)) return null;
    const row = await this.#rowFor(given, table);
    const id = row?.state.id ?? given.state.id;
    const said = await this.#talk.judging.judge(given, { id, from: own, row, sinceMs });
    // What it wills of a later invitation, it can't have meant.
    const until = isFirst ? Number.MAX_SAFE_INTEGER : Math.floor(sinceMs / secondMs);
    const listener = { own, root, isKnown: false, nowMs: nowMs() };
    const [before, after] = await table.change(async (batch) => {
      batch.isEcho = isFirst;
      const held = await this.#rowFor(given, batch);
      const { row, isOwed } = takeRow(held, { given, said, until }, listener);
      const before = row.owed ?? [];
      const owed = isOwed ? addOwed(before, { row: given, sinceMs, root }) : before;
      const next = { ...row, owed };
      await putGroup(table, batch, next);
      await refile(table, batch, next, own);
      return [held, next];
    });
    if ((after.owed ?? []).length > 0) {
      this.#talk.hearSoon();
      void attempt(() => this.#ask(after, said));
    }
    const isOwnGroup = before !== null && before.state.maker === own;
    const isLost = isOwnGroup && overtaken(before, given, after);
    const what = isLost ? "overtaken" : "group";
    return { type: "changed", conversation: placeOf(after), id: null, what };
  }

  /** By any name under which the other device has it. */
  async #rowFor(given: GroupRow, from: Pick<Batch, "get">): Promise<GroupRow | null> {
    for (const name of namesOf(given).toReversed()) {
      const row = await groupAt(this.#own.table, name, from);
      if (row !== null) return row;
    }
    return null;
  }

  /**
   * Who sees another state in a message to the group answers with theirs, which is
   * signed by the key in force.
   */
  async #ask(row: GroupRow, { statements, handOvers }: Examined): Promise<void> {
    const makers = [
      ...statements.flatMap(({ one, by }) => (by === "earlier" ? [one.statement.maker] : [])),
      ...handOvers.flatMap(({ one, by }) => (by === "earlier" ? [one.maker] : [])),
    ];
    for (const maker of new Set(makers)) {
      const name = `${maker} ${row.state.id} ${stateDigest(row.state)}`;
      const atMs = this.#own.nowMs();
      if (maker === this.#own.did || !isDue(this.#asked.get(name), atMs, askAgainMs)) continue;
      await this.#talk.show(row, maker);
      this.#asked.set(name, atMs);
    }
  }

  /**
   * Once more, what could not be judged, unless it came under an earlier root key: its device may
   * be one that was removed. And once what an earlier version has kept unsigned.
   */
  async #hearOwed(): Promise<void> {
    const { table, nowMs } = this.#own;
    const root = await this.#root();
    for (const raw of await table.values<GroupRow>(rowsOf.groups)) {
      const row = upgradeRow(raw);
      const { owed = [], state } = row;
      await attempt(() => this.#sign(row));
      if (owed.length === 0) continue;
      await table.change(async (batch) => {
        const now = await groupAt(table, state.id, batch);
        if (now !== null) await putGroup(table, batch, { ...now, owed: [] });
      });
      for (const one of owed)
        if (one.root === root && nowMs() - one.sinceMs < owedMs)
          await this.#retake(one.row, { sinceMs: one.sinceMs, root }, row);
    }
  }

  async #retake(given: GroupRow, coming: Coming, before: GroupRow): Promise<void> {
    const change = await this.#take(given, { ...coming, isFirst: false });
    const after = await groupAt(this.#own.table, before.state.id);
    if (change !== null && after !== null && !isSameState(before.state, after.state))
      this.#own.announce(change);
  }

  /**
   * Keeps of a state of an earlier version what its maker has signed, where a statement by
   * the key in force is here.
   */
  async #sign(row: GroupRow): Promise<void> {
    const { table, did: own, nowMs } = this.#own;
    const { state, isSigned = false } = row;
    const bundle = bundleIn(row, state.id);
    if (isSigned || state.maker === own || bundle === null) return;
    const sinceMs = nowMs();
    const said = await this.#talk.judging.judge(bundle, { id: state.id, from: own, row, sinceMs });
    const isWhole = said.statements.some(({ by }) => by === "in_force");
    if (!isWhole) return this.#ask(row, said);
    await table.change(async (batch) => {
      const held = await groupAt(table, state.id, batch);
      if (held === null || JSON.stringify(held) !== JSON.stringify(row)) return;
      const { left, maker, nonce } = state;
      const empty = { ...row, state: { ...emptyGroup(maker, nonce), left } };
      const listener = { own, root: "", isKnown: false, nowMs: sinceMs };
      const heard = followed(hearAll(empty, said, listener).row, said, listener);
      const now: GroupRow = { ...heard, joined: row.joined, isSigned: true };
      await putGroup(table, batch, now);
      await refile(table, batch, now, own);
    });
  }
}
