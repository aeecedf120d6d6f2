/**
 * Bodies and blocks: the bytes of entries, packed in the order of their arrival into records of about 8 KiB,
 * or one record for a single larger entry. What a synced transaction costs is the number of scattered
 * pages that it touches, so the bytes of all entries of a commit lie side by side. A block goes when no body in it is
 * needed; one that is mostly dead is emptied by moving the rest.
 * Memory: about 80 bytes for each block.
 */
import type { StoreEnvironment } from "../../storage/contract.ts";
import type { Batch } from "./commits.ts";
import type { Environment } from "./environment.ts";
import type { Journal } from "./journal.ts";
import {
  bodiesOf,
  bodyAt,
  bodyBytes,
  isSameId,
  orderedKey,
  orderedNumber,
  RecordWriter,
  writeBody,
} from "./records.ts";
import { expired, held, none, type RowTable, retained } from "./rows.ts";

/** Two pages of the file, less what LMDB puts in front: a read touches the block, a write pays for each. */
const blockBytesAim = 2 * 4_096 - 16;

/** The key of a block holds its size, so that opening a store reads no bodies. */
export function blockKey(number: number, size: number): Buffer {
  const key = Buffer.allocUnsafe(12);
  key.writeUInt32BE(Math.floor(number / 2 ** 32), 0);
  key.writeUInt32BE(number >>> 0, 4);
  key.writeUInt32BE(size, 8);
  return key;
}

/** The blocks on disk: the size of each, and how many of its bytes are still needed. */
class BlockTable {
  private readonly sizes = new Map<number, number>();
  private readonly live = new Map<number, number>();
  /** Blocks of which no byte is needed. */
  readonly empty = new Set<number>();
  /** Blocks that are mostly dead. */
  readonly sparse = new Set<number>();

  /** Mostly dead blocks take so much that a commit should empty some. */
  isWasteful(sparseBlocksMin: number): boolean {
    return this.sparse.size >= Math.max(sparseBlocksMin, this.sizes.size / 4);
  }

  /** 0 for a block that is not known. */
  size(block: number): number {
    return this.sizes.get(block) ?? 0;
  }

  /** A block is on disk, or will be with this commit. Its bodies were counted before. */
  add(block: number, size: number): void {
    this.sizes.set(block, size);
    this.classify(block, size);
  }

  count(block: number, bytes: number): void {
    this.live.set(block, (this.live.get(block) ?? 0) + bytes);
  }

  /** So many bytes of a block, which may still be unfinished, are not needed any more. */
  release(block: number, bytes: number): void {
    if (bytes === 0) return;
    this.count(block, -bytes);
    const size = this.sizes.get(block);
    if (size !== undefined) this.classify(block, size);
  }

  forget(block: number): void {
    for (const known of [this.sizes, this.live, this.empty, this.sparse]) known.delete(block);
  }

  /** Blocks that rows name but the disk lacks. */
  missing(): number[] {
    return [...this.live.keys()].filter((block) => !this.sizes.has(block));
  }

  private classify(block: number, size: number): void {
    const needed = this.live.get(block) ?? 0;
    if (needed <= 0) {
      this.sparse.delete(block);
      this.empty.add(block);
    } else if (needed * 2 < size) this.sparse.add(block);
  }
}

const blocksFreedPerCommit = 512;
const bytesMovedPerCommit = 1024 * 1024;

export class Bodies {
  readonly blocks = new BlockTable();
  /** Bodies of the commit that is being decided, and where its finished blocks end. All commits share the memory. */
  private readonly writer = new RecordWriter(64 * 1024);
  private ends: number[] = [];
  /** The number of its first block. */
  private next = 1;
  /** Blocks that hold a damaged body: they are left as they are. */
  private readonly damaged = new Set<number>();

  constructor(
    private readonly environment: Environment,
    private readonly rows: RowTable,
    private readonly log: StoreEnvironment["log"],
  ) {}

  /** A commit begins. */
  begin(): void {
    this.writer.reset();
    this.ends = [];
  }

  /** Finds the blocks on disk, once the rows are loaded. Reads no body. */
  load(): void {
    const { slots, block } = this.rows;
    // Neighbours lie in one block.
    let [current, bytes] = [-1, 0];
    for (let slot = 0; slot < slots; slot++) {
      if (block[slot] !== current) {
        if (bytes > 0) this.blocks.count(current, bytes);
        current = block[slot]!;
        bytes = 0;
      }
      bytes += this.liveBytes(slot);
    }
    if (bytes > 0) this.blocks.count(current, bytes);
    const all = { start: orderedKey(0), limit: Number.MAX_SAFE_INTEGER };
    for (const key of this.environment.keys("blocks", all)) {
      const number = orderedNumber(key);
      this.blocks.add(number, key.readUInt32BE(8));
      this.next = number + 1;
    }
    const missing = this.blocks.missing();
    // Their numbers are not used again.
    for (const number of missing) this.next = Math.max(this.next, number + 1);
    if (missing.length > 0) this.log("error", "blocks of messages are missing", { blocks: missing.length });
  }

