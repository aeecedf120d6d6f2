/**
 * What an identity remembers of the people it writes to: for each correspondent how far its record had come, for each
 * alias whose it was. A Directory can show an old record or another branch of it only to somebody who remembers nothing.
 * Source: docs/trust.md "Memory".
 */
import { decodeHex, encodeHex, equalBytes } from "../../core/codec/bytes.ts";
import { type Did, isDid } from "../../core/codec/did.ts";
import type { KeyState } from "../../core/trust/proof.ts";
import { parseRecord } from "../answers.ts";
import { ClientError } from "../http.ts";

/** What an identity remembers of others: a small public text under each key, apart from the secrets. */
export type MemoryStore = {
  readonly load: (key: string) => Promise<string | null>;
  /** Resolves when the text is stored; `null` removes it. */
  readonly save: (key: string, text: string | null) => Promise<void>;
};

/** Lost with the process. */
export function processMemory(texts = new Map<string, string>()): MemoryStore {
  return {
    load: async (key) => texts.get(key) ?? null,
    save: async (key, text) => {
      if (text === null) texts.delete(key);
      else texts.set(key, text);
    },
  };
}

/** How far a record had come when it was last proven. */
export type Remembered = {
  readonly did: Did;
  /** Number of the root key in force, and the key. */
  readonly root: number;
  readonly rootKey: Uint8Array;
  /** The next document nonce, and the hash of the document there. */
  readonly nonce: bigint;
  readonly hash: Uint8Array;
};

export function rememberedOf({ did, rootKeys, steps }: KeyState): Remembered {
  const { nonce, hash } = steps.at(-1) ?? steps[0];
  return { did, root: rootKeys.length - 1, rootKey: rootKeys.at(-1) as Uint8Array, nonce, hash };
}

/** An answer that what was signed, or what is remembered, contradicts. */
export function distrust(code: DistrustCode, message: string): ClientError {
  return new ClientError("distrusted", code, message);
}
type DistrustCode =
  | "proof_missing"
  | "proof_invalid"
  | "identity_changed"
  | "record_went_back"
  | "not_logged"
  | "log_missing"
  | "log_invalid"
  | "log_unwitnessed"
  | "log_stale"
  | "log_forked"
  | "log_restarted";

/**
 * Refuses a state that doesn't follow from the remembered one. It must go through it, or have a later base; and what
 * changed since is under a root key that is at least as new.
 */
export function checkFollows(before: Remembered, state: KeyState): ClientError | null {
  const { did } = before;
  const back = (what: string) =>
    distrust("record_went_back", `${did}: ${what} is older than what was seen before; ask the person or try later`);
  const changed = (what: string) =>
    distrust(
      "identity_changed",
      `${did}: ${what} is not what was seen before; compare fingerprints with the person, then forget the old one`,
    );
  const rootKey = state.rootKeys[before.root];
  if (rootKey === undefined) return back("the root key");
  if (!equalBytes(rootKey, before.rootKey)) return changed("the root key");
  const [base] = state.steps;
  const last = state.steps.at(-1) ?? base;
  if (last.nonce < before.nonce) return back("the document");
  if (last.nonce > before.nonce && state.baseRoot < before.root) return back("the key of the document");
  if (base.nonce > before.nonce) return null;
  const then = state.steps.find(({ nonce }) => nonce === before.nonce);
  return then !== undefined && equalBytes(then.hash, before.hash) ? null : changed("the document");
}

// ---------------------------------------------------------------------------------------------------------- as text

const didKey = (did: Did) => `did/${did}`;
const aliasKey = (alias: string) => `alias/${alias}`;

export async function loadRemembered(store: MemoryStore, did: Did): Promise<Remembered | null> {
  const json = parseRecord((await store.load(didKey(did))) ?? "");
  if (json?.["did"] !== did) return null;
  const [rootKey, hash] = [json["root_key"], json["hash"]].map((text) =>
    typeof text === "string" && /^[0-9a-f]{64}$/.test(text) ? decodeHex(text) : null,
  );
  const { root, nonce } = json;
  if (rootKey == null || hash == null || typeof root !== "number" || typeof nonce !== "string") return null;
  return { did, root, rootKey, nonce: BigInt(nonce), hash };
}

export async function saveRemembered(store: MemoryStore, remembered: Remembered): Promise<void> {
  const { did, root, rootKey, nonce, hash } = remembered;
  const json = { did, root, root_key: encodeHex(rootKey), nonce: String(nonce), hash: encodeHex(hash) };
  await store.save(didKey(did), JSON.stringify(json));
}

export async function loadAlias(store: MemoryStore, alias: string): Promise<Did | null> {
  const json = parseRecord((await store.load(aliasKey(alias))) ?? "");
  const did = json?.["alias"] === alias ? json["did"] : null;
  return typeof did === "string" && isDid(did) ? did : null;
}

export async function saveAlias(store: MemoryStore, alias: string, did: Did): Promise<void> {
  await store.save(aliasKey(alias), JSON.stringify({ alias, did }));
}

/** Forgets what a DID or an alias was. */
export async function forget(store: MemoryStore, target: string): Promise<void> {
  await store.save(isDid(target) ? didKey(target) : aliasKey(target), null);
}
