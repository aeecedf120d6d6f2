/**
 * A binary heap of slots by the time at which something is due. Each slot stands in it at most once and
 * knows its place, so it can be taken out when its entry goes another way. Cost: O(log n) per change,
 * O(1) to see whether anything is due; 8 bytes a slot besides the time, which the owner keeps.
 */
import { growUint32 } from "./row-table.ts";

/** Place 0 of the heap stays empty, so that 0 in `place` means "not in the heap". */
const absent = 0;

export class ExpiryHeap {
  private heap = new Uint32Array(1024);
  private place = new Uint32Array(1024);
  private size = 0;

  /** `due[slot]` must not change while the slot is in the heap. */
  constructor(private readonly due: (slot: number) => number) {}

  /** The slot with the earliest time, or -1. */
  first(): number {
    return this.size === 0 ? -1 : this.heap[1]!;
  }

  push(slot: number): void {
    if (slot >= this.place.length) this.place = growUint32(this.place, slot + 1);
    this.size++;
    if (this.size >= this.heap.length) this.heap = growUint32(this.heap, this.size + 1);
    this.rise(this.size, slot);
  }

  remove(slot: number): void {
    const at = slot < this.place.length ? this.place[slot]! : absent;
    if (at === absent) return;
    this.place[slot] = absent;
    const last = this.heap[this.size--]!;
    if (last === slot) return;
    this.rise(at, last);
    this.sink(this.place[last]!, last);
  }

  private rise(from: number, slot: number): void {
    const time = this.due(slot);
    let at = from;
    while (at > 1) {
      const parent = at >> 1;
      const above = this.heap[parent]!;
      if (this.due(above) <= time) break;
      this.set(at, above);
      at = parent;
    }
    this.set(at, slot);
  }

  private sink(from: number, slot: number): void {
    const time = this.due(slot);
    let at = from;
    for (;;) {
      let child = at * 2;
      if (child > this.size) break;
      if (child < this.size && this.due(this.heap[child + 1]!) < this.due(this.heap[child]!)) child++;
      const below = this.heap[child]!;
      if (this.due(below) >= time) break;
      this.set(at, below);
      at = child;
    }
    this.set(at, slot);
  }

  private set(at: number, slot: number): void {
    this.heap[at] = slot;
    this.place[slot] = at;
  }
}
