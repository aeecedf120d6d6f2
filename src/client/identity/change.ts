/**
 * Changes of an identity: signing, submitting, and waiting for them; and the rotation of the key
 * that others seal to. Programs load this file when they first need it, about once a week.
 * Source: interface "Signed DID-document updates" and "States and transitions", rules section 4,
 * docs/client.md "Forward secrecy".
 */
import { encodeBase64, encodeHex, encodeHex0x, utf8 } from "../../core/codec/bytes.ts";
import type { Did } from "../../core/codec/did.ts";
import { renderTimestamp } from "../../core/codec/time.ts";
import type { CounterName, DidDocument } from "../../core/ledger/account.ts";
import {
  actions,
  counters,
  type Intent,
  isDocumentAction,
  itemsOf,
} from "../../core/ledger/actions.ts";
import { authorizationMessage, encodeDidDocument } from "../../core/ledger/document-codec.ts";
import { renderItems, requestOf } from "../../core/ledger/intents.ts";
import { applyComponent, type KeyState } from "../../core/ledger/key-proof.ts";
import { isSelfCertifying } from "../../core/ledger/names.ts";
import { renderUpdate } from "../../core/ledger/structures.ts";
import { encodeUpdateProof, ledgerHeader, updateHeaders } from "../../core/message/proof.ts";
import { randomUuid, type Signer, signEd25519 } from "../keys/crypto.ts";
import { rootSignerId } from "../keys/keys.ts";
import type { Accepted } from "../net/answers.ts";
import {
  authorizationLifeMs,
  otherLedger,
  provingAt,
  type SubmissionRequest,
  settle,
  settleRegistration,
  type Waiting,
} from "../net/directory.ts";
import { jsonBody, path } from "../net/http.ts";
import { activeDocument, type Client } from "../trust/client.ts";
import { rememberHosts } from "../trust/hosts.ts";
import {
  claimNonce,
  demandPresentRoot,
  forgetOwnAlias,
  loadAddedKeys,
  nextNonce,
  rememberAddedKey,
  saveAddedKeys,
  signDocument,
  takesComponents,
} from "../trust/own.ts";

type ChangeTerms = {
  readonly nonce: bigint;
  readonly nowMs: number;
  /**
   * Of the ledger that the change is for, where it accepts version 3; without it the
   * payload is signed plainly.
   */
  readonly genesisHash?: Uint8Array | null;
};

export async function signIntent(
  intent: Intent,
  signer: Signer,
  terms: ChangeTerms,
): Promise<SubmissionRequest> {
  const { nonce, nowMs, genesisHash = null } = terms;
  const validUntilMs = BigInt(nowMs + authorizationLifeMs);
  const { payload, body } = renderUpdate(
    intent,
    { nonce, validUntilMs, signerKeyId: signer.keyId },
    nowMs,
  );
  const message =
    genesisHash === null
      ? payload
      : authorizationMessage(actions[intent.action].counter, genesisHash, payload);
  const signature = encodeBase64(await signEd25519(message, signer.seed));
  return { ...requestOf(intent), body: jsonBody({ ...body, signature }) };
}

// ---------------------------------------------------------------------- updates with header proofs

/**
 * What the operator account of the Directory does for a DID: the route of each,
 * and the member of its body.
 */
export const ownerUpdates = {
  set_alias: { routeOf: (did: Did) => path`/dids/${did}/alias`, member: "alias" },
  set_delivery_policy_links: {
    routeOf: (did: Did) => path`/dids/${did}/delivery-policy-links`,
    member: "delivery_policy_links",
  },
  set_delivery_policy: {
    routeOf: (did: Did) => path`/delivery-policies/recipients/${did}`,
    member: "policy",
  },
  set_tag_policy: { routeOf: (did: Did) => path`/delivery-policies/tags/${did}`, member: "policy" },
  set_persona_policy: {
    routeOf: (did: Did) => path`/delivery-policies/personas/${did}`,
    member: "policy",
  },
} as const;

