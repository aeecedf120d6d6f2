/**
 * How a device answers messages to a group whose sender shows another state, and whom it asks about
 * a group that is not known here, or that has gone on without it.
 * Source: docs/protocol.md "Groups".
 */
import { encodeHex } from "../../core/codec/bytes.ts";
import type { Did } from "../../core/codec/did.ts";
import { minuteMs, secondMs } from "../../core/codec/time.ts";
import { BoundedMap } from "../../core/std/bounded.ts";
import { attempt, pause } from "../base/failure.ts";
import { type GroupRow, placeOf, renderBundle, standingOf, upgradeRow } from "../groups/bundles.ts";
import { removalsFor } from "../groups/removals.ts";
import {
  answerAgainMs,
  answerTo,
  type GroupState,
  groupIdOf,
  isDue,
  isIn,
  membersOf,
  stateDigest,
} from "../groups/statements.ts";
import { changing, groupAt, isEmpty } from "./group-rows.ts";
import { keyOfGroup, rowsOf } from "./keys.ts";
import type { OwnStore } from "./own-store.ts";
import type { Sending } from "./sending.ts";

/** Who is not the maker answers some time within it, so that one answer is enough for most. */
const answerWithinMs = minuteMs;
/** Between two answers to one member. */
const answersApartMs = 10 * secondMs;
const answeredMax = 1_000;
/** Most groups, and most members of each, that are asked about an id that is not known here. */
const askedMax = 8;
/** So long after a message to a group that is not known here, somebody is asked what it is. */
const askAfterMs = 3 * secondMs;
/** No state has it. */
const noDigest = "0".repeat(32);

export type Said = { readonly group: string; readonly from: Did; readonly digest: string | null };

/** What a device says to a group. */
type GroupSpeech = {
  /** The root key of this device in hex. */
  root(): Promise<string>;
  say(row: GroupRow, to: readonly Did[]): Promise<void>;
  /** To those who are not in it any more. */
  sayOut(row: GroupRow, were: readonly Did[]): Promise<void>;
  show(row: GroupRow, to: Did): Promise<void>;
};

export class GroupAnswers {
  readonly #own: OwnStore;
  readonly #talk: GroupSpeech;
  readonly #sending: Sending;
  /** When a member was last answered or asked, by group, member and states. */
  readonly #answered = new BoundedMap<string, number>(answeredMax);
  /** When a member was last answered, by group and member. */
  readonly #answeredMs = new BoundedMap<string, number>(answeredMax);
  /** When somebody last wrote to a group of which nothing is known here. */
  readonly #askedMs = new BoundedMap<string, number>(answeredMax);
  /** Pairs of a group and a member who is about to be answered. */
  readonly #answering = new Set<string>();

  constructor(own: OwnStore, talk: GroupSpeech, sending: Sending) {
    this.#own = own;
    this.#talk = talk;
    this.#sending = sending;
  }

  /**
   * Under which key the maker has written to the group: what an earlier one has
   * signed led nowhere before.
   */
  async #noteMaker(id: string, maker: Did): Promise<void> {
    const { table, identity } = this.#own;
    const root = identity.client.trust.provenOf(maker)?.state.rootKeys.at(-1);
    if (root === undefined || maker === this.#own.did) return;
    const spoke = { id, key: encodeHex(root) };
    await table.change(async (batch) => {
      const row = await groupAt(table, id, batch);
      const isNew = row?.state.id === id && row.spoke?.key !== spoke.key;
      if (row !== null && isNew) batch.put(keyOfGroup(table, placeOf(row)), { ...row, spoke });
    });
  }

