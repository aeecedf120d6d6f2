/**
 * Handing a group over, between the devices of its admin: the one on which the user does it
 * asks the others by its row of the group, each answers in its own, and with the last
 * answer the first one signs.
 * Source: docs/protocol.md "Groups", docs/client.md "People and groups".
 */
import type { Did } from "../../core/codec/did.ts";
import { secondMs } from "../../core/codec/time.ts";
import { attempt, ClientError, localError, pause } from "../base/failure.ts";
import { type GroupRow, type SignedHandOver, upgradeRow } from "../groups/bundles.ts";
import {
  agreeTo,
  goOnMs,
  type HandOverWish,
  handOversMax,
  isFollowed,
  joinWishes,
  mayHandOver,
  timesHandedOver,
} from "../groups/handing.ts";
import { isIn } from "../groups/statements.ts";
import { groupAt, putGroup } from "./group-rows.ts";
import type { GroupTalk } from "./group-talk.ts";
import { rowsOf } from "./keys.ts";
import type { OwnStore } from "./own-store.ts";

/** How often a hand-over looks whether own devices have answered. */
const lookMs = 100;
const triesMax = 3;

export class GroupHanding {
  readonly #own: OwnStore;
  readonly #talk: GroupTalk;
  /** Of this identity, this one first; none where there are no others. */
  deviceDids: () => Promise<readonly Did[]> = async () => [];
  /** How long a call waits for them. */
  answerMs = 4 * secondMs;

  constructor(own: OwnStore, talk: GroupTalk) {
    this.#own = own;
    this.#talk = talk;
  }

  /**
   * Makes a member the admin, once and for good, when all own devices have answered; after ten
   * minutes without them. Throws `not_admin`, `not_member`, `handing_over` when it is being handed
   * over to somebody else, `devices_awaited`, and `handed_over_often` for the 17th time.
   */
  async handOver(id: string, to: Did): Promise<void> {
    const { did, nowMs } = this.#own;
    const row = await this.#talk.beginHandOver(id);
    const { next } = row.state;
    if (next === to) return;
    if (next !== undefined) throw localError("not_admin", `it was handed over to ${next}`);
    if (to === did || !isIn(row.state, to))
      throw localError("not_member", "who is to be the admin is not in the group");
    if (timesHandedOver(row, row.handOvers ?? []) >= handOversMax)
      throw localError("handed_over_often", `a group is handed over ${handOversMax} times at most`);
    const [device = ""] = await this.deviceDids();
    const handing = this.#wishOf(row, to, device as Did);
    await this.#mark(id, (now) => ({ ...now, handing }));
    const isOver = handing.by === device && Math.abs(nowMs() - handing.sinceMs) > goOnMs;
    await this.goOn(id, isOver);
    if (await this.#isDone(id)) return this.#demandNext(row.state.id, to);
    throw localError(
      "devices_awaited",
      "other devices of this identity must answer first: open them, or try again in ten minutes",
    );
  }

  /**
   * After new keys, at the device that made them, what was followed here, and at another
   * one what it had signed itself: other own devices take a hand-over that they don't have
   * from the key in force alone.
   */
  async signAgain(): Promise<void> {
    const root = await this.#talk.root();
    for (const raw of await this.#own.table.values<GroupRow>(rowsOf.groups))
      await this.#signRowAgain(upgradeRow(raw), root);
  }

  async #signRowAgain(row: GroupRow, root: string): Promise<void> {
    const { table, did } = this.#own;
    const isOld = (one: SignedHandOver) =>
      one.maker === did && one.key !== root && isFollowed(row, one);
    const signed = new Map<string, SignedHandOver>();
    for (const one of (row.handOvers ?? []).filter(isOld))
      for (const again of await this.#talk.signedNow(row, one)) signed.set(one.signature, again);
    if (signed.size === 0) return;
    await table.change(async (batch) => {
      const now = await groupAt(table, row.state.id, batch);
      if (now === null) return;
      const handOvers = (now.handOvers ?? []).map((one) => signed.get(one.signature) ?? one);
      await putGroup(table, batch, { ...now, handOvers });
    });
  }

  #wishOf(row: GroupRow, to: Did, by: Did): HandOverWish {
    const held = row.handing ?? null;
    // Somebody who has left meanwhile: for all devices what comes now counts as if
    // it were the earlier one.
    const isVoid = held !== null && !isIn(row.state, held.to);
    const sinceMs = isVoid ? held.sinceMs - 1 : this.#own.nowMs();
    const handing = joinWishes(held, { to, by, sinceMs, agreed: [] });
    if (handing?.to === to) return handing;
    throw localError("handing_over", `it is being handed over to ${handing?.to}`);
  }

  async #isDone(id: string): Promise<boolean> {
    const { table, did, signal } = this.#own;
    for (let waitedMs = 0; waitedMs < this.answerMs && !signal.aborted; waitedMs += lookMs) {
      const row = await groupAt(table, id);
      if (row?.state.maker !== did || row.state.next !== undefined) return true;
      await pause(lookMs, signal);
    }
    return false;
  }

  /** The choice of another device may have been the earlier one. */
  async #demandNext(id: string, to: Did): Promise<void> {
    const row = await groupAt(this.#own.table, id);
    if (row === null || isFollowed(row, { id, next: to })) return;
    throw localError("not_admin", "another device has handed it over to somebody else");
  }

  #mark(id: string, edit: (row: GroupRow) => GroupRow): Promise<void> {
    const { table } = this.#own;
    return table.change(async (batch) => {
      const row = await groupAt(table, id, batch);
      if (row === null) return;
      const now = edit(row);
      if (JSON.stringify(now) !== JSON.stringify(row)) await putGroup(table, batch, now);
    });
  }

  /** What was interrupted. One that can't go on now keeps no other from it. */
  async resume(): Promise<void> {
    for (const raw of await this.#own.table.values<GroupRow>(rowsOf.groups)) {
      const { state, handing = null } = upgradeRow(raw);
      if (handing !== null || state.next === this.#own.did)
        await attempt(() => this.goOn(state.id));
    }
  }

  /** Again when the group has changed meanwhile. */
  async goOn(id: string, isOver = false): Promise<void> {
    for (let tries = 1; ; tries++) {
      const done = await attempt(() => this.#goOn(id, isOver));
      if (!(done instanceof ClientError)) return;
      if (done.code !== "group_changed" || tries === triesMax) throw done;
    }
  }

  /**
   * Answers another device that wants to hand a group over, or does it when all have answered; and
   * goes on as the next admin.
   */
  async #goOn(id: string, isOver: boolean): Promise<void> {
    const { table, did } = this.#own;
    const row = await groupAt(table, id);
    if (row === null) return;
    const { state, handing = null } = row;
    if (state.maker !== did || handing === null || state.next !== undefined) {
      await this.#talk.found(row);
      return;
    }
    const [device = "", ...others] = await this.deviceDids();
    const answered = (one: HandOverWish) => agreeTo(one, device as Did);
    await this.#mark(id, (now) =>
      now.handing === null || now.handing === undefined
        ? now
        : { ...now, handing: answered(now.handing) },
    );
    if (!isIn(state, handing.to)) return;
    if (isOver || mayHandOver(handing, device as Did, others))
      await this.#talk.sayNext(row, handing.to);
  }
}
