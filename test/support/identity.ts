/**
 * Identities for tests: keys from a seed, and the signed calls that they make. Signing is native,
 * so that property tests can afford thousands of signatures; other tests check the verifier.
 */
import { createPrivateKey, createPublicKey, type KeyObject, sign } from "node:crypto";
import { encodeBase58, renderPublicKey } from "../../src/core/codec/bytes.ts";
import { sha256 } from "../../src/core/codec/crypto.ts";
import type { Did } from "../../src/core/codec/did.ts";
import type { DidDocument, VerificationMethod } from "../../src/core/ledger/account.ts";
import { actions, type Intent } from "../../src/core/ledger/actions.ts";
import { callOfIntent, type LedgerCall } from "../../src/core/ledger/calls.ts";
import { emptyDocument } from "../../src/core/ledger/document.ts";
import {
  authorizationMessage,
  documentMessage,
  encodeDidDocument,
  registrationMessage,
  type Terms,
} from "../../src/core/ledger/document-codec.ts";
import { deriveDid } from "../../src/core/ledger/names.ts";
import { encodeAuthorization } from "../../src/core/ledger/structures.ts";

export type KeyPair = {
  readonly publicKey: Uint8Array;
  readonly sign: (message: Uint8Array) => Uint8Array;
};

const pkcs8Prefix = Uint8Array.fromHex("302e020100300506032b657004220420");

export function keyPair(seed: Uint8Array): KeyPair {
  const der = Buffer.concat([pkcs8Prefix, seed]);
  const key: KeyObject = createPrivateKey({ key: der, format: "der", type: "pkcs8" });
  const spki = createPublicKey(key).export({ format: "der", type: "spki" });
  return {
    publicKey: new Uint8Array(spki.subarray(spki.length - 32)),
    sign: (message) => new Uint8Array(sign(null, message, key)),
  };
}

/** The key that a label stands for; the same label is the same key in every run. */
export function keyOf(label: string): KeyPair {
  return keyPair(sha256(new TextEncoder().encode(`waypost test key ${label}`)));
}

export type Identity = { readonly did: Did; readonly root: KeyPair; readonly label: string };

export function identityOf(label: string): Identity {
  const bytes = sha256(new TextEncoder().encode(`waypost test did ${label}`)).slice(0, 16);
  // 16 bytes are at most 22 characters; fewer than 16 would take 5 leading zero bytes.
  return { did: `did:svc:${encodeBase58(bytes)}` as Did, root: keyOf(label), label };
}

/** An identity whose DID is derived from its root key and the ledger. */
export function certifiedOf(label: string, genesisHash: Uint8Array): Identity {
  const root = keyOf(label);
  return { did: deriveDid(genesisHash, root.publicKey), root, label };
}

export function methodOf(did: Did, fragment: string, key: KeyPair): VerificationMethod {
  return {
    id: `${did}#${fragment}`,
    type: "Multikey",
    controller: did,
    publicKeyMultibase: renderPublicKey(key.publicKey),
  };
}

/** One method `#k1` with the identity's own second key, listed in `authentication`. */
export function documentOf(identity: Identity): DidDocument {
  const method = methodOf(identity.did, "k1", keyOf(`${identity.label} k1`));
  return {
    ...emptyDocument(identity.did),
    verificationMethod: [method],
    authentication: [method.id],
  };
}

type RegisterCall = Extract<LedgerCall, { readonly name: "register_with_document_proof_signed" }>;
type SetDocumentCall = Extract<LedgerCall, { readonly name: "set_document_with_proof" }>;

export function registrationOf(
  identity: Identity,
  given: {
    readonly timestamp: string;
    readonly alias?: string;
    readonly docBlob?: Uint8Array;
    /** For a timestamp of version 3. */
    readonly binding?: { readonly genesisHash: Uint8Array; readonly submitter: Uint8Array | null };
  },
): RegisterCall {
  const proof = {
    did: identity.did,
    alias: given.alias ?? null,
    timestamp: given.timestamp,
    pubkey: identity.root.publicKey,
    docBlob: given.docBlob ?? encodeDidDocument(documentOf(identity)),
  };
  const signature = identity.root.sign(
    registrationMessage(proof, given.binding) ?? new Uint8Array(0),
  );
  return { name: "register_with_document_proof_signed", ...proof, signature };
}

export function setDocumentOf(
  identity: Identity,
  given: { readonly timestamp: string; readonly docBlob: Uint8Array },
  genesisHash: Uint8Array | null = null,
): SetDocumentCall {
  const proof = { did: identity.did, ...given };
  const signature = identity.root.sign(documentMessage(proof, genesisHash) ?? new Uint8Array(0));
  return { name: "set_document_with_proof", ...proof, pubkey: identity.root.publicKey, signature };
}

/** The call for an intent, signed by `signer`: plainly, or for the ledger of a genesis hash. */
export function authorizedCall(
  intent: Intent,
  terms: Terms,
  signer: KeyPair,
  genesisHash: Uint8Array | null = null,
): LedgerCall {
  const signedPayload = encodeAuthorization(intent, terms);
  const { counter } = actions[intent.action];
  const message =
    genesisHash === null
      ? signedPayload
      : authorizationMessage(counter, genesisHash, signedPayload);
  return callOfIntent(intent, {
    signedPayload,
    signature: signer.sign(message),
    signerKeyId: terms.signerKeyId,
  });
}
