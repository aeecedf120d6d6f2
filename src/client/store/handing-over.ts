/**
 * What a program is still to get of what was saved: in the order of arrival, but no message before
 * one that its sender sent ahead of it, unless that one does not come within half a minute.
 * Source: docs/client.md "A local store", docs/protocol.md ("Content").
 */
import { dayMs, hourMs, secondMs } from "../../core/codec/time.ts";
import { handOverKey, numberInKey, rowsOf, seenKey } from "./keys.ts";
import type { OwnStore } from "./own-store.ts";
import type { Batch, Table } from "./table.ts";

/** A message that waits for the program. */
export type HandedRow = {
  readonly key: string;
  readonly atMs: number;
  /** Names it, and what it follows. Rows of earlier versions have neither. */
  readonly mark?: string;
  readonly follows?: string;
  /** It came before what it follows. */
  readonly isEarly?: boolean;
};
type PlacedRow = readonly [place: string, row: HandedRow];

/** What was not handed over within this time isn't any more. */
const handOverMs = 366 * dayMs;
/** How long a message waits for one that was sent before it. */
const heldMs = 30 * secondMs;
/** While one waits: another device may have what it waits for, and says nothing here. */
const lookMs = secondMs / 2;

export class HandingOver {
  readonly #own: OwnStore;
  readonly #table: Table;

  constructor(own: OwnStore) {
    this.#own = own;
    this.#table = own.table;
  }

  /** Behind all that came before it. */
  async add(batch: Batch, row: HandedRow, follows: string | null): Promise<void> {
    const [last] = await this.#table.scan({ prefix: rowsOf.toHandOver, limit: 1, isReverse: true });
    const number = last === undefined ? 0 : numberInKey(last[0]) + 1;
    const isEarly = follows !== null && (await batch.get(seenKey(this.#table, follows))) === null;
    const held = follows === null ? row : { ...row, follows, ...(isEarly ? { isEarly } : {}) };
    batch.put(handOverKey(number), held);
  }

  /** The next one with its place, or how many milliseconds to wait unless there is news. */
  async next(): Promise<PlacedRow | number> {
    const [first] = await this.#table.scan<HandedRow>({ prefix: rowsOf.toHandOver, limit: 1 });
    if (first === undefined) return hourMs;
    return first[1].isEarly === true ? ((await this.#first()) ?? lookMs) : first;
  }

  /** The first that waits for no other. What came early waits for what is not here. */
  async #first(): Promise<PlacedRow | null> {
    const held = new Set<string | undefined>();
    for (const one of await rowsToHandOver(this.#table)) {
      const [, row] = one;
      const { follows, isEarly = false } = row;
      const waits =
        follows !== undefined &&
        !this.#isOverdue(row) &&
        (held.has(follows) || (isEarly && !(await this.#isHere(follows))));
      if (!waits) return one;
      held.add(row.mark);
    }
    return null;
  }

  async #isHere(mark: string): Promise<boolean> {
    return (await this.#table.bytes(seenKey(this.#table, mark))) !== null;
  }

  /** A clock that was set back makes none wait for longer. */
  #isOverdue({ atMs }: HandedRow): boolean {
    return Math.abs(this.#own.arrivalMs() - atMs) >= heldMs;
  }

  async sweep(signal: AbortSignal): Promise<void> {
    const oldestMs = this.#own.nowMs() - handOverMs;
    await this.#table.sweep<HandedRow>(rowsOf.toHandOver, ({ atMs }) => atMs < oldestMs, signal);
  }
}

/** What waits for the program now, each message behind the one that it follows. */
export async function rowsToHandOver(table: Table): Promise<readonly PlacedRow[]> {
  const rows: PlacedRow[] = [];
  for await (const page of table.pages<HandedRow>(rowsOf.toHandOver)) rows.push(...page);
  const byMark = new Map(rows.map((one) => [one[1].mark, one]));
  const inOrder = new Set<PlacedRow>();
  for (const one of rows) {
    const chain = new Set<PlacedRow>();
    let next: PlacedRow | undefined = one;
    while (next !== undefined && !inOrder.has(next) && !chain.has(next)) {
      chain.add(next);
      const [, row]: PlacedRow = next;
      next = row.follows === undefined ? undefined : byMark.get(row.follows);
    }
    for (const link of [...chain].reverse()) inOrder.add(link);
  }
  return [...inOrder];
}
