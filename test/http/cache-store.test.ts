/**
 * POST /cache/store: the receipt, every refusal in its order, repeats, chunks, quotas and policies.
 */
import { describe, expect, test } from "bun:test";
import { utf8 } from "../../src/core/codec/bytes.ts";
import type { JsonObject } from "../../src/core/codec/json.ts";
import { hourMs, minuteMs } from "../../src/core/codec/time.ts";
import { isFault } from "../../src/core/fault.ts";
import { decodeEnvelope } from "../../src/core/message/envelope.ts";
import { StoreError } from "../../src/storage/contract.ts";
import {
  bytesOfJson,
  cachesKnowing,
  chunkTo,
  createPerson,
  createTestCache,
  envelopeTo,
  outcomeOf,
  proofHeaders,
  signedBy,
  type TestCache,
  testNowMs,
  uuidOf,
} from "../support/cache-node.ts";
import { policyOf } from "../support/policies.ts";
import { limitsDefault } from "../support/settings.ts";

const bob = createPerson(1);
const alice = createPerson(2);

const cacheFor = cachesKnowing(bob);

describe("the receipt", () => {
  test("has exactly the members and values of the interface", async () => {
    const node = await cacheFor();
    const response = await node.store(envelopeTo(bob, 1));
    expect(response.status).toBe(202);
    expect(response.headers.get("content-type")).toBe("application/json");
    expect(await response.json()).toEqual({
      accepted: true,
      deduped: false,
      message_id: uuidOf(1),
      recipient: bob.did,
      expires_at: "2026-07-17T12:00:00.000Z",
      max_ttl: "PT48H",
      applied_ttl: "PT24H",
      chunked: false,
      proof: {
        event_type: "delivery",
        message_id: uuidOf(1),
        recipient_did: bob.did,
        timestamp: "2026-07-16T12:00:00.000Z",
        reason: null,
        signature: null,
      },
    });
  });

  test("counts the life from the timestamp of the envelope, not from its arrival", async () => {
    const node = await cacheFor();
    const response = await node.store(
      envelopeTo(bob, 1, { timestamp: "2026-07-16T11:30:00Z", ttl: "1h" }),
    );
    expect(await response.json()).toMatchObject({
      expires_at: "2026-07-16T12:30:00.000Z",
      applied_ttl: "PT1H",
    });
  });

  test.each([
    ["1h", undefined, "PT1H", "PT48H"],
    ["30d", undefined, "PT48H", "PT48H"],
    ["P1DT12H", undefined, "PT36H", "PT48H"],
    [undefined, 600, "PT1H", "PT1H"],
    ["30m", 600, "PT30M", "PT1H"],
    ["7d", 432_000, "PT48H", "PT48H"],
  ] as const)(
    "applies ttl %p under a policy of %p blocks",
    async (ttl, blocks, applied, longest) => {
      const node = await cacheFor();
      if (blocks !== undefined)
        node.recipients.policies.set(
          `recipient:${bob.did}`,
          policyOf({ effectiveTtlBlocks: blocks }),
        );
      const receipt = (await (
        await node.store(envelopeTo(bob, 1, ttl === undefined ? {} : { ttl }))
      ).json()) as JsonObject;
      expect([receipt["applied_ttl"], receipt["max_ttl"]]).toEqual([applied, longest]);
    },
  );

  test("says chunked for a chunk and answers ids in lower case", async () => {
    const node = await cacheFor();
    const chunk = {
      ...chunkTo(bob, 1, { group: 9, sequence: 0, total: 2 }),
      message_id: uuidOf(0xab).toUpperCase(),
    };
    expect(await (await node.store(chunk)).json()).toMatchObject({
      chunked: true,
      message_id: uuidOf(0xab),
    });
  });

  test("takes both alternate names", async () => {
    const node = await cacheFor();
    const { to, timestamp, ...rest } = envelopeTo(bob, 1);
    expect(
      (await node.store({ ...rest, recipient: to as string, created_at: timestamp as string }))
        .status,
    ).toBe(202);
  });
});

type Row = {
  name: string;
  outcome: string;
  envelope?: JsonObject;
  prepare?: (node: TestCache) => void;
};

const elsewhere = createPerson(3, [{ serviceEndpoint: ["https://other.example"] }]);
const inboxOnly = createPerson(4, [{ type: "SvcInboxService" }]);
const manyCaches = createPerson(5, [
  { serviceEndpoint: ["https://other.example", "https://cache.example//"], authorization: null },
]);

