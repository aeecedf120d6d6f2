/**
 * The functions of the SDK for identities and messages, over the typed routes of `directory.ts`,
 * `send.ts` and `caches.ts` (docs/client.md). Secrets are used here and never sent. Every
 * function throws `ClientError`.
 * Source: interface "What the service does", rules sections 4 and 6.
 */
import { parsePublicKey } from "../../core/codec/bytes.ts";
import { type Did, isDid, normalizeAlias } from "../../core/codec/did.ts";
import {
  type DidDocument,
  methodFor,
  parseMethodKey,
  type VerificationMethod,
} from "../../core/ledger/account.ts";
import { homesOf, parsePlace } from "../../core/ledger/home.ts";
import { isSelfCertifying } from "../../core/ledger/names.ts";
import { BoundedMap } from "../../core/std/bounded.ts";
import { attempt, ClientError, localError, orNull } from "../base/failure.ts";
import type { Signer } from "../keys/crypto.ts";
import { memoryKeys, type TextStore } from "../keys/key-stores.ts";
import { heldSeed, type Identity } from "../keys/keys.ts";
import type { NodeLimits, Resolved } from "../net/answers.ts";
import { type DirectoryClient, directoryClient } from "../net/directory.ts";
import { type Endpoint, endpoint, timeoutMsDefault } from "../net/http.ts";
import {
  distrust,
  type NameTrust,
  Trust,
  type TrustDemand,
  type TrustLevel,
  trustOf,
} from "./trust.ts";

/**
 * What shows others' keys to who examines it: a key proof, or a head of a log, which
 * counts at its place in memory.
 */
export type Evidence =
  | { readonly is: "proof"; readonly did: Did; readonly proof: Uint8Array }
  | { readonly is: "head"; readonly at: string; readonly logKey: string; readonly note: string };

type ClientOptions = {
  readonly directoryUrl: string;
  readonly relayUrl: string;
  readonly timeoutMs?: number;
};

export type NodeUrls = { readonly relayUrl: string; readonly cacheUrl: string };

export type Client = {
  readonly directory: DirectoryClient;
  readonly relay: Endpoint;
  readonly timeoutMs: number;
  /** Cached facts about the nodes, so that they are not requested again for each message. */
  readonly known: {
    limits: { readonly value: NodeLimits | null; readonly untilMs: number } | null;
    /**
     * Genesis hash in hex of the one ledger for which anything is signed;
     * `null` until one is known.
     */
    ledger: string | null;
    /** Time of the last message. */
    sentMs: number;
    /** What the identity that uses the client remembers of others. */
    memory: TextStore;
    /** Where the identity receives, as its user has named it. */
    urls: NodeUrls | null;
    /**
     * Which witnesses must have seen the log, as c2sp.org/tlog-policy; `null`
     * looks nothing up in the log.
     */
    policy: string | null;
    /**
     * What is wrong with the log, by the name of a person or a home: each reason is
     * reported once while it lasts.
     */
    readonly doubts: BoundedMap<
      string,
      { readonly code: string; readonly sinceMs: number; readonly isReported: boolean }
    >;
    /**
     * Takes what was proven of somebody, and heads of logs that were
     * believed, for other own devices.
     */
    keep: (found: Evidence) => void;
    /** Called on log inconsistencies that don't fail the operation. */
    doubt: (error: ClientError) => void;
    /** Called when somebody has proven that they publish no keys against recording any more. */
    downgraded: (did: Did) => void;
  };
  /** What is believed of self-certifying DIDs. */
  readonly trust: Trust;
};

const doubtsMax = 1_000;

