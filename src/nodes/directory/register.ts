/**
 * Registration of a DID and its state: `missing`, `pending` while this Directory has a submission
 * under way, `confirmed` once the finalized head has the DID. A receipt is written before the
 * submission, so that a crash in between is read as "under way", never as "nothing happened".
 * Source: interface "Registration state of a DID", rules section 4 ("Order of checks on a
 * registration", "Idempotence").
 */
import type { Static } from "@sinclair/typebox";
import {
  concatBytes,
  decodeBase64,
  encodeHex,
  parsePublicKey,
  utf8,
} from "../../core/codec/bytes.ts";
import { blake2b256, isAdmissibleKey, verifyEd25519 } from "../../core/codec/crypto.ts";
import { type Did, normalizeAlias, parseDid } from "../../core/codec/did.ts";
import { badInput, type Fault, fault, isFault } from "../../core/fault.ts";
import {
  type Account,
  type DidDocument,
  isReservedFrom,
  type LedgerBounds,
  renderDocument,
} from "../../core/ledger/account.ts";
import type { RegistrationCall } from "../../core/ledger/calls.ts";
import { checkDocument, keyOfMethod, normalizeDocument } from "../../core/ledger/document.ts";
import {
  encodeDidDocument,
  type ProofVersion,
  parseProofTimestamp,
  registrationMessage,
} from "../../core/ledger/document-codec.ts";
import { parseAlias } from "../../core/ledger/intents.ts";
import { isSelfCertifying, looksSelfCertifying } from "../../core/ledger/names.ts";
import { faultOfRefusal, refuse } from "../../core/ledger/refusals.ts";
import {
  type prepareRegistrationBody,
  registerBody,
  registeredAnswer,
  registrationStatusAnswer,
} from "../../core/schema/directory.ts";
import { compileShape } from "../../core/schema/schema.ts";
import { inOrder } from "../../core/std/order.ts";
import type { Ledger, Receipts } from "../../storage/contract.ts";
import type { Answer, Call, Route } from "../http/route.ts";
import { checkOpen, invitationHeader, invitationId } from "../operations/invitations.ts";
import { encodeRecord, readRecord } from "../parties/records.ts";
import {
  acceptedVersions,
  type Binding,
  checkProofTime,
  type DirectoryParts,
  type DirectorySettings,
  decodeBody,
  directoryRoute,
  explainSignature,
  ofDid,
  pathCodes,
  readBinding,
  submit,
} from "./parts.ts";

export function registrationRoutes(parts: DirectoryParts): Route[] {
  return [registerRoute(parts), statusRoute(parts)];
}

// ------------------------------------------------------------------------------------ registration

type Registration = RegistrationSubject & { readonly call: RegistrationCall };

const registrationCodes = [
  "rate_limited",
  "registration_closed",
  "invitation_required",
  "invitation_invalid",
  "invalid_did",
  "authorization_expired",
  "authorization_too_far_ahead",
  "document_invalid",
  "document_stale",
  "alias_taken",
  "alias_reserved",
  "did_already_registered",
  "registration_pending",
  "invalid_signature",
  "chain_submission_rejected",
  "chain_unavailable",
  "storage_full",
] as const;

function registerRoute(parts: DirectoryParts): Route {
  const parseShape = compileShape(registerBody);
  const oneByOne = inOrder<Did>();
  return directoryRoute({
    method: "POST",
    path: "/register-did",
    id: "register",
    summary: "Register a DID with its document",
    request: registerBody,
    headers: [invitationHeader],
    credential: "invitation",
    answer: [202, "The ledger has accepted the registration; it is pending.", registeredAnswer],
    codes: registrationCodes,
    handle: async (call) => {
      const uninvited = checkOpen(parts.settings.registration, call.headers.get(invitationHeader));
      if (uninvited !== null) return uninvited;
      const binding = await readBinding(parts.ledger);
      const rule = {
        accepted: acceptedVersions(parts.settings, binding.proofs),
        skewMs: parts.limits.clock_skew,
      };
      const body = decodeBody(call, parseShape);
      const registration = isFault(body) ? body : decodeRegistration(call, rule, body);
      if (isFault(registration)) return registration;
      const refused =
        parts.blocks?.checkDid(registration.did) ?? checkForm(registration.did, parts.settings);
      if (refused !== null) return refused;
      return oneByOne(registration.did, () =>
        decideRegistration(parts, registration, { binding, call }),
      );
    },
  });
}

