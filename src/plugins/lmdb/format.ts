/**
 * The format of a store: its tables, the stamp of the version that wrote it, and how it is opened.
 * The number of the format is raised whenever a key or a value is laid out differently, so that no program
 * reads what another version meant otherwise. `storage migrate` will bring an older store to it; there is none yet.
 */
import { type Database, open, type RootDatabase } from "lmdb";
import { errorText } from "../../core/fault.ts";
import { StoreError } from "../../storage/contract.ts";
import { howToGoOn } from "./records.ts";

/** Databases whose records are sealed together with their keys: a record that is not in them is absent. */
export const boundDatabases = ["table", "receipts", "claims"] as const;
/** Databases of the environment. Their keys are bytes. */
export const databaseNames = [
  ...(["meta", ...boundDatabases, "receipts-due"] as const),
  ...(["journal", "pages", "blocks"] as const),
];
export type DatabaseName = (typeof databaseNames)[number];

const formatText = "waypost lmdb store, format ";
const formatNumber = 1;
const currentFormat = `${formatText}${formatNumber}`;
/** The records of "meta": the stamp, and how many records the other tables have. */
export const formatKey = Buffer.from("format");
export const countsKey = Buffer.from("counts");
export const formatStamp = new TextEncoder().encode(currentFormat);

/** `isFile`: the path is that of a data file, and not of the folder that holds it. */
export function openRoot(
  path: string,
  extra: { readonly readOnly?: true; readonly isFile?: true } = {},
): RootDatabase<Buffer, Buffer> {
  // `safeRestore` always starts from the last synced state, also when a snapshot is restored on the same boot.
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
  // New files are not for others, also in a folder that somebody else has made.
  const umask = process.umask();
  process.umask(umask | 0o027);
  try {
    return open<Buffer, Buffer>(settings);
  } catch (error) {
    throw unopened(path, error);
  } finally {
    process.umask(umask);
  }
}

/** What the library says about a file that it can't open or read. */
export function unopened(path: string, cause: unknown): StoreError {
  return new StoreError("corrupt", `${path} can't be opened: ${errorText(cause)}${howToGoOn}`, { cause });
}

function tableOf(root: RootDatabase<Buffer, Buffer>, name: string): Table {
  return root.openDB<Buffer, Buffer>({ name, encoding: "binary", keyEncoding: "binary" });
}

type Table = Database<Buffer, Buffer>;
export type Tables = Readonly<Record<DatabaseName, Table>>;

export function tablesOf(root: RootDatabase<Buffer, Buffer>): Tables {
  return Object.fromEntries(databaseNames.map((name) => [name, tableOf(root, name)])) as Record<DatabaseName, Table>;
}

type TreeStats = Record<
  "pageSize" | "treeBranchPageCount" | "treeLeafPageCount" | "overflowPages" | "entryCount",
  number
>;

/** Bytes of the pages that a table takes. Cost: one look at its root page. */
export function tableBytes(table: Table): number {
  const stats = table.getStats() as TreeStats;
  return (stats.treeBranchPageCount + stats.treeLeafPageCount + stats.overflowPages) * stats.pageSize;
}

/** How many records a table has. */
export function entriesOf(table: Table): number {
  return (table.getStats() as TreeStats).entryCount;
}

/** The names of the tables that an environment holds. */
function namesIn(root: RootDatabase<Buffer, Buffer>): string[] {
  // The library ends the names of databases with a NUL.
  return [...root.getKeys()].map((name) => Buffer.from(name).toString().replace(/\0$/, ""));
}

/**
 * Whether the environment bears the stamp of this format; `false` where it may get it, because it is empty. Any other
 * is refused before a single page of it is written.
 */
export function hasFormat(root: RootDatabase<Buffer, Buffer>, path: string): boolean {
  const names = namesIn(root);
  if (!names.every((name) => databaseNames.some((one) => one === name))) throw notOurs(path);
  const found = names.includes("meta") ? tableOf(root, "meta").get(formatKey) : undefined;
  const format = found === undefined ? null : Buffer.from(found).toString();
  if (format === currentFormat) return true;
  if (format === null) {
    if (names.some((name) => entriesOf(tableOf(root, name)) > 0)) throw notOurs(path);
    return false;
  }
  if (!format.startsWith(formatText)) throw notOurs(path);
  throw new StoreError(
    "unavailable",
    `${path} was written by another version of waypost: it has format ${format.slice(formatText.length)}, and this ` +
      `version reads format ${formatNumber}. Start the version that wrote it, or move the folder away to begin with ` +
      "an empty store",
  );
}

function notOurs(path: string): StoreError {
  return new StoreError("unavailable", `${path} has an LMDB file of another program; name another folder`);
}
