/**
 * Where identities are stored between runs: in memory, in the browser's IndexedDB (`@waypost/client/node` has files), or in
 * text that is sealed with a passphrase.
 * Source: docs/client.md "Opening".
 */
import { chacha20poly1305 } from "@noble/ciphers/chacha.js";
import { scryptAsync } from "@noble/hashes/scrypt.js";
import { decodeBase64, decodeUtf8, encodeBase64, utf8 } from "../core/codec/bytes.ts";
import { isRecord, parseRecord } from "./answers.ts";
import { ClientError, localError } from "./http.ts";
import { parseIdentity } from "./keys.ts";
import { type MemoryStore, processMemory } from "./trust/memory.ts";

/** Each write resolves when it is stored safely: the caller relies on it from then on. */
export type KeyStore = {
  readonly load: (name: string) => Promise<string | null>;
  /** Stores a new text. `false` when there is one of this name already, however many tabs or processes add it at once. */
  readonly add: (name: string, text: string) => Promise<boolean>;
  readonly replace: (name: string, text: string) => Promise<void>;
  readonly delete: (name: string) => Promise<void>;
  /** What the identity of this name remembers of others. It stays when the identity is deleted. */
  readonly memoryOf: (name: string) => MemoryStore;
  /** Of a store that can: texts can't be read from then on, until it is unlocked. */
  readonly lock?: () => void;
};

/** Lost with the process: for tests, and for identities that are created each time. */
export function memoryKeys(): KeyStore {
  const texts = new Map<string, string>();
  const { load, save } = processMemory(texts);
  return {
    load,
    add: async (name, text) => {
      if (texts.has(name)) return false;
      texts.set(name, text);
      return true;
    },
    replace: save,
    delete: (name) => save(name, null),
    memoryOf: partOf({ load, save }),
  };
}

/** No identity has a slash in its name. */
function partOf({ load, save }: MemoryStore): KeyStore["memoryOf"] {
  return (name) => ({ load: (key) => load(`${name}/${key}`), save: (key, text) => save(`${name}/${key}`, text) });
}

const storeName = "identities";

/** In the browser, for the page's origin. That it is kept when space is short the page asks for. */
export function indexedDbKeys(database = "waypost"): KeyStore {
  if (typeof indexedDB === "undefined") throw localError("no_indexeddb", "this runtime has no IndexedDB");
  const opened = openDatabase(database);
  opened.catch(() => undefined);
  const write = async (change: (store: IDBObjectStore) => unknown) => {
    const transaction = (await opened).transaction(storeName, "readwrite", { durability: "strict" });
    change(transaction.objectStore(storeName));
    await new Promise<void>((resolve, reject) => {
      transaction.oncomplete = () => resolve();
      transaction.onabort = () => reject(transaction.error);
    });
  };
  const load = async (name: string): Promise<string | null> => {
    const value: unknown = await settled((await opened).transaction(storeName).objectStore(storeName).get(name));
    return typeof value === "string" ? value : null;
  };
  const save = (name: string, text: string | null) =>
    write((store) => (text === null ? store.delete(name) : store.put(text, name)));
  return {
    load,
    add: async (name, text) => {
      try {
        await write((store) => store.add(text, name));
        return true;
      } catch (error) {
        if (nameOf(error) === "ConstraintError") return false;
        throw error;
      }
    },
    replace: save,
    delete: (name) => save(name, null),
    memoryOf: partOf({ load, save }),
  };
}

async function openDatabase(name: string): Promise<IDBDatabase> {
  const request = indexedDB.open(name, 1);
  request.onupgradeneeded = () => request.result.createObjectStore(storeName);
  return settled(request);
}

export function settled<T>(request: IDBRequest<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}

/** `ENOSPC` of a file system, `QuotaExceededError` of a browser. */
function nameOf(error: unknown): string {
  const { code, name } = isRecord(error) ? error : {};
  return typeof code === "string" ? code : String(name);
}

/** The last is SQLite's. */
const fullNames = ["ENOSPC", "EDQUOT", "QuotaExceededError", "database or disk is full"];

/** `store_full`, or `unusable`. */
export function storeFailure(what: string, cause: unknown): ClientError {
  if (cause instanceof ClientError) return cause;
  const why = cause instanceof Error ? cause.message : nameOf(cause);
  const code = fullNames.includes(nameOf(cause)) || fullNames.includes(why) ? "store_full" : "unusable";
  return new ClientError("local", code, `${what} failed: ${why}`, { cause });
}

