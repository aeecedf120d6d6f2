/**
 * The mailbox of the memory driver: one map of rows per recipient, in order of arrival. Every operation
 * runs synchronously, so it is atomic by itself. Bounded by `rowsMax` (ids that are active, remembered or
 * kept) and `bytesMax`.
 */
import type { MailboxKey, Uuid } from "../../core/codec/did.ts";
import { type Fault, isFault } from "../../core/fault.ts";
import {
  type GroupPage,
  type HeldMessage,
  type MailboxEntry,
  type MailboxQuota,
  type MailboxStats,
  type MessageState,
  type MessageSummary,
  type Page,
  type PageRequest,
  type RemovedMessage,
  StoreError,
  type StoreOutcome,
} from "../../storage/contract.ts";
import {
  checkEntry,
  encodeCursor,
  exceedsRoom,
  exceedsShare,
  isStoreLabel,
  nextArrival,
  nothingHeld,
  PageFill,
  parseCursor,
} from "../../storage/mailbox-rules.ts";
import { Heap } from "./table.ts";

type MailboxLimits = { readonly rowsMax: number; readonly bytesMax: number };

/**
 * `acked` ids are remembered until their expiry. An `expired` row still has its envelope; a `kept` one has
 * at most a preview. `gone` rows were freed.
 */
type Row = { entry: MailboxEntry; readonly arrival: number; state: "active" | "acked" | "expired" | "kept" | "gone" };
type Expiry = { readonly atMs: number; readonly row: Row };
type Usage = { entries: number; bytes: number };
type Box = {
  readonly usage: Usage;
  /** Usage per label, and active chunks per group. */
  readonly labels: Map<string, Usage>;
  readonly groups: Map<Uuid, Map<number, Row>>;
  /** In order of arrival: a new life of an id is deleted and inserted again. */
  readonly rows: Map<Uuid, Row>;
};

const noBytes = new Uint8Array(0);

export class MemoryMailbox {
  private readonly boxes = new Map<MailboxKey, Box>();
  private readonly expiries = new Heap<Expiry>((a, b) => a.atMs < b.atMs);
  /** Rows whose time is over, for `expire` to free. */
  private readonly over: Row[] = [];
  private readonly usage: Usage = { entries: 0, bytes: 0 };
  /** Usage of the labels that are counted over the store: active entries, and all rows. */
  private readonly storeLabels = new Map<string, Usage>();
  private readonly storeRows = new Map<string, Usage>();
  private rows = 0;
  private bytes = 0;
  private lastArrival = 0;

  constructor(private readonly limits: MailboxLimits) {}

  store(given: MailboxEntry, quota: MailboxQuota): StoreOutcome {
    checkEntry(given);
    this.settle(given.storedAtMs);
    const box = this.boxes.get(given.recipient) ?? newBox();
    const refusal = duplicateOf(box, given) ?? conflictOf(box, given) ?? this.excessOf(box, given, quota);
    if (refusal !== null) return refusal;
    const entry = copyOf(given);
    this.checkRoom(entry);
    const before = box.rows.get(entry.messageId);
    if (before !== undefined) this.free(before);
    this.boxes.set(entry.recipient, box);
    const arrival = nextArrival(this.lastArrival, entry.storedAtMs);
    const row: Row = { entry, arrival, state: "active" };
    this.lastArrival = arrival;
    box.rows.set(entry.messageId, row);
    this.expiries.push({ atMs: entry.expiresAtMs, row });
    this.countRow(entry, 1);
    this.count(box, row, 1);
    return { kind: "stored" };
  }

  list(recipient: MailboxKey, page: PageRequest): Page<HeldMessage> | Fault {
    const found = this.page(recipient, page, page.bytesMax);
    return isFault(found) ? found : { entries: found.rows.map(messageOf), next: found.next };
  }

