/**
 * The mailbox on disk. Its index is the index in memory; the disk holds bodies in blocks and, to get the
 * index back, a journal and pages. Callers queue; one commit at a time takes what has gathered, decides
 * it in order, and writes all of it as a few sequential records. A promise settles after that commit.
 * Reads wait while a commit is on its way, so that what they answer is on disk.
 * Bounds: 4,096 queued operations or 64 MiB of them, and as many waiting reads; beyond, `unavailable`.
 */

import { isFault } from "../../core/fault.ts";
import {
  type HeldMessage,
  type Mailbox,
  type MailboxEntry,
  type StoreEnvironment,
  StoreError,
} from "../../storage/contract.ts";
import { checkEntry } from "../../storage/mailbox-rules.ts";
import { BlockPacker, Bodies, bodyBytes, type FoundBody, type Moving } from "./bodies.ts";
import type { Environment } from "./environment.ts";
import { type FoldLimits, IndexPages, JournalWriter, type RowOperation } from "./journal.ts";
import { MailboxIndex } from "./mailbox-index.ts";
import { held, idWords } from "./rows.ts";

const queueLengthMax = 4_096;
const queueBytesMax = 64 * 1024 * 1024;
const batchLengthMax = 2_048;
const batchBytesMax = 8 * 1024 * 1024;
/** What a commit writes besides the bodies: tree pages, the journal, and index pages while it folds. */
const commitBytes = 64 * 1024;
const journalBytesPerOperation = 256;
const foldBytes = 512 * 1024;
/** Freeing blocks touches scattered pages, so it waits until many are empty, or for a second. */
const emptyBlocksMin = 512;
const sparseBlocksMin = 64;
const choreDelayMs = 1_000;

type Queued = {
  readonly bytes: number;
  readonly decide: (commit: CommitAtHand) => void;
  readonly reject: (error: unknown) => void;
};

/** What the operations of one commit add up to. */
type CommitAtHand = Moving & {
  /** Why stores can't be taken by this commit. */
  readonly full: StoreError | null;
  /** Settles the callers once the commit is on disk. */
  readonly settle: (() => void)[];
};

export type LmdbMailbox = Mailbox & {
  /** Finishes what is queued. Operations after it throw `closed`. */
  close(): Promise<void>;
};

export type MailboxSettings = { readonly rowsMax: number; readonly fold?: FoldLimits };

export function openLmdbMailbox(
  environment: Environment,
  settings: MailboxSettings,
  log: StoreEnvironment["log"],
): LmdbMailbox {
  return new DiskMailbox(environment, settings, log);
}

class DiskMailbox implements LmdbMailbox {
  private readonly index = new MailboxIndex((slot) => this.dropped(slot));
  private readonly bodies: Bodies;
  private readonly pages: IndexPages;

  private queue: Queued[] = [];
  private queueBytes = 0;
  private running: Promise<void> | null = null;
  private committing = false;
  private atHand: CommitAtHand | null = null;
  private readers: { readonly run: () => void; readonly reject: (error: unknown) => void }[] = [];
  private choreTimer: ReturnType<typeof setTimeout> | null = null;
  private choresDue = false;
  private closing = false;

  constructor(
    private readonly environment: Environment,
    private readonly settings: MailboxSettings,
    log: StoreEnvironment["log"],
  ) {
    this.bodies = new Bodies(environment, this.index, log);
    this.pages = new IndexPages(this.index, (slot) => this.bodies.place(slot), settings.fold);
    this.load();
  }

  // ---------------------------------------------------------------------------------------------- opening

  private load(): void {
    const latest = this.pages.load(this.environment, (operation) => this.replay(operation));
    this.index.finishLoading(latest);
    this.bodies.load();
    this.planChores();
  }

  private replay(operation: RowOperation): void {
    if (operation.kind === "stored") {
      this.index.load(operation.row);
      this.bodies.setPlace(operation.row.slot, operation.row);
    } else if (operation.kind === "moved") {
      this.bodies.setPlace(operation.slot, operation.place);
    } else {
      this.index.replay(operation.slot, operation.kind);
    }
  }

  // ---------------------------------------------------------------------------------------------- writing

