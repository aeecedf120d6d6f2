/**
 * Shapes of the message path: the envelope, what the Relay and the Cache answer, and the
 * acknowledgement. The rules between the members of an envelope are in
 * `core/message/envelope.ts`.
 * Source: interface "DDN envelope" to "Cached message entry", rules sections 2, 5 and 6.
 */

import { type Static, Type } from "@sinclair/typebox";
import { durationPattern } from "../codec/time.ts";
import { chunksMax } from "./chunks.ts";
import { passesMax, revokedPassesMax } from "./passes.ts";
import {
  closed,
  didText,
  didUrlText,
  isoText,
  nullable,
  signatureText,
  tagForm,
  timestampText,
  uuidText,
} from "./schema.ts";

const durationText = Type.String({
  description: "ISO-8601 in hours, minutes and seconds",
  examples: ["PT24H"],
});
const base64Text = Type.String({ description: "standard Base64, padded" });

const headerMembers = {
  encrypted_header: Type.String({ ...base64Text, format: "base64" }),
  header_nonce: Type.String({
    format: "header-nonce",
    description: "standard Base64, padded, of 1 to 64 bytes",
  }),
  header_key_id: Type.String({ minLength: 1, maxLength: 256 }),
  schema_version: Type.Literal("1"),
};

const formedUuid = Type.String({ ...uuidText, format: "uuid" });
const formedDid = Type.String({ ...didText, format: "did" });

/** Body of `POST /relay`, `POST /relay/{recipientDid}` and `POST /cache/store`. */
export const envelopeShape = closed(
  {
    message_id: formedUuid,
    to: Type.Optional(formedDid),
    recipient: Type.Optional(
      Type.String({ format: "did", description: "alternate name of to; never both" }),
    ),
    timestamp: Type.Optional(timestampText),
    created_at: Type.Optional(
      Type.String({ format: "timestamp", description: "alternate name of timestamp; never both" }),
    ),
    payload: Type.Object(
      { ciphertext_b64: Type.Optional(base64Text) },
      { description: "opaque to every node; further members are allowed" },
    ),
    ttl: Type.Optional(
      Type.String({
        format: "life",
        pattern: durationPattern,
        minLength: 2,
        description: "1d12h, 24h, or ISO-8601; 1 second to 30 days",
        examples: ["24h"],
      }),
    ),
    delivery_hint: Type.Optional(
      Type.Union(
        (["standard", "chunked", "direct", "cache"] as const).map((hint) => Type.Literal(hint)),
        { description: "standard, chunked, direct or cache" },
      ),
    ),
    ...Type.Partial(Type.Object(headerMembers)).properties,
    context: Type.Optional(
      closed(headerMembers, { description: "instead of the four flat members" }),
    ),
    message_group_id: Type.Optional(formedUuid),
    sequence_number: Type.Optional(Type.Integer({ minimum: 0, maximum: chunksMax - 1 })),
    total_chunks: Type.Optional(Type.Integer({ minimum: 1, maximum: chunksMax })),
    tag: Type.Optional(Type.String({ format: "tag", description: `public; ${tagForm}` })),
    from: Type.Optional(formedDid),
    sender_key_id: Type.Optional(didUrlText),
    sender_signature: Type.Optional(signatureText),
  },
  {
    description:
      "One encrypted envelope. A chunk has message_group_id, sequence_number and total_chunks together.",
  },
);

const eventProof = Type.Object({
  event_type: Type.String({ enum: ["delivery", "retrieval"] }),
  message_id: uuidText,
  recipient_did: didText,
  timestamp: isoText,
  reason: nullable(Type.String()),
  signature: nullable(Type.String()),
});

/** `202` of `POST /cache/store`. */
const receiptMembers = {
  accepted: Type.Boolean(),
  deduped: Type.Boolean({ description: "this Cache already held the message id" }),
  message_id: uuidText,
  recipient: didText,
  expires_at: isoText,
  max_ttl: durationText,
  applied_ttl: durationText,
  chunked: Type.Boolean(),
  proof: eventProof,
};

export const storeReceiptShape = Type.Object(receiptMembers);

/** The same in a DeliveryResult. */
const keptShape = Type.Object({
  ...receiptMembers,
  copies: Type.Optional(
    Type.Integer({
      minimum: 1,
      description: "number of stored copies, if the policy requires more than one",
    }),
  ),
});

