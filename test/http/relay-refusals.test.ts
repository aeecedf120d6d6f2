/** POST /relay and /relay/{did}: every refusal in its order, every failure, the rate limits. */
import { afterEach, describe, expect, test } from "bun:test";
import type { JsonObject } from "../../src/core/codec/json.ts";
import type { Service } from "../../src/core/ledger/account.ts";
import { StoreError } from "../../src/storage/contract.ts";
import {
  cacheEndpoint,
  createPerson,
  envelopeTo,
  type Person,
  signedBy,
  testNowMs,
  uuidOf,
} from "../support/cache-node.ts";
import { policyOf } from "../support/policies.ts";
import {
  type SendMore,
  type TestRelay,
  type TestRelayOptions,
  withoutTo,
} from "../support/relay-node.ts";
import {
  alice,
  cacheAt,
  cleanUp,
  deadUrl,
  inboxAt,
  inboxFor,
  knownBob,
  relayFor,
  status,
} from "./relay-scenario.ts";

afterEach(cleanUp);

describe("refusals", () => {
  type Case = {
    readonly name: string;
    readonly expected: [status: number, code: string];
    readonly envelope?: JsonObject | string;
    readonly more?: SendMore;
    readonly stage?: (relay: TestRelay, bob: Person) => void;
    readonly given?: TestRelayOptions;
  };
  const bob = createPerson(1, [inboxAt("http://127.0.0.1:1/")]);
  const good = envelopeTo(bob, 1);
  const iso = (ms: number) => new Date(testNowMs + ms).toISOString();
  const forged = { ...signedBy(alice, good), payload: { ciphertext_b64: "AAAA" } };
  const chunk = {
    message_group_id: uuidOf(9),
    sequence_number: 0,
    total_chunks: 2,
    delivery_hint: "chunked",
  };
  const header = {
    encrypted_header: "AAAA",
    header_nonce: "AAAA",
    header_key_id: "k",
    schema_version: "1",
  };
  const admission = (settings: NonNullable<TestRelayOptions["settings"]>) => ({ settings });
  const cases: Case[] = [
    { name: "no JSON", expected: [400, "invalid_json"], envelope: "{" },
    { name: "duplicate names", expected: [400, "invalid_json"], envelope: `{"to":"a","to":"b"}` },
    { name: "a list", expected: [400, "envelope_invalid"], envelope: "[]" },
    {
      name: "a missing member",
      expected: [400, "envelope_invalid"],
      envelope: { ...good, payload: undefined as never },
    },
    {
      name: "an unknown member",
      expected: [400, "envelope_invalid"],
      envelope: { ...good, extra: 1 },
    },
    {
      name: "both names of one member",
      expected: [400, "envelope_invalid"],
      envelope: { ...good, recipient: bob.did },
    },
    {
      name: "a malformed DID",
      expected: [400, "envelope_invalid"],
      envelope: { ...good, to: "did:key:abc" },
    },
    {
      name: "a malformed UUID",
      expected: [400, "envelope_invalid"],
      envelope: { ...good, message_id: "1" },
    },
    {
      name: "a malformed ttl",
      expected: [400, "envelope_invalid"],
      envelope: { ...good, ttl: "soon" },
    },
    {
      name: "half a header",
      expected: [400, "envelope_invalid"],
      envelope: { ...good, encrypted_header: "AAAA" },
    },
    {
      name: "half of the chunk members",
      expected: [400, "envelope_invalid"],
      envelope: { ...good, total_chunks: 2 },
    },
    {
      name: "an envelope from the future",
      expected: [400, "envelope_invalid"],
      envelope: { ...good, timestamp: iso(301_000) },
    },
    { name: "a malformed path", expected: [400, "invalid_did"], more: { path: "/relay/nobody" } },
    {
      name: "another recipient in the path",
      expected: [400, "recipient_mismatch"],
      more: { path: `/relay/${encodeURIComponent(alice.did)}` },
    },
    {
      name: "malformed hops",
      expected: [400, "invalid_request"],
      more: { headers: { "svc-hops": "-1" } },
    },
    {
      name: "another content type",
      expected: [415, "unsupported_media_type"],
      more: { headers: { "content-type": "text/plain" } },
    },
    {
      name: "an expired envelope",
      expected: [422, "message_expired"],
      envelope: { ...good, timestamp: iso(-3_600_000), ttl: "1h" },
    },
    {
      name: "an envelope that the policy lets live for a shorter time",
      expected: [422, "message_expired"],
      envelope: { ...good, timestamp: iso(-60_000) },
      stage: (relay) =>
        relay.recipients.policies.set(`recipient:${bob.did}`, policyOf({ effectiveTtlBlocks: 10 })),
    },
    {
      name: "an unknown recipient",
      expected: [404, "recipient_not_found"],
      stage: (relay) => relay.recipients.subjects.clear(),
    },
    {
      name: "a deactivated recipient",
      expected: [422, "did_deactivated"],
      stage: (relay) => relay.recipients.add(bob, { deactivated: true }),
    },
    {
      name: "a recipient without services",
      expected: [404, "service_not_found"],
      stage: (relay) =>
        relay.recipients.add({ ...bob, document: { ...bob.document, service: [] } }),
    },
    {
      name: "a recipient without a document",
      expected: [404, "service_not_found"],
      stage: (relay) => relay.recipients.add(bob, { document: null }),
    },
    {
      name: "a forged sender signature",
      expected: [403, "sender_signature_invalid"],
      envelope: forged,
    },
    {
      name: "an unknown sender",
      expected: [403, "sender_signature_invalid"],
      envelope: signedBy(createPerson(7), good),
    },
    {
      name: "a deactivated sender",
      expected: [403, "sender_signature_invalid"],
      envelope: signedBy(alice, good),
      stage: (relay) => relay.recipients.add(alice, { deactivated: true }),
    },
    {
      name: "no signature where one is required",
      expected: [403, "sender_signature_invalid"],
      given: admission({ require_sender_signature: true }),
    },
    {
      name: "a tag that is not admitted",
      expected: [403, "policy_denied"],
      envelope: { ...good, tag: "spam" },
      stage: (relay) =>
        relay.recipients.add(bob, {
          links: { recipientPolicy: null, tagPolicies: ["news"], personaPolicies: [] },
        }),
    },
    {
      name: "a Relay that the persona does not allow",
      expected: [403, "policy_denied"],
      stage: (relay) => {
        relay.recipients.add(bob, {
          links: { recipientPolicy: null, tagPolicies: [], personaPolicies: [alice.did] },
        });
        relay.recipients.personas.set(alice.did, {
          releasePricing: null,
          expirationBehavior: null,
          allowedRelays: ["relay-2"],
        });
      },
    },
    {
      name: "a payload over the recipient's limit",
      expected: [413, "too_large"],
      stage: (relay) =>
        relay.recipients.policies.set(`recipient:${bob.did}`, policyOf({ maxMessageBytes: 4 })),
    },
    {
      name: "a payload over the node's limit",
      expected: [413, "too_large"],
      given: { limits: { unchunked_bytes_max: 4 } },
    },
    {
      name: "a chunk over the node's limit",
      expected: [413, "too_large"],
      envelope: { ...good, ...chunk },
      given: { limits: { chunk_bytes_max: 4 } },
    },
    {
      name: "a header over the node's limit",
      expected: [413, "too_large"],
      envelope: { ...good, ...header },
      given: { limits: { header_bytes_max: 2 } },
    },
    {
      name: "a body over the node's limit",
      expected: [413, "too_large"],
      given: { limits: { body_bytes_max: 64 } },
    },
    {
      name: "recipients that can't be looked up",
      expected: [503, "service_unavailable"],
      stage: (relay) => {
        relay.recipients.reachable = false;
      },
    },
    {
      name: "an unknown path below /relay",
      expected: [404, "not_found"],
      more: { path: "/relay/a/b" },
    },
  ];
  test.each(cases.map((row) => [row.name, row] as const))("%s", async (_name, row) => {
    const relay = await relayFor(row.given);
    relay.recipients.add(bob);
    relay.recipients.add(alice);
    row.stage?.(relay, bob);
    const result = await relay.send(row.envelope ?? good, row.more);
    expect([result.http_status, result.code]).toEqual(row.expected as [number, typeof result.code]);
    expect(result.retry_count).toBe(0);
  });

  test("come in the order of the checks", async () => {
    const relay = await relayFor();
    const links = { recipientPolicy: null, tagPolicies: ["other"], personaPolicies: [] };
    const codes: string[] = [];
    const step = async (envelope: JsonObject) => codes.push((await relay.send(envelope)).code);
    const late = { ...forged, timestamp: iso(-90_000_000) };
    await step({ ...late, extra: 1 });
    await step(late);
    await step(forged);
    relay.recipients.add(bob, { deactivated: true });
    await step(forged);
    relay.recipients.add(bob, { links });
    relay.recipients.add(alice);
    await step(forged);
    await step(signedBy(alice, { ...good, tag: "news" }));
    expect(codes).toEqual([
      "envelope_invalid",
      "message_expired",
      "recipient_not_found",
      "did_deactivated",
      "sender_signature_invalid",
      "policy_denied",
    ]);
  });

  test("a well-signed envelope passes where signatures are required", async () => {
    const relay = await relayFor(admission({ require_sender_signature: true }));
    const inbox = inboxFor();
    const known = knownBob(relay, [inboxAt(inbox.url)]);
    relay.recipients.add(alice);
    expect((await relay.send(signedBy(alice, withoutTo(envelopeTo(known, 1))))).code).toBe(
      "delivered",
    );
  });
});

