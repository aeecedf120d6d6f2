/**
 * The envelope: from the bytes of a request to one normal form, by the rules of the outer format. The payload stays
 * opaque, and the sender's bytes are kept, except for two alternate names of members.
 * Cost: for 1.3 KiB about twice what decoding and parsing the text as JSON costs, of which Base64 is a fifth; nothing
 * of the ciphertext is copied.
 * Source: interface "DDN envelope", rules sections 2 and 10.
 */
import { decodeBase64, signatureBytes, utf8 } from "../codec/bytes.ts";
import { verifyEd25519InPool } from "../codec/crypto.ts";
import { type Did, isDid, parseDidUrl, parseUuid, type Uuid } from "../codec/did.ts";
import { isJsonObject, type JsonObject, type JsonValue, outerNameSpans, readJson } from "../codec/json.ts";
import { parseDuration, parseTimestamp, renderDuration, secondMs } from "../codec/time.ts";
import { badInput, type Fault, fault, type InputError, isFault, jsonPointer, pointerNameCharsMax } from "../fault.ts";
import type { DidDocument } from "../ledger/account.ts";
import { keyFor } from "../ledger/document.ts";
import { encodeSenderText } from "./proof.ts";

export type DeliveryHint = "standard" | "chunked" | "direct" | "cache";

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
  readonly chunk: { readonly groupId: Uuid; readonly sequence: number; readonly total: number } | null;
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

export const chunksMax = 65_535;
const tagBytesMax = 96;
/** Bounds of members that the interface leaves without one. */
const headerKeyIdCharsMax = 256;
const headerNonceBytesMax = 64;
const errorsMax = 32;

/**
 * Refuses with `too_large` (body, header, payload, chunk), `invalid_json`, or `envelope_invalid` with every rule that
 * is broken. Reads no clock.
 */
export function decodeEnvelope(body: Uint8Array, limits: EnvelopeLimits): Envelope | Fault {
  if (body.length > limits.body_bytes_max) return tooLarge("the body", limits.body_bytes_max);
  const reading = readJson(body, "payload");
  if (isFault(reading)) return reading;
  if (!isJsonObject(reading.value)) return badInput("envelope_invalid", "", "must be a JSON object");
  const members = reading.value;
  const errors: InputError[] = [];
  refuseUnknown(members, errors);
  if (reading.unsafeInteger) errors.push({ pointer: "", message: "holds an integer beyond ±(2^53 - 1)" });
  const messageId = readText(members, "message_id", uuidForm, errors);
  const to = readText(members, chosenName(members, "to", "recipient", errors), didForm, errors);
  const timestampMs = readText(members, chosenName(members, "timestamp", "created_at", errors), timestampForm, errors);
  const ttlMs = readText(members, "ttl", ttlForm, errors);
  const tag = readText(members, "tag", tagTextForm, errors);
  const payloadBytes = readPayload(members, errors);
  const header = readHeader(members, errors);
  const isChunk = hasAny(members, chunkNames);
  const chunk = isChunk ? readChunk(members, errors) : null;
  const hint = readHint(members, { named: isChunk, valid: chunk !== null }, errors);
  const sender = hasAny(members, senderNames) ? readSender(members, errors) : null;
  if (errors.length > 0 || messageId === null || to === null || timestampMs === null || payloadBytes === null)
    return invalidEnvelope(errors);
  const sizeFault = checkSizes({ payloadBytes, header, chunked: chunk !== null }, limits);
  if (sizeFault !== null) return sizeFault;
  return {
    messageId,
    to,
    timestampMs,
    ttlMs,
    hint,
    tag,
    payloadBytes,
    header,
    chunk,
    sender: sender === null ? null : { ...sender, signedBytes: encodeSenderText(members) },
    bytes: hasAny(members, alternateNames) ? normalBytes(reading.text) : body,
  };
}

/** A timestamp too far ahead: 400 `envelope_invalid`. A life that is over: 422 `message_expired`. */
export function checkEnvelopeTime(envelope: Envelope, nowMs: number, limits: EnvelopeLimits): Fault | null {
  if (envelope.timestampMs > nowMs + limits.clock_skew)
    return badInput("envelope_invalid", "/timestamp", "is too far in the future");
  return checkExpiry(envelope, appliedTtlMs(envelope, limits, null), nowMs);
}

