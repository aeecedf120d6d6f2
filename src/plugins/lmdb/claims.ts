/**
 * Replay claims: decided in memory, and written with the next commit, up to 256 claims as one record. The key of a
 * record is the end of its last claim (8 bytes) and its number (4); for each claim it holds the end, the length of the
 * tag and the tag. A record goes when its last claim has ended.
 * Memory: 11 to 21 bytes for each claim and 40 for each record; at most 16.8 million claims are known at a time, beyond
 * that new ones are refused as `full`. A start reads all of them, 0.7 µs each.
 */
import { type Replay, StoreError, type TagClaim } from "../../storage/contract.ts";
import { checkText } from "../drivers.ts";
import type { Batch } from "./commits.ts";
import type { Environment } from "./environment.ts";
import { orderedKey, orderedNumber, Reader, sealedUnder, unsealedUnder, Writer } from "./records.ts";
import { mixed } from "./rows.ts";

const claimsMax = 2 ** 24;
/** A claim that looks like an earlier one reads the record of that: at most about 0.1 ms. */
const claimsPerRecord = 256;
/** Claims that nobody waits for gather up to about this size before the next ones queue separately. */
const gatheredBytesMax = 64 * 1024;
const gatheredSize = { kind: "removal", bytes: 2 * gatheredBytesMax } as const;
const claimOverhead = 10;
const removal = { kind: "removal", bytes: 0 } as const;

type Claim = { readonly tag: Uint8Array; readonly untilMs: number };
type Gathered = { readonly claims: Claim[]; bytes: number; readonly written: Promise<void> };

export class Claims implements Replay {
  private readonly table = new ClaimTable();
  /** The ends of records by number. */
  private readonly ends = new Map<number, number>();
  private readonly seed = crypto.getRandomValues(new Uint32Array(1))[0]!;
  private lastNumber = 0;
  /** The ends of claims that are not on disk yet, by tag. */
  private readonly pending = new Map<string, number>();
  private gathered: Gathered | null = null;
  private atHand: { readonly batch: Batch; readonly claims: Claim[] } | null = null;

  constructor(
    private readonly environment: Environment,
    private readonly max = claimsMax,
  ) {
    for (const key of environment.keys("claims", { start: orderedKey(0), limit: Number.MAX_SAFE_INTEGER })) {
      const number = key.readUInt32BE(8);
      this.ends.set(number, orderedNumber(key));
      eachClaim(key, environment.borrow("claims", key)!, (_, tag) => this.table.add(this.hash(tag), number));
    }
  }

  async claim(tag: string, untilMs: number, nowMs: number): Promise<boolean> {
    const written = this.win({ tag, untilMs }, nowMs, (claim) => this.gather(claim));
    if (written === null) return false;
    this.environment.beginCommit();
    await written;
    return true;
  }

  /** The same in a commit that the caller joins, which `write`s the claim; `null` while an earlier one lasts. */
  winWithin<T>(claim: TagClaim, nowMs: number, join: (write: (batch: Batch) => void) => Promise<T>): Promise<T> | null {
    return this.win(claim, nowMs, (won) => join((batch) => this.write(batch, won)));
  }

  private win<T>({ tag, untilMs }: TagClaim, nowMs: number, join: (claim: Claim) => Promise<T>): Promise<T> | null {
    checkText("tag", tag);
    if ((this.pending.get(tag) ?? 0) > nowMs) return null;
    const claim = { tag: encodeTag(tag), untilMs };
    if (this.stands(claim.tag, nowMs)) return null;
    if (this.table.size + this.pending.size >= this.max) {
      throw new StoreError("full", `the store knows ${this.max} claims`);
    }
    const joined = join(claim);
    this.pending.set(tag, untilMs);
    const end = () => {
      if (this.pending.get(tag) === untilMs) this.pending.delete(tag);
    };
    joined.then(end, end);
    return joined;
  }

  /** Whether a claim of the tag on the disk lasts. One that has ended is no longer known. */
  private stands(tag: Uint8Array, nowMs: number): boolean {
    const hash = this.hash(tag);
    for (const number of this.table.records(hash)) {
      const untilMs = this.endOf(number, tag);
      if (untilMs > nowMs) return true;
      if (untilMs > 0) this.table.remove(hash, number);
    }
    return false;
  }

