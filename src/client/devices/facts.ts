/**
 * What a new device must know before it files anything: people, blocks, groups and removals of the
 * history, which decide where a message belongs. They come first, in parts that are numbered, and a
 * mark ends them; until all parts up to the mark are applied, nothing is read from the identity's
 * Caches. After ten minutes the user may go on without.
 * Source: docs/client.md "Devices".
 */
import { minuteMs } from "../../core/codec/time.ts";
import { Waiters } from "../../core/std/bounded.ts";
import { type ClientError, localError } from "../base/failure.ts";
import { factsKey } from "../store/keys.ts";
import type { OwnStore } from "../store/own-store.ts";
import type { Batch, Table } from "../store/table.ts";

/** How long other devices may take to say what a new one must know. */
const factsMs = 10 * minuteMs;

/** First and last number of a part of the history. */
export type Part = readonly [first: number, last: number];

/** There as long as something is missing. */
type FactsRow = {
  readonly sinceMs: number;
  /** Parts that were applied, joined and in order. */
  readonly heard: readonly Part[];
  /** The number at which the facts end; `null` until that part came. */
  readonly mark: number | null;
};

export const awaitFacts = (batch: Batch, sinceMs: number): void =>
  batch.put(factsKey, { sinceMs, heard: [], mark: null } satisfies FactsRow);

/** A part was applied. `true` when it was the last that was missing. */
export function hearPart(table: Table, part: Part, hasMark: boolean): Promise<boolean> {
  return table.change(async (batch) => {
    const row = await batch.get<FactsRow>(factsKey);
    if (row === null) return false;
    const heard = joined([...row.heard, part]);
    const mark = hasMark ? part[1] : row.mark;
    const [first, last] = heard[0] ?? [1, 0];
    const isWhole = mark !== null && first === 0 && last >= mark;
    if (isWhole) batch.delete(factsKey);
    else batch.put(factsKey, { ...row, heard, mark } satisfies FactsRow);
    return isWhole;
  });
}

function joined(parts: readonly Part[]): Part[] {
  const all: Part[] = [];
  for (const [first, last] of parts.toSorted(([a], [b]) => a - b)) {
    const [before, end] = all.at(-1) ?? [0, -2];
    if (first > end + 1) all.push([first, last]);
    else all[all.length - 1] = [before, Math.max(end, last)];
  }
  return all;
}

export const historyMissing = (): ClientError =>
  localError(
    "history_missing",
    "people and groups have not come from the other device so far: goOn() files what arrives without",
  );

/** The wait of a device that was linked. */
export class AwaitedFacts {
  readonly #own: OwnStore;
  readonly #here = new Waiters();

  constructor(own: OwnStore) {
    this.#own = own;
  }

  async isWaiting(): Promise<boolean> {
    return (await this.#own.table.get(factsKey)) !== null;
  }

  async goOn(): Promise<void> {
    await this.#own.table.change(async (batch) => batch.delete(factsKey));
    this.release();
  }

  /** The last part was applied. */
  release(): void {
    this.#here.release();
  }

  /**
   * Resolves when what arrives can be filed. Only own devices are waited for; after
   * ten minutes that is said.
   */
  async ready(signal: AbortSignal, failed: (error: ClientError) => void): Promise<void> {
    const end = () => this.release();
    signal.addEventListener("abort", end, { once: true });
    for (let isSaid = false; !signal.aborted; ) {
      const row = await this.#own.table.get<FactsRow>(factsKey);
      if (row === null) break;
      const leftMs = row.sinceMs + factsMs - this.#own.nowMs();
      if (leftMs <= 0 && !isSaid) failed(historyMissing());
      isSaid ||= leftMs <= 0;
      // Another tab may go on.
      await this.#here.wait(isSaid ? minuteMs : Math.min(leftMs, minuteMs));
    }
    signal.removeEventListener("abort", end);
  }
}
