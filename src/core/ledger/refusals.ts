/**
 * What the ledger answers instead of a change: the error names of the chain's pallets, extended by the
 * names of our stricter rules, and the one table from each of them to its public code.
 * Source: docs/ledger.md 1.10, rules sections 3, 4 and 10.
 */
import { type Fault, type FaultCode, fault } from "../fault.ts";

const faults = {
  // Pallet did-registry, in the order of its error enumeration.
  InvalidSignature: ["invalid_signature", "the signature does not verify with an authorized key"],
  InvalidRootPubkey: ["document_invalid", "the root key is not an admissible Ed25519 key"],
  InvalidRootPubkeyPayload: ["payload_mismatch", "the signed payload differs from the request"],
  InvalidRootPubkeyNonce: ["nonce_mismatch", "the root-key nonce is not the next one"],
  RootPubkeyAuthorizationExpired: ["authorization_expired", "valid_until has passed"],
  InvalidControlPayload: ["payload_mismatch", "the signed payload differs from the request"],
  InvalidControlNonce: ["nonce_mismatch", "the control nonce is not the next one"],
  ControlAuthorizationExpired: ["authorization_expired", "valid_until has passed"],
  SignatureMismatch: ["invalid_signature", "the signature does not verify with an authorized key"],
  DidTooLong: ["invalid_did", "the DID is too long"],
  DidAlreadyExists: ["did_already_registered", "the DID is already registered"],
  DidNotFound: ["did_not_found", "the DID is not registered"],
  DidDeactivated: ["did_deactivated", "the DID is deactivated"],
  DidAlreadyDeactivated: ["did_deactivated", "the DID is deactivated"],
  AliasTooLong: ["invalid_request", "the alias is too long"],
  TooManyAliases: ["document_invalid", "the DID already has the most aliases allowed"],
  InvalidAlias: ["invalid_request", "an alias consists of a to z, 0 to 9, dot, hyphen and underscore"],
  AliasNotFound: ["alias_not_found", "the DID has no such alias"],
  InvalidAliasPayload: ["payload_mismatch", "the signed payload differs from the request"],
  InvalidAliasNonce: ["nonce_mismatch", "the alias nonce is not the next one"],
  AliasAuthorizationExpired: ["authorization_expired", "valid_until has passed"],
  AliasTaken: ["alias_taken", "the alias belongs to another DID, or belonged to one in the last 30 days"],
  AliasAlreadyExists: ["alias_exists", "the DID already has this alias"],
  InvalidDocument: ["document_invalid", "the document breaks a rule"],
  InvalidDocumentPayload: ["payload_mismatch", "the signed payload differs from the request"],
  InvalidDocumentNonce: ["nonce_mismatch", "the document nonce is not the next one"],
  DocumentAuthorizationExpired: ["authorization_expired", "the authorization has expired"],
  VerificationMethodAlreadyExists: ["component_exists", "the document already has this verification method"],
  VerificationMethodNotFound: ["component_not_found", "the document has no such verification method"],
  VerificationMethodInUse: ["component_in_use", "the verification method is still listed in authentication"],
  AuthenticationAlreadyExists: ["component_exists", "the method is already listed in authentication"],
  AuthenticationNotFound: ["component_not_found", "the method is not listed in authentication"],
  KeyAgreementAlreadyExists: ["component_exists", "the document already has this key agreement"],
  KeyAgreementNotFound: ["component_not_found", "the document has no such key agreement"],
  ServiceAlreadyExists: ["component_exists", "the document already has this service"],
  ServiceTooLong: ["document_invalid", "the document already has the most services allowed"],
  ServiceNotFound: ["component_not_found", "the document has no such service"],
  NotDidOwner: ["chain_submission_rejected", "the DID belongs to another account than this Directory's"],
  PolicyRefTooLong: ["invalid_request", "a policy link is too long"],
  TooManyPolicyRefs: ["invalid_request", "too many policy links"],
  InvalidDidFormat: ["invalid_did", "not a DID of this service"],
  DidControlsApplication: ["chain_submission_rejected", "the DID controls a registered application"],
  // Pallet delivery-policy.
  NotPolicyController: ["chain_submission_rejected", "the DID belongs to another account than this Directory's"],
  InvalidTtl: ["invalid_request", "effective_ttl is out of range"],
  MaxMessageSizeExceeded: ["invalid_request", "max_message_bytes is out of range"],
  InvalidReplication: ["invalid_request", "replication is out of range"],
  HeaderPreviewTooLarge: ["invalid_request", "encrypted_header_preview_bytes is out of range"],
  ReleaseFeeTooLarge: ["invalid_request", "a release fee is out of range"],
  InvalidConstraints: ["invalid_request", "the persona policy breaks a bound"],
  LegacyPolicyDeprecated: ["chain_submission_rejected", "the chain no longer accepts this kind of policy"],
  // Our own, for rules that the family's chain lacks.
  InvalidProofTimestamp: [
    "invalid_request",
    "timestamp is neither a time nor of the form v3:<nonce>:<expiry ms> or v2:…",
  ],
  RegistrationExpired: ["authorization_expired", "the registration proof has expired"],
  ProofTooFarAhead: [
    "authorization_too_far_ahead",
    "the proof ends more than an hour ahead, or is dated more than 5 minutes ahead",
  ],
  DocumentStale: ["document_stale", "a proof of the same or a later time has already been accepted"],
  RootKeyRequired: [
    "chain_submission_rejected",
    "only the keys of the DID may change this, not the Directory's account",
  ],
  ProofVersionRefused: ["invalid_request", "the ledger does not accept proofs of this version"],
  DepositUnavailable: ["chain_submission_rejected", "the Directory's account can't pay the deposit of a record"],
  TooManyProofs: ["rate_limited", "the DID has made many changes in a short time"],
  NameNotDerived: [
    "invalid_did",
    "a DID of this form is derived from the ledger and the root key, and this one is not",
  ],
  NameRetired: ["did_already_registered", "the DID was deleted, which is final for a DID of this form"],
  DocumentNeeded: ["document_needed", "the next change of the document must be a whole document"],
  TooManyRootKeys: ["chain_submission_rejected", "the DID has had as many root keys as it may"],
  OnlyRootSigns: ["invalid_signature", "only root may sign this change of a DID of this form"],
} as const satisfies Record<string, readonly [code: FaultCode, detail: string]>;

export type LedgerError = keyof typeof faults;

export const ledgerErrors = Object.keys(faults) as LedgerError[];

/** A call that changes nothing. */
export class LedgerRefusal {
  constructor(
    readonly error: LedgerError,
    readonly extra: {
      /** The counter value that would be accepted, with nonce errors. */
      readonly expected?: bigint;
      /** Which rule of the error was broken, where one error has several. */
      readonly detail?: string;
      /** Whether the rule concerns a whole document, not a change to one. */
      readonly wholeDocument?: true;
    } = {},
  ) {}
}

export function refuse(error: LedgerError, extra?: LedgerRefusal["extra"]): LedgerRefusal {
  return new LedgerRefusal(error, extra);
}

export function isRefusal(value: unknown): value is LedgerRefusal {
  return value instanceof LedgerRefusal;
}

/** The public form. A whole document that contradicts itself is `document_invalid`, whichever rule refuses it. */
export function faultOfRefusal(refusal: LedgerRefusal): Fault {
  const [code, usual] = faults[refusal.error];
  const { expected, detail, wholeDocument } = refusal.extra;
  if (wholeDocument) return fault("document_invalid", detail ?? usual);
  return fault(code, detail ?? usual, expected === undefined ? {} : { expected: expected.toString() });
}
