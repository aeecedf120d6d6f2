/**
 * The mailbox's index on disk. A journal record holds what one commit did, in order; an index page holds 512
 * neighbouring slots, or texts, as they stood when it was written. Each begins with the latest time that a
 * call has named and the last arrival. Reading all pages and then the whole journal gives the index back:
 * every slot and every text ends as the last operation on it left it, or as on its page without one.
 *
 * A page of slots holds the arrays of its rows one after the other, as they lie in memory (little-endian), so
 * that a million rows are read by a few thousand copies; an array of equal numbers is one of them.
 *
 * The journal would grow with everything that ever happened; so when it is long, the pages of all slots and
 * texts that changed are written as they are, a few with each commit, and then what the journal held up to
 * the beginning of that work is removed. It is never removed before all those pages are on disk.
 * Memory: a number for each changed page. Disk: the journal stays below about twice its limit.
 */
import { StoreError } from "../../storage/contract.ts";
import type { Batch } from "./commits.ts";
import type { Environment } from "./environment.ts";
import type { Latest, MailboxIndex } from "./mailbox-index.ts";
import type { TextTable } from "./recipients.ts";
import {
  howToGoOn,
  orderedKey,
  orderedNumber,
  Reader,
  seal,
  sealBytes,
  sealed,
  sealedWriter,
  u53At,
  unsealed,
  type Writer,
} from "./records.ts";
import {
  acked,
  type Elements,
  free,
  held,
  kept,
  lapsed,
  pageSlots,
  type RowTable,
  type StoredArray,
  viewLike,
} from "./rows.ts";

/** What pages and journal are read into. */
export type IndexTables = { readonly rows: RowTable; readonly texts: TextTable };

const codes = { stored: 1, acked: 2, cut: 3, dropped: 4, moved: 5, text: 6 } as const;
type Change = "acked" | "cut" | "dropped";
const latestBytes = 16;

/** Collects the operations of one commit. */
export class JournalWriter {
  operations = 0;

  constructor(
    private readonly rows: RowTable,
    private readonly writer: Writer,
  ) {
    writer.reset();
    writer.skip(sealBytes + latestBytes);
  }

  /** The finished record. Nothing may be added afterwards. */
  finish({ nowMs, arrival }: Latest): Uint8Array {
    this.writer.patch53(sealBytes, nowMs);
    this.writer.patch53(sealBytes + 8, arrival);
    return seal(this.writer);
  }

  text(number: number, text: string): void {
    this.begin(codes.text, number);
    this.writer.text(text);
  }

