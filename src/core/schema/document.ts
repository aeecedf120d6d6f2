/**
 * Shapes of the DID document and its components, as sent and as answered. Counts and lengths are rules
 * of the ledger (422), not of the shape (400).
 * Source: interface "DID document", rules sections 1, 4 and 10, docs/ledger.md 1.2.
 */
import { Type } from "@sinclair/typebox";
import type { Did } from "../codec/did.ts";
import { type Fault, isFault } from "../fault.ts";
import { normalizeDocument } from "../ledger/document.ts";
import { type DidDocument, renderDocument, renderService } from "../ledger/document-form.ts";
import { exampleAgreement, exampleDocument, exampleKey, exampleMethod, exampleService } from "../ledger/example.ts";
import { closed, compileShape, didText, didUrlText, open } from "./schema.ts";

const componentMembers = {
  id: didUrlText,
  type: Type.String({ examples: ["Multikey"] }),
  controller: didText,
  publicKeyMultibase: Type.String({ examples: [exampleKey] }),
};

export const verificationMethodShape = closed(componentMembers, exampleMethod);
export const keyAgreementShape = closed(componentMembers, exampleAgreement);
export const serviceShape = closed(
  {
    id: didUrlText,
    type: Type.String({ examples: ["SvcCacheService"] }),
    serviceEndpoint: Type.Union([Type.String(), Type.Array(Type.String())], { description: "1 to 5 URLs, or one" }),
    authorization: Type.Optional(Type.Array(Type.String(), { description: "method ids; empty authorizes nobody" })),
    priority: Type.Optional(Type.Integer({ minimum: 0, maximum: 4_294_967_295 })),
  },
  renderService(exampleService),
);

export const exampleDocumentJson = renderDocument(exampleDocument);

/** A document as sent: ids may be relative (`#k1`), absent lists are empty, `@context` is left out. */
export const documentInShape = closed(
  {
    "@context": Type.Optional(Type.Unknown({ description: "accepted and left out" })),
    id: didText,
    verificationMethod: Type.Optional(Type.Array(verificationMethodShape)),
    authentication: Type.Optional(Type.Array(Type.String())),
    keyAgreement: Type.Optional(Type.Array(keyAgreementShape)),
    service: Type.Optional(Type.Array(serviceShape)),
  },
  exampleDocumentJson,
);

/** A document as answered: ids are absolute, all four lists are present. */
export const documentShape = open(
  {
    id: didText,
    verificationMethod: Type.Array(verificationMethodShape),
    authentication: Type.Array(didUrlText),
    keyAgreement: Type.Array(keyAgreementShape),
    service: Type.Array(serviceShape),
  },
  exampleDocumentJson,
);

const checkForm = compileShape(documentInShape);

/** A document from JSON that nothing has checked before. Refuses with `invalid_request`. */
export function parseDocument(json: unknown, did: Did): DidDocument | Fault {
  const form = checkForm(json);
  return isFault(form) ? form : normalizeDocument(form, did);
}
