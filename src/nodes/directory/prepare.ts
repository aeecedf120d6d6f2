/**
 * Preparation: everything a client needs to sign, made by the Directory, so that no client has to
 * know SCALE. It returns the complete body without the signature, the bytes to sign, and where the
 * body goes. It changes nothing. It refuses a body of the wrong shape and a document that breaks a
 * rule; whether an update fits the present document is checked when it is submitted.
 * Source: rules section 4 ("Preparation").
 */
import type { Static } from "@sinclair/typebox";
import { encodeHex0x, renderPublicKey } from "../../core/codec/bytes.ts";
import { type Did, normalizeAlias } from "../../core/codec/did.ts";
import { parseJsonObject } from "../../core/codec/json.ts";
import { renderTimestamp } from "../../core/codec/time.ts";
import { badInput, type Fault, fault, isFault } from "../../core/fault.ts";
import type { Account, DidRecord, LedgerBounds } from "../../core/ledger/account.ts";
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
import type { Answer, Call, Route } from "../http/route.ts";
import {
  acceptedVersions,
  type Binding,
  bindDid,
  type DirectoryParts,
  decodeBody,
  directoryRoute,
  isBound,
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

/** The answer without what every preparation adds. */
type Prepared = Pick<
  Static<typeof preparedAnswer>,
  "did" | "action" | "request" | "submit" | "proof_version"
> & {
  /** `null` where the nonce is inside the timestamp, and `request` has no member of that name. */
  readonly nonce_domain: Static<typeof preparedAnswer>["nonce_domain"];
  readonly payload: Uint8Array;
};

function renderPrepared(
  { payload, ...members }: Prepared,
  endMs: bigint,
  binding: Binding,
): Answer {
  const json = {
    ...members,
    payload_to_sign: encodeHex0x(payload),
    expires_at: renderTimestamp(Number(endMs)),
    genesis_hash: encodeHex0x(binding.genesisHash),
    operator_account: encodeHex0x(binding.submitter),
  };
  return { status: 200, json };
}

// ------------------------------------------------------------------------------------ registration

export function prepareRegistrationRoute(parts: DirectoryParts): Route {
  const { ledger, settings } = parts;
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
      "document_invalid",
      "alias_taken",
      "did_already_registered",
      "chain_unavailable",
    ],
    handle: async (call) => {
      const body = decodeBody(call, parseShape);
      if (isFault(body)) return body;
      const subject = parseRegistrationSubject(body);
      if (isFault(subject)) return subject;
      const misnamed = checkForm(subject.did, settings);
      if (misnamed !== null) return misnamed;
      const binding = await readBinding(ledger);
      const version = proofVersion(subject.did, settings, binding);
      if (version === null)
        return fault(
          "invalid_request",
          "this Directory accepts no registration proof that it can prepare",
        );
      const facts = await gatherFacts(ledger, subject, call.nowMs);
      const refusal = checkSubject(subject, facts);
      if (refusal !== null) return refusal;
      const endMs = proofEndMs(call.nowMs + settings.prepared_life, facts.account);
      const timestamp = renderProofTimestamp(0n, endMs, version);
      const prepared = prepareRegistration({ body, subject, binding, version, timestamp });
      return renderPrepared(prepared, endMs, binding);
    },
  });
}

/**
 * The oldest version that the Directory accepts for this DID; `null` when it accepts
 * none that it can prepare.
 */
function proofVersion(
  did: Did,
  settings: DirectoryParts["settings"],
  binding: Binding,
): "v2" | "v3" | null {
  const accepted = acceptedVersions(settings, binding.proofs);
  const version = isBound(did, binding) || !accepted.includes("v2") ? "v3" : "v2";
  return accepted.includes(version) ? version : null;
}

/** After a deletion the ledger accepts only a proof that expires later than the one before it. */
function proofEndMs(
  soonMs: number,
  { registrationExpiryMs }: Pick<Account, "registrationExpiryMs">,
): bigint {
  const [soon, later] = [BigInt(soonMs), registrationExpiryMs + 1n];
  return soon > later ? soon : later;
}

type Registering = {
  readonly body: Static<typeof prepareRegistrationBody>;
  readonly subject: RegistrationSubject;
  readonly binding: Binding;
  readonly version: "v2" | "v3";
  readonly timestamp: string;
};

function prepareRegistration({ body, subject, binding, version, timestamp }: Registering) {
  const { did, document, pubkey, aliasText } = subject;
  const alias = aliasText === null ? null : normalizeAlias(aliasText);
  const proof = { did, alias, timestamp, pubkey, docBlob: encodeDidDocument(document) };
  return {
    did,
    action: "register",
    nonce_domain: null,
    payload: registrationMessage(proof, binding) as Uint8Array,
    proof_version: version,
    request: {
      did,
      ...(alias === null ? {} : { alias }),
      root_pubkey: body.root_pubkey ?? renderPublicKey(pubkey),
      did_document: body.did_document,
      timestamp,
    },
    submit: { method: "POST", path: "/register-did" },
  } as const;
}

// ----------------------------------------------------------------------------------------- updates

/** What is asked for, and by whom it is signed. */
type Asked = {
  readonly did: Did;
  readonly signerKeyId: string;
  readonly wanted: Intent | NewDocument;
};

/** `request` is the document as it was sent. */
type NewDocument = {
  readonly action: typeof documentAction;
  readonly docBlob: Uint8Array;
  readonly request: object;
};
const documentAction = "replace_document";

