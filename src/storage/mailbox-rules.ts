/**
 * The decisions that all mailbox drivers share: which entries are acceptable, what a quota
 * allows, when a page is full, what a cursor means, and how arrival numbers grow.
 */
import { sha256 } from "../core/codec/crypto.ts";
import { type Fault, fault } from "../core/fault.ts";
import type { Cursor, MailboxEntry, MailboxStats, StoreOutcome } from "./contract.ts";
import type { MailboxPlace, MailboxQuota, MailboxShare } from "./quota.ts";

const previewBytesMax = 4_096;
const labelsMax = 4;
const placesMax = 2;
const labelForm = /^[A-Za-z0-9_:-]{1,48}$/;
const chunksMax = 2 ** 32 - 1;
const digestBytes = 16;

/** Throws for an entry that breaks the contract: a mistake of the caller, not a refusal. */
export function checkEntry(entry: MailboxEntry, { places }: MailboxQuota): void {
  const { storedAtMs, expiresAtMs, keptUntilMs, chunk, headerPreview, digest } = entry;
  if (!isTime(storedAtMs) || !isTime(expiresAtMs) || !isTime(keptUntilMs))
    throw new RangeError("times of an entry are whole milliseconds");
  if (expiresAtMs <= storedAtMs) throw new RangeError("the entry has expired before it is stored");
  if ((headerPreview?.length ?? 0) > previewBytesMax)
    throw new RangeError("a header preview has at most 4,096 bytes");
  if (digest.length !== digestBytes) throw new RangeError("a digest has 16 bytes");
  if (places.length > placesMax) throw new RangeError("an entry has at most two places");
  checkLabels(entry.labels, places);
  if (chunk === null) return;
  const { sequence, total } = chunk;
  const isChunk =
    Number.isInteger(sequence) && Number.isInteger(total) && sequence >= 0 && sequence < total;
  if (!isChunk || total >= chunksMax)
    throw new RangeError("a chunk's sequence lies below its total");
}

function isTime(ms: number): boolean {
  return Number.isSafeInteger(ms) && ms >= 0;
}

function checkLabels(labels: readonly string[], places: readonly MailboxPlace[]): void {
  const areFew = (place: MailboxPlace) => labelsAt(labels, place).length <= labelsMax;
  if (
    !labels.every(isLabel) ||
    !places.every(hasLabels) ||
    labels.length > labelsMax ||
    (labels.length + 2 > labelsMax && !places.every(areFew))
  ) {
    throw new RangeError(
      "an entry has at most 4 different labels of 1 to 48 characters A-Za-z0-9_:-",
    );
  }
}

function isLabel(label: string, i: number, labels: readonly string[]): boolean {
  return labelForm.test(label) && labels.indexOf(label) === i;
}

function hasLabels({ own, pool }: MailboxPlace): boolean {
  return labelForm.test(own.label) && labelForm.test(pool);
}

/**
 * Names an envelope whose bytes are gone: 128 bits of its SHA-256. A second one can't be
 * found. Cost: 1 µs a KiB.
 */
export function shortDigest(envelope: Uint8Array): Uint8Array {
  return sha256(envelope).slice(0, digestBytes);
}

export const authorPrefix = "from:";

/** The label that names the author of an entry. */
export function authorIn(labels: readonly string[]): string | null {
  return labels.find((label) => label.startsWith(authorPrefix)) ?? null;
}

/** Labels that are counted over the whole store, and not within a mailbox. */
export function isStoreLabel(label: string): boolean {
  return label.startsWith("via:");
}

/** The sums of a label without entries. */
export const nothingHeld: MailboxStats = Object.freeze({ entries: 0, bytes: 0 });

/** Entries and bytes: of all (`null`), or under one label. */
type Sums = (label: string | null) => MailboxStats;

/** Entries and bytes in the whole store, and how many ids it knows. */
export type StoreSums = MailboxStats & { readonly ids: number };

export type QuotaSums = {
  /** Active entries of the mailbox, and of the store. */
  readonly mailbox: Sums;
  readonly store: (label: string | null) => StoreSums;
  /** The ids, and the bytes of active entries, that the store has room for. */
  readonly room: MailboxStats;
};

/** The labels of an entry that takes a place. */
function labelsAt(labels: readonly string[], { own, pool }: MailboxPlace): readonly string[] {
  const all = [...labels];
  if (!all.includes(own.label)) all.push(own.label);
  if (!all.includes(pool)) all.push(pool);
  return all;
}

