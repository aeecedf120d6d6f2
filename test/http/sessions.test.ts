/** Live sessions: proof, acknowledgement, fallback, and no gap between connecting and listening. */
import { afterEach, describe, expect, test } from "bun:test";
import { mailboxOf } from "../../src/core/codec/did.ts";
import type { DidDocument, Service, VerificationMethod } from "../../src/core/ledger/account.ts";
import type { DeliveryResult } from "../../src/core/message/delivery.ts";
import type { RetrievalClaims } from "../../src/core/message/proof.ts";
import {
  cacheEndpoint,
  createPerson,
  envelopeTo,
  type Person,
  uuidOf,
} from "../support/cache-node.ts";
import {
  createTestRelay,
  held,
  relayEndpoint,
  type TestRelay,
  type TestRelayOptions,
} from "../support/relay-node.ts";
import { pause } from "../support/wait.ts";
import {
  authFrame,
  authHeaders,
  connectClaims,
  goLive,
  LiveClient,
  sessionUrl,
  signClaims,
} from "./live-client.ts";

const cleanups: (() => unknown)[] = [];
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
});

const relayService: Partial<Service> = {
  type: "SvcRelayService",
  serviceEndpoint: [relayEndpoint],
};
const bob = createPerson(1, [relayService, {}]);

type World = { readonly relay: TestRelay; readonly url: string };

async function world(
  given: TestRelayOptions & { readonly liveAckMs?: number } = {},
): Promise<World> {
  const settings = { live_ack_timeout: given.liveAckMs ?? 2_000, ...given.settings };
  const relay = await createTestRelay({ ...given, settings });
  relay.recipients.add(bob);
  cleanups.push(relay.close);
  return { relay, url: relay.serve() };
}

async function live(url: string, deviceId = "phone", person: Person = bob): Promise<LiveClient> {
  const client = await goLive(url, person, deviceId);
  cleanups.push(() => client.terminate());
  return client;
}

function dial(url: string, headers: Record<string, string> = {}): LiveClient {
  const client = new LiveClient(url, headers);
  cleanups.push(() => client.terminate());
  return client;
}

