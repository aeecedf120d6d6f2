/**
 * The mailbox's index on disk. A journal record holds what one commit did, in order. An index page holds the rows of
 * 512 neighbouring slots, or the texts of 512 numbers, as they stood when it was written. A start reads all pages and
 * then the journal: every slot and every text ends as the last operation on it left it, or as on its page without one.
 *
 * The journal keeps below a limit. When a commit makes it longer, the oldest records go: first the pages that changed
 * in them and were not written since are written, in the same transaction. So at any time a page, with the journal
 * from the first of its changes on, is whole. The last record always stays: it has the latest time and arrival.
 * Memory: a number for each changed page.
 */
import { StoreError } from "../../storage/contract.ts";
import type { Batch } from "./commits.ts";
import type { Environment } from "./environment.ts";
import type { Latest, MailboxIndex } from "./mailbox-index.ts";
import type { TextTable } from "./recipients.ts";
import { howToGoOn, orderedKey, orderedNumber, Reader, seal, sealedWriter, unsealed, Writer } from "./records.ts";
import { acked, expired, free, held, pageSlots, type RowTable, retained } from "./rows.ts";

/** What pages and journal are read into. */
export type IndexTables = { readonly rows: RowTable; readonly texts: TextTable };

const codes = { row: 1, acked: 2, cut: 3, dropped: 4, moved: 5, text: 6 } as const;
type Change = "acked" | "cut" | "dropped";

/** Writes the operations of a page, or of a commit into memory that commits share. */
export class JournalWriter {
  operations = 0;
  private readonly writer: Writer;

  constructor(
    private readonly rows: RowTable,
    shared?: Writer,
  ) {
    this.writer = sealedWriter(shared ?? new Writer(64 * 1024));
  }

  /** The finished record. Nothing may be added afterwards. */
  finish({ nowMs, arrival }: Latest): Uint8Array {
    this.writer.u53(nowMs);
    this.writer.u53(arrival);
    return seal(this.writer);
  }

  text(number: number, text: string): void {
    this.begin(codes.text, number);
    this.writer.text(text);
  }

  row(slot: number): void {
    const { rows, writer } = this;
    this.begin(codes.row, slot);
    writer.u8(lastingStatus(rows.status[slot]!));
    writer.u8(rows.behavior[slot]!);
    for (let word = 4 * slot; word < 4 * slot + 4; word++) writer.u32(rows.id[word]!);
    writer.u32(rows.recipient[slot]!);
    writer.u32(rows.labels[slot]!);
    writer.u32(rows.group[slot]!);
    writer.u32(rows.sequence[slot]!);
    writer.u32(rows.total[slot]!);
    writer.u32(rows.envelopeBytes[slot]!);
    writer.u32(rows.previewBytes[slot]!);
    writer.u53(rows.arrival[slot]!);
    writer.u53(rows.expiresAtMs[slot]!);
    writer.u53(rows.keptUntilMs[slot]!);
    this.place(slot);
  }

  change(kind: Change, slot: number): void {
    this.begin(codes[kind], slot);
  }

  moved(slot: number): void {
    this.begin(codes.moved, slot);
    this.place(slot);
  }

  private place(slot: number): void {
    this.writer.u53(this.rows.block[slot]!);
    this.writer.u32(this.rows.offset[slot]!);
  }

  private begin(code: number, subject: number): void {
    this.operations++;
    this.writer.u8(code);
    this.writer.u32(subject);
  }
}

/** Expiry is not written; the timestamps imply it. Finished rows are stored as acknowledged. */
function lastingStatus(status: number): number {
  if (status === held || status === expired) return held;
  return status === retained ? retained : acked;
}

type Each = (subject: number, isText: boolean) => void;

/** Repeats what a record of the journal or a page holds; calls `each` for every slot or text that it changes. */
export function replayRecord(tables: IndexTables, record: Uint8Array, what: string, each: Each = () => {}): Latest {
  const { rows, texts } = tables;
  const reader = new Reader(unsealed(record, what), what);
  while (reader.left > latestBytes) {
    const [code, subject] = [reader.u8(), reader.u32()];
    each(subject, code === codes.text);
    if (code === codes.text) texts.load(subject, reader.text());
    else if (code === codes.row) replayRow(rows, subject, reader);
    else if (code === codes.moved) replayPlace(rows, subject, reader);
    else if (code === codes.acked || code === codes.cut || code === codes.dropped) {
      // A page written later may already have the slot as free.
      if (!rows.isUsed(subject)) continue;
      rows.status[subject] = code === codes.dropped ? free : code === codes.cut ? retained : acked;
    } else throw new StoreError("corrupt", `${what} holds an unknown operation`);
  }
  return { nowMs: reader.u53(), arrival: reader.u53() };
}

const latestBytes = 16;

function replayRow(rows: RowTable, slot: number, reader: Reader): void {
  rows.reserve(slot + 1);
  rows.status[slot] = reader.u8();
  rows.behavior[slot] = reader.u8();
  for (let word = 4 * slot; word < 4 * slot + 4; word++) rows.id[word] = reader.u32();
  rows.recipient[slot] = reader.u32();
  rows.labels[slot] = reader.u32();
  rows.group[slot] = reader.u32();
  rows.sequence[slot] = reader.u32();
  rows.total[slot] = reader.u32();
  rows.envelopeBytes[slot] = reader.u32();
  rows.previewBytes[slot] = reader.u32();
  rows.arrival[slot] = reader.u53();
  rows.expiresAtMs[slot] = reader.u53();
  rows.keptUntilMs[slot] = reader.u53();
  replayPlace(rows, slot, reader);
}

