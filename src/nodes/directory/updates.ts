/**
 * Updates that a key of the DID authorizes with a signed SCALE payload: components of the document, the
 * root key, aliases, deactivation, deletion. One table says which action stands where; everything else
 * is the same for all of them.
 * Order of checks: shape, path equals body, action, payload equals the rebuilt bytes, expiry, then the
 * rules of the ledger (DID exists, not deactivated, nonce, signature, the operation's own).
 * Source: interface "Signed DID-document updates", decisions sections 4 and 10.
 */
import type { Static } from "@sinclair/typebox";
import { decodeBase64, decodePayloadText, equalBytes } from "../../core/codec/bytes.ts";
import { type Did, didOfUrl, normalizeAlias, parseDidUrl } from "../../core/codec/did.ts";
import { parsePublicKey } from "../../core/codec/ed25519.ts";
import { parseTimestamp } from "../../core/codec/time.ts";
import { parseU64 } from "../../core/codec/u64.ts";
import { badInput, type Fault, type FaultCode, fault, isFault } from "../../core/fault.ts";
import { type ActionName, counters, operations } from "../../core/ledger/authorization.ts";
import type { LedgerCall } from "../../core/ledger/call.ts";
import { parseKeyAgreement, parseService, parseVerificationMethod } from "../../core/ledger/document.ts";
import {
  callOfIntent,
  decodeTerms,
  encodeAuthorization,
  type Intent,
  rootSigner,
  type Terms,
} from "../../core/ledger/intent.ts";
import {
  aliasUpdateAnswer,
  type authorizationShape,
  type UpdateMembers,
  updateAnswer,
  updateBody,
} from "../../core/schema/directory.ts";
import type { UpdateAction } from "../../core/schema/examples.ts";
import { compileShape } from "../../core/schema/schema.ts";
import type { Call, Route } from "../http/route.ts";
import {
  bindDid,
  type DirectoryOptions,
  type DirectoryParts,
  decodeBody,
  directoryRoute,
  mutationCodes,
  parsePathId,
  pathValue,
  renderAccepted,
} from "./parts.ts";
import { decideCall, gatherFacts } from "./precheck.ts";
import { decideEnd, decideFreshness } from "./times.ts";

// ------------------------------------------------------------------------------------------------- table

export type Update = {
  readonly action: UpdateAction;
  readonly method: Route["method"];
  readonly path: string;
  readonly members: UpdateMembers;
  readonly summary: string;
  /** Path value that names the component or alias, when the path has one. */
  readonly subject?: string;
  /** Codes of the operation's own rules. */
  readonly codes: readonly FaultCode[];
};

const documentPath = "/dids/:did/document";

/** Adding, updating and removing one kind of component. */
function componentUpdates(kind: {
  readonly name: "VerificationMethod" | "KeyAgreement" | "Service";
  readonly words: string;
  readonly path: string;
  readonly subject: string;
  readonly members: UpdateMembers;
}): Update[] {
  const { name, words, members, subject } = kind;
  const list = `${documentPath}/${kind.path}`;
  const one = `${list}/:${subject}`;
  const inUse: FaultCode[] = name === "VerificationMethod" ? ["component_in_use"] : [];
  return [
    {
      action: `Add${name}`,
      method: "POST",
      path: list,
      members,
      summary: `Add a ${words}`,
      codes: ["component_exists", "document_invalid"],
    },
    {
      action: `Update${name}`,
      method: "PUT",
      path: one,
      members,
      subject,
      summary: `Replace a ${words}`,
      codes: ["component_not_found", "document_invalid"],
    },
    {
      action: `Remove${name}`,
      method: "DELETE",
      path: one,
      members: "id",
      subject,
      summary: `Remove a ${words}`,
      codes: ["component_not_found", ...inUse],
    },
  ];
}

export const updates: readonly Update[] = [
  ...componentUpdates({
    name: "VerificationMethod",
    words: "verification method",
    path: "verification-methods",
    subject: "methodId",
    members: "verification_method",
  }),
  ...componentUpdates({
    name: "KeyAgreement",
    words: "key agreement",
    path: "key-agreements",
    subject: "keyAgreementId",
    members: "key_agreement",
  }),
  ...componentUpdates({
    name: "Service",
    words: "service",
    path: "services",
    subject: "serviceId",
    members: "service",
  }),
  {
    action: "AddAuthentication",
    method: "POST",
    path: `${documentPath}/authentication`,
    members: "id",
    summary: "List a verification method in authentication",
    codes: ["component_not_found", "component_exists", "document_invalid"],
  },
  {
    action: "RemoveAuthentication",
    method: "DELETE",
    path: `${documentPath}/authentication/:methodId`,
    members: "id",
    subject: "methodId",
    summary: "Take a verification method out of authentication",
    codes: ["component_not_found"],
  },
  {
    action: "UpdateRootPubkey",
    method: "PUT",
    path: "/dids/:did/root-pubkey",
    members: "new_root_pubkey",
    summary: "Rotate the root key; the signed structure is (did, new root key, nonce, valid_until, signer_key_id)",
    codes: ["document_invalid"],
  },
  {
    action: "add_alias",
    method: "POST",
    path: "/dids/:did/aliases",
    members: "alias",
    summary: "Add an alias",
    codes: ["alias_taken", "alias_exists", "document_invalid"],
  },
  {
    action: "update_alias",
    method: "PATCH",
    path: "/dids/:did/aliases/:alias",
    members: "renamed_alias",
    subject: "alias",
    summary: "Rename an alias in its place",
    codes: ["alias_taken", "alias_exists", "alias_not_found"],
  },
  {
    action: "remove_alias",
    method: "DELETE",
    path: "/dids/:did/aliases/:alias",
    members: "alias",
    subject: "alias",
    summary: "Remove an alias",
    codes: ["alias_not_found"],
  },
  {
    action: "deactivate_did",
    method: "POST",
    path: "/dids/:did/deactivate",
    members: "none",
    summary: "Deactivate a DID for good; its record stays",
    codes: [],
  },
  {
    action: "delete_did",
    method: "DELETE",
    path: "/dids/:did",
    members: "none",
    summary: "Delete a DID, its aliases and its policies; its counters stay",
    codes: [],
  },
];

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