  async store(entry: MailboxEntry, quota: Parameters<Mailbox["store"]>[1]) {
    checkEntry(entry);
    const preview = entry.onExpiry === "KeepHeaderPreview" ? entry.headerPreview : null;
    const bytes = bodyBytes(preview?.length ?? 0, entry.envelope.length);
    this.checkQueue(bytes);
    this.environment.space.check("store", bytes);
    const { envelope, storedAtMs } = entry;
    const row = { ...entry, envelopeBytes: envelope.length, previewBytes: preview?.length ?? null };
    return this.enqueue<Awaited<ReturnType<Mailbox["store"]>>>(bytes, ({ packer, journal, full }) => {
      if (full !== null) throw full;
      if (this.index.rowCount >= this.settings.rowsMax) {
        throw new StoreError("full", `the store knows ${this.settings.rowsMax} message ids`);
      }
      const outcome = this.index.admit(row, storedAtMs, quota);
      if (outcome.kind !== "stored") return outcome;
      const { slot } = outcome;
      const { messageId, expiresAtMs } = entry;
      const place = packer.add({ slot, messageId, expiresAtMs, preview: preview ?? noBytes, envelope });
      this.bodies.setPlace(slot, place);
      journal.stored({
        ...row,
        id: idWords(entry.messageId),
        slot,
        status: held,
        arrival: this.index.arrival(slot),
        ...place,
      });
      this.pages.touch(slot);
      return { kind: "stored" as const };
    });
  }

  async remove(...[recipient, messageIds, nowMs]: Parameters<Mailbox["remove"]>) {
    this.checkQueue(0);
    return this.enqueue(0, ({ journal, packer }) => {
      const slots = this.index.remove(recipient, messageIds, nowMs);
      for (const slot of slots) {
        const { block } = this.bodies.place(slot);
        const bytes = bodyBytes(this.index.previewBytes(slot) ?? 0, this.index.envelopeBytes(slot));
        this.bodies.release(packer, block, bytes);
        journal.change("acked", slot);
        this.pages.touch(slot);
      }
      const removed = slots.map((slot) => ({ messageId: this.index.id(slot), labels: this.index.labels(slot) }));
      return removed.sort((a, b) => (a.messageId < b.messageId ? -1 : 1));
    });
  }

  async expire(nowMs: number, limit: number): Promise<number> {
    this.checkQueue(0);
    return this.enqueue(0, ({ journal, packer }) => {
      const swept = this.index.sweep(nowMs, limit);
      for (const { slot, action } of swept) {
        if (action === "drop") continue;
        const whole = bodyBytes(this.index.previewBytes(slot) ?? 0, this.index.envelopeBytes(slot));
        this.bodies.release(packer, this.bodies.place(slot).block, whole - this.bodies.liveBytes(slot));
        journal.change("cut", slot);
        this.pages.touch(slot);
      }
      return swept.length;
    });
  }

  /** The index lets a row go, while a commit is being decided. */
  private dropped(slot: number): void {
    const { journal, packer } = this.atHand!;
    this.bodies.release(packer, this.bodies.place(slot).block, this.bodies.liveBytes(slot));
    journal.change("dropped", slot);
    this.pages.touch(slot);
  }

  private checkQueue(bytes: number): void {
    if (this.closing) throw new StoreError("closed", "the store is closed");
    this.environment.checkOpen();
    if (this.queue.length >= queueLengthMax || this.queueBytes + bytes > queueBytesMax) {
      throw new StoreError("unavailable", "too many writes are waiting");
    }
  }

  private enqueue<T>(bytes: number, decide: (commit: CommitAtHand) => T): Promise<T> {
    const { promise, resolve, reject } = Promise.withResolvers<T>();
    this.queue.push({
      bytes,
      reject,
      decide(commit) {
        const answer = decide(commit);
        commit.settle.push(() => resolve(answer));
      },
    });
    this.queueBytes += bytes;
    this.start();
    return promise;
  }

  // --------------------------------------------------------------------------------------------- commits

  private start(): void {
    this.running ??= this.run().finally(() => {
      this.running = null;
      if (this.queue.length > 0) this.start();
    });
  }

