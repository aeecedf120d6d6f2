/**
 * Keys that are locked while no one uses them: a key store around another one, whose texts are
 * sealed with a random key. That key is wrapped by each lock: always by a passphrase or a printed
 * code, because passkeys are lost and not everywhere able to do this, and also by a passkey. The
 * identity's text holds the key of its local store, so that is locked too.
 * Source: docs/client.md "Lost and found", D395; WebAuthn Level 3 section 10.1.4 (PRF).
 */
import { scryptAsync } from "@noble/hashes/scrypt.js";
import { decodeUtf8, encodeBase32, utf8 } from "../../core/codec/bytes.ts";
import { localError } from "../base/failure.ts";
import {
  array,
  keptBytes,
  nullable,
  type Of,
  object,
  oneOf,
  parseKept,
  parseRecord,
  renderKept,
  text,
} from "../base/shapes.ts";
import { hkdf, openBytes, sealBytes } from "./crypto.ts";
import { type KeyStore, memoryOf } from "./key-stores.ts";

/** The key of locked texts, sealed with that of a lock. */
const wrap = {
  kind: oneOf("passphrase", "passkey"),
  salt: keptBytes,
  credential: nullable(keptBytes),
  sealed: keptBytes,
};
const locksShape = object({ format: text, locks: array(object(wrap)) });
const namesShape = object({ names: array(text) });
const sealedShape = object({ format: text, sealed: keptBytes });

type Wrap = Of<typeof locksShape>["locks"][number];

/** What a lock needs again to unlock; nothing of it is secret. */
type KeptWrap = Pick<Wrap, "salt" | "credential">;

export type Lock = {
  readonly kind: "passphrase" | "passkey";
  /** `kept` is `null` when the lock is set up. */
  readonly keyFor: (
    kept: KeptWrap | null,
  ) => Promise<{ readonly key: Uint8Array; readonly kept: KeptWrap }>;
};

/** 32 MiB of memory and about half a second. */
const cost = { N: 2 ** 15, r: 8, p: 1, dkLen: 32 };
const random = (length: number): Uint8Array<ArrayBuffer> =>
  crypto.getRandomValues(new Uint8Array(length));

/**
 * A passphrase that no one guesses, to print: 130 random bits in groups of
 * letters that can't be mistaken.
 */
export function recoveryCode(): string {
  const letters = encodeBase32(random(17)).slice(0, 26);
  return (letters.match(/.{1,5}/g) ?? []).join("-");
}

/** A printed code counts however it is typed. */
function normalized(passphrase: string): string {
  const code = passphrase
    .toUpperCase()
    .replace(/[\s-]/g, "")
    .replace(/O/g, "0")
    .replace(/[IL]/g, "1");
  return /^[0-9A-HJKMNP-TV-Z]{26}$/.test(code) ? code : passphrase.normalize("NFKC");
}

export function passphraseKey(passphrase: string, salt: Uint8Array): Promise<Uint8Array> {
  if (passphrase === "")
    throw localError("invalid_argument", "an empty passphrase protects nothing");
  return scryptAsync(normalized(passphrase), salt, cost);
}

/** Also for a code of `recoveryCode`. */
export function passphraseLock(passphrase: string): Lock {
  return {
    kind: "passphrase",
    keyFor: async (kept) => {
      const salt = kept?.salt ?? random(16);
      return { key: await passphraseKey(passphrase, salt), kept: { salt, credential: null } };
    },
  };
}

/**
 * `name` is shown by the authenticator. Throws `no_prf` where that can't derive keys: the
 * passphrase goes on working.
 */
export function passkeyLock({ name = "Waypost" }: { readonly name?: string } = {}): Lock {
  return {
    kind: "passkey",
    keyFor: async (kept) => {
      const credential = kept?.credential ?? (await createPasskey(name));
      const salt = kept?.salt ?? random(32);
      const secret = await evaluate(credential, salt);
      return {
        key: hkdf(secret, null, utf8("waypost:lock:passkey"), 32),
        kept: { salt, credential },
      };
    },
  };
}

