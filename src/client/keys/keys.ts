/**
 * An identity: its DID, its secrets, which never leave this machine, and the text form
 * in which they are stored.
 * Source: interface "Signed DID-document updates" (private keys), rules section 1.
 */

import { sha256 } from "#sha256";
import { concatBytes, encodeBase58, encodeHex, equalBytes, utf8 } from "../../core/codec/bytes.ts";
import type { Did } from "../../core/codec/did.ts";
import { weekMs } from "../../core/codec/time.ts";
import { looksSelfCertifying } from "../../core/ledger/names.ts";
import { localError } from "../base/failure.ts";
import {
  array,
  integer,
  keptBytes32,
  keptDid,
  keptHex32,
  keptVersion,
  nullable,
  object,
  optional,
  parseKept,
  renderKept,
  text,
  truth,
} from "../base/shapes.ts";
import { ed25519PublicKey } from "./crypto.ts";
import { isSealingDue, nextMadeMs, type SealingFacts } from "./due.ts";

const held = { id: text, secret: keptBytes32 };
/** An identity as its key store has it. */
const identityShape = object({
  version: keptVersion,
  name: text,
  did: keptDid,
  rootSeed: keptBytes32,
  nextRootSeed: nullable(keptBytes32),
  methods: array(object({ ...held, under: optional(text), isShared: optional(truth) })),
  agreements: array(
    object({
      ...held,
      under: optional(text),
      madeMs: optional(integer),
      destroyAtMs: nullable(integer),
    }),
  ),
  bundleKeys: optional(
    array(object({ ...held, under: text, madeMs: integer, destroyAtMs: integer })),
  ),
  sealingSinceMs: optional(integer),
  /** In texts of earlier programs. */
  chain: optional(object({ sinceMs: integer })),
  ledger: nullable(keptHex32),
  storeKey: keptBytes32,
});

/**
 * An Ed25519 seed or an X25519 secret of 32 bytes, with the absolute id that
 * the document gives its key.
 */
type HeldKey = { readonly id: string; readonly secret: Uint8Array };

export type HeldMethod = HeldKey & {
  /** Which root seed a replacement of all keys has made it with. */
  readonly under?: string | undefined;
  /** Another device has made it: a replacement by this one leaves it out. */
  readonly isShared?: boolean | undefined;
};

/** The secret of a key agreement. */
export type HeldAgreement = HeldKey & SealingFacts;

export type Identity = {
  readonly name: string;
  readonly did: Did;
  /** Signs as `root`. */
  readonly rootSeed: Uint8Array;
  /** A root key that was submitted and not yet seen in force. */
  readonly nextRootSeed: Uint8Array | null;
  /**
   * Seeds of verification methods, old ones too: the document shows which
   * seed of an id is in force.
   */
  readonly methods: readonly HeldMethod[];
  /**
   * Secrets of key agreements by their time, old ones too, since messages sealed
   * to them may still arrive.
   */
  readonly agreements: readonly HeldAgreement[];
  /**
   * Seeds of X-Wing keys, each under the id of its bundle. Their end follows from that of the
   * bundle (`own-bundles.ts`).
   */
  readonly bundleKeys: readonly HeldAgreement[];
  /** When this device began to use the published one. */
  readonly sealingSinceMs: number;
  /**
   * Genesis hash in hex of the only ledger for which it signs; `null` where the Directory
   * named none when it was made.
   */
  readonly ledger: string | null;
  /** Seals the local store of this device. */
  readonly storeKey: Uint8Array;
};

export const rootSignerId = "root";

export const nameForm = /^[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}$/;

export const rotationMsDefault = weekMs;

/** Names a root seed without showing it. */
export const nameOfSeed = (seed: Uint8Array): string =>
  encodeHex(sha256(concatBytes(utf8("waypost:under:v1|"), seed))).slice(0, 32);

/** A fresh secret behind all others of an identity. */
export function freshAgreement(
  { agreements, rootSeed }: Pick<Identity, "agreements" | "rootSeed">,
  {
    id,
    nowMs,
    destroyAtMs,
  }: Pick<HeldAgreement, "id" | "destroyAtMs"> & { readonly nowMs: number },
): HeldAgreement {
  const madeMs = nextMadeMs(agreements, nowMs);
  return { id, secret: freshSeed(), under: nameOfSeed(rootSeed), madeMs, destroyAtMs };
}

/**
 * Whether `rotateAgreement` has something to do: a key that is due, or a secret to
 * destroy or to give an end.
 */
export function isRotationDue(
  { agreements, sealingSinceMs: sinceMs }: Identity,
  turn: { readonly nowMs: number; readonly everyMs: number; readonly rank: number },
): boolean {
  const { nowMs } = turn;
  const isOver = agreements.some(({ destroyAtMs }) => destroyAtMs !== null && destroyAtMs <= nowMs);
  const open = agreements.filter(({ destroyAtMs }) => destroyAtMs === null);
  return isOver || open.length > 1 || isSealingDue({ ...turn, sinceMs });
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
  const none = { agreements: [], rootSeed };
  const first = freshAgreement(none, { id: `${did}#x25519-1`, nowMs, destroyAtMs: null });
  return {
    name,
    did,
    rootSeed,
    nextRootSeed: null,
    methods: [{ id: `${did}#root`, secret: rootSeed }],
    agreements: [first],
    bundleKeys: [],
    sealingSinceMs: nowMs,
    ledger,
    storeKey: freshSeed(),
  };
}

/**
 * base58btc of 16 random bytes; leading zeros could make it shorter than the
 * 16 characters a DID needs.
 */
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

/** Of a key agreement, or of a key bundle by its id. */
export function agreementSecrets(
  { agreements, bundleKeys }: Pick<Identity, "agreements" | "bundleKeys">,
  keyId: string,
): Uint8Array[] {
  return [...agreements, ...bundleKeys]
    .filter(({ id }) => id === keyId)
    .map(({ secret }) => secret);
}

function mapSecrets(identity: Identity, map: (secret: Uint8Array) => Uint8Array): Identity {
  const { rootSeed, nextRootSeed, methods, agreements, bundleKeys, storeKey } = identity;
  const held = <T extends HeldKey>(one: T): T => ({ ...one, secret: map(one.secret) });
  return {
    ...identity,
    rootSeed: map(rootSeed),
    nextRootSeed: nextRootSeed && map(nextRootSeed),
    methods: methods.map(held),
    agreements: agreements.map(held),
    bundleKeys: bundleKeys.map(held),
    storeKey: map(storeKey),
  };
}

/** What was read of the secrets is zero afterwards, wherever it is referred to. */
export function wipe(identity: Identity): void {
  mapSecrets(identity, (secret) => secret.fill(0));
}

/**
 * `next` in the place of `former`: a secret that stays is the same array, so that work under way
 * goes on with it, and one wipe reaches every copy. All others of the two are wiped.
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
  const { version: _, chain, sealingSinceMs = chain?.sinceMs ?? 0, ...identity } = kept;
  const { bundleKeys = [] } = identity;
  // Those of earlier programs say nothing of their making.
  const agreements = identity.agreements.map(
    ({ under = "", madeMs = 0, ...one }): HeldAgreement => ({ ...one, under, madeMs }),
  );
  return { ...identity, agreements, bundleKeys, sealingSinceMs, name };
}
