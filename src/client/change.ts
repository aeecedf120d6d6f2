/**
 * Changes of an identity: signing, submitting, and waiting for them. Signing covers every component, alias, root-key and
 * control operation, and the updates with a proof in headers; it needs no node, and its result contains no secret. Also
 * the change that gives forward secrecy: the rotation of the key that others seal to. Programs load this file when they
 * first need it, about once a week.
 * Source: interface "Signed DID-document updates" and "States and transitions", rules section 4,
 * docs/client.md "Forward secrecy".
 */
import { encodeBase64, encodeHex, encodeHex0x, equalBytes, renderAgreementKey, utf8 } from "../core/codec/bytes.ts";
import type { Did } from "../core/codec/did.ts";
import { dayMs, hourMs, parseDuration, renderTimestamp } from "../core/codec/time.ts";
import { type CounterName, type DidDocument, type KeyAgreement, sealingKeyOf } from "../core/ledger/account.ts";
import { actions, counters, type Intent, itemsOf } from "../core/ledger/actions.ts";
import { authorizationMessage, documentActions, encodeDidDocument } from "../core/ledger/document-codec.ts";
import { renderItems, requestOf } from "../core/ledger/intents.ts";
import { encodeAuthorization } from "../core/ledger/structures.ts";
import { encodeUpdateProof, ledgerHeader, updateHeaders } from "../core/message/proof.ts";
import { isSelfCertifying } from "../core/trust/names.ts";
import { applyComponent, type KeyState } from "../core/trust/proof.ts";
import type { Accepted, Resolved } from "./answers.ts";
import { activeDocument, type Client, readLimits } from "./client.ts";
import { randomUuid, type Signer, signEd25519, x25519PublicKey } from "./crypto.ts";
import {
  authorizationLifeMs,
  confirmChange,
  confirmDeletion,
  provingAt,
  type Submission,
  type Waiting,
  waitingDefault,
} from "./directory.ts";
import { ClientError, endpoint, jsonBody, localError, orNull, path } from "./http.ts";
import { type AgreementChain, advanceChain, type HeldAgreement, type Identity, rootSignerId } from "./keys.ts";
import {
  claimNonce,
  findStranger,
  forgetOwnAlias,
  markSeen,
  nextNonce,
  type OwnNews,
  type Stranger,
  signDocument,
  takesComponents,
  watchOwn as watchRecord,
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
  const payload = encodeAuthorization(intent, { nonce, validUntilMs, signerKeyId: signer.keyId });
  const { counter } = actions[intent.action];
  const message = genesisHash === null ? payload : authorizationMessage(counter, genesisHash, payload);
  const body = {
    did: intent.did,
    action: intent.action,
    ...renderItems(intent),
    nonce: String(nonce),
    ...(counter === "alias" ? { timestamp: renderTimestamp(nowMs) } : {}),
    valid_until: String(validUntilMs),
    signer_key_id: signer.keyId,
    canonical_payload: encodeHex0x(payload),
    signature: encodeBase64(await signEd25519(message, signer.seed)),
  };
  const request = requestOf(intent);
  if (request === null) throw localError("no_route", `no route submits ${intent.action}`);
  return { ...request, body: jsonBody(body) };
}

// ---------------------------------------------------------------------------- updates with header proofs

type ExpirationBehavior = "DeleteOnExpiry" | "KeepHeaderPreview" | "TombstoneReference";
export type PolicyLinks = {
  readonly recipient_policy?: string;
  readonly tag_policies?: readonly string[];
  readonly persona_policies?: readonly string[];
};
export type DeliveryPolicyMembers = {
  /** In blocks of the ledger. */
  effective_ttl: number;
  max_message_bytes: number;
  cache_eligible: boolean;
  replication?: number;
  encrypted_header_preview_bytes?: number;
  release_pricing?: { base_fee: string; per_kib_fee: string };
  expiration_behavior?: ExpirationBehavior;
};
export type PersonaPolicyMembers = {
  release_pricing?: { asset: string; amount: string };
  /** `retain_until` in milliseconds since 1970, as decimal text. */
  expiration_behavior?: { mode: ExpirationBehavior; retain_until?: string };
  allowed_relays?: string[];
};

