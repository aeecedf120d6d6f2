/**
 * The narrow ordered table below the embedded ledger. Each driver that can hold a ledger offers one; the ledger itself is
 * written once, in `embedded.ts`.
 */
import { BoundedMap } from "../core/std/bounded.ts";

/**
 * Keys have 1 to 1,024 characters of visible ASCII and are in the order of these characters; values are bytes.
 * Reads are synchronous and see the last commit; bytes that go in or out belong to the caller.
 */
export interface TableView {
  get(key: string): Uint8Array | null;
  /** Entries whose key starts with `prefix` and is greater than `after`, in key order, at most `limit`. */
  range(prefix: string, options: { readonly after?: string; readonly limit: number }): [string, Uint8Array][];
  /** Keys that are read next: a table behind a network fetches them at once. Changes no outcome. */
  prefetch(keys: readonly string[]): void;
}

export interface TableChange extends TableView {
  put(key: string, value: Uint8Array): void;
  remove(key: string): void;
}

export interface Table extends TableView {
  /**
   * Runs `change` alone: its reads see its own writes, its writes happen wholly or, when it throws, not
   * at all; a throw is passed on. Resolves with its result once they are as durable as the store
   * declares. `change` is synchronous and calls no other operation of the store.
   */
  commit<T>(change: (view: TableChange) => T): Promise<T>;
}

/**
 * A table that several processes share, behind a network. What reads or changes it may run several times,
 * each time against one state, until everything that it reads was fetched: it has no effect but its writes,
 * passes on a `StoreError` that a read throws; its outcome is that of its last run.
 */
export interface SharedTable {
  read<T>(work: (view: TableView) => T): Promise<T>;
  commit<T>(change: (view: TableChange) => T): Promise<T>;
}

/** Throws for a key that the table does not accept: a mistake of the caller. */
export function checkKey(key: string): void {
  if (!/^[!-~]{1,1024}$/.test(key)) throw new RangeError("a table key has 1 to 1,024 characters of visible ASCII");
}

// ------------------------------------------------------------------------------------------------------ decoded values

type DecodedLimits = {
  readonly entriesMax: number;
  /** Sum of the encoded forms; what they decode to takes a few times as much. */
  readonly bytesMax: number;
};

type Decoded<T> = { readonly bytes: Uint8Array; readonly value: T };

/**
 * Remembers what stored bytes decode to. A remembered value is returned only for exactly the bytes that it was decoded
 * from, so it is never stale. Bounded by entries and by bytes; the oldest entry leaves first. When `decode` throws,
 * nothing is remembered. Callers share the values and the bytes, and change neither.
 */
export function rememberDecoded<T>(
  decode: (bytes: Uint8Array) => T,
  { entriesMax, bytesMax }: DecodedLimits,
): (key: string, bytes: Uint8Array) => T {
  const entries = new BoundedMap<string, Decoded<T>>(entriesMax, { max: bytesMax, of: ({ bytes }) => bytes.length });
  return (key, bytes) => {
    const entry = entries.get(key);
    if (entry?.bytes.length === bytes.length && Buffer.compare(entry.bytes, bytes) === 0) return entry.value;
    entries.delete(key);
    const value = decode(bytes);
    entries.set(key, { bytes, value });
    return value;
  };
}