describe("a live session", () => {
  test("is welcomed, gets an envelope as it was sent, and delivers it by acknowledging", async () => {
    const { relay, url } = await world();
    const client = await live(url);
    expect(client.frames).toEqual([
      { type: "welcome", status: "ok", connectionKey: `${bob.did}::phone` },
    ]);
    client.onEnvelope = (envelope) =>
      client.send({ type: "ack", message_id: String(envelope["message_id"]).toUpperCase() });
    const envelope = envelopeTo(bob, 1, { ttl: "1h" });
    expect(await relay.send(envelope)).toMatchObject({
      code: "delivered",
      delivery_mode: "direct",
      details: { channel: "live" },
    });
    expect(client.frames.slice(1)).toEqual([envelope]);
    expect(await held(relay, bob.did)).toEqual([]);
  });

  test("may be proven in headers", async () => {
    const { relay, url } = await world();
    const client = dial(sessionUrl(url, bob, "phone"), authHeaders(bob, "phone"));
    expect((await client.until(1))[0]?.["type"]).toBe("welcome");
    client.onEnvelope = (envelope) => client.ack(envelope);
    expect((await relay.send(envelopeTo(bob, 1))).details).toEqual({ channel: "live" });
  });

  test("that does not acknowledge in time loses the envelope to the Cache, whatever it says later", async () => {
    const { relay, url } = await world({ liveAckMs: 100 });
    const client = await live(url);
    const result = await relay.send(envelopeTo(bob, 1));
    expect(result).toMatchObject({ code: "cached", retry_count: 0, cache_attempted: true });
    expect(client.frames.length).toBe(2);
    client.ack(client.frames[1]!);
    expect(await held(relay, bob.did)).toEqual([uuidOf(1)]);
    expect(relay.sessions.stats().sockets).toBe(1);
  });

  test("can't acknowledge for another envelope", async () => {
    const { relay, url } = await world({ liveAckMs: 100 });
    const client = await live(url);
    client.onEnvelope = () => client.send({ type: "ack", message_id: uuidOf(99) });
    expect((await relay.send(envelopeTo(bob, 1))).code).toBe("cached");
  });

  test("that breaks off lets the envelope go on at once", async () => {
    const { relay, url } = await world({ liveAckMs: 30_000 });
    const client = await live(url);
    client.onEnvelope = () => client.terminate();
    const startMs = performance.now();
    expect((await relay.send(envelopeTo(bob, 1))).code).toBe("cached");
    expect(performance.now() - startMs).toBeLessThan(20_000);
    await client.closed;
    expect(relay.sessions.stats()).toEqual({ sockets: 0, unproven: 0, dids: 0 });
  });

  test("reports its silence when there is nothing else", async () => {
    const { relay, url } = await world({ liveAckMs: 50 });
    relay.recipients.add(createPerson(1, [relayService]));
    await live(url);
    const result = await relay.send(envelopeTo(bob, 1));
    expect([result.http_status, result.code]).toEqual([504, "upstream_timeout"]);
    expect(result.ndr?.attempts).toMatchObject([
      { channel: "live", origin: null, error: "not_acknowledged" },
    ]);
  });

  test("shares the recipient's envelopes with his other devices; one acknowledgement is enough", async () => {
    const { relay, url } = await world();
    const [phone, laptop] = [await live(url, "phone"), await live(url, "laptop")];
    laptop.onEnvelope = (envelope) => laptop.ack(envelope);
    expect((await relay.send(envelopeTo(bob, 1))).details).toEqual({ channel: "live" });
    await phone.until(2);
    expect(phone.frames[1]).toEqual(laptop.frames[1]!);
  });

  test("is replaced by a newer one of the same device, and what it held moves on", async () => {
    const { relay, url } = await world({ liveAckMs: 30_000 });
    const old = await live(url);
    const sending = relay.send(envelopeTo(bob, 1));
    await old.until(2);
    await live(url);
    expect(await old.closed).toBe(4410);
    expect((await sending).code).toBe("cached");
    expect(relay.sessions.stats()).toEqual({ sockets: 1, unproven: 0, dids: 1 });
  });

  const changed = (change: Partial<Service>): Partial<DidDocument> => ({
    service: bob.document.service.map((one) =>
      one.type === "SvcRelayService" ? { ...one, ...change } : one,
    ),
  });
  const { publicKeyMultibase } = createPerson(7).document
    .verificationMethod[0] as VerificationMethod;
  const withdrawn: [string, Partial<DidDocument>][] = [
    [
      "the service",
      { service: bob.document.service.filter((one) => one.type !== "SvcRelayService") },
    ],
    ["the endpoint", changed({ serviceEndpoint: ["https://moved.example"] })],
    ["the key in the service", changed({ authorization: [] })],
    ["the key", { verificationMethod: [] }],
    [
      "this key under its id",
      {
        verificationMethod: bob.document.verificationMethod.map((one) => ({
          ...one,
          publicKeyMultibase,
        })),
      },
    ],
  ];
  test.each(withdrawn)(
    "ends when the document no longer has %s, before it gets another envelope",
    async (_name, change) => {
      const { relay, url } = await world();
      const client = await live(url);
      relay.recipients.add({ ...bob, document: { ...bob.document, ...change } });
      expect((await relay.send(envelopeTo(bob, 1))).code).toBe("cached");
      expect(await client.closed).toBe(4403);
      expect(client.frames.length).toBe(1);
    },
  );

  test("is closed when the node shuts down", async () => {
    const { relay, url } = await world();
    const client = await live(url);
    relay.relay.close();
    expect(await client.closed).toBe(1001);
  });

  test("takes only so many envelopes at a time, the others go on", async () => {
    const { relay, url } = await world({ sessions: { unackedMax: 2 }, liveAckMs: 30_000 });
    const client = await live(url);
    const sending = [1, 2, 3].map((id) => relay.send(envelopeTo(bob, id)));
    expect((await Promise.race(sending)).code).toBe("cached");
    await client.until(3);
    for (const envelope of client.frames.slice(1)) client.ack(envelope);
    expect((await Promise.all(sending)).map((result) => result.code).sort()).toEqual([
      "cached",
      "delivered",
      "delivered",
    ]);
  });

  test("gets large envelopes whole", async () => {
    const { relay, url } = await world();
    const client = await live(url);
    client.onEnvelope = (envelope) => client.ack(envelope);
    const envelope = envelopeTo(bob, 1, {
      payload: { ciphertext_b64: "A".repeat(12 * 1024 * 1024) },
    });
    expect((await relay.send(envelope)).details).toEqual({ channel: "live" });
    expect(client.frames[1]).toEqual(envelope);
  });
});