// ------------------------------------------------------------------------------------------------- route

export function updateRoutes(parts: DirectoryParts): Route[] {
  return updates.map((update) => updateRoute(parts, update));
}

function updateRoute(parts: DirectoryParts, update: Update): Route {
  const request = updateBody(update.action, update.members, isAliasUpdate(update));
  const parseShape = compileShape(request) as (value: unknown) => UpdateBody | Fault;
  const schema = isAliasUpdate(update) ? aliasUpdateAnswer : updateAnswer;
  return directoryRoute({
    method: update.method,
    path: update.path,
    id: update.action,
    summary: update.summary,
    request,
    answer: [202, "The ledger has taken the update; it is not settled.", schema],
    codes: [...updateCodes, ...update.codes],
    unstable: isAliasUpdate(update),
    handle: async (call) => {
      const signed = decodeUpdate(call, update, decodeBody(call, parseShape));
      if (isFault(signed)) return signed;
      const early = decideTimes(signed, call.nowMs, parts.options);
      if (early !== null) return early;
      const facts = await gatherFacts(parts.ledger, signed.call);
      const refusal = decideCall(signed.call, facts, call.nowMs);
      if (refusal !== null) return refusal;
      const submission = await parts.ledger.submit(signed.call, update.action);
      return isFault(submission) ? submission : renderAccepted(acceptedOf(signed), submission);
    },
  });
}

export function isAliasUpdate(update: Update): boolean {
  return operations[update.action].counter === "alias";
}

function acceptedOf({ intent }: SignedUpdate) {
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
  readonly call: LedgerCall;
  /** `timestamp` of alias bodies, which the signature does not cover. */
  readonly timestampMs: number | null;
};

function decodeUpdate(call: Call, update: Update, body: UpdateBody | Fault): SignedUpdate | Fault {
  if (isFault(body)) return body;
  const did = bindDid(call, body.did);
  if (isFault(did)) return did;
  const intent = parseIntent(update.action, body, did);
  if (isFault(intent)) return intent;
  const mismatch = compareSubject(call, update, intent);
  if (mismatch !== null) return mismatch;
  if (body.action !== update.action) {
    return badInput("action_mismatch", "/action", `must be ${JSON.stringify(update.action)} here`);
  }
  const terms = parseTerms(body);
  if (isFault(terms)) return terms;
  const signedPayload = decodeSignedPayload(body.canonical_payload, intent, terms);
  if (isFault(signedPayload)) return signedPayload;
  const signature = decodeBase64(body.signature) as Uint8Array;
  const ledgerCall = callOfIntent(intent, { signedPayload, signature, signerKeyId: terms.signerKeyId });
  const timestamp = body["timestamp"];
  return {
    intent,
    terms,
    call: ledgerCall,
    timestampMs: typeof timestamp === "string" ? parseTimestamp(timestamp) : null,
  };
}

