/**
 * A map that forgets: over its bound the entry that was set longest ago goes. For memos and per-client state,
 * where forgetting costs work or precision but is never wrong.
 */
export class BoundedMap<K, V> {
  /** A Map keeps the order of insertion, so the first key is the one set longest ago. */
  private readonly entries = new Map<K, V>();

  constructor(readonly entriesMax: number) {}

  get(key: K): V | undefined {
    return this.entries.get(key);
  }

  has(key: K): boolean {
    return this.entries.has(key);
  }

  /** Setting a key again makes it the newest: a reader that sets what it used keeps what is in use. */
  set(key: K, value: V): void {
    this.entries.delete(key);
    this.entries.set(key, value);
    if (this.entries.size > this.entriesMax) this.entries.delete(this.entries.keys().next().value as K);
  }

  delete(key: K): boolean {
    return this.entries.delete(key);
  }

  clear(): void {
    this.entries.clear();
  }

  get size(): number {
    return this.entries.size;
  }

  /** From the oldest to the newest. */
  [Symbol.iterator](): MapIterator<[K, V]> {
    return this.entries[Symbol.iterator]();
  }
}
