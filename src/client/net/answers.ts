/**
 * The answers of the nodes, as this client relies on them. Answers may have further members, because a newer node knows
 * more than this client. The nodes' own schemas are stricter, but their checker is compiled at run time, which the policy
 * of a page may forbid; a test checks every example of theirs with these schemas.
 * Source: interface "Endpoints", rules sections 4, 6 and 10 ("Reads").
 */
import * as z from "zod/mini";
import { decodeHex, encodeHex } from "../../core/codec/bytes.ts";
import { type Did, isDid } from "../../core/codec/did.ts";

export type Shape<T> = z.ZodMiniType<T>;

/** What is wrong with a value, with its place, or `null`. */
export function problemOf(shape: Shape<unknown>, value: unknown): string | null {
  const [issue] = z.safeParse(shape, value).error?.issues ?? [];
  if (issue === undefined) return null;
  if (issue.code === "unrecognized_keys") return "it has members that are not known";
  const expected = issue.code === "invalid_type" ? issue.expected : issue.message;
  return `${issue.path.length === 0 ? "the answer" : `/${issue.path.map(String).join("/")}`} must be ${expected}`;
}

/** What programs keep between runs, as text: JSON with bytes in lower hex and counters in decimal. */
export function renderKept(value: object): string {
  return `${JSON.stringify(keptForm(value), null, 2)}\n`;
}

/** Not by a replacer of JSON: a Buffer, which is bytes too, is another object by then. */
function keptForm(value: unknown): unknown {
  if (value instanceof Uint8Array) return encodeHex(value);
  if (typeof value === "bigint") return String(value);
  if (Array.isArray(value)) return value.map(keptForm);
  if (!isRecord(value)) return value;
  return Object.fromEntries(Object.entries(value).map(([name, one]) => [name, keptForm(one)]));
}

/** The value of such a text, if it has the shape. */
export function parseKept<T>(text: string, shape: Shape<T>): T | null {
  return parseValue(parseRecord(text), shape);
}

export function parseValue<T>(value: unknown, shape: Shape<T>): T | null {
  return z.safeParse(shape, value).data ?? null;
}

export function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

export function isInteger(value: unknown): value is number {
  return Number.isSafeInteger(value);
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

const text = z.string();
const truth = z.boolean();
/** Smaller than the checks of the library, which a page would load. */
const integer = z.custom<number>(isInteger, "an integer");
const natural = z.custom<number>((value) => isInteger(value) && value >= 0, "a natural number");
const decimal = z.custom<string>(
  (value) => typeof value === "string" && /^[0-9]{1,39}$/.test(value),
  "decimal text",
);
const isU64 = (value: unknown) =>
  typeof value === "string" && /^[0-9]{1,20}$/.test(value) && BigInt(value) < 1n << 64n;
const u64 = z.custom<string>(isU64, "an unsigned 64-bit number as text");
const one = z.custom<1>((value) => value === 1, "1");
const record = z.custom<Record<string, unknown>>(isRecord, "an object");

function oneOf<const T extends string>(...texts: readonly T[]): Shape<T> {
  return z.custom<T>((value) => texts.some((one) => one === value), texts.join(" or "));
}

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

// What programs keep between runs.
const did = z.custom<Did>((value) => typeof value === "string" && isDid(value), "a DID");
const hexOf = (form: RegExp) =>
  z.custom<string>((value) => typeof value === "string" && form.test(value), "lower hex");
const toBytes = z.transform((hex: string) => decodeHex(hex) as Uint8Array);
const hex32 = hexOf(/^[0-9a-f]{64}$/);
const bytes32 = z.pipe(hex32, toBytes);
const bytes = z.pipe(hexOf(/^([0-9a-f]{2})*$/), toBytes);
const counter = z.pipe(
  decimal,
  z.transform((digits) => BigInt(digits)),
);
const held = { id: text, secret: bytes32 };
export const identityShape = z.object({
  version: one,
  name: text,
  did,
  rootSeed: bytes32,
  nextRootSeed: z.nullable(bytes32),
  methods: z.array(z.object(held)),
  agreements: z.array(z.object({ ...held, destroyAtMs: z.nullable(integer) })),
  chain: z.object({ epoch: integer, key: bytes32, sinceMs: integer }),
  ledger: z.nullable(hex32),
  storeKey: bytes32,
});
export const planShape = z.object({
  version: one,
  plan: z.object({
    id: text,
    seed: bytes32,
    to: did,
    recipient: z.object({ keyId: text, publicKey: bytes32 }),
    file: z.object({ name: text, mediaType: text, sizeBytes: natural, sha256: bytes32 }),
    chunkBytes: natural,
    timestamp: text,
    ttl: text,
    tag: z.nullable(text),
    hint: z.nullable(oneOf("direct", "cache")),
  }),
  senderKeyId: z.nullable(text),
  delivered: natural,
});

export const sendingShape = z.object({ plans: z.array(planShape) });

/** How far the record of a correspondent had come, and the home that its document named then. */
export const rememberedShape = z.object({
  did,
  root: integer,
  rootKey: bytes32,
  nonce: counter,
  hash: bytes32,
  home: z.optional(text),
});
export const rememberedAliasShape = z.object({ alias: text, did });
/** Calls that were signed and may still be accepted. */
export const claimsShape = z.object({
  claims: z.array(z.object({ nonce: counter, sha256: bytes32, untilMs: integer })),
});
export const aliasesShape = z.object({ aliases: z.array(text) });
export const methodKeysShape = z.object({ keys: z.array(text) });
/** The root key of the shares that they have; `null` until all are sent. */
export const guardiansShape = z.object({ to: z.array(text), rootKey: z.nullable(bytes32) });
export const shareShape = z.object({ did, rootKey: bytes32, share: bytes });
export const headShape = z.object({ logKey: text, note: text });
/** The key of locked texts, sealed with that of a lock. */
const wrap = {
  kind: oneOf("passphrase", "passkey"),
  salt: bytes,
  credential: z.nullable(bytes),
  sealed: bytes,
};
export const locksShape = z.object({ format: text, locks: z.array(z.object(wrap)) });
export const sealedShape = z.object({ format: text, sealed: bytes });

export type SealedPayload = z.infer<typeof sealedPayloadShape>;
export type Wrap = z.infer<typeof locksShape>["locks"][number];
export type RegistrationStatus = z.infer<typeof registrationStatusShape>;
export type Resolved = z.infer<typeof resolvedShape>;
export type About = z.infer<typeof aboutShape>;
export type Registered = z.infer<typeof registeredShape>;
export type NodeLimits = z.infer<typeof limitsShape>;
export type Resolution = z.infer<typeof resolutionShape>;
/** Any accepted change: `tx_hash` leads to `GET /submissions`. */
export type Accepted = z.infer<typeof acceptedShape>;
export type Delivered = z.infer<typeof deliveredShape>;
