/** Which facts are gathered for an envelope, and what its parties must be for it to be admitted. */

import { describe, expect, test } from "bun:test";
import { decodeHex, renderPublicKey, utf8 } from "../../../../src/core/codec/bytes.ts";
import { verifyEd25519 } from "../../../../src/core/codec/crypto.ts";
import type { Did } from "../../../../src/core/codec/did.ts";
import { fault, isFault } from "../../../../src/core/fault.ts";
import { decodeEnvelope } from "../../../../src/core/message/envelope.ts";
import { decidePolicy } from "../../../../src/core/message/policy.ts";
import {
  decideAdmission,
  gatherFacts,
  gatherRecipientFacts,
  type OperatorRules,
} from "../../../../src/nodes/parties/admission.ts";
import type { RecipientSource, Subject } from "../../../../src/nodes/parties/recipients.ts";
import { personaOf, policyFacts, policyOf } from "../../../support/policies.ts";
import { limitsDefault, relayDefault } from "../../../support/settings.ts";
import signedEnvelopes from "../../../vectors/envelope/valid/signed.json";

const [vector] = signedEnvelopes;
if (vector === undefined) throw new Error("no vector");
const { envelope } = vector;
const {
  from: _from,
  sender_key_id: _key,
  sender_signature: _signature,
  ...unsignedMembers
} = envelope;

function decode(members: Record<string, unknown>) {
  const decoded = decodeEnvelope(utf8(JSON.stringify(members)), limitsDefault);
  if (isFault(decoded)) throw new Error(decoded.detail);
  return decoded;
}
const signed = decode(envelope);
const unsigned = decode(unsignedMembers);
const recipient: Subject = {
  did: unsigned.to,
  document: null,
  deactivated: false,
  links: null,
  life: 0,
};

const nobody = { home: null, network: "test" };

const policy = policyOf();
const persona = personaOf(["r1"]);

test("the facts of an envelope are the tag's policy, the linked recipient's and those of the personas that exist", async () => {
  const asked: string[] = [];
  const sourceOf = (subject: Subject): RecipientSource => ({
    subject: async () => subject,
    policy: async (scope, key) => {
      asked.push(`${scope}:${key}`);
      return scope === "tag" ? null : policy;
    },
    persona: async (key) => (key === "known" ? persona : null),
    blockTimeMs: async () => 500,
    servesGuests: async () => true,
  });
  const linked = {
    recipientPolicy: "other",
    tagPolicies: ["t"],
    personaPolicies: ["known", "unknown"],
  };
  const tagged = decode({ ...unsignedMembers, tag: "t" });
  const facts = await gatherFacts(
    { recipients: sourceOf({ ...recipient, links: linked }), verify: verifyEd25519 },
    tagged,
    nobody,
  );
  const read = {
    links: linked,
    tag: "t",
    tagPolicy: null,
    recipientPolicy: policy,
    personaPolicies: [persona],
  };
  expect(facts.policy).toEqual(decidePolicy({ ...read, blockTimeMs: 500 }));
  await gatherFacts(
    { recipients: sourceOf(recipient), verify: verifyEd25519 },
    decode(unsignedMembers),
    nobody,
  );
  expect(asked.toSorted()).toEqual(
    [`recipient:${recipient.did}`, "recipient:other", "tag:t"].toSorted(),
  );
});

describe("what is known of a recipient of the own ledger", () => {
  const stage = (subject: Subject | null = recipient) => {
    const at = { stamp: 1 as number | null, reads: 0, subject };
    const source: RecipientSource = {
      subject: async () => {
        at.reads += 1;
        return at.subject;
      },
      policy: async () => null,
      persona: async () => null,
      blockTimeMs: async () => 500,
      servesGuests: async () => true,
      stamp: () => at.stamp,
    };
    const facts = async (tag: string | null = null) =>
      await gatherRecipientFacts(source, recipient.did, { tag });
    return { at, facts };
  };

  test("is read once until the ledger changes, and then anew", async () => {
    const { at, facts } = stage();
    expect((await facts()).policy).not.toBeNull();
    await facts();
    expect(at.reads).toBe(1);
    at.subject = { ...recipient, deactivated: true };
    at.stamp = 2;
    expect((await facts()).policy).toBeNull();
    expect(at.reads).toBe(2);
  });

  test("is read each time while a change is under way, with a tag, and of who is not there", async () => {
    const { at, facts } = stage();
    await facts();
    at.stamp = null;
    await facts();
    await facts();
    expect(at.reads).toBe(3);
    at.stamp = 1;
    await facts("t");
    await facts("t");
    expect(at.reads).toBe(5);
    const absent = stage(null);
    await absent.facts();
    await absent.facts();
    expect(absent.at.reads).toBe(2);
    const elsewhere = stage({ ...recipient, foreign: { isFresh: true } });
    await elsewhere.facts();
    await elsewhere.facts();
    expect(elsewhere.at.reads).toBe(2);
  });

  test("takes no more memory than it may, though others choose the lists of Relays in its policy", async () => {
    const lists = personaOf(Array.from({ length: 16 }, () => "r".repeat(128)));
    const links = { recipientPolicy: null, tagPolicies: [], personaPolicies: Array(8).fill("p") };
    let reads = 0;
    const source: RecipientSource = {
      subject: async (did) => {
        reads += 1;
        return { ...recipient, did, links };
      },
      policy: async () => null,
      persona: async () => structuredClone(lists),
      blockTimeMs: async () => 500,
      servesGuests: async () => true,
      stamp: () => 1,
    };
    const ask = async (from: number, count: number) => {
      for (let n = from; n < from + count; n++)
        await gatherRecipientFacts(source, `did:svc:recipient${n}` as Did);
      return reads;
    };
    const first = await ask(0, 400);
    // 8 MiB hold about a hundred of 80 KB.
    expect((await ask(380, 20)) - first).toBe(0);
    expect((await ask(0, 20)) - first).toBe(20);
  });

  test("is not remembered as of a change that came while it was read", async () => {
    const { at, facts } = stage();
    const reading = facts();
    at.stamp = 2;
    await reading;
    at.subject = { ...recipient, deactivated: true };
    expect((await facts()).policy).toBeNull();
  });
});

