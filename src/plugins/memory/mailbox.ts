/**
 * The mailbox of the memory driver: for each recipient a map of the active rows in order of arrival and a map of those
 * that have ended, and a heap of what ends next.
 * No method awaits anything before it is done, so every operation is atomic. `room` bounds the ids that are active,
 * remembered or kept, and their bytes.
 */
import TinyQueue from "tinyqueue";
import { equalBytes } from "../../core/codec/bytes.ts";
import type { MailboxKey, Uuid } from "../../core/codec/did.ts";
import { type Fault, isFault } from "../../core/fault.ts";
import {
  type Chunk,
  type GroupPage,
  type HeldMessage,
  type Mailbox,
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
  type TagClaim,
} from "../../storage/contract.ts";
import {
  checkEntry,
  checkQuota,
  digestOf,
  digestOfNothing,
  encodeCursor,
  isStoreLabel,
  nextArrival,
  nothingHeld,
  PageFill,
  parseCursor,
} from "../../storage/mailbox-rules.ts";

/** An entry of the driver's own: its bytes go when it has ended. */
type OwnEntry = Omit<MailboxEntry, "envelope" | "headerPreview"> & {
  envelope: Uint8Array;
  headerPreview: Uint8Array | null;
};
/** An `acked` id is remembered until its expiry. Of a `kept` row at most the preview is left. */
type Row = {
  readonly entry: OwnEntry;
  readonly arrival: number;
  state: "active" | "acked" | "kept";
  /** Of an acknowledged envelope. */
  digest: Uint8Array | null;
};
type Box = {
  /** In order of arrival, as a map keeps its keys: a list does not walk over what has ended. */
  readonly active: Map<Uuid, Row>;
  readonly ended: Map<Uuid, Row>;
  /** Active chunks by group and sequence number. */
  readonly groups: Map<Uuid, Map<number, Row>>;
  readonly held: Tally;
};

type MailboxOptions = {
  readonly room: MailboxStats;
  /** Throws once the store is closed. */
  readonly checkOpen: () => void;
  readonly claim: (claim: TagClaim, nowMs: number) => boolean;
};

export class MemoryMailbox implements Mailbox {
  private readonly boxes = new Map<MailboxKey, Box>();
  private readonly ends = new TinyQueue<{ readonly atMs: number; readonly row: Row }>([], (a, b) => a.atMs - b.atMs);
  /** The active entries, and all rows. */
  private readonly held = new Tally(isStoreLabel);
  private readonly known = new Tally(isStoreLabel);
  private lastArrival = 0;
  /** Records that were freed since `expire` last reported. */
  private freed = 0;

  constructor(private readonly options: MailboxOptions) {}

  async store(given: MailboxEntry, quota: MailboxQuota): Promise<StoreOutcome> {
    this.options.checkOpen();
    checkEntry(given);
    this.settle(given.storedAtMs);
    const { recipient, messageId } = given;
    const box = this.boxes.get(recipient) ?? newBox();
    const before = rowOf(box, messageId);
    if (before !== undefined && before.state !== "kept") {
      return { kind: "duplicate", expiresAtMs: before.entry.expiresAtMs, isSame: isSame(before, given.envelope) };
    }
    if (conflicts(box, given.chunk)) return { kind: "chunk_conflict" };
    const sums = { mailbox: box.held, store: this.held, known: this.known, room: this.options.room };
    const refusal = checkQuota(given, quota, sums);
    if (refusal !== null) return refusal;
    this.checkRoom(given);
    if (before !== undefined) this.free(box, before);
    this.lastArrival = nextArrival(this.lastArrival, given.storedAtMs);
    const row: Row = { entry: copyOf(given), arrival: this.lastArrival, state: "active", digest: null };
    this.boxes.set(recipient, box);
    box.active.set(messageId, row);
    this.ends.push({ atMs: given.expiresAtMs, row });
    this.known.add(row.entry.labels, 1, bytesOf(row.entry));
    this.countActive(box, row, 1);
    return { kind: "stored" };
  }

  async list(recipient: MailboxKey, page: PageRequest): Promise<Page<HeldMessage> | Fault> {
    const found = pageOf(this.activeOf(recipient), page, arrivalOf);
    return isFault(found) ? found : { ...found, entries: found.entries.map(messageOf) };
  }

  async summary(recipient: MailboxKey, page: PageRequest): Promise<Page<MessageSummary> | Fault> {
    const found = pageOf(this.activeOf(recipient), { ...page, bytesMax: Number.POSITIVE_INFINITY }, arrivalOf);
    if (isFault(found)) return found;
    const entries = found.entries.map(({ entry: { messageId, chunk, expiresAtMs, envelope, labels }, arrival }) => ({
      messageId,
      chunk,
      expiresAtMs,
      envelopeBytes: envelope.length,
      labels,
      cursor: encodeCursor(arrival),
    }));
    return { entries, next: found.next };
  }

