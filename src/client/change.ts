/**
 * Changes of an identity: signing, submitting, and waiting for them. Signing covers every component, alias, root-key and
 * control operation, and the updates with a proof in headers; it needs no node, and its result contains no secret. Also
 * the change that gives forward secrecy: the rotation of the key that others seal to. Programs load this file when they
 * first need it, about once a week.
 * Source: interface "Signed DID-document updates" and "States and transitions", rules section 4,
 * docs/client.md "Forward secrecy".
 */
import {
  encodeBase64,
  encodeHex,
  encodeHex0x,
  equalBytes,
  renderAgreementKey,
  renderPublicKey,
  utf8,
} from "../core/codec/bytes.ts";
import type { Did } from "../core/codec/did.ts";
import { dayMs, hourMs, parseDuration, renderTimestamp } from "../core/codec/time.ts";
import { type CounterName, type DidDocument, sealingKeyOf } from "../core/ledger/account.ts";
import { actions, counters, type Intent, itemsOf } from "../core/ledger/actions.ts";
import { authorizationMessage, documentActions, encodeDidDocument } from "../core/ledger/document-codec.ts";
import { renderItems, requestOf } from "../core/ledger/intents.ts";
import { renderUpdate } from "../core/ledger/structures.ts";
import { encodeUpdateProof, ledgerHeader, updateHeaders } from "../core/message/proof.ts";
import { isSelfCertifying } from "../core/trust/names.ts";
import { applyComponent, type KeyState } from "../core/trust/proof.ts";
import type { Accepted, Resolved } from "./answers.ts";
import { activeDocument, type Client, readLimits, rootKeyOf } from "./client.ts";
import { ed25519PublicKey, randomUuid, type Signer, signEd25519, x25519PublicKey } from "./crypto.ts";
import {
  authorizationLifeMs,
  confirmChange,
  provingAt,
  type Submission,
  settleRegistration,
  type Waiting,
  waitingDefault,
} from "./directory.ts";
import { ClientError, endpoint, jsonBody, localError, orNull, path } from "./http.ts";
import { advanceChain, freshSeed, heldSeed, type Identity, rootSignerId } from "./keys.ts";
import type { EditIdentity } from "./opening.ts";
import {
  claimNonce,
  findOpening,
  forgetOwnAlias,
  markSeen,
  nextNonce,
  reconcileAgreements,
  rememberAddedKey,
  signDocument,
  takesComponents,
} from "./trust/own.ts";

/** The counter value that a change uses up, and the time of its signature. */
type ChangeTerms = {
  readonly nonce: bigint;
  readonly nowMs: number;
  /** Of the ledger that the change is for, where it accepts version 3; without it the payload is signed plainly. */
  readonly genesisHash?: Uint8Array | null;
};

export async function signIntent(intent: Intent, signer: Signer, terms: ChangeTerms): Promise<Submission> {
  const { nonce, nowMs, genesisHash = null } = terms;
  const validUntilMs = BigInt(nowMs + authorizationLifeMs);
  const { payload, body } = renderUpdate(intent, { nonce, validUntilMs, signerKeyId: signer.keyId }, nowMs);
  const message =
    genesisHash === null ? payload : authorizationMessage(actions[intent.action].counter, genesisHash, payload);
  const signature = encodeBase64(await signEd25519(message, signer.seed));
  return { ...requestOf(intent), body: jsonBody({ ...body, signature }) };
}

// ---------------------------------------------------------------------------- updates with header proofs

/** The updates that the operator account of the Directory makes for the DID. */
export type OwnerUpdate =
  | { readonly extrinsic: "set_alias"; readonly did: Did; readonly alias: string }
  | { readonly extrinsic: "set_delivery_policy_links"; readonly did: Did; readonly links: Members }
  /** Of the DID as a recipient, as a tag of envelopes, or as a persona. */
  | { readonly extrinsic: keyof typeof policyLists; readonly did: Did; readonly policy: Members };

/** As the interface names them; the Directory checks them. */
type Members = Readonly<Record<string, unknown>>;

const policyLists = {
  set_delivery_policy: "recipients",
  set_tag_policy: "tags",
  set_persona_policy: "personas",
} as const;

