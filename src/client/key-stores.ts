/**
 * Where an identity is kept between runs: in memory, or in the browser's IndexedDB (`@waypost/client/node` has files).
 * A store has one secret text for each name. An identity can be exported as text sealed with a passphrase, which may be
 * stored or sent anywhere: to move it to another device, or to keep a copy.
 */
import { chacha20poly1305 } from "@noble/ciphers/chacha.js";
import { scryptAsync } from "@noble/hashes/scrypt.js";
import { decodeBase64, decodeUtf8, encodeBase64, utf8 } from "../core/codec/bytes.ts";
import { parseRecord } from "./answers.ts";
import { localError } from "./http.ts";
import { parseIdentity } from "./keys.ts";

export type KeyStore = {
  readonly load: (name: string) => Promise<string | null>;
  /** Resolves when the text is stored safely: the caller relies on it from then on. */
  readonly save: (name: string, text: string) => Promise<void>;
};

/** Lost with the process: for tests, and for identities that are created each time. */
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

// ------------------------------------------------------------------------------------------------------ sealed copies

const format = "waypost-keys:v1";
/** 32 MiB of memory and about half a second. */
const cost = { N: 2 ** 15, r: 8, p: 1 };
const saltBytes = 16;
const nonceBytes = 12;

/** Seals an identity. Whoever has the text and the passphrase is the identity. Throws `no_identity` when the store has none of this name. */
export async function exportKeys(keys: KeyStore, name: string, passphrase: string): Promise<string> {
  const text = await keys.load(name);
  if (text === null) throw localError("no_identity", `there is no identity called ${name}`);
  const salt = crypto.getRandomValues(new Uint8Array(saltBytes));
  const nonce = crypto.getRandomValues(new Uint8Array(nonceBytes));
  const sealed = chacha20poly1305(await keyOf(passphrase, salt), nonce, utf8(format)).encrypt(utf8(text));
  const [saltText, nonceText, sealedText] = [salt, nonce, sealed].map(encodeBase64);
  return JSON.stringify({
    format,
    kdf: "scrypt",
    ...cost,
    salt_b64: saltText,
    nonce_b64: nonceText,
    sealed_b64: sealedText,
  });
}

/** Throws `wrong_passphrase`, `keys_unreadable`, or `name_taken` when the store already has this name. */
export async function importKeys(
  keys: KeyStore,
  name: string,
  { sealed, passphrase }: { readonly sealed: string; readonly passphrase: string },
): Promise<void> {
  const parts = parseSealed(sealed);
  if ((await keys.load(name)) !== null) throw localError("name_taken", `an identity called ${name} already exists`);
  const text = await decrypt(parts, passphrase);
  if (parseIdentity(text, name) === null) throw localError("keys_unreadable", "the sealed text holds no identity");
  await keys.save(name, text);
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
    throw localError("wrong_passphrase", "the passphrase does not open this");
  }
  return decodeUtf8(plain) ?? "";
}
