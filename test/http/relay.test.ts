/** POST /relay and /relay/{did}: every way of delivering, every refusal in its order, every failure. */
import { afterEach, describe, expect, test } from "bun:test";
import { admitEveryone } from "../../src/core/admission.ts";
import { deliveryLimits } from "../../src/core/delivery.ts";
import type { Service } from "../../src/core/document.ts";
import { envelopeLimitsDefault } from "../../src/core/envelope.ts";
import type { JsonObject } from "../../src/core/json.ts";
import type { Subject } from "../../src/nodes/recipients.ts";
import { StoreError } from "../../src/storage/contract.ts";
import { listenForTest } from "../support/app.ts";
import {
  cacheEndpoint,
  createPerson,
  createTestCache,
  envelopeTo,
  type Person,
  policyOf,
  signedBy,
  testNowMs,
  uuidOf,
} from "../support/cache-node.ts";
import {
  createTestRelay,
  held,
  type Inbox,
  relayEndpoint,
  type SendMore,
  startInbox,
  type TestRelay,
  type TestRelayOptions,
  withoutTo,
} from "../support/relay-node.ts";

const cleanups: (() => unknown)[] = [];
afterEach(async () => {
  for (const cleanup of cleanups.splice(0)) await cleanup();
});

async function relayFor(given: TestRelayOptions = {}): Promise<TestRelay> {
  const relay = await createTestRelay(given);
  cleanups.push(relay.close);
  return relay;
}

function inboxFor(answer?: Inbox["answer"]): Inbox {
  const inbox = startInbox(answer);
  cleanups.push(inbox.stop);
  return inbox;
}

const status = (code: number) => () => new Response("no", { status: code });
const inboxAt = (...urls: string[]): Partial<Service> => ({ type: "SvcInboxService", serviceEndpoint: urls });
const cacheAt = (...urls: string[]): Partial<Service> => ({ serviceEndpoint: urls });
const relayAt = (...urls: string[]): Partial<Service> => ({ type: "SvcRelayService", serviceEndpoint: urls });
const alice = createPerson(2);
/** A port on which nobody listens: taken once and given back. */
function deadUrl(): string {
  const inbox = startInbox();
  inbox.stop();
  return inbox.url;
}

/** Bob, known to the Relay, with these services. */
function knownBob(relay: TestRelay, services: Partial<Service>[], change?: Partial<Subject>): Person {
  const bob = createPerson(1, services);
  relay.recipients.add(bob, change);
  return bob;
}