const refusals: Row[] = [
  {
    name: "an envelope that breaks a rule",
    envelope: envelopeTo(bob, 1, { colour: "red" }),
    outcome: "400 envelope_invalid",
  },
  {
    name: "a timestamp too far ahead",
    envelope: envelopeTo(bob, 1, { timestamp: String(testNowMs + 5 * minuteMs + 1) }),
    outcome: "400 envelope_invalid",
  },
  {
    name: "an expired message",
    envelope: envelopeTo(bob, 1, { timestamp: String(testNowMs - 24 * hourMs) }),
    outcome: "422 message_expired",
  },
  {
    name: "a message that its own short ttl has ended",
    envelope: envelopeTo(bob, 1, { timestamp: String(testNowMs - 1_000), ttl: "1s" }),
    outcome: "422 message_expired",
  },
  {
    name: "a message that the policy's ttl has ended",
    envelope: envelopeTo(bob, 1, { timestamp: String(testNowMs - hourMs) }),
    prepare: (node) =>
      node.recipients.policies.set(`recipient:${bob.did}`, policyOf({ effectiveTtlBlocks: 600 })),
    outcome: "422 message_expired",
  },
  {
    name: "an unknown recipient",
    envelope: envelopeTo(alice, 1),
    outcome: "404 recipient_not_found",
  },
  {
    name: "a deactivated recipient",
    prepare: (node) => node.recipients.add(bob, { deactivated: true }),
    outcome: "422 did_deactivated",
  },
  {
    name: "a recipient without a document",
    prepare: (node) => node.recipients.add(bob, { document: null }),
    outcome: "404 recipient_not_found",
  },
  {
    name: "a recipient at another Cache",
    envelope: envelopeTo(elsewhere, 1),
    prepare: (node) => node.recipients.add(elsewhere),
    outcome: "404 service_not_found",
  },
  {
    name: "a recipient with another kind of service here",
    envelope: envelopeTo(inboxOnly, 1),
    prepare: (node) => node.recipients.add(inboxOnly),
    outcome: "404 service_not_found",
  },
  {
    name: "an unknown sender",
    envelope: signedBy(alice, envelopeTo(bob, 1)),
    outcome: "403 sender_signature_invalid",
  },
  {
    name: "a changed signed envelope",
    envelope: { ...signedBy(alice, envelopeTo(bob, 1)), ttl: "1h" },
    prepare: (node) => node.recipients.add(alice),
    outcome: "403 sender_signature_invalid",
  },
  {
    name: "a deactivated sender",
    envelope: signedBy(alice, envelopeTo(bob, 1)),
    prepare: (node) => node.recipients.add(alice, { deactivated: true }),
    outcome: "403 sender_signature_invalid",
  },
  {
    name: "a policy without Cache",
    prepare: (node) =>
      node.recipients.policies.set(`recipient:${bob.did}`, policyOf({ cacheEligible: false })),
    outcome: "403 policy_denied",
  },
  {
    name: "a listed tag whose policy permits no Cache",
    envelope: envelopeTo(bob, 1, { tag: "t" }),
    prepare: (node) => {
      node.recipients.add(bob, {
        links: { recipientPolicy: null, tagPolicies: ["t"], personaPolicies: [] },
      });
      node.recipients.policies.set("tag:t", policyOf({ cacheEligible: false }));
    },
    outcome: "403 policy_denied",
  },
  {
    name: "a tag that is not admitted",
    envelope: envelopeTo(bob, 1, { tag: "t" }),
    prepare: (node) =>
      node.recipients.add(bob, {
        links: { recipientPolicy: null, tagPolicies: ["u"], personaPolicies: [] },
      }),
    outcome: "403 policy_denied",
  },
  {
    name: "a payload above the policy",
    prepare: (node) =>
      node.recipients.policies.set(`recipient:${bob.did}`, policyOf({ maxMessageBytes: 4 })),
    outcome: "413 too_large",
  },
  {
    name: "the hint direct",
    envelope: envelopeTo(bob, 1, { delivery_hint: "direct" }),
    outcome: "422 not_deliverable",
  },
  {
    name: "a source that can't be reached",
    prepare: (node) => {
      node.recipients.reachable = false;
    },
    outcome: "503 service_unavailable",
  },
];

