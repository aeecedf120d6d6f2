/**
 * The data file: its tables and the stamp of the version that wrote them, how it is opened, and
 * whether what lies in it is what was written. LMDB has no checksums and trusts its file: it
 * returns a flipped bit as data, and a wrong page number ends the process by a signal. So
 * - before the library opens a file, its first two pages and its length are read here;
 * - each record has a checksum, which is verified whenever the record is read (records.ts);
 * - each commit writes how many records every table has;
 * - `storage verify` reads every record, in order and by its key, and counts them.
 *   docs/reliability.md says what this does not find.
 *
 * The number of the format is raised whenever a key or a value is laid out differently, so that no
 * program reads what another version meant otherwise. `storage migrate` will bring an older store
 * to it; there is none yet.
 */
import { closeSync, existsSync, fstatSync, openSync, readSync } from "node:fs";
import { join } from "node:path";
import { type Database, open, type RootDatabase, type Transaction } from "lmdb";
import { errorText } from "../../core/fault.ts";
import { StoreError, type VerifyReport } from "../../storage/contract.ts";
import { dataFile, unusable } from "./lmdb.ts";
import { bodiesOf, howToGoOn, sealed, unsealed } from "./records.ts";

/** Databases of the environment. Their keys are bytes. */
export const databaseNames = [
  "meta",
  "table",
  "receipts",
  "claims",
  "rows",
  "texts",
  "acks",
  "blocks",
] as const;
export type DatabaseName = (typeof databaseNames)[number];

const formatText = "waypost lmdb store, format ";
const formatNumber = 1;
const currentFormat = `${formatText}${formatNumber}`;
/** The records of "meta": the stamp, and how many records the other tables have. */
export const formatKey = Buffer.from("format");
export const countsKey = Buffer.from("counts");
export const formatStamp = new TextEncoder().encode(currentFormat);

export type Root = RootDatabase<Buffer, Buffer>;

/** `isFile`: the path is that of a data file, and not of the folder that holds it. */
export function openRoot(
  path: string,
  extra: { readonly readOnly?: true; readonly isFile?: true } = {},
): Root {
  // `safeRestore` always starts from the last synced state, also when a snapshot is restored on the
  // same boot.
  const settings = {
    path,
    // Else the library treats a folder with a dot in its name as a file.
    noSubdir: extra.isFile === true,
    encoding: "binary" as const,
    keyEncoding: "binary" as const,
    overlappingSync: false,
    noSync: false,
    noMetaSync: false,
    useWritemap: false,
    maxReaders: 1_024,
    maxDbs: databaseNames.length + 4,
    mapSize: 1024 ** 3,
    safeRestore: true,
    readOnly: extra.readOnly === true,
  };
  try {
    return open<Buffer, Buffer>(settings);
  } catch (error) {
    throw unopened(path, error);
  }
}

/**
 * What the library says about a file that it can't open or read. Its own codes are negative, the
 * system's are not.
 */
export function unopened(path: string, cause: unknown): StoreError {
  const isRefusal = cause instanceof Error && "code" in cause && Number(cause.code) > 0;
  if (isRefusal) return unusable(path, cause);
  return new StoreError("corrupt", `${path} can't be opened: ${errorText(cause)}${howToGoOn}`, {
    cause,
  });
}

function tableOf(root: Root, name: string): DataTable {
  return root.openDB<Buffer, Buffer>({ name, encoding: "binary", keyEncoding: "binary" });
}

type DataTable = Database<Buffer, Buffer>;
export type Tables = Readonly<Record<DatabaseName, DataTable>>;

export function tablesOf(root: Root): Tables {
  return Object.fromEntries(databaseNames.map((name) => [name, tableOf(root, name)])) as Record<
    DatabaseName,
    DataTable
  >;
}

type TreeStats = Record<
  "pageSize" | "treeBranchPageCount" | "treeLeafPageCount" | "overflowPages" | "entryCount",
  number
>;

/** Bytes of the pages that a table takes. Cost: one look at its root page. */
export function tableBytes(table: DataTable): number {
  const stats = table.getStats() as TreeStats;
  return (
    (stats.treeBranchPageCount + stats.treeLeafPageCount + stats.overflowPages) * stats.pageSize
  );
}

/** The number of the last one. */
export function lastTransaction(root: Root): number {
  return (root.getStats() as { readonly lastTxnId: number }).lastTxnId;
}

/** Commits since the state that this process itself may still see. */
const ownReadsBehind = 2;

/**
 * Whether a backup, say, reads the state of some commits ago: then no page that was freed since is
 * used again, and an unknown part of the others. Costs 3 µs.
 */
export function isOlderStateRead(root: Root): boolean {
  const last = lastTransaction(root);
  // A line for each reader: process, thread, and the transaction that it sees.
  const seen = root.readerList().matchAll(/^ *\d+ \S+ (\d+)$/gm);
  return seen.some(([, transaction]) => last - Number(transaction) > ownReadsBehind);
}

