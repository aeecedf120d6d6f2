/** The worked vectors of self-certifying DIDs, computed a second time from docs/trust.md. */
import { expect, test } from "bun:test";
import { base58 } from "@scure/base";
import { deriveDid, isSelfCertifying } from "../../src/core/ledger/names.ts";
import vectors from "./names/valid.json";

test.each(vectors)("$name", ({ genesis_hash, root_key, did }) => {
  const [genesisHash, rootKey] = [Uint8Array.fromHex(genesis_hash), Uint8Array.fromHex(root_key)];
  const digest = new Bun.CryptoHasher("sha256")
    .update("svc:did:v1|")
    .update(genesisHash)
    .update(rootKey)
    .digest();
  expect(`did:svc:${base58.encode(Uint8Array.of(0xc9, 0xf4, ...digest.subarray(0, 20)))}`).toBe(
    did,
  );
  expect(String(deriveDid(genesisHash, rootKey))).toBe(did);
  expect(isSelfCertifying(did)).toBe(true);
});
