/**
 * New keys for everything that an identity has, by command, after a removal of a device, or after a
 * restoration: what was lost or stolen is worth nothing then, and the document names what this
 * identity holds or has named, and nothing else.
 * Source: docs/trust.md ("Own devices"), docs/client.md "Lost and found".
 */
import { equalBytes, renderAgreementKey, renderPublicKey } from "../../core/codec/bytes.ts";
import type { Did } from "../../core/codec/did.ts";
import type { DidDocument, Service, VerificationMethod } from "../../core/ledger/account.ts";
import { bundleAgreement, parseMethodKey, scaleBounds } from "../../core/ledger/account.ts";
import { localError } from "../base/failure.ts";
import {
  array,
  keptBytes32,
  nullable,
  object,
  optional,
  renderKept,
  text,
} from "../base/shapes.ts";
import { newestUnder } from "../keys/agreements.ts";
import { ed25519PublicKey, x25519PublicKey } from "../keys/crypto.ts";
import type { TextStore } from "../keys/key-stores.ts";
import {
  freshAgreement,
  freshSeed,
  type HeldMethod,
  type Identity,
  nameOfSeed,
  rootSignerId,
} from "../keys/keys.ts";
import type { EditIdentity } from "../keys/stored.ts";
import type { Waiting } from "../net/directory.ts";
import { type Client, type NodeUrls, rootKeyOf } from "../trust/client.ts";
import { hostOf, keepOwnHosts, loadOwnHosts, rememberHosts } from "../trust/hosts.ts";
import { loadAddedKeys, saveAddedKeys } from "../trust/own.ts";
import { recall } from "../trust/trust.ts";
import { isAmong, places } from "./address.ts";
import { change, publishEdited } from "./change.ts";
import type { KeptParts } from "./replacement.ts";

/**
 * A replacement of the keys that is under way: the root key that it makes, and what its user has
 * ticked, as it was shown.
 */
const replacingShape = object({
  rootKey: keptBytes32,
  services: array(object({ id: text, type: text, endpoints: array(text) })),
  methods: nullable(array(object({ id: text, publicKey: text }))),
  left: optional(array(text)),
});
const replacingKey = "replacing";

/**
 * New secrets behind those in force, which nothing earlier leads to. An
 * interrupted change keeps its keys.
 */
export function nextIdentity(identity: Identity, nowMs: number, root = freshSeed()): Identity {
  if (identity.nextRootSeed !== null) return identity;
  const ids = ownIdsOf(identity);
  const rootId = `${identity.did}#root`;
  const under = nameOfSeed(root);
  const methods = ids.map((id) => ({ id, secret: id === rootId ? root : freshSeed(), under }));
  const id = identity.agreements.at(-1)?.id ?? `${identity.did}#x25519-1`;
  const sealing = { ...freshAgreement(identity, { id, nowMs, destroyAtMs: null }), under };
  return {
    ...identity,
    nextRootSeed: root,
    methods: [...identity.methods, ...methods],
    agreements: [...identity.agreements, sealing],
    sealingSinceMs: nowMs,
  };
}

const isNotice = ({ type }: VerificationMethod): boolean => type === bundleAgreement.type;

/** What stays is what this identity has added or named. */
const noChoice: KeptParts = { services: [], methods: null };

const isOwn = ({ isShared }: HeldMethod): boolean => isShared !== true;

/**
 * What belongs to the root key in force: without what a replacement has made
 * that is not in force so far.
 */
export function withoutNext(identity: Identity): Identity {
  const { nextRootSeed } = identity;
  if (nextRootSeed === null) return identity;
  const next = nameOfSeed(nextRootSeed);
  return {
    ...identity,
    nextRootSeed: null,
    methods: identity.methods.filter(({ under }) => under !== next),
    agreements: identity.agreements.filter(({ under }) => under !== next),
    bundleKeys: identity.bundleKeys.filter(({ under }) => under !== next),
  };
}

/**
 * Before new keys are stored: what stays in the record besides. Whatever interrupts the
 * replacement, it ends as the user has chosen.
 */
export async function rememberChoice(
  memory: TextStore,
  nextRootSeed: Uint8Array,
  { services, methods, left = [] }: KeptParts,
): Promise<void> {
  const rootKey = await ed25519PublicKey(nextRootSeed);
  await memory.save(replacingKey, renderKept({ rootKey, services, methods, left }));
}