  /** When the claim of a tag in a record ends; 0 when the record holds another tag of this hash, or is not on disk. */
  private endOf(number: number, tag: Uint8Array): number {
    const key = recordKey(this.ends.get(number) ?? 0, number);
    const record = this.environment.borrow("claims", key);
    let found = 0;
    if (record !== null) {
      eachClaim(key, record, (untilMs, one) => {
        if (Buffer.compare(one, tag) === 0) found = untilMs;
      });
    }
    return found;
  }

  /** Adds to what goes with the next commit. */
  private gather(claim: Claim): Promise<void> {
    if (this.gathered === null || this.gathered.bytes > gatheredBytesMax) this.gathered = this.newGathered();
    this.gathered.claims.push(claim);
    this.gathered.bytes += claim.tag.length + claimOverhead;
    return this.gathered.written;
  }

  private newGathered(): Gathered {
    const claims: Claim[] = [];
    const end = () => {
      if (this.gathered?.claims === claims) this.gathered = null;
    };
    const written = this.environment.joinLazily(gatheredSize, (batch) => {
      end();
      for (const claim of claims) this.write(batch, claim);
    });
    // Refused, as on a full disk.
    written.catch(end);
    return { claims, bytes: 0, written };
  }

  private write(batch: Batch, claim: Claim): void {
    if (this.atHand?.batch !== batch) {
      const claims: Claim[] = [];
      this.atHand = { batch, claims };
      batch.whenDecided(() => this.writeRecords(batch, claims));
    }
    this.atHand.claims.push(claim);
  }

  private writeRecords(batch: Batch, claims: readonly Claim[]): void {
    for (let at = 0; at < claims.length; at += claimsPerRecord) {
      this.writeRecord(batch, claims.slice(at, at + claimsPerRecord));
    }
  }

  private writeRecord(batch: Batch, claims: readonly Claim[]): void {
    do this.lastNumber = (this.lastNumber + 1) >>> 0;
    while (this.lastNumber === 0 || this.ends.has(this.lastNumber));
    const [key, record] = claimRecord(claims, this.lastNumber);
    batch.put("claims", key, record);
    this.ends.set(this.lastNumber, orderedNumber(key));
    for (const { tag } of claims) this.table.add(this.hash(tag), this.lastNumber);
  }

  /** Looks first without a commit: mostly nothing has ended. */
  async expire(nowMs: number, limit: number): Promise<number> {
    const range = { start: orderedKey(0), end: orderedKey(nowMs + 1), limit };
    if (limit <= 0 || this.environment.keys("claims", { ...range, limit: 1 }).length === 0) return 0;
    return this.environment.join(removal, (batch) => {
      let freed = 0;
      for (const key of this.environment.keys("claims", range)) {
        if (freed === limit) break;
        freed += this.forget(batch, key, limit - freed);
      }
      return freed;
    });
  }

  /** Forgets claims of a record, at most `limit`, and the record with its last claim. */
  private forget(batch: Batch, key: Buffer, limit: number): number {
    const number = key.readUInt32BE(8);
    const hashes: number[] = [];
    eachClaim(key, this.environment.borrow("claims", key)!, (_, tag) => void hashes.push(this.hash(tag)));
    let [at, freed] = [0, 0];
    // One that was forgotten before, or claimed again later, is not there under this number.
    for (; at < hashes.length && freed < limit; at++) if (this.table.remove(hashes[at]!, number)) freed++;
    if (at < hashes.length) return freed;
    this.ends.delete(number);
    batch.remove("claims", key);
    return freed;
  }

  /** Clients choose tags, so the mix starts from a secret of this process: long searches can't be aimed at. */
  private hash(tag: Uint8Array): number {
    let [h, at] = [this.seed, 0];
    for (; at + 4 <= tag.length; at += 4) {
      h = mixed(h, tag[at]! | (tag[at + 1]! << 8) | (tag[at + 2]! << 16) | (tag[at + 3]! << 24));
    }
    for (; at < tag.length; at++) h = mixed(h, tag[at]!);
    return h >>> 0;
  }
}

// ------------------------------------------------------------------------------------------------------------ records

function recordKey(untilMs: number, number: number): Buffer {
  const key = Buffer.allocUnsafe(12);
  orderedKey(untilMs).copy(key);
  key.writeUInt32BE(number, 8);
  return key;
}

