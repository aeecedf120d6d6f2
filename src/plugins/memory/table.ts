/**
 * The table of the memory driver: a map of values, and the keys in a sorted array. A commit writes at once
 * and remembers how to undo, so that a throw leaves nothing behind.
 * Cost: a read is one map lookup; a new key moves the keys behind it.
 */
import { StoreError } from "../../storage/contract.ts";
import { checkKey, compareUtf8, type Table, type TableChange } from "../../storage/table.ts";

type MemoryTable = Table & { close(): void };

export function openMemoryTable(limits: { readonly bytesMax: number }): MemoryTable {
  return new MapTable(limits.bytesMax);
}

class MapTable implements MemoryTable {
  private readonly values = new Map<string, Uint8Array>();
  private readonly keys: string[] = [];
  private bytes = 0;
  private isClosed = false;

  constructor(private readonly bytesMax: number) {}

  get(key: string): Uint8Array | null {
    return this.values.get(key)?.slice() ?? null;
  }

  range(prefix: string, { after, limit }: { readonly after?: string; readonly limit: number }): [string, Uint8Array][] {
    const start = after !== undefined && compareUtf8(after, prefix) > 0 ? after : prefix;
    const found: [string, Uint8Array][] = [];
    for (let at = this.indexOf(start); at < this.keys.length && found.length < limit; at++) {
      const key = this.keys[at]!;
      if (key === after) continue;
      if (!key.startsWith(prefix)) break;
      found.push([key, this.values.get(key)!.slice()]);
    }
    return found;
  }

  async commit<T>(change: (view: TableChange) => T): Promise<T> {
    if (this.isClosed) throw new StoreError("closed", "the store is closed");
    const undo: [string, Uint8Array | undefined][] = [];
    const put = (key: string, value: Uint8Array) => {
      checkKey(key);
      undo.push([key, this.write(key, value.slice())]);
      if (this.bytes > this.bytesMax) throw new StoreError("full", "the memory store has reached its size limit");
    };
    try {
      return change({
        get: (key) => this.get(key),
        range: (prefix, options) => this.range(prefix, options),
        put,
        remove: (key) => undo.push([key, this.write(key, undefined)]),
      });
    } catch (error) {
      for (const [key, before] of undo.reverse()) this.write(key, before);
      throw error;
    }
  }

  close(): void {
    this.isClosed = true;
  }

  /** Sets a value, or removes it; returns the one before. */
  private write(key: string, value: Uint8Array | undefined): Uint8Array | undefined {
    const before = this.values.get(key);
    if (value !== undefined) {
      if (before === undefined) this.keys.splice(this.indexOf(key), 0, key);
      this.values.set(key, value);
    } else if (this.values.delete(key)) this.keys.splice(this.indexOf(key), 1);
    this.bytes += (value === undefined ? 0 : cost(key, value)) - (before === undefined ? 0 : cost(key, before));
    return before;
  }

  /** Index of the first key that is not below `key`. */
  private indexOf(key: string): number {
    let [low, high] = [0, this.keys.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (compareUtf8(this.keys[middle]!, key) < 0) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}

/** Bytes of a pair, with a rough share of what the map and the list of keys take. */
function cost(key: string, value: Uint8Array): number {
  return key.length + value.length + 128;
}

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
