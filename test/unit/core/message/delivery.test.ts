/** The delivery plan: order of destinations, hints, verdicts, retries, results. */
import { describe, expect, test } from "bun:test";
import type { Did, Uuid } from "../../../../src/core/codec/did.ts";
import { isFault } from "../../../../src/core/fault.ts";
import type { Service } from "../../../../src/core/ledger/account.ts";
import {
  type AttemptOutcome,
  type DeliveryResult,
  deliver,
} from "../../../../src/core/message/delivery.ts";
import { type DeliveryFacts, planDelivery } from "../../../../src/core/message/plan.ts";
import { expectDeliveryResult } from "../../../support/delivery-shape.ts";
import { relayDefault } from "../../../support/settings.ts";

const recipient = "did:svc:1111111111111111111111" as Did;
const messageId = "0190b3b4-0000-7000-8000-000000000001" as Uuid;

const service = (type: string, endpoints: string[], priority: number | null = null): Service => ({
  id: `${recipient}#${type}-${endpoints[0]}`,
  type,
  serviceEndpoint: endpoints,
  authorization: null,
  priority,
});
const inbox = (...endpoints: string[]) => service("SvcInboxService", endpoints);
const relay = (...endpoints: string[]) => service("SvcRelayService", endpoints);
const cache = (...endpoints: string[]) => service("SvcCacheService", endpoints);

const facts = (services: Service[], more: Partial<DeliveryFacts> = {}): DeliveryFacts => ({
  messageId,
  recipient,
  hint: "standard",
  expiresAtMs: 86_400_000,
  services,
  live: false,
  hops: 0,
  cacheEligible: true,
  replication: 1,
  ownEndpoints: ["https://self.net"],
  limits: relayDefault,
  ...more,
});

const status = (httpStatus: number): AttemptOutcome => ({ httpStatus, error: null, durationMs: 1 });
const failure = (
  error: AttemptOutcome["error"],
  more: Partial<AttemptOutcome> = {},
): AttemptOutcome => ({
  httpStatus: null,
  error,
  durationMs: 1,
  ...more,
});
const unreachable = failure("destination_unavailable");
const timedOut = failure("upstream_timeout");
const blocked = failure("destination_refused");
const acked: AttemptOutcome = { httpStatus: null, error: null, durationMs: 1 };
const silent = failure("not_acknowledged");
const kept = (copy: string): AttemptOutcome => ({
  ...status(202),
  receipt: { accepted: true, copy },
});

type Run = { asked: string[]; waits: number[]; timeouts: number[]; result: DeliveryResult };

type Played = { readonly tookMs?: number; readonly jitter?: number; readonly lateMs?: number };

/**
 * Plays a plan against scripted outcomes by channel or endpoint; each attempt takes `tookMs`, each
 * wait `lateMs` more.
 */
async function play(
  given: DeliveryFacts,
  script: Record<string, AttemptOutcome[]>,
  played: Played = {},
): Promise<Run> {
  const { tookMs = 1, jitter = 0.5, lateMs = 0 } = played;
  const queues = structuredClone(script);
  const run = { asked: [] as string[], waits: [] as number[], timeouts: [] as number[] };
  let nowMs = 1_000;
  const result = await deliver(planDelivery(given), {
    now: () => nowMs,
    random: () => jitter,
    sleep: async (ms) => {
      run.waits.push(ms);
      nowMs += ms + lateMs;
    },
    attempt: async ({ destination: { endpoint }, timeoutMs }) => {
      const key = endpoint ?? "live";
      run.asked.push(key);
      run.timeouts.push(timeoutMs);
      nowMs += Math.min(tookMs, timeoutMs);
      const queue = queues[key] ?? [];
      return queue.length > 1 ? (queue.shift() as AttemptOutcome) : (queue[0] ?? unreachable);
    },
  });
  if (isFault(result)) throw new Error(result.detail);
  expectDeliveryResult(result);
  return { ...run, result };
}

const everything = [
  cache("https://c.net"),
  relay("https://r.net"),
  service("SvcInboxService", ["https://late.net"]),
  service("SvcInboxService", ["https://second.net"], 20),
  service("SvcInboxService", ["https://first.net", "https://first-b.net"], 0),
  service("SvcOtherService", ["https://other.net"]),
];

