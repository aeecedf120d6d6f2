/**
 * Live sessions across Relay processes: the laws of `sessions.test.ts` with the envelope at one process
 * and the client at another.
 */
import { afterEach, describe, expect, test } from "bun:test";
import { mailboxOf } from "../../src/core/codec/did.ts";
import type { Service } from "../../src/core/ledger/document.ts";
import { deliveryLimits } from "../../src/core/message/delivery.ts";
import { envelopeTo, uuidOf } from "../support/cache-node.ts";
import { authFrame, authHeaders, LiveClient, sessionUrl } from "../support/live-client.ts";
import { bob, type PeerRelay, peerStage, startPeerRelays, until } from "../support/peer-relays.ts";
import { held, type TestRelay } from "../support/relay-node.ts";

const cleanups: (() => unknown)[] = [];
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
});
const { linked, pair, live, dial } = peerStage(cleanups);

/** The Cache's store waits for `open`. */
function gateCache(relay: TestRelay): { readonly open: () => void } {
  const gate = Promise.withResolvers<void>();
  const { store } = relay.cache.mailbox;
  relay.cache.mailbox.store = async (...given) => {
    await gate.promise;
    return store(...given);
  };
  return { open: gate.resolve };
}

describe("an envelope at one process for a client at another", () => {
  test.each([[0, 1] as const, [1, 0] as const])("is delivered by its acknowledgement (%d to %d)", async (to, from) => {
    const { relays } = await linked(2);
    const client = await live(relays[to] as PeerRelay);
    client.onEnvelope = (envelope) => client.ack(envelope);
    await until(() => relays[from]?.known() === 1);
    const envelope = envelopeTo(bob, 1, { ttl: "1h" });
    expect(await relays[from]?.send(envelope)).toMatchObject({ code: "delivered", details: { channel: "live" } });
    expect(client.frames.slice(1)).toEqual([envelope]);
    expect(await held(relays[0] as PeerRelay, bob.did)).toEqual([]);
  });

  test("is known there before the welcome, so that nothing goes by it", async () => {
    const [a, b] = await pair();
    const client = await live(a);
    client.onEnvelope = (envelope) => client.ack(envelope);
    expect((await b.send(envelopeTo(bob, 1))).details).toEqual({ channel: "live" });
  });

  test("goes to the Cache when the client is silent, and when it breaks off", async () => {
    const [a, b] = await pair({ liveAckMs: 150 });
    const client = await live(a);
    expect((await b.send(envelopeTo(bob, 1))).code).toBe("cached");
    await client.until(2);
    client.onEnvelope = () => client.terminate();
    expect((await b.send(envelopeTo(bob, 2))).code).toBe("cached");
    expect(await held(a, bob.did)).toEqual([uuidOf(1), uuidOf(2)]);
    await until(() => b.known() === 0);
    expect(b.sessions.listens(bob.did)).toBe(false);
  });

  test("goes to all devices at once, and the first acknowledgement wins", async () => {
    const { relays } = await linked(3, { liveAckMs: 30_000 });
    const [a, b, c] = relays as [PeerRelay, PeerRelay, PeerRelay];
    const [phone, laptop] = [await live(a, "phone"), await live(b, "laptop")];
    laptop.onEnvelope = (envelope) => laptop.ack(envelope);
    expect((await c.send(envelopeTo(bob, 1))).details).toEqual({ channel: "live" });
    expect((await phone.until(2))[1]).toEqual(laptop.frames[1]!);
    expect((await b.send(envelopeTo(bob, 2))).details).toEqual({ channel: "live" });
    await phone.until(3);
  });

  test("arrives whole when it is large", async () => {
    const [a, b] = await pair();
    const client = await live(a);
    client.onEnvelope = (envelope) => client.ack(envelope);
    const envelope = envelopeTo(bob, 1, { payload: { ciphertext_b64: "A".repeat(12 * 1024 * 1024) } });
    expect((await b.send(envelope)).details).toEqual({ channel: "live" });
    expect(client.frames[1]).toEqual(envelope);
  });

  test("ends the session that the document no longer authorizes", async () => {
    const [a, b] = await pair();
    const client = await live(a);
    const service = bob.document.service.map((one) => ({ ...one, authorization: [] })) as Service[];
    const cache = { ...(bob.document.service[1] as Service), authorization: [] };
    a.recipients.add({ ...bob, document: { ...bob.document, service: [...service.slice(0, 1), cache] } });
    expect((await b.send(envelopeTo(bob, 1))).code).toBe("cached");
    expect(await client.closed).toBe(4403);
    expect(client.frames.length).toBe(1);
  });

  test("goes on, and the link stays, when the recipient's document has more services than a frame holds", async () => {
    const [a, b] = await pair();
    await live(a);
    const [relayService, cacheService] = bob.document.service as [Service, Service];
    const more = Array.from({ length: 100 }, (_, at) => ({ ...relayService, id: `${bob.did}#relay${at}` }));
    a.recipients.add({ ...bob, document: { ...bob.document, service: [relayService, cacheService, ...more] } });
    expect((await b.send(envelopeTo(bob, 1))).code).toBe("cached");
    expect(b.known()).toBe(1);
    expect([...a.said, ...b.said].map(({ message }) => message)).not.toContain("a peer is gone");
  });

  test("goes on when so many bytes are at the peer already", async () => {
    const [a, b] = await pair({ liveAckMs: 30_000, limits: { bytesOutMax: 10_000 } });
    const client = await live(a);
    const large = (number: number) => envelopeTo(bob, number, { payload: { ciphertext_b64: "A".repeat(8_000) } });
    const first = b.send(large(1));
    await client.until(2);
    expect((await b.send(large(2))).code).toBe("cached");
    client.ack(client.frames[1]!);
    expect((await first).code).toBe("delivered");
    const third = b.send(large(3));
    client.ack((await client.until(3))[2]!);
    expect((await third).code).toBe("delivered");
  });
});