type PrfResults = {
  readonly prf?: { readonly results?: { readonly first?: ArrayBuffer | Uint8Array } };
};

async function createPasskey(name: string): Promise<Uint8Array> {
  const made = await requestCredential("create", {
    rp: { name },
    user: { id: random(16), name, displayName: name },
    challenge: random(32),
    pubKeyCredParams: [-8, -7, -257].map((alg) => ({ type: "public-key", alg })),
    authenticatorSelection: { residentKey: "preferred", userVerification: "required" },
    extensions: { prf: {} },
  });
  return new Uint8Array(made.rawId);
}

/** Read with `get`: authenticators often return nothing when they make the passkey. */
async function evaluate(credential: Uint8Array, salt: Uint8Array): Promise<Uint8Array> {
  const asserted = await requestCredential("get", {
    challenge: random(32),
    allowCredentials: [{ type: "public-key", id: credential }],
    userVerification: "required",
    extensions: { prf: { eval: { first: salt } } },
  });
  const first = (asserted.getClientExtensionResults() as PrfResults).prf?.results?.first;
  const secret = first === undefined ? null : new Uint8Array(first as ArrayBuffer);
  if (secret?.length !== 32) throw localError("no_prf", "this passkey derives no keys");
  return secret;
}

async function requestCredential(
  what: "create" | "get",
  publicKey: object,
): Promise<PublicKeyCredential> {
  const { credentials } = globalThis.navigator ?? {};
  if (credentials === undefined) throw localError("no_passkeys", "this runtime has no passkeys");
  const call = credentials[what].bind(credentials) as (
    options: object,
  ) => Promise<Credential | null>;
  const answer = await call({ publicKey }).catch((error: unknown) => {
    throw localError("passkey_refused", error instanceof Error ? error.message : String(error));
  });
  if (answer === null) throw localError("passkey_refused", "there is no such passkey");
  return answer as PublicKeyCredential;
}

export type LockedKeys = KeyStore & {
  /** Which locks the keys have. Without any, `setUp` comes first. */
  readonly kinds: () => Promise<readonly Lock["kind"][]>;
  /**
   * Draws the key, seals what is there, and leaves it unlocked. Of a store that can't `list` its
   * keys, what lies under `names` is sealed, and what is remembered of others when it is read.
   */
  readonly setUp: (lock: Lock, names?: readonly string[]) => Promise<void>;
  /** Throws `wrong_passphrase` when no lock of the kind opens. */
  readonly unlock: (lock: Lock) => Promise<void>;
  /** A further one, or another passphrase in the place of the one before. */
  readonly addLock: (lock: Lock) => Promise<void>;
  readonly removePasskeys: () => Promise<void>;
  /** Forgets the key: reads and writes throw `locked`. */
  readonly lock: () => void;
};

const format = "waypost-locked:v1";
const locksName = "waypost";
/** Lies there, sealed, while texts from before the locks may be plain. */
const sealingName = "sealing";

