/**
 * The format of a store: its tables, the stamp of the version that wrote it, and how it is opened.
 * The number of the format is raised whenever a key or a value is laid out differently, so that no program
 * ever reads what another version meant otherwise; `storage migrate` brings an older store to it.
 */
import { type Database, open, type RootDatabase } from "lmdb";
import { errorText } from "../../core/fault.ts";
import { StoreError } from "../../storage/contract.ts";
import { howToGoOn } from "./records.ts";

/** Databases whose records are sealed together with their keys: what is not in them is answered as absent. */
export const boundDatabases = ["table", "receipts", "claims"] as const;
/** Databases of the environment, in the order in which a start checks them. Their keys are bytes. */
export const databaseNames = [
  ...(["meta", ...boundDatabases, "receipts-due"] as const),
  ...(["journal", "pages", "blocks"] as const),
];
export type DatabaseName = (typeof databaseNames)[number];
/** Up to format 5, each claim had a record of its own, and one here. */
export const endsOfClaims = "claims-due";

const formatText = "waypost lmdb store, format ";
const formatNumber = 6;
export const formatKey = Buffer.from("format");
/** What names the state that the saved index belongs to (saved-index.ts). */
export const nonceKey = Buffer.from("index");
export const currentFormat = `${formatText}${formatNumber}`;
/** What `storage migrate` reads: a store of version 0.1.0, one that it began to migrate, which no version opens, and the last format. */
export const format2 = `${formatText}2`;
export const format5 = `${formatText}5`;
export const migratingFormat = `${formatText}2, on its way to ${formatNumber}`;

export function openRoot(path: string, extra: { readonly readOnly?: true } = {}): RootDatabase<Buffer, Buffer> {
  // `safeRestore` always starts from the last synced state, also when a snapshot is restored on the same boot.
  const settings = {
    path,
    // Else the library treats a folder with a dot in its name as a file.
    noSubdir: false,
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
    ...extra,
  };
  try {
    return open<Buffer, Buffer>(settings);
  } catch (error) {
    throw new StoreError("corrupt", `${path} can't be opened: ${errorText(error)}${howToGoOn}`, { cause: error });
  }
}

export function tableOf(root: RootDatabase<Buffer, Buffer>, name: string): Database<Buffer, Buffer> {
  return root.openDB<Buffer, Buffer>({ name, encoding: "binary", keyEncoding: "binary" });
}

/** Bytes of the pages that a table takes. Cost: one look at its root page. */
export function tableBytes(table: Database<Buffer, Buffer>): number {
  const stats = table.getStats() as Record<
    "pageSize" | "treeBranchPageCount" | "treeLeafPageCount" | "overflowPages",
    number
  >;
  return (stats.treeBranchPageCount + stats.treeLeafPageCount + stats.overflowPages) * stats.pageSize;
}

export function isDatabase(name: string): boolean {
  return name === endsOfClaims || databaseNames.some((one) => one === name);
}

/** The names of the tables that an environment holds. */
function namesIn(root: RootDatabase<Buffer, Buffer>): string[] {
  // The library ends the names of databases with a NUL.
  return [...root.getKeys()].map((name) => Buffer.from(name).toString().replace(/\0$/, ""));
}

/** The stamp of an environment, `null` where there is none. Throws when it holds tables that are not ours. */
export function formatIn(root: RootDatabase<Buffer, Buffer>, path: string): string | null {
  const names = namesIn(root);
  if (!names.every(isDatabase)) throw notOurs(path);
  if (!names.includes("meta")) return null;
  const found = tableOf(root, "meta").get(formatKey);
  const text = found === undefined ? null : Buffer.from(found).toString();
  if (text !== null && !text.startsWith(formatText)) throw notOurs(path);
  return text;
}

/**
 * Whether the environment bears the stamp of this format; `false` where it may get it, because it is empty. Any other
 * is refused before a single page of it is written.
 */
export async function hasFormat(root: RootDatabase<Buffer, Buffer>, path: string): Promise<boolean> {
  const format = formatIn(root, path);
  if (format === currentFormat) return true;
  if (format === null && holdsAny(root)) throw notOurs(path);
  if (format === null) return false;
  const advice = [format2, format5, migratingFormat].includes(format)
    ? "Copy the folder, then run `waypost storage migrate`: identities and mail are kept"
    : "Start the version that wrote it, or move the folder away to begin with an empty store";
  throw new StoreError(
    "unavailable",
    `${path} was written by another version of waypost: it has format ${format.slice(formatText.length)}, and this ` +
      `version reads format ${formatNumber}. ${advice}`,
  );
}

function holdsAny(root: RootDatabase<Buffer, Buffer>): boolean {
  return namesIn(root).some((name) => [...tableOf(root, name).getKeys({ limit: 1 })].length > 0);
}

export function notOurs(path: string): StoreError {
  return new StoreError("unavailable", `${path} has an LMDB file of another program; name another folder`);
}
