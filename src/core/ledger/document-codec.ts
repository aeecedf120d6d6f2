/**
 * A DID document in SCALE, and what the proofs of whole documents cover. Apart from the other structures, because a
 * client that registers needs no more than this. Field order is the order on the wire; what is decoded has kept every
 * bound.
 * Source: docs/ledger.md 1.1, 1.2 and 1.8.
 */
import {
  decodeWith,
  encodeWith,
  exactByteVector,
  fixedBytes,
  option,
  optionalList,
  structure,
  text,
  u32,
  u64,
  vector,
} from "../codec/scale.ts";
import { scaleBounds } from "./bounds.ts";
import type { DidDocument, Service, VerificationMethod } from "./document-form.ts";

export const did = text(scaleBounds.didBytes);
export const id = text(scaleBounds.idBytes);
export const alias = text(scaleBounds.aliasBytes);

/** Key agreements have the same layout. */
export const verificationMethodCodec = structure<VerificationMethod>({
  id,
  type: text(scaleBounds.typeBytes),
  controller: id,
  publicKeyMultibase: text(scaleBounds.keyMultibaseBytes),
});

export const serviceCodec = structure<Service>({
  id,
  type: text(scaleBounds.typeBytes),
  serviceEndpoint: vector(text(scaleBounds.serviceEndpointBytes), scaleBounds.serviceEndpoints),
  authorization: option(vector(id, scaleBounds.serviceAuthorizations)),
  priority: option(u32),
});

/** `authentication` and `service` are options of lists on the wire: an empty list is none. */
export const documentCodec = structure<DidDocument>({
  id: did,
  verificationMethod: vector(verificationMethodCodec, scaleBounds.verificationMethods),
  authentication: optionalList(vector(id, scaleBounds.authentications)),
  keyAgreement: vector(verificationMethodCodec, scaleBounds.keyAgreements),
  service: optionalList(vector(serviceCodec, scaleBounds.services)),
});

export const encodeDidDocument = (document: DidDocument): Uint8Array => encodeWith(documentCodec, document);

/** `null` also for a blob above the bound of a document. */
export function decodeDidDocument(bytes: Uint8Array): DidDocument | null {
  return bytes.length > scaleBounds.documentBytes ? null : decodeWith(documentCodec, bytes);
}

/** What a version 2 registration proof covers behind its prefix. */
type RegistrationTail = {
  readonly did: string;
  readonly alias: string | null;
  readonly rootPubkey: Uint8Array;
  readonly documentHash: Uint8Array;
  readonly nonce: bigint;
  readonly expiryMs: bigint;
};

export const registrationTailCodec = structure<RegistrationTail>({
  did,
  alias: option(alias),
  rootPubkey: exactByteVector(32),
  documentHash: fixedBytes(32),
  nonce: u64,
  expiryMs: u64,
});

/** What version 3 of a registration proof covers behind the tail of version 2. */
export const registrationBindingCodec = structure<{
  readonly genesisHash: Uint8Array;
  readonly submitter: Uint8Array | null;
}>({ genesisHash: fixedBytes(32), submitter: option(fixedBytes(32)) });

/** What a full-document proof of version 2 covers behind its prefix; version 3 adds the genesis hash. */
type SetDocumentTail = {
  readonly did: string;
  readonly documentHash: Uint8Array;
  readonly nonce: bigint;
  readonly expiryMs: bigint;
};

export const setDocumentTailCodec = structure<SetDocumentTail>({
  did,
  documentHash: fixedBytes(32),
  nonce: u64,
  expiryMs: u64,
});