function ownerRequest(update: OwnerUpdate): readonly [route: string, members: Record<string, unknown>] {
  const { did, extrinsic } = update;
  if (extrinsic === "set_alias") return [path`/dids/${did}/alias`, { alias: update.alias }];
  if (extrinsic === "set_delivery_policy_links")
    return [path`/dids/${did}/delivery-policy-links`, { delivery_policy_links: update.links }];
  return [path`/delivery-policies/${policyLists[extrinsic]}/${did}`, { policy: update.policy }];
}

/** `genesisHash` names the ledger that the update is for; without one, any Directory may take it. */
export async function signOwnerUpdate(
  update: OwnerUpdate,
  signer: Signer,
  { nowMs, genesisHash }: { readonly nowMs: number; readonly genesisHash: Uint8Array | null },
): Promise<Submission> {
  const [route, members] = ownerRequest(update);
  const body = jsonBody({ did: update.did, ...members });
  const claims = {
    operation: update.extrinsic,
    did: update.did,
    keyId: signer.keyId,
    timestamp: renderTimestamp(nowMs),
    nonce: randomUuid(),
    ledger: genesisHash === null ? null : encodeHex0x(genesisHash),
    body,
  };
  const headers = {
    ...(claims.ledger === null ? {} : { [ledgerHeader]: claims.ledger }),
    [updateHeaders.keyId]: claims.keyId,
    [updateHeaders.timestamp]: claims.timestamp,
    [updateHeaders.nonce]: claims.nonce,
    [updateHeaders.signature]: encodeBase64(await signEd25519(encodeUpdateProof(claims), signer.seed)),
  };
  return { method: "PUT", path: route, body, headers };
}

// --------------------------------------------------------------------------------------------------------- submitting

/** `record` is `null` when the caller did not wait, and after a deletion. */
export type Changed = { readonly accepted: Accepted; readonly record: Resolved | null };

/** Signs and submits a change with the current counter value, and waits for it when `waiting` is given. */
export async function change(
  client: Client,
  intent: Intent,
  { signer, waiting }: { readonly signer: Signer; readonly waiting: Waiting | null },
): Promise<Changed> {
  const { did, action } = intent;
  const { submission, nonce } = await signChange(client, intent, signer);
  if (action === "AddVerificationMethod" || action === "UpdateVerificationMethod")
    await rememberAddedKey(client, did, intent.verificationMethod.publicKeyMultibase);
  const accepted = await client.directory.submit(submission);
  const left = action === "remove_alias" ? intent.alias : action === "update_alias" ? intent.oldAlias : null;
  if (left !== null) await forgetOwnAlias(client, did, left);
  if (waiting === null) return { accepted, record: null };
  if (action !== "delete_did") {
    const isInForce = async () => (await nonceNow(client, did, actions[action].counter)) > nonce;
    return { accepted, record: await confirmChange(client, { did, accepted, isInForce }, waiting) };
  }
  await settleRegistration(client, { did, tx_id: accepted.tx_hash }, waiting, "missing");
  return { accepted, record: null };
}

/** What a Directory says of a counter that the proof shows is not believed: its owner may discard old keys then. */
async function nonceNow(client: Client, did: Did, counter: CounterName): Promise<bigint> {
  if (!isProven(did, counter)) return toldNonce(client, did, counter);
  return provenTerms(await client.trust.prove(did, null), counter).nonce;
}

async function toldNonce({ directory }: Client, did: Did, counter: CounterName): Promise<bigint> {
  return BigInt((await directory.nonces(did))[counters[counter].nonceDomain] ?? "0");
}

const isProven = (did: Did, counter: CounterName): boolean =>
  isSelfCertifying(did) && (counter === "document" || counter === "rootPubkey");

type SignedChange = { readonly submission: Submission; readonly nonce: bigint };

/**
 * A change of a document or a root key is made on top of what is proven of a self-certifying DID: its nonce is that of the
 * proof, and where the ledger takes no component call, the change is made in a whole document. What a Directory says of the
 * DID is never signed, and no second, different call with the same nonce while the first is valid.
 */
