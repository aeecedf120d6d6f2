/**
 * The key proof that a ledger keeps for a self-certifying DID, and serves for ever: each
 * applied call makes it anew. What a call overrules leaves the proof with the call's own
 * commit.
 * Source: docs/trust.md "Key proofs".
 */
import { blake2b256 } from "#blake2";
import { equalBytes } from "../codec/bytes.ts";
import { actionRows } from "./actions.ts";
import {
  actionOfCall,
  type DocumentCall,
  deletesDid,
  type LedgerCall,
  type ProofCall,
  type RegistrationCall,
} from "./calls.ts";
import type { ProofBinding } from "./document-codec.ts";
import { parseProofTimestamp } from "./document-codec.ts";
import type { KeyProof } from "./key-proof.ts";
import { decodePayload } from "./structures.ts";

/**
 * After an applied call: the same proof where the call proves nothing, `null` where nothing
 * is left to prove.
 */
export function keepKeyProof(
  before: KeyProof | null,
  call: LedgerCall,
  binding: ProofBinding,
): KeyProof | null {
  if (call.name === "register_with_document_proof_signed")
    return proofOfRegistration(call, binding);
  if (before === null) return null;
  if (call.name === "set_document_with_proof") return withDocument(before, call);
  if (!("signedPayload" in call)) return before;
  return withAuthorized(before, call);
}

function proofOfRegistration(
  call: RegistrationCall,
  { genesisHash, submitter }: ProofBinding,
): KeyProof {
  const { alias, docBlob, pubkey, signature } = call;
  const documentHash = blake2b256(docBlob);
  const registration = {
    alias,
    expiryMs: expiryOf(call.timestamp),
    submitter,
    documentHash,
    signature,
  };
  return {
    version: "v1",
    genesisHash,
    rootKey: pubkey,
    registration,
    rotations: [],
    base: null,
    document: docBlob,
    calls: [],
  };
}

function withDocument(
  before: KeyProof,
  { docBlob, pubkey, signature, timestamp }: DocumentCall,
): KeyProof {
  // The current root key, unless blocks are read out of order.
  const rootKeys = [before.rootKey, ...before.rotations.map(({ newRootPubkey }) => newRootPubkey)];
  const root = rootKeys.findLastIndex((key) => equalBytes(key, pubkey));
  if (root < 0) return before;
  const stamp = parseProofTimestamp(timestamp);
  const nonce = stamp !== null && stamp.version !== "v1" ? stamp.nonce : 0n;
  const base = { root, nonce, expiryMs: expiryOf(timestamp), signature };
  return { ...before, base, document: docBlob, calls: [] };
}

/** Rotations and component calls; other authorizations prove no key. */
function withAuthorized(before: KeyProof, call: ProofCall): KeyProof | null {
  const { signedPayload: payload, signature } = call;
  if (call.name === "update_root_pubkey") {
    const { newRootPubkey } = call;
    const validUntilMs = decodePayload("rootPubkey", payload)?.validUntilMs ?? 0n;
    return {
      ...before,
      rotations: [...before.rotations, { newRootPubkey, validUntilMs, signature }],
    };
  }
  if (call.name === "apply_control_with_proof") return deletesDid(call) ? null : before;
  const isComponent = actionRows[actionOfCall(call)].counter === "document";
  return isComponent ? { ...before, calls: [...before.calls, { payload, signature }] } : before;
}

/** Only version 3 gets here, and has one. */
function expiryOf(timestamp: string): bigint {
  const stamp = parseProofTimestamp(timestamp);
  return stamp === null || stamp.version === "v1" ? 0n : stamp.expiryMs;
}
