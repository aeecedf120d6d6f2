/**
 * Messages that last for a time. At its author a life begins when the message has left, at a reader
 * when it was read. What ends it is time that has passed: this program has run for so long, or a
 * node agrees with the clock of the machine. A clock alone ends nothing: one that jumps ahead would
 * delete what its owner has not read.
 * Source: docs/protocol.md ("Content", `lasts`).
 */
import { minuteMs, secondMs } from "../../core/codec/time.ts";
import { attempt, Wakeup } from "../base/failure.ts";
import type { Endpoint } from "../net/http.ts";
import { begunKey, keyOfConversation, lastingKeys, numberOfLife } from "./keys.ts";
import type { OwnStore } from "./own-store.ts";
import {
  type ConversationRow,
  type LifeRow,
  type MessageRow,
  messageNamed,
  putRemoval,
  removeMessage,
} from "./rows.ts";

/** Time that has passed for this store. */
type PassedRow = {
  readonly passedMs: number;
  /** The time at which nodes and machine last agreed; what has passed since is in `sinceMs`. */
  readonly agreedMs: number | null;
  readonly sinceMs: number;
};

const none: PassedRow = { passedMs: 0, agreedMs: null, sinceMs: 0 };
/** A look needs no more than this: changes wake it. */
const lookMs = minuteMs;

export class Lasting {
  readonly #own: OwnStore;
  readonly #runMs: () => number;
  readonly #wakeup = new Wakeup();
  #ranMs: number | null = null;
  /** Answers of Directory and Relay that were counted. */
  #answers: readonly number[];

  /** `runMs`: a clock that only goes on. */
  constructor(own: OwnStore, runMs: () => number = () => performance.now()) {
    this.#own = own;
    this.#runMs = runMs;
    this.#answers = this.#nodes().map(({ answers }) => answers);
  }

  /** Something was sent, read or received. */
  wake(): void {
    this.#wakeup.wake();
  }

  async run(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      this.#wakeup.begin();
      const waitMs = await attempt(() => this.look());
      await this.#wakeup.next(typeof waitMs === "number" ? waitMs : lookMs, signal);
    }
  }

  /** Removes what has lasted long enough. Returns how long nothing else ends. */
  async look(): Promise<number> {
    const { table } = this.#own;
    const [any] = await table.scan({ prefix: lastingKeys.all, limit: 1 });
    if (any === undefined) return lookMs;
    const passedMs = await this.#pass();
    await this.#begin(passedMs);
    for await (const [key, life] of table.all<LifeRow>(lastingKeys.begun)) {
      const leftMs = numberOfLife(key) - passedMs;
      if (leftMs > 0) return Math.min(Math.max(leftMs, secondMs), lookMs);
      await this.#end(key, life);
    }
    return lookMs;
  }

  /** What has passed for this store until now. */
  #pass(): Promise<number> {
    const nowMs = this.#runMs();
    const ranMs = this.#ranMs === null ? 0 : Math.max(0, nowMs - this.#ranMs);
    this.#ranMs = nowMs;
    const atMs = this.#agreed();
    const { table } = this.#own;
    return table.change(async (batch) => {
      const row = (await batch.get<PassedRow>(lastingKeys.passed)) ?? none;
      const sinceMs = row.sinceMs + ranMs;
      // Asleep, closed or ended, no program counted.
      const missedMs =
        atMs === null || row.agreedMs === null ? 0 : Math.max(0, atMs - row.agreedMs - sinceMs);
      const passedMs = row.passedMs + ranMs + missedMs;
      const next = atMs === null ? { ...row, sinceMs } : { agreedMs: atMs, sinceMs: 0 };
      batch.put(lastingKeys.passed, { ...row, ...next, passedMs } satisfies PassedRow);
      return passedMs;
    });
  }

  #nodes(): readonly Endpoint["clock"][] {
    const { directory, relay } = this.#own.identity.client;
    return [directory.endpoint.clock, relay.clock];
  }

  /**
   * The time, where a node that has answered since the last look agrees with this machine, or
   * both nodes with each other.
   */
  #agreed(): number | null {
    const nodes = this.#nodes();
    const heard = nodes.filter(({ answers }, i) => answers > (this.#answers[i] ?? 0));
    this.#answers = nodes.map(({ answers }) => answers);
    if (heard.some(({ aheadMs }) => aheadMs === 0)) return this.#own.nowMs();
    return heard.length === nodes.length ? this.#own.arrivalMs() : null;
  }

  /** Lives of what has left or was read meanwhile. */
  async #begin(passedMs: number): Promise<void> {
    const { table } = this.#own;
    for await (const [key, life] of table.all<LifeRow>(lastingKeys.waiting)) {
      const found = await messageNamed(table, { author: life.from, id: life.id });
      const hasBegun = found === null || (await this.#hasBegun(found.row));
      if (!hasBegun) continue;
      const endMs = passedMs + (found?.row.lastsSeconds ?? 0) * secondMs;
      await table.change(async (batch) => {
        batch.delete(key);
        if (found !== null) batch.put(begunKey(table, endMs, `${life.from} ${life.id}`), life);
      });
    }
  }

  async #hasBegun({ isOwn, to, conversation, arrivedMs }: MessageRow): Promise<boolean> {
    if (isOwn) return to.every(({ out }) => out === null);
    const { table } = this.#own;
    const { readMs = 0 } =
      (await table.get<ConversationRow>(keyOfConversation(table, conversation))) ?? {};
    return arrivedMs <= readMs;
  }

  async #end(key: string, { id, from }: LifeRow): Promise<void> {
    const { table, nowMs } = this.#own;
    const found = await messageNamed(table, { author: from, id });
    await table.change(async (batch) => {
      batch.delete(key);
      if (found === null) return;
      await removeMessage(table, batch, found.key);
      putRemoval(table, batch, found.row, nowMs());
    });
    if (found === null) return;
    const { conversation } = found.row;
    this.#own.announce({ type: "changed", conversation, id: found.row.id, what: "removed" });
  }
}
