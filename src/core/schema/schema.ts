/**
 * Shapes of the wire in TypeBox: what validates requests also documents them. This file
 * owns the checker (`compileShape`), the text formats and the shapes that all nodes share,
 * with their answers about themselves; `directory.ts`, `identity.ts` and `messages.ts` next
 * to it hold the bodies. Members keep the names of the interface, and a refusal never
 * repeats what a caller sent. Objects of answers are open: later versions may add members.
 * Source: interface "Resources and their fields", rules sections 1, 3 and 9.
 */
import {
  FormatRegistry,
  type ObjectOptions,
  type Static,
  type TProperties,
  type TSchema,
  Type,
} from "@sinclair/typebox";
import {
  type TypeCheck,
  TypeCompiler,
  type ValueError,
  ValueErrorType,
} from "@sinclair/typebox/compiler";
import { decodeBase64 } from "../codec/bytes.ts";
import { isDid, isUuid } from "../codec/did.ts";
import { parseU64, parseU128 } from "../codec/json.ts";
import { parseDuration, parseTimestamp } from "../codec/time.ts";
import {
  type Fault,
  type FaultCode,
  fault,
  faultCodes,
  type InputError,
  pointerNameCharsMax,
} from "../fault.ts";
import { longerThan, policyLimits } from "../ledger/account.ts";
import { parseProofTimestamp } from "../ledger/document-codec.ts";

// ----------------------------------------------------------------------------------------- formats

const headerNonceBytesMax = 64;
const tagBytesMax = 96;
/** What a tag must be, in words. */
export const tagForm = `1 to ${tagBytesMax} bytes without control characters`;

export function isTag(text: string): boolean {
  return (
    text !== "" && !longerThan(text, tagBytesMax) && !/[\u0000-\u001f\u007f-\u009f]/.test(text)
  );
}

/**
 * Remembers the last text: of an envelope, the schema and the decoder read the same two, and
 * many have one life.
 */
function rememberLast<T>(read: (text: string) => T): (text: string) => T {
  let last = "";
  let value = read(last);
  return (text) => {
    if (text === last) return value;
    value = read(text);
    last = text;
    return value;
  };
}

export const readTimestamp = rememberLast(parseTimestamp);
export const readDuration = rememberLast(parseDuration);

/**
 * What makes a text acceptable. The description of a schema with a format says the same in
 * words.
 */
const formats: Readonly<Record<string, (text: string) => boolean>> = {
  did: isDid,
  uuid: isUuid,
  // Not "duration", which is ISO-8601 alone for other tools.
  life: (text) => readDuration(text) !== null,
  tag: isTag,
  base64: (text) => text !== "" && decodeBase64(text) !== null,
  "header-nonce": (text) =>
    text !== "" && (decodeBase64(text)?.length ?? 65) <= headerNonceBytesMax,
  u64: (text) => parseU64(text) !== null,
  u128: (text) => parseU128(text) !== null,
  fee: (text) => (parseU128(text) ?? 2n ** 128n) <= policyLimits.releaseFeeMax,
  timestamp: (text) => readTimestamp(text) !== null,
  "proof-timestamp": (text) => parseProofTimestamp(text) !== null,
  "ed25519-signature": (text) => text.length === 88 && decodeBase64(text)?.length === 64,
};

for (const [name, accepts] of Object.entries(formats)) FormatRegistry.Set(name, accepts);

// ----------------------------------------------------------------------------------------- checker

/** More errors than this in one body are not listed: an answer stays small whatever was sent. */
const inputErrorsMax = 32;

/**
 * Compiles a schema once into a checker: the value as the schema's type, or 400 with at
 * most `inputErrorsMax` errors, each with a pointer to the member at fault or missing.
 * Costs the compiled check; bad input, up to the last error.
 */
export function compileShape<S extends TSchema>(
  schema: S,
  code: FaultCode = "invalid_request",
): (value: unknown) => Static<S> | Fault {
  let compiled: TypeCheck<S> | null = null;
  return (value) => {
    compiled ??= TypeCompiler.Compile(schema);
    return compiled.Check(value) ? value : inputFault(code, errorsOf(compiled.Errors(value)));
  };
}

function errorsOf(found: Iterable<ValueError>): InputError[] {
  const errors = new Map<string, InputError>();
  for (const error of found) {
    const pointer = boundedPointer(error.path);
    // The first error of a member is the most useful: "is missing" comes before "expected string".
    if (!errors.has(pointer)) errors.set(pointer, { pointer, message: problemText(error) });
    if (errors.size === inputErrorsMax) break;
  }
  return [...errors.values()];
}