describe("the parties of an envelope", () => {
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
  const open = decidePolicy(policyFacts());
  type Sender = Pick<Subject, "document" | "deactivated" | "foreign">;
  const code = async (
    given: typeof signed,
    rules: Partial<OperatorRules>,
    sender: Sender | null = null,
  ) => {
    const operator = { ...relayDefault, ...rules };
    const admission = { operator, limits: limitsDefault, checkPolicy: () => null };
    const source: RecipientSource = {
      subject: async (did) =>
        did === recipient.did ? recipient : sender && { ...recipient, ...sender, did },
      policy: async () => null,
      persona: async () => null,
      blockTimeMs: async () => 6_000,
      servesGuests: async () => true,
    };
    const facts = await gatherFacts({ recipients: source, verify: verifyEd25519 }, given, nobody);
    expect(facts.policy).toEqual(open);
    const admitted = decideAdmission(given, facts, admission, given.timestampMs);
    return isFault(admitted) ? admitted.code : "admitted";
  };

  test("may be unsigned unless signatures are required", async () => {
    expect(await code(unsigned, {})).toBe("admitted");
    expect(await code(unsigned, { require_sender_signature: true })).toBe(
      "sender_signature_invalid",
    );
  });

  test("are never taken on trust when there is a signature", async () => {
    expect(await code(signed, {})).toBe("sender_signature_invalid");
    expect(await code(signed, {}, { document, deactivated: false })).toBe("admitted");
    expect(await code(signed, {}, { document, deactivated: true })).toBe(
      "sender_signature_invalid",
    );
    expect(
      await code(signed, {}, { document: { ...document, authentication: [] }, deactivated: false }),
    ).toBe("sender_signature_invalid");
    expect(await code(signed, {}, { document: null, deactivated: false })).toBe(
      "sender_signature_invalid",
    );
  });

  test("count as unsigned when the sender may be at home at another Directory", async () => {
    const away = {
      ...signed,
      sender: signed.sender && { ...signed.sender, from: `did:svc:wp${"2".repeat(28)}` as Did },
    };
    expect(await code(away, {})).toBe("admitted");
    expect(await code(away, { require_sender_signature: true })).toBe("sender_signature_invalid");
    const stale = { document: null, deactivated: false, foreign: { isFresh: false } };
    expect(await code(signed, {}, stale)).toBe("admitted");
    expect(await code(signed, {}, { ...stale, foreign: { isFresh: true } })).toBe(
      "sender_signature_invalid",
    );
  });

  test("may be signed where signatures are required", async () => {
    expect(
      await code(signed, { require_sender_signature: true }, { document, deactivated: false }),
    ).toBe("admitted");
  });

  test("are checked before the policy of the recipient, and this before the size", () => {
    const denied = fault("policy_denied", "the recipient's policies do not accept this tag");
    const small = decidePolicy(policyFacts({ recipientPolicy: policyOf({ maxMessageBytes: 1 }) }));
    const rules = { operator: relayDefault, limits: limitsDefault, checkPolicy: () => null };
    const codeOf = (policy: typeof open, signature: "verified" | "invalid") => {
      const admitted = decideAdmission(
        signed,
        {
          recipient,
          policy,
          signature,
          senderHome: null,
          isForeign: false,
          isOwnSender: signature === "verified",
        },
        rules,
        signed.timestampMs,
      );
      return isFault(admitted) ? admitted.code : "admitted";
    };
    expect([codeOf(denied, "invalid"), codeOf(denied, "verified")]).toEqual([
      "sender_signature_invalid",
      "policy_denied",
    ]);
    expect([codeOf(small, "invalid"), codeOf(small, "verified")]).toEqual([
      "sender_signature_invalid",
      "too_large",
    ]);
  });
});