/** 422 `message_expired` when the time of the message plus what is applied to it has passed. */
export function checkExpiry(envelope: Envelope, ttlMs: number, nowMs: number): Fault | null {
  return envelope.timestampMs + ttlMs > nowMs ? null : fault("message_expired", "the message has expired");
}

/** The smallest of what was asked for (or the default), what the policy allows, and the node's maximum. */
export function appliedTtlMs(envelope: Envelope, limits: EnvelopeLimits, policyTtlMs: number | null): number {
  return Math.min(envelope.ttlMs ?? wholeSeconds(limits.ttl_default), longestTtlMs(limits, policyTtlMs));
}

/** The longest life that node and policy allow together, in whole seconds. */
export function longestTtlMs(limits: EnvelopeLimits, policyTtlMs: number | null): number {
  return wholeSeconds(Math.min(policyTtlMs ?? limits.ttl_max, limits.ttl_max));
}

/** Answers show durations in seconds: what is applied must be what is shown. */
function wholeSeconds(ms: number): number {
  return Math.floor(ms / secondMs) * secondMs;
}

/** Whether the document lists the key of the sender in `authentication` and the key made the signature. */
export async function verifySender(sender: EnvelopeSender, document: DidDocument | null): Promise<boolean> {
  const key = senderKey(sender, document);
  return key !== null && (await verifyEd25519InPool(sender.signature, sender.signedBytes, key));
}

function senderKey(sender: EnvelopeSender, document: DidDocument | null): Uint8Array | null {
  return document === null || document.id !== sender.from ? null : keyFor({ document }, sender.keyId, "send");
}

/** The members of `GET /limits` that every node for envelopes answers (rules section 10). */
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

// --------------------------------------------------------------------------------------------- members

const alternateNames = ["recipient", "created_at"] as const;
/** Each of these groups is sent whole or not at all. */
const headerNames = ["encrypted_header", "header_nonce", "header_key_id", "schema_version"] as const;
const chunkNames = ["message_group_id", "sequence_number", "total_chunks"] as const;
const senderNames = ["from", "sender_key_id", "sender_signature"] as const;

const memberNames: ReadonlySet<string> = new Set([
  ...["message_id", "to", "timestamp", ...alternateNames, "payload", "ttl", "delivery_hint", "tag", "context"],
  ...[...headerNames, ...chunkNames, ...senderNames],
]);

function refuseUnknown(members: JsonObject, errors: InputError[]): void {
  for (const name of Object.keys(members))
    if (!memberNames.has(name)) errors.push({ pointer: pointerTo(name), message: "is not a member of an envelope" });
}

function hasAny(members: JsonObject, names: readonly string[]): boolean {
  return names.some((name) => members[name] !== undefined);
}

/** RFC 6901; to the parent where the name is too long to repeat. Cutting it could halve a character. */
function pointerTo(name: string): string {
  return name.length > pointerNameCharsMax ? "" : jsonPointer(name);
}

/** Which of the two names of a member was sent; both together are refused. */
function chosenName(members: JsonObject, name: string, alternate: string, errors: InputError[]): string {
  if (members[alternate] === undefined) return name;
  if (members[name] !== undefined)
    errors.push({ pointer: `/${alternate}`, message: `cannot be combined with ${name}` });
  return alternate;
}

/** The text of a required member. */
function requiredText(members: JsonObject, name: string, errors: InputError[]): string | null {
  const value = members[name];
  if (typeof value === "string") return value;
  errors.push({ pointer: `/${name}`, message: value === undefined ? "is missing" : "must be a string" });
  return null;
}

/** The text of an optional member; `null` when it is absent, and when it is not text, which is an error. */
function optionalText(members: JsonObject, name: string, errors: InputError[]): string | null {
  return members[name] === undefined ? null : requiredText(members, name, errors);
}

/** What a tag must be, in words. */
export const tagForm = `1 to ${tagBytesMax} bytes without control characters`;

type TextForm<T> = { readonly parse: (text: string) => T | null; readonly must: string; readonly isOptional?: true };

