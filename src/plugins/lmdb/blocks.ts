/**
 * Blocks: the bytes of entries, packed in the order of their arrival into records of about 16 KiB, or
 * one record for a single larger entry. What a synced transaction costs is the number of scattered
 * pages that it touches, so the bytes of all entries of a commit lie side by side. A block goes when
 * nothing in it is needed; one that is mostly dead is emptied by moving the rest.
 *
 * A body in a block: checksum 16 bytes, then version 1, flags 1, preview length 2, envelope length 4,
 * slot 4, expiry 8, message id 16, preview, envelope. The checksum covers all that follows it.
 */
import type { Uuid } from "../../core/codec/did.ts";
import { StoreError } from "../../storage/contract.ts";
import {
  checksumBytes,
  matchesChecksum,
  orderedKey,
  orderedNumber,
  recordVersion,
  uuidText,
  Writer,
} from "./records.ts";

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
