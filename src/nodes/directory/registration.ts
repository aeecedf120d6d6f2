/**
 * Registration of a DID and its state: `missing`, `pending` while this Directory has a submission under
 * way, `confirmed` once the finalized head has the DID. A receipt is written before the submission, so
 * that a crash in between is read as "under way", never as "nothing happened".
 * Order of checks: shape, DID, document id, timestamp, keys and document, alias, existing, pending,
 * signature. The same registration repeated while pending answers the same `tx_id`.
 * Source: interface "Registration state of a DID", rules sections 4 and 10 ("Registration").
 */

import type { Static } from "@sinclair/typebox";
import { concatBytes, decodeBase64, decodeUtf8, encodeHex, utf8 } from "../../core/codec/bytes.ts";
import { type Did, normalizeAlias, parseDid } from "../../core/codec/did.ts";
import { isAdmissibleKey, parsePublicKey } from "../../core/codec/ed25519.ts";
import { blake2b256 } from "../../core/codec/hash.ts";
import { badInput, type Fault, fault, isFault } from "../../core/fault.ts";
import { parseProofTimestamp, proofLifeMsMax } from "../../core/ledger/authorization.ts";
import type { LedgerBounds } from "../../core/ledger/bounds.ts";
import type { LedgerCall } from "../../core/ledger/calls.ts";
import {
  checkDocument,
  type DidDocument,
  keyOfMethod,
  normalizeDocument,
  renderDocument,
} from "../../core/ledger/document.ts";
import { parseAlias } from "../../core/ledger/intents.ts";
import { faultOfRefusal } from "../../core/ledger/refusals.ts";
import { encodeDidDocument } from "../../core/ledger/structures.ts";
import {
  type prepareRegistrationBody,
  registerBody,
  registeredAnswer,
  registrationStatusAnswer,
} from "../../core/schema/directory.ts";
import { compileShape } from "../../core/schema/schema.ts";
import type { Submission } from "../../storage/contract.ts";
import type { Answer, Call, Route } from "../http/route.ts";
import {
  type DirectoryOptions,
  type DirectoryParts,
  decodeBody,
  directoryRoute,
  pathCodes,
  pathValue,
  stateRoute,
} from "./parts.ts";
import { decideCall, type Facts, gatherFacts } from "./precheck.ts";
import { decideEnd, decideFreshness } from "./times.ts";

export function registrationRoutes(parts: DirectoryParts): Route[] {
  return [registerRoute(parts), statusRoute(parts)];
}

// ------------------------------------------------------------------------------------------ registration

type RegistrationCall = Extract<LedgerCall, { name: "register_with_document_proof_signed" }>;
type Registration = RegistrationSubject & { readonly pubkey: Uint8Array; readonly call: RegistrationCall };

const registrationCodes = [
  "invalid_did",
  "authorization_expired",
  "authorization_too_far_ahead",
  "document_invalid",
  "document_stale",
  "alias_taken",
  "did_already_registered",
  "registration_pending",
  "invalid_signature",
  "chain_submission_rejected",
  "chain_unavailable",
  "storage_full",
] as const;

function registerRoute(parts: DirectoryParts): Route {
  const parseShape = compileShape(registerBody);
  const inTurn = oneAtATime();
  return directoryRoute({
    method: "POST",
    path: "/register-did",
    id: "register",
    summary: "Register a DID with its document",
    request: registerBody,
    answer: [202, "The ledger has taken the registration; it is pending.", registeredAnswer],
    codes: registrationCodes,
    handle: async (call) => {
      const registration = decodeRegistration(call, parts.options, decodeBody(call, parseShape));
      if (isFault(registration)) return registration;
      return inTurn(registration.did, () => register(parts, registration, call.nowMs));
    },
  });
}

/** Two registrations of one DID never run side by side here, so that the later one sees the receipt. */
async function register(parts: DirectoryParts, registration: Registration, nowMs: number): Promise<Answer | Fault> {
  // In this order: what is no longer pending when it is asked for has become a record when that is read.
  const pending = await stillPending(parts, await readReceipt(parts, registration.did, nowMs), nowMs);
  const facts = await gatherFacts(parts.ledger, registration.call);
  const refusal = decideRegistration(registration, { facts, pending }, nowMs);
  if (refusal !== null) return refusal;
  const txId = pending?.txId ?? (await submitRegistration(parts, registration, { pending, nowMs }));
  return isFault(txId) ? txId : renderRegistered(registration, txId);
}

/**
 * Keys and document, alias, existing, pending, signature: the interface's order. The ledger's own order
 * differs (it looks at the document last), so what comes first here is asked first.
 */
