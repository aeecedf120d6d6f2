/**
 * The mailbox's index on disk. A journal record holds what one commit did, in order. An index page holds the rows of
 * 512 neighbouring slots, or the texts of 512 numbers, as they stood when it was written. A start reads all pages and
 * then the journal: every slot and every text ends as the last operation on it left it, or as on its page without one.
 *
 * The journal keeps below a limit. When a commit makes it longer, the oldest records go: first the pages that changed
 * in them and were not written since are written, in the same transaction. So at any time a page, with the journal
 * from the first of its changes on, is whole. The last record always stays: it has the latest arrival.
 * Memory: a number for each changed page.
 */
import { StoreError } from "../../storage/contract.ts";
import type { MailboxIndex, RowChange } from "../../storage/mailbox-index.ts";
import type { TextTable } from "../../storage/mailbox-recipients.ts";
import { acked, free, numberFields, type RowTable, retained, wordFields } from "../../storage/mailbox-rows.ts";
import type { Batch } from "./commits.ts";
import type { Environment } from "./environment.ts";
import { howToGoOn, orderedKey, orderedNumber, RecordReader, RecordWriter, sealed, unsealed } from "./records.ts";

/** What pages and journal are read into. */
export type IndexTables = { readonly rows: RowTable; readonly texts: TextTable };

const codes = { row: 1, acked: 2, cut: 3, dropped: 4, text: 5 } as const;
type KeyAndRecord = readonly [key: Buffer, record: Uint8Array];
type Each = (subject: number, isText: boolean) => void;

/** Writes operations one after the other. */
class OperationWriter {
  operations = 0;
  private readonly writer = new RecordWriter(64 * 1024);

  constructor(private readonly rows: RowTable) {
    this.begin();
  }

  /** An operation changes a slot or a text. */
  protected touch(_subject: number, _isText: boolean): void {}

  /** Begins a record, in the memory of the one before. */
  begin(): void {
    this.writer.reset();
    this.operations = 0;
  }

  /** The finished record. */
  record(key: Buffer, lastArrival: number): Uint8Array {
    this.writer.u53(lastArrival);
    return sealed(key, this.writer.finish());
  }

  text(number: number, text: string): void {
    this.add(codes.text, number);
    this.writer.text(text);
  }

  row(slot: number): void {
    const { rows, writer } = this;
    this.add(codes.row, slot);
    writer.u8(rows.status[slot]!);
    writer.u8(rows.behavior[slot]!);
    for (let word = 4 * slot; word < 4 * slot + 4; word++) writer.u32(rows.id[word]!);
    for (let word = 4 * slot; word < 4 * slot + 4; word++) writer.u32(rows.digest[word]!);
    for (const field of wordFields) writer.u32(rows[field][slot]!);
    for (const field of numberFields) writer.u53(rows[field][slot]!);
  }

  change(slot: number, change: RowChange): void {
    this.add(codes[change], slot);
  }

  private add(code: number, subject: number): void {
    this.operations++;
    this.touch(subject, code === codes.text);
    this.writer.u8(code);
    this.writer.u32(subject);
  }
}

/**
 * Repeats what a record of the journal or a page holds; calls `each` for every slot or text that it changes. Returns the
 * last arrival.
 */
export function replayRecord(tables: IndexTables, [key, record]: KeyAndRecord, what: string, each?: Each): number {
  const { rows, texts } = tables;
  const reader = new RecordReader(unsealed(key, record, what), what);
  while (reader.left > arrivalBytes) {
    const [code, subject] = [reader.u8(), reader.u32()];
    each?.(subject, code === codes.text);
    if (code === codes.text) texts.load(subject, reader.text());
    else if (code === codes.row) replayRow(rows, subject, reader);
    else if (code === codes.acked || code === codes.cut || code === codes.dropped) {
      // A page written later may already have the slot as free.
      if (!rows.isUsed(subject)) continue;
      rows.status[subject] = code === codes.dropped ? free : code === codes.cut ? retained : acked;
    } else throw new StoreError("corrupt", `${what} holds an unknown operation`);
  }
  return reader.u53();
}

const arrivalBytes = 8;

function replayRow(rows: RowTable, slot: number, reader: RecordReader): void {
  rows.reserve(slot + 1);
  rows.status[slot] = reader.u8();
  rows.behavior[slot] = reader.u8();
  for (let word = 4 * slot; word < 4 * slot + 4; word++) rows.id[word] = reader.u32();
  for (let word = 4 * slot; word < 4 * slot + 4; word++) rows.digest[word] = reader.u32();
  for (const field of wordFields) rows[field][slot] = reader.u32();
  for (const field of numberFields) rows[field][slot] = reader.u53();
}

// ------------------------------------------------------------------------------------------------ pages

/** Slots of an index page, a power of 2. */
const pageSlots = 512;
/** Pages of texts have numbers from here on. */
const firstTextPage = 2 ** 40;

