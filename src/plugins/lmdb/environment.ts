/**
 * One LMDB environment: opening it safely, and its only ways of writing. A commit resolves when its own
 * transaction is synced: `overlappingSync` is off, because with it a write can be answered that a power cut
 * takes back. While a commit takes longer than 5 s, new work is refused as `unavailable`. A commit that fails
 * or takes longer than 60 s ends the store: its outcome is not known, and the library may never answer again
 * or lie about a second sync. The program must stop at once.
 */
import type { Database as LockFile } from "bun:sqlite";
import { dirname, join } from "node:path";
import type { RootDatabase } from "lmdb";
import { minuteMs } from "../../core/codec/time.ts";
import { errorText } from "../../core/fault.ts";
import { type StoreEnvironment, StoreError } from "../../storage/contract.ts";
import { type Batch, GroupCommits, type KeyRange, nameOf, type View, type Write, type WriteSize } from "./commits.ts";
import { dataFile, giveToOwner, lockFolder, prepareDirectory, syncDirectory } from "./folder.ts";
import {
  countsKey,
  type DatabaseName,
  databaseNames,
  formatKey,
  formatStamp,
  hasFormat,
  openRoot,
  type Tables,
  tableBytes,
  tablesOf,
  unopened,
} from "./format.ts";
import {
  type Counts,
  checkedCounts,
  cutShort,
  lengthen,
  noCounts,
  readFileState,
  sealedCounts,
  verifyTables,
} from "./integrity.ts";
import { type Disk, openDisk, openSpaceGuard, type SpaceGuard, type SpaceLimits } from "./space.ts";

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
    for (const directory of [path, dirname(path)]) syncDirectory(directory);
    giveToOwner(path);
    const disk = options.disk ?? openDisk(join(path, dataFile));
    const environment = new Environment(options, { root, disk, lock, counts });
    try {
      if (counts === null) await environment.stamp();
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

type Root = RootDatabase<Buffer, Buffer>;

/** Opens a data file that can be trusted. Without counts it is new. */
async function openChecked(path: string): Promise<{ readonly root: Root; readonly counts: Counts | null }> {
  const file = join(path, dataFile);
  const state = readFileState(file);
  const shorten = state === null ? () => {} : lengthen(file, state);
  let root: Root | null = null;
  try {
    root = openRoot(path);
    const counts = hasFormat(root, path) ? checkedCounts(tablesOf(root)) : null;
    const isShort = state !== null && state.missingBytes > 0;
    if (isShort && counts !== null && !isWhole(root)) throw cutShort(file);
    return { root, counts };
  } catch (error) {
    await root?.close();
    shorten();
    if (error instanceof StoreError) throw error;
    throw state !== null && state.missingBytes > 0 ? cutShort(file) : unopened(path, error);
  }
}

function isWhole(root: Root): boolean {
  const tables = tablesOf(root);
  const transaction = root.useReadTransaction();
  try {
    return verifyTables(tables, transaction).problems.length === 0;
  } finally {
    transaction.done();
  }
}

type Commit = { turns: number; readonly reject: (error: StoreError) => void };

type Held = {
  readonly root: Root;
  readonly disk: Disk;
  readonly lock: LockFile;
  readonly counts: Counts | null;
};

export class Environment implements View {
  private readonly databases: Tables;
  private readonly space: SpaceGuard;
  private readonly pending = new Set<Commit>();
  private readonly watch: ReturnType<typeof setInterval>;
  private readonly readers: ReturnType<typeof setInterval>;
  private readonly group: GroupCommits;
  private failure: StoreError | null = null;
  private closed: Promise<void> | null = null;
  private readonly root: Root;
  /** How many records each table has once the commit at hand is on disk. */
  private readonly counts: Counts;

  constructor(
    private readonly options: EnvironmentOptions,
    private readonly held: Held,
  ) {
    const { root, disk, counts } = held;
    this.root = root;
    this.counts = counts ?? noCounts();
    this.databases = tablesOf(root);
    this.space = withLoggedRefusals(
      openSpaceGuard(disk, options.space, () => this.freePageBytes()),
      options.host.log,
    );
    this.watch = setInterval(() => this.countTurns(), (options.commitMsMax ?? commitMsMax) / watchTurnsMax);
    this.watch.unref();
    // A backup that was killed leaves its reader behind, and no page that it could see would be used again.
    this.readers = setInterval(() => root.readerCheck(), minuteMs);
    this.readers.unref();
    this.group = new GroupCommits({
      committed: this,
      checkRoom: (kind, bytes) => this.space.check(kind, bytes),
      checkOpen: () => this.checkWork(),
      checkFailure: () => this.checkFailure(),
      write: (writes) => this.watched(() => this.writeAll(writes)),
      fail: (reason, cause) => this.fail(reason, cause),
    });
  }

  /** Makes the environment a store of this format. */
  async stamp(): Promise<void> {
    const size = { kind: "record", bytes: formatStamp.length } as const;
    await this.join(size, (batch) => batch.put("meta", formatKey, formatStamp));
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

  /** Runs a read when no group commit is under way. */
  whenCommitted<T>(read: () => T): Promise<T> {
    return this.group.read(read);
  }

  private async watched<T>(work: () => Promise<T>): Promise<T> {
    const { promise: overdue, reject } = Promise.withResolvers<never>();
    overdue.catch(() => {});
    const commit: Commit = { turns: 0, reject };
    this.pending.add(commit);
    try {
      return await Promise.race([work(), overdue]);
    } finally {
      this.pending.delete(commit);
    }
  }

  /** One transaction that the library's thread runs alone: nothing of it waits for this thread. */
  private async writeAll(writes: readonly Write[]): Promise<void> {
    this.count(writes);
    try {
      await this.root.batch(() => {
        for (const { database, key, value } of writes) {
          if (value === null) this.databases[database].remove(key);
          else this.databases[database].put(key, value as Buffer);
        }
        this.databases.meta.put(countsKey, sealedCounts(this.counts) as Buffer);
      });
    } catch (error) {
      throw this.fail("a commit failed", reasonOf(error));
    }
  }

  /** Counts the records that come and go with the writes, which may touch one more than once. */
  private count(writes: readonly Write[]): void {
    const isThere = new Map<string, boolean>();
    for (const { database, key, value } of writes) {
      if (database === "meta") continue;
      const name = nameOf(database, key);
      const before = isThere.get(name) ?? this.databases[database].doesExist(key);
      this.counts[database] += Number(value !== null) - Number(before);
      isThere.set(name, value !== null);
    }
  }

  private countTurns(): void {
    for (const commit of this.pending) {
      commit.turns++;
      if (commit.turns === slowTurns) {
        this.options.host.log("warn", "the disk is slow: a commit takes long, and new work is refused until it ends");
      }
      if (commit.turns <= watchTurnsMax) continue;
      this.fail("a commit takes too long", null);
      return;
    }
  }

  /** Ends the store: nothing is answered any more, and `fatal` gets the reason. */
  fail(reason: string, cause: unknown): StoreError {
    if (this.failure !== null) return this.failure;
    const text = cause === null ? reason : `${reason}: ${errorText(cause)}`;
    this.failure = new StoreError("unavailable", text, { cause });
    clearInterval(this.watch);
    clearInterval(this.readers);
    for (const commit of this.pending) commit.reject(this.failure);
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
    for (const commit of this.pending) {
      if (commit.turns >= slowTurns) throw new StoreError("unavailable", "the disk is slow to answer: try again later");
    }
  }

  /** Pages of the file that no database uses. Cost: one look at the root page of each. */
  private freePageBytes(): number {
    let used = 0;
    for (const name of databaseNames) used += tableBytes(this.databases[name]);
    return Math.max(this.held.disk.fileBytes() - used, 0);
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
    clearInterval(this.watch);
    clearInterval(this.readers);
    while ((this.pending.size > 0 || !this.group.isIdle) && this.failure === null) await Bun.sleep(1);
    this.held.disk.close();
    if (this.failure !== null) return;
    await this.root.close();
    this.held.lock.close();
  }
}

/** The operator hears of a disk without room at once, and again each minute that writes are refused. */
function withLoggedRefusals(guard: SpaceGuard, log: StoreEnvironment["log"]): SpaceGuard {
  let loggedAtMs = Number.NEGATIVE_INFINITY;
  return {
    check(kind, bytes) {
      try {
        guard.check(kind, bytes);
      } catch (error) {
        if (performance.now() - loggedAtMs >= minuteMs) {
          loggedAtMs = performance.now();
          log("error", "the disk is full: writes are refused", { kind, bytes });
        }
        throw error;
      }
    },
  };
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