describe("order of destinations", () => {
  const order = (given: DeliveryFacts) => {
    const plan = planDelivery(given);
    return [...plan.direct, ...plan.caches].map((destination) => destination.endpoint ?? "live");
  };
  const [first, firstB, second, late] = [
    "https://first.net",
    "https://first-b.net",
    "https://second.net",
    "https://late.net",
  ];
  const [r, c] = ["https://r.net", "https://c.net"];
  const inboxes = everything.filter(({ type }) => type === "SvcInboxService");
  const few = [
    cache(c),
    relay(r),
    service("SvcInboxService", [late]),
    service("SvcInboxService", [first], 0),
  ];
  const cases: [string, Service[], Partial<DeliveryFacts>, string[]][] = [
    ["live, inboxes by priority, relays, Caches", few, { live: true }, ["live", first, late, r, c]],
    ["no live session", few, {}, [first, late, r, c]],
    [
      "hint direct leaves Caches out",
      few,
      { hint: "direct", live: true },
      ["live", first, late, r],
    ],
    ["hint cache goes there at once", few, { hint: "cache", live: true }, [c]],
    ["a policy without Cache", few, { cacheEligible: false }, [first, late, r]],
    ["hop 2 is forwarded", few, { hops: 2 }, [first, late, r, c]],
    ["hop 3 is not forwarded again", few, { hops: 3 }, [first, late, c]],
    [
      "at most four, and one of them a Cache",
      everything,
      { live: true },
      ["live", first, firstB, second, c],
    ],
    ["four without a Cache", [...inboxes, relay(r)], {}, [first, firstB, second, late]],
    [
      "at most two at one host",
      [
        service("SvcInboxService", [
          "https://a.net/1",
          "https://a.net/2",
          "https://a.net/3",
          "https://b.net",
        ]),
        cache("https://a.net"),
      ],
      {},
      ["https://a.net/1", "https://b.net", "https://a.net"],
    ],
  ];
  test.each(cases)("%s", (_name, services, more, expected) => {
    expect(order(facts(services, more))).toEqual(expected);
  });

  test("this Relay is not forwarded to, whatever its trailing slashes, and no endpoint is asked twice", () => {
    expect(
      order(facts([relay("https://self.net/", "https://r.net/"), relay("https://r.net")])),
    ).toEqual(["https://r.net"]);
  });
});

