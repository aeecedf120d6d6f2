/**
 * What ends at a time, in the memory driver: a heap that has the soonest end first, and a bounded map of values that
 * end, which holds claims and receipts.
 */
import { StoreError } from "../../storage/contract.ts";

/** A binary heap: the least item first. Cost: O(log n) to add and to remove, O(1) to look at the first. */
export class Heap<T> {
  private items: T[] = [];

  /** `before(a, b)`: whether `a` must come out before `b`. What it reads must not change while an item is inside. */
  constructor(private readonly before: (a: T, b: T) => boolean) {}

  get size(): number {
    return this.items.length;
  }

  first(): T | undefined {
    return this.items[0];
  }

  push(item: T): void {
    const { items } = this;
    let at = items.push(item) - 1;
    while (at > 0) {
      const parent = (at - 1) >> 1;
      const above = items[parent] as T;
      if (!this.before(item, above)) break;
      items[at] = above;
      at = parent;
    }
    items[at] = item;
  }

  pop(): T | undefined {
    const { items } = this;
    const first = items[0];
    const last = items.pop();
    if (items.length > 0) this.sink(last as T);
    return first;
  }

  /** Puts these items in the place of all others. O(n log n). */
  replace(items: Iterable<T>): void {
    // A sorted list is a heap.
    this.items = [...items].sort((a, b) => (this.before(a, b) ? -1 : this.before(b, a) ? 1 : 0));
  }

  /** From the root, whose place is free, down to where `item` belongs. */
  private sink(item: T): void {
    const { items } = this;
    let at = 0;
    for (;;) {
      let child = 2 * at + 1;
      if (child >= items.length) break;
      if (child + 1 < items.length && this.before(items[child + 1] as T, items[child] as T)) child++;
      const below = items[child] as T;
      if (!this.before(below, item)) break;
      items[at] = below;
      at = child;
    }
    items[at] = item;
  }
}

type Pair<V> = { readonly key: string; readonly value: V; readonly untilMs: number };

/** A pair that has ended is absent at once; `expire` frees it, the soonest end first. */
export class ExpiringMap<V> {
  private readonly pairs = new Map<string, Pair<V>>();
  /** Also has pairs that were replaced or removed, until there are more of them than of the others. */
  private readonly ends = new Heap<Pair<V>>((a, b) => a.untilMs < b.untilMs);
  /** The latest end of a pair that `expire` has freed. */
  freedUntilMs = 0;

  constructor(private readonly pairsMax: number) {}

  get(key: string, nowMs: number): V | null {
    const pair = this.pairs.get(key);
    return pair !== undefined && pair.untilMs > nowMs ? pair.value : null;
  }

  set(key: string, value: V, untilMs: number): void {
    if (!this.pairs.has(key) && this.pairs.size >= this.pairsMax) {
      throw new StoreError("full", `the memory store is full: it has ${this.pairsMax} records`);
    }
    const pair = { key, value, untilMs };
    this.pairs.set(key, pair);
    this.ends.push(pair);
    if (this.ends.size > 2 * this.pairs.size + 1024) this.ends.replace(this.pairs.values());
  }

  remove(key: string): void {
    this.pairs.delete(key);
  }

  expire(nowMs: number, limit: number): number {
    let freed = 0;
    for (let pair = this.ends.first(); pair !== undefined && pair.untilMs <= nowMs; pair = this.ends.first()) {
      const isCurrent = this.pairs.get(pair.key) === pair;
      if (isCurrent && freed === limit) break;
      this.ends.pop();
      if (!isCurrent) continue;
      this.pairs.delete(pair.key);
      this.freedUntilMs = Math.max(this.freedUntilMs, pair.untilMs);
      freed++;
    }
    return freed;
  }
}
