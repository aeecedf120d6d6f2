/**
 * An identity: its DID, its secrets, which never leave this machine, and the text form in which they are stored.
 * Source: interface "Signed DID-document updates" (private keys), rules section 1.
 */

import { encodeBase58, encodeHex, equalBytes, utf8 } from "../core/codec/bytes.ts";
import type { Did } from "../core/codec/did.ts";
import { weekMs } from "../core/codec/time.ts";
import { deriveDid } from "../core/trust/names.ts";
import { identityShape, parseKept, renderKept } from "./answers.ts";
import { ed25519PublicKey, hkdf } from "./crypto.ts";
import { localError } from "./http.ts";

/** An Ed25519 seed or an X25519 secret of 32 bytes, with the absolute id that the document gives its key. */
type HeldKey = { readonly id: string; readonly secret: Uint8Array };

/** The secret of a key agreement, and the time after which nothing sealed to it can still be waiting. */
export type HeldAgreement = HeldKey & { readonly destroyAtMs: number | null };

/**
 * Where the secrets of key agreements come from: each is derived from a chain key that is replaced with it,
 * so that no later state reveals an earlier secret, and every device that began with the same state derives the same
 * next key (`change.ts`).
 */
export type AgreementChain = {
  /** How many chains came before: a new one begins when all keys are replaced, and of two identities the later counts. */
  readonly epoch: number;
  /** The next secret is derived from it. */
  readonly key: Uint8Array;
  /** When this device began to use the last secret. */
  readonly sinceMs: number;
};

export type Identity = {
  readonly name: string;
  readonly did: Did;
  /** Signs as `root`. */
  readonly rootSeed: Uint8Array;
  /** A root key that was submitted and not yet seen in force. */
  readonly nextRootSeed: Uint8Array | null;
  /** Seeds of verification methods, old ones too: the document shows which seed of an id is in force. */
  readonly methods: readonly HeldKey[];
  /** Secrets of key agreements, old ones too, since messages sealed to them may still arrive. */
  readonly agreements: readonly HeldAgreement[];
  readonly chain: AgreementChain;
  /**
   * The genesis hash of the ledger that the identity belongs to, in hex: pinned with its first use at a Directory that
   * accepts proofs of version 3. Nothing is signed for another ledger from then on.
   */
  readonly ledger: string | null;
  /** Seals the local store of this device; `null` until there is one. */
  readonly storeKey: Uint8Array | null;
};

export const rootSignerId = "root";

export const nameForm = /^[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}$/;

/** A new chain and its first secret. */
export function startChain(nowMs: number): { secret: Uint8Array; chain: AgreementChain } {
  return advanceChain({ epoch: 0, key: crypto.getRandomValues(new Uint8Array(32)), sinceMs: nowMs }, nowMs);
}

/** The next secret. Whoever keeps only the new chain can't derive the secrets before it. */
export function advanceChain(chain: AgreementChain, nowMs: number): { secret: Uint8Array; chain: AgreementChain } {
  const derive = (purpose: string) => hkdf(chain.key, null, utf8(`waypost:agreement:v1:${purpose}`), 32);
  return { secret: derive("secret"), chain: { epoch: chain.epoch, key: derive("next"), sinceMs: nowMs } };
}

export const rotationMsDefault = weekMs;

/** Whether `rotateAgreement` has something to do: a key that is due, or a secret to destroy. */
export function isRotationDue({ agreements, chain }: Identity, nowMs: number, everyMs: number): boolean {
  const isOver = agreements.some(({ destroyAtMs }) => destroyAtMs !== null && destroyAtMs <= nowMs);
  return isOver || nowMs - chain.sinceMs >= everyMs;
}

/** New keys and a new DID of 16 random bytes, whose keys nothing proves. Nothing is written. */
export function createIdentity(name: string, nowMs: number = Date.now()): Identity {
  const did = `did:svc:${freshAddress()}` as Did;
  return newIdentity({ name, did, rootSeed: freshSeed(), ledger: null }, nowMs);
}

/** New keys, and the self-certifying DID that follows from the root key and the ledger. Nothing is written. */
export async function createCertifiedIdentity(
  name: string,
  genesisHash: Uint8Array,
  nowMs: number = Date.now(),
): Promise<Identity> {
  const rootSeed = freshSeed();
  const did = deriveDid(genesisHash, await ed25519PublicKey(rootSeed));
  return newIdentity({ name, did, rootSeed, ledger: encodeHex(genesisHash) }, nowMs);
}

