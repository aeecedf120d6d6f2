/**
 * The registration of an identity: its first document, the proof over it, and the wait for
 * settlement. Apart from the other changes, because a program needs this once and loads it then.
 * Source: interface "States and transitions", rules section 4 ("Registration proof").
 */

import { encodeBase64, renderAgreementKey, renderPublicKey } from "../../core/codec/bytes.ts";
import type { Did } from "../../core/codec/did.ts";
import {
  bundleAgreement,
  type DidDocument,
  renderDocument,
  type Service,
  type VerificationMethod,
} from "../../core/ledger/account.ts";
import {
  encodeDidDocument,
  type ProofBinding,
  registrationMessage,
  renderProofTimestamp,
} from "../../core/ledger/document-codec.ts";
import { homeOfUrl, homeServiceType } from "../../core/ledger/home.ts";
import { isSelfCertifying } from "../../core/ledger/names.ts";
import { sameEndpoint } from "../../core/message/proof.ts";
import { attempt, ClientError, localError } from "../base/failure.ts";
import { ed25519PublicKey, signEd25519, x25519PublicKey } from "../keys/crypto.ts";
import type { Identity } from "../keys/keys.ts";
import { about } from "../net/about.ts";
import { type About, deliveredShape, type Registered } from "../net/answers.ts";
import { authorizationLifeMs, provingAt } from "../net/directory.ts";
import { type Endpoint, endpoint, fetchChecked, jsonBody } from "../net/http.ts";
import type { Client } from "../trust/client.ts";
import { rememberHosts } from "../trust/hosts.ts";
import { distrust } from "../trust/trust.ts";

type IdentityHomes = {
  /** Endpoint of the Relay where this identity listens. */
  readonly relayUrl: string;
  /** Endpoint of the Cache that keeps its messages. */
  readonly cacheUrl: string;
  /**
   * Address of the Directory for people of other Directories; `null` where it
   * is known to its own only.
   */
  readonly home?: string | null;
  /** The Cache keeps key bundles, and this identity puts one as soon as it is registered. */
  readonly announces?: boolean;
};

/** What a node says of itself; nothing when it can't be asked. */
export async function aboutOf(at: Endpoint): Promise<About> {
  const said = await attempt(() => about(at));
  return said instanceof ClientError ? {} : said;
}

/**
 * Whether a new identity announces bundles: where its Cache keeps them. Nothing
 * proves those of a random DID.
 */
export async function announcesAt(
  { timeoutMs }: Client,
  did: Did,
  cacheUrl: string,
): Promise<boolean> {
  if (!isSelfCertifying(did)) return false;
  return (await aboutOf(endpoint(cacheUrl, timeoutMs))).key_bundles === true;
}

/** As what a Directory wants to be named in documents. */
export async function homeAt({ directory }: Client): Promise<string | null> {
  const [url = ""] = (await aboutOf(directory.endpoint)).directory_endpoints ?? [];
  return homeOfUrl(url) === null ? null : url;
}

/**
 * Throws `invalid_url` when a node calls itself otherwise: proofs name the address in the document,
 * and a node accepts only those for its own. Also when there is no such node. One that does not
 * describe itself is believed.
 */
export async function checkHomes(
  { timeoutMs }: Client,
  { relayUrl, cacheUrl }: IdentityHomes,
): Promise<void> {
  const homes = [
    { role: "Relay", url: relayUrl, member: "relay_endpoints", route: "/relay" },
    { role: "Cache", url: cacheUrl, member: "cache_endpoints", route: "/cache/store" },
  ] as const;
  for (const { role, url, member, route } of homes) {
    const at = endpoint(url, timeoutMs);
    const { roles, [member]: named = [] } = await aboutOf(at);
    if (roles?.includes(role.toLowerCase()) === false && (await lacks(at, route)))
      throw localError("invalid_url", `no ${role} answers at ${url}: name the address of one`);
    if (named.length === 0 || named.some((one) => sameEndpoint(one, url))) continue;
    const problem = `the ${role} at ${url} calls itself ${named.join(" or ")}: open with that address`;
    throw localError("invalid_url", problem);
  }
}

/**
 * A router may give `/node` to the Directory, and the other routes to a Relay or Cache that does
 * not describe itself there.
 */
async function lacks(at: Endpoint, route: string): Promise<boolean> {
  const answer = await attempt(() =>
    fetchChecked(at, { method: "POST", path: route, body: jsonBody({}) }, deliveredShape),
  );
  return answer instanceof ClientError && answer.status === 404;
}