describe("delivering", () => {
  test("to an inbox, with the envelope's own bytes", async () => {
    const relay = await relayFor();
    const inbox = inboxFor();
    const bob = knownBob(relay, [inboxAt(inbox.url), cacheAt(cacheEndpoint)]);
    const envelope = envelopeTo(bob, 1, { ttl: "1h" });
    expect(await relay.send(envelope)).toEqual({
      success: true,
      delivery_mode: "direct",
      http_status: 200,
      code: "delivered",
      message: expect.any(String),
      retry_count: 0,
      cache_attempted: false,
      cache_result: null,
      ndr: null,
      details: { channel: "inbox" },
    });
    expect(inbox.bodies).toEqual([JSON.stringify(envelope)]);
    expect(await held(relay, bob.did)).toEqual([]);
  });

  test("under the path of the recipient, and with alternate names put right", async () => {
    const relay = await relayFor();
    const inbox = inboxFor();
    const bob = knownBob(relay, [inboxAt(inbox.url)]);
    const envelope = envelopeTo(bob, 1);
    const path = `/relay/${encodeURIComponent(bob.did)}`;
    expect((await relay.send(withoutTo(envelope), { path })).code).toBe("delivered");
    expect(JSON.parse(inbox.bodies[0]!)).toEqual(envelope);
  });

  test("to the Cache of the process when the inbox is down, and only then", async () => {
    const relay = await relayFor();
    const bob = knownBob(relay, [inboxAt(deadUrl()), cacheAt(`${cacheEndpoint}/`)]);
    const result = await relay.send(envelopeTo(bob, 1));
    expect(result).toMatchObject({
      success: true,
      delivery_mode: "cache",
      http_status: 202,
      code: "cached",
      retry_count: 2,
      cache_attempted: true,
      details: {},
    });
    expect(result.cache_result).toMatchObject({
      accepted: true,
      deduped: false,
      message_id: uuidOf(1),
      recipient: bob.did,
    });
    expect(await held(relay, bob.did)).toEqual([uuidOf(1)]);
    expect(relay.sleeps).toEqual([200, 400]);
  });

  test("to a Cache elsewhere over HTTP, which judges by itself", async () => {
    const relay = await relayFor({ noCacheDoor: true });
    const far = listenForTest(relay.cache.app);
    cleanups.push(far.stop);
    // This Cache publishes another endpoint than the one that Bob lists: its refusal is told.
    const bob = knownBob(relay, [cacheAt(far.url)]);
    expect(await relay.send(envelopeTo(bob, 1))).toMatchObject({
      code: "not_deliverable",
      http_status: 422,
      cache_attempted: true,
      cache_result: { code: "service_not_found", http_status: 404 },
    });
  });

  test("to a Cache elsewhere that accepts", async () => {
    const relay = await relayFor({ noCacheDoor: true });
    const slot = inboxFor();
    const endpoint = slot.url.replace("/in", "");
    const there = await createTestCache({ publicEndpoints: [endpoint] });
    const bob = knownBob(relay, [cacheAt(endpoint)]);
    there.recipients.add(bob);
    slot.answer = () => there.store(slot.bodies.at(-1)!);
    const result = await relay.send(envelopeTo(bob, 2));
    expect([result.code, result.http_status]).toEqual(["cached", 202]);
    const repeated = (await (await there.store(envelopeTo(bob, 2))).json()) as object;
    expect(result.cache_result).toEqual({ ...repeated, deduped: false });
  });

  test("through another Relay, once, with one hop more", async () => {
    const relay = await relayFor();
    const inbox = inboxFor();
    const far = await relayFor({ beside: relay, endpoint: "https://far.example" });
    const url = far.serve();
    const bob = knownBob(relay, [relayAt(relayEndpoint, url), inboxAt(inbox.url)]);
    inbox.answer = status(404);
    relay.recipients.add(createPerson(1, [relayAt(relayEndpoint, url), inboxAt(inbox.url), cacheAt(cacheEndpoint)]));
    const result = await relay.send(envelopeTo(bob, 1));
    expect(result).toMatchObject({
      delivery_mode: "forwarded",
      http_status: 202,
      code: "forwarded",
      details: { downstream: { delivery_mode: "cache", code: "cached" } },
    });
    expect(inbox.headers.map((headers) => headers.get("svc-hops"))).toEqual(["1", "2"]);
    expect(await held(relay, bob.did)).toEqual([uuidOf(1)]);
  });

  test("an envelope that has travelled three hops is not forwarded again", async () => {
    const relay = await relayFor();
    const far = inboxFor(() => Response.json({ success: true, code: "delivered" }));
    const bob = knownBob(relay, [relayAt(far.url)]);
    expect((await relay.send(envelopeTo(bob, 1), { headers: { "svc-hops": "2" } })).code).toBe("forwarded");
    expect(far.headers[0]?.get("svc-hops")).toBe("3");
    expect((await relay.send(envelopeTo(bob, 2), { headers: { "svc-hops": "3" } })).code).toBe("not_deliverable");
    expect(far.bodies.length).toBe(1);
  });

  test("two Relays that name each other don't wait for one another", async () => {
    const relay = await relayFor();
    const far = await relayFor({ beside: relay, endpoint: "https://far.example" });
    const urls = [relay.serve(), far.serve()];
    const bob = knownBob(relay, [relayAt(...urls)]);
    const startMs = performance.now();
    const result = await relay.send(envelopeTo(bob, 1));
    expect(result.success).toBe(false);
    expect(performance.now() - startMs).toBeLessThan(3_000);
  });

  test("a Relay or a Cache that says yes without meaning it has taken nothing", async () => {
    const relay = await relayFor({ noCacheDoor: true });
    const liar = inboxFor(() => Response.json({ ok: true }));
    const bob = knownBob(relay, [relayAt(liar.url), cacheAt(liar.url)]);
    const result = await relay.send(envelopeTo(bob, 1));
    expect([result.code, result.retry_count]).toEqual(["cache_unavailable", 0]);
    expect(result.ndr?.attempts.map((attempt) => attempt.error)).toEqual(["invalid_answer", "invalid_answer"]);
  });

  test("to as many Caches as the policy wants", async () => {
    const relay = await relayFor();
    const second = inboxFor();
    second.answer = () => Response.json({ accepted: true, message_id: uuidOf(1), note: "<script>" }, { status: 202 });
    const third = inboxFor(status(503));
    const bob = knownBob(relay, [cacheAt(cacheEndpoint, third.url, second.url)]);
    relay.recipients.policies.set(`recipient:${bob.did}`, policyOf({ replication: 3 }));
    const result = await relay.send(envelopeTo(bob, 1));
    expect([result.code, result.retry_count]).toEqual(["cached", 2]);
    expect(result.cache_result).toMatchObject({ accepted: true, copies: 2 });
    expect([second.bodies.length, third.bodies.length]).toEqual([1, 3]);
    expect(JSON.stringify(result)).not.toContain("script");
  });
});

