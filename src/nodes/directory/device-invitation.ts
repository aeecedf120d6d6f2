/**
 * A member invites a device of their own, because its DID registers like a person's: where the
 * operator invites, the member's key makes a code for one registration.
 * Source: interface "Invitations for own devices", D657.
 */
import type { Did } from "../../core/codec/did.ts";
import { renderTimestamp } from "../../core/codec/time.ts";
import { type Fault, fault, isFault } from "../../core/fault.ts";
import {
  decideUpdateProof,
  decodeUpdateProof,
  deviceOperation,
  ledgerHeader,
  proofReplayed,
} from "../../core/message/proof.ts";
import { deviceInvitationAnswer, deviceInvitationBody } from "../../core/schema/directory.ts";
import { compileShape } from "../../core/schema/schema.ts";
import type { Answer, Call, Route } from "../http/route.ts";
import { bindDid, type DirectoryParts, decodeBody, directoryRoute, pathCodes } from "./parts.ts";
import { updateProofHeaders } from "./policy.ts";

/** A DID, with generous white space. */
const bodyBytesMax = 1_024;

const codes = [
  ...pathCodes,
  "path_body_mismatch",
  "registration_closed",
  "proof_missing",
  "proof_invalid",
  "proof_expired",
  "proof_not_authorized",
  "proof_replayed",
  "rate_limited",
  "storage_full",
] as const;

export function deviceInvitationRoute(parts: DirectoryParts): Route {
  const parseShape = compileShape(deviceInvitationBody);
  const route = directoryRoute({
    method: "POST",
    path: "/dids/:did/device-invitations",
    id: "inviteDevice",
    summary: "Invite a device of one's own",
    request: deviceInvitationBody,
    requiredHeaders: updateProofHeaders.filter((name) => name !== ledgerHeader),
    headers: [ledgerHeader],
    credential: "updateProof",
    answer: [201, "A code for one registration within 15 minutes.", deviceInvitationAnswer],
    codes,
    handle: async (call) => {
      const body = decodeBody(call, parseShape);
      if (isFault(body)) return body;
      const did = bindDid(call, body.did);
      return isFault(did) ? did : invite(parts, did, call);
    },
  });
  return { ...route, bodyBytesMax };
}

/** Who signed comes first: nothing is said of a DID to others. Who is blocked lets no device in. */
async function invite(parts: DirectoryParts, did: Did, call: Call): Promise<Answer | Fault> {
  const refused = (await checkProof(parts, did, call)) ?? (await checkMember(parts, did, call));
  if (refused !== null) return refused;
  const made = await parts.invitations.createForDevice(did);
  if (isFault(made)) return made;
  const { code, expiresAtMs } = made;
  return { status: 201, json: { invitation: code, expires_at: renderTimestamp(expiresAtMs) } };
}

/** By a key of the present document, for a nonce that counts as used from here on. */
async function checkProof(parts: DirectoryParts, did: Did, call: Call): Promise<Fault | null> {
  const { ledger, replay, verify, limits } = parts;
  const { headers, nowMs, body } = call;
  const read = (name: string) => headers.get(name);
  const rule = {
    operation: deviceOperation,
    did,
    ledger: read(ledgerHeader),
    body,
    skewMs: limits.clock_skew,
  };
  const proof = decodeUpdateProof(read, rule, nowMs);
  if (isFault(proof)) return proof;
  const [{ record }, { genesisHash }] = await Promise.all([ledger.account(did), ledger.proofs()]);
  const claim = await decideUpdateProof(proof, record, genesisHash, verify);
  if (isFault(claim)) return claim;
  return (await replay.claim(claim.tag, claim.untilMs, nowMs)) ? null : proofReplayed();
}

/** Of this Directory: a ledger may have DIDs of others too. */
async function checkMember(
  { settings: { registration }, blocks, members }: DirectoryParts,
  did: Did,
  { nowMs }: Call,
): Promise<Fault | null> {
  if (registration === "open")
    return fault("invalid_request", "this Directory is open: a device needs no invitation");
  if (registration === "closed")
    return fault("registration_closed", "this Directory registers no one now");
  // Also one who is blocked as a sender alone, because devices would send.
  const blocked = blocks?.checkParties(did, did) ?? null;
  if (blocked !== null || members === undefined) return blocked;
  return (await members.of(did, nowMs)) === null
    ? fault("policy_denied", "the DID is not a member of this node")
    : null;
}
