/**
 * One LMDB environment: opening it safely, and its only ways of writing. A commit resolves when its own
 * transaction is synced: `overlappingSync` is off, because with it a write can be answered that a power cut
 * takes back. While a commit takes longer than 5 s, new work is refused as `unavailable`. A commit that fails
 * or takes longer than 60 s ends the store: its outcome is not known, and the library may never answer again
 * or lie about a second sync. The program must stop at once.
 */

import { dlopen, FFIType } from "bun:ffi";
import type { Database as LockFile } from "bun:sqlite";
import { closeSync, fstatSync, ftruncateSync, openSync, statfsSync } from "node:fs";
import { dirname, join } from "node:path";
import { minuteMs } from "../../core/codec/time.ts";
import { errorText } from "../../core/fault.ts";
import { type StoreEnvironment, StoreError } from "../../storage/contract.ts";
import {
  type Batch,
  type CommitHost,
  GroupCommits,
  type KeyRange,
  type Participant,
  type Write,
  type WriteKind,
  type WriteSize,
} from "./commits.ts";
import {
  countsKey,
  type DatabaseName,
  databaseNames,
  formatKey,
  formatStamp,
  noCounts,
  openChecked,
  type RecordCounts,
  type Root,
  sealedCounts,
  type Tables,
  tableBytes,
  tablesOf,
  usedBytesOf,
} from "./data-file.ts";
import { dataFile, giveToOwner, lockFolder, prepareDirectory, syncPath } from "./lmdb.ts";

const commitMsMax = 60_000;
/** The time is counted in turns of the event loop, so that a stalled loop does not look like a stalled disk. */
const watchTurnsMax = 60;
/** From here on the disk is slow: the store waits for the commit, and takes no new work. */
const slowTurns = 5;

type EnvironmentOptions = {
  readonly path: string;
  readonly space: SpaceLimits;
  readonly host: StoreEnvironment;
  /** Instead of the disk below the data file. */
  readonly disk?: Disk;
  /** Instead of 60 s, in tests. */
  readonly commitMsMax?: number;
};

export async function openEnvironment(options: EnvironmentOptions): Promise<Environment> {
  const { path } = options;
  prepareDirectory(path);
  const lock = lockFolder(path);
  try {
    const { root, counts } = await openChecked(path);
    // The library syncs the file but never the directories that name it.
    for (const directory of [path, dirname(path)]) syncPath(directory);
    giveToOwner(path);
    const disk = options.disk ?? openDisk(join(path, dataFile));
    const environment = new Environment(options, { root, disk, lock, counts });
    try {
      const size = { kind: "record", bytes: formatStamp.length } as const;
      if (counts === null) await environment.join(size, (batch) => batch.put("meta", formatKey, formatStamp));
    } catch (error) {
      await environment.close();
      throw error;
    }
    return environment;
  } catch (error) {
    lock.close();
    throw error;
  }
}

type Commit = { turns: number; readonly reject: (error: StoreError) => void };

type Held = {
  readonly root: Root;
  readonly disk: Disk;
  readonly lock: LockFile;
  readonly counts: RecordCounts | null;
};

export class Environment {
  private readonly databases: Tables;
  /** The commit that is under way. */
  private commit: Commit | null = null;
  /** Only while there are commits: an idle store wakes nobody. */
  private watch: ReturnType<typeof setInterval> | null = null;
  private readonly readers: ReturnType<typeof setInterval>;
  private readonly group: GroupCommits;
  private readonly space: SpaceGuard;
  private failure: StoreError | null = null;
  private closed: Promise<void> | null = null;
  /** How many records each table has once the commit at hand is on disk. */
  private readonly counts: RecordCounts;

  constructor(
    private readonly options: EnvironmentOptions,
    private readonly held: Held,
  ) {
    const { root, disk, counts } = held;
    this.counts = counts ?? noCounts();
    this.databases = tablesOf(root);
    // A backup that was killed leaves its reader behind, and no page that it could see would be used again.
    this.readers = setInterval(() => root.readerCheck(), minuteMs);
    this.readers.unref();
    this.space = openSpaceGuard(disk, options, () => this.freePageBytes());
    this.group = new GroupCommits({
      checkRoom: this.space.checkRoom,
      checkOpen: () => this.checkWork(),
      checkFailure: () => this.checkFailure(),
      write: (writes) => this.write(writes),
      fail: (reason, cause) => this.fail(reason, cause),
    });
  }

