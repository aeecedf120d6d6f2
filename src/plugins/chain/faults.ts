/**
 * From what a block or a node says about a call to the program's own codes. The names of errors are the
 * ledger's, so its table decides; what it does not know is `chain_submission_rejected` with the name.
 */
import { type Fault, fault } from "../../core/fault.ts";
import type { LedgerCall } from "../../core/ledger/calls.ts";
import { faultOfRefusal, type LedgerError, ledgerErrors, refuse } from "../../core/ledger/refusals.ts";
import type { DispatchFailure } from "./surface.ts";

/** Errors by which the ledger refuses a whole document that contradicts itself. */
const documentErrors: readonly LedgerError[] = [
  "InvalidDocument",
  "VerificationMethodAlreadyExists",
  "VerificationMethodNotFound",
  "AuthenticationAlreadyExists",
  "KeyAgreementAlreadyExists",
  "ServiceAlreadyExists",
];

export function faultOfFailure(failure: DispatchFailure, call: LedgerCall): Fault {
  const error = ledgerErrors.find((name) => name === failure.error);
  if (failure.pallet === null || error === undefined) {
    return fault("chain_submission_rejected", `the chain refused the call: ${failure.error}`);
  }
  const whole = "docBlob" in call && documentErrors.includes(error);
  return faultOfRefusal(refuse(error, whole ? { wholeDocument: true } : {}));
}

export const lifeOver = fault("chain_submission_rejected", "no block held the call within its lifetime");
export const lostSight = fault(
  "chain_submission_rejected",
  "the chain may have held the call while this Directory was away; the record tells",
);
export const renewedTooOften = fault(
  "chain_submission_rejected",
  "the operator account is used by somebody else, who takes every nonce",
);

/** The usual meanings of a node's refusals to take an extrinsic, by their codes. */
export const poolCodes = {
  /** Not valid in the newest block: a stale nonce, a proof that does not hold, no funds. */
  invalid: 1010,
  /** The node could not find out. */
  unknown: 1011,
  temporarilyBanned: 1012,
  alreadyKnown: 1013,
  /** Another extrinsic of the same account and nonce is there. */
  taken: 1014,
  cyclic: 1015,
  poolFull: 1016,
} as const;
