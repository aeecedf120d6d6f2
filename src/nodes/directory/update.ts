/**
 * Updates that a key of the DID authorizes with a signed SCALE payload: components of the document, the root key,
 * aliases, deactivation, deletion (`core/ledger/actions.ts` lists the routes), and the replacement of the full document
 * with a proof of the root key. What the ledger refuses is not checked before (D147).
 * Source: interface "Signed DID-document updates", rules section 4 ("Signing order of checks").
 */
import type { Static } from "@sinclair/typebox";
import { decodeBase64, decodePayloadText, equalBytes, parsePublicKey } from "../../core/codec/bytes.ts";
import { type Did, didOfUrl, normalizeAlias, parseDidUrl } from "../../core/codec/did.ts";
import { parseU64 } from "../../core/codec/json.ts";
import { parseTimestamp } from "../../core/codec/time.ts";
import { badInput, type Fault, type FaultCode, fault, isFault } from "../../core/fault.ts";
import { renderDocument } from "../../core/ledger/account.ts";
import { type ActionName, actionNames, actionRows, counters, type Intent } from "../../core/ledger/actions.ts";
import { callOfIntent, type DocumentCall, type ProofCall } from "../../core/ledger/calls.ts";
import { type DocumentForm, normalizeDocument, rootKeyId } from "../../core/ledger/document.ts";
import type { Terms } from "../../core/ledger/document-codec.ts";
import {
  decodeDidDocument,
  documentMessage,
  encodeDidDocument,
  parseProofTimestamp,
} from "../../core/ledger/document-codec.ts";
import { parseIntent, subjectOf, subjectParameter } from "../../core/ledger/intents.ts";
import { decodePayload, encodeAuthorization, firstDifference } from "../../core/ledger/structures.ts";
import {
  aliasUpdateAnswer,
  type authorizationShape,
  replaceDocumentAnswer,
  replaceDocumentBody,
  updateAnswer,
  updateBody,
} from "../../core/schema/directory.ts";
import { parseDocument } from "../../core/schema/identity.ts";
import { compileShape } from "../../core/schema/schema.ts";
import { actionText } from "../../core/schema/signing.ts";
import type { Call, Route } from "../http/route.ts";
import {
  bindDid,
  checkEnd,
  checkFreshness,
  checkProofTime,
  type DirectoryParts,
  decodeBody,
  directoryRoute,
  explainSignature,
  mutationCodes,
  parsePathId,
  pathValue,
  renderAccepted,
  submit,
} from "./parts.ts";

const updateCodes = [
  ...mutationCodes,
  "action_mismatch",
  "invalid_canonical_payload",
  "payload_mismatch",
  "authorization_expired",
  "authorization_too_far_ahead",
  "nonce_mismatch",
  "invalid_signature",
] as const satisfies readonly FaultCode[];

export function updateRoutes(parts: DirectoryParts): Route[] {
  return actionNames.map((action) => updateRoute(parts, action));
}

function updateRoute(parts: DirectoryParts, action: ActionName): Route {
  const { method, path } = actionRows[action].route;
  const { summary, codes } = actionText(action);
  const request = updateBody(action);
  const parseShape = compileShape(request) as (value: unknown) => UpdateBody | Fault;
  const schema = isAliasAction(action) ? aliasUpdateAnswer : updateAnswer;
  return directoryRoute({
    method,
    path,
    id: action,
    summary,
    request,
    answer: [202, "The ledger has accepted the update; it is not settled yet.", schema],
    codes: [
      ...updateCodes,
      ...codes,
      ...(actionRows[action].counter === "document" ? (["document_needed"] as const) : []),
    ],
    unstable: isAliasAction(action),
    handle: async (call) => {
      const update = decodeUpdate(call, action, decodeBody(call, parseShape));
      if (isFault(update)) return update;
      const untimely = checkTimes(update, call.nowMs, parts);
      if (untimely !== null) return untimely;
      const submission = await submit(parts, update.call, action);
      if (isFault(submission)) return explainSignature(submission, update.call.signedPayload);
      return renderAccepted(acceptedOf(update.intent), submission);
    },
  });
}

function isAliasAction(action: ActionName): boolean {
  return actionRows[action].counter === "alias";
}

function acceptedOf(intent: Intent) {
  const { did, action } = intent;
  if (intent.action === "update_alias") return { did, action, alias: intent.newAlias };
  return "alias" in intent ? { did, action, alias: intent.alias } : { did, action };
}

// ---------------------------------------------------------------------------------------------- decoding

type Members = Readonly<Record<string, unknown>>;
type UpdateBody = Static<typeof authorizationShape> & Members;

/** A signed update whose payload agrees with the request. */
type SignedUpdate = {
  readonly intent: Intent;
  readonly terms: Terms;
  readonly call: ProofCall;
  /** `timestamp` of alias bodies, which the signature does not cover. */
  readonly timestampMs: number | null;
};

