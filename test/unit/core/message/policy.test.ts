/** Which policy applies to an envelope, and what it permits. */
import { describe, expect, test } from "bun:test";
import { decodeHex, renderPublicKey, utf8 } from "../../../../src/core/codec/bytes.ts";
import type { Did } from "../../../../src/core/codec/did.ts";
import { isFault } from "../../../../src/core/fault.ts";
import type { DeliveryPolicy } from "../../../../src/core/ledger/policy.ts";
import { decodeEnvelope } from "../../../../src/core/message/envelope.ts";
import {
  checkPayloadSize,
  checkRelay,
  decidePolicy,
  type EffectivePolicy,
  type PolicyFacts,
} from "../../../../src/core/message/policy.ts";
import { checkParties, gatherPolicyFacts, type OperatorRules } from "../../../../src/nodes/admission.ts";
import type { RecipientSource } from "../../../../src/nodes/recipients.ts";
import { limitsDefault, relayDefault } from "../../../support/settings.ts";
import signedEnvelopes from "../../../vectors/envelope/valid/signed.json";

const policy = (change: Partial<DeliveryPolicy> = {}): DeliveryPolicy => ({
  effectiveTtlBlocks: 10,
  maxMessageBytes: 1_000,
  cacheEligible: false,
  replication: null,
  encryptedHeaderPreviewBytes: null,
  releasePricing: null,
  expirationBehavior: null,
  ...change,
});
const facts = (change: Partial<PolicyFacts> = {}): PolicyFacts => ({
  links: null,
  tag: null,
  tagPolicy: null,
  recipientPolicy: null,
  personaPolicies: [],
  blockTimeMs: 6_000,
  ...change,
});
const links = (tagPolicies: string[]) => ({ recipientPolicy: null, tagPolicies, personaPolicies: [] });
const persona = (allowedRelays: string[]) => ({ releasePricing: null, expirationBehavior: null, allowedRelays });

function effective(change: Partial<PolicyFacts>): EffectivePolicy {
  const outcome = decidePolicy(facts(change));
  if (isFault(outcome)) throw new Error(outcome.code);
  return outcome;
}

describe("decidePolicy", () => {
  test("leaves the node's limits and Cache eligibility to a recipient without any policy", () => {
    expect(effective({})).toEqual({
      ttlMs: null,
      messageBytesMax: null,
      cacheEligible: true,
      replication: 1,
      headerPreviewBytes: 0,
      expiration: "DeleteOnExpiry",
      allowedRelays: [],
    });
  });

  test("counts the ttl in blocks of the chain's time", () => {
    expect(effective({ recipientPolicy: policy({ effectiveTtlBlocks: 600 }) }).ttlMs).toBe(3_600_000);
    expect(effective({ recipientPolicy: policy({ effectiveTtlBlocks: 4_294_967_295 }), blockTimeMs: 500 }).ttlMs).toBe(
      2_147_483_647_000,
    );
  });

  test("rounds the ttl down to whole seconds, of which there is at least one", () => {
    const ttlMs = (effectiveTtlBlocks: number, blockTimeMs: number) =>
      effective({ recipientPolicy: policy({ effectiveTtlBlocks }), blockTimeMs }).ttlMs;
    expect([ttlMs(3, 500), ttlMs(1, 50), ttlMs(7, 1_500)]).toEqual([1_000, 1_000, 10_000]);
  });

  test("lets a tag policy count only when the recipient lists the tag", () => {
    const tagPolicy = policy({ cacheEligible: true, maxMessageBytes: 50, effectiveTtlBlocks: 5 });
    const listed = { tag: "t", links: links(["t"]), tagPolicy };
    expect(effective(listed)).toMatchObject({ cacheEligible: true, messageBytesMax: 50, ttlMs: 30_000 });
    for (const given of [null, links([])]) {
      expect(effective({ ...listed, links: given })).toEqual(effective({}));
      const recipientPolicy = policy();
      expect(effective({ ...listed, links: given, recipientPolicy })).toEqual(effective({ recipientPolicy }));
    }
  });

  test("takes the stricter of each member where a tag policy and the recipient's apply", () => {
    const loose = policy({
      cacheEligible: true,
      effectiveTtlBlocks: 20,
      maxMessageBytes: 2_000,
      replication: 3,
      encryptedHeaderPreviewBytes: 64,
      expirationBehavior: "KeepHeaderPreview",
    });
    const strict = policy({ expirationBehavior: "TombstoneReference", replication: 2, encryptedHeaderPreviewBytes: 8 });
    for (const [tagPolicy, recipientPolicy] of [
      [loose, strict],
      [strict, loose],
    ] as const) {
      expect(effective({ tag: "t", links: links(["t"]), tagPolicy, recipientPolicy })).toEqual(
        effective({ recipientPolicy: strict }),
      );
    }
    const silent = policy({ cacheEligible: true });
    expect(effective({ tag: "t", links: links(["t"]), tagPolicy: silent, recipientPolicy: loose })).toMatchObject({
      replication: 1,
      headerPreviewBytes: 0,
      expiration: "DeleteOnExpiry",
    });
  });

  test.each([
    ["a tag that is listed", links(["a", "b"]), "b", "admitted"],
    ["a tag that is not listed", links(["a"]), "b", "policy_denied"],
    ["no tag beside a list", links(["a"]), null, "admitted"],
    ["any tag beside an empty list", links([]), "b", "admitted"],
    ["any tag without links", null, "b", "admitted"],
  ] as const)("admits or refuses %s", (_, given, tag, expected) => {
    const outcome = decidePolicy(facts({ links: given, tag }));
    expect(isFault(outcome) ? outcome.code : "admitted").toBe(expected);
  });

  test("admits a Relay only when every persona that names Relays names it", () => {
    const code = (lists: string[][], id: string | null) =>
      checkRelay(effective({ personaPolicies: lists.map(persona) }), id)?.code ?? "admitted";
    expect(code([[]], null)).toBe("admitted");
    expect(code([["r1"], []], "r1")).toBe("admitted");
    expect(code([["r1", "r2"], ["r2"]], "r2")).toBe("admitted");
    expect(code([["r1"], ["r2"]], "r1")).toBe("policy_denied");
    expect(code([["r1"]], null)).toBe("policy_denied");
  });

  test("refuses a payload above the limit and takes one of exactly the limit", () => {
    const limited = effective({ recipientPolicy: policy({ maxMessageBytes: 5 }) });
    expect(checkPayloadSize(limited, 5)).toBeNull();
    expect(checkPayloadSize(limited, 6)?.code).toBe("too_large");
    expect(checkPayloadSize(effective({}), 1e9)).toBeNull();
  });
});

