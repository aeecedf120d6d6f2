/**
 * The mailbox on disk. Its index is the index in memory; the disk holds bodies in blocks and, to get the
 * index back, a journal and pages. A group commit decides the operations that have gathered in order, and
 * writes all of it as a few sequential records: the journal's comes last, and without it nothing counts.
 */
import { isFault } from "../../core/fault.ts";
import {
  type HeldMessage,
  type Mailbox,
  type MailboxEntry,
  type MailboxQuota,
  type RemovedMessage,
  type StoreEnvironment,
  StoreError,
  type StoreOutcome,
} from "../../storage/contract.ts";
import { checkEntry } from "../../storage/mailbox-rules.ts";
import { Bodies, type Moving } from "./bodies.ts";
import type { Claims } from "./claims.ts";
import type { Batch } from "./commits.ts";
import type { Environment } from "./environment.ts";
import { Journal, type JournalLimits, JournalWriter } from "./journal.ts";
import { MailboxIndex } from "./mailbox-index.ts";
import { bodyBytes, Writer } from "./records.ts";
import { behaviors, none } from "./rows.ts";

/** Freeing blocks touches scattered pages, so it waits until many are empty, or for a second. */
const emptyBlocksMin = 512;
/**
 * Moving a message out of a mostly dead block costs as much as storing it, and most of such a block's messages are
 * acknowledged soon: so 32 MiB of these blocks and a quarter of the store may wait, except for a mebibyte per second.
 */
const sparseBlocksMin = 4_096;
const choreDelayMs = 1_000;

/** What the operations of one commit add up to. */
type CommitAtHand = Moving & { readonly batch: Batch };

type MailboxSettings = {
  readonly rowsMax: number;
  readonly claims: Claims;
  readonly journal?: JournalLimits;
  readonly sparseBlocksMin?: number;
};

export class DiskMailbox implements Mailbox {
  private readonly index: MailboxIndex;
  private readonly bodies: Bodies;
  private readonly journal: Journal;
  /** One commit is decided and written at a time, so all share its memory. */
  private readonly journalWriter = new Writer(16 * 1024);
  private atHand: CommitAtHand | null = null;
  private choreTimer: ReturnType<typeof setTimeout> | null = null;
  private areChoresJoined = false;
  private isClosed = false;

  constructor(
    private readonly environment: Environment,
    private readonly settings: MailboxSettings,
    log: StoreEnvironment["log"],
  ) {
    const events = {
      onDrop: (slot: number) => this.dropped(slot),
      onText: (number: number, text: string | null) => this.textChanged(number, text),
    };
    this.index = new MailboxIndex(events, settings.rowsMax);
    this.journal = new Journal(this.index, settings.journal);
    this.bodies = new Bodies(environment, this.index.rows, log);
    this.index.finishLoading(this.journal.load(environment));
    this.bodies.load();
    this.planChores();
  }

  // ---------------------------------------------------------------------------------------------- writing

  store(entry: MailboxEntry, quota: MailboxQuota): Promise<StoreOutcome> {
    const preview = (entry.onExpiry === "KeepHeaderPreview" ? entry.headerPreview : null) ?? noBytes;
    const bytes = bodyBytes(preview.length, entry.envelope.length);
    return this.environment.join({ kind: "store", bytes }, (batch) => {
      checkEntry(entry);
      if (batch.full !== null) throw batch.full;
      if (this.index.rows.rows >= this.settings.rowsMax) {
        throw new StoreError("full", `the store knows ${this.settings.rowsMax} message ids`);
      }
      const { packer, journal, touch } = this.commitOf(batch);
      const outcome = this.index.admit(entry, quota);
      if (outcome.kind !== "stored") return outcome;
      const { slot } = outcome;
      this.bodies.add(packer, slot, preview, entry.envelope);
      journal.row(slot);
      touch(slot);
      return stored;
    });
  }

  remove(...removing: Parameters<Mailbox["remove"]>): ReturnType<Mailbox["remove"]> {
    return this.environment.join(removal, (batch) => this.removeIn(batch, ...removing));
  }

