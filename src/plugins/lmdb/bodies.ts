/**
 * Bodies and blocks: the bytes of entries, packed in the order of their arrival into records of about 8 KiB,
 * or one record for a single larger entry. What a synced transaction costs is the number of scattered
 * pages that it touches, so the bytes of all entries of a commit lie side by side. A block goes when
 * nothing in it is needed; one that is mostly dead is emptied by moving the rest.
 *
 * A body in a block: checksum 16 bytes, then version 1, flags 1, preview length 2, envelope length 4,
 * slot 4, expiry 8, message id 16, preview, envelope. The checksum covers all that follows it.
 * Memory: 12 bytes a row besides the index, 100 for each block.
 */

import type { Uuid } from "../../core/codec/did.ts";
import { type StoreEnvironment, StoreError } from "../../storage/contract.ts";
import type { Change, Environment } from "./environment.ts";
import type { JournalWriter } from "./journal.ts";
import type { MailboxIndex } from "./mailbox-index.ts";
import {
  checksumBytes,
  matchesChecksum,
  orderedKey,
  orderedNumber,
  recordVersion,
  uuidText,
  Writer,
} from "./records.ts";
import { held, kept, lapsed } from "./rows.ts";

export type Place = { readonly block: number; readonly offset: number };

/** Two pages of the file, less what LMDB puts in front: a read copies the block, a write pays for each. */
const blockBytesAim = 2 * 4_096 - 16;
const headerBytes = checksumBytes + 36;

export type Body = {
  readonly slot: number;
  readonly messageId: Uuid;
  readonly expiresAtMs: number;
  readonly preview: Uint8Array;
  readonly envelope: Uint8Array;
};

/** A body as it is found; `bytes` is the whole of it. */
export type FoundBody = Body & { readonly offset: number; readonly bytes: Uint8Array; readonly intact: boolean };

export function bodyBytes(previewBytes: number, envelopeBytes: number): number {
  return headerBytes + previewBytes + envelopeBytes;
}

type Packed = { readonly number: number; readonly bytes: Uint8Array; readonly live: number };

/** Packs the bodies of one commit into blocks with consecutive numbers. */
export class BlockPacker {
  private readonly blocks: Packed[] = [];
  private readonly released = new Map<number, number>();
  private writer: Writer | null = null;

  constructor(
    private next: number,
    private readonly first = next,
  ) {}

  /** The number that the next block will have, once the one at hand is finished. */
  get nextNumber(): number {
    return this.next;
  }

  add(body: Omit<Body, "bytes">): Place {
    const size = bodyBytes(body.preview.length, body.envelope.length);
    const writer = this.room(size);
    const offset = writer.length;
    writer.skip(checksumBytes);
    writer.u8(recordVersion);
    writer.u8(0);
    writer.u16(body.preview.length);
    writer.u32(body.envelope.length);
    writer.u32(body.slot);
    writer.u53(body.expiresAtMs);
    writer.uuid(body.messageId);
    writer.bytes(body.preview);
    writer.bytes(body.envelope);
    writer.sign(offset);
    return { block: this.next, offset };
  }

  /** Notes that bytes of a block of this commit are not needed after all; `false` for an older block. */
  release(block: number, bytes: number): boolean {
    if (block < this.first) return false;
    this.released.set(block, (this.released.get(block) ?? 0) + bytes);
    return true;
  }

  /** Ends the block at hand. After the last `add`, the blocks are complete. */
  finish(): void {
    if (this.writer === null) return;
    const bytes = this.writer.finish();
    this.blocks.push({ number: this.next, bytes, live: bytes.length });
    this.next++;
    this.writer = null;
  }

  /** The finished blocks with what of them is needed. */
  packed(): Packed[] {
    return this.blocks.map((block) => ({ ...block, live: block.live - (this.released.get(block.number) ?? 0) }));
  }

  private room(size: number): Writer {
    if (this.writer !== null && this.writer.length + size > blockBytesAim) this.finish();
    this.writer ??= new Writer(Math.max(size, blockBytesAim));
    return this.writer;
  }
}

/** The body at an offset. Throws `corrupt` when it does not lie within the block. */
export function readBody(block: Uint8Array, offset: number): FoundBody {
  const view = new DataView(block.buffer, block.byteOffset, block.byteLength);
  if (offset + headerBytes > block.length) throw new StoreError("corrupt", "a message lies outside its block");
  const at = offset + checksumBytes;
  const [previewBytes, envelopeBytes] = [view.getUint16(at + 2), view.getUint32(at + 4)];
  const end = offset + bodyBytes(previewBytes, envelopeBytes);
  if (end > block.length) throw new StoreError("corrupt", "a message lies outside its block");
  const preview = offset + headerBytes;
  return {
    offset,
    slot: view.getUint32(at + 8),
    expiresAtMs: view.getUint32(at + 12) * 2 ** 32 + view.getUint32(at + 16),
    messageId: uuidText(block.subarray(at + 20, at + 36)),
    preview: copyOf(block, preview, preview + previewBytes),
    envelope: copyOf(block, preview + previewBytes, end),
    bytes: block.subarray(offset, end),
    intact: block[at] === recordVersion && matchesChecksum(block.subarray(at, end), block.subarray(offset, at)),
  };
}

