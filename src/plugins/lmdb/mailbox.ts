/**
 * The mailbox on disk. Its index is the book in memory; the disk holds bodies in blocks and, to get the
 * book back, a journal and pages. Callers queue; one commit at a time takes what has gathered, decides
 * it in order, and writes all of it as a few sequential records. A promise settles after that commit.
 * Reads wait while a commit is on its way, so that what they tell is on disk.
 * Bounds: 4,096 queued operations or 64 MiB of them, and as many waiting reads; beyond, `unavailable`.
 */
import { isFault } from "../../core/fault.ts";
import { type HeldMessage, type Mailbox, type MailboxEntry, StoreError } from "../../storage/contract.ts";
import { MailboxBook } from "../mailbox/book.ts";
import { held, kept, lapsed } from "../mailbox/columns.ts";
import {
  BlockBook,
  BlockPacker,
  blockKey,
  bodyBytes,
  type FoundBody,
  type Place,
  readBlockKey,
  readBody,
} from "./blocks.ts";
import type { Environment } from "./environment.ts";
import { JournalWriter, type Operation } from "./journal.ts";
import { type FoldLimits, IndexPages } from "./pages.ts";
import { orderedKey } from "./records.ts";

const queueLengthMax = 4_096;
const queueBytesMax = 64 * 1024 * 1024;
const batchLengthMax = 2_048;
const batchBytesMax = 8 * 1024 * 1024;
/** What a commit writes besides the bodies: tree pages, the journal, and index pages while it folds. */
const commitBytes = 64 * 1024;
const journalBytesPerOperation = 256;
const foldBytes = 1024 * 1024;
/** Freeing blocks touches scattered pages, so it waits until many are empty, or for a second. */
const emptyBlocksMin = 512;
const sparseBlocksMin = 64;
const choreDelayMs = 1_000;
const blocksFreedPerCommit = 2_048;
const bytesMovedPerCommit = 1024 * 1024;

type Queued = {
  readonly bytes: number;
  readonly decide: (commit: CommitAtHand) => void;
  readonly reject: (error: unknown) => void;
};

/** What the operations of one commit add up to. */
type CommitAtHand = {
  readonly journal: JournalWriter;
  readonly packer: BlockPacker;
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
  log: (level: "info" | "warn" | "error", message: string, fields?: Record<string, unknown>) => void,
): LmdbMailbox {
  return new DiskMailbox(environment, settings, log);
}

