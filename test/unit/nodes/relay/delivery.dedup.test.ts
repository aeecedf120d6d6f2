/** One delivery for one message: what repeats are answered while a result is being written, and after it; and the text of the usual result. */
import { describe, expect, test } from "bun:test";
import { type Fault, fault, isFault } from "../../../../src/core/fault.ts";
import {
  beginDelivery,
  type DeliveryPlan,
  type DeliveryResult,
  nextStep,
} from "../../../../src/core/message/delivery.ts";
import { decodeEnvelope, type Envelope } from "../../../../src/core/message/envelope.ts";
import {
  createDedup,
  type Delivered,
  deliverOnce,
  type LocalCache,
  runDelivery,
} from "../../../../src/nodes/relay/delivery.ts";
import { createEgress } from "../../../../src/nodes/relay/egress.ts";
import { type Receipts, StoreError } from "../../../../src/storage/contract.ts";
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

const delivered: DeliveryResult = {
  success: true,
  delivery_mode: "cache",
  http_status: 202,
  code: "cached",
  message: "kept",
  retry_count: 0,
  cache_attempted: true,
  cache_result: null,
  ndr: null,
  details: {},
};

/** Receipts whose writes end on request. */
function stage() {
  const kept = new Map<string, Uint8Array>();
  const writes: { end: (failure?: StoreError) => void }[] = [];
  const receipts: Receipts = {
    put: (key, value) =>
      new Promise((resolve, reject) => {
        const end = (failure?: StoreError) => {
          if (failure !== undefined) return reject(failure);
          kept.set(key, value);
          resolve();
        };
        writes.push({ end });
      }),
    putIfAbsent: async () => null,
    get: async (key) => kept.get(key) ?? null,
    remove: async () => {},
    expire: async () => 0,
  };
  const logged: string[] = [];
  const dedup = createDedup({ receipts, log: (_, message) => void logged.push(message) });
  let deliveries = 0;
  const send = (n: number, tag?: string) =>
    deliverOnce(dedup, { envelope: envelopeOf(n, tag), untilMs: () => 2e12, nowMs: 1e12 }, async () => {
      deliveries++;
      return { result: delivered, text: JSON.stringify(delivered) };
    });
  return { dedup, writes, logged, send, deliveries: () => deliveries };
}

describe("a result", () => {
  test("is answered before it is written, and repeats meanwhile and afterwards are answered it", async () => {
    const { dedup, writes, send, deliveries } = stage();
    expect(await send(1)).toEqual({ result: delivered, text: JSON.stringify(delivered) });
    expect(writes.length).toBe(1);
    const deduped = { ...delivered, details: { deduped: true } };
    expect(await send(1)).toEqual({ result: deduped, text: JSON.stringify(deduped) });
    expect(await send(1, "b")).toMatchObject({ code: "duplicate_conflict" });
    writes[0]!.end();
    await Bun.sleep(0);
    expect(dedup.inFlight.size).toBe(0);
    expect(await send(1)).toEqual({ result: deduped, text: JSON.stringify(deduped) });
    expect(await send(1, "b")).toMatchObject({ code: "duplicate_conflict" });
    expect(dedup.inFlight.size).toBe(0);
    expect(deliveries()).toBe(1);
  });

  test("that can't be written is answered all the same, and a repeat is delivered again", async () => {
    const { writes, logged, send, deliveries } = stage();
    expect(isFault(await send(1))).toBe(false);
    writes[0]!.end(new StoreError("full", "no room"));
    await Bun.sleep(0);
    expect(logged).toEqual(["a delivery result could not be stored; a repeated request would be delivered again"]);
    await send(1);
    expect(deliveries()).toBe(2);
  });

  test("waits when 256 others are being written", async () => {
    const { dedup, writes, send } = stage();
    for (let n = 1; n <= 256; n++) await send(n);
    let answered = false;
    const last = send(257).then(() => {
      answered = true;
    });
    await Bun.sleep(5);
    expect([dedup.remembering, answered]).toEqual([257, false]);
    for (const { end } of writes) end();
    await last;
    await Bun.sleep(0);
    expect([dedup.remembering, dedup.inFlight.size]).toEqual([0, 0]);
  });
});

type LocalReceipt = Exclude<Awaited<ReturnType<LocalCache["store"]>>, Fault>;

/** A delivery to the Cache of the process, whose answers are given in turn. */
async function deliverLocally(
  answers: readonly (LocalReceipt | Fault)[],
  changes: Partial<DeliveryPlan> = {},
  known: Delivered | Fault | null = null,
) {
  const { outcome, ...more } = await runLocally(answers, changes, known);
  if (isFault(outcome)) throw new Error(outcome.code);
  return { ...outcome, ...more };
}