  async read(recipient: MailboxKey, messageIds: readonly Uuid[], nowMs: number): Promise<HeldMessage[]> {
    this.options.checkOpen();
    const active = this.boxes.get(recipient)?.active;
    const found = messageIds.map((id) => active?.get(id)).filter((row) => row !== undefined);
    return found.filter((row) => isActive(row, nowMs)).map(messageOf);
  }

  async group(recipient: MailboxKey, groupId: Uuid, page: PageRequest): Promise<GroupPage | Fault> {
    this.options.checkOpen();
    const chunks = [...(this.boxes.get(recipient)?.groups.get(groupId)?.values() ?? [])];
    const active = chunks.filter((row) => isActive(row, page.nowMs)).sort((a, b) => placeOf(a) - placeOf(b));
    const found = pageOf(active, page, placeOf);
    if (isFault(found)) return found;
    const total = active[0]?.entry.chunk?.total ?? null;
    return { ...found, entries: found.entries.map(messageOf), total, complete: active.length === total };
  }

  async message(recipient: MailboxKey, messageId: Uuid, nowMs: number): Promise<MessageState> {
    this.options.checkOpen();
    const row = rowOf(this.boxes.get(recipient), messageId);
    if (row === undefined) return { state: "absent" };
    const { expiresAtMs, onExpiry, keptUntilMs, headerPreview } = row.entry;
    if (isActive(row, nowMs)) return { state: "active", message: messageOf(row) };
    if (row.state === "acked") return expiresAtMs > nowMs ? { state: "acked" } : { state: "absent" };
    if (onExpiry === "DeleteOnExpiry" || keptUntilMs <= nowMs) return { state: "absent" };
    const preview = onExpiry === "KeepHeaderPreview" ? (headerPreview?.slice() ?? null) : null;
    return { state: "expired", expiresAtMs, headerPreview: preview };
  }

  async remove(recipient: MailboxKey, messageIds: readonly Uuid[], nowMs: number): Promise<RemovedMessage[]> {
    this.options.checkOpen();
    const box = this.boxes.get(recipient);
    const removed: RemovedMessage[] = [];
    for (const messageId of messageIds.toSorted()) {
      const row = box?.active.get(messageId);
      if (box === undefined || row === undefined || !isActive(row, nowMs)) continue;
      this.end(box, row, "acked");
      removed.push({ messageId, labels: row.entry.labels });
    }
    return removed;
  }

  async claimAndRemove(claim: TagClaim, recipient: MailboxKey, messageIds: readonly Uuid[], nowMs: number) {
    this.options.checkOpen();
    return this.options.claim(claim, nowMs) ? this.remove(recipient, messageIds, nowMs) : null;
  }

  async expire(nowMs: number, limit: number): Promise<number> {
    this.options.checkOpen();
    this.settle(nowMs, limit);
    const freed = Math.min(this.freed, limit);
    this.freed -= freed;
    return freed;
  }

  async stats(nowMs: number): Promise<MailboxStats> {
    this.options.checkOpen();
    this.settle(nowMs);
    return { ...this.held.of(null) };
  }

  /** Frees what has ended, so that it counts towards no quota any more. */
  private settle(nowMs: number, freedMax = Number.POSITIVE_INFINITY): void {
    while (this.freed < freedMax) {
      const next = this.ends.peek();
      if (next === undefined || next.atMs > nowMs) return;
      this.ends.pop();
      const { row } = next;
      const { recipient, messageId, onExpiry, keptUntilMs } = row.entry;
      const box = this.boxes.get(recipient);
      // A new entry of the same id has replaced a kept row.
      if (box === undefined || rowOf(box, messageId) !== row) continue;
      const leavesSomething = row.state === "active" && onExpiry !== "DeleteOnExpiry" && keptUntilMs > nowMs;
      if (row.state === "active") this.end(box, row, "kept");
      if (leavesSomething) this.ends.push({ atMs: keptUntilMs, row });
      else this.free(box, row);
      this.freed++;
    }
  }

  private checkRoom(entry: MailboxEntry): void {
    const { room } = this.options;
    const known = this.known.of(null);
    const isFull = known.entries >= room.entries || known.bytes + bytesOf(entry) > room.bytes;
    if (isFull) {
      throw new StoreError("full", `the memory store is full: ${room.entries} message ids, ${room.bytes} bytes`);
    }
  }

  /** Counts an active row, or with -1 no longer. */
  private countActive(box: Box, row: Row, sign: 1 | -1): void {
    const { chunk, envelope, labels } = row.entry;
    this.held.add(labels, sign, sign * envelope.length);
    box.held.add(labels, sign, sign * envelope.length);
    if (chunk === null) return;
    const group = box.groups.get(chunk.groupId) ?? new Map<number, Row>();
    if (sign === 1) box.groups.set(chunk.groupId, group.set(chunk.sequence, row));
    else if (group.delete(chunk.sequence) && group.size === 0) box.groups.delete(chunk.groupId);
  }