  /** Packs the body of a row behind the others of the commit. */
  add(slot: number, preview: Uint8Array, envelope: Uint8Array): void {
    const { rows, writer } = this;
    const size = bodyBytes(preview.length, envelope.length);
    if (writer.length - this.from + size > blockBytesAim) this.endBlock();
    rows.block[slot] = this.next + this.ends.length;
    rows.offset[slot] = writer.length - this.from;
    writeBody(writer, { slot, words: rows.words(slot), expiresAtMs: rows.expiresAtMs[slot]!, preview, envelope });
    this.blocks.count(rows.block[slot], size);
  }

  /** Where the unfinished block begins. */
  private get from(): number {
    return this.ends.at(-1) ?? 0;
  }

  private endBlock(): void {
    if (this.writer.length > this.from) this.ends.push(this.writer.length);
  }

  /** Bytes of the body of a row as it was stored. */
  wholeBytes(slot: number): number {
    const preview = this.rows.previewBytes[slot]!;
    return bodyBytes(preview === none ? 0 : preview, this.rows.envelopeBytes[slot]!);
  }

  /** Bytes of a row's body that are still needed. */
  liveBytes(slot: number): number {
    const status = this.rows.status[slot];
    if (status === held || status === expired) return this.wholeBytes(slot);
    const preview = this.rows.previewBytes[slot]!;
    return status === retained && preview !== none && preview > 0 ? bodyBytes(preview, 0) : 0;
  }

  /** So many bytes of a row's body are not needed any more. */
  release(slot: number, bytes: number): void {
    this.blocks.release(this.rows.block[slot]!, bytes);
  }

  /** Writes the blocks of the commit. */
  finish(batch: Batch): void {
    this.endBlock();
    let from = 0;
    for (const end of this.ends) {
      const bytes = this.writer.finish().subarray(from, end);
      batch.put("blocks", blockKey(this.next, bytes.length), bytes);
      this.blocks.add(this.next++, bytes.length);
      from = end;
    }
  }

  /** Frees blocks that nothing needs, a bounded number. */
  freeBlocks(batch: Batch): void {
    let freed = 0;
    for (const block of this.blocks.empty) {
      if (freed++ >= blocksFreedPerCommit) return;
      batch.remove("blocks", blockKey(block, this.blocks.size(block)));
      this.blocks.forget(block);
      this.damaged.delete(block);
    }
  }

  /** Moves what is needed out of blocks that are mostly dead, about a mebibyte. */
  emptyBlocks(journal: Journal): void {
    const { sparse } = this.blocks;
    let moved = 0;
    for (const block of sparse) {
      if (moved >= bytesMovedPerCommit) return;
      sparse.delete(block);
      if (!this.damaged.has(block)) moved += this.moveOut(block, journal);
    }
  }

  /** Copies what is needed of a block to the end, and returns how many bytes that were. */
  private moveOut(block: number, journal: Journal): number {
    const bytes = this.environment.get("blocks", blockKey(block, this.blocks.size(block)));
    if (bytes === null) return 0;
    const { rows } = this;
    let moved = 0;
    for (const body of bodiesOf(bytes)) {
      if (body === null || !body.isIntact) {
        this.damaged.add(block);
        this.log("error", "a block holds a damaged message", { block });
        break;
      }
      const { slot, offset } = body;
      const isHere = rows.isUsed(slot) && rows.block[slot] === block && rows.offset[slot] === offset;
      const live = isHere ? this.liveBytes(slot) : 0;
      if (live === 0) continue;
      const envelope = rows.status[slot] === retained ? noBytes : body.envelope;
      this.blocks.release(block, live);
      this.add(slot, body.preview, envelope);
      journal.moved(slot);
      moved += live;
    }
    return moved;
  }

  /** A part of the bodies of rows, `null` for one that is damaged: it is logged, and others go on. */
  read(slots: readonly number[], part: "envelope" | "preview"): (Uint8Array | null)[] {
    const { block: blocks, offset: offsets } = this.rows;
    let [block, bytes]: [number, Uint8Array | null] = [-1, null];
    return slots.map((slot) => {
      if (blocks[slot]! !== block) {
        block = blocks[slot]!;
        bytes = this.environment.borrow("blocks", blockKey(block, this.blocks.size(block)));
      }
      const body = bytes === null ? null : bodyAt(bytes, offsets[slot]!);
      if (body?.isIntact && body.slot === slot && isSameId(body.words, this.rows.words(slot)))
        return body[part].slice();
      this.log("error", "a stored message is damaged", { block, offset: offsets[slot]! });
      return null;
    });
  }
}

const noBytes = new Uint8Array(0);
