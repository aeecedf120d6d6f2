/** Proofs: the signed texts, the order of refusals, and what is remembered against replay. */

import { describe, expect, test } from "bun:test";
import { ed25519 } from "@noble/curves/ed25519.js";
import { decodeBase64, decodeHex, decodeUtf8, utf8 } from "../../../../src/core/codec/bytes.ts";
import { verifyEd25519 } from "../../../../src/core/codec/crypto.ts";
import type { Did } from "../../../../src/core/codec/did.ts";
import type { JsonObject } from "../../../../src/core/codec/json.ts";
import { type Fault, isFault } from "../../../../src/core/fault.ts";
import type { DidDocument } from "../../../../src/core/ledger/account.ts";
import {
  ackSubject,
  decideRetrievalProof,
  decideUpdateProof,
  decodeRetrievalProof,
  decodeUpdateProof,
  encodeEventProof,
  encodeRetrievalProof,
  encodeSenderText,
  encodeUpdateProof,
  type ProofSubject,
  type ReplayClaim,
  type RetrievalOperation,
  type RetrievalProof,
  recipientIn,
  retrievalHeaders,
  sameEndpoint,
  timestampIn,
  updateHeaders,
} from "../../../../src/core/message/proof.ts";
import { presented } from "../../../support/presented.ts";
import invalidRetrievals from "../../../vectors/proof/invalid/retrieval.json";
import ackSubjects from "../../../vectors/proof/valid/ack-subjects.json";
import events from "../../../vectors/proof/valid/event.json";
import validRetrievals from "../../../vectors/proof/valid/retrieval.json";
import updates from "../../../vectors/proof/valid/update.json";

type Claims = Record<
  | "operation"
  | "did"
  | "device_id"
  | "service_id"
  | "cache_endpoint"
  | "key_id"
  | "timestamp"
  | "nonce"
  | "subject",
  string
>;
type Vector = {
  name: string;
  claims: Claims;
  signature_b64: string | null;
  service_type: string;
  node_endpoints: string[];
  skew_ms: number;
  now_ms: number;
  subject: ProofSubject | null;
  text?: string;
  code?: string;
};
const valid = validRetrievals as Vector[];
// Some vectors lack a value, which the type of the others does not say.
const invalid: Vector[] = JSON.parse(JSON.stringify(invalidRetrievals));

function decode({ claims, ...vector }: Vector): RetrievalProof | Fault {
  const values = {
    serviceId: claims.service_id,
    endpoint: claims.cache_endpoint,
    keyId: claims.key_id,
    timestamp: claims.timestamp,
    nonce: claims.nonce,
    signature: vector.signature_b64,
  };
  const rule = {
    operation: claims.operation as RetrievalOperation,
    did: claims.did as Did,
    deviceId: claims.device_id,
    subject: claims.subject,
    serviceType: vector.service_type as "SvcCacheService",
    endpoints: vector.node_endpoints,
    skewMs: vector.skew_ms,
    names: retrievalHeaders,
  };
  return decodeRetrievalProof(presented(retrievalHeaders, values), rule, vector.now_ms);
}

async function check(vector: Vector): Promise<ReplayClaim | Fault> {
  const proof = decode(vector);
  return isFault(proof) ? proof : decideRetrievalProof(proof, vector.subject, verifyEd25519);
}

async function claimOf(vector: Vector | undefined): Promise<ReplayClaim> {
  const claim = await check(vector as Vector);
  if (isFault(claim)) throw new Error(claim.code);
  return claim;
}