  /** An active row is active no longer: its id stays known, and of its bytes at most the preview. */
  private end(box: Box, row: Row, state: "acked" | "kept"): void {
    const { entry } = row;
    const keepsPreview = state === "kept" && entry.onExpiry === "KeepHeaderPreview";
    const bytes = bytesOf(entry);
    this.countActive(box, row, -1);
    if (state === "acked") row.digest = digestOf(entry.envelope);
    entry.envelope = noBytes;
    if (!keepsPreview) entry.headerPreview = null;
    this.known.add(entry.labels, 0, bytesOf(entry) - bytes);
    row.state = state;
    box.active.delete(entry.messageId);
    box.ended.set(entry.messageId, row);
  }

  private free(box: Box, { entry }: Row): void {
    this.known.add(entry.labels, -1, -bytesOf(entry));
    box.ended.delete(entry.messageId);
    if (box.active.size + box.ended.size === 0) this.boxes.delete(entry.recipient);
  }

  private activeOf(recipient: MailboxKey): Iterable<Row> {
    this.options.checkOpen();
    return this.boxes.get(recipient)?.active.values() ?? [];
  }
}

type Sum = { entries: number; bytes: number };

/** Sums of entries and bytes: of all (`null`), and of each label that `counts` names. */
class Tally {
  private readonly all: Sum = { entries: 0, bytes: 0 };
  private readonly byLabel = new Map<string, Sum>();

  constructor(private readonly counts: (label: string) => boolean) {}

  of(label: string | null): MailboxStats {
    return label === null ? this.all : (this.byLabel.get(label) ?? nothingHeld);
  }

  add(labels: readonly string[], entries: number, bytes: number): void {
    this.all.entries += entries;
    this.all.bytes += bytes;
    for (const label of labels) {
      if (!this.counts(label)) continue;
      const sum = this.byLabel.get(label) ?? { entries: 0, bytes: 0 };
      sum.entries += entries;
      sum.bytes += bytes;
      if (sum.entries === 0) this.byLabel.delete(label);
      else this.byLabel.set(label, sum);
    }
  }
}

const noBytes = new Uint8Array(0);
const isMailboxLabel = (label: string): boolean => !isStoreLabel(label);

function newBox(): Box {
  return { active: new Map(), ended: new Map(), groups: new Map(), held: new Tally(isMailboxLabel) };
}

function rowOf(box: Box | undefined, messageId: Uuid): Row | undefined {
  return box?.active.get(messageId) ?? box?.ended.get(messageId);
}

function isSame({ digest, entry }: Row, envelope: Uint8Array): boolean {
  if (digest === null) return equalBytes(entry.envelope, envelope);
  return equalBytes(digest, digestOf(envelope)) || equalBytes(digest, digestOfNothing);
}

function isActive(row: Row, nowMs: number): boolean {
  return row.state === "active" && row.entry.expiresAtMs > nowMs;
}

function conflicts(box: Box, chunk: Chunk | null): boolean {
  const group = chunk === null ? undefined : box.groups.get(chunk.groupId);
  if (chunk === null || group === undefined) return false;
  const [any] = group.values();
  return group.has(chunk.sequence) || any?.entry.chunk?.total !== chunk.total;
}

function arrivalOf(row: Row): number {
  return row.arrival;
}

/** The position in a group, from 1. */
function placeOf(row: Row): number {
  return (row.entry.chunk?.sequence ?? 0) + 1;
}

/** The active rows of one page. `rows` come in the order of their positions. */
function pageOf(rows: Iterable<Row>, page: PageRequest, positionOf: (row: Row) => number): Page<Row> | Fault {
  const after = parseCursor(page.after);
  if (isFault(after)) return after;
  const fill = new PageFill(page.entriesMax, page.bytesMax);
  const entries: Row[] = [];
  for (const row of rows) {
    if (positionOf(row) <= after || !isActive(row, page.nowMs)) continue;
    const last = entries.at(-1);
    if (!fill.accepts(row.entry.envelope.length)) {
      return { entries, next: encodeCursor(last === undefined ? after : positionOf(last)) };
    }
    entries.push(row);
  }
  return { entries, next: null };
}

function bytesOf(entry: OwnEntry | MailboxEntry): number {
  return entry.envelope.length + (entry.headerPreview?.length ?? 0);
}

function copyOf(entry: MailboxEntry): OwnEntry {
  const { labels, headerPreview, envelope } = entry;
  return { ...entry, labels: [...labels], headerPreview: headerPreview?.slice() ?? null, envelope: envelope.slice() };
}

function messageOf({ entry: { messageId, chunk, expiresAtMs, envelope } }: Row): HeldMessage {
  return { messageId, chunk, expiresAtMs, envelope: envelope.slice() };
}
