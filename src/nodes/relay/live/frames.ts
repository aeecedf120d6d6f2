/**
 * What a live session and its node send each other: the proof of a session, in headers or in the
 * first frame, the welcome, and what a client says of an envelope.
 * Source: rules section 5 ("Live sessions").
 */
import { utf8 } from "../../../core/codec/bytes.ts";
import { type Did, parseDid, parseUuid, type Uuid } from "../../../core/codec/did.ts";
import { type JsonObject, jsonObjectOf } from "../../../core/codec/json.ts";
import { type Fault, fault, isFault } from "../../../core/fault.ts";
import {
  ackMembers,
  decodeRetrievalProof,
  deviceIdCharsMax,
  isLineValue,
  memberReader,
  type ProofNames,
  type RetrievalProof,
  type RetrievalRule,
  retrievalHeaders,
} from "../../../core/message/proof.ts";
import type { Call } from "../../http/route.ts";

export const frameBytesMax = 16 * 1024;

export type SessionTarget = { readonly did: Did; readonly deviceId: string };

/** Which device of which DID a path names: 400 `invalid_did` or `invalid_request`. */
export function parseSessionTarget({
  did: didText = "",
  deviceId = "",
}: Call["params"]): SessionTarget | Fault {
  const did = parseDid(didText);
  if (isFault(did)) return did;
  if (deviceId.length > deviceIdCharsMax || !isLineValue(deviceId)) {
    return fault(
      "invalid_request",
      `a device id must have 1 to ${deviceIdCharsMax} characters and no control characters`,
    );
  }
  return { did, deviceId };
}

/** What all proofs to one Relay have in common. */
export type ConnectTerms = { readonly endpoints: readonly string[]; readonly skewMs: number };

/** Members of the first frame. */
const frameMembers: ProofNames = { ...ackMembers, endpoint: "endpoint" };

function connectRule(
  target: SessionTarget,
  terms: ConnectTerms,
  names: RetrievalRule["names"],
): RetrievalRule {
  return {
    operation: "connect",
    ...target,
    subject: target.deviceId,
    serviceType: "SvcRelayService",
    ...terms,
    names,
  };
}

/**
 * Whether the request itself has a proof; one header is enough, so that a
 * missing other one is named.
 */
export function bearsProof(headers: Headers): boolean {
  return Object.values(retrievalHeaders).some((name) => headers.has(name));
}

export function decodeConnectHeaders(
  headers: Headers,
  of: { readonly target: SessionTarget; readonly terms: ConnectTerms },
  nowMs: number,
): RetrievalProof | Fault {
  const rule = connectRule(of.target, of.terms, retrievalHeaders);
  return decodeRetrievalProof((name) => headers.get(name), rule, nowMs);
}

/**
 * The first frame: 401 `proof_missing` when it is anything but an `auth` frame,
 * else as the proof decodes.
 */
export function decodeConnectFrame(
  frame: string | Uint8Array,
  of: { readonly target: SessionTarget; readonly terms: ConnectTerms },
  nowMs: number,
): RetrievalProof | Fault {
  const members = parseFrame(frame);
  if (members === null || members["type"] !== "auth")
    return fault("proof_missing", "the first frame must be the proof");
  return decodeRetrievalProof(
    memberReader(members),
    connectRule(of.target, of.terms, frameMembers),
    nowMs,
  );
}

/**
 * `silent`: sent, and not acknowledged in time. `gone`: a client leaves it to the next destination,
 * or its session ended or has no room. `no-session`: there is no session.
 */
export type LiveOutcome = "acknowledged" | "silent" | "gone" | "no-session";

type LiveReply = { readonly messageId: Uuid; readonly outcome: LiveOutcome };

/** What a client says of an envelope; `null` when the frame is anything else. */
export function parseReply(
  frame: string | Uint8Array,
  { canForward }: { readonly canForward: boolean },
): LiveReply | null {
  const members = parseFrame(frame);
  const outcome =
    members?.["type"] === "ack"
      ? "acknowledged"
      : members?.["type"] === "pass" && canForward && "gone";
  const messageId =
    typeof members?.["message_id"] === "string" ? parseUuid(members["message_id"]) : null;
  return messageId === null || !outcome ? null : { messageId, outcome };
}

function parseFrame(frame: string | Uint8Array): JsonObject | null {
  return jsonObjectOf(typeof frame === "string" ? utf8(frame) : frame);
}

/** In development a client that was refused reads more than a close code can hold. */
export function renderRefusal({ code, detail, extra }: Fault): string {
  return JSON.stringify({ type: "refused", code, detail, signed_text: extra.signedText });
}

export function renderWelcome(target: SessionTarget): string {
  return JSON.stringify({
    type: "welcome",
    status: "ok",
    connectionKey: `${target.did}::${target.deviceId}`,
  });
}
