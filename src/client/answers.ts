/**
 * The answers of the nodes, as this client relies on them. The nodes' own schemas hold more; a test gives
 * every example of theirs to these.
 * Source: interface "Endpoints", rules sections 4, 6 and 10 ("Reads").
 */
import {
  decimal,
  integer,
  listOf,
  nullable,
  objectOf,
  oneOf,
  optional,
  record,
  type Shape,
  type TypeOf,
  text,
  truth,
} from "./shape.ts";

const component = { id: text, type: text, controller: text, publicKeyMultibase: text };
const service = objectOf({
  id: text,
  type: text,
  serviceEndpoint: listOf(text),
  authorization: optional(listOf(text)),
  priority: optional(integer),
});
const documentShape = objectOf({
  id: text,
  verificationMethod: listOf(objectOf(component)),
  authentication: listOf(text),
  keyAgreement: listOf(objectOf(component)),
  service: listOf(service),
});

// ---------------------------------------------------------------------------------------------- Directory

export const registeredShape = objectOf({ registration_status: text, tx_id: text, did: text, did_document: record });
export const registrationStatusShape = objectOf({
  did: text,
  registered: truth,
  registration_status: oneOf("confirmed", "pending", "missing"),
  did_document: optional(record),
  version: optional(integer),
  tx_id: optional(text),
});
export const noncesShape = objectOf({
  did: text,
  document_nonce: decimal,
  alias_nonce: optional(decimal),
  root_pubkey_nonce: decimal,
  control_nonce: optional(decimal),
});
export const resolvedShape = objectOf({
  did: text,
  document: nullable(documentShape),
  aliases: listOf(text),
  root_pubkey: nullable(text),
  version: integer,
  deactivated: truth,
  updated_at: text,
  delivery_policy_links: nullable(
    objectOf({ recipient_policy: nullable(text), tag_policies: listOf(text), persona_policies: listOf(text) }),
  ),
});
export const aliasShape = objectOf({ alias: text, did: text });
export const submissionShape = objectOf({
  tx_hash: text,
  did: text,
  state: oneOf("pending", "in_block", "finalized", "failed", "dropped"),
  reason: nullable(objectOf({ code: text, message: text })),
});
export const acceptedShape = objectOf({
  did: text,
  tx_hash: text,
  message: text,
  action: optional(text),
  alias: optional(text),
  extrinsic: optional(text),
});
export const preparedShape = objectOf({
  did: text,
  action: text,
  nonce_domain: nullable(text),
  payload_to_sign: text,
  request: record,
  submit: objectOf({ method: text, path: text }),
  headers: optional(record as Shape<Record<string, string>>),
  body: optional(text),
  expires_at: text,
});
export const recipientPolicyShape = objectOf({
  did: text,
  policy: objectOf({ max_message_bytes: integer, cache_eligible: truth, effective_ttl: integer }),
});
export const personaPolicyShape = objectOf({ did: text, policy: record });
export const resolutionShape = objectOf({
  target: text,
  encryption_profile: text,
  recipient_key_id: text,
  recipient_public_key_multibase: text,
  policy: nullable(
    objectOf({
      effective_constraints: objectOf({
        max_chunk_bytes: optional(integer),
        max_unchunked_message_bytes: optional(integer),
        max_http_envelope_bytes: optional(integer),
        max_message_bytes: optional(integer),
        max_chunks: optional(integer),
      }),
    }),
  ),
});
export const limitsShape = objectOf({
  max_http_body_bytes: optional(integer),
  max_unchunked_bytes: optional(integer),
  max_chunk_bytes: optional(integer),
  max_header_bytes: optional(integer),
  default_ttl: optional(text),
  max_ttl: optional(text),
  max_clock_skew_seconds: optional(integer),
  max_mailbox_entries: optional(integer),
  max_mailbox_bytes: optional(integer),
  registration_proofs: optional(listOf(text)),
  authorization_proofs: optional(listOf(text)),
  genesis_hash: optional(text),
  operator_account: optional(text),
});

// -------------------------------------------------------------------------------------------------- Cache

const entry = objectOf({
  message_id: text,
  recipient: optional(text),
  expires_at: optional(text),
  chunk: optional(objectOf({ message_group_id: text, sequence_number: integer, total_chunks: integer })),
  envelope: record,
});
export const messagesShape = objectOf({
  count: integer,
  messages: listOf(entry),
  has_more: optional(truth),
  next_cursor: optional(text),
});
export const chunksShape = objectOf({
  count: integer,
  chunks: listOf(entry),
  complete: optional(truth),
  total_chunks: optional(nullable(integer)),
  has_more: optional(truth),
  next_cursor: optional(text),
});
export const summaryShape = objectOf({
  count: integer,
  messages: listOf(
    objectOf({
      message_id: text,
      expires_at: text,
      message_group_id: optional(text),
      sequence_number: optional(integer),
      total_chunks: optional(integer),
    }),
  ),
  next_cursor: optional(text),
});
export const messageStateShape = objectOf({
  state: text,
  message: nullable(objectOf({ message_id: text, envelope: record })),
});
export const ackShape = objectOf({ acked: integer, message_ids: listOf(text) });

export type RegistrationStatus = TypeOf<typeof registrationStatusShape>;
export type Resolved = TypeOf<typeof resolvedShape>;
export type SubmissionStatus = TypeOf<typeof submissionShape>;
export type Registered = TypeOf<typeof registeredShape>;
export type Prepared = TypeOf<typeof preparedShape>;
export type NodeLimits = TypeOf<typeof limitsShape>;
export type Resolution = TypeOf<typeof resolutionShape>;
/** Any accepted change: `tx_hash` leads to `GET /submissions`. */
export type Accepted = TypeOf<typeof acceptedShape>;
export type CachedEntry = TypeOf<typeof entry>;