export function connect({
  directoryUrl,
  relayUrl,
  timeoutMs = timeoutMsDefault,
}: ClientOptions): Client {
  const directory = directoryClient(endpoint(directoryUrl, timeoutMs));
  const known: Client["known"] = {
    limits: null,
    ledger: null,
    sentMs: 0,
    memory: memoryKeys(),
    urls: null,
    policy: null,
    doubts: new BoundedMap(doubtsMax),
    keep: () => undefined,
    doubt: () => undefined,
    downgraded: () => undefined,
  };
  const readProof = (did: Did, hash: string, home: string | null) =>
    orNull(directory.keyProof(did, hash, home), "not_found");
  const keep = (did: Did, proof: Uint8Array) => known.keep({ is: "proof", did, proof });
  const trust = new Trust(readProof, () => known.memory, keep);
  const relay = endpoint(relayUrl, timeoutMs);
  const { endpoint: at } = directory;
  // At one address one clock.
  const isSame = at.url === relay.url;
  return {
    directory,
    relay: isSame ? { ...relay, clock: at.clock } : relay,
    timeoutMs,
    known,
    trust,
  };
}

// -------------------------------------------------------------------------------------- looking up

/** `null` for a name that is the DID itself. */
type FoundName = { readonly did: Did; readonly name: NameTrust | null };

/**
 * The DID behind a DID or an alias. Throws `identity_changed` for an alias that was another DID's.
 */
export async function lookUp(client: Client, target: string): Promise<Did> {
  return (await findName(client, target)).did;
}

/** The same, and whether the alias was known before. */
export async function findName(
  client: Client,
  target: string,
  demanded: TrustDemand | null = null,
): Promise<FoundName> {
  const did = await askDid(client, target);
  const place = parsePlace(target);
  if (place !== null) await (await import("./places.ts")).checkHome(client, did, place.home);
  const asked = place?.name ?? target;
  if (isDid(asked)) return { did, name: null };
  // First, because an answer that the log refutes is not to be remembered.
  const isLogged = await isInLog(client, { did, alias: normalizeAlias(asked) }, demanded);
  const name = await client.trust.nameOf(normalizeName(target), did);
  return { did, name: isLogged ? "logged" : name };
}

/** An alias as it is remembered: of another Directory with its home. Other texts stay. */
export function normalizeName(target: string): string {
  const place = parsePlace(target);
  if (place === null) return normalizeAlias(target) ?? target;
  return isDid(place.name)
    ? place.name
    : `${normalizeAlias(place.name) ?? place.name}@${place.home}`;
}

/** Whether the log agrees, where a policy names its witnesses. `demanded` throws why it doesn't. */
async function isInLog(
  client: Client,
  subject: { readonly did: Did; readonly alias: string | null },
  demanded: TrustDemand | null,
): Promise<boolean> {
  const isDemanded = demanded === "logged";
  if (client.known.policy !== null)
    return (await import("./log.ts")).isLogged(client, subject, isDemanded);
  if (isDemanded)
    throw distrust("log_unwitnessed", "no policy names witnesses: give one to know what is logged");
  return false;
}

/**
 * What shows the keys of a DID that was looked up, and is remembered then. Throws why
 * they are less than demanded.
 */
export async function trustIn(
  client: Client,
  did: Did,
  demanded: TrustDemand | null = null,
): Promise<TrustLevel> {
  const level = trustOf(did);
  if (level === "proven") {
    const isLogged = await attempt(() => isInLog(client, { did, alias: null }, demanded));
    if (isLogged instanceof ClientError) client.trust.drop(did);
    if (isLogged instanceof ClientError) throw isLogged;
    await client.trust.remember(did);
    return isLogged ? "logged" : level;
  }
  if (demanded === null) return level;
  throw distrust("proof_missing", `${did} is a random DID: nothing can prove its keys`);
}

/**
 * The Directory's present answer, neither remembered nor trusted: it only
 * decides the order of sends.
 */
export async function askDid(client: Client, target: string): Promise<Did> {
  if (typeof target !== "string")
    throw localError("invalid_argument", "a recipient is a DID or an alias");
  if (isDid(target)) return target;
  const { name, home } = parsePlace(target) ?? { name: target, home: null };
  const alias = normalizeAlias(name);
  if (alias === null && !isDid(name))
    throw localError("invalid_target", `neither a DID nor an alias: ${target}`);
  const did = isDid(name) ? name : (await client.directory.alias(alias ?? "", home)).did;
  if (isDid(did) && home !== null) client.trust.tellHome(did, home);
  if (isDid(did)) return did;
  throw new ClientError(
    "unreadable",
    "unreadable",
    "the Directory returned something other than a DID",
  );
}

