/** Which policy applies to an envelope, and what it permits. */
import { describe, expect, test } from "bun:test";
import { isFault } from "../../../../src/core/fault.ts";
import {
  checkPayloadSize,
  checkRelay,
  decidePolicy,
  type EffectivePolicy,
  type PolicyFacts,
} from "../../../../src/core/message/policy.ts";
import { personaOf, policyFacts, policyOf } from "../../../support/policies.ts";

const links = (tagPolicies: string[]) => ({
  recipientPolicy: null,
  tagPolicies,
  personaPolicies: [],
});

function effective(change: Partial<PolicyFacts>): EffectivePolicy {
  const outcome = decidePolicy(policyFacts(change));
  if (isFault(outcome)) throw new Error(outcome.code);
  return outcome;
}

describe("decidePolicy", () => {
  test("keeps the node's limits and allows the Cache for a recipient without any policy", () => {
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
    expect(effective({ recipientPolicy: policyOf({ effectiveTtlBlocks: 600 }) }).ttlMs).toBe(
      3_600_000,
    );
    expect(
      effective({
        recipientPolicy: policyOf({ effectiveTtlBlocks: 4_294_967_295 }),
        blockTimeMs: 500,
      }).ttlMs,
    ).toBe(2_147_483_647_000);
  });

  test("rounds the ttl down to whole seconds, of which there is at least one", () => {
    const ttlMs = (effectiveTtlBlocks: number, blockTimeMs: number) =>
      effective({ recipientPolicy: policyOf({ effectiveTtlBlocks }), blockTimeMs }).ttlMs;
    expect([ttlMs(3, 500), ttlMs(1, 50), ttlMs(7, 1_500)]).toEqual([1_000, 1_000, 10_000]);
  });

  test("lets a tag policy count only when the recipient lists the tag", () => {
    const tagPolicy = policyOf({ cacheEligible: true, maxMessageBytes: 50, effectiveTtlBlocks: 5 });
    const listed = { tag: "t", links: links(["t"]), tagPolicy };
    expect(effective(listed)).toMatchObject({
      cacheEligible: true,
      messageBytesMax: 50,
      ttlMs: 30_000,
    });
    for (const given of [null, links([])]) {
      expect(effective({ ...listed, links: given })).toEqual(effective({}));
      const recipientPolicy = policyOf();
      expect(effective({ ...listed, links: given, recipientPolicy })).toEqual(
        effective({ recipientPolicy }),
      );
    }
  });

  test("takes the stricter of each member where a tag policy and the recipient's apply", () => {
    const loose = policyOf({
      cacheEligible: true,
      effectiveTtlBlocks: 20,
      maxMessageBytes: 2_000,
      replication: 3,
      encryptedHeaderPreviewBytes: 64,
      expirationBehavior: "KeepHeaderPreview",
    });
    const strict = policyOf({
      cacheEligible: false,
      effectiveTtlBlocks: 10,
      maxMessageBytes: 1_000,
      expirationBehavior: "TombstoneReference",
      replication: 2,
      encryptedHeaderPreviewBytes: 8,
    });
    for (const [tagPolicy, recipientPolicy] of [
      [loose, strict],
      [strict, loose],
    ] as const) {
      expect(effective({ tag: "t", links: links(["t"]), tagPolicy, recipientPolicy })).toEqual(
        effective({ recipientPolicy: strict }),
      );
    }
    const silent = policyOf({ cacheEligible: true });
    expect(
      effective({ tag: "t", links: links(["t"]), tagPolicy: silent, recipientPolicy: loose }),
    ).toMatchObject({
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
    const outcome = decidePolicy(policyFacts({ links: given, tag }));
    expect(isFault(outcome) ? outcome.code : "admitted").toBe(expected);
  });

  test("admits a Relay only when every persona that names Relays names it", () => {
    const code = (lists: string[][], id: string | null) =>
      checkRelay(effective({ personaPolicies: lists.map(personaOf) }), id)?.code ?? "admitted";
    expect(code([[]], null)).toBe("admitted");
    expect(code([["r1"], []], "r1")).toBe("admitted");
    expect(code([["r1", "r2"], ["r2"]], "r2")).toBe("admitted");
    expect(code([["r1"], ["r2"]], "r1")).toBe("policy_denied");
    expect(code([["r1"]], null)).toBe("policy_denied");
  });

  test("refuses a payload above the limit and accepts one of exactly the limit", () => {
    const limited = effective({ recipientPolicy: policyOf({ maxMessageBytes: 5 }) });
    expect(checkPayloadSize(limited, 5)).toBeNull();
    expect(checkPayloadSize(limited, 6)?.code).toBe("too_large");
    expect(checkPayloadSize(effective({}), 1e9)).toBeNull();
  });
});