  async claimAndRemove(
    ...[claim, mailbox, messageIds, nowMs]: Parameters<Mailbox["claimAndRemove"]>
  ): ReturnType<Mailbox["claimAndRemove"]> {
    return this.settings.claims.winWithin(claim, nowMs, (write) =>
      this.environment.join(removal, (batch) => {
        write(batch);
        return this.removeIn(batch, mailbox, messageIds, nowMs);
      }),
    );
  }

  private removeIn(batch: Batch, ...[mailbox, messageIds, nowMs]: Parameters<Mailbox["remove"]>): RemovedMessage[] {
    const { packer, journal, touch } = this.commitOf(batch);
    const slots = this.index.remove(mailbox, messageIds, nowMs);
    for (const slot of slots) {
      this.bodies.release(packer, slot, this.bodies.wholeBytes(slot));
      journal.change("acked", slot);
      touch(slot);
    }
    const removed = slots.map((slot) => ({
      messageId: this.index.id(slot),
      labels: this.index.recipients.labels(slot),
    }));
    return removed.sort((a, b) => (a.messageId < b.messageId ? -1 : 1));
  }

  expire(nowMs: number, limit: number): Promise<number> {
    return this.environment.join(removal, (batch) => {
      const { packer, journal, touch } = this.commitOf(batch);
      const swept = this.index.sweep(nowMs, limit);
      for (const { slot, action } of swept) {
        if (action === "drop") continue;
        this.bodies.release(packer, slot, this.bodies.wholeBytes(slot) - this.bodies.liveBytes(slot));
        journal.change("cut", slot);
        touch(slot);
      }
      return swept.length;
    });
  }

  /** The index lets a row go, while a commit is being decided. */
  private dropped(slot: number): void {
    const { journal, packer, touch } = this.atHand!;
    this.bodies.release(packer, slot, this.bodies.liveBytes(slot));
    journal.change("dropped", slot);
    touch(slot);
  }

  private textChanged(number: number, text: string | null): void {
    if (text !== null) this.atHand!.journal.text(number, text);
    this.journal.touch(number, true);
  }

  /** What the operations of a commit share; the first of them begins it. */
  private commitOf(batch: Batch): CommitAtHand {
    if (this.atHand?.batch === batch) return this.atHand;
    const touch = (slot: number) => this.journal.touch(slot);
    const journal = new JournalWriter(this.index.rows, this.journalWriter);
    const made = { batch, packer: this.bodies.packer(), journal, touch };
    this.atHand = made;
    batch.whenDecided(() => this.finish(made));
    return made;
  }

  private finish(commit: CommitAtHand): void {
    if (this.bodies.blocks.empty.size >= emptyBlocksMin) this.bodies.freeBlocks(commit.batch);
    if (this.isWasteful) this.bodies.emptyBlocks(commit);
    this.bodies.finish(commit.packer, commit.batch);
    this.journal.write(commit.batch, commit.journal);
    this.planChores();
  }

  // ---------------------------------------------------------------------------------------------- chores

  private get isWasteful(): boolean {
    return this.bodies.blocks.isWasteful(this.settings.sparseBlocksMin ?? sparseBlocksMin);
  }

  /** Work that nobody waits for goes with the next commit when there is much of it, and otherwise within a second. */
  private planChores(): void {
    const { empty, sparse } = this.bodies.blocks;
    if (empty.size >= emptyBlocksMin || this.isWasteful) this.beginChores(() => {});
    else if (empty.size > 0 || sparse.size > 0) this.planChoresLater();
  }

  private planChoresLater(): void {
    if (this.isClosed || this.choreTimer !== null) return;
    this.choreTimer = setTimeout(() => {
      this.choreTimer = null;
      this.beginChores((commit) => {
        this.bodies.freeBlocks(commit.batch);
        this.bodies.emptyBlocks(commit);
      });
    }, choreDelayMs);
    this.choreTimer.unref();
  }

