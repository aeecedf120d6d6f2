/**
 * Work of an operator on a store: backup of a running node, restore, verify, compact, and export. A
 * copy gets its name only when it is whole, synced and verified, so that an interrupted one never
 * counts as a store. A backup and an export pin a transaction as a reader of LMDB; while it is
 * open, the store can't reuse space that becomes free: it grows instead. Memory of an export: about
 * 135 bytes for each message id.
 */
import {
  chmodSync,
  closeSync,
  copyFileSync,
  existsSync,
  lstatSync,
  mkdirSync,
  openSync,
  renameSync,
  rmSync,
  statfsSync,
  statSync,
} from "node:fs";
import { join, resolve } from "node:path";
import type { Transaction } from "lmdb";
import { errorText } from "../../core/fault.ts";
import {
  type FillStore,
  type StoreEnvironment,
  StoreError,
  type StoreRecord,
  type VerifyReport,
} from "../../storage/contract.ts";
import { RecipientIndex, TextTable } from "../../storage/mailbox-recipients.ts";
import {
  acked,
  behaviors,
  held,
  idText,
  none,
  RowTable,
  wordBytes,
} from "../../storage/mailbox-rows.ts";
import { storedAtOf } from "../../storage/mailbox-rules.ts";
import { receiptIn } from "../../storage/records.ts";
import { loadAcks } from "./acks.ts";
import {
  attempted,
  checkDataFile,
  cutShort,
  type DatabaseName,
  hasFormat,
  openRoot,
  type Root,
  type Tables,
  tableBytes,
  tablesOf,
  unopened,
  type VerifiedRecords,
  verifyRoot,
  verifyTables,
} from "./data-file.ts";
import {
  copyFolder,
  dataFile,
  type LmdbOptions,
  lockFile,
  partialFile,
  removeUnfinished,
  storeAbsence,
  syncPath,
} from "./lmdb.ts";
import { giveTo, lockFolder, ownedData } from "./owner.ts";
import { loadPages, type Reads } from "./pages.ts";
import { bodyAt, type FoundBody, howToGoOn, orderedKey, unsealed } from "./records.ts";
import { claimsIn, fillLmdb } from "./store.ts";

/** There is one format so far: a store has it, or is refused. */
export async function migrateStore(path: string): Promise<string> {
  if (storeAbsence(resolve(path)) !== null)
    return "does not exist yet; it is made in the current format";
  await (await openSnapshot(path)).close();
  return "has the current format";
}

/** Copies the store at `from`, which a node may have open, into the folder `to`. */
export async function backupStore(from: string, to: string): Promise<string> {
  const folder = resolve(to);
  if (existsSync(join(folder, dataFile)))
    throw new StoreError("unavailable", `${folder} already has a store`);
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  const snapshot = await openSnapshot(from);
  await copyRoot(snapshot.root, folder).finally(snapshot.close);
  const { records, bytes } = await finishCopy(folder);
  return `copied ${records} records, ${bytes} bytes, to ${folder}; the copy was verified`;
}

/** An unfinished copy in a folder, as of this moment: by the library, without free pages. */
async function copyRoot(root: Root, folder: string): Promise<void> {
  const copy = join(folder, copyFolder);
  rmSync(copy, { recursive: true, force: true });
  mkdirSync(copy, { mode: 0o700 });
  await root.backup(copy, true);
  chmodSync(join(copy, dataFile), 0o600);
  renameSync(join(copy, dataFile), join(folder, partialFile));
  rmSync(copy, { recursive: true });
}

/** Verifies the unfinished copy in a folder and names it as a store; none may be there by then. */
async function finishCopy(
  folder: string,
  makeRoom = () => {},
): Promise<{ records: number; bytes: number }> {
  const partial = join(folder, partialFile);
  try {
    const { records, problems } = await verifyCopy(partial);
    if (problems.length > 0) {
      throw new StoreError(
        "corrupt",
        `the copy has ${problems.length} problems: ${problems[0]}${howToGoOn}`,
      );
    }
    makeRoom();
    syncPath(partial, "r+");
    renameSync(partial, join(folder, dataFile));
    syncPath(folder);
    return { records, bytes: statSync(join(folder, dataFile)).size };
  } finally {
    rmSync(partial, { force: true });
  }
}