describe("retrieval proofs", () => {
  test.each(valid)("are accepted: $name", async (vector) => {
    const claim = await claimOf(vector);
    expect(claim.tag).toMatch(/^proof:did:svc:\w+:[0-9a-f]{32}$/);
    const proof = decode(vector);
    expect(!isFault(proof) && decodeUtf8(encodeRetrievalProof(proof.claims))).toBe(
      vector.text as never,
    );
  });

  test.each(invalid)("are refused: $name", async (vector) => {
    const outcome = await check(vector);
    expect(isFault(outcome) ? outcome.code : "accepted").toBe(vector.code as never);
  });

  test("name the value that is missing", () => {
    const missing = decode({ ...(valid[0] as Vector), signature_b64: null });
    expect(isFault(missing) && missing.detail).toContain("X-Signature");
  });

  test("are refused with the same words, whatever the DID does not authorize", async () => {
    const isHere = ({ node_endpoints: own, claims }: Vector) =>
      own.some((endpoint) => sameEndpoint(endpoint, claims.cache_endpoint ?? ""));
    const refused = invalid.filter((vector) => vector.code === "proof_not_authorized");
    const refusals = await Promise.all(refused.filter(isHere).map(check));
    expect(refusals.length).toBeGreaterThan(3);
    for (const vector of refused.filter((one) => !isHere(one))) {
      const refusal = await check(vector);
      expect(isFault(refusal) && refusal.detail).toEndWith(
        `this node is ${vector.node_endpoints.join(" or ")}`,
      );
    }
    expect(new Set(refusals.map((refusal) => JSON.stringify(refusal))).size).toBe(1);
  });

  test("are remembered until their timestamp can no longer be fresh", async () => {
    const [vector] = valid as [Vector];
    const { untilMs } = await claimOf(vector);
    expect(isFault(await check({ ...vector, now_ms: untilMs }))).toBe(true);
    const ahead = await claimOf(
      valid.find(({ name }) => name === "the most future fresh timestamp"),
    );
    expect(ahead.untilMs).toBe(untilMs);
  });

  test("claim one tag per operation, DID, key and nonce", async () => {
    const tag = async (name: string) =>
      (await claimOf(valid.find((vector) => vector.name === name))).tag;
    expect(await tag("a timestamp of epoch seconds")).toBe(await tag("pull"));
    expect(await tag("an endpoint with slashes at its end")).toBe(await tag("pull"));
    const others = await Promise.all(
      ["pull", "chunks", "a bare base58 key", "the shortest nonce"].map(tag),
    );
    expect(new Set(others).size).toBe(others.length);
  });
});

describe("the subject of an acknowledgement", () => {
  test.each(ackSubjects)("is built by the rule: $name", ({ message_ids, subject }) => {
    expect(ackSubject(message_ids)).toBe(subject);
  });
});

test("endpoints differ by trailing slashes only", () => {
  expect(sameEndpoint("https://a.example", "https://a.example//")).toBe(true);
  expect(sameEndpoint("https://a.example/x", "https://a.example")).toBe(false);
  expect(sameEndpoint("https://A.example", "https://a.example")).toBe(false);
  expect(sameEndpoint("///", "")).toBe(true);
});

