/**
 * Who may write a store: one process. Two locks say so, which the kernel takes back when the
 * process dies: one on `owner.lock`, which also guards a folder whose store is being made or
 * replaced, and one on the data file itself, which holds when someone removes `owner.lock` or
 * reaches the file by another name. What still writes the file is noticed by the number of its last
 * transaction before the next commit: this process then ends, and has answered nothing that the
 * other one did not read.
 */
import { Database as LockFile } from "bun:sqlite";
import { chownSync, closeSync, fstatSync, openSync, type Stats, statSync } from "node:fs";
import { join } from "node:path";
import { errorText } from "../../core/fault.ts";
import { StoreError } from "../../storage/contract.ts";
import { lastCommit } from "./data-file.ts";
import { dataFile, lockFile, unusable } from "./lmdb.ts";
import { systemCalls } from "./system.ts";

/**
 * SQLite's exclusive lock on an empty file: the runtime offers no other on every system, and two
 * writers on one environment are not safe here.
 */
export function lockFolder(path: string): LockFile {
  let lock: LockFile | null = null;
  try {
    lock = new LockFile(join(path, lockFile), { create: true });
    lock.run("PRAGMA locking_mode = EXCLUSIVE");
    lock.run("PRAGMA journal_mode = OFF");
    lock.run("BEGIN EXCLUSIVE");
    return lock;
  } catch (error) {
    lock?.close();
    const isBusy = error instanceof Error && "code" in error && error.code === "SQLITE_BUSY";
    throw isBusy ? busy(path) : unusable(path, error);
  }
}

function busy(path: string): StoreError {
  return new StoreError("busy", `${path} can't be used: it is already open by another process`);
}

const exclusively = 2;
const withoutWaiting = 4;

/** The data file of a store that this process owns. */
export class OwnData {
  private readonly descriptor: number;
  private readonly inode: number;
  private readonly device: number;
  /** The last transaction of this process. */
  private transaction: bigint;

  /** Throws `busy` when another process has it. */
  constructor(private readonly file: string) {
    this.descriptor = openSync(file, "r+");
    const { ino, dev } = fstatSync(this.descriptor);
    this.inode = ino;
    this.device = dev;
    const outcome = systemCalls?.flock(this.descriptor, exclusively | withoutWaiting) ?? 0;
    if (outcome !== 0) {
      this.close();
      throw busy(file);
    }
    this.transaction = lastCommit(this.descriptor).transaction;
  }

  /**
   * Where the last page of the file ends. Throws when another process has written it. Costs 3 µs.
   */
  checkAlone(): number {
    const { transaction, end } = lastCommit(this.descriptor);
    if (transaction === this.transaction) return end;
    throw new Error("another process has written the data file");
  }

  /** This process has committed a transaction. */
  committed(): void {
    this.transaction++;
  }

  /** Throws `unavailable` while the file is not where the next start looks for it. Costs 2 µs. */
  checkPlace(): void {
    try {
      const { ino, dev } = statSync(this.file);
      if (ino === this.inode && dev === this.device) return;
    } catch (error) {
      throw new StoreError("unavailable", `${this.file} can't be found: ${errorText(error)}`);
    }
    throw new StoreError("unavailable", `${this.file} is not the file that was opened`);
  }

  /** Lets another process have it. */
  close(): void {
    closeSync(this.descriptor);
  }
}

/** Also where someone has removed the lock file of a running node. */
export function ownedData(folder: string, lock: LockFile): OwnData {
  try {
    return new OwnData(join(folder, dataFile));
  } catch (error) {
    lock.close();
    throw error;
  }
}

/**
 * Gives a file to the owner and group of a store: root works for the service's user, which must
 * open it afterwards.
 */
export function giveTo({ uid, gid }: Stats, file: string): void {
  const found = statSync(file);
  if (found.uid !== uid || found.gid !== gid) chownSync(file, uid, gid);
}
