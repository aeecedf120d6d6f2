/**
 * The rows of a mailbox: everything known of an entry but its bytes, in typed arrays by slot number,
 * with a hash index from (recipient, message id) to the slot, and a heap of slots by the time at which
 * something happens to them. A million rows take about 110 MB here, where a million objects with their
 * strings would take three times as much and the collector's time.
 * Slots are handed out lowest first and reused in the order in which they were freed.
 */

import type { Uuid } from "../../core/codec/did.ts";
import type { ExpirationBehavior } from "../../core/ledger/policy.ts";

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

export const behaviors: readonly ExpirationBehavior[] = ["DeleteOnExpiry", "KeepHeaderPreview", "TombstoneReference"];

export function growUint32(column: Uint32Array<ArrayBuffer>, slots: number): Uint32Array<ArrayBuffer> {
  const grown = new Uint32Array(Math.max(slots, column.length * 2));
  grown.set(column);
  return grown;
}

export class RowTable {
  status: Uint8Array<ArrayBuffer>;
  behavior: Uint8Array<ArrayBuffer>;
  recipient: Uint32Array<ArrayBuffer>;
  /** Four words a slot. */
  id: Uint32Array<ArrayBuffer>;
  /** Position in the order of arrival; cursors are made of it. */
  arrival: Float64Array<ArrayBuffer>;
  expiresAtMs: Float64Array<ArrayBuffer>;
  keptUntilMs: Float64Array<ArrayBuffer>;
  envelopeBytes: Uint32Array<ArrayBuffer>;
  previewBytes: Uint32Array<ArrayBuffer>;
  /** Number of the group, `none` for a message that is no chunk. */
  group: Uint32Array<ArrayBuffer>;
  sequence: Uint32Array<ArrayBuffer>;
  /** Number of the set of labels. */
  labels: Uint32Array<ArrayBuffer>;
  next: Uint32Array<ArrayBuffer>;
  previous: Uint32Array<ArrayBuffer>;

  private chain: Uint32Array<ArrayBuffer>;
  private buckets = new Uint32Array(2048).fill(none);
  private used = 0;
  /** Slots below this were handed out at least once. */
  private fresh = 0;
  private freed: number[] = [];
  private freedAt = 0;
  private readonly seed = crypto.getRandomValues(new Uint32Array(1))[0]!;

  constructor(private capacity = 1024) {
    this.status = new Uint8Array(capacity);
    this.behavior = new Uint8Array(capacity);
    this.recipient = new Uint32Array(capacity);
    this.id = new Uint32Array(capacity * 4);
    this.arrival = new Float64Array(capacity);
    this.expiresAtMs = new Float64Array(capacity);
    this.keptUntilMs = new Float64Array(capacity);
    this.envelopeBytes = new Uint32Array(capacity);
    this.previewBytes = new Uint32Array(capacity);
    this.group = new Uint32Array(capacity);
    this.sequence = new Uint32Array(capacity);
    this.labels = new Uint32Array(capacity);
    this.next = new Uint32Array(capacity);
    this.previous = new Uint32Array(capacity);
    this.chain = new Uint32Array(capacity);
  }

  /** Rows in any state but `free`. */
  get rows(): number {
    return this.used;
  }

  /** One more than the highest slot that was ever taken. */
  get slots(): number {
    return this.fresh;
  }

  find(recipient: number, words: IdWords): number {
    let slot = this.buckets[this.hash(recipient, words)]!;
    while (slot !== none && !this.matches(slot, recipient, words)) slot = this.chain[slot]!;
    return slot;
  }

  /** A free slot, now belonging to the id. The caller fills the other columns. */
  take(recipient: number, words: IdWords): number {
    const slot = this.freedAt < this.freed.length ? this.freed[this.freedAt++]! : this.fresh;
    if (this.freedAt > 4096 && this.freedAt * 2 > this.freed.length) {
      this.freed = this.freed.slice(this.freedAt);
      this.freedAt = 0;
    }
    this.place(slot, recipient, words);
    return slot;
  }

  /** Takes a particular slot, when rows are loaded. `listFree` must follow before the next `take`. */
  place(slot: number, recipient: number, words: IdWords): void {
    if (slot >= this.capacity) this.grow(slot + 1);
    if (slot >= this.fresh) this.fresh = slot + 1;
    if (++this.used > this.buckets.length) this.rehash();
    this.recipient[slot] = recipient;
    for (let i = 0; i < 4; i++) this.id[slot * 4 + i] = words[i]!;
    const bucket = this.hash(recipient, words);
    this.chain[slot] = this.buckets[bucket]!;
    this.buckets[bucket] = slot;
  }