type Checks = ReadonlyMap<unknown, (json: unknown) => PrepareUpdate | Fault>;
type PrepareUpdate = Static<typeof prepareDocumentBody> & Readonly<Record<string, unknown>>;

export function prepareUpdateRoute(parts: DirectoryParts): Route {
  const { ledger, settings } = parts;
  const checks: Checks = new Map([
    ...actionNames.map((action) => [action, compileShape(prepareUpdateBody(action))] as const),
    [documentAction, compileShape(prepareDocumentBody)],
  ]);
  return directoryRoute({
    method: "POST",
    path: "/dids/:did/prepare",
    id: "prepareUpdate",
    summary: "Prepare any update of a DID for signing",
    request: anyPrepareBody([...actionNames, documentAction]),
    answer: [200, "The body to submit and the bytes to sign.", preparedAnswer],
    codes: [
      ...pathCodes,
      "path_body_mismatch",
      "action_mismatch",
      "did_not_found",
      "did_deactivated",
      "document_invalid",
    ],
    handle: async (call) => {
      const asked = decodeAsked(call, checks);
      if (isFault(asked)) return asked;
      const [account, bounds, binding] = await Promise.all([
        ledger.account(asked.did),
        ledger.bounds(),
        readBinding(ledger),
      ]);
      const { record } = account;
      if (record === null) return fault("did_not_found", "the DID is not registered");
      if (record.deactivated) return fault("did_deactivated", "the DID is deactivated");
      const { wanted } = asked;
      const terms = {
        nowMs: call.nowMs,
        endMs: BigInt(call.nowMs + settings.prepared_life),
        binding,
      };
      const prepared =
        "docBlob" in wanted
          ? prepareDocument(asked.did, wanted, { ...account, record, bounds }, terms)
          : prepareAction(asked, wanted, account, terms);
      return isFault(prepared) ? prepared : renderPrepared(prepared, terms.endMs, binding);
    },
  });
}

function decodeAsked(call: Call, checks: Checks): Asked | Fault {
  const json = parseJsonObject(call.body);
  if (isFault(json)) return json;
  const check = checks.get(json["action"]);
  if (check === undefined)
    return badInput("action_mismatch", "/action", "must name an action that can be prepared");
  const body = check(json);
  if (isFault(body)) return body;
  const did = bindDid(call, body.did);
  if (isFault(did)) return did;
  const signerKeyId = parseSigner(body.signer_key_id);
  if (isFault(signerKeyId)) return signerKeyId;
  const wanted =
    body.action === documentAction
      ? decodeNewDocument(body, did, signerKeyId)
      : parseIntent(body.action as ActionName, body, did);
  return isFault(wanted) ? wanted : { did, signerKeyId, wanted };
}

/** The full document is signed by the root key alone. */
function decodeNewDocument(
  body: PrepareUpdate,
  did: Did,
  signerKeyId: string,
): NewDocument | Fault {
  if (signerKeyId !== rootKeyId)
    return badInput(
      "invalid_request",
      "/signer_key_id",
      "must be root: only the root key signs a full document",
    );
  const { document, doc_blob } = body;
  const docBlob = parseDocumentMember({ document, doc_blob }, did);
  if (isFault(docBlob)) return docBlob;
  return {
    action: documentAction,
    docBlob,
    request: document === undefined ? { doc_blob } : { document },
  };
}

type PreparedTerms = { readonly nowMs: number; readonly endMs: bigint; readonly binding: Binding };

function prepareAction(
  { did, signerKeyId }: Asked,
  intent: Intent,
  { counters }: Account,
  { nowMs, endMs, binding }: PreparedTerms,
): Prepared {
  const { action } = intent;
  const { counter } = actionRows[action];
  const terms = { nonce: counters[counter], validUntilMs: endMs, signerKeyId };
  const { payload, body } = renderUpdate(intent, terms, nowMs);
  const bound = isBound(did, binding);
  return {
    did,
    action,
    nonce_domain: counterRows[counter].nonceDomain,
    payload: bound ? authorizationMessage(counter, binding.genesisHash, payload) : payload,
    proof_version: bound ? "v3" : "plain",
    request: body,
    submit: requestOf(intent),
  };
}

function prepareDocument(
  did: Did,
  { docBlob, request }: NewDocument,
  {
    record,
    counters,
    bounds,
  }: Account & { readonly record: DidRecord; readonly bounds: LedgerBounds },
  { endMs, binding }: PreparedTerms,
): Prepared | Fault {
  const document = decodeDidDocument(docBlob);
  if (document === null)
    return fault("document_invalid", "the document is too large or not a SCALE document");
  const flaw = checkDocument(document, did, bounds);
  if (flaw !== null) return faultOfRefusal(flaw);
  if (record.rootPubkey === null) return fault("document_invalid", "the record has no root key");
  const version = isBound(did, binding) ? "v3" : "v2";
  const timestamp = renderProofTimestamp(counters.document, endMs, version);
  return {
    did,
    action: documentAction,
    nonce_domain: null,
    payload: documentMessage({ did, timestamp, docBlob }, binding.genesisHash) as Uint8Array,
    proof_version: version,
    request: { did, ...request, timestamp, pubkey: renderPublicKey(record.rootPubkey) },
    submit: { method: "PUT", path: fillPath(documentPath, did) },
  };
}
