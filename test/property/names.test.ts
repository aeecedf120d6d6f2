/** Self-certifying DIDs: the form of every name, and that genesis hash and key decide it. */
import { expect, test } from "bun:test";
import fc from "fast-check";
import { encodeBase58 } from "../../src/core/codec/bytes.ts";
import { isDid } from "../../src/core/codec/did.ts";
import { deriveDid, isSelfCertifying } from "../../src/core/ledger/names.ts";

const bytes = (length: number) => fc.uint8Array({ minLength: length, maxLength: length });

test("every name has 30 characters that begin with wp", () => {
  fc.assert(
    fc.property(bytes(32), bytes(32), (genesisHash, rootKey) => {
      const did = deriveDid(genesisHash, rootKey);
      expect(did).toMatch(/^did:svc:wp[1-9A-HJ-NP-Za-km-z]{28}$/);
      expect([isDid(did), isSelfCertifying(did)]).toEqual([true, true]);
    }),
    { numRuns: 1_000 },
  );
});

test("the form holds for every digest, at both ends too", () => {
  const name = (digest: Uint8Array) => encodeBase58(Uint8Array.of(0xc9, 0xf4, ...digest));
  const ends = [new Uint8Array(20), new Uint8Array(20).fill(255)];
  for (const digest of ends) expect(name(digest)).toMatch(/^wp.{28}$/);
  fc.assert(
    fc.property(bytes(20), (digest) => /^wp.{28}$/.test(name(digest))),
    { numRuns: 2_000 },
  );
});

test("another ledger or another key is another name", () => {
  fc.assert(
    fc.property(
      bytes(32),
      bytes(32),
      fc.nat(31),
      fc.integer({ min: 1, max: 255 }),
      (genesisHash, rootKey, at, mask) => {
        const changed = (from: Uint8Array) =>
          from.map((byte, i) => (i === at ? byte ^ mask : byte));
        const did = deriveDid(genesisHash, rootKey);
        expect(deriveDid(changed(genesisHash), rootKey)).not.toBe(did);
        expect(deriveDid(genesisHash, changed(rootKey))).not.toBe(did);
      },
    ),
  );
});

test("a random DID of 16 bytes never has the form", () => {
  fc.assert(
    fc.property(bytes(16), (random) => !isSelfCertifying(`did:svc:${encodeBase58(random)}`)),
  );
});
