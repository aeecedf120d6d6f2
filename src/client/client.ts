/**
 * The SDK: what a person does with identities and messages, over the typed routes of `directory.ts`,
 * `relay.ts` and `cache.ts` (docs/client.md). Secrets are used here and sent nowhere. Every function throws `ClientError`.
 * Source: interface "What the service does", rules sections 4 and 6.
 */
import { ed25519, x25519 } from "@noble/curves/ed25519.js";
import { type Did, isDid, normalizeAlias } from "../core/codec/did.ts";
import { renderPublicKey } from "../core/codec/ed25519.ts";
import { renderTimestamp } from "../core/codec/time.ts";
import { isFault } from "../core/fault.ts";
import { type DidDocument, keyFor, normalizeDocument, type Service } from "../core/ledger/document.ts";
import type { Intent } from "../core/ledger/intents.ts";
import { decodeEnvelope, type EnvelopeLimits, verifySender } from "../core/message/envelope.ts";
import type { Accepted, NodeLimits, Registered, Resolved } from "./answers.ts";
import { type CacheClient, cacheClient, type Reader, type ReaderOptions, readersOf } from "./cache.ts";
import {
  nonceDomainOf,
  type OwnerUpdate,
  renderAgreementKey,
  type Signer,
  signIntent,
  signOwnerUpdate,
  signRegistration,
} from "./change.ts";
import {
  type ConfirmedRegistration,
  confirmChange,
  confirmDeletion,
  confirmRegistration,
  type Waiting,
} from "./confirm.ts";
import { type DirectoryClient, directoryClient } from "./directory.ts";
import { ClientError, type Endpoint, endpoint, localError, orNull, timeoutMsDefault } from "./http.ts";
import { agreementSecrets, heldSeed, type Identity } from "./keys.ts";
import { retryingDefault } from "./relay.ts";
import type { Recipient, Sender } from "./retrieve.ts";
import type { FileFacts } from "./seal.ts";
import {
  chunkBytesDefault,
  recipientKey,
  type SendPlan,
  type Sent,
  type Source,
  sealedBytesMargin,
  sendPlan,
} from "./send.ts";
import { recordShows } from "./settled.ts";

export type ClientOptions = {
  readonly directoryUrl: string;
  readonly relayUrl: string;
  readonly timeoutMs?: number;
};

export type Client = { readonly directory: DirectoryClient; readonly relay: Endpoint; readonly timeoutMs: number };

export function connect({ directoryUrl, relayUrl, timeoutMs = timeoutMsDefault }: ClientOptions): Client {
  return {
    directory: directoryClient(endpoint(directoryUrl, timeoutMs)),
    relay: endpoint(relayUrl, timeoutMs),
    timeoutMs,
  };
}

// ------------------------------------------------------------------------------------------------ looking up

/** The DID behind a DID or an alias. */
export async function lookUp(client: Client, target: string): Promise<Did> {
  if (isDid(target)) return target;
  const alias = normalizeAlias(target);
  if (alias === null) throw localError("invalid_target", `neither a DID nor an alias: ${target}`);
  const found = await client.directory.alias(alias);
  if (isDid(found.did)) return found.did;
  throw new ClientError("unreadable", "unreadable", "the Directory answered with something else than a DID");
}

/** The document of an active DID, with absolute ids. */
export async function activeDocument(client: Client, did: Did): Promise<DidDocument> {
  const record = await client.directory.resolve(did);
  if (record.deactivated) throw localError("did_deactivated", `${did} is deactivated`);
  return documentOf(record, did);
}

export function documentOf(record: Resolved, did: Did): DidDocument {
  if (record.document === null) throw new ClientError("unreadable", "unreadable", `${did} has no document`);
  const document = normalizeDocument(record.document, did);
  if (!isFault(document)) return document;
  throw new ClientError("unreadable", "unreadable", `the document of ${did} is malformed: ${document.detail}`);
}

// ------------------------------------------------------------------------------------------------ identities

export type Homes = {
  /** Endpoint of the Relay where this identity listens. */
  readonly relayUrl: string;
  /** Endpoint of the Cache that keeps its messages. */
  readonly cacheUrl: string;
};

/** The first document of an identity: its keys, where it listens and where its messages wait. */
export function firstDocument(identity: Identity, homes: Homes): DidDocument {
  const { did } = identity;
  const root = `${did}#root`;
  const service = (fragment: string, type: string, url: string): Service => ({
    id: `${did}#${fragment}`,
    type,
    serviceEndpoint: [url],
    authorization: [root],
    priority: null,
  });
  return {
    id: did,
    verificationMethod: identity.methods.map(({ id, secret }) => ({
      id,
      type: "Multikey",
      controller: did,
      publicKeyMultibase: renderPublicKey(ed25519.getPublicKey(secret)),
    })),
    authentication: [root],
    keyAgreement: identity.agreements.map(({ id, secret }) => ({
      id,
      type: "X25519KeyAgreementKey2020",
      controller: did,
      publicKeyMultibase: renderAgreementKey(x25519.getPublicKey(secret)),
    })),
    service: [service("relay", "SvcRelayService", homes.relayUrl), service("cache", "SvcCacheService", homes.cacheUrl)],
  };
}

