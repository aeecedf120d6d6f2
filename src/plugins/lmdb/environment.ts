/**
 * One LMDB environment, and its only way of writing: group commits. Operations queue; when a commit
 * begins, it decides all that has gathered in order, and writes the outcome in one transaction. A
 * promise settles when that is synced: `overlappingSync` is off, because with it a write can be
 * answered that a power cut takes back. Nothing is read inside the transaction, so that the
 * library's thread writes without waiting for this one. Reads wait while a commit is under way, so
 * that what they answer is on disk. A commit that fails or takes longer than 60 s ends the store:
 * its outcome is not known, and the library may never answer again or lie about a second sync. The
 * program must stop at once.
 */

import type { Database as LockFile } from "bun:sqlite";
import { dirname, join } from "node:path";
import { minuteMs, secondMs } from "../../core/codec/time.ts";
import { errorText } from "../../core/fault.ts";
import { late, withDeadline } from "../../core/std/bounded.ts";
import { Batcher, Refusal } from "../../storage/batcher.ts";
import { type StoreEnvironment, StoreError } from "../../storage/contract.ts";
import {
  countsKey,
  type DatabaseName,
  databaseNames,
  formatKey,
  formatStamp,
  isOlderStateRead,
  lastTransaction,
  noCounts,
  openChecked,
  type RecordCounts,
  type Root,
  sealedCounts,
  type Tables,
  tableBytes,
  tablesOf,
} from "./data-file.ts";
import { dataFile, prepareDirectory, removeUnfinished, syncPath } from "./lmdb.ts";
import { type ReleasedMap, releaseMapOf } from "./map.ts";
import { lockFolder, OwnData } from "./owner.ts";
import {
  type Disk,
  openDisk,
  openSpaceGuard,
  refusalsOf,
  type SpaceGuard,
  type SpaceLimits,
  type WriteSize,
} from "./space.ts";

const commitMsMax = minuteMs;
const readersMax = 4_096;

type EnvironmentOptions = {
  readonly path: string;
  readonly space: SpaceLimits;
  readonly host: StoreEnvironment;
  /** Instead of the disk below the data file. */
  readonly disk?: Disk;
  /** Instead of 60 s, in tests. */
  readonly commitMsMax?: number;
};

/** Keys from `start` up to but without `end`, at most `limit`. */
type KeyRange = { readonly start: Buffer; readonly end?: Buffer; readonly limit: number };
type Write = {
  readonly database: DatabaseName;
  readonly key: Buffer;
  readonly value: Uint8Array | null;
  /** By how much the records of the table become more; `null` where that takes a look at it. */
  readonly more: 0 | 1 | null;
};

/** What one commit writes. */
export class CommitBatch {
  readonly writes: Write[] = [];

  /** A record whose key no record had before. */
  add(database: DatabaseName, key: Buffer, value: Uint8Array): void {
    this.writes.push({ database, key, value, more: 1 });
  }

  /** A record that is on disk, and that nothing else in the commit removes. */
  replace(database: DatabaseName, key: Buffer, value: Uint8Array): void {
    this.writes.push({ database, key, value, more: 0 });
  }

  put(database: DatabaseName, key: Buffer, value: Uint8Array): void {
    this.writes.push({ database, key, value, more: null });
  }

  remove(database: DatabaseName, key: Buffer): void {
    this.writes.push({ database, key, value: null, more: null });
  }
}

/** Decided when the commit begins. */
type WriteOperation = {
  readonly size: WriteSize;
  readonly decide: (batch: CommitBatch) => unknown;
};

