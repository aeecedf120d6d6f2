/**
 * A local store in one file: SQLite, open in one process at a time. Each batch is a transaction
 * that is synced before it counts.
 * Source: docs/client.md "A local store".
 */
import { mkdir, open } from "node:fs/promises";
import { dirname, join } from "node:path";
import type { DatabaseSync } from "node:sqlite";
import type { Row, StoreDriver, StoreOptions } from "../../client/store/driver.ts";
import { defaultKeysFolder, stateFolder } from "./files.ts";
import { lockError } from "./lock.ts";

const bytesMaxDefault = 2_147_483_648;

/** Where the commands keep the store of an identity: next to its keys. */
export const storePath = (keysFolder: string, name: string): string =>
  join(stateFolder(keysFolder, name), "store.sqlite");

/**
 * Throws `busy` when another process has it open. One file may have the
 * stores of several identities.
 */
export function fileStore(
  path: string = join(dirname(defaultKeysFolder()), "store.sqlite"),
  { bytesMax = bytesMaxDefault }: StoreOptions = {},
): StoreDriver {
  let opened: Promise<DatabaseSync> | null = null;
  const database = () => {
    opened ??= openTable(path).catch((error: unknown) => {
      opened = null;
      throw error;
    });
    return opened;
  };
  return {
    read: async (key) => {
      const row = (await database()).prepare("SELECT value FROM rows WHERE key = ?").get(key);
      return (row?.["value"] as Uint8Array | undefined) ?? null;
    },
    scan: async ({ from, to, limit, isReverse = false }) => {
      const order = isReverse ? "DESC" : "ASC";
      const sql = `SELECT key, value FROM rows WHERE key >= ? AND key < ? ORDER BY key ${order} LIMIT ?`;
      const found = (await database()).prepare(sql).all(from, to, limit);
      return found.map((row): Row => [String(row["key"]), row["value"] as Uint8Array]);
    },
    apply: async (batch) => {
      const at = await database();
      const [put, remove] = [
        at.prepare(
          "INSERT INTO rows VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value",
        ),
        at.prepare("DELETE FROM rows WHERE key = ?"),
      ];
      at.exec("BEGIN");
      try {
        for (const [key, bytes] of batch) bytes === null ? remove.run(key) : put.run(key, bytes);
        at.exec("COMMIT");
      } catch (error) {
        rollBack(at);
        throw error;
      }
    },
    close: async () => {
      (await opened?.catch(() => null))?.close();
      opened = null;
    },
    bytesMax,
    sharedAs: null,
  };
}

/** SQLite has done it itself where the disk is full. */
function rollBack(at: DatabaseSync): void {
  try {
    at.exec("ROLLBACK");
  } catch {
    // The reason is thrown by the caller.
  }
}

/**
 * Locked as long as it is open: SQLite's exclusive lock, which the kernel releases when
 * the process dies, however it dies. A process id would not do: in a container the next
 * process has the same one.
 */
async function openTable(path: string): Promise<DatabaseSync> {
  const { DatabaseSync } = await import("node:sqlite");
  let opened: DatabaseSync | null = null;
  try {
    await mkdir(dirname(path), { recursive: true, mode: 0o700 });
    // SQLite would make it readable by others.
    await (await open(path, "a", 0o600)).close();
    opened = new DatabaseSync(path);
    for (const sql of openingStatements) opened.exec(sql);
    return opened;
  } catch (error) {
    opened?.close();
    throw lockError(path, error);
  }
}

const openingStatements = [
  // What was removed leaves the disk.
  "PRAGMA auto_vacuum = FULL",
  "PRAGMA locking_mode = EXCLUSIVE",
  "PRAGMA journal_mode = WAL",
  "PRAGMA synchronous = FULL",
  "CREATE TABLE IF NOT EXISTS rows (key TEXT PRIMARY KEY, value BLOB NOT NULL)",
  "BEGIN EXCLUSIVE",
  "COMMIT",
];
