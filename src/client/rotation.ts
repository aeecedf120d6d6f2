/**
 * Forward secrecy: the key that others seal to is replaced, by default once a week, and the old secret is destroyed
 * when everything that was sealed to it has expired. One component call publishes the new key under the same id, so
 * that every sender uses it from then on.
 *
 * Devices of one identity need not communicate. The next secret is derived from a chain key that they share and that is
 * replaced with it; a device that finds an unknown key in the document derives forward until it has that key's secret.
 * Two devices that rotate at the same time publish the same key.
 * Source: docs/client.md "Forward secrecy".
 */
import { equalBytes, parseAgreementKey, renderAgreementKey } from "../core/codec/bytes.ts";
import { dayMs, hourMs, parseDuration } from "../core/codec/time.ts";
import type { DidDocument } from "../core/ledger/account.ts";
import { change } from "./change.ts";
import { activeDocument, type Client } from "./client.ts";
import { type Signer, x25519PublicKey } from "./crypto.ts";
import { directoryClient, type Waiting, waitingDefault } from "./directory.ts";
import { ClientError, endpoint } from "./http.ts";
import { type AgreementChain, advanceChain, type HeldAgreement, type Identity, startChain } from "./keys.ts";

/** No envelope lives longer, so no secret is kept longer after its key was replaced. */
const secretKeptMsMax = 30 * dayMs;
/** Clock skew, and senders that read the document a moment before. */
const keptMarginMs = hourMs;
/** Ten years of weeks: a device that was offline longer must import the identity again. */
const epochsAheadMax = 520;

/** The key of the document that senders use, with its id: the first one of X25519. */
function publishedAgreement(document: DidDocument): { id: string; publicKey: Uint8Array } | null {
  for (const { id, publicKeyMultibase } of document.keyAgreement) {
    const publicKey = parseAgreementKey(publicKeyMultibase);
    if (publicKey !== null) return { id, publicKey };
  }
  return null;
}

const opens = async (secret: Uint8Array, publicKey: Uint8Array): Promise<boolean> =>
  equalBytes(await x25519PublicKey(secret), publicKey);

/** The index of the secret of a published key, under its own id or, with `null`, under any; -1 when it is missing. */
async function findOpening(
  agreements: readonly HeldAgreement[],
  { id, publicKey }: { readonly id: string | null; readonly publicKey: Uint8Array },
): Promise<number> {
  for (const [i, one] of agreements.entries())
    if ((id === null || one.id === id) && (await opens(one.secret, publicKey))) return i;
  return -1;
}

type Reconciled = {
  readonly identity: Identity;
  /** Whether this device has the secret of the published key, possibly after deriving forward. */
  readonly holdsPublished: boolean;
};

/**
 * Updates the secrets of this device from the document: derives the published one when another device replaced the key,
 * sets an end for every superseded one, and destroys those whose end has come.
 */
export async function reconcileAgreements(
  identity: Identity,
  document: DidDocument,
  { nowMs, keptMs }: { readonly nowMs: number; readonly keptMs: number },
): Promise<Reconciled> {
  const published = publishedAgreement(document);
  if (published === null) return { identity: destroyExpired(identity, nowMs), holdsPublished: false };
  const found = await derivePublished(identity, published, nowMs);
  const held = found ?? identity;
  const current = await findOpening(held.agreements, published);
  if (current < 0) return { identity: destroyExpired(held, nowMs), holdsPublished: false };
  // Those before the current one are superseded; one behind it was derived and is not yet in force.
  const isSuperseded = ({ id, destroyAtMs }: HeldAgreement, i: number) =>
    id === published.id && i < current && destroyAtMs === null;
  if (!held.agreements.some(isSuperseded)) return { identity: destroyExpired(held, nowMs), holdsPublished: true };
  const agreements = held.agreements.map((one, i) =>
    isSuperseded(one, i) ? { ...one, destroyAtMs: nowMs + keptMs } : one,
  );
  const chain = held.chain === null ? null : { ...held.chain, sinceMs: nowMs };
  return { identity: destroyExpired({ ...held, agreements, chain }, nowMs), holdsPublished: true };
}

