/**
 * Preparation: everything a client needs to sign, made by the Directory, so that no client has to know
 * SCALE. It answers the complete body without the signature, the bytes to sign, and where the body goes.
 * It changes nothing. It refuses what has no right shape and a document that breaks a rule; whether an
 * update fits the standing document is judged when it is submitted.
 * Source: rules sections 4 ("Preparation") and 10, docs/ledger.md 3.1.
 */

import type { Static } from "@sinclair/typebox";
import { encodeHex0x, utf8 } from "../../core/codec/bytes.ts";
import { type Did, normalizeAlias } from "../../core/codec/did.ts";
import { renderPublicKey } from "../../core/codec/ed25519.ts";
import { type JsonObject, parseJsonObject } from "../../core/codec/json.ts";
import { renderTimestamp } from "../../core/codec/time.ts";
import { badInput, type Fault, fault, isFault } from "../../core/fault.ts";
import type { Counters, DidRecord } from "../../core/ledger/account.ts";
import { actions, counters, type RoutedAction, routedActions } from "../../core/ledger/actions.ts";
import {
  documentMessage,
  encodeAuthorization,
  proofLifeMsMax,
  registrationMessage,
  renderProofTimestamp,
} from "../../core/ledger/authorization.ts";
import type { LedgerBounds } from "../../core/ledger/bounds.ts";
import { checkDocument, rootKeyId } from "../../core/ledger/document.ts";
import { fillPath, type Intent, parseIntent, requestOf } from "../../core/ledger/intents.ts";
import { faultOfRefusal } from "../../core/ledger/refusals.ts";
import { decodeDidDocument, encodeDidDocument } from "../../core/ledger/structures.ts";
import { encodeUpdateProof } from "../../core/message/proof.ts";
import {
  anyPrepareBody,
  prepareBody,
  prepareDocumentBody,
  preparedAnswer,
  prepareRegistrationBody,
  prepareUpdateBody,
} from "../../core/schema/directory.ts";
import { compileShape } from "../../core/schema/schema.ts";
import type { Call, Route } from "../http/route.ts";
import { documentPath, parseDocumentMember } from "./document.ts";
import { bindDid, type DirectoryParts, decodeBody, directoryRoute, pathCodes } from "./parts.ts";
import { type OwnerUpdate, ownerUpdates } from "./policies.ts";
import {
  decideAlias,
  decideSubject,
  firstMethodUnfit,
  parseRegistrationSubject,
  type RegistrationSubject,
} from "./registration.ts";
import { decideEnd } from "./times.ts";
import { isAliasAction, parseSigner } from "./update.ts";

export function prepareRoutes(parts: DirectoryParts): Route[] {
  return [prepareRegistrationRoute(parts), prepareUpdateRoute(parts)];
}

// ------------------------------------------------------------------------------------------------ answer

type Prepared = {
  readonly did: Did;
  readonly action: string;
  readonly nonceDomain: string | null;
  readonly payload: Uint8Array;
  readonly request: Readonly<Record<string, unknown>>;
  readonly submit: { readonly method: string; readonly path: string };
  /** Proof headers and the exact body they cover, for updates that carry no payload of their own. */
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string;
  readonly expiresAtMs: number;
};

function renderPrepared(prepared: Prepared): Record<string, unknown> {
  const { did, action, nonceDomain, payload, request, submit, headers, body, expiresAtMs } = prepared;
  return {
    did,
    action,
    nonce_domain: nonceDomain,
    payload_to_sign: encodeHex0x(payload),
    request,
    submit,
    ...(headers === undefined ? {} : { headers, body }),
    expires_at: renderTimestamp(expiresAtMs),
  };
}

// ---------------------------------------------------------------------------------------------- the end

/** When what is prepared ends: as asked, or after the default life; never beyond the window. */
function decidePreparedEnd(
  asked: string | number | undefined,
  nowMs: number,
  life: { readonly defaultMs: number; readonly aheadMsMax: number },
): bigint | Fault {
  const endMs = asked === undefined ? BigInt(nowMs + Math.min(life.defaultMs, life.aheadMsMax)) : BigInt(asked);
  return decideEnd(endMs, nowMs, { aheadMsMax: life.aheadMsMax, pointer: "/valid_until" }) ?? endMs;
}

// ------------------------------------------------------------------------------------------ registration

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
      "alias_taken",
      "did_already_registered",
      "chain_unavailable",
    ],
    handle: async (call) => {
      const body = decodeBody(call, parseShape);
      if (isFault(body)) return body;
      const subject = parseRegistrationSubject(body);
      if (isFault(subject)) return subject;
      const life = { defaultMs: parts.options.preparedLifeMs, aheadMsMax: proofLifeMsMax };
      const endMs = decidePreparedEnd(body.valid_until, call.nowMs, life);
      if (isFault(endMs)) return endMs;
      const facts = await gatherRegistrationFacts(parts, subject);
      const refusal = decidePreparedRegistration(subject, facts);
      if (refusal !== null) return refusal;
      const version = parts.options.registrationProofs.includes("v2") ? "v2" : "v1";
      return {
        status: 200,
        json: renderPrepared(
          prepareRegistration(body, subject, { version, endMs, nowMs: call.nowMs, skewMs: parts.options.skewMs }),
        ),
      };
    },
  });
}