describe("refusals", () => {
  test.each(refusals)("$name: $outcome", async ({ envelope, prepare, outcome }) => {
    const node = await cacheFor();
    prepare?.(node);
    expect(await outcomeOf(node.store(envelope ?? envelopeTo(bob, 1)))).toBe(outcome);
    expect(await node.mailbox.stats(testNowMs)).toEqual({ entries: 0, bytes: 0 });
  });

  test("come as problem+json with the pointers of an input error", async () => {
    const node = await cacheFor();
    const response = await node.store(envelopeTo(bob, 1, { tag: "" }));
    expect(response.headers.get("content-type")).toBe("application/problem+json");
    expect(await response.json()).toMatchObject({
      code: "envelope_invalid",
      errors: [{ pointer: "/tag" }],
    });
  });

  test("hold the order: size, shape, time, recipient, service, sender, policy, size by policy, hint", async () => {
    const node = await cacheFor({ limits: { body_bytes_max: 1_200 } });
    const at = (change: JsonObject) => outcomeOf(node.store(envelopeTo(alice, 1, change)));
    const wrong: JsonObject = {
      timestamp: String(testNowMs - 48 * hourMs),
      delivery_hint: "direct",
      ...forgedSender(),
    };
    expect(await at({ ...wrong, colour: "x".repeat(1_200) })).toBe("413 too_large");
    expect(await at({ ...wrong, colour: "x" })).toBe("400 envelope_invalid");
    expect(await at(wrong)).toBe("422 message_expired");
    const timely = { ...wrong, timestamp: String(testNowMs) };
    expect(await at(timely)).toBe("404 recipient_not_found");
    const closed = createPerson(2, [{ serviceEndpoint: ["https://other.example"] }]);
    node.recipients.add(closed, { deactivated: true });
    expect(await at(timely)).toBe("422 did_deactivated");
    node.recipients.add(closed);
    expect(await at(timely)).toBe("404 service_not_found");
    node.recipients.add(alice);
    node.recipients.policies.set(
      `recipient:${alice.did}`,
      policyOf({ cacheEligible: false, maxMessageBytes: 1 }),
    );
    expect(await at(timely)).toBe("403 sender_signature_invalid");
    const unsigned = { timestamp: String(testNowMs), delivery_hint: "direct" };
    expect(await at(unsigned)).toBe("403 policy_denied");
    node.recipients.policies.set(`recipient:${alice.did}`, policyOf({ maxMessageBytes: 1 }));
    expect(await at(unsigned)).toBe("413 too_large");
    node.recipients.policies.clear();
    expect(await at(unsigned)).toBe("422 not_deliverable");
    expect(await at({})).toBe("202 ok");
  });

  test("ask no source about an envelope that is refused by itself", async () => {
    const node = await cacheFor();
    await node.store(envelopeTo(bob, 1, { timestamp: String(testNowMs - 48 * hourMs) }));
    await node.store("{");
    expect(node.recipients.asked).toBe(0);
  });
});

function forgedSender(): JsonObject {
  const { from, sender_key_id, sender_signature } = signedBy(bob, envelopeTo(bob, 1));
  return {
    from: from as string,
    sender_key_id: sender_key_id as string,
    sender_signature: sender_signature as string,
  };
}

describe("admission", () => {
  test("finds the Cache among several endpoints, whoever the service authorizes", async () => {
    const node = await createTestCache();
    node.recipients.add(manyCaches);
    expect((await node.store(envelopeTo(manyCaches, 1))).status).toBe(202);
  });

  test("takes a signed envelope of a known sender, also when signatures are required", async () => {
    const node = await cacheFor({ require_sender_signature: true });
    node.recipients.add(alice);
    expect(await outcomeOf(node.store(signedBy(alice, envelopeTo(bob, 1))))).toBe("202 ok");
    expect(await outcomeOf(node.store(envelopeTo(bob, 2)))).toBe("403 sender_signature_invalid");
  });

  test("follows the link to another DID's recipient policy", async () => {
    const node = await createTestCache();
    node.recipients.add(bob, {
      links: { recipientPolicy: alice.did, tagPolicies: [], personaPolicies: [] },
    });
    node.recipients.policies.set(`recipient:${bob.did}`, policyOf({ cacheEligible: true }));
    node.recipients.policies.set(`recipient:${alice.did}`, policyOf({ cacheEligible: false }));
    expect(await outcomeOf(node.store(envelopeTo(bob, 1)))).toBe("403 policy_denied");
  });

  test("takes an admitted tag, and an envelope without a tag beside a list of tags", async () => {
    const node = await createTestCache();
    node.recipients.add(bob, {
      links: { recipientPolicy: null, tagPolicies: ["orders"], personaPolicies: [] },
    });
    expect((await node.store(envelopeTo(bob, 1, { tag: "orders" }))).status).toBe(202);
    expect((await node.store(envelopeTo(bob, 2))).status).toBe(202);
  });
});

