/**
 * Where a local store keeps its rows: bytes under text keys, with four operations. What the rows
 * mean, and that they are sealed, is decided above (`table.ts`), once for all drivers.
 * Source: docs/client.md "A local store".
 */

import { localError } from "../base/failure.ts";
import { abortOnLeave, committed, openDatabase, settled } from "../keys/key-stores.ts";

export type Row = readonly [key: string, bytes: Uint8Array];

/** Keys from `from`, up to and without `to`. */
export type Range = {
  readonly from: string;
  readonly to: string;
  readonly limit: number;
  /** The last ones first. */
  readonly isReverse?: boolean;
};

export type StoreDriver = {
  readonly read: (key: string) => Promise<Uint8Array | null>;
  /** In the order of the keys, which are ASCII. */
  readonly scan: (range: Range) => Promise<readonly Row[]>;
  /** All rows of the batch or none, stored safely when it resolves; `null` removes a row. */
  readonly apply: (
    batch: readonly (readonly [key: string, bytes: Uint8Array | null])[],
  ) => Promise<void>;
  readonly close: () => Promise<void>;
  /** How many bytes the store may have. */
  readonly bytesMax: number;
  /** Names a place that several tabs use at once; `null` for one that a single program has open. */
  readonly sharedAs: string | null;
};

export type StoreOptions = { readonly bytesMax?: number };

const mebibyte = 1_048_576;

/** Lost with the process: for tests, and for programs that need no history. */
export function memoryStore({ bytesMax = 256 * mebibyte }: StoreOptions = {}): StoreDriver {
  const rows = new Map<string, Uint8Array>();
  let sorted: string[] | null = [];
  return {
    read: async (key) => rows.get(key) ?? null,
    scan: async ({ from, to, limit, isReverse = false }) => {
      sorted ??= [...rows.keys()].sort();
      const keys = sorted.filter((key) => key >= from && key < to);
      const wanted = isReverse ? keys.reverse() : keys;
      return wanted.slice(0, limit).map((key): Row => [key, rows.get(key) as Uint8Array]);
    },
    apply: async (batch) => {
      for (const [key, bytes] of batch) {
        if (bytes === null ? rows.delete(key) : !rows.has(key)) sorted = null;
        if (bytes !== null) rows.set(key, bytes);
      }
    },
    close: async () => undefined,
    bytesMax,
    sharedAs: null,
  };
}

const tableName = "rows";

/** In the browser, for the page's origin: all of its tabs use it together. */
export function indexedDbStore(
  database = "waypost-store",
  { bytesMax = 2_048 * mebibyte }: StoreOptions = {},
): StoreDriver {
  if (typeof indexedDB === "undefined")
    throw localError("no_indexeddb", "this runtime has no IndexedDB");
  let opened: Promise<IDBDatabase> | null = null;
  const openTable = async (mode: IDBTransactionMode) => {
    opened ??= openDatabase(database, tableName);
    const transaction = abortOnLeave(
      (await opened).transaction(tableName, mode, { durability: "strict" }),
    );
    return { transaction, table: transaction.objectStore(tableName) };
  };
  return {
    read: async (key) => {
      const found: unknown = await settled((await openTable("readonly")).table.get(key));
      return found instanceof Uint8Array ? found : null;
    },
    scan: async ({ from, to, limit, isReverse = false }) => {
      const { table } = await openTable("readonly");
      const range = IDBKeyRange.bound(from, to, false, true);
      if (isReverse) return scanBackwards(table, range, limit);
      // Both are asked before either answers, so they are of one state.
      const [keys, values] = [table.getAllKeys(range, limit), table.getAll(range, limit)];
      const [names, bytes] = await Promise.all([settled(keys), settled(values)]);
      return names.map((key, i): Row => [String(key), bytes[i] as Uint8Array]);
    },
    apply: async (batch) => {
      const { transaction, table } = await openTable("readwrite");
      for (const [key, bytes] of batch) bytes === null ? table.delete(key) : table.put(bytes, key);
      await committed(transaction);
    },
    close: async () => {
      (await opened?.catch(() => null))?.close();
      opened = null;
    },
    bytesMax,
    sharedAs: database,
  };
}

function scanBackwards(table: IDBObjectStore, range: IDBKeyRange, limit: number): Promise<Row[]> {
  const found: Row[] = [];
  const request = table.openCursor(range, "prev");
  return new Promise((resolve, reject) => {
    request.onerror = () => reject(request.error);
    request.onsuccess = () => {
      const { result: cursor } = request;
      if (cursor === null || found.length >= limit) return resolve(found);
      found.push([String(cursor.key), cursor.value as Uint8Array]);
      cursor.continue();
    };
  });
}