/** The body at an offset, or `null` when there is none that can be read. */
export function bodyAt(block: Uint8Array, offset: number): FoundBody | null {
  try {
    return readBody(block, offset);
  } catch {
    return null;
  }
}

/** The bodies of a block one after the other; `null` in the place of one that can't be read. */
export function* bodiesOf(block: Uint8Array): Generator<FoundBody | null> {
  for (let offset = 0; offset < block.length; ) {
    const body = bodyAt(block, offset);
    yield body;
    if (body === null) return;
    offset += body.bytes.length;
  }
}

/** A `Buffer` would answer a view to `slice`. */
function copyOf(bytes: Uint8Array, from: number, to: number): Uint8Array {
  const copy = new Uint8Array(to - from);
  copy.set(bytes.subarray(from, to));
  return copy;
}

/** The key of a block says its size, so that opening a store reads no bodies. */
export function blockKey(number: number, size: number): Buffer {
  const key = Buffer.allocUnsafe(12);
  orderedKey(number).copy(key);
  key.writeUInt32BE(size, 8);
  return key;
}

export function readBlockKey(key: Buffer): { readonly number: number; readonly size: number } {
  return { number: orderedNumber(key), size: key.readUInt32BE(8) };
}

/** What is known of each block: its size, and how much of it is still needed. About 100 bytes a block. */
export class BlockTable {
  private readonly blocks = new Map<number, { readonly size: number; live: number }>();
  /** Blocks that nothing needs any more. */
  readonly empty = new Set<number>();
  /** Blocks that are mostly dead. */
  readonly sparse = new Set<number>();
  private bytes = 0;

  /** Bytes of all blocks, needed or not. */
  get size(): number {
    return this.bytes;
  }

  key(block: number): Buffer | null {
    const known = this.blocks.get(block);
    return known === undefined ? null : blockKey(block, known.size);
  }

  add(block: number, size: number, live: number): void {
    this.bytes += size;
    this.blocks.set(block, { size, live });
    this.classify(block);
  }

  release(block: number, bytes: number): void {
    const known = this.blocks.get(block);
    if (known === undefined || bytes === 0) return;
    known.live -= bytes;
    this.classify(block);
  }

  forget(block: number): void {
    this.bytes -= this.blocks.get(block)?.size ?? 0;
    this.blocks.delete(block);
    this.empty.delete(block);
    this.sparse.delete(block);
  }

  private classify(block: number): void {
    const { size, live } = this.blocks.get(block)!;
    if (live <= 0) {
      this.sparse.delete(block);
      this.empty.add(block);
    } else if (live * 2 < size) this.sparse.add(block);
  }
}

const blocksFreedPerCommit = 512;
const bytesMovedPerCommit = 1024 * 1024;

/** Where moved bodies go. `touch` hears of every slot that moved. */
export type Moving = {
  readonly packer: BlockPacker;
  readonly journal: JournalWriter;
  readonly touch: (slot: number) => void;
};

export class Bodies {
  readonly blocks = new BlockTable();
  private blockOf = new Float64Array(1_024);
  private offsetOf = new Uint32Array(1_024);
  private next = 1;
  /** Blocks that hold a damaged body: they are left as they are. */
  private readonly damaged = new Set<number>();

  constructor(
    private readonly environment: Environment,
    private readonly index: MailboxIndex,
    private readonly log: StoreEnvironment["log"],
  ) {}

  /** The number that the next block gets. */
  get nextBlock(): number {
    return this.next;
  }

  /** Finds the blocks on disk, once the index is loaded and the places are set. Reads no body. */
  load(): void {
    const live = new Map<number, number>();
    for (let slot = 0; slot < this.index.slotCount; slot++) {
      const bytes = this.index.taken(slot) ? this.liveBytes(slot) : 0;
      if (bytes > 0) live.set(this.blockOf[slot]!, (live.get(this.blockOf[slot]!) ?? 0) + bytes);
    }
    const limit = 4_096;
    for (let start = orderedKey(0); ; ) {
      const keys = this.environment.keys("blocks", { start, limit });
      for (const key of keys) {
        const { number, size } = readBlockKey(key);
        this.blocks.add(number, size, live.get(number) ?? 0);
        live.delete(number);
        this.next = number + 1;
      }
      if (keys.length < limit) break;
      start = orderedKey(this.next);
    }
    for (const number of live.keys()) this.next = Math.max(this.next, number + 1);
    if (live.size > 0) this.log("error", "blocks of messages are missing", { blocks: live.size });
  }

