/**
 * Proofs that travel with a request: what clients sign for Cache retrieval, live sessions,
 * Directory updates and envelopes, and what a Cache signs for its events. Checking takes
 * two pure steps: `decode…` checks form, time and endpoint without knowing the DID;
 * `decide…` checks what the DID publishes and returns a replay claim. The operation runs
 * only after that claim was won. The order of checks is law: it decides what an outsider
 * can learn.
 * Source: interface "Signed Cache proof", rules sections 2, 3, 4, 5 ("Live sessions")
 * and 6.
 */

import canonicalize from "canonicalize";
import { sha256 } from "#sha256";
import {
  decodeBase64,
  encodeHex,
  encodeHex0x,
  signatureBytes,
  utf8,
  type VerifySignature,
} from "../codec/bytes.ts";
import type { Did } from "../codec/did.ts";
import type { JsonObject, JsonValue } from "../codec/json.ts";
import { parseTimestamp, secondMs } from "../codec/time.ts";
import { type Fault, fault, isFault } from "../fault.ts";
import type { DidDocument, KeyPurpose } from "../ledger/account.ts";
import { keyFor } from "../ledger/document.ts";
import { isSelfCertifying } from "../ledger/names.ts";
import { withSignedText } from "./signed-text.ts";

// ------------------------------------------------------------------------------------ signed texts

/** Title with version, then a line `name=value` for each, joined by line feeds. Absent is empty. */
export function signedTextOf<const N extends string>(title: string, ...names: readonly N[]) {
  const lines = names.map((name) => {
    const line = lineNames[name] ?? name.replace(/[A-Z]/g, (c) => `_${c.toLowerCase()}`);
    return [name, `\n${line}=`] as const;
  });
  return (values: Readonly<Record<N, unknown>>): Uint8Array => {
    let text = title;
    for (const [name, start] of lines) text += `${start}${values[name] ?? ""}`;
    return utf8(text);
  };
}

const lineNames: Readonly<Record<string, string>> = { endpoint: "cache_endpoint" };

export type RetrievalOperation =
  | "pull"
  | "ack"
  | "chunks"
  | "summary"
  | "pull_message"
  | "stream"
  | "push"
  | "pass"
  | "keys"
  | "connect";

const retrievalLines = [
  "operation",
  "did",
  "deviceId",
  "serviceId",
  "endpoint",
  "keyId",
  "timestamp",
  "nonce",
  "subject",
] as const;
/** Texts, exactly as sent. */
export type RetrievalClaims = Readonly<Record<(typeof retrievalLines)[number], string>> & {
  readonly did: Did;
};

/** What a retrieval, an acknowledgement or a live session is signed with. */
export const encodeRetrievalProof: (claims: RetrievalClaims) => Uint8Array = signedTextOf(
  "svc:cache:retrieval-proof:v1",
  ...retrievalLines,
);

/** What a Cache signs its own events with. */
export const encodeEventProof = signedTextOf(
  "svc:cache:event-proof:v1",
  "eventType",
  "messageId",
  "recipientDid",
  "timestamp",
  "reason",
  "endpoint",
);

const updateLines = ["operation", "did", "keyId", "timestamp", "nonce", "bodySha256"] as const;
const updateText = signedTextOf("svc:directory:update-proof:v1", ...updateLines);
/** Names the ledger. */
const updateTextV2 = signedTextOf("svc:directory:update-proof:v2", ...updateLines, "ledger");

/** The `operation` by which a member invites a device. */
export const deviceOperation = "invite_device";

/** `operation` is the extrinsic that the update leads to; the body counts by its bytes as sent. */
type UpdateClaims = {
  readonly operation: string;
  readonly did: Did;
  readonly keyId: string;
  readonly timestamp: string;
  readonly nonce: string;
  /** The ledger's genesis hash as sent, in hex with `0x`; `null` in version 1. */
  readonly ledger: string | null;
  readonly body: Uint8Array;
};

/** What a Directory update without a SCALE payload is signed with. */
export function encodeUpdateProof({ body, ...claims }: UpdateClaims): Uint8Array {
  const values = { ...claims, bodySha256: encodeHex(sha256(body)) };
  return claims.ledger === null ? updateText(values) : updateTextV2(values);
}

const senderText = signedTextOf(
  "svc:envelope-signature:v1",
  ...["message_id", "from", "to", "timestamp", "ttl", "delivery_hint", "tag"],
  ...[
    "message_group_id",
    "sequence_number",
    "total_chunks",
    "header_sha256",
    "payload_sha256",
    "key_id",
  ],
);

/**
 * A member with two names; `null` where both are there: which of them a signature covers is
 * ambiguous.
 */
function eitherOf(members: JsonObject, name: string, other: string): JsonValue | undefined {
  if (members[name] !== undefined && members[other] !== undefined) return null;
  return members[name] ?? members[other];
}

/** As `eitherOf`. */
export const recipientIn = (members: JsonObject) => eitherOf(members, "to", "recipient");
export const timestampIn = (members: JsonObject) => eitherOf(members, "timestamp", "created_at");