/** Registers an identity; `202` is not settlement: `settleRegistration` waits for that. */
export function register(
  client: Client,
  identity: Identity,
  first: { readonly document: DidDocument; readonly alias: string | null },
): Promise<Registered> {
  return client.directory.register(signRegistration({ ...first, rootSeed: identity.rootSeed, nowMs: Date.now() }));
}

export function settleRegistration(
  client: Client,
  registered: { readonly did: string; readonly tx_id: string },
  waiting: Waiting,
): Promise<ConfirmedRegistration> {
  return confirmRegistration(client.directory, registered, waiting);
}

// --------------------------------------------------------------------------------------------------- changes

/** `record` is `null` when nobody waited, and after a deletion. */
export type Changed = { readonly accepted: Accepted; readonly record: Resolved | null };

/** Signs and submits a change with the counter value of now, and waits for it when `waiting` is given. */
export async function change(
  client: Client,
  intent: Intent,
  options: { readonly signer: Signer; readonly waiting: Waiting | null },
): Promise<Changed> {
  const { directory } = client;
  const domain = nonceDomainOf(intent.action);
  const nonces = await directory.nonces(intent.did);
  const value = BigInt(nonces[domain] ?? "0");
  const submission = signIntent(intent, options.signer, { nonce: value, nowMs: Date.now() });
  const send = domain === "alias_nonce" ? directory.updateAlias : directory.update;
  const accepted = await send(submission);
  if (options.waiting === null) return { accepted, record: null };
  const submitted = { did: intent.did, txHash: accepted.tx_hash };
  if (intent.action === "delete_did") {
    await confirmDeletion(directory, submitted, options.waiting);
    return { accepted, record: null };
  }
  const holds = (record: Resolved) => recordShows(intent, record);
  const expected = { ...submitted, counter: { domain, value }, holds };
  return { accepted, record: await confirmChange(directory, expected, options.waiting) };
}

/** The same for primary alias, policy links and policies, whose proof travels in headers. */
export async function changeAsOwner(
  client: Client,
  update: OwnerUpdate,
  options: { readonly signer: Signer; readonly waiting: Waiting | null },
): Promise<Changed> {
  const accepted = await client.directory.submitExtrinsic(signOwnerUpdate(update, options.signer, Date.now()));
  if (options.waiting === null) return { accepted, record: null };
  const expected = { did: update.did, txHash: accepted.tx_hash, counter: null, holds: () => true };
  return { accepted, record: await confirmChange(client.directory, expected, options.waiting) };
}

// ---------------------------------------------------------------------------------------------------- sending

/** What may be said about a message besides who it is for. */
export type SendChoices = {
  /** A duration such as `24h` (default) or `1d12h`. */
  readonly ttl?: string;
  /** Public: the recipient's policies are chosen by it. */
  readonly tag?: string | null;
  /** Only directly, or straight to a Cache; for messages of one chunk. */
  readonly hint?: "direct" | "cache" | null;
  /** Data in one envelope: at most 1 MiB unless given, and never more than node and recipient take. */
  readonly chunkBytes?: number;
  /** Signs as this identity (`senderOf`); `null` signs nothing. */
  readonly sender: SendPlan["sender"];
};

/**
 * Everything that the envelopes of a message are made of, the recipient's key of now and fresh randomness
 * included; `sendPlan` sends it. Throws `did_not_found`, `did_deactivated`, `no_key_agreement` or
 * `too_small` when the recipient takes too little for any message.
 */
export async function planSend(client: Client, to: Did, file: FileFacts, choices: SendChoices): Promise<SendPlan> {
  const recipient = recipientKey(await activeDocument(client, to));
  return {
    seed: crypto.getRandomValues(new Uint8Array(32)),
    to,
    recipient,
    file,
    chunkBytes: await decideChunkBytes(client, to, choices.chunkBytes),
    timestamp: renderTimestamp(Date.now()),
    ttl: choices.ttl ?? "24h",
    tag: choices.tag ?? null,
    hint: choices.hint ?? null,
    sender: choices.sender,
  };
}

/**
 * Sends bytes or a file to a recipient in one go. Who wants to go on after a crash keeps the plan
 * (`outbox.ts`) and sends it with `sendPlan`.
 */
export async function send(client: Client, to: Did, source: Source, choices: SendChoices): Promise<Sent> {
  const plan = await planSend(client, to, source.file, choices);
  return sendPlan(plan, source, { relay: client.relay, retrying: retryingDefault, from: 0, onDelivered: () => {} });
}

