/**
 * What the ledger answers instead of a change: the error names of the chain's pallets,
 * extended by the names of our stricter rules, and the one table from each of them to its
 * public code.
 * Source: docs/ledger.md 1.10, rules sections 3 and 4.
 */
import { describeFault, type Fault, type FaultCode, fault } from "../fault.ts";

/** Without a detail, the title of the code says it. */
const faults = {
  // Pallet did-registry, in the order of its error enumeration.
  InvalidSignature: ["invalid_signature"],
  InvalidRootPubkey: ["document_invalid", "the root key is not an admissible Ed25519 key"],
  InvalidRootPubkeyPayload: ["payload_mismatch"],
  InvalidRootPubkeyNonce: ["nonce_mismatch"],
  RootPubkeyAuthorizationExpired: ["authorization_expired"],
  InvalidControlPayload: ["payload_mismatch"],
  InvalidControlNonce: ["nonce_mismatch"],
  ControlAuthorizationExpired: ["authorization_expired"],
  SignatureMismatch: ["invalid_signature"],
  DidTooLong: ["invalid_did", "the DID is too long"],
  DidAlreadyExists: ["did_already_registered"],
  DidNotFound: ["did_not_found"],
  DidDeactivated: ["did_deactivated"],
  DidAlreadyDeactivated: ["did_deactivated"],
  AliasTooLong: ["invalid_request", "the alias is too long"],
  TooManyAliases: ["document_invalid", "the DID already has the most aliases allowed"],
  InvalidAlias: [
    "invalid_request",
    "an alias consists of a to z, 0 to 9, dot, hyphen and underscore",
  ],
  AliasNotFound: ["alias_not_found"],
  InvalidAliasPayload: ["payload_mismatch"],
  InvalidAliasNonce: ["nonce_mismatch"],
  AliasAuthorizationExpired: ["authorization_expired"],
  AliasTaken: [
    "alias_taken",
    "the alias belongs to another DID, or belonged to one in the last 30 days",
  ],
  AliasAlreadyExists: ["alias_exists"],
  InvalidDocument: ["document_invalid"],
  InvalidDocumentPayload: ["payload_mismatch"],
  InvalidDocumentNonce: ["nonce_mismatch"],
  DocumentAuthorizationExpired: ["authorization_expired"],
  VerificationMethodAlreadyExists: [
    "component_exists",
    "the document already has this verification method",
  ],
  VerificationMethodNotFound: [
    "component_not_found",
    "the document has no such verification method",
  ],
  VerificationMethodInUse: [
    "component_in_use",
    "the verification method is still listed in authentication",
  ],
  AuthenticationAlreadyExists: [
    "component_exists",
    "the method is already listed in authentication",
  ],
  AuthenticationNotFound: ["component_not_found", "the method is not listed in authentication"],
  KeyAgreementAlreadyExists: ["component_exists", "the document already has this key agreement"],
  KeyAgreementNotFound: ["component_not_found", "the document has no such key agreement"],
  ServiceAlreadyExists: ["component_exists", "the document already has this service"],
  ServiceTooLong: ["document_invalid", "the document already has the most services allowed"],
  ServiceNotFound: ["component_not_found", "the document has no such service"],
  NotDidOwner: [
    "chain_submission_rejected",
    "the DID belongs to another account than this Directory's",
  ],
  PolicyRefTooLong: ["invalid_request", "a policy link is too long"],
  TooManyPolicyRefs: ["invalid_request", "too many policy links"],
  InvalidDidFormat: ["invalid_did"],
  DidControlsApplication: [
    "chain_submission_rejected",
    "the DID controls a registered application",
  ],
  // Pallet delivery-policy.
  NotPolicyController: [
    "chain_submission_rejected",
    "the DID belongs to another account than this Directory's",
  ],
  InvalidTtl: ["invalid_request", "effective_ttl is out of range"],
  MaxMessageSizeExceeded: ["invalid_request", "max_message_bytes is out of range"],
  InvalidReplication: ["invalid_request", "replication is out of range"],
  HeaderPreviewTooLarge: ["invalid_request", "encrypted_header_preview_bytes is out of range"],
  ReleaseFeeTooLarge: ["invalid_request", "a release fee is out of range"],
  InvalidConstraints: ["invalid_request", "the persona policy breaks a bound"],
  LegacyPolicyDeprecated: [
    "chain_submission_rejected",
    "the chain no longer accepts this kind of policy",
  ],
  // Our own, for rules that the family's chain lacks.
  InvalidProofTimestamp: [
    "invalid_request",
    "timestamp is neither a time nor v3:<nonce>:<expiry ms> or v2:…",
  ],
  RegistrationExpired: ["authorization_expired"],
  ProofTooFarAhead: [
    "authorization_too_far_ahead",
    "the proof ends over an hour ahead, or is dated over 5 minutes ahead",
  ],
  DocumentStale: ["document_stale"],
  RootKeyRequired: ["chain_submission_rejected", "only the keys of the DID may change this"],
  ProofVersionRefused: ["invalid_request", "the ledger does not accept proofs of this version"],
  DepositUnavailable: [
    "chain_submission_rejected",
    "the Directory's account can't pay the deposit of a record",
  ],
  TooManyProofs: ["rate_limited", "the DID has made many changes in a short time"],
  NameNotDerived: ["invalid_did", "a DID of this form follows from the ledger and the root key"],
  NameRetired: [
    "did_already_registered",
    "the DID was deleted, which is final for a DID of this form",
  ],
  DocumentNeeded: ["document_needed", "the next change of the document must be a whole document"],
  TooManyRootKeys: ["chain_submission_rejected", "the DID has had as many root keys as it may"],
  OnlyRootSigns: ["invalid_signature", "only root may sign this change of a DID of this form"],
} as const satisfies Record<string, readonly [code: FaultCode, detail?: string]>;

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

/**
 * The public form. A whole document that contradicts itself is `document_invalid`,
 * whichever rule refuses it.
 */
export function faultOfRefusal(refusal: LedgerRefusal): Fault {
  const [known, usual] = faults[refusal.error] as readonly [FaultCode, string?];
  const { expected, wholeDocument } = refusal.extra;
  const code = wholeDocument ? "document_invalid" : known;
  const detail = refusal.extra.detail ?? usual ?? describeFault(code).title;
  return fault(code, detail, expected === undefined ? {} : { expected: expected.toString() });
}
