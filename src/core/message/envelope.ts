/**
 * The envelope: from the bytes of a request to one normal form, by the rules of the outer
 * format. The payload stays opaque, and the sender's bytes are kept, except for two
 * alternate names of members.
 * Cost: for 1.3 KiB about twice what decoding and parsing the text as JSON costs, of which
 * Base64 is a fifth; nothing of the ciphertext is copied.
 * Source: interface "DDN envelope", rules section 2.
 */
import type { Static } from "@sinclair/typebox";
import { decodeBase64, lengthOfBase64, utf8, type VerifySignature } from "../codec/bytes.ts";
import { type Did, parseDidUrl, parseUuid, type Uuid } from "../codec/did.ts";
import {
  isJsonObject,
  type JsonObject,
  type JsonValue,
  outerNames,
  readJson,
} from "../codec/json.ts";
import { renderDuration, secondMs } from "../codec/time.ts";
import { badInput, type Fault, fault, type InputError, isFault } from "../fault.ts";
import type { DidDocument } from "../ledger/account.ts";
import { keyFor } from "../ledger/document.ts";
import { envelopeShape } from "../schema/messages.ts";
import { compileShape, inputFault, readDuration, readTimestamp } from "../schema/schema.ts";
import { encodeSenderText } from "./proof.ts";

export type DeliveryHint = NonNullable<EnvelopeMembers["delivery_hint"]>;

export type Envelope = {
  readonly messageId: Uuid;
  readonly to: Did;
  readonly timestampMs: number;
  /** As asked for; `null` when the sender named none. */
  readonly ttlMs: number | null;
  readonly hint: DeliveryHint;
  readonly tag: string | null;
  /** Decoded `ciphertext_b64`, or the compact JSON of `payload`. */
  readonly payloadBytes: number;
  /** The decoded encrypted header, flat or from `context`. */
  readonly header: Uint8Array | null;
  readonly chunk: {
    readonly groupId: Uuid;
    readonly sequence: number;
    readonly total: number;
  } | null;
  readonly sender: EnvelopeSender | null;
  /** Compact or not, the sender's own JSON with the names `to` and `timestamp`. */
  readonly bytes: Uint8Array;
};

export type EnvelopeSender = {
  readonly from: Did;
  readonly keyId: string;
  readonly signature: Uint8Array;
  /** The exact bytes that the signature covers. */
  readonly signedBytes: Uint8Array;
};

/** The `limits` of the configuration, under their own names: bytes, and times in milliseconds. */
export type EnvelopeLimits = {
  readonly body_bytes_max: number;
  readonly unchunked_bytes_max: number;
  readonly chunk_bytes_max: number;
  readonly header_bytes_max: number;
  readonly ttl_max: number;
  readonly ttl_default: number;
  /** How far timestamps may lie from the node's clock. */
  readonly clock_skew: number;
};

/**
 * Refuses with `too_large`, `invalid_json`, or `envelope_invalid` with the members at
 * fault. Reads no clock.
 */
export function decodeEnvelope(body: Uint8Array, limits: EnvelopeLimits): Envelope | Fault {
  if (body.length > limits.body_bytes_max) return tooLarge("the body", limits.body_bytes_max);
  const reading = readJson(body, "payload");
  if (isFault(reading)) return reading;
  const members = checkShape(reading.value);
  if (isFault(members)) return withMissing(members, reading.value);
  const payloadBytes = sizeOfPayload(members.payload);
  const errors = brokenRules(members, payloadBytes);
  if (reading.unsafeInteger)
    errors.push({ pointer: "", message: "holds an integer beyond ±(2^53 - 1)" });
  if (errors.length > 0 || payloadBytes === null) return inputFault("envelope_invalid", errors);
  const { encrypted_header: headerText } = members.context ?? members;
  const envelope: Envelope = {
    messageId: parseUuid(members.message_id) as Uuid,
    to: (members.to ?? members.recipient) as Did,
    timestampMs: readTimestamp((members.timestamp ?? members.created_at) as string) as number,
    ttlMs: members.ttl === undefined ? null : readDuration(members.ttl),
    hint: members.delivery_hint ?? "standard",
    tag: members.tag ?? null,
    payloadBytes,
    header: headerText === undefined ? null : decodeBase64(headerText),
    chunk: chunkOf(members),
    sender: senderOf(members),
    bytes:
      members.recipient === undefined && members.created_at === undefined
        ? body
        : normalBytes(reading.text),
  };
  return checkSizes(envelope, limits) ?? envelope;
}

