/**
 * Preparation: everything a client needs to sign, made by the Directory, so that no client has to know
 * SCALE. It returns the complete body without the signature, the bytes to sign, and where the body goes.
 * It changes nothing. It refuses a body of the wrong shape and a document that breaks a rule; whether an
 * update fits the present document is checked when it is submitted.
 * Source: rules sections 4 ("Preparation") and 10.
 */
import type { Static, TSchema } from "@sinclair/typebox";
import { encodeHex0x, renderPublicKey } from "../../core/codec/bytes.ts";
import { type Did, normalizeAlias } from "../../core/codec/did.ts";
import { parseJsonObject } from "../../core/codec/json.ts";
import { renderTimestamp } from "../../core/codec/time.ts";
import { badInput, type Fault, fault, isFault } from "../../core/fault.ts";
import type { Account, Counters, DidRecord, LedgerBounds } from "../../core/ledger/account.ts";
import { type ActionName, actionNames, actionRows, counters as counterRows } from "../../core/ledger/actions.ts";
import { checkDocument, rootKeyId } from "../../core/ledger/document.ts";
import {
  authorizationMessage,
  decodeDidDocument,
  documentMessage,
  encodeDidDocument,
  type ProofVersion,
  proofLifeMsMax,
  registrationMessage,
  renderProofTimestamp,
} from "../../core/ledger/document-codec.ts";
import { fillPath, parseIntent, renderItems, requestOf } from "../../core/ledger/intents.ts";
import { faultOfRefusal } from "../../core/ledger/refusals.ts";
import { encodeAuthorization } from "../../core/ledger/structures.ts";
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
import { documentPath, isAliasAction, parseDocumentMember, parseSigner } from "./update.ts";

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
      const at = { version, endMs, nowMs: call.nowMs, skewMs: parts.limits.clock_skew };
      const stamp = decideStamp(body, facts.account, at);
      if (isFault(stamp)) return stamp;
      return { status: 200, json: renderPrepared(prepareRegistration(body, subject, { ...stamp, binding }), binding) };
    },
  });
}

type Stamp = { readonly version: ProofVersion; readonly timestamp: string; readonly expiresAtMs: number };

/**
 * The timestamp of the proof. After a deletion the ledger accepts only a proof that expires later than the one before
 * it (version 1: that is later than the last document), so this one does; 409 `document_stale` names the time until
 * which none can be made.
 */
function decideStamp(
  body: PrepareRegistration,
  account: Account,
  at: {
    readonly version: ProofVersion;
    readonly endMs: bigint;
    readonly nowMs: number;
    readonly skewMs: number;
  },
): Stamp | Fault {
  const { version, endMs, nowMs, skewMs } = at;
  if (version === "v1") {
    if (BigInt(nowMs) <= account.documentTimeMs) return stale("a registration", account.documentTimeMs);
    return { version, timestamp: renderTimestamp(nowMs), expiresAtMs: nowMs + skewMs };
  }
  const ending = (atMs: bigint): Stamp => {
    return { version, timestamp: renderProofTimestamp(0n, atMs, version), expiresAtMs: Number(atMs) };
  };
  const before = account.registrationExpiryMs;
  if (endMs > before) return ending(endMs);
  if (body.valid_until !== undefined) return stale("valid_until", before);
  const laterMs = before + 1n;
  return laterMs > BigInt(nowMs + proofLifeMsMax) ? stale("valid_until", before) : ending(laterMs);
}

function stale(what: string, beforeMs: bigint): Fault {
  const time = renderTimestamp(Number(beforeMs));
  return fault("document_stale", `the DID was registered before: ${what} must be later than ${time} (${beforeMs} ms)`);
}

function prepareRegistration(
  body: PrepareRegistration,
  subject: RegistrationSubject,
  stamp: Stamp & { readonly binding: Binding },
): Prepared {
  const { did, document, pubkey } = subject;
  const alias = subject.aliasText === null ? null : normalizeAlias(subject.aliasText);
  const { version, timestamp, expiresAtMs, binding } = stamp;
  const proof = { did, alias, timestamp, pubkey, docBlob: encodeDidDocument(document) };
  const payload = registrationMessage(proof, binding);
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
    expiresAtMs,
    proof_version: version,
  };
}

// ----------------------------------------------------------------------------------------------- updates

/** Members of every preparation of an update. */
type PrepareMembers = {
  readonly did: string;
  readonly action: string;
  readonly signer_key_id?: string | undefined;
  readonly valid_until?: string | number | undefined;
  readonly proof_version?: string | undefined;
};

/** For whom, by whom and until when something is prepared. */
type PreparedTerms = {
  readonly did: Did;
  readonly signerKeyId: string;
  readonly endMs: bigint;
  readonly nowMs: number;
};

/** Makes the prepared request once the state of the DID is known. */
type Plan = (state: DidState) => Prepared | Fault;
type DidState = {
  readonly record: DidRecord;
  readonly counters: Counters;
  readonly bounds: LedgerBounds;
  readonly genesisHash: Uint8Array;
  /** Whether the proof is of version 3. */
  readonly bound: boolean;
};

/** One preparation: the shape of its body, and what a body of that shape asks for on given terms. */
type Preparation = {
  readonly check: (json: unknown) => PrepareMembers | Fault;
  readonly plan: (body: never, terms: PreparedTerms) => Plan | Fault;
};

function definePreparation<S extends TSchema & { static: PrepareMembers }>(
  schema: S,
  plan: (body: Static<S>, terms: PreparedTerms) => Plan | Fault,
): Preparation {
  return { check: compileShape(schema), plan };
}

