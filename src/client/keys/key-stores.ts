/**
 * Where identities are stored between runs: in memory, or in the browser's IndexedDB
 * (`@waypost/client/node` has files).
 * Source: docs/client.md "Opening".
 */

import { ClientError, localError } from "../base/failure.ts";
import { isRecord } from "../base/shapes.ts";

/**
 * What an identity remembers of others, and of what it is sending: a small text under each
 * key, apart from its keys.
 */
export type TextStore = {
  readonly load: (key: string) => Promise<string | null>;
  /** Resolves when the text is stored; `null` removes it. */
  readonly save: (key: string, text: string | null) => Promise<void>;
};

/**
 * Texts by their keys: the identity under its name, and under `<name>/…` what it remembers of
 * others. A write resolves when it is stored safely: the caller relies on it from then on.
 */
export type KeyStore = TextStore & {
  /**
   * Stores `text` in the place of `before`, of nothing when that is `null`. `false`, and nothing is
   * written, when something else is there, however many tabs or processes do this at once.
   */
  readonly replace: (key: string, before: string | null, text: string) => Promise<boolean>;
  /** Of a store that can: texts can't be read from then on, until it is unlocked. */
  readonly lock?: () => void;
  /** Of a store that can: all keys, so that `lockedKeys` seals what was there before the locks. */
  readonly list?: () => Promise<readonly string[]>;
};

/** What the identity of a name remembers of others. No identity has a slash in its name. */
export const memoryOf = ({ load, save }: TextStore, name: string): TextStore => ({
  load: (key) => load(`${name}/${key}`),
  save: (key, text) => save(`${name}/${key}`, text),
});

/** Under which the DID of this device lies next to an identity. */
export const deviceName = (name: string): string => `${name}.device`;
export const isDeviceName = (name: string): boolean => name.endsWith(".device");

/**
 * Among what is remembered: the key of a local store without an identity, which a
 * linked device takes over.
 */
export const historyKey = "history";

/** Lost with the process: for tests, and for identities that are created each time. */
export function memoryKeys(texts: Map<string, string> = new Map()): KeyStore {
  return {
    load: async (key) => texts.get(key) ?? null,
    save: async (key, text) => {
      if (text === null) texts.delete(key);
      else texts.set(key, text);
    },
    replace: async (key, before, text) => {
      if ((texts.get(key) ?? null) !== before) return false;
      texts.set(key, text);
      return true;
    },
    list: async () => [...texts.keys()],
  };
}

const storeName = "identities";

/** In the browser, for the page's origin. That it is kept when space is short the page asks for. */
export function indexedDbKeys(database = "waypost"): KeyStore {
  if (typeof indexedDB === "undefined")
    throw localError("no_indexeddb", "this runtime has no IndexedDB");
  const opened = openDatabase(database, storeName);
  opened.catch(() => undefined);
  const write = async (change: (store: IDBObjectStore) => unknown) => {
    const transaction = abortOnLeave(
      (await opened).transaction(storeName, "readwrite", { durability: "strict" }),
    );
    change(transaction.objectStore(storeName));
    await committed(transaction);
  };
  const load = async (name: string): Promise<string | null> => {
    const transaction = abortOnLeave((await opened).transaction(storeName));
    const value: unknown = await settled(transaction.objectStore(storeName).get(name));
    return typeof value === "string" ? value : null;
  };
  return {
    load,
    save: (name, text) =>
      write((store) => (text === null ? store.delete(name) : store.put(text, name))),
    replace: async (key, before, text) => {
      let isReplaced = false;
      await write((store) => {
        const request = store.get(key);
        request.onsuccess = () => {
          isReplaced = (request.result ?? null) === before;
          if (isReplaced) store.put(text, key);
        };
      });
      return isReplaced;
    },
    list: async () => {
      const transaction = abortOnLeave((await opened).transaction(storeName));
      return (await settled(transaction.objectStore(storeName).getAllKeys())).map(String);
    },
  };
}

export async function openDatabase(name: string, table: string): Promise<IDBDatabase> {
  const request = indexedDB.open(name, 1);
  request.onupgradeneeded = () => request.result.createObjectStore(table);
  const database = await settled(request);
  // A later version in another tab must not wait for this one.
  database.onversionchange = () => database.close();
  return database;
}

export function committed(transaction: IDBTransaction): Promise<void> {
  return new Promise((resolve, reject) => {
    transaction.oncomplete = () => resolve();
    transaction.onabort = () => reject(transaction.error);
  });
}

/**
 * Aborts a transaction when the page is left. WebKit keeps one that was under way for good, and
 * each later one of any page waits for it until the browser ends.
 */
export function abortOnLeave(transaction: IDBTransaction): IDBTransaction {
  const abort = () => {
    try {
      transaction.abort();
    } catch {
      // It was over.
    }
  };
  const forget = () => globalThis.removeEventListener?.("pagehide", abort);
  globalThis.addEventListener?.("pagehide", abort);
  for (const end of ["complete", "abort"]) transaction.addEventListener(end, forget);
  return transaction;
}

export function settled<T>(request: IDBRequest<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}

/** Of a file system, a browser, and SQLite. */
const fullNames: readonly unknown[] = [
  "ENOSPC",
  "EDQUOT",
  "QuotaExceededError",
  "database or disk is full",
];

/** `store_full`, or `unusable`. */
export function storeFailure(what: string, cause: unknown): ClientError {
  if (cause instanceof ClientError) return cause;
  const {
    code,
    name,
    message = code ?? name ?? cause,
  } = isRecord(cause) ? cause : { message: cause };
  const isFull = [code, name, message].some((one) => fullNames.includes(one));
  return new ClientError(
    "local",
    isFull ? "store_full" : "unusable",
    `${what} failed: ${message}`,
    { cause },
  );
}

/** The same store, whose failures are all of the SDK's kind: `store_full`, or `unusable`. */
export function reliable(keys: KeyStore): KeyStore {
  for (const name of ["load", "save", "replace"] as const)
    if (typeof keys?.[name] !== "function")
      throw localError("invalid_argument", `keys has no function ${name}`);
  const guard = async <T>(work: () => Promise<T>): Promise<T> => {
    try {
      return await work();
    } catch (cause) {
      throw storeFailure("the key store", cause);
    }
  };
  return {
    load: (key) => guard(() => keys.load(key)),
    save: (key, text) => guard(() => keys.save(key, text)),
    replace: (key, before, text) => guard(() => keys.replace(key, before, text)),
    lock: () => keys.lock?.(),
    ...(keys.list === undefined ? {} : { list: keys.list }),
  };
}