/** How many records a table has. */
function entriesOf(table: DataTable): number {
  return (table.getStats() as TreeStats).entryCount;
}

/**
 * Whether the environment bears the stamp of this format; `false` where it may get it, because it
 * is empty. Any other is refused before a single page of it is written.
 */
export function hasFormat(root: Root, path: string): boolean {
  // The library ends the names of databases with a NUL.
  const names = [...root.getKeys()].map((name) => Buffer.from(name).toString().replace(/\0$/, ""));
  const format = names.includes("meta")
    ? tableOf(root, "meta").get(formatKey)?.toString()
    : undefined;
  if (format === currentFormat) return true;
  if (format?.startsWith(formatText)) {
    throw new StoreError(
      "unavailable",
      `${path} was written by another version of waypost: it has format ${format.slice(formatText.length)}, and this ` +
        `version reads format ${formatNumber}. Start the version that wrote it, or move the folder away to begin with ` +
        "an empty store",
    );
  }
  if (format === undefined && names.every((name) => entriesOf(tableOf(root, name)) === 0))
    return false;
  throw new StoreError(
    "unavailable",
    `${path} has an LMDB file of another program; name another folder`,
  );
}

// ------------------------------------------------------------------------------------- first pages

/** Offsets within a first page (liblmdb/mdb.c of the `lmdb` package, data version 2, 64 bits). */
const at = {
  kind: 18,
  magic: 24,
  version: 28,
  pageBytes: 48,
  roots: [88, 136],
  lastPage: 144,
  transaction: 152,
  end: 160,
};
const pageSizes = [4_096, 8_192, 16_384, 32_768, 65_536];
const noPage = 2n ** 64n - 1n;

type FirstPage = {
  /** Whether it is a first page of an LMDB file, at its place. */
  readonly isOne: boolean;
  readonly pageBytes: number;
  readonly roots: readonly bigint[];
  readonly lastPage: bigint;
  readonly transaction: bigint;
};

function firstPage(descriptor: number, number: bigint, from: number): FirstPage {
  const page = Buffer.alloc(at.end);
  readSync(descriptor, page, 0, page.length, from);
  const isFirst = page.readBigUInt64LE(0) === number && page.readUInt16LE(at.kind) === 8;
  const isOfLmdb =
    page.readUInt32LE(at.magic) === 0xbeefc0de && page.readUInt32LE(at.version) === 2;
  return {
    isOne: isFirst && isOfLmdb,
    pageBytes: page.readUInt32LE(at.pageBytes),
    roots: at.roots.map((root) => page.readBigUInt64LE(root)),
    lastPage: page.readBigUInt64LE(at.lastPage),
    transaction: page.readBigUInt64LE(at.transaction),
  };
}

/**
 * The first page of the last transaction, which the library reads, and the other one. Costs 3 µs.
 */
function firstPages(descriptor: number): readonly [newer: FirstPage, older: FirstPage] {
  const first = firstPage(descriptor, 0n, 0);
  const second = firstPage(descriptor, 1n, first.pageBytes);
  return first.transaction >= second.transaction ? [first, second] : [second, first];
}

/** The last transaction of a file that was checked, and where its last page ends. */
export function lastCommit(descriptor: number): {
  readonly transaction: bigint;
  readonly end: number;
} {
  const [{ transaction, lastPage, pageBytes }] = firstPages(descriptor);
  return { transaction, end: (Number(lastPage) + 1) * pageBytes };
}

/**
 * Throws `corrupt` when the library can't be trusted with the file: a page behind its end would end
 * the process by a signal, and of two states it would take an older one for the last. The node
 * keeps the file longer than its pages (space.ts), so a shorter one is damaged. `null` for a file
 * that is absent or empty, else where its last page ends.
 */
export function checkDataFile(path: string): number | null {
  if (!existsSync(path)) return null;
  const descriptor = readable(path);
  try {
    const { size } = fstatSync(descriptor);
    if (size === 0) return null;
    const [newer, older] = firstPages(descriptor);
    if (!areFirstPages(newer, older) || !leadsWithin(newer))
      throw new StoreError(
        "corrupt",
        `${path}: the first pages of the file are damaged${howToGoOn}`,
      );
    const { end } = lastCommit(descriptor);
    if (end > size) throw cutShort(path);
    return end;
  } finally {
    closeSync(descriptor);
  }
}

/**
 * The older page counts for its number alone: after a write of it has failed, the library puts its
 * former transaction and last page next to the new roots.
 */
function areFirstPages(newer: FirstPage, older: FirstPage): boolean {
  const areAlike = newer.pageBytes === older.pageBytes && pageSizes.includes(newer.pageBytes);
  // In a copy by the library, one of them is empty.
  const areNeighbours = newer.transaction - older.transaction === 1n || older.transaction === 0n;
  return newer.isOne && older.isOne && areAlike && areNeighbours;
}

