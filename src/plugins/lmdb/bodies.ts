/**
 * Bodies and blocks: the bytes of entries, packed in the order of their arrival into records of
 * about 8 KiB, or one record for a single larger entry. What a synced transaction costs is the
 * number of scattered pages that it touches, so the bytes of all entries of a commit lie side by
 * side. A block goes when no row needs a body in it. While entries that wait keep many blocks of
 * which they need less than a quarter, their bodies are packed anew, some after each sweep. Memory:
 * about 50 bytes for each block.
 */
import type { StoreEnvironment } from "../../storage/contract.ts";
import { type RowTable, retained } from "../../storage/mailbox-rows.ts";
import type { CommitBatch, Environment } from "./environment.ts";
import { bodyAt, bodyBytes, orderedKey, orderedNumber, writeBody } from "./records.ts";

/**
 * Two pages of the file, less what LMDB puts in front: a read touches the block, a write pays for
 * each.
 */
const blockBytesAim = 2 * 4_096 - 16;
/**
 * A block of which less is needed is sparse, and packed anew once there are so many; so many blocks
 * and rows at a time.
 */
const sparseBytes = blockBytesAim / 4;
const sparseMin = 64;
const packedPerCommit = 128;
const movedPerCommit = 512;
/** Freeing touches scattered pages: it waits until so many are not needed, or for a sweep. */
const blocksFreedPerCommit = 512;
/**
 * While the disk is full: each may be on a page of its own, which is written to a free one. Where
 * few of these can be used, the reserve has room for so many.
 */
const blocksFreedWhenTight = 64;
const freePagesPerBlock = 2;

/** Bodies are written into it one after the other. */
type NewBlock = { readonly view: DataView<ArrayBuffer>; used: number };
/** Blocks of usual size whose memory is kept for later commits: 2 MiB. */
const spareMax = 256;