/**
 * An operator may demand DIDs whose keys can be proven, and no other may look
 * like one (docs/trust.md).
 */
export function checkForm(
  did: Did,
  { self_certifying_only: only }: DirectorySettings,
): Fault | null {
  if (looksSelfCertifying(did))
    return fault("invalid_did", "DIDs that begin with wp are self-certifying, and this one is not");
  if (!only || isSelfCertifying(did)) return null;
  return fault("invalid_did", "this Directory registers only self-certifying DIDs");
}

/**
 * Checks in the interface's order, which is not the ledger's: keys and document, alias, existing,
 * pending. The ledger checks everything else, above all the signature. It is checked here where no
 * ledger does, for a repeat, and before an invitation is used, which comes last: only a
 * registration that stands so far takes a use. Two registrations of one DID never run side by side
 * here, so that the later one sees the receipt.
 */
async function decideRegistration(
  parts: DirectoryParts,
  registration: Registration,
  { binding, call }: { readonly binding: Binding; readonly call: Call },
): Promise<Answer | Fault> {
  const { nowMs, headers } = call;
  const { did } = registration;
  // Receipt first, state second: a registration that is no longer pending is
  // then already in the state.
  const pending = await stillPending(parts, await readReceipt(parts, did, nowMs), nowMs);

  const refusal = checkSubject(registration, await gatherFacts(parts.ledger, registration, nowMs));
  if (refusal !== null) return refusal;
  const { aliasText } = registration;
  const reserved = aliasText === null ? null : (parts.aliases?.check(did, aliasText) ?? null);
  if (reserved !== null) return reserved;

  const txId = pending?.txId ?? null;
  if (txId !== null && pending?.fingerprint !== fingerprintOf(registration.call))
    return fault("registration_pending", "another registration of this DID is in progress");

  const isByInvitation = parts.settings.registration !== "open";
  const forged =
    txId !== null || isByInvitation ? checkSignature(registration.call, binding) : null;
  if (forged !== null) return forged;
  if (txId !== null) return renderRegistered(registration, txId);

  const code = isByInvitation ? (headers.get(invitationHeader) ?? "") : null;
  const uninvited = code === null ? null : await parts.invitations.claim(code, did);
  if (uninvited !== null) return uninvited;
  await parts.members?.registered(did, code === null ? null : invitationId(code), nowMs);

  const submitted = await submitRegistration(parts, registration.call, { pending, nowMs });
  if (!isFault(submitted)) return renderRegistered(registration, submitted);
  return submitted.code === "invalid_signature"
    ? (checkSignature(registration.call, binding) ?? submitted)
    : submitted;
}

/** 403 `invalid_signature`, with what was verified. */
function checkSignature(call: RegistrationCall, binding: Binding): Fault | null {
  const message = registrationMessage(call, binding);
  if (message !== null && verifyEd25519(call.signature, message, call.pubkey)) return null;
  return explainSignature(faultOfRefusal(refuse("InvalidSignature")), message ?? new Uint8Array(0));
}

type SubjectFacts = {
  readonly account: Account;
  readonly bounds: LedgerBounds;
  readonly aliasIsTaken: boolean;
};

export async function gatherFacts(
  ledger: Ledger,
  { did, aliasText }: RegistrationSubject,
  nowMs: number,
): Promise<SubjectFacts> {
  const alias = aliasText === null ? null : normalizeAlias(aliasText);
  const [account, bounds, holder, reserve] = await Promise.all([
    ledger.account(did),
    ledger.bounds(),
    alias === null ? null : ledger.aliasHolder(alias),
    alias === null ? null : ledger.aliasReserve(alias),
  ]);
  const isHeld = holder !== null && holder !== did;
  return {
    account,
    bounds,
    aliasIsTaken: isHeld || isReservedFrom({ did, life: account.life }, reserve, nowMs),
  };
}