function leadsWithin({ roots, lastPage }: FirstPage): boolean {
  return roots.every((root) => root === noPage || (root > 1n && root <= lastPage));
}

function readable(path: string): number {
  try {
    return openSync(path, "r");
  } catch (error) {
    throw unusable(path, error);
  }
}

export function cutShort(path: string): StoreError {
  return new StoreError(
    "corrupt",
    `${path}: the file is cut short, as after an unfinished copy${howToGoOn}`,
  );
}

// ------------------------------------------------------------------------------------------ counts

export type RecordCounts = Record<(typeof countedDatabases)[number], number>;
const countedDatabases = databaseNames.filter((name) => name !== "meta");

export function noCounts(): RecordCounts {
  return Object.fromEntries(countedDatabases.map((name) => [name, 0])) as RecordCounts;
}

export function sealedCounts(counts: RecordCounts): Uint8Array {
  return sealed(countsKey, new TextEncoder().encode(JSON.stringify(counts)));
}

function countsIn(record: Uint8Array | undefined): RecordCounts {
  const what = "the record of how many records the tables have";
  if (record === undefined) throw new StoreError("corrupt", `${what} is missing${howToGoOn}`);
  return JSON.parse(
    new TextDecoder().decode(unsealed(countsKey, Uint8Array.from(record), what)),
  ) as RecordCounts;
}

// ------------------------------------------------------------------------------------------ verify

const problemsMax = 100;

/** How many records were read, and what is wrong with them: the first 100 problems. */
export type VerifiedRecords = Pick<VerifyReport, "records" | "problems">;

type ReportProblem = (problem: string) => void;

/**
 * Reads every record of a store of the current format, in order and by its key. A file whose pages
 * are damaged may end this process by a signal.
 */
export function verifyTables(tables: Tables, transaction: Transaction): VerifiedRecords {
  const problems: string[] = [];
  const note: ReportProblem = (problem) =>
    void (problems.length < problemsMax && problems.push(problem));
  const written = attempted(() => countsIn(tables.meta.get(countsKey, { transaction })), note);
  let records = 0;
  for (const name of databaseNames) {
    const entries = verifyTable(name, tables, transaction, note);
    records += entries;
    if (name !== "meta" && written !== null && written[name] !== entries) {
      note(`table "${name}" has ${entries} records of ${written[name]}`);
    }
  }
  return { records, problems };
}

/** The same of a root that nothing else uses. */
export function verifyRoot(root: Root): VerifiedRecords {
  const tables = tablesOf(root);
  const transaction = root.useReadTransaction();
  try {
    return verifyTables(tables, transaction);
  } finally {
    transaction.done();
  }
}

/** Returns how many records could be read. */
function verifyTable(
  name: DatabaseName,
  tables: Tables,
  transaction: Transaction,
  note: ReportProblem,
): number {
  let [entries, before] = [0, Buffer.alloc(0)];
  attempted(() => {
    for (const { key, value } of tables[name].getRange({ transaction })) {
      const own = Buffer.from(key);
      entries++;
      attempted(() => checkRecord(name, own, Uint8Array.from(value)), note);
      if (own.compare(before) <= 0) note(`table "${name}" has keys out of order`);
      const isFound = tables[name].get(own, { transaction }) !== undefined;
      if (!isFound) note(`a record of table "${name}" is not found by its key`);
      before = own;
    }
  }, note);
  return entries;
}

/** What is read, or `null` after a note of why it can't be. */
export function attempted<T>(read: () => T, note: ReportProblem): T | null {
  try {
    return read();
  } catch (error) {
    note(errorText(error).replace(howToGoOn, ""));
    return null;
  }
}

/** Throws when a record is damaged. Costs about 1 µs for each KiB. */
function checkRecord(table: DatabaseName, key: Buffer, value: Uint8Array): void {
  const demand = (isSound: boolean, problem: string) => {
    if (!isSound) throw new StoreError("corrupt", problem);
  };
  if (table === "blocks") {
    demand(key.length === 8 && value.length > 0, "a block of messages is damaged");
    for (const body of bodiesOf(value))
      demand(body?.isIntact === true, "a block holds a damaged message");
  } else if (table !== "meta" || !key.equals(formatKey))
    unsealed(key, value, `a record of table "${table}"`);
}

// ----------------------------------------------------------------------------------------- opening

/**
 * Opens the data file of a folder, which this process owns, if it can be trusted. Without counts it
 * is new.
 */
export async function openChecked(
  path: string,
): Promise<{ readonly root: Root; readonly counts: RecordCounts | null }> {
  checkDataFile(join(path, dataFile));
  const root = openRoot(path);
  try {
    return {
      root,
      counts: hasFormat(root, path) ? countsIn(tablesOf(root).meta.get(countsKey)) : null,
    };
  } catch (error) {
    await root.close();
    throw error instanceof StoreError ? error : unopened(path, error);
  }
}
