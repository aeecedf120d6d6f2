/**
 * The rows of a mailbox: everything known of an entry but its bytes, in typed arrays by
 * slot number, with a hash index from (recipient, message id) to the slot. A million rows
 * take 117 MB here; a million objects with their strings would take 300 and the collector's
 * time. Recipients, label sets and chunk groups are numbers of interned texts
 * (mailbox-recipients.ts).
 */
import { concatBytes } from "../core/codec/bytes.ts";
import type { Uuid } from "../core/codec/did.ts";
import { type ExpirationBehavior, expirationBehaviors } from "../core/ledger/account.ts";

export const none = 0xffffffff;

/** The life of a row. */
export const free = 0;
/** Held for the recipient until its expiry. */
export const held = 1;
/** Acknowledged; the id is remembered until the expiry. */
export const acked = 2;
/** Expired and cut down to what its expiration behavior retains. */
export const retained = 3;
/**
 * No id names the slot any more; it lies in the heap of ends until its time comes, and is
 * free then.
 */
export const released = 4;

export const behaviors: readonly ExpirationBehavior[] = expirationBehaviors;

const firstCapacity = 1_024;
/** Rows for each bucket of the hash index, at most. */
const loadMax = 1.5;

type Elements =
  | Float64Array<ArrayBuffer>
  | Uint32Array<ArrayBuffer>
  | Uint16Array<ArrayBuffer>
  | Uint8Array<ArrayBuffer>;

/**
 * The same array with so many elements. Its former memory is free at once, and not when the
 * collector runs.
 */
export function resized<T extends Elements>(from: T, length: number): T {
  const Kind = from.constructor as new (buffer: ArrayBuffer) => T;
  return new Kind(from.buffer.transfer(length * from.BYTES_PER_ELEMENT));
}

/** What is kept of a row on disk, in this order: 98 bytes. */
const keptArrays = [
  ...([
    "arrival",
    "expiresAtMs",
    "keptUntilMs",
    "block",
    "id",
    "digest",
    "recipient",
    "labels",
    "group",
  ] as const),
  ...([
    "sequence",
    "total",
    "envelopeBytes",
    "previewBytes",
    "offset",
    "status",
    "behavior",
  ] as const),
];
const arrays = [...keptArrays, ...(["next", "previous", "chain"] as const)];
/** Elements for each slot. */
const widthOf = (name: (typeof arrays)[number]): number =>
  name === "id" || name === "digest" ? 4 : 1;

/** Rows that are chained by `next` and `previous`; `none` for both ends without any. */
export type RowList = { first: number; last: number };

export class RowTable {
  /** Position in the order of arrival; cursors are made of it. */
  arrival = new Float64Array(firstCapacity);
  expiresAtMs = new Float64Array(firstCapacity);
  keptUntilMs = new Float64Array(firstCapacity);
  /** Number of the block that holds the body. */
  block = new Float64Array(firstCapacity);
  /** Four words a slot. */
  id = new Uint32Array(4 * firstCapacity);
  /** Of the envelope; four words a slot. */
  digest = new Uint32Array(4 * firstCapacity);
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
  /** Neighbours in the recipient's list. */
  next = new Uint32Array(firstCapacity);
  previous = new Uint32Array(firstCapacity);

  private capacity = firstCapacity;
  /** The next row of the same bucket. */
  private chain = new Uint32Array(firstCapacity);
  private buckets = new Uint32Array(firstCapacity).fill(none);
  private used = 0;
  /** Slots below this were handed out at least once. */
  private fresh = 0;
  /**
   * Those of them that are free. What is freed together is handed out together, and lies in
   * few index pages.
   */
  private freeSlots: number[] = [];
  private seed = crypto.getRandomValues(new Uint32Array(1))[0]!;

  /** Rows in any state but `free`. */
  get rows(): number {
    return this.used;
  }

  /** One more than the highest slot that was ever handed out. */
  get slots(): number {
    return this.fresh;
  }

  isUsed(slot: number): boolean {
    return slot < this.fresh && this.status[slot] !== free && this.status[slot] !== released;
  }

  find(recipient: number, words: IdWords): number {
    let slot = this.buckets[this.bucketOf(recipient, words[0], words[1], words[2], words[3])]!;
    while (slot !== none && !this.matches(slot, recipient, words)) slot = this.chain[slot]!;
    return slot;
  }

