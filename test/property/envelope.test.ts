/**
 * For any bytes, decodeEnvelope answers or refuses; one flipped bit of the signed members is
 * refused.
 */
import { expect, test } from "bun:test";
import fc from "fast-check";
import {
  decodeBase64,
  decodeHex,
  equalBytes,
  renderPublicKey,
  utf8,
} from "../../src/core/codec/bytes.ts";
import { verifyEd25519 } from "../../src/core/codec/crypto.ts";
import { isFault } from "../../src/core/fault.ts";
import { decodeEnvelope, verifySender } from "../../src/core/message/envelope.ts";
import { limitsDefault } from "../support/settings.ts";
import invalidEnvelopes from "../vectors/envelope/invalid/envelopes.json";
import validEnvelopes from "../vectors/envelope/valid/envelopes.json";
import signedEnvelopes from "../vectors/envelope/valid/signed.json";

const limits = limitsDefault;
const texts = [...validEnvelopes, ...signedEnvelopes, ...invalidEnvelopes].map((vector) =>
  JSON.stringify("envelope" in vector ? vector.envelope : ""),
);
const names = Object.keys(
  Object.assign({}, ...signedEnvelopes.map((vector) => vector.envelope), {
    recipient: 1,
    created_at: 1,
    context: 1,
  }),
);

test("never throws, whatever stands in the members", () => {
  const value = fc.oneof(
    fc.jsonValue({ maxDepth: 3 }),
    fc.constantFrom("1", "did:svc:1111111111111111111111", "24h", "AAAA"),
  );
  fc.assert(
    fc.property(
      fc.constantFrom(...texts),
      fc.dictionary(fc.constantFrom(...names), value, { maxKeys: 4 }),
      (text, change) => {
        decodeEnvelope(utf8(JSON.stringify({ ...JSON.parse(text), ...change })), limits);
      },
    ),
    { numRuns: 3_000 },
  );
});

test("never throws on damaged bytes, and what it accepts decodes to itself", () => {
  fc.assert(
    fc.property(fc.constantFrom(...texts), fc.nat(), fc.nat({ max: 255 }), (text, place, byte) => {
      const body = utf8(text);
      body[place % body.length] = byte;
      const envelope = decodeEnvelope(body, limits);
      if (isFault(envelope)) return;
      const again = decodeEnvelope(envelope.bytes, limits);
      expect(!isFault(again) && equalBytes(again.bytes, envelope.bytes)).toBe(true);
    }),
    { numRuns: 5_000 },
  );
});

test("refuses every flipped bit of the signed text, the signature and the key", () => {
  for (const signed of signedEnvelopes) {
    const text = utf8(signed.signed_text);
    const signature = decodeBase64(signed.envelope.sender_signature) as Uint8Array;
    const key = decodeHex(signed.public_key_hex) as Uint8Array;
    fc.assert(
      fc.property(
        fc.constantFrom(text, signature, key),
        fc.nat(),
        fc.nat({ max: 7 }),
        (part, place, bit) => {
          const at = place % part.length;
          part[at] = (part[at] as number) ^ (1 << bit);
          const verdict = verifyEd25519(signature, text, key);
          part[at] = (part[at] as number) ^ (1 << bit);
          expect(verdict).toBe(false);
        },
      ),
      { numRuns: 300 },
    );
  }
});

test("refuses an envelope with one flipped bit in its body, or reads the very same signed text", async () => {
  const [, signed] = signedEnvelopes;
  if (signed === undefined) throw new Error("no vector");
  const method = {
    id: signed.envelope.sender_key_id,
    type: "Multikey",
    controller: signed.envelope.from,
    publicKeyMultibase: renderPublicKey(decodeHex(signed.public_key_hex) as Uint8Array),
  };
  const document = {
    id: signed.envelope.from,
    verificationMethod: [method],
    authentication: [method.id],
    keyAgreement: [],
    service: [],
  };
  const original = utf8(JSON.stringify(signed.envelope));
  await fc.assert(
    fc.asyncProperty(fc.nat({ max: original.length - 1 }), fc.nat({ max: 7 }), async (at, bit) => {
      const body = original.slice();
      body[at] = (body[at] as number) ^ (1 << bit);
      const envelope = decodeEnvelope(body, limits);
      if (isFault(envelope) || envelope.sender === null) return;
      expect(await verifySender(envelope.sender, document, verifyEd25519)).toBe(false);
    }),
    { numRuns: 3_000 },
  );
});