/**
 * The detail has the first error in words, for callers that show only that, and the number
 * of the others.
 */
export function inputFault(code: FaultCode, errors: readonly InputError[]): Fault {
  const [first, ...others] = errors;
  const where = first?.pointer || "the body";
  const more = others.length === 0 ? "" : `; ${others.length} more in errors`;
  return fault(code, `${where}: ${first?.message ?? "is not acceptable"}${more}`, { errors });
}

/** A pointer whose last step is too long to repeat ends at the parent. */
function boundedPointer(pointer: string): string {
  const lastStep = pointer.lastIndexOf("/");
  return pointer.length - lastStep - 1 > pointerNameCharsMax ? pointer.slice(0, lastStep) : pointer;
}

function problemText({ type, schema, message }: ValueError): string {
  if (type === ValueErrorType.ObjectRequiredProperty) return "is missing";
  if (type === ValueErrorType.ObjectAdditionalProperties) return "is not a known member";
  const isUnion = type === ValueErrorType.Union;
  const described = isUnion || schema["format"] !== undefined ? schema.description : undefined;
  const plain = isUnion ? formsOf(schema) : message.replace("Expected ", "");
  return `expected ${described ?? plain}`;
}

/** `DeleteOnExpiry or KeepHeaderPreview` */
function formsOf(union: TSchema): string {
  const forms: readonly TSchema[] = union["anyOf"];
  return forms.map((form) => form["const"] ?? form.description ?? form["type"]).join(" or ");
}

// -------------------------------------------------------------------------------------- primitives

/** An object that refuses members it does not know. */
export function closed<P extends TProperties>(properties: P, options: ObjectOptions = {}) {
  return Type.Object(properties, { ...options, additionalProperties: false });
}

export const txHashText = Type.String({
  description: "its outcome: GET /submissions/{tx_hash}",
  examples: [`0x${"5c".repeat(32)}`],
});

/** Checked by `parseDid`, which answers `invalid_did`; the form is documentation. */
export const didText = Type.String({
  description: "did:svc: and 16 to 96 base58btc characters",
  examples: ["did:svc:1111111111111111111111"],
});
export const didUrlText = Type.String({
  description: "<did>#<fragment>",
  examples: ["did:svc:1111111111111111111111#k1"],
});
/** The pattern is for other tools, which do not know our formats. */
const unsignedText = (format: string, description: string) =>
  Type.String({
    format,
    pattern: "^(0|[1-9][0-9]*)$",
    description: `${description} as text`,
    examples: ["0"],
  });
export const u64Text = unsignedText("u64", "unsigned 64-bit number");
export const u128Text = unsignedText("u128", "unsigned 128-bit number");
export const feeText = unsignedText(
  "fee",
  `unsigned number of at most ${policyLimits.releaseFeeMax}`,
);
export const timestampText = Type.String({
  format: "timestamp",
  description: "ISO-8601 with seconds and a zone, or epoch seconds or milliseconds as text",
  examples: ["2026-07-16T12:00:00Z"],
});
export const isoText = Type.String({
  description: "ISO-8601 UTC with milliseconds",
  examples: ["2026-07-16T12:00:00.000Z"],
});
export const signatureText = Type.String({
  format: "ed25519-signature",
  description: "Ed25519 signature, standard Base64 of 64 bytes",
  examples: [
    "Kd1auYPwKavuUkO8ZcyRJsw6x4QJ8/mMV+Hx+f/qgKT0Z23cYj+NmLmAEhBpnv2aTT93XeZst/0CJBIk3hAqBA==",
  ],
});
export const uuidText = Type.String({
  description: "UUID",
  examples: ["0190b3b4-0000-7000-8000-000000000001"],
});

export const aliasText = Type.String({
  description: "1 to 64 of a-z 0-9 _ - . after lowering",
  examples: ["team.one"],
});

/** A text with bounds in bytes of UTF-8. Other tools know them in characters alone. */
export function utf8Text(bytesMin: number, bytesMax: number) {
  const format = `utf8-${bytesMax}`;
  FormatRegistry.Set(format, (text) => !longerThan(text, bytesMax));
  const description = `${bytesMin} to ${bytesMax} bytes of UTF-8`;
  return Type.String({ format, minLength: bytesMin, maxLength: bytesMax, description });
}

