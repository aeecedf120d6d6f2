/**
 * Work of an operator on a store: backup beside a running node, restore, verify, compact, and export.
 * A copy gets its name only when it is whole, synced and verified, so that an
 * interrupted one never counts as a store. A snapshot pins a transaction as a reader of LMDB and reads the
 * file page by page; while it is open, the store can't reuse space that becomes free: it grows instead.
 * Memory of an export: about 135 bytes for each message id.
 */
import {
  chmodSync,
  closeSync,
  existsSync,
  fsyncSync,
  mkdirSync,
  openSync,
  renameSync,
  rmSync,
  statSync,
  writeSync,
} from "node:fs";
import { join, resolve } from "node:path";
import { StoreError, type StoreRecord, type VerifyReport } from "../../storage/contract.ts";
import { storedAtOf } from "../../storage/mailbox-rules.ts";
import { blockKey, isSameId } from "./bodies.ts";
import { decodeTag, eachClaim } from "./claims.ts";
import { DamagedFile, DataFile, type FileRecord, type Tree } from "./data-file.ts";
import { dataFile, giveToOwner, lockFolder, partialFile, storeAbsence, syncDirectory } from "./folder.ts";
import { currentFormat, type DatabaseName, openRoot } from "./format.ts";
import { checkDataFile, damaged, formatOf, transactionOf, verifyFile, verifyRecords } from "./integrity.ts";
import { type IndexTables, loadPage, replayRecord } from "./journal.ts";
import { RecipientIndex, TextTable } from "./recipients.ts";
import { bodyAt, type FoundBody, howToGoOn, orderedNumber, Reader, unsealedUnder } from "./records.ts";
import { acked, behaviors, held, idText, kept, none, RowTable } from "./rows.ts";

const partBytes = 1024 * 1024;

/** Copies the store at `from`, which a node may have open, into the folder `to`. */
export async function backupStore(from: string, to: string, bytesPerSecondMax: number): Promise<string> {
  const folder = resolve(to);
  if (existsSync(join(folder, dataFile))) throw new StoreError("unavailable", `${folder} already has a store`);
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  const snapshot = await openSnapshot(from);
  try {
    await copyState(snapshot.file, join(folder, partialFile), bytesPerSecondMax);
  } finally {
    await snapshot.close();
  }
  const { records, bytes } = finishCopy(folder);
  return `copied ${records} records, ${bytes} bytes, to ${folder}; the copy was verified`;
}

/** The free pages are copied too, as whatever they hold at that moment: nothing refers to them. */
async function copyState(file: DataFile, to: string, bytesPerSecondMax: number): Promise<void> {
  const target = openSync(to, "w", 0o600);
  try {
    const startedMs = performance.now();
    const head = file.metaPages();
    writeSync(target, head);
    for (let at = head.length; at < file.lengthBytes; at += partBytes) {
      const part = file.raw(at, Math.min(partBytes, file.lengthBytes - at));
      if (part.length === 0) break;
      writeSync(target, part, 0, part.length, at);
      const aheadMs = (at / bytesPerSecondMax) * 1_000 - (performance.now() - startedMs);
      await Bun.sleep(Math.max(0, Math.min(aheadMs, 10_000)));
    }
    fsyncSync(target);
  } finally {
    closeSync(target);
  }
}

/** Verifies the unfinished copy in a folder and gives it the name of a store, in whose place nothing may be by then. */
function finishCopy(folder: string, makeRoom = () => {}): { readonly records: number; readonly bytes: number } {
  const partial = join(folder, partialFile);
  const { records, problems } = verifyFile(partial);
  if (problems.length > 0) {
    rmSync(partial);
    throw new StoreError("corrupt", `the copy has ${problems.length} problems: ${problems[0]}${howToGoOn}`);
  }
  makeRoom();
  renameSync(partial, join(folder, dataFile));
  syncDirectory(folder);
  return { records, bytes: statSync(join(folder, dataFile)).size };
}

/**
 * Checks every record. Beside a running node a pinned state is read. A file whose structure is damaged is
 * read without LMDB, which can't be trusted with it; then no node has it open.
 */
export async function verifyStore(path: string): Promise<VerifyReport> {
  const snapshot = await openSnapshot(path).catch((error: unknown) => {
    if (error instanceof StoreError && error.code === "corrupt") return null;
    throw error;
  });
  if (snapshot === null) return verifyFile(join(resolve(path), dataFile));
  try {
    return verifyRecords(snapshot.file);
  } finally {
    await snapshot.close();
  }
}

