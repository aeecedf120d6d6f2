/** Any sealed record opens to the same, for a random reader, place, name and content. */
import { expect, test } from "bun:test";
import { x25519 } from "@noble/curves/ed25519.js";
import { sha256 } from "@noble/hashes/sha2.js";
import fc from "fast-check";
import { sealPayload } from "../../src/client/mail/seal.ts";
import { openPayload } from "../../src/client/mail/unseal.ts";

const bytes32 = fc.uint8Array({ minLength: 32, maxLength: 32 });
const chunk = fc.option(
  fc.record({
    groupId: fc.uuid(),
    sequence: fc.nat(65_535),
    total: fc.integer({ min: 1, max: 65_536 }),
  }),
);

test("any data of any length opens to the same", async () => {
  const random = {
    bytes: fc.uint8Array({ maxLength: 3_000 }),
    name: fc.string(),
    messageId: fc.uuid(),
    chunk,
  };
  await fc.assert(
    fc.asyncProperty(
      fc.record({ ...random, secret: bytes32, ephemeralSecret: bytes32 }),
      async (one) => {
        const recipient = {
          keyId: "did:svc:1111111111111111111111#x25519-1",
          publicKey: x25519.getPublicKey(one.secret),
        };
        const binding = {
          messageId: one.messageId,
          to: "did:svc:1111111111111111111111",
          chunk: one.chunk,
        };
        const file = {
          name: one.name,
          mediaType: "text/plain",
          sizeBytes: one.bytes.length,
          sha256: sha256(one.bytes),
        };
        const entropy = { ephemeralSecret: one.ephemeralSecret, nonce: one.secret.slice(0, 12) };
        const sealed = await sealPayload({ binding, file, data: one.bytes, recipient, entropy });
        const opened = await openPayload(sealed, binding, (id) =>
          id === recipient.keyId ? [one.secret] : [],
        );
        expect([opened.data, opened.file.name]).toEqual([one.bytes, one.name]);
      },
    ),
    { numRuns: 200 },
  );
});
