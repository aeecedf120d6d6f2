/**
 * What a device says to a group about the group, and what it makes of what others say: it signs
 * the states of the groups that this identity has made, hears what waits, and answers who shows
 * another state than its own.
 * Source: docs/protocol.md "Groups".
 */

import { encodeBase64, encodeHex, equalBytes } from "../../core/codec/bytes.ts";
import type { Did } from "../../core/codec/did.ts";
import { dayMs, minuteMs } from "../../core/codec/time.ts";
import { BoundedMap } from "../../core/std/bounded.ts";
import { attempt, ClientError, localError, pause } from "../base/failure.ts";
import { isName } from "../base/shapes.ts";
import {
  type Bundle,
  fitting,
  followedIn,
  type GroupRow,
  hasRoomInBundle,
  membersMax,
  newRow,
  placeOf,
  renderBundle,
  replacedBy,
  type SignedHandOver,
  type SignedLeaving,
  type SignedStatement,
  standingOf,
  upgradeRow,
  withState,
} from "../groups/bundles.ts";
import { found, isHandedOver } from "../groups/handing.ts";
import { removalsFor } from "../groups/removals.ts";
import {
  type GroupState,
  type HandOver,
  handOverText,
  isIn,
  isSameState,
  leavingText,
  membersOf,
  outOnly,
  type Statement,
  statementText,
  takeUpLeavings,
} from "../groups/statements.ts";
import { ed25519PublicKey, signEd25519 } from "../keys/crypto.ts";
import type { JsonContent } from "../mail/content.ts";
import { GroupAnswers, type Said } from "./group-answers.ts";
import {
  countingState,
  type Examined,
  hearBundle,
  isOther,
  lineIn,
  mustBeAdmin,
  newsOf,
  putOut,
  type UnderKeys,
  underKeys,
  waitingIn,
} from "./group-hearing.ts";
import { GroupJudging, type RootsFound } from "./group-judging.ts";
import { addressed, changing, groupAt, isEmpty, putGroup } from "./group-rows.ts";
import { keyOfGroup, rowsOf } from "./keys.ts";
import type { OwnStore } from "./own-store.ts";
import type { Sending } from "./sending.ts";
import type { Batch } from "./table.ts";

/** Groups that wait for the device that has made new keys. */
const behindMax = 1_000;
/**
 * What can't be judged for so long is forgotten; so is the wait for a
 * device that has made new keys.
 */
const [waitingMs, ownWaitMs] = [2 * dayMs, 10 * minuteMs];
const triesMax = 3;

export class GroupTalk {
  readonly judging: GroupJudging;
  readonly #own: OwnStore;
  readonly #sending: Sending;
  /** Whether this device has made the keys in force, or may begin with its own states. */
  hasMadeKeys: () => Promise<boolean> = async () => true;
  /** Once more, what other own devices have shown. */
  hearOwed: () => Promise<void> = async () => undefined;
  readonly #answers: GroupAnswers;
  #isHearing = false;
  readonly #behindMs = new BoundedMap<string, number>(behindMax);

  constructor(own: OwnStore, sending: Sending) {
    this.#own = own;
    this.#sending = sending;
    this.judging = new GroupJudging(own);
    this.#answers = new GroupAnswers(own, this, sending);
  }

  // --------------------------------------------------------------------------------------- signing

  /**
   * The root key of this device in hex. Throws `root_replaced` when it is known not to be in force.
   */
  async root(): Promise<string> {
    const { client, secrets, did } = this.#own.identity;
    const key = await ed25519PublicKey(secrets.rootSeed);
    const proven = client.trust.provenOf(did)?.state.rootKeys.at(-1);
    if (proven !== undefined && !equalBytes(proven, key))
      throw localError("root_replaced", "the root key of this device was replaced by another one");
    return encodeHex(key);
  }

  async #signed(text: Uint8Array): Promise<{ readonly key: string; readonly signature: string }> {
    const key = await this.root();
    const signature = await signEd25519(text, this.#own.identity.secrets.rootSeed);
    return { key, signature: encodeBase64(signature) };
  }