describe("outcomes", () => {
  type Case = [
    name: string,
    services: Service[],
    script: Record<string, AttemptOutcome[]>,
    expected: { asked: string[]; code: string; mode?: string; retries?: number },
    more?: Partial<DeliveryFacts>,
  ];
  const [i, i2, r, c, c2] = [
    "https://i.net",
    "https://i2.net",
    "https://r.net",
    "https://c.net",
    "https://c2.net",
  ];
  const cases: Case[] = [
    [
      "an inbox accepts",
      [inbox(i), cache(c)],
      { [i]: [status(204)] },
      { asked: [i], code: "delivered" },
    ],
    [
      "a live session acknowledges",
      [inbox(i)],
      { live: [acked] },
      { asked: ["live"], code: "delivered" },
      { live: true },
    ],
    [
      "a silent session falls through",
      [inbox(i)],
      { live: [silent], [i]: [status(200)] },
      { asked: ["live", i], code: "delivered" },
      { live: true },
    ],
    [
      "404 goes on",
      [inbox(i, i2)],
      { [i]: [status(404)], [i2]: [status(200)] },
      { asked: [i, i2], code: "delivered" },
    ],
    [
      "410 goes on",
      [inbox(i), cache(c)],
      { [i]: [status(410)], [c]: [kept("c")] },
      { asked: [i, c], code: "cached" },
    ],
    [
      "400 is the recipient's refusal",
      [inbox(i, i2), cache(c)],
      { [i]: [status(400)] },
      { asked: [i], code: "not_deliverable" },
    ],
    [
      "451 too",
      [inbox(i), cache(c)],
      { [i]: [status(451)] },
      { asked: [i], code: "not_deliverable" },
    ],
    [
      "429 is retried",
      [inbox(i)],
      { [i]: [status(429), status(200)] },
      { asked: [i, i], code: "delivered", retries: 1 },
    ],
    [
      "408 and 425 are retried",
      [inbox(i)],
      { [i]: [status(408), status(425), status(200)] },
      { asked: [i, i, i], code: "delivered", retries: 2 },
    ],
    [
      "500 is retried, then the Cache",
      [inbox(i), cache(c)],
      { [i]: [status(500)], [c]: [kept("c")] },
      { asked: [i, i, i, c], code: "cached", retries: 2 },
    ],
    [
      "a redirect is not a delivery",
      [inbox(i)],
      { [i]: [failure("invalid_answer")] },
      { asked: [i, i, i], code: "destination_unavailable", retries: 2 },
    ],
    [
      "a refused address is not retried",
      [inbox(i), cache(c)],
      { [i]: [blocked], [c]: [kept("c")] },
      { asked: [i, c], code: "cached", retries: 0 },
    ],
    [
      "an open circuit is not retried",
      [inbox(i), cache(c)],
      { [i]: [failure("destination_unavailable", { giveUp: true })], [c]: [kept("c")] },
      { asked: [i, c], code: "cached", retries: 0 },
    ],
    [
      "a forward succeeds",
      [relay(r), cache(c)],
      { [r]: [status(202)] },
      { asked: [r], code: "forwarded" },
    ],
    [
      "a Relay's 4xx goes on",
      [relay(r), cache(c)],
      { [r]: [status(403)], [c]: [kept("c")] },
      { asked: [r, c], code: "cached", retries: 0 },
    ],
    [
      "nobody is there",
      [inbox(i)],
      {},
      { asked: [i, i, i], code: "destination_unavailable", retries: 2 },
    ],
    [
      "only timeouts",
      [inbox(i)],
      { [i]: [timedOut] },
      { asked: [i, i, i], code: "upstream_timeout", retries: 2 },
    ],
    [
      "timeouts and a dead one",
      [inbox(i, i2)],
      { [i]: [timedOut], [i2]: [unreachable] },
      { asked: [i, i, i, i2, i2, i2], code: "destination_unavailable", retries: 4 },
    ],
    [
      "only refused addresses",
      [inbox(i), cache(c)],
      { [i]: [blocked], [c]: [blocked] },
      { asked: [i, c], code: "not_deliverable" },
    ],
    [
      "gone and refused",
      [inbox(i, i2)],
      { [i]: [status(410)], [i2]: [blocked] },
      { asked: [i, i2], code: "not_deliverable" },
    ],
    [
      "the Cache answers 4xx",
      [inbox(i), cache(c)],
      { [i]: [unreachable], [c]: [status(403)] },
      { asked: [i, i, i, c], code: "not_deliverable", retries: 2 },
    ],
    [
      "the Cache answers 507",
      [cache(c)],
      { [c]: [status(507)] },
      { asked: [c, c, c], code: "cache_unavailable", retries: 2 },
    ],
    [
      "the Cache times out",
      [cache(c)],
      { [c]: [timedOut] },
      { asked: [c, c, c], code: "upstream_timeout", retries: 2 },
    ],
    [
      "one Cache refuses, one is down",
      [cache(c, c2)],
      { [c]: [status(404)], [c2]: [unreachable] },
      { asked: [c, c2, c2, c2], code: "cache_unavailable", retries: 2 },
    ],
    [
      "a refused Cache address after a dead inbox",
      [inbox(i), cache(c)],
      { [i]: [unreachable], [c]: [blocked] },
      { asked: [i, i, i, c], code: "destination_unavailable" },
    ],
    ["no service at all", [], {}, { asked: [], code: "service_not_found" }],
    [
      "only this Relay, and nobody connected",
      [relay("https://self.net")],
      {},
      { asked: [], code: "not_deliverable" },
    ],
    [
      "only a Cache, hint direct",
      [cache(c)],
      {},
      { asked: [], code: "not_deliverable" },
      { hint: "direct" },
    ],
    [
      "hint cache without a Cache",
      [inbox(i)],
      {},
      { asked: [], code: "service_not_found" },
      { hint: "cache" },
    ],
    [
      "an expired envelope",
      [inbox(i)],
      {},
      { asked: [], code: "message_expired" },
      { expiresAtMs: 1_000 },
    ],
    ["one copy is enough", [cache(c, c2)], { [c]: [kept("c")] }, { asked: [c], code: "cached" }],
    [
      "two copies",
      [cache(c, c2)],
      { [c]: [kept("c")], [c2]: [kept("c2")] },
      { asked: [c, c2], code: "cached" },
      { replication: 2 },
    ],
    [
      "two copies, one Cache down",
      [cache(c, c2)],
      { [c]: [unreachable], [c2]: [kept("c2")] },
      { asked: [c, c, c, c2], code: "cached" },
      { replication: 2 },
    ],
  ];
  test.each(cases.map((row) => [row[0], row] as const))(
    "%s",
    async (_name, [, services, script, expected, more]) => {
      const run = await play(facts(services, more), script);
      expect(run.asked).toEqual(expected.asked);
      expect(run.result.code).toBe(expected.code as DeliveryResult["code"]);
      if (expected.retries !== undefined) expect(run.result.retry_count).toBe(expected.retries);
      expect(run.result.cache_attempted).toBe(
        expected.asked.some((asked) => asked.includes("//c")),
      );
      if (!run.result.success) expect(run.result.ndr?.attempts.length).toBe(expected.asked.length);
    },
  );

  test("the channel, the receipt and its copies are reported", async () => {
    expect((await play(facts([inbox(i)]), { [i]: [status(200)] })).result.details).toEqual({
      channel: "inbox",
    });
    expect(
      (await play(facts([inbox(i)], { live: true }), { live: [acked] })).result.details,
    ).toEqual({
      channel: "live",
    });
    expect((await play(facts([cache(c)]), { [c]: [kept("c")] })).result.cache_result).toEqual({
      accepted: true,
      copy: "c",
    });
    const two = await play(facts([cache(c, c2)], { replication: 2 }), {
      [c]: [kept("c")],
      [c2]: [kept("c2")],
    });
    expect(two.result.cache_result).toEqual({ accepted: true, copy: "c", copies: 2 });
  });

  test("a failure reports every attempt, by scheme and host only", async () => {
    const endpoint = "https://i.net/secret/path?token=1";
    const { result } = await play(facts([inbox(endpoint)]), { [endpoint]: [status(400)] });
    expect(result.ndr).toEqual({
      message_id: messageId,
      recipient,
      reason: "not_deliverable",
      final: true,
      attempts: [
        {
          channel: "inbox",
          origin: "https://i.net",
          http_status: 400,
          error: null,
          duration_ms: 1,
        },
      ],
    });
    expect(JSON.stringify(result)).not.toContain("secret");
  });

  test("the refusal of a Cache is in cache_result", async () => {
    const refusal = { code: "policy_denied", message: "no" };
    const { result } = await play(facts([cache(c)]), { [c]: [{ ...status(403), refusal }] });
    expect(result.cache_result).toEqual({ code: "policy_denied", message: "no", http_status: 403 });
  });
});

