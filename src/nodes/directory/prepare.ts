/**
 * Preparation: everything a client needs to sign, made by the Directory, so that no client has to know
 * SCALE. It returns the complete body without the signature, the bytes to sign, and where the body goes.
 * It changes nothing. It refuses a body of the wrong shape and a document that breaks a rule; whether an
 * update fits the present document is checked when it is submitted.
 * Source: rules sections 4 ("Preparation") and 10.
 */
import type { Static } from "@sinclair/typebox";
import { encodeHex0x, renderPublicKey } from "../../core/codec/bytes.ts";
import { type Did, normalizeAlias } from "../../core/codec/did.ts";
import { parseJsonObject } from "../../core/codec/json.ts";
import { renderTimestamp } from "../../core/codec/time.ts";
import { badInput, type Fault, fault, isFault } from "../../core/fault.ts";
import type { Account, Counters, DidRecord, LedgerBounds } from "../../core/ledger/account.ts";
import {
  type ActionName,
  actionNames,
  actionRows,
  counters as counterRows,
  type Intent,
} from "../../core/ledger/actions.ts";
import { checkDocument, rootKeyId } from "../../core/ledger/document.ts";
import {
  authorizationMessage,
  decodeDidDocument,
  documentMessage,
  encodeDidDocument,
  proofLifeMsMax,
  registrationMessage,
  renderProofTimestamp,
} from "../../core/ledger/document-codec.ts";
import { fillPath, parseIntent, requestOf } from "../../core/ledger/intents.ts";
import { faultOfRefusal } from "../../core/ledger/refusals.ts";
import { renderUpdate } from "../../core/ledger/structures.ts";
import {
  anyPrepareBody,
  prepareDocumentBody,
  preparedAnswer,
  prepareRegistrationBody,
  prepareUpdateBody,
} from "../../core/schema/directory.ts";
import { compileShape } from "../../core/schema/schema.ts";
import type { Call, Route } from "../http/route.ts";
import {
  askedVersion,
  type Binding,
  bindDid,
  checkEnd,
  type DirectoryParts,
  decideBound,
  decideVersion,
  decodeBody,
  directoryRoute,
  type PreparedVersion,
  pathCodes,
  readBinding,
} from "./parts.ts";
import {
  checkForm,
  checkSubject,
  gatherFacts,
  parseRegistrationSubject,
  type RegistrationSubject,
} from "./register.ts";
import { documentPath, parseDocumentMember, parseSigner } from "./update.ts";

export function prepareRoutes(parts: DirectoryParts): Route[] {
  return [prepareRegistrationRoute(parts), prepareUpdateRoute(parts)];
}

// ------------------------------------------------------------------------------------------------ answer

/** The answer without what `renderPrepared` adds. */
type Prepared = Omit<Static<typeof preparedAnswer>, "payload_to_sign" | "expires_at"> & {
  readonly payload: Uint8Array;
  readonly expiresAtMs: number;
};

function renderPrepared({ payload, expiresAtMs, ...members }: Prepared, binding: Binding): Record<string, unknown> {
  return {
    ...members,
    payload_to_sign: encodeHex0x(payload),
    expires_at: renderTimestamp(expiresAtMs),
    genesis_hash: encodeHex0x(binding.genesisHash),
    operator_account: encodeHex0x(binding.submitter),
  };
}

/** When the prepared request expires: as asked, or after the default life; never beyond the window. */
function decidePreparedEnd(
  asked: string | number | undefined,
  nowMs: number,
  life: { readonly defaultMs: number; readonly aheadMsMax: number },
): bigint | Fault {
  const endMs = asked === undefined ? BigInt(nowMs + Math.min(life.defaultMs, life.aheadMsMax)) : BigInt(asked);
  return checkEnd(endMs, nowMs, { aheadMsMax: life.aheadMsMax, pointer: "/valid_until" }) ?? endMs;
}

// ------------------------------------------------------------------------------------------ registration

type PrepareRegistration = Static<typeof prepareRegistrationBody>;

