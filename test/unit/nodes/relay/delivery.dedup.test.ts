/** An envelope that can only go to the Cache of the process: what is answered, counted and asked of it, for each of its answers. */
import { describe, expect, test } from "bun:test";
import { type Fault, fault, isFault } from "../../../../src/core/fault.ts";
import {
  beginDelivery,
  type DeliveryPlan,
  type DeliveryResult,
  nextStep,
} from "../../../../src/core/message/delivery.ts";
import { decodeEnvelope, type Envelope } from "../../../../src/core/message/envelope.ts";
import { decidePolicy } from "../../../../src/core/message/policy.ts";
import { runDelivery } from "../../../../src/nodes/relay/delivery.ts";
import { createEgress } from "../../../../src/nodes/relay/egress.ts";
import { relayDefault } from "../../../support/settings.ts";

const limits = {
  body_bytes_max: 10_000,
  unchunked_bytes_max: 10_000,
  chunk_bytes_max: 10_000,
  header_bytes_max: 10_000,
  ttl_max: 86_400_000,
  ttl_default: 86_400_000,
  clock_ahead: 300_000,
  clock_skew: 300_000,
};

function envelopeOf(n: number, tag = "a"): Envelope {
  const message_id = `00000000-0000-4000-8000-${String(n).padStart(12, "0")}`;
  const to = `did:svc:${"7".repeat(44)}`;
  const body = { message_id, to, timestamp: "2026-11-22T00:00:00Z", tag, payload: {} };
  const envelope = decodeEnvelope(new TextEncoder().encode(JSON.stringify(body)), limits);
  if (isFault(envelope)) throw new Error(envelope.detail);
  return envelope;
}

type As = "stored" | "held" | "repeat";

/** A delivery to the Cache of the process, whose answers are given in turn. */
async function deliverLocally(
  answers: readonly (As | Fault)[],
  changes: Partial<DeliveryPlan> = {},
  known: string | Fault | null = null,
) {
  const { outcome, ...more } = await runLocally(answers, changes, known);
  if (isFault(outcome)) throw new Error(outcome.code);
  return { ...outcome, result: JSON.parse(outcome.text) as DeliveryResult, ...more };
}

async function runLocally(
  answers: readonly (As | Fault)[],
  changes: Partial<DeliveryPlan>,
  known: string | Fault | null,
) {
  const envelope = envelopeOf(1);
  const plan: DeliveryPlan = {
    messageId: envelope.messageId,
    recipient: envelope.to,
    expiresAtMs: 2e12,
    direct: [],
    caches: [{ channel: "cache", endpoint: "https://cache.net" }],
    copies: 1,
    nowhere: "not_deliverable",
    limits: relayDefault,
    ...changes,
  };
  const recipient = { did: envelope.to, document: null, deactivated: false, links: null, life: 3 };
  const policy = decidePolicy({
    links: null,
    tag: null,
    tagPolicy: null,
    recipientPolicy: null,
    personaPolicies: [],
    blockTimeMs: 0,
  });
  if (isFault(policy)) throw new Error(policy.code);
  const admission = { recipient, policy, ttlMs: 5_000, ttlMsMax: 5_000, expiresAtMs: plan.expiresAtMs };
  const attempts: (number | null)[] = [];
  const stores: unknown[] = [];
  const recalls: unknown[] = [];
  const outcome = await runDelivery(
    {
      egress: createEgress({ settings: relayDefault }),
      localCache: {
        endpoints: ["https://cache.net/"],
        facts: () => ({ recipient, policy, isSenderVerified: false }),
        store: async (_, arrival, answer) => {
          stores.push(arrival);
          const next = answers[stores.length - 1] ?? fault("internal_error", "asked too often");
          return typeof next === "string" ? answer(receipt, next) : next;
        },
        recall: async (_, of) => {
          recalls.push(of);
          return known;
        },
      },
      sharesAdmission: true,
      sessions: null,
      id: "0123456789abcdef",
      now: () => 1e12,
      sleep: async () => {},
      random: () => 0.5,
      onAttempt: (_, { httpStatus }) => void attempts.push(httpStatus),
    },
    {
      relayed: {
        envelope,
        hops: 0,
        via: null,
        admission,
        call: { client: "192.0.2.1", network: "192.0.2.0/24", nowMs: 1e12 - 1, trace: null },
      },
      digest: "d".repeat(32),
      plan,
      elsewhere: "gone",
    },
  );
  return { plan, admission, outcome, attempts, stores, recalls };
}

