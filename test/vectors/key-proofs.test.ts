/**
 * The worked vectors of key proofs: each replays to its state, every signature holds, and it
 * encodes to the same bytes.
 */
import { expect, test } from "bun:test";
import { printOf } from "../../src/client/trust/print.ts";
import { encodeBase32 } from "../../src/core/codec/bytes.ts";
import { verifyEd25519 } from "../../src/core/codec/crypto.ts";
import { decodeKeyProof, encodeKeyProof, replayKeyProof } from "../../src/core/ledger/key-proof.ts";
import vectors from "./key-proofs/valid.json";

test.each(vectors)("$name", (vector) => {
  const bytes = Uint8Array.fromHex(vector.proof);
  const proof = decodeKeyProof(bytes);
  const state = proof === null ? null : replayKeyProof(proof);
  if (proof === null || state === null) throw new Error("not a proof");
  expect(encodeKeyProof(proof)).toEqual(bytes);
  expect({
    did: String(state.did),
    root_keys: state.rootKeys.map((key) => key.toHex()),
    base_root: state.baseRoot,
    next_document_nonce: String(state.steps.at(-1)?.nonce),
    document_sha256: state.steps.at(-1)?.hash.toHex(),
    fingerprint: encodeBase32(printOf(state)).slice(0, 20),
  }).toEqual({
    did: vector.did,
    root_keys: vector.root_keys,
    base_root: vector.base_root,
    next_document_nonce: vector.next_document_nonce,
    document_sha256: vector.document_sha256,
    fingerprint: vector.fingerprint,
  });
  expect(
    state.signatures.every((one) => verifyEd25519(one.signature, one.message, one.publicKey)),
  ).toBe(true);
});