  get(database: DatabaseName, key: Buffer): Uint8Array | null {
    return this.borrow(database, key)?.slice() ?? null;
  }

  /** A value in the library's own memory, valid until the next read of anything, or `null` when there is none. */
  borrow(database: DatabaseName, key: Buffer): Uint8Array | null {
    const found = this.reading(() => this.databases[database].getBinaryFast(key));
    return found === undefined ? null : plain(found);
  }

  /** Reads the whole range at once: no cursor and no read transaction outlives the call. */
  range(database: DatabaseName, range: KeyRange): [Buffer, Uint8Array][] {
    const copied = ({ key, value }: { key: Buffer; value: Buffer }): [Buffer, Uint8Array] => [
      Buffer.from(key),
      plain(value).slice(),
    ];
    return this.reading(() => Array.from(this.databases[database].getRange(range), copied));
  }

  keys(database: DatabaseName, range: KeyRange): Buffer[] {
    return this.reading(() => Array.from(this.databases[database].getKeys(range), (key) => Buffer.from(key)));
  }

  private reading<T>(read: () => T): T {
    this.checkOpen();
    try {
      return read();
    } catch (error) {
      throw new StoreError("unavailable", `the store can't be read: ${errorText(error)}`, { cause: error });
    }
  }

  /** Decides an operation when the next group commit begins, and resolves when that is on disk: a sync for many. */
  join<T>(size: WriteSize, decide: (batch: Batch) => T): Promise<T> {
    return this.group.join(size, decide);
  }

  /** Has a part in every group commit from now on. */
  takePart(participant: Participant): void {
    this.group.participants.push(participant);
  }

  /** Runs a read when no group commit is under way. */
  whenCommitted<T>(read: () => T): Promise<T> {
    return this.group.read(read);
  }

  /** One transaction that the library's thread runs alone: nothing of it waits for this thread. */
  private async write(writes: readonly Write[]): Promise<void> {
    const { promise: overdue, reject } = Promise.withResolvers<never>();
    overdue.catch(() => {});
    this.commit = { turns: 0, reject };
    this.watch ??= setInterval(
      () => this.countTurns(),
      (this.options.commitMsMax ?? commitMsMax) / watchTurnsMax,
    ).unref();
    try {
      this.count(writes);
      const written = this.held.root.batch(() => {
        for (const { database, key, value } of writes) {
          if (value === null) this.databases[database].remove(key);
          else this.databases[database].put(key, value as Buffer);
        }
        this.databases.meta.put(countsKey, sealedCounts(this.counts) as Buffer);
      });
      await Promise.race([written, overdue]);
    } catch (error) {
      throw this.fail("a commit failed", reasonOf(error));
    } finally {
      this.commit = null;
    }
  }

  /** Counts the records that come and go with the writes, which may touch one more than once. */
  private count(writes: readonly Write[]): void {
    const isThere = new Map<string, boolean>();
    for (const { database, key, value } of writes) {
      if (database === "meta") continue;
      const name = `${database} ${key.toString("latin1")}`;
      const before = isThere.get(name) ?? this.databases[database].doesExist(key);
      this.counts[database] += Number(value !== null) - Number(before);
      isThere.set(name, value !== null);
    }
  }

  private countTurns(): void {
    if (this.commit === null) {
      this.endWatch();
      return;
    }
    const turns = ++this.commit.turns;
    if (turns === slowTurns) {
      this.options.host.log("warn", "the disk is slow: a commit takes long, and new work is refused until it ends");
    }
    if (turns > watchTurnsMax) this.fail("a commit takes too long", null);
  }

  private endWatch(): void {
    clearInterval(this.watch ?? undefined);
    this.watch = null;
  }

