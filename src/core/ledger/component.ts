/**
 * The rules for changing one component of a document: a verification method, an entry of
 * `authentication`, a key agreement or a service.
 * Source: docs/ledger.md 2.3 ("Component operations"), decisions section 10 ("Operation refusals").
 */

import type { DidRecord } from "./account.ts";
import type { DocumentAction } from "./authorization.ts";
import type { LedgerBounds } from "./bounds.ts";
import type { Change, ComponentEventName, LedgerInput } from "./change.ts";
import {
  checkKeyAgreement,
  checkService,
  checkVerificationMethod,
  type DidDocument,
  emptyDocument,
  type KeyAgreement,
  type Service,
  type VerificationMethod,
} from "./document.ts";
import type { Intent } from "./intent.ts";
import { isRefusal, type LedgerError, type LedgerRefusal, refuse } from "./refusal.ts";

export type ComponentIntent = Extract<Intent, { readonly action: DocumentAction }>;

const events: { readonly [A in DocumentAction]: ComponentEventName } = {
  AddVerificationMethod: "VerificationMethodAdded",
  UpdateVerificationMethod: "VerificationMethodUpdated",
  RemoveVerificationMethod: "VerificationMethodRemoved",
  AddAuthentication: "AuthenticationAdded",
  RemoveAuthentication: "AuthenticationRemoved",
  AddKeyAgreement: "KeyAgreementAdded",
  UpdateKeyAgreement: "KeyAgreementUpdated",
  RemoveKeyAgreement: "KeyAgreementRemoved",
  AddService: "ServiceAdded",
  UpdateService: "ServiceUpdated",
  RemoveService: "ServiceRemoved",
};

/** Adding a method, key agreement or service makes a document where there is none; nothing else does. */
export function changeComponent(
  input: LedgerInput,
  intent: ComponentIntent,
  record: DidRecord,
): Change | LedgerRefusal {
  const adds =
    intent.action === "AddVerificationMethod" || intent.action === "AddKeyAgreement" || intent.action === "AddService";
  const standing = record.document ?? (adds ? emptyDocument(intent.did) : null);
  if (standing === null) return refuse("InvalidDocument", { detail: "the DID has no document" });
  const patch = patchOf(standing, intent, input.bounds);
  if (isRefusal(patch)) return patch;
  const event = { name: events[intent.action], did: intent.did, id: idOf(intent) };
  return { record: { document: { ...standing, ...patch } }, events: [event] };
}

function idOf(intent: ComponentIntent): string {
  if ("verificationMethod" in intent) return intent.verificationMethod.id;
  if ("keyAgreement" in intent) return intent.keyAgreement.id;
  return "service" in intent ? intent.service.id : intent.id;
}

type Patch = Partial<DidDocument> | LedgerRefusal;

function patchOf(document: DidDocument, intent: ComponentIntent, bounds: LedgerBounds): Patch {
  switch (intent.action) {
    case "AddVerificationMethod":
    case "UpdateVerificationMethod":
      return putMethod(document, intent, bounds);
    case "RemoveVerificationMethod":
      return removeMethod(document, intent.id);
    case "AddAuthentication":
      return addAuthentication(document, intent.id, bounds);
    case "RemoveAuthentication":
      return removeAuthentication(document, intent.id);
    case "AddKeyAgreement":
    case "UpdateKeyAgreement":
      return putAgreement(document, intent, bounds);
    case "RemoveKeyAgreement": {
      const keyAgreement = without(document.keyAgreement, intent.id);
      return keyAgreement === null ? refuse("KeyAgreementNotFound") : { keyAgreement };
    }
    case "AddService":
    case "UpdateService":
      return putService(document, intent, bounds);
    case "RemoveService": {
      const service = without(document.service, intent.id);
      return service === null ? refuse("ServiceNotFound") : { service };
    }
  }
}

type IntentWith<K> = Extract<ComponentIntent, { readonly [P in K & string]: unknown }>;