/** The same store, whose failures are all of the SDK's kind: `store_full`, or `unusable`. */
export function reliable(keys: KeyStore): KeyStore {
  for (const name of ["load", "add", "replace", "delete", "memoryOf"] as const)
    if (typeof keys?.[name] !== "function") throw localError("invalid_argument", `keys has no function ${name}`);
  const guard = async <T>(work: () => Promise<T>): Promise<T> => {
    try {
      return await work();
    } catch (cause) {
      throw storeFailure("the key store", cause);
    }
  };
  const guardMemory = (memory: MemoryStore): MemoryStore => ({
    load: (key) => guard(() => memory.load(key)),
    save: (key, text) => guard(() => memory.save(key, text)),
  });
  return {
    load: (name) => guard(() => keys.load(name)),
    add: (name, text) => guard(() => keys.add(name, text)),
    replace: (name, text) => guard(() => keys.replace(name, text)),
    delete: (name) => guard(() => keys.delete(name)),
    memoryOf: (name) => guardMemory(keys.memoryOf(name)),
    lock: () => keys.lock?.(),
  };
}

// ------------------------------------------------------------------------------------------------------ sealed copies

const format = "waypost-keys:v1";
/** 32 MiB of memory and about half a second. */
const cost = { N: 2 ** 15, r: 8, p: 1 };
const saltBytes = 16;
const nonceBytes = 12;

/** Seals an identity. The text and the passphrase together are the identity. Throws `no_identity` when the store has none of this name. */
export async function exportKeys(keys: KeyStore, name: string, passphrase: string): Promise<string> {
  const text = await reliable(keys).load(name);
  if (text === null) throw localError("no_identity", `there is no identity called ${name}`);
  if (passphrase === "") throw localError("invalid_argument", "an empty passphrase protects nothing");
  const salt = crypto.getRandomValues(new Uint8Array(saltBytes));
  const nonce = crypto.getRandomValues(new Uint8Array(nonceBytes));
  const sealed = chacha20poly1305(await keyOf(passphrase, salt), nonce, utf8(format)).encrypt(utf8(text));
  const [salt_b64, nonce_b64, sealed_b64] = [salt, nonce, sealed].map(encodeBase64);
  return JSON.stringify({ format, kdf: "scrypt", ...cost, salt_b64, nonce_b64, sealed_b64 });
}

/** Throws `wrong_passphrase`, `keys_unreadable`, or `name_taken` when the store already has this name: `delete` it first. */
export async function importKeys(
  keys: KeyStore,
  name: string,
  { sealed, passphrase }: { readonly sealed: string; readonly passphrase: string },
): Promise<void> {
  const parts = parseSealed(sealed);
  const text = await decrypt(parts, passphrase);
  if (parseIdentity(text, name) === null)
    throw localError("keys_unreadable", "the sealed text does not contain an identity");
  if (!(await reliable(keys).add(name, text)))
    throw localError("name_taken", `an identity called ${name} already exists`);
}

function keyOf(passphrase: string, salt: Uint8Array): Promise<Uint8Array> {
  return scryptAsync(passphrase.normalize("NFKC"), salt, { ...cost, dkLen: 32 });
}

type Sealed = { readonly salt: Uint8Array; readonly nonce: Uint8Array; readonly sealed: Uint8Array };

/** The cost is fixed: a stranger's text must not choose how much memory it takes. */
function parseSealed(text: string): Sealed {
  const json = parseRecord(text);
  const bytes = (name: string) => (typeof json?.[name] === "string" ? decodeBase64(json[name]) : null);
  const [salt, nonce, sealed] = [bytes("salt_b64"), bytes("nonce_b64"), bytes("sealed_b64")];
  const known = json?.["format"] === format && json["N"] === cost.N && json["r"] === cost.r && json["p"] === cost.p;
  if (!known || salt?.length !== saltBytes || nonce?.length !== nonceBytes || sealed === null || sealed === undefined)
    throw localError("keys_unreadable", "not an exported identity of this version");
  return { salt, nonce, sealed };
}

async function decrypt({ salt, nonce, sealed }: Sealed, passphrase: string): Promise<string> {
  const key = await keyOf(passphrase, salt);
  let plain: Uint8Array;
  try {
    plain = chacha20poly1305(key, nonce, utf8(format)).decrypt(sealed);
  } catch {
    throw localError("wrong_passphrase", "the passphrase is wrong");
  }
  return decodeUtf8(plain) ?? "";
}
