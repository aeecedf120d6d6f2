/**
 * Acknowledged rows on disk. An acknowledgement changes one byte of a row, and neighbours are
 * seldom acknowledged together, so writing their pages would cost 4 KiB for each. Instead, the rows
 * that a commit acknowledges are one record: a slot (4 bytes) and the arrival of its row (8 bytes)
 * for each, because a slot gets other rows later. A start reads the records after the pages of
 * rows. A record goes once the pages of all its rows were written after it: a sweep writes those of
 * the oldest records while there are more acknowledgements than half of the rows, so that a page is
 * written once for about twenty of them.
 */
import { acked, held, type RowTable } from "../../storage/mailbox-rows.ts";
import type { CommitBatch, Environment } from "./environment.ts";
import { all, type IndexPages, pageOf, type Reads } from "./pages.ts";
import { orderedKey, orderedNumber, sealed, unsealed } from "./records.ts";

const entryBytes = 12;
/** So many acknowledgements cost a start nothing that is noticed. */
const entriesMin = 65_536;
const recordsMax = 65_536;
/** A record that takes half of a page: while the disk is full. */
const entriesWhenTight = 160;
/** Pages that a sweep writes for records that go, at most about: 512 KiB. */
const pagesPerSweep = 128;
const pagesWhenTight = 16;

type Ack = { readonly slot: number; readonly arrival: number };

function encodeAcks(acks: readonly Ack[]): Uint8Array {
  const view = new DataView(new ArrayBuffer(acks.length * entryBytes));
  for (const [n, { slot, arrival }] of acks.entries()) {
    view.setUint32(n * entryBytes, slot);
    view.setFloat64(n * entryBytes + 4, arrival);
  }
  return new Uint8Array(view.buffer);
}

function decodeAcks(key: Uint8Array, record: Uint8Array): Ack[] {
  const bytes = unsealed(key, record, `record ${orderedNumber(key)} of acknowledgements`);
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  return Array.from({ length: bytes.length / entryBytes }, (_, n) => ({
    slot: view.getUint32(n * entryBytes),
    arrival: view.getFloat64(n * entryBytes + 4),
  }));
}

type AckRecord = { readonly number: number; readonly entries: number };

/**
 * After the pages were loaded: changes the rows that were acknowledged since. `attempt` runs the
 * reading of each record.
 */
export function loadAcks(
  reads: Reads,
  { status, arrival }: RowTable,
  attempt: (load: () => void) => void,
): AckRecord[] {
  const records: AckRecord[] = [];
  for (const key of reads.keys("acks", all))
    attempt(() => {
      const acks = decodeAcks(key, reads.borrow("acks", key)!);
      for (const { slot, arrival: arrived } of acks)
        if (status[slot] === held && arrival[slot] === arrived) status[slot] = acked;
      records.push({ number: orderedNumber(key), entries: acks.length });
    });
  return records;
}

export class Acks {
  /** Those of the commit that is being decided. */
  private deciding: Ack[] = [];
  /**
   * The records on disk, the oldest first: their numbers, and how many acknowledgements each has.
   */
  private readonly records: AckRecord[] = [];
  private entries = 0;
  private next = 1;
  /** The number of the next record when a page was written last, by page. */
  private readonly writtenAt = new Map<number, number>();

  constructor(
    private readonly environment: Environment,
    private readonly rows: RowTable,
  ) {}

  get haveChanged(): boolean {
    return this.deciding.length > 0;
  }

  /** After the pages were loaded. */
  load(): void {
    for (const record of loadAcks(this.environment, this.rows, (load) => load())) this.keep(record);
  }

  private keep(record: AckRecord): void {
    this.records.push(record);
    this.entries += record.entries;
    this.next = record.number + 1;
  }

  add(slot: number): void {
    this.deciding.push({ slot, arrival: this.rows.arrival[slot]! });
  }

  /** The commit writes a page of rows as it is now. */
  wrote(page: number): void {
    this.writtenAt.set(page, this.next);
  }

  private get areMany(): boolean {
    return (
      this.entries > Math.max(entriesMin, this.rows.rows / 2) || this.records.length > recordsMax
    );
  }

  /**
   * Removes the oldest records while there are many; the commit must write the pages of their rows.
   */
  sweep(batch: CommitBatch, pages: IndexPages): void {
    const most = this.environment.isTight ? pagesWhenTight : pagesPerSweep;
    for (let written = 0; this.areMany && written < most; ) {
      const { number, entries } = this.records.shift()!;
      const key = orderedKey(number);
      for (const ack of decodeAcks(key, this.environment.borrow("acks", key)!)) {
        if (!this.isOnlyIn(number, ack)) continue;
        pages.rowChanges(ack.slot);
        this.wrote(pageOf(ack.slot));
        written++;
      }
      this.entries -= entries;
      batch.remove("acks", key);
    }
  }

  /** Whether the page of an acknowledged row was not written after a record. */
  private isOnlyIn(number: number, { slot, arrival }: Ack): boolean {
    const isThere = this.rows.status[slot] === acked && this.rows.arrival[slot] === arrival;
    return isThere && (this.writtenAt.get(pageOf(slot)) ?? 0) <= number;
  }

  finish(batch: CommitBatch): void {
    const { deciding, environment } = this;
    const most = environment.isTight ? entriesWhenTight : deciding.length;
    for (let at = 0; at < deciding.length; at += most) {
      const acks = deciding.slice(at, at + most);
      const key = orderedKey(this.next);
      batch.add("acks", key, sealed(key, encodeAcks(acks)));
      this.keep({ number: this.next, entries: acks.length });
    }
    this.deciding = [];
  }
}