  summary(recipient: MailboxKey, page: PageRequest): Page<MessageSummary> | Fault {
    const found = this.page(recipient, page, null);
    if (isFault(found)) return found;
    const entries = found.rows.map(({ entry, arrival }) => ({
      messageId: entry.messageId,
      chunk: entry.chunk,
      expiresAtMs: entry.expiresAtMs,
      envelopeBytes: entry.envelope.length,
      cursor: encodeCursor(arrival),
    }));
    return { entries, next: found.next };
  }

  read(recipient: MailboxKey, messageIds: readonly Uuid[], nowMs: number): HeldMessage[] {
    const rows = messageIds.map((id) => this.boxes.get(recipient)?.rows.get(id));
    return rows.filter((row) => row !== undefined && isActive(row, nowMs)).map((row) => messageOf(row!));
  }

  group(recipient: MailboxKey, groupId: Uuid, page: PageRequest): GroupPage | Fault {
    const after = parseCursor(page.after);
    if (isFault(after)) return after;
    const chunks = this.boxes.get(recipient)?.groups.get(groupId)?.values() ?? [];
    const active = [...chunks].filter((row) => isActive(row, page.nowMs)).sort((a, b) => sequence(a) - sequence(b));
    const total = active[0]?.entry.chunk?.total ?? null;
    // Cursors of a group count sequence numbers from 1.
    const left = active.filter((row) => sequence(row) + 1 > after);
    const found = fill(left, page, { bytesMax: page.bytesMax, cursorOf: (row) => sequence(row) + 1, after });
    return { entries: found.rows.map(messageOf), next: found.next, total, complete: active.length === total };
  }

  message(recipient: MailboxKey, messageId: Uuid, nowMs: number): MessageState {
    const row = this.boxes.get(recipient)?.rows.get(messageId);
    if (row === undefined) return { state: "absent" };
    const { expiresAtMs, onExpiry, keptUntilMs, headerPreview } = row.entry;
    if (isActive(row, nowMs)) return { state: "active", message: messageOf(row) };
    if (row.state === "acked") return { state: expiresAtMs > nowMs ? "acked" : "absent" };
    if (onExpiry === "DeleteOnExpiry" || keptUntilMs <= nowMs) return { state: "absent" };
    const preview = onExpiry === "KeepHeaderPreview" ? (headerPreview?.slice() ?? null) : null;
    return { state: "expired", expiresAtMs, headerPreview: preview };
  }

  remove(recipient: MailboxKey, messageIds: readonly Uuid[], nowMs: number): RemovedMessage[] {
    const box = this.boxes.get(recipient);
    const removed: RemovedMessage[] = [];
    for (const messageId of messageIds) {
      const row = box?.rows.get(messageId);
      if (row === undefined || !isActive(row, nowMs)) continue;
      this.count(box!, row, -1);
      this.cut(row, { onExpiry: "DeleteOnExpiry", headerPreview: null });
      row.state = "acked";
      removed.push({ messageId, labels: row.entry.labels });
    }
    return removed.sort((a, b) => (a.messageId < b.messageId ? -1 : 1));
  }

  expire(nowMs: number, limit: number): number {
    this.settle(nowMs);
    let freed = 0;
    while (freed < limit) {
      const row = this.over.pop();
      if (row === undefined) break;
      if (row.state === "gone") continue;
      const { onExpiry, keptUntilMs, headerPreview } = row.entry;
      if (row.state !== "expired" || onExpiry === "DeleteOnExpiry" || keptUntilMs <= nowMs) this.free(row);
      else {
        row.state = "kept";
        this.cut(row, { headerPreview: onExpiry === "KeepHeaderPreview" ? headerPreview : null });
        this.expiries.push({ atMs: keptUntilMs, row });
      }
      freed++;
    }
    return freed;
  }

  stats(nowMs: number): MailboxStats {
    this.settle(nowMs);
    return { ...this.usage };
  }

