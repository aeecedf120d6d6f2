/**
 * The DID document: its one normal form, its JSON form in and out, and its rules. Ids are absolute
 * inside; lists are always present. Shape is a matter of parsing (400); what the ledger would refuse, full
 * lists and keys that are not admitted among it, is a matter of `checkDocument` (422).
 * Source: interface "DID document", docs/ledger.md 1.2 and 2.3, decisions sections 1, 4, 8 and 10.
 */

import { type Did, parseDidUrl } from "../codec/did.ts";
import { isAdmissibleKey, parseMultibaseKey } from "../codec/ed25519.ts";
import { badInput, type Fault, isFault } from "../fault.ts";
import { jsonPointer } from "../std/json-pointer.ts";
import { type LedgerBounds, longerThan } from "./bounds.ts";
import { type LedgerRefusal, refuse } from "./refusal.ts";

export type VerificationMethod = {
  readonly id: string;
  readonly type: string;
  readonly controller: string;
  readonly publicKeyMultibase: string;
};

/** The method types that name Ed25519 keys (decisions section 1). */
const keyTypes: readonly string[] = ["Multikey", "Ed25519VerificationKey2020"];

/** The Ed25519 key of a verification method, or `null` when its type names none or the key is not admissible. */
export function keyOfMethod(method: VerificationMethod): Uint8Array | null {
  if (!keyTypes.includes(method.type)) return null;
  const key = parseMultibaseKey(method.publicKeyMultibase);
  return key !== null && isAdmissibleKey(key) ? key : null;
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

export function emptyDocument(did: Did): DidDocument {
  return { id: did, verificationMethod: [], authentication: [], keyAgreement: [], service: [] };
}

// ------------------------------------------------------------------------------------------------ JSON in

/**
 * A document from JSON. Relative ids are expanded against `did`, `@context` is left out, absent lists are
 * empty. Refuses with `invalid_request`: a wrong type, a member the structure lacks, an id that is not the
 * DID's own, a document of another DID. `pointer` is where the document stands in the body.
 */
export function parseDocument(json: unknown, did: Did, pointer = ""): DidDocument | Fault {
  const members = parseMembers(json, documentMembers, pointer);
  if (isFault(members)) return members;
  const id = parseText(members, "id", pointer);
  if (isFault(id)) return id;
  const verificationMethod = parseList(members, "verificationMethod", { did, pointer, parse: parseVerificationMethod });
  if (isFault(verificationMethod)) return verificationMethod;
  const authentication = parseList(members, "authentication", { did, pointer, parse: parseId });
  if (isFault(authentication)) return authentication;
  const keyAgreement = parseList(members, "keyAgreement", { did, pointer, parse: parseKeyAgreement });
  if (isFault(keyAgreement)) return keyAgreement;
  const service = parseList(members, "service", { did, pointer, parse: parseService });
  if (isFault(service)) return service;
  if (id !== did) return badInput("invalid_request", `${pointer}/id`, "the document belongs to another DID");
  return { id, verificationMethod, authentication, keyAgreement, service };
}

/** A verification method from JSON; refuses as `parseDocument` does. */
export function parseVerificationMethod(json: unknown, did: Did, pointer = ""): VerificationMethod | Fault {
  const members = parseMembers(json, methodMembers, pointer);
  if (isFault(members)) return members;
  const id = parseId(members.id, did, `${pointer}/id`);
  if (isFault(id)) return id;
  const type = parseText(members, "type", pointer);
  if (isFault(type)) return type;
  const controller = parseText(members, "controller", pointer);
  if (isFault(controller)) return controller;
  const publicKeyMultibase = parseText(members, "publicKeyMultibase", pointer);
  if (isFault(publicKeyMultibase)) return publicKeyMultibase;
  return { id, type, controller, publicKeyMultibase };
}

/** A key agreement has the members of a verification method. */
export function parseKeyAgreement(json: unknown, did: Did, pointer = ""): KeyAgreement | Fault {
  return parseVerificationMethod(json, did, pointer);
}

/** A service from JSON; refuses as `parseDocument` does. A lone `serviceEndpoint` text becomes a list of one. */
export function parseService(json: unknown, did: Did, pointer = ""): Service | Fault {
  const members = parseMembers(json, serviceMembers, pointer);
  if (isFault(members)) return members;
  const id = parseId(members.id, did, `${pointer}/id`);
  if (isFault(id)) return id;
  const type = parseText(members, "type", pointer);
  if (isFault(type)) return type;
  const serviceEndpoint = parseEndpoints(members.serviceEndpoint, `${pointer}/serviceEndpoint`);
  if (isFault(serviceEndpoint)) return serviceEndpoint;
  const authorization =
    members.authorization === undefined ? null : parseList(members, "authorization", { did, pointer, parse: parseId });
  if (isFault(authorization)) return authorization;
  const priority = parsePriority(members.priority, `${pointer}/priority`);
  if (isFault(priority)) return priority;
  return { id, type, serviceEndpoint, authorization, priority };
}

const documentMembers = ["id", "verificationMethod", "authentication", "keyAgreement", "service"];
const methodMembers = ["id", "type", "controller", "publicKeyMultibase"];
const serviceMembers = ["id", "type", "serviceEndpoint", "authorization", "priority"];

type Members = Readonly<Record<string, unknown>>;

/** A longer name is cut, so that an answer does not repeat a body. */
const nameCharsMax = 64;

/** The object itself once it is one and has no member outside `known`. */
function parseMembers(json: unknown, known: readonly string[], pointer: string): Members | Fault {
  if (typeof json !== "object" || json === null || Array.isArray(json)) {
    return badInput("invalid_request", pointer, "must be an object");
  }
  for (const name of Object.keys(json)) {
    if (name !== "@context" && !known.includes(name)) {
      return badInput(
        "invalid_request",
        `${pointer}${jsonPointer(name.slice(0, nameCharsMax))}`,
        "is not a member of this structure",
      );
    }
  }
  return json as Members;
}

function parseText(members: Members, name: string, pointer: string): string | Fault {
  const value = members[name];
  if (typeof value === "string") return value;
  return badInput("invalid_request", `${pointer}/${name}`, value === undefined ? "is required" : "must be a string");
}

function parseId(json: unknown, did: Did, pointer: string): string | Fault {
  if (json === undefined) return badInput("invalid_request", pointer, "is required");
  const id = typeof json === "string" ? parseDidUrl(json, did) : null;
  return id ?? badInput("invalid_request", pointer, "must be an id of this DID, <did>#<fragment> or #<fragment>");
}

type ListForm<T> = {
  readonly did: Did;
  readonly pointer: string;
  readonly parse: (json: unknown, did: Did, pointer: string) => T | Fault;
};

function parseList<T>(members: Members, name: string, form: ListForm<T>): T[] | Fault {
  const json = members[name];
  const pointer = `${form.pointer}/${name}`;
  if (json === undefined) return [];
  if (!Array.isArray(json)) return badInput("invalid_request", pointer, "must be a list");
  const values: T[] = [];
  for (const [i, entry] of json.entries()) {
    const value = form.parse(entry, form.did, `${pointer}/${i}`);
    if (isFault(value)) return value;
    values.push(value);
  }
  return values;
}

function parseEndpoints(json: unknown, pointer: string): string[] | Fault {
  if (json === undefined) return badInput("invalid_request", pointer, "is required");
  if (typeof json === "string") return [json];
  if (!Array.isArray(json)) return badInput("invalid_request", pointer, "must be a URL or a list of URLs");
  const wrong = json.findIndex((entry) => typeof entry !== "string");
  if (wrong >= 0) return badInput("invalid_request", `${pointer}/${wrong}`, "must be a string");
  return [...json] as string[];
}

function parsePriority(json: unknown, pointer: string): number | null | Fault {
  if (json === undefined) return null;
  if (typeof json === "number" && Number.isInteger(json) && json >= 0 && json <= 0xffff_ffff) return json;
  return badInput("invalid_request", pointer, "must be an integer from 0 to 4294967295");
}

// ----------------------------------------------------------------------------------------------- JSON out

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

// -------------------------------------------------------------------------------------------------- rules

/**
 * What the ledger demands of a whole document, in its order: bounds, the DID, methods, authentication,
 * key agreements, services, and at last that the keys are admitted. `null` when nothing is wrong.
 */
export function checkDocument(document: DidDocument, did: Did, bounds: LedgerBounds): LedgerRefusal | null {
  const flaw = findDocumentFlaw(document, did, bounds);
  return flaw === null ? null : refuse(flaw.error, { ...flaw.extra, wholeDocument: true });
}

function findDocumentFlaw(document: DidDocument, did: Did, bounds: LedgerBounds): LedgerRefusal | null {
  if (longerThan(document.id, bounds.didBytes)) return flawed("id is too long");
  const unbounded = findUnbounded(document, bounds);
  if (unbounded !== null) return unbounded;
  if (document.id !== did) return flawed("the document belongs to another DID");
  for (const method of document.verificationMethod) {
    const flaw = checkMethodForm(method, did);
    if (flaw !== null) return flaw;
  }
  const methods = new Set(document.verificationMethod.map((method) => method.id));
  if (methods.size < document.verificationMethod.length) return twice("VerificationMethodAlreadyExists");
  for (const id of document.authentication) {
    if (!methods.has(id)) return refuse("VerificationMethodNotFound", { detail: "authentication names no method" });
  }
  if (hasRepeats(document.authentication)) return twice("AuthenticationAlreadyExists");
  for (const agreement of document.keyAgreement) {
    const flaw = checkMethodForm(agreement, did);
    if (flaw !== null) return flaw;
  }
  if (hasRepeats(document.keyAgreement.map((entry) => entry.id))) return twice("KeyAgreementAlreadyExists");
  for (const service of document.service) {
    const flaw = checkServiceForm(service);
    if (flaw !== null) return flaw;
  }
  if (hasRepeats(document.service.map((entry) => entry.id))) return twice("ServiceAlreadyExists");
  return document.verificationMethod.every(isAdmittedMethod) ? null : flawed(keyNotAdmitted);
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

/** The rules for one key agreement. Its key belongs to another curve and is not looked at. */
export function checkKeyAgreement(agreement: KeyAgreement, did: Did, bounds: LedgerBounds): LedgerRefusal | null {
  return checkMethodBounds(agreement, bounds) ?? checkMethodForm(agreement, did);
}

export function checkService(service: Service, bounds: LedgerBounds): LedgerRefusal | null {
  return checkServiceBounds(service, bounds) ?? checkServiceForm(service);
}

const keyNotAdmitted = "publicKeyMultibase of a method is not an admissible Ed25519 key";

function flawed(detail: string): LedgerRefusal {
  return refuse("InvalidDocument", { detail });
}

function twice(
  error:
    | "VerificationMethodAlreadyExists"
    | "AuthenticationAlreadyExists"
    | "KeyAgreementAlreadyExists"
    | "ServiceAlreadyExists",
): LedgerRefusal {
  return refuse(error, { detail: "a list of the document holds an id twice" });
}

/** Methods of other types than the two that name Ed25519 keys carry keys we can't judge. */
function isAdmittedMethod(method: VerificationMethod): boolean {
  return !keyTypes.includes(method.type) || keyOfMethod(method) !== null;
}

function hasRepeats(ids: readonly string[]): boolean {
  return new Set(ids).size < ids.length;
}

function findUnbounded(document: DidDocument, bounds: LedgerBounds): LedgerRefusal | null {
  if (document.verificationMethod.length > bounds.verificationMethods) return flawed("too many verification methods");
  if (document.authentication.length > bounds.authentications) return flawed("too many entries in authentication");
  if (document.keyAgreement.length > bounds.keyAgreements) return flawed("too many key agreements");
  if (document.service.length > bounds.services) return flawed("too many services");
  if (document.authentication.some((id) => longerThan(id, bounds.idBytes))) return flawed("an id is too long");
  for (const method of [...document.verificationMethod, ...document.keyAgreement]) {
    const flaw = checkMethodBounds(method, bounds);
    if (flaw !== null) return flaw;
  }
  for (const service of document.service) {
    const flaw = checkServiceBounds(service, bounds);
    if (flaw !== null) return flaw;
  }
  return null;
}

function checkMethodBounds(method: VerificationMethod, bounds: LedgerBounds): LedgerRefusal | null {
  if (longerThan(method.id, bounds.idBytes)) return flawed("an id is too long");
  if (longerThan(method.controller, bounds.idBytes)) return flawed("a controller is too long");
  if (longerThan(method.type, bounds.typeBytes)) return flawed("a type is too long");
  if (longerThan(method.publicKeyMultibase, bounds.keyMultibaseBytes)) return flawed("a public key is too long");
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
  if (service.serviceEndpoint.length > bounds.serviceEndpoints) return flawed("too many endpoints in a service");
  if (service.serviceEndpoint.some((url) => longerThan(url, bounds.serviceEndpointBytes))) {
    return flawed("a service endpoint is too long");
  }
  const keys = service.authorization ?? [];
  if (keys.length > bounds.serviceAuthorizations) return flawed("too many keys in the authorization of a service");
  return keys.some((id) => longerThan(id, bounds.idBytes)) ? flawed("an id is too long") : null;
}

function checkServiceForm(service: Service): LedgerRefusal | null {
  if (service.id === "" || service.type === "") return flawed("id and type of a service must not be empty");
  if (service.serviceEndpoint.length === 0) return flawed("a service needs at least one endpoint");
  return service.authorization?.includes("") ? flawed("a key id in authorization must not be empty") : null;
}

/**
 * Whether every id of a document is an absolute id of its own DID. The ledger does not ask, as the
 * family's chain does not; JSON comes in that way, and a `doc_blob` is held to it by the Directory.
 */
export function hasOwnIds(document: DidDocument, did: Did): boolean {
  const own = (id: string) => parseDidUrl(id, did) === id;
  return (
    document.verificationMethod.every((method) => own(method.id)) &&
    document.authentication.every(own) &&
    document.keyAgreement.every((agreement) => own(agreement.id)) &&
    document.service.every((service) => own(service.id) && (service.authorization ?? []).every(own))
  );
}

// ------------------------------------------------------------------------------------------------ readers

export function findMethod(document: DidDocument, id: string): VerificationMethod | null {
  return document.verificationMethod.find((method) => method.id === id) ?? null;
}

/** The service with this absolute id. */
export function serviceOf(document: DidDocument, id: string): Service | null {
  return document.service.find((service) => service.id === id) ?? null;
}

/** The Ed25519 key of a method that the document's DID controls, or `null`. Says nothing about what it may do. */
export function methodKey(document: DidDocument, id: string): Uint8Array | null {
  const method = findMethod(document, id);
  return method !== null && method.controller === document.id ? keyOfMethod(method) : null;
}

/**
 * The key that may sign for the DID under this method id: listed in `authentication`, controlled by the
 * DID, Ed25519. `null` when the method authorizes nothing.
 */
export function authorizedMethodKey(document: DidDocument, id: string): Uint8Array | null {
  return document.authentication.includes(id) ? methodKey(document, id) : null;
}

export function isAuthorizedSigner(document: DidDocument, id: string): boolean {
  return authorizedMethodKey(document, id) !== null;
}