describe("a session", () => {
  test("replaces one of its device at another process, whose envelopes move on", async () => {
    const [a, b] = await pair({ liveAckMs: 30_000 });
    const old = await live(a);
    const sending = a.send(envelopeTo(bob, 1));
    await old.until(2);
    await live(b);
    expect(await old.closed).toBe(4410);
    // It found its place before the welcome of the new one.
    expect(await held(a, bob.did)).toEqual([uuidOf(1)]);
    expect((await sending).code).toBe("cached");
    expect(a.sessions.stats()).toEqual({ sockets: 0, unproven: 0, dids: 0 });
    await until(() => a.known() === 1 && b.known() === 0);
  });

  test("of a device that connects everywhere at once stays at one process", async () => {
    for (let round = 0; round < 20; round++) {
      const { relays, close } = await startPeerRelays(3);
      relays[0]?.recipients.add(bob);
      const clients = relays.map((relay) => new LiveClient(sessionUrl(relay.url, bob, "phone")));
      await Promise.all(clients.map((client) => client.opened));
      for (const client of clients) client.send(authFrame(bob, "phone"));
      await Promise.all(clients.map((client) => Promise.race([client.closed, client.until(1)])));
      await until(() => relays.reduce((sum, { sessions }) => sum + sessions.stats().sockets, 0) === 1);
      const home = relays.findIndex(({ sessions }) => sessions.stats().sockets === 1);
      await until(() => relays.every((relay, at) => relay.known() === (at === home ? 0 : 1)));
      await close();
    }
  });

  test("counts among those of its recipient everywhere", async () => {
    const [a, b] = await pair({ sessions: { sessionsPerDidMax: 2 } });
    await live(a, "one");
    await live(b, "two");
    const third = dial(a, "three");
    await third.opened;
    third.send(authFrame(bob, "three"));
    expect(await third.closed).toBe(4429);
    await live(b, "one");
  });

  test("proves itself with a nonce that no process has seen", async () => {
    const [a, b] = await pair();
    const frame = authFrame(bob, "phone");
    const first = dial(a, "phone");
    await first.opened;
    first.send(frame);
    await first.until(1);
    const second = dial(b, "phone");
    await second.opened;
    second.send(frame);
    expect(await second.closed).toBe(4409);
    expect(a.sessions.stats().sockets).toBe(1);
    const headers = authHeaders(bob, "phone");
    await dial(b, "phone", headers).until(1);
    const upgrade = { upgrade: "websocket", connection: "Upgrade", "sec-websocket-version": "13" };
    const path = sessionUrl(a.url, bob, "phone").replace("ws:", "http:");
    const again = await fetch(path, {
      headers: { ...upgrade, "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==", ...headers },
    });
    expect([again.status, ((await again.json()) as { code: string }).code]).toEqual([409, "proof_replayed"]);
  });

  test("with a nonce that is used everywhere at once is welcomed at one process at most", async () => {
    const [a, b] = await pair();
    for (let round = 0; round < 30; round++) {
      const frame = authFrame(bob, "phone");
      const clients = [a, b].map((relay) => dial(relay, "phone"));
      await Promise.all(clients.map((client) => client.opened));
      for (const client of clients) client.send(frame);
      const ends = await Promise.all(
        clients.map((client) => Promise.race([client.closed, client.until(1).then(() => "welcome")])),
      );
      const taken = ends.filter((end) => end === "welcome").length;
      expect([round, taken <= 1, ends.every((end) => end === "welcome" || end === 4409)]).toEqual([round, true, true]);
    }
  });
});

