/**
 * The index of a mailbox: what is held for whom, in what order, until when, and every
 * decision about it (duplicate, chunk conflict, quota, acknowledgement, expiry). It knows
 * no bytes and does no I/O: a driver asks it, one call after the other, and keeps the bytes
 * under the slot that it returns. Memory: about 130 bytes a row (an entry that is held,
 * remembered or kept), and what mailbox-recipients.ts needs for each recipient and group;
 * the driver bounds the rows.
 * Laws: `Mailbox` in storage/contract.ts, rules section 6.
 */
import TinyQueue from "tinyqueue";
import type { MailboxKey, Uuid } from "../core/codec/did.ts";
import { type Fault, isFault } from "../core/fault.ts";
import {
  type Cursor,
  type KnownMessage,
  type MailboxEntry,
  type MailboxStats,
  type PageRequest,
  StoreError,
  type StoreOutcome,
} from "./contract.ts";
import { RecipientIndex, TextTable } from "./mailbox-recipients.ts";
import {
  acked,
  behaviors,
  free,
  held,
  type IdWords,
  idText,
  idWords,
  isSameId,
  none,
  RowTable,
  released,
  retained,
  setWords,
  wordsOf,
} from "./mailbox-rows.ts";
import {
  authorIn,
  decideQuota,
  encodeCursor,
  nextArrival,
  PageFill,
  parseCursor,
  type QuotaSums,
  type StoreSums,
  storedAtOf,
} from "./mailbox-rules.ts";
import type { MailboxQuota } from "./quota.ts";

/** Expired rows that one commit removes: bounds the pause after an outage. */
const dueRowsPerCommit = 1_024;

type Refusal = Exclude<StoreOutcome, { kind: "stored" }>;
type Admission = Refusal | { readonly kind: "stored"; readonly slot: number };
type SlotPage = { readonly slots: number[]; readonly next: Cursor | null };
type SlotState = {
  readonly state: "active" | "acked" | "expired" | "absent";
  /** Meaningless when absent. */
  readonly slot: number;
};

/**
 * What becomes of a row: acknowledged, cut down to what its expiration behavior retains, or
 * dropped altogether.
 */
export type RowChange = "acked" | "cut" | "dropped";

type IndexDriver = {
  /** What the driver has room for. */
  readonly room: MailboxStats;
  /** Throws when it has none for one more entry. */
  readonly checkRoom: (entry: MailboxEntry) => void;
  /** A row changes; its arrays are still as before. */
  readonly onChange: (slot: number, change: RowChange) => void;
  /** A number names another text from now on, or none. */
  readonly onText: (number: number) => void;
  /** Rows that ended later may not be taken out yet. */
  readonly removableMs: () => number;
};

/** What the quota of one mailbox is held against. */
class HeldSums implements QuotaSums {
  constructor(
    private readonly recipients: RecipientIndex,
    private readonly recipient: number | undefined,
    readonly room: MailboxStats,
  ) {}

  mailbox(label: string | null): MailboxStats {
    return this.recipients.usage(this.recipient, label);
  }

  store(label: string | null): StoreSums {
    return this.recipients.inStore(label);
  }
}

export class MailboxIndex {
  readonly rows = new RowTable();
  readonly texts: TextTable;
  readonly recipients: RecipientIndex;
  /** All rows, those whose time comes first in front. */
  private ends = this.endsOf([]);
  /** Grows with each row, also after the row itself is gone. */
  lastArrival = 0;
  /** How many due rows the stores of this commit may still take out. */
  private dueLeft = 0;

  constructor(private readonly driver: IndexDriver) {
    this.texts = new TextTable(driver.onText);
    this.recipients = new RecipientIndex(this.rows, this.texts);
  }

  private endsOf(slots: number[]): TinyQueue<number> {
    return new TinyQueue(slots, (a, b) => this.rows.endMs(a) - this.rows.endMs(b));
  }

  /** Cost: a look at every row while some are due, because only a commit may expire them. */
  stats(nowMs: number): MailboxStats {
    const { rows } = this;
    let { entries, bytes } = this.recipients;
    if (!this.isDue(nowMs)) return { entries, bytes };
    for (let slot = 0; slot < rows.slots; slot++) {
      if (rows.status[slot] !== held || rows.expiresAtMs[slot]! > nowMs) continue;
      entries--;
      bytes -= rows.envelopeBytes[slot]!;
    }
    return { entries, bytes };
  }

  /** Cost: a look at the first row of each recipient, and at rows before it that are due. */
  oldest(nowMs: number): number | null {
    const { arrival, expiresAtMs, next } = this.rows;
    let [oldest, found] = [Number.POSITIVE_INFINITY, none];
    for (const first of this.recipients.firsts()) {
      let slot = first;
      while (slot !== none && expiresAtMs[slot]! <= nowMs) slot = next[slot]!;
      if (slot === none || arrival[slot]! >= oldest) continue;
      [oldest, found] = [arrival[slot]!, slot];
    }
    return found === none ? null : storedAtOf(oldest, expiresAtMs[found]!);
  }