async function choiceFor(memory: TextStore, rootSeed: Uint8Array): Promise<KeptParts | null> {
  const kept = await recall(memory, replacingKey, replacingShape);
  return kept !== null && equalBytes(kept.rootKey, await ed25519PublicKey(rootSeed)) ? kept : null;
}

/**
 * Stores new keys, and what the user has chosen to keep. Those of an interrupted
 * replacement go on with this choice.
 */
export async function beginReplacing(
  memory: TextStore,
  change: (edit: EditIdentity) => Promise<Identity>,
  { nowMs, kept }: { readonly nowMs: number; readonly kept: KeptParts | null },
): Promise<Identity> {
  const { nextRootSeed } = await change((stored) => stored);
  const root = nextRootSeed ?? freshSeed();
  await rememberChoice(memory, root, kept ?? noChoice);
  return change((stored) => nextIdentity(stored, nowMs, root));
}

/** Whether new keys were stored, and the document may not have them so far. */
export async function isReplacing(memory: TextStore, identity: Identity): Promise<boolean> {
  const { rootSeed, nextRootSeed } = identity;
  return nextRootSeed !== null || (await choiceFor(memory, rootSeed)) !== null;
}

/**
 * Publishes the keys of an identity, by command and after a removal of a device or a restoration:
 * root key, methods, and the key that others seal to. `next` has the new secrets behind the old
 * ones, and a new root key as the next. Called again after an interruption, it does what is left.
 */
export async function publishKeys(
  client: Client,
  next: Identity,
  { waiting }: { readonly waiting: Waiting },
): Promise<Identity> {
  const { did, nextRootSeed } = next;
  const { memory } = client.known;
  const rootSeed = nextRootSeed ?? next.rootSeed;
  const choice = await choiceFor(memory, rootSeed);
  const { services, methods, left = [] } = choice ?? noChoice;
  const newRootPubkey = await ed25519PublicKey(rootSeed);
  const replaced = () =>
    localError("root_replaced", `the root key of ${did} was replaced by another device`);
  const inForceKey = await rootKeyOf(client, did);
  if (!equalBytes(inForceKey, newRootPubkey)) {
    // A signature of an earlier key would be refused, and stand in the way of the next one.
    if (!equalBytes(inForceKey, await ed25519PublicKey(next.rootSeed))) throw replaced();
    const signer = { keyId: rootSignerId, seed: next.rootSeed };
    await change(client, { action: "UpdateRootPubkey", did, newRootPubkey }, { signer, waiting });
  }
  const edited = async (document: DidDocument) => {
    const added = await keptKeys(client, document, methods);
    await forgetHosts(client, did, left);
    const service = await ownServices(client, document, services);
    return withNewKeys({ ...document, service }, next, {
      added,
      urls: client.known.urls,
      ticked: services,
    });
  };
  await publishEdited(client, did, { rootSeed, edited, waiting });
  if (!equalBytes(await rootKeyOf(client, did), newRootPubkey)) throw replaced();
  if (choice !== null) await memory.save(replacingKey, null);
  return { ...next, rootSeed, nextRootSeed: null };
}

/**
 * Keys of methods that stay: those that the user has ticked, while they are what was shown. They
 * are this identity's own then, and the others are not: who puts one there again is a stranger.
 */
async function keptKeys(
  client: Client,
  { id, verificationMethod }: DidDocument,
  ticked: KeptParts["methods"],
): Promise<readonly string[]> {
  const did = id as Did;
  if (ticked === null) return loadAddedKeys(client, did);
  const keys = verificationMethod
    .map(({ publicKeyMultibase }) => publicKeyMultibase)
    .filter((key, i) =>
      ticked.some(({ id, publicKey }) => id === verificationMethod[i]?.id && publicKey === key),
    );
  await saveAddedKeys(client, did, keys);
  return keys;
}

/**
 * Those that this identity has named, and from now on those that its user has ticked, at the
 * addresses that were shown; all where nothing is remembered.
 */