function pageOf(subject: number, isText: boolean): number {
  return Math.floor(subject / pageSlots) + (isText ? firstTextPage : 0);
}

/** The record of a page, or `null` when nothing on it is used. About 0.1 ms and 45 KB. */
function pageRecord({ rows, texts }: IndexTables, page: number, key: Buffer): Uint8Array | null {
  const writer = new OperationWriter(rows);
  const first = (page % firstTextPage) * pageSlots;
  if (page >= firstTextPage) {
    for (const [number, text] of texts.between(first, first + pageSlots)) writer.text(number, text);
  } else {
    for (let slot = first; slot < first + pageSlots; slot++) if (rows.isUsed(slot)) writer.row(slot);
  }
  return writer.operations === 0 ? null : writer.record(key, 0);
}

// -------------------------------------------------------------------------------------------- the journal

const pagesPerCommit = 8;
const recordsPerCommit = 512;

export type JournalLimits = { readonly operationsMax: number; readonly recordsMax: number };

/** A large index has a longer journal, because each operation may change another page. */
const journalLimits: JournalLimits = { operationsMax: 65_536, recordsMax: 8_192 };
const slotsPerOperation = 8;

/** Holds the operations of the commit that is being decided, between `begin` and `finish`. All share the memory. */
export class Journal extends OperationWriter {
  /** The first record with a change of the page since it was written, by page; the oldest first. */
  private readonly changed = new Map<number, number>();
  private first = 0;
  private next = 0;
  /** Operations of each record from `first` on, and their sum. */
  private readonly lengths: number[] = [];
  private operationsSum = 0;

  constructor(
    private readonly index: MailboxIndex,
    private readonly limits: JournalLimits = journalLimits,
  ) {
    super(index.rows);
  }

  /** Reads the pages and then the journal into the tables of the index; returns the last arrival. */
  load(environment: Environment): number {
    const { index } = this;
    const all = { start: orderedKey(0), limit: Number.MAX_SAFE_INTEGER };
    const recordOf = (table: "pages" | "journal", key: Buffer) => [key, environment.borrow(table, key)!] as const;
    const pages = environment.keys("pages", all);
    const last = pages.map(orderedNumber).findLast((page) => page < firstTextPage) ?? -1;
    index.rows.expect((last + 1) * pageSlots);
    for (const key of pages) replayRecord(index, recordOf("pages", key), `index page ${orderedNumber(key)}`);
    let lastArrival = 0;
    const keys = environment.keys("journal", all);
    this.first = keys[0] === undefined ? 0 : orderedNumber(keys[0]);
    this.next = this.first;
    for (const key of keys) {
      const number = orderedNumber(key);
      if (number !== this.next) {
        throw new StoreError("corrupt", `journal records before number ${number} are missing${howToGoOn}`);
      }
      let operations = 0;
      lastArrival = replayRecord(index, recordOf("journal", key), `journal record ${number}`, (subject, isText) => {
        operations++;
        this.touch(subject, isText);
      });
      this.count(operations);
    }
    return lastArrival;
  }

  /** A number names no text from now on: its page loses the text when it is written the next time. */
  textGone(number: number): void {
    this.touch(number, true);
  }

  /** The page of a slot or a text changes in the record that is next. */
  protected override touch(subject: number, isText: boolean): void {
    const page = pageOf(subject, isText);
    if (!this.changed.has(page)) this.changed.set(page, this.next);
  }

  private count(operations: number): void {
    this.next++;
    this.lengths.push(operations);
    this.operationsSum += operations;
  }

  /** Writes the record of the commit, after all its decisions, and shortens the journal. */
  finish(batch: Batch): void {
    if (this.operations === 0) return;
    const key = orderedKey(this.next);
    batch.put("journal", key, this.record(key, this.index.lastArrival));
    this.count(this.operations);
    let pages = 0;
    for (let records = 0; records < recordsPerCommit && this.isLong; records++) {
      pages += this.writePages(batch, pagesPerCommit - pages);
      if (pages === pagesPerCommit) return;
      batch.remove("journal", orderedKey(this.first++));
      this.operationsSum -= this.lengths.shift()!;
    }
  }

  private get isLong(): boolean {
    if (this.lengths.length < 2) return false;
    const operationsMax = Math.max(this.limits.operationsMax, this.index.rows.slots / slotsPerOperation);
    return this.operationsSum > operationsMax || this.lengths.length > this.limits.recordsMax;
  }

  /** Writes the pages that changed in the first record, at most so many, and returns how many. */
  private writePages(batch: Batch, pagesMax: number): number {
    let written = 0;
    for (const [page, since] of this.changed) {
      if (since > this.first || written === pagesMax) break;
      written++;
      this.changed.delete(page);
      const key = orderedKey(page);
      const record = pageRecord(this.index, page, key);
      if (record === null) batch.remove("pages", key);
      else batch.put("pages", key, record);
    }
    return written;
  }
}
