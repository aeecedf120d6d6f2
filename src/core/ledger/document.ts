/**
 * The DID document: its one normal form, how JSON becomes it, its rules, and which of its
 * keys may sign. Ids are absolute inside; lists are always present. The schema checks the
 * shape (400); `checkDocument` checks what the ledger would refuse (422), such as full
 * lists and keys that are not admitted.
 * Source: interface "DID document", docs/ledger.md 1.2 and 2.3, rules sections 1, 4 and 8.
 */
import { isAdmissibleKey, isStrictEncoding } from "../codec/crypto.ts";
import { type Did, parseDidUrl } from "../codec/did.ts";
import { badInput, type Fault, isFault } from "../fault.ts";
import {
  type DidDocument,
  type KeyAgreement,
  type KeyPurpose,
  keyTypes,
  type LedgerBounds,
  longerThan,
  methodFor,
  parseMethodKey,
  type Service,
  type VerificationMethod,
} from "./account.ts";
import { type LedgerError, type LedgerRefusal, refuse } from "./refusals.ts";

/**
 * The admissible Ed25519 key of a method, else `null`. Cost: decoding base58, and checking
 * the point: 0.1 ms.
 */
export function keyOfMethod(method: VerificationMethod): Uint8Array | null {
  const key = parseMethodKey(method);
  return key !== null && isAdmissibleKey(key) ? key : null;
}

export function emptyDocument(did: Did): DidDocument {
  return { id: did, verificationMethod: [], authentication: [], keyAgreement: [], service: [] };
}

// ----------------------------------------------------------------------------------------- JSON in

/** The JSON forms as sent; the schemas that check them are in `core/schema/identity.ts`. */
type ServiceForm = {
  readonly id: string;
  readonly type: string;
  readonly serviceEndpoint: string | readonly string[];
  readonly authorization?: readonly string[];
  readonly priority?: number;
};
export type DocumentForm = {
  readonly id: string;
  readonly verificationMethod?: readonly VerificationMethod[];
  readonly authentication?: readonly string[];
  readonly keyAgreement?: readonly KeyAgreement[];
  readonly service?: readonly ServiceForm[];
};

type Normalize<F, T> = (form: F, did: Did, pointer: string) => T | Fault;

/**
 * The normal form of a document: relative ids are expanded against `did`, `@context` is
 * left out, absent lists are empty. Refuses with `invalid_request` an id that is not the
 * DID's own, and a document of another DID. `pointer` is where the document is in the body.
 */
export function normalizeDocument(form: DocumentForm, did: Did, pointer = ""): DidDocument | Fault {
  if (form.id !== did)
    return badInput("invalid_request", `${pointer}/id`, "the document belongs to another DID");
  const listed = <F, T>(
    name: keyof DocumentForm,
    forms: readonly F[] | undefined,
    normalize: Normalize<F, T>,
  ) => normalizeEach(forms ?? [], normalize, did, `${pointer}/${name}`);
  const verificationMethod = listed("verificationMethod", form.verificationMethod, normalizeMethod);
  if (isFault(verificationMethod)) return verificationMethod;
  const authentication = listed("authentication", form.authentication, normalizeId);
  if (isFault(authentication)) return authentication;
  const keyAgreement = listed("keyAgreement", form.keyAgreement, normalizeMethod);
  if (isFault(keyAgreement)) return keyAgreement;
  const service = listed("service", form.service, normalizeService);
  if (isFault(service)) return service;
  return { id: form.id, verificationMethod, authentication, keyAgreement, service };
}

/**
 * A verification method or key agreement with its absolute id; refuses as
 * `normalizeDocument` does.
 */
export function normalizeMethod(
  form: VerificationMethod,
  did: Did,
  pointer: string,
): VerificationMethod | Fault {
  const id = normalizeId(form.id, did, `${pointer}/id`);
  if (isFault(id)) return id;
  const { type, controller, publicKeyMultibase } = form;
  return { id, type, controller, publicKeyMultibase };
}

/**
 * A service with absolute ids; a lone `serviceEndpoint` becomes a list of one. Refuses as
 * `normalizeDocument` does.
 */