const uuidForm = { parse: parseUuid, must: "must be a UUID and not the nil UUID" };
const didForm: TextForm<Did> = {
  parse: (text) => (isDid(text) ? text : null),
  must: "must be did:svc: and 16 to 96 base58btc characters",
};
const timestampForm = {
  parse: parseTimestamp,
  must: "must be ISO-8601 with seconds and a zone, or epoch digits, as text",
};
const ttlForm = { parse: parseDuration, must: "must be a duration of 1 second to 30 days", isOptional: true } as const;
const tagTextForm: TextForm<string> = {
  parse: (text) => (isTag(text) ? text : null),
  must: `must be ${tagForm}`,
  isOptional: true,
};

/** The value of a member that is text of a form; `null` where it is absent or breaks the form, which is an error. */
function readText<T>(members: JsonObject, name: string, form: TextForm<T>, errors: InputError[]): T | null {
  const text = (form.isOptional ? optionalText : requiredText)(members, name, errors);
  const value = text === null ? null : form.parse(text);
  if (text !== null && value === null) errors.push({ pointer: `/${name}`, message: form.must });
  return value;
}

export function isTag(text: string): boolean {
  const length = text.length > tagBytesMax ? text.length : utf8(text).length;
  return length >= 1 && length <= tagBytesMax && !/[\u0000-\u001f\u007f-\u009f]/.test(text);
}

/** The size of the payload. Only `ciphertext_b64` is read; all other members are opaque. */
function readPayload(members: JsonObject, errors: InputError[]): number | null {
  const payload = members["payload"];
  if (!isJsonObject(payload)) {
    errors.push({ pointer: "/payload", message: payload === undefined ? "is missing" : "must be an object" });
    return null;
  }
  const ciphertext = payload["ciphertext_b64"];
  if (ciphertext === undefined) return utf8(JSON.stringify(payload)).length;
  const bytes = typeof ciphertext === "string" ? (decodeBase64(ciphertext)?.length ?? null) : null;
  if (bytes === null) errors.push({ pointer: "/payload/ciphertext_b64", message: "must be standard Base64, padded" });
  return bytes;
}

const hints: readonly string[] = ["standard", "chunked", "direct", "cache"];

function readHint(
  members: JsonObject,
  chunk: { readonly named: boolean; readonly valid: boolean },
  errors: InputError[],
): DeliveryHint {
  const text = optionalText(members, "delivery_hint", errors);
  if (text !== null && !hints.includes(text))
    errors.push({ pointer: "/delivery_hint", message: `must be one of ${hints.join(", ")}` });
  else if (text === "chunked" && !chunk.named)
    errors.push({ pointer: "/delivery_hint", message: "is chunked without chunk members" });
  else if (text !== "chunked" && chunk.valid)
    errors.push({ pointer: "/delivery_hint", message: "must be chunked when the envelope has chunk members" });
  return (text ?? "standard") as DeliveryHint;
}

// ---------------------------------------------------------------------------------------------- groups

/** The decoded header: from the four flat members together, or from exactly these in `context`. */
function readHeader(members: JsonObject, errors: InputError[]): Uint8Array | null {
  const flat = headerNames.filter((name) => members[name] !== undefined);
  const context = members["context"];
  if (context === undefined) {
    if (flat.some((name) => name !== "schema_version")) return readHeaderGroup(members, "", errors);
    if (flat.length > 0) readSchemaVersion(members, "", errors);
    return null;
  }
  if (!isJsonObject(context)) {
    errors.push({ pointer: "/context", message: "must be an object" });
    return null;
  }
  for (const name of flat) errors.push({ pointer: `/${name}`, message: "cannot be combined with context" });
  for (const name of Object.keys(context))
    if (!(headerNames as readonly string[]).includes(name))
      errors.push({ pointer: `/context${pointerTo(name)}`, message: "is not a member of context" });
  return readHeaderGroup(context, "/context", errors);
}

function readHeaderGroup(group: JsonObject, at: string, errors: InputError[]): Uint8Array | null {
  const header = readBase64(group, { name: "encrypted_header", at }, errors);
  const nonce = readBase64(group, { name: "header_nonce", at }, errors);
  if (nonce !== null && nonce.length > headerNonceBytesMax)
    errors.push({ pointer: `${at}/header_nonce`, message: `must be at most ${headerNonceBytesMax} bytes` });
  const keyId = group["header_key_id"];
  if (typeof keyId !== "string" || keyId.length < 1 || keyId.length > headerKeyIdCharsMax)
    errors.push({ pointer: `${at}/header_key_id`, message: `must be text of 1 to ${headerKeyIdCharsMax} characters` });
  readSchemaVersion(group, at, errors);
  return header;
}

