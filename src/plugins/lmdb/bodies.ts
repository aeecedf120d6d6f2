/**
 * Where the bodies of the rows lie, and the care of their blocks: reading a body, freeing blocks that
 * nothing needs, moving what is left out of blocks that are mostly dead.
 * Memory: 12 bytes a row besides the index, 100 for each block.
 */
import type { StoreEnvironment } from "../../storage/contract.ts";
import {
  type BlockPacker,
  BlockTable,
  blockKey,
  bodiesOf,
  bodyAt,
  bodyBytes,
  type FoundBody,
  type Place,
  readBlockKey,
} from "./blocks.ts";
import type { Change, Environment } from "./environment.ts";
import type { JournalWriter } from "./journal.ts";
import type { MailboxIndex } from "./mailbox-index.ts";
import { orderedKey } from "./records.ts";
import { held, kept, lapsed } from "./row-table.ts";

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
