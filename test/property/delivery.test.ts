/**
 * The delivery plan under every sequence of outcomes: it ends, within its bounds, in a valid
 * result.
 */
import { expect, test } from "bun:test";
import fc from "fast-check";
import type { Did, Uuid } from "../../src/core/codec/did.ts";
import { isFault } from "../../src/core/fault.ts";
import { type AttemptOutcome, deliver } from "../../src/core/message/delivery.ts";
import { type DeliveryFacts, planDelivery } from "../../src/core/message/plan.ts";
import { expectDeliveryResult } from "../support/delivery-shape.ts";
import { relayDefault } from "../support/settings.ts";

const recipient = "did:svc:1111111111111111111111" as Did;

const services = fc.array(
  fc.record({
    id: fc.constant(`${recipient}#s`),
    type: fc.constantFrom(
      "SvcInboxService",
      "SvcRelayService",
      "SvcCacheService",
      "SvcArchiveService",
    ),
    serviceEndpoint: fc.array(fc.oneof(fc.webUrl(), fc.string()), { minLength: 1, maxLength: 5 }),
    authorization: fc.constant(null),
    priority: fc.option(fc.nat(5), { nil: null }),
  }),
  { maxLength: 4 },
);

const anyFacts: fc.Arbitrary<DeliveryFacts> = fc.record({
  messageId: fc.constant("0190b3b4-0000-7000-8000-000000000001" as Uuid),
  recipient: fc.constant(recipient),
  hint: fc.constantFrom("standard", "chunked", "direct", "cache"),
  expiresAtMs: fc.oneof(fc.integer({ min: 0, max: 20_000 }), fc.constant(86_400_000)),
  services,
  live: fc.boolean(),
  hops: fc.nat(3),
  cacheEligible: fc.boolean(),
  replication: fc.nat(4),
  ownEndpoints: fc.constant(["https://self.net"]),
  limits: fc.constant(relayDefault),
});

const outcome: fc.Arbitrary<AttemptOutcome> = fc
  .record({
    httpStatus: fc.option(
      fc.oneof(fc.integer({ min: 100, max: 599 }), fc.constantFrom(200, 202, 404, 410, 429, 503)),
      {
        nil: null,
      },
    ),
    error: fc.option(
      fc.constantFrom(
        "destination_refused",
        "destination_unavailable",
        "upstream_timeout",
        "invalid_answer",
        "not_acknowledged",
      ),
      { nil: null },
    ),
    durationMs: fc.nat(10_000),
    giveUp: fc.boolean(),
  })
  .map((drawn) =>
    drawn.httpStatus === null && drawn.error === null ? { ...drawn, httpStatus: 200 } : drawn,
  );

const moves = fc.array(
  fc.record({
    outcome,
    share: fc.double({ min: 0, max: 1, noNaN: true }),
    jitter: fc.double({ min: 0, max: 0.999, noNaN: true }),
  }),
  {
    minLength: 1,
    maxLength: 80,
  },
);

test("every plan ends within its attempts and its time, and in a valid result", async () => {
  await fc.assert(
    fc.asyncProperty(anyFacts, moves, async (facts, script) => {
      const plan = planDelivery(facts);
      const { limits } = plan;
      let nowMs = 100;
      let attempts = 0;
      let move = script[0] as (typeof script)[number];
      /**
       * After the recipient's refusal, and after a success that is no copy in a Cache, nothing else
       * is tried.
       */
      let ended: "final" | "taken" | null = null;
      const result = await deliver(plan, {
        now: () => nowMs,
        random: () => move.jitter,
        sleep: async (waitMs) => {
          expect(waitMs).toBeLessThanOrEqual(limits.retry_delay * 2 ** limits.attempts);
          nowMs += waitMs;
        },
        attempt: async ({ destination: { channel }, timeoutMs }) => {
          move = script[attempts % script.length] as (typeof script)[number];
          attempts++;
          expect(ended).toBeNull();
          expect(attempts).toBeLessThanOrEqual(
            (plan.direct.length + plan.caches.length) * limits.attempts,
          );
          expect(nowMs).toBeLessThan(facts.expiresAtMs);
          expect(timeoutMs).toBeGreaterThanOrEqual(1);
          expect(timeoutMs).toBeLessThanOrEqual(
            channel === "live" ? limits.live_ack_timeout : limits.request_timeout,
          );
          nowMs += Math.floor(timeoutMs * move.share);
          const { httpStatus, error } = move.outcome;
          const has = (from: number, to: number) =>
            httpStatus !== null && httpStatus >= from && httpStatus < to;
          const isRefusal = channel === "inbox" && error === null && has(400, 500);
          if (isRefusal && ![404, 408, 410, 425, 429].includes(httpStatus ?? 0)) ended = "final";
          if (channel !== "cache" && error === null && (channel === "live" || has(200, 300)))
            ended = "taken";
          return move.outcome;
        },
      });
      if (isFault(result)) throw new Error(result.detail);
      if (ended === "final") expect(result.code).toBe("not_deliverable");
      if (ended === "taken") expect(result.success).toBe(true);
      expect(nowMs - 100).toBeLessThanOrEqual(limits.live_ack_timeout + limits.delivery_budget);
      expectDeliveryResult(result);
      expect(result.retry_count).toBeLessThan(Math.max(1, attempts));
      expect(result.ndr === null || result.ndr.attempts.length === attempts).toBe(true);
      if (facts.hint === "direct" || !facts.cacheEligible)
        expect(result.cache_attempted).toBe(false);
    }),
    { numRuns: 5_000 },
  );
});