  /** Whether the time of a row has come that is not taken out. */
  private isDue(nowMs: number): boolean {
    const next = this.ends.peek();
    return next !== undefined && this.rows.endMs(next) <= nowMs;
  }

  /** The driver begins a commit. */
  begin(): void {
    this.dueLeft = dueRowsPerCommit;
  }

  /**
   * Throws `unavailable` while expired rows that are not removed yet may be the only reason
   * to refuse.
   */
  admit(entry: MailboxEntry, quota: MailboxQuota): Admission {
    const { storedAtMs } = entry;
    if (this.isDue(storedAtMs)) {
      const dueMs = Math.min(storedAtMs, this.driver.removableMs());
      this.dueLeft -= this.expire(dueMs, this.dueLeft);
    }
    const words = idWords(entry.messageId);
    const recipient = this.recipients.find(entry.recipient);
    const before = recipient === undefined ? none : this.rows.find(recipient, words);
    const decided = this.decide(entry, quota, recipient, before);
    if ("kind" in decided) {
      const isCertain = decided.kind === "duplicate" && decided.expiresAtMs > storedAtMs;
      if (isCertain || !this.isDue(storedAtMs)) return decided;
      throw new StoreError("unavailable", "expired messages are being removed: try again later");
    }
    this.driver.checkRoom(entry);
    // The number of the recipient may be another one after its last row went.
    const known = before === none ? recipient : undefined;
    // Its slot is free when its time comes: it still lies in the heap.
    if (before !== none) this.drop(before);
    this.lastArrival = nextArrival(this.lastArrival, storedAtMs);
    return { kind: "stored", slot: this.enter(entry, decided, words, known) };
  }

  /**
   * The labels with which the entry can be stored, or why it can't be now. An expired row
   * with the same id (`before`) does not block the store.
   */
  private decide(
    entry: MailboxEntry,
    quota: MailboxQuota,
    recipient: number | undefined,
    before: number,
  ): readonly string[] | Refusal {
    const status = before === none ? null : this.rows.status[before];
    if (status === held || status === acked)
      return { kind: "duplicate", ...this.knownAt(before, entry) };
    if (
      recipient !== undefined &&
      entry.chunk !== null &&
      this.recipients.conflicts(recipient, entry.chunk)
    ) {
      return { kind: "chunk_conflict" };
    }
    const sums = new HeldSums(this.recipients, recipient, this.driver.room);
    return decideQuota(entry, quota, sums);
  }

  private knownAt(slot: number, { digest }: Pick<MailboxEntry, "digest">): KnownMessage {
    return {
      expiresAtMs: this.rows.expiresAtMs[slot]!,
      isSame: isSameId(this.rows.words(slot, "digest"), wordsOf(digest)),
      author: authorIn(this.recipients.labels(slot)),
    };
  }

  known(
    mailbox: MailboxKey,
    named: Pick<MailboxEntry, "messageId" | "digest">,
    nowMs: number,
  ): KnownMessage | null {
    const { state, slot } = this.state(mailbox, named.messageId, nowMs);
    return state === "active" || state === "acked" ? this.knownAt(slot, named) : null;
  }

  /** `labels`: those of the entry and of its place. `known`: the number of the recipient. */
  private enter(
    entry: MailboxEntry,
    labels: readonly string[],
    words: IdWords,
    known: number | undefined,
  ): number {
    const { rows, texts } = this;
    const { chunk, headerPreview } = entry;
    const slot = rows.add(texts.add(entry.recipient, known), words);
    setWords(rows.digest, slot, wordsOf(entry.digest));
    rows.status[slot] = held;
    rows.arrival[slot] = this.lastArrival;
    rows.behavior[slot] = behaviors.indexOf(entry.onExpiry);
    rows.expiresAtMs[slot] = entry.expiresAtMs;
    rows.keptUntilMs[slot] = entry.keptUntilMs;
    rows.envelopeBytes[slot] = entry.envelope.length;
    const isPreviewKept = headerPreview !== null && entry.onExpiry === "KeepHeaderPreview";
    rows.previewBytes[slot] = isPreviewKept ? headerPreview.length : none;
    rows.labels[slot] = labels.length === 0 ? none : texts.add(labels.join(" "));
    rows.group[slot] = chunk === null ? none : texts.add(chunk.groupId);
    rows.sequence[slot] = chunk?.sequence ?? 0;
    rows.total[slot] = chunk?.total ?? 0;
    this.recipients.join(slot);
    this.recipients.count(slot, 1);
    this.ends.push(slot);
    return slot;
  }

  /**
   * After the rows and texts were loaded, as of an arrival: finds them, and puts what is
   * held in order of arrival.
   */
  finishLoading(arrivalMin: number): void {
    const { rows } = this;
    rows.finishLoading();
    this.recipients.finishLoading();
    this.lastArrival = arrivalMin;
    const used: number[] = [];
    for (let slot = 0; slot < rows.slots; slot++) {
      if (rows.status[slot] === free) continue;
      used.push(slot);
      if (rows.arrival[slot]! > this.lastArrival) this.lastArrival = rows.arrival[slot]!;
    }
    this.ends = this.endsOf(used);
  }

