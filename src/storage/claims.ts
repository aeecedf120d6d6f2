/**
 * Replay claims where one process owns the store; a driver with a disk writes them too. A
 * tag is found by 128 bits of its hash, in typed arrays: each small collection of the
 * runtime reads a map or list whole that was written since the last one, which took 10 ms
 * at 100,000 claims and 40 at 400,000.
 * Laws: `Replay` in storage/contract.ts.
 */
import TinyQueue from "tinyqueue";
import { sha256 } from "../core/codec/crypto.ts";
import { StoreError, type TagClaim } from "./contract.ts";
import { type IdWords, none, resized, setWords, wordsOf } from "./mailbox-rows.ts";
import { checkText } from "./records.ts";

const firstCapacity = 1_024;

/** What is claimed. Memory: about 45 bytes for each claim, at most twice that. */
export class Claims {
  /** Four words of a hash for each claim. */
  private names = new Uint32Array(4 * firstCapacity);
  private ends = new Float64Array(firstCapacity);
  /** The first claim of each bucket, and behind each claim the next; `none` at the end. */
  private buckets = new Uint32Array(firstCapacity).fill(none);
  private next = new Uint32Array(firstCapacity);
  /** Places below this were used at least once. */
  private fresh = 0;
  /** Those of them that have no claim now. */
  private readonly free: number[] = [];
  /** The first to end is in front. */
  private readonly queue = new TinyQueue<number>([], (a, b) => this.ends[a]! - this.ends[b]!);
  /** Clients choose tags: without it, long chains could be aimed at. */
  private readonly secret = crypto.randomUUID();

  constructor(private readonly max: number) {}

  /** When the first claim ends; infinite without any. */
  get firstEndMs(): number {
    const first = this.queue.peek();
    return first === undefined ? Number.POSITIVE_INFINITY : this.ends[first]!;
  }

  claim({ tag, untilMs }: TagClaim, nowMs: number): boolean {
    checkText("tag", tag);
    const name = this.nameOf(tag);
    const before = this.find(name);
    if (before !== none && this.ends[before]! > nowMs) return false;
    if (before === none && this.queue.length >= this.max) {
      throw new StoreError("full", `the store knows ${this.max} claims`);
    }
    this.enter(name, before, untilMs);
    return true;
  }

  add({ tag, untilMs }: TagClaim): void {
    const name = this.nameOf(tag);
    this.enter(name, this.find(name), untilMs);
  }

  /** Forgets claims that have ended, at most `limit`; returns how many. */
  expire(nowMs: number, limit: number): number {
    let freed = 0;
    while (freed < limit && this.firstEndMs <= nowMs) {
      const place = this.queue.pop()!;
      // A tag that was claimed again ends later.
      if (this.find(this.nameAt(place)) === place) freed++;
      this.leave(place);
    }
    return freed;
  }

  /** As UTF-16, in which different texts have different bytes. */
  private nameOf(tag: string): IdWords {
    return wordsOf(sha256(Buffer.from(this.secret + tag, "utf16le")));
  }

  private nameAt(place: number): IdWords {
    const { names } = this;
    const at = 4 * place;
    return [names[at]!, names[at + 1]!, names[at + 2]!, names[at + 3]!];
  }

  private bucketAt(place: number): number {
    return this.names[4 * place]! & (this.buckets.length - 1);
  }

  /** The claim of a name that ends last; `none` without any. */
  private find([a, b, c, d]: IdWords): number {
    const { names, ends, next } = this;
    let found = none;
    let place = this.buckets[a & (this.buckets.length - 1)]!;
    for (; place !== none; place = next[place]!) {
      const at = 4 * place;
      const isSame =
        names[at] === a && names[at + 1] === b && names[at + 2] === c && names[at + 3] === d;
      if (isSame && (found === none || ends[place]! > ends[found]!)) found = place;
    }
    return found;
  }

  /** Unless the name is claimed so long already. */
  private enter(name: IdWords, before: number, untilMs: number): void {
    if (untilMs <= (before === none ? 0 : this.ends[before]!)) return;
    const place = this.free.pop() ?? this.freshPlace();
    setWords(this.names, place, name);
    this.ends[place] = untilMs;
    this.link(place);
    this.queue.push(place);
  }

  private freshPlace(): number {
    const place = this.fresh++;
    if (place < this.ends.length) return place;
    this.names = resized(this.names, 8 * place);
    this.ends = resized(this.ends, 2 * place);
    this.next = resized(this.next, 2 * place);
    this.buckets = resized(this.buckets, 2 * place).fill(none);
    for (let other = 0; other < place; other++) this.link(other);
    return place;
  }

  private link(place: number): void {
    const bucket = this.bucketAt(place);
    this.next[place] = this.buckets[bucket]!;
    this.buckets[bucket] = place;
  }

  private leave(place: number): void {
    const { buckets, next } = this;
    const bucket = this.bucketAt(place);
    let at = buckets[bucket]!;
    if (at === place) buckets[bucket] = next[place]!;
    else {
      while (next[at] !== place) at = next[at]!;
      next[at] = next[place]!;
    }
    this.free.push(place);
  }
}
