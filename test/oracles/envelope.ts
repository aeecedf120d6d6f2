/**
 * A deliberate copy: the first decoder of envelopes, to compare `src/core/message/envelope.ts`
 * with. From the bytes of a request to one normal form, by the rules of the outer format. The
 * payload stays opaque, and the sender's bytes stay as they are except the two alternate names.
 * Source: interface "DDN envelope", rules section 2.
 */
import { decodeBase64, signatureBytes, utf8 } from "../../src/core/codec/bytes.ts";
import { type Did, isDid, parseDidUrl, parseUuid, type Uuid } from "../../src/core/codec/did.ts";
import {
  badInput,
  type Fault,
  fault,
  type InputError,
  isFault,
  pointerNameCharsMax,
} from "../../src/core/fault.ts";
import type {
  DeliveryHint,
  Envelope,
  EnvelopeLimits,
  EnvelopeSender,
} from "../../src/core/message/envelope.ts";
import { encodeSenderText } from "../../src/core/message/proof.ts";
import { isJsonObject, type JsonObject, type JsonValue, outerNameSpans, readJson } from "./json.ts";
import { parseDuration, parseTimestamp } from "./time.ts";

const chunksMax = 65_535;
const tagBytesMax = 96;
/** Bounds of members that the interface leaves without one. */
const headerKeyIdCharsMax = 256;
const headerNonceBytesMax = 64;
const errorsMax = 32;

/**
 * Refuses with `too_large` (body, header, payload, chunk), `invalid_json`, or `envelope_invalid`
 * with every rule that is broken. Looks at no clock.
 */
export function decodeEnvelope(body: Uint8Array, limits: EnvelopeLimits): Envelope | Fault {
  if (body.length > limits.body_bytes_max) return tooLarge("the body", limits.body_bytes_max);
  const reading = readJson(body);
  if (isFault(reading)) return reading;
  if (!isJsonObject(reading.value))
    return badInput("envelope_invalid", "", "must be a JSON object");
  const members = reading.value;
  const errors: InputError[] = [];
  refuseUnknownMembers(members, errors);
  if (reading.unsafeInteger)
    errors.push({ pointer: "", message: "holds an integer beyond ±(2^53 - 1)" });
  const messageId = readUuid(members, "message_id", errors);
  const to = readDid(members, chosenName(members, ["to", "recipient"], errors), errors);
  const timestampMs = readTimestamp(
    members,
    chosenName(members, ["timestamp", "created_at"], errors),
    errors,
  );
  const ttlMs = readTtl(members, errors);
  const tag = readTag(members, errors);
  const payloadBytes = readPayload(members, errors);
  const header = readHeader(members, errors);
  const chunk = readChunk(members, errors);
  const hint = readHint(members, chunk !== null, errors);
  const sender = readSender(members, errors);
  if (
    errors.length > 0 ||
    messageId === null ||
    to === null ||
    timestampMs === null ||
    payloadBytes === null
  )
    return invalidEnvelope(errors);
  const sizeFault = decideSizes({ payloadBytes, header, chunked: chunk !== null }, limits);
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
    bytes: normalBytes(body, members, reading.text),
  };
}

// ----------------------------------------------------------------------------------------- members

const memberNames = new Set([
  "message_id",
  "to",
  "recipient",
  "timestamp",
  "created_at",
  "payload",
  "ttl",
  "delivery_hint",
  "encrypted_header",
  "header_nonce",
  "header_key_id",
  "schema_version",
  "context",
  "message_group_id",
  "sequence_number",
  "total_chunks",
  "tag",
  "from",
  "sender_key_id",
  "sender_signature",
]);

function refuseUnknownMembers(members: JsonObject, errors: InputError[]): void {
  for (const name of Object.keys(members))
    if (!memberNames.has(name))
      errors.push({ pointer: pointerTo(name), message: "is not a member of an envelope" });
}

/**
 * RFC 6901; to the parent where the name is too long to repeat. Cutting it could halve a character.
 */
function pointerTo(name: string): string {
  if (name.length > pointerNameCharsMax) return "";
  return `/${name.replaceAll("~", "~0").replaceAll("/", "~1")}`;
}

/** Which of the two names of a member was sent; both together are refused. */
function chosenName(
  members: JsonObject,
  names: readonly [string, string],
  errors: InputError[],
): string {
  const [name, alternate] = names;
  if (!Object.hasOwn(members, alternate)) return name;
  if (Object.hasOwn(members, name))
    errors.push({ pointer: `/${alternate}`, message: `cannot be combined with ${name}` });
  return alternate;
}