describe("repeats", () => {
  test("answer deduped with the first entry's expiry and life", async () => {
    const node = await cacheFor();
    await node.store(envelopeTo(bob, 1, { ttl: "1h" }));
    const again = await node.store(envelopeTo(bob, 1, { ttl: "2h" }));
    expect(again.status).toBe(202);
    expect(await again.json()).toMatchObject({
      accepted: true,
      deduped: true,
      expires_at: "2026-07-16T13:00:00.000Z",
      applied_ttl: "PT1H",
    });
    expect((await node.mailbox.stats(testNowMs)).entries).toBe(1);
  });

  test("are per recipient", async () => {
    const node = await cacheFor();
    node.recipients.add(alice);
    await node.store(envelopeTo(bob, 1));
    expect(await (await node.store(envelopeTo(alice, 1))).json()).toMatchObject({ deduped: false });
  });

  test("of 20 concurrent stores exactly one is not deduped", async () => {
    const node = await cacheFor();
    const receipts = await Promise.all(
      Array.from({ length: 20 }, () => node.store(envelopeTo(bob, 1)).then((r) => r.json())),
    );
    expect(receipts.filter((receipt) => (receipt as JsonObject)["deduped"] === false)).toHaveLength(
      1,
    );
    expect(node.stored).toEqual([bob.did]);
  });
});

describe("chunks", () => {
  test("that contradict their group are refused with 409", async () => {
    const node = await cacheFor();
    expect((await node.store(chunkTo(bob, 1, { group: 9, sequence: 0, total: 3 }))).status).toBe(
      202,
    );
    const conflict = (number: number, sequence: number, total: number) =>
      outcomeOf(node.store(chunkTo(bob, number, { group: 9, sequence, total })));
    expect(await conflict(2, 0, 3)).toBe("409 chunk_conflict");
    expect(await conflict(2, 1, 4)).toBe("409 chunk_conflict");
    expect(await conflict(2, 1, 3)).toBe("202 ok");
    expect(await conflict(2, 1, 3)).toBe("202 ok");
  });

  test("of the same group id for another recipient are another group", async () => {
    const node = await cacheFor();
    node.recipients.add(alice);
    await node.store(chunkTo(bob, 1, { group: 9, sequence: 0, total: 3 }));
    expect((await node.store(chunkTo(alice, 2, { group: 9, sequence: 0, total: 5 }))).status).toBe(
      202,
    );
  });
});

describe("quotas", () => {
  test("of a recipient answer 507 mailbox_full and evict nothing", async () => {
    const node = await cacheFor({ recipient_entries_max: 2 });
    node.recipients.add(alice);
    await node.store(envelopeTo(bob, 1));
    await node.store(envelopeTo(bob, 2));
    expect(await outcomeOf(node.store(envelopeTo(bob, 3)))).toBe("507 mailbox_full");
    expect(await outcomeOf(node.store(envelopeTo(bob, 1)))).toBe("202 ok");
    expect(await outcomeOf(node.store(envelopeTo(alice, 3)))).toBe("202 ok");
    expect((await node.mailbox.stats(testNowMs)).entries).toBe(3);
    const refuse = async (ms: number) => {
      node.clock.nowMs += ms;
      await node.store(envelopeTo(bob, 4));
      return node.cacheLines.map(({ message, fields }) => [message, fields?.["scope"]].join());
    };
    expect(await refuse(59_999)).toEqual(["a mailbox refuses envelopes,mailbox"]);
    expect(await refuse(1)).toHaveLength(2);
  });

  test("in bytes count the envelope", async () => {
    const bytes = bytesOfJson(envelopeTo(bob, 1)).length;
    const node = await cacheFor({ recipient_bytes_max: 2 * bytes - 1 });
    expect(await outcomeOf(node.store(envelopeTo(bob, 1)))).toBe("202 ok");
    expect(await outcomeOf(node.store(envelopeTo(bob, 2)))).toBe("507 mailbox_full");
  });

  test("of the whole store answer 507 storage_full, in the log as one error a minute", async () => {
    const node = await cacheFor({ store_entries_max: 1 });
    node.recipients.add(alice);
    await node.store(envelopeTo(bob, 1));
    for (const to of [alice, bob])
      expect(await outcomeOf(node.store(envelopeTo(to, 2)))).toBe("507 storage_full");
    expect(node.cacheLines.filter(({ level }) => level === "error")).toHaveLength(1);
  });

  test("are exact under concurrency", async () => {
    const node = await cacheFor({ recipient_entries_max: 10 });
    const outcomes = await Promise.all(
      Array.from({ length: 30 }, (_, i) => outcomeOf(node.store(envelopeTo(bob, i + 1)))),
    );
    expect(outcomes.filter((outcome) => outcome === "202 ok")).toHaveLength(10);
    expect(outcomes.filter((outcome) => outcome === "507 mailbox_full")).toHaveLength(20);
  });

  test("a store without room answers 507, one that can't be reached 503", async () => {
    for (const [code, outcome] of [
      ["full", "507 storage_full"],
      ["unavailable", "503 service_unavailable"],
      ["closed", "503 shutting_down"],
    ] as const) {
      const failing = () => Promise.reject(new StoreError(code, "test"));
      const node = await cacheFor({ wrap: () => ({ store: failing }) });
      expect(await outcomeOf(node.store(envelopeTo(bob, 1)))).toBe(outcome);
      const counted = code === "full" ? 1 : 0;
      const text = await node.cacheMetrics.render();
      expect(text).toContain(`cache_share_refusals_total{scope="disk"} ${counted}`);
    }
  });
});

