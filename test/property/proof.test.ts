/** One flipped bit anywhere in a proof is refused; the check never throws. */

import { expect, test } from "bun:test";
import fc from "fast-check";
import { verifyEd25519 } from "../../src/core/codec/crypto.ts";
import type { Did } from "../../src/core/codec/did.ts";
import { isFault } from "../../src/core/fault.ts";
import {
  ackSubject,
  decideRetrievalProof,
  decodeRetrievalProof,
  type ProofSubject,
  retrievalHeaders,
} from "../../src/core/message/proof.ts";
import { presented } from "../support/presented.ts";
import vectors from "../vectors/proof/valid/retrieval.json";

const vector = vectors[1];
if (vector === undefined) throw new Error("no vector");
const nowMs = vector.now_ms;

type Values = Record<keyof typeof vector.claims | "signature", string>;
const honest: Values = { ...vector.claims, signature: vector.signature_b64 };

async function outcomeOf(values: Values): Promise<string> {
  const sent = {
    serviceId: values.service_id,
    endpoint: values.cache_endpoint,
    keyId: values.key_id,
    timestamp: values.timestamp,
    nonce: values.nonce,
    signature: values.signature,
  };
  const rule = {
    operation: values.operation as "ack",
    did: values.did as Did,
    deviceId: values.device_id,
    subject: values.subject,
    serviceType: "SvcCacheService" as const,
    endpoints: ["https://cache.example"],
    skewMs: 300_000,
    names: retrievalHeaders,
  };
  const proof = decodeRetrievalProof(presented(retrievalHeaders, sent), rule, nowMs);
  const claim = isFault(proof)
    ? proof
    : await decideRetrievalProof(proof, vector?.subject as ProofSubject, verifyEd25519);
  return isFault(claim) ? claim.code : "accepted";
}

test("the honest proof is accepted", async () => {
  expect(await outcomeOf(honest)).toBe("accepted");
});

test("one flipped bit in any value is refused", async () => {
  const members = Object.keys(honest) as (keyof Values)[];
  await fc.assert(
    fc.asyncProperty(
      fc.constantFrom(...members),
      fc.nat(),
      fc.nat({ max: 6 }),
      async (member, place, bit) => {
        const text = honest[member];
        const at = place % text.length;
        const flipped =
          text.slice(0, at) +
          String.fromCharCode(text.charCodeAt(at) ^ (1 << bit)) +
          text.slice(at + 1);
        expect(await outcomeOf({ ...honest, [member]: flipped })).not.toBe("accepted");
      },
    ),
    { numRuns: 3_000 },
  );
});

test("no values but the signed ones are accepted, also when their texts are moved between the lines", async () => {
  const text = fc.oneof(
    fc.string({ maxLength: 40 }),
    fc.constantFrom(...Object.values(honest)),
    fc.constantFrom("a\nkey_id=b", "\n", "*"),
  );
  const members = Object.keys(honest) as (keyof Values)[];
  await fc.assert(
    fc.asyncProperty(
      fc.dictionary(fc.constantFrom(...members), text, { minKeys: 1, maxKeys: 4 }),
      async (change) => {
        const values: Values = { ...honest, ...change };
        const same = members.every((member) => values[member] === honest[member]);
        expect((await outcomeOf(values)) === "accepted").toBe(same);
      },
    ),
    { numRuns: 3_000 },
  );
});

test("the subject of an acknowledgement does not depend on order, repeats or white space", () => {
  fc.assert(
    fc.property(fc.array(fc.uuid(), { minLength: 1, maxLength: 8 }), fc.nat(), (ids, seed) => {
      const untidy = [...ids, ...ids.map((id) => ` ${id}\t`), ""].sort(
        (a, b) => ((a.length * 7 + seed) % 5) - ((b.length * 3) % 5),
      );
      expect(ackSubject(untidy)).toBe([...new Set(ids)].sort().join(","));
    }),
    { numRuns: 500 },
  );
});
