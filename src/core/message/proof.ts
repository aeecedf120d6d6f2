/**
 * Proofs that travel with a request: what clients sign for Cache retrieval, live sessions, Directory updates and
 * envelopes, and what a Cache signs for its events. Checking takes two pure steps: `decode…` checks
 * form, time and endpoint without knowing the DID; `decide…` checks what the DID publishes and returns a replay claim.
 * The operation runs only after that claim was won. The order of checks is law: it decides what an outsider can learn.
 * Source: interface "Signed Cache proof", rules sections 2, 3, 4, 6 and 10 ("Live sessions").
 */
import canonicalize from "canonicalize";
import { sha256 } from "#sha256";
import { decodeBase64, encodeHex, encodeHex0x, signatureBytes, utf8 } from "../codec/bytes.ts";
import { verifyEd25519, verifyEd25519InPool } from "../codec/crypto.ts";
import type { Did } from "../codec/did.ts";
import type { JsonObject, JsonValue } from "../codec/json.ts";
import { parseTimestamp, secondMs } from "../codec/time.ts";
import { type Fault, fault, isFault, withSignedText } from "../fault.ts";
import type { DidDocument } from "../ledger/account.ts";
import { keyFor } from "../ledger/document.ts";
import { isSelfCertifying } from "../trust/names.ts";

export type RetrievalOperation = "pull" | "ack" | "chunks" | "summary" | "pull_message" | "push" | "connect";

/** The values of a retrieval proof as texts, exactly as sent: lines 2 to 10. */
export type RetrievalClaims = {
  readonly operation: RetrievalOperation;
  readonly did: Did;
  readonly deviceId: string;
  readonly serviceId: string;
  readonly endpoint: string;
  readonly keyId: string;
  readonly timestamp: string;
  readonly nonce: string;
  readonly subject: string;
};

/** The ten lines that a retrieval, an acknowledgement or a live session is signed with. */
export function encodeRetrievalProof(claims: RetrievalClaims): Uint8Array {
  return encodeLines([
    "svc:cache:retrieval-proof:v1",
    `operation=${claims.operation}`,
    `did=${claims.did}`,
    `device_id=${claims.deviceId}`,
    `service_id=${claims.serviceId}`,
    `cache_endpoint=${claims.endpoint}`,
    `key_id=${claims.keyId}`,
    `timestamp=${claims.timestamp}`,
    `nonce=${claims.nonce}`,
    `subject=${claims.subject}`,
  ]);
}

/** `operation` is the extrinsic that the update leads to; the body counts by its bytes as sent. */
type UpdateClaims = {
  readonly operation: string;
  readonly did: Did;
  readonly keyId: string;
  readonly timestamp: string;
  readonly nonce: string;
  /** The ledger's genesis hash as sent, in hex with `0x`; `null` in version 1, which names no ledger. */
  readonly ledger: string | null;
  readonly body: Uint8Array;
};

/** The lines that a Directory update without a SCALE payload is signed with. */
export function encodeUpdateProof(claims: UpdateClaims): Uint8Array {
  return encodeLines([
    `svc:directory:update-proof:${claims.ledger === null ? "v1" : "v2"}`,
    `operation=${claims.operation}`,
    `did=${claims.did}`,
    `key_id=${claims.keyId}`,
    `timestamp=${claims.timestamp}`,
    `nonce=${claims.nonce}`,
    `body_sha256=${encodeHex(sha256(claims.body))}`,
    ...(claims.ledger === null ? [] : [`ledger=${claims.ledger}`]),
  ]);
}

type EventClaims = {
  readonly eventType: "delivery" | "retrieval";
  readonly messageId: string;
  readonly recipientDid: Did;
  readonly timestamp: string;
  readonly reason: string | null;
  readonly endpoint: string;
};

/** The lines that a Cache signs its own events with. */
export function encodeEventProof(claims: EventClaims): Uint8Array {
  return encodeLines([
    "svc:cache:event-proof:v1",
    `event_type=${claims.eventType}`,
    `message_id=${claims.messageId}`,
    `recipient_did=${claims.recipientDid}`,
    `timestamp=${claims.timestamp}`,
    `reason=${claims.reason ?? ""}`,
    `cache_endpoint=${claims.endpoint}`,
  ]);
}

/** Joined by line feeds, none at the end. Values hold no control characters: `isLineValue`. */
function encodeLines(lines: readonly string[]): Uint8Array {
  return utf8(lines.join("\n"));
}

/** The ids of an acknowledgement: trimmed, blanks and duplicates removed, sorted by code unit, as they were sent. */
export function ackIds(messageIds: readonly string[]): string[] {
  const ids = messageIds.map((id) => id.trim()).sort();
  return ids.filter((id, i) => id !== "" && id !== ids[i - 1]);
}