  release(slot: number): void {
    this.forget(slot);
    this.freed.push(slot);
  }

  /** Takes the row out without listing its slot as free. */
  forget(slot: number): void {
    const bucket = this.hash(this.recipient[slot]!, this.words(slot));
    let at = this.buckets[bucket]!;
    if (at === slot) this.buckets[bucket] = this.chain[slot]!;
    else {
      while (this.chain[at] !== slot) at = this.chain[at]!;
      this.chain[at] = this.chain[slot]!;
    }
    this.status[slot] = free;
    this.used--;
  }

  /** Lists every gap among the loaded rows as free. */
  listFree(): void {
    this.freed = [];
    this.freedAt = 0;
    for (let slot = 0; slot < this.fresh; slot++) if (this.status[slot] === free) this.freed.push(slot);
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

  /** Senders choose ids, so the mix starts from a secret of this process: long chains can't be aimed at. */
  private hash(recipient: number, words: IdWords): number {
    let h = this.seed ^ recipient;
    for (let i = 0; i < 4; i++) {
      h = Math.imul(h ^ words[i]!, 0x9e3779b1);
      h = Math.imul(h ^ (h >>> 15), 0x85ebca77);
      h ^= h >>> 13;
    }
    return (h >>> 0) & (this.buckets.length - 1);
  }

  private rehash(): void {
    this.buckets = new Uint32Array(this.buckets.length * 2).fill(none);
    for (let slot = 0; slot < this.fresh; slot++) {
      if (this.status[slot] === free) continue;
      const bucket = this.hash(this.recipient[slot]!, this.words(slot));
      this.chain[slot] = this.buckets[bucket]!;
      this.buckets[bucket] = slot;
    }
  }

  private grow(slots: number): void {
    const to = Math.max(slots, this.capacity * 2);
    this.status = resized(this.status, new Uint8Array(to));
    this.behavior = resized(this.behavior, new Uint8Array(to));
    this.recipient = resized(this.recipient, new Uint32Array(to));
    this.id = resized(this.id, new Uint32Array(to * 4));
    this.arrival = resized(this.arrival, new Float64Array(to));
    this.expiresAtMs = resized(this.expiresAtMs, new Float64Array(to));
    this.keptUntilMs = resized(this.keptUntilMs, new Float64Array(to));
    this.envelopeBytes = resized(this.envelopeBytes, new Uint32Array(to));
    this.previewBytes = resized(this.previewBytes, new Uint32Array(to));
    this.group = resized(this.group, new Uint32Array(to));
    this.sequence = resized(this.sequence, new Uint32Array(to));
    this.labels = resized(this.labels, new Uint32Array(to));
    this.next = resized(this.next, new Uint32Array(to));
    this.previous = resized(this.previous, new Uint32Array(to));
    this.chain = resized(this.chain, new Uint32Array(to));
    this.capacity = to;
  }
}

function resized<T extends Uint8Array | Uint32Array | Float64Array>(from: T, to: T): T {
  to.set(from);
  return to;
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

export class ExpiryHeap {
  private heap = new Uint32Array(1024);
  private place = new Uint32Array(1024);
  private size = 0;

  /** `due[slot]` must not change while the slot is in the heap. */
  constructor(private readonly due: (slot: number) => number) {}

  /** The slot with the earliest time, or -1. */
  first(): number {
    return this.size === 0 ? -1 : this.heap[1]!;
  }

  push(slot: number): void {
    if (slot >= this.place.length) this.place = growUint32(this.place, slot + 1);
    this.size++;
    if (this.size >= this.heap.length) this.heap = growUint32(this.heap, this.size + 1);
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
    const time = this.due(slot);
    let at = from;
    while (at > 1) {
      const parent = at >> 1;
      const above = this.heap[parent]!;
      if (this.due(above) <= time) break;
      this.set(at, above);
      at = parent;
    }
    this.set(at, slot);
  }

  private sink(from: number, slot: number): void {
    const time = this.due(slot);
    let at = from;
    for (;;) {
      let child = at * 2;
      if (child > this.size) break;
      if (child < this.size && this.due(this.heap[child + 1]!) < this.due(this.heap[child]!)) child++;
      const below = this.heap[child]!;
      if (this.due(below) >= time) break;
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