/** Opens a file that is not yet in its place. */
async function verifyCopy(file: string): Promise<VerifiedRecords> {
  if (checkDataFile(file) === null) throw cutShort(file);
  const root = openRoot(file, { readOnly: true, isFile: true });
  try {
    if (!hasFormat(root, file))
      throw new StoreError("unavailable", `${file} is not a store of this program`);
    return verifyRoot(root);
  } finally {
    await root.close();
    rmSync(`${file}-lock`, { force: true });
  }
}

/**
 * Checks every record, and writes each anew in a copy. While a node runs, a pinned state is read.
 * Damaged pages may end this process by a signal.
 */
export async function verifyStore(path: string): Promise<VerifyReport> {
  const { bytes } = dataFileSize(path);
  try {
    const snapshot = await openSnapshot(path);
    try {
      const report = verifyTables(snapshot.tables, snapshot.transaction);
      const isTried = report.problems.length === 0 && (await isCopyWritten(snapshot.root, path));
      return { ...report, bytes, isTried };
    } finally {
      await snapshot.close();
    }
  } catch (error) {
    if (!(error instanceof StoreError && error.code === "corrupt")) throw error;
    return { records: 0, bytes, isTried: false, problems: [error.message.replace(howToGoOn, "")] };
  }
}

const trialFolder = "trial";
/** Of a trial's copy that grows while its pages are written. */
const trialGrowth = 1.25;
const trialMarginBytes = 256 * 1024 ** 2;
const recordsPerTrial = 1_000;

/**
 * Writes every record anew in a copy that has the pages as they are: a page with a damaged number
 * is read without a problem, and ends the process that changes it. `false` where the disk has no
 * room for that.
 */