/** A text with a documented list of values that the route checks itself, with its own code. */
export function namedText(values: readonly string[]) {
  return Type.String({ enum: values });
}

export function nullable<S extends TSchema>(schema: S, description?: string) {
  return Type.Union([schema, Type.Null()], description === undefined ? {} : { description });
}

// ------------------------------------------------------------------------------------------ errors

/**
 * Error bodies of the Directory, the Cache and the server: RFC 9457 with the members of the
 * family.
 */
export const problemShape = Type.Object({
  type: Type.String({ description: "/problems/<code>", examples: ["/problems/invalid_json"] }),
  title: Type.String(),
  status: Type.Integer(),
  detail: Type.String(),
  code: Type.String({ enum: [...faultCodes] }),
  request_id: Type.String(),
  error: Type.String({ description: "the same as code" }),
  message: Type.String({ description: "the same as detail" }),
  signed_text: Type.Optional(
    Type.String({
      description:
        "only in development, with refused signatures: the verified bytes, as text or 0x hex",
    }),
  ),
  expected: Type.Optional(
    Type.String({ description: "with nonce_mismatch: the value that would be accepted" }),
  ),
  errors: Type.Optional(
    Type.Array(
      closed({
        pointer: Type.String({ description: "JSON pointer, RFC 6901" }),
        message: Type.String(),
      }),
    ),
  ),
});

/** `GET /limits`: what a node applies. Each node adds its members. */
export const limitsShape = Type.Object({
  max_http_body_bytes: Type.Optional(Type.Integer()),
  max_unchunked_bytes: Type.Optional(Type.Integer()),
  max_chunk_bytes: Type.Optional(Type.Integer()),
  max_header_bytes: Type.Optional(Type.Integer()),
  default_ttl: Type.Optional(Type.String({ description: "ISO-8601 duration" })),
  max_ttl: Type.Optional(Type.String({ description: "ISO-8601 duration" })),
  max_clock_skew_seconds: Type.Optional(Type.Integer()),
});

// ----------------------------------------------------------------------------- a node about itself

const versionText = Type.String({ examples: ["0.1.0"] });

export const healthAnswer = Type.Object({ status: Type.Literal("ok"), version: versionText });

export const readyAnswer = Type.Object({
  status: Type.Literal("ready"),
  checks: Type.Record(Type.String(), Type.String({ description: "`ok`, or which part is away" })),
});

/** OpenAPI has a schema of its own. */
export const descriptionAnswer = Type.Object({ openapi: Type.Literal("3.1.0") });

export const problemEntryShape = Type.Object({
  code: Type.String(),
  status: Type.Integer(),
  title: Type.String(),
});
export type ProblemEntry = Static<typeof problemEntryShape>;

export const problemListAnswer = Type.Object({ problems: Type.Array(problemEntryShape) });

const endpointText = Type.String({ examples: ["https://waypost.example.org"] });

export const aboutAnswer = Type.Object({
  roles: Type.Array(
    Type.Union(
      (["directory", "relay", "cache", "witness"] as const).map((role) => Type.Literal(role)),
    ),
  ),
  version: versionText,
  relay_endpoints: Type.Array(endpointText, {
    description: "URLs by which documents name this Relay",
  }),
  relay_public_id: nullable(Type.String(), "Name of this Relay in `allowed_relays` of policies"),
  cache_endpoints: Type.Array(endpointText, {
    description: "URLs by which documents name this Cache and proofs are signed for it",
  }),
  directory_endpoints: Type.Array(endpointText, {
    description: "URL by which documents name this Directory as their home; empty when it has none",
  }),
  event_proof_key: nullable(
    Type.String(),
    "Key that signs event proofs, as multibase; `null` when they are not signed",
  ),
  push_key: nullable(
    Type.String(),
    "Key by which push services know this Cache: the `applicationServerKey`; `null` when it pushes nothing",
  ),
  passes: Type.Boolean({ description: "Whether this Cache checks passes (`Svc-Pass`)" }),
  key_bundles: Type.Boolean({
    description: "Whether this Cache keeps key bundles (`/cache/keys`)",
  }),
  operator: Type.Object(
    {
      did: nullable(Type.String(), "Identity that signs notices and takes reports"),
      contact: nullable(Type.String(), "A mailto: or https URL"),
      rules: nullable(Type.String(), "https URL of the rules"),
      welcome: nullable(Type.String(), "For people who are about to register"),
    },
    { description: "Who runs this node, as far as they say" },
  ),
  maintenance: nullable(
    Type.Object({ since: Type.String(), message: nullable(Type.String()) }),
    "While the node refuses writes; `null` while it takes them",
  ),
  notice: nullable(
    Type.Object({
      did: Type.String(),
      text: Type.String(),
      issued_at: Type.String(),
      signer: Type.String(),
      signature_b64: Type.String(),
    }),
    "A text of `operator.did` to everybody, with its signature; `null` without one",
  ),
  previous_event_proof_keys: Type.Array(
    Type.Object({ key: Type.String(), valid_until: Type.String() }),
    {
      description: "Earlier keys; accept their signatures until then",
    },
  ),
});
export type AboutAnswer = Static<typeof aboutAnswer>;