/** Makes the store at `path` out of the backup in the folder `from`. A store that is there is set aside. */
export async function restoreStore(path: string, from: string): Promise<string> {
  const [folder, source] = [resolve(path), join(resolve(from), dataFile)];
  if (!existsSync(source)) throw new StoreError("unavailable", `${resolve(from)} holds no backup`);
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  const lock = lockFolder(folder);
  try {
    const file = DataFile.open(source);
    try {
      if (formatOf(file) === null) throw new StoreError("unavailable", `${source} is not a store of this program`);
      await copyState(file, join(folder, partialFile), Number.MAX_SAFE_INTEGER);
    } finally {
      file.close();
    }
    let aside: string | null = null;
    const { records, bytes } = finishCopy(folder, () => {
      aside = setAside(folder);
    });
    giveToOwner(folder);
    return `restored ${records} records, ${bytes} bytes${aside === null ? "" : `; the previous store is ${aside}`}`;
  } finally {
    lock.close();
  }
}

/** The previous data file keeps its bytes under another name until the operator removes it. */
function setAside(folder: string): string | null {
  if (storeAbsence(folder) !== null) return null;
  const name = `${dataFile}.before-${new Date().toISOString().replaceAll(":", "-")}`;
  renameSync(join(folder, dataFile), join(folder, name));
  rmSync(join(folder, "lock.mdb"), { force: true });
  return join(folder, name);
}

/** Writes the store again without its free pages. Needs room for the copy, and the store alone. */
export async function compactStore(path: string): Promise<string> {
  const folder = resolve(path);
  if (storeAbsence(folder) !== null) throw new StoreError("unavailable", `${folder} has no store`);
  const lock = lockFolder(folder);
  try {
    const data = join(folder, dataFile);
    const before = statSync(data).size;
    const { problems } = verifyFile(data);
    if (problems.length > 0) throw new StoreError("corrupt", `the store is damaged: ${problems[0]}${howToGoOn}`);
    const copy = join(folder, "compact");
    rmSync(copy, { recursive: true, force: true });
    mkdirSync(copy, { mode: 0o700 });
    const root = openRoot(folder);
    await root.backup(copy, true).finally(() => root.close());
    chmodSync(join(copy, dataFile), 0o600);
    syncFile(join(copy, dataFile));
    renameSync(join(copy, dataFile), join(folder, partialFile));
    rmSync(copy, { recursive: true });
    const { bytes } = finishCopy(folder);
    rmSync(join(folder, "lock.mdb"), { force: true });
    giveToOwner(folder);
    return `compacted from ${before} to ${bytes} bytes`;
  } finally {
    lock.close();
  }
}

function syncFile(path: string): void {
  const descriptor = openSync(path, "r+");
  fsyncSync(descriptor);
  closeSync(descriptor);
}

const attemptsMax = 100;

type Snapshot = { readonly file: DataFile; readonly close: () => Promise<void> };

async function openSnapshot(folder: string): Promise<Snapshot> {
  const path = resolve(folder);
  const data = join(path, dataFile);
  if (!existsSync(data)) throw new StoreError("unavailable", `${path} has no store`);
  // LMDB maps the file, so it must not be cut short. The readers of the tables check them.
  checkDataFile(data, 0);
  const root = openRoot(path, { readOnly: true });
  try {
    for (let attempt = 0; attempt < attemptsMax; attempt++) {
      const before = transactionOf(data);
      const pin = root.useReadTransaction();
      const file = DataFile.open(data);
      // Nothing was committed between the two looks: the pinned transaction is the one that the file shows.
      if (file.transaction === before) {
        if (formatOf(file) !== currentFormat) {
          throw new StoreError(
            "unavailable",
            `${path} does not have the current format: see \`waypost storage migrate\``,
          );
        }
        const close = async () => {
          file.close();
          pin.done();
          await root.close();
        };
        return { file, close };
      }
      file.close();
      pin.done();
      await Bun.sleep(1);
    }
    throw new StoreError("unavailable", `${path} changes all the time: try again`);
  } catch (error) {
    await root.close();
    throw error instanceof DamagedFile ? damaged(data, error) : error;
  }
}

type Skipped = (problem: string) => void;