describe("proof", () => {
  const mallory = createPerson(9, [relayService]);
  type Case = [
    name: string,
    frame: () => unknown,
    code: number,
    stage?: (relay: TestRelay) => void,
  ];
  const spoiled = (change: Partial<RetrievalClaims>, signedAs: Partial<RetrievalClaims> = {}) => {
    const claims = connectClaims(bob, "phone", change);
    return {
      ...authFrame(bob, "phone", change),
      nonce: claims.nonce,
      signature_b64: signClaims(bob, { ...claims, ...signedAs }),
    };
  };
  const cases: Case[] = [
    ["no JSON", () => "hello", 4401],
    ["another frame", () => ({ type: "ack", message_id: uuidOf(1) }), 4401],
    ["a missing value", () => ({ ...authFrame(bob, "phone"), nonce: undefined }), 4401],
    ["a value that is not text", () => ({ ...authFrame(bob, "phone"), nonce: 12_345_678 }), 4401],
    ["a signature for another device", () => spoiled({}, { deviceId: "other" }), 4401],
    ["a signature for another operation", () => spoiled({}, { operation: "pull" }), 4401],
    [
      "somebody else's key",
      () => ({ ...authFrame(mallory, "phone"), key_id: bob.keyId, service_id: bob.serviceId }),
      4401,
    ],
    [
      "a timestamp of yesterday",
      () => authFrame(bob, "phone", { timestamp: "2026-07-15T12:00:00Z" }),
      4401,
    ],
    [
      "another Relay's endpoint",
      () => authFrame(bob, "phone", { endpoint: "https://other.example" }),
      4403,
    ],
    ["the Cache service", () => authFrame(bob, "phone", { serviceId: `${bob.did}#cache1` }), 4403],
    ["an unknown service", () => authFrame(bob, "phone", { serviceId: `${bob.did}#none` }), 4403],
    ["an unknown key", () => authFrame(bob, "phone", { keyId: `${bob.did}#none` }), 4403],
    [
      "an unknown DID",
      () => authFrame(bob, "phone"),
      4403,
      (relay) => relay.recipients.subjects.clear(),
    ],
    [
      "a deactivated DID",
      () => authFrame(bob, "phone"),
      4403,
      (relay) => relay.recipients.add(bob, { deactivated: true }),
    ],
    [
      "a source that can't be asked",
      () => authFrame(bob, "phone"),
      1013,
      (relay) => {
        relay.recipients.reachable = false;
      },
    ],
  ];
  test.each(cases.map((row) => [row[0], row] as const))(
    "with %s closes the connection",
    async (_name, [, frame, code, stage]) => {
      const { relay, url } = await world();
      stage?.(relay);
      const client = dial(sessionUrl(url, bob, "phone"));
      await client.opened;
      client.send(frame());
      expect(await client.closed).toBe(code);
      expect(client.frames).toEqual([]);
      expect(relay.sessions.mayListen(bob.did)).toBe(false);
    },
  );

  test("works once: of concurrent uses of one nonce one is welcomed", async () => {
    const { url } = await world();
    const frame = authFrame(bob, "phone");
    const clients = Array.from({ length: 10 }, () => dial(sessionUrl(url, bob, "phone")));
    await Promise.all(clients.map((client) => client.opened));
    for (const client of clients) client.send(frame);
    const ends = await Promise.all(
      clients.map((client) => Promise.race([client.closed, client.until(1).then(() => "welcome")])),
    );
    expect(ends.filter((end) => end === "welcome").length).toBe(1);
    expect(ends.filter((end) => end === 4409).length).toBe(9);
  });

  test("must come in time", async () => {
    const { relay, url } = await world({ sessions: { authMs: 80 } });
    const client = dial(sessionUrl(url, bob, "phone"));
    expect(await client.closed).toBe(4408);
    expect(relay.sessions.stats()).toEqual({ sockets: 0, unproven: 0, dids: 0 });
  });

  test("is one frame; another before the welcome ends the connection", async () => {
    const { relay, url } = await world();
    const gate = Promise.withResolvers<void>();
    const { subject } = relay.recipients;
    relay.recipients.subject = async (did) => {
      await gate.promise;
      return subject(did);
    };
    const client = dial(sessionUrl(url, bob, "phone"));
    await client.opened;
    client.send(authFrame(bob, "phone"));
    client.send(authFrame(bob, "phone"));
    expect(await client.closed).toBe(4401);
    gate.resolve();
    expect(relay.sessions.mayListen(bob.did)).toBe(false);
  });

  const headerCases: [string, Record<string, string>, number, string][] = [
    ["a missing value", { "X-Nonce": freshHeaders()["X-Nonce"] as string }, 401, "proof_missing"],
    ["a wrong signature", { ...freshHeaders(), "X-Nonce": "another-nonce" }, 401, "proof_invalid"],
    [
      "an old timestamp",
      authHeaders(bob, "phone", { timestamp: "2026-07-15T12:00:00Z" }),
      401,
      "proof_expired",
    ],
    [
      "another endpoint",
      authHeaders(bob, "phone", { endpoint: "https://other.example" }),
      403,
      "proof_not_authorized",
    ],
  ];
  function freshHeaders() {
    return authHeaders(bob, "phone");
  }
  const upgrade = {
    upgrade: "websocket",
    connection: "Upgrade",
    "sec-websocket-version": "13",
    "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==",
  };
  const ask = async (url: string, path: string, headers: Record<string, string>) => {
    const response = await fetch(`${url}${path}`, { headers: { ...upgrade, ...headers } });
    return [response.status, ((await response.json()) as { code: string }).code];
  };
  const path = `/ws/${encodeURIComponent(bob.did)}/phone`;

  test.each(headerCases)(
    "in headers with %s is refused before the upgrade",
    async (_name, headers, status, code) => {
      const { url } = await world();
      expect(await ask(url, path, headers)).toEqual([status, code]);
    },
  );

  test("in headers works once", async () => {
    const { url } = await world();
    const headers = freshHeaders();
    await dial(sessionUrl(url, bob, "phone"), headers).until(1);
    expect(await ask(url, path, headers)).toEqual([409, "proof_replayed"]);
  });

  const paths: [string, number, string][] = [
    ["/ws/nobody/phone", 400, "invalid_did"],
    [`/ws/${encodeURIComponent(bob.did)}/`, 404, "not_found"],
    [`/ws/${encodeURIComponent(bob.did)}/a%0Ab`, 400, "invalid_request"],
    [`/ws/${encodeURIComponent(bob.did)}/${"a".repeat(129)}`, 400, "invalid_request"],
    [`/ws/${encodeURIComponent(bob.did)}/%ff`, 400, "invalid_request"],
    [`/ws/${encodeURIComponent(bob.did)}`, 404, "not_found"],
    [`/ws/${encodeURIComponent(bob.did)}/phone/more`, 404, "not_found"],
  ];
  test.each(paths)("can't be given under %s", async (wrong, status, code) => {
    const { url } = await world();
    expect(await ask(url, wrong, {})).toEqual([status, code]);
  });

  test("needs a WebSocket", async () => {
    const { url } = await world();
    const response = await fetch(`${url}${path}`);
    expect([response.status, ((await response.json()) as { code: string }).code]).toEqual([
      400,
      "invalid_request",
    ]);
  });
});