/** A member that must be there and be text. */
function requiredText(members: JsonObject, name: string, errors: InputError[]): string | null {
  const value = members[name];
  if (typeof value === "string") return value;
  errors.push({
    pointer: `/${name}`,
    message: value === undefined ? "is missing" : "must be a string",
  });
  return null;
}

/**
 * Text of a member that may be absent: `null` then, and also when it is not text (which is an
 * error).
 */
function optionalText(members: JsonObject, name: string, errors: InputError[]): string | null {
  return members[name] === undefined ? null : requiredText(members, name, errors);
}

function readUuid(members: JsonObject, name: string, errors: InputError[]): Uuid | null {
  const text = requiredText(members, name, errors);
  if (text === null) return null;
  const uuid = parseUuid(text);
  if (uuid === null)
    errors.push({ pointer: `/${name}`, message: "must be a UUID and not the nil UUID" });
  return uuid;
}

function readDid(members: JsonObject, name: string, errors: InputError[]): Did | null {
  const text = requiredText(members, name, errors);
  if (text === null || isDid(text)) return text;
  errors.push({
    pointer: `/${name}`,
    message: "must be did:svc: and 16 to 96 base58btc characters",
  });
  return null;
}

function readTimestamp(members: JsonObject, name: string, errors: InputError[]): number | null {
  const text = requiredText(members, name, errors);
  if (text === null) return null;
  const ms = parseTimestamp(text);
  if (ms === null)
    errors.push({
      pointer: `/${name}`,
      message: "must be ISO-8601 with seconds and a zone, or epoch digits, as text",
    });
  return ms;
}

function readTtl(members: JsonObject, errors: InputError[]): number | null {
  const text = optionalText(members, "ttl", errors);
  if (text === null) return null;
  const ms = parseDuration(text);
  if (ms === null)
    errors.push({ pointer: "/ttl", message: "must be a duration of 1 second to 30 days" });
  return ms;
}

function readTag(members: JsonObject, errors: InputError[]): string | null {
  const text = optionalText(members, "tag", errors);
  if (text === null) return null;
  if (!isTag(text)) errors.push({ pointer: "/tag", message: `must be ${tagForm}` });
  return text;
}

/** What a tag must be, in words. */
const tagForm = `1 to ${tagBytesMax} bytes without control characters`;

function isTag(text: string): boolean {
  const length = text.length > tagBytesMax ? text.length : utf8(text).length;
  return length >= 1 && length <= tagBytesMax && !/[\u0000-\u001f\u007f-\u009f]/.test(text);
}

/** The size of the payload. Only `ciphertext_b64` is looked at; all other members are opaque. */
function readPayload(members: JsonObject, errors: InputError[]): number | null {
  const payload = members["payload"];
  if (!isJsonObject(payload)) {
    errors.push({
      pointer: "/payload",
      message: payload === undefined ? "is missing" : "must be an object",
    });
    return null;
  }
  const ciphertext = payload["ciphertext_b64"];
  if (ciphertext === undefined) return utf8(JSON.stringify(payload)).length;
  const bytes = typeof ciphertext === "string" ? decodeBase64(ciphertext) : null;
  if (bytes === null)
    errors.push({ pointer: "/payload/ciphertext_b64", message: "must be standard Base64, padded" });
  return bytes?.length ?? null;
}

const hints: readonly string[] = ["standard", "chunked", "direct", "cache"];

function readHint(members: JsonObject, chunked: boolean, errors: InputError[]): DeliveryHint {
  const text = optionalText(members, "delivery_hint", errors);
  const chunkNamed = chunkNames.some((name) => members[name] !== undefined);
  if (text !== null && !hints.includes(text))
    errors.push({ pointer: "/delivery_hint", message: `must be one of ${hints.join(", ")}` });
  else if (text === "chunked" && !chunkNamed)
    errors.push({ pointer: "/delivery_hint", message: "is chunked without chunk members" });
  else if (text !== "chunked" && chunked)
    errors.push({
      pointer: "/delivery_hint",
      message: "must be chunked when the envelope has chunk members",
    });
  return (text ?? "standard") as DeliveryHint;
}

// ------------------------------------------------------------------------------------------ groups

const headerNames = [
  "encrypted_header",
  "header_nonce",
  "header_key_id",
  "schema_version",
] as const;

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
  for (const name of flat)
    errors.push({ pointer: `/${name}`, message: "cannot be combined with context" });
  for (const name of Object.keys(context))
    if (!(headerNames as readonly string[]).includes(name))
      errors.push({ pointer: `/context${pointerTo(name)}`, message: "is not a member of context" });
  return readHeaderGroup(context, "/context", errors);
}