describe("failures", () => {
  type Case = [
    name: string,
    stage: () => Partial<Service>[],
    expected: [number, string],
    retries: number,
  ];
  const cases: Case[] = [
    [
      "an inbox that refuses",
      () => [inboxAt(inboxFor(status(403)).url), cacheAt(cacheEndpoint)],
      [422, "not_deliverable"],
      0,
    ],
    [
      "an inbox that is gone, and nothing else",
      () => [inboxAt(inboxFor(status(410)).url)],
      [422, "not_deliverable"],
      0,
    ],
    [
      "an inbox at a refused address",
      () => [inboxAt("http://10.0.0.1/")],
      [422, "not_deliverable"],
      0,
    ],
    [
      "an inbox of another scheme",
      () => [inboxAt("ftp://inbox.example/")],
      [422, "not_deliverable"],
      0,
    ],
    ["an inbox that is down", () => [inboxAt(deadUrl())], [502, "destination_unavailable"], 2],
    [
      "an inbox that errs",
      () => [inboxAt(inboxFor(status(500)).url)],
      [502, "destination_unavailable"],
      2,
    ],
    [
      "an inbox that redirects",
      () => [inboxAt(inboxFor(() => Response.redirect("http://127.0.0.1:1/")).url)],
      [502, "destination_unavailable"],
      2,
    ],
    ["a Cache that is down", () => [cacheAt(deadUrl())], [502, "cache_unavailable"], 2],
    [
      "a Cache that is full",
      () => [cacheAt(inboxFor(status(507)).url)],
      [502, "cache_unavailable"],
      2,
    ],
    [
      "a Cache that refuses",
      () => [cacheAt(inboxFor(status(403)).url)],
      [422, "not_deliverable"],
      0,
    ],
  ];
  test.each(cases)("%s", async (_name, stage, expected, retries) => {
    const relay = await relayFor();
    const bob = knownBob(relay, stage());
    const result = await relay.send(envelopeTo(bob, 1));
    expect([result.http_status, result.code]).toEqual(expected as [number, typeof result.code]);
    expect(result.retry_count).toBe(retries);
    expect(result.ndr?.attempts.length).toBe(retries + 1);
    expect(result.ndr).toMatchObject({
      message_id: uuidOf(1),
      recipient: bob.did,
      reason: expected[1],
      final: expected[0] === 422,
    });
    expect(JSON.stringify(result)).not.toContain("/in");
  });

  test("an inbox that never answers is 504", async () => {
    const relay = await relayFor({
      settings: { request_timeout: 100, attempts: 1 },
    });
    const bob = knownBob(relay, [inboxAt(inboxFor(() => new Promise(() => undefined)).url)]);
    const result = await relay.send(envelopeTo(bob, 1));
    expect([result.http_status, result.code]).toEqual([504, "upstream_timeout"]);
  });

  test("a policy without Cache leaves nothing when the inbox is gone", async () => {
    const relay = await relayFor();
    const bob = knownBob(relay, [inboxAt(inboxFor(status(404)).url), cacheAt(cacheEndpoint)]);
    relay.recipients.policies.set(`recipient:${bob.did}`, policyOf({ cacheEligible: false }));
    const result = await relay.send(envelopeTo(bob, 1));
    expect([result.code, result.cache_attempted]).toEqual(["not_deliverable", false]);
  });

  test("the refusals of the Cache of the process are reported", async () => {
    const relay = await relayFor();
    const bob = knownBob(relay, [cacheAt(cacheEndpoint)]);
    const chunk = (id: number, total: number) =>
      envelopeTo(bob, id, {
        message_group_id: uuidOf(9),
        sequence_number: 0,
        total_chunks: total,
        delivery_hint: "chunked",
      });
    expect((await relay.send(chunk(1, 2))).code).toBe("cached");
    expect(await relay.send(chunk(2, 3))).toMatchObject({
      code: "not_deliverable",
      cache_result: { code: "chunk_conflict", http_status: 409 },
    });
  });

  test("a broken store of the Cache is a Cache that is not available", async () => {
    const relay = await relayFor();
    const bob = knownBob(relay, [cacheAt(cacheEndpoint)]);
    const store = relay.cache.mailbox.store;
    relay.cache.mailbox.store = async () => {
      throw new StoreError("full", "no room");
    };
    expect(await relay.send(envelopeTo(bob, 1))).toMatchObject({
      http_status: 502,
      code: "cache_unavailable",
      cache_result: { code: "storage_full", http_status: 507 },
    });
    relay.cache.mailbox.store = store;
    expect((await relay.send(envelopeTo(bob, 1))).code).toBe("cached");
  });
});