  async #sign(state: Statement): Promise<SignedStatement> {
    const { id, maker, nonce, name, members } = state;
    const statement = { id, maker, nonce, name, members };
    return { statement, ...(await this.#signed(statementText(statement))) };
  }

  /**
   * All that others need in order to come to the state that is here, also from the groups before.
   */
  async #bundle(row: GroupRow): Promise<Bundle> {
    const { did } = this.#own;
    const handOvers: SignedHandOver[] = [];
    for (const one of followedIn(row, row.handOvers ?? [], did))
      if (one.maker !== did) handOvers.push(one);
      else handOvers.push(...(await this.signedNow(row, one)));
    const leavings = row.leavings.filter(({ id }) => id === row.state.id);
    const { statements } = row.state.maker === did ? await this.#ownStatement(row) : row;
    return fitting({ statements, leavings, handOvers });
  }

  async #ownStatement({ state }: GroupRow) {
    return { statements: [await this.#sign(state)] };
  }

  /**
   * An own hand-over by the key in force: signed once more by the device that made the keys, or
   * that had signed it before. From any other device a removed one could have it.
   */
  async signedNow(row: GroupRow, one: SignedHandOver): Promise<SignedHandOver[]> {
    if (one.key === (await this.root())) return [one];
    return row.handedOver === one.id || (await this.hasMadeKeys())
      ? [await this.signHandOver(one)]
      : [];
  }

  /** By the root key of this device. */
  async signHandOver({ id, maker, nonce, next }: HandOver): Promise<SignedHandOver> {
    const one = { id, maker, nonce, next };
    return { ...one, ...(await this.#signed(handOverText(one))) };
  }

  /**
   * After new keys: the device that made them begins with the states that it has. Also of
   * groups of an earlier version.
   */
  async takeOver(): Promise<void> {
    const { table, did } = this.#own;
    const root = await this.root();
    const isFirst = await this.hasMadeKeys();
    for (const raw of await table.values<GroupRow>(rowsOf.groups)) {
      const row = upgradeRow(raw);
      const { isUntold = false } = row;
      const isBehind = row.root !== root;
      if (row.state.maker !== did || !(isBehind ? isFirst || row.root === "" : isUntold)) continue;
      if (isBehind) await this.#putRoot(row.state.id, { root, isFirst });
      // Before anybody else says something of it by the key that was replaced.
      if (isFirst) void attempt(() => this.#sayAgain(row.state.id));
    }
  }

  /**
   * In one change with the copies for all members: what ends meanwhile is done at the next start.
   */
  async #sayAgain(id: string): Promise<void> {
    const { table, did } = this.#own;
    const row = await groupAt(table, id);
    if (row === null || row.state.maker !== did) return;
    const put = async (batch: Batch) => {
      const now = await groupAt(table, id, batch);
      if (now !== null) await putGroup(table, batch, { ...now, isUntold: false });
      return true;
    };
    await this.say(row, membersOf(row.state), { put });
  }

  #putRoot(id: string, keys: Omit<UnderKeys, "own" | "nowMs">): Promise<void> {
    const { table, did: own } = this.#own;
    const under = { ...keys, own, nowMs: this.#own.versionMs() };
    return table.change(async (batch) => {
      const row = await groupAt(table, id, batch);
      if (row !== null) await putGroup(table, batch, underKeys(row, under));
    });
  }

  // -------------------------------------------------------------------------------------- changing

  /**
   * A group of which this identity is the maker, with new versions of what `edit` changes. Throws
   * `not_admin`, `clock_wrong`.
   */
  async change(id: string, edit: (state: GroupState, nowMs: number) => GroupState): Promise<void> {
    for (let tries = 1; ; tries++) {
      await this.#mustBegin(await this.#adminRow(id));
      const before = await this.#adminRow(id);
      mustBeAdmin(before, this.#own.nowMs());
      const state = countingState(edit(before.state, this.#own.versionMs()), this.#own);
      const done = await attempt(() => this.#publish(before, state));
      if (!(done instanceof ClientError)) return;
      if (done.code !== "group_changed" || tries === triesMax) throw done;
    }
  }

  /**
   * Another device has made new keys, and says with which states it begins; for
   * ten minutes this one waits.
   */
  async #mustBegin({ root, state: { id } }: GroupRow): Promise<void> {
    const now = await this.root();
    if (root === now) return;
    const sinceMs = this.#behindMs.get(id) ?? this.#own.nowMs();
    this.#behindMs.set(id, sinceMs);
    const isOver = this.#own.nowMs() - sinceMs > ownWaitMs;
    const isFirst = root === "" || (await this.hasMadeKeys());
    if (!isOver && !isFirst)
      throw localError("behind", "the device that made new keys says first what this group is");
    await this.#putRoot(id, { root: now, isFirst });
  }

  async #adminRow(id: string): Promise<GroupRow> {
    const { table, did } = this.#own;
    const row = await groupAt(table, id);
    if (row === null || standingOf(row, did) !== "joined")
      throw localError("not_member", "this identity is not in the group");
    if (row.state.maker === did) return row;
    throw localError("not_admin", "only the admin of a group changes it");
  }

  /**
   * The row of a group that this identity may change now, for a hand-over. Throws `not_admin`,
   * `behind`, `clock_wrong`.
   */
  async beginHandOver(id: string): Promise<GroupRow> {
    await this.#mustBegin(await this.#adminRow(id));
    const row = await this.#adminRow(id);
    countingState(row.state, this.#own);
    return row;
  }

  /** Says to the members who is the next admin, once and for good. */
  async sayNext(row: GroupRow, next: Did): Promise<void> {
    const { id, maker, nonce } = row.state;
    // Who is named would wait for the state, and could not go on with it.
    countingState(row.state, this.#own);
    const one = await this.signHandOver({ id, maker, nonce, next });
    const handOvers = [one, ...(row.handOvers ?? [])];
    const signed: GroupRow = { ...row, handOvers, handedOver: id };
    await this.#publish(row, { ...row.state, next }, signed);
  }

  /** The next admin goes on with the state as it is here. Says whether this identity is one. */
  async found(row: GroupRow): Promise<boolean> {
    const { did } = this.#own;
    const isJoined = standingOf(row, did) === "joined";
    const next = isJoined ? found(row, did, this.#own.versionMs()) : row;
    if (next === row) return false;
    await this.#publish(row, next.state, { ...next, statements: [] });
    return true;
  }

  async create(state: GroupState): Promise<void> {
    await this.#publish(null, state);
  }

  /**
   * In one change with the copies for all who are in it; those who are not
   * any more learn only that.
   */
  async #publish(
    before: GroupRow | null,
    state: GroupState,
    begun: GroupRow | null = before,
  ): Promise<void> {
    const { did, table } = this.#own;
    const members = membersOf(state);
    if (members.length > membersMax || !isName(state.name[0]))
      throw localError(
        "invalid_argument",
        `a group has at most ${membersMax} members, and a name of 100 characters`,
      );
    if (!hasRoomInBundle(state))
      throw localError("invalid_argument", "too many people were in this group: begin another one");
    const root = await this.root();
    const held = begun === null ? newRow(state) : withState(begun, state, did);
    const joined = isIn(state, did) ? (state.members[did]?.[1] ?? 0) : held.joined;
    const was = { ...held.was, ...replacedBy(before?.state ?? null, state) };
    const after: GroupRow = { ...held, root, joined, was, isUntold: false };
    const put = async (batch: Batch) => {
      const now = await groupAt(table, before?.state.id ?? state.id, batch);
      const isAsBefore =
        now === null ? before === null : before !== null && isSameState(now.state, before.state);
      // What came meanwhile stays, apart from the state.
      const { waiting = [], owed = [], handing = after.handing ?? null } = now ?? {};
      if (isAsBefore) await putGroup(table, batch, { ...after, waiting, owed, handing });
      return isAsBefore;
    };
    const line = lineIn(before?.state ?? null, state);
    await this.say(after, members, { put, line });
    await this.sayOut(after, before === null ? [] : membersOf(before.state));
  }

  async say(
    row: GroupRow,
    to: readonly Did[],
    more: {
      readonly put?: (batch: Batch) => Promise<boolean>;
      readonly line?: JsonContent | null;
    } = {},
  ): Promise<void> {
    const others = to.filter((one) => one !== this.#own.did);
    if (others.length === 0 && more.put === undefined) return;
    const bundle = renderBundle(await this.#bundle(row));
    const within = { ...addressed(row), put: more.put ?? null, line: more.line ?? null };
    await this.#sending.send(others, bundle, changing(row.state.id), within);
  }

  async sayOut(row: GroupRow, were: readonly Did[]): Promise<void> {
    const { state } = row;
    for (const one of were) {
      if (one === this.#own.did || isIn(state, one)) continue;
      const statement = await this.#sign(outOnly(state, one));
      const bundle = renderBundle({ statements: [statement], leavings: [] });
      const within = { ...addressed(row), put: null, line: null };
      await this.#sending.send([one], bundle, changing(state.id), within);
    }
  }

  /** Leaves, and says so to the others. */
  async leave(row: GroupRow): Promise<void> {
    const { did, table } = this.#own;
    const { id } = row.state;
    const version = row.state.members[did]?.[1] ?? 0;
    const leaving: SignedLeaving = {
      ...{ id, did, version },
      ...(await this.#signed(leavingText({ id, did, version }))),
    };
    const others = membersOf(row.state);
    const left = { ...row.state.left, [did]: version };
    const state = { ...row.state, left };
    const leavings = [...row.leavings.filter((one) => one.did !== did), leaving];
    const after = { ...row, state, leavings };
    const put = async (batch: Batch) => {
      const now = await groupAt(table, id, batch);
      if (now === null || !isSameState(now.state, row.state)) return false;
      await putGroup(table, batch, { ...now, state, leavings });
      return true;
    };
    await this.say(after, others, { put, line: { v: 2, left: version } });
  }

  // --------------------------------------------------------------------------------------- hearing

  /** After a bundle was joined: what the maker owes the others. */
  async heard(before: GroupRow | null, after: GroupRow): Promise<void> {
    if (await this.found(after)) return;
    if (after.state.maker !== this.#own.did || !isOther(before, after)) return;
    if (isHandedOver(after.state)) return;
    const state = takeUpLeavings(after.state);
    const done = await attempt(() => this.#publish(after, state));
    if (done instanceof ClientError && done.code === "group_changed") return;
    if (done instanceof ClientError) throw done;
    if (before === null) return;
    // Also who a former admin has taken out.
    const gone = membersOf(before.state).filter((did) => after.state.members[did]?.[0] === "out");
    await this.sayOut({ ...after, state }, [...putOut(before.state, state), ...gone]);
  }

  /** Once more in a minute, what could not be judged; then with each sweep. */
  hearSoon(): void {
    if (this.#isHearing) return;
    this.#isHearing = true;
    const hear = async () => {
      await pause(minuteMs, this.#own.signal);
      this.#isHearing = false;
      if (!this.#own.signal.aborted) await attempt(() => this.hearWaiting());
    };
    void hear();
  }

  /** Once more, what could not be judged. */
  async hearWaiting(): Promise<void> {
    await this.hearOwed();
    const { table, did, nowMs } = this.#own;
    const look: RootsFound = new Map();
    for (const raw of await table.values<GroupRow>(rowsOf.groups)) {
      const row = upgradeRow(raw);
      const { state, waiting } = row;
      if (waiting.length === 0) continue;
      const judged: Examined[] = [];
      for (const { from, sinceMs, ...bundle } of waitingIn(row))
        if (nowMs() - sinceMs < waitingMs)
          judged.push(await this.judging.judge(bundle, { id: state.id, from, row, sinceMs }, look));
      const root = await this.root();
      const heard = await table.change(async (batch) => {
        const row = await groupAt(table, state.id, batch);
        if (row === null) return null;
        const isOver = judged.length === 0 && isEmpty(row);
        if (isOver) batch.delete(keyOfGroup(table, state.id));
        else await putGroup(table, batch, { ...row, waiting: [] });
        let last = row;
        const listener = { own: did, root, isKnown: false, nowMs: nowMs() };
        for (const said of judged)
          last = (await hearBundle(table, batch, { id: state.id, said }, listener))?.after ?? last;
        return { before: row, after: last };
      });
      if (heard === null || !isOther(heard.before, heard.after)) continue;
      const conversation = placeOf(heard.after);
      const what = newsOf(heard, did);
      this.#own.announce({ type: "changed", conversation, id: null, what });
      await this.heard(heard.before, heard.after);
    }
  }

  // ------------------------------------------------------------------------------------- answering

  /** Answers a member who shows another state. */
  answer(said: Said): Promise<void> {
    return this.#answers.answer(said);
  }

  /**
   * To one who may have more, and answers it. What the next admin has not heard goes under
   * the id that the group had.
   */
  async show(row: GroupRow, to: Did): Promise<void> {
    await this.say(row, [to]);
    for (const kept of removalsFor(row, to, this.#own.nowMs())) {
      const isOwn = kept.statement.maker === this.#own.did;
      const one = isOwn ? await this.#sign(kept.statement) : kept;
      const bundle = renderBundle({ statements: [one], leavings: [] });
      const within = { ...addressed(row), id: one.statement.id, put: null, line: null };
      await this.#sending.send([to], bundle, changing(one.statement.id), within);
    }
  }
}
