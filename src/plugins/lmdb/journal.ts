/**
 * The forms of the mailbox's index on disk. A journal record holds what one commit did, in order; a page
 * holds the rows of 512 neighbouring slots as they stood when it was written. Each begins with the
 * latest time that a call has named and the last arrival. Reading all pages and then the whole journal gives the index back; reading
 * an operation twice changes nothing, because the operations after it are read too.
 */

import { StoreError } from "../../storage/contract.ts";
import type { Place } from "./blocks.ts";
import type { LoadedRow } from "./mailbox-index.ts";
import { Reader, seal, sealBytes, sealedWriter, unsealed, type Writer } from "./records.ts";
import { behaviors } from "./row-table.ts";

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
