/**
 * Updates that a key of the DID authorizes with a signed SCALE payload: components of the document, the root key,
 * aliases, deactivation, deletion. `core/ledger/actions.ts` says which action stands where; the rest is the same for
 * all of them.
 * Order of checks: shape, path equals body, action, payload equals the rebuilt bytes, expiry, then what the ledger
 * refuses (DID exists, not deactivated, nonce, signature, the rule of the action).
 * Source: interface "Signed DID-document updates", rules sections 4 and 10.
 */

import type { Static } from "@sinclair/typebox";
import { decodeBase64, decodePayloadText, equalBytes } from "../../core/codec/bytes.ts";
import { didOfUrl, normalizeAlias, parseDidUrl } from "../../core/codec/did.ts";
import { parseTimestamp } from "../../core/codec/time.ts";
import { parseU64 } from "../../core/codec/u64.ts";
import { badInput, type Fault, type FaultCode, fault, isFault } from "../../core/fault.ts";
import { actionRows, counters, type RoutedAction, routedActions } from "../../core/ledger/actions.ts";
import { decodePayload, encodeAuthorization, firstDifference } from "../../core/ledger/authorization.ts";
import { callOfIntent, type ProofCall } from "../../core/ledger/calls.ts";
import { rootKeyId } from "../../core/ledger/document.ts";
import { type Intent, parseIntent, subjectOf, subjectParameter, type Terms } from "../../core/ledger/intents.ts";
import { actionTexts } from "../../core/schema/actions.ts";
import {
  aliasUpdateAnswer,
  type authorizationShape,
  signedAction,
  updateAnswer,
  updateBody,
} from "../../core/schema/directory.ts";
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
  parsePathId,
  pathValue,
  renderAccepted,
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
  return routedActions.map(({ action }) => updateRoute(parts, action));
}

function updateRoute(parts: DirectoryParts, action: RoutedAction): Route {
  const { method, path } = routeOf(action);
  const { summary, codes } = actionTexts[action];
  const request = updateBody(action);
  const parseShape = compileShape(request) as (value: unknown) => UpdateBody | Fault;
  const schema = isAliasAction(action) ? aliasUpdateAnswer : updateAnswer;
  return directoryRoute({
    method,
    path,
    id: action,
    summary,
    request,
    answer: [202, "The ledger has taken the update; it is not settled.", schema],
    codes: [...updateCodes, ...codes],
    unstable: isAliasAction(action),
    signed: signedAction(action),
    handle: async (call) => {
      const update = decodeUpdate(call, action, decodeBody(call, parseShape));
      if (isFault(update)) return update;
      const untimely = checkTimes(update, call.nowMs, parts);
      if (untimely !== null) return untimely;
      const submission = await parts.ledger.submit(update.call, action);
      if (isFault(submission)) return explainSignature(submission, update.call.signedPayload);
      return renderAccepted(acceptedOf(update.intent), submission);
    },
  });
}

const routeOf = (action: RoutedAction) =>
  actionRows[action].route as NonNullable<(typeof actionRows)[RoutedAction]["route"]>;

export function isAliasAction(action: RoutedAction): boolean {
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

/** A signed update whose payload says exactly what the request says. */
type SignedUpdate = {
  readonly intent: Intent;
  readonly terms: Terms;
  readonly call: ProofCall;
  /** `timestamp` of alias bodies, which the signature does not cover. */
  readonly timestampMs: number | null;
};

function decodeUpdate(call: Call, action: RoutedAction, body: UpdateBody | Fault): SignedUpdate | Fault {
  if (isFault(body)) return body;
  const did = bindDid(call, body.did);
  if (isFault(did)) return did;
  const intent = parseIntent(action, body, did);
  if (isFault(intent)) return intent;
  const mismatch = compareSubject(call, routeOf(action).path, intent);
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
  return normalizeAlias(text) ?? fault("invalid_request", "the path holds no alias");
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
  if (same) return fault("document_invalid", "a member is larger than the structures of the ledger hold");
  const structure = counters[counter].nonceDomain;
  return badInput("invalid_canonical_payload", "/canonical_payload", `is no payload of the ${structure} structure`);
}

/** 400 that names the member of the body which says something else than the payload. */
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