function readHeaderGroup(group: JsonObject, at: string, errors: InputError[]): Uint8Array | null {
  const header = readBase64(group, { name: "encrypted_header", at }, errors);
  const nonce = readBase64(group, { name: "header_nonce", at }, errors);
  if (nonce !== null && nonce.length > headerNonceBytesMax)
    errors.push({
      pointer: `${at}/header_nonce`,
      message: `must be at most ${headerNonceBytesMax} bytes`,
    });
  const keyId = group["header_key_id"];
  if (typeof keyId !== "string" || keyId.length < 1 || keyId.length > headerKeyIdCharsMax)
    errors.push({
      pointer: `${at}/header_key_id`,
      message: `must be text of 1 to ${headerKeyIdCharsMax} characters`,
    });
  readSchemaVersion(group, at, errors);
  return header;
}

function readSchemaVersion(group: JsonObject, at: string, errors: InputError[]): void {
  if (group["schema_version"] !== "1")
    errors.push({ pointer: `${at}/schema_version`, message: 'must be "1"' });
}

/** Base64 of at least one byte. */
function readBase64(
  group: JsonObject,
  member: { name: string; at: string },
  errors: InputError[],
): Uint8Array | null {
  const text = group[member.name];
  const bytes = typeof text === "string" && text.length > 0 ? decodeBase64(text) : null;
  if (bytes === null)
    errors.push({
      pointer: `${member.at}/${member.name}`,
      message: "must be standard Base64, padded",
    });
  return bytes;
}

const chunkNames = ["message_group_id", "sequence_number", "total_chunks"] as const;

function readChunk(members: JsonObject, errors: InputError[]): Envelope["chunk"] {
  if (chunkNames.every((name) => members[name] === undefined)) return null;
  const groupId = readUuid(members, "message_group_id", errors);
  const total = readCount(members["total_chunks"], { from: 1, to: chunksMax });
  if (total === null)
    errors.push({ pointer: "/total_chunks", message: `must be an integer from 1 to ${chunksMax}` });
  const sequence = readCount(members["sequence_number"], { from: 0, to: (total ?? chunksMax) - 1 });
  if (sequence === null)
    errors.push({
      pointer: "/sequence_number",
      message: "must be an integer from 0 and below total_chunks",
    });
  return groupId === null || total === null || sequence === null
    ? null
    : { groupId, sequence, total };
}

function readCount(
  value: JsonValue | undefined,
  range: { from: number; to: number },
): number | null {
  if (typeof value !== "number" || !Number.isInteger(value)) return null;
  // Adding 0 turns -0 into 0.
  return value >= range.from && value <= range.to ? value + 0 : null;
}

const senderNames = ["from", "sender_key_id", "sender_signature"] as const;

function readSender(
  members: JsonObject,
  errors: InputError[],
): Omit<EnvelopeSender, "signedBytes"> | null {
  if (senderNames.every((name) => members[name] === undefined)) return null;
  const from = readDid(members, "from", errors);
  const keyText = requiredText(members, "sender_key_id", errors);
  const keyId =
    from === null || keyText === null || keyText.startsWith("#")
      ? null
      : parseDidUrl(keyText, from);
  if (keyText !== null && from !== null && keyId === null)
    errors.push({
      pointer: "/sender_key_id",
      message: "must be an absolute id of a method of from",
    });
  const text = requiredText(members, "sender_signature", errors);
  const signature = text === null ? null : decodeBase64(text);
  if (text !== null && signature?.length !== signatureBytes)
    errors.push({
      pointer: "/sender_signature",
      message: `must be Base64 of ${signatureBytes} bytes`,
    });
  return from === null || keyId === null || signature === null ? null : { from, keyId, signature };
}

// ------------------------------------------------------------------------------ sizes, normal form

type Sizes = {
  readonly payloadBytes: number;
  readonly header: Uint8Array | null;
  readonly chunked: boolean;
};

function decideSizes(sizes: Sizes, limits: EnvelopeLimits): Fault | null {
  const payloadBytesMax = sizes.chunked ? limits.chunk_bytes_max : limits.unchunked_bytes_max;
  if (sizes.payloadBytes > payloadBytesMax)
    return tooLarge(sizes.chunked ? "the chunk" : "the payload", payloadBytesMax);
  if ((sizes.header?.length ?? 0) > limits.header_bytes_max)
    return tooLarge("the header", limits.header_bytes_max);
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

const normalNames: Readonly<Record<string, string>> = {
  recipient: '"to"',
  created_at: '"timestamp"',
};

/**
 * The sender's bytes with the alternate names replaced where they stand; without these, no copy is
 * made.
 */
function normalBytes(body: Uint8Array, members: JsonObject, text: string): Uint8Array {
  if (members["recipient"] === undefined && members["created_at"] === undefined) return body;
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