export async function openEnvironment(options: EnvironmentOptions): Promise<Environment> {
  const { path } = options;
  prepareDirectory(path);
  const lock = lockFolder(path);
  try {
    const { root, counts } = await openChecked(path);
    // The library syncs the file but never the directories that name it.
    for (const directory of [path, dirname(path)]) syncPath(directory);
    const tables = tablesOf(root);
    const data = await ownData(root, join(path, dataFile));
    removeUnfinished(path);
    const disk = options.disk ?? openDisk(join(path, dataFile));
    const environment = new Environment(options, { root, tables, data, disk, lock }, counts);
    try {
      const size = { kind: "record", bytes: formatStamp.length } as const;
      if (counts === null)
        await environment.join(size, (batch) => batch.put("meta", formatKey, formatStamp));
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

async function ownData(root: Root, file: string): Promise<OwnData> {
  try {
    return new OwnData(file);
  } catch (error) {
    await root.close();
    throw error;
  }
}

type OpenFile = {
  readonly root: Root;
  readonly tables: Tables;
  readonly data: OwnData;
  readonly disk: Disk;
  readonly lock: LockFile;
};

export class Environment {
  private readonly databases: Tables;
  private readonly eachMinute: ReturnType<typeof setInterval>;
  private readonly map: ReleasedMap;
  private readonly operations = new Batcher<WriteOperation, unknown>(
    (given) => this.commit(given),
    Infinity,
    {
      operationsMax: 2_048,
      // The acknowledgements of a commit must fit into what records leave of the smallest reserve.
      bytesMax: 1.5 * 1024 ** 2,
      runningMax: 1,
      // A synced transaction takes 0.3 ms of processor time, however few stores it has.
      turnsMax: 4,
    },
  );
  /** From the first decision until all is on disk: what is read is of the commit before. */
  isCommitting = false;
  /** Reads that wait for the commit that is under way. */
  private readers: (() => void)[] = [];
  private readonly parts: ((batch: CommitBatch) => void)[] = [];
  private readonly space: SpaceGuard;
  private failure: StoreError | null = null;
  /** Bytes of free pages after a transaction, and after the one before. */
  private free = { transaction: 0, before: 0, now: 0 };
  private closed: Promise<void> | null = null;
  /** How many records each table has once the commit at hand is on disk. */
  private readonly counts: RecordCounts;

  constructor(
    private readonly options: EnvironmentOptions,
    private readonly held: OpenFile,
    counts: RecordCounts | null,
  ) {
    const { root, tables, disk } = held;
    this.counts = counts ?? noCounts();
    this.databases = tables;
    this.eachMinute = setInterval(() => {
      // A backup that was killed leaves its reader behind, and no page that it could see would be
      // used again.
      root.readerCheck();
      this.lookAtRoom();
    }, minuteMs);
    this.eachMinute.unref();
    this.map = releaseMapOf(join(options.path, dataFile));
    const { log } = options.host;
    this.space = openSpaceGuard(disk, options.space, {
      log,
      pagesFree: () => this.freePageBytes(),
      pagesUsable: () => this.usablePageBytes(),
    });
  }

  // --------------------------------------------------------------------------------------- reading

  get(database: DatabaseName, key: Buffer): Uint8Array | null {
    return this.borrow(database, key)?.slice() ?? null;
  }

  /**
   * A value in the library's own memory, valid until the next read of anything, or `null` when
   * there is none.
   */
  borrow(database: DatabaseName, key: Buffer): Uint8Array | null {
    this.checkOpen();
    try {
      const found = this.databases[database].getBinaryFast(key);
      if (found === undefined) return null;
      this.map.read(found.length);
      return plain(found);
    } catch (error) {
      throw unreadable(error);
    }
  }

  /** Reads the whole range at once: no cursor and no read transaction outlives the call. */
  range(database: DatabaseName, range: KeyRange): [Buffer, Uint8Array][] {
    const copied = ({ key, value }: { key: Buffer; value: Buffer }): [Buffer, Uint8Array] => {
      this.map.read(value.length);
      return [Buffer.from(key), plain(value).slice()];
    };
    return this.reading(() => Array.from(this.databases[database].getRange(range), copied));
  }

  keys(database: DatabaseName, range: KeyRange): Buffer[] {
    return this.reading(() =>
      Array.from(this.databases[database].getKeys(range), (key) => Buffer.from(key)),
    );
  }

  private reading<T>(read: () => T): T {
    this.checkOpen();
    try {
      return read();
    } catch (error) {
      throw unreadable(error);
    }
  }

  /**
   * Runs a read on what is committed: at once, or after the commit that is under way and before the
   * next one.
   */
  async whenCommitted<T>(read: () => T): Promise<T> {
    this.checkOpen();
    if (this.isCommitting) {
      if (this.readers.length >= readersMax)
        throw new StoreError("unavailable", "too many reads are waiting");
      await new Promise<void>((run) => void this.readers.push(run));
      this.checkFailure();
    }
    return read();
  }

  // --------------------------------------------------------------------------------------- writing

  /**
   * Decides an operation when the next group commit begins, and resolves when that is on disk. When
   * `decide` throws, it must do so before its first write.
   */
  join<T>(size: WriteSize, decide: (batch: CommitBatch) => T): Promise<T> {
    const reason = this.whyUnusable;
    if (reason !== null) return Promise.reject(reason);
    return this.operations.add({ given: { size, decide }, bytes: size.bytes }) as Promise<T>;
  }

  /** Each commit writes with it what its operations have decided together. */
  onCommit(finish: (batch: CommitBatch) => void): void {
    this.parts.push(finish);
  }

  private async commit(operations: readonly WriteOperation[]): Promise<unknown[]> {
    this.checkFailure();
    this.isCommitting = true;
    try {
      const end = this.held.data.checkAlone();
      const refusals = refusalsOf(operations, (size) => this.checkWrite(size, end));
      const batch = new CommitBatch();
      const answers = operations.map(
        (operation) => refusals.get(operation) ?? answerOf(operation, batch),
      );
      for (const finish of this.parts) finish(batch);
      if (batch.writes.length > 0) await this.write(batch.writes);
      return answers;
    } catch (error) {
      // The decision is in memory and may not be on the disk: nothing can be answered from it any
      // more.
      throw this.fail(error);
    } finally {
      this.isCommitting = false;
      for (const run of this.readers.splice(0)) run();
      this.map.committed();
    }
  }

  private checkWrite(size: WriteSize, end: number): void {
    this.held.data.checkPlace();
    this.space.checkRoom(size, end);
  }

  /** One transaction that the library's thread runs alone: nothing of it waits for this thread. */
  private async write(writes: readonly Write[]): Promise<void> {
    const counted = this.count(writes);
    const written = this.held.root.batch(() => {
      for (const { database, key, value } of writes) {
        if (value === null) this.databases[database].remove(key);
        else this.databases[database].put(key, value as Buffer);
      }
      this.databases.meta.put(countsKey, counted as Buffer);
    });
    // Once more, because a process that stood still for so long looks like a disk that does.
    for (const ms of [this.options.commitMsMax ?? commitMsMax, secondMs])
      if ((await withDeadline(written, ms)) !== late) return this.held.data.committed();
    throw new Error("a commit takes too long");
  }

  /**
   * Counts the records that come and go with the writes, which may put and remove one more than
   * once. A look at a table costs 1 µs, and the first one of a commit 15 µs, for a transaction.
   */
  private count(writes: readonly Write[]): Uint8Array {
    const { counts } = this;
    const isThere = new Map<string, boolean>();
    for (const { database, key, value, more } of writes) {
      if (database === "meta") continue;
      if (more !== null) {
        counts[database] += more;
        continue;
      }
      const name = `${database} ${key.toString("latin1")}`;
      const before = isThere.get(name) ?? this.databases[database].doesExist(key);
      counts[database] += Number(value !== null) - Number(before);
      isThere.set(name, value !== null);
    }
    return sealedCounts(counts);
  }

  /** Ends the store: nothing is answered any more, and `fatal` gets the reason. */
  private fail(cause: unknown): StoreError {
    const reason = `a commit failed: ${errorText(reasonOf(cause))}`;
    this.failure = new StoreError("unavailable", reason, { cause });
    clearInterval(this.eachMinute);
    this.options.host.log("error", "the store has failed", { reason });
    this.options.host.fatal(reason);
    return this.failure;
  }

  /** Throws when the store is closed or has failed. */
  checkOpen(): void {
    const reason = this.whyUnusable;
    if (reason !== null) throw reason;
  }

  private get whyUnusable(): StoreError | null {
    return this.closed === null ? this.failure : new StoreError("closed", "the store is closed");
  }

  private checkFailure(): void {
    if (this.failure !== null) throw this.failure;
  }

  /** Pages of the file that no database uses. Cost: one look at the root page of each. */
  private freePageBytes(): number {
    let used = 0;
    for (const name of databaseNames) used += tableBytes(this.databases[name]);
    return Math.max(this.held.disk.usedBytes() - used, 0);
  }

  /**
   * Free pages that a commit may use: not those that the last one freed, and none while an older
   * state is read.
   */
  usablePageBytes(): number {
    const transaction = lastTransaction(this.held.root);
    if (isOlderStateRead(this.held.root)) return 0;
    if (transaction !== this.free.transaction) {
      const isNext = transaction === this.free.transaction + 1;
      const before = isNext ? this.free.now : Number.POSITIVE_INFINITY;
      this.free = { transaction, before, now: this.freePageBytes() };
    }
    return Math.min(this.free.before, this.free.now);
  }

  /** Whether a commit should write small records, and no more than it must. */
  get isTight(): boolean {
    return this.space.isTight();
  }

  /** Throws when writes are refused, or will be soon. */
  checkReady(): void {
    this.checkOpen();
    this.held.data.checkPlace();
    if (this.space.isLow()) throw new StoreError("full", "the disk is nearly full for this store");
  }

  /** Logs when little is left. */
  private lookAtRoom(): void {
    try {
      this.space.isLow();
    } catch {
      // A disk that can't be asked refuses the next write, with the reason.
    }
  }

  /**
   * How much of the file, and of the disk that it may still take, the embedded ledger has: 0 to 1.
   */
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
   * A failed environment is not closed, because the library might never return from it, and its
   * lock is kept: whatever the library still does, it does alone until the process ends.
   */
  private async letGo(): Promise<void> {
    clearInterval(this.eachMinute);
    while (!this.operations.isIdle && this.failure === null) await Bun.sleep(1);
    this.held.disk.close();
    if (this.failure !== null) return;
    await this.held.root.close();
    this.held.data.close();
    this.held.lock.close();
  }
}

function unreadable(cause: unknown): StoreError {
  return new StoreError("unavailable", `the store can't be read: ${errorText(cause)}`, { cause });
}

function answerOf({ decide }: WriteOperation, batch: CommitBatch): unknown {
  try {
    return decide(batch);
  } catch (cause) {
    return new Refusal(cause);
  }
}

/**
 * The library reuses its buffers and hands out its map: what leaves here is copied from this view.
 * On a reused buffer `length` is the value's length and hides the buffer's own, which is larger. A
 * part of a `Buffer` costs 1 µs.
 */
function plain(bytes: Uint8Array): Uint8Array<ArrayBuffer> {
  return new Uint8Array(bytes.buffer as ArrayBuffer, bytes.byteOffset, bytes.length);
}

/**
 * The library promises the reason of a failed commit separately, and has rejected with it by now.
 */
function reasonOf(error: unknown): unknown {
  const promised = (error as { readonly commitError?: Promise<unknown> }).commitError;
  if (promised === undefined) return error;
  // An unheard rejection would be logged as a bug.
  promised.catch(() => undefined);
  return Bun.peek.status(promised) === "rejected" ? Bun.peek(promised) : error;
}
