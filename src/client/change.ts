/**
 * Changes of an identity: signing, submitting, and waiting for them. Signing covers every component, alias, root-key and
 * control operation, and the updates with a proof in headers; it needs no node, and its result contains no secret.
 * Programs load this file when they first need it, about once a week.
 * Source: interface "Signed DID-document updates" and "States and transitions", rules section 4, docs/ledger.md 3.1.
 */
import { encodeBase64, encodeHex0x, equalBytes, parsePublicKey } from "../core/codec/bytes.ts";
import type { Did } from "../core/codec/did.ts";
import { renderTimestamp } from "../core/codec/time.ts";
import { actionRows, actions, counters, type Intent, renderItems, requestOf } from "../core/ledger/actions.ts";
import { authorizationMessage, encodeAuthorization } from "../core/ledger/structures.ts";
import { encodeUpdateProof, updateHeaders } from "../core/message/proof.ts";
import type { Accepted, Resolved } from "./answers.ts";
import type { Client } from "./client.ts";
import { randomUuid, type Signer, signEd25519 } from "./crypto.ts";
import {
  authorizationLifeMs,
  confirmChange,
  confirmDeletion,
  provingAt,
  type Submission,
  type Waiting,
} from "./directory.ts";
import { jsonBody, localError, path } from "./http.ts";

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
      return { route: path`/dids/${did}/delivery-policy-links`, members: { delivery_policy_links: update.links } };
    case "set_delivery_policy":
      return { route: path`/delivery-policies/recipients/${did}`, members: { policy: update.policy } };
    case "set_tag_policy":
      return { route: path`/delivery-policies/tags/${did}`, members: { policy: update.policy } };
    case "set_persona_policy":
      return { route: path`/delivery-policies/personas/${did}`, members: { policy: update.policy } };
  }
}

// --------------------------------------------------------------------------------------------------------- submitting

/** `record` is `null` when nobody waited, and after a deletion. */
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
  const [nonces, { genesisHash }] = await Promise.all([directory.nonces(intent.did), provingAt(client)]);
  const value = BigInt(nonces[domain] ?? "0");
  const submission = await signIntent(intent, options.signer, { nonce: value, nowMs: Date.now(), genesisHash });
  const accepted = await directory.submit(submission);
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
  const accepted = await client.directory.submit(await signOwnerUpdate(update, options.signer, Date.now()));
  if (options.waiting === null) return { accepted, record: null };
  const expected = { did: update.did, txHash: accepted.tx_hash, counter: null, holds: () => true };
  return { accepted, record: await confirmChange(client.directory, expected, options.waiting) };
}

// --------------------------------------------------------------------------------------------------------- settlement

/** Whether a resolved record shows a change: what `confirmChange` waits for besides the counter. */
function recordShows(intent: Intent, record: Resolved): boolean {
  const { change } = actionRows[intent.action];
  if (change !== undefined) {
    const list = change.list === "aliases" ? record.aliases : (record.document?.[change.list] ?? null);
    // What an action puts is its last item: a new alias comes behind the old one.
    const item = Object.values(renderItems(intent)).at(-1);
    return change.effect === "put"
      ? holds(list ?? [], item)
      : list !== null && !list.some((entry) => (typeof entry === "string" ? entry : entry.id) === String(item));
  }
  if (intent.action === "UpdateRootPubkey") {
    const key = parsePublicKey(record.root_pubkey ?? "");
    return key !== null && equalBytes(key, intent.newRootPubkey);
  }
  return intent.action !== "deactivate_did" || record.deactivated;
}

type Entry = string | { readonly id: string };

/** The list has an entry with the same members, in whatever order. */
function holds(list: readonly Entry[], wanted: unknown): boolean {
  return list.some((entry) => sorted(entry) === sorted(wanted));
}

function sorted(value: unknown): string {
  if (typeof value !== "object" || value === null) return JSON.stringify(value);
  return JSON.stringify(Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1)));
}