async function signChange(client: Client, intent: Intent, signer: Signer): Promise<SignedChange> {
  const { did, action } = intent;
  const { counter } = actions[action];
  const nowMs = Date.now();
  const state = isProven(did, counter) ? await ownState(client, did) : null;
  const { nonce, genesisHash } = state === null ? await toldTerms(client, did, counter) : provenTerms(state, counter);
  const component = documentActions.find((one) => one === action);
  if (state !== null && component !== undefined) {
    const document = applyComponent(state.document, component, itemsOf(intent));
    if (document !== null && !takesComponents(state) && signer.keyId === rootSignerId)
      return { nonce, submission: await signDocument(client, state, { document, rootSeed: signer.seed, nowMs }) };
    // What can't be applied to the proven state is left to the ledger to refuse.
    const content = document === null ? null : encodeDidDocument(document);
    if (content !== null) await claimNonce(client.known.memory, did, { counter, nonce, content, nowMs });
  } else if (isSelfCertifying(did)) {
    await checkAlias(client, intent);
    const content = utf8(JSON.stringify([action, renderItems(intent)]));
    await claimNonce(client.known.memory, did, { counter, nonce, content, nowMs });
  }
  return { nonce, submission: await signIntent(intent, signer, { nonce, nowMs, genesisHash }) };
}

function provenTerms(state: KeyState, counter: CounterName): Pick<Required<ChangeTerms>, "nonce" | "genesisHash"> {
  const nonce = counter === "document" ? nextNonce(state) : BigInt(state.rootKeys.length - 1);
  return { nonce, genesisHash: state.genesisHash };
}

async function toldTerms(client: Client, did: Did, counter: CounterName): Promise<ReturnType<typeof provenTerms>> {
  const [nonce, { genesisHash }] = await Promise.all([toldNonce(client, did, counter), provingAt(client)]);
  return { nonce, genesisHash };
}

/** An alias that somebody has is refused before a call for it is signed, since no other could be for five minutes. */
async function checkAlias({ directory }: Client, intent: Intent): Promise<void> {
  const alias =
    intent.action === "add_alias" ? intent.alias : intent.action === "update_alias" ? intent.newAlias : null;
  const found = alias === null ? null : await orNull(directory.alias(alias), "alias_not_found");
  if (found !== null) throw new ClientError("refused", "alias_taken", `${alias} is taken`, { status: 409 });
}

/** The proven state to sign on. Its ledger must be the one that the Directory names and the identity is pinned to. */
async function ownState(client: Client, did: Did): Promise<KeyState> {
  const [state] = await Promise.all([client.trust.prove(did, null), provingAt(client)]);
  const ledger = encodeHex(state.genesisHash);
  if (client.known.ledger === ledger) return state;
  throw localError("other_ledger", `${did} belongs to the ledger ${ledger}, and this Directory signs for another`);
}

type Edit = (document: DidDocument) => DidDocument | Promise<DidDocument>;

/**
 * Signs the whole document of a self-certifying DID, `edited` from its proven state, and waits for it. With it, the
 * present root key stands for all that came before.
 */
export async function replaceDocument(
  client: Client,
  did: Did,
  options: {
    readonly rootSeed: Uint8Array;
    readonly edited: Edit;
    readonly waiting: Waiting;
  },
): Promise<Changed> {
  const state = await ownState(client, did);
  const whole = { document: await options.edited(state.document), rootSeed: options.rootSeed, nowMs: Date.now() };
  const accepted = await client.directory.submit(await signDocument(client, state, whole));
  const isInForce = async () => (await nonceNow(client, did, "document")) > nextNonce(state);
  return { accepted, record: await confirmChange(client, { did, accepted, isInForce }, options.waiting) };
}

/**
 * Publishes other keys: in a whole document of a self-certifying DID, so that its proof stays small, otherwise by a call
 * for each key that `edited` changes.
 */
async function publishEdited(
  client: Client,
  did: Did,
  edited: Edit,
  { rootSeed, waiting }: { readonly rootSeed: Uint8Array; readonly waiting: Waiting },
): Promise<void> {
  if (isSelfCertifying(did)) {
    await replaceDocument(client, did, { rootSeed, edited, waiting });
    return;
  }
  const options = { signer: { keyId: rootSignerId, seed: rootSeed }, waiting };
  const before = await activeDocument(client, did);
  const after = await edited(before);
  for (const verificationMethod of after.verificationMethod)
    if (!before.verificationMethod.includes(verificationMethod))
      await change(client, { action: "UpdateVerificationMethod", did, verificationMethod }, options);
  for (const keyAgreement of after.keyAgreement)
    if (!before.keyAgreement.includes(keyAgreement))
      await change(client, { action: "UpdateKeyAgreement", did, keyAgreement }, options);
}