/**
 * `value` has the members that the interface names, which the Directory checks; that
 * of `set_alias` is a text.
 */
export type OwnerUpdate = {
  readonly extrinsic: keyof typeof ownerUpdates;
  readonly did: Did;
  readonly value: unknown;
};

/**
 * `genesisHash` names the ledger that the update is for; without one, any Directory may take it.
 */
export async function signOwnerUpdate(
  update: OwnerUpdate,
  signer: Signer,
  { nowMs, genesisHash }: { readonly nowMs: number; readonly genesisHash: Uint8Array | null },
): Promise<SubmissionRequest> {
  const { routeOf, member } = ownerUpdates[update.extrinsic];
  const body = jsonBody({ did: update.did, [member]: update.value });
  const headers = await updateProofHeaders(
    { operation: update.extrinsic, did: update.did, body },
    signer,
    { nowMs, genesisHash },
  );
  return { method: "PUT", path: routeOf(update.did), body, headers };
}

type ProvenUpdate = {
  readonly operation: string;
  readonly did: Did;
  readonly body: Uint8Array;
};

/** Proves one request to a Directory: the nonce is new each time. */
export async function updateProofHeaders(
  update: ProvenUpdate,
  signer: Signer,
  { nowMs, genesisHash }: { readonly nowMs: number; readonly genesisHash: Uint8Array | null },
): Promise<Record<string, string>> {
  const claims = {
    ...update,
    keyId: signer.keyId,
    timestamp: renderTimestamp(nowMs),
    nonce: randomUuid(),
    ledger: genesisHash === null ? null : encodeHex0x(genesisHash),
  };
  return {
    ...(claims.ledger === null ? {} : { [ledgerHeader]: claims.ledger }),
    [updateHeaders.keyId]: claims.keyId,
    [updateHeaders.timestamp]: claims.timestamp,
    [updateHeaders.nonce]: claims.nonce,
    [updateHeaders.signature]: encodeBase64(
      await signEd25519(encodeUpdateProof(claims), signer.seed),
    ),
  };
}

// -------------------------------------------------------------------------------------- submitting

/** Signs and submits a change with the current counter value, and waits until it is in force. */
export async function change(
  client: Client,
  intent: Intent,
  { signer, waiting }: { readonly signer: Signer; readonly waiting: Waiting },
): Promise<Accepted> {
  const { did, action } = intent;
  const { counter } = actions[action];
  const terms = await termsOf(client, did, counter);
  const submission = await signChange(client, intent, signer, terms);
  if (action === "AddVerificationMethod" || action === "UpdateVerificationMethod")
    await rememberAddedKey(client, did, intent.verificationMethod.publicKeyMultibase);
  if (action === "AddService" || action === "UpdateService")
    await rememberHosts(client, did, [intent.service]);
  const accepted = await client.directory.submit(submission);
  if (action === "remove_alias") await forgetOwnAlias(client, did, intent.alias);
  if (action === "update_alias") await forgetOwnAlias(client, did, intent.oldAlias);
  const nonceNow = async () =>
    terms.state === null
      ? toldNonce(client, did, counter)
      : nonceIn(await client.trust.prove(did, null), counter);
  const isInForce = async () => (await nonceNow()) > terms.nonce;
  if (action === "delete_did")
    await settleRegistration(client, { did, tx_id: accepted.tx_hash }, waiting, "missing");
  else await settle(client, { txHash: accepted.tx_hash, isInForce }, waiting);
  const gone = action === "RemoveVerificationMethod" ? methodOf(terms.state, intent.id) : null;
  if (gone !== null) await forgetAddedKey(client, did, gone.publicKeyMultibase);
  return accepted;
}

/** This device takes it out: who puts it there again is a stranger. */
async function forgetAddedKey(client: Client, did: Did, publicKey: string): Promise<void> {
  const added = await loadAddedKeys(client, did);
  await saveAddedKeys(
    client,
    did,
    added.filter((one) => one !== publicKey),
  );
}

