/**
 * Replay claims: decided in memory, and written with the next commit, up to 256 claims as one record. The key of a
 * record is the end of its last claim (8 bytes) and its number (4); for each claim it holds the end, the length of the
 * tag and the tag. A record goes when its last claim has ended.
 * Memory: about 200 bytes for each claim; at most 4.2 million claims are known at a time, beyond that new ones are
 * refused as `full`. A start reads all of them.
 */
import { type Replay, StoreError, type TagClaim } from "../../storage/contract.ts";
import { checkText } from "../drivers.ts";
import type { Batch } from "./commits.ts";
import type { Environment } from "./environment.ts";
import { orderedKey, Reader, sealedUnder, unsealedUnder, Writer } from "./records.ts";

const claimsMax = 2 ** 22;
const claimsPerRecord = 256;
const claimOverhead = 10;
const removal = { kind: "removal", bytes: 0 } as const;

export class Claims implements Replay {
  /** When the last claim of each tag ends, on the disk or on its way there. */
  private readonly ends = new Map<string, number>();
  private lastNumber = 0;
  /** The latest end of a claim that was forgotten. */
  private forgottenMs: number;
  /** Claims of the commit that is being decided. */
  private deciding: { readonly batch: Batch; readonly claims: TagClaim[] } | null = null;

  constructor(
    private readonly environment: Environment,
    private readonly max = claimsMax,
  ) {
    const forgotten = environment.get("meta", forgottenKey);
    this.forgottenMs = forgotten === null ? 0 : decodeForgotten(forgotten);
    for (const key of environment.keys("claims", { start: orderedKey(0), limit: Number.MAX_SAFE_INTEGER })) {
      this.lastNumber = Math.max(this.lastNumber, key.readUInt32BE(8));
      for (const { tag, untilMs } of claimsIn(key, environment.borrow("claims", key)!)) {
        if (untilMs > (this.ends.get(tag) ?? 0)) this.ends.set(tag, untilMs);
      }
    }
  }

  async claim(tag: string, untilMs: number, nowMs: number): Promise<boolean> {
    const size = { kind: "removal", bytes: tag.length + claimOverhead } as const;
    const written = this.winWithin({ tag, untilMs }, nowMs, (write) => this.environment.join(size, write));
    await written;
    return written !== null;
  }

  /** Claims in a commit that the caller joins, which `write`s the claim; `null` while an earlier one lasts. */
  winWithin<T>(claim: TagClaim, nowMs: number, join: (write: (batch: Batch) => void) => Promise<T>): Promise<T> | null {
    const { tag, untilMs } = claim;
    checkText("tag", tag);
    if (untilMs <= this.forgottenMs) return null;
    const before = this.ends.get(tag);
    if (before !== undefined && before > nowMs) return null;
    if (before === undefined && this.ends.size >= this.max) {
      throw new StoreError("full", `the store knows ${this.max} claims`);
    }
    const joined = join((batch) => this.write(batch, claim));
    this.ends.set(tag, untilMs);
    // Refused, as on a full disk: the tag is free again.
    joined.catch(() => {
      if (this.ends.get(tag) === untilMs) this.ends.delete(tag);
    });
    return joined;
  }

  private write(batch: Batch, claim: TagClaim): void {
    if (this.deciding?.batch !== batch) {
      const claims: TagClaim[] = [];
      this.deciding = { batch, claims };
      batch.whenDecided(() => this.writeRecords(batch, claims));
    }
    this.deciding.claims.push(claim);
  }

  private writeRecords(batch: Batch, claims: readonly TagClaim[]): void {
    for (let at = 0; at < claims.length; at += claimsPerRecord) {
      this.lastNumber = (this.lastNumber + 1) >>> 0;
      const [key, record] = claimRecord(claims.slice(at, at + claimsPerRecord), this.lastNumber);
      batch.put("claims", key, record);
    }
  }

  /** Looks first without a commit: mostly nothing has ended. */
  async expire(nowMs: number, limit: number): Promise<number> {
    const range = { start: orderedKey(0), end: orderedKey(nowMs + 1), limit };
    if (limit <= 0 || this.environment.keys("claims", { ...range, limit: 1 }).length === 0) return 0;
    return this.environment.join(removal, (batch) => {
      let freed = 0;
      for (const key of this.environment.keys("claims", range)) {
        if (freed === limit) break;
        freed += this.forget(batch, key, { nowMs, limit: limit - freed });
      }
      batch.put("meta", forgottenKey, encodeForgotten(this.forgottenMs));
      return freed;
    });
  }

  /** Forgets claims of a record, at most `limit`, and the record with its last claim. */
  private forget(batch: Batch, key: Buffer, { nowMs, limit }: { nowMs: number; limit: number }): number {
    let freed = 0;
    for (const { tag } of claimsIn(key, this.environment.borrow("claims", key)!)) {
      // A tag that was forgotten before, or claimed again later, is not this record's.
      const endMs = this.ends.get(tag) ?? Number.POSITIVE_INFINITY;
      if (endMs > nowMs) continue;
      if (freed === limit) return freed;
      this.forgottenMs = Math.max(this.forgottenMs, endMs);
      this.ends.delete(tag);
      freed++;
    }
    batch.remove("claims", key);
    return freed;
  }
}

const forgottenKey = Buffer.from("claims forgotten");

function encodeForgotten(untilMs: number): Uint8Array {
  const writer = new Writer(8);
  writer.u53(untilMs);
  return sealedUnder(forgottenKey, writer.finish());
}

function decodeForgotten(record: Uint8Array): number {
  const what = "the end of the claims that were forgotten";
  return new Reader(unsealedUnder(forgottenKey, record, what), what).u53();
}

/** A record of claims with its key. */
function claimRecord(claims: readonly TagClaim[], number: number): readonly [Buffer, Uint8Array] {
  const writer = new Writer(claims.length * 96);
  let endMs = 0;
  for (const { tag, untilMs } of claims) {
    if (untilMs > endMs) endMs = untilMs;
    const bytes = encodeTag(tag);
    writer.u53(untilMs);
    writer.u16(bytes.length);
    writer.bytes(bytes);
  }
  const key = Buffer.concat([orderedKey(endMs), Buffer.alloc(4)]);
  key.writeUInt32BE(number, 8);
  return [key, sealedUnder(key, writer.finish())];
}

export function claimsIn(key: Uint8Array, record: Uint8Array): TagClaim[] {
  const what = "a record of claims";
  const reader = new Reader(unsealedUnder(key, record, what), what);
  const claims: TagClaim[] = [];
  while (!reader.done) {
    const untilMs = reader.u53();
    claims.push({ untilMs, tag: decodeTag(reader.bytes(reader.u16())) });
  }
  return claims;
}

const utf8Mark = "8".charCodeAt(0);

/** Ill-formed UTF-16 has no UTF-8 form. A prefix byte marks it, so that encodings never collide. */
function encodeTag(tag: string): Uint8Array {
  return tag.isWellFormed() ? Buffer.from(`8${tag}`) : Buffer.from(`6${tag}`, "utf16le");
}

function decodeTag(bytes: Uint8Array): string {
  const text = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length);
  return bytes[0] === utf8Mark ? text.toString("utf8", 1) : text.toString("utf16le", 2);
}