/** The same for primary alias, policy links and policies, whose proof travels in headers. */
export async function changeAsOwner(
  client: Client,
  update: OwnerUpdate,
  options: { readonly signer: Signer; readonly waiting: Waiting | null },
): Promise<Changed> {
  const { genesisHash } = await provingAt(client);
  const signed = await signOwnerUpdate(update, options.signer, { nowMs: Date.now(), genesisHash });
  const accepted = await client.directory.submit(signed);
  const expected = { did: update.did, accepted, isInForce: async (state: string | null) => state !== "in_block" };
  return { accepted, record: options.waiting && (await confirmChange(client, expected, options.waiting)) };
}

// ------------------------------------------------------------------------------------------------------ key rotation

// The key that others seal to is replaced, by default once a week, and the old secret is destroyed when everything that
// was sealed to it has expired. The new key has the same id, so that every sender uses it from then on.

/** No envelope lives longer, so no secret is kept longer after its key was replaced. */
const secretKeptMsMax = 30 * dayMs;
/** Clock skew, and senders that read the document a moment before. */
const keptMarginMs = hourMs;

type RotationOptions = {
  readonly nowMs: number;
  /** How old the published key may become; 0 rotates now. */
  readonly everyMs: number;
  readonly waiting?: Waiting;
  /** Changes the stored identity (`changeIdentity`): before the new key is submitted, and after it is in force. */
  readonly change: (edit: EditIdentity) => Promise<Identity>;
};

type Rotated = {
  readonly identity: Identity;
  readonly rotated: boolean;
  /** `false`: another device published a key whose secret this one can't derive. */
  readonly holdsPublished: boolean;
};

/** Reconciles, and replaces the published key when it is due. */
export async function rotateAgreement(client: Client, did: Did, options: RotationOptions): Promise<Rotated> {
  const { nowMs } = options;
  const document = await activeDocument(client, did);
  const keptMs = await longestLifeMs(document, client.timeoutMs);
  const reconcile = async (shown: DidDocument) => {
    let holdsPublished = false;
    const identity = await options.change(async (stored) => {
      const reconciled = await reconcileAgreements(stored, shown, { nowMs, keptMs });
      holdsPublished = reconciled.holdsPublished;
      return reconciled.identity;
    });
    return { identity, holdsPublished };
  };
  const before = await reconcile(document);
  const published = sealingKeyOf(document);
  const isDue = before.holdsPublished && nowMs - before.identity.chain.sinceMs >= options.everyMs;
  if (published === null || !isDue) return { ...before, rotated: false };
  const nextOf = async (stored: Identity) =>
    nextSecret(stored, published.id, await findOpening(stored.agreements, published));
  const next = await options.change(async (stored) => (await nextOf(stored)).identity);
  const { secret } = await nextOf(next);
  const { publicKey: _, ...replaced } = published;
  const keyAgreement = { ...replaced, publicKeyMultibase: renderAgreementKey(await x25519PublicKey(secret)) };
  const edited = (one: DidDocument): DidDocument => ({
    ...one,
    keyAgreement: one.keyAgreement.map((held) => (held.id === keyAgreement.id ? keyAgreement : held)),
  });
  const rootSeed = await rootSeedInForce(client, next);
  await publishEdited(client, did, edited, { rootSeed, waiting: options.waiting ?? waitingDefault });
  const after = await reconcile(await activeDocument(client, did));
  await markSeen(client, did);
  return { ...after, rotated: true };
}

/** Of the root key that the ledger has: its replacement may have been interrupted. */
async function rootSeedInForce(client: Client, identity: Identity): Promise<Uint8Array> {
  return (await heldSeed(identity, await rootKeyOf(client, identity.did))) ?? identity.rootSeed;
}

/**
 * The secret to publish next, stored from now on: the one that an interrupted rotation left behind that in force, or a new
 * one. The time of the chain stays that of the key in force, so an interrupted rotation is still due.
 */
function nextSecret(identity: Identity, id: string, current: number): { identity: Identity; secret: Uint8Array } {
  const left = identity.agreements.find((one, i) => i > current && one.id === id && one.destroyAtMs === null);
  if (left !== undefined) return { identity, secret: left.secret };
  const { secret, chain } = advanceChain(identity.chain, identity.chain.sinceMs);
  const agreements = [...identity.agreements, { id, secret, destroyAtMs: null }];
  return { identity: { ...identity, agreements, chain }, secret };
}