/** The document of an active DID, with absolute ids: the proven one where the DID has a proof. */
export async function activeDocument(client: Client, did: Did): Promise<DidDocument> {
  const document = await readDocument(client, did);
  await client.trust.remember(did);
  return document;
}

/** The same; the proof is not remembered so far. */
export async function readDocument(client: Client, did: Did): Promise<DidDocument> {
  if (isSelfCertifying(did)) {
    const state = await attempt(() => client.trust.examine(did, null));
    if (!(state instanceof ClientError)) return state.document;
    throw state.code === "did_deactivated" ? deactivated(did) : state;
  }
  const record = await client.directory.resolve(did);
  if (record.deactivated) throw deactivated(did);
  return documentOf(record, did);
}

/** Known for certain, so it ends what would wait for a network. */
const deactivated = (did: Did) => localError("did_deactivated", `${did} is deactivated`);

/** The answer has been checked; ids may be relative to the DID. */
function documentOf(record: Resolved, did: Did): DidDocument {
  const { document } = record;
  if (document?.id !== did)
    throw new ClientError("unreadable", "unreadable", `${did} has no document of its own`);
  const absolute = (id: string) => (id.startsWith("#") ? `${did}${id}` : id);
  const component = (one: VerificationMethod) => ({ ...one, id: absolute(one.id) });
  return {
    id: did,
    verificationMethod: document.verificationMethod.map(component),
    authentication: document.authentication.map(absolute),
    keyAgreement: document.keyAgreement.map(component),
    service: document.service.map((one) => ({
      ...one,
      id: absolute(one.id),
      authorization: one.authorization?.map(absolute) ?? null,
      priority: one.priority ?? null,
    })),
  };
}

/** `null` when they can't be read now. */
export async function readLimits(at: Endpoint): Promise<NodeLimits | null> {
  const limits = await attempt(() => directoryClient(at).limits());
  return limits instanceof ClientError ? null : limits;
}

// ----------------------------------------------------------------------------------------- signing

/** The first of some keys of a document whose seed is on this device. */
export async function signerIn(
  identity: Identity,
  document: DidDocument,
  keyIds: readonly string[],
): Promise<Signer | null> {
  for (const keyId of keyIds) {
    const method = methodFor(document, keyId, "service");
    const key = method === null ? null : parseMethodKey(method);
    const seed = key === null ? null : await heldSeed(identity, key);
    if (seed !== null) return { keyId, seed };
  }
  return null;
}

/** Who signs, and the home that their document names. */
export type Author = Signer & { readonly did: Did; readonly home?: string };

/**
 * A method in `authentication` whose secret is on this device: it signs envelopes of the identity.
 */
export async function senderOf(client: Client, identity: Identity): Promise<Author> {
  const document = await activeDocument(client, identity.did);
  const signer = await signerIn(identity, document, document.authentication);
  const [home] = homesOf(document);
  if (signer !== null)
    return { did: identity.did, ...signer, ...(home === undefined ? {} : { home }) };
  throw localError("unknown_key", `no key on this device may sign as ${identity.did}`);
}

/**
 * The root key in force: the proven one, or what the Directory says of a random
 * DID. Throws `no_root_key`.
 */
export async function rootKeyOf(client: Client, did: Did): Promise<Uint8Array> {
  if (isSelfCertifying(did))
    return (await client.trust.prove(did, null)).rootKeys.at(-1) as Uint8Array;
  const key = parsePublicKey((await client.directory.resolve(did)).root_pubkey ?? "");
  if (key !== null) return key;
  throw localError("no_root_key", `${did} has no root key`);
}
