/** Proofs as the thief of a root key makes them: every signature in them holds. */
import { blake2b256, sha256 } from "../../src/core/codec/crypto.ts";
import { authorizationMessage, boundDocumentMessage } from "../../src/core/ledger/document-codec.ts";
import { encodeAuthorization } from "../../src/core/ledger/structures.ts";
import { deriveDid } from "../../src/core/trust/names.ts";
import type { KeyProof } from "../../src/core/trust/proof.ts";
import { type KeyPair, keyPair } from "./identity.ts";

type Forgery = {
  /** Of the root key that the proof ends with. */
  readonly seed: Uint8Array;
  /** Of the document that is signed. */
  readonly nonce: bigint;
  /** A rotation to this key comes first, and it signs the document. */
  readonly next?: KeyPair;
};

const farMs = 4_000_000_000_000n;

/** The proof with another whole document by the present root key, or by the next one. */
export function forgeDocument(proof: KeyProof, { seed, nonce, next }: Forgery): KeyProof {
  const { genesisHash, rootKey, document } = proof;
  const did = deriveDid(genesisHash, rootKey);
  const root = keyPair(seed);
  const rotations = [...proof.rotations];
  if (next !== undefined) {
    const terms = { nonce: BigInt(rotations.length), validUntilMs: farMs, signerKeyId: "root" };
    const intent = { action: "UpdateRootPubkey", did, newRootPubkey: next.publicKey } as const;
    const message = authorizationMessage("rootPubkey", genesisHash, encodeAuthorization(intent, terms));
    rotations.push({ newRootPubkey: next.publicKey, validUntilMs: farMs, signature: root.sign(message) });
  }
  const documentHash = blake2b256(document);
  const message = boundDocumentMessage({ did, documentHash, nonce, expiryMs: farMs, genesisHash });
  const base = { root: rotations.length, nonce, expiryMs: farMs, signature: (next ?? root).sign(message) };
  return { ...proof, rotations, base, calls: [] };
}

/** The seed of `keyOf(label)` in `identity.ts`. */
export function seedOf(label: string): Uint8Array {
  return sha256(new TextEncoder().encode(`waypost test key ${label}`));
}
