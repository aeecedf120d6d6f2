/**
 * Changes of an identity, signed here: every component, alias, root-key and
 * control operation, and the updates that carry their proof in headers. Each function answers a request
 * that is ready to send; nothing here talks to a node, and no secret is part of what it answers.
 * Source: interface "Signed DID-document updates", rules section 4.
 */
import { encodeBase64, encodeHex0x } from "../core/codec/bytes.ts";
import type { Did } from "../core/codec/did.ts";
import { renderTimestamp } from "../core/codec/time.ts";
import { actions, counters, type NonceDomain } from "../core/ledger/actions.ts";
import { authorizationMessage, encodeAuthorization } from "../core/ledger/authorization.ts";
import { type Intent, renderItems, requestOf } from "../core/ledger/intents.ts";
import { encodeUpdateProof, updateHeaders } from "../core/message/proof.ts";
import { signEd25519 } from "./curves.ts";
import type { Submission } from "./directory.ts";
import { jsonBody, localError, path } from "./http.ts";
import { authorizationLifeMs } from "./proving.ts";
import { randomUuid } from "./uuid.ts";

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

export async function signIntent(intent: Intent, signer: Signer, terms: ChangeTerms): Promise<Submission> {
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
  /** Of the DID as a recipient, or as a tag that envelopes carry. */
  | {
      readonly extrinsic: "set_delivery_policy" | "set_tag_policy";
      readonly did: Did;
      readonly policy: DeliveryPolicyMembers;
    }
  | { readonly extrinsic: "set_persona_policy"; readonly did: Did; readonly policy: PersonaPolicyMembers };

export async function signOwnerUpdate(update: OwnerUpdate, signer: Signer, nowMs: number): Promise<Submission> {
  const { route, members } = ownerRequest(update);
  const body = jsonBody({ did: update.did, ...members });
  const claims = {
    operation: update.extrinsic,
    did: update.did,
    keyId: signer.keyId,
    timestamp: renderTimestamp(nowMs),
    nonce: randomUuid(),
    body,
  };
  const headers = {
    [updateHeaders.keyId]: claims.keyId,
    [updateHeaders.timestamp]: claims.timestamp,
    [updateHeaders.nonce]: claims.nonce,
    [updateHeaders.signature]: encodeBase64(await signEd25519(encodeUpdateProof(claims), signer.seed)),
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
