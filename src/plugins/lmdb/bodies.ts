/**
 * Bodies and blocks: the bytes of entries, packed in the order of their arrival into records of about 8 KiB,
 * or one record for a single larger entry. What a synced transaction costs is the number of scattered
 * pages that it touches, so the bytes of all entries of a commit lie side by side. A block goes when no row needs a body
 * in it: one entry that waits keeps up to 8 KiB on the disk, until it is acknowledged or expires.
 * Memory: about 50 bytes for each block.
 */
import { concatBytes } from "../../core/codec/bytes.ts";
import type { StoreEnvironment } from "../../storage/contract.ts";
import { isSameId, type RowTable } from "../../storage/mailbox-rows.ts";
import type { Batch, Environment } from "./environment.ts";
import { bodyAt, encodeBody, orderedKey, orderedNumber } from "./records.ts";

/** Two pages of the file, less what LMDB puts in front: a read touches the block, a write pays for each. */
const blockBytesAim = 2 * 4_096 - 16;
/** Freeing touches scattered pages: it waits until so many are not needed, or for a sweep. */
const blocksFreedPerCommit = 512;

export class Bodies {
  /** How many rows need each block. */
  private readonly needed = new Map<number, number>();
  /** Blocks that no row needs any more. */
  private readonly unneeded = new Set<number>();
  /** Bodies of the commit that is being decided, by block, and the bytes of the last block. */
  private blocks: Uint8Array[][] = [];
  private lastBytes = 0;
  /** The number of its first block. */
  private next = 1;

  constructor(
    private readonly environment: Environment,
    private readonly rows: RowTable,
    private readonly log: StoreEnvironment["log"],
  ) {}

  get areManyUnneeded(): boolean {
    return this.unneeded.size >= blocksFreedPerCommit;
  }

  /** Finds the blocks on disk, once the rows are loaded. Reads no body. */
  load(): void {
    const { rows, needed } = this;
    for (let slot = 0; slot < rows.slots; slot++)
      if (rows.needsBody(slot)) this.need(rows.block[slot]!);
    const missing = new Set(needed.keys());
    for (const key of this.environment.keys("blocks", {
      start: orderedKey(0),
      limit: Number.MAX_SAFE_INTEGER,
    })) {
      const block = orderedNumber(key);
      if (!missing.delete(block)) this.unneeded.add(block);
      this.next = block + 1;
    }
    // Their numbers are not used again.
    for (const block of missing) this.next = Math.max(this.next, block + 1);
    if (missing.size > 0)
      this.log("error", "blocks of messages are missing", { blocks: missing.size });
  }

  /** Packs the body of a row behind the others of the commit. */
  add(slot: number, preview: Uint8Array, envelope: Uint8Array): void {
    const { rows } = this;
    const body = encodeBody({ words: rows.words(slot), preview, envelope });
    if (this.blocks.length === 0 || this.lastBytes + body.length > blockBytesAim) {
      this.blocks.push([]);
      this.lastBytes = 0;
    }
    rows.block[slot] = this.next + this.blocks.length - 1;
    rows.offset[slot] = this.lastBytes;
    this.blocks.at(-1)!.push(body);
    this.lastBytes += body.length;
    this.need(rows.block[slot]);
  }

  private need(block: number): void {
    this.needed.set(block, (this.needed.get(block) ?? 0) + 1);
    // The unfinished block may have lost all its bodies within the commit, before this one.
    this.unneeded.delete(block);
  }

  /** The body of a row is not needed any more. */
  release(slot: number): void {
    const block = this.rows.block[slot]!;
    const others = this.needed.get(block)! - 1;
    if (others > 0) {
      this.needed.set(block, others);
      return;
    }
    this.needed.delete(block);
    this.unneeded.add(block);
  }

  /** Writes the blocks of the commit, after all its decisions. */
  finish(batch: Batch): void {
    for (const bodies of this.blocks) {
      const [only] = bodies;
      batch.put(
        "blocks",
        orderedKey(this.next++),
        bodies.length === 1 ? only! : concatBytes(...bodies),
      );
    }
    this.blocks = [];
  }

  /** Frees blocks that no row needs, a bounded number; after `finish`, because they may be of the same commit. */
  free(batch: Batch): void {
    let freed = 0;
    for (const block of this.unneeded) {
      if (freed++ >= blocksFreedPerCommit) return;
      batch.remove("blocks", orderedKey(block));
      this.unneeded.delete(block);
    }
  }

  /** A part of the bodies of rows, `null` for one that is damaged: it is logged, and others go on. */
  read(slots: readonly number[], part: "envelope" | "preview"): (Uint8Array | null)[] {
    const { block: blocks, offset: offsets } = this.rows;
    let [block, bytes]: [number, Uint8Array | null] = [-1, null];
    return slots.map((slot) => {
      if (blocks[slot]! !== block) {
        block = blocks[slot]!;
        bytes = this.environment.borrow("blocks", orderedKey(block));
      }
      const body = bytes === null ? null : bodyAt(bytes, offsets[slot]!);
      if (body?.isIntact && isSameId(body.words, this.rows.words(slot))) return body[part].slice();
      this.log("error", "a stored message is damaged", { block, offset: offsets[slot]! });
      return null;
    });
  }
}