const failedCacheResult = Type.Object({
  code: Type.String(),
  message: Type.String(),
  http_status: Type.Integer(),
});

const nonDeliveryReport = Type.Object({
  message_id: uuidText,
  recipient: didText,
  reason: Type.String(),
  final: Type.Boolean({ description: "sending the same again would not help" }),
  attempts: Type.Array(
    Type.Object({
      channel: Type.String(),
      origin: nullable(Type.String(), "scheme and host as published; null for a live session"),
      http_status: nullable(Type.Integer()),
      error: nullable(Type.String()),
      duration_ms: Type.Integer(),
    }),
  ),
});

/** Every answer of the Relay, refusals included. */
export const deliveryResultShape = Type.Object({
  success: Type.Boolean(),
  delivery_mode: Type.String({ enum: ["direct", "forwarded", "cache", "failed"] }),
  http_status: Type.Integer(),
  code: Type.String({ description: "delivered, forwarded, cached, or a code of /problems" }),
  message: Type.String(),
  retry_count: Type.Integer({ minimum: 0 }),
  cache_attempted: Type.Boolean(),
  cache_result: Type.Union([keptShape, failedCacheResult, Type.Null()]),
  ndr: nullable(nonDeliveryReport),
  details: Type.Object({
    channel: Type.Optional(Type.String({ enum: ["live", "inbox"] })),
    deduped: Type.Optional(
      Type.Boolean({ description: "true: a repeat of an envelope that was delivered" }),
    ),
  }),
});

export type DeliveryAnswer = Static<typeof deliveryResultShape>;

const chunkShape = Type.Object({
  message_group_id: uuidText,
  sequence_number: Type.Integer(),
  total_chunks: Type.Integer(),
});

/** Element of `messages` and of `chunks`. */
const cachedEntryShape = Type.Object({
  message_id: uuidText,
  recipient: didText,
  expires_at: Type.Optional(isoText),
  chunked: Type.Boolean(),
  chunk: Type.Optional(chunkShape),
  envelope: Type.Object({ message_id: Type.String(), to: Type.String(), payload: Type.Object({}) }),
  proof: eventProof,
});

const hasMore = Type.Boolean({ description: "whether something was left out" });
const nextCursor = Type.Optional(
  Type.String({ description: "present if something was left out; continue with ?cursor=" }),
);

/** `200` of `GET /cache/messages/{did}`. */
export const messagesShape = Type.Object({
  count: Type.Integer(),
  messages: Type.Array(cachedEntryShape),
  has_more: hasMore,
  next_cursor: nextCursor,
});

/** `200` of `GET /cache/chunks/{did}/{messageGroupId}`. */
export const chunksShape = Type.Object({
  count: Type.Integer(),
  chunks: Type.Array(cachedEntryShape),
  complete: Type.Boolean({ description: "the Cache has every chunk of the group now" }),
  total_chunks: nullable(Type.Integer()),
  has_more: hasMore,
  next_cursor: nextCursor,
});

/** `200` of `GET /cache/summary/{did}`. */
export const summaryShape = Type.Object({
  count: Type.Integer(),
  messages: Type.Array(
    Type.Object({
      message_id: uuidText,
      expires_at: isoText,
      chunked: Type.Boolean(),
      message_group_id: Type.Optional(uuidText),
      sequence_number: Type.Optional(Type.Integer()),
      total_chunks: Type.Optional(Type.Integer()),
    }),
  ),
  has_more: hasMore,
  next_cursor: nextCursor,
});

/** `200` of `GET /cache/message/{did}/{messageId}`. */
export const messageStateShape = Type.Object({
  state: Type.String({ enum: ["active", "acked", "expired", "absent"] }),
  message: nullable(cachedEntryShape),
  message_id: Type.Optional(uuidText),
  expires_at: Type.Optional(isoText),
  header_preview: Type.Optional(nullable(base64Text)),
});

const ackMembers = {
  did: didText,
  message_ids: Type.Array(uuidText, { description: "1 to 1,000" }),
  device_id: Type.Optional(Type.String()),
};