/** The subject of an acknowledgement: its ids, joined by commas. */
export function ackSubject(messageIds: readonly string[]): string {
  return ackIds(messageIds).join(",");
}

/** Equal but for slashes at the end; nothing else is normalized. */
export function sameEndpoint(a: string, b: string): boolean {
  return a === b || withoutTrailingSlashes(a) === withoutTrailingSlashes(b);
}

export function withoutTrailingSlashes(endpoint: string): string {
  let end = endpoint.length;
  while (end > 0 && endpoint.charCodeAt(end - 1) === 0x2f) end--;
  return endpoint.slice(0, end);
}

// ------------------------------------------------------------------------------------------ form and time

export const updateHeaders = {
  keyId: "X-Key-Id",
  timestamp: "X-Timestamp",
  nonce: "X-Nonce",
  signature: "X-Signature",
} as const;

export const retrievalHeaders = {
  serviceId: "X-Service-Id",
  endpoint: "X-Cache-Endpoint",
  ...updateHeaders,
} as const;

/** The names under which a client sends the values, in headers, a body or a frame. */
export type ProofNames = Readonly<Record<keyof typeof retrievalHeaders, string>>;
/** Reads a value by its name; `null` or empty where the client sent nothing. */
type ReadValue = (name: string) => string | null;

/** Names the ledger that an update proof of version 2 is for. */
export const ledgerHeader = "X-Ledger";

/** Body members of an acknowledgement. */
export const ackMembers: ProofNames = {
  serviceId: "service_id",
  endpoint: "cache_endpoint",
  keyId: "key_id",
  timestamp: "timestamp",
  nonce: "nonce",
  signature: "signature_b64",
};

/** Reads members of a JSON object. A member that is not text counts as absent. */
export function memberReader(members: JsonObject): ReadValue {
  return (name) => {
    const value = members[name];
    return typeof value === "string" ? value : null;
  };
}

/** What the route fixes: the lines that the client does not choose, and whose service must authorize. */
export type RetrievalRule = {
  readonly operation: RetrievalOperation;
  readonly did: Did;
  /** Empty when the operation has none. */
  readonly deviceId: string;
  readonly subject: string;
  readonly serviceType: "SvcCacheService" | "SvcRelayService";
  /** The public endpoints of this node; the proof must name one of them. */
  readonly endpoints: readonly string[];
  readonly skewMs: number;
  readonly names: ProofNames;
};

/** A proof in good form and in time, not yet checked against the DID. */
export type RetrievalProof = {
  readonly claims: RetrievalClaims;
  readonly signature: Uint8Array;
  readonly serviceType: RetrievalRule["serviceType"];
  readonly rememberUntilMs: number;
};

/** A tag of fixed length for the replay memory, and until when it must be remembered. */
export type ReplayClaim = { readonly tag: string; readonly untilMs: number };

const endpointCharsMax = 2_048;
export const deviceIdCharsMax = 128;
const nonceForm = /^[\x21-\x7e]{8,128}$/;

/**
 * In this order: a value is missing 401 `proof_missing`; timestamp, nonce or signature malformed, or a
 * control character in any value 401 `proof_invalid`; out of the skew 401 `proof_expired`; another
 * node's endpoint 403 `proof_not_authorized`.
 */
export function decodeRetrievalProof(read: ReadValue, rule: RetrievalRule, nowMs: number): RetrievalProof | Fault {
  const values = presentedValues(read, rule.names);
  if (isFault(values)) return values;
  const isText = isLineValue(values.serviceId) && isLineValue(values.endpoint) && isLineValue(values.keyId);
  if (!isText || !isLineValue(rule.deviceId) || rule.deviceId.length > deviceIdCharsMax) return malformed("a value");
  const form = decodeForm(values, rule.skewMs, nowMs);
  if (isFault(form)) return form;
  if (!rule.endpoints.some((endpoint) => sameEndpoint(endpoint, values.endpoint))) return otherEndpoint(rule, values);
  const { operation, did, deviceId, subject, serviceType } = rule;
  const { serviceId, endpoint, keyId, timestamp, nonce } = values;
  const claims = { operation, did, deviceId, serviceId, endpoint, keyId, timestamp, nonce, subject };
  const { signature, rememberUntilMs } = form;
  return { claims, signature, serviceType, rememberUntilMs };
}