describe("hints and priorities", () => {
  test("direct never uses a Cache", async () => {
    const relay = await relayFor();
    const bob = knownBob(relay, [inboxAt(deadUrl()), cacheAt(cacheEndpoint)]);
    const result = await relay.send(envelopeTo(bob, 1, { delivery_hint: "direct" }));
    expect([result.code, result.cache_attempted]).toEqual(["destination_unavailable", false]);
    expect(await held(relay, bob.did)).toEqual([]);
  });

  test("cache goes there at once", async () => {
    const relay = await relayFor();
    const inbox = inboxFor();
    const bob = knownBob(relay, [inboxAt(inbox.url), cacheAt(cacheEndpoint)]);
    expect((await relay.send(envelopeTo(bob, 1, { delivery_hint: "cache" }))).code).toBe("cached");
    expect(inbox.bodies).toEqual([]);
  });

  test("the lower priority comes first, the absent one last, and 404 goes on", async () => {
    const relay = await relayFor();
    const asked: string[] = [];
    const named = (name: string) =>
      inboxFor(() => {
        asked.push(name);
        return new Response("", { status: name === "last" ? 200 : 410 });
      });
    const [last, middle, first] = [named("last"), named("middle"), named("first")];
    const bob = knownBob(relay, [
      inboxAt(last.url),
      { ...inboxAt(middle.url), priority: 9 },
      { ...inboxAt(first.url), priority: 0 },
    ]);
    expect((await relay.send(envelopeTo(bob, 1))).code).toBe("delivered");
    expect(asked).toEqual(["first", "middle", "last"]);
  });
});

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
  const chunk = { message_group_id: uuidOf(9), sequence_number: 0, total_chunks: 2, delivery_hint: "chunked" };
  const header = { encrypted_header: "AAAA", header_nonce: "AAAA", header_key_id: "k", schema_version: "1" };
  const admission = (change: Partial<typeof admitEveryone>) => ({
    options: { admission: { ...admitEveryone, ...change } },
  });
  const cases: Case[] = [
    { name: "no JSON", expected: [400, "invalid_json"], envelope: "{" },
    { name: "duplicate names", expected: [400, "invalid_json"], envelope: `{"to":"a","to":"b"}` },
    { name: "a list", expected: [400, "envelope_invalid"], envelope: "[]" },
    {
      name: "a missing member",
      expected: [400, "envelope_invalid"],
      envelope: { ...good, payload: undefined as never },
    },
    { name: "an unknown member", expected: [400, "envelope_invalid"], envelope: { ...good, extra: 1 } },
    {
      name: "both names of one member",
      expected: [400, "envelope_invalid"],
      envelope: { ...good, recipient: bob.did },
    },
    { name: "a malformed DID", expected: [400, "envelope_invalid"], envelope: { ...good, to: "did:key:abc" } },
    { name: "a malformed UUID", expected: [400, "envelope_invalid"], envelope: { ...good, message_id: "1" } },
    { name: "a malformed ttl", expected: [400, "envelope_invalid"], envelope: { ...good, ttl: "soon" } },
    { name: "half a header", expected: [400, "envelope_invalid"], envelope: { ...good, encrypted_header: "AAAA" } },
    { name: "half of the chunk members", expected: [400, "envelope_invalid"], envelope: { ...good, total_chunks: 2 } },
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
    { name: "malformed hops", expected: [400, "invalid_request"], more: { headers: { "svc-hops": "-1" } } },
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
      stage: (relay) => relay.recipients.policies.set(`recipient:${bob.did}`, policyOf({ effectiveTtlBlocks: 10 })),
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
      stage: (relay) => relay.recipients.add({ ...bob, document: { ...bob.document, service: [] } }),
    },
    {
      name: "a recipient without a document",
      expected: [404, "service_not_found"],
      stage: (relay) => relay.recipients.add(bob, { document: null }),
    },
    { name: "a forged sender signature", expected: [403, "sender_signature_invalid"], envelope: forged },
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
      given: admission({ requireSenderSignature: true }),
    },
    {
      name: "a recipient on the deny list",
      expected: [403, "policy_denied"],
      given: admission({ denyRecipients: new Set([bob.did]) }),
    },
    {
      name: "a recipient not on the allow list",
      expected: [403, "policy_denied"],
      given: admission({ allowRecipients: new Set([alice.did]) }),
    },
    {
      name: "a sender on the deny list",
      expected: [403, "policy_denied"],
      envelope: signedBy(alice, good),
      given: admission({ denySenders: new Set([alice.did]) }),
    },
    {
      name: "an unsigned envelope where senders are listed",
      expected: [403, "policy_denied"],
      given: admission({ allowSenders: new Set([alice.did]) }),
    },
    {
      name: "a tag that is not admitted",
      expected: [403, "policy_denied"],
      envelope: { ...good, tag: "spam" },
      stage: (relay) =>
        relay.recipients.add(bob, { links: { recipientPolicy: null, tagPolicies: ["news"], personaPolicies: [] } }),
    },
    {
      name: "a Relay that the persona does not allow",
      expected: [403, "policy_denied"],
      stage: (relay) => {
        relay.recipients.add(bob, { links: { recipientPolicy: null, tagPolicies: [], personaPolicies: [alice.did] } });
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
      stage: (relay) => relay.recipients.policies.set(`recipient:${bob.did}`, policyOf({ maxMessageBytes: 4 })),
    },
    {
      name: "a payload over the node's limit",
      expected: [413, "too_large"],
      given: { options: { envelope: { ...envelopeLimitsDefault, unchunkedBytesMax: 4 } } },
    },
    {
      name: "a chunk over the node's limit",
      expected: [413, "too_large"],
      envelope: { ...good, ...chunk },
      given: { options: { envelope: { ...envelopeLimitsDefault, chunkBytesMax: 4 } } },
    },
    {
      name: "a header over the node's limit",
      expected: [413, "too_large"],
      envelope: { ...good, ...header },
      given: { options: { envelope: { ...envelopeLimitsDefault, headerBytesMax: 2 } } },
    },
    {
      name: "a body over the node's limit",
      expected: [413, "too_large"],
      given: { options: { envelope: { ...envelopeLimitsDefault, bodyBytesMax: 64 } } },
    },
    {
      name: "recipients that can't be looked up",
      expected: [503, "service_unavailable"],
      stage: (relay) => {
        relay.recipients.reachable = false;
      },
    },
    { name: "an unknown path below /relay", expected: [404, "not_found"], more: { path: "/relay/a/b" } },
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
    const relay = await relayFor(admission({ denyRecipients: new Set([bob.did]) }));
    const codes: string[] = [];
    const step = async (envelope: JsonObject) => codes.push((await relay.send(envelope)).code);
    const late = { ...forged, timestamp: iso(-90_000_000) };
    await step({ ...late, extra: 1 });
    await step(late);
    await step(forged);
    relay.recipients.add(bob, { deactivated: true });
    await step(forged);
    relay.recipients.add(bob);
    relay.recipients.add(alice);
    await step(forged);
    await step(signedBy(alice, good));
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
    const relay = await relayFor(admission({ requireSenderSignature: true, allowSenders: new Set([alice.did]) }));
    const inbox = inboxFor();
    const known = knownBob(relay, [inboxAt(inbox.url)]);
    relay.recipients.add(alice);
    expect((await relay.send(signedBy(alice, withoutTo(envelopeTo(known, 1))))).code).toBe("delivered");
  });
});