/**
 * A timestamp too far ahead: 400 `envelope_invalid`. A life that is over: 422
 * `message_expired`.
 */
export function checkEnvelopeTime(
  envelope: Envelope,
  nowMs: number,
  limits: EnvelopeLimits,
): Fault | null {
  if (envelope.timestampMs > nowMs + limits.clock_skew)
    return badInput("envelope_invalid", "/timestamp", "is too far in the future");
  return checkExpiry(envelope, appliedTtlMs(envelope, limits, null), nowMs);
}

/** 422 `message_expired` when the time of the message plus what is applied to it has passed. */
export function checkExpiry(envelope: Envelope, ttlMs: number, nowMs: number): Fault | null {
  return envelope.timestampMs + ttlMs > nowMs
    ? null
    : fault("message_expired", "the message has expired");
}

/**
 * The smallest of what was asked for (or the default), what the policy allows, and the
 * node's maximum.
 */
export function appliedTtlMs(
  envelope: Envelope,
  limits: EnvelopeLimits,
  policyTtlMs: number | null,
): number {
  return Math.min(
    envelope.ttlMs ?? wholeSeconds(limits.ttl_default),
    longestTtlMs(limits, policyTtlMs),
  );
}

/** The longest life that node and policy allow together, in whole seconds. */
export function longestTtlMs(limits: EnvelopeLimits, policyTtlMs: number | null): number {
  return wholeSeconds(Math.min(policyTtlMs ?? limits.ttl_max, limits.ttl_max));
}

/** Answers show durations in seconds: what is applied must be what is shown. */
function wholeSeconds(ms: number): number {
  return Math.floor(ms / secondMs) * secondMs;
}

/**
 * Whether the document lists the key of the sender in `authentication` and the key made the
 * signature.
 */
export async function verifySender(
  sender: EnvelopeSender,
  document: DidDocument | null,
  verify: VerifySignature,
): Promise<boolean> {
  const key =
    document === null || document.id !== sender.from
      ? null
      : keyFor({ document }, sender.keyId, "send");
  return key !== null && (await verify(sender.signature, sender.signedBytes, key));
}

/** The members of `GET /limits` that every node for envelopes answers. */
export function renderEnvelopeLimits(limits: EnvelopeLimits): Record<string, number | string> {
  return {
    max_http_body_bytes: limits.body_bytes_max,
    max_unchunked_bytes: limits.unchunked_bytes_max,
    max_chunk_bytes: limits.chunk_bytes_max,
    max_header_bytes: limits.header_bytes_max,
    default_ttl: renderDuration(Math.min(limits.ttl_default, limits.ttl_max)),
    max_ttl: renderDuration(limits.ttl_max),
    max_clock_skew_seconds: Math.floor(limits.clock_skew / 1_000),
  };
}

// ----------------------------------------------------------------------------------------- members

type EnvelopeMembers = Static<typeof envelopeShape>;

const checkShape = compileShape(envelopeShape, "envelope_invalid");

/**
 * Decoded `ciphertext_b64`, which no format decodes a second time, or the compact JSON;
 * `null` when it isn't Base64.
 */
function sizeOfPayload(payload: EnvelopeMembers["payload"]): number | null {
  const { ciphertext_b64: ciphertext } = payload;
  return ciphertext === undefined
    ? utf8(JSON.stringify(payload)).length
    : lengthOfBase64(ciphertext);
}

const headerMarks = ["encrypted_header", "header_nonce", "header_key_id"] as const;
const chunkMembers = ["message_group_id", "sequence_number", "total_chunks"] as const;
const senderMembers = ["from", "sender_key_id", "sender_signature"] as const;

/**
 * Members that are sent all together with any of the marks. `schema_version` may also stand alone.
 */
const groups = [
  { marks: headerMarks, all: [...headerMarks, "schema_version"] },
  { marks: chunkMembers, all: chunkMembers },
  { marks: senderMembers, all: senderMembers },
] as const;

/** Two names of one member. */
const alternates = [
  ["to", "recipient"],
  ["timestamp", "created_at"],
] as const;

type MemberName = keyof EnvelopeMembers;

