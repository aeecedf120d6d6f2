/**
 * The replacement of a file by a process that has read it: only while nobody else has replaced or removed it meanwhile. Key
 * files are changed so, because several commands may run over one folder.
 */
import { existsSync, mkdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { dirname } from "node:path";
import { isSystemError, removeIfThere, syncFolder, writeBeside } from "../../app/files.ts";

/** What others do under the lock takes microseconds. */
const busyMs = 10_000;

/**
 * Does `work` while no other process does any under the same lock: SQLite's, which the kernel releases when the process
 * dies, however it dies. The work is synchronous, so nothing else of this process comes between either. Node before 22.13
 * has no SQLite: there, other processes are not kept away for the microseconds of the work.
 */
export async function alone<T>(lockPath: string, work: () => T): Promise<T> {
  const sqlite = await import("node:sqlite").catch(() => null);
  if (sqlite === null) return work();
  if (!existsSync(lockPath)) makeLock(lockPath);
  const lock = new sqlite.DatabaseSync(lockPath);
  try {
    lock.exec(`PRAGMA busy_timeout = ${busyMs}`);
    lock.exec("BEGIN EXCLUSIVE");
    return work();
  } finally {
    // Without a write the transaction leaves nothing.
    lock.close();
  }
}

/** SQLite would make it readable by others. */
function makeLock(path: string): void {
  mkdirSync(dirname(path), { recursive: true, mode: 0o700 });
  try {
    writeFileSync(path, "", { flag: "wx", mode: 0o600 });
  } catch (error) {
    if (!isSystemError(error, "EEXIST")) throw error;
  }
}

type Replacement = { readonly path: string; readonly before: string; readonly text: string };

/** `false`, and nothing is changed, when the file does not hold `before`. A reader sees the old file or the new one. */
export async function replaceDurably(lockPath: string, { path, before, text }: Replacement): Promise<boolean> {
  const temporary = await writeBeside(path, text);
  try {
    const isReplaced = await alone(lockPath, () => {
      if (!existsSync(path) || readFileSync(path, "utf8") !== before) return false;
      renameSync(temporary, path);
      return true;
    });
    if (isReplaced) await syncFolder(dirname(path));
    return isReplaced;
  } finally {
    await removeIfThere(temporary);
  }
}
