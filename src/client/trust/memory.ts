/**
 * What an identity remembers of the people it writes to: for each correspondent how far its record had come, for each
 * alias whose it was. A Directory can show an old record or another branch of it only to somebody who remembers nothing.
 * Source: docs/trust.md "Memory".
 */
import { encodeHex } from "../../core/codec/bytes.ts";
import { type Did, isDid } from "../../core/codec/did.ts";
import { findContradiction, type Remembered } from "../../core/trust/follow.ts";
import { parseHome } from "../../core/trust/home.ts";
import type { KeyState } from "../../core/trust/proof.ts";
import { hexBytes, parseRecord, parseShaped, rememberedShape } from "../answers.ts";
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

/** An answer that what was signed, or what is remembered, contradicts. */
export function distrust(code: DistrustCode, message: string): ClientError {
  return new ClientError("distrusted", code, message);
}
type DistrustCode =
  | "proof_missing"
  | "proof_invalid"
  | "identity_changed"
  | "record_went_back"
  | "home_differs"
  | "not_logged"
  | "log_missing"
  | "log_invalid"
  | "log_unwitnessed"
  | "log_stale"
  | "log_forked"
  | "log_restarted";

/** Refuses a state that doesn't follow from the remembered one. */
export function checkFollows(before: Remembered, state: KeyState): ClientError | null {
  const found = findContradiction(before, state);
  if (found === null) return null;
  const why =
    found.code === "record_went_back"
      ? "is older than what was seen before; ask the person or try later"
      : "is not what was seen before; compare fingerprints with the person, then forget the old one";
  return distrust(found.code, `${before.did}: ${found.what} ${why}`);
}

// ---------------------------------------------------------------------------------------------------------- as text

const didKey = (did: Did) => `did/${did}`;
const aliasKey = (alias: string) => `alias/${alias}`;

export async function loadRemembered(store: MemoryStore, did: Did): Promise<Remembered | null> {
  const json = parseShaped((await store.load(didKey(did))) ?? "", rememberedShape);
  if (json?.did !== did) return null;
  const { root, root_key: rootKey, nonce, hash } = json;
  return { did, root, rootKey: hexBytes(rootKey), nonce: BigInt(nonce), hash: hexBytes(hash) };
}

/** The home that the document named then. */
export async function loadHome(store: MemoryStore, did: Did): Promise<string | null> {
  const home = parseRecord((await store.load(didKey(did))) ?? "")?.["home"];
  return typeof home === "string" ? parseHome(home) : null;
}

export async function saveRemembered(
  store: MemoryStore,
  remembered: Remembered,
  home: string | null = null,
): Promise<void> {
  const { did, root, rootKey, nonce, hash } = remembered;
  const place = home === null ? {} : { home };
  const json = { did, root, root_key: encodeHex(rootKey), nonce: String(nonce), hash: encodeHex(hash), ...place };
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