describe("update proofs", () => {
  const key = decodeHex(updates[0]?.public_key_hex ?? "") as Uint8Array;
  const document = (valid[0] as Vector).subject?.document as DidDocument;
  const listed = { ...document, authentication: [`${document.id}#k1`] };
  const subject = { document: listed, deactivated: false, rootPubkey: key };
  const nowMs = (valid[0] as Vector).now_ms;
  const decodeUpdate = (
    update: (typeof updates)[number],
    change: { body?: string; operation?: string } = {},
  ) =>
    decodeUpdateProof(
      presented(updateHeaders, {
        keyId: update.claims.key_id,
        timestamp: update.claims.timestamp,
        nonce: update.claims.nonce,
        signature: update.signature_b64,
      }),
      {
        operation: change.operation ?? update.claims.operation,
        did: update.claims.did as Did,
        ledger: update.claims.ledger ?? null,
        body: utf8(change.body ?? update.claims.body),
        skewMs: 300_000,
      },
      nowMs,
    );
  const ledger = new Uint8Array(32).fill(0x11);
  const codeOf = async (
    proof: ReturnType<typeof decodeUpdate>,
    by: Parameters<typeof decideUpdateProof>[1],
  ) => {
    const outcome = isFault(proof)
      ? proof
      : await decideUpdateProof(proof, by, ledger, verifyEd25519);
    return isFault(outcome) ? outcome.code : "accepted";
  };

  test.each(updates)("cover the written text and are accepted: $name", async (update) => {
    const claims = {
      ...update.claims,
      did: update.claims.did as Did,
      keyId: update.claims.key_id,
      ledger: update.claims.ledger ?? null,
      body: utf8(update.claims.body),
    };
    expect(decodeUtf8(encodeUpdateProof(claims))).toBe(update.text);
    const rootPubkey = decodeHex(update.public_key_hex);
    expect(await codeOf(decodeUpdate(update), { ...subject, rootPubkey })).toBe("accepted");
  });

  test("of version 2 are for one ledger, which a self-certifying DID demands", async () => {
    const update = updates[2]!;
    const signer = { ...subject, rootPubkey: decodeHex(update.public_key_hex) };
    const other = decodeUpdate({
      ...update,
      claims: { ...update.claims, ledger: `0x${"12".repeat(32)}` },
    });
    expect(await codeOf(other, signer)).toBe("proof_invalid");
    const { ledger: _, ...unbound } = update.claims;
    expect(await codeOf(decodeUpdate({ ...update, claims: unbound }), signer)).toBe(
      "proof_invalid",
    );
    const did = "did:svc:wp9NJiEz5xd4VUtRixum9gB37c9P3m";
    expect(await codeOf(decodeUpdate({ ...update, claims: { ...unbound, did } }), signer)).toBe(
      "proof_missing",
    );
  });

  test("bind operation and body, and need a key that may sign", async () => {
    const [byRoot, byMethod] = updates as [(typeof updates)[number], (typeof updates)[number]];
    expect(await codeOf(decodeUpdate(byRoot, { body: `${byRoot.claims.body} ` }), subject)).toBe(
      "proof_invalid",
    );
    expect(await codeOf(decodeUpdate(byRoot, { operation: "set_persona_policy" }), subject)).toBe(
      "proof_invalid",
    );
    expect(await codeOf(decodeUpdate(byRoot), null)).toBe("proof_not_authorized");
    expect(await codeOf(decodeUpdate(byRoot), { ...subject, deactivated: true })).toBe(
      "proof_not_authorized",
    );
    expect(await codeOf(decodeUpdate(byRoot), { ...subject, rootPubkey: null })).toBe(
      "proof_not_authorized",
    );
    expect(await codeOf(decodeUpdate(byMethod), { ...subject, document })).toBe(
      "proof_not_authorized",
    );
    expect(await codeOf(decodeUpdate(byMethod), { ...subject, document: null })).toBe(
      "proof_not_authorized",
    );
  });
});

test.each(events)("an event proof covers the written text: $name", (event) => {
  const text = encodeEventProof({
    eventType: event.claims.event_type as "delivery",
    messageId: event.claims.message_id,
    recipientDid: event.claims.recipient_did as Did,
    timestamp: event.claims.timestamp,
    reason: event.claims.reason,
    endpoint: event.claims.cache_endpoint,
  });
  expect(decodeUtf8(text)).toBe(event.text);
  const key = decodeHex(event.public_key_hex) as Uint8Array;
  expect(ed25519.verify(decodeBase64(event.signature_b64) as Uint8Array, text, key)).toBe(true);
});

describe("a member of an envelope with two names", () => {
  const [to, recipient] = ["did:svc:bob", "did:svc:carol"];
  const [timestamp, other] = ["2026-01-01T00:00:00.000Z", "2020-01-01T00:00:00.000Z"];
  const signed = (members: JsonObject) => decodeUtf8(encodeSenderText(members));

  test("is signed alike under either", () => {
    expect(signed({ recipient: to, created_at: timestamp })).toBe(signed({ to, timestamp }));
    expect([recipientIn({ recipient: to }), timestampIn({ created_at: timestamp })]).toEqual([
      to,
      timestamp,
    ]);
  });

  test("is read and signed as none where both are there", () => {
    const both = { to, recipient, timestamp, created_at: other };
    expect([recipientIn(both), timestampIn(both)]).toEqual([null, null]);
    expect(signed(both)).toBe(signed({}));
  });
});