export function lockedKeys(inner: KeyStore): LockedKeys {
  const place = memoryOf(inner, locksName);
  let key: Uint8Array | null = null;
  const unlocked = (): Uint8Array => {
    if (key === null) throw localError("locked", "the keys are locked");
    return key;
  };
  const wraps = async (): Promise<Wrap[]> => {
    const text = await place.load("locks");
    const kept = text === null ? { format, locks: [] } : parseKept(text, locksShape);
    if (kept?.format !== format)
      throw localError("keys_unreadable", "the locks of the keys can't be read");
    return kept.locks;
  };
  const saveLocks = (locks: readonly Wrap[]) => place.save("locks", renderKept({ format, locks }));
  const wrap = async ({ kind, keyFor }: Lock, opened: () => Uint8Array): Promise<Wrap> => {
    const { key: wrapping, kept } = await keyFor(null);
    return { kind, ...kept, sealed: sealBytes(wrapping, opened(), boundTo(locksName)) };
  };
  /** Names whose plain texts are still to be sealed; `null` when there are none. */
  let plain: readonly string[] | null = null;
  /** Who can write below, and has no passphrase, could put an identity of their own there. */
  const mayBePlain = (name: string): boolean =>
    plain !== null || (inner.list === undefined && name.includes("/"));
  const opened = (name: string, text: string): string => {
    const found = openText(unlocked(), text, name);
    if (found !== null || mayBePlain(name)) return found ?? text;
    throw localError("keys_unreadable", `what is kept for ${name} was never locked`);
  };
  const seal = async (name: string, text: string): Promise<void> => {
    const isSealed = openText(unlocked(), text, name) !== null;
    if (!isSealed) await inner.replace(name, text, sealText(unlocked(), text, name));
  };
  const sealPlain = async (): Promise<void> => {
    for (const name of plain ?? []) {
      const text = name.startsWith(`${locksName}/`) ? null : await inner.load(name);
      if (text !== null) await seal(name, text);
    }
    await place.save(sealingName, null);
    plain = null;
  };
  return {
    load: async (name) => {
      const text = await inner.load(name);
      if (text === null) return null;
      const found = opened(name, text);
      await seal(name, text);
      return found;
    },
    save: async (name, text) =>
      inner.save(name, text === null ? null : sealText(unlocked(), text, name)),
    replace: async (name, before, text) => {
      const held = await inner.load(name);
      const found = held === null ? null : opened(name, held);
      return found === before && inner.replace(name, held, sealText(unlocked(), text, name));
    },
    ...(inner.list === undefined ? {} : { list: inner.list }),
    kinds: async () => (await wraps()).map(({ kind }) => kind),
    setUp: async (lock, names = []) => {
      if (lock.kind !== "passphrase")
        throw localError("invalid_argument", "the first lock is a passphrase or a code");
      if ((await wraps()).length > 0) throw localError("name_taken", "the keys have locks already");
      const drawn = random(32);
      const given = (await inner.list?.()) ?? names;
      const wrapped = await wrap(lock, () => drawn);
      // An interrupted set-up goes on when it is unlocked: the mark counts by the key alone.
      await place.save(sealingName, sealText(drawn, renderKept({ names: given }), sealingName));
      await saveLocks([wrapped]);
      [key, plain] = [drawn, given];
      await sealPlain();
    },
    unlock: async (lock) => {
      key = await unwrap(lock, await wraps());
      const mark = await place.load(sealingName);
      const text = mark === null ? null : openText(key, mark, sealingName);
      plain = text === null ? null : (parseKept(text, namesShape)?.names ?? []);
      if (plain !== null) await sealPlain();
    },
    addLock: async (lock) => {
      const added = await wrap(lock, unlocked);
      const others = (await wraps()).filter(
        ({ kind }) => kind === "passkey" || lock.kind === "passkey",
      );
      await saveLocks([...others, added]);
    },
    removePasskeys: async () => {
      unlocked();
      await saveLocks((await wraps()).filter(({ kind }) => kind !== "passkey"));
    },
    lock: () => {
      key?.fill(0);
      key = null;
    },
  };
}

async function unwrap(lock: Lock, wraps: readonly Wrap[]): Promise<Uint8Array> {
  for (const { kind, sealed, ...kept } of wraps) {
    if (kind !== lock.kind) continue;
    const opened = openBytes((await lock.keyFor(kept)).key, sealed, boundTo(locksName));
    if (opened !== null) return opened;
  }
  throw localError("wrong_passphrase", `no lock of the kind ${lock.kind} opens with this`);
}

const boundTo = (name: string): Uint8Array => utf8(`${format}:${name}`);

const sealText = (key: Uint8Array, text: string, name: string): string =>
  renderKept({ format, sealed: sealBytes(key, utf8(text), boundTo(name)) });

/** `null` for text that was never sealed. */
function openText(key: Uint8Array, text: string, name: string): string | null {
  if (parseRecord(text)?.["format"] !== format) return null;
  const kept = parseKept(text, sealedShape);
  const plain = kept === null ? null : openBytes(key, kept.sealed, boundTo(name));
  if (plain !== null) return decodeUtf8(plain);
  throw localError(
    "keys_unreadable",
    `what is kept for ${name} was changed, or locked with another key`,
  );
}