describe("bounds", () => {
  test("hold for connections of one address", async () => {
    const { url } = await world({
      sessions: { connects: { perSecond: 1, burst: 2, keysMax: 10 } },
    });
    const path = `${url}/ws/${encodeURIComponent(bob.did)}/phone`;
    const statuses: number[] = [];
    for (let i = 0; i < 3; i++) statuses.push((await fetch(path)).status);
    expect(statuses).toEqual([400, 400, 429]);
  });

  test("hold for connections of this machine unless it is exempt", async () => {
    const connects = { perSecond: 1, burst: 2, keysMax: 10 };
    const { url } = await world({
      sessions: { connects },
      settings: { rate_limit_loopback: false },
    });
    const path = `${url}/ws/${encodeURIComponent(bob.did)}/phone`;
    const statuses: number[] = [];
    for (let i = 0; i < 4; i++) statuses.push((await fetch(path)).status);
    expect(statuses).toEqual([400, 400, 400, 400]);
  });

  test("hold for sockets that have proven nothing", async () => {
    const { url } = await world({ sessions: { unprovenMax: 2 } });
    const clients = [0, 1, 2].map(() => dial(sessionUrl(url, bob, "phone")));
    expect(
      (await Promise.all(clients.map((client) => client.opened))).filter((opened) => opened).length,
    ).toBe(2);
  });

  test("hold for the devices of one DID", async () => {
    const { url } = await world({ settings: { recipient_sessions_max: 2 } });
    await live(url, "a");
    await live(url, "b");
    const third = dial(sessionUrl(url, bob, "c"));
    await third.opened;
    third.send(authFrame(bob, "c"));
    expect(await third.closed).toBe(4429);
  });

  test("hold for a client network: half of all, whoever the recipients are", async () => {
    const settings = { sessions_max: 4 };
    const { relay, url } = await world({ settings, trustedProxies: ["127.0.0.1"] });
    const from = (client: string, device: string) =>
      dial(sessionUrl(url, bob, device), {
        ...authHeaders(bob, device),
        "x-forwarded-for": client,
      });
    const own = [from("198.51.100.1", "a"), from("198.51.100.1", "b")];
    expect(await Promise.all(own.map(({ opened }) => opened))).toEqual([true, true]);
    expect(await from("198.51.100.1", "c").opened).toBe(false);
    expect(await from("203.0.113.1", "d").opened).toBe(true);
    own[0]!.terminate();
    while (relay.sessions.stats().sockets > 2) await Bun.sleep(5);
    expect(await from("198.51.100.1", "e").opened).toBe(true);
  });

  test("hold for what a client says", async () => {
    const { url } = await world();
    const chatty = await live(url, "chatty");
    for (let i = 0; i < 300; i++) chatty.send({ type: "ack", message_id: uuidOf(i) });
    expect(await chatty.closed).toBe(4400);
    const wordy = await live(url, "wordy");
    wordy.send("x".repeat(20_000));
    expect(await wordy.closed).toBeGreaterThan(1_000);
  });
});

