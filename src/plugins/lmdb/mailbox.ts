/**
 * The mailbox on disk is a log inside LMDB: a synced transaction costs as many scattered pages as
 * it touches, so a commit writes what it has side by side, and everything that is decided is
 * decided in memory.
 *
 * **Written.** `store` joins the next group commit (environment.ts), which decides its operations
 * one after the other: the index admits an entry (storage/mailbox-index.ts: duplicate, conflict,
 * quota) and gives it a slot, a row of typed arrays (storage/mailbox-rows.ts). Its bytes are packed
 * into the commit's blocks (bodies.ts). One transaction writes the blocks, the pages of the index
 * that have changed (pages.ts), what was acknowledged (acks.ts), and the number of records of every
 * table; callers are answered, and reads go on, when it is synced.
 * **Read.** The index finds the slots, a slot its block and offset; a body counts only if its
 * checksum and id match.
 * **Removed.** An acknowledged row stays until its expiry, so that the id stays known. Blocks that
 * no row needs any more are removed by a sweep, or once they are many.
 * **Expired.** Reads leave out rows whose time has come. A store first takes them out, a bounded
 * number in a commit, and so does `expire`: each is cut down to what it retains, or dropped.
 * **Found again.** A start reads all pages of the index, the acknowledgements since, then the keys
 * of the blocks.
 *
 * What must hold at every commit, and after a crash at any moment:
 * 1. The pages and the acknowledgements give the index as of the last commit: whatever changes a
 *    row or a text in memory happens in the commit that is being decided, and marks its page or is
 *    one of its acknowledgements.
 * 2. A row that needs bytes names a block that is on disk, or is written in the same transaction; a
 *    block is removed only when no row needs it.
 * 3. Memory runs ahead of the disk only while a commit is under way, and nothing is answered from
 *    it until then; a commit that fails ends the store.
 */
import type { MailboxKey, Uuid } from "../../core/codec/did.ts";
import {
  type Mailbox,
  type MailboxEntry,
  type RemovedMessage,
  type StoreEnvironment,
  StoreError,
  type StoreOutcome,
  type TagClaim,
} from "../../storage/contract.ts";
import { IndexedMailbox } from "../../storage/indexed-mailbox.ts";
import { MailboxIndex, type RowChange } from "../../storage/mailbox-index.ts";
import { checkEntry } from "../../storage/mailbox-rules.ts";
import type { MailboxQuota } from "../../storage/quota.ts";
import { Acks } from "./acks.ts";
import { Bodies } from "./bodies.ts";
import type { CommitBatch, Environment } from "./environment.ts";
import { IndexPages } from "./pages.ts";
import { bodyBytes } from "./records.ts";

type MailboxSettings = {
  readonly rowsMax: number;
  /** Claims in the commit that is being decided; `false` while an earlier claim lasts. */
  readonly claim: (claim: TagClaim, nowMs: number) => boolean;
  readonly removableMs: () => number;
};

export class DiskMailbox extends IndexedMailbox implements Mailbox {
  protected readonly index: MailboxIndex;
  private readonly bodies: Bodies;
  private readonly pages: IndexPages;
  private readonly acks: Acks;
  /** Whether the commit that is being decided frees blocks, however few. */
  private isFreeing = false;

  constructor(
    private readonly environment: Environment,
    private readonly settings: MailboxSettings,
    log: StoreEnvironment["log"],
  ) {
    super();
    this.index = new MailboxIndex({
      // Bodies lie in files, which are as large as the disk allows.
      room: { entries: settings.rowsMax, bytes: Number.POSITIVE_INFINITY },
      checkRoom: () => this.checkRows(),
      onChange: (slot, change) => this.changed(slot, change),
      onText: (number) => this.pages.textChanges(number),
      removableMs: settings.removableMs,
    });
    this.pages = new IndexPages(this.index);
    this.bodies = new Bodies(environment, this.index.rows, log);
    this.acks = new Acks(environment, this.index.rows);
    const lastArrival = this.pages.load(environment);
    this.acks.load();
    this.index.finishLoading(lastArrival);
    this.bodies.load();
    this.index.begin();
    environment.onCommit((batch) => this.finish(batch));
  }

  // --------------------------------------------------------------------------------------- writing

