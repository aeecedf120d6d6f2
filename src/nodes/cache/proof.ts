/**
 * How requests to the Cache present their proof: in headers for reads, in the body for an
 * acknowledgement. Decoding ends with a proof in good form and in time; what the DID authorizes is
 * decided by `core/message/proof.ts` once its document has been gathered.
 * Source: interface "Signed Cache proof", decisions sections 3, 6 and 10.
 */
import { decodeUtf8 } from "../../core/codec/bytes.ts";
import { type Did, parseDid, parseUuid, type Uuid } from "../../core/codec/did.ts";
import { parseJsonObject } from "../../core/codec/json.ts";
import { badInput, type Fault, isFault } from "../../core/fault.ts";
import {
  ackMembers,
  ackSubject,
  decodeRetrievalProof,
  type PresentedRetrieval,
  proofReplayed,
  type ReplayClaim,
  type RetrievalProof,
  type RetrievalRule,
  retrievalHeaders,
} from "../../core/message/proof.ts";
import { ackRequestShape } from "../../core/schema/messages.ts";
import { compileShape } from "../../core/schema/schema.ts";
import type { Replay } from "../../storage/contract.ts";
import type { Call } from "../http/route.ts";

/** What all proofs to one Cache have in common. */
export type ProofTerms = {
  readonly endpoints: readonly string[];
  readonly skewMs: number;
};

/** The headers of a read, for the description of the routes. */
export const proofHeaderNames = Object.values(retrievalHeaders);

export type ProvenRead = { readonly did: Did; readonly proof: RetrievalProof };

/**
 * The proof in the headers of a read. `pull` has no device line, whatever header is sent; the others take
 * the header when it is there.
 */
export function decodeRead(
  call: Call,
  read: Pick<RetrievalRule, "operation" | "subject">,
  terms: ProofTerms,
): ProvenRead | Fault {
  const did = parseDid(call.params["did"] ?? "");
  if (isFault(did)) return did;
  const deviceId = read.operation === "pull" ? "" : headerText(call.headers.get("x-device-id") ?? "");
  const rule = { ...read, ...terms, did, deviceId, serviceType: "SvcCacheService", names: retrievalHeaders } as const;
  const proof = decodeRetrievalProof(presentedHeaders(call.headers), rule, call.nowMs);
  return isFault(proof) ? proof : { did, proof };
}

/** Headers arrive as Latin-1; a name that was sent as UTF-8, as it is signed, is read as that. */
function headerText(value: string): string {
  if (!/[\u0080-\u00ff]/.test(value)) return value;
  return decodeUtf8(Buffer.from(value, "latin1")) ?? value;
}

function presentedHeaders(headers: Headers): PresentedRetrieval {
  return {
    serviceId: headers.get(retrievalHeaders.serviceId),
    endpoint: headers.get(retrievalHeaders.endpoint),
    keyId: headers.get(retrievalHeaders.keyId),
    timestamp: headers.get(retrievalHeaders.timestamp),
    nonce: headers.get(retrievalHeaders.nonce),
    signature: headers.get(retrievalHeaders.signature),
  };
}

/** An id in the path: its normal form, or 400 `invalid_request`. The subject of the proof is its text as sent. */
export function decodePathUuid(call: Call, name: string): Uuid | Fault {
  return parseUuid(call.params[name] ?? "") ?? badInput("invalid_request", "", `${name} in the path must be a UUID`);
}

// ------------------------------------------------------------------------------------------------ ack

const checkAckBody = compileShape(ackRequestShape);

export type ProvenAck = ProvenRead & { readonly messageIds: readonly Uuid[] };

/** Refuses with `invalid_json`, `invalid_request`, `invalid_did`, or as `decodeRetrievalProof`. */
export function decodeAck(call: Call, terms: ProofTerms & { readonly idsMax: number }): ProvenAck | Fault {
  const members = parseJsonObject(call.body);
  if (isFault(members)) return members;
  const body = checkAckBody(members);
  if (isFault(body)) return body;
  const did = parseDid(body.did);
  if (isFault(did)) return did;
  const messageIds = parseMessageIds(body.message_ids, terms.idsMax);
  if (isFault(messageIds)) return messageIds;
  const presented = {
    serviceId: body.service_id ?? null,
    endpoint: body.cache_endpoint ?? null,
    keyId: body.key_id ?? null,
    timestamp: body.timestamp ?? null,
    nonce: body.nonce ?? null,
    signature: body.signature_b64 ?? null,
  };
  const rule = {
    operation: "ack",
    did,
    deviceId: body.device_id ?? "",
    subject: ackSubject(body.message_ids),
    serviceType: "SvcCacheService",
    names: ackMembers,
    ...terms,
  } as const;
  const proof = decodeRetrievalProof(presented, rule, call.nowMs);
  return isFault(proof) ? proof : { did, proof, messageIds };
}

/** The ids that the body names, each once. Blank entries count for nothing, but at least one id must stand. */
function parseMessageIds(texts: readonly string[], idsMax: number): Uuid[] | Fault {
  if (texts.length > idsMax) return badInput("invalid_request", "/message_ids", `must have at most ${idsMax} entries`);
  const ids = new Set<Uuid>();
  for (const [place, text] of texts.entries()) {
    const trimmed = text.trim();
    if (trimmed === "") continue;
    const id = parseUuid(trimmed);
    if (id === null) return badInput("invalid_request", `/message_ids/${place}`, "must be a UUID");
    ids.add(id);
  }
  return ids.size > 0 ? [...ids] : badInput("invalid_request", "/message_ids", "must name at least one message");
}

/** Runs an operation for the one request that wins the claim on its nonce; 409 `proof_replayed` for the others. */
export async function claimed<T>(
  stake: { readonly replay: Replay; readonly claim: ReplayClaim; readonly nowMs: number },
  operation: () => Promise<T | Fault> | T | Fault,
): Promise<T | Fault> {
  const { replay, claim, nowMs } = stake;
  return (await replay.claim(claim.tag, claim.untilMs, nowMs)) ? operation() : proofReplayed();
}
