/**
 * The index of a mailbox: what is held for whom, in what order, until when, and every decision about it
 * (duplicate, chunk conflict, quota, acknowledgement, expiry). It knows no bytes and does no I/O: a
 * driver asks it, one call after the other, and keeps the bytes under the slot that it answers.
 * Memory: about 110 bytes a row (an entry that is held, remembered or kept), 300 more for each recipient
 * with rows and for each chunk group; the driver bounds the rows.
 * Laws: `Mailbox` in storage/contract.ts, rules section 6.
 */

import type { MailboxKey, Uuid } from "../../core/codec/did.ts";
import { type Fault, isFault } from "../../core/fault.ts";
import type {
  Chunk,
  Cursor,
  MailboxEntry,
  MailboxQuota,
  MailboxStats,
  PageRequest,
  StoreOutcome,
} from "../../storage/contract.ts";
import {
  encodeCursor,
  exceedsShare,
  nextArrival,
  nothingHeld,
  PageFill,
  parseCursor,
} from "../../storage/mailbox-rules.ts";
import { RecipientIndex } from "./recipients.ts";
import {
  acked,
  behaviors,
  ExpiryHeap,
  free,
  held,
  type IdWords,
  idText,
  idWords,
  kept,
  lapsed,
  none,
  over,
  RowTable,
} from "./rows.ts";

/** Everything of an entry but its bytes. */
export type Row = Omit<MailboxEntry, "envelope" | "headerPreview" | "storedAtMs"> & {
  readonly envelopeBytes: number;
  /** `null` when there is no preview, which is not the same as an empty one. */
  readonly previewBytes: number | null;
};

/** A row as it is loaded: `held`, `acked` or `kept`, with the place it had. */
export type LoadedRow = Omit<Row, "messageId"> & {
  readonly id: IdWords;
  readonly slot: number;
  readonly arrival: number;
  readonly status: number;
};

type Placing = { readonly slot?: number; readonly arrival: number; readonly status: number };

export type Admission = Exclude<StoreOutcome, { kind: "stored" }> | { readonly kind: "stored"; readonly slot: number };

export type SlotPage = { readonly slots: number[]; readonly next: Cursor | null };
export type SlotGroup = SlotPage & { readonly total: number | null; readonly complete: boolean };
export type SlotState = {
  readonly state: "active" | "acked" | "expired" | "absent";
  /** Meaningless when absent. */
  readonly slot: number;
};

/** What a sweep asks of the driver: `cut` down to the preview, or `drop` altogether. */
export type Swept = { readonly slot: number; readonly action: "cut" | "drop" };

export class MailboxIndex {
  private readonly rows = new RowTable();
  private readonly recipients = new RecipientIndex(this.rows);
  /** By expiry, and for `kept` rows by the end of what is kept. */
  private readonly expiries = new ExpiryHeap((slot) =>
    this.rows.status[slot] === kept ? this.rows.keptUntilMs[slot]! : this.rows.expiresAtMs[slot]!,
  );
  /** Rows whose time has come, oldest first, chained by `next` and `previous`. */
  private readonly sweepQueue = { first: none, last: none };
  private lastArrival = 0;
  /** The latest time that a call has named. */
  private toldMs = 0;

  /** `onDrop` hears of every row that goes, while its columns still stand. */
  constructor(private readonly onDrop: (slot: number) => void) {}

  /** What must be given to `finishLoading` when the rows are loaded again. */
  get latest(): { readonly toldMs: number; readonly arrival: number } {
    return { toldMs: this.toldMs, arrival: this.lastArrival };
  }

  get rowCount(): number {
    return this.rows.rows;
  }

  get slotCount(): number {
    return this.rows.slots;
  }

  stats(nowMs: number): MailboxStats {
    this.settle(nowMs);
    return { entries: this.recipients.entries, bytes: this.recipients.bytes };
  }

  admit(row: Row, storedAtMs: number, quota: MailboxQuota): Admission {
    if (!(row.expiresAtMs > storedAtMs)) throw new RangeError("the entry has expired before it is stored");
    this.settle(storedAtMs);
    const refusal = this.refusal(row, quota);
    if (refusal !== null) return refusal;
    const before = this.find(row.recipient, row.messageId);
    if (before !== none) this.drop(before);
    const arrival = nextArrival(this.lastArrival, storedAtMs);
    return { kind: "stored", slot: this.enter(row, idWords(row.messageId), { arrival, status: held }) };
  }

