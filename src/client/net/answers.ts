/**
 * The answers of the nodes, as this client relies on them. Answers may have further members,
 * because a newer node knows more than this client. The nodes' own schemas are stricter, but their
 * checker is compiled at run time, which the policy of a page may forbid; a test checks every
 * example of theirs with these schemas.
 * Source: interface "Endpoints", rules sections 4 ("Reads") and 6.
 */
import {
  array,
  custom,
  integer,
  isRecord,
  natural,
  nullable,
  type Of,
  object,
  oneOf,
  optional,
  strictObject,
  text,
  truth,
} from "../base/shapes.ts";

const isU64 = (value: unknown) =>
  typeof value === "string" && /^[0-9]{1,20}$/.test(value) && BigInt(value) < 1n << 64n;
const u64 = custom<string>(isU64, "an unsigned 64-bit number as text");
const record = custom<Record<string, unknown>>(isRecord, "an object");

const component = { id: text, type: text, controller: text, publicKeyMultibase: text };
const service = object({
  id: text,
  type: text,
  serviceEndpoint: array(text),
  authorization: optional(array(text)),
  priority: optional(integer),
});
const documentShape = object({
  id: text,
  verificationMethod: array(object(component)),
  authentication: array(text),
  keyAgreement: array(object(component)),
  service: array(service),
});

export const registeredShape = object({ tx_id: text, did: text });
export const registrationStatusShape = object({
  registration_status: oneOf("confirmed", "pending", "missing"),
  tx_id: optional(text),
});
export const noncesShape = object({
  document_nonce: u64,
  alias_nonce: optional(u64),
  root_pubkey_nonce: u64,
  control_nonce: optional(u64),
});
export const resolvedShape = object({
  document: nullable(documentShape),
  aliases: array(text),
  root_pubkey: nullable(text),
  version: integer,
  deactivated: truth,
});
export const aliasShape = object({ did: text });
export const submissionShape = object({
  state: oneOf("pending", "in_block", "finalized", "failed", "dropped"),
  reason: nullable(object({ code: text, message: text })),
});
export const acceptedShape = object({ tx_hash: text });
export const recipientPolicyShape = object({
  policy: object({ max_message_bytes: integer, cache_eligible: truth, effective_ttl: integer }),
});
export const resolutionShape = object({
  encryption_profile: text,
  recipient_key_id: text,
  recipient_public_key_multibase: text,
  key_proof: optional(text),
  key_bundle_sha256: optional(nullable(text)),
  key_bundle: optional(record),
  key_bundle_missing: optional(text),
  policy: nullable(
    object({
      effective_constraints: object({
        max_chunk_bytes: optional(integer),
        max_unchunked_message_bytes: optional(integer),
        max_message_bytes: optional(integer),
      }),
    }),
  ),
});
export const limitsShape = object({
  max_unchunked_bytes: optional(integer),
  max_chunk_bytes: optional(integer),
  max_mailbox_bytes: optional(integer),
  max_ttl: optional(text),
  registration_proofs: optional(array(text)),
  authorization_proofs: optional(array(text)),
  genesis_hash: optional(text),
  self_certifying_dids: optional(truth),
  operator_account: optional(text),
  registration: optional(text),
});

export const deviceInvitationShape = object({ invitation: text, expires_at: text });

const operatorShape = object({
  did: nullable(text),
  contact: nullable(text),
  rules: nullable(text),
  welcome: nullable(text),
});
export const aboutShape = object({
  operator: optional(operatorShape),
  notice: optional(
    nullable(object({ did: text, text, issued_at: text, signer: text, signature_b64: text })),
  ),
  maintenance: optional(nullable(object({ since: text, message: nullable(text) }))),
  roles: optional(array(text)),
  relay_endpoints: optional(array(text)),
  cache_endpoints: optional(array(text)),
  directory_endpoints: optional(array(text)),
  push_key: optional(nullable(text)),
  passes: optional(truth),
  key_bundles: optional(truth),
});
/** An own bundle, which `readBundle` examines, or the answer to one that was put. */
export const shownBundleShape = record;
export const passesShape = object({ expires_at: text });
export const pushShape = object({ state: text });

/** Success is a 2xx that says so. */
export const deliveredShape = object({
  success: truth,
  delivery_mode: text,
  code: text,
  message: text,
});

// What a Cache returns.
const entry = object({ message_id: text, envelope: record });
export const messagesShape = object({
  count: integer,
  messages: array(entry),
  next_cursor: optional(text),
});
export const summaryShape = object({
  count: integer,
  messages: array(
    object({
      message_id: text,
      expires_at: text,
      message_group_id: optional(text),
      sequence_number: optional(integer),
      total_chunks: optional(integer),
    }),
  ),
  next_cursor: optional(text),
});
export const messageStateShape = object({ state: text, message: nullable(entry) });
export const ackShape = object({ acked: integer });

// What a sender sealed. Its map of CBOR has these members and no other.
export const bytesShape = (form: string, isFit: (bytes: Uint8Array) => boolean) =>
  custom<Uint8Array>((value) => value instanceof Uint8Array && isFit(value), form);
export const sealedPayloadShape = strictObject({
  profile: text,
  key_id: text,
  ephemeral_x25519_b64: text,
  nonce_b64: text,
  ciphertext_b64: text,
});
export const sha256Shape = bytesShape("a byte string of 32 bytes", ({ length }) => length === 32);
/** Of both versions. */
export const recordMembers = {
  format: text,
  name: text,
  media_type: text,
  size_bytes: natural,
  sha256: sha256Shape,
  message_group_id: text,
  sequence_number: natural,
  total_chunks: natural,
  data: bytesShape("a byte string", () => true),
};
export const recordShape = strictObject(recordMembers);
export type SealedPayload = Of<typeof sealedPayloadShape>;
export type RegistrationStatus = Of<typeof registrationStatusShape>;
export type Resolved = Of<typeof resolvedShape>;
export type About = Of<typeof aboutShape>;
export type Registered = Of<typeof registeredShape>;
export type NodeLimits = Of<typeof limitsShape>;
export type Resolution = Of<typeof resolutionShape>;
/** Any accepted change: `tx_hash` leads to `GET /submissions`. */
export type Accepted = Of<typeof acceptedShape>;
export type Delivered = Of<typeof deliveredShape>;