function readSchemaVersion(group: JsonObject, at: string, errors: InputError[]): void {
  if (group["schema_version"] !== "1") errors.push({ pointer: `${at}/schema_version`, message: 'must be "1"' });
}

/** Base64 of at least one byte. */
function readBase64(group: JsonObject, member: { name: string; at: string }, errors: InputError[]): Uint8Array | null {
  const text = group[member.name];
  const bytes = typeof text === "string" && text.length > 0 ? decodeBase64(text) : null;
  if (bytes === null)
    errors.push({ pointer: `${member.at}/${member.name}`, message: "must be standard Base64, padded" });
  return bytes;
}

function readChunk(members: JsonObject, errors: InputError[]): Envelope["chunk"] {
  const groupId = readText(members, "message_group_id", uuidForm, errors);
  const total = readCount(members["total_chunks"], { from: 1, to: chunksMax });
  if (total === null) errors.push({ pointer: "/total_chunks", message: `must be an integer from 1 to ${chunksMax}` });
  const sequence = readCount(members["sequence_number"], { from: 0, to: (total ?? chunksMax) - 1 });
  if (sequence === null)
    errors.push({ pointer: "/sequence_number", message: "must be an integer from 0 and below total_chunks" });
  return groupId === null || total === null || sequence === null ? null : { groupId, sequence, total };
}

function readCount(value: JsonValue | undefined, range: { from: number; to: number }): number | null {
  if (typeof value !== "number" || !Number.isInteger(value)) return null;
  // Adding 0 turns -0 into 0.
  return value >= range.from && value <= range.to ? value + 0 : null;
}

function readSender(members: JsonObject, errors: InputError[]): Omit<EnvelopeSender, "signedBytes"> | null {
  const from = readText(members, "from", didForm, errors);
  const keyText = requiredText(members, "sender_key_id", errors);
  const keyId = from === null || keyText === null || keyText.startsWith("#") ? null : parseDidUrl(keyText, from);
  if (keyText !== null && from !== null && keyId === null)
    errors.push({ pointer: "/sender_key_id", message: "must be an absolute id of a method of from" });
  const text = requiredText(members, "sender_signature", errors);
  const signature = text === null ? null : decodeBase64(text);
  if (text !== null && signature?.length !== signatureBytes)
    errors.push({ pointer: "/sender_signature", message: `must be Base64 of ${signatureBytes} bytes` });
  return from === null || keyId === null || signature === null ? null : { from, keyId, signature };
}

// ----------------------------------------------------------------------------------- sizes, normal form

type Sizes = { readonly payloadBytes: number; readonly header: Uint8Array | null; readonly chunked: boolean };

function checkSizes(sizes: Sizes, limits: EnvelopeLimits): Fault | null {
  const payloadBytesMax = sizes.chunked ? limits.chunk_bytes_max : limits.unchunked_bytes_max;
  if (sizes.payloadBytes > payloadBytesMax)
    return tooLarge(sizes.chunked ? "the chunk" : "the payload", payloadBytesMax);
  if ((sizes.header?.length ?? 0) > limits.header_bytes_max) return tooLarge("the header", limits.header_bytes_max);
  return null;
}

function tooLarge(what: string, bytesMax: number): Fault {
  return fault("too_large", `${what} is larger than ${bytesMax} bytes`);
}

function invalidEnvelope(errors: readonly InputError[]): Fault {
  const first = errors[0] ?? { pointer: "", message: "is not acceptable" };
  const detail = `${first.pointer === "" ? "envelope" : first.pointer}: ${first.message}`;
  return fault("envelope_invalid", detail, { errors: errors.slice(0, errorsMax) });
}

const normalNames: Readonly<Record<string, string>> = { recipient: '"to"', created_at: '"timestamp"' };

/** The sender's text with the alternate names replaced where they stand. */
function normalBytes(text: string): Uint8Array {
  let normal = "";
  let kept = 0;
  for (const { start, end } of outerNameSpans(text)) {
    const name = normalNames[JSON.parse(text.slice(start, end)) as string];
    if (name === undefined) continue;
    normal += text.slice(kept, start) + name;
    kept = end;
  }
  return utf8(normal + text.slice(kept));
}
