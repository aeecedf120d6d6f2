/**
 * A lock between processes; and under it, the replacement of a file by a process that has read it,
 * only while no one else has replaced or removed it meanwhile. Key files are changed so, because
 * several commands may run over one folder.
 */
import { closeSync, existsSync, openSync, readFileSync, renameSync } from "node:fs";
import { mkdir } from "node:fs/promises";
import { dirname } from "node:path";
import { removeIfThere, syncFolder, writeBeside } from "../../app/files.ts";
import { type ClientError, localError } from "../../client/base/failure.ts";
import { errorText } from "../../core/fault.ts";

/** What others do under the lock of key files takes microseconds. */
const busyMs = 10_000;

/**
 * Does `work` while no other process does any under the same lock: SQLite's exclusive one, which
 * the kernel releases however the process dies. The work is synchronous, so nothing else of this
 * process comes between either. Node before
 * 22.13 has no SQLite: there, other processes are not kept away for the microseconds of the work.
 */
export async function alone<T>(lockPath: string, work: () => T): Promise<T> {
  const sqlite = await import("node:sqlite").catch(() => null);
  if (sqlite === null) return work();
  await mkdir(dirname(lockPath), { recursive: true, mode: 0o700 });
  // SQLite would make it readable by others.
  closeSync(openSync(lockPath, "a", 0o600));
  // Without a pause until the end: another lock of this process would block the thread, and so
  // wait for this one in vain.
  const opened = new sqlite.DatabaseSync(lockPath);
  try {
    try {
      opened.exec(`PRAGMA busy_timeout = ${busyMs}`);
      opened.exec("BEGIN EXCLUSIVE");
    } catch (error) {
      throw lockError(lockPath, error);
    }
    return work();
  } finally {
    opened.close();
  }
}

export function lockError(path: string, error: unknown): ClientError {
  if (isBusy(error)) return localError("busy", `another process has ${path} open`);
  return localError("unusable", `${path} can't be used: ${errorText(error)}`);
}

const sqliteBusy = 5;

/** Deno gives no code of SQLite, only its message. */
function isBusy(error: unknown): boolean {
  if (!(error instanceof Error)) return false;
  return "errcode" in error ? error.errcode === sqliteBusy : error.message === "database is locked";
}

type Replacement = { readonly path: string; readonly before: string; readonly text: string };

/**
 * `false`, and nothing is changed, when the file does not hold `before`. A reader sees the
 * old file or the new one.
 */
export async function replaceDurably(
  lockPath: string,
  { path, before, text }: Replacement,
): Promise<boolean> {
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