const methodOf = (state: KeyState | null, id: string) =>
  state?.document?.verificationMethod.find((one) => one.id === id) ?? null;

/**
 * What the next change of a counter is signed with; `state` where the proof of
 * the DID shows the counter.
 */
type SigningTerms = {
  readonly nonce: bigint;
  readonly genesisHash: Uint8Array | null;
  readonly state: KeyState | null;
};

const nonceIn = (state: KeyState, counter: CounterName): bigint =>
  counter === "document" ? nextNonce(state) : BigInt(state.rootKeys.length - 1);

const toldNonce = async ({ directory }: Client, did: Did, counter: CounterName): Promise<bigint> =>
  BigInt((await directory.nonces(did))[counters[counter].nonceDomain] ?? "0");

/**
 * What a Directory says of a counter that the proof shows is not believed: its owner
 * may discard old keys then.
 */
async function termsOf(client: Client, did: Did, counter: CounterName): Promise<SigningTerms> {
  if (isSelfCertifying(did) && (counter === "document" || counter === "rootPubkey")) {
    const state = await ownState(client, did);
    return { nonce: nonceIn(state, counter), genesisHash: state.genesisHash, state };
  }
  const [nonce, { genesisHash }] = await Promise.all([
    toldNonce(client, did, counter),
    provingAt(client),
  ]);
  return { nonce, genesisHash, state: null };
}

/**
 * A change of a document or a root key is made on top of what is proven of a self-certifying DID:
 * its nonce is that of the proof, and where the ledger takes no component call, the change is made
 * in a whole document. What a Directory says of the DID is never signed, and no second, different
 * call with the same nonce while the first is valid.
 */
async function signChange(
  client: Client,
  intent: Intent,
  signer: Signer,
  terms: SigningTerms,
): Promise<SubmissionRequest> {
  const { did, action } = intent;
  const { state, nonce } = terms;
  const nowMs = Date.now();
  if (state !== null) {
    if (signer.keyId === rootSignerId) await demandPresentRoot(state, signer.seed);
    const isComponent = isDocumentAction(action);
    const document = isComponent ? applyComponent(state.document, action, itemsOf(intent)) : null;
    if (document !== null && !takesComponents(state) && signer.keyId === rootSignerId)
      return signDocument(client, state, { document, rootSeed: signer.seed, nowMs });
    const content =
      document === null ? utf8(JSON.stringify(renderItems(intent))) : encodeDidDocument(document);
    // What can't be applied to the proven state is left to the ledger to refuse.
    if (!isComponent || document !== null)
      await claimNonce(client.known.memory, did, {
        counter: actions[action].counter,
        nonce,
        content,
        nowMs,
      });
  }
  return signIntent(intent, signer, { ...terms, nowMs });
}

/**
 * The proven state to sign on. Its ledger must be the one that the Directory names and
 * the identity is pinned to.
 */
async function ownState(client: Client, did: Did): Promise<KeyState> {
  const [state] = await Promise.all([client.trust.prove(did, null), provingAt(client)]);
  const ledger = encodeHex(state.genesisHash);
  if (client.known.ledger === ledger) return state;
  throw otherLedger(ledger, client.known.ledger);
}

type Edit = (document: DidDocument) => DidDocument | Promise<DidDocument>;
type Publishing = {
  readonly rootSeed: Uint8Array;
  readonly edited: Edit;
  readonly waiting: Waiting;
};

/**
 * Signs the whole document of a self-certifying DID, `edited` from its proven state, and waits for
 * it. With it, the present root key stands for all that came before.
 */