  /** Why the row can't be stored now. A row of the same id whose time is over is in nobody's way. */
  private refusal(row: Row, quota: MailboxQuota): Admission | null {
    const recipient = this.recipients.find(row.recipient);
    if (recipient !== undefined) {
      const slot = this.rows.find(recipient.number, idWords(row.messageId));
      if (slot !== none) {
        const status = this.rows.status[slot]!;
        if (status === held || status === acked) {
          return { kind: "duplicate", expiresAtMs: this.rows.expiresAtMs[slot]! };
        }
      }
      if (row.chunk !== null && this.recipients.conflicts(recipient, row.chunk)) return { kind: "chunk_conflict" };
    }
    const [entries, bytes] = recipient === undefined ? [0, 0] : [recipient.entries, recipient.bytes];
    if (entries + 1 > quota.recipientEntriesMax || bytes + row.envelopeBytes > quota.recipientBytesMax) {
      return { kind: "full", scope: "recipient" };
    }
    for (const share of quota.shares) {
      const { label, rest } = share;
      if (!row.labels.includes(label)) continue;
      const among = rest?.among ?? null;
      const all = among === null ? { entries, bytes } : (recipient?.labels.get(among) ?? nothingHeld);
      const use = { own: recipient?.labels.get(label) ?? nothingHeld, all };
      if (exceedsShare(share, use, row.envelopeBytes)) return { kind: "full", scope: "share", label };
    }
    return this.storeRefusal(row, quota);
  }

  private storeRefusal({ labels, envelopeBytes }: Row, quota: MailboxQuota): Admission | null {
    const all = this.recipients;
    if (all.entries + 1 > quota.storeEntriesMax || all.bytes + envelopeBytes > quota.storeBytesMax) {
      return { kind: "full", scope: "store" };
    }
    const { storeShare } = quota;
    if (storeShare === undefined || !labels.includes(storeShare.label)) return null;
    const { label } = storeShare;
    const isFull = exceedsShare(storeShare, { own: all.heldInStore(label), all }, envelopeBytes);
    return isFull ? { kind: "full", scope: "store_share", label } : null;
  }

  /**
   * Puts back a row that a driver kept; `finishLoading` must follow. Until the journal was replayed, an id
   * may stand in two slots: in one that it has left since, and where it stands now.
   */
  load(row: LoadedRow): void {
    this.recipients.beginLoading();
    if (row.slot < this.rows.slots && this.rows.status[row.slot] !== free) this.forgetLoaded(row.slot);
    this.enter(row, row.id, row);
  }

  /**
   * Settles what was over at the latest time that a call had named, and puts the rest in order of arrival.
   * Before that, groups may hold chunks of two lives. Cost: one sort of what is held.
   */
  finishLoading(latest: { readonly toldMs: number; readonly arrival: number }): void {
    this.lastArrival = Math.max(this.lastArrival, latest.arrival);
    this.settle(latest.toldMs);
    this.recipients.finishLoading();
    this.rows.listFree();
  }

  /** What a loaded journal says happened to a row: it was acknowledged, cut, or dropped. */
  replay(slot: number, what: "acked" | "cut" | "dropped"): void {
    if (!this.taken(slot)) return;
    const isHeld = this.rows.status[slot] === held;
    if (what === "dropped") {
      this.forgetLoaded(slot);
    } else if (what === "acked") {
      if (isHeld) this.acknowledge(slot);
    } else {
      if (isHeld) this.recipients.uncount(slot);
      this.expiries.remove(slot);
      this.rows.status[slot] = kept;
      this.expiries.push(slot);
    }
  }

  private forgetLoaded(slot: number): void {
    this.detach(slot);
    this.recipients.leave(slot);
    this.rows.forget(slot);
  }

