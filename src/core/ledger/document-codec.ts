/**
 * The messages that a root key signs over a whole document, to register a DID or to replace
 * its document; and the payloads that key proofs contain. Version 1 has a time. Version 2
 * (`v2:<nonce>:<expiry ms>`) binds the document and works once. Version 3 (`v3:…`) also
 * binds the ledger and the account that submits a registration. A client that registers
 * needs this file and no other structure.
 * Source: docs/ledger.md 1.1, 1.2, 1.4, 1.5 and 1.8, rules section 4 ("Registration
 * proof").
 */
import { blake2b256 } from "#blake2";
import { concatBytes, utf8 } from "../codec/bytes.ts";
import { aliasBytesMax, normalizeAlias } from "../codec/did.ts";
import { parseU64 } from "../codec/json.ts";
import {
  type Decoded,
  decodeWith,
  encodeWith,
  enumeration,
  exactByteVector,
  fixedBytes,
  option,
  structure,
  u64,
} from "../codec/scale.ts";
import { hourMs, minuteMs, parseTimestamp } from "../codec/time.ts";
import {
  type AccountId,
  alias,
  type CounterName,
  type DidDocument,
  did,
  documentCodec,
  id,
  scaleBounds,
  serviceCodec,
  verificationMethodCodec,
} from "./account.ts";
import { actionsOf, counters } from "./actions.ts";

export const encodeDidDocument = (document: DidDocument): Uint8Array =>
  encodeWith(documentCodec, document);

/** `null` also for a blob above the bound of a document. */
export function decodeDidDocument(bytes: Uint8Array): DidDocument | null {
  return bytes.length > scaleBounds.documentBytes ? null : decodeWith(documentCodec, bytes);
}

/** What a version 2 registration proof covers behind its prefix. */
const registrationTailCodec = structure({
  did,
  alias: option(alias),
  rootPubkey: exactByteVector(32),
  documentHash: fixedBytes(32),
  nonce: u64,
  expiryMs: u64,
});

/** What version 3 of a registration proof covers behind the tail of version 2. */
const registrationBindingCodec = structure({
  genesisHash: fixedBytes(32),
  submitter: option(fixedBytes(32)),
});

/**
 * What a full-document proof of version 2 covers behind its prefix; version 3 adds the
 * genesis hash.
 */
const setDocumentTailCodec = structure({
  did,
  documentHash: fixedBytes(32),
  nonce: u64,
  expiryMs: u64,
});

// ------------------------------------------------------------------------------------------ proofs

/** A proof of version 2 or 3 expires at most this long after it is used. */
export const proofLifeMsMax = hourMs;
/** A version 1 proof is dated at most this far ahead of the ledger's clock. */
export const proofAheadMsMax = 5 * minuteMs;

export type ProofVersion = "v1" | "v2" | "v3";

export type ProofTimestamp =
  | { readonly version: "v1"; readonly timestampMs: number }
  | { readonly version: "v2" | "v3"; readonly nonce: bigint; readonly expiryMs: bigint };

/**
 * Parses the `timestamp` of a registration or full-document proof; `null` when it has no
 * known form.
 */
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

/** The `timestamp` of a proof with a counter value and an expiry. */
export function renderProofTimestamp(
  nonce: bigint,
  expiryMs: bigint,
  version: "v2" | "v3" = "v2",
): string {
  return `${version}:${nonce}:${expiryMs}`;
}

/** What version 3 binds: the ledger and, in a registration, the account that submits it. */
export type ProofBinding = {
  readonly genesisHash: Uint8Array;
  readonly submitter: AccountId | null;
};

type RegistrationProof = {
  readonly did: string;
  /** As sent: its normal form is covered, but not by version 1. */
  readonly alias: string | null;
  readonly timestamp: string;
  readonly pubkey: Uint8Array;
  readonly docBlob: Uint8Array;
};

/**
 * What a registration signs (version 3 needs `binding`); `null` for what no one can have
 * signed.
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
  const documentHash = blake2b256(docBlob);
  const tail = { did, alias, rootPubkey: pubkey, documentHash, nonce, expiryMs };
  if (parsed.version === "v2")
    return concatBytes(utf8("svc:register:v2|"), encodeWith(registrationTailCodec, tail));
  return binding === null ? null : boundRegistrationMessage({ ...tail, ...binding });
}

/** The bytes that a registration of version 3 signs. */
export function boundRegistrationMessage(
  signed: Omit<Decoded<typeof registrationTailCodec>, "nonce"> & ProofBinding,
): Uint8Array {
  const tail = encodeWith(registrationTailCodec, { ...signed, nonce: 0n });
  return concatBytes(utf8("svc:register:v3|"), tail, encodeWith(registrationBindingCodec, signed));
}

type DocumentProof = {
  readonly did: string;
  readonly timestamp: string;
  readonly docBlob: Uint8Array;
};

/**
 * The bytes that a full document signs; version 3 needs the `genesisHash`. `null` as for
 * registrations.
 */
export function documentMessage(
  proof: DocumentProof,
  genesisHash: Uint8Array | null = null,
): Uint8Array | null {
  const { did, timestamp, docBlob } = proof;
  const parsed = parseProofTimestamp(timestamp);
  if (parsed === null) return null;
  const documentHash = blake2b256(docBlob);
  if (parsed.version === "v1") {
    return concatBytes(utf8(`svc:set_document:v1|${did}|`), documentHash, utf8(`|${timestamp}`));
  }
  const { nonce, expiryMs } = parsed;
  const tail = { did, documentHash, nonce, expiryMs };
  if (parsed.version === "v2")
    return concatBytes(utf8("svc:set_document:v2|"), encodeWith(setDocumentTailCodec, tail));
  return genesisHash === null ? null : boundDocumentMessage({ ...tail, genesisHash });
}

/** The bytes that a whole document of version 3 signs. */
export function boundDocumentMessage(
  signed: Decoded<typeof setDocumentTailCodec> & { readonly genesisHash: Uint8Array },
): Uint8Array {
  return concatBytes(
    utf8("svc:set_document:v3|"),
    encodeWith(setDocumentTailCodec, signed),
    signed.genesisHash,
  );
}

// -------------------------------------------------------------------------- payloads of key proofs

// Component calls and rotations, and what every authorization signs. Apart from the other
// structures, because every page that verifies a key proof loads this.

/**
 * What every payload ends with: which counter value, until when (strictly before), signed
 * by whom.
 */
export type Terms = {
  readonly nonce: bigint;
  readonly validUntilMs: bigint;
  readonly signerKeyId: string;
};
export const termsCodecs = { nonce: u64, validUntilMs: u64, signerKeyId: id };

/** The nine positions of the interface, in order. */
export const documentPayloadCodec = structure({
  did,
  action: enumeration(actionsOf("document")),
  verificationMethod: option(verificationMethodCodec),
  keyAgreement: option(verificationMethodCodec),
  service: option(serviceCodec),
  id: option(id),
  ...termsCodecs,
});

/** Rotation has its own structure, because the nine positions would not bind the new key. */
export const rootPubkeyPayloadCodec = structure({
  did,
  newRootPubkey: exactByteVector(32),
  ...termsCodecs,
});

/**
 * The bytes that version 3 signs for a payload: which structure it is, and which ledger it
 * is for.
 */
export function authorizationMessage(
  counter: CounterName,
  genesisHash: Uint8Array,
  payload: Uint8Array,
): Uint8Array {
  return concatBytes(
    utf8(`svc:authorization:v3:${counters[counter].domain}|`),
    genesisHash,
    payload,
  );
}