function decideRegistration(
  registration: Registration,
  known: { readonly facts: Facts; readonly pending: Receipt | null },
  nowMs: number,
): Fault | null {
  const { facts, pending } = known;
  const early = decideSubject(registration, facts.bounds) ?? decideAlias(registration, facts);
  if (early !== null) return early;
  const refusal = decideCall(registration.call, facts, nowMs);
  if (refusal !== null && refusal.code !== "invalid_signature") return refusal;
  const differs = pending !== null && pending.fingerprint !== fingerprintOf(registration.call);
  if (differs && pending.txId !== null) {
    return fault("registration_pending", "another registration of this DID is under way");
  }
  return refusal;
}

/** 422 `document_invalid`: the root key is not admitted, or the document breaks a rule. */
export function decideSubject(
  subject: { readonly did: Did; readonly document: DidDocument; readonly pubkey: Uint8Array },
  bounds: LedgerBounds,
): Fault | null {
  if (!isAdmissibleKey(subject.pubkey)) return fault("document_invalid", "the root key is no admissible Ed25519 key");
  const flaw = checkDocument(subject.document, subject.did, bounds);
  return flaw === null ? null : faultOfRefusal(flaw);
}

/** The ledger would register without an alias that is not free; here it is refused instead. */
export function decideAlias({ did, aliasText }: RegistrationSubject, facts: Pick<Facts, "aliasHolders">): Fault | null {
  if (aliasText === null) return null;
  const alias = parseAlias(aliasText, "/alias");
  if (isFault(alias)) return alias;
  const holder = facts.aliasHolders.get(alias) ?? null;
  return holder === null || holder === did ? null : fault("alias_taken", "the alias belongs to another DID");
}

/**
 * Receipt, submission, receipt with the transaction. When the ledger refuses, the receipt is again what
 * it was; when it fails to answer, the receipt stays, because nobody knows what happened.
 */
async function submitRegistration(
  parts: DirectoryParts,
  { did, call }: Registration,
  before: { readonly pending: Receipt | null; readonly nowMs: number },
): Promise<string | Fault> {
  const { blockTimeMs } = await parts.ledger.head();
  const pendingUntilMs = before.nowMs + parts.options.pendingBlocks * blockTimeMs;
  const receipt = { fingerprint: fingerprintOf(call), pendingUntilMs };
  await putReceipt(parts, did, { ...receipt, txId: null });
  const submission = await parts.ledger.submit(call, "register");
  if (isFault(submission)) {
    if (before.pending === null) await parts.receipts.remove(receiptKey(did));
    else await putReceipt(parts, did, before.pending);
    return submission;
  }
  await putReceipt(parts, did, { ...receipt, txId: submission.txHash });
  return submission.txHash;
}

function renderRegistered({ did, document }: Registration, txId: string): Answer {
  const settled = { status: "accepted", registration_status: "pending", tx_id: txId };
  return { status: 202, json: { ...settled, did, did_document: renderDocument(document) } };
}

/** Runs the tasks of one key one after another; a key without tasks costs nothing. */
function oneAtATime(): <T>(key: string, task: () => Promise<T>) => Promise<T> {
  const last = new Map<string, Promise<unknown>>();
  return (key, task) => {
    const before = last.get(key) ?? Promise.resolve();
    const mine = before.then(task, task);
    const settled = mine.catch(() => undefined).finally(() => last.get(key) === settled && last.delete(key));
    last.set(key, settled);
    return mine;
  };
}

// ---------------------------------------------------------------------------------------------- decoding

function decodeRegistration(
  call: Call,
  options: DirectoryOptions,
  body: Static<typeof registerBody> | Fault,
): Registration | Fault {
  if (isFault(body)) return body;
  const subject = parseRegistrationSubject(body);
  if (isFault(subject)) return subject;
  const refusal = decideProofTime(body.timestamp, call.nowMs, options);
  if (refusal !== null) return refusal;
  const { did, document, aliasText, pubkey } = subject;
  if (pubkey === null) return firstMethodUnfit();
  return {
    ...subject,
    pubkey,
    call: {
      name: "register_with_document_proof_signed",
      did,
      alias: aliasText === null ? null : normalizeAlias(aliasText),
      timestamp: body.timestamp,
      pubkey,
      signature: decodeBase64(body.signature) as Uint8Array,
      docBlob: encodeDidDocument(document),
    },
  };
}

export type RegistrationSubject = {
  readonly did: Did;
  readonly document: DidDocument;
  /** As sent; its rules come after those of the document. */
  readonly aliasText: string | null;
  /** `null`: none was named and the first method holds none that could stand for it. */
  readonly pubkey: Uint8Array | null;
};

