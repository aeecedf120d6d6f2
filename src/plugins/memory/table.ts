/**
 * The table of the memory driver: a map of values, and the keys in a sorted array. A commit writes at once
 * and remembers how to undo, so that a throw leaves nothing behind.
 * Cost: a read is one map lookup; a new key moves the keys behind it.
 */
import { StoreError } from "../../storage/contract.ts";
import { checkKey, type Table, type TableChange } from "../../storage/table.ts";

export class MemoryTable implements Table {
  private readonly values = new Map<string, Uint8Array>();
  private readonly keys: string[] = [];
  private bytes = 0;
  private isClosed = false;

  constructor(private readonly bytesMax: number) {}

  get(key: string): Uint8Array | null {
    return this.values.get(key)?.slice() ?? null;
  }

  range(prefix: string, { after, limit }: { readonly after?: string; readonly limit: number }): [string, Uint8Array][] {
    const start = after !== undefined && after > prefix ? after : prefix;
    const found: [string, Uint8Array][] = [];
    for (let at = placeOf(this.keys, start); at < this.keys.length && found.length < limit; at++) {
      const key = this.keys[at]!;
      if (key === after) continue;
      if (!key.startsWith(prefix)) break;
      found.push([key, this.values.get(key)!.slice()]);
    }
    return found;
  }

  prefetch(): void {}

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
        prefetch: this.prefetch,
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
      if (before === undefined) this.keys.splice(placeOf(this.keys, key), 0, key);
      this.values.set(key, value);
    } else if (this.values.delete(key)) this.keys.splice(placeOf(this.keys, key), 1);
    this.bytes += (value === undefined ? 0 : cost(key, value)) - (before === undefined ? 0 : cost(key, before));
    return before;
  }
}

/** Where the first of the sorted keys stands that is not below `key`. */
export function placeOf(keys: readonly string[], key: string): number {
  let [low, high] = [0, keys.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (keys[middle]! < key) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** Bytes of a pair, with a rough share of what the map and the list of keys take. */
function cost(key: string, value: Uint8Array): number {
  return key.length + value.length + 128;
}
