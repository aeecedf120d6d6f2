/**
 * The rows of a mailbox: everything known of an entry but its bytes, in typed arrays by slot number, with a
 * hash index from (recipient, message id) to the slot, and a heap of slots by a number. A million rows take
 * about 120 MB here, where a million objects with their strings would take three times as much and the
 * collector's time. Recipients, label sets and chunk groups are numbers of interned texts (recipients.ts).
 * The lowest free slot is handed out first, so that what was stored together lies in few index pages.
 */
import type { Uuid } from "../../core/codec/did.ts";
import { type ExpirationBehavior, expirationBehaviors } from "../../core/ledger/policy.ts";

export const none = 0xffffffff;

/** The life of a row; the number is also its form on disk. */
export const free = 0;
/** Held for the recipient until its expiry. */
export const held = 1;
/** Acknowledged; the id is remembered until the expiry. */
export const acked = 2;
/** Expired; its bytes wait for the sweep. */
export const lapsed = 3;
/** Expired and cut down to what its expiration behavior keeps. */
export const kept = 4;
/** Nothing of it is needed any more; it waits for the sweep. */
export const over = 5;

export const behaviors: readonly ExpirationBehavior[] = expirationBehaviors;

/** The mix of the hash index keeps a quarter of its buckets free. */
const firstCapacity = 1_024;

export type Elements = Float64Array<ArrayBuffer> | Uint32Array<ArrayBuffer> | Uint8Array<ArrayBuffer>;

/** A typed array that has an index page, and its elements for each row. */
export type StoredArray = { readonly elements: Elements; readonly perRow: 1 | 4 };

export function resized<T extends Elements>(from: T, to: T): T {
  to.set(from);
  return to;
}

export class RowTable {
  /** Position in the order of arrival; cursors are made of it. */
  arrival = new Float64Array(firstCapacity);
  expiresAtMs = new Float64Array(firstCapacity);
  keptUntilMs = new Float64Array(firstCapacity);
  /** Number of the block that holds the body. */
  block = new Float64Array(firstCapacity);
  /** Four words a slot. */
  id = new Uint32Array(4 * firstCapacity);
  recipient = new Uint32Array(firstCapacity);
  /** The labels as one text; `none` without any. */
  labels = new Uint32Array(firstCapacity);
  /** The id of the chunk group; `none` for a whole message. */
  group = new Uint32Array(firstCapacity);
  sequence = new Uint32Array(firstCapacity);
  total = new Uint32Array(firstCapacity);
  envelopeBytes = new Uint32Array(firstCapacity);
  /** `none` without a preview, which is not the same as an empty one. */
  previewBytes = new Uint32Array(firstCapacity);
  /** Where the body begins in its block. */
  offset = new Uint32Array(firstCapacity);
  status = new Uint8Array(firstCapacity);
  behavior = new Uint8Array(firstCapacity);
  /** Neighbours in the row's list. */
  next = new Uint32Array(firstCapacity);
  previous = new Uint32Array(firstCapacity);

  private capacity = firstCapacity;
  private chain = new Uint32Array(firstCapacity);
  private buckets = new Uint32Array(2 * firstCapacity).fill(none);
  private used = 0;
  /** Slots below this were handed out at least once. */
  private fresh = 0;
  private readonly freeSlots = new SlotHeap((slot) => slot);
  private readonly seed = crypto.getRandomValues(new Uint32Array(1))[0]!;

  /** Rows in any state but `free`. */
  get rows(): number {
    return this.used;
  }

  /** One more than the highest slot that was ever handed out. */
  get slots(): number {
    return this.fresh;
  }

  isUsed(slot: number): boolean {
    return slot < this.fresh && this.status[slot] !== free;
  }

  /** What an index page holds of its rows: the widest elements first, so that each array is aligned. */
  stored(): readonly StoredArray[] {
    const { arrival, expiresAtMs, keptUntilMs, block, id, recipient, labels, group } = this;
    const { sequence, total, envelopeBytes, previewBytes, offset, status, behavior } = this;
    const wide = [arrival, expiresAtMs, keptUntilMs, block].map((elements) => ({ elements, perRow: 1 as const }));
    const words = [recipient, labels, group, sequence, total, envelopeBytes, previewBytes, offset];
    const narrow = [...words, status, behavior].map((elements) => ({ elements, perRow: 1 as const }));
    return [...wide, { elements: id, perRow: 4 }, ...narrow];
  }

  find(recipient: number, words: IdWords): number {
    let slot = this.buckets[this.bucketOf(recipient, words[0], words[1], words[2], words[3])]!;
    while (slot !== none && !this.matches(slot, recipient, words)) slot = this.chain[slot]!;
    return slot;
  }