describe("between connecting and listening", () => {
  test("the welcome waits for what arrived before at a peer, and what arrives there meanwhile waits for it", async () => {
    const [a, b] = await pair();
    const gate = gateCache(a);
    const earlier = b.send(envelopeTo(bob, 1));
    const client = dial(a, "phone");
    client.onEnvelope = (envelope) => client.ack(envelope);
    await client.opened;
    client.send(authFrame(bob, "phone"));
    await until(() => a.sessions.stats().dids === 1);
    await Bun.sleep(20);
    const meanwhile = b.send(envelopeTo(bob, 2));
    await Bun.sleep(30);
    expect(client.frames).toEqual([]);
    gate.open();
    await client.until(2);
    expect(client.frames.map((frame) => frame["type"] ?? frame["message_id"])).toEqual(["welcome", uuidOf(2)]);
    expect([(await earlier).code, (await meanwhile).code]).toEqual(["cached", "delivered"]);
    expect(await held(a, bob.did)).toEqual([uuidOf(1)]);
  });

  test("a delivery that hangs at a peer does not hold the welcome for ever", async () => {
    const [a, b] = await pair({ sessions: { joinMs: 60 } });
    const gate = gateCache(a);
    const hanging = b.send(envelopeTo(bob, 1));
    expect((await live(a)).frames.length).toBe(1);
    gate.open();
    expect((await hanging).code).toBe("cached");
  });

  test("a client that breaks off before its welcome lets deliveries at peers go on", async () => {
    const [a, b] = await pair();
    const gate = gateCache(a);
    const earlier = b.send(envelopeTo(bob, 1));
    const client = dial(a, "phone");
    await client.opened;
    client.send(authFrame(bob, "phone"));
    await until(() => a.sessions.stats().dids === 1);
    await Bun.sleep(20);
    const meanwhile = b.send(envelopeTo(bob, 2));
    client.terminate();
    await client.closed;
    gate.open();
    expect([(await earlier).code, (await meanwhile).code]).toEqual(["cached", "cached"]);
    expect(b.sessions.listens(bob.did)).toBe(false);
  });

  /** What lies in the Cache, of those ids. */
  const kept = async (relay: PeerRelay): Promise<Set<string>> => {
    const page = await relay.cache.mailbox.summary(mailboxOf(bob.did, 0), {
      after: null,
      entriesMax: 5_000,
      bytesMax: 0,
      nowMs: relay.clock.nowMs,
    });
    return new Set("entries" in page ? page.entries.map((entry) => entry.messageId) : []);
  };

  test("every envelope that was on its way before the welcome is in the Cache then, or comes live", async () => {
    const rate = { perSecond: 1e9, burst: 1e9, keysMax: 10 };
    const { relays } = await linked(3, {
      liveAckMs: 500,
      options: { recipientRate: rate, clientRate: rate, delivery: { ...deliveryLimits, liveAckMs: 500 } },
      sessions: { connects: rate },
    });
    const a = relays[0] as PeerRelay;
    const { store } = a.cache.mailbox;
    a.cache.mailbox.store = async (...given) => {
      await Bun.sleep(Math.random() * 6);
      return store(...given);
    };
    const outcomes = { before: 0, live: 0, later: 0 };
    for (let round = 0; round < 300; round++) {
      const home = relays[round % 3] as PeerRelay;
      const acknowledged = new Set<string>();
      const client = new LiveClient(sessionUrl(home.url, bob, "phone"));
      client.onEnvelope = (envelope) => {
        client.ack(envelope);
        acknowledged.add(String(envelope["message_id"]));
      };
      await client.opened;
      const sent = Array.from({ length: 4 }, async (_, at) => {
        const id = round * 4 + at + 1;
        await Bun.sleep(Math.random() * 8);
        const result = await (relays[(round + at) % 3] as PeerRelay).send(envelopeTo(bob, id));
        return { id: uuidOf(id), result };
      });
      await Bun.sleep(Math.random() * 8);
      client.send(authFrame(bob, "phone"));
      await client.until(1);
      const atWelcome = await kept(a);
      for (const { id, result } of await Promise.all(sent)) {
        // Nothing may arrive in the Cache after the welcome while the client listens.
        const place = atWelcome.has(id) ? "before" : acknowledged.has(id) ? "live" : "later";
        expect([round, id, place === "later", result.code]).toEqual([
          round,
          id,
          false,
          place === "live" ? "delivered" : "cached",
        ]);
        outcomes[place]++;
      }
      client.close();
      await until(() => relays.every((relay) => !relay.sessions.listens(bob.did)));
    }
    expect(outcomes.before).toBeGreaterThan(100);
    expect(outcomes.live).toBeGreaterThan(100);
  }, 60_000);

  test("whatever clients and links do, every envelope is acknowledged live or lies in the Cache", async () => {
    const rate = { perSecond: 1e9, burst: 1e9, keysMax: 10 };
    const { relays, start } = await linked(
      2,
      {
        options: { recipientRate: rate, clientRate: rate, delivery: { ...deliveryLimits, liveAckMs: 60 } },
        sessions: { connects: rate },
        limits: { steadyMs: 0 },
      },
      3,
    );
    const [a, b] = relays as [PeerRelay, PeerRelay];
    const acknowledged = new Set<string>();
    let stop = false;
    const flapping = [a, b].map(async (relay, own) => {
      for (let round = 0; !stop; round++) {
        const client = new LiveClient(sessionUrl(relay.url, bob, own === 0 || round % 5 === 0 ? "phone" : "laptop"));
        let seen = 0;
        client.onEnvelope = (envelope) => {
          if (++seen % 4 === 0) return;
          client.ack(envelope);
          acknowledged.add(String(envelope["message_id"]));
        };
        if (await client.opened) {
          client.send(authFrame(bob, own === 0 || round % 5 === 0 ? "phone" : "laptop"));
          await Promise.race([client.until(1), client.closed]);
        }
        await Bun.sleep(round % 3 === 0 ? 5 : 25);
        if (round % 2 === 0) client.terminate();
        else client.close();
      }
    });
    const coming = (async () => {
      while (!stop) {
        const third = await start(2);
        await Bun.sleep(30);
        third.peers.close();
        await Bun.sleep(10);
      }
    })();
    const results = await Promise.all(
      Array.from({ length: 300 }, async (_, i) => {
        await Bun.sleep(i * 3);
        const relay = i % 2 === 0 ? a : b;
        return { id: uuidOf(i + 1), result: await relay.send(envelopeTo(bob, i + 1)) };
      }),
    );
    stop = true;
    await Promise.all([...flapping, coming]);
    const stored = await kept(a);
    for (const { id, result } of results) {
      expect(result.success).toBe(true);
      if (result.code === "delivered") expect([id, acknowledged.has(id), stored.has(id)]).toEqual([id, true, false]);
      else expect([id, stored.has(id)]).toEqual([id, true]);
    }
    expect([...new Set(results.map(({ result }) => result.code))].sort()).toEqual(["cached", "delivered"]);
  }, 30_000);
});
