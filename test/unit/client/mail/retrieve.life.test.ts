/**
 * A signed message ends when its author said, whatever a Cache says of it; an unsigned one is known
 * by its ciphertext.
 */
import { expect, test } from "bun:test";
import { sha256 } from "@noble/hashes/sha2.js";
import type { ClientError } from "../../../../src/client/base/failure.ts";
import { x25519PublicKey } from "../../../../src/client/keys/crypto.ts";
import { openEnvelope, type Recipient, readMessage } from "../../../../src/client/mail/retrieve.ts";
import { sealPayload } from "../../../../src/client/mail/seal.ts";
import { identityOf } from "../../../support/identity.ts";

const [to, from] = [identityOf("to").did, identityOf("from").did];
const secret = new Uint8Array(32).fill(3);
const hourMs = 3_600_000;

async function envelopeOf(agoMs: number) {
  const data = new TextEncoder().encode("pay 5");
  const messageId = crypto.randomUUID();
  const payload = await sealPayload({
    binding: { messageId, to, chunk: null },
    file: { name: "", mediaType: "text/plain", sizeBytes: data.length, sha256: sha256(data) },
    data,
    recipient: { keyId: "k", publicKey: await x25519PublicKey(secret) },
    entropy: { ephemeralSecret: new Uint8Array(32).fill(5), nonce: new Uint8Array(12) },
  });
  const timestamp = new Date(Date.now() - agoMs).toISOString();
  return { message_id: messageId, to, from, timestamp, ttl: "24h", payload };
}

const recipientOf = (verified: boolean | null, aheadMs: number): Recipient => ({
  did: to,
  secretsOf: () => [secret],
  senderOf: async () =>
    verified === null ? null : { did: from, verified, trust: null, distrusted: null },
  aheadMs: () => aheadMs,
});

test("a signed message is over at its time, and remembered three days longer", async () => {
  const outcome = async (agoMs: number, verified: boolean, aheadMs = 0) => {
    const opened = openEnvelope(await envelopeOf(agoMs), recipientOf(verified, aheadMs));
    return opened.then(
      ({ seenUntilMs }) => Math.round((seenUntilMs - Date.now()) / hourMs),
      (error: ClientError) => error.code,
    );
  };
  expect(await outcome(23 * hourMs, true)).toBe(73);
  expect(await outcome(25 * hourMs, true)).toBe("expired");
  // Nothing proves when an unsigned message was written.
  expect(await outcome(25 * hourMs, false)).toBe(-Math.round(Date.now() / hourMs));
  // A clock that is somewhat ahead loses nothing; one that is far off waits, and a node's alone
  // decides nothing.
  expect(await outcome(25 * hourMs, true, -1.5 * hourMs)).toBe("clock_wrong");
  expect(await outcome(24.25 * hourMs, true, -hourMs)).toBe(72);
  expect(await outcome(23 * hourMs, true, 48 * hourMs)).toBe(73);
});

test("an unsigned message is the same whatever its unsigned members say", async () => {
  const envelope = await envelopeOf(0);
  const marksOf = async (given: typeof envelope, digest: string, verified: boolean | null) => {
    const copy = {
      ...{ messageId: given.message_id, chunk: null, cache: null, expiresAtMs: 0 },
      read: async () => ({ envelope: given, digest }),
      digest: async () => digest,
    };
    const read = await readMessage({ parts: [[copy]] } as never, recipientOf(verified, 0));
    return [...(read.marks ?? [])].join();
  };
  const later = { ...envelope, ttl: "30d" };
  expect(await marksOf(envelope, "a", null)).toBe(await marksOf(later, "b", null));
  expect([await marksOf(envelope, "a", true), await marksOf(later, "b", true)]).toEqual(["a", "b"]);
});
