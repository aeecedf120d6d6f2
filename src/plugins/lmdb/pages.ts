/**
 * Pages: from the journal to a compact index. The journal would grow with everything that ever
 * happened; so when it is long, the pages of all slots that changed are written as they stand, a few
 * with each commit, and then what the journal held up to the beginning of that work is removed. It is
 * never removed before all those pages are on disk.
 * Memory: a number for each changed page. Disk: the journal stays below twice `operationsMax`.
 */

import { StoreError } from "../../storage/contract.ts";
import type { Place } from "./blocks.ts";
import type { Change, Environment, KeyRange } from "./environment.ts";
import { type Latest, type Operation, PageWriter, type RowOperation, readJournal, readPage } from "./journal.ts";
import type { MailboxIndex } from "./mailbox-index.ts";
import { howToGoOn, orderedKey, orderedNumber } from "./records.ts";
import { acked, held, kept, lapsed } from "./row-table.ts";

export const pageSlots = 512;
/** A share of a fold keeps the event loop for about 3 ms. */
const pagesPerCommit = 4;
const recordsPerCommit = 512;

/** A page behind all others, without rows: when all rows are gone, it still says what the latest was. */
const markKey = orderedKey(2 ** 40);

export type FoldLimits = { readonly operationsMax: number; readonly recordsMax: number };

export const foldLimits: FoldLimits = { operationsMax: 65_536, recordsMax: 8_192 };

type Fold = { readonly through: number; readonly pages: number[] };

export class IndexPages {
  private readonly dirty = new Set<number>();
  private fold: Fold | null = null;
  private first = 0;
  private next = 0;
  private operations = 0;

  constructor(
    private readonly index: MailboxIndex,
    private readonly placeOf: (slot: number) => Place,
    private readonly limits: FoldLimits = foldLimits,
  ) {}

  /** Calls `each` with what the pages and then the journal say, in order. */
  load(environment: Environment, each: (operation: RowOperation) => void): Latest {
    let [toldMs, arrival] = [0, 0];
    const pass = (operation: Operation) => {
      if (operation.kind !== "latest") return each(operation);
      toldMs = Math.max(toldMs, operation.toldMs);
      arrival = Math.max(arrival, operation.arrival);
    };
    for (const [key, record] of everything(environment, "pages")) {
      const page = orderedNumber(key);
      for (const operation of readPage(record, `index page ${page}`)) {
        if (operation.kind === "stored" && Math.floor(operation.row.slot / pageSlots) !== page) throw misplaced(page);
        pass(operation);
      }
    }
    let isFirst = true;
    for (const [key, record] of everything(environment, "journal")) {
      const number = orderedNumber(key);
      if (isFirst) this.first = number;
      else if (number !== this.next) {
        throw new StoreError("corrupt", `journal records before number ${number} are missing${howToGoOn}`);
      }
      isFirst = false;
      this.next = number + 1;
      for (const operation of readJournal(record, `journal record ${number}`)) {
        pass(operation);
        if (operation.kind === "latest") continue;
        this.touch(operation.kind === "stored" ? operation.row.slot : operation.slot);
        this.operations++;
      }
    }
    if (isFirst) this.first = this.next;
    return { toldMs, arrival };
  }

  touch(slot: number): void {
    this.dirty.add(Math.floor(slot / pageSlots));
  }

  /** Whether there is work that a commit should carry, or that deserves one of its own. */
  get due(): boolean {
    if (this.fold !== null) return true;
    return this.operations >= this.limits.operationsMax || this.next - this.first >= this.limits.recordsMax;
  }

  /**
   * Writes for this commit: the journal record, and a share of the fold at hand. Called after all
   * decisions of the commit, so that a page holds them too.
   */
  writes(journal: { readonly record: Uint8Array; readonly operations: number } | null): ((view: Change) => void)[] {
    const writes: ((view: Change) => void)[] = [];
    const share = this.due ? this.foldShare() : [];
    if (journal !== null) {
      const key = orderedKey(this.next++);
      this.operations += journal.operations;
      writes.push((view) => view.put("journal", key, journal.record));
    }
    return [...writes, ...share];
  }

  private foldShare(): ((view: Change) => void)[] {
    if (this.fold === null) {
      this.fold = { through: this.next, pages: [...this.dirty] };
      this.operations = 0;
    }
    const { pages, through } = this.fold;
    if (pages.length > 0) return pages.splice(0, pagesPerCommit).map((page) => this.writePage(page));
    const from = this.first;
    this.first = Math.min(from + recordsPerCommit, through);
    if (this.first === through) this.fold = null;
    const until = this.first;
    const mark = new PageWriter().finish(this.index.latest);
    return [
      (view) => view.put("pages", markKey, mark),
      (view) => {
        for (let number = from; number < until; number++) view.remove("journal", orderedKey(number));
      },
    ];
  }

  private writePage(page: number): (view: Change) => void {
    this.dirty.delete(page);
    const writer = new PageWriter();
    for (let slot = page * pageSlots; slot < (page + 1) * pageSlots; slot++) {
      if (!this.index.taken(slot)) continue;
      const row = this.index.row(slot);
      writer.add({ ...row, status: lastingStatus(row.status), ...this.placeOf(slot) });
    }
    const key = orderedKey(page);
    if (writer.rows === 0) return (view) => view.remove("pages", key);
    const record = writer.finish(this.index.latest);
    return (view) => view.put("pages", key, record);
  }
}

function misplaced(page: number): StoreError {
  return new StoreError("corrupt", `index page ${page} lies under another number${howToGoOn}`);
}

/** That a row's time has come is not written: it follows from the times. What is over is as good as acknowledged. */
function lastingStatus(status: number): number {
  if (status === held || status === lapsed) return held;
  return status === kept ? kept : acked;
}

function* everything(environment: Environment, database: "pages" | "journal"): Generator<[Buffer, Uint8Array]> {
  const limit = 256;
  let range: KeyRange = { start: orderedKey(0), limit };
  for (;;) {
    const found = environment.range(database, range);
    yield* found;
    if (found.length < limit) return;
    range = { start: orderedKey(orderedNumber(found.at(-1)![0]) + 1), limit };
  }
}