async function ownServices(
  client: Client,
  { id, service }: DidDocument,
  ticked: KeptParts["services"],
): Promise<readonly Service[]> {
  const did = id as Did;
  if ((await loadOwnHosts(client, did)) === null) return service;
  const kept = service.flatMap((one) => {
    const shown = ticked.find(({ id, type }) => id === one.id && type === one.type);
    const serviceEndpoint = one.serviceEndpoint.filter((url) => shown?.endpoints.includes(url));
    return serviceEndpoint.length === 0 ? [] : [{ ...one, serviceEndpoint }];
  });
  if (kept.length > 0) await rememberHosts(client, did, kept);
  const hosts = (await loadOwnHosts(client, did)) ?? [];
  return service.flatMap((one) => {
    const serviceEndpoint = one.serviceEndpoint.filter((url) => hosts.includes(hostOf(url)));
    if (serviceEndpoint.length === one.serviceEndpoint.length) return [one];
    return serviceEndpoint.length === 0 ? [] : [{ ...one, serviceEndpoint }];
  });
}

/** The user has said that they are not this identity's own. */
async function forgetHosts(client: Client, did: Did, left: readonly string[]): Promise<void> {
  const known = await loadOwnHosts(client, did);
  const hosts = known?.filter((host) => !left.includes(host)) ?? [];
  if (hosts.length < (known?.length ?? 0)) await keepOwnHosts(client.known.memory, did, hosts);
}

/**
 * A stored identity whose next root key `publishKeys` has put in force. What
 * was stored meanwhile stays.
 */
export function inForce(stored: Identity, { rootSeed }: Identity): Identity {
  const isNext = stored.nextRootSeed !== null && equalBytes(stored.nextRootSeed, rootSeed);
  return isNext ? { ...stored, rootSeed, nextRootSeed: null } : stored;
}

/** Keys of methods that stay, where this device receives, and services that the user has ticked. */
type Staying = {
  readonly added: readonly string[];
  readonly urls: NodeUrls | null;
  readonly ticked: KeptParts["services"];
};

/**
 * The document under the keys of an identity. What this device neither holds nor has added goes,
 * and so do other key agreements: a lost or removed device could use them.
 */
async function withNewKeys(
  document: DidDocument,
  identity: Identity,
  { added, urls, ticked }: Staying,
): Promise<DidDocument> {
  const ownIds = ownIdsOf(identity);
  const verificationMethod = await heldMethods(document, identity, added);
  const rights = { methodIds: verificationMethod.map(({ id }) => id), ownIds };
  return {
    ...document,
    verificationMethod,
    authentication: authorized(document.authentication, rights, scaleBounds.authentications),
    keyAgreement: await newestAgreement(document, identity),
    service: await receivingServices(document, { urls, ticked }, rights),
  };
}

const ownIdsOf = ({ methods }: Identity): readonly string[] => [
  ...new Set(methods.filter(isOwn).map(({ id }) => id)),
];

/**
 * Own methods first, of each id by the last secret, then those that were added, each key once, as
 * far as a document has room: a removed device may have filled it. They are made from nothing: such
 * a device may have given those that were there a type by which no one reads or signs.
 */
async function heldMethods(
  { verificationMethod }: DidDocument,
  identity: Identity,
  added: readonly string[],
): Promise<readonly VerificationMethod[]> {
  const multikey = (id: string, publicKeyMultibase: string): VerificationMethod => {
    return { id, type: "Multikey", controller: identity.did, publicKeyMultibase };
  };
  const ids = ownIdsOf(identity);
  const own = ids.map(async (id) => {
    const { secret } = identity.methods.findLast((one) => one.id === id) as HeldMethod;
    return multikey(id, renderPublicKey(await ed25519PublicKey(secret)));
  });
  const others = verificationMethod
    .filter(({ id, publicKeyMultibase }) => !ids.includes(id) && added.includes(publicKeyMultibase))
    .map((one) => (parseMethodKey(one) === null ? multikey(one.id, one.publicKeyMultibase) : one));
  const all = [...(await Promise.all(own)), ...eachKeyOnce(others)];
  return all.slice(0, scaleBounds.verificationMethods);
}

/** The methods of the new document, and which of them are this identity's own. */
type Rights = { readonly methodIds: readonly string[]; readonly ownIds: readonly string[] };