  private enter(row: Omit<Row, "messageId">, words: IdWords, place: Placing): number {
    const recipient = this.recipients.take(row.recipient);
    const rows = this.rows;
    const slot = place.slot ?? rows.take(recipient.number, words);
    if (place.slot !== undefined) rows.place(slot, recipient.number, words);
    rows.status[slot] = place.status;
    rows.arrival[slot] = place.arrival;
    rows.behavior[slot] = behaviors.indexOf(row.onExpiry);
    rows.expiresAtMs[slot] = row.expiresAtMs;
    rows.keptUntilMs[slot] = row.keptUntilMs;
    rows.envelopeBytes[slot] = row.envelopeBytes;
    rows.previewBytes[slot] = row.previewBytes ?? none;
    rows.sequence[slot] = row.chunk?.sequence ?? 0;
    rows.group[slot] = none;
    recipient.rows++;
    this.recipients.setLabels(slot, row.labels);
    if (place.arrival > this.lastArrival) this.lastArrival = place.arrival;
    if (place.status === held) this.recipients.count(slot, recipient, row.chunk);
    this.expiries.push(slot);
    return slot;
  }

  /** Moves every row whose time has come by `nowMs` to the sweep queue: from then on it counts no more. */
  private settle(nowMs: number): void {
    if (nowMs > this.toldMs) this.toldMs = nowMs;
    for (;;) {
      const slot = this.expiries.first();
      if (slot === -1) return;
      const status = this.rows.status[slot]!;
      if ((status === kept ? this.rows.keptUntilMs : this.rows.expiresAtMs)[slot]! > nowMs) return;
      this.expiries.remove(slot);
      if (status === held) this.recipients.uncount(slot);
      this.rows.status[slot] = status === held ? lapsed : over;
      const queue = this.sweepQueue;
      this.rows.previous[slot] = queue.last;
      this.rows.next[slot] = none;
      if (queue.last === none) queue.first = slot;
      else this.rows.next[queue.last] = slot;
      queue.last = slot;
    }
  }

  /** At most `limit` rows that are due, oldest first. A dropped row also reaches `onDrop`. */
  sweep(nowMs: number, limit: number): Swept[] {
    this.settle(nowMs);
    const swept: Swept[] = [];
    const rows = this.rows;
    while (swept.length < limit && this.sweepQueue.first !== none) {
      const slot = this.sweepQueue.first;
      const keeps = rows.status[slot] === lapsed && rows.behavior[slot] !== 0 && rows.keptUntilMs[slot]! > nowMs;
      swept.push({ slot, action: keeps ? "cut" : "drop" });
      if (!keeps) {
        this.drop(slot);
        continue;
      }
      this.recipients.unlink(slot, this.sweepQueue);
      rows.status[slot] = kept;
      this.expiries.push(slot);
    }
    return swept;
  }

  private drop(slot: number): void {
    this.onDrop(slot);
    this.detach(slot);
    this.recipients.leave(slot);
    this.rows.release(slot);
  }

  /** Takes a row out of whatever it stands in by its state. */
  private detach(slot: number): void {
    const status = this.rows.status[slot]!;
    if (status === lapsed || status === over) {
      this.recipients.unlink(slot, this.sweepQueue);
      return;
    }
    if (status === held) this.recipients.uncount(slot);
    this.expiries.remove(slot);
  }

  /** Acknowledges what is active of the ids and answers the slots. */
  remove(did: MailboxKey, ids: readonly Uuid[], nowMs: number): number[] {
    const recipient = this.recipients.find(did);
    if (recipient === undefined) return [];
    const slots: number[] = [];
    for (const id of ids) {
      const slot = this.rows.find(recipient.number, idWords(id));
      if (slot === none || !this.active(slot, nowMs)) continue;
      this.acknowledge(slot);
      slots.push(slot);
    }
    return slots;
  }

  private acknowledge(slot: number): void {
    this.recipients.uncount(slot);
    this.rows.status[slot] = acked;
  }

  private active(slot: number, nowMs: number): boolean {
    return this.rows.status[slot] === held && this.rows.expiresAtMs[slot]! > nowMs;
  }

  /** The slots of the active entries among `ids`, in that order. */
  activeOf(did: MailboxKey, ids: readonly Uuid[], nowMs: number): number[] {
    const slots = ids.map((id) => this.find(did, id));
    return slots.filter((slot) => slot !== none && this.active(slot, nowMs));
  }

  /** Active entries in order of arrival. `bytesMax` of `null` does not count bytes. */
  page(did: MailboxKey, page: PageRequest, bytesMax: number | null): SlotPage | Fault {
    const after = parseCursor(page.after);
    if (isFault(after)) return after;
    const recipient = this.recipients.find(did);
    const slots: number[] = [];
    if (recipient === undefined) return { slots, next: null };
    const pages = new PageFill(page.entriesMax, bytesMax);
    for (let slot = recipient.first; slot !== none; slot = this.rows.next[slot]!) {
      if (this.rows.arrival[slot]! <= after || this.rows.expiresAtMs[slot]! <= page.nowMs) continue;
      if (!pages.accepts(this.rows.envelopeBytes[slot]!)) return { slots, next: this.cursor(slots.at(-1), after) };
      slots.push(slot);
    }
    return { slots, next: null };
  }