/** What is registered, without its proof. Refuses with `invalid_did` and `invalid_request`. */
export function parseRegistrationSubject(body: Static<typeof prepareRegistrationBody>): RegistrationSubject | Fault {
  const did = parseDid(body.did);
  if (isFault(did)) return did;
  const document = normalizeDocument(body.did_document, did, "/did_document");
  if (isFault(document)) return document;
  const aliasText = body.alias ?? null;
  if (body.root_pubkey !== undefined) {
    const pubkey = parsePublicKey(body.root_pubkey);
    return pubkey === null
      ? badInput("invalid_request", "/root_pubkey", "is no public key")
      : { did, document, aliasText, pubkey };
  }
  const first = document.verificationMethod[0];
  if (first === undefined) return badInput("invalid_request", "/root_pubkey", "is missing, and no method supplies it");
  return { did, document, aliasText, pubkey: keyOfMethod(first) };
}

export function firstMethodUnfit(): Fault {
  return fault("document_invalid", "the first verification method holds no admissible Ed25519 key");
}

/** The version of the proof must be switched on, and its time be near (v1) or end soon (v2). */
function decideProofTime(text: string, nowMs: number, options: DirectoryOptions): Fault | null {
  const time = parseProofTimestamp(text);
  if (time === null) return badInput("invalid_request", "/timestamp", "is of no known form");
  if (!options.registrationProofs.includes(`v${time.version}`)) {
    return badInput("invalid_request", "/timestamp", `version ${time.version} proofs are not accepted here`);
  }
  if (time.version === 1) return decideFreshness(time.timestampMs, nowMs, options.skewMs);
  if (time.nonce !== 0n) return badInput("invalid_request", "/timestamp", "the nonce of a registration is 0");
  return decideEnd(time.expiryMs, nowMs, { aheadMsMax: proofLifeMsMax, pointer: "/timestamp" });
}

// ---------------------------------------------------------------------------------------------- receipts

/** A registration that this Directory submitted, or was about to submit when `txId` is `null`. */
type Receipt = { readonly fingerprint: string; readonly pendingUntilMs: number; readonly txId: string | null };

/** After the pending state has ended, a receipt still holds the `tx_id` of a confirmed DID for this long. */
const receiptLifeMs = 30 * 86_400_000;

const receiptKey = (did: Did): string => `registration:${did}`;

/** The same DID, key, alias and document; neither time nor signature. */
function fingerprintOf(call: RegistrationCall): string {
  return encodeHex(blake2b256(concatBytes(utf8(`${call.did}|${call.alias ?? ""}|`), call.pubkey, call.docBlob)));
}

async function putReceipt(parts: DirectoryParts, did: Did, receipt: Receipt): Promise<void> {
  const lifeMs = receipt.txId === null ? 0 : receiptLifeMs;
  await parts.receipts.put(receiptKey(did), utf8(JSON.stringify(receipt)), receipt.pendingUntilMs + lifeMs);
}

async function readReceipt(parts: DirectoryParts, did: Did, nowMs: number): Promise<Receipt | null> {
  const bytes = await parts.receipts.get(receiptKey(did), nowMs);
  return bytes === null ? null : (JSON.parse(decodeUtf8(bytes) ?? "null") as Receipt | null);
}

/** The receipt again while its registration is under way, else `null`. */
async function stillPending(
  { ledger }: DirectoryParts,
  receipt: Receipt | null,
  nowMs: number,
): Promise<Receipt | null> {
  if (receipt === null) return null;
  const submission = receipt.txId === null ? null : await ledger.submission(receipt.txId);
  // What is under way ends by the chain's blocks, which may have stood still: the clock says nothing about it.
  if (submission !== null) return isUnderWay(submission) ? receipt : null;
  return receipt.pendingUntilMs > nowMs ? receipt : null;
}

function isUnderWay(submission: Submission): boolean {
  return submission.state === "pending" || submission.state === "in_block";
}

// ------------------------------------------------------------------------------------------------ status

function statusRoute(parts: DirectoryParts): Route {
  return stateRoute(parts, {
    method: "GET",
    path: "/registration-status/:did",
    id: "registrationStatus",
    summary: "Whether a DID is registered, confirmed against the chain",
    answer: [200, "The state; `missing` is an answer, not an error.", registrationStatusAnswer],
    codes: pathCodes,
    handle: async (call) => {
      const did = parseDid(pathValue(call, "did"));
      if (isFault(did)) return did;
      // The account is read last: a submission that was under way before can have become a record since.
      const receipt = await readReceipt(parts, did, call.nowMs);
      const pending = await stillPending(parts, receipt, call.nowMs);
      const { record } = await parts.ledger.account(did);
      const txId = record === null ? pending?.txId : receipt?.txId;
      return {
        status: 200,
        json: {
          did,
          source: "chain",
          registered: record !== null,
          registration_status: record !== null ? "confirmed" : pending !== null ? "pending" : "missing",
          ...(record === null ? {} : renderConfirmed(record.document, record.version)),
          ...(txId == null ? {} : { tx_id: txId }),
        },
      };
    },
  });
}

function renderConfirmed(document: DidDocument | null, version: bigint): Record<string, unknown> {
  return { ...(document === null ? {} : { did_document: renderDocument(document) }), version: Number(version) };
}