export class Bodies {
  /** By block: the bytes of the bodies that rows need. */
  private readonly needed = new Map<number, number>();
  /** Blocks of which little is needed. */
  private readonly sparse = new Set<number>();
  /** Blocks that no row needs any more. */
  private readonly unneeded = new Set<number>();
  /** Those of the commit that is being decided. */
  private blocks: NewBlock[] = [];
  /** The memory of earlier commits, which are on disk when the next one is decided. */
  private readonly spare: NewBlock[] = [];
  /** The number of its first block. */
  private next = 1;
  /** Of the block that is being read. */
  private readonly key = orderedKey(0);

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
    for (let slot = 0; slot < rows.slots; slot++) if (rows.needsBody(slot)) this.need(slot);
    for (const [block, bytes] of needed) this.noteSparse(block, bytes);
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
    const bytes = bodyBytes(preview.length, envelope.length);
    const block = this.blockFor(bytes);
    rows.block[slot] = this.next + this.blocks.length - 1;
    rows.offset[slot] = block.used;
    writeBody(block.view, block.used, { words: rows.words(slot), preview, envelope });
    block.used += bytes;
    this.need(slot);
  }

  /** The last block of the commit when it has room for so many bytes, or a new one. */
  private blockFor(bytes: number): NewBlock {
    const last = this.blocks.at(-1);
    if (last !== undefined && last.used + bytes <= last.view.byteLength) return last;
    const block = (bytes <= blockBytesAim ? this.spare.pop() : undefined) ?? newBlock(bytes);
    this.blocks.push(block);
    return block;
  }

  private need(slot: number): void {
    const block = this.rows.block[slot]!;
    this.needed.set(block, (this.needed.get(block) ?? 0) + this.bytesOf(slot));
    // The unfinished block may have lost all its bodies within the commit, before this one.
    this.unneeded.delete(block);
  }

  /** What a row needs of its block. */
  private bytesOf(slot: number): number {
    const { rows } = this;
    const preview = rows.hasPreview(slot) ? rows.previewBytes[slot]! : 0;
    return bodyBytes(preview, rows.status[slot] === retained ? 0 : rows.envelopeBytes[slot]!);
  }

  /** The body of a row is not needed any more. */
  release(slot: number): void {
    const block = this.rows.block[slot]!;
    if (this.needLess(block, this.bytesOf(slot)) > 0) return;
    // Each body has a header: without a byte, no row is left.
    this.needed.delete(block);
    this.sparse.delete(block);
    this.unneeded.add(block);
  }

  /** Of a held row only the preview is needed from now on. */
  releaseEnvelope(slot: number): void {
    this.needLess(this.rows.block[slot]!, this.rows.envelopeBytes[slot]!);
  }

  /** Returns the bytes that are still needed. */
  private needLess(block: number, bytes: number): number {
    const left = this.needed.get(block)! - bytes;
    this.needed.set(block, left);
    this.noteSparse(block, left);
    return left;
  }

  private noteSparse(block: number, bytes: number): void {
    if (bytes < sparseBytes) this.sparse.add(block);
  }

  get areManySparse(): boolean {
    return this.sparse.size >= sparseMin;
  }

  /**
   * Packs what is needed of sparse blocks behind the bodies of the commit; calls `onMove` with each
   * row that moves. Cost: a look at each row, 10 ms for a million.
   */
  pack(onMove: (slot: number) => void): void {
    const { rows } = this;
    const packed = new Set<number>();
    for (const block of this.sparse) {
      this.sparse.delete(block);
      if (this.isMostlyUnneeded(block)) packed.add(block);
      if (packed.size >= packedPerCommit) break;
    }
    if (packed.size === 0) return;
    let moved = 0;
    for (let slot = 0; slot < rows.slots && moved < movedPerCommit; slot++) {
      if (!rows.needsBody(slot) || !packed.has(rows.block[slot]!) || !this.move(slot)) continue;
      onMove(slot);
      moved++;
    }
    for (const block of packed) if (this.needed.has(block)) this.sparse.add(block);
  }

  /**
   * A block that a small commit made is small, and not sparse; one of this commit is not there yet.
   */
  private isMostlyUnneeded(block: number): boolean {
    const bytes = this.environment.borrow("blocks", orderedKey(block));
    return bytes !== null && this.needed.get(block)! < bytes.length / 4;
  }

  /** `false` for a damaged body: it stays where it is. */
  private move(slot: number): boolean {
    const bytes = this.environment.borrow("blocks", orderedKey(this.rows.block[slot]!));
    const body = bytes === null ? null : bodyAt(bytes, this.rows.offset[slot]!);
    if (!body?.isIntact || !this.rows.hasId(slot, body.words)) return false;
    const isCut = this.rows.status[slot] === retained;
    this.release(slot);
    this.add(slot, body.preview, isCut ? noBytes : body.envelope);
    return true;
  }

  /** Writes the blocks of the commit, after all its decisions. */
  finish(batch: CommitBatch): void {
    for (const block of this.blocks) {
      const { view, used } = block;
      batch.add("blocks", orderedKey(this.next++), new Uint8Array(view.buffer, 0, used));
      block.used = 0;
      if (view.byteLength === blockBytesAim && this.spare.length < spareMax) this.spare.push(block);
    }
    this.blocks = [];
  }

  /** Before `finish`: frees blocks of earlier commits that no row needs, a bounded number. */
  free(batch: CommitBatch): void {
    let freed = 0;
    const most = this.environment.isTight ? this.freedWhenTight() : blocksFreedPerCommit;
    for (const block of this.unneeded) {
      if (block >= this.next) continue;
      if (freed++ >= most) return;
      batch.remove("blocks", orderedKey(block));
      this.unneeded.delete(block);
    }
  }

  private freedWhenTight(): number {
    const usable = this.environment.usablePageBytes() / 4_096 / freePagesPerBlock;
    return Math.min(Math.max(Math.floor(usable), blocksFreedWhenTight), blocksFreedPerCommit);
  }

  /**
   * A part of the bodies of rows, `null` for one that is damaged: it is logged, and others go on.
   */
  read(slots: readonly number[], part: "envelope" | "preview"): (Uint8Array | null)[] {
    const { rows, key } = this;
    let [block, bytes]: [number, Uint8Array | null] = [-1, null];
    return slots.map((slot) => {
      if (rows.block[slot]! !== block) {
        block = rows.block[slot]!;
        bytes = this.environment.borrow("blocks", orderedKey(block, key));
      }
      const body = bytes === null ? null : bodyAt(bytes, rows.offset[slot]!);
      if (body?.isIntact && rows.hasId(slot, body.words)) return body.copyOf(part);
      this.log("error", "a stored message is damaged", { block, offset: rows.offset[slot]! });
      return null;
    });
  }
}

function newBlock(bytes: number): NewBlock {
  return { view: new DataView(new ArrayBuffer(Math.max(bytes, blockBytesAim))), used: 0 };
}

const noBytes = new Uint8Array(0);