/** The updates that the operator account of the Directory makes for the DID. */
export type OwnerUpdate =
  | { readonly extrinsic: "set_alias"; readonly did: Did; readonly alias: string }
  | { readonly extrinsic: "set_delivery_policy_links"; readonly did: Did; readonly links: PolicyLinks }
  /** Of the DID as a recipient, or as a tag of envelopes. */
  | {
      readonly extrinsic: "set_delivery_policy" | "set_tag_policy";
      readonly did: Did;
      readonly policy: DeliveryPolicyMembers;
    }
  | { readonly extrinsic: "set_persona_policy"; readonly did: Did; readonly policy: PersonaPolicyMembers };

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
  options: { readonly signer: Signer; readonly waiting: Waiting | null },
): Promise<Changed> {
  const { directory } = client;
  // The member of `GET /dids/{did}/nonces` to read for the action.
  const domain = counters[actions[intent.action].counter].nonceDomain;
  const { submission, nonce: value } = await signChange(client, intent, options.signer);
  const accepted = await directory.submit(submission);
  const left =
    intent.action === "remove_alias" ? intent.alias : intent.action === "update_alias" ? intent.oldAlias : null;
  if (left !== null) await forgetOwnAlias(client, intent.did, left);
  if (options.waiting === null) return { accepted, record: null };
  const submitted = { did: intent.did, txHash: accepted.tx_hash };
  if (intent.action === "delete_did") {
    await confirmDeletion(directory, submitted, options.waiting);
    return { accepted, record: null };
  }
  const expected = { ...submitted, counter: { domain, value } };
  return { accepted, record: await confirmChange(directory, expected, options.waiting) };
}

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
  const isProven = isSelfCertifying(did) && (counter === "document" || counter === "rootPubkey");
  const state = isProven ? await ownState(client, did) : null;
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
  const [nonces, { genesisHash }] = await Promise.all([client.directory.nonces(did), provingAt(client)]);
  return { nonce: BigInt(nonces[counters[counter].nonceDomain] ?? "0"), genesisHash };
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

/**
 * Signs the whole document of a self-certifying DID, `edited` from its proven state, and waits for it. With it, the
 * present root key stands for all that came before.
 */
export async function replaceDocument(
  client: Client,
  did: Did,
  options: {
    readonly rootSeed: Uint8Array;
    readonly edited: (document: DidDocument) => DidDocument;
    readonly waiting: Waiting;
  },
): Promise<Changed> {
  const state = await ownState(client, did);
  const whole = { document: options.edited(state.document), rootSeed: options.rootSeed, nowMs: Date.now() };
  const accepted = await client.directory.submit(await signDocument(client, state, whole));
  const counter = { domain: counters.document.nonceDomain, value: nextNonce(state) };
  const expected = { did, txHash: accepted.tx_hash, counter };
  return { accepted, record: await confirmChange(client.directory, expected, options.waiting) };
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
  if (options.waiting === null) return { accepted, record: null };
  const expected = { did: update.did, txHash: accepted.tx_hash, counter: null };
  return { accepted, record: await confirmChange(client.directory, expected, options.waiting) };
}

// ------------------------------------------------------------------------------------------------------ key rotation

// The key that others seal to is replaced, by default once a week, and the old secret is destroyed when everything that
// was sealed to it has expired. One component call publishes the new key under the same id, so that every sender uses it
// from then on. Devices of one identity need not communicate: the next secret is derived from a chain key that they share
// and that is replaced with it. A device that finds an unknown key in the document derives forward until it has that key's
// secret. Two devices that rotate at the same time publish the same key.

