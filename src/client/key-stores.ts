/**
 * Where an identity is kept between runs: in memory, or in the browser's IndexedDB. `@waypost/client/node`
 * has files. A store holds one text for each name, and that text is secret.
 */
import { localError } from "./http.ts";

export type KeyStore = {
  readonly load: (name: string) => Promise<string | null>;
  /** Resolves when the text is safe: what it holds is about to be relied on. */
  readonly save: (name: string, text: string) => Promise<void>;
};

/** Gone with the process: for tests, and for identities that are made anew each time. */
export function memoryKeys(): KeyStore {
  const texts = new Map<string, string>();
  return {
    load: async (name) => texts.get(name) ?? null,
    save: async (name, text) => {
      texts.set(name, text);
    },
  };
}

const storeName = "identities";

/** In the browser, for the page's origin. Asks it to keep the database when space is short. */
export function indexedDbKeys(database = "waypost"): KeyStore {
  if (typeof indexedDB === "undefined") throw localError("no_indexeddb", "this runtime has no IndexedDB");
  const opened = openDatabase(database);
  opened.catch(() => undefined);
  return {
    load: async (name) => {
      const value: unknown = await settled((await opened).transaction(storeName).objectStore(storeName).get(name));
      return typeof value === "string" ? value : null;
    },
    save: async (name, text) => {
      const transaction = (await opened).transaction(storeName, "readwrite", { durability: "strict" });
      transaction.objectStore(storeName).put(text, name);
      await new Promise<void>((resolve, reject) => {
        transaction.oncomplete = () => resolve();
        transaction.onabort = () => reject(unusable(transaction.error));
      });
    },
  };
}

async function openDatabase(name: string): Promise<IDBDatabase> {
  const request = indexedDB.open(name, 1);
  request.onupgradeneeded = () => request.result.createObjectStore(storeName);
  const database = await settled(request);
  await navigator.storage?.persist?.().catch(() => false);
  return database;
}

function settled<T>(request: IDBRequest<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(unusable(request.error));
  });
}

function unusable(cause: DOMException | null) {
  return localError("unusable", `IndexedDB refuses: ${cause?.message ?? "unknown reason"}`);
}