  /** Answers a member who shows another state: once an hour for each state that either has. */
  async answer({ group, from, digest }: Said): Promise<void> {
    const { did: own, table, signal } = this.#own;
    const row = await groupAt(table, group);
    if (row === null || isEmpty(row)) {
      if (digest !== null) void attempt(() => this.#askWhole(group, from));
      return this.#askAfter(group, from);
    }
    if (from === row.state.maker && digest !== null) await this.#noteMaker(group, from);
    // Who only asks this identity in learns nothing of it.
    if (row.joined === 0 || standingOf(row, own) === "asked") return;
    const answer =
      removalsFor(row, from, this.#own.nowMs()).length > 0
        ? "now"
        : answerTo(row.state, { own, from, digest });
    // Under new keys once more: what earlier ones have signed doesn't count everywhere.
    const name = `${group} ${from} ${digest} ${stateDigest(row.state)} ${await this.#talk.root()}`;
    const pair = `${group} ${from}`;
    const isAnswered = !isDue(this.#answered.get(name), this.#own.nowMs(), answerAgainMs);
    if (answer === null || isAnswered || this.#answering.has(pair)) return;
    // What else they show meanwhile gets the same answer.
    this.#answering.add(pair);
    // Who has stayed in a group that was handed over counts how many have
    // followed: all answer soon.
    const withinMs = group === row.state.id ? answerWithinMs : answersApartMs;
    await this.#inTurn(pair, answer === "later" ? Math.random() * withinMs : 0);
    this.#answering.delete(pair);
    if (signal.aborted) return;
    this.#answered.set(name, this.#own.nowMs());
    const now = await groupAt(table, group);
    if (now === null) return;
    if (answer === "out") await this.#talk.sayOut(now, [from]);
    else if (isIn(now.state, from)) await this.#talk.show(now, from);
  }

  /**
   * Who writes under an id of which nothing is known here may have followed a hand-over
   * that this device has missed: a member is shown what is here, once an hour, and answers
   * with what came after it.
   */
  async #askAfter(group: string, from: Did): Promise<void> {
    const { did: own, table, nowMs } = this.#own;
    if (!isDue(this.#askedMs.get(from), nowMs(), answersApartMs)) return;
    this.#askedMs.set(from, nowMs());
    const all = (await table.values<GroupRow>(rowsOf.groups)).map((row) => upgradeRow(row));
    const shared = all.filter(
      (row) => standingOf(row, own) === "joined" && isIn(row.state, from) && row.joined !== 0,
    );
    const isBefore = ({ state }: GroupRow) =>
      membersOf(state).some((next) => groupIdOf(next, state.id) === group);
    const before = shared.filter(isBefore);
    for (const { state } of before) await this.#ask(state, from);
    if (before.length > 0) return this.#askOthers(group, { before, from });
    if (shared.length === 0) return;
    // More than one hand-over was missed, or the group is new, and its state
    // comes within the minute.
    await pause(Math.random() * answerWithinMs, this.#own.signal);
    const row = this.#own.signal.aborted ? null : await groupAt(table, group);
    if (row !== null && !isEmpty(row)) return;
    for (const { state } of shared.slice(0, askedMax)) await this.#ask(state, from);
  }

  /**
   * Where their answer was not enough, as by a key that was replaced since: who else has followed.
   */
  async #askOthers(
    group: string,
    { before, from }: { readonly before: readonly GroupRow[]; readonly from: Did },
  ): Promise<void> {
    const { did, table, signal } = this.#own;
    await pause(askAfterMs, signal);
    if (signal.aborted || (await groupAt(table, group)) !== null) return;
    for (const { state } of before) {
      const others = membersOf(state).filter((one) => one !== did && one !== from);
      const some = others.toSorted(() => Math.random() - 0.5).slice(0, askedMax);
      for (const one of some) await this.#ask(state, one);
    }
  }

  async #ask(state: GroupState, from: Did): Promise<void> {
    if (this.#own.signal.aborted) return;
    const { id } = state;
    const name = `${id} ${from} missed ${stateDigest(state)}`;
    if (!isDue(this.#answered.get(name), this.#own.nowMs(), answerAgainMs)) return;
    this.#answered.set(name, this.#own.nowMs());
    const now = await groupAt(this.#own.table, id);
    if (now !== null && isIn(now.state, from)) await this.#talk.say(now, [from]);
  }

  /**
   * What a group is may have gone astray: who is known and writes to it is asked, by showing
   * that nothing is known here.
   */
  async #askWhole(group: string, from: Did): Promise<void> {
    const { table, nowMs, signal } = this.#own;
    const name = `${group} ${from} asked`;
    if (!isDue(this.#answered.get(name), nowMs(), answerAgainMs)) return;
    if (!(await this.#sending.listensTo(from))) return;
    this.#answered.set(name, nowMs());
    // It may be about to come.
    await pause(askAfterMs, signal);
    const row = await groupAt(table, group);
    if (signal.aborted || (row !== null && !isEmpty(row))) return;
    const nothing = renderBundle({ statements: [], leavings: [] });
    const within = { id: group, place: group, digest: noDigest, put: null, line: null };
    await this.#sending.send([from], nothing, changing(group), within);
  }

  /** Some time after the last answer to a member, and so much later. */
  async #inTurn(pair: string, laterMs: number): Promise<void> {
    const { nowMs, signal } = this.#own;
    const isSoon = !isDue(this.#answeredMs.get(pair), nowMs(), answersApartMs);
    await pause((isSoon ? answersApartMs : 0) + laterMs, signal);
    this.#answeredMs.set(pair, nowMs());
  }
}
