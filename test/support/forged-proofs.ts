/** Proofs as the thief of a root key makes them: every signature in them holds. */
import { blake2b256, sha256 } from "../../src/core/codec/crypto.ts";
import {
  authorizationMessage,
  boundDocumentMessage,
  documentMessage,
  renderProofTimestamp,
} from "../../src/core/ledger/document-codec.ts";
import type { KeyProof } from "../../src/core/ledger/key-proof.ts";
import { deriveDid } from "../../src/core/ledger/names.ts";
import { encodeAuthorization } from "../../src/core/ledger/structures.ts";
import { type KeyPair, keyPair } from "./identity.ts";

type Forgery = {
  /** Of the root key that the proof ends with. */
  readonly seed: Uint8Array;
  /** Of the document that is signed. */
  readonly nonce: bigint;
  /** A rotation to this key comes first, and it signs the document. */
  readonly next?: KeyPair;
  /** Signed as a proof of this version, which no ledger takes for a self-certifying DID. */
  readonly version?: "v1" | "v2";
};

const farMs = 4_000_000_000_000n;

/** The proof with another whole document by the present root key, or by the next one. */
export function forgeDocument(proof: KeyProof, { seed, nonce, next, version }: Forgery): KeyProof {
  const { genesisHash, rootKey, document } = proof;
  const did = deriveDid(genesisHash, rootKey);
  const root = keyPair(seed);
  const rotations = [...proof.rotations];
  if (next !== undefined) {
    const terms = { nonce: BigInt(rotations.length), validUntilMs: farMs, signerKeyId: "root" };
    const intent = { action: "UpdateRootPubkey", did, newRootPubkey: next.publicKey } as const;
    const message = authorizationMessage(
      "rootPubkey",
      genesisHash,
      encodeAuthorization(intent, terms),
    );
    rotations.push({
      newRootPubkey: next.publicKey,
      validUntilMs: farMs,
      signature: root.sign(message),
    });
  }
  const message = messageOf({ did, document, nonce, genesisHash }, version);
  const base = {
    root: rotations.length,
    nonce,
    expiryMs: farMs,
    signature: (next ?? root).sign(message),
  };
  return { ...proof, rotations, base, calls: [] };
}

type Signed = {
  readonly did: string;
  readonly document: Uint8Array;
  readonly nonce: bigint;
  readonly genesisHash: Uint8Array;
};

function messageOf({ document: docBlob, ...signed }: Signed, version?: "v1" | "v2"): Uint8Array {
  if (version === undefined)
    return boundDocumentMessage({ ...signed, documentHash: blake2b256(docBlob), expiryMs: farMs });
  const timestamp =
    version === "v1" ? "2026-01-01T00:00:00Z" : renderProofTimestamp(signed.nonce, farMs);
  const message = documentMessage({ did: signed.did, timestamp, docBlob });
  if (message === null) throw new Error("no message of that version");
  return message;
}

/** The seed of `keyOf(label)` in `identity.ts`. */
export function seedOf(label: string): Uint8Array {
  return sha256(new TextEncoder().encode(`waypost test key ${label}`));
}
