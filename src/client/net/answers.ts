/**
 * The answers of the nodes, as this client relies on them. Answers may have further members, because a newer node knows
 * more than this client. The nodes' own schemas are stricter, but their checker is compiled at run time, which the policy
 * of a page may forbid; a test checks every example of theirs with these schemas.
 * Source: interface "Endpoints", rules sections 4, 6 and 10 ("Reads").
 */
import * as z from "zod/mini";
import { integer, isRecord, natural, oneOf, text } from "../base/shapes.ts";

const truth = z.boolean();
const isU64 = (value: unknown) =>
  typeof value === "string" && /^[0-9]{1,20}$/.test(value) && BigInt(value) < 1n << 64n;
const u64 = z.custom<string>(isU64, "an unsigned 64-bit number as text");
const record = z.custom<Record<string, unknown>>(isRecord, "an object");

const component = { id: text, type: text, controller: text, publicKeyMultibase: text };
const service = z.object({
  id: text,
  type: text,
  serviceEndpoint: z.array(text),
  authorization: z.optional(z.array(text)),
  priority: z.optional(integer),
});
const documentShape = z.object({
  id: text,
  verificationMethod: z.array(z.object(component)),
  authentication: z.array(text),
  keyAgreement: z.array(z.object(component)),
  service: z.array(service),
});

export const registeredShape = z.object({ tx_id: text, did: text });
export const registrationStatusShape = z.object({
  registration_status: oneOf("confirmed", "pending", "missing"),
  tx_id: z.optional(text),
});
export const noncesShape = z.object({
  document_nonce: u64,
  alias_nonce: z.optional(u64),
  root_pubkey_nonce: u64,
  control_nonce: z.optional(u64),
});
export const resolvedShape = z.object({
  document: z.nullable(documentShape),
  aliases: z.array(text),
  root_pubkey: z.nullable(text),
  version: integer,
  deactivated: truth,
});
export const aliasShape = z.object({ did: text });
export const submissionShape = z.object({
  state: oneOf("pending", "in_block", "finalized", "failed", "dropped"),
  reason: z.nullable(z.object({ code: text, message: text })),
});
export const acceptedShape = z.object({ tx_hash: text });
export const recipientPolicyShape = z.object({
  policy: z.object({ max_message_bytes: integer, cache_eligible: truth, effective_ttl: integer }),
});
export const resolutionShape = z.object({
  encryption_profile: text,
  recipient_key_id: text,
  recipient_public_key_multibase: text,
  key_proof: z.optional(text),
  policy: z.nullable(
    z.object({
      effective_constraints: z.object({
        max_chunk_bytes: z.optional(integer),
        max_unchunked_message_bytes: z.optional(integer),
        max_message_bytes: z.optional(integer),
      }),
    }),
  ),
});
export const limitsShape = z.object({
  max_unchunked_bytes: z.optional(integer),
  max_chunk_bytes: z.optional(integer),
  max_ttl: z.optional(text),
  registration_proofs: z.optional(z.array(text)),
  authorization_proofs: z.optional(z.array(text)),
  genesis_hash: z.optional(text),
  self_certifying_dids: z.optional(truth),
  operator_account: z.optional(text),
});

export const aboutShape = z.object({
  roles: z.optional(z.array(text)),
  relay_endpoints: z.optional(z.array(text)),
  cache_endpoints: z.optional(z.array(text)),
  directory_endpoints: z.optional(z.array(text)),
  push_key: z.optional(z.nullable(text)),
});
export const pushShape = z.object({ state: text });

/** Success is a 2xx that says so. */
export const deliveredShape = z.object({
  success: z.boolean(),
  delivery_mode: text,
  code: text,
  message: text,
});

// What a Cache returns.
const entry = z.object({ message_id: text, envelope: record });
export const messagesShape = z.object({
  count: integer,
  messages: z.array(entry),
  next_cursor: z.optional(text),
});
export const summaryShape = z.object({
  count: integer,
  messages: z.array(
    z.object({
      message_id: text,
      expires_at: text,
      message_group_id: z.optional(text),
      sequence_number: z.optional(integer),
      total_chunks: z.optional(integer),
    }),
  ),
  next_cursor: z.optional(text),
});
export const messageStateShape = z.object({ state: text, message: z.nullable(entry) });
export const ackShape = z.object({ acked: integer });

// What a sender sealed. Its map of CBOR has these members and no other.
const bytesOf = (form: string, isFit: (bytes: Uint8Array) => boolean) =>
  z.custom<Uint8Array>((value) => value instanceof Uint8Array && isFit(value), form);
export const sealedPayloadShape = z.strictObject({
  profile: text,
  key_id: text,
  ephemeral_x25519_b64: text,
  nonce_b64: text,
  ciphertext_b64: text,
});
export const recordShape = z.strictObject({
  format: text,
  name: text,
  media_type: text,
  size_bytes: natural,
  sha256: bytesOf("a byte string of 32 bytes", ({ length }) => length === 32),
  message_group_id: text,
  sequence_number: natural,
  total_chunks: natural,
  data: bytesOf("a byte string", () => true),
});

export type SealedPayload = z.infer<typeof sealedPayloadShape>;
export type RegistrationStatus = z.infer<typeof registrationStatusShape>;
export type Resolved = z.infer<typeof resolvedShape>;
export type About = z.infer<typeof aboutShape>;
export type Registered = z.infer<typeof registeredShape>;
export type NodeLimits = z.infer<typeof limitsShape>;
export type Resolution = z.infer<typeof resolutionShape>;
/** Any accepted change: `tx_hash` leads to `GET /submissions`. */
export type Accepted = z.infer<typeof acceptedShape>;
export type Delivered = z.infer<typeof deliveredShape>;