/** No envelope lives longer, so no secret is kept longer after its key was replaced. */
const secretKeptMsMax = 30 * dayMs;
/** Clock skew, and senders that read the document a moment before. */
const keptMarginMs = hourMs;
/** Ten years of weeks: a device that was offline longer must import the identity again. */
const epochsAheadMax = 520;

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
  const published = sealingKeyOf(document);
  if (published === null) return { identity: destroyExpired(identity, nowMs), holdsPublished: false };
  const held = await derivePublished(identity, published, nowMs);
  const current = await findOpening(held.agreements, published);
  if (current < 0) return { identity: destroyExpired(held, nowMs), holdsPublished: false };
  // Those before the current one are superseded; one behind it was derived and is not yet in force.
  const isSuperseded = ({ id, destroyAtMs }: HeldAgreement, i: number) =>
    id === published.id && i < current && destroyAtMs === null;
  if (!held.agreements.some(isSuperseded)) return { identity: destroyExpired(held, nowMs), holdsPublished: true };
  const agreements = held.agreements.map((one, i) =>
    isSuperseded(one, i) ? { ...one, destroyAtMs: nowMs + keptMs } : one,
  );
  const chain = { ...held.chain, sinceMs: nowMs };
  return { identity: destroyExpired({ ...held, agreements, chain }, nowMs), holdsPublished: true };
}

/** With the secrets up to the published one, if that is not here already, and ahead on the chain. */
async function derivePublished(
  identity: Identity,
  { id, publicKey }: { readonly id: string; readonly publicKey: Uint8Array },
  nowMs: number,
): Promise<Identity> {
  if ((await findOpening(identity.agreements, { id: null, publicKey })) >= 0) return identity;
  const agreements: HeldAgreement[] = [...identity.agreements];
  let chain: AgreementChain = identity.chain;
  for (let i = 0; i < epochsAheadMax; i++) {
    const next = advanceChain(chain, nowMs);
    chain = next.chain;
    // Those in between may have messages waiting too.
    agreements.push({ id, secret: next.secret, destroyAtMs: null });
    if (await opens(next.secret, publicKey)) return { ...identity, agreements, chain };
  }
  return identity;
}

function destroyExpired(identity: Identity, nowMs: number): Identity {
  const agreements = identity.agreements.filter(({ destroyAtMs }) => destroyAtMs === null || destroyAtMs > nowMs);
  return agreements.length === identity.agreements.length ? identity : { ...identity, agreements };
}

/** What somebody else has changed about an identity; an `alias` is watched too. */
export function watchOwn(client: Client, identity: Identity, alias: string | null): Promise<OwnNews[]> {
  return watchRecord(client, identity.did, { alias, strangerIn: (state) => strangerIn(identity, state) });
}

/** A key of the own record that this device neither holds nor derives. */
export async function strangerIn(identity: Identity, state: KeyState): Promise<Stranger | null> {
  const { holdsPublished } = await reconcileAgreements(identity, state.document, { nowMs: Date.now(), keptMs: 0 });
  return findStranger(identity, state, holdsPublished);
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
  const published = sealingKeyOf(document);
  const isDue = before.holdsPublished && nowMs - before.identity.chain.sinceMs >= options.everyMs;
  if (published === null || !isDue) return { ...before, rotated: false };
  const next = nextSecret(before.identity, published.id, await findOpening(before.identity.agreements, published));
  await options.save(next.identity);
  const { publicKey: _, ...replaced } = published;
  const keyAgreement = { ...replaced, publicKeyMultibase: renderAgreementKey(await x25519PublicKey(next.secret)) };
  await publishAgreement(client, identity.did, keyAgreement, options);
  const after = await reconcileAgreements(next.identity, await activeDocument(client, identity.did), { nowMs, keptMs });
  await options.save(after.identity);
  await markSeen(client, identity.did);
  return { ...after, rotated: true };
}

/** A self-certifying DID gets a whole document each time, so that its proof stays small (docs/trust.md). */
async function publishAgreement(
  client: Client,
  did: Did,
  keyAgreement: KeyAgreement,
  { signer, waiting = waitingDefault }: Pick<RotationOptions, "signer" | "waiting">,
): Promise<void> {
  if (!isSelfCertifying(did) || signer.keyId !== rootSignerId) {
    await change(client, { action: "UpdateKeyAgreement", did, keyAgreement }, { signer, waiting });
    return;
  }
  const edited = (document: DidDocument): DidDocument => {
    const list = document.keyAgreement.map((one) => (one.id === keyAgreement.id ? keyAgreement : one));
    return { ...document, keyAgreement: list };
  };
  await replaceDocument(client, did, { rootSeed: signer.seed, edited, waiting });
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