function replayPlace(rows: RowTable, slot: number, reader: Reader): void {
  const [block, offset] = [reader.u53(), reader.u32()];
  rows.reserve(slot + 1);
  rows.block[slot] = block;
  rows.offset[slot] = offset;
}

// ------------------------------------------------------------------------------------------------ pages

/** Pages of texts have numbers from here on. */
const firstTextPage = 2 ** 40;

function pageOf(subject: number, isText: boolean): number {
  return Math.floor(subject / pageSlots) + (isText ? firstTextPage : 0);
}

/** Reads the record of an index page. */
export function loadPage(tables: IndexTables, page: number, record: Uint8Array): void {
  replayRecord(tables, record, `index page ${page}`, (subject, isText) => {
    if (pageOf(subject, isText) === page) return;
    throw new StoreError("corrupt", `index page ${page} is stored under another number${howToGoOn}`);
  });
}

/** The record of a page, or `null` when nothing on it is used. About 0.1 ms and 45 KB. */
function pageRecord({ rows, texts }: IndexTables, page: number): Uint8Array | null {
  const journal = new JournalWriter(rows);
  const first = (page % firstTextPage) * pageSlots;
  if (page >= firstTextPage) {
    for (const [number, text] of texts.between(first, first + pageSlots)) journal.text(number, text);
  } else {
    for (let slot = first; slot < first + pageSlots; slot++) if (rows.isUsed(slot)) journal.row(slot);
  }
  return journal.operations === 0 ? null : journal.finish(noLatest);
}

const noLatest: Latest = { nowMs: 0, arrival: 0 };

// -------------------------------------------------------------------------------------------- the journal

const pagesPerCommit = 8;
const recordsPerCommit = 512;

export type JournalLimits = { readonly operationsMax: number; readonly recordsMax: number };

/** A large index has a longer journal, because each operation may change another page. */
const journalLimits: JournalLimits = { operationsMax: 65_536, recordsMax: 8_192 };
const slotsPerOperation = 8;

export class Journal {
  /** The first record with a change of the page since it was written, by page; the oldest first. */
  private readonly changed = new Map<number, number>();
  private first = 0;
  private next = 0;
  /** Operations of each record from `first` on, and their sum. */
  private readonly lengths: number[] = [];
  private operations = 0;

  constructor(
    private readonly index: MailboxIndex,
    private readonly limits: JournalLimits = journalLimits,
  ) {}

  /** Reads the pages and then the journal into the tables of the index. */
  load(environment: Environment): Latest {
    const { index } = this;
    const pages = this.numbers(environment, "pages");
    const last = pages.findLast((page) => page < firstTextPage) ?? -1;
    index.rows.expect((last + 1) * pageSlots);
    for (const page of pages) loadPage(index, page, environment.borrow("pages", orderedKey(page))!);
    let latest = noLatest;
    const numbers = this.numbers(environment, "journal");
    this.first = numbers[0] ?? 0;
    this.next = this.first;
    for (const number of numbers) {
      if (number !== this.next) {
        throw new StoreError("corrupt", `journal records before number ${number} are missing${howToGoOn}`);
      }
      let operations = 0;
      const record = environment.borrow("journal", orderedKey(number))!;
      latest = replayRecord(index, record, `journal record ${number}`, (subject, isText) => {
        operations++;
        this.touch(subject, isText);
      });
      this.count(operations);
    }
    return latest;
  }

  private numbers(environment: Environment, database: "pages" | "journal"): number[] {
    return environment.keys(database, { start: orderedKey(0), limit: Number.MAX_SAFE_INTEGER }).map(orderedNumber);
  }

  /** A slot or a text changes in the commit at hand. */
  touch(subject: number, isText = false): void {
    const page = pageOf(subject, isText);
    if (!this.changed.has(page)) this.changed.set(page, this.next);
  }

  private count(operations: number): void {
    this.next++;
    this.lengths.push(operations);
    this.operations += operations;
  }

  /** Adds the record of a commit, after all its decisions, and shortens the journal. */
  write(batch: Batch, commit: JournalWriter): void {
    if (commit.operations === 0) return;
    batch.put("journal", orderedKey(this.next), commit.finish(this.index.latest));
    this.count(commit.operations);
    let pages = 0;
    for (let records = 0; records < recordsPerCommit && this.isLong; records++) {
      pages += this.writePages(batch, pagesPerCommit - pages);
      if (pages === pagesPerCommit) return;
      batch.remove("journal", orderedKey(this.first++));
      this.operations -= this.lengths.shift()!;
    }
  }

  private get isLong(): boolean {
    if (this.lengths.length < 2) return false;
    const operationsMax = Math.max(this.limits.operationsMax, this.index.rows.slots / slotsPerOperation);
    return this.operations > operationsMax || this.lengths.length > this.limits.recordsMax;
  }

  /** Writes the pages that changed in the first record, at most so many, and returns how many. */
  private writePages(batch: Batch, pagesMax: number): number {
    let written = 0;
    for (const [page, since] of this.changed) {
      if (since > this.first || written === pagesMax) break;
      written++;
      this.changed.delete(page);
      const record = pageRecord(this.index, page);
      if (record === null) batch.remove("pages", orderedKey(page));
      else batch.put("pages", orderedKey(page), record);
    }
    return written;
  }
}