  /** Begins a commit, which does what there is much of, and \`more\`. */
  private beginChores(more: (commit: CommitAtHand) => void): void {
    if (this.isClosed || this.areChoresJoined) return;
    this.areChoresJoined = true;
    const done = this.environment.join(removal, (batch) => {
      this.areChoresJoined = false;
      more(this.commitOf(batch));
    });
    done.catch(() => {
      // Refused for the moment, as on a full disk: they are planned again.
      this.areChoresJoined = false;
      this.planChoresLater();
    });
  }

  // --------------------------------------------------------------------------------------------- reading

  /** A damaged message is left out. */
  private messages(slots: readonly number[]): HeldMessage[] {
    const { index } = this;
    const found: HeldMessage[] = [];
    for (const [i, envelope] of this.bodies.read(slots, "envelope").entries()) {
      if (envelope === null) continue;
      const slot = slots[i]!;
      const expiresAtMs = index.rows.expiresAtMs[slot]!;
      found.push({ messageId: index.id(slot), chunk: index.recipients.chunk(slot), expiresAtMs, envelope });
    }
    return found;
  }

  list(...[mailbox, page]: Parameters<Mailbox["list"]>): ReturnType<Mailbox["list"]> {
    return this.environment.whenCommitted(() => {
      const found = this.index.page(mailbox, page, page.bytesMax);
      return isFault(found) ? found : { entries: this.messages(found.slots), next: found.next };
    });
  }

  summary(...[mailbox, page]: Parameters<Mailbox["summary"]>): ReturnType<Mailbox["summary"]> {
    return this.environment.whenCommitted(() => {
      const { index } = this;
      const { expiresAtMs, envelopeBytes } = index.rows;
      const found = index.page(mailbox, page, null);
      if (isFault(found)) return found;
      const entries = found.slots.map((slot) => ({
        messageId: index.id(slot),
        chunk: index.recipients.chunk(slot),
        expiresAtMs: expiresAtMs[slot]!,
        envelopeBytes: envelopeBytes[slot]!,
        cursor: index.cursor(slot),
      }));
      return { entries, next: found.next };
    });
  }

  read(...[mailbox, messageIds, nowMs]: Parameters<Mailbox["read"]>): ReturnType<Mailbox["read"]> {
    return this.environment.whenCommitted(() => this.messages(this.index.activeOf(mailbox, messageIds, nowMs)));
  }

  group(...[mailbox, groupId, page]: Parameters<Mailbox["group"]>): ReturnType<Mailbox["group"]> {
    return this.environment.whenCommitted(() => {
      const found = this.index.groupPage(mailbox, groupId, page);
      if (isFault(found)) return found;
      const { total, complete, next } = found;
      return { entries: this.messages(found.slots), next, total, complete };
    });
  }

  message(...[mailbox, messageId, nowMs]: Parameters<Mailbox["message"]>): ReturnType<Mailbox["message"]> {
    return this.environment.whenCommitted(() => {
      const { state, slot } = this.index.state(mailbox, messageId, nowMs);
      if (state === "absent") return { state };
      if (state === "acked") return { state };
      if (state === "active") {
        const [message] = this.messages([slot]);
        if (message === undefined) throw new StoreError("corrupt", "the stored message is damaged");
        return { state, message };
      }
      return { state, expiresAtMs: this.index.rows.expiresAtMs[slot]!, headerPreview: this.preview(slot) };
    });
  }

  private preview(slot: number): Uint8Array | null {
    const { previewBytes, behavior } = this.index.rows;
    const bytes = previewBytes[slot]!;
    if (bytes === none || behaviors[behavior[slot]!] !== "KeepHeaderPreview") return null;
    return bytes === 0 ? noBytes : this.bodies.read([slot], "preview")[0]!;
  }

  stats(nowMs: number): ReturnType<Mailbox["stats"]> {
    return this.environment.whenCommitted(() => this.index.stats(nowMs));
  }

  /** Begins no more work of its own. */
  close(): void {
    this.isClosed = true;
    if (this.choreTimer !== null) clearTimeout(this.choreTimer);
  }
}

const stored: StoreOutcome = { kind: "stored" };
const removal = { kind: "removal", bytes: 0 } as const;
const noBytes = new Uint8Array(0);