function prepareUpdateRoute(parts: DirectoryParts): Route {
  const preparations = preparationTable();
  const request = anyPrepareBody([...preparations.keys()]);
  return directoryRoute({
    method: "POST",
    path: "/dids/:did/prepare",
    id: "prepareUpdate",
    summary: "Prepare any update of a DID for signing",
    request,
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
      const asked = decodePreparation(call, parts, preparations);
      if (isFault(asked)) return asked;
      const [{ counters, record }, bounds, binding] = await Promise.all([
        parts.ledger.account(asked.did),
        parts.ledger.bounds(),
        readBinding(parts.ledger),
      ]);
      const bound = decideBound(askedVersion(asked.version, asked.did, binding), binding);
      if (isFault(bound)) return bound;
      if (record === null) return fault("did_not_found", "the DID is not registered");
      if (record.deactivated) return fault("did_deactivated", "the DID is deactivated");
      const { genesisHash } = binding;
      const prepared = asked.plan({ record, counters, bounds, genesisHash, bound });
      return isFault(prepared) ? prepared : { status: 200, json: renderPrepared(prepared, binding) };
    },
  });
}

function decodePreparation(
  call: Call,
  parts: DirectoryParts,
  preparations: ReadonlyMap<string, Preparation>,
): { readonly did: Did; readonly plan: Plan; readonly version: string | undefined } | Fault {
  const json = parseJsonObject(call.body);
  if (isFault(json)) return json;
  const preparation = preparations.get(typeof json["action"] === "string" ? json["action"] : "");
  if (preparation === undefined)
    return badInput("action_mismatch", "/action", "must name an action that can be prepared");
  const members = preparation.check(json);
  if (isFault(members)) return members;
  const did = bindDid(call, members.did);
  if (isFault(did)) return did;
  const signerKeyId = parseSigner(members.signer_key_id);
  if (isFault(signerKeyId)) return signerKeyId;
  const { prepared_life: defaultMs, authorization_max_ahead: aheadMsMax } = parts.settings;
  const endMs = decidePreparedEnd(members.valid_until, call.nowMs, { defaultMs, aheadMsMax });
  if (isFault(endMs)) return endMs;
  const plan = preparation.plan(members as never, { did, signerKeyId, endMs, nowMs: call.nowMs });
  return isFault(plan) ? plan : { did, plan, version: members.proof_version };
}

/** Every action that can be prepared, by the name in the member `action`. */
function preparationTable(): ReadonlyMap<string, Preparation> {
  const table = new Map<string, Preparation>();
  for (const action of actionNames) table.set(action, signedPreparation(action));
  table.set("replace_document", documentPreparation());
  return table;
}

function signedPreparation(action: ActionName): Preparation {
  const { counter } = actionRows[action];
  return definePreparation(prepareUpdateBody(action), (body, { did, signerKeyId, endMs, nowMs }) => {
    const intent = parseIntent(action, body, did);
    if (isFault(intent)) return intent;
    return ({ counters, genesisHash, bound }) => {
      const nonce = counters[counter];
      const payload = encodeAuthorization(intent, { nonce, validUntilMs: endMs, signerKeyId });
      return {
        did,
        action,
        nonce_domain: counterRows[counter].nonceDomain,
        payload: bound ? authorizationMessage(counter, genesisHash, payload) : payload,
        proof_version: bound ? "v3" : "plain",
        request: {
          did,
          action,
          ...renderItems(intent),
          ...(isAliasAction(action) ? { timestamp: renderTimestamp(nowMs) } : {}),
          nonce: nonce.toString(),
          valid_until: endMs.toString(),
          signer_key_id: signerKeyId,
          canonical_payload: encodeHex0x(payload),
        },
        submit: requestOf(intent),
        expiresAtMs: Number(endMs),
      };
    };
  });
}

/** The full document is signed by the root key alone, with the next document nonce. */
function documentPreparation(): Preparation {
  return definePreparation(prepareDocumentBody, (body, { did, signerKeyId, endMs }) => {
    if (signerKeyId !== rootKeyId) {
      return badInput("invalid_request", "/signer_key_id", "must be root: only the root key signs a full document");
    }
    const { document, doc_blob } = body;
    const docBlob = parseDocumentMember({ document, doc_blob }, did);
    if (isFault(docBlob)) return docBlob;
    return ({ record, counters, bounds, genesisHash, bound }) => {
      const flaw = findFlaw(docBlob, did, bounds);
      if (flaw !== null) return flaw;
      if (record.rootPubkey === null) return fault("document_invalid", "the record has no root key");
      const version = bound ? "v3" : "v2";
      const timestamp = renderProofTimestamp(counters.document, endMs, version);
      return {
        did,
        action: "replace_document",
        // The nonce is inside the timestamp, and `request` has no member of that name.
        nonce_domain: null,
        payload: documentMessage({ did, timestamp, docBlob }, genesisHash) as Uint8Array,
        proof_version: version,
        request: {
          did,
          ...(document === undefined ? { doc_blob } : { document }),
          timestamp,
          pubkey: renderPublicKey(record.rootPubkey),
        },
        submit: { method: "PUT", path: fillPath(documentPath, { did }) },
        expiresAtMs: Number(endMs),
      };
    };
  });
}

function findFlaw(docBlob: Uint8Array, did: Did, bounds: LedgerBounds): Fault | null {
  const document = decodeDidDocument(docBlob);
  if (document === null) return fault("document_invalid", "the document is too large or not a SCALE document");
  const flaw = checkDocument(document, did, bounds);
  return flaw === null ? null : faultOfRefusal(flaw);
}
