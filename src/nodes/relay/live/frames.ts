/**
 * The frames of a live session: the proof in headers or in the first frame, and
 * acknowledgements. Decoding only; nothing is looked up.
 * Source: rules section 5 "Live sessions" and section 10.
 */
import { utf8 } from "../../../core/codec/bytes.ts";
import { type Did, parseDid, parseUuid, type Uuid } from "../../../core/codec/did.ts";
import { type JsonObject, parseJsonObject } from "../../../core/codec/json.ts";
import { type Fault, fault, isFault } from "../../../core/fault.ts";
import {
  decodeRetrievalProof,
  deviceIdCharsMax,
  isLineValue,
  memberReader,
  type PresentedRetrieval,
  type ProofNames,
  presentedProof,
  type RetrievalProof,
  type RetrievalRule,
  retrievalHeaders,
} from "../../../core/message/proof.ts";
import { pathOf } from "../../http/route.ts";

/** Longest frame that a client may send. */
export const frameBytesMax = 16 * 1024;

export type SessionTarget = { readonly did: Did; readonly deviceId: string };

/** What a client may ask for in the query besides its envelopes: frames that announce that a Cache stored something. */
export type SessionWishes = { readonly storedNotices: boolean };

export function isSessionPath(pathname: string): boolean {
  const segments = pathname.split("/");
  return segments.length === 4 && segments[0] === "" && segments[1] === "ws";
}

/** Which device of which DID a path names: 400 `invalid_did` or `invalid_request`. */
export function parseSessionTarget(url: string): SessionTarget | Fault {
  const [, , didText, deviceText] = pathOf(url).split("/");
  const [didValue, deviceId] = [decodeSegment(didText), decodeSegment(deviceText)];
  const did = parseDid(didValue ?? "");
  if (isFault(did)) return did;
  if (deviceId === null || deviceId === "" || deviceId.length > deviceIdCharsMax || !isLineValue(deviceId)) {
    return fault(
      "invalid_request",
      `a device id must have 1 to ${deviceIdCharsMax} characters and no control characters`,
    );
  }
  return { did, deviceId };
}

export function parseSessionWishes(url: string): SessionWishes {
  return { storedNotices: new URL(url).searchParams.get("notices") === "stored" };
}

/** For a client that asked: something waits in a Cache. It names nothing; the client pulls. */
export const storedNotice = JSON.stringify({ type: "stored" });

function decodeSegment(segment: string | undefined): string | null {
  try {
    return decodeURIComponent(segment ?? "");
  } catch {
    return null;
  }
}

/** What all proofs to one Relay have in common. */
export type ConnectTerms = { readonly endpoints: readonly string[]; readonly skewMs: number };

/** Members of the first frame. */
const frameMembers: ProofNames<PresentedRetrieval> = {
  serviceId: "service_id",
  endpoint: "endpoint",
  keyId: "key_id",
  timestamp: "timestamp",
  nonce: "nonce",
  signature: "signature_b64",
};

function connectRule(target: SessionTarget, terms: ConnectTerms, names: RetrievalRule["names"]): RetrievalRule {
  return { operation: "connect", ...target, subject: target.deviceId, serviceType: "SvcRelayService", ...terms, names };
}

/** Whether the request itself carries a proof; one header is enough, so that a missing other one is named. */
export function bearsProof(headers: Headers): boolean {
  return Object.values(retrievalHeaders).some((name) => headers.has(name));
}

export function decodeConnectHeaders(
  headers: Headers,
  of: { readonly target: SessionTarget; readonly terms: ConnectTerms },
  nowMs: number,
): RetrievalProof | Fault {
  const presented = presentedProof(retrievalHeaders, (name) => headers.get(name));
  return decodeRetrievalProof(presented, connectRule(of.target, of.terms, retrievalHeaders), nowMs);
}

/** The first frame: 401 `proof_missing` when it is anything but an `auth` frame, else as the proof decodes. */
export function decodeConnectFrame(
  frame: string | Uint8Array,
  of: { readonly target: SessionTarget; readonly terms: ConnectTerms },
  nowMs: number,
): RetrievalProof | Fault {
  const members = parseFrame(frame);
  if (members === null || members["type"] !== "auth")
    return fault("proof_missing", "the first frame must be the proof");
  const presented = presentedProof(frameMembers, memberReader(members));
  return decodeRetrievalProof(presented, connectRule(of.target, of.terms, frameMembers), nowMs);
}

/** The id that a frame acknowledges; `null` when the frame is anything else. */
export function parseAck(frame: string | Uint8Array): Uuid | null {
  const members = parseFrame(frame);
  if (members === null || members["type"] !== "ack" || typeof members["message_id"] !== "string") return null;
  return parseUuid(members["message_id"]);
}

function parseFrame(frame: string | Uint8Array): JsonObject | null {
  const members = parseJsonObject(typeof frame === "string" ? utf8(frame) : frame);
  return isFault(members) ? null : members;
}

/** In development a client that was refused reads more than a close code can hold. */
export function renderRefusal({ code, detail, extra }: Fault): string {
  return JSON.stringify({ type: "refused", code, detail, signed_text: extra.signedText });
}

export function renderWelcome(target: SessionTarget): string {
  return JSON.stringify({ type: "welcome", status: "ok", connectionKey: `${target.did}::${target.deviceId}` });
}
