/**
 * `GET /delivery-resolution/{target}`: what a sender must know of a recipient, in one answer. Every node that knows
 * recipients has it: a Directory from its ledger, a Relay or a Cache from where it looks recipients up.
 * Source: docs/ledger.md 3.1, D145.
 */
import type { Config } from "../config/schema.ts";
import { parseDid } from "../core/codec/did.ts";
import { type Fault, fault, isFault } from "../core/fault.ts";
import { isTag, tagForm } from "../core/message/envelope.ts";
import { decideResolution, type Resolution } from "../core/message/resolution.ts";
import { resolutionAnswer } from "../core/schema/directory.ts";
import { gatherPolicyFacts } from "./admission.ts";
import type { Answer, Call, Route } from "./http/route.ts";
import type { RecipientSource } from "./recipients.ts";

export type ResolutionParts = {
  readonly recipients: RecipientSource;
  readonly limits: Config["limits"];
  /** What recipients are looked up in: a ledger, or a Directory elsewhere. */
  readonly unavailable: "chain_unavailable" | "service_unavailable";
};

export function resolutionRoute(parts: ResolutionParts): Route {
  return {
    method: "GET",
    path: "/delivery-resolution/:target",
    operation: {
      id: "deliveryResolution",
      summary: "The key to seal to and the sizes that are taken, for one recipient",
      tag: "Directory",
      query: ["tag"],
      responses: { 200: { description: "Key and constraints at the finalized head.", schema: resolutionAnswer } },
      codes: [
        "invalid_did",
        "invalid_request",
        "did_not_found",
        "component_not_found",
        "did_deactivated",
        "policy_denied",
        parts.unavailable,
      ],
    },
    bodyBytesMax: null,
    capacity: "normal",
    faults: "problem",
    unavailable: parts.unavailable,
    handle: (call) => resolve(call, parts),
  };
}

async function resolve(call: Call, { recipients, limits }: ResolutionParts): Promise<Answer | Fault> {
  const did = parseDid(call.params["target"] ?? "");
  if (isFault(did)) return did;
  const tag = call.query.get("tag");
  if (tag !== null && !isTag(tag)) return fault("invalid_request", `tag: must be ${tagForm}`);
  const recipient = await recipients.subject(did);
  const receives = recipient !== null && !recipient.deactivated;
  const policy = receives ? await gatherPolicyFacts(recipients, recipient, tag) : null;
  const resolution = decideResolution({ recipient, policy }, limits);
  return isFault(resolution) ? resolution : { status: 200, json: renderResolution(did, resolution) };
}

function renderResolution(target: string, resolution: Resolution): Record<string, unknown> {
  const { messageBytesMax } = resolution;
  return {
    target,
    encryption_profile: "direct",
    recipient_key_id: resolution.keyId,
    recipient_public_key_multibase: resolution.publicKeyMultibase,
    policy: {
      effective_constraints: {
        max_chunk_bytes: resolution.chunkBytesMax,
        max_unchunked_message_bytes: resolution.unchunkedBytesMax,
        max_http_envelope_bytes: resolution.bodyBytesMax,
        ...(messageBytesMax === null ? {} : { max_message_bytes: messageBytesMax }),
      },
    },
  };
}