/** The first document of an identity: its keys, where it listens and where its messages wait. */
export async function firstDocument(
  identity: Identity,
  homes: IdentityHomes,
): Promise<DidDocument> {
  const { did } = identity;
  const root = rootMethodOf(did);
  const { relayUrl, cacheUrl, home = null, announces = false } = homes;
  const agreements = await each(identity.agreements, async ({ id, secret }) => ({
    id,
    type: agreementType,
    controller: did,
    publicKeyMultibase: renderAgreementKey(await x25519PublicKey(secret)),
  }));
  return {
    id: did,
    verificationMethod: await each(identity.methods, async ({ id, secret }) => ({
      id,
      type: "Multikey",
      controller: did,
      publicKeyMultibase: renderPublicKey(await ed25519PublicKey(secret)),
    })),
    authentication: [root],
    keyAgreement: announces ? [...agreements, noticeOf(did)] : agreements,
    service: [
      serviceAt(did, { fragment: "relay", type: "SvcRelayService", url: relayUrl }),
      serviceAt(did, { fragment: "cache", type: "SvcCacheService", url: cacheUrl }),
      ...(home === null ? [] : [homeService(did, home)]),
    ],
  };
}

/** The entry of a document that says that its owner publishes key bundles. */
export const noticeOf = (did: Did): VerificationMethod => ({
  id: `${did}#bundles`,
  controller: did,
  ...bundleAgreement,
});

const rootMethodOf = (did: Did): string => `${did}#root`;

/** Of the key that others seal to. */
export const agreementType = "X25519KeyAgreementKey2020";

type NewService = { readonly fragment: string; readonly type: string; readonly url: string };

/** A node where the first key of the identity reads. */
export const serviceAt = (did: Did, { fragment, type, url }: NewService): Service => ({
  id: `${did}#${fragment}`,
  type,
  serviceEndpoint: [url],
  authorization: [rootMethodOf(did)],
  priority: null,
});

/** The Directory for people of other Directories. */
export const homeService = (did: Did, url: string): Service => ({
  ...serviceAt(did, { fragment: "directory", type: homeServiceType, url }),
  authorization: null,
});

const each = <T, U>(items: readonly T[], work: (item: T) => Promise<U>): Promise<U[]> =>
  Promise.all(items.map(work));

type RegistrationInput = {
  readonly document: DidDocument;
  readonly alias: string | null;
  readonly rootSeed: Uint8Array;
  readonly nowMs: number;
  /**
   * The ledger and the Directory's account, where version 3 is accepted; without it
   * the proof is of version 2.
   */
  readonly binding?: ProofBinding | null;
};

/** The body of a registration whose proof covers document and alias too. */
export async function signRegistration(input: RegistrationInput): Promise<Record<string, unknown>> {
  const { document, alias, rootSeed, nowMs, binding = null } = input;
  const pubkey = await ed25519PublicKey(rootSeed);
  const version = binding === null ? "v2" : "v3";
  const timestamp = renderProofTimestamp(0n, BigInt(nowMs + authorizationLifeMs), version);
  const docBlob = encodeDidDocument(document);
  const message = registrationMessage(
    { did: document.id, alias, timestamp, pubkey, docBlob },
    binding,
  );
  if (message === null)
    throw localError("invalid_alias", "an alias has 1 to 64 of a to z, 0 to 9, . _ and -");
  return {
    did: document.id,
    timestamp,
    signature: encodeBase64(await signEd25519(message, rootSeed)),
    did_document: renderDocument(document),
    root_pubkey: renderPublicKey(pubkey),
    ...(alias === null ? {} : { alias }),
  };
}

/**
 * Registers an identity; `202` is not settlement: `settleRegistration` waits for that. One that was
 * proven before gets no second first document, in which a Directory that calls it missing could
 * name a home: throws `record_went_back`.
 */
export async function register(
  client: Client,
  identity: Identity,
  first: {
    readonly document: DidDocument;
    readonly alias: string | null;
    readonly invitation?: string | null;
  },
): Promise<Registered> {
  const { registration: binding } = await provingAt(client);
  if (await client.trust.hasSeen(identity.did))
    throw distrust(
      "record_went_back",
      `${identity.did} was registered, and the Directory says that it is missing`,
    );
  await rememberHosts(client, identity.did, first.document.service);
  const input = { ...first, rootSeed: identity.rootSeed, nowMs: Date.now(), binding };
  return client.directory.register(await signRegistration(input), first.invitation);
}
