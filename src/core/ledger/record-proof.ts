/**
 * The bytes that a root key signs to register a DID or to replace its whole document: in version 1 (a time), version 2
 * (`v2:<nonce>:<expiry ms>`, which binds the document and works once) and version 3 (`v3:…`, which binds the ledger
 * and who submits it as well).
 * Source: rules sections 4 ("Registration proof", "Full document") and 10, docs/ledger.md 1.8.
 */
import { blake2b256 } from "#blake2";
import { concatBytes, utf8 } from "../codec/bytes.ts";
import { aliasBytesMax, normalizeAlias } from "../codec/did.ts";
import { encodeWith } from "../codec/scale.ts";
import { hourMs, minuteMs, parseTimestamp } from "../codec/time.ts";
import { parseU64 } from "../codec/u64.ts";
import type { AccountId } from "./account.ts";
import { registrationBindingCodec, registrationTailCodec, setDocumentTailCodec } from "./document-codec.ts";

/** A proof of version 2 or 3 expires at most this long after it is used. */
export const proofLifeMsMax = hourMs;
/** A version 1 proof is dated at most this far ahead of the ledger's clock. */
export const proofAheadMsMax = 5 * minuteMs;

export type ProofVersion = "v1" | "v2" | "v3";

export type ProofTimestamp =
  | { readonly version: "v1"; readonly timestampMs: number }
  | { readonly version: "v2" | "v3"; readonly nonce: bigint; readonly expiryMs: bigint };

/** Reads the `timestamp` of a registration or full-document proof; `null` when it is of no version. */
export function parseProofTimestamp(text: string): ProofTimestamp | null {
  if (text.length > 64) return null;
  const version = text.slice(0, 2);
  if ((version !== "v2" && version !== "v3") || text[2] !== ":") {
    const timestampMs = parseTimestamp(text);
    return timestampMs === null ? null : { version: "v1", timestampMs };
  }
  const parts = text.split(":");
  if (parts.length !== 3) return null;
  const [nonce, expiryMs] = [parseU64(parts[1] as string), parseU64(parts[2] as string)];
  return nonce === null || expiryMs === null ? null : { version, nonce, expiryMs };
}

/** The `timestamp` of a proof that has a counter value and an end. */
export function renderProofTimestamp(nonce: bigint, expiryMs: bigint, version: "v2" | "v3" = "v2"): string {
  return `${version}:${nonce}:${expiryMs}`;
}

/** What version 3 binds: the ledger, and the account that submits a registration (no ledger of ours takes none). */
export type ProofBinding = { readonly genesisHash: Uint8Array; readonly submitter: AccountId | null };

type RegistrationProof = {
  readonly did: string;
  /** As sent: its normal form is covered, but not by version 1. */
  readonly alias: string | null;
  readonly timestamp: string;
  readonly pubkey: Uint8Array;
  readonly docBlob: Uint8Array;
};

/**
 * The bytes that a registration signs; version 3 needs a `binding`. `null` when nothing can have been signed: the
 * timestamp is of no version, the nonce of a later one is not 0, or its alias has no normal form.
 */
export function registrationMessage(
  proof: RegistrationProof,
  binding: ProofBinding | null = null,
  aliasBytes: number = aliasBytesMax,
): Uint8Array | null {
  const { did, timestamp, pubkey, docBlob } = proof;
  const parsed = parseProofTimestamp(timestamp);
  if (parsed === null) return null;
  if (parsed.version === "v1") return utf8(`${did}|${timestamp}`);
  const alias = proof.alias === null ? null : normalizeAlias(proof.alias, aliasBytes);
  if (parsed.nonce !== 0n || (alias === null && proof.alias !== null)) return null;
  const { nonce, expiryMs } = parsed;
  const tail = encodeWith(registrationTailCodec, {
    did,
    alias,
    rootPubkey: pubkey,
    documentHash: blake2b256(docBlob),
    nonce,
    expiryMs,
  });
  if (parsed.version === "v2") return concatBytes(utf8("svc:register:v2|"), tail);
  if (binding === null) return null;
  return concatBytes(utf8("svc:register:v3|"), tail, encodeWith(registrationBindingCodec, binding));
}

type DocumentProof = { readonly did: string; readonly timestamp: string; readonly docBlob: Uint8Array };

/** The bytes that a full document signs; version 3 needs the `genesisHash`. `null` as for registrations. */
export function documentMessage(proof: DocumentProof, genesisHash: Uint8Array | null = null): Uint8Array | null {
  const { did, timestamp, docBlob } = proof;
  const parsed = parseProofTimestamp(timestamp);
  if (parsed === null) return null;
  const documentHash = blake2b256(docBlob);
  if (parsed.version === "v1") {
    return concatBytes(utf8(`svc:set_document:v1|${did}|`), documentHash, utf8(`|${timestamp}`));
  }
  const { nonce, expiryMs } = parsed;
  const tail = encodeWith(setDocumentTailCodec, { did, documentHash, nonce, expiryMs });
  if (parsed.version === "v2") return concatBytes(utf8("svc:set_document:v2|"), tail);
  return genesisHash === null ? null : concatBytes(utf8("svc:set_document:v3|"), tail, genesisHash);
}