describe("failures", () => {
  type Case = [name: string, stage: () => Partial<Service>[], expected: [number, string], retries: number];
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
    ["an inbox at a refused address", () => [inboxAt("http://10.0.0.1/")], [422, "not_deliverable"], 0],
    ["an inbox of another scheme", () => [inboxAt("ftp://inbox.example/")], [422, "not_deliverable"], 0],
    ["an inbox that is down", () => [inboxAt(deadUrl())], [502, "destination_unavailable"], 2],
    ["an inbox that errs", () => [inboxAt(inboxFor(status(500)).url)], [502, "destination_unavailable"], 2],
    [
      "an inbox that redirects",
      () => [inboxAt(inboxFor(() => Response.redirect("http://127.0.0.1:1/")).url)],
      [502, "destination_unavailable"],
      2,
    ],
    ["a Cache that is down", () => [cacheAt(deadUrl())], [502, "cache_unavailable"], 2],
    ["a Cache that is full", () => [cacheAt(inboxFor(status(507)).url)], [502, "cache_unavailable"], 2],
    ["a Cache that refuses", () => [cacheAt(inboxFor(status(403)).url)], [422, "not_deliverable"], 0],
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
      options: { delivery: { ...deliveryLimits, requestMs: 100, attemptsPerDestination: 1 } },
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

  test("the refusals of the Cache of the process are told", async () => {
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
  test("hold for a client address, tell when to come back, and spare loopback where it is exempt", async () => {
    const options = {
      clientRate: { perSecond: 1, burst: 3, keysMax: 100 },
      recipientRate: { perSecond: 1_000, burst: 1_000, keysMax: 100 },
    };
    const relay = await relayFor({ options });
    const bob = knownBob(relay, [inboxAt(inboxFor().url)]);
    for (let i = 0; i < 3; i++) expect((await relay.send(envelopeTo(bob, i + 1))).code).toBe("delivered");
    const refused = await relay.raw(envelopeTo(bob, 9));
    expect([refused.status, refused.headers.get("retry-after")]).toEqual([429, "1"]);
    relay.clock.nowMs += 1_000;
    expect((await relay.send(envelopeTo(bob, 9))).code).toBe("delivered");
    const exempt = await relayFor({ options: { ...options, exemptLoopback: true } });
    const url = exempt.serve();
    const codes = await Promise.all(
      Array.from({ length: 6 }, () =>
        fetch(`${url}/relay`, { method: "POST", headers: { "content-type": "application/json" }, body: "{}" }).then(
          (response) => response.status,
        ),
      ),
    );
    expect(codes).toEqual(new Array(6).fill(400));
  });

  test("hold for a recipient, whoever sends", async () => {
    const relay = await relayFor({ options: { recipientRate: { perSecond: 1, burst: 2, keysMax: 100 } } });
    const bob = knownBob(relay, [inboxAt(inboxFor().url)]);
    const codes: string[] = [];
    for (let i = 0; i < 3; i++) codes.push((await relay.send(envelopeTo(bob, i + 1))).code);
    expect(codes).toEqual(["delivered", "delivered", "rate_limited"]);
    expect((await relay.send(envelopeTo(alice, 1))).code).toBe("recipient_not_found");
  });
});

describe("repeats", () => {
  test("after a success answer it again without delivering, until the envelope's life ends", async () => {
    const relay = await relayFor();
    const inbox = inboxFor();
    const bob = knownBob(relay, [inboxAt(inbox.url)]);
    const envelope = envelopeTo(bob, 1, { ttl: "1h" });
    const first = await relay.send(envelope);
    const again = await relay.send(envelope);
    expect(again).toEqual({ ...first, details: { ...first.details, deduped: true } });
    const restarted = await relayFor({ beside: relay, receipts: relay.receipts });
    expect((await restarted.send(envelope)).details["deduped"]).toBe(true);
    expect(inbox.bodies.length).toBe(1);
    relay.clock.nowMs += 3_600_000;
    expect((await relay.send(envelope)).code).toBe("message_expired");
  });

  test("in flight wait for the first: twenty at once are one delivery", async () => {
    const relay = await relayFor();
    const gate = Promise.withResolvers<Response>();
    const inbox = inboxFor(() => gate.promise);
    const bob = knownBob(relay, [inboxAt(inbox.url)]);
    const running = Array.from({ length: 20 }, () => relay.send(envelopeTo(bob, 1)));
    while (inbox.bodies.length === 0) await Bun.sleep(1);
    const other = await relay.send(envelopeTo(bob, 1, { payload: { other: true } }));
    expect([other.http_status, other.code]).toEqual([409, "duplicate_conflict"]);
    gate.resolve(new Response("ok"));
    const results = await Promise.all(running);
    expect(results.map((result) => result.code)).toEqual(new Array(20).fill("delivered"));
    expect(results.filter((result) => result.details["deduped"] === true).length).toBe(19);
    expect(inbox.bodies.length).toBe(1);
    expect(relay.relay.stats().inFlight).toBe(0);
  });

  test("after a failure try again", async () => {
    const relay = await relayFor();
    const inbox = inboxFor(status(500));
    const bob = knownBob(relay, [inboxAt(inbox.url)]);
    expect((await relay.send(envelopeTo(bob, 1))).code).toBe("destination_unavailable");
    inbox.answer = () => new Response("ok");
    const second = await relay.send(envelopeTo(bob, 1));
    expect([second.code, second.details]).toEqual(["delivered", { channel: "inbox" }]);
    expect(inbox.bodies.length).toBe(4);
  });

  test("with other content are a conflict, after success and after failure, and per recipient", async () => {
    const relay = await relayFor();
    const inbox = inboxFor();
    const bob = knownBob(relay, [inboxAt(inbox.url)]);
    const carol = createPerson(3, [inboxAt(inbox.url)]);
    relay.recipients.add(carol);
    const changed = (person: Person, id: number) => envelopeTo(person, id, { payload: { changed: true } });
    await relay.send(envelopeTo(bob, 1));
    expect((await relay.send(changed(bob, 1))).code).toBe("duplicate_conflict");
    expect((await relay.send(changed(carol, 1))).code).toBe("delivered");
    inbox.answer = status(500);
    await relay.send(envelopeTo(bob, 2));
    expect((await relay.send(changed(bob, 2))).code).toBe("duplicate_conflict");
  });

  test("a result that can't be remembered is answered all the same, and one that can't be recalled is refused", async () => {
    const relay = await relayFor();
    const bob = knownBob(relay, [inboxAt(inboxFor().url)]);
    const broken = async () => {
      throw new StoreError("unavailable", "no");
    };
    const { put, get } = relay.receipts;
    relay.receipts.put = broken;
    expect((await relay.send(envelopeTo(bob, 1))).code).toBe("delivered");
    relay.receipts.put = put;
    relay.receipts.get = broken;
    expect((await relay.send(envelopeTo(bob, 2))).code).toBe("service_unavailable");
    relay.receipts.get = get;
    expect((await relay.send(envelopeTo(bob, 2))).code).toBe("delivered");
  });
});

test("results and attempts are counted, by fixed names only", async () => {
  const relay = await relayFor();
  const bob = knownBob(relay, [inboxAt(inboxFor(status(410)).url), cacheAt(cacheEndpoint)]);
  await relay.send(envelopeTo(bob, 1));
  await relay.send(envelopeTo(bob, 1));
  const text = await relay.metrics.render();
  expect(text).toContain('waypost_relay_results_total{code="cached",deduped="false"} 1');
  expect(text).toContain('waypost_relay_results_total{code="cached",deduped="true"} 1');
  expect(text).toContain('waypost_relay_attempts_total{channel="inbox",outcome="4xx"} 1');
  expect(text).toContain('waypost_relay_attempts_total{channel="cache",outcome="2xx"} 1');
  expect(text).not.toContain("did:svc");
});

test("the limits of the Relay are published", async () => {
  const relay = await relayFor();
  expect(relay.relay.limits).toMatchObject({
    max_http_body_bytes: 26_214_400,
    max_ttl: "PT48H",
    max_hops: 3,
    client_rate_per_second: 50,
    recipient_burst: 200,
  });
});