/** The labels with which the quota admits one more entry, or the limit that it would exceed. */
export function decideQuota(
  { labels, envelope }: MailboxEntry,
  quota: MailboxQuota,
  sums: QuotaSums,
): readonly string[] | Extract<StoreOutcome, { kind: "full" }> {
  const bytes = envelope.length;
  if (exceedsBounds(sums.mailbox(null), bytes, quota.recipientEntriesMax, quota.recipientBytesMax))
    return { kind: "full", scope: "recipient" };
  const place = placeFor(quota, bytes, sums);
  const last = quota.places.at(-1);
  if (place === undefined && last !== undefined)
    return { kind: "full", scope: "pool", label: last.pool };
  if (exceedsBounds(sums.store(null), bytes, quota.storeEntriesMax, quota.storeBytesMax))
    return { kind: "full", scope: "store" };
  const { storeShare } = quota;
  if (storeShare !== null && labels.includes(storeShare.label) && isBeyond(storeShare, bytes, sums))
    return { kind: "full", scope: "store_share", label: storeShare.label };
  return place === undefined ? labels : labelsAt(labels, place);
}

function placeFor(
  { places }: MailboxQuota,
  bytes: number,
  sums: QuotaSums,
): MailboxPlace | undefined {
  for (const place of places) if (hasRoomIn(place, bytes, sums)) return place;
  return undefined;
}

/** Whether a place has room for one more entry of so many bytes. */
export function hasRoomIn(
  { own, pool, poolMax, isRest }: MailboxPlace,
  bytes: number,
  sums: Pick<QuotaSums, "mailbox">,
): boolean {
  const mine = sums.mailbox(own.label);
  if (exceedsBounds(mine, bytes, own.entriesMax, own.bytesMax)) return false;
  const all = sums.mailbox(pool);
  if (exceedsBounds(all, bytes, poolMax.entries, poolMax.bytes)) return false;
  if (!isRest) return true;
  return mine.entries <= poolMax.entries - all.entries && mine.bytes <= poolMax.bytes - all.bytes;
}

function isBeyond(
  { label, entriesMax, bytesMax }: MailboxShare,
  bytes: number,
  held: QuotaSums,
): boolean {
  const { room } = held;
  const sums = held.store(label);
  // An acknowledged id is remembered: a sender could use up the ids by storing for one who
  // acknowledges at once.
  return (
    exceedsBounds(sums, bytes, entriesMax, bytesMax) ||
    sums.ids + 1 > room.entries / 2 ||
    sums.bytes + bytes > room.bytes / 2
  );
}

/** Whether one more entry of `bytes` bytes exceeds either bound. */
export function exceedsBounds(
  held: MailboxStats,
  bytes: number,
  entriesMax: number,
  bytesMax: number,
): boolean {
  return held.entries + 1 > entriesMax || held.bytes + bytes > bytesMax;
}

/** Decides which entries belong to a page. `bytesMax` null does not limit bytes. */
export class PageFill {
  private entries = 0;
  private bytes = 0;

  constructor(
    private readonly entriesMax: number,
    private readonly bytesMax: number | null,
  ) {}

  accepts(bytes: number): boolean {
    if (this.entries >= this.entriesMax) return false;
    if (this.entries > 0 && this.bytesMax !== null && this.bytes + bytes > this.bytesMax)
      return false;
    this.entries++;
    this.bytes += bytes;
    return true;
  }
}

const cursorPrefix = "c";

/**
 * The cursor of a position, a safe non-negative integer. Canonical: a cursor that decodes
 * encodes to itself again.
 */
export function encodeCursor(position: number): Cursor {
  return cursorPrefix + position.toString(36);
}

/** The position behind which a page begins; 0 for the beginning. */
export function parseCursor(cursor: Cursor | null): number | Fault {
  if (cursor === null) return 0;
  const position = /^c(?:0|[1-9a-z][0-9a-z]{0,10})$/.test(cursor)
    ? Number.parseInt(cursor.slice(1), 36)
    : Number.NaN;
  if (Number.isSafeInteger(position)) return position;
  return fault("invalid_request", "this node did not issue the cursor");
}

const arrivalsPerMs = 1024;
const arrivalClockMax = 2 ** 42;

/**
 * The number of the next arrival. Numbers grow with every entry and follow the clock, so
 * that a cursor is still valid after a restart and does not show a recipient how much
 * traffic the others have. They stay below 2^53 until after the year 2100.
 */
export function nextArrival(last: number, storedAtMs: number): number {
  return Math.max(last + 1, Math.min(storedAtMs, arrivalClockMax) * arrivalsPerMs);
}

/**
 * When an entry was stored, from its arrival: later only where the clock went back or a
 * millisecond had too many.
 */
export function storedAtOf(arrival: number, expiresAtMs: number): number {
  return Math.min(Math.floor(arrival / arrivalsPerMs), expiresAtMs - 1);
}