export const freshSeed = (): Uint8Array => crypto.getRandomValues(new Uint8Array(32));

function newIdentity(
  { name, did, rootSeed, ledger }: Pick<Identity, "name" | "did" | "rootSeed" | "ledger">,
  nowMs: number,
): Identity {
  if (!nameForm.test(name)) throw localError("invalid_name", "a name is 1 to 64 of A-Z a-z 0-9 . _ -, no dot first");
  const { secret, chain } = startChain(nowMs);
  return {
    name,
    did,
    rootSeed,
    nextRootSeed: null,
    methods: [{ id: `${did}#root`, secret: rootSeed }],
    agreements: [{ id: `${did}#x25519-1`, secret, destroyAtMs: null }],
    chain,
    ledger,
    storeKey: freshSeed(),
  };
}

/** base58btc of 16 random bytes; leading zeros could make it shorter than the 16 characters a DID needs. */
function freshAddress(): string {
  const address = encodeBase58(crypto.getRandomValues(new Uint8Array(16)));
  return address.length >= 16 ? address : freshAddress();
}

/** The seed of a root key, or of a public key of the document; `null` when this device lacks it. */
export async function heldSeed(identity: Identity, publicKey: Uint8Array): Promise<Uint8Array | null> {
  const { rootSeed, nextRootSeed, methods } = identity;
  for (const seed of [rootSeed, nextRootSeed, ...methods.map(({ secret }) => secret)])
    if (seed !== null && equalBytes(await ed25519PublicKey(seed), publicKey)) return seed;
  return null;
}

export function agreementSecrets(identity: Identity, keyId: string): Uint8Array[] {
  return identity.agreements.filter((agreement) => agreement.id === keyId).map(({ secret }) => secret);
}

function secretsOf({ rootSeed, nextRootSeed, methods, agreements, chain, storeKey }: Identity): Uint8Array[] {
  const held = [...methods, ...agreements].map(({ secret }) => secret);
  return [rootSeed, nextRootSeed, chain.key, storeKey, ...held].filter((secret) => secret !== null);
}

/** What was read of the secrets is zero afterwards, wherever it is referred to. */
export function wipe(identity: Identity): void {
  for (const secret of secretsOf(identity)) secret.fill(0);
}

/**
 * `next` in the place of `former`: a secret that stays is the same array, so that work under way goes on with it, and one
 * wipe reaches every copy. All others of the two are wiped.
 */
export function takeOver(former: Identity, next: Identity): Identity {
  const held = secretsOf(former);
  const same = (secret: Uint8Array): Uint8Array => {
    const found = held.find((one) => equalBytes(one, secret));
    if (found === undefined) held.push(secret);
    return found ?? secret;
  };
  const taken: Identity = {
    ...next,
    rootSeed: same(next.rootSeed),
    nextRootSeed: next.nextRootSeed && same(next.nextRootSeed),
    methods: next.methods.map((method) => ({ ...method, secret: same(method.secret) })),
    agreements: next.agreements.map((agreement) => ({ ...agreement, secret: same(agreement.secret) })),
    chain: { ...next.chain, key: same(next.chain.key) },
    storeKey: next.storeKey && same(next.storeKey),
  };
  const kept = new Set(secretsOf(taken));
  for (const secret of [...secretsOf(former), ...secretsOf(next)]) if (!kept.has(secret)) secret.fill(0);
  return taken;
}

// ----------------------------------------------------------------------------------------------- text

/** The text of a key file. Everything in it is secret. */
export function renderIdentity({ chain: agreementChain, storeKey, ...identity }: Identity): string {
  return renderKept({ version: 1, ...identity, agreementChain, ...(storeKey === null ? {} : { storeKey }) });
}

/** `null` when the text is not that of an identity. */
export function parseIdentity(text: string, name: string): Identity | null {
  const kept = parseKept(text, identityShape);
  if (kept === null) return null;
  const { version: _, agreementChain: chain, storeKey = null, ...identity } = kept;
  return { ...identity, name, chain, storeKey };
}
