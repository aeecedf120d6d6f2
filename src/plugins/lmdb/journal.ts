/**
 * The mailbox's index on disk. A journal record holds what one commit did, in order; a page holds the rows of
 * 512 neighbouring slots as they stood when it was written. Each begins with the latest time that a call has
 * named and the last arrival. Reading all pages and then the whole journal gives the index back; reading an
 * operation twice changes nothing, because the operations after it are read too.
 *
 * The journal would grow with everything that ever happened; so when it is long, the pages of all slots that
 * changed are written as they stand, a few with each commit, and then what the journal held up to the
 * beginning of that work is removed. It is never removed before all those pages are on disk.
 * Memory: a number for each changed page. Disk: the journal stays below twice `operationsMax`.
 */

import { StoreError } from "../../storage/contract.ts";
import type { Place } from "./bodies.ts";
import type { Change, Environment, KeyRange } from "./environment.ts";
import type { LoadedRow, MailboxIndex } from "./mailbox-index.ts";
import {
  howToGoOn,
  orderedKey,
  orderedNumber,
  Reader,
  seal,
  sealBytes,
  sealedWriter,
  unsealed,
  type Writer,
} from "./records.ts";
import { acked, behaviors, held, kept, lapsed } from "./rows.ts";

export type PlacedRow = LoadedRow & Place;

/** What no row may fall behind, though the rows themselves are gone. */
export type Latest = { readonly toldMs: number; readonly arrival: number };

export type Operation =
  | ({ readonly kind: "latest" } & Latest)
  | { readonly kind: "stored"; readonly row: PlacedRow }
  | { readonly kind: "acked" | "cut" | "dropped"; readonly slot: number }
  | { readonly kind: "moved"; readonly slot: number; readonly place: Place };

export type RowOperation = Exclude<Operation, { kind: "latest" }>;

const codes = { stored: 1, acked: 2, cut: 3, dropped: 4, moved: 5 } as const;
const changes = { 2: "acked", 3: "cut", 4: "dropped" } as const;

/** No preview is longer than 4,096 bytes. */
const noPreview = 0xffff;

const latestBytes = 16;

/** Collects the operations of one commit. */
export class JournalWriter {
  private readonly writer: Writer = sealedWriter(1_024);
  operations = 0;

  constructor() {
    this.writer.skip(latestBytes);
  }

  /** The finished record. Nothing may be added afterwards. */
  finish(latest: Latest): Uint8Array {
    return sealWith(this.writer, latest);
  }

  stored(row: PlacedRow): void {
    this.begin(codes.stored);
    writeRow(this.writer, row);
  }

  change(kind: "acked" | "cut" | "dropped", slot: number): void {
    this.begin(codes[kind]);
    this.writer.u32(slot);
  }

  moved(slot: number, place: Place): void {
    this.begin(codes.moved);
    this.writer.u32(slot);
    writePlace(this.writer, place);
  }

  private begin(code: number): void {
    this.operations++;
    this.writer.u8(code);
  }
}

/** The operations of a journal record, one after the other. */
export function* readJournal(record: Uint8Array, what: string): Generator<Operation> {
  const reader = new Reader(unsealed(record, what), what);
  yield { kind: "latest", toldMs: reader.u53(), arrival: reader.u53() };
  while (!reader.done) {
    const code = reader.u8();
    if (code === codes.stored) yield { kind: "stored", row: readRow(reader) };
    else if (code === codes.moved) yield { kind: "moved", slot: reader.u32(), place: readPlace(reader) };
    else if (code === 2 || code === 3 || code === 4) yield { kind: changes[code], slot: reader.u32() };
    else throw new StoreError("corrupt", `${what} holds an unknown operation`);
  }
}

export class PageWriter {
  private readonly writer: Writer = sealedWriter(64 * 1024);
  rows = 0;

  constructor() {
    this.writer.skip(latestBytes);
  }

  add(row: PlacedRow): void {
    this.rows++;
    writeRow(this.writer, row);
  }

  finish(latest: Latest): Uint8Array {
    return sealWith(this.writer, latest);
  }
}

/** A page reads as the operations that would have made it. */
export function* readPage(record: Uint8Array, what: string): Generator<Operation> {
  const reader = new Reader(unsealed(record, what), what);
  yield { kind: "latest", toldMs: reader.u53(), arrival: reader.u53() };
  while (!reader.done) yield { kind: "stored", row: readRow(reader) };
}

function sealWith(writer: Writer, { toldMs, arrival }: Latest): Uint8Array {
  writer.patch53(sealBytes, toldMs);
  writer.patch53(sealBytes + 8, arrival);
  return seal(writer);
}

function writeRow(writer: Writer, row: PlacedRow): void {
  writer.u32(row.slot);
  writer.u8(row.status);
  writer.u8(behaviors.indexOf(row.onExpiry));
  writer.did(row.recipient);
  writer.words(row.id);
  writer.u53(row.arrival);
  writer.u53(row.expiresAtMs);
  writer.u53(row.keptUntilMs);
  writer.u32(row.envelopeBytes);
  writer.u16(row.previewBytes ?? noPreview);
  writePlace(writer, row);
  writer.u8((row.chunk === null ? 0 : 1) | (row.labels.length === 0 ? 0 : 2));
  if (row.chunk !== null) {
    writer.uuid(row.chunk.groupId);
    writer.u32(row.chunk.sequence);
    writer.u32(row.chunk.total);
  }
  if (row.labels.length === 0) return;
  writer.u8(row.labels.length);
  for (const label of row.labels) writer.text(label);
}

function readRow(reader: Reader): PlacedRow {
  const [slot, status] = [reader.u32(), reader.u8()];
  const onExpiry = behaviors[reader.u8()] ?? "DeleteOnExpiry";
  const [recipient, id] = [reader.did(), reader.words()];
  const [arrival, expiresAtMs, keptUntilMs] = [reader.u53(), reader.u53(), reader.u53()];
  const [envelopeBytes, preview] = [reader.u32(), reader.u16()];
  const previewBytes = preview === noPreview ? null : preview;
  const { block, offset } = readPlace(reader);
  const flags = reader.u8();
  const chunk = (flags & 1) === 1 ? { groupId: reader.uuid(), sequence: reader.u32(), total: reader.u32() } : null;
  const labels = Array.from({ length: (flags & 2) === 2 ? reader.u8() : 0 }, () => reader.text());
  return {
    slot,
    status,
    recipient,
    id,
    chunk,
    labels,
    arrival,
    expiresAtMs,
    keptUntilMs,
    onExpiry,
    envelopeBytes,
    previewBytes,
    block,
    offset,
  };
}

function writePlace(writer: Writer, { block, offset }: Place): void {
  writer.u53(block);
  writer.u32(offset);
}

function readPlace(reader: Reader): Place {
  return { block: reader.u53(), offset: reader.u32() };
}

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
