/**
 * The answers of the nodes, as this client relies on them: shapes put together from small checks. Answers may have
 * further members, because a newer node knows more than this client. The nodes' own schemas are stricter, but their
 * checker is compiled at run time, which the policy of a page may forbid; a test checks every example of theirs with
 * these shapes.
 * Source: interface "Endpoints", rules sections 4, 6 and 10 ("Reads").
 */

declare const checked: unique symbol;

/** Returns what is wrong with a value, with its place, or `null`. */
export type Shape<T> = ((value: unknown, at: string) => string | null) & { readonly [checked]?: T };
type OptionalShape<T> = Shape<T> & { readonly isOptional: true };
type TypeOf<S> = S extends Shape<infer T> ? T : never;

type Members = Readonly<Record<string, Shape<unknown>>>;
type OptionalNames<M extends Members> = {
  [K in keyof M]: M[K] extends OptionalShape<unknown> ? K : never;
}[keyof M];
type Flat<T> = { [K in keyof T]: T[K] };
type ObjectOf<M extends Members> = Flat<
  { [K in Exclude<keyof M, OptionalNames<M>>]: TypeOf<M[K]> } & { [K in OptionalNames<M>]?: TypeOf<M[K]> }
>;

const of =
  <T>(accepts: (value: unknown) => value is T, expected: string): Shape<T> =>
  (value, at) =>
    accepts(value) ? null : `${at || "the answer"} must be ${expected}`;

const text = of((value) => typeof value === "string", "text");
const truth = of((value) => typeof value === "boolean", "true or false");
const integer = of((value): value is number => Number.isSafeInteger(value), "an integer");
const decimal = of(
  (value): value is string => typeof value === "string" && /^(0|[1-9][0-9]{0,38})$/.test(value),
  "decimal text",
);
const record = of(isRecord, "an object");

export function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** A JSON object, or `null` for any other text. */
export function parseRecord(text: string): Record<string, unknown> | null {
  try {
    const json: unknown = JSON.parse(text);
    return isRecord(json) ? json : null;
  } catch {
    return null;
  }
}

function oneOf<const T extends string>(...texts: readonly T[]): Shape<T> {
  return of((value): value is T => texts.some((one) => one === value), texts.join(" or "));
}

function nullable<T>(shape: Shape<T>): Shape<T | null> {
  return (value, at) => (value === null ? null : shape(value, at));
}

function optional<T>(shape: Shape<T>): OptionalShape<T> {
  const check: Shape<T> = (value, at) => (value === undefined ? null : shape(value, at));
  return Object.assign(check, { isOptional: true as const });
}

function listOf<T>(shape: Shape<T>): Shape<T[]> {
  return (value, at) => {
    if (!Array.isArray(value)) return `${at || "the answer"} must be a list`;
    for (const [i, entry] of value.entries()) {
      const problem = shape(entry, `${at}/${i}`);
      if (problem !== null) return problem;
    }
    return null;
  };
}

function objectOf<const M extends Members>(members: M): Shape<ObjectOf<M>> {
  return (value, at) => {
    if (!isRecord(value)) return `${at || "the answer"} must be an object`;
    for (const [name, shape] of Object.entries(members)) {
      const problem = shape(value[name], `${at}/${name}`);
      if (problem !== null) return problem;
    }
    return null;
  };
}

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
  self_certifying_dids: optional(truth),
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