/** 422 `document_invalid`, 400 or 409 for the alias, 409 `did_already_registered`. */
export function checkSubject(
  subject: RegistrationSubject,
  { account, bounds, aliasIsTaken }: SubjectFacts,
): Fault | null {
  if (!isAdmissibleKey(subject.pubkey))
    return fault("document_invalid", "the root key is not an admissible Ed25519 key");
  const flaw = checkDocument(subject.document, subject.did, bounds);
  if (flaw !== null) return faultOfRefusal(flaw);
  const alias = checkAlias(subject, aliasIsTaken);
  if (alias !== null || account.record === null) return alias;
  return fault("did_already_registered", "the DID is already registered");
}

/**
 * The ledger would register the DID without an alias that is not free; the
 * Directory refuses it instead.
 */
function checkAlias({ aliasText }: RegistrationSubject, isTaken: boolean): Fault | null {
  if (aliasText === null) return null;
  const alias = parseAlias(aliasText, "/alias");
  if (isFault(alias)) return alias;
  return isTaken ? faultOfRefusal(refuse("AliasTaken")) : null;
}

/**
 * Receipt, submission, receipt with the transaction. When the ledger refuses, the receipt is again
 * what it was; when it fails to answer, the receipt stays, because the outcome is unknown.
 */
async function submitRegistration(
  parts: DirectoryParts,
  call: RegistrationCall,
  before: { readonly pending: Receipt | null; readonly nowMs: number },
): Promise<string | Fault> {
  const { blockTimeMs } = await parts.ledger.head();
  const pendingUntilMs = before.nowMs + parts.settings.pending_blocks * blockTimeMs;
  const receipt = { fingerprint: fingerprintOf(call), pendingUntilMs, txId: null };
  await putReceipt(parts, call.did, receipt);
  const submission = await submit(parts, call, "register");
  if (!isFault(submission))
    await putReceipt(parts, call.did, { ...receipt, txId: submission.txHash });
  else if (before.pending !== null) await putReceipt(parts, call.did, before.pending);
  else await forgetRegistration(parts.receipts, call.did);
  return isFault(submission) ? submission : submission.txHash;
}

function renderRegistered({ did, document }: Registration, txId: string): Answer {
  const settled = { status: "accepted", registration_status: "pending", tx_id: txId };
  return { status: 202, json: { ...settled, did, did_document: renderDocument(document) } };
}

// ---------------------------------------------------------------------------------------- decoding

type TimeRule = { readonly accepted: readonly ProofVersion[]; readonly skewMs: number };

function decodeRegistration(
  call: Call,
  rule: TimeRule,
  body: Static<typeof registerBody>,
): Registration | Fault {
  const subject = parseRegistrationSubject(body);
  if (isFault(subject)) return subject;
  const { did, document, aliasText, pubkey } = subject;
  const { timestamp } = body;
  const alias = aliasText === null ? null : normalizeAlias(aliasText);
  const signature = decodeBase64(body.signature) as Uint8Array;
  const docBlob = encodeDidDocument(document);
  const name = "register_with_document_proof_signed";
  return (
    checkTimestamp(timestamp, call.nowMs, rule) ?? {
      ...subject,
      call: { name, did, alias, timestamp, pubkey, signature, docBlob },
    }
  );
}

export type RegistrationSubject = {
  readonly did: Did;
  readonly document: DidDocument;
  /** As sent; its rules come after those of the document. */
  readonly aliasText: string | null;
  /**
   * As named, or that of the first method: empty, which is not admissible, when that
   * one holds no Ed25519 key.
   */
  readonly pubkey: Uint8Array;
};

/** What is registered, without its proof. Refuses with `invalid_did` and `invalid_request`. */
export function parseRegistrationSubject(
  body: Static<typeof prepareRegistrationBody>,
): RegistrationSubject | Fault {
  const did = parseDid(body.did);
  if (isFault(did)) return did;
  const document = normalizeDocument(body.did_document, did, "/did_document");
  if (isFault(document)) return document;
  const pubkey = rootKeyOf(body, document);
  return isFault(pubkey) ? pubkey : { did, document, aliasText: body.alias ?? null, pubkey };
}

function rootKeyOf(
  { root_pubkey: named }: { readonly root_pubkey?: string },
  { verificationMethod: [first] }: DidDocument,
): Uint8Array | Fault {
  if (named !== undefined)
    return (
      parsePublicKey(named) ?? badInput("invalid_request", "/root_pubkey", "must be a public key")
    );
  if (first === undefined)
    return badInput(
      "invalid_request",
      "/root_pubkey",
      "is missing, and the document has no method to read it from",
    );
  return keyOfMethod(first) ?? new Uint8Array(0);
}