// -------------------------------------------------------------------------------------- operations

// Only the Unix sockets of an admin listener accept these bodies; they are not part of the
// interface for clients.

export const blocksMax = 10_000;
/** A DID, an address or a network, or what an operator typed for one. */
const subjectText = Type.String({ maxLength: 160 });
const didOfOperator = Type.String({ maxLength: 128 });

export const reloadBody = Type.Object({});

export const blockBody = closed({
  add: Type.Array(
    closed({
      subject: subjectText,
      /** Whether a DID may still receive. */
      sender_only: Type.Boolean(),
      reason: nullable(Type.String({ maxLength: 200 })),
    }),
    { maxItems: blocksMax },
  ),
  remove: Type.Array(subjectText, { maxItems: blocksMax }),
});

export const networksBody = closed({
  labels: Type.Array(Type.String({ maxLength: 48 }), { maxItems: 1_000 }),
});

export const explainBody = closed({
  recipient: didOfOperator,
  sender: nullable(didOfOperator),
  /** Address of the client that sends. */
  client: Type.Optional(nullable(Type.String({ maxLength: 64 }))),
});

/** A community's; each takes about 300 bytes of memory. */
export const invitationsMax = 10_000;

export const inviteBody = closed({
  /** How many DIDs it registers. */
  uses: Type.Integer({ minimum: 1, maximum: 500 }),
  life_seconds: Type.Integer({ minimum: 60, maximum: 366 * 86_400 }),
  /** For the list. */
  note: nullable(Type.String({ maxLength: 200 })),
});

/** The beginning of its id, or the code. */
export const revokeBody = closed({
  id: Type.String({ minLength: 6, maxLength: 64, examples: ["3f9a02"] }),
});

/** In one page: each costs a look at ledger and mailbox. */
export const membersPageMax = 200;

export const membersBody = closed({
  /** A part of a DID, an alias or the id of an invitation; `null` for all. */
  search: nullable(Type.String({ maxLength: 128 })),
  /** DID behind which the page begins; `null` for the first. */
  after: nullable(Type.String({ maxLength: 128 })),
  limit: Type.Optional(Type.Integer({ minimum: 1, maximum: membersPageMax })),
});

/** A DID or an alias. */
export const memberBody = closed({ member: Type.String({ minLength: 1, maxLength: 128 }) });

const noticeShape = Type.Object({
  did: Type.String({ maxLength: 128 }),
  text: Type.String({ maxLength: 1_000 }),
  issued_at: Type.String({ maxLength: 64 }),
  signer: Type.String({ maxLength: 192 }),
  signature_b64: Type.String({ maxLength: 100 }),
});

/** What `waypost notice sign` prints; `null` removes the notice. */
export const noticeBody = closed({ notice: nullable(noticeShape) });

export const maintenanceBody = closed({
  on: Type.Boolean(),
  /** For members. */
  message: nullable(Type.String({ minLength: 1, maxLength: 500 })),
});

/** Without a tier the member has the default again. */
export const tierBody = closed({
  member: Type.String({ minLength: 1, maxLength: 128 }),
  tier: nullable(Type.String({ minLength: 1, maxLength: 32 })),
});

export const eraseBody = closed({ did: didOfOperator });

export const auditPageMax = 10_000;

export const auditBody = closed({
  /** Name of a Unix user; `null` for all, as in the others. */
  user: nullable(Type.String({ maxLength: 64 })),
  /** An action such as `members.erase`, or its part before the dot. */
  action: nullable(Type.String({ maxLength: 64 })),
  /** A part of what it concerns, such as a DID. */
  about: nullable(Type.String({ maxLength: 200 })),
  limit: Type.Optional(Type.Integer({ minimum: 1, maximum: auditPageMax })),
});