  /** Ends the store: nothing is answered any more, and `fatal` gets the reason. */
  fail(reason: string, cause: unknown): StoreError {
    if (this.failure !== null) return this.failure;
    const text = cause === null ? reason : `${reason}: ${errorText(cause)}`;
    this.failure = new StoreError("unavailable", text, { cause });
    this.endWatch();
    clearInterval(this.readers);
    this.commit?.reject(this.failure);
    this.options.host.log("error", "the store has failed", { reason: text });
    this.options.host.fatal(text);
    return this.failure;
  }

  /** Throws when the store is closed or has failed. */
  checkOpen(): void {
    if (this.closed !== null) throw new StoreError("closed", "the store is closed");
    this.checkFailure();
  }

  private checkFailure(): void {
    if (this.failure !== null) throw this.failure;
  }

  /** Throws also while a commit takes long: nothing new is begun then. */
  checkWork(): void {
    this.checkOpen();
    if ((this.commit?.turns ?? 0) < slowTurns) return;
    throw new StoreError("unavailable", "the disk is slow to answer: try again later");
  }

  /** Pages of the file that no database uses. Cost: one look at the root page of each. */
  private freePageBytes(): number {
    let used = 0;
    for (const name of databaseNames) used += tableBytes(this.databases[name]);
    return Math.max(this.held.disk.usedBytes() - used, 0);
  }

  /** Throws when writes are refused, or will be soon. */
  checkReady(): void {
    this.checkWork();
    if (this.space.isLow()) throw new StoreError("full", "the disk is nearly full for this store");
  }

  /** How much of the file, and of the disk that it may still take, the embedded ledger has: 0 to 1. */
  ledgerPart(): number {
    const { disk } = this.held;
    const left = Math.max(disk.freeBytes() - this.options.space.floorBytes, 0);
    return tableBytes(this.databases.table) / (disk.usedBytes() + left);
  }

  /** Waits for what was begun, and lets go of the files. */
  close(): Promise<void> {
    this.closed ??= this.letGo();
    return this.closed;
  }

  /**
   * A failed environment is not closed, because the library might never return from it, and its lock is
   * kept: whatever the library still does, it does alone until the process ends.
   */
  private async letGo(): Promise<void> {
    this.endWatch();
    clearInterval(this.readers);
    while (!this.group.isIdle && this.failure === null) await Bun.sleep(1);
    this.held.disk.close();
    if (this.failure !== null) return;
    await this.held.root.close();
    this.held.lock.close();
  }
}

/**
 * The library reuses its buffers and hands out its map: what leaves here is copied from this view. On a reused buffer
 * `length` is the value's length and hides the buffer's own, which is larger. A part of a `Buffer` costs 1 µs.
 */
function plain(bytes: Uint8Array): Uint8Array<ArrayBuffer> {
  return new Uint8Array(bytes.buffer as ArrayBuffer, bytes.byteOffset, bytes.length);
}

/** The library promises the reason of a failed commit separately, and has rejected with it by now. */
function reasonOf(error: unknown): unknown {
  const promised = (error as { readonly commitError?: Promise<unknown> }).commitError;
  if (promised === undefined) return error;
  // An unheard rejection would be logged as a bug.
  promised.catch(() => undefined);
  return Bun.peek.status(promised) === "rejected" ? Bun.peek(promised) : error;
}

// ------------------------------------------------------------------------------------------------------------ room

/** The disk as the guard sees it; tests give their own. */
export type Disk = {
  /** Bytes that this process may still use on the file system. */
  freeBytes(): number;
  /** Length of the data file. */
  fileBytes(): number;
  /** Where the last page of the file ends. */
  usedBytes(): number;
  /** Whether the file has room on the disk for all of its length; elsewhere its end is a hole. */
  readonly reserves: boolean;
  /** Makes the file longer; `false` when there is no room. */
  extend(to: number): boolean;
  close(): void;
};

type SpaceLimits = {
  /** Room is only set aside while at least this much stays free for others. */
  readonly floorBytes: number;
  readonly reserveBytes: number;
};

/** With so many reserves left, the store is not ready. */
const lowReserves = 3;

type SpaceGuard = {
  readonly checkRoom: CommitHost["checkRoom"];
  /** Whether little is left on the disk and inside the file. */
  readonly isLow: () => boolean;
};