  /** The lowest free slot, now belonging to the id. The caller fills the other arrays. */
  add(recipient: number, words: IdWords): number {
    const freed = this.freeSlots.first();
    const slot = freed === -1 ? this.fresh : freed;
    this.freeSlots.remove(slot);
    this.reserve(slot + 1);
    this.recipient[slot] = recipient;
    this.id.set(words, slot * 4);
    if (++this.used > this.buckets.length * 0.75) this.rehash();
    this.link(slot);
    return slot;
  }

  /** The row goes, and its slot is free. */
  release(slot: number): void {
    const bucket = this.bucketAt(slot);
    let at = this.buckets[bucket]!;
    if (at === slot) this.buckets[bucket] = this.chain[slot]!;
    else {
      while (this.chain[at] !== slot) at = this.chain[at]!;
      this.chain[at] = this.chain[slot]!;
    }
    this.status[slot] = free;
    this.used--;
    this.freeSlots.push(slot);
  }

  /** Room for so many slots, when they are known beforehand. */
  expect(slots: number): void {
    if (slots > this.capacity) this.grow(slots);
  }

  /** Makes room for slots below `slots`; those that were not handed out are free. */
  reserve(slots: number): void {
    if (slots > this.capacity) this.grow(Math.max(slots, this.capacity * 2));
    if (slots > this.fresh) this.fresh = slots;
  }

  /** After the arrays were loaded: finds the rows, and lists every gap as free. */
  finishLoading(): void {
    this.used = 0;
    for (let slot = 0; slot < this.fresh; slot++) {
      if (this.status[slot] === free) this.freeSlots.push(slot);
      else this.used++;
    }
    this.rehash();
  }

  words(slot: number): IdWords {
    const at = slot * 4;
    return [this.id[at]!, this.id[at + 1]!, this.id[at + 2]!, this.id[at + 3]!];
  }

  private matches(slot: number, recipient: number, words: IdWords): boolean {
    const at = slot * 4;
    const id = this.id;
    return (
      this.recipient[slot] === recipient &&
      id[at] === words[0] &&
      id[at + 1] === words[1] &&
      id[at + 2] === words[2] &&
      id[at + 3] === words[3]
    );
  }

  private bucketAt(slot: number): number {
    const { id } = this;
    const at = slot * 4;
    return this.bucketOf(this.recipient[slot]!, id[at]!, id[at + 1]!, id[at + 2]!, id[at + 3]!);
  }

  /** Senders choose ids, so the mix starts from a secret of this process: long chains can't be aimed at. */
  private bucketOf(recipient: number, a: number, b: number, c: number, d: number): number {
    let h = mixed(this.seed ^ recipient, a);
    h = mixed(h, b);
    h = mixed(h, c);
    h = mixed(h, d);
    return (h >>> 0) & (this.buckets.length - 1);
  }

  private link(slot: number): void {
    const bucket = this.bucketAt(slot);
    this.chain[slot] = this.buckets[bucket]!;
    this.buckets[bucket] = slot;
  }

  private rehash(): void {
    let size = 2 * firstCapacity;
    while (size * 0.75 < this.used) size *= 2;
    this.buckets = new Uint32Array(size).fill(none);
    for (let slot = 0; slot < this.fresh; slot++) if (this.status[slot] !== free) this.link(slot);
  }

  private grow(to: number): void {
    this.arrival = resized(this.arrival, new Float64Array(to));
    this.expiresAtMs = resized(this.expiresAtMs, new Float64Array(to));
    this.keptUntilMs = resized(this.keptUntilMs, new Float64Array(to));
    this.block = resized(this.block, new Float64Array(to));
    this.id = resized(this.id, new Uint32Array(4 * to));
    this.recipient = resized(this.recipient, new Uint32Array(to));
    this.labels = resized(this.labels, new Uint32Array(to));
    this.group = resized(this.group, new Uint32Array(to));
    this.sequence = resized(this.sequence, new Uint32Array(to));
    this.total = resized(this.total, new Uint32Array(to));
    this.envelopeBytes = resized(this.envelopeBytes, new Uint32Array(to));
    this.previewBytes = resized(this.previewBytes, new Uint32Array(to));
    this.offset = resized(this.offset, new Uint32Array(to));
    this.status = resized(this.status, new Uint8Array(to));
    this.behavior = resized(this.behavior, new Uint8Array(to));
    this.next = resized(this.next, new Uint32Array(to));
    this.previous = resized(this.previous, new Uint32Array(to));
    this.chain = resized(this.chain, new Uint32Array(to));
    this.capacity = to;
  }
}

function mixed(hash: number, word: number): number {
  let h = Math.imul(hash ^ word, 0x9e3779b1);
  h = Math.imul(h ^ (h >>> 15), 0x85ebca77);
  return h ^ (h >>> 13);
}