  /** Whether bytes of the row are needed: of a retained one those of its preview. */
  needsBody(slot: number): boolean {
    return this.status[slot] === held || (this.status[slot] === retained && this.hasPreview(slot));
  }

  /** Whether it keeps a preview that is not empty. */
  hasPreview(slot: number): boolean {
    return this.previewBytes[slot] !== none && this.previewBytes[slot] !== 0;
  }

  /** When the time of a row comes: its expiry, or the end of what is retained. */
  endMs(slot: number): number {
    const isRetained = this.status[slot] === retained || this.status[slot] === released;
    return isRetained ? this.keptUntilMs[slot]! : this.expiresAtMs[slot]!;
  }

  /** A free slot, now belonging to the id. The caller fills the other arrays. */
  add(recipient: number, words: IdWords): number {
    const slot = this.freeSlots.pop() ?? this.fresh;
    this.reserve(slot + 1);
    this.recipient[slot] = recipient;
    setWords(this.id, slot, words);
    if (++this.used > this.buckets.length * loadMax) this.rehash();
    const bucket = this.bucketAt(slot);
    this.chain[slot] = this.buckets[bucket]!;
    this.buckets[bucket] = slot;
    return slot;
  }

  /** The id is not found any more. */
  forget(slot: number): void {
    const bucket = this.bucketAt(slot);
    let at = this.buckets[bucket]!;
    if (at === slot) this.buckets[bucket] = this.chain[slot]!;
    else {
      while (this.chain[at] !== slot) at = this.chain[at]!;
      this.chain[at] = this.chain[slot]!;
    }
    this.status[slot] = released;
  }

  /** The slot of a forgotten id is free. */
  release(slot: number): void {
    this.status[slot] = free;
    this.used--;
    this.freeSlots.push(slot);
  }

  /** Makes room for slots below `slots`; those that were not handed out are free. */
  reserve(slots: number): void {
    this.expect(slots);
    if (slots > this.fresh) this.fresh = slots;
  }

  /** Memory for so many slots, and a quarter more when it grows. */
  expect(slots: number): void {
    if (slots <= this.capacity) return;
    this.capacity = Math.ceil(slots * 1.25);
    for (const name of arrays) {
      Object.assign(this, { [name]: resized(this[name], this.capacity * widthOf(name)) });
    }
  }

  /** The bytes of neighbouring rows as they are kept, or `null` where none is used. */
  bytesOf(first: number, count: number): Uint8Array | null {
    this.expect(first + count);
    if (!this.isAnyUsed(first, count)) return null;
    return concatBytes(...keptArrays.map((name) => this.memoryOf(name, first, count)));
  }

  private isAnyUsed(first: number, count: number): boolean {
    for (let slot = first; slot < first + count; slot++) if (this.isUsed(slot)) return true;
    return false;
  }

  /** Rows as `bytesOf` has returned them; `finishLoading` must follow. */
  load(first: number, count: number, bytes: Uint8Array): void {
    let at = 0;
    for (const memory of keptArrays.map((name) => this.memoryOf(name, first, count))) {
      memory.set(bytes.subarray(at, at + memory.length));
      at += memory.length;
    }
  }

  private memoryOf(name: (typeof keptArrays)[number], first: number, count: number): Uint8Array {
    const array = this[name];
    const bytes = array.BYTES_PER_ELEMENT * widthOf(name);
    return new Uint8Array(array.buffer, first * bytes, count * bytes);
  }

  /** After the arrays were loaded: finds the rows and the free slots. */
  finishLoading(): void {
    const { status, fresh } = this;
    for (let slot = fresh - 1; slot >= 0; slot--) {
      if (status[slot] === released) status[slot] = free;
      if (status[slot] === free) this.freeSlots.push(slot);
    }
    this.used = fresh - this.freeSlots.length;
    this.rehash();
  }

  append(slot: number, list: RowList): void {
    this.previous[slot] = list.last;
    this.next[slot] = none;
    if (list.last === none) list.first = slot;
    else this.next[list.last] = slot;
    list.last = slot;
  }

  unlink(slot: number, list: RowList): void {
    const [before, after] = [this.previous[slot]!, this.next[slot]!];
    if (before === none) list.first = after;
    else this.next[before] = after;
    if (after === none) list.last = before;
    else this.previous[after] = before;
  }

  words(slot: number, of: "id" | "digest" = "id"): IdWords {
    const [from, at] = [this[of], slot * 4];
    return [from[at]!, from[at + 1]!, from[at + 2]!, from[at + 3]!];
  }

