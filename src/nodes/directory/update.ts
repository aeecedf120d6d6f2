/**
 * Updates that a key of the DID authorizes with a signed SCALE payload: components of the
 * document, the root key, aliases, deactivation, deletion (`core/ledger/actions.ts` lists the
 * routes), and the replacement of the full document with a proof of the root key. What the ledger
 * refuses is not checked before (D147).
 * Source: interface "Signed DID-document updates", rules section 4 ("Signing order of checks").
 */
import type { Static, TSchema } from "@sinclair/typebox";
import {
  decodeBase64,
  decodePayloadText,
  equalBytes,
  parsePublicKey,
} from "../../core/codec/bytes.ts";
import { type Did, didOfUrl, normalizeAlias, parseDidUrl } from "../../core/codec/did.ts";
import { parseU64 } from "../../core/codec/json.ts";
import { parseTimestamp } from "../../core/codec/time.ts";
import { badInput, type Fault, type FaultCode, fault, isFault } from "../../core/fault.ts";
import { renderDocument } from "../../core/ledger/account.ts";
import {
  type ActionName,
  actionNames,
  actionRows,
  type Intent,
} from "../../core/ledger/actions.ts";
import { callOfIntent } from "../../core/ledger/calls.ts";
import { type DocumentForm, normalizeDocument, rootKeyId } from "../../core/ledger/document.ts";
import {
  decodeDidDocument,
  documentMessage,
  encodeDidDocument,
  parseProofTimestamp,
  type Terms,
} from "../../core/ledger/document-codec.ts";
import { parseIntent, subjectOf, subjectParameter } from "../../core/ledger/intents.ts";
import {
  decodePayload,
  encodeAuthorization,
  firstDifference,
} from "../../core/ledger/structures.ts";
import {
  actionTexts,
  type authorizationShape,
  replaceDocumentBody,
  updateBody,
} from "../../core/schema/directory.ts";
import { parseDocument } from "../../core/schema/identity.ts";
import type { Call, Route } from "../http/route.ts";
import {
  type Change,
  changeRoute,
  checkEnd,
  checkFreshness,
  checkProofTime,
  type DirectoryParts,
  parsePathId,
  pathValue,
} from "./parts.ts";

const updateCodes = [
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
  const { route, counter } = actionRows[action];
  const [summary, ...codes] = actionTexts[action];
  return changeRoute(parts, {
    ...route,
    id: action,
    summary,
    request: updateBody(action) as TSchema & { static: UpdateBody },
    codes: [
      ...updateCodes,
      ...codes,
      ...(counter === "document" ? (["document_needed"] as const) : []),
    ],
    unstable: counter === "alias",
    decide: (body, did, call) => decideUpdate(parts, action, { ...body, did }, call),
  });
}

// ---------------------------------------------------------------------------------------- decoding

type UpdateBody = Static<typeof authorizationShape> & Readonly<Record<string, unknown>>;
/**
 * A signed update whose payload agrees with the request. What it needs of the ledger
 * is the ledger's to check.
 */
function decideUpdate(
  { settings, limits }: DirectoryParts,
  action: ActionName,
  body: UpdateBody & { readonly did: Did },
  call: Call,
): Change | Fault {
  const intent = parseIntent(action, body, body.did);
  if (isFault(intent)) return intent;
  const mismatch = compareSubject(call, actionRows[action].route.path, intent);
  if (mismatch !== null) return mismatch;
  if (body.action !== action)
    return badInput("action_mismatch", "/action", `must be ${JSON.stringify(action)} here`);
  const signerKeyId = parseSigner(body.signer_key_id);
  if (isFault(signerKeyId)) return signerKeyId;
  const terms = {
    nonce: parseU64(body.nonce) as bigint,
    validUntilMs: BigInt(body.valid_until),
    signerKeyId,
  };
  const signedPayload = decodeSignedPayload(body.canonical_payload, intent, terms);
  if (isFault(signedPayload)) return signedPayload;
  const endRule = { aheadMsMax: settings.authorization_max_ahead, pointer: "/valid_until" };
  const { timestamp } = body;
  const untimely =
    checkEnd(terms.validUntilMs, call.nowMs, endRule) ??
    // Of alias bodies; the signature does not cover it.
    (typeof timestamp === "string"
      ? checkFreshness(parseTimestamp(timestamp) as number, call.nowMs, limits.clock_skew)
      : null);
  if (untimely !== null) return untimely;
  const signature = decodeBase64(body.signature) as Uint8Array;
  return {
    call: callOfIntent(intent, { signedPayload, signature, signerKeyId }),
    named: { action, ...aliasOf(intent) },
    signed: () => signedPayload,
    ...newAliasOf(intent),
  };
}

function newAliasOf(intent: Intent): { readonly newAlias?: string } {
  if (intent.action === "update_alias") return { newAlias: intent.newAlias };
  return intent.action === "add_alias" ? { newAlias: intent.alias } : {};
}