  place(slot: number): Place {
    return { block: this.blockOf[slot]!, offset: this.offsetOf[slot]! };
  }

  setPlace(slot: number, { block, offset }: Place): void {
    if (slot >= this.blockOf.length) {
      const slots = Math.max(slot + 1, this.blockOf.length * 2);
      const [blockOf, offsetOf] = [new Float64Array(slots), new Uint32Array(slots)];
      blockOf.set(this.blockOf);
      offsetOf.set(this.offsetOf);
      [this.blockOf, this.offsetOf] = [blockOf, offsetOf];
    }
    this.blockOf[slot] = block;
    this.offsetOf[slot] = offset;
  }

  /** Bytes of a row's body that are still needed. */
  liveBytes(slot: number): number {
    const status = this.index.status(slot);
    const preview = this.index.previewBytes(slot) ?? 0;
    if (status === held || status === lapsed) return bodyBytes(preview, this.index.envelopeBytes(slot));
    return status === kept && preview > 0 ? bodyBytes(preview, 0) : 0;
  }

  /** Blocks of the commit at hand are not in the block table yet. */
  release(packer: BlockPacker, block: number, bytes: number): void {
    if (!packer.release(block, bytes)) this.blocks.release(block, bytes);
  }

  /** Ends the blocks of a commit and answers how to write them. */
  finish(packer: BlockPacker): ((view: Change) => void)[] {
    packer.finish();
    this.next = packer.nextNumber;
    return packer.packed().map(({ number, bytes, live }) => {
      this.blocks.add(number, bytes.length, live);
      const key = blockKey(number, bytes.length);
      return (view) => view.put("blocks", key, bytes);
    });
  }

  /** Frees blocks that nothing needs, a bounded number. */
  freeBlocks(): ((view: Change) => void)[] {
    const writes: ((view: Change) => void)[] = [];
    for (const block of this.blocks.empty) {
      if (writes.length >= blocksFreedPerCommit) break;
      const key = this.blocks.key(block);
      this.blocks.forget(block);
      this.damaged.delete(block);
      if (key !== null) writes.push((view) => view.remove("blocks", key));
    }
    return writes;
  }

  /** Moves what is needed out of blocks that are mostly dead, about a mebibyte. */
  emptyBlocks(moving: Moving): void {
    const { sparse } = this.blocks;
    let moved = 0;
    for (const block of sparse) {
      if (moved >= bytesMovedPerCommit) return;
      sparse.delete(block);
      if (!this.damaged.has(block)) moved += this.moveOut(block, moving);
    }
  }

  /** Copies what is needed of a block to the end, and answers how many bytes that were. */
  private moveOut(block: number, { packer, journal, touch }: Moving): number {
    const key = this.blocks.key(block);
    const bytes = key === null ? null : this.environment.get("blocks", key);
    if (bytes === null) return 0;
    let moved = 0;
    for (const body of bodiesOf(bytes)) {
      if (body === null || !body.intact) {
        this.damaged.add(block);
        this.log("error", "a block holds a damaged message", { block });
        break;
      }
      const live = this.livesAt(body, block) ? this.liveBytes(body.slot) : 0;
      if (live === 0) continue;
      const envelope = this.index.status(body.slot) === kept ? noBytes : body.envelope;
      const place = packer.add({ ...body, envelope });
      this.setPlace(body.slot, place);
      journal.moved(body.slot, place);
      touch(body.slot);
      this.blocks.release(block, live);
      moved += live;
    }
    return moved;
  }

  private livesAt(body: FoundBody, block: number): boolean {
    const { slot, offset } = body;
    return this.index.taken(slot) && this.blockOf[slot] === block && this.offsetOf[slot] === offset;
  }

  /** The body of a row, or `null` when it is damaged: that is logged, and the other entries go on. */
  body(slot: number): FoundBody | null {
    const { block, offset } = this.place(slot);
    const key = this.blocks.key(block);
    const body = key === null ? null : this.environment.inspect("blocks", key, (bytes) => bodyAt(bytes, offset));
    if (body?.intact && body.slot === slot && body.messageId === this.index.id(slot)) return body;
    this.log("error", "a stored message is damaged", { block, offset });
    return null;
  }
}

const noBytes = new Uint8Array(0);
