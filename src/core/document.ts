/**
 * The DID document: its one normal form, its JSON form in and out, and its rules.
 * Ids are absolute inside; lists are always present.
 * Source: interface "DID document", chain-facts 1.2 and 2.3, decisions sections 1, 4 and 10.
 */

export type VerificationMethod = {
  readonly id: string;
  readonly type: string;
  readonly controller: string;
  readonly publicKeyMultibase: string;
};

export type KeyAgreement = VerificationMethod;

export type Service = {
  readonly id: string;
  readonly type: string;
  readonly serviceEndpoint: readonly string[];
  /** `null` when the member is absent; an empty list authorizes nobody. */
  readonly authorization: readonly string[] | null;
  readonly priority: number | null;
};

export type DidDocument = {
  readonly id: string;
  readonly verificationMethod: readonly VerificationMethod[];
  readonly authentication: readonly string[];
  readonly keyAgreement: readonly KeyAgreement[];
  readonly service: readonly Service[];
};