/** Every value that the names list, or 401 `proof_missing` naming those that are not there. */
function presentedValues<K extends string>(read: ReadValue, names: Readonly<Record<K, string>>) {
  const values = {} as Record<K, string>;
  let isComplete = true;
  for (const key in names) {
    values[key] = read(names[key]) ?? "";
    if (values[key] === "") isComplete = false;
  }
  if (isComplete) return values;
  const missing = (Object.keys(names) as K[]).filter((key) => values[key] === "");
  return fault("proof_missing", `the proof lacks ${missing.map((key) => names[key]).join(", ")}`);
}

/** Text that can be a line of a signed text: bounded, and without control characters. */
export function isLineValue(text: string): boolean {
  return text.length <= endpointCharsMax && !/[\u0000-\u001f\u007f]/.test(text);
}

type ProofForm = { readonly signature: Uint8Array; readonly rememberUntilMs: number };

/** Timestamp, nonce and signature by their grammar, then the timestamp against the clock. */
function decodeForm(
  values: { readonly timestamp: string; readonly nonce: string; readonly signature: string },
  skewMs: number,
  nowMs: number,
): ProofForm | Fault {
  const timestampMs = parseTimestamp(values.timestamp);
  if (timestampMs === null) return malformed("the timestamp");
  if (!nonceForm.test(values.nonce)) return malformed("the nonce");
  // A text that is too long for a signature is not decoded.
  const signature = values.signature.length > 2 * signatureBytes ? null : decodeBase64(values.signature);
  if (signature?.length !== signatureBytes) return malformed("the signature");
  if (Math.abs(nowMs - timestampMs) > skewMs) return fault("proof_expired", "the timestamp is outside the clock skew");
  // The timestamp is fresh up to and including this plus the skew; one second more costs nothing.
  return { signature, rememberUntilMs: timestampMs + skewMs + secondMs };
}

function malformed(what: string): Fault {
  return fault("proof_invalid", `${what} of the proof is malformed`);
}

/** Reads no DID, so it reveals no more than `GET /node` does. */
function otherEndpoint({ endpoints }: RetrievalRule, { endpoint }: { readonly endpoint: string }): Fault {
  const own = endpoints.length === 0 ? "this node has no public endpoint" : `this node is ${endpoints.join(" or ")}`;
  return fault("proof_not_authorized", `the proof is made for ${endpoint}, and ${own}`);
}

/** One and the same refusal whatever a DID does not authorize, so that nothing can be probed. */
function notAuthorized(): Fault {
  return fault("proof_not_authorized", "the proof does not authorize this");
}

// ---------------------------------------------------------------------------------------------- decision

/** What is known of a DID; `null` when it does not exist. */
export type ProofSubject = { readonly document: DidDocument | null; readonly deactivated: boolean };

/**
 * Whether the DID authorizes the proof: it exists and is active, publishes the service with its type and
 * endpoint, the service lists the key, and the key made the signature. 403 `proof_not_authorized` or 401
 * `proof_invalid`; else the claim that must be won before the operation runs.
 */
export async function decideRetrievalProof(
  proof: RetrievalProof,
  subject: ProofSubject | null,
): Promise<ReplayClaim | Fault> {
  const signed = authorizedProof(proof, subject);
  if (isFault(signed)) return signed;
  const isValid = await verifyEd25519InPool(proof.signature, signed.text, signed.key);
  return isValid ? replayClaim(proof.claims, proof.rememberUntilMs) : wrongSignature(signed.text);
}

/** The text that the DID's key must have signed: everything but the signature is in order. */
function authorizedProof(
  { claims, serviceType }: RetrievalProof,
  subject: ProofSubject | null,
): { readonly text: Uint8Array; readonly key: Uint8Array } | Fault {
  if (subject === null || subject.deactivated || subject.document === null) return notAuthorized();
  const service = subject.document.service.find((candidate) => candidate.id === claims.serviceId);
  if (service === undefined || service.type !== serviceType) return notAuthorized();
  if (!service.serviceEndpoint.some((endpoint) => sameEndpoint(endpoint, claims.endpoint))) return notAuthorized();
  if (service.authorization === null || !service.authorization.includes(claims.keyId)) return notAuthorized();
  const key = keyFor(subject, claims.keyId, "service");
  if (key === null) return notAuthorized();
  return { text: encodeRetrievalProof(claims), key };
}

function wrongSignature(text: Uint8Array): Fault {
  return withSignedText(fault("proof_invalid", "the signature of the proof does not verify"), text);
}

/** 409 `proof_replayed`, for all but the winner of the claim. */
export function proofReplayed(): Fault {
  return fault("proof_replayed", "the nonce of the proof was used before");
}

/**
 * Nonces are single-use per operation, DID and key. The hash bounds a tag whatever was sent; the DID before it lets a store
 * of several databases keep the claim beside the mailbox.
 */