/** The version of the proof must be switched on, and its time be near (v1) or end soon (v2, v3). */
function checkTimestamp(text: string, nowMs: number, { accepted, skewMs }: TimeRule): Fault | null {
  const time = parseProofTimestamp(text);
  if (time === null) return badInput("invalid_request", "/timestamp", "has an unknown form");
  if (!accepted.includes(time.version)) {
    return badInput(
      "invalid_request",
      "/timestamp",
      `version ${time.version.slice(1)} proofs are not accepted here`,
    );
  }
  if (time.version !== "v1" && time.nonce !== 0n)
    return badInput("invalid_request", "/timestamp", "the nonce of a registration is 0");
  return checkProofTime(time, nowMs, skewMs);
}

// ---------------------------------------------------------------------------------------- receipts

/** A registration that this Directory submitted, or was about to submit when `txId` is `null`. */
type Receipt = {
  readonly fingerprint: string;
  readonly pendingUntilMs: number;
  readonly txId: string | null;
};

/**
 * After the pending state has ended, a receipt still holds the `tx_id` of a
 * confirmed DID for this long.
 */
const receiptLifeMs = 30 * 86_400_000;

/** What this Directory noted about a registration, besides what the ledger says. */
export const forgetRegistration = (receipts: Receipts, did: Did): Promise<void> =>
  receipts.remove(receiptKey(did));

const receiptKey = (did: Did): string => `registration:${did}`;

/** The same DID, key, alias and document; neither time nor signature. */
function fingerprintOf(call: RegistrationCall): string {
  return encodeHex(
    blake2b256(concatBytes(utf8(`${call.did}|${call.alias ?? ""}|`), call.pubkey, call.docBlob)),
  );
}

async function putReceipt(parts: DirectoryParts, did: Did, receipt: Receipt): Promise<void> {
  const lifeMs = receipt.txId === null ? 0 : receiptLifeMs;
  await parts.receipts.put(receiptKey(did), encodeRecord(receipt), receipt.pendingUntilMs + lifeMs);
}

const readReceipt = (
  { receipts }: DirectoryParts,
  did: Did,
  nowMs: number,
): Promise<Receipt | null> => readRecord<Receipt>(receipts, receiptKey(did), nowMs);

/** The receipt again while its registration is under way, else `null`. */
async function stillPending(
  { ledger }: DirectoryParts,
  receipt: Receipt | null,
  nowMs: number,
): Promise<Receipt | null> {
  if (receipt === null) return null;
  const submission = receipt.txId === null ? null : await ledger.submission(receipt.txId);
  // Only blocks end a submission, and the chain may have stopped, so the clock can't end it.
  if (submission !== null)
    return submission.state === "pending" || submission.state === "in_block" ? receipt : null;
  return receipt.pendingUntilMs > nowMs ? receipt : null;
}

// ------------------------------------------------------------------------------------------ status

function statusRoute(parts: DirectoryParts): Route {
  return directoryRoute({
    method: "GET",
    path: "/registration-status/:did",
    id: "registrationStatus",
    summary: "Whether a DID is registered, as the ledger says",
    answer: [200, "The state; `missing` is an answer, not an error.", registrationStatusAnswer],
    codes: pathCodes,
    handle: ofDid(async (did, call) => {
      // The account is read last: a submission that was under way before can
      // have become a record since.
      const receipt = await readReceipt(parts, did, call.nowMs);
      const pending = await stillPending(parts, receipt, call.nowMs);
      const { record } = await parts.ledger.account(did);
      const txId = record === null ? pending?.txId : receipt?.txId;
      const unconfirmed = pending === null ? "missing" : "pending";
      return {
        status: 200,
        json: {
          did,
          source: "chain",
          registered: record !== null,
          registration_status: record === null ? unconfirmed : "confirmed",
          ...(record === null ? {} : { version: Number(record.version) }),
          ...(record?.document == null ? {} : { did_document: renderDocument(record.document) }),
          ...(txId == null ? {} : { tx_id: txId }),
        },
      };
    }),
  });
}
