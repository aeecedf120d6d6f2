/**
 * The versions of proofs: which ones this Directory takes on its ledger, which one a preparation makes, and what
 * version 3 binds.
 * Source: docs/ledger.md 1.8.
 */
import { encodeHex0x } from "../../core/codec/bytes.ts";
import { badInput, type Fault, isFault } from "../../core/fault.ts";
import type { AccountId, LedgerProofs } from "../../core/ledger/account.ts";
import type { ProofBinding, ProofVersion } from "../../core/ledger/record-proof.ts";
import type { Ledger } from "../../storage/contract.ts";
import type { DirectorySettings } from "./parts.ts";

/** The ledger, its proofs and the account that a proof is for. */
export type Binding = ProofBinding & { readonly submitter: AccountId; readonly proofs: LedgerProofs };

export async function readBinding(ledger: Ledger): Promise<Binding> {
  const [proofs, submitter] = await Promise.all([ledger.proofs(), ledger.operator()]);
  return { proofs, submitter, genesisHash: proofs.genesisHash };
}

/** Of the registration proof, the best first. */
export function versionsTaken(settings: DirectorySettings, proofs: LedgerProofs): readonly ProofVersion[] {
  const bound: readonly ProofVersion[] = proofs.bound ? ["v3"] : [];
  const older: readonly ProofVersion[] = proofs.plain ? ["v2", "v1"] : [];
  return [...bound, ...older].filter((version) => settings.registration_proofs?.includes(version) ?? true);
}

/** What `/limits` says about proofs. */
export function renderProofs(settings: DirectorySettings, { proofs, submitter }: Binding): Record<string, unknown> {
  return {
    registration_proofs: versionsTaken(settings, proofs),
    authorization_proofs: [...(proofs.bound ? ["v3"] : []), ...(proofs.plain ? ["plain"] : [])],
    genesis_hash: encodeHex0x(proofs.genesisHash),
    operator_account: encodeHex0x(submitter),
  };
}

/**
 * Whether version 3 is prepared: when it is asked for, and where the ledger takes nothing else. Clients of the family
 * look whether what they are to sign is what they know.
 */
export function decideBound(asked: string | undefined, { proofs }: Binding): boolean | Fault {
  if (asked !== undefined && asked !== "v3") return badInput("invalid_request", "/proof_version", "is v3 or absent");
  if (asked === "v3" && !proofs.bound) {
    return badInput("invalid_request", "/proof_version", "the ledger takes no proofs of version 3");
  }
  return asked === "v3" || !proofs.plain;
}

/** Version 1 is prepared only where every other one is switched off. */
export function decideVersion(
  asked: string | undefined,
  settings: DirectorySettings,
  binding: Binding,
): ProofVersion | Fault {
  const bound = decideBound(asked, binding);
  if (isFault(bound)) return bound;
  const taken = versionsTaken(settings, binding.proofs);
  const order: readonly ProofVersion[] = bound ? ["v3", "v2", "v1"] : ["v2", "v3", "v1"];
  const version = order.find((one) => taken.includes(one));
  if (version !== undefined && (asked === undefined || version === "v3")) return version;
  return badInput("invalid_request", "/proof_version", "this Directory takes no registration proof of that version");
}