async function runLocally(
  answers: readonly (LocalReceipt | Fault)[],
  changes: Partial<DeliveryPlan>,
  known: Delivered | Fault | null,
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
  const attempts: (number | null)[] = [];
  const stores: unknown[] = [];
  let recalls = 0;
  const outcome = await runDelivery(
    {
      egress: createEgress({ settings: relayDefault }),
      localCache: {
        endpoints: ["https://cache.net/"],
        store: async (_, arrival) => {
          stores.push(arrival);
          return answers[stores.length - 1] ?? fault("internal_error", "asked too often");
        },
        recall: async () => fault("internal_error", "asked at the wrong place"),
      },
      sessions: null,
      now: () => 1e12,
      sleep: async () => {},
      random: () => 0.5,
      onAttempt: (_, { httpStatus }) => void attempts.push(httpStatus),
    },
    {
      envelope,
      digest: "d".repeat(32),
      recall: async () => {
        recalls++;
        return known;
      },
      origin: { client: "192.0.2.1", network: "192.0.2.0/24" },
      document: null,
      plan,
      elsewhere: "gone",
      hopsNext: 1,
      viaNext: "",
    },
  );
  return { plan, outcome, attempts, stores, recalls };
}

describe("the one Cache of the process", () => {
  const receipt = { accepted: true, deduped: false, proof: { signature: null } };
  const stored = { receipt, text: JSON.stringify(receipt), as: "stored" } as const;

  test("keeps an envelope at the first attempt: the answer is the reducer's", async () => {
    const { plan, result, text, attempts, stores, isInMailbox } = await deliverLocally([stored]);
    const outcome = { httpStatus: 202, error: null, durationMs: 1, receipt };
    const { step } = nextStep(beginDelivery(plan, 1e12).state, { kind: "outcome", outcome, jitter: 0.5, nowMs: 1e12 });
    expect(step).toEqual({ kind: "finished", result });
    expect(text).toBe(JSON.stringify(step.kind === "finished" ? step.result : null));
    expect(attempts).toEqual([202]);
    const digest = "d".repeat(32);
    expect(stores).toEqual([{ client: "192.0.2.1", network: "192.0.2.0/24", nowMs: 1e12, digest }]);
    expect(isInMailbox).toBe(true);
  });

  test("had the envelope from an earlier delivery: the first answer again, and no attempt", async () => {
    const { result, text, attempts, isInMailbox } = await deliverLocally([{ ...stored, as: "repeat" }]);
    expect(result).toMatchObject({ code: "cached", cache_result: receipt, details: { deduped: true } });
    expect([text, attempts, isInMailbox]).toEqual([JSON.stringify(result), [], true]);
  });

  test("had the message from elsewhere: its mailbox does not recognize a repeat", async () => {
    const { result, attempts, isInMailbox } = await deliverLocally([{ ...stored, as: "held" }]);
    expect([result.code, result.details, attempts, isInMailbox]).toEqual(["cached", {}, [202], false]);
  });

  test("refuses what it was given before: the earlier delivery counts", async () => {
    const before = { result: delivered, text: "" };
    const repeat = await deliverLocally([fault("policy_denied", "no")], {}, before);
    expect([repeat.result, repeat.attempts, repeat.recalls]).toEqual([delivered, [], 1]);
    const other = await runLocally([fault("policy_denied", "no")], {}, fault("duplicate_conflict", "other"));
    expect(other.outcome).toMatchObject({ code: "duplicate_conflict" });
    const away = await deliverLocally([fault("service_unavailable", "later"), stored], {}, before);
    expect([away.result.code, away.recalls]).toEqual(["cached", 0]);
  });

  test("refuses an envelope: that is the first attempt, and final", async () => {
    const { result, attempts, stores } = await deliverLocally([fault("policy_denied", "no")]);
    expect(result).toMatchObject({ success: false, cache_attempted: true, cache_result: { code: "policy_denied" } });
    expect(result.ndr?.attempts.length).toBe(1);
    expect([attempts, stores.length]).toEqual([[403], 1]);
  });

  test("is away at first: the next attempt is a retry", async () => {
    const { result, attempts } = await deliverLocally([fault("service_unavailable", "later"), stored]);
    expect(result).toMatchObject({ code: "cached", retry_count: 1 });
    expect(attempts).toEqual([503, 202]);
  });

  test("counts its copies where the policy asks for more than one", async () => {
    const { result } = await deliverLocally([stored], { copies: 2 });
    expect(result.cache_result).toEqual({ ...receipt, copies: 1 });
  });

  test("is not asked to keep what has expired", async () => {
    const { result, stores } = await deliverLocally([stored], { expiresAtMs: 1e12 });
    expect([result.code, stores]).toEqual(["message_expired", []]);
  });
});