test("gathering reads the tag, the linked recipient and the personas that exist", async () => {
  const asked: string[] = [];
  const source: RecipientSource = {
    subject: async () => null,
    policy: async (scope, key) => {
      asked.push(`${scope}:${key}`);
      return scope === "tag" ? null : policy();
    },
    persona: async (key) => (key === "known" ? persona(["r1"]) : null),
    blockTimeMs: async () => 500,
  };
  const did = "did:svc:1111111111111111111111" as Did;
  const linked = { recipientPolicy: "other", tagPolicies: ["t"], personaPolicies: ["known", "unknown"] };
  const subject = { did, document: null, deactivated: false, links: linked, life: 0 };
  expect(await gatherPolicyFacts(source, subject, "t")).toEqual({
    links: linked,
    tag: "t",
    tagPolicy: null,
    recipientPolicy: policy(),
    personaPolicies: [persona(["r1"])],
    blockTimeMs: 500,
  });
  await gatherPolicyFacts(source, { ...subject, links: null }, null);
  expect(asked.toSorted()).toEqual([`recipient:${did}`, "recipient:other", "tag:t"].toSorted());
});

describe("checkParties", () => {
  const [vector] = signedEnvelopes;
  const decode = (members: Record<string, unknown>) => {
    const envelope = decodeEnvelope(utf8(JSON.stringify(members)), limitsDefault);
    if (isFault(envelope)) throw new Error(envelope.detail);
    return envelope;
  };
  if (vector === undefined) throw new Error("no vector");
  const signed = decode(vector.envelope);
  const { from: _from, sender_key_id: _key, sender_signature: _signature, ...unsignedMembers } = vector.envelope;
  const unsigned = decode(unsignedMembers);
  const { envelope } = vector;
  const method = {
    id: envelope.sender_key_id,
    type: "Multikey",
    controller: envelope.from,
    publicKeyMultibase: renderPublicKey(decodeHex(vector.public_key_hex) as Uint8Array),
  };
  const document = {
    id: envelope.from,
    verificationMethod: [method],
    authentication: [method.id],
    keyAgreement: [],
    service: [],
  };
  const code = (
    given: typeof signed,
    rules: Partial<OperatorRules>,
    sender: Parameters<typeof checkParties>[1] = null,
  ) => checkParties(given, sender, { ...relayDefault, ...rules })?.code ?? "admitted";

  test("takes unsigned envelopes unless signatures are required or senders are listed", () => {
    expect(code(unsigned, {})).toBe("admitted");
    expect(code(unsigned, { require_sender_signature: true })).toBe("sender_signature_invalid");
    expect(code(unsigned, { allow_senders: [envelope.from] })).toBe("policy_denied");
    expect(code(unsigned, { deny_senders: [envelope.from] })).toBe("admitted");
  });

  test("never takes a supplied signature on trust", () => {
    expect(code(signed, {})).toBe("sender_signature_invalid");
    expect(code(signed, {}, { document, deactivated: false })).toBe("admitted");
    expect(code(signed, {}, { document, deactivated: true })).toBe("sender_signature_invalid");
    expect(code(signed, {}, { document: { ...document, authentication: [] }, deactivated: false })).toBe(
      "sender_signature_invalid",
    );
    expect(code(signed, {}, { document: null, deactivated: false })).toBe("sender_signature_invalid");
  });

  test("keeps to the operator's lists of proven senders", () => {
    const known = { document, deactivated: false };
    expect(code(signed, { require_sender_signature: true, allow_senders: [envelope.from] }, known)).toBe("admitted");
    expect(code(signed, { allow_senders: [unsigned.to] }, known)).toBe("policy_denied");
    expect(code(signed, { deny_senders: [envelope.from] }, known)).toBe("policy_denied");
  });

  test("keeps to the operator's lists of recipients", () => {
    expect(code(unsigned, { deny_recipients: [unsigned.to] })).toBe("policy_denied");
    expect(code(unsigned, { allow_recipients: [unsigned.to] })).toBe("admitted");
    expect(code(unsigned, { allow_recipients: ["did:svc:3333333333333333333333"] })).toBe("policy_denied");
  });
});