/** As much as node and recipient allow, at most 1 MiB: above that a file goes out in chunks. */
async function decideChunkBytes(client: Client, to: Did, asked = chunkBytesDefault): Promise<number> {
  const [limits, policy] = await Promise.all([
    relayLimits(client),
    orNull(client.directory.recipientPolicy(to), "policy_not_found"),
  ]);
  const allowed = [limits?.max_chunk_bytes, limits?.max_unchunked_bytes, policy?.policy.max_message_bytes];
  const sealedMax = Math.min(...allowed.filter((bytes) => bytes !== undefined));
  const chunkBytes = Math.min(asked, sealedMax - sealedBytesMargin);
  if (chunkBytes >= 1) return chunkBytes;
  throw localError("too_small", `the recipient takes messages of at most ${sealedMax} bytes: too few for any file`);
}

/** The Relay's own limits. Without an answer, chunks have the default size. */
async function relayLimits(client: Client): Promise<NodeLimits | null> {
  try {
    return await directoryClient(client.relay).limits();
  } catch (error) {
    if (error instanceof ClientError) return null;
    throw error;
  }
}

// -------------------------------------------------------------------------------------------------- receiving

/** Every Cache that the identity's document names and that one of its keys may read. */
export async function cachesOf(client: Client, identity: Identity, deviceId: string): Promise<CacheClient[]> {
  const readers = await readersFor(client, identity, { serviceType: "SvcCacheService", deviceId });
  if (readers.length > 0) return readers.map(cacheClient);
  throw localError("no_cache", "the document names no Cache that authorizes a key held here");
}

/** Every Relay that the identity's document names and where one of its keys may listen. */
export async function liveEndpoints(client: Client, identity: Identity, deviceId: string): Promise<Reader[]> {
  const readers = await readersFor(client, identity, { serviceType: "SvcRelayService", deviceId });
  if (readers.length > 0) return readers;
  throw localError("no_relay", "the document names no Relay that authorizes a key held here");
}

async function readersFor(
  client: Client,
  identity: Identity,
  options: Pick<ReaderOptions, "serviceType" | "deviceId">,
): Promise<Reader[]> {
  const document = await activeDocument(client, identity.did);
  const seedOf = (keyId: string) => seedInForce(identity, document, keyId);
  return readersOf(identity.did, document, { ...options, seedOf, timeoutMs: client.timeoutMs });
}

function seedInForce(identity: Identity, document: DidDocument, keyId: string): Uint8Array | null {
  const key = keyFor({ document }, keyId, "service");
  return key === null ? null : heldSeed(identity, key);
}

/** A method in `authentication` whose secret is held here: it signs envelopes as coming from the identity. */
export async function senderOf(client: Client, identity: Identity): Promise<Signer & { readonly did: Did }> {
  const document = await activeDocument(client, identity.did);
  for (const keyId of document.authentication) {
    const seed = seedInForce(identity, document, keyId);
    if (seed !== null) return { did: identity.did, keyId, seed };
  }
  throw localError("unknown_key", `no key held here may sign as ${identity.did}`);
}

/** What opens and judges messages for an identity. Documents of senders are read once for each run. */
export function recipientOf(client: Client, identity: Identity): Recipient {
  const documents = new Map<Did, Promise<DidDocument | null>>();
  const readDocument = (did: Did) => {
    const known = documents.get(did);
    if (known !== undefined) return known;
    const read = orNull(activeDocument(client, did), "did_not_found");
    if (documents.size < sendersRememberedMax) documents.set(did, read);
    return read;
  };
  return {
    did: identity.did,
    secretsOf: (keyId) => agreementSecrets(identity, keyId),
    senderOf: (envelope) => verifySenderOf(envelope, readDocument),
  };
}

const sendersRememberedMax = 1_000;

/** The limits of nodes don't matter here: an envelope that arrived has kept them. */
export const anySize: EnvelopeLimits = {
  body_bytes_max: 64 * 1_048_576,
  unchunked_bytes_max: 64 * 1_048_576,
  chunk_bytes_max: 64 * 1_048_576,
  header_bytes_max: 1_048_576,
  ttl_max: Number.MAX_SAFE_INTEGER,
  ttl_default: 0,
  clock_ahead: Number.MAX_SAFE_INTEGER,
};

/**
 * A signature that does not verify is reported, not refused: the sender may have replaced its key since a
 * node checked it, and a message that can't be taken would wait for ever.
 */
async function verifySenderOf(
  json: Readonly<Record<string, unknown>>,
  readDocument: (did: Did) => Promise<DidDocument | null>,
): Promise<Sender | null> {
  if (json["from"] === undefined) return null;
  const envelope = decodeEnvelope(new TextEncoder().encode(JSON.stringify(json)), anySize);
  if (isFault(envelope) || envelope.sender === null) throw localError("not_authentic", "the envelope is malformed");
  const { sender } = envelope;
  try {
    return { did: sender.from, verified: verifySender(sender, await readDocument(sender.from)) };
  } catch (error) {
    if (!(error instanceof ClientError)) throw error;
    return { did: sender.from, verified: null };
  }
}