function aliasOf(intent: Intent): { readonly alias?: string } {
  if (intent.action === "update_alias") return { alias: intent.newAlias };
  return "alias" in intent ? { alias: intent.alias } : {};
}

/** The component or alias of the path must be the one of the body, in normal form. */
function compareSubject(call: Call, path: string, intent: Intent): Fault | null {
  const parameter = subjectParameter(path);
  const subject = parameter === null ? null : subjectOf(intent);
  if (parameter === null || subject === null) return null;
  const text = pathValue(call, parameter);
  const alias = () =>
    normalizeAlias(text) ?? fault("invalid_request", "the path must name an alias");
  const named = parameter === "alias" ? alias() : parsePathId(text, intent.did);
  if (isFault(named)) return named;
  return named === subject.value
    ? null
    : badInput("path_body_mismatch", subject.pointer, "differs from the path");
}

/** `root` or an absolute id. */
export function parseSigner(text: string = rootKeyId): string | Fault {
  if (text === rootKeyId) return text;
  const did = didOfUrl(text);
  const known = did !== null && parseDidUrl(text, did) === text;
  return known
    ? text
    : badInput("invalid_request", "/signer_key_id", "must be root or <did>#<fragment>");
}

/** The bytes that were signed, once they are exactly those that the other members make. */
function decodeSignedPayload(text: string, intent: Intent, terms: Terms): Uint8Array | Fault {
  const bytes = decodePayloadText(text);
  if (bytes === null)
    return badInput("invalid_canonical_payload", "/canonical_payload", "must be 0x hex or Base64");
  const { counter } = actionRows[intent.action];
  const same = equalBytes(bytes, encodeAuthorization(intent, terms));
  const payload = decodePayload(counter, bytes);
  if (payload !== null)
    return same ? bytes : payloadMismatch(firstDifference(payload, intent, terms));
  if (same) return fault("document_invalid", "a member is larger than the ledger allows");
  return badInput(
    "invalid_canonical_payload",
    "/canonical_payload",
    "is not the structure that this action signs: POST /dids/{did}/prepare answers it",
  );
}

/** 400 that names the member of the body that differs from the payload. */
function payloadMismatch(pointer: string): Fault {
  const errors = [
    { pointer, message: "differs from the signed payload" },
    { pointer: "/canonical_payload", message: "differs from what the other members make" },
  ];
  return fault("payload_mismatch", `${pointer}: differs from the signed payload`, { errors });
}

// ------------------------------------------------------------------------------- the full document

export const documentPath = "/dids/:did/document/proof";

export function documentRoute(parts: DirectoryParts): Route {
  return changeRoute(parts, {
    method: "PUT",
    path: documentPath,
    id: "replace_document",
    summary: "Replace the full document",
    request: replaceDocumentBody,
    codes: [
      "authorization_expired",
      "authorization_too_far_ahead",
      "document_invalid",
      "document_stale",
      "nonce_mismatch",
      "invalid_signature",
    ],
    decide: (body, did, { nowMs }) => {
      const docBlob = parseDocumentMember(body, did);
      if (isFault(docBlob)) return docBlob;
      const pubkey = parsePublicKey(body.pubkey);
      if (pubkey === null) return badInput("invalid_request", "/pubkey", "must be a public key");
      const time = parseProofTimestamp(body.timestamp);
      if (time === null) return badInput("invalid_request", "/timestamp", "has an unknown form");
      const untimely = checkProofTime(time, nowMs, parts.limits.clock_skew);
      if (untimely !== null) return untimely;
      const signature = decodeBase64(body.signature) as Uint8Array;
      const name = "set_document_with_proof";
      const call = { name, did, docBlob, timestamp: body.timestamp, pubkey, signature } as const;
      const signed = async () =>
        documentMessage(call, (await parts.ledger.proofs()).genesisHash) ?? new Uint8Array(0);
      return { call, named: { action: "replace_document", extrinsic: name }, signed };
    },
  });
}

/**
 * The SCALE document of a body that gives it as JSON or as a blob, exactly one of the two. A blob
 * is held to the same ids as JSON: absolute, and of this DID.
 */
export function parseDocumentMember(
  body: { readonly document?: DocumentForm | undefined; readonly doc_blob?: string | undefined },
  did: Did,
): Uint8Array | Fault {
  if ((body.document === undefined) === (body.doc_blob === undefined)) {
    return badInput(
      "invalid_request",
      "/document",
      "exactly one of document and doc_blob must be given",
    );
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
  const isNormal =
    !isFault(normal) && equalBytes(encodeDidDocument(normal), encodeDidDocument(document));
  return isNormal
    ? blob
    : badInput(
        "invalid_request",
        "/doc_blob",
        "contains ids that are not absolute ids of this DID",
      );
}