const ackProofMembers = {
  service_id: didUrlText,
  cache_endpoint: Type.String({ examples: ["https://cache.example"] }),
  key_id: didUrlText,
  timestamp: Type.String(),
  nonce: Type.String({ description: "8 to 128 visible ASCII characters, never used twice" }),
  signature_b64: Type.String({ description: signatureText.description as string }),
};

/**
 * What `POST /cache/ack` checks: a missing value of the proof is left to the proof, which
 * answers 401.
 */
export const ackRequestShape = closed({
  ...ackMembers,
  ...Type.Partial(Type.Object(ackProofMembers)).properties,
});

/** Body of `POST /cache/ack`. The ids are parsed, trimmed and counted by the Cache. */
export const ackBodyShape = closed({ ...ackMembers, ...ackProofMembers });

const base64urlText = (description: string) =>
  Type.String({ description, pattern: "^[A-Za-z0-9_-]{1,128}={0,2}$" });
/**
 * Body of `PUT /cache/push/{did}/{id}`: a subscription as browsers render it in JSON, and
 * two members more.
 */
export const pushBodyShape = closed({
  endpoint: Type.String({ minLength: 1, maxLength: 1_000, description: "URL of a push service" }),
  keys: closed({ p256dh: base64urlText("of the device"), auth: base64urlText("of the device") }),
  expirationTime: Type.Optional(nullable(Type.Number(), "not used")),
  data: Type.Optional(Type.String({ description: "content of every push, at most 1,024 bytes" })),
  token: Type.Optional(Type.String({ maxLength: 64, description: "as the first push brought it" })),
});

/** Body of `PUT /cache/push/{did}`: the subscriptions that stay. */
export const pushListShape = closed({
  ids: Type.Array(Type.String({ pattern: "^[A-Za-z0-9_-]{1,64}$" }), { maxItems: 10 }),
});
/** Answer to it: those that are there. */
export const pushListedShape = Type.Object({ ids: Type.Array(Type.String()) });

/** Answer to a subscription and to its end. */
export const pushShape = Type.Object({
  id: Type.String({ examples: ["phone"] }),
  state: Type.String({ enum: ["unconfirmed", "confirmed", "removed"] }),
});

const passSecretText = (description: string) =>
  Type.String({
    description,
    pattern: "^[A-Za-z0-9_-]{43}=?$",
    examples: ["BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc"],
  });
/** Body of `PUT /cache/pass/{did}`. */
export const passesBodyShape = closed({
  secret: passSecretText("32 bytes in base64url, by which passes are made from now on"),
  before: Type.Optional(passSecretText("the secret until now, whose passes count too")),
  passes: Type.Integer({
    minimum: 0,
    maximum: passesMax,
    description: "how many passes are valid: by it the room of each is decided",
  }),
  revoked: Type.Array(
    Type.String({
      pattern: "^[0-9a-f]{16}$",
      description: "8 bytes of a pass in hex",
      examples: ["51898f2c7a0b41de"],
    }),
    { maxItems: revokedPassesMax, description: "passes that don't count any more" },
  ),
});

/** `200` of `PUT /cache/pass/{did}`. */
export const passesShape = Type.Object({
  passes: Type.Integer({ minimum: 0 }),
  revoked: Type.Integer({ minimum: 0 }),
  expires_at: timestampText,
});

/**
 * A key bundle, as it is put and read. `core/message/bundle.ts` checks it, whose bounds it
 * states.
 */
export const keyBundleShape = closed({
  did: didText,
  key_id: Type.String({
    pattern: "^[0-9a-f]{32}$",
    description: "16 bytes of the key's SHA-256 in hex",
    examples: ["9f86d081884c7d659a2feaa0c55ad015"],
  }),
  public_key_b64: Type.String({
    description: "X-Wing public key, standard Base64 of 1,216 bytes",
  }),
  issued_at: isoText,
  not_after: isoText,
  signer: didUrlText,
  signature_b64: signatureText,
});

/** `200` of `PUT /cache/keys/{did}`. */
export const bundlePutShape = Type.Object({
  key_id: Type.String(),
  issued_at: isoText,
  not_after: isoText,
});

/** `200` of `POST /cache/ack`. */
export const ackShape = Type.Object({
  acked: Type.Integer({ minimum: 0 }),
  message_ids: Type.Array(uuidText),
});
