/** POST /relay and /relay/{did}: every way of delivering, hints, repeats. */
import { afterEach, describe, expect, test } from "bun:test";
import type { DeliveryResult } from "../../src/core/message/delivery.ts";
import { StoreError } from "../../src/storage/contract.ts";
import { listenForTest } from "../support/app.ts";
import {
  ackBody,
  cacheEndpoint,
  createPerson,
  createTestCache,
  envelopeTo,
  type Person,
  signedBy,
  uuidOf,
} from "../support/cache-node.ts";
import { startOwnTime } from "../support/own-time.ts";
import { policyOf } from "../support/policies.ts";
import { held, relayEndpoint, type TestRelayOptions, withoutTo } from "../support/relay-node.ts";
import {
  alice,
  cacheAt,
  cleanUp,
  cleanups,
  deadUrl,
  inboxAt,
  inboxFor,
  knownBob,
  mallory,
  ofMallory,
  relayAt,
  relayFor,
  status,
} from "./relay-scenario.ts";

afterEach(cleanUp);

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

  test("to a Cache elsewhere over HTTP, which checks for itself", async () => {
    const relay = await relayFor({ withoutLocalCache: true });
    const far = listenForTest(relay.cache.app);
    cleanups.push(far.stop);
    // This Cache publishes another endpoint than the one that Bob lists: its refusal is reported.
    const bob = knownBob(relay, [cacheAt(far.url)]);
    expect(await relay.send(envelopeTo(bob, 1))).toMatchObject({
      code: "not_deliverable",
      http_status: 422,
      cache_attempted: true,
      cache_result: { code: "service_not_found", http_status: 404 },
    });
  });

  test("to a Cache elsewhere that accepts", async () => {
    const relay = await relayFor({ withoutLocalCache: true });
    const slot = inboxFor();
    const endpoint = slot.url.replace("/in", "");
    const there = await createTestCache({ public_endpoints: [endpoint] });
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
    relay.recipients.add(
      createPerson(1, [relayAt(relayEndpoint, url), inboxAt(inbox.url), cacheAt(cacheEndpoint)]),
    );
    const result = await relay.send(envelopeTo(bob, 1));
    expect(result).toMatchObject({
      delivery_mode: "forwarded",
      http_status: 202,
      code: "forwarded",
      details: {},
    });
    expect(inbox.headers.map((headers) => headers.get("svc-hops"))).toEqual(["1", "2"]);
    expect(await held(relay, bob.did)).toEqual([uuidOf(1)]);
  });

  test("with the sender's pass to Relays and Caches, and not to an inbox", async () => {
    const relay = await relayFor({ withoutLocalCache: true });
    const [far, inbox, cache] = [inboxFor(), inboxFor(), inboxFor()];
    for (const refusing of [far, inbox, cache]) refusing.answer = status(404);
    const endpoint = cache.url.replace("/in", "");
    const bob = knownBob(relay, [relayAt(far.url), inboxAt(inbox.url), cacheAt(endpoint)]);
    const pass = "A".repeat(32);
    await relay.send(envelopeTo(bob, 1), { headers: { "svc-pass": pass } });
    const shown = [far, inbox, cache].map(({ headers }) => headers[0]?.get("svc-pass"));
    expect(shown).toEqual([pass, null, pass]);
  });

  test("an envelope that has travelled three hops is not forwarded again", async () => {
    const relay = await relayFor();
    const far = inboxFor(() => Response.json({ success: true, code: "delivered" }));
    const bob = knownBob(relay, [relayAt(far.url)]);
    expect((await relay.send(envelopeTo(bob, 1), { headers: { "svc-hops": "2" } })).code).toBe(
      "forwarded",
    );
    expect(far.headers[0]?.get("svc-hops")).toBe("3");
    expect((await relay.send(envelopeTo(bob, 2), { headers: { "svc-hops": "3" } })).code).toBe(
      "not_deliverable",
    );
    expect(far.bodies.length).toBe(1);
  });

  test("two Relays that name each other don't wait for one another", async () => {
    const relay = await relayFor();
    const far = await relayFor({ beside: relay, endpoint: "https://far.example" });
    const urls = [relay.serve(), far.serve()];
    const bob = knownBob(relay, [relayAt(...urls)]);
    const elapsedMs = startOwnTime();
    const result = await relay.send(envelopeTo(bob, 1));
    expect(result.success).toBe(false);
    expect(elapsedMs()).toBeLessThan(3_000);
  });

  test("a Relay or a Cache with a success of another form has accepted nothing", async () => {
    const relay = await relayFor({ withoutLocalCache: true });
    const liar = inboxFor(() => Response.json({ ok: true }));
    const bob = knownBob(relay, [relayAt(liar.url), cacheAt(liar.url)]);
    const result = await relay.send(envelopeTo(bob, 1));
    expect([result.code, result.retry_count]).toEqual(["cache_unavailable", 0]);
    expect(result.ndr?.attempts.map((attempt) => attempt.error)).toEqual([
      "invalid_answer",
      "invalid_answer",
    ]);
  });

  test("to as many Caches as the policy wants", async () => {
    const relay = await relayFor();
    const second = inboxFor();
    second.answer = () =>
      Response.json({ accepted: true, message_id: uuidOf(1), note: "<script>" }, { status: 202 });
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
    const other = await relay.send(ofMallory(relay, envelopeTo(bob, 1)));
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

  test("with other bytes are repeats of clients that seal anew: unsigned, or signed by one sender", async () => {
    const relay = await relayFor();
    const inbox = inboxFor();
    const bob = knownBob(relay, [inboxAt(inbox.url)]);
    relay.recipients.add(alice);
    const plain = (id: number, n: number) => envelopeTo(bob, id, { payload: { n } });
    const signed = (id: number, n: number) => signedBy(alice, plain(id, n));
    for (const [id, of] of [plain, signed].entries()) {
      expect((await relay.send(of(id, 1))).details["deduped"]).toBeUndefined();
      expect((await relay.send(of(id, 2))).details["deduped"]).toBe(true);
    }
    expect((await relay.send(signed(0, 1))).code).toBe("duplicate_conflict");
    expect((await relay.send(plain(1, 1))).code).toBe("duplicate_conflict");
    expect(inbox.bodies.length).toBe(2);
    inbox.answer = status(500);
    for (const of of [plain, signed]) {
      const id = of === plain ? 2 : 3;
      expect((await relay.send(of(id, 1))).code).toBe("destination_unavailable");
      inbox.answer = () => new Response("ok");
      const again = await relay.send(of(id, 2));
      expect([again.code, again.details["deduped"]]).toEqual(["delivered", undefined]);
      inbox.answer = status(500);
    }
  });

  test("of others with other content are a conflict, after success and after failure, and per recipient", async () => {
    const relay = await relayFor();
    const inbox = inboxFor();
    const bob = knownBob(relay, [inboxAt(inbox.url)]);
    const carol = createPerson(3, [inboxAt(inbox.url)]);
    relay.recipients.add(carol);
    const changed = (person: Person, id: number) => ofMallory(relay, envelopeTo(person, id));
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

describe("a result", () => {
  /** A Relay whose writes of results end on request. */
  async function slowRecords() {
    const writes: { end: (failure?: StoreError) => void }[] = [];
    const logged: string[] = [];
    const relay = await relayFor({ log: (_, message) => void logged.push(message) });
    relay.recipients.add(mallory);
    const { put } = relay.receipts;
    relay.receipts.put = async (...record) => {
      const { promise, resolve, reject } = Promise.withResolvers<void>();
      writes.push({ end: (failure) => (failure === undefined ? resolve() : reject(failure)) });
      await promise;
      await put.apply(relay.receipts, record);
    };
    const inbox = inboxFor();
    const bob = knownBob(relay, [inboxAt(inbox.url)]);
    const send = (n: number) => relay.send(envelopeTo(bob, n));
    const sendOther = (n: number) => relay.send(ofMallory(relay, envelopeTo(bob, n)));
    return { relay, inbox, writes, logged, send, sendOther };
  }

  test("is written before it is answered, so that every node that shares the store answers it from then on", async () => {
    const { relay, inbox, writes, send, sendOther } = await slowRecords();
    let answered = false;
    const first = send(1).finally(() => {
      answered = true;
    });
    while (writes.length === 0) await Bun.sleep(1);
    const repeat = send(1);
    expect((await sendOther(1)).code).toBe("duplicate_conflict");
    expect([answered, relay.relay.stats().inFlight]).toEqual([false, 1]);
    writes[0]!.end();
    const result = await first;
    expect(result.details).toEqual({ channel: "inbox" });
    const known = { ...result, details: { ...result.details, deduped: true } };
    expect(await repeat).toEqual(known);
    const other = await relayFor({ beside: relay, receipts: relay.receipts });
    for (const one of [relay, other]) {
      const bob = knownBob(one, [inboxAt(inbox.url)]);
      expect(await one.send(envelopeTo(bob, 1))).toEqual(known);
      expect((await one.send(ofMallory(one, envelopeTo(bob, 1)))).code).toBe("duplicate_conflict");
    }
    expect([inbox.bodies.length, relay.relay.stats().inFlight]).toEqual([1, 0]);
  });

  test("that can't be written is answered all the same, and a repeat is delivered again", async () => {
    const { inbox, writes, logged, send } = await slowRecords();
    const sent = send(1);
    while (writes.length === 0) await Bun.sleep(1);
    writes[0]!.end(new StoreError("full", "no room"));
    expect((await sent).code).toBe("delivered");
    expect(logged).toEqual([
      "a delivery result could not be stored; a repeated request would be delivered again",
    ]);
    const again = send(1);
    while (writes.length === 1) await Bun.sleep(1);
    writes[1]!.end();
    expect((await again).details).toEqual({ channel: "inbox" });
    expect(inbox.bodies.length).toBe(2);
  });

  test("of a network beyond its pace of results is remembered for its own short time", async () => {
    const settings = { results_rate: 1, results_burst: 1, results_life_beyond: 7_000 };
    const relay = await relayFor({ settings });
    const bob = knownBob(relay, [inboxAt(inboxFor().url)]);
    const untils: number[] = [];
    const { put } = relay.receipts;
    relay.receipts.put = (key, value, untilMs) => {
      untils.push(untilMs);
      return put.call(relay.receipts, key, value, untilMs);
    };
    for (const n of [1, 2]) await relay.send(envelopeTo(bob, n, { ttl: "1h" }));
    expect(untils).toEqual([relay.clock.nowMs + 3_600_000, relay.clock.nowMs + 7_000]);
  });

  test("that is a failure is tried again by a repeat right after the answer", async () => {
    const relay = await relayFor();
    const inbox = inboxFor(status(404));
    const bob = knownBob(relay, [inboxAt(inbox.url)]);
    for (let n = 1; n <= 20; n++) {
      inbox.answer = status(404);
      expect((await relay.send(envelopeTo(bob, n))).code).toBe("not_deliverable");
      inbox.answer = () => new Response("ok");
      expect((await relay.send(envelopeTo(bob, n))).code).toBe("delivered");
    }
  });
});

describe("repeats of what the Cache of the process was given", () => {
  async function relayToCache(given: TestRelayOptions = {}) {
    const relay = await relayFor(given);
    const bob = knownBob(relay, [cacheAt(cacheEndpoint)]);
    const changed = (id: number) => ofMallory(relay, envelopeTo(bob, id));
    /** The answer to another's envelope. */
    const codeOf = async (id: number) => (await relay.send(changed(id))).code;
    return { relay, bob, changed, codeOf };
  }

  /** The answer to a repeat: the first one, with the receipt of the repeat. */
  const repeated = (first: DeliveryResult) => ({
    ...first,
    cache_result: { ...first.cache_result, deduped: true, proof: expect.anything() },
    details: { deduped: true },
  });

  test("are recognized by the entry, also in another process and after the acknowledgement", async () => {
    const { relay, bob, codeOf } = await relayToCache();
    const first = await relay.send(envelopeTo(bob, 1));
    expect(first).toMatchObject({ code: "cached", cache_result: { deduped: false }, details: {} });
    const expected = repeated(first);
    relay.clock.nowMs += 60_000;
    const restarted = await relayFor({ beside: relay, receipts: relay.receipts });
    for (const one of [relay, restarted])
      expect(await one.send(envelopeTo(bob, 1))).toEqual(expected);
    expect(await codeOf(1)).toBe("duplicate_conflict");
    const timestamp = new Date(relay.clock.nowMs).toISOString();
    expect((await relay.cache.ack(ackBody(bob, [uuidOf(1)], { timestamp }))).status).toBe(200);
    for (const one of [relay, restarted])
      expect(await one.send(envelopeTo(bob, 1))).toEqual(expected);
    expect([await codeOf(1), await held(relay, bob.did)]).toEqual(["duplicate_conflict", []]);
    expect(relay.cache.stored.length).toBe(1);
    relay.clock.nowMs += 86_400_000;
    expect((await relay.send(envelopeTo(bob, 1))).code).toBe("message_expired");
  });

  test("go to no destination that the recipient publishes later", async () => {
    const { relay, bob, codeOf } = await relayToCache();
    const first = await relay.send(envelopeTo(bob, 1));
    const inbox = inboxFor();
    knownBob(relay, [inboxAt(inbox.url), cacheAt(cacheEndpoint)]);
    expect(await relay.send(envelopeTo(bob, 1))).toEqual(repeated(first));
    expect(await codeOf(1)).toBe("duplicate_conflict");
    knownBob(relay, [inboxAt(inbox.url)]);
    expect((await relay.send(envelopeTo(bob, 1))).details).toEqual({ deduped: true });
    expect(inbox.bodies).toEqual([]);
    expect((await relay.send(envelopeTo(bob, 2))).code).toBe("delivered");
  });

  test("with other content at two nodes at one moment: one is kept, and the other is a conflict", async () => {
    const { relay, bob, changed } = await relayToCache();
    const other = await relayFor({ beside: relay, receipts: relay.receipts });
    for (let id = 1; id <= 20; id++) {
      const sent = [relay.send(envelopeTo(bob, id)), other.send(changed(id))];
      const codes = (await Promise.all(sent)).map(({ code }) => code);
      expect(codes.sort()).toEqual(["cached", "duplicate_conflict"]);
    }
    expect((await held(relay, bob.did)).length).toBe(20);
  });

  test("are known where the sender stored the envelope itself before", async () => {
    const { relay, bob, changed, codeOf } = await relayToCache();
    await relay.cache.store(envelopeTo(bob, 1));
    const first = await relay.send(envelopeTo(bob, 1));
    expect(first).toMatchObject({
      code: "cached",
      cache_result: { deduped: true },
      details: { deduped: true },
    });
    expect(await relay.send(envelopeTo(bob, 1))).toEqual(first);
    expect(await codeOf(1)).toBe("duplicate_conflict");
    await relay.send(envelopeTo(bob, 2));
    const answer = await relay.cache.store(changed(2));
    expect([answer.status, await answer.json()]).toMatchObject([
      409,
      { code: "duplicate_conflict" },
    ]);
  });

  test("after a refusal try again, and the record of the refusal stands against other content", async () => {
    const { relay, bob, codeOf } = await relayToCache();
    const { mailbox } = relay.cache;
    const { store } = mailbox;
    mailbox.store = async () => ({ kind: "full", scope: "recipient" });
    expect((await relay.send(envelopeTo(bob, 1))).success).toBe(false);
    expect(await codeOf(1)).toBe("duplicate_conflict");
    mailbox.store = store;
    expect(await relay.send(envelopeTo(bob, 1))).toMatchObject({ code: "cached", details: {} });
    expect((await relay.send(envelopeTo(bob, 1))).details).toEqual({ deduped: true });
    expect(await codeOf(1)).toBe("duplicate_conflict");
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
  expect(relay.relay.limits()).toMatchObject({
    max_http_body_bytes: 26_214_400,
    max_ttl: "PT48H",
    max_hops: 3,
    // 10 s of requests and waits, and the 5 s of a live session.
    max_delivery_time: "PT15S",
    client_rate_per_second: 50,
    recipient_burst: 200,
  });
});