export async function replaceDocument(
  client: Client,
  did: Did,
  { rootSeed, edited, waiting }: Publishing,
) {
  const state = await ownState(client, did);
  const whole = { document: await edited(state.document), rootSeed, nowMs: Date.now() };
  const { tx_hash: txHash } = await client.directory.submit(
    await signDocument(client, state, whole),
  );
  const isInForce = async () => nextNonce(await client.trust.prove(did, null)) > nextNonce(state);
  await settle(client, { txHash, isInForce }, waiting);
}

/**
 * Publishes other keys: in a whole document of a self-certifying DID, so that its proof stays
 * small, otherwise by a call for each key that `edited` changes.
 */
export async function publishEdited(
  client: Client,
  did: Did,
  publishing: Publishing,
): Promise<void> {
  if (isSelfCertifying(did)) return replaceDocument(client, did, publishing);
  const options = {
    signer: { keyId: rootSignerId, seed: publishing.rootSeed },
    waiting: publishing.waiting,
  };
  const before = await activeDocument(client, did);
  const after = await publishing.edited(before);
  for (const intent of differencesOf(before, after)) await change(client, intent, options);
}

type Identified = { readonly id: string };
const lacks = (list: readonly Identified[], id: string): boolean =>
  list.every((one) => one.id !== id);

/**
 * The calls from one document to another that has no new services or agreements:
 * additions first, then what goes.
 */
function differencesOf(before: DidDocument, after: DidDocument): Intent[] {
  const did = before.id as Did;
  const isNew =
    <T extends Identified>(list: readonly T[]) =>
    (one: T) =>
      !list.includes(one);

  const methods = after.verificationMethod.filter(isNew(before.verificationMethod));
  const agreements = after.keyAgreement.filter(isNew(before.keyAgreement));
  const services = after.service.filter(isNew(before.service));
  const goneServices = before.service.filter(({ id }) => lacks(after.service, id));

  const gone = before.verificationMethod.filter(({ id }) => lacks(after.verificationMethod, id));
  const goneAgreements = before.keyAgreement.filter(({ id }) => lacks(after.keyAgreement, id));

  const signers = after.authentication.filter((id) => !before.authentication.includes(id));
  const goneSigners = before.authentication.filter((id) => !after.authentication.includes(id));

  return [
    ...methods.map((verificationMethod): Intent => {
      const isAdded = lacks(before.verificationMethod, verificationMethod.id);
      const action = isAdded ? "AddVerificationMethod" : "UpdateVerificationMethod";
      return { action, did, verificationMethod };
    }),
    ...signers.map((id): Intent => ({ action: "AddAuthentication", did, id })),
    ...agreements.map((keyAgreement): Intent => {
      const isAdded = lacks(before.keyAgreement, keyAgreement.id);
      return { action: isAdded ? "AddKeyAgreement" : "UpdateKeyAgreement", did, keyAgreement };
    }),
    ...services.map((service): Intent => {
      const action = lacks(before.service, service.id) ? "AddService" : "UpdateService";
      return { action, did, service };
    }),
    ...goneServices.map(({ id }): Intent => ({ action: "RemoveService", did, id })),
    ...goneSigners.map((id): Intent => ({ action: "RemoveAuthentication", did, id })),
    ...gone.map(({ id }): Intent => ({ action: "RemoveVerificationMethod", did, id })),
    ...goneAgreements.map(({ id }): Intent => ({ action: "RemoveKeyAgreement", did, id })),
  ];
}

/**
 * The same as `change` for primary alias, policy links and policies, whose
 * proof travels in headers.
 */
export async function changeAsOwner(
  client: Client,
  update: OwnerUpdate,
  { signer, waiting }: { readonly signer: Signer; readonly waiting: Waiting },
): Promise<Accepted> {
  const { genesisHash } = await provingAt(client);
  const signed = await signOwnerUpdate(update, signer, { nowMs: Date.now(), genesisHash });
  const accepted = await client.directory.submit(signed);
  const isInForce = async (state: string | null) => state !== "in_block";
  await settle(client, { txHash: accepted.tx_hash, isInForce }, waiting);
  return accepted;
}
