/**
 * The two calls whose proof is a message of its own: the registration of a DID and the replacement of its
 * whole document. The order of their checks is the runtime's; the checks of time are ours.
 * Source: docs/ledger.md 2.3 and 2.4, rules sections 4 and 10 ("Document time", "Stricter than the family's chain").
 */

import { equalBytes } from "../codec/bytes.ts";
import { isDid } from "../codec/did.ts";
import { isAdmissibleKey, verifyEd25519 } from "../codec/ed25519.ts";
import { publicKeyBytes, signatureBytes } from "../codec/public-key.ts";
import type { Account, DidRecord } from "./account.ts";
import { registrationAlias } from "./action-rules.ts";
import { longerThan } from "./bounds.ts";
import type { DocumentCall, RegistrationCall } from "./calls.ts";
import { checkDocument } from "./document.ts";
import { decodeDidDocument } from "./document-codec.ts";
import type { DidDocument } from "./document-form.ts";
import { type Applied, applyChange, type LedgerInput } from "./effects.ts";
import {
  documentMessage,
  type ProofTimestamp,
  parseProofTimestamp,
  proofAheadMsMax,
  proofLifeMsMax,
  registrationMessage,
} from "./record-proof.ts";
import { isRefusal, type LedgerError, type LedgerRefusal, refuse } from "./refusals.ts";

/**
 * A new record, owned by the operator. The counters of an earlier record under the same DID stand. An alias
 * that is not free or no alias is left out, with an event, because the runtime does so.
 */
export function register(input: LedgerInput, call: RegistrationCall): Applied | LedgerRefusal {
  const { account, bounds, nowMs } = input;
  if (!hasProofSizes(call)) return refuse("InvalidSignature");
  if (longerThan(call.did, bounds.didBytes)) return refuse("DidTooLong");
  if (!isDid(call.did)) return refuse("InvalidDidFormat");
  const stamp = takenTimestamp(input, call.timestamp);
  if (isRefusal(stamp)) return stamp;
  if (stamp.version !== "v1" && stamp.nonce !== 0n) return refuse("InvalidProofTimestamp");
  const untimely = checkExpiry(stamp, nowMs, "RegistrationExpired");
  if (untimely !== null) return untimely;
  if (account.record !== null) return refuse("DidAlreadyExists");
  if (isStaleRegistration(account, stamp)) return refuse("DocumentStale");
  if (!isAdmissibleKey(call.pubkey)) return refuse("InvalidRootPubkey");
  const binding = { genesisHash: input.proofs.genesisHash, submitter: input.operator };
  const message = registrationMessage(call, binding, bounds.aliasBytes);
  if (message === null || !verifyEd25519(call.signature, message, call.pubkey)) return refuse("InvalidSignature");
  const document = readDocument(input, call);
  if (isRefusal(document)) return document;
  const { aliases, events } = registrationAlias(input, call.alias);
  return {
    account: {
      ...account,
      record: newRecord(input, { document, aliases, rootPubkey: call.pubkey }),
      ...timesAfter(account, stamp, nowMs),
      registrationExpiryMs: stamp.version === "v1" ? account.registrationExpiryMs : stamp.expiryMs,
    },
    aliases: { set: aliases, removed: [] },
    policies: [],
    events: [
      { name: "Registered", did: call.did, account: input.operator },
      { name: "DocumentSet", did: call.did },
      ...events,
    ],
  };
}

function newRecord(input: LedgerInput, given: Pick<DidRecord, "document" | "aliases" | "rootPubkey">): DidRecord {
  return {
    ...given,
    owner: input.operator,
    devices: [],
    version: 1n,
    updatedAtMs: BigInt(input.nowMs),
    links: null,
    deactivated: false,
  };
}