/** `null` when the published secret is already here, or is not ahead on the chain. */
async function derivePublished(
  identity: Identity,
  { id, publicKey }: { readonly id: string; readonly publicKey: Uint8Array },
  nowMs: number,
): Promise<Identity | null> {
  if (identity.chain === null || (await findOpening(identity.agreements, { id: null, publicKey })) >= 0) return null;
  const agreements: HeldAgreement[] = [...identity.agreements];
  let chain: AgreementChain = identity.chain;
  for (let i = 0; i < epochsAheadMax; i++) {
    const next = advanceChain(chain, nowMs);
    chain = next.chain;
    // Those in between may have messages waiting too.
    agreements.push({ id, secret: next.secret, destroyAtMs: null });
    if (await opens(next.secret, publicKey)) return { ...identity, agreements, chain };
  }
  return null;
}

function destroyExpired(identity: Identity, nowMs: number): Identity {
  const agreements = identity.agreements.filter(({ destroyAtMs }) => destroyAtMs === null || destroyAtMs > nowMs);
  return agreements.length === identity.agreements.length ? identity : { ...identity, agreements };
}

type RotationOptions = {
  readonly nowMs: number;
  /** How old the published key may become; 0 rotates now. */
  readonly everyMs: number;
  /** How long the old secret is kept; read from the Caches when it is not given. */
  readonly keptMs?: number;
  readonly signer: Signer;
  readonly waiting?: Waiting;
  /** Awaited before the new key is submitted, and after it is in force: saves the identity. */
  readonly save: (identity: Identity) => Promise<void>;
};

export type Rotated = {
  readonly identity: Identity;
  readonly rotated: boolean;
  /** `false`: another device published a key whose secret this one can't derive. */
  readonly holdsPublished: boolean;
};

/** Reconciles, and replaces the published key when it is due. */
export async function rotateAgreement(client: Client, identity: Identity, options: RotationOptions): Promise<Rotated> {
  const { nowMs } = options;
  const document = await activeDocument(client, identity.did);
  const keptMs = options.keptMs ?? (await longestLifeMs(document, client.timeoutMs));
  const before = await reconcileAgreements(identity, document, { nowMs, keptMs });
  if (before.identity !== identity) await options.save(before.identity);
  const published = publishedAgreement(document);
  const since = before.identity.chain?.sinceMs ?? 0;
  const isDue = before.holdsPublished && nowMs - since >= options.everyMs;
  if (published === null || !isDue) return { ...before, rotated: false };
  const next = nextSecret(before.identity, published.id);
  await options.save(next.identity);
  const keyAgreement = document.keyAgreement.find(({ id }) => id === published.id);
  if (keyAgreement === undefined) return { ...before, rotated: false };
  const publicKeyMultibase = renderAgreementKey(await x25519PublicKey(next.secret));
  await change(
    client,
    { action: "UpdateKeyAgreement", did: identity.did, keyAgreement: { ...keyAgreement, publicKeyMultibase } },
    { signer: options.signer, waiting: options.waiting ?? waitingDefault },
  );
  const after = await reconcileAgreements(next.identity, await activeDocument(client, identity.did), { nowMs, keptMs });
  await options.save(after.identity);
  return { ...after, rotated: true };
}

/**
 * The secret to publish next, stored from now on. The time of the chain stays that of the key in force, so an interrupted
 * rotation is still due.
 */
function nextSecret(identity: Identity, id: string): { identity: Identity; secret: Uint8Array } {
  const before = identity.chain;
  const { secret, chain } = before === null ? startChain(0) : advanceChain(before, before.sinceMs);
  const agreements = [...identity.agreements, { id, secret, destroyAtMs: null }];
  return { identity: { ...identity, agreements, chain }, secret };
}

/** The longest life that the Caches of the document allow; 30 days for one that states none. */
async function longestLifeMs(document: DidDocument, timeoutMs: number): Promise<number> {
  const services = document.service.filter(({ type }) => type === "SvcCacheService");
  const urls = new Set(services.flatMap(({ serviceEndpoint }) => serviceEndpoint));
  if (urls.size === 0) return secretKeptMsMax;
  const lives = await Promise.all([...urls].map((url) => lifeAt(url, timeoutMs)));
  return Math.min(Math.max(...lives) + keptMarginMs, secretKeptMsMax);
}

async function lifeAt(url: string, timeoutMs: number): Promise<number> {
  try {
    const { max_ttl: ttl } = await directoryClient(endpoint(url, timeoutMs)).limits();
    return (ttl === undefined ? null : parseDuration(ttl)) ?? secretKeptMsMax;
  } catch (error) {
    if (error instanceof ClientError) return secretKeptMsMax;
    throw error;
  }
}
