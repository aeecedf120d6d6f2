/**
 * Group commits: one is under way, and the next gathers. Operations queue; when a commit begins, it decides all
 * that has gathered in order, and writes the outcome in one synced transaction. A promise settles after it.
 * Nothing is read inside the transaction, so that the library's thread writes without waiting for this one.
 * Reads wait while a commit is under way, so that what they answer is on disk.
 * Bounds: 4,096 queued operations or 64 MiB of them, and as many waiting reads; beyond, `unavailable`.
 */
import { StoreError } from "../../storage/contract.ts";
import type { DatabaseName } from "./data-file.ts";

const queueLengthMax = 4_096;
const queueBytesMax = 64 * 1024 * 1024;
const batchLengthMax = 2_048;
const batchBytesMax = 8 * 1024 * 1024;
/** What a commit of stores writes besides: pages of trees, and for each store a part of a page of the index. */
const commitBytes = 256 * 1024;
const bytesPerStore = 1_024;
/** If a turn of the event loop adds at least 16 operations, one more is waited for, until the commit has 24. */
const busyTurnMin = 16;
const busyBatchLength = 24;

/** What kind of write asks: how much of the reserve it may use. */
export type WriteKind = "store" | "record" | "removal";
export type WriteSize = { readonly kind: WriteKind; readonly bytes: number };
export type Write = { readonly database: DatabaseName; readonly key: Buffer; readonly value: Uint8Array | null };

/** Keys from `start` up to but without `end`, at most `limit`. */
export type KeyRange = { readonly start: Buffer; readonly end?: Buffer; readonly limit: number };

/** What one commit writes. */
export class Batch {
  readonly writes: Write[] = [];

  put(database: DatabaseName, key: Buffer, value: Uint8Array): void {
    this.writes.push({ database, key, value });
  }

  remove(database: DatabaseName, key: Buffer): void {
    this.writes.push({ database, key, value: null });
  }
}

/** Begins with each commit, before its operations, and writes with it what they have decided together. */
export type Participant = { readonly begin: () => void; readonly finish: (batch: Batch) => void };

export type CommitHost = {
  /** Throws when there is no room for a write. */
  readonly checkRoom: (kind: WriteKind, bytes: number) => void;
  /** Throws when nothing new may begin. */
  readonly checkOpen: () => void;
  /** Throws when the store has failed. */
  readonly checkFailure: () => void;
  /** Resolves when all is on disk. */
  readonly write: (writes: readonly Write[]) => Promise<void>;
  readonly fail: (reason: string, cause: unknown) => StoreError;
};

/** An operation: it decides when its commit begins, and its caller is answered once the commit is on disk. */
type Queued = {
  readonly size: WriteSize;
  /** Returns what answers the caller. */
  readonly decide: (batch: Batch) => () => void;
  readonly refuse: (cause: unknown) => void;
};

export class GroupCommits {
  private queue: Queued[] = [];
  private queueBytes = 0;
  private running: Promise<void> | null = null;
  private isCommitting = false;
  private readers: (() => void)[] = [];
  readonly participants: Participant[] = [];

  constructor(private readonly host: CommitHost) {}

  /** Whether nothing is queued or under way. */
  get isIdle(): boolean {
    return this.running === null && this.queue.length === 0;
  }

  /** `decide` runs when the commit begins. When it throws, it must do so before its first write. */
  join<T>(size: WriteSize, decide: (batch: Batch) => T): Promise<T> {
    try {
      this.host.checkOpen();
      if (this.queue.length >= queueLengthMax || this.queueBytes + size.bytes > queueBytesMax) {
        throw new StoreError("unavailable", "too many writes are waiting");
      }
    } catch (error) {
      return Promise.reject(error);
    }
    const { promise, resolve, reject } = Promise.withResolvers<T>();
    const decided = (batch: Batch): (() => void) => {
      try {
        const answer = decide(batch);
        return () => resolve(answer);
      } catch (cause) {
        return () => reject(cause);
      }
    };
    this.queue.push({ size, decide: decided, refuse: reject });
    this.queueBytes += size.bytes;
    this.running ??= this.run();
    return promise;
  }

  /** Runs a read on what is committed: at once, or after the commit that is under way and before the next one. */
  async read<T>(read: () => T): Promise<T> {
    this.host.checkOpen();
    if (this.isCommitting) {
      if (this.readers.length >= queueLengthMax) throw new StoreError("unavailable", "too many reads are waiting");
      await new Promise<void>((run) => void this.readers.push(run));
      this.host.checkFailure();
    }
    return read();
  }

  private async run(): Promise<void> {
    while (this.queue.length > 0) {
      await this.gather();
      await this.commitNext();
    }
    this.running = null;
  }

  /** Until the end of this turn of the event loop; longer only while turns bring so many that fewer commits save time. */
  private async gather(): Promise<void> {
    for (let before = -busyTurnMin; this.queue.length - before >= busyTurnMin && before < busyBatchLength; ) {
      before = this.queue.length;
      await new Promise<void>((next) => void setImmediate(next));
    }
  }

  private nextOperations(): Queued[] {
    let [length, bytes] = [0, 0];
    while (length < this.queue.length && length < batchLengthMax && (length === 0 || bytes < batchBytesMax)) {
      bytes += this.queue[length++]!.size.bytes;
    }
    this.queueBytes -= bytes;
    return this.queue.splice(0, length);
  }

  private async commitNext(): Promise<void> {
    const operations = this.nextOperations();
    this.isCommitting = true;
    const refuseAll = (error: unknown) =>
      operations.map(
        ({ refuse }) =>
          () =>
            refuse(error),
      );
    const answers = await this.commit(operations).catch(refuseAll);
    this.isCommitting = false;
    for (const answer of answers) answer();
    for (const run of this.readers.splice(0)) run();
  }

  private async commit(operations: readonly Queued[]): Promise<(() => void)[]> {
    this.host.checkFailure();
    const refusals = this.refusals(operations);
    const batch = new Batch();
    try {
      for (const { begin } of this.participants) begin();
      const answers = operations.map(({ size, decide, refuse }) => {
        const refusal = refusals.get(size.kind);
        return refusal === undefined ? decide(batch) : () => refuse(refusal);
      });
      for (const { finish } of this.participants) finish(batch);
      if (batch.writes.length > 0) await this.host.write(batch.writes);
      return answers;
    } catch (error) {
      // The decision is in memory and may not be on the disk: nothing can be answered from it any more.
      throw this.host.fail("a commit failed", error);
    }
  }

  /** Why there is no room for the operations of a kind. */
  private refusals(operations: readonly Queued[]): Map<WriteKind, unknown> {
    const sizes = new Map<WriteKind, number>();
    for (const { size } of operations) {
      const [perCommit, each] = size.kind === "store" ? [commitBytes, bytesPerStore] : [0, 0];
      sizes.set(size.kind, (sizes.get(size.kind) ?? perCommit) + each + size.bytes);
    }
    const refusals = new Map<WriteKind, unknown>();
    for (const [kind, bytes] of sizes) {
      try {
        this.host.checkRoom(kind, bytes);
      } catch (error) {
        refusals.set(kind, error);
      }
    }
    return refusals;
  }
}