  store(entry: MailboxEntry, quota: MailboxQuota): Promise<StoreOutcome> {
    const preview =
      (entry.onExpiry === "KeepHeaderPreview" ? entry.headerPreview : null) ?? noBytes;
    const bytes = bodyBytes(preview.length, entry.envelope.length);
    const kind = bytes > largeBytes ? "large" : "store";
    return this.environment.join({ kind, bytes }, () => {
      checkEntry(entry, quota);
      const outcome = this.index.admit(entry, quota);
      if (outcome.kind !== "stored") return outcome;
      const { slot } = outcome;
      this.bodies.add(slot, preview, entry.envelope);
      this.pages.rowChanges(slot);
      return stored;
    });
  }

  private checkRows(): void {
    const { rowsMax } = this.settings;
    if (this.index.rows.rows >= rowsMax)
      throw new StoreError("full", `the store knows ${rowsMax} message ids`);
  }

  remove(
    mailbox: MailboxKey,
    messageIds: readonly Uuid[],
    nowMs: number,
  ): Promise<RemovedMessage[]> {
    return this.environment.join(acksOf(messageIds.length), () =>
      this.removed(this.index.remove(mailbox, messageIds, nowMs)),
    );
  }

  claimAndRemove(
    claim: TagClaim,
    mailbox: MailboxKey,
    messageIds: readonly Uuid[],
    nowMs: number,
  ): Promise<RemovedMessage[] | null> {
    return this.environment.join(acksOf(messageIds.length), () =>
      this.settings.claim(claim, nowMs)
        ? this.removed(this.index.remove(mailbox, messageIds, nowMs))
        : null,
    );
  }

  async expire(nowMs: number, limit: number): Promise<number> {
    const freed = await this.sweep(nowMs, limit).catch((error: unknown) => {
      const isTooMuch = error instanceof StoreError && error.code === "unavailable";
      if (!isTooMuch || limit <= rowsWhenTight) throw error;
      return this.sweep(nowMs, rowsWhenTight);
    });
    if (freed < limit && this.bodies.areManySparse) await this.pack();
    return freed;
  }

  private sweep(nowMs: number, limit: number): Promise<number> {
    return this.environment.join(sweepOf(limit), () => {
      this.isFreeing = true;
      return this.index.expire(nowMs, limit);
    });
  }

  /** Not on a full disk: what is packed is written before its blocks are free. */
  private async pack(): Promise<void> {
    try {
      await this.environment.join(packing, () =>
        this.bodies.pack((slot) => this.pages.rowChanges(slot)),
      );
    } catch (error) {
      if (!(error instanceof StoreError && error.code === "full")) throw error;
    }
  }

  /** The index changes a row, while a commit is being decided. */
  private changed(slot: number, change: RowChange): void {
    const { rows } = this.index;
    const keepsPreview = change === "cut" && rows.hasPreview(slot);
    if (keepsPreview) this.bodies.releaseEnvelope(slot);
    else if (rows.needsBody(slot)) this.bodies.release(slot);
    if (change === "acked") this.acks.add(slot);
    else this.pages.rowChanges(slot);
  }

  private finish(batch: CommitBatch): void {
    // A commit without an operation of the mailbox may have no room for removals.
    const haveChanged = this.pages.haveChanged || this.acks.haveChanged;
    if (this.isFreeing || (this.bodies.areManyUnneeded && haveChanged)) this.bodies.free(batch);
    this.bodies.finish(batch);
    if (this.isFreeing) this.acks.sweep(batch, this.pages);
    this.pages.finish(batch, (page) => this.acks.wrote(page));
    this.acks.finish(batch);
    this.isFreeing = false;
    this.index.begin();
  }

  // --------------------------------------------------------------------------------------- reading

  protected reading<T>(read: () => T): Promise<T> {
    return this.environment.whenCommitted(read);
  }

  protected bytesOf(slots: readonly number[], part: "envelope" | "preview"): (Uint8Array | null)[] {
    return this.bodies.read(slots, part);
  }
}

const stored: StoreOutcome = { kind: "stored" };
/** Sixteen pages side by side, which a file with free pages mostly has. */
const largeBytes = 64 * 1_024;
/** One record, and pages of trees. */
const acksOf = (rows: number) => ({ kind: "removal", bytes: 4_096 + 64 * rows }) as const;
/** Each row may be on another page of the index, with acknowledgements and blocks before it. */
const sweepOf = (rows: number) =>
  ({ kind: "sweep", bytes: Math.min(2_048 * rows, 4 * 1024 ** 2) + 160 * 1024 }) as const;
/** A sweep that finds room where hardly any is left. */
const rowsWhenTight = 32;
/** Each row that moves may be on another page of the index. */
const packing = { kind: "store", bytes: 2.5 * 1024 ** 2 } as const;
const noBytes = new Uint8Array(0);
