/**
 * An identity: its DID, its secrets, which never leave this machine, and the text form in which they are stored.
 * Source: interface "Signed DID-document updates" (private keys), rules section 1.
 */

import { encodeBase58, equalBytes, utf8 } from "../../core/codec/bytes.ts";
import type { Did } from "../../core/codec/did.ts";
import { weekMs } from "../../core/codec/time.ts";
import { looksSelfCertifying } from "../../core/ledger/names.ts";
import { localError } from "../base/failure.ts";
import { identityShape } from "../base/kept.ts";
import { parseKept, renderKept } from "../base/shapes.ts";
import { ed25519PublicKey, hkdf } from "./crypto.ts";

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
  /** Genesis hash in hex of the only ledger for which it signs; `null` where the Directory named none when it was made. */
  readonly ledger: string | null;
  /** Seals the local store of this device. */
  readonly storeKey: Uint8Array;
};

export const rootSignerId = "root";

export const nameForm = /^[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}$/;

/** The next secret. The new chain alone can't derive the secrets before it. */
export function advanceChain(
  chain: AgreementChain,
  nowMs: number,
): { secret: Uint8Array; chain: AgreementChain } {
  const derive = (purpose: string) =>
    hkdf(chain.key, null, utf8(`waypost:agreement:v1:${purpose}`), 32);
  return {
    secret: derive("secret"),
    chain: { epoch: chain.epoch, key: derive("next"), sinceMs: nowMs },
  };
}

export const rotationMsDefault = weekMs;

/** Whether `rotateAgreement` has something to do: a key that is due, or a secret to destroy. */
export function isRotationDue(
  { agreements, chain }: Identity,
  nowMs: number,
  everyMs: number,
): boolean {
  const isOver = agreements.some(({ destroyAtMs }) => destroyAtMs !== null && destroyAtMs <= nowMs);
  return isOver || nowMs - chain.sinceMs >= everyMs;
}

/** New keys and a new DID of 16 random bytes, whose keys nothing proves. Nothing is written. */
export function createIdentity(name: string, nowMs: number = Date.now()): Identity {
  return newIdentity(
    { name, did: `did:svc:${freshAddress()}` as Did, rootSeed: freshSeed(), ledger: null },
    nowMs,
  );
}

export const freshSeed = (): Uint8Array => crypto.getRandomValues(new Uint8Array(32));

export function newIdentity(
  { name, did, rootSeed, ledger }: Pick<Identity, "name" | "did" | "rootSeed" | "ledger">,
  nowMs: number = Date.now(),
): Identity {
  if (!nameForm.test(name))
    throw localError("invalid_name", "a name is 1 to 64 of A-Z a-z 0-9 . _ -, no dot first");
  const { secret, chain } = advanceChain({ epoch: 0, key: freshSeed(), sinceMs: nowMs }, nowMs);
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
  // Directories register no other names that begin like self-certifying ones.
  const isFree = address.length >= 16 && !looksSelfCertifying(`did:svc:${address}`);
  return isFree ? address : freshAddress();
}

/** The seed of a root key, or of a public key of the document; `null` when this device lacks it. */
export async function heldSeed(
  identity: Identity,
  publicKey: Uint8Array,
): Promise<Uint8Array | null> {
  const { rootSeed, nextRootSeed, methods } = identity;
  for (const seed of [rootSeed, nextRootSeed, ...methods.map(({ secret }) => secret)])
    if (seed !== null && equalBytes(await ed25519PublicKey(seed), publicKey)) return seed;
  return null;
}

export function agreementSecrets(identity: Identity, keyId: string): Uint8Array[] {
  return identity.agreements
    .filter((agreement) => agreement.id === keyId)
    .map(({ secret }) => secret);
}

function mapSecrets(identity: Identity, map: (secret: Uint8Array) => Uint8Array): Identity {
  const { rootSeed, nextRootSeed, methods, agreements, chain, storeKey } = identity;
  const held = <T extends HeldKey>(one: T): T => ({ ...one, secret: map(one.secret) });
  return {
    ...identity,
    rootSeed: map(rootSeed),
    nextRootSeed: nextRootSeed && map(nextRootSeed),
    methods: methods.map(held),
    agreements: agreements.map(held),
    chain: { ...chain, key: map(chain.key) },
    storeKey: map(storeKey),
  };
}

/** What was read of the secrets is zero afterwards, wherever it is referred to. */
export function wipe(identity: Identity): void {
  mapSecrets(identity, (secret) => secret.fill(0));
}

/**
 * `next` in the place of `former`: a secret that stays is the same array, so that work under way goes on with it, and one
 * wipe reaches every copy. All others of the two are wiped.
 */
export function takeOver(former: Identity, next: Identity): Identity {
  const known: Uint8Array[] = [];
  const same = (secret: Uint8Array): Uint8Array => {
    const found = known.find((one) => equalBytes(one, secret)) ?? secret;
    known.push(found);
    return found;
  };
  mapSecrets(former, same);
  const kept = new Set<Uint8Array>();
  const taken = mapSecrets(next, (secret) => {
    const one = same(secret);
    kept.add(one);
    return one;
  });
  for (const one of [former, next])
    mapSecrets(one, (secret) => (kept.has(secret) ? secret : secret.fill(0)));
  return taken;
}

/** The text of a key file. Everything in it is secret. */
export const renderIdentity = (identity: Identity): string =>
  renderKept({ version: 1, ...identity });

/** `null` when the text is not that of an identity. */
export function parseIdentity(text: string, name: string): Identity | null {
  const kept = parseKept(text, identityShape);
  if (kept === null) return null;
  const { version: _, ...identity } = kept;
  return { ...identity, name };
}