function decodeUpdate(call: Call, action: ActionName, body: UpdateBody | Fault): SignedUpdate | Fault {
  if (isFault(body)) return body;
  const did = bindDid(call, body.did);
  if (isFault(did)) return did;
  const intent = parseIntent(action, body, did);
  if (isFault(intent)) return intent;
  const mismatch = compareSubject(call, actionRows[action].route.path, intent);
  if (mismatch !== null) return mismatch;
  if (body.action !== action) return badInput("action_mismatch", "/action", `must be ${JSON.stringify(action)} here`);
  const terms = parseTerms(body);
  if (isFault(terms)) return terms;
  const signedPayload = decodeSignedPayload(body.canonical_payload, intent, terms);
  if (isFault(signedPayload)) return signedPayload;
  const signature = decodeBase64(body.signature) as Uint8Array;
  const timestamp = body["timestamp"];
  return {
    intent,
    terms,
    call: callOfIntent(intent, { signedPayload, signature, signerKeyId: terms.signerKeyId }),
    timestampMs: typeof timestamp === "string" ? parseTimestamp(timestamp) : null,
  };
}

/** The component or alias of the path must be the one of the body, in normal form. */
function compareSubject(call: Call, path: string, intent: Intent): Fault | null {
  const parameter = subjectParameter(path);
  const subject = parameter === null ? null : subjectOf(intent);
  if (parameter === null || subject === null) return null;
  const text = pathValue(call, parameter);
  const named = parameter === "alias" ? parsePathAlias(text) : parsePathId(text, intent.did);
  if (isFault(named)) return named;
  return named === subject.value ? null : badInput("path_body_mismatch", subject.pointer, "differs from the path");
}

function parsePathAlias(text: string): string | Fault {
  return normalizeAlias(text) ?? fault("invalid_request", "the path must name an alias");
}

/** Counter value, end and signer of an authorization. `signer_key_id` is `root` or an absolute id. */
function parseTerms(body: UpdateBody): Terms | Fault {
  const signerKeyId = parseSigner(body.signer_key_id);
  if (isFault(signerKeyId)) return signerKeyId;
  const nonce = parseU64(body.nonce) as bigint;
  const validUntilMs = BigInt(body.valid_until);
  return { nonce, validUntilMs, signerKeyId };
}

export function parseSigner(text: string = rootKeyId): string | Fault {
  if (text === rootKeyId) return text;
  const did = didOfUrl(text);
  const known = did !== null && parseDidUrl(text, did) === text;
  return known ? text : badInput("invalid_request", "/signer_key_id", "must be root or <did>#<fragment>");
}

/** The bytes that were signed, once they are exactly those that the other members make. */
function decodeSignedPayload(text: string, intent: Intent, terms: Terms): Uint8Array | Fault {
  const bytes = decodePayloadText(text);
  if (bytes === null) return badInput("invalid_canonical_payload", "/canonical_payload", "must be 0x hex or Base64");
  const { counter } = actionRows[intent.action];
  const same = equalBytes(bytes, encodeAuthorization(intent, terms));
  const payload = decodePayload(counter, bytes);
  if (payload !== null) return same ? bytes : payloadMismatch(firstDifference(payload, intent, terms));
  if (same) return fault("document_invalid", "a member is larger than the ledger allows");
  const structure = counters[counter].nonceDomain;
  return badInput("invalid_canonical_payload", "/canonical_payload", `is not a payload of the ${structure} structure`);
}

/** 400 that names the member of the body that differs from the payload. */
function payloadMismatch(pointer: string): Fault {
  const errors = [
    { pointer, message: "differs from the signed payload" },
    { pointer: "/canonical_payload", message: "differs from what the other members make" },
  ];
  return fault("payload_mismatch", `${pointer}: differs from the signed payload`, { errors });
}

/** Expiry comes before everything that is read from the ledger: now < valid_until <= now + the window. */
function checkTimes(update: SignedUpdate, nowMs: number, { settings, limits }: DirectoryParts): Fault | null {
  const { validUntilMs } = update.terms;
  return (
    checkEnd(validUntilMs, nowMs, { aheadMsMax: settings.authorization_max_ahead, pointer: "/valid_until" }) ??
    (update.timestampMs === null ? null : checkFreshness(update.timestampMs, nowMs, limits.clock_skew))
  );
}

// ------------------------------------------------------------------------------------------ the full document

export const documentPath = "/dids/:did/document/proof";

export function documentRoute(parts: DirectoryParts): Route {
  const parseShape = compileShape(replaceDocumentBody);
  return directoryRoute({
    method: "PUT",
    path: documentPath,
    id: "replace_document",
    summary: "Replace the full document",
    request: replaceDocumentBody,
    answer: [202, "The ledger has accepted the document; it is not settled yet.", replaceDocumentAnswer],
    codes: [
      ...mutationCodes,
      "authorization_expired",
      "authorization_too_far_ahead",
      "document_invalid",
      "document_stale",
      "nonce_mismatch",
      "invalid_signature",
    ],
    handle: async (call) => {
      const replacement = decodeReplacement(call, decodeBody(call, parseShape));
      if (isFault(replacement)) return replacement;
      const time = parseProofTimestamp(replacement.timestamp);
      if (time === null) return badInput("invalid_request", "/timestamp", "has an unknown form");
      const untimely = checkProofTime(time, call.nowMs, parts.limits.clock_skew);
      if (untimely !== null) return untimely;
      const submission = await submit(parts, replacement, "replace_document");
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
  if (pubkey === null) return badInput("invalid_request", "/pubkey", "must be a public key");
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
  const normal = parseDocument(renderDocument(document), did);
  const isNormal = !isFault(normal) && equalBytes(encodeDidDocument(normal), encodeDidDocument(document));
  return isNormal
    ? blob
    : badInput("invalid_request", "/doc_blob", "contains ids that are not absolute ids of this DID");
}
