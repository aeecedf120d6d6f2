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
  type TagClaim,
} from "../../storage/contract.ts";
import { checkEntry } from "../../storage/mailbox-rules.ts";
import { Bodies } from "./bodies.ts";
import type { Batch } from "./commits.ts";
import type { Environment } from "./environment.ts";
import { Journal, type JournalLimits } from "./journal.ts";
import { MailboxIndex } from "./mailbox-index.ts";
import { bodyBytes } from "./records.ts";
import { behaviors, none } from "./rows.ts";

/** Freeing blocks touches scattered pages, so it waits until many are empty, or for a second. */
const emptyBlocksMin = 512;
/**
 * Compaction waits: most messages in sparse blocks are acknowledged soon. It starts above 32 MiB and a quarter of the
 * store, with each commit; below that it moves at most 1 MiB/s.
 */
const sparseBlocksMin = 4_096;
const tidyMs = 1_000;

/** Claims in a commit that is joined, which `write`s the claim; `null` while an earlier one lasts. */
export type ClaimWithin = <T>(
  claim: TagClaim,
  nowMs: number,
  join: (write: (batch: Batch) => void) => Promise<T>,
) => Promise<T> | null;

type MailboxSettings = {
  readonly rowsMax: number;
  readonly claimWithin: ClaimWithin;
  readonly journal?: JournalLimits;
  readonly sparseBlocksMin?: number;
};

export class DiskMailbox implements Mailbox {
  private readonly index: MailboxIndex;
  private readonly bodies: Bodies;
  private readonly journal: Journal;
  /** The commit that is being decided. */
  private deciding: Batch | null = null;
  private readonly tidying: ReturnType<typeof setInterval>;
  private isTidying = false;

  constructor(
    private readonly environment: Environment,
    private readonly settings: MailboxSettings,
    log: StoreEnvironment["log"],
  ) {
    const events = {
      onDrop: (slot: number) => this.dropped(slot),
      onText: (number: number, text: string | null) =>
        text === null ? this.journal.textGone(number) : this.journal.text(number, text),
    };
    this.index = new MailboxIndex(events, settings.rowsMax);
    this.journal = new Journal(this.index, settings.journal);
    this.bodies = new Bodies(environment, this.index.rows, log);
    this.index.finishLoading(this.journal.load(environment));
    this.bodies.load();
    this.tidying = setInterval(() => void this.tidyBlocks(), tidyMs);
    this.tidying.unref();
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
      this.begin(batch);
      const outcome = this.index.admit(entry, quota);
      if (outcome.kind !== "stored") return outcome;
      const { slot } = outcome;
      this.bodies.add(slot, preview, entry.envelope);
      this.journal.row(slot);
      return stored;
    });
  }

  remove(...removing: Parameters<Mailbox["remove"]>): ReturnType<Mailbox["remove"]> {
    return this.environment.join(removal, (batch) => this.removeIn(batch, ...removing));
  }

  async claimAndRemove(
    ...[claim, mailbox, messageIds, nowMs]: Parameters<Mailbox["claimAndRemove"]>
  ): ReturnType<Mailbox["claimAndRemove"]> {
    return this.settings.claimWithin(claim, nowMs, (write) =>
      this.environment.join(removal, (batch) => {
        write(batch);
        return this.removeIn(batch, mailbox, messageIds, nowMs);
      }),
    );
  }

  private removeIn(batch: Batch, ...[mailbox, messageIds, nowMs]: Parameters<Mailbox["remove"]>): RemovedMessage[] {
    this.begin(batch);
    const slots = this.index.remove(mailbox, messageIds, nowMs);
    for (const slot of slots) {
      this.bodies.release(slot, this.bodies.wholeBytes(slot));
      this.journal.change("acked", slot);
    }
    const removed = slots.map((slot) => ({
      messageId: this.index.id(slot),
      labels: this.index.recipients.labels(slot),
    }));
    return removed.sort((a, b) => (a.messageId < b.messageId ? -1 : 1));
  }

  expire(nowMs: number, limit: number): Promise<number> {
    return this.environment.join(removal, (batch) => {
      this.begin(batch);
      const swept = this.index.sweep(nowMs, limit);
      for (const { slot, action } of swept) {
        if (action === "drop") continue;
        this.bodies.release(slot, this.bodies.wholeBytes(slot) - this.bodies.liveBytes(slot));
        this.journal.change("cut", slot);
      }
      return swept.length;
    });
  }

  /** The index lets a row go, while a commit is being decided. */
  private dropped(slot: number): void {
    this.bodies.release(slot, this.bodies.liveBytes(slot));
    this.journal.change("dropped", slot);
  }

  /** Each operation of a commit calls this before it decides. */
  private begin(batch: Batch): void {
    if (this.deciding === batch) return;
    this.deciding = batch;
    this.bodies.begin();
    this.journal.begin();
    batch.whenDecided(() => this.finish(batch));
  }

  private finish(batch: Batch): void {
    const { blocks } = this.bodies;
    if (blocks.empty.size >= emptyBlocksMin) this.bodies.freeBlocks(batch);
    if (blocks.isWasteful(this.settings.sparseBlocksMin ?? sparseBlocksMin)) this.bodies.emptyBlocks(this.journal);
    this.bodies.finish(batch);
    this.journal.finish(batch);
  }

  /** Frees and empties blocks when no commit does it because there are many. Refused on a full disk, until later. */
  private async tidyBlocks(): Promise<void> {
    const { empty, sparse } = this.bodies.blocks;
    if (this.isTidying || (empty.size === 0 && sparse.size === 0)) return;
    this.isTidying = true;
    const tidy = (batch: Batch) => {
      this.begin(batch);
      this.bodies.freeBlocks(batch);
      this.bodies.emptyBlocks(this.journal);
    };
    await this.environment.join(removal, tidy).catch(() => {});
    this.isTidying = false;
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

  close(): void {
    clearInterval(this.tidying);
  }
}

const stored: StoreOutcome = { kind: "stored" };
const removal = { kind: "removal", bytes: 0 } as const;
const noBytes = new Uint8Array(0);