describe("rate limits", () => {
  test("hold for a client address, say when to come back, and spare loopback where it is exempt", async () => {
    const settings = {
      client_rate: 1,
      client_burst: 3,
      recipient_rate: 1_000,
      recipient_burst: 1_000,
    };
    const relay = await relayFor({ settings });
    const bob = knownBob(relay, [inboxAt(inboxFor().url)]);
    for (let i = 0; i < 3; i++)
      expect((await relay.send(envelopeTo(bob, i + 1))).code).toBe("delivered");
    const refused = await relay.raw(envelopeTo(bob, 9));
    expect([refused.status, refused.headers.get("retry-after")]).toEqual([429, "1"]);
    relay.clock.nowMs += 1_000;
    expect((await relay.send(envelopeTo(bob, 9))).code).toBe("delivered");
    const codesOf = async (limited: boolean) => {
      const url = (
        await relayFor({ settings: { ...settings, rate_limit_loopback: limited } })
      ).serve();
      const init = { method: "POST", headers: { "content-type": "application/json" }, body: "{}" };
      const asked = Array.from(
        { length: 6 },
        async () => (await fetch(`${url}/relay`, init)).status,
      );
      return (await Promise.all(asked)).sort();
    };
    expect(await codesOf(false)).toEqual([400, 400, 400, 400, 400, 400]);
    expect(await codesOf(true)).toEqual([400, 400, 400, 429, 429, 429]);
  });

  test("count a large envelope once for each 256 KiB", async () => {
    const relay = await relayFor({ settings: { client_rate: 1, client_burst: 8 } });
    const bob = knownBob(relay, [inboxAt(inboxFor().url)]);
    const large = (n: number) =>
      envelopeTo(bob, n, { payload: { ciphertext_b64: "A".repeat(1 << 20) } });
    expect((await relay.send(large(1))).code).toBe("delivered");
    expect((await relay.send(large(2))).code).toBe("delivered");
    expect((await relay.raw(envelopeTo(bob, 3))).headers.get("retry-after")).toBe("3");
  });

  test("shorten how long results are remembered", async () => {
    const relay = await relayFor({ settings: { results_rate: 1, results_burst: 1 } });
    const inbox = inboxFor();
    const bob = knownBob(relay, [inboxAt(inbox.url)]);
    const again = async (n: number) =>
      (await relay.send(envelopeTo(bob, n))).details["deduped"] ?? false;
    for (const n of [1, 2]) expect(await again(n)).toBe(false);
    expect([await again(1), await again(2)]).toEqual([true, true]);
    relay.clock.nowMs += 16 * 60_000;
    // The second was one too many: it is delivered again, as after a crash.
    expect([await again(1), await again(2)]).toEqual([true, false]);
  });

  test("hold for what a client network makes the Relay send to one host", async () => {
    const settings = {
      client_rate: 1,
      client_burst: 4,
      recipient_rate: 1_000,
      recipient_burst: 1_000,
      attempts: 3,
    };
    const relay = await relayFor({ settings, trustedProxies: ["192.0.2.7"] });
    const inbox = inboxFor(status(500));
    const bob = knownBob(relay, [inboxAt(inbox.url)]);
    const codeFrom = async (client: string, n: number) =>
      (await relay.send(envelopeTo(bob, n), { headers: { "x-forwarded-for": client } })).code;
    for (const n of [1, 2, 3])
      expect(await codeFrom("198.51.100.1", n)).toBe("destination_unavailable");
    expect(inbox.bodies.length).toBeLessThanOrEqual(5);
    inbox.answer = () => new Response("ok");
    expect(await codeFrom("203.0.113.9", 4)).toBe("delivered");
  });

  test("hold for a recipient and each client network, and only for what was admitted", async () => {
    const settings = { recipient_rate: 1, recipient_burst: 2 };
    const relay = await relayFor({ settings, trustedProxies: ["192.0.2.7"] });
    relay.recipients.add(alice);
    const bob = knownBob(relay, [inboxAt(inboxFor().url)]);
    let count = 0;
    const codeFrom = async (
      client: string,
      change: (envelope: JsonObject) => JsonObject = (same) => same,
    ) => {
      const envelope = change(envelopeTo(bob, ++count));
      return (await relay.send(envelope, { headers: { "x-forwarded-for": client } })).code;
    };
    const refused = (envelope: JsonObject) => ({
      ...signedBy(alice, envelope),
      payload: { other: 1 },
    });
    for (let i = 0; i < 5; i++)
      expect(await codeFrom("198.51.100.1", refused)).toBe("sender_signature_invalid");
    const codes: string[] = [];
    for (let i = 0; i < 3; i++) codes.push(await codeFrom("198.51.100.1"));
    expect(codes).toEqual(["delivered", "delivered", "rate_limited"]);
    expect(await codeFrom("203.0.113.9")).toBe("delivered");
  });
});
