/**
 * Replacement of the full document, with a proof of the root key: version 1 carries a fresh time later
 * than that of the last full document, versions 2 and 3 the document nonce and an expiry.
 * Source: interface `PUT /dids/{did}/document/proof`, rules sections 4 ("Full document") and 10.
 */

import type { Static } from "@sinclair/typebox";
import { decodeBase64, decodePayloadText } from "../../core/codec/bytes.ts";
import type { Did } from "../../core/codec/did.ts";
import { parsePublicKey } from "../../core/codec/public-key.ts";
import { badInput, type Fault, isFault } from "../../core/fault.ts";
import type { DocumentCall } from "../../core/ledger/calls.ts";
import { type DocumentForm, hasOwnIds, normalizeDocument } from "../../core/ledger/document.ts";
import { decodeDidDocument, encodeDidDocument } from "../../core/ledger/document-codec.ts";
import { documentMessage, parseProofTimestamp, proofLifeMsMax } from "../../core/ledger/record-proof.ts";
import { replaceDocumentAnswer, replaceDocumentBody, signedDocument } from "../../core/schema/directory.ts";
import { compileShape } from "../../core/schema/schema.ts";
import type { Call, Route } from "../http/route.ts";
import {
  bindDid,
  checkEnd,
  checkFreshness,
  type DirectoryParts,
  decodeBody,
  directoryRoute,
  explainSignature,
  mutationCodes,
  renderAccepted,
} from "./parts.ts";

export const documentPath = "/dids/:did/document/proof";

export function documentRoute(parts: DirectoryParts): Route {
  const parseShape = compileShape(replaceDocumentBody);
  return directoryRoute({
    method: "PUT",
    path: documentPath,
    id: "replace_document",
    summary: "Replace the full document",
    request: replaceDocumentBody,
    answer: [202, "The ledger has taken the document; it is not settled.", replaceDocumentAnswer],
    codes: [
      ...mutationCodes,
      "authorization_expired",
      "authorization_too_far_ahead",
      "document_invalid",
      "document_stale",
      "nonce_mismatch",
      "invalid_signature",
    ],
    signed: signedDocument,
    handle: async (call) => {
      const replacement = decodeReplacement(call, decodeBody(call, parseShape));
      if (isFault(replacement)) return replacement;
      const early = checkProofTime(replacement, call.nowMs, parts.limits.clock_skew);
      if (early !== null) return early;
      const submission = await parts.ledger.submit(replacement, "replace_document");
      if (isFault(submission)) {
        const { genesisHash } = await parts.ledger.proofs();
        return explainSignature(submission, documentMessage(replacement, genesisHash) ?? new Uint8Array(0));
      }
      const { did, name } = replacement;
      return renderAccepted({ did, action: "replace_document", extrinsic: name }, submission);
    },
  });
}

function decodeReplacement(call: Call, body: Static<typeof replaceDocumentBody> | Fault): DocumentCall | Fault {
  if (isFault(body)) return body;
  const did = bindDid(call, body.did);
  if (isFault(did)) return did;
  const docBlob = parseDocumentMember(body, did);
  if (isFault(docBlob)) return docBlob;
  const pubkey = parsePublicKey(body.pubkey);
  if (pubkey === null) return badInput("invalid_request", "/pubkey", "is no public key");
  const signature = decodeBase64(body.signature) as Uint8Array;
  return { name: "set_document_with_proof", did, docBlob, timestamp: body.timestamp, pubkey, signature };
}

/**
 * The SCALE document of a body that gives it as JSON or as a blob, exactly one of the two. A blob is held
 * to the same ids as JSON: absolute, and of this DID.
 */
export function parseDocumentMember(
  body: { readonly document?: DocumentForm | undefined; readonly doc_blob?: string | undefined },
  did: Did,
): Uint8Array | Fault {
  if ((body.document === undefined) === (body.doc_blob === undefined)) {
    return badInput("invalid_request", "/document", "exactly one of document and doc_blob must be given");
  }
  if (body.document !== undefined) {
    const document = normalizeDocument(body.document, did, "/document");
    return isFault(document) ? document : encodeDidDocument(document);
  }
  const blob = decodePayloadText(body.doc_blob ?? "");
  if (blob === null) return badInput("invalid_request", "/doc_blob", "must be 0x hex or Base64");
  const document = decodeDidDocument(blob);
  // What can't be decoded is left to the ledger's rules, which refuse it as an invalid document.
  if (document === null) return blob;
  if (document.id !== did) return badInput("invalid_request", "/doc_blob", "the document belongs to another DID");
  return hasOwnIds(document, did)
    ? blob
    : badInput("invalid_request", "/doc_blob", "holds ids that are not of this DID");
}

function checkProofTime(call: DocumentCall, nowMs: number, skewMs: number): Fault | null {
  const time = parseProofTimestamp(call.timestamp);
  if (time === null) return badInput("invalid_request", "/timestamp", "is of no known form");
  if (time.version === "v1") return checkFreshness(time.timestampMs, nowMs, skewMs);
  return checkEnd(time.expiryMs, nowMs, { aheadMsMax: proofLifeMsMax, pointer: "/timestamp" });
}