  private matches(slot: number, recipient: number, words: IdWords): boolean {
    return this.recipient[slot] === recipient && this.hasId(slot, words);
  }

  /** Whether the message of a row has the id. */
  hasId(slot: number, words: IdWords): boolean {
    const { id } = this;
    const at = slot * 4;
    return (
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

  /**
   * Senders choose ids, so the mix starts from a secret of this process: long chains can't
   * be aimed at.
   */
  private bucketOf(recipient: number, a: number, b: number, c: number, d: number): number {
    return (
      mixed(mixed(mixed(mixed(this.seed ^ recipient, a), b), c), d) & (this.buckets.length - 1)
    );
  }

  private rehash(): void {
    let size = firstCapacity;
    while (size * loadMax < this.used) size *= 2;
    const buckets = resized(this.buckets, size).fill(none);
    this.buckets = buckets;
    const { chain, status, fresh } = this;
    for (let slot = 0; slot < fresh; slot++) {
      if (status[slot] === free || status[slot] === released) continue;
      const bucket = this.bucketAt(slot);
      chain[slot] = buckets[bucket]!;
      buckets[bucket] = slot;
    }
  }
}

/** A hash with one more word in it. */
function mixed(hash: number, word: number): number {
  let h = Math.imul(hash ^ word, 0x9e3779b1);
  h = Math.imul(h ^ (h >>> 15), 0x85ebca77);
  return h ^ (h >>> 13);
}

// ------------------------------------------------------------------------------------- message ids

/** A UUID as four big-endian words. */
export type IdWords = readonly [number, number, number, number];

/** Where the two digits of each byte stand in the text of an id. */
const digitPlaces = [0, 2, 4, 6, 9, 11, 14, 16, 19, 21, 24, 26, 28, 30, 32, 34];

/** The caller gives a UUID in its lower-case form. */
export function idWords(id: Uuid): IdWords {
  return [wordIn(id, 0), wordIn(id, 4), wordIn(id, 8), wordIn(id, 12)];
}

/** Four bytes from one on. Digit by digit: a text without hyphens costs more than the rest. */
function wordIn(id: Uuid, first: number): number {
  let word = 0;
  for (let n = first; n < first + 4; n++) {
    const place = digitPlaces[n]!;
    word = (word << 8) | (digitAt(id, place) << 4) | digitAt(id, place + 1);
  }
  return word >>> 0;
}

function digitAt(id: Uuid, place: number): number {
  const code = id.charCodeAt(place);
  return code < 97 ? code - 48 : code - 87;
}

/** The first sixteen bytes likewise. Without a view: making one costs more than the rest. */
export function wordsOf(bytes: Uint8Array): IdWords {
  return [wordAt(bytes, 0), wordAt(bytes, 4), wordAt(bytes, 8), wordAt(bytes, 12)];
}

function wordAt(bytes: Uint8Array, at: number): number {
  const high = (bytes[at]! << 24) | (bytes[at + 1]! << 16);
  return (high | (bytes[at + 2]! << 8) | bytes[at + 3]!) >>> 0;
}

/** Cheaper than to hand the array over to `set`. */
export function setWords(to: Uint32Array, slot: number, words: IdWords): void {
  for (let n = 0; n < 4; n++) to[4 * slot + n] = words[n]!;
}

/** The 16 bytes of an id. */
export function wordBytes(words: IdWords): Uint8Array {
  const view = new DataView(new ArrayBuffer(16));
  for (const [i, word] of words.entries()) view.setUint32(4 * i, word);
  return new Uint8Array(view.buffer);
}

const digits = Buffer.from("0123456789abcdef");
const idCharacters = Buffer.alloc(36, "-");

/** An id as text, in lower case. Put together from pieces, it would be eleven texts. */
export function idText(words: IdWords): Uuid {
  for (let n = 0; n < 16; n++) {
    const byte = words[n >> 2]! >>> (24 - 8 * (n & 3));
    idCharacters[digitPlaces[n]!] = digits[(byte >> 4) & 15]!;
    idCharacters[digitPlaces[n]! + 1] = digits[byte & 15]!;
  }
  return idCharacters.toString("latin1") as Uuid;
}

export function isSameId(a: IdWords, b: IdWords): boolean {
  return a[0] === b[0] && a[1] === b[1] && a[2] === b[2] && a[3] === b[3];
}