  /** Every row whose time is over stops counting at once; `expire` frees it later. */
  private settle(nowMs: number): void {
    for (let next = this.expiries.first(); next !== undefined && next.atMs <= nowMs; next = this.expiries.first()) {
      const { row } = next;
      this.expiries.pop();
      if (row.state === "gone") continue;
      if (row.state === "active") this.count(this.boxes.get(row.entry.recipient)!, row, -1);
      row.state = row.state === "active" ? "expired" : "kept";
      this.over.push(row);
    }
  }

  private excessOf(box: Box, { envelope, labels }: MailboxEntry, quota: MailboxQuota): StoreOutcome | null {
    const { length } = envelope;
    if (isOver(box.usage, length, quota.recipientEntriesMax, quota.recipientBytesMax)) {
      return { kind: "full", scope: "recipient" };
    }
    for (const share of quota.shares) {
      const { label, rest } = share;
      if (!labels.includes(label)) continue;
      const among = rest?.among ?? null;
      const all = among === null ? box.usage : (box.labels.get(among) ?? nothingHeld);
      const use = { own: box.labels.get(label) ?? nothingHeld, all };
      if (exceedsShare(share, use, envelope.length)) return { kind: "full", scope: "share", label };
    }
    if (isOver(this.usage, length, quota.storeEntriesMax, quota.storeBytesMax)) return { kind: "full", scope: "store" };
    const { storeShare } = quota;
    if (storeShare === undefined || !labels.includes(storeShare.label)) return null;
    const held = (usages: Map<string, Usage>) => usages.get(storeShare.label) ?? nothingHeld;
    const rows = { own: held(this.storeRows), all: { entries: this.rows, bytes: this.bytes } };
    const room = { entries: this.limits.rowsMax, bytes: this.limits.bytesMax };
    const isFull =
      exceedsShare(storeShare, { own: held(this.storeLabels), all: this.usage }, envelope.length) ||
      exceedsRoom(storeShare, room, rows, envelope.length);
    return isFull ? { kind: "full", scope: "store_share", label: storeShare.label } : null;
  }

  private checkRoom(entry: MailboxEntry): void {
    const { rowsMax, bytesMax } = this.limits;
    if (this.rows >= rowsMax) throw new StoreError("full", `the memory store is full: it holds ${rowsMax} message ids`);
    if (this.bytes + bytesOf(entry) > bytesMax) {
      throw new StoreError("full", `the memory store is full: it holds ${bytesMax} bytes`);
    }
  }

  /** Adds an active row to everything that counts it, or removes it again. */
  private count(box: Box, row: Row, sign: 1 | -1): void {
    const { labels, envelope, chunk } = row.entry;
    const bytes = sign * envelope.length;
    add(this.usage, sign, bytes);
    add(box.usage, sign, bytes);
    for (const label of labels) {
      const counters = isStoreLabel(label) ? this.storeLabels : box.labels;
      const usage = counters.get(label) ?? { entries: 0, bytes: 0 };
      add(usage, sign, bytes);
      if (usage.entries === 0) counters.delete(label);
      else if (sign === 1 && usage.entries === 1) counters.set(label, usage);
    }
    if (chunk === null) return;
    const group = box.groups.get(chunk.groupId) ?? new Map<number, Row>();
    if (sign === 1) box.groups.set(chunk.groupId, group.set(chunk.sequence, row));
    else if (group.delete(chunk.sequence) && group.size === 0) box.groups.delete(chunk.groupId);
  }

  private countRow(entry: MailboxEntry, sign: 1 | -1): void {
    const bytes = sign * bytesOf(entry);
    this.rows += sign;
    this.bytes += bytes;
    for (const label of entry.labels) {
      if (!isStoreLabel(label)) continue;
      const usage = this.storeRows.get(label) ?? { entries: 0, bytes: 0 };
      usage.entries += sign;
      usage.bytes += bytes;
      if (usage.entries > 0) this.storeRows.set(label, usage);
      else this.storeRows.delete(label);
    }
  }

  /** Drops the envelope of a row, and applies `changes`. */
  private cut(row: Row, changes: Partial<MailboxEntry>): void {
    this.countRow(row.entry, -1);
    row.entry = { ...row.entry, ...changes, envelope: noBytes };
    this.countRow(row.entry, 1);
  }