  /**
   * Takes out rows whose time has come, at most `limit`, the first ends first; returns how
   * many.
   */
  expire(nowMs: number, limit: number): number {
    const { rows, ends } = this;
    let taken = 0;
    for (let slot = ends.peek(); slot !== undefined && taken < limit; slot = ends.peek()) {
      if (rows.endMs(slot) > nowMs) break;
      ends.pop();
      if (rows.status[slot] === released) {
        rows.release(slot);
        continue;
      }
      taken++;
      this.end(slot, nowMs);
    }
    return taken;
  }

  /** The time of a row has come: it is cut down to what it retains, or dropped. */
  private end(slot: number, nowMs: number): void {
    const { rows } = this;
    const wasHeld = rows.status[slot] === held;
    if (wasHeld) this.recipients.count(slot, -1);
    if (!wasHeld || rows.behavior[slot] === 0 || rows.keptUntilMs[slot]! <= nowMs) {
      this.drop(slot);
      rows.release(slot);
      return;
    }
    this.driver.onChange(slot, "cut");
    rows.status[slot] = retained;
    this.ends.push(slot);
  }

  /** The id of a row is not known any more. */
  private drop(slot: number): void {
    this.driver.onChange(slot, "dropped");
    this.recipients.leave(slot);
    this.rows.forget(slot);
  }

  /** Acknowledges the active entries among the ids and returns their slots. */
  remove(mailbox: MailboxKey, ids: readonly Uuid[], nowMs: number): number[] {
    const recipient = this.recipients.find(mailbox);
    const slots: number[] = [];
    if (recipient === undefined) return slots;
    for (const id of ids) {
      const slot = this.rows.find(recipient, idWords(id));
      if (slot === none || !this.isActive(slot, nowMs)) continue;
      this.recipients.count(slot, -1);
      this.driver.onChange(slot, "acked");
      this.rows.status[slot] = acked;
      slots.push(slot);
    }
    return slots;
  }

  private isActive(slot: number, nowMs: number): boolean {
    return this.rows.status[slot] === held && this.rows.expiresAtMs[slot]! > nowMs;
  }

  /** The slots of the active entries among `ids`, in that order. */
  activeOf(mailbox: MailboxKey, ids: readonly Uuid[], nowMs: number): number[] {
    const slots = ids.map((id) => this.find(mailbox, id));
    return slots.filter((slot) => slot !== none && this.isActive(slot, nowMs));
  }

  /** The slots of the active chunks of a group, by sequence number. */
  chunksOf(mailbox: MailboxKey, groupId: Uuid, nowMs: number): number[] {
    const recipient = this.recipients.find(mailbox);
    const held =
      recipient === undefined ? undefined : this.recipients.group(recipient, groupId)?.values();
    const { sequence } = this.rows;
    const active = [...(held ?? [])].filter((slot) => this.isActive(slot, nowMs));
    return active.sort((a, b) => sequence[a]! - sequence[b]!);
  }

  /** Active entries in order of arrival. `bytesMax` of `null` does not count bytes. */
  page(mailbox: MailboxKey, page: PageRequest, bytesMax: number | null): SlotPage | Fault {
    const after = parseCursor(page.after);
    if (isFault(after)) return after;
    const recipient = this.recipients.find(mailbox);
    const slots: number[] = [];
    if (recipient === undefined) return { slots, next: null };
    const { arrival, expiresAtMs, envelopeBytes, next } = this.rows;
    const pages = new PageFill(page.entriesMax, bytesMax);
    for (let slot = this.recipients.first(recipient); slot !== none; slot = next[slot]!) {
      if (arrival[slot]! <= after || expiresAtMs[slot]! <= page.nowMs) continue;
      if (!pages.accepts(envelopeBytes[slot]!))
        return { slots, next: this.cursor(slots.at(-1), after) };
      slots.push(slot);
    }
    return { slots, next: null };
  }

  cursor(slot: number | undefined, otherwise = 0): Cursor {
    return encodeCursor(slot === undefined ? otherwise : this.rows.arrival[slot]!);
  }

  private find(mailbox: MailboxKey, id: Uuid): number {
    const recipient = this.recipients.find(mailbox);
    return recipient === undefined ? none : this.rows.find(recipient, idWords(id));
  }

  state(mailbox: MailboxKey, id: Uuid, nowMs: number): SlotState {
    const slot = this.find(mailbox, id);
    if (slot === none) return { state: "absent", slot };
    const { status: statuses, expiresAtMs, keptUntilMs, behavior } = this.rows;
    const status = statuses[slot]!;
    if (status !== retained && expiresAtMs[slot]! > nowMs)
      return { state: status === held ? "active" : "acked", slot };
    const remains = status !== acked && behavior[slot] !== 0 && keptUntilMs[slot]! > nowMs;
    return { state: remains ? "expired" : "absent", slot };
  }

  id(slot: number): Uuid {
    return idText(this.rows.words(slot));
  }
}