export function normalizeService(form: ServiceForm, did: Did, pointer: string): Service | Fault {
  const id = normalizeId(form.id, did, `${pointer}/id`);
  if (isFault(id)) return id;
  const { type, serviceEndpoint: endpoint, authorization: keys, priority = null } = form;
  const authorization =
    keys === undefined ? null : normalizeEach(keys, normalizeId, did, `${pointer}/authorization`);
  if (isFault(authorization)) return authorization;
  return {
    id,
    type,
    serviceEndpoint: typeof endpoint === "string" ? [endpoint] : endpoint,
    authorization,
    priority,
  };
}

/** The absolute form of a component id; refuses with `invalid_request` at `pointer`. */
export function normalizeId(text: string, did: Did, pointer: string): string | Fault {
  const id = parseDidUrl(text, did);
  return (
    id ??
    badInput(
      "invalid_request",
      pointer,
      "must be an id of this DID, <did>#<fragment> or #<fragment>",
    )
  );
}

function normalizeEach<F, T>(
  forms: readonly F[],
  normalize: Normalize<F, T>,
  did: Did,
  pointer: string,
): readonly T[] | Fault {
  const values: T[] = [];
  for (const [i, form] of forms.entries()) {
    const value = normalize(form, did, `${pointer}/${i}`);
    if (isFault(value)) return value;
    values.push(value);
  }
  return values;
}

// ------------------------------------------------------------------------------------------- rules

/** What the ledger demands of a whole document, in its order; `null` when nothing is wrong. */
export function checkDocument(
  document: DidDocument,
  did: Did,
  bounds: LedgerBounds,
): LedgerRefusal | null {
  for (const flaw of documentFlaws(document, did, bounds)) {
    if (flaw !== null) return refuse(flaw.error, { ...flaw.extra, wholeDocument: true });
  }
  return null;
}

function* documentFlaws(
  document: DidDocument,
  did: Did,
  bounds: LedgerBounds,
): Generator<LedgerRefusal | null> {
  const { id, verificationMethod: methods, authentication, keyAgreement, service } = document;
  if (longerThan(id, bounds.didBytes)) yield flawed("id is too long");
  yield* boundFlaws(document, bounds);
  if (id !== did) yield flawed("the document belongs to another DID");
  for (const method of methods) yield checkMethodForm(method, did);
  const known = new Set(methods.map((method) => method.id));
  if (known.size < methods.length) yield twice("VerificationMethodAlreadyExists");
  if (!authentication.every((listed) => known.has(listed))) {
    yield refuse("VerificationMethodNotFound", { detail: "authentication names no method" });
  }
  if (hasRepeats(authentication)) yield twice("AuthenticationAlreadyExists");
  for (const agreement of keyAgreement) yield checkMethodForm(agreement, did);
  if (hasRepeats(keyAgreement.map((entry) => entry.id))) yield twice("KeyAgreementAlreadyExists");
  for (const entry of service) yield checkServiceForm(entry);
  if (hasRepeats(service.map((entry) => entry.id))) yield twice("ServiceAlreadyExists");
  if (!methods.every(isAdmittedMethod)) yield flawed(keyNotAdmitted);
}

/** The rules for one verification method: its bounds, its form, and that its key is admitted. */
export function checkVerificationMethod(
  method: VerificationMethod,
  did: Did,
  bounds: LedgerBounds,
): LedgerRefusal | null {
  const flaw = checkMethodBounds(method, bounds) ?? checkMethodForm(method, did);
  return flaw ?? (isAdmittedMethod(method) ? null : flawed(keyNotAdmitted));
}

/** The rules for one key agreement. Its key belongs to another curve and is not checked. */
export function checkKeyAgreement(
  agreement: KeyAgreement,
  did: Did,
  bounds: LedgerBounds,
): LedgerRefusal | null {
  return checkMethodBounds(agreement, bounds) ?? checkMethodForm(agreement, did);
}

export function checkService(service: Service, bounds: LedgerBounds): LedgerRefusal | null {
  return checkServiceBounds(service, bounds) ?? checkServiceForm(service);
}

const keyNotAdmitted = "publicKeyMultibase of a method is not an admissible Ed25519 key";

function flawed(detail: string): LedgerRefusal {
  return refuse("InvalidDocument", { detail });
}