function replayClaim(
  claims: { readonly operation: string; readonly did: Did; readonly keyId: string; readonly nonce: string },
  untilMs: number,
): ReplayClaim {
  const text = JSON.stringify([claims.operation, claims.did, claims.keyId, claims.nonce]);
  return { tag: `proof:${claims.did}:${encodeHex(sha256(utf8(text)).subarray(0, 16))}`, untilMs };
}

// ------------------------------------------------------------------------------------------ update proofs

type UpdateRule = {
  readonly operation: string;
  readonly did: Did;
  readonly ledger: string | null;
  readonly body: Uint8Array;
  readonly skewMs: number;
};

export type UpdateProof = {
  readonly claims: UpdateClaims;
  readonly signature: Uint8Array;
  readonly rememberUntilMs: number;
};

/** As `decodeRetrievalProof`, for the four headers of a Directory update. */
export function decodeUpdateProof(read: ReadValue, rule: UpdateRule, nowMs: number): UpdateProof | Fault {
  const values = presentedValues(read, updateHeaders);
  if (isFault(values)) return values;
  if (!isLineValue(values.keyId)) return malformed("a value");
  const form = decodeForm(values, rule.skewMs, nowMs);
  if (isFault(form)) return form;
  const { operation, did, body, ledger } = rule;
  if (ledger === null && isSelfCertifying(did)) return fault("proof_missing", `the proof lacks ${ledgerHeader}`);
  const { keyId, timestamp, nonce } = values;
  return { claims: { operation, did, keyId, timestamp, nonce, body, ledger }, ...form };
}

/** What signs for a DID: `root`, or a method of the document that `authentication` lists. */
type UpdateSubject = ProofSubject & { readonly rootPubkey: Uint8Array | null };

/** 403 `proof_not_authorized` or 401 `proof_invalid`; else the claim that must be won first. */
export function decideUpdateProof(
  proof: UpdateProof,
  subject: UpdateSubject | null,
  genesisHash: Uint8Array,
): ReplayClaim | Fault {
  const { ledger } = proof.claims;
  if (ledger !== null && ledger !== encodeHex0x(genesisHash)) {
    return fault("proof_invalid", `the proof is for another ledger than ${encodeHex0x(genesisHash)}`);
  }
  if (subject === null || subject.deactivated) return notAuthorized();
  const key = keyFor(subject, proof.claims.keyId, "change");
  if (key === null) return notAuthorized();
  const text = encodeUpdateProof(proof.claims);
  if (!verifyEd25519(proof.signature, text, key)) return wrongSignature(text);
  return replayClaim(proof.claims, proof.rememberUntilMs);
}

// --------------------------------------------------------------------------------------------------- sender signature

/** Chunks of one message. */
export const chunksMax = 65_535;

/**
 * What a sender signs: the outer members of an envelope as text, one line each, with its opaque parts as hashes of their
 * canonical form. Clients build the same text. Absent members are empty text; `sender_signature` is left out.
 */
export function encodeSenderText(members: JsonObject): Uint8Array {
  const text = (name: string) => String(members[name] ?? "");
  const count = (name: string) => (typeof members[name] === "number" ? String(members[name] + 0) : "");
  const header = headerMembers(members);
  return utf8(
    [
      "svc:envelope-signature:v1",
      `message_id=${text("message_id")}`,
      `from=${text("from")}`,
      `to=${text(members["recipient"] === undefined ? "to" : "recipient")}`,
      `timestamp=${text(members["created_at"] === undefined ? "timestamp" : "created_at")}`,
      `ttl=${text("ttl")}`,
      `delivery_hint=${text("delivery_hint")}`,
      `tag=${text("tag")}`,
      `message_group_id=${text("message_group_id")}`,
      `sequence_number=${count("sequence_number")}`,
      `total_chunks=${count("total_chunks")}`,
      `header_sha256=${Object.keys(header).length === 0 ? "" : digestCanonical(header)}`,
      `payload_sha256=${digestCanonical(members["payload"] ?? {})}`,
      `key_id=${text("sender_key_id")}`,
    ].join("\n"),
  );
}

/** Those of the four header members that were sent, flat or in `context`. */
function headerMembers(members: JsonObject): JsonObject {
  const group = (members["context"] ?? members) as JsonObject;
  const header: JsonObject = {};
  for (const name of ["encrypted_header", "header_nonce", "header_key_id", "schema_version"])
    if (group[name] !== undefined) header[name] = group[name];
  return header;
}

/** Lower hex of SHA-256 over the JCS form (RFC 8785). Numbers are safe here: the envelope's decoder bounds them. */
export function digestCanonical(value: JsonValue): string {
  return encodeHex(sha256(utf8(canonicalize(value) ?? "")));
}
