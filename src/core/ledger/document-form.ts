/**
 * The DID document as a value and as JSON, and the methods in it: what clients and nodes share. The rules of the ledger
 * and the way in from a request are in `document.ts`.
 * Source: interface "DID document", rules sections 1 and 10.
 */
import { parseMultibaseKey } from "../codec/public-key.ts";

export type VerificationMethod = {
  readonly id: string;
  readonly type: string;
  readonly controller: string;
  readonly publicKeyMultibase: string;
};

/** The method types that name Ed25519 keys (rules section 1). */
export const keyTypes: readonly string[] = ["Multikey", "Ed25519VerificationKey2020"];

/** The Ed25519 key of a verification method, or `null` when its type names none. Whether it is admissible is another matter. */
export function parseMethodKey(method: VerificationMethod): Uint8Array | null {
  return keyTypes.includes(method.type) ? parseMultibaseKey(method.publicKeyMultibase) : null;
}

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

/** The JSON form of answers: all four lists always, `authorization` and `priority` only when set. */
export function renderDocument(document: DidDocument): Record<string, unknown> {
  return {
    id: document.id,
    verificationMethod: document.verificationMethod,
    authentication: document.authentication,
    keyAgreement: document.keyAgreement,
    service: document.service.map(renderService),
  };
}

export function renderService(service: Service): Record<string, unknown> {
  const { authorization, priority, ...always } = service;
  return { ...always, ...(authorization && { authorization }), ...(priority !== null && { priority }) };
}

/**
 * What a key is asked for: `change` the identity (`root`, or a method in `authentication`), `send` in its name (a
 * method in `authentication`), or `service`: to speak for a service that names the key itself.
 */
export type KeyPurpose = "change" | "send" | "service";

/** The method under a key id that may sign for a purpose, whatever its key. */
export function methodFor(document: DidDocument, keyId: string, purpose: KeyPurpose): VerificationMethod | null {
  if (purpose !== "service" && !document.authentication.includes(keyId)) return null;
  const method = document.verificationMethod.find(({ id }) => id === keyId);
  return method?.controller === document.id ? method : null;
}