/**
 * The outer members but `sender_signature` as text; the opaque parts as hashes of their
 * canonical form.
 */
export function encodeSenderText(members: JsonObject): Uint8Array {
  const header = headerMembers(members);
  return senderText({
    ...members,
    to: recipientIn(members),
    timestamp: timestampIn(members),
    header_sha256: Object.keys(header).length === 0 ? "" : digestCanonical(header),
    payload_sha256: digestCanonical(members["payload"] ?? {}),
    key_id: members["sender_key_id"],
  });
}

/** Those of the four header members that were sent, flat or in `context`. */
function headerMembers(members: JsonObject): JsonObject {
  const group = (members["context"] ?? members) as JsonObject;
  const names = ["encrypted_header", "header_nonce", "header_key_id", "schema_version"];
  return Object.fromEntries(
    names.flatMap((name) => (group[name] === undefined ? [] : [[name, group[name]]])),
  );
}

/**
 * Lower hex of SHA-256 over the JCS form (RFC 8785). Numbers are safe here: the envelope's
 * decoder bounds them.
 */
export function digestCanonical(value: JsonValue): string {
  return encodeHex(sha256(utf8(canonicalize(value) ?? "")));
}

/**
 * The ids of an acknowledgement: trimmed, blanks and duplicates removed, sorted by code
 * unit, as they were sent.
 */
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

// ----------------------------------------------------------------------------------- form and time

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

/**
 * What the route fixes: the lines that the client does not choose, and whose service must
 * authorize.
 */
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
type Proof<Claims> = {
  readonly claims: Claims;
  readonly signature: Uint8Array;
  readonly rememberUntilMs: number;
};
export type RetrievalProof = Proof<RetrievalClaims> & {
  readonly serviceType: RetrievalRule["serviceType"];
};
export type UpdateProof = Proof<UpdateClaims>;

/** A tag of fixed length for the replay memory, and until when it must be remembered. */
export type ReplayClaim = { readonly tag: string; readonly untilMs: number };

const endpointCharsMax = 2_048;
export const deviceIdCharsMax = 128;
const nonceForm = /^[\x21-\x7e]{8,128}$/;

/**
 * In this order: a value is missing 401 `proof_missing`; timestamp, nonce or signature
 * malformed, or a control character in any value 401 `proof_invalid`; out of the skew 401
 * `proof_expired`; another node's endpoint 403 `proof_not_authorized`.
 */
export function decodeRetrievalProof(
  read: ReadValue,
  rule: RetrievalRule,
  nowMs: number,
): RetrievalProof | Fault {
  const { operation, did, deviceId, subject, serviceType, endpoints } = rule;
  const isDevice = isLineValue(deviceId) && deviceId.length <= deviceIdCharsMax;
  const decoded = decodeValues(read, rule.names, { skewMs: rule.skewMs, nowMs });
  if (isFault(decoded)) return decoded;
  if (!isDevice) return malformed("the device id");
  const { texts, signature, rememberUntilMs } = decoded;
  const { serviceId, endpoint, keyId, timestamp, nonce } = texts;
  if (!endpoints.some((own) => sameEndpoint(own, endpoint))) {
    // Reads no DID, so it reveals no more than `GET /node` does.
    const own =
      endpoints.length === 0
        ? "this node has no public endpoint"
        : `this node is ${endpoints.join(" or ")}`;
    return fault("proof_not_authorized", `the proof is made for ${endpoint}, and ${own}`);
  }
  // Member by member: a spread costs more than the rest.
  const named = { operation, did, deviceId, serviceId, endpoint, keyId, timestamp, nonce, subject };
  return { claims: named, signature, serviceType, rememberUntilMs };
}

/** The same for the four headers of a Directory update. */
export function decodeUpdateProof(
  read: ReadValue,
  {
    skewMs,
    ...known
  }: Pick<UpdateClaims, "operation" | "did" | "ledger" | "body"> & { readonly skewMs: number },
  nowMs: number,
): UpdateProof | Fault {
  const decoded = decodeValues(read, updateHeaders, { skewMs, nowMs });
  if (isFault(decoded)) return decoded;
  if (known.ledger === null && isSelfCertifying(known.did))
    return fault("proof_missing", `the proof lacks ${ledgerHeader}`);
  const { texts, signature, rememberUntilMs } = decoded;
  const { keyId, timestamp, nonce } = texts;
  return { claims: { ...known, keyId, timestamp, nonce }, signature, rememberUntilMs };
}

type DecodedProof<K extends string> = Omit<Proof<never>, "claims"> & {
  readonly texts: Readonly<Record<K, string>>;
};

