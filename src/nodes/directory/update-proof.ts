/**
 * The proof in headers of updates that carry none in the interface. A proof that is presented is checked
 * in every mode; without one the update is taken only where the operator allows it.
 * Source: rules sections 4 ("Primary alias, policy links, …") and 10 ("Update proofs").
 */

import type { Did } from "../../core/codec/did.ts";
import { type Fault, type FaultCode, fault } from "../../core/fault.ts";
import type { Account } from "../../core/ledger/account.ts";
import {
  decideUpdateProof,
  decodeUpdateProof,
  proofReplayed,
  type ReplayClaim,
  type UpdateProof,
  updateHeaders,
} from "../../core/message/proof.ts";
import type { Replay } from "../../storage/contract.ts";
import type { Call } from "../http/route.ts";
import type { DirectoryOptions } from "./parts.ts";

export const updateProofHeaders = Object.values(updateHeaders);

export const updateProofCodes = [
  "unsigned_update_denied",
  "proof_missing",
  "proof_invalid",
  "proof_expired",
  "proof_not_authorized",
  "proof_replayed",
] as const satisfies readonly FaultCode[];

/** The proof of the headers in good form and in time; `null` when none is needed and none was sent. */
export function decodeHeaderProof(
  call: Call,
  update: { readonly operation: string; readonly did: Did },
  options: DirectoryOptions,
): UpdateProof | null | Fault {
  const presented = {
    keyId: call.headers.get(updateHeaders.keyId),
    timestamp: call.headers.get(updateHeaders.timestamp),
    nonce: call.headers.get(updateHeaders.nonce),
    signature: call.headers.get(updateHeaders.signature),
  };
  if (Object.values(presented).some((value) => value !== null)) {
    return decodeUpdateProof(presented, { ...update, body: call.body, skewMs: options.skewMs }, call.nowMs);
  }
  if (options.unsignedUpdates === "allow") return null;
  return fault("unsigned_update_denied", `this update needs a proof in the headers ${updateProofHeaders.join(", ")}`);
}

/** Whether the DID authorizes the proof; the claim on its nonce that must be won, or `null` without a proof. */
export function decideHeaderProof(proof: UpdateProof | null, account: Account): ReplayClaim | null | Fault {
  return proof === null ? null : decideUpdateProof(proof, account.record);
}

/** 409 `proof_replayed` for everyone but the first who presents a nonce. */
export async function claimProof(replay: Replay, claim: ReplayClaim | null, nowMs: number): Promise<Fault | null> {
  if (claim === null) return null;
  return (await replay.claim(claim.tag, claim.untilMs, nowMs)) ? null : proofReplayed();
}
