/**
 * Every record of a store, read from its file without opening it: messages in order of their arrival, claims,
 * receipts, and the pairs of the embedded ledger. Damaged records are left out and reported.
 * Memory: about 500 bytes for each message id.
 */
import { StoreError, type StoreRecord } from "../../storage/contract.ts";
import { blockKey, bodyAt, type FoundBody } from "./blocks.ts";
import { DamagedFile, type DataFile, type FileRecord, type Tree } from "./data-file.ts";
import { type Operation, type PlacedRow, readJournal, readPage } from "./journal.ts";
import { orderedNumber, Reader, unsealedUnder } from "./records.ts";
import { acked, held, idText, kept } from "./row-table.ts";
import { openSnapshot } from "./snapshot.ts";

type Skipped = (problem: string) => void;
type StoredRow = Omit<PlacedRow, "status" | "block" | "offset"> & { status: number; block: number; offset: number };

export async function* exportRecords(path: string, skipped: Skipped): AsyncGenerator<StoreRecord> {
  const { file, close } = await openSnapshot(path);
  try {
    const trees = new Map(file.trees().map((tree) => [tree.name, tree]));
    const whole = (name: string) => sound(file, trees.get(name), skipped);
    for (const { key, value } of whole("table")) {
      const found = tried(() => unsealedUnder(key, value(), `ledger record ${key}`), skipped);
      if (found !== null) yield { kind: "ledger", key: key.toString(), value: found };
    }
    yield* timed(whole("claims"), "claim", skipped);
    yield* timed(whole("receipts"), "receipt", skipped);
    const rows = rowsOf(whole("pages"), whole("journal"), skipped);
    for (const row of rows) {
      const message = messageOf(file, trees.get("blocks"), row);
      if (message === null) skipped(`message ${idText(row.id)} of ${row.recipient} is damaged`);
      else yield message;
    }
  } finally {
    await close();
  }
}

/** Ends at the first page that can't be read. */
function* sound(file: DataFile, tree: Tree | undefined, skipped: Skipped): Generator<FileRecord> {
  if (tree === undefined) return;
  try {
    yield* file.records(tree);
  } catch (error) {
    if (!(error instanceof DamagedFile)) throw error;
    skipped(error.message);
  }
}

function tried<T>(read: () => T, skipped: Skipped): T | null {
  try {
    return read();
  } catch (error) {
    if (!(error instanceof StoreError || error instanceof DamagedFile)) throw error;
    skipped(error.message);
    return null;
  }
}

function* timed(records: Iterable<FileRecord>, kind: "claim" | "receipt", skipped: Skipped): Generator<StoreRecord> {
  for (const { key, value } of records) {
    const record = tried(() => new Reader(unsealedUnder(key, value(), `a ${kind}`), `a ${kind}`), skipped);
    if (record === null) continue;
    const text = key.toString("utf16le");
    const untilMs = record.u53();
    if (kind === "claim") yield { kind, tag: text, untilMs };
    else yield { kind, key: text, value: record.bytes(record.u32()).slice(), untilMs };
  }
}

/** What the pages and then the journal say, in order of arrival. */
function rowsOf(pages: Iterable<FileRecord>, journal: Iterable<FileRecord>, skipped: Skipped): StoredRow[] {
  const rows = new Map<number, StoredRow>();
  for (const [records, read, what] of [
    [pages, readPage, "index page"],
    [journal, readJournal, "journal record"],
  ] as const) {
    for (const { key, value } of records) {
      tried(() => {
        for (const operation of read(value(), `${what} ${orderedNumber(key)}`)) replay(rows, operation);
      }, skipped);
    }
  }
  return [...rows.values()].sort((a, b) => a.arrival - b.arrival);
}

function replay(rows: Map<number, StoredRow>, operation: Operation): void {
  if (operation.kind === "latest") return;
  if (operation.kind === "stored") {
    rows.set(operation.row.slot, { ...operation.row });
    return;
  }
  const row = rows.get(operation.slot);
  if (operation.kind === "dropped") rows.delete(operation.slot);
  else if (row === undefined) return;
  else if (operation.kind === "moved") Object.assign(row, operation.place);
  else row.status = operation.kind === "acked" ? acked : kept;
}

const arrivalsPerMs = 1024;
const noBytes = new Uint8Array(0);

function messageOf(file: DataFile, blocks: Tree | undefined, row: StoredRow): StoreRecord | null {
  const needsBody = row.status === held || (row.status === kept && (row.previewBytes ?? 0) > 0);
  const body = needsBody ? bodyOf(file, blocks, row) : null;
  if (needsBody && body === null) return null;
  const { recipient, chunk, expiresAtMs, onExpiry, keptUntilMs, labels, arrival } = row;
  const entry = {
    ...{ recipient, messageId: idText(row.id), chunk, expiresAtMs, onExpiry, keptUntilMs, labels },
    storedAtMs: Math.min(Math.floor(arrival / arrivalsPerMs), expiresAtMs - 1),
    headerPreview: row.previewBytes === null ? null : (body?.preview ?? noBytes),
    envelope: row.status === held ? (body?.envelope ?? noBytes) : noBytes,
  };
  return { kind: "message", state: row.status === held ? "active" : row.status === acked ? "acked" : "kept", entry };
}

function bodyOf(file: DataFile, blocks: Tree | undefined, { block, offset, id }: StoredRow): FoundBody | null {
  if (blocks === undefined) return null;
  try {
    for (const { key, value } of file.records(blocks, blockKey(block, 0))) {
      const body = orderedNumber(key) === block ? bodyAt(value(), offset) : null;
      return body?.intact === true && body.messageId === idText(id) ? body : null;
    }
  } catch (error) {
    if (!(error instanceof DamagedFile)) throw error;
  }
  return null;
}