  /** A row with its place. */
  stored(slot: number): void {
    const { rows, writer } = this;
    this.begin(codes.stored, slot);
    writer.u8(rows.behavior[slot]!);
    for (let word = 4 * slot; word < 4 * slot + 4; word++) writer.u32(rows.id[word]!);
    writer.u32(rows.recipient[slot]!);
    writer.u32(rows.labels[slot]!);
    writer.u32(rows.group.at(slot));
    writer.u32(rows.sequence.at(slot));
    writer.u32(rows.total.at(slot));
    writer.u32(rows.envelopeBytes[slot]!);
    writer.u32(rows.previewBytes.at(slot));
    writer.u53(rows.arrival[slot]!);
    writer.u53(rows.expiresAtMs[slot]!);
    writer.u53(rows.keptUntilMs.at(slot));
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

/** Repeats what a journal record holds; `each` hears of every slot (`stored` to `moved`) or text that it touches. */
export function replayRecord(
  tables: IndexTables,
  record: Uint8Array,
  what: string,
  each: (subject: number, isText: boolean) => void = () => {},
): Latest {
  const { rows, texts } = tables;
  const reader = new Reader(unsealed(record, what), what);
  const latest = { nowMs: reader.u53(), arrival: reader.u53() };
  while (!reader.done) {
    const [code, subject] = [reader.u8(), reader.u32()];
    each(subject, code === codes.text);
    if (code === codes.text) texts.load(subject, reader.text());
    else if (code === codes.stored) replayStored(rows, subject, reader, reader.advance(storedBytes));
    else if (code === codes.moved) replayPlace(rows, subject, reader);
    else if (code === codes.acked || code === codes.cut || code === codes.dropped) {
      // A page of later may have found the slot free already.
      if (!rows.isUsed(subject)) continue;
      rows.status[subject] = code === codes.dropped ? free : code === codes.cut ? kept : acked;
    } else throw new StoreError("corrupt", `${what} holds an unknown operation`);
  }
  return latest;
}

/** Bytes of a stored row behind its slot. Read by their offsets: a start after a crash does this 100,000 times. */
const storedBytes = 81;

function replayStored(rows: RowTable, slot: number, { view }: Reader, at: number): void {
  rows.reserve(slot + 1);
  rows.status[slot] = held;
  rows.behavior[slot] = view.getUint8(at);
  for (let n = 0; n < 4; n++) rows.id[4 * slot + n] = view.getUint32(at + 1 + 4 * n);
  rows.recipient[slot] = view.getUint32(at + 17);
  rows.labels[slot] = view.getUint32(at + 21);
  rows.group.set(slot, view.getUint32(at + 25));
  rows.sequence.set(slot, view.getUint32(at + 29));
  rows.total.set(slot, view.getUint32(at + 33));
  rows.envelopeBytes[slot] = view.getUint32(at + 37);
  rows.previewBytes.set(slot, view.getUint32(at + 41));
  rows.arrival[slot] = u53At(view, at + 45);
  rows.expiresAtMs[slot] = u53At(view, at + 53);
  rows.keptUntilMs.set(slot, u53At(view, at + 61));
  rows.block[slot] = u53At(view, at + 69);
  rows.offset[slot] = view.getUint32(at + 77);
}

function replayPlace(rows: RowTable, slot: number, reader: Reader): void {
  const [block, offset] = [reader.u53(), reader.u32()];
  rows.reserve(slot + 1);
  rows.block[slot] = block;
  rows.offset[slot] = offset;
}

// ------------------------------------------------------------------------------------------------ pages

/** Pages of texts lie behind those of slots; between them a page without rows holds the latest. */
const latestPage = 2 ** 40;
const firstTextPage = 2 ** 41;

/** Seal 17, zeros 7, latest time 8, last arrival 8, rows 4, which arrays are one number 4. */
const pageHeaderBytes = 48;
/** In the place of an array's bit: the slots follow each other, and only the first is written. */
const isRunBit = 2 ** 31;

function pageOf(slot: number): number {
  return Math.floor(slot / pageSlots);
}

/** The record of a page of slots, or `null` when none of them is used. */
function slotPage({ rows }: IndexTables, page: number, latest: Latest): Uint8Array | null {
  const slots: number[] = [];
  const end = Math.min((page + 1) * pageSlots, rows.slots);
  for (let slot = page * pageSlots; slot < end; slot++) if (rows.isUsed(slot)) slots.push(slot);
  if (slots.length === 0 && page !== latestPage) return null;
  const arrays = rows.stored();
  const rowBytes = arrays.reduce((sum, { elements, perRow }) => sum + perRow * elements.BYTES_PER_ELEMENT, 4);
  const buffer = new ArrayBuffer(pageHeaderBytes + 8 + slots.length * rowBytes);
  const isRun = slots.length > 0 && slots.at(-1)! - slots[0]! === slots.length - 1;
  const listed = isRun ? [slots[0]!, 0] : [...slots, ...(slots.length % 2 === 1 ? [0] : [])];
  new Uint32Array(buffer, pageHeaderBytes, listed.length).set(listed);
  let at = pageHeaderBytes + 4 * listed.length;
  let equal = isRun ? isRunBit : 0;
  for (const [i, array] of arrays.entries()) {
    const { elements, sparse, perRow } = array;
    const to = viewLike(elements, buffer, at, slots.length * perRow);
    if (isRun && sparse === null) to.set(elements.subarray(slots[0]! * perRow, (slots.at(-1)! + 1) * perRow));
    else gather(array, slots, to);
    if (elements === rows.status) for (const [n, status] of to.entries()) to[n] = lastingStatus(status);
    const isOne = slots.length > 0 && perRow === 1 && to.every((element) => element === to[0]);
    if (isOne) equal += 2 ** i;
    at += isOne ? to.BYTES_PER_ELEMENT : to.byteLength;
  }
  const head = new DataView(buffer);
  head.setFloat64(24, latest.nowMs, true);
  head.setFloat64(32, latest.arrival, true);
  head.setUint32(40, slots.length, true);
  head.setUint32(44, equal, true);
  return sealed(new Uint8Array(buffer, 0, at));
}

function gather({ elements, sparse, perRow }: StoredArray, slots: readonly number[], to: Elements): void {
  let i = 0;
  for (const slot of slots) {
    for (let at = slot * perRow; at < (slot + 1) * perRow; at++) to[i++] = sparse?.at(at) ?? elements[at]!;
  }
}

/** Reads a page of slots: what an array holds is copied at once where the slots follow each other. */
function loadSlotPage({ rows }: IndexTables, page: number, buffer: ArrayBuffer): Latest {
  const head = new DataView(buffer);
  const [count, equal] = [head.getUint32(40, true), head.getUint32(44, true)];
  const isRun = equal >= isRunBit;
  const listed = new Uint32Array(buffer, pageHeaderBytes, isRun ? 2 : count + (count % 2));
  const [first, last] = [listed[0]!, isRun ? listed[0]! + count - 1 : listed[count - 1]!];
  if (count > 0) {
    if (pageOf(first) !== page || pageOf(last) !== page) throw misplaced(page);
    rows.reserve(last + 1);
  }
  let at = pageHeaderBytes + listed.byteLength;
  for (const [i, array] of rows.stored().entries()) {
    const isOne = count > 0 && array.perRow === 1 && (equal & (2 ** i)) !== 0;
    const from = viewLike(array.elements, buffer, at, isOne ? 1 : count * array.perRow);
    at += from.byteLength;
    if (isOne && array.sparse?.usual === from[0]) continue;
    const { elements, sparse, perRow } = array;
    if (!isRun || (isOne && sparse !== null)) scatter(array, (i) => (isRun ? first + i : listed[i]!), count, from);
    else if (isOne) elements.fill(from[0]!, first, first + count);
    else if (sparse === null) elements.set(from, first * perRow);
    else sparse.setRun(first * perRow, from);
  }
  return { nowMs: head.getFloat64(24, true), arrival: head.getFloat64(32, true) };
}

function scatter(array: StoredArray, slotAt: (i: number) => number, count: number, from: Elements): void {
  const { elements, sparse, perRow } = array;
  const step = from.length === 1 ? 0 : perRow;
  for (let i = 0; i < count; i++) {
    const at = slotAt(i) * perRow;
    for (let n = 0; n < perRow; n++) {
      if (sparse === null) elements[at + n] = from[i * step + n]!;
      else sparse.set(at + n, from[i * step + n]!);
    }
  }
}

function textPage({ texts }: IndexTables, page: number, latest: Latest): Uint8Array | null {
  const writer = sealedWriter(16 * 1024);
  writer.u53(latest.nowMs);
  writer.u53(latest.arrival);
  const empty = writer.length;
  const first = (page - firstTextPage) * pageSlots;
  for (const [number, text] of texts.between(first, first + pageSlots)) {
    writer.u32(number);
    writer.text(text);
  }
  return writer.length === empty ? null : seal(writer);
}

function loadTextPage({ texts }: IndexTables, page: number, content: Uint8Array): Latest {
  const reader = new Reader(content, `index page ${page}`);
  const latest = { nowMs: reader.u53(), arrival: reader.u53() };
  while (!reader.done) {
    const number = reader.u32();
    if (firstTextPage + pageOf(number) !== page) throw misplaced(page);
    texts.load(number, reader.text());
  }
  return latest;
}

function misplaced(page: number): StoreError {
  return new StoreError("corrupt", `index page ${page} is stored under another number${howToGoOn}`);
}

/** Typed arrays want their bytes aligned: a page is copied here before it is read. Longer than any page of slots. */
const scratch = new Uint8Array(64 * 1024);

/** Reads the record of an index page. */
export function loadPage(tables: IndexTables, page: number, record: Uint8Array): Latest {
  const content = unsealed(record, `index page ${page}`);
  if (page >= firstTextPage) return loadTextPage(tables, page, content);
  if (record.length > scratch.length) throw misplaced(page);
  scratch.set(record);
  return loadSlotPage(tables, page, scratch.buffer);
}

function later(a: Latest, b: Latest): Latest {
  return { nowMs: Math.max(a.nowMs, b.nowMs), arrival: Math.max(a.arrival, b.arrival) };
}

// ------------------------------------------------------------------------------------------------- fold

/** A page of slots is 36 to 52 KB and takes about 0.1 ms. */
const pagesPerCommit = 8;
const recordsPerCommit = 512;

export type FoldLimits = { readonly operationsMax: number; readonly recordsMax: number };

/** A large index has more operations between two folds, because each may touch another page. */
const foldLimits: FoldLimits = { operationsMax: 65_536, recordsMax: 8_192 };
const slotsPerOperation = 8;

type Fold = { readonly through: number; readonly pages: number[] };

export class IndexPages {
  private readonly dirty = new Set<number>();
  private fold: Fold | null = null;
  private first = 0;
  private next = 0;
  private operations = 0;

  constructor(
    private readonly index: MailboxIndex,
    private readonly limits: FoldLimits = foldLimits,
  ) {}

  /** Reads the pages and then the journal into the tables of the index. */
  load(environment: Environment): Latest {
    let latest: Latest = { nowMs: 0, arrival: 0 };
    // The clock may have gone back since some of the pages were written.
    let writtenLast: Latest | null = null;
    const pages = this.numbers(environment, "pages");
    const last = pages.findLast((page) => page < latestPage) ?? 0;
    this.index.rows.expect((last + 1) * pageSlots);
    for (const page of pages) {
      const found = loadPage(this.index, page, environment.borrow("pages", orderedKey(page))!);
      latest = later(latest, found);
      if (page === latestPage) writtenLast = found;
    }
    const numbers = this.numbers(environment, "journal");
    this.first = numbers[0] ?? 0;
    this.next = this.first;
    for (const number of numbers) {
      if (number !== this.next++) {
        throw new StoreError("corrupt", `journal records before number ${number} are missing${howToGoOn}`);
      }
      const record = environment.borrow("journal", orderedKey(number))!;
      writtenLast = replayRecord(this.index, record, `journal record ${number}`, (subject, isText) => {
        this.operations++;
        if (isText) this.touchText(subject);
        else this.touch(subject);
      });
      latest = later(latest, writtenLast);
    }
    return { nowMs: (writtenLast ?? latest).nowMs, arrival: latest.arrival };
  }

  private numbers(environment: Environment, database: "pages" | "journal"): number[] {
    return environment.keys(database, { start: orderedKey(0), limit: Number.MAX_SAFE_INTEGER }).map(orderedNumber);
  }

  touch(slot: number): void {
    this.dirty.add(pageOf(slot));
  }

  touchText(number: number): void {
    this.dirty.add(firstTextPage + pageOf(number));
  }

  /** Whether there is work that a commit should do besides, or that deserves one of its own. */
  get isBehind(): boolean {
    if (this.fold !== null || this.next - this.first >= this.limits.recordsMax) return true;
    return this.operations >= Math.max(this.limits.operationsMax, this.index.rows.slots / slotsPerOperation);
  }

  /** Adds the journal record of a commit and a share of the fold at hand, after all decisions of the commit. */
  write(batch: Batch, journal: JournalWriter): void {
    const isFolding = this.isBehind;
    if (journal.operations > 0) {
      batch.put("journal", orderedKey(this.next++), journal.finish(this.index.latest));
      this.operations += journal.operations;
    }
    if (isFolding) this.foldShare(batch);
  }

  private foldShare(batch: Batch): void {
    if (this.fold === null) {
      this.fold = { through: this.next, pages: [...this.dirty] };
      this.operations = 0;
    }
    const { pages, through } = this.fold;
    if (pages.length > 0) {
      for (const page of pages.splice(-pagesPerCommit)) this.writePage(batch, page);
      return;
    }
    const until = Math.min(this.first + recordsPerCommit, through);
    batch.put("pages", orderedKey(latestPage), slotPage(this.index, latestPage, this.index.latest)!);
    while (this.first < until) batch.remove("journal", orderedKey(this.first++));
    if (this.first === through) this.fold = null;
  }

  private writePage(batch: Batch, page: number): void {
    this.dirty.delete(page);
    const { index } = this;
    const record = page < firstTextPage ? slotPage(index, page, index.latest) : textPage(index, page, index.latest);
    if (record === null) batch.remove("pages", orderedKey(page));
    else batch.put("pages", orderedKey(page), record);
  }
}

/** That a row's time has come is not written: it follows from the times. What is over is as good as acknowledged. */
function lastingStatus(status: number): number {
  if (status === held || status === lapsed) return held;
  return status === kept ? kept : acked;
}
