/**
 * A binary heap: the least item first. Cost: O(log n) to add and to take, O(1) to look at the first.
 */
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