class DiskMailbox implements LmdbMailbox {
  private readonly book = new MailboxBook((slot) => this.dropped(slot));
  private readonly blocks = new BlockBook();
  private readonly pages: IndexPages;
  private blockOf = new Float64Array(1_024);
  private offsetOf = new Uint32Array(1_024);
  private nextBlock = 1;
  /** Blocks that hold a damaged body: they are left as they are. */
  private readonly damaged = new Set<number>();

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
    private readonly log: (level: "info" | "warn" | "error", message: string, fields?: Record<string, unknown>) => void,
  ) {
    this.pages = new IndexPages(this.book, (slot) => this.place(slot), settings.fold);
    this.load();
  }

  // ---------------------------------------------------------------------------------------------- opening

  private load(): void {
    let toldMs = 0;
    this.pages.load(this.environment, (operation) => {
      if (operation.kind === "told") toldMs = Math.max(toldMs, operation.ms);
      else this.replay(operation);
    });
    this.book.finishLoading(toldMs);
    const live = new Map<number, number>();
    for (let slot = 0; slot < this.book.slotCount; slot++) {
      const bytes = this.book.taken(slot) ? this.liveBytes(slot) : 0;
      if (bytes > 0) live.set(this.blockOf[slot]!, (live.get(this.blockOf[slot]!) ?? 0) + bytes);
    }
    const limit = 4_096;
    for (let start = orderedKey(0); ; ) {
      const keys = this.environment.keys("blocks", { start, limit });
      for (const key of keys) {
        const { number, size } = readBlockKey(key);
        this.blocks.add(number, size, live.get(number) ?? 0);
        live.delete(number);
        this.nextBlock = number + 1;
      }
      if (keys.length < limit) break;
      start = orderedKey(this.nextBlock);
    }
    for (const number of live.keys()) this.nextBlock = Math.max(this.nextBlock, number + 1);
    if (live.size > 0) this.log("error", "blocks of messages are missing", { blocks: live.size });
    this.planChores();
  }

  private replay(operation: Exclude<Operation, { kind: "told" }>): void {
    if (operation.kind === "stored") {
      this.book.load(operation.row);
      this.setPlace(operation.row.slot, operation.row);
    } else if (operation.kind === "moved") {
      this.setPlace(operation.slot, operation.place);
    } else {
      this.book.replay(operation.slot, operation.kind);
    }
  }

  private place(slot: number): Place {
    return { block: this.blockOf[slot]!, offset: this.offsetOf[slot]! };
  }

  private setPlace(slot: number, { block, offset }: Place): void {
    if (slot >= this.blockOf.length) {
      const slots = Math.max(slot + 1, this.blockOf.length * 2);
      const [blockOf, offsetOf] = [new Float64Array(slots), new Uint32Array(slots)];
      blockOf.set(this.blockOf);
      offsetOf.set(this.offsetOf);
      [this.blockOf, this.offsetOf] = [blockOf, offsetOf];
    }
    this.blockOf[slot] = block;
    this.offsetOf[slot] = offset;
  }

  /** Bytes of a row's body that are still needed. */
  private liveBytes(slot: number): number {
    const status = this.book.status(slot);
    const preview = this.book.previewBytes(slot) ?? 0;
    if (status === held || status === lapsed) return bodyBytes(preview, this.book.envelopeBytes(slot));
    return status === kept && preview > 0 ? bodyBytes(preview, 0) : 0;
  }

  // ---------------------------------------------------------------------------------------------- writing

  async store(entry: MailboxEntry, quota: Parameters<Mailbox["store"]>[1]) {
    const preview = entry.onExpiry === "KeepHeaderPreview" ? entry.headerPreview : null;
    const bytes = bodyBytes(preview?.length ?? 0, entry.envelope.length);
    this.checkQueue(bytes);
    this.environment.space.check("store", bytes);
    const { envelope, storedAtMs } = entry;
    const row = { ...entry, envelopeBytes: envelope.length, previewBytes: preview?.length ?? null };
    return this.enqueue<Awaited<ReturnType<Mailbox["store"]>>>(bytes, ({ packer, journal, full }) => {
      if (full !== null) throw full;
      if (this.book.rowCount >= this.settings.rowsMax) {
        throw new StoreError("full", `the store knows ${this.settings.rowsMax} message ids`);
      }
      const outcome = this.book.admit(row, storedAtMs, quota);
      if (outcome.kind !== "stored") return outcome;
      const { slot } = outcome;
      const { messageId, expiresAtMs } = entry;
      const place = packer.add({ slot, messageId, expiresAtMs, preview: preview ?? noBytes, envelope });
      this.setPlace(slot, place);
      journal.stored({ ...this.book.row(slot), ...place });
      this.pages.touch(slot);
      return { kind: "stored" as const };
    });
  }

  async remove(...[recipient, messageIds, nowMs]: Parameters<Mailbox["remove"]>) {
    this.checkQueue(0);
    return this.enqueue(0, ({ journal, packer }) => {
      const slots = this.book.remove(recipient, messageIds, nowMs);
      for (const slot of slots) {
        const { block } = this.place(slot);
        const bytes = bodyBytes(this.book.previewBytes(slot) ?? 0, this.book.envelopeBytes(slot));
        this.release(packer, block, bytes);
        journal.change("acked", slot);
        this.pages.touch(slot);
      }
      return slots.map((slot) => this.book.id(slot)).sort();
    });
  }

  async expire(nowMs: number, limit: number): Promise<number> {
    this.checkQueue(0);
    return this.enqueue(0, ({ journal, packer }) => {
      const swept = this.book.sweep(nowMs, limit);
      for (const { slot, action } of swept) {
        if (action === "drop") continue;
        const whole = bodyBytes(this.book.previewBytes(slot) ?? 0, this.book.envelopeBytes(slot));
        this.release(packer, this.blockOf[slot]!, whole - this.liveBytes(slot));
        journal.change("cut", slot);
        this.pages.touch(slot);
      }
      return swept.length;
    });
  }

  /** The book lets a row go, while a commit is being decided. */
  private dropped(slot: number): void {
    const { journal, packer } = this.atHand!;
    this.release(packer, this.blockOf[slot]!, this.liveBytes(slot));
    journal.change("dropped", slot);
    this.pages.touch(slot);
  }

  /** Blocks of the commit at hand are not in the block book yet. */
  private release(packer: BlockPacker, block: number, bytes: number): void {
    if (!packer.release(block, bytes)) this.blocks.release(block, bytes);
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
    const packer = new BlockPacker(this.nextBlock);
    const commit: CommitAtHand = { journal: new JournalWriter(), packer, full, settle: [] };
    this.atHand = commit;
    this.committing = true;
    try {
      for (const one of batch) this.decide(one, commit);
      const chores = this.choreWrites(commit);
      const writes = [...chores, ...this.indexWrites(commit)];
      if (writes.length > 0) {
        // The journal comes last: without its record, nothing of the commit counts.
        await this.environment.commit(null, (view) => {
          for (const write of writes) write(view);
        });
      }
    } catch (error) {
      // The book holds what the disk may not: nothing can be answered from it any more.
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
    packer.finish();
    this.nextBlock = packer.nextNumber;
    const blocks = packer.packed().map(({ number, bytes, live }) => {
      this.blocks.add(number, bytes.length, live);
      const key = blockKey(number, bytes.length);
      return (view: WriteView) => view.put("blocks", key, bytes);
    });
    const { operations } = journal;
    const record = operations === 0 ? null : { record: journal.finish(this.book.latestMs), operations };
    return [...blocks, ...this.pages.writes(record)];
  }

  // ---------------------------------------------------------------------------------------------- chores

  /** Work that nobody waits for begins when there is much of it, or after a second. */
  private planChores(): void {
    const { empty, sparse } = this.blocks;
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
    const { empty, sparse } = this.blocks;
    if (empty.size >= emptyBlocksMin || sparse.size >= sparseBlocksMin) this.choresDue = true;
    if (!this.choresDue) return [];
    const writes: ((view: WriteView) => void)[] = [];
    for (const block of [...empty].slice(0, blocksFreedPerCommit)) {
      const key = this.blocks.key(block);
      this.blocks.forget(block);
      this.damaged.delete(block);
      if (key !== null) writes.push((view) => view.remove("blocks", key));
    }
    let moved = 0;
    for (const block of sparse) {
      if (moved >= bytesMovedPerCommit) break;
      sparse.delete(block);
      if (!this.damaged.has(block)) moved += this.moveOut(block, commit);
    }
    this.choresDue = empty.size > 0 || sparse.size > 0 || this.pages.due;
    return writes;
  }

  /** Copies what is needed of a block to the end, and answers how many bytes that were. */
  private moveOut(block: number, { packer, journal }: CommitAtHand): number {
    const key = this.blocks.key(block);
    const bytes = key === null ? null : this.environment.get("blocks", key);
    if (bytes === null) return 0;
    let moved = 0;
    for (const body of bodiesOf(bytes)) {
      if (body === null || !body.intact) {
        this.damaged.add(block);
        this.log("error", "a block holds a damaged message", { block });
        break;
      }
      const live = this.livesAt(body, block) ? this.liveBytes(body.slot) : 0;
      if (live === 0) continue;
      const envelope = this.book.status(body.slot) === kept ? noBytes : body.envelope;
      const place = packer.add({ ...body, envelope });
      this.setPlace(body.slot, place);
      journal.moved(body.slot, place);
      this.pages.touch(body.slot);
      this.blocks.release(block, live);
      moved += live;
    }
    return moved;
  }

  private livesAt(body: FoundBody, block: number): boolean {
    const { slot, offset } = body;
    return this.book.taken(slot) && this.blockOf[slot] === block && this.offsetOf[slot] === offset;
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

  /** The body of a row, or `null` when it is damaged: that is logged, and the other entries go on. */
  private body(slot: number, seen: Map<number, Uint8Array | null>): FoundBody | null {
    const { block, offset } = this.place(slot);
    let bytes = seen.get(block);
    if (bytes === undefined) {
      const key = this.blocks.key(block);
      bytes = key === null ? null : this.environment.get("blocks", key);
      seen.set(block, bytes);
    }
    const body = bytes === null ? null : bodyAt(bytes, offset);
    if (body?.intact && body.slot === slot && body.messageId === this.book.id(slot)) return body;
    this.log("error", "a stored message is damaged", { block, offset });
    return null;
  }

  private messages(slots: readonly number[]): HeldMessage[] {
    const seen = new Map<number, Uint8Array | null>();
    return slots.flatMap((slot) => {
      const body = this.body(slot, seen);
      return body === null ? [] : [this.shown(slot, body)];
    });
  }

  private shown(slot: number, { envelope }: FoundBody): HeldMessage {
    const { book } = this;
    return { messageId: book.id(slot), chunk: book.chunk(slot), expiresAtMs: book.expiresAtMs(slot), envelope };
  }

  list(...[recipient, page]: Parameters<Mailbox["list"]>): ReturnType<Mailbox["list"]> {
    return this.reading(() => {
      const found = this.book.page(recipient, page, page.bytesMax);
      return isFault(found) ? found : { entries: this.messages(found.slots), next: found.next };
    });
  }

  summary(...[recipient, page]: Parameters<Mailbox["summary"]>): ReturnType<Mailbox["summary"]> {
    return this.reading(() => {
      const { book } = this;
      const found = book.page(recipient, page, null);
      if (isFault(found)) return found;
      const entries = found.slots.map((slot) => ({
        ...{ messageId: book.id(slot), chunk: book.chunk(slot) },
        ...{ expiresAtMs: book.expiresAtMs(slot), cursor: book.cursor(slot) },
      }));
      return { entries, next: found.next };
    });
  }

  group(...[recipient, groupId, page]: Parameters<Mailbox["group"]>): ReturnType<Mailbox["group"]> {
    return this.reading(() => {
      const found = this.book.groupPage(recipient, groupId, page);
      if (isFault(found)) return found;
      const { total, complete, next } = found;
      return { entries: this.messages(found.slots), next, total, complete };
    });
  }

  message(...[recipient, messageId, nowMs]: Parameters<Mailbox["message"]>): ReturnType<Mailbox["message"]> {
    return this.reading(() => {
      const { state, slot } = this.book.state(recipient, messageId, nowMs);
      if (state === "acked" || state === "absent") return { state };
      const keepsPreview = this.book.keepsPreview(slot) && this.book.previewBytes(slot) !== null;
      const isEmpty = this.book.previewBytes(slot) === 0;
      const body = state === "active" || (keepsPreview && !isEmpty) ? this.body(slot, new Map()) : null;
      if (state === "active") {
        if (body === null) throw new StoreError("corrupt", "the stored message is damaged");
        return { state, message: this.shown(slot, body) };
      }
      const headerPreview = !keepsPreview ? null : isEmpty ? new Uint8Array(0) : (body?.preview ?? null);
      return { state, expiresAtMs: this.book.expiresAtMs(slot), headerPreview };
    });
  }

  stats(nowMs: number): ReturnType<Mailbox["stats"]> {
    return this.reading(() => this.book.stats(nowMs));
  }

  async close(): Promise<void> {
    this.closing = true;
    if (this.choreTimer !== null) clearTimeout(this.choreTimer);
    while (this.running !== null) await this.running.catch(() => {});
  }
}

type WriteView = Parameters<Parameters<Environment["commit"]>[1]>[0];

const noBytes = new Uint8Array(0);

function bodyAt(block: Uint8Array, offset: number): FoundBody | null {
  try {
    return readBody(block, offset);
  } catch {
    return null;
  }
}

/** The bodies of a block one after the other; `null` in the place of one that can't be read. */
function* bodiesOf(block: Uint8Array): Generator<FoundBody | null> {
  for (let offset = 0; offset < block.length; ) {
    const body = bodyAt(block, offset);
    yield body;
    if (body === null) return;
    offset += body.bytes.length;
  }
}