  private async run(): Promise<void> {
    // Lets the callers of this turn gather into one commit.
    await Promise.resolve();
    while (this.queue.length > 0 || (this.choresDue && !this.closing)) {
      try {
        await this.commitNext();
      } catch (error) {
        for (const { reject } of this.queue.splice(0)) reject(error);
        for (const { reject } of this.readers.splice(0)) reject(error);
        this.queueBytes = 0;
        this.choresDue = false;
      }
    }
    this.planChores();
  }

  private takeBatch(): Queued[] {
    let [length, bytes] = [0, 0];
    while (length < this.queue.length && length < batchLengthMax && (length === 0 || bytes < batchBytesMax)) {
      bytes += this.queue[length++]!.bytes;
    }
    this.queueBytes -= bytes;
    return this.queue.splice(0, length);
  }

  private async commitNext(): Promise<void> {
    const full = this.roomForNext();
    const batch = this.takeBatch();
    const packer = new BlockPacker(this.bodies.nextBlock);
    const touch = (slot: number) => this.pages.touch(slot);
    const commit: CommitAtHand = { journal: new JournalWriter(), packer, touch, full, settle: [] };
    this.atHand = commit;
    this.committing = true;
    try {
      for (const one of batch) this.decide(one, commit);
      const chores = this.choreWrites(commit);
      const writes = [...chores, ...this.indexWrites(commit)];
      if (writes.length > 0) {
        // The journal comes last: without its record, nothing of the commit counts.
        await this.environment.join(null, (view) => {
          for (const write of writes) write(view);
        });
      }
    } catch (error) {
      // The index holds what the disk may not: nothing can be answered from it any more.
      const failure = this.environment.fail("a commit of the mailbox failed", error);
      for (const { reject } of batch) reject(failure);
      throw failure;
    } finally {
      this.committing = false;
      this.atHand = null;
    }
    for (const settle of commit.settle) settle();
    for (const { run } of this.readers.splice(0)) run();
  }

  /** Why the next batch can't store, or `null`. Throws when there is not even room for removals. */
  private roomForNext(): StoreError | null {
    const { space } = this.environment;
    this.environment.checkOpen();
    try {
      if (this.queueBytes > 0) {
        const besides = commitBytes + this.queue.length * journalBytesPerOperation + (this.pages.due ? foldBytes : 0);
        space.check("store", Math.min(this.queueBytes, 2 * batchBytesMax) + besides);
        return null;
      }
    } catch (error) {
      space.check("removal", 0);
      return error as StoreError;
    }
    space.check("removal", 0);
    return null;
  }

  private decide(one: Queued, commit: CommitAtHand): void {
    try {
      one.decide(commit);
    } catch (error) {
      commit.settle.push(() => one.reject(error));
    }
  }

  private indexWrites({ journal, packer }: CommitAtHand) {
    const blocks = this.bodies.finish(packer);
    const { operations } = journal;
    const record = operations === 0 ? null : { record: journal.finish(this.index.latest), operations };
    return [...blocks, ...this.pages.writes(record)];
  }

  // ---------------------------------------------------------------------------------------------- chores

  /** Work that nobody waits for begins when there is much of it, or after a second. */
  private planChores(): void {
    const { empty, sparse } = this.bodies.blocks;
    if (this.pages.due || empty.size >= emptyBlocksMin || sparse.size >= sparseBlocksMin) this.choresDue = true;
    const isSome = this.choresDue || empty.size > 0 || sparse.size > 0;
    if (!isSome || this.closing || this.choreTimer !== null) return;
    this.choreTimer = setTimeout(() => {
      this.choreTimer = null;
      if (this.closing) return;
      this.choresDue = true;
      this.start();
    }, choreDelayMs);
    this.choreTimer.unref();
  }

  /** Frees empty blocks and empties sparse ones, a bounded share of it. */
  private choreWrites(commit: CommitAtHand): ((view: WriteView) => void)[] {
    const { empty, sparse } = this.bodies.blocks;
    if (empty.size >= emptyBlocksMin || sparse.size >= sparseBlocksMin) this.choresDue = true;
    if (!this.choresDue) return [];
    const writes = this.bodies.freeBlocks();
    this.bodies.emptyBlocks(commit);
    this.choresDue = empty.size > 0 || sparse.size > 0 || this.pages.due;
    return writes;
  }