function putMethod(document: DidDocument, intent: IntentWith<"verificationMethod">, bounds: LedgerBounds): Patch {
  const method = intent.verificationMethod;
  const flaw = checkVerificationMethod(method, intent.did, bounds);
  if (flaw !== null) return flaw;
  const verificationMethod =
    intent.action === "AddVerificationMethod"
      ? withNew<VerificationMethod>(document.verificationMethod, method, {
          max: bounds.verificationMethods,
          exists: "VerificationMethodAlreadyExists",
          full: "InvalidDocument",
        })
      : withReplaced(document.verificationMethod, method, "VerificationMethodNotFound");
  return isRefusal(verificationMethod) ? verificationMethod : { verificationMethod };
}

/** References from services do not keep a method; those from `authentication` do. */
function removeMethod(document: DidDocument, id: string): Patch {
  const verificationMethod = without(document.verificationMethod, id);
  if (verificationMethod === null) return refuse("VerificationMethodNotFound");
  return document.authentication.includes(id) ? refuse("VerificationMethodInUse") : { verificationMethod };
}

function addAuthentication(document: DidDocument, id: string, bounds: LedgerBounds): Patch {
  if (!document.verificationMethod.some((method) => method.id === id)) return refuse("VerificationMethodNotFound");
  if (document.authentication.includes(id)) return refuse("AuthenticationAlreadyExists");
  if (document.authentication.length >= bounds.authentications) return full("InvalidDocument");
  return { authentication: [...document.authentication, id] };
}

function removeAuthentication(document: DidDocument, id: string): Patch {
  if (!document.authentication.includes(id)) return refuse("AuthenticationNotFound");
  return { authentication: document.authentication.filter((listed) => listed !== id) };
}

function putAgreement(document: DidDocument, intent: IntentWith<"keyAgreement">, bounds: LedgerBounds): Patch {
  const agreement = intent.keyAgreement;
  const flaw = checkKeyAgreement(agreement, intent.did, bounds);
  if (flaw !== null) return flaw;
  const keyAgreement =
    intent.action === "AddKeyAgreement"
      ? withNew<KeyAgreement>(document.keyAgreement, agreement, {
          max: bounds.keyAgreements,
          exists: "KeyAgreementAlreadyExists",
          full: "InvalidDocument",
        })
      : withReplaced(document.keyAgreement, agreement, "KeyAgreementNotFound");
  return isRefusal(keyAgreement) ? keyAgreement : { keyAgreement };
}

function putService(document: DidDocument, intent: IntentWith<"service">, bounds: LedgerBounds): Patch {
  const flaw = checkService(intent.service, bounds);
  if (flaw !== null) return flaw;
  const service =
    intent.action === "AddService"
      ? withNew<Service>(document.service, intent.service, {
          max: bounds.services,
          exists: "ServiceAlreadyExists",
          full: "ServiceTooLong",
        })
      : withReplaced(document.service, intent.service, "ServiceNotFound");
  return isRefusal(service) ? service : { service };
}

type Entry = { readonly id: string };
type ListRule = { readonly max: number; readonly exists: LedgerError; readonly full: LedgerError };

function withNew<T extends Entry>(entries: readonly T[], entry: T, rule: ListRule): readonly T[] | LedgerRefusal {
  if (entries.some((held) => held.id === entry.id)) return refuse(rule.exists);
  return entries.length >= rule.max ? full(rule.full) : [...entries, entry];
}

/** The whole component is replaced in its place; an update can't rename it. */
function withReplaced<T extends Entry>(
  entries: readonly T[],
  entry: T,
  missing: LedgerError,
): readonly T[] | LedgerRefusal {
  if (!entries.some((held) => held.id === entry.id)) return refuse(missing);
  return entries.map((held) => (held.id === entry.id ? entry : held));
}

function without<T extends Entry>(entries: readonly T[], id: string): readonly T[] | null {
  const left = entries.filter((held) => held.id !== id);
  return left.length === entries.length ? null : left;
}

function full(error: LedgerError): LedgerRefusal {
  return refuse(error, { detail: "the list holds as many entries as it may" });
}