/** Stores of the Cache begin, and end once the gate opens. */
function holdStores(relay: TestRelay) {
  const [begun, gate] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  const { store } = relay.cache.mailbox;
  relay.cache.mailbox.store = async (...given) => {
    begun.resolve();
    await gate.promise;
    return store(...given);
  };
  return { begun, gate };
}

describe("between connecting and listening", () => {
  test("the welcome waits for what arrived before, and what arrives meanwhile waits for the welcome", async () => {
    const { relay, url } = await world();
    const { gate } = holdStores(relay);
    const earlier = relay.send(envelopeTo(bob, 1));
    const client = dial(sessionUrl(url, bob, "phone"));
    client.onEnvelope = (envelope) => client.ack(envelope);
    await client.opened;
    client.send(authFrame(bob, "phone"));
    while (relay.sessions.stats().unproven > 0) await Bun.sleep(1);
    const meanwhile = relay.send(envelopeTo(bob, 2));
    await pause(30, "it would be welcomed, or get the second one");
    expect(client.frames).toEqual([]);
    gate.resolve();
    await client.until(2);
    expect(client.frames.map((frame) => frame["type"] ?? frame["message_id"])).toEqual([
      "welcome",
      uuidOf(2),
    ]);
    expect([(await earlier).code, (await meanwhile).code]).toEqual(["cached", "delivered"]);
    expect(await held(relay, bob.did)).toEqual([uuidOf(1)]);
  });

  test("the welcome of a second device waits for what the first one left to the Cache", async () => {
    const { relay, url } = await world({ liveAckMs: 50 });
    const { begun, gate } = holdStores(relay);
    await live(url, "silent");
    const sending = relay.send(envelopeTo(bob, 1));
    await begun.promise;
    const second = dial(sessionUrl(url, bob, "second"), authHeaders(bob, "second"));
    await pause(50, "it would be welcomed");
    expect(second.frames).toEqual([]);
    gate.resolve();
    await second.until(1);
    expect((await sending).code).toBe("cached");
  });

  test("a delivery that hangs does not hold the welcome for ever", async () => {
    const { relay, url } = await world({ sessions: { joinMs: 60 } });
    const { gate } = holdStores(relay);
    const hanging = relay.send(envelopeTo(bob, 1));
    const client = await live(url);
    expect(client.frames.length).toBe(1);
    gate.resolve();
    expect((await hanging).code).toBe("cached");
  });

  test("whatever clients do, every envelope is acknowledged live or is in the Cache", async () => {
    const { relay, url } = await world({ liveAckMs: 60 });
    const acknowledged = new Set<string>();
    let stop = false;
    const flapping = (async () => {
      for (let round = 0; !stop; round++) {
        const client = await goLive(url, bob, "phone");
        let seen = 0;
        client.onEnvelope = (envelope) => {
          // Every fourth is left without an answer, and now and then the line goes dead in the
          // middle.
          if (++seen % 4 === 0) return;
          client.ack(envelope);
          acknowledged.add(String(envelope["message_id"]));
        };
        if (round % 3 === 0) await Bun.sleep(5);
        // On a busy machine an envelope takes longer than any fixed time.
        else
          for (let waited = 0; !stop && (seen < 3 || waited < 25) && waited < 500; waited += 5)
            await Bun.sleep(5);
        if (round % 2 === 0) client.terminate();
        else client.close();
      }
    })();
    const senders = Array.from({ length: 12 }, async (_, sender) => {
      const sent: { id: string; result: DeliveryResult }[] = [];
      for (let i = sender + 1; i <= 120; i += 12) {
        await Bun.sleep(sender * 3);
        sent.push({ id: uuidOf(i), result: await relay.send(envelopeTo(bob, i)) });
      }
      return sent;
    });
    const results = (await Promise.all(senders)).flat();
    stop = true;
    await flapping;
    const kept = new Set<string>();
    const page = await relay.cache.mailbox.summary(mailboxOf(bob.did, 0), {
      after: null,
      entriesMax: 1_000,
      bytesMax: 0,
      nowMs: relay.clock.nowMs,
    });
    if ("entries" in page) for (const entry of page.entries) kept.add(entry.messageId);
    for (const { id, result } of results) {
      expect(result).toMatchObject({ success: true });
      if (result.code === "delivered")
        expect([id, acknowledged.has(id), kept.has(id)]).toEqual([id, true, false]);
      else expect([id, kept.has(id)]).toEqual([id, true]);
    }
    const channels = new Set(results.map(({ result }) => result.code));
    expect([...channels].sort()).toEqual(["cached", "delivered"]);
  });

  test("endpoints of the Relay are compared without their trailing slashes", async () => {
    const { url } = await world({ endpoint: `${relayEndpoint}/` });
    expect((await live(url)).frames.length).toBe(1);
    expect(cacheEndpoint).not.toBe(relayEndpoint);
  });
});