async function gatherRegistrationFacts({ ledger }: DirectoryParts, subject: RegistrationSubject) {
  const alias = subject.aliasText === null ? null : normalizeAlias(subject.aliasText);
  const [account, bounds, holder] = await Promise.all([
    ledger.account(subject.did),
    ledger.bounds(),
    alias === null ? null : ledger.aliasHolder(alias),
  ]);
  return { account, bounds, aliasHolders: new Map(alias === null ? [] : [[alias, holder]]) };
}

function decidePreparedRegistration(
  subject: RegistrationSubject,
  facts: Awaited<ReturnType<typeof gatherRegistrationFacts>>,
): Fault | null {
  const { did, document, pubkey } = subject;
  if (pubkey === null) return firstMethodUnfit();
  const refusal = decideSubject({ did, document, pubkey }, facts.bounds) ?? decideAlias(subject, facts);
  if (refusal !== null || facts.account.record === null) return refusal;
  return fault("did_already_registered", "the DID is already registered");
}

/** Version 2 binds the whole registration; version 1 is prepared only where version 2 is switched off. */
function prepareRegistration(
  body: Static<typeof prepareRegistrationBody>,
  subject: RegistrationSubject,
  proof: { readonly version: "v1" | "v2"; readonly endMs: bigint; readonly nowMs: number; readonly skewMs: number },
): Prepared {
  const { did, document } = subject;
  const pubkey = subject.pubkey as Uint8Array;
  const alias = subject.aliasText === null ? null : normalizeAlias(subject.aliasText);
  const timestamp = proof.version === "v2" ? renderProofTimestamp(0n, proof.endMs) : renderTimestamp(proof.nowMs);
  const payload = registrationMessage({ did, alias, timestamp, pubkey, docBlob: encodeDidDocument(document) });
  return {
    did,
    action: "register",
    nonceDomain: null,
    payload: payload as Uint8Array,
    request: {
      did,
      ...(alias === null ? {} : { alias }),
      root_pubkey: body.root_pubkey ?? renderPublicKey(pubkey),
      did_document: body.did_document,
      timestamp,
    },
    submit: { method: "POST", path: "/register-did" },
    expiresAtMs: proof.version === "v2" ? Number(proof.endMs) : proof.nowMs + proof.skewMs,
  };
}

// ----------------------------------------------------------------------------------------------- updates

/** One preparation: the shape of its body, and what a body of that shape asks for. */
type Preparation = {
  readonly parseShape: (value: unknown) => unknown;
  readonly parse: (body: JsonObject, terms: PreparedTerms) => Plan | Fault;
};

/** For whom, by whom and until when something is prepared. */
type PreparedTerms = {
  readonly did: Did;
  readonly signerKeyId: string;
  readonly endMs: bigint;
  readonly nowMs: number;
  readonly skewMs: number;
};

/** What comes of it once the DID's state is known. */
type Plan = (standing: Standing) => Prepared | Fault;
type Standing = { readonly record: DidRecord; readonly counters: Counters; readonly bounds: LedgerBounds };

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
      const [{ counters, record }, bounds] = await Promise.all([
        parts.ledger.account(asked.did),
        parts.ledger.bounds(),
      ]);
      if (record === null) return fault("did_not_found", "the DID is not registered");
      if (record.deactivated) return fault("did_deactivated", "the DID is deactivated");
      const prepared = asked.plan({ record, counters, bounds });
      return isFault(prepared) ? prepared : { status: 200, json: renderPrepared(prepared) };
    },
  });
}

function decodePreparation(
  call: Call,
  parts: DirectoryParts,
  preparations: ReadonlyMap<string, Preparation>,
): { readonly did: Did; readonly plan: Plan } | Fault {
  const body = parseJsonObject(call.body);
  if (isFault(body)) return body;
  const preparation = preparations.get(typeof body["action"] === "string" ? body["action"] : "");
  if (preparation === undefined) return badInput("action_mismatch", "/action", "names no action that can be prepared");
  const shaped = preparation.parseShape(body);
  if (isFault(shaped)) return shaped;
  const did = bindDid(call, String(body["did"]));
  if (isFault(did)) return did;
  const signerKeyId = parseSigner(body["signer_key_id"] as string | undefined);
  if (isFault(signerKeyId)) return signerKeyId;
  const { preparedLifeMs, authorizationAheadMsMax, skewMs } = parts.options;
  const life = { defaultMs: preparedLifeMs, aheadMsMax: authorizationAheadMsMax };
  const endMs = decidePreparedEnd(body["valid_until"] as string | number | undefined, call.nowMs, life);
  if (isFault(endMs)) return endMs;
  const plan = preparation.parse(body, { did, signerKeyId, endMs, nowMs: call.nowMs, skewMs });
  return isFault(plan) ? plan : { did, plan };
}