  private free(row: Row): void {
    const { recipient, messageId } = row.entry;
    const box = this.boxes.get(recipient)!;
    row.state = "gone";
    this.countRow(row.entry, -1);
    box.rows.delete(messageId);
    if (box.rows.size === 0) this.boxes.delete(recipient);
  }

  private page(recipient: MailboxKey, page: PageRequest, bytesMax: number | null): Filled | Fault {
    const after = parseCursor(page.after);
    if (isFault(after)) return after;
    const rows = [...(this.boxes.get(recipient)?.rows.values() ?? [])];
    const left = rows.filter((row) => row.arrival > after && isActive(row, page.nowMs));
    return fill(left, page, { bytesMax, cursorOf: (row) => row.arrival, after });
  }
}

function add(usage: Usage, entries: number, bytes: number): void {
  usage.entries += entries;
  usage.bytes += bytes;
}

function newBox(): Box {
  return { usage: { entries: 0, bytes: 0 }, labels: new Map(), groups: new Map(), rows: new Map() };
}

function isOver(used: Usage, bytes: number, entriesMax: number, bytesMax: number): boolean {
  return used.entries + 1 > entriesMax || used.bytes + bytes > bytesMax;
}

function isActive(row: Row, nowMs: number): boolean {
  return row.state === "active" && row.entry.expiresAtMs > nowMs;
}

function duplicateOf(box: Box, { messageId }: MailboxEntry): StoreOutcome | null {
  const row = box.rows.get(messageId);
  const isKnown = row?.state === "active" || row?.state === "acked";
  return isKnown ? { kind: "duplicate", expiresAtMs: row.entry.expiresAtMs } : null;
}

function conflictOf(box: Box, { chunk }: MailboxEntry): StoreOutcome | null {
  const group = chunk === null ? undefined : box.groups.get(chunk.groupId);
  if (chunk === null || group === undefined) return null;
  const [first] = group.values();
  const isConflict = group.has(chunk.sequence) || first!.entry.chunk!.total !== chunk.total;
  return isConflict ? { kind: "chunk_conflict" } : null;
}

type Filled = { readonly rows: Row[]; readonly next: string | null };
type Filling = {
  readonly bytesMax: number | null;
  readonly cursorOf: (row: Row) => number;
  readonly after: number;
};

/** As many of the rows as a page holds. */
function fill(rows: readonly Row[], { entriesMax }: PageRequest, { bytesMax, cursorOf, after }: Filling): Filled {
  const page = new PageFill(entriesMax, bytesMax);
  const end = rows.findIndex(({ entry }) => !page.accepts(entry.envelope.length));
  if (end < 0) return { rows: [...rows], next: null };
  const last = rows[end - 1];
  return { rows: rows.slice(0, end), next: encodeCursor(last === undefined ? after : cursorOf(last)) };
}

function sequence(row: Row): number {
  return row.entry.chunk?.sequence ?? 0;
}

function bytesOf(entry: MailboxEntry): number {
  return entry.envelope.length + (entry.headerPreview?.length ?? 0);
}

function copyOf(entry: MailboxEntry): MailboxEntry {
  const { recipient, messageId, chunk, storedAtMs, expiresAtMs, onExpiry, keptUntilMs, labels } = entry;
  const headerPreview = entry.headerPreview?.slice() ?? null;
  const envelope = entry.envelope.slice();
  // Frozen labels are shared by all entries of a network.
  const own = Object.isFrozen(labels) ? labels : [...labels];
  return {
    recipient,
    messageId,
    chunk,
    storedAtMs,
    expiresAtMs,
    onExpiry,
    keptUntilMs,
    labels: own,
    headerPreview,
    envelope,
  };
}

function messageOf({ entry }: Row): HeldMessage {
  const { messageId, chunk, expiresAtMs, envelope } = entry;
  return { messageId, chunk, expiresAtMs, envelope: envelope.slice() };
}