/** A UUID as four big-endian words. */
export type IdWords = readonly [number, number, number, number];

/** The caller gives a UUID in its lower-case form. About 0.1 µs, against 0.5 with slices and `parseInt`. */
export function idWords(id: Uuid): IdWords {
  const a = halfWord(id, 0) * 65_536 + halfWord(id, 4);
  const b = halfWord(id, 9) * 65_536 + halfWord(id, 14);
  const c = halfWord(id, 19) * 65_536 + halfWord(id, 24);
  const d = halfWord(id, 28) * 65_536 + halfWord(id, 32);
  return [a, b, c, d];
}

function halfWord(text: string, at: number): number {
  return (digit(text, at) << 12) | (digit(text, at + 1) << 8) | (digit(text, at + 2) << 4) | digit(text, at + 3);
}

function digit(text: string, at: number): number {
  const code = text.charCodeAt(at);
  return code < 58 ? code - 48 : code - 87;
}

const hexPairs = Array.from({ length: 256 }, (_, byte) => byte.toString(16).padStart(2, "0"));

export function idText([a, b, c, d]: IdWords): Uuid {
  const [b1, b2, c1, c2] = [halfText(b >>> 16), halfText(b), halfText(c >>> 16), halfText(c)];
  return `${halfText(a >>> 16)}${halfText(a)}-${b1}-${b2}-${c1}-${c2}${halfText(d >>> 16)}${halfText(d)}` as Uuid;
}

function halfText(half: number): string {
  return hexPairs[(half >> 8) & 0xff]! + hexPairs[half & 0xff]!;
}

/** Place 0 of the heap stays empty, so that 0 in `place` means "not in the heap". */
const absent = 0;

/**
 * A binary heap of slots by a number, the lowest first. Each slot is in it at most once and knows its
 * place, so it can be removed when its entry goes another way. Cost: O(log n) per change, O(1) to see the
 * first; 8 bytes a slot besides the number, which the owner keeps.
 */
export class SlotHeap {
  private heap = new Uint32Array(firstCapacity);
  private place = new Uint32Array(firstCapacity);
  private size = 0;

  /** `numberOf(slot)` must not change while the slot is in the heap. */
  constructor(private readonly numberOf: (slot: number) => number) {}

  /** The slot with the lowest number, or -1. */
  first(): number {
    return this.size === 0 ? -1 : this.heap[1]!;
  }

  /** Puts slots into the empty heap, in rising order of slots. Cost: O(n), and least when their numbers rise too. */
  fill(slots: Uint32Array): void {
    const room = Math.max((slots.at(-1) ?? 0) + 2, firstCapacity);
    [this.heap, this.place] = [new Uint32Array(room), new Uint32Array(room)];
    this.heap.set(slots, 1);
    this.size = slots.length;
    let [isRising, before] = [true, Number.NEGATIVE_INFINITY];
    for (let i = 0; i < slots.length; i++) {
      this.place[slots[i]!] = i + 1;
      const number = this.numberOf(slots[i]!);
      if (number < before) isRising = false;
      before = number;
    }
    if (!isRising) for (let at = this.size >> 1; at > 0; at--) this.sink(at, this.heap[at]!);
  }

  push(slot: number): void {
    if (slot >= this.place.length) {
      this.place = resized(this.place, new Uint32Array(Math.max(slot + 1, this.place.length * 2)));
    }
    this.size++;
    if (this.size >= this.heap.length) this.heap = resized(this.heap, new Uint32Array(this.heap.length * 2));
    this.rise(this.size, slot);
  }

  remove(slot: number): void {
    const at = slot < this.place.length ? this.place[slot]! : absent;
    if (at === absent) return;
    this.place[slot] = absent;
    const last = this.heap[this.size--]!;
    if (last === slot) return;
    this.rise(at, last);
    this.sink(this.place[last]!, last);
  }

  private rise(from: number, slot: number): void {
    const number = this.numberOf(slot);
    let at = from;
    while (at > 1) {
      const parent = at >> 1;
      const above = this.heap[parent]!;
      if (this.numberOf(above) <= number) break;
      this.set(at, above);
      at = parent;
    }
    this.set(at, slot);
  }

  private sink(from: number, slot: number): void {
    const number = this.numberOf(slot);
    let at = from;
    for (;;) {
      let child = at * 2;
      if (child > this.size) break;
      if (child < this.size && this.numberOf(this.heap[child + 1]!) < this.numberOf(this.heap[child]!)) child++;
      const below = this.heap[child]!;
      if (this.numberOf(below) >= number) break;
      this.set(at, below);
      at = child;
    }
    this.set(at, slot);
  }

  private set(at: number, slot: number): void {
    this.heap[at] = slot;
    this.place[slot] = at;
  }
}