/** The longest life that the Caches of the document allow; 30 days for one that states none. */
async function longestLifeMs(document: DidDocument, timeoutMs: number): Promise<number> {
  const services = document.service.filter(({ type }) => type === "SvcCacheService");
  const urls = new Set(services.flatMap(({ serviceEndpoint }) => serviceEndpoint));
  const lives = [...urls].map(async (url) => {
    const limits = await readLimits(endpoint(url, timeoutMs));
    return parseDuration(limits?.max_ttl ?? "") ?? secretKeptMsMax;
  });
  return urls.size === 0
    ? secretKeptMsMax
    : Math.min(Math.max(...(await Promise.all(lives))) + keptMarginMs, secretKeptMsMax);
}

// ------------------------------------------------------------------------------------------------------------ new keys

/** New secrets behind those in force, on a chain that nothing earlier leads to. An interrupted change keeps its keys. */
export function nextIdentity(identity: Identity, nowMs: number): Identity {
  if (identity.nextRootSeed !== null) return identity;
  const root = freshSeed();
  const ids = [...new Set(identity.methods.map(({ id }) => id))];
  const rootId = `${identity.did}#root`;
  const methods = ids.map((id) => ({ id, secret: id === rootId ? root : freshSeed() }));
  const sealing = identity.agreements.at(-1)?.id ?? `${identity.did}#x25519-1`;
  const chain = { epoch: identity.chain.epoch + 1, key: freshSeed(), sinceMs: nowMs };
  const agreements = [...identity.agreements, { id: sealing, secret: freshSeed(), destroyAtMs: null }];
  return { ...identity, nextRootSeed: root, methods: [...identity.methods, ...methods], agreements, chain };
}

/**
 * Publishes the keys of an identity, by command and after a removal of a device or a restoration: root key, methods,
 * and the key that others seal to. `next` has the new secrets behind the old ones, and a new root key as the next.
 * Called again after an interruption, it does what is left.
 */
export async function publishKeys(client: Client, next: Identity, waiting: Waiting): Promise<Identity> {
  const { did, nextRootSeed } = next;
  const rootSeed = nextRootSeed ?? next.rootSeed;
  const newRootPubkey = await ed25519PublicKey(rootSeed);
  if (!equalBytes(await rootKeyOf(client, did), newRootPubkey)) {
    const signer = { keyId: rootSignerId, seed: next.rootSeed };
    await change(client, { action: "UpdateRootPubkey", did, newRootPubkey }, { signer, waiting });
  }
  await publishEdited(client, did, (document) => withNewKeys(document, next), { rootSeed, waiting });
  if (!equalBytes(await rootKeyOf(client, did), newRootPubkey))
    throw localError("root_replaced", `the root key of ${did} was replaced by another device`);
  return { ...next, rootSeed, nextRootSeed: null };
}

/** A stored identity whose next root key `publishKeys` has put in force. What was stored meanwhile stays. */
export function inForce(stored: Identity, { rootSeed }: Identity): Identity {
  const isNext = stored.nextRootSeed !== null && equalBytes(stored.nextRootSeed, rootSeed);
  return isNext ? { ...stored, rootSeed, nextRootSeed: null } : stored;
}

/** Of each id the last secret counts. Others of the key agreements could be opened by a lost or removed device: they go. */
async function withNewKeys(document: DidDocument, { did, methods, agreements }: Identity): Promise<DidDocument> {
  const verificationMethod = document.verificationMethod.map(async (method) => {
    const held = methods.findLast(({ id }) => id === method.id);
    const key = held === undefined ? method.publicKeyMultibase : renderPublicKey(await ed25519PublicKey(held.secret));
    return key === method.publicKeyMultibase ? method : { ...method, publicKeyMultibase: key };
  });
  const keyAgreement = agreements.slice(-1).map(async ({ id, secret }) => ({
    ...{ id, type: "Multikey", controller: did },
    ...document.keyAgreement.find((one) => one.id === id),
    publicKeyMultibase: renderAgreementKey(await x25519PublicKey(secret)),
  }));
  return {
    ...document,
    verificationMethod: await Promise.all(verificationMethod),
    keyAgreement: await Promise.all(keyAgreement),
  };
}