function prepareRegistrationRoute(parts: DirectoryParts): Route {
  const parseShape = compileShape(prepareRegistrationBody);
  return directoryRoute({
    method: "POST",
    path: "/register-did/prepare",
    id: "prepareRegistration",
    summary: "Prepare a registration for signing",
    request: prepareRegistrationBody,
    answer: [200, "The body to submit and the bytes to sign.", preparedAnswer],
    codes: [
      "invalid_did",
      "authorization_expired",
      "authorization_too_far_ahead",
      "document_invalid",
      "document_stale",
      "alias_taken",
      "did_already_registered",
      "chain_unavailable",
    ],
    handle: async (call) => {
      const body = decodeBody(call, parseShape);
      if (isFault(body)) return body;
      const subject = parseRegistrationSubject(body);
      if (isFault(subject)) return subject;
      const misnamed = checkForm(subject.did, parts.settings);
      if (misnamed !== null) return misnamed;
      const life = { defaultMs: parts.settings.prepared_life, aheadMsMax: proofLifeMsMax };
      const endMs = decidePreparedEnd(body.valid_until, call.nowMs, life);
      if (isFault(endMs)) return endMs;
      const binding = await readBinding(parts.ledger);
      const version = decideVersion(askedVersion(body.proof_version, subject.did, binding), parts.settings, binding);
      if (isFault(version)) return version;
      const facts = await gatherFacts(parts.ledger, subject, call.nowMs);
      const refusal = checkSubject(subject, facts);
      if (refusal !== null) return refusal;
      const isAsked = body.valid_until !== undefined;
      const expiryMs = decideExpiry(facts.account, { endMs, isAsked, nowMs: call.nowMs });
      if (isFault(expiryMs)) return expiryMs;
      return {
        status: 200,
        json: renderPrepared(prepareRegistration(body, subject, { version, expiryMs, binding }), binding),
      };
    },
  });
}

/**
 * When the proof expires. After a deletion the ledger accepts only one that expires later than the one before it, so this
 * one does; 409 `document_stale` names the time until which none can be made.
 */
function decideExpiry(
  { registrationExpiryMs: before }: Account,
  { endMs, isAsked, nowMs }: { readonly endMs: bigint; readonly isAsked: boolean; readonly nowMs: number },
): bigint | Fault {
  if (endMs > before) return endMs;
  const laterMs = before + 1n;
  if (!isAsked && laterMs <= BigInt(nowMs + proofLifeMsMax)) return laterMs;
  const time = renderTimestamp(Number(before));
  return fault(
    "document_stale",
    `the DID was registered before: valid_until must be later than ${time} (${before} ms)`,
  );
}

type Proof = { readonly version: PreparedVersion; readonly expiryMs: bigint; readonly binding: Binding };

function prepareRegistration(
  body: PrepareRegistration,
  { did, document, pubkey, aliasText }: RegistrationSubject,
  { version, expiryMs, binding }: Proof,
): Prepared {
  const alias = aliasText === null ? null : normalizeAlias(aliasText);
  const timestamp = renderProofTimestamp(0n, expiryMs, version);
  const payload = registrationMessage({ did, alias, timestamp, pubkey, docBlob: encodeDidDocument(document) }, binding);
  return {
    did,
    action: "register",
    nonce_domain: null,
    payload: payload as Uint8Array,
    request: {
      did,
      ...(alias === null ? {} : { alias }),
      root_pubkey: body.root_pubkey ?? renderPublicKey(pubkey),
      did_document: body.did_document,
      timestamp,
    },
    submit: { method: "POST", path: "/register-did" },
    expiresAtMs: Number(expiryMs),
    proof_version: version,
  };
}

// ----------------------------------------------------------------------------------------------- updates

/** What is asked for: by whom it is signed, and until when it holds. */
type Asked = {
  readonly did: Did;
  readonly signerKeyId: string;
  readonly endMs: bigint;
  readonly nowMs: number;
  readonly version: string | undefined;
  readonly wanted: Intent | NewDocument;
};

/** `request` is the document as it was sent. */
type NewDocument = { readonly action: typeof documentAction; readonly docBlob: Uint8Array; readonly request: object };
const documentAction = "replace_document";

type DidState = {
  readonly record: DidRecord;
  readonly counters: Counters;
  readonly bounds: LedgerBounds;
  readonly genesisHash: Uint8Array;
  /** Whether the proof is of version 3. */
  readonly bound: boolean;
};

function prepareUpdateRoute(parts: DirectoryParts): Route {
  const checks = new Map<string, (json: unknown) => PrepareUpdate | Fault>();
  for (const action of actionNames) checks.set(action, compileShape(prepareUpdateBody(action)));
  checks.set(documentAction, compileShape(prepareDocumentBody));
  return directoryRoute({
    method: "POST",
    path: "/dids/:did/prepare",
    id: "prepareUpdate",
    summary: "Prepare any update of a DID for signing",
    request: anyPrepareBody([...checks.keys()]),
    answer: [200, "The body to submit and the bytes to sign.", preparedAnswer],
    codes: [
      ...pathCodes,
      "path_body_mismatch",
      "action_mismatch",
      "authorization_expired",
      "authorization_too_far_ahead",
      "did_not_found",
      "did_deactivated",
      "document_invalid",
    ],
    handle: async (call) => {
      const asked = decodeAsked(call, parts, checks);
      if (isFault(asked)) return asked;
      const { did, version, wanted } = asked;
      const [{ counters, record }, bounds, binding] = await Promise.all([
        parts.ledger.account(did),
        parts.ledger.bounds(),
        readBinding(parts.ledger),
      ]);
      const bound = decideBound(askedVersion(version, did, binding), binding);
      if (isFault(bound)) return bound;
      if (record === null) return fault("did_not_found", "the DID is not registered");
      if (record.deactivated) return fault("did_deactivated", "the DID is deactivated");
      const state = { record, counters, bounds, genesisHash: binding.genesisHash, bound };
      const prepared =
        "docBlob" in wanted ? prepareDocument(asked, wanted, state) : prepareAction(asked, wanted, state);
      return isFault(prepared) ? prepared : { status: 200, json: renderPrepared(prepared, binding) };
    },
  });
}