describe("time", () => {
  test("waits double from 200 ms, and jitter spreads them by half", async () => {
    const waitsAt = async (jitter: number) =>
      (await play(facts([inbox("https://i.net")]), {}, { jitter })).waits;
    expect(await waitsAt(0.5)).toEqual([200, 400]);
    expect([(await waitsAt(0))[0], (await waitsAt(0.999))[0]]).toEqual([100, 300]);
  });

  test("a hanging inbox leaves the Cache its share", async () => {
    const run = await play(
      facts([inbox("https://i.net"), cache("https://c.net")]),
      { "https://i.net": [timedOut], "https://c.net": [kept("c")] },
      { tookMs: 60_000 },
    );
    expect(run.timeouts).toEqual([6_000, 4_000]);
    expect(run.result.code).toBe("cached");
  });

  test("a silent session does not use up the time of the requests", async () => {
    const run = await play(
      facts([inbox("https://i.net")], { live: true }),
      { live: [silent], "https://i.net": [timedOut] },
      { tookMs: 60_000 },
    );
    expect(run.timeouts).toEqual([5_000, 10_000]);
  });

  test("no attempt lasts longer than the envelope lives", async () => {
    const run = await play(
      facts([inbox("https://i.net")], { expiresAtMs: 1_700 }),
      { "https://i.net": [timedOut] },
      { tookMs: 60_000 },
    );
    expect(run.timeouts).toEqual([700]);
    expect(run.result.code).toBe("upstream_timeout");
  });

  test("when a wait took longer than planned, the answer before it still counts", async () => {
    const { result } = await play(facts([inbox("https://i.net")]), {}, { lateMs: 60_000 });
    expect(result).toMatchObject({ code: "destination_unavailable", retry_count: 0 });
  });
});
