/**
 * Changes of an identity, submitted and waited for: its registration, every change of its document, and the
 * updates whose proof travels in headers. Apart from `client.ts`, because a program needs this once a week
 * and loads it then.
 * Source: interface "States and transitions", rules section 4.
 */
import { ed25519, x25519 } from "@noble/curves/ed25519.js";
import { decodeHex } from "../core/codec/bytes.ts";
import { renderPublicKey } from "../core/codec/public-key.ts";
import type { DidDocument, Service } from "../core/ledger/document.ts";
import type { Intent } from "../core/ledger/intents.ts";
import type { ProofBinding } from "../core/ledger/record-proof.ts";
import type { Accepted, Registered, Resolved } from "./answers.ts";
import {
  nonceDomainOf,
  type OwnerUpdate,
  renderAgreementKey,
  type Signer,
  signIntent,
  signOwnerUpdate,
  signRegistration,
} from "./change.ts";
import type { Client } from "./client.ts";
import {
  type ConfirmedRegistration,
  confirmChange,
  confirmDeletion,
  confirmRegistration,
  type Waiting,
  waitingDefault,
} from "./confirm.ts";
import { orNull } from "./http.ts";
import type { Identity } from "./keys.ts";
import { recordShows } from "./settled.ts";

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

/** What is signed for at a Directory; `null` for what it does not take in version 3 (docs/ledger.md 1.8). */
export type Proving = { readonly registration: ProofBinding | null; readonly genesisHash: Uint8Array | null };

/** A Directory whose limits say nothing of version 3 gets what every Directory takes. */
export async function provingAt({ directory }: Client): Promise<Proving> {
  const limits = await orNull(directory.limits(), "not_found");
  const genesisHash = decodeHash(limits?.genesis_hash);
  const submitter = decodeHash(limits?.operator_account);
  const registers = limits?.registration_proofs?.includes("v3") === true;
  const authorizes = limits?.authorization_proofs?.includes("v3") === true;
  return {
    registration: registers && genesisHash !== null && submitter !== null ? { genesisHash, submitter } : null,
    genesisHash: authorizes ? genesisHash : null,
  };
}

function decodeHash(text = ""): Uint8Array | null {
  return /^0x[0-9a-f]{64}$/.test(text) ? decodeHex(text.slice(2)) : null;
}

/** Registers an identity; `202` is not settlement: `settleRegistration` waits for that. */
export async function register(
  client: Client,
  identity: Identity,
  first: { readonly document: DidDocument; readonly alias: string | null },
): Promise<Registered> {
  const { registration: binding } = await provingAt(client);
  const input = { ...first, rootSeed: identity.rootSeed, nowMs: Date.now(), binding };
  return client.directory.register(signRegistration(input));
}

export function settleRegistration(
  client: Client,
  registered: { readonly did: string; readonly tx_id: string },
  waiting: Waiting = waitingDefault,
): Promise<ConfirmedRegistration> {
  return confirmRegistration(client.directory, registered, waiting);
}

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
  const [nonces, { genesisHash }] = await Promise.all([directory.nonces(intent.did), provingAt(client)]);
  const value = BigInt(nonces[domain] ?? "0");
  const submission = signIntent(intent, options.signer, { nonce: value, nowMs: Date.now(), genesisHash });
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