async function isCopyWritten(root: Root, path: string): Promise<boolean> {
  const folder = join(resolve(path), trialFolder);
  const { bavail, bsize } = statfsSync(path);
  const end = checkNow(join(resolve(path), dataFile)) ?? 0;
  if (Number(bavail) * Number(bsize) < trialGrowth * end + trialMarginBytes) return false;
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { mode: 0o700 });
  try {
    await root.backup(folder, false);
    const copy = openRoot(folder);
    await writeAgain(copy).finally(() => copy.close());
    return true;
  } catch (error) {
    throw new StoreError("corrupt", `a copy of the file can't be written: ${errorText(error)}`);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

async function writeAgain(root: Root): Promise<void> {
  for (const table of Object.values(tablesOf(root))) {
    let start = Buffer.of(0);
    for (let isMore = true; isMore; ) {
      const some = Array.from(
        table.getRange({ start, limit: recordsPerTrial }),
        ({ key, value }) => [Buffer.from(key), Buffer.from(value)] as const,
      );
      await root.batch(() => {
        for (const [key, value] of some) table.put(key, value);
      });
      isMore = some.length === recordsPerTrial;
      if (isMore) start = Buffer.concat([some.at(-1)![0], Buffer.of(0)]);
    }
  }
}

function dataFileSize(path: string): { readonly bytes: number } {
  const folder = resolve(path);
  try {
    return { bytes: statSync(join(folder, dataFile)).size };
  } catch (error) {
    if (!(error instanceof Error) || !("code" in error)) throw error;
    const isMissing = error.code === "ENOENT" || error.code === "ENOTDIR";
    const what = isMissing
      ? "has no store"
      : `can't be read by this user (${error.code}): run it as the service's`;
    throw new StoreError("unavailable", `${folder} ${what}`);
  }
}

/** Makes the store at `path` out of the backup in `from`. A store that is there is set aside. */
export async function restoreStore(path: string, from: string): Promise<string> {
  const [folder, source] = [resolve(path), join(resolve(from), dataFile)];
  if (!existsSync(source)) throw new StoreError("unavailable", `${resolve(from)} holds no backup`);
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  const lock = lockFolder(folder);
  try {
    copyFileSync(source, join(folder, partialFile));
    chmodSync(join(folder, partialFile), 0o600);
    const owner = statSync(storeAbsence(folder) === null ? join(folder, dataFile) : folder);
    let aside: string | null = null;
    const { records, bytes } = await finishCopy(folder, () => {
      giveTo(owner, join(folder, partialFile));
      giveTo(owner, join(folder, lockFile));
      aside = setAside(folder);
    });
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

/**
 * Puts a copy without free pages in the place of the data file, whole, verified and synced, with
 * its owner, group and mode. No node may have the store open. Throws `full` when the disk has no
 * room for both; an interrupted one leaves the former file, and what it left of a copy is removed
 * by the next one, or by the start of a node.
 */
export async function compactStore(path: string): Promise<string> {
  const folder = resolve(path);
  const { bytes: before } = dataFileSize(folder);
  const former = lstatSync(join(folder, dataFile));
  if (former.isSymbolicLink())
    throw new StoreError(
      "unavailable",
      `${join(folder, dataFile)} is a link: the copy would take its place and free nothing`,
    );
  const lock = lockFolder(folder);
  const data = ownedData(folder, lock);
  try {
    giveTo(former, join(folder, lockFile));
    removeUnfinished(folder);
    const snapshot = await openSnapshot(folder);
    try {
      checkCopyRoom(folder, snapshot.tables);
      await copyRoot(snapshot.root, folder);
    } finally {
      await snapshot.close();
      rmSync(join(folder, copyFolder), { recursive: true, force: true });
    }
    const { records, bytes } = await finishCopy(folder, () => {
      giveTo(former, join(folder, partialFile));
      chmodSync(join(folder, partialFile), former.mode & 0o777);
      rmSync(join(folder, "lock.mdb"), { force: true });
    });
    return `has ${records} records in ${bytes} bytes, of ${before} before`;
  } finally {
    data.close();
    lock.close();
  }
}

/** Left free behind a copy. */
const copyMarginBytes = 16 * 1024 ** 2;

function checkCopyRoom(folder: string, tables: Tables): void {
  const { bavail, bsize } = statfsSync(folder);
  let wanted = copyMarginBytes;
  for (const table of Object.values(tables)) wanted += tableBytes(table);
  if (Number(bavail) * Number(bsize) < wanted)
    throw new StoreError("full", `${folder} has no room for the copy, which takes ${wanted} bytes`);
}

/** Fills a store in its own folder, and puts it in place once all its records were verified. */
export async function importStore(options: LmdbOptions, fill: FillStore): Promise<void> {
  const folder = resolve(options.path);
  if (storeAbsence(folder) === null) {
    throw new StoreError(
      "unavailable",
      `${folder} has a store already: import into a folder without one`,
    );
  }
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  const lock = lockFolder(folder);
  try {
    // While this file is there, no node begins an empty store here.
    closeSync(openSync(join(folder, partialFile), "w", 0o600));
    const path = join(folder, "import");
    rmSync(path, { recursive: true, force: true });
    await fillLmdb({ ...options, path }, alone, fill);
    renameSync(join(path, dataFile), join(folder, partialFile));
    await finishCopy(folder);
    rmSync(path, { recursive: true });
  } finally {
    lock.close();
  }
}

/** No node: what would end one ends the command. */
const alone: StoreEnvironment = {
  now: Date.now,
  log: () => {},
  fatal: (reason) => {
    throw new StoreError("unavailable", reason);
  },
};

type Snapshot = {
  readonly root: Root;
  readonly tables: Tables;
  readonly transaction: Transaction;
  readonly close: () => Promise<void>;
};

/** The state of this moment, whatever a node that has the store open writes meanwhile. */
async function openSnapshot(folder: string): Promise<Snapshot> {
  const path = resolve(folder);
  dataFileSize(path);
  const data = join(path, dataFile);
  if (checkNow(data) === null) throw cutShort(data);
  const root = openRoot(path, { readOnly: true });
  try {
    // Made by the first reader, and opened by every later one.
    const readers = join(path, "lock.mdb");
    if (process.getuid?.() === 0 && existsSync(readers)) giveTo(statSync(data), readers);
    if (!hasFormat(root, path))
      throw new StoreError("unavailable", `${path} is not a finished store`);
    // A table that is opened later would end the transaction.
    const tables = tablesOf(root);
    const transaction = root.useReadTransaction();
    const close = async () => {
      transaction.done();
      await root.close();
    };
    return { root, tables, transaction, close };
  } catch (error) {
    await root.close();
    throw error instanceof StoreError ? error : unopened(data, error);
  }
}

/** A running node writes the first pages: a look may find them torn, the next look does not. */
function checkNow(data: string): number | null {
  try {
    return checkDataFile(data);
  } catch {
    return checkDataFile(data);
  }
}

type Skipped = (problem: string) => void;

export async function* exportRecords(path: string, skipped: Skipped): AsyncGenerator<StoreRecord> {
  const snapshot = await openSnapshot(path);
  try {
    const whole = (name: DatabaseName) => recordsOf(snapshot, name, skipped);
    for (const [key, value] of whole("table")) {
      const found = attempted(() => unsealed(key, value, `ledger record ${key}`), skipped);
      if (found !== null) yield { kind: "ledger", key: key.toString(), value: found };
    }
    for (const [key, value] of whole("claims")) {
      for (const claim of attempted(() => claimsIn(key, value), skipped) ?? [])
        yield { kind: "claim", ...claim };
    }
    for (const [key, value] of whole("receipts")) {
      const receipt = attempted(
        () => receiptIn(key.toString(), unsealed(key, value, "a receipt")),
        skipped,
      );
      if (receipt !== null) yield { kind: "receipt", ...receipt };
    }
    const index = indexOf(snapshot, skipped);
    const used = Array.from({ length: index.rows.slots }, (_, slot) => slot).filter((slot) =>
      index.rows.isUsed(slot),
    );
    for (const slot of used.sort((a, b) => index.rows.arrival[a]! - index.rows.arrival[b]!)) {
      const message = messageRecord(snapshot, index, slot);
      if (message === null) skipped(`message ${idText(index.rows.words(slot))} is damaged`);
      else yield message;
    }
  } finally {
    await snapshot.close();
  }
}

type FileRecord = readonly [key: Buffer, value: Uint8Array];

/** Ends at the first record that the library can't read. */
function* recordsOf(
  { tables, transaction }: Snapshot,
  name: DatabaseName,
  skipped: Skipped,
): Generator<FileRecord> {
  try {
    for (const { key, value } of tables[name].getRange({ transaction })) {
      yield [Buffer.from(key), Uint8Array.from(value)];
    }
  } catch (error) {
    skipped(`table "${name}" can't be read further: ${errorText(error)}`);
  }
}

type Index = {
  readonly rows: RowTable;
  readonly texts: TextTable;
  readonly recipients: RecipientIndex;
};

function indexOf({ tables, transaction }: Snapshot, skipped: Skipped): Index {
  const [rows, texts] = [new RowTable(), new TextTable(() => {})];
  const reads: Reads = {
    keys: (name, range) =>
      Array.from(tables[name].getKeys({ ...range, transaction }), (key) => Buffer.from(key)),
    borrow: (name, key) => Uint8Array.from(tables[name].get(key, { transaction })!),
  };
  const attempt = (load: () => void) => void attempted(load, skipped);
  loadPages(reads, { rows, texts }, attempt);
  loadAcks(reads, rows, attempt);
  return { rows, texts, recipients: new RecipientIndex(rows, texts) };
}

const noBytes = new Uint8Array(0);

function messageRecord(
  snapshot: Snapshot,
  { rows, texts, recipients }: Index,
  slot: number,
): StoreRecord | null {
  const [status, expiresAtMs, needsBody] = [
    rows.status[slot],
    rows.expiresAtMs[slot]!,
    rows.needsBody(slot),
  ];
  const body = needsBody ? bodyOf(snapshot, rows, slot) : null;
  const names = [rows.recipient[slot]!, rows.labels[slot]!, rows.group[slot]!].filter(
    (number) => number !== none,
  );
  if ((needsBody && body === null) || names.some((number) => !texts.has(number))) return null;
  const entry = {
    recipient: recipients.mailbox(slot),
    messageId: idText(rows.words(slot)),
    chunk: recipients.chunk(slot),
    expiresAtMs,
    onExpiry: behaviors[rows.behavior[slot]!]!,
    keptUntilMs: rows.keptUntilMs[slot]!,
    labels: recipients.labels(slot),
    storedAtMs: storedAtOf(rows.arrival[slot]!, expiresAtMs),
    headerPreview: rows.previewBytes[slot] === none ? null : (body?.preview ?? noBytes),
    envelope: status === held ? (body?.envelope ?? noBytes) : noBytes,
    digest: wordBytes(rows.words(slot, "digest")),
  };
  const ended = status === acked ? "acked" : "kept";
  return { kind: "message", state: status === held ? "active" : ended, entry };
}

function bodyOf({ tables, transaction }: Snapshot, rows: RowTable, slot: number): FoundBody | null {
  const block = tables.blocks.get(orderedKey(rows.block[slot]!), { transaction });
  const body = block === undefined ? null : bodyAt(Uint8Array.from(block), rows.offset[slot]!);
  return body?.isIntact && rows.hasId(slot, body.words) ? body : null;
}
