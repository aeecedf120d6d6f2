/**
 * What the key signs that registers a DID or replaces its whole document, in version 1 (a time) and
 * version 2 (`v2:<nonce>:<expiry ms>`, which binds the document and works once).
 * Source: decisions sections 4 ("Registration proof", "Full document") and 10, docs/ledger.md 1.8.
 */
import { concatBytes, utf8 } from "../codec/bytes.ts";
import { aliasBytesMax, normalizeAlias } from "../codec/did.ts";
import { blake2b256 } from "../codec/hash.ts";
import { hourMs, parseTimestamp } from "../codec/time.ts";
import { parseU64 } from "../codec/u64.ts";
import { encodeRegistrationTail, encodeSetDocumentTail } from "./structures.ts";

/** A version 2 proof expires at most this long after it is used. */
export const proofLifeMsMax = hourMs;

export type ProofTimestamp =
  | { readonly version: 1; readonly timestampMs: number }
  | { readonly version: 2; readonly nonce: bigint; readonly expiryMs: bigint };

/** Reads the `timestamp` of a registration or full-document proof; `null` when it is of neither version. */
export function parseProofTimestamp(text: string): ProofTimestamp | null {
  if (text.length > 64) return null;
  if (!text.startsWith("v2:")) {
    const timestampMs = parseTimestamp(text);
    return timestampMs === null ? null : { version: 1, timestampMs };
  }
  const parts = text.split(":");
  if (parts.length !== 3) return null;
  const [nonce, expiryMs] = [parseU64(parts[1] as string), parseU64(parts[2] as string)];
  return nonce === null || expiryMs === null ? null : { version: 2, nonce, expiryMs };
}

/** The `timestamp` of a version 2 proof. */
export function renderProofTimestamp(nonce: bigint, expiryMs: bigint): string {
  return `v2:${nonce}:${expiryMs}`;
}

export type RegistrationProof = {
  readonly did: string;
  /** As sent: version 2 covers its normal form, version 1 does not cover it. */
  readonly alias: string | null;
  readonly timestamp: string;
  readonly pubkey: Uint8Array;
  readonly docBlob: Uint8Array;
};

/**
 * The bytes that a registration signs. `null` when nothing can have been signed: the timestamp is of
 * neither version, a version 2 nonce is not 0, or its alias has no normal form.
 */
export function registrationMessage(proof: RegistrationProof, aliasBytes: number = aliasBytesMax): Uint8Array | null {
  const { did, timestamp, pubkey, docBlob } = proof;
  const parsed = parseProofTimestamp(timestamp);
  if (parsed === null) return null;
  if (parsed.version === 1) return utf8(`${did}|${timestamp}`);
  const alias = proof.alias === null ? null : normalizeAlias(proof.alias, aliasBytes);
  if (parsed.nonce !== 0n || (alias === null && proof.alias !== null)) return null;
  const { nonce, expiryMs } = parsed;
  const tail = { did, alias, rootPubkey: pubkey, documentHash: blake2b256(docBlob), nonce, expiryMs };
  return concatBytes(utf8("svc:register:v2|"), encodeRegistrationTail(tail));
}

export type DocumentProof = { readonly did: string; readonly timestamp: string; readonly docBlob: Uint8Array };

/** The bytes that a full document signs, or `null` when the timestamp is of neither version. */
export function documentMessage(proof: DocumentProof): Uint8Array | null {
  const { did, timestamp, docBlob } = proof;
  const parsed = parseProofTimestamp(timestamp);
  if (parsed === null) return null;
  const documentHash = blake2b256(docBlob);
  if (parsed.version === 1) {
    return concatBytes(utf8(`svc:set_document:v1|${did}|`), documentHash, utf8(`|${timestamp}`));
  }
  const { nonce, expiryMs } = parsed;
  return concatBytes(utf8("svc:set_document:v2|"), encodeSetDocumentTail({ did, documentHash, nonce, expiryMs }));
}
