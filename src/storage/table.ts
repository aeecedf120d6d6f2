/**
 * The narrow ordered table below the embedded ledger and, where one process owns the store,
 * below its receipts. Each driver that can hold a ledger offers one; the ledger itself is
 * written once, in `embedded.ts`.
 */
import { BoundedMap } from "../core/std/bounded.ts";
import type { StoreEnvironment } from "./contract.ts";

/**
 * Keys have 1 to 1,600 characters of visible ASCII and are in the order of these
 * characters; values are bytes. Reads are synchronous and see the last commit. Bytes that
 * go in belong to the caller; bytes that come out are shared, and not changed: while
 * nothing is written, `get` may return the same ones again.
 */
export interface TableView {
  get(key: string): Uint8Array | null;
  /**
   * Entries whose key starts with `prefix` and is greater than `after`, in key order, at
   * most `limit`.
   */
  range(
    prefix: string,
    options: { readonly after?: string; readonly limit: number },
  ): [string, Uint8Array][];
  /**
   * Keys that are read next. A table behind a network ends the run here until it has them
   * and whatever was read before, so that expensive work is done once. Changes no outcome.
   */
  prefetch(keys: readonly string[]): void;
}

export interface TableChange extends TableView {
  put(key: string, value: Uint8Array): void;
  remove(key: string): void;
}

export interface OrderedTable extends TableView {
  /**
   * Runs `change` alone: its reads see its own writes, its writes happen wholly or, when it
   * throws, not at all; a throw is passed on. Resolves with its result once they survive
   * the death of the machine, where the store has a disk. `change` is synchronous and calls
   * no other operation of the store. `size`: what a disk that is nearly full is asked for;
   * without it, what the ledger writes.
   */
  commit<T>(change: (view: TableChange) => T, size?: CommitSize): Promise<T>;
}

/** A table on a local disk, for a driver whose store lies elsewhere. */
type LocalTable = {
  readonly table: OrderedTable;
  /** Throws `closed`, or what ended the table. */
  readonly checkOpen: () => void;
  readonly close: () => Promise<void>;
};

export type OpenLocalTable = (
  place: { readonly folder: string; readonly floorBytes: number; readonly reserveBytes: number },
  environment: StoreEnvironment,
) => Promise<LocalTable>;

/** A removal, and a sweep of many, free more than they write. */
export type CommitSize = {
  readonly kind: "record" | "removal" | "sweep";
  readonly bytes: number;
};

/**
 * A table that several processes share, behind a network. What reads or changes it may run
 * several times, each time against one state, until everything that it reads was fetched;
 * what was not yet reads as absent. It has no effect but its writes, and its outcome, also
 * when it throws, is that of its last run.
 */
export interface SharedTable {
  read<T>(work: (view: TableView) => T): Promise<T>;
  commit<T>(change: (view: TableChange) => T): Promise<T>;
}

/** Throws for a key that the table does not accept: a mistake of the caller. */
function checkTableKey(key: string): void {
  if (!/^[!-~]{1,1600}$/.test(key))
    throw new RangeError("a table key has 1 to 1,600 characters of visible ASCII");
}

/** The writes of a commit, over what was there before: reads see both. */
export class Overlay implements TableChange {
  /** The last value of each key; `null` is removed. */
  readonly written = new Map<string, Uint8Array | null>();

  constructor(private readonly below: TableView) {}

  get(key: string): Uint8Array | null {
    const written = this.written.get(key);
    return written === undefined ? this.below.get(key) : written;
  }

  range(
    prefix: string,
    { after = "", limit }: { readonly after?: string; readonly limit: number },
  ) {
    // Each write may take one entry away.
    const found = new Map(this.below.range(prefix, { after, limit: limit + this.written.size }));
    for (const [key, value] of this.written) {
      if (!key.startsWith(prefix) || key <= after) continue;
      if (value === null) found.delete(key);
      else found.set(key, value.slice());
    }
    return [...found].sort(([a], [b]) => (a < b ? -1 : 1)).slice(0, limit);
  }

  prefetch(keys: readonly string[]): void {
    this.below.prefetch(keys);
  }

  put(key: string, value: Uint8Array): void {
    checkTableKey(key);
    this.written.set(key, value.slice());
  }

  remove(key: string): void {
    this.written.set(key, null);
  }

  /** Makes the writes of `change`, or none of them when it throws. */
  attempt<T>(change: (view: TableChange) => T): T {
    const own = new Overlay(this);
    const result = change(own);
    for (const [key, value] of own.written) this.written.set(key, value);
    return result;
  }
}

// ---------------------------------------------------------------------------------- decoded values

type DecodedLimits = {
  readonly entriesMax: number;
  /** Sum of the encoded forms; what they decode to takes a few times as much. */
  readonly bytesMax: number;
};

type DecodedValue<T> = { readonly bytes: Uint8Array; readonly value: T };

/**
 * Remembers what stored bytes decode to. A remembered value is returned only for exactly
 * the bytes that it was decoded from, so it is never stale. Bounded by entries and by
 * bytes; the oldest entry leaves first. When `decode` throws, nothing is remembered.
 * Callers share the values and the bytes, and change neither.
 */
export function rememberDecoded<T>(
  decode: (bytes: Uint8Array) => T,
  { entriesMax, bytesMax }: DecodedLimits,
): (key: string, bytes: Uint8Array) => T {
  const entries = new BoundedMap<string, DecodedValue<T>>(entriesMax, {
    max: bytesMax,
    of: ({ bytes }) => bytes.length,
  });
  return (key, bytes) => {
    const entry = entries.get(key);
    if (entry !== undefined && isSameBytes(entry.bytes, bytes)) return entry.value;
    entries.delete(key);
    const value = decode(bytes);
    entries.set(key, { bytes, value });
    return value;
  };
}

/**
 * A table that remembers its records returns the same object again, which costs no look at
 * the bytes.
 */
function isSameBytes(a: Uint8Array, b: Uint8Array): boolean {
  return a === b || (a.length === b.length && Buffer.compare(a, b) === 0);
}
