/**
 * The narrow ordered table that the embedded ledger stands on. Memory and LMDB offer it; everything
 * the embedded ledger knows is written once over it, in `embedded.ts`.
 */

/**
 * Keys are well-formed strings of 1 to 1,024 UTF-8 bytes, in the order of those bytes; values are bytes.
 * Reads are synchronous and see the last commit; bytes that go in or out belong to the caller.
 */
export interface TableView {
  get(key: string): Uint8Array | null;
  /** Entries whose key starts with `prefix` and is greater than `after`, in key order, at most `limit`. */
  range(prefix: string, options: { readonly after?: string; readonly limit: number }): [string, Uint8Array][];
}

export interface TableChange extends TableView {
  put(key: string, value: Uint8Array): void;
  remove(key: string): void;
}

export interface Table extends TableView {
  /**
   * Runs `change` alone: its reads see its own writes, its writes happen wholly or, when it throws, not
   * at all; a throw is passed on. Resolves with its result once they stand as durably as the store
   * declares. `change` is synchronous and calls no other operation of the store.
   */
  commit<T>(change: (view: TableChange) => T): Promise<T>;
}

/**
 * A table that several processes share, behind a network. What reads or changes it may run several times,
 * each time against one state, until everything that it reads was fetched: it has no effect but its writes,
 * passes on a `StoreError` that a read throws, and takes its outcome from its last run.
 */
export interface SharedTable {
  read<T>(work: (view: TableView) => T): Promise<T>;
  commit<T>(change: (view: TableChange) => T): Promise<T>;
}

export const tableKeyBytesMax = 1024;

/** Throws for a key that the table does not take: a mistake of the caller. */
export function checkKey(key: string): void {
  if (key.length === 0 || key.length > tableKeyBytesMax || !key.isWellFormed()) {
    throw new RangeError("a table key has 1 to 1,024 bytes of well-formed text");
  }
  if (key.length * 3 > tableKeyBytesMax && Buffer.byteLength(key) > tableKeyBytesMax) {
    throw new RangeError("a table key has at most 1,024 bytes");
  }
}
