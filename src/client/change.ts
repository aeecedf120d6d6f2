/**
 * Changes of an identity, signed here: registration, full documents, every component, alias, root-key and
 * control operation, and the updates that carry their proof in headers. Each function answers a request
 * that is ready to send; nothing here talks to a node, and no secret is part of what it answers.
 * Source: interface "Signed DID-document updates", rules section 4.
 */
import { ed25519 } from "@noble/curves/ed25519.js";
import { encodeBase58, encodeBase64, encodeHex0x } from "../core/codec/bytes.ts";
import type { Did } from "../core/codec/did.ts";
import { renderPublicKey } from "../core/codec/public-key.ts";
import { minuteMs, renderTimestamp } from "../core/codec/time.ts";
import { actions, counters, type NonceDomain } from "../core/ledger/actions.ts";
import { authorizationMessage, encodeAuthorization } from "../core/ledger/authorization.ts";
import { type DidDocument, renderDocument } from "../core/ledger/document.ts";
import { encodeDidDocument } from "../core/ledger/document-codec.ts";
import { type Intent, renderItems, requestOf } from "../core/ledger/intents.ts";
import { type ProofBinding, registrationMessage, renderProofTimestamp } from "../core/ledger/record-proof.ts";
import { encodeUpdateProof, updateHeaders } from "../core/message/proof.ts";
import type { Submission } from "./directory.ts";
import { jsonBody, localError, path } from "./http.ts";

/** How long a signed change may be submitted: the short window that the interface asks for. */
export const authorizationLifeMs = 5 * minuteMs;

/** Who signs: `root` or the id of a method, and the seed of its key. */
export type Signer = { readonly keyId: string; readonly seed: Uint8Array };

/** The counter value that a change uses up, and the clock it is made by. */
export type ChangeTerms = {
  readonly nonce: bigint;
  readonly nowMs: number;
  /** Of the ledger that the change is for, where it takes version 3; without it the payload is signed plainly. */
  readonly genesisHash?: Uint8Array | null;
};

/** The member of `GET /dids/{did}/nonces` to read for an action. */
export function nonceDomainOf(action: Intent["action"]): NonceDomain {
  return counters[actions[action].counter].nonceDomain;
}

export function signIntent(intent: Intent, signer: Signer, terms: ChangeTerms): Submission {
  const { nonce, nowMs, genesisHash = null } = terms;
  const validUntilMs = BigInt(nowMs + authorizationLifeMs);
  const payload = encodeAuthorization(intent, { nonce, validUntilMs, signerKeyId: signer.keyId });
  const { counter } = actions[intent.action];
  const timestamped = counter === "alias";
  const message = genesisHash === null ? payload : authorizationMessage(counter, genesisHash, payload);
  const body = {
    did: intent.did,
    action: intent.action,
    ...renderItems(intent),
    nonce: String(nonce),
    ...(timestamped ? { timestamp: renderTimestamp(nowMs) } : {}),
    valid_until: String(validUntilMs),
    signer_key_id: signer.keyId,
    canonical_payload: encodeHex0x(payload),
    signature: encodeBase64(ed25519.sign(message, signer.seed)),
  };
  const request = requestOf(intent);
  if (request === null) throw localError("no_route", `no route submits ${intent.action}`);
  return { ...request, body: jsonBody(body) };
}

// ---------------------------------------------------------------------------- registration and documents

export type RegistrationInput = {
  readonly document: DidDocument;
  readonly alias: string | null;
  readonly rootSeed: Uint8Array;
  readonly nowMs: number;
  /** The ledger and the Directory's account, where version 3 is taken; without it the proof is of version 2. */
  readonly binding?: ProofBinding | null;
};

/** The body of a registration whose proof covers document and alias too. */
export function signRegistration(input: RegistrationInput): Record<string, unknown> {
  const { document, alias, rootSeed, nowMs, binding = null } = input;
  const pubkey = ed25519.getPublicKey(rootSeed);
  const version = binding === null ? "v2" : "v3";
  const timestamp = renderProofTimestamp(0n, BigInt(nowMs + authorizationLifeMs), version);
  const docBlob = encodeDidDocument(document);
  const message = registrationMessage({ did: document.id, alias, timestamp, pubkey, docBlob }, binding);
  if (message === null) throw localError("invalid_alias", "the alias has no normal form");
  return {
    did: document.id,
    timestamp,
    signature: encodeBase64(ed25519.sign(message, rootSeed)),
    did_document: renderDocument(document),
    root_pubkey: renderPublicKey(pubkey),
    ...(alias === null ? {} : { alias }),
  };
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
  /** Of the DID as a recipient, or as a tag that envelopes carry. */
  | {
      readonly extrinsic: "set_delivery_policy" | "set_tag_policy";
      readonly did: Did;
      readonly policy: DeliveryPolicyMembers;
    }
  | { readonly extrinsic: "set_persona_policy"; readonly did: Did; readonly policy: PersonaPolicyMembers };

export function signOwnerUpdate(update: OwnerUpdate, signer: Signer, nowMs: number): Submission {
  const { route, members } = ownerRequest(update);
  const body = jsonBody({ did: update.did, ...members });
  const claims = {
    operation: update.extrinsic,
    did: update.did,
    keyId: signer.keyId,
    timestamp: renderTimestamp(nowMs),
    nonce: crypto.randomUUID(),
    body,
  };
  const headers = {
    [updateHeaders.keyId]: claims.keyId,
    [updateHeaders.timestamp]: claims.timestamp,
    [updateHeaders.nonce]: claims.nonce,
    [updateHeaders.signature]: encodeBase64(ed25519.sign(encodeUpdateProof(claims), signer.seed)),
  };
  return { method: "PUT", path: route, body, headers };
}

function ownerRequest(update: OwnerUpdate): { route: string; members: Record<string, unknown> } {
  const { did } = update;
  switch (update.extrinsic) {
    case "set_alias":
      return { route: path`/dids/${did}/alias`, members: { alias: update.alias } };
    case "set_delivery_policy_links":
      return {
        route: path`/dids/${did}/delivery-policy-links`,
        members: { delivery_policy_links: update.links },
      };
    case "set_delivery_policy":
      return { route: path`/delivery-policies/recipients/${did}`, members: { policy: update.policy } };
    case "set_tag_policy":
      return { route: path`/delivery-policies/tags/${did}`, members: { policy: update.policy } };
    case "set_persona_policy":
      return { route: path`/delivery-policies/personas/${did}`, members: { policy: update.policy } };
  }
}

// -------------------------------------------------------------------------------------- public key texts

/** An X25519 key as documents carry it: `z` and base58btc of `ec 01` and the key. */
export function renderAgreementKey(publicKey: Uint8Array): string {
  return `z${encodeBase58(Uint8Array.of(0xec, 0x01, ...publicKey))}`;
}