/**
 * LMDB must never meet a full disk. So the file is longer than its pages, with room for its length where the system sets
 * room aside (`fallocate`), and every commit asks first. A look at the disk costs 10 µs. A commit does not write the last
 * pages when it frees them: so only a file that is longer shows whether it was cut short.
 *
 * A store needs room for twice its bytes beyond a reserve; a smaller write may use half of the reserve,
 * and removals nearly all of it, so that a full node still answers pulls and acknowledgements. When no
 * more room can be set aside, writes go on only as long as enough pages inside the file are free.
 * Source: rules section 3 (507 `storage_full`); the behavior of the library was measured.
 *
 * `pagesFree` returns how many bytes of pages inside the file are free.
 */
function openSpaceGuard(disk: Disk, { space, host }: EnvironmentOptions, pagesFree: () => number): SpaceGuard {
  const { floorBytes, reserveBytes } = space;
  /** What the operator was told since there was enough. */
  const told = new Set<string>();

  function tell(level: "warn" | "error", message: string): void {
    if (!told.has(message)) host.log(level, message);
    told.add(message);
  }

  const behindPages = () => disk.fileBytes() - disk.usedBytes();
  /** What the file may still take of the disk. A hole at its end takes nothing yet. */
  const spare = () => Math.max(disk.freeBytes() - floorBytes - (disk.reserves ? 0 : behindPages()), 0);

  /** Room behind the last page, after trying to have `wanted` there, and another reserve for the next ones. */
  function roomOf(wanted: number): number {
    const [have, end] = [behindPages(), disk.usedBytes()];
    if (have >= wanted) return have;
    const left = spare();
    const made = [wanted + reserveBytes, wanted].find((aim) => aim - have <= left && disk.extend(end + aim));
    return made ?? have;
  }

  function isLow(): boolean {
    const [enough, left] = [lowReserves * reserveBytes, spare() + behindPages()];
    if (left < enough && left + pagesFree() < enough) return true;
    told.clear();
    return false;
  }

  function admits(kind: WriteKind, bytes: number): boolean {
    const share = { store: 1, record: 1 / 2, removal: 1 / 32 }[kind];
    const room = roomOf(2 * bytes + reserveBytes);
    if (room >= 2 * bytes + reserveBytes * share) return true;
    // Free pages are scattered, and a change copies the pages above it: four times the bytes, and a margin. Growth that
    // they can't prevent still has the rest of the reserve.
    return room >= 2 * bytes + reserveBytes / 32 && pagesFree() >= 4 * bytes + reserveBytes / 4;
  }

  const checkRoom: CommitHost["checkRoom"] = (kind, bytes) => {
    if (isLow()) tell("warn", "the disk is nearly full: writes will be refused");
    if (admits(kind, bytes)) return;
    tell("error", "the disk is full: writes are refused");
    throw new StoreError(kind === "removal" ? "unavailable" : "full", "the disk is full for this store");
  };
  return { checkRoom, isLow };
}

const libraries = ["libc.so.6", "libc.musl-x86_64.so.1", "libc.musl-aarch64.so.1"];

/** Calls of the C library, or `null` where it is not to be had. */
function systemCalls() {
  if (process.platform !== "linux") return null;
  for (const name of libraries) {
    try {
      return dlopen(name, {
        fallocate: { args: [FFIType.i32, FFIType.i32, FFIType.i64, FFIType.i64], returns: FFIType.i32 },
      }).symbols;
    } catch {}
  }
  return null;
}

/** The disk below a data file that exists. */
export function openDisk(file: string): Disk {
  const descriptor = openSync(file, "r+");
  const { size } = fstatSync(descriptor);
  const system = systemCalls();
  const allocate = (to: number) => system?.fallocate(descriptor, 0, 0n, BigInt(to)) === 0;
  // Some file systems have no such call.
  const reserves = allocate(size);
  return {
    freeBytes() {
      const { bavail, bsize } = statfsSync(file);
      return Number(bavail) * Number(bsize);
    },
    fileBytes: () => fstatSync(descriptor).size,
    usedBytes: usedBytesOf(descriptor),
    reserves,
    extend(to) {
      if (reserves) return allocate(to);
      if (to > fstatSync(descriptor).size) ftruncateSync(descriptor, to);
      return true;
    },
    close: () => closeSync(descriptor),
  };
}