function twice(error: LedgerError): LedgerRefusal {
  return refuse(error, { detail: "a list of the document holds an id twice" });
}

/** Methods of other types than the two for Ed25519 have keys that we can't check. */
function isAdmittedMethod(method: VerificationMethod): boolean {
  return !keyTypes.includes(method.type) || keyOfMethod(method) !== null;
}

function hasRepeats(ids: readonly string[]): boolean {
  return new Set(ids).size < ids.length;
}

function* boundFlaws(document: DidDocument, bounds: LedgerBounds): Generator<LedgerRefusal | null> {
  const { verificationMethod, authentication, keyAgreement, service } = document;
  if (verificationMethod.length > bounds.verificationMethods)
    yield flawed("too many verification methods");
  if (authentication.length > bounds.authentications)
    yield flawed("too many entries in authentication");
  if (keyAgreement.length > bounds.keyAgreements) yield flawed("too many key agreements");
  if (service.length > bounds.services) yield flawed("too many services");
  if (authentication.some((id) => longerThan(id, bounds.idBytes)))
    yield flawed("an id is too long");
  for (const method of [...verificationMethod, ...keyAgreement])
    yield checkMethodBounds(method, bounds);
  for (const entry of service) yield checkServiceBounds(entry, bounds);
}

function checkMethodBounds(method: VerificationMethod, bounds: LedgerBounds): LedgerRefusal | null {
  if (longerThan(method.id, bounds.idBytes)) return flawed("an id is too long");
  if (longerThan(method.controller, bounds.idBytes)) return flawed("a controller is too long");
  if (longerThan(method.type, bounds.typeBytes)) return flawed("a type is too long");
  if (longerThan(method.publicKeyMultibase, bounds.keyMultibaseBytes))
    return flawed("a public key is too long");
  return null;
}

function checkMethodForm(method: VerificationMethod, did: Did): LedgerRefusal | null {
  if (method.id === "" || method.type === "" || method.publicKeyMultibase === "") {
    return flawed("id, type and publicKeyMultibase must not be empty");
  }
  return method.controller === did ? null : flawed("the controller of a method must be the DID");
}

function checkServiceBounds(service: Service, bounds: LedgerBounds): LedgerRefusal | null {
  if (longerThan(service.id, bounds.idBytes)) return flawed("an id is too long");
  if (longerThan(service.type, bounds.typeBytes)) return flawed("a type is too long");
  if (service.serviceEndpoint.length > bounds.serviceEndpoints)
    return flawed("too many endpoints in a service");
  if (service.serviceEndpoint.some((url) => longerThan(url, bounds.serviceEndpointBytes))) {
    return flawed("a service endpoint is too long");
  }
  const keys = service.authorization ?? [];
  if (keys.length > bounds.serviceAuthorizations)
    return flawed("too many keys in the authorization of a service");
  return keys.some((id) => longerThan(id, bounds.idBytes)) ? flawed("an id is too long") : null;
}

function checkServiceForm(service: Service): LedgerRefusal | null {
  if (service.id === "" || service.type === "")
    return flawed("id and type of a service must not be empty");
  if (service.serviceEndpoint.length === 0) return flawed("a service needs at least one endpoint");
  return service.authorization?.includes("")
    ? flawed("a key id in authorization must not be empty")
    : null;
}

// -------------------------------------------------------------------------------------------- keys

/** `root` names the record's root key wherever a key id is asked for. */
export const rootKeyId = "root";

/** What is known of a DID when somebody signs for it; a document alone has no root key. */
type KeySubject = {
  readonly document: DidDocument | null;
  readonly rootPubkey?: Uint8Array | null;
};

/**
 * The one rule for which Ed25519 key may sign for a DID under a key id; `null` when none
 * may. Cost: decoding base58.
 */
export function keyFor(subject: KeySubject, keyId: string, purpose: KeyPurpose): Uint8Array | null {
  const { document, rootPubkey = null } = subject;
  if (purpose === "change" && keyId === rootKeyId) return rootPubkey;
  const method = document === null ? null : methodFor(document, keyId, purpose);
  const key = method === null ? null : parseMethodKey(method);
  return key !== null && isStrictEncoding(key) ? key : null;
}