/** The rules between members. */
function brokenRules(members: EnvelopeMembers, payloadBytes: number | null): InputError[] {
  const errors: InputError[] = [];
  addMissing(errors, members);
  for (const [name, alternate] of alternates) {
    if (members[name] !== undefined && members[alternate] !== undefined)
      addError(errors, alternate, `cannot be combined with ${name}`);
  }
  if (payloadBytes === null)
    addError(errors, "payload/ciphertext_b64", "expected standard Base64, padded");
  for (const { marks, all } of groups)
    if (hasAny(members, marks))
      for (const name of all) if (members[name] === undefined) addError(errors, name, "is missing");
  if (members.context !== undefined)
    for (const name of groups[0].all)
      if (members[name] !== undefined) addError(errors, name, "cannot be combined with context");
  const { sequence_number: sequence = 0, total_chunks: total } = members;
  if (total !== undefined && sequence >= total)
    addError(errors, "sequence_number", "must be below total_chunks");
  if ((total !== undefined) !== (members.delivery_hint === "chunked"))
    addError(errors, "delivery_hint", "must be chunked with, and only with, chunk members");
  const { from, sender_key_id: keyId = "#" } = members;
  if (from !== undefined && (keyId.startsWith("#") || parseDidUrl(keyId, from as Did) === null))
    addError(errors, "sender_key_id", "must be an absolute id of a method of from");
  return errors;
}

function addMissing(
  errors: InputError[],
  members: { readonly [Name in MemberName]?: unknown },
): void {
  for (const [name, alternate] of alternates)
    if (members[name] === undefined && members[alternate] === undefined)
      addError(errors, name, "is missing");
}

/** The schema knows no member of which one of two names must be there. */
function withMissing(refusal: Fault, value: JsonValue): Fault {
  const errors = [...(refusal.extra.errors ?? [])];
  if (isJsonObject(value)) addMissing(errors, value);
  return inputFault("envelope_invalid", errors);
}

function addError(errors: InputError[], name: string, message: string): void {
  errors.push({ pointer: `/${name}`, message });
}

function hasAny(members: EnvelopeMembers, names: readonly MemberName[]): boolean {
  for (const name of names) if (members[name] !== undefined) return true;
  return false;
}

function chunkOf(members: EnvelopeMembers): Envelope["chunk"] {
  const { message_group_id: groupId, sequence_number: sequence, total_chunks: total } = members;
  if (groupId === undefined || sequence === undefined || total === undefined) return null;
  // Adding 0 turns -0 into 0.
  return { groupId: parseUuid(groupId) as Uuid, sequence: sequence + 0, total };
}

function senderOf(members: EnvelopeMembers): EnvelopeSender | null {
  const { from, sender_key_id: keyId, sender_signature: signature } = members;
  if (from === undefined || keyId === undefined || signature === undefined) return null;
  const signedBytes = encodeSenderText(members as JsonObject);
  return {
    from: from as Did,
    keyId,
    signature: decodeBase64(signature) as Uint8Array,
    signedBytes,
  };
}

// ------------------------------------------------------------------------------ sizes, normal form

function checkSizes(
  { payloadBytes, header, chunk }: Envelope,
  limits: EnvelopeLimits,
): Fault | null {
  const payloadBytesMax = chunk === null ? limits.unchunked_bytes_max : limits.chunk_bytes_max;
  if (payloadBytes > payloadBytesMax)
    return tooLarge(chunk === null ? "the payload" : "the chunk", payloadBytesMax);
  if ((header?.length ?? 0) > limits.header_bytes_max)
    return tooLarge("the header", limits.header_bytes_max);
  return null;
}

function tooLarge(what: string, bytesMax: number): Fault {
  return fault("too_large", `${what} is larger than ${bytesMax} bytes`);
}

const normalNames: Readonly<Record<string, string>> = {
  recipient: '"to"',
  created_at: '"timestamp"',
};

/** The sender's text with the alternate names replaced where they stand. */
function normalBytes(text: string): Uint8Array {
  let normal = "";
  let kept = 0;
  for (const { start, end } of outerNames(text)) {
    const name = normalNames[JSON.parse(text.slice(start, end)) as string];
    if (name === undefined) continue;
    normal += text.slice(kept, start) + name;
    kept = end;
  }
  return utf8(normal + text.slice(kept));
}