const receipt = '{"accepted":true,"deduped":false,"proof":{"signature":null}}';
const parsedReceipt = { accepted: true, deduped: false, proof: { signature: null } };

describe("the one Cache of the process", () => {
  test("keeps an envelope at the first attempt: the answer is the reducer's", async () => {
    const { plan, admission, result, text, attempts, stores, ...rest } = await deliverLocally(["stored"]);
    const outcome = { httpStatus: 202, error: null, durationMs: 1, receipt: parsedReceipt };
    const { step } = nextStep(beginDelivery(plan, 1e12).state, { kind: "outcome", outcome, jitter: 0.5, nowMs: 1e12 });
    expect(step).toEqual({ kind: "finished", result });
    expect(text).toBe(JSON.stringify(step.kind === "finished" ? step.result : null));
    expect(attempts).toEqual([202]);
    const digest = "d".repeat(32);
    expect(stores).toEqual([
      { client: "192.0.2.1", network: "192.0.2.0/24", nowMs: 1e12, digest, admitted: admission },
    ]);
    expect(rest).toMatchObject({ status: 202, code: "cached", deduped: false, isRemembered: true, recalls: [] });
  });

  test("had the envelope from an earlier delivery: the first answer again, and no attempt", async () => {
    const { result, text, attempts, deduped, isRemembered } = await deliverLocally(["repeat"]);
    expect(result).toMatchObject({ code: "cached", cache_result: parsedReceipt, details: { deduped: true } });
    expect([text, attempts, deduped, isRemembered]).toEqual([JSON.stringify(result), [], true, true]);
  });

  test("had the message from elsewhere: its mailbox does not recognize a repeat", async () => {
    const { result, attempts, isRemembered } = await deliverLocally(["held"]);
    expect([result.code, result.details, attempts, isRemembered]).toEqual(["cached", {}, [202], false]);
  });

  test("refuses what it was given before: the earlier delivery counts", async () => {
    const repeat = await deliverLocally([fault("policy_denied", "no")], {}, receipt);
    expect(repeat.result).toEqual((await deliverLocally(["repeat"])).result);
    const digest = "d".repeat(32);
    expect(repeat.recalls).toEqual([{ digest, ttlMsMax: 5_000, life: 3, nowMs: 1e12 - 1 }]);
    expect([repeat.attempts, repeat.isRemembered]).toEqual([[], true]);
    const other = await runLocally([fault("policy_denied", "no")], {}, fault("duplicate_conflict", "other"));
    expect(other.outcome).toMatchObject({ code: "duplicate_conflict" });
    const away = await deliverLocally([fault("service_unavailable", "later"), "stored"], {}, receipt);
    expect([away.result.code, away.recalls]).toEqual(["cached", []]);
  });

  test("refuses an envelope: that is the first attempt, and final", async () => {
    const { result, attempts, stores } = await deliverLocally([fault("policy_denied", "no")]);
    expect(result).toMatchObject({ success: false, cache_attempted: true, cache_result: { code: "policy_denied" } });
    expect(result.ndr?.attempts.length).toBe(1);
    expect([attempts, stores.length]).toEqual([[403], 1]);
  });

  test("is away at first: the next attempt is a retry, for which it decides itself", async () => {
    const { result, attempts, stores, admission } = await deliverLocally([
      fault("service_unavailable", "later"),
      "stored",
    ]);
    expect(result).toMatchObject({ code: "cached", retry_count: 1 });
    expect(attempts).toEqual([503, 202]);
    expect(stores).toMatchObject([{ admitted: admission }, { admitted: null }]);
  });

  test("counts its copies where the policy asks for more than one", async () => {
    const { result } = await deliverLocally(["stored"], { copies: 2 });
    expect(result.cache_result).toEqual({ ...parsedReceipt, copies: 1 });
  });

  test("is not asked to keep what has expired", async () => {
    const { result, stores } = await deliverLocally(["stored"], { expiresAtMs: 1e12 });
    expect([result.code, stores]).toEqual(["message_expired", []]);
  });
});