/** What the members of a body ask for. Refuses with `invalid_request` and the pointer. */
export function parseIntent(action: ActionName, body: Members, did: Did): Intent | Fault {
  switch (action) {
    case "AddVerificationMethod":
    case "UpdateVerificationMethod": {
      const verificationMethod = parseVerificationMethod(body["verification_method"], did, "/verification_method");
      return isFault(verificationMethod) ? verificationMethod : { did, action, verificationMethod };
    }
    case "AddKeyAgreement":
    case "UpdateKeyAgreement": {
      const keyAgreement = parseKeyAgreement(body["key_agreement"], did, "/key_agreement");
      return isFault(keyAgreement) ? keyAgreement : { did, action, keyAgreement };
    }
    case "AddService":
    case "UpdateService": {
      const service = parseService(body["service"], did, "/service");
      return isFault(service) ? service : { did, action, service };
    }
    case "RemoveVerificationMethod":
    case "AddAuthentication":
    case "RemoveAuthentication":
    case "RemoveKeyAgreement":
    case "RemoveService": {
      const id = parseDidUrl(String(body["id"]), did);
      return id === null ? badInput("invalid_request", "/id", "must be an id of this DID") : { did, action, id };
    }
    case "add_alias":
    case "remove_alias": {
      const alias = parseAliasMember(body, "alias");
      return isFault(alias) ? alias : { did, action, alias };
    }
    case "update_alias": {
      const oldAlias = parseAliasMember(body, "old_alias");
      const newAlias = parseAliasMember(body, "new_alias");
      if (isFault(oldAlias)) return oldAlias;
      return isFault(newAlias) ? newAlias : { did, action, oldAlias, newAlias };
    }
    case "UpdateRootPubkey": {
      const newRootPubkey = parsePublicKey(String(body["new_root_pubkey"]));
      if (newRootPubkey === null) return badInput("invalid_request", "/new_root_pubkey", "is no public key");
      return { did, action, newRootPubkey };
    }
    case "deactivate_did":
    case "delete_did":
      return { did, action, control: { kind: action } };
    default:
      return badInput("action_mismatch", "/action", "names no action of this interface");
  }
}

export function parseAliasMember(body: Members, name: string): string | Fault {
  const rule = "an alias has 1 to 64 of a to z, 0 to 9, dot, hyphen and underscore";
  return normalizeAlias(String(body[name])) ?? badInput("invalid_request", `/${name}`, rule);
}

/** The component or alias of the path must be the one of the body, in normal form. */
function compareSubject(call: Call, update: Update, intent: Intent): Fault | null {
  if (update.subject === undefined) return null;
  const text = pathValue(call, update.subject);
  const named = subjectOf(intent);
  const path = named.isAlias
    ? (normalizeAlias(text) ?? fault("invalid_request", "the path holds no alias"))
    : parsePathId(text, intent.did);
  if (isFault(path)) return path;
  return path === named.value ? null : badInput("path_body_mismatch", named.pointer, "differs from the path");
}

/** The component or alias that an intent is about, and where the body names it. */
export function subjectOf(intent: Intent): { value: string; pointer: string; isAlias: boolean } {
  if ("verificationMethod" in intent) {
    return { value: intent.verificationMethod.id, pointer: "/verification_method/id", isAlias: false };
  }
  if ("keyAgreement" in intent) return { value: intent.keyAgreement.id, pointer: "/key_agreement/id", isAlias: false };
  if ("service" in intent) return { value: intent.service.id, pointer: "/service/id", isAlias: false };
  if ("id" in intent) return { value: intent.id, pointer: "/id", isAlias: false };
  if ("alias" in intent) return { value: intent.alias, pointer: "/alias", isAlias: true };
  if ("oldAlias" in intent) return { value: intent.oldAlias, pointer: "/old_alias", isAlias: true };
  return { value: "", pointer: "", isAlias: false };
}

/** Counter value, end and signer of an authorization. `signer_key_id` is `root` or an absolute id. */
function parseTerms(body: UpdateBody): Terms | Fault {
  const signerKeyId = parseSigner(body.signer_key_id);
  if (isFault(signerKeyId)) return signerKeyId;
  const nonce = parseU64(body.nonce) as bigint;
  const validUntilMs = BigInt(body.valid_until);
  return { nonce, validUntilMs, signerKeyId };
}

export function parseSigner(text: string = rootSigner): string | Fault {
  if (text === rootSigner) return text;
  const did = didOfUrl(text);
  const known = did !== null && parseDidUrl(text, did) === text;
  return known ? text : badInput("invalid_request", "/signer_key_id", "must be root or <did>#<fragment>");
}

/** The bytes that were signed, once they are exactly those that the other members make. */
function decodeSignedPayload(text: string, intent: Intent, terms: Terms): Uint8Array | Fault {
  const bytes = decodePayloadText(text);
  if (bytes === null) {
    return badInput("invalid_canonical_payload", "/canonical_payload", "must be 0x hex or Base64");
  }
  const { counter } = operations[intent.action];
  const same = equalBytes(bytes, encodeAuthorization(intent, terms));
  if (decodeTerms(counter, bytes) === null) {
    if (same) return fault("document_invalid", "a member is larger than the structures of the ledger hold");
    const structure = counters[counter].nonceDomain;
    return badInput("invalid_canonical_payload", "/canonical_payload", `is no payload of the ${structure} structure`);
  }
  return same ? bytes : badInput("payload_mismatch", "/canonical_payload", "differs from what the other members make");
}

// -------------------------------------------------------------------------------------------------- time

/** Expiry comes before everything that is read from the ledger: now < valid_until <= now + the window. */
function decideTimes(update: SignedUpdate, nowMs: number, options: DirectoryOptions): Fault | null {
  const { validUntilMs } = update.terms;
  return (
    decideEnd(validUntilMs, nowMs, { aheadMsMax: options.authorizationAheadMsMax, pointer: "/valid_until" }) ??
    (update.timestampMs === null ? null : decideFreshness(update.timestampMs, nowMs, options.skewMs))
  );
}
