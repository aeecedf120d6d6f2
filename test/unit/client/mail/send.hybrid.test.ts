/**
 * A message to a recipient with a key of the second version: the same bytes whenever it is built,
 * bound to its envelope, padded, and closed to who has the secrets of X25519 alone.
 */
import { describe, expect, test } from "bun:test";
import { expandSeed } from "../../../../src/client/keys/xwing.ts";
import { bytesSource } from "../../../../src/client/mail/content.ts";
import { openEnvelope, type Recipient } from "../../../../src/client/mail/retrieve.ts";
import {
  buildEnvelope,
  parsePlan,
  renderPlan,
  type SendPlan,
} from "../../../../src/client/mail/send.ts";
import { decodeBase64, utf8 } from "../../../../src/core/codec/bytes.ts";
import type { JsonObject } from "../../../../src/core/codec/json.ts";
import { clientCode } from "../../../support/client-code.ts";
import { plan as firstPlan } from "../../../support/send-plan.ts";

const seed = new Uint8Array(32).fill(21);
const { publicKey } = await expandSeed(seed);
const keyId = "a-key";

function hybridPlan(data: Uint8Array, more: Partial<SendPlan> = {}): SendPlan {
  const { file } = bytesSource("note.txt", "text/plain", data);
  return { ...firstPlan, file, recipient: { keyId, publicKey }, ...more };
}

const recipientOf = ({ to }: SendPlan): Recipient => ({
  did: to,
  secretsOf: (id) => (id === keyId ? [seed] : []),
  senderOf: async () => null,
});
const envelopeIn = (body: Uint8Array): JsonObject => JSON.parse(new TextDecoder().decode(body));
const sizeOf = (body: Uint8Array): number => {
  const { ciphertext_b64: text } = envelopeIn(body)["payload"] as Record<string, string>;
  return decodeBase64(text ?? "")?.length ?? 0;
};

describe("the same plan", () => {
  const long = new Uint8Array(2_500).map((_, i) => i);

  test("gives the same bytes, also from its text form after an interruption", async () => {
    const plan = hybridPlan(long, { chunkBytes: 1_000, sealedBytesMax: 5_096 });
    const kept = parsePlan(renderPlan(plan, 1));
    if (kept === null) throw new Error("the plan's text can't be read");
    const resumed = { ...kept.plan, sender: plan.sender };
    for (const chunk of [0, 1, 2]) {
      const data = long.subarray(chunk * 1_000, chunk * 1_000 + 1_000);
      const { body } = await buildEnvelope(plan, chunk, data);
      expect((await buildEnvelope(plan, chunk, data)).body).toEqual(body);
      expect((await buildEnvelope(resumed, chunk, data)).body).toEqual(body);
      expect((await openEnvelope(envelopeIn(body), recipientOf(plan))).data).toEqual(data);
    }
  });

  test("encapsulates anew for each chunk and each key", async () => {
    const plan = hybridPlan(long, { chunkBytes: 1_000 });
    const other = await expandSeed(new Uint8Array(32).fill(22));
    const moved = { ...plan, recipient: { keyId, publicKey: other.publicKey } };
    const encOf = async (one: SendPlan, chunk: number) => {
      const { body } = await buildEnvelope(one, chunk, long.subarray(0, 1_000));
      return (envelopeIn(body)["payload"] as Record<string, string>)["enc_b64"]?.slice(-40);
    };
    const encs = [await encOf(plan, 0), await encOf(plan, 1), await encOf(moved, 0)];
    expect(new Set(encs).size).toBe(3);
  });
});

describe("sizes", () => {
  test("short messages have few sizes: texts, receipts and typing alike", async () => {
    const sizes = new Set<number>();
    for (let length = 0; length < 60; length++) {
      const { body } = await buildEnvelope(
        hybridPlan(new Uint8Array(length)),
        0,
        new Uint8Array(length),
      );
      sizes.add(sizeOf(body));
    }
    expect(sizes.size).toBeLessThan(7);
  });

  test("full chunks have no padding, the last one keeps to what is accepted", async () => {
    const data = new Uint8Array(2_900);
    const plan = hybridPlan(data, { chunkBytes: 1_000, sealedBytesMax: 1_200 });
    const [full, last] = [
      sizeOf((await buildEnvelope(plan, 0, data.subarray(0, 1_000))).body),
      sizeOf((await buildEnvelope(plan, 2, data.subarray(2_000))).body),
    ];
    const unpadded = sizeOf((await buildEnvelope(plan, 1, data.subarray(1_000, 2_000))).body);
    expect([full - unpadded, last]).toEqual([0, 1_200]);
  });
});

test("each member of the envelope is bound, whoever changes it", async () => {
  const plan = hybridPlan(utf8("Meet me at noon."), { tag: "a", hint: "direct" });
  const envelope = envelopeIn((await buildEnvelope(plan, 0, utf8("Meet me at noon."))).body);
  const changes: JsonObject[] = [
    { tag: "b" },
    { ttl: "48h" },
    { delivery_hint: "cache" },
    { timestamp: "2026-11-28T12:00:00.001Z" },
    { sender_key_id: `${plan.sender?.did}#other` },
    { encrypted_header: "AAAA", header_nonce: "AAAA", header_key_id: "a", schema_version: "1" },
  ];
  for (const change of changes)
    expect(
      await clientCode(async () => openEnvelope({ ...envelope, ...change }, recipientOf(plan))),
    ).toBe("not_authentic");
  const renamed: JsonObject = { ...envelope, recipient: plan.to, created_at: plan.timestamp };
  delete renamed["to"];
  delete renamed["timestamp"];
  expect((await openEnvelope(renamed, recipientOf(plan))).data).toEqual(utf8("Meet me at noon."));
});