/** A record of claims with its key. */
function claimRecord(claims: readonly Claim[], number: number): readonly [Buffer, Uint8Array] {
  const writer = new Writer(claims.length * 96);
  let endMs = 0;
  for (const { tag, untilMs } of claims) {
    if (untilMs > endMs) endMs = untilMs;
    writer.u53(untilMs);
    writer.u16(tag.length);
    writer.bytes(tag);
  }
  const key = recordKey(endMs, number);
  return [key, sealedUnder(key, writer.finish())];
}

/** Calls `each` with the end and the tag of every claim of a record. */
export function eachClaim(key: Uint8Array, record: Uint8Array, each: (untilMs: number, tag: Uint8Array) => void): void {
  const what = "a record of claims";
  const reader = new Reader(unsealedUnder(key, record, what), what);
  while (!reader.done) each(reader.u53(), reader.bytes(reader.u16()));
}

/** A text that is no sequence of characters can't be UTF-8. The first letter says which it is, so that no two tags meet. */
function encodeTag(tag: string): Uint8Array {
  return tag.isWellFormed() ? Buffer.from(`8${tag}`) : Buffer.from(`6${tag}`, "utf16le");
}

export function decodeTag(bytes: Uint8Array): string {
  const isUtf8 = bytes[0] === 0x38;
  return Buffer.from(bytes)
    .toString(isUtf8 ? "utf8" : "utf16le")
    .slice(1);
}

// -------------------------------------------------------------------------------------------------------------- table

const partBits = 6;
const noRecords: readonly number[] = [];
type Part = { slots: Uint32Array; used: number };

/**
 * From the hash of a tag to the records that may hold it: open addressing in parts, so that none takes long to grow.
 * A slot is the hash and the number of a record, which is never 0.
 */
class ClaimTable {
  size = 0;
  private readonly parts: readonly Part[] = Array.from({ length: 2 ** partBits }, () => ({
    slots: new Uint32Array(64),
    used: 0,
  }));

  private part(hash: number): Part {
    return this.parts[hash >>> (32 - partBits)]!;
  }

  records(hash: number): readonly number[] {
    const { slots } = this.part(hash);
    const mask = slots.length / 2 - 1;
    let found = noRecords;
    for (let at = hash & mask; slots[2 * at + 1] !== 0; at = (at + 1) & mask) {
      if (slots[2 * at] === hash) found = [...found, slots[2 * at + 1]!];
    }
    return found;
  }

  add(hash: number, record: number): void {
    const part = this.part(hash);
    if (++part.used * 8 > part.slots.length * 3) resize(part, part.slots.length * 2);
    put(part.slots, hash, record);
    this.size++;
  }

  /** Answers whether it was there. */
  remove(hash: number, record: number): boolean {
    const part = this.part(hash);
    const { slots } = part;
    const mask = slots.length / 2 - 1;
    let hole = hash & mask;
    while (slots[2 * hole] !== hash || slots[2 * hole + 1] !== record) {
      if (slots[2 * hole + 1] === 0) return false;
      hole = (hole + 1) & mask;
    }
    for (let at = (hole + 1) & mask; slots[2 * at + 1] !== 0; at = (at + 1) & mask) {
      // Whatever was pushed over the hole moves back into it.
      if (((at - slots[2 * at]!) & mask) < ((at - hole) & mask)) continue;
      slots.copyWithin(2 * hole, 2 * at, 2 * at + 2);
      hole = at;
    }
    slots[2 * hole + 1] = 0;
    this.size--;
    if (--part.used * 24 < slots.length) resize(part, slots.length / 2);
    return true;
  }
}

function put(slots: Uint32Array, hash: number, record: number): void {
  const mask = slots.length / 2 - 1;
  let at = hash & mask;
  while (slots[2 * at + 1] !== 0) at = (at + 1) & mask;
  slots[2 * at] = hash;
  slots[2 * at + 1] = record;
}

function resize(part: Part, length: number): void {
  const from = part.slots;
  part.slots = new Uint32Array(length);
  for (let at = 0; at < from.length; at += 2) if (from[at + 1] !== 0) put(part.slots, from[at]!, from[at + 1]!);
}