  // --------------------------------------------------------------------------------------------- reading

  /** Runs a read on what is committed: at once, or after the commit that is on its way. */
  private reading<T>(read: () => T): Promise<T> {
    if (this.closing) return Promise.reject(new StoreError("closed", "the store is closed"));
    const { promise, resolve, reject } = Promise.withResolvers<T>();
    const run = () => {
      try {
        this.environment.checkOpen();
        resolve(read());
      } catch (error) {
        reject(error);
      }
    };
    if (!this.committing) run();
    else if (this.readers.length < queueLengthMax) this.readers.push({ run, reject });
    else reject(new StoreError("unavailable", "too many reads are waiting"));
    return promise;
  }

  private messages(slots: readonly number[]): HeldMessage[] {
    return slots.flatMap((slot) => {
      const body = this.bodies.body(slot);
      return body === null ? [] : [this.shown(slot, body)];
    });
  }

  private shown(slot: number, { envelope }: FoundBody): HeldMessage {
    const { index } = this;
    return { messageId: index.id(slot), chunk: index.chunk(slot), expiresAtMs: index.expiresAtMs(slot), envelope };
  }

  list(...[recipient, page]: Parameters<Mailbox["list"]>): ReturnType<Mailbox["list"]> {
    return this.reading(() => {
      const found = this.index.page(recipient, page, page.bytesMax);
      return isFault(found) ? found : { entries: this.messages(found.slots), next: found.next };
    });
  }

  summary(...[recipient, page]: Parameters<Mailbox["summary"]>): ReturnType<Mailbox["summary"]> {
    return this.reading(() => {
      const { index } = this;
      const found = index.page(recipient, page, null);
      if (isFault(found)) return found;
      const entries = found.slots.map((slot) => ({
        ...{ messageId: index.id(slot), chunk: index.chunk(slot) },
        ...{
          expiresAtMs: index.expiresAtMs(slot),
          envelopeBytes: index.envelopeBytes(slot),
          cursor: index.cursor(slot),
        },
      }));
      return { entries, next: found.next };
    });
  }

  read(...[recipient, messageIds, nowMs]: Parameters<Mailbox["read"]>): ReturnType<Mailbox["read"]> {
    return this.reading(() => this.messages(this.index.activeOf(recipient, messageIds, nowMs)));
  }

  group(...[recipient, groupId, page]: Parameters<Mailbox["group"]>): ReturnType<Mailbox["group"]> {
    return this.reading(() => {
      const found = this.index.groupPage(recipient, groupId, page);
      if (isFault(found)) return found;
      const { total, complete, next } = found;
      return { entries: this.messages(found.slots), next, total, complete };
    });
  }

  message(...[recipient, messageId, nowMs]: Parameters<Mailbox["message"]>): ReturnType<Mailbox["message"]> {
    return this.reading(() => {
      const { state, slot } = this.index.state(recipient, messageId, nowMs);
      if (state === "acked" || state === "absent") return { state };
      const keepsPreview = this.index.keepsPreview(slot) && this.index.previewBytes(slot) !== null;
      const isEmpty = this.index.previewBytes(slot) === 0;
      const body = state === "active" || (keepsPreview && !isEmpty) ? this.bodies.body(slot) : null;
      if (state === "active") {
        if (body === null) throw new StoreError("corrupt", "the stored message is damaged");
        return { state, message: this.shown(slot, body) };
      }
      const headerPreview = !keepsPreview ? null : isEmpty ? new Uint8Array(0) : (body?.preview ?? null);
      return { state, expiresAtMs: this.index.expiresAtMs(slot), headerPreview };
    });
  }

  stats(nowMs: number): ReturnType<Mailbox["stats"]> {
    return this.reading(() => this.index.stats(nowMs));
  }

  async close(): Promise<void> {
    this.closing = true;
    if (this.choreTimer !== null) clearTimeout(this.choreTimer);
    while (this.running !== null) await this.running.catch(() => {});
  }
}

type WriteView = Parameters<Parameters<Environment["commit"]>[1]>[0];

const noBytes = new Uint8Array(0);