  cursor(slot: number | undefined, otherwise = 0): Cursor {
    return encodeCursor(slot === undefined ? otherwise : this.rows.arrival[slot]!);
  }

  /** Active chunks of a group by sequence; its cursors count sequence numbers from 1. */
  groupPage(did: MailboxKey, groupId: Uuid, page: PageRequest): SlotGroup | Fault {
    const after = parseCursor(page.after);
    if (isFault(after)) return after;
    const group = this.recipients.group(this.recipients.find(did), groupId);
    const held = [...(group?.chunks.values() ?? [])].filter((slot) => this.active(slot, page.nowMs));
    if (group === undefined || held.length === 0) return { slots: [], next: null, total: null, complete: false };
    held.sort((a, b) => this.rows.sequence[a]! - this.rows.sequence[b]!);
    const facts = { total: group.total, complete: held.length === group.total };
    const pages = new PageFill(page.entriesMax, page.bytesMax);
    const slots: number[] = [];
    for (const slot of held) {
      if (this.rows.sequence[slot]! + 1 <= after) continue;
      if (!pages.accepts(this.rows.envelopeBytes[slot]!)) {
        const last = slots.at(-1);
        return { slots, next: encodeCursor(last === undefined ? after : this.rows.sequence[last]! + 1), ...facts };
      }
      slots.push(slot);
    }
    return { slots, next: null, ...facts };
  }

  private find(did: MailboxKey, id: Uuid): number {
    const recipient = this.recipients.find(did);
    return recipient === undefined ? none : this.rows.find(recipient.number, idWords(id));
  }

  state(did: MailboxKey, id: Uuid, nowMs: number): SlotState {
    const slot = this.find(did, id);
    if (slot === none) return { state: "absent", slot };
    const rows = this.rows;
    const status = rows.status[slot]!;
    if (status === held || status === acked) {
      if (rows.expiresAtMs[slot]! > nowMs) return { state: status === held ? "active" : "acked", slot };
      if (status === acked) return { state: "absent", slot };
    }
    const remains = status !== over && rows.behavior[slot] !== 0 && rows.keptUntilMs[slot]! > nowMs;
    return { state: remains ? "expired" : "absent", slot };
  }

  /** The row of a taken slot as it was given. `chunk` is known while the entry is held. */
  row(slot: number): LoadedRow {
    const rows = this.rows;
    return {
      slot,
      status: rows.status[slot]!,
      arrival: rows.arrival[slot]!,
      recipient: this.recipients.did(slot),
      id: this.rows.words(slot),
      chunk: this.recipients.chunk(slot),
      labels: this.recipients.labels(slot),
      expiresAtMs: rows.expiresAtMs[slot]!,
      keptUntilMs: rows.keptUntilMs[slot]!,
      onExpiry: behaviors[rows.behavior[slot]!]!,
      envelopeBytes: rows.envelopeBytes[slot]!,
      previewBytes: this.previewBytes(slot),
    };
  }

  taken(slot: number): boolean {
    return slot < this.rows.slots && this.rows.status[slot] !== free;
  }

  id(slot: number): Uuid {
    return idText(this.rows.words(slot));
  }

  labels(slot: number): readonly string[] {
    return [...this.recipients.labels(slot)];
  }

  arrival(slot: number): number {
    return this.rows.arrival[slot]!;
  }

  expiresAtMs(slot: number): number {
    return this.rows.expiresAtMs[slot]!;
  }

  previewBytes(slot: number): number | null {
    const bytes = this.rows.previewBytes[slot]!;
    return bytes === none ? null : bytes;
  }

  envelopeBytes(slot: number): number {
    return this.rows.envelopeBytes[slot]!;
  }

  status(slot: number): number {
    return this.rows.status[slot]!;
  }

  keepsPreview(slot: number): boolean {
    return behaviors[this.rows.behavior[slot]!] === "KeepHeaderPreview";
  }

  chunk(slot: number): Chunk | null {
    return this.recipients.chunk(slot);
  }
}