/** Every value that the names list is there and has its form, and the timestamp is in time. */
function decodeValues<K extends keyof typeof updateHeaders | keyof typeof retrievalHeaders>(
  read: ReadValue,
  names: Readonly<Record<K, string>>,
  { skewMs, nowMs }: { readonly skewMs: number; readonly nowMs: number },
): DecodedProof<K> | Fault {
  const texts = {} as Record<K | keyof typeof updateHeaders, string>;
  for (const key in names) texts[key] = read(names[key]) ?? "";
  const missing = (Object.keys(names) as K[]).filter((key) => texts[key] === "");
  if (missing.length > 0)
    return fault("proof_missing", `the proof lacks ${missing.map((key) => names[key]).join(", ")}`);
  for (const key in names)
    if (key !== "signature" && !isLineValue(texts[key])) return malformed("a value");
  const timestampMs = parseTimestamp(texts.timestamp);
  if (timestampMs === null) return malformed("the timestamp");
  if (!nonceForm.test(texts.nonce)) return malformed("the nonce");
  const signature = decodeSignature(texts.signature);
  if (signature === null) return malformed("the signature");
  if (Math.abs(nowMs - timestampMs) > skewMs)
    return fault("proof_expired", "the timestamp is outside the clock skew");
  // The timestamp is fresh up to and including this plus the skew; one second more costs nothing.
  return { texts, signature, rememberUntilMs: timestampMs + skewMs + secondMs };
}

function decodeSignature(text: string): Uint8Array | null {
  // A text that is too long for a signature is not decoded.
  const signature = text.length > 2 * signatureBytes ? null : decodeBase64(text);
  return signature?.length === signatureBytes ? signature : null;
}

/** Text that can be a line of a signed text: bounded, and without control characters. */
export function isLineValue(text: string): boolean {
  return text.length <= endpointCharsMax && !/[\u0000-\u001f\u007f]/.test(text);
}

function malformed(what: string): Fault {
  return fault("proof_invalid", `${what} of the proof is malformed`);
}

// ---------------------------------------------------------------------------------------- decision

/**
 * What is known of a DID; `null` when it does not exist. A key for changes is also its root
 * key.
 */
export type ProofSubject = {
  readonly document: DidDocument | null;
  readonly deactivated: boolean;
  readonly rootPubkey?: Uint8Array | null;
};

/**
 * Whether the DID authorizes the proof: it exists and is active, publishes the service with
 * its type and endpoint, the service lists the key, and the key made the signature. 403
 * `proof_not_authorized` or 401 `proof_invalid`; else the claim that must be won before the
 * operation runs.
 */
export function decideRetrievalProof(
  proof: RetrievalProof,
  subject: ProofSubject | null,
  verify: VerifySignature,
): Promise<ReplayClaim | Fault> {
  const { claims, serviceType } = proof;
  const service = subject?.document?.service.find(({ id }) => id === claims.serviceId);
  const isAuthorized =
    service?.type === serviceType &&
    service.serviceEndpoint.some((endpoint) => sameEndpoint(endpoint, claims.endpoint)) &&
    service.authorization?.includes(claims.keyId) === true;
  return decideSigned(
    proof,
    isAuthorized ? activeKey(subject, claims.keyId, "service") : null,
    encodeRetrievalProof,
    verify,
  );
}

/** The same for what signs for the DID itself: `root`, or a method that `authentication` lists. */
export async function decideUpdateProof(
  proof: UpdateProof,
  subject: ProofSubject | null,
  genesisHash: Uint8Array,
  verify: VerifySignature,
): Promise<ReplayClaim | Fault> {
  const { ledger, keyId } = proof.claims;
  if (ledger !== null && ledger !== encodeHex0x(genesisHash))
    return fault(
      "proof_invalid",
      `the proof is for another ledger than ${encodeHex0x(genesisHash)}`,
    );
  return decideSigned(proof, activeKey(subject, keyId, "change"), encodeUpdateProof, verify);
}

function activeKey(
  subject: ProofSubject | null,
  keyId: string,
  purpose: KeyPurpose,
): Uint8Array | null {
  return subject === null || subject.deactivated ? null : keyFor(subject, keyId, purpose);
}

type Signer = {
  readonly operation: string;
  readonly did: string;
  readonly keyId: string;
  readonly nonce: string;
};

async function decideSigned<Claims extends Signer>(
  { claims, signature, rememberUntilMs }: Proof<Claims>,
  key: Uint8Array | null,
  encode: (claims: Claims) => Uint8Array,
  verify: VerifySignature,
): Promise<ReplayClaim | Fault> {
  // One and the same refusal whatever a DID does not authorize, so that nothing can be probed.
  if (key === null) return fault("proof_not_authorized", "the proof does not authorize this");
  const text = encode(claims);
  if (await verify(signature, text, key)) return replayClaim(claims, rememberUntilMs);
  return withSignedText(fault("proof_invalid", "the signature of the proof does not verify"), text);
}

/** 409 `proof_replayed`, for all but the winner of the claim. */
export function proofReplayed(): Fault {
  return fault("proof_replayed", "the nonce of the proof was used before");
}

/**
 * Single-use per operation, DID and key. The hash bounds the tag; the DID lets a store keep
 * it with the mailbox.
 */
function replayClaim({ operation, did, keyId, nonce }: Signer, untilMs: number): ReplayClaim {
  const text = JSON.stringify([operation, did, keyId, nonce]);
  return { tag: `proof:${did}:${encodeHex(sha256(utf8(text))).slice(0, 32)}`, untilMs };
}