/**
 * Of a list of methods that may sign or read those that stay. Whoever else may, this identity does.
 */
function authorized(
  listed: readonly string[],
  { methodIds, ownIds }: Rights,
  countMax: number,
): readonly string[] {
  const kept = [...new Set(listed)].filter((id) => methodIds.includes(id));
  const own = kept.filter((id) => ownIds.includes(id));
  const others = kept.filter((id) => !ownIds.includes(id));
  return [...(own.length > 0 ? own : methodIds.slice(0, 1)), ...others].slice(0, countMax);
}

/**
 * The key to seal to, and the notice that bundles are published: that says nothing of a key, and
 * the new methods sign the next.
 */
async function newestAgreement(
  { keyAgreement }: DidDocument,
  { did, agreements, rootSeed, nextRootSeed }: Identity,
): Promise<readonly VerificationMethod[]> {
  const { agreementType, noticeOf } = await import("./registration.ts");
  // Others may have come from another device meanwhile, which a removed one has too.
  const sealing = newestUnder(agreements, nameOfSeed(nextRootSeed ?? rootSeed));
  const last = sealing ?? agreements.at(-1);
  const own = (last === undefined ? [] : [last]).map(async ({ id, secret }) => {
    const publicKeyMultibase = renderAgreementKey(await x25519PublicKey(secret));
    return { id, type: agreementType, controller: did, publicKeyMultibase };
  });
  return [...(await Promise.all(own)), ...(keyAgreement.some(isNotice) ? [noticeOf(did)] : [])];
}

/**
 * Services where this device receives or that its user has ticked, with the methods
 * that may still read there.
 */
async function receivingServices(
  { id: did, service }: DidDocument,
  { urls, ticked }: Pick<Staying, "urls" | "ticked">,
  rights: Rights,
): Promise<readonly Service[]> {
  const { serviceAt } = await import("./registration.ts");
  const countMax = scaleBounds.serviceAuthorizations;
  const isKept = (id: string) => rights.methodIds.includes(id);
  const isTicked = (url: string) => ticked.some(({ endpoints }) => endpoints.includes(url));
  const staying = service.flatMap((one): Service[] => {
    const { authorization, type } = one;
    const place = places.find((each) => each.type === type);
    if (place === undefined) {
      const isSame = authorization === null || authorization.every(isKept);
      return [
        isSame ? one : { ...one, authorization: authorized(authorization, rights, countMax) },
      ];
    }
    const url = urls?.[place.url] ?? null;
    const serviceEndpoint = one.serviceEndpoint.filter(
      (each) => url === null || mayBeNode(each, url) || isTicked(each),
    );
    if (serviceEndpoint.length === 0) return [];
    const readers = authorized(authorization ?? [], rights, countMax);
    return [{ ...one, serviceEndpoint, authorization: readers }];
  });
  const first = rights.methodIds.slice(0, 1);
  const missing = places.flatMap(({ type, fragment, url }) =>
    urls === null || staying.some((one) => one.type === type)
      ? []
      : [{ ...serviceAt(did as Did, { fragment, type, url: urls[url] }), authorization: first }],
  );
  const isFree = ({ id }: Service) => missing.every((one) => one.id !== id);
  return receivingFirst([...staying.filter(isFree), ...missing]);
}

/**
 * Not so for another path at the host of `url`, where this device receives: a node has one address.
 */
const mayBeNode = (endpoint: string, url: string): boolean =>
  hostOf(endpoint) !== hostOf(url) || isAmong(endpoint, [url]);

const eachKeyOnce = (all: readonly VerificationMethod[]): VerificationMethod[] =>
  all.filter((one, i) => {
    const { publicKeyMultibase } = one;
    return all.findIndex((other) => other.publicKeyMultibase === publicKeyMultibase) === i;
  });

/**
 * As many as a document has room for: one Relay and one Cache in any case,
 * the others in their order.
 */
function receivingFirst(all: readonly Service[]): readonly Service[] {
  if (all.length <= scaleBounds.services) return all;
  const needed = places.flatMap(({ type }) => all.find((one) => one.type === type) ?? []);
  const others = all.filter((one) => !needed.includes(one));
  return [...needed, ...others].slice(0, scaleBounds.services);
}