/** Every action that can be prepared, by the name in the member `action`. */
function preparationTable(): ReadonlyMap<string, Preparation> {
  const table = new Map<string, Preparation>();
  for (const { action } of routedActions) table.set(action, signedPreparation(action));
  table.set("replace_document", documentPreparation());
  for (const update of ownerUpdates) table.set(update.extrinsic, ownerPreparation(update));
  return table;
}

function signedPreparation(action: RoutedAction): Preparation {
  const { counter } = actions[action];
  return {
    parseShape: compileShape(prepareUpdateBody(action)),
    parse: (body, { did, signerKeyId, endMs, nowMs }) => {
      const intent = parseIntent(action, body, did);
      if (isFault(intent)) return intent;
      return (standing) => {
        const nonce = standing.counters[counter];
        const payload = encodeAuthorization(intent, { nonce, validUntilMs: endMs, signerKeyId });
        return {
          did,
          action,
          nonceDomain: counters[counter].nonceDomain,
          payload,
          request: {
            did,
            action,
            ...membersOf(intent, body),
            ...(isAliasAction(action) ? { timestamp: renderTimestamp(nowMs) } : {}),
            nonce: nonce.toString(),
            valid_until: endMs.toString(),
            signer_key_id: signerKeyId,
            canonical_payload: encodeHex0x(payload),
          },
          submit: requestOf(intent) as Prepared["submit"],
          expiresAtMs: Number(endMs),
        };
      };
    },
  };
}

/** The members of an action as sent, aliases in normal form. */
function membersOf(intent: Intent, body: JsonObject): Record<string, unknown> {
  if ("alias" in intent) return { alias: intent.alias };
  if ("oldAlias" in intent) return { old_alias: intent.oldAlias, new_alias: intent.newAlias };
  const { did: _, action: __, signer_key_id: ___, valid_until: ____, ...members } = body;
  return members;
}

/** The full document is signed by the root key alone, in version 2, with the next document nonce. */
function documentPreparation(): Preparation {
  return {
    parseShape: compileShape(prepareDocumentBody),
    parse: (body, { did, signerKeyId, endMs }) => {
      if (signerKeyId !== rootKeyId) {
        return badInput("invalid_request", "/signer_key_id", "a full document is signed by root");
      }
      const { document, doc_blob } = body as Static<typeof prepareDocumentBody>;
      const docBlob = parseDocumentMember({ document, doc_blob }, did);
      if (isFault(docBlob)) return docBlob;
      return ({ record, counters, bounds }) => {
        const flaw = findFlaw(docBlob, did, bounds);
        if (flaw !== null) return flaw;
        if (record.rootPubkey === null) return fault("document_invalid", "the record has no root key");
        const timestamp = renderProofTimestamp(counters.document, endMs);
        return {
          did,
          action: "replace_document",
          // The nonce stands inside the timestamp, and `request` has no member of that name.
          nonceDomain: null,
          payload: documentMessage({ did, timestamp, docBlob }) as Uint8Array,
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
    },
  };
}

function findFlaw(docBlob: Uint8Array, did: Did, bounds: LedgerBounds): Fault | null {
  const document = decodeDidDocument(docBlob);
  if (document === null) return fault("document_invalid", "the document exceeds a bound or is no SCALE document");
  const flaw = checkDocument(document, did, bounds);
  return flaw === null ? null : faultOfRefusal(flaw);
}

/**
 * An update whose proof stands in headers: the exact body, its headers without `X-Signature`, and the
 * text they sign. The nonce is random and belongs to nobody until it is used.
 */
function ownerPreparation(update: OwnerUpdate): Preparation {
  const { extrinsic, path, subject, request } = update;
  return {
    parseShape: compileShape(prepareBody(extrinsic, ownMembers(request), {})),
    parse: (asked, { did, signerKeyId, nowMs, skewMs }) => {
      const { action: _, signer_key_id: __, valid_until: named, ...members } = asked;
      if (named !== undefined)
        return badInput("invalid_request", "/valid_until", "these proofs have no end of their own");
      const call = update.parse(members as never, did);
      if (isFault(call)) return call;
      const body = JSON.stringify(members);
      const [timestamp, nonce] = [renderTimestamp(nowMs), crypto.randomUUID()];
      const claims = { operation: extrinsic, did, keyId: signerKeyId, timestamp, nonce, body: utf8(body) };
      const plan = {
        did,
        action: extrinsic,
        nonceDomain: null,
        payload: encodeUpdateProof(claims),
        request: members,
        submit: { method: "PUT", path: fillPath(path, { [subject]: did }) },
        headers: { "X-Key-Id": signerKeyId, "X-Timestamp": timestamp, "X-Nonce": nonce },
        body,
        expiresAtMs: nowMs + skewMs,
      };
      return ({ bounds }) => update.measure?.(members as never, bounds) ?? plan;
    },
  };
}

function ownMembers(request: OwnerUpdate["request"]) {
  const { did: _, ...members } = request["properties"];
  return members;
}