export async function* exportRecords(path: string, skipped: Skipped): AsyncGenerator<StoreRecord> {
  const { file, close } = await openSnapshot(path);
  try {
    const whole = (name: DatabaseName) => sound(file, name, skipped);
    for (const { key, value } of whole("table")) {
      const found = tried(() => unsealedUnder(key, value(), `ledger record ${key}`), skipped);
      if (found !== null) yield { kind: "ledger", key: key.toString(), value: found };
    }
    for (const { key, value } of whole("claims")) {
      const claims: StoreRecord[] = [];
      const add = (untilMs: number, tag: Uint8Array) =>
        void claims.push({ kind: "claim", tag: decodeTag(tag), untilMs });
      tried(() => eachClaim(key, value(), add), skipped);
      yield* claims;
    }
    for (const { key, value } of whole("receipts")) {
      const record = tried(() => new Reader(unsealedUnder(key, value(), "a receipt"), "a receipt"), skipped);
      if (record === null) continue;
      const untilMs = record.u53();
      yield { kind: "receipt", key: key.toString("utf16le"), value: record.bytes(record.u32()).slice(), untilMs };
    }
    const index = indexOf(whole("pages"), whole("journal"), skipped);
    const blocks = file.tree("blocks");
    for (const slot of inOrder(index.rows)) {
      const message = messageOf(file, blocks, index, slot);
      if (message === null) skipped(`message ${idText(index.rows.words(slot))} is damaged`);
      else yield message;
    }
  } finally {
    await close();
  }
}

/** Ends at the first page that can't be read. */
function* sound(file: DataFile, table: DatabaseName, skipped: Skipped): Generator<FileRecord> {
  try {
    yield* file.recordsOf(table);
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

type Index = IndexTables & { readonly recipients: RecipientIndex };

/** What the pages and then the journal hold. */
function indexOf(pages: Iterable<FileRecord>, journal: Iterable<FileRecord>, skipped: Skipped): Index {
  const tables = { rows: new RowTable(), texts: new TextTable(() => {}) };
  for (const { key, value } of pages) tried(() => loadPage(tables, orderedNumber(key), value()), skipped);
  for (const { key, value } of journal) {
    tried(() => replayRecord(tables, value(), `journal record ${orderedNumber(key)}`), skipped);
  }
  return { ...tables, recipients: new RecipientIndex(tables.rows, tables.texts) };
}

/** The used slots in order of arrival. */
function inOrder(rows: RowTable): number[] {
  const slots: number[] = [];
  for (let slot = 0; slot < rows.slots; slot++) if (rows.isUsed(slot)) slots.push(slot);
  return slots.sort((a, b) => rows.arrival[a]! - rows.arrival[b]!);
}

const noBytes = new Uint8Array(0);

function messageOf(
  file: DataFile,
  blocks: Tree | undefined,
  { rows, texts, recipients }: Index,
  slot: number,
): StoreRecord | null {
  const [status, preview, expiresAtMs] = [rows.status[slot], rows.previewBytes.at(slot), rows.expiresAtMs[slot]!];
  const needsBody = status === held || (status === kept && preview !== none && preview > 0);
  const body = needsBody ? bodyOf(file, blocks, rows, slot) : null;
  const names = [rows.recipient[slot]!, rows.labels[slot]!, rows.group.at(slot)].filter((number) => number !== none);
  if ((needsBody && body === null) || names.some((number) => !texts.has(number))) return null;
  const entry = {
    recipient: recipients.mailbox(slot),
    messageId: idText(rows.words(slot)),
    chunk: recipients.chunk(slot),
    expiresAtMs,
    onExpiry: behaviors[rows.behavior[slot]!]!,
    keptUntilMs: rows.keptUntilMs.at(slot),
    labels: recipients.labels(slot),
    storedAtMs: storedAtOf(rows.arrival[slot]!, expiresAtMs),
    headerPreview: preview === none ? null : (body?.preview ?? noBytes),
    envelope: status === held ? (body?.envelope ?? noBytes) : noBytes,
  };
  return { kind: "message", state: status === held ? "active" : status === acked ? "acked" : "kept", entry };
}

function bodyOf(file: DataFile, blocks: Tree | undefined, rows: RowTable, slot: number): FoundBody | null {
  const [block, offset] = [rows.block[slot]!, rows.offset[slot]!];
  if (blocks === undefined) return null;
  try {
    for (const { key, value } of file.records(blocks, blockKey(block, 0))) {
      const body = orderedNumber(key) === block ? bodyAt(value(), offset) : null;
      return body?.isIntact && isSameId(body.words, rows.words(slot)) ? body : null;
    }
  } catch (error) {
    if (!(error instanceof DamagedFile)) throw error;
  }
  return null;
}