type PrepareUpdate = Static<typeof prepareDocumentBody> & Readonly<Record<string, unknown>>;

function decodeAsked(
  call: Call,
  parts: DirectoryParts,
  checks: ReadonlyMap<string, (json: unknown) => PrepareUpdate | Fault>,
): Asked | Fault {
  const json = parseJsonObject(call.body);
  if (isFault(json)) return json;
  const { action } = json;
  const check = typeof action === "string" ? checks.get(action) : undefined;
  if (check === undefined) return badInput("action_mismatch", "/action", "must name an action that can be prepared");
  const body = check(json);
  if (isFault(body)) return body;
  const did = bindDid(call, body.did);
  if (isFault(did)) return did;
  const signerKeyId = parseSigner(body.signer_key_id);
  if (isFault(signerKeyId)) return signerKeyId;
  const { prepared_life: defaultMs, authorization_max_ahead: aheadMsMax } = parts.settings;
  const endMs = decidePreparedEnd(body.valid_until, call.nowMs, { defaultMs, aheadMsMax });
  if (isFault(endMs)) return endMs;
  const wanted =
    body.action === documentAction
      ? decodeNewDocument(body, did, signerKeyId)
      : parseIntent(body.action as ActionName, body, did);
  if (isFault(wanted)) return wanted;
  return { did, signerKeyId, endMs, nowMs: call.nowMs, version: body.proof_version, wanted };
}

/** The full document is signed by the root key alone. */
function decodeNewDocument(body: PrepareUpdate, did: Did, signerKeyId: string): NewDocument | Fault {
  if (signerKeyId !== rootKeyId)
    return badInput("invalid_request", "/signer_key_id", "must be root: only the root key signs a full document");
  const { document, doc_blob } = body;
  const docBlob = parseDocumentMember({ document, doc_blob }, did);
  if (isFault(docBlob)) return docBlob;
  return { action: documentAction, docBlob, request: document === undefined ? { doc_blob } : { document } };
}

function prepareAction(
  { did, signerKeyId, endMs, nowMs }: Asked,
  intent: Intent,
  { counters, genesisHash, bound }: DidState,
): Prepared {
  const { action } = intent;
  const { counter } = actionRows[action];
  const nonce = counters[counter];
  const { payload, body } = renderUpdate(intent, { nonce, validUntilMs: endMs, signerKeyId }, nowMs);
  return {
    did,
    action,
    nonce_domain: counterRows[counter].nonceDomain,
    payload: bound ? authorizationMessage(counter, genesisHash, payload) : payload,
    proof_version: bound ? "v3" : "plain",
    request: body,
    submit: requestOf(intent),
    expiresAtMs: Number(endMs),
  };
}

function prepareDocument(
  { did, endMs }: Asked,
  { docBlob, request }: NewDocument,
  { record, counters, bounds, genesisHash, bound }: DidState,
): Prepared | Fault {
  const flaw = findFlaw(docBlob, did, bounds);
  if (flaw !== null) return flaw;
  if (record.rootPubkey === null) return fault("document_invalid", "the record has no root key");
  const version = bound ? "v3" : "v2";
  const timestamp = renderProofTimestamp(counters.document, endMs, version);
  return {
    did,
    action: documentAction,
    // The nonce is inside the timestamp, and `request` has no member of that name.
    nonce_domain: null,
    payload: documentMessage({ did, timestamp, docBlob }, genesisHash) as Uint8Array,
    proof_version: version,
    request: { did, ...request, timestamp, pubkey: renderPublicKey(record.rootPubkey) },
    submit: { method: "PUT", path: fillPath(documentPath, { did }) },
    expiresAtMs: Number(endMs),
  };
}

function findFlaw(docBlob: Uint8Array, did: Did, bounds: LedgerBounds): Fault | null {
  const document = decodeDidDocument(docBlob);
  if (document === null) return fault("document_invalid", "the document is too large or not a SCALE document");
  const flaw = checkDocument(document, did, bounds);
  return flaw === null ? null : faultOfRefusal(flaw);
}