describe("what is stored", () => {
  test("is the sender's text with the names to and timestamp", async () => {
    const node = await cacheFor();
    const { to, timestamp } = envelopeTo(bob, 1);
    const text = `{ "created_at":"${timestamp}",\n "payload" : {"n": 1.50, "é":"\\u0041"}, "recipient":"${to}","message_id":"${uuidOf(1)}"}`;
    expect((await node.store(text)).status).toBe(202);
    const answer = await (await node.read(`/cache/messages/${bob.did}`, proofHeaders(bob))).text();
    expect(answer).toContain(text.replace("created_at", "timestamp").replace("recipient", "to"));
  });
});

describe("the store of the Relay in the same process", () => {
  const decode = (envelope: JsonObject) => {
    const decoded = decodeEnvelope(bytesOfJson(envelope), limitsDefault);
    if (isFault(decoded)) throw new Error(decoded.detail);
    return decoded;
  };

  const submitted = { client: "192.0.2.7", network: "c0000207", nowMs: testNowMs };

  test("answers the same receipt and the same refusals as the route", async () => {
    const node = await cacheFor();
    const other = await cacheFor();
    const stored = await node.cache.store(decode(envelopeTo(bob, 1)), submitted);
    expect(stored).toEqual(await (await other.store(envelopeTo(bob, 1))).json());
    for (const { envelope, prepare, outcome } of refusals.filter(
      (row) => !/400 envelope_invalid|503/.test(row.outcome),
    )) {
      const fresh = await cacheFor();
      prepare?.(fresh);
      const refused = await fresh.cache.store(decode(envelope ?? envelopeTo(bob, 1)), submitted);
      expect(isFault(refused) && `${refused.status} ${refused.code}`).toBe(outcome as never);
    }
  });
});

describe("the body", () => {
  test("is refused beyond its limit before it is parsed, and when it is not JSON", async () => {
    const node = await cacheFor({ limits: { body_bytes_max: 1_000 } });
    expect(await outcomeOf(node.store("x".repeat(1_001)))).toBe("413 too_large");
    expect(await outcomeOf(node.store("{"))).toBe("400 invalid_json");
    expect(await outcomeOf(node.store('{"a":1,"a":2}'))).toBe("400 invalid_json");
  });

  test("needs its media type, and the route its method", async () => {
    const node = await cacheFor();
    const ask = (init: RequestInit) => outcomeOf(node.ask("/cache/store", init));
    const body = utf8(JSON.stringify(envelopeTo(bob, 1))) as BodyInit;
    expect(await ask({ method: "POST", headers: { "content-type": "text/plain" }, body })).toBe(
      "415 unsupported_media_type",
    );
    expect(await ask({ method: "GET" })).toBe("405 method_not_allowed");
  });
});

test("limits of the node are the interface's and its own", async () => {
  const { cache } = await createTestCache();
  expect(cache.limits()).toEqual({
    max_http_body_bytes: 26_214_400,
    max_unchunked_bytes: 16_777_216,
    max_chunk_bytes: 2_097_152,
    max_header_bytes: 4_096,
    default_ttl: "PT24H",
    max_ttl: "PT48H",
    max_clock_skew_seconds: 300,
    store_rate_per_second: 1e6,
    store_burst: 1e6,
    max_mailbox_entries: 10_000,
    max_mailbox_bytes: 268_435_456,
    max_retrieval_entries: 1_000,
    max_retrieval_bytes: 64 * 1_048_576,
    max_page_entries: 100,
    max_page_bytes: 1_048_576,
    max_summary_ids: 1_000,
    max_ack_ids: 1_000,
  });
});