/** Replaces the whole document. A bad document is reported before a bad signature, as in the runtime. */
export function setDocument(input: LedgerInput, call: DocumentCall): Applied | LedgerRefusal {
  const { account, bounds, nowMs } = input;
  if (!hasProofSizes(call)) return refuse("InvalidSignature");
  if (longerThan(call.did, bounds.didBytes)) return refuse("DidTooLong");
  const stamp = takenTimestamp(input, call.timestamp);
  if (isRefusal(stamp)) return stamp;
  const document = readDocument(input, call);
  if (isRefusal(document)) return document;
  const untimely = checkExpiry(stamp, nowMs, "DocumentAuthorizationExpired");
  if (untimely !== null) return untimely;
  const { record } = account;
  if (record === null) return refuse("DidNotFound");
  if (record.deactivated) return refuse("DidDeactivated");
  const outdated = checkTurn(account, stamp);
  if (outdated !== null) return outdated;
  if (record.rootPubkey === null || !equalBytes(call.pubkey, record.rootPubkey)) return refuse("InvalidSignature");
  const message = documentMessage(call, input.proofs.genesisHash);
  if (message === null || !verifyEd25519(call.signature, message, call.pubkey)) return refuse("InvalidSignature");
  const timed = { ...account, ...timesAfter(account, stamp, nowMs) };
  const counter = stamp.version === "v1" ? null : "document";
  return applyChange(
    { account: timed, record, nowMs, counter },
    { record: { document }, events: [{ name: "DocumentSet", did: call.did }] },
  );
}

function hasProofSizes(call: RegistrationCall | DocumentCall): boolean {
  return call.pubkey.length === publicKeyBytes && call.signature.length === signatureBytes;
}

function readDocument(input: LedgerInput, call: RegistrationCall | DocumentCall): DidDocument | LedgerRefusal {
  const document = call.docBlob.length > input.bounds.documentBytes ? null : decodeDidDocument(call.docBlob);
  if (document === null) {
    return refuse("InvalidDocument", {
      detail: "doc_blob is no SCALE document within the bounds",
      wholeDocument: true,
    });
  }
  return checkDocument(document, call.did, input.bounds) ?? document;
}

/** The time of a proof whose version this ledger takes. How old a version 1 time is, is for the Directory to ask. */
function takenTimestamp({ proofs, nowMs }: LedgerInput, text: string): ProofTimestamp | LedgerRefusal {
  const stamp = parseProofTimestamp(text);
  if (stamp === null) return refuse("InvalidProofTimestamp");
  if (!(stamp.version === "v3" ? proofs.bound : proofs.plain)) return refuse("ProofVersionRefused");
  const early = stamp.version === "v1" && stamp.timestampMs > nowMs + proofAheadMsMax;
  return early ? refuse("ProofTooFarAhead") : stamp;
}

/** Later proofs end; those of version 1 carry no end. */
function checkExpiry(stamp: ProofTimestamp, nowMs: number, expired: LedgerError): LedgerRefusal | null {
  if (stamp.version === "v1") return null;
  if (stamp.expiryMs <= BigInt(nowMs)) return refuse(expired);
  return stamp.expiryMs > BigInt(nowMs + proofLifeMsMax) ? refuse("ProofTooFarAhead") : null;
}

/** A proof that registered this DID before must not revive it after a deletion. */
function isStaleRegistration(account: Account, stamp: ProofTimestamp): boolean {
  return stamp.version === "v1"
    ? BigInt(stamp.timestampMs) <= account.documentTimeMs
    : stamp.expiryMs <= account.registrationExpiryMs;
}

/** Version 1 must be later than the last document, the others carry the next document nonce. */
function checkTurn(account: Account, stamp: ProofTimestamp): LedgerRefusal | null {
  if (stamp.version === "v1") {
    return BigInt(stamp.timestampMs) > account.documentTimeMs ? null : refuse("DocumentStale");
  }
  const expected = account.counters.document;
  return stamp.nonce === expected ? null : refuse("InvalidDocumentNonce", { expected });
}

/** The document time never moves back, else a version 1 proof from before could be used again. */
function timesAfter(account: Account, stamp: ProofTimestamp, nowMs: number): Pick<Account, "documentTimeMs"> {
  const timeMs = BigInt(stamp.version === "v1" ? stamp.timestampMs : nowMs);
  return { documentTimeMs: timeMs > account.documentTimeMs ? timeMs : account.documentTimeMs };
}
