/** Live sessions across processes: two Relays on one bus keep the laws of one. */
import { afterEach, describe, expect, test } from "bun:test";
import { openLocalBus } from "../../src/plugins/bus/local.ts";
import { natsOptions, openNatsBus } from "../../src/plugins/bus/nats.ts";
import type { Bus, BusReceiver } from "../../src/storage/bus.ts";
import { createPerson, envelopeTo, uuidOf } from "../support/cache-node.ts";
import { natsAbsence, startNats } from "../support/nats.ts";
import { startOwnTime } from "../support/own-time.ts";
import {
  createTestRelay,
  held,
  relayEndpoint,
  type TestRelay,
  type TestRelayOptions,
} from "../support/relay-node.ts";
import { pause } from "../support/wait.ts";
import { authHeaders, goLive, LiveClient, sessionUrl } from "./live-client.ts";

const cleanups: (() => unknown)[] = [];
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
});

const bob = createPerson(1, [{ type: "SvcRelayService", serviceEndpoint: [relayEndpoint] }, {}]);

type Pair = { readonly a: TestRelay; readonly b: TestRelay; readonly bus: Bus };

async function pair(options: TestRelayOptions = {}): Promise<Pair> {
  const bus = openLocalBus({ log: () => {} });
  const a = await createTestRelay({ ...options, bus });
  const b = await createTestRelay({ ...options, bus, beside: a });
  a.recipients.add(bob);
  cleanups.push(a.close, b.close);
  return { a, b, bus };
}

async function live(relay: TestRelay, deviceId = "phone", query = ""): Promise<LiveClient> {
  const client = await goLive(relay.serve(), bob, deviceId, query);
  cleanups.push(() => client.terminate());
  return client;
}

describe("an envelope at one process", () => {
  test("is delivered to a session of another", async () => {
    const { a, b } = await pair();
    const client = await live(a);
    client.onEnvelope = (envelope) => client.ack(envelope);
    const envelope = envelopeTo(bob, 1);
    expect(await b.send(envelope)).toMatchObject({
      code: "delivered",
      details: { channel: "live" },
    });
    expect(client.frames.slice(1)).toEqual([envelope]);
    expect(await held(a, bob.did)).toEqual([]);
  });

  test("goes to devices of both at once, and one acknowledgement is enough", async () => {
    const { a, b } = await pair();
    const [phone, laptop] = [await live(a, "phone"), await live(b, "laptop")];
    phone.onEnvelope = (envelope) => phone.ack(envelope);
    expect((await b.send(envelopeTo(bob, 1))).details).toEqual({ channel: "live" });
    await laptop.until(2);
  });

  test("that a device of one process passes on waits for the devices of the others", async () => {
    const { a, b, bus } = await pair();
    const third = await createTestRelay({ bus, beside: a });
    cleanups.push(third.close);
    const [reader, writer] = [await live(b, "laptop", "?pass=1"), await live(third)];
    reader.onEnvelope = ({ message_id }) => reader.send({ type: "pass", message_id });
    writer.onEnvelope = (envelope) => setTimeout(() => writer.ack(envelope), 100);
    expect((await a.send(envelopeTo(bob, 1))).code).toBe("delivered");
    expect(await held(a, bob.did)).toEqual([]);
    // None waits longer than the devices do.
    writer.terminate();
    while (third.sessions.stats().sockets > 0) await Bun.sleep(1);
    expect((await a.send(envelopeTo(bob, 2))).code).toBe("cached");
  });

  test("and at the other at the same time is delivered to a session once, and other content under its id is not", async () => {
    const { a, b, bus } = await pair();
    const third = await createTestRelay({ bus, beside: a });
    cleanups.push(third.close);
    const client = await live(a);
    const envelope = envelopeTo(bob, 1);
    const sent = [b.send(envelope), a.send(envelope)];
    await client.until(2);
    const other = { ...envelope, payload: { ciphertext_b64: "BBBB" } };
    expect((await third.send(other)).code).toBe("cached");
    await pause(50, "the other process asks, too, before the client acknowledges");
    client.ack(envelope);
    expect((await Promise.all(sent)).map(({ code }) => code)).toEqual(["delivered", "delivered"]);
    expect(client.frames.slice(1)).toEqual([envelope]);
  });

  test("and at the other before the first result is stored is not delivered again, and other content is", async () => {
    const { a, b, bus } = await pair();
    const client = await live(a);
    client.onEnvelope = (envelope) => client.ack(envelope);
    const envelope = envelopeTo(bob, 1);
    // Each of these Relays has results of its own: none knows what another has stored.
    for (const relay of [a, b]) expect((await relay.send(envelope)).code).toBe("delivered");
    expect(client.frames.slice(1)).toEqual([envelope]);
    const third = await createTestRelay({ bus, beside: a });
    cleanups.push(third.close);
    const other = { ...envelope, payload: { ciphertext_b64: "BBBB" } };
    expect((await third.send(other)).code).toBe("delivered");
    expect(client.frames.slice(1)).toEqual([envelope, other]);
  });

  test("goes on at once when no process has a session", async () => {
    const { b } = await pair();
    const elapsedMs = startOwnTime();
    const result = await b.send(envelopeTo(bob, 1));
    expect([result.code, elapsedMs() < 1_000]).toEqual(["cached", true]);
  });

  test("goes on at once when a session elsewhere passes", async () => {
    const { a, b } = await pair({ settings: { live_ack_timeout: 600_000 } });
    const client = await live(a, "phone", "?pass=1");
    client.onEnvelope = ({ message_id }) => client.send({ type: "pass", message_id });
    expect((await b.send(envelopeTo(bob, 1))).code).toBe("cached");
    const direct = await b.send({ ...envelopeTo(bob, 2), delivery_hint: "direct" });
    expect(direct.ndr?.attempts).toMatchObject([
      { channel: "live", error: "destination_unavailable" },
    ]);
  });

  test("goes on when a session elsewhere is silent", async () => {
    const { a, b } = await pair({ settings: { live_ack_timeout: 100 } });
    const client = await live(a);
    expect((await b.send(envelopeTo(bob, 1))).code).toBe("cached");
    expect((await client.until(2)).length).toBe(2);
    const direct = await b.send({ ...envelopeTo(bob, 2), delivery_hint: "direct" });
    expect(direct.ndr?.attempts).toMatchObject([{ channel: "live", error: "not_acknowledged" }]);
  });

  test("goes on when it is larger than the bus takes, or the bus is away", async () => {
    const { a, b, bus } = await pair();
    const client = await live(a);
    client.onEnvelope = (envelope) => client.ack(envelope);
    Object.defineProperty(bus, "messageBytesMax", { value: 1_000, configurable: true });
    const large = envelopeTo(bob, 1, { payload: { ciphertext_b64: "A".repeat(2_000) } });
    expect((await b.send(large)).code).toBe("cached");
    await bus.close();
    expect((await b.send(envelopeTo(bob, 2))).code).toBe("cached");
    expect((await a.send(envelopeTo(bob, 3))).code).toBe("delivered");
  });

  test("is not given to a session that the document no longer authorizes", async () => {
    const { a, b } = await pair();
    const client = await live(a);
    a.recipients.add({ ...bob, document: { ...bob.document, verificationMethod: [] } });
    expect((await b.send(envelopeTo(bob, 1))).code).toBe("cached");
    expect(await client.closed).toBe(4403);
    expect(client.frames.length).toBe(1);
  });
});

describe("a session that joins", () => {
  test("at the same time in both processes leaves exactly one", async () => {
    const { a, b } = await pair();
    for (let round = 0; round < 40; round++) {
      const device = `device-${round}`;
      const both = [a, b].map(async (relay) => {
        const client = new LiveClient(
          sessionUrl(relay.serve(), bob, device),
          authHeaders(bob, device),
        );
        cleanups.push(() => client.terminate());
        await client.opened;
        return client;
      });
      const [first, second] = (await Promise.all(both)) as [LiveClient, LiveClient];
      expect(await Promise.race([first.closed, second.closed])).toBe(4410);
      const sockets = (): number => a.sessions.stats().sockets + b.sessions.stats().sockets;
      // The client may hear of its end before its Relay does.
      while (sockets() > 1) await Bun.sleep(1);
      await Bun.sleep(5);
      expect(sockets()).toBe(1);
      for (const client of [first, second]) client.terminate();
      while (sockets() > 0) await Bun.sleep(2);
    }
  });

  test("replaces an older one of its device in another process", async () => {
    const { a, b } = await pair();
    const old = await live(a);
    const fresh = await live(b);
    expect(await old.closed).toBe(4410);
    fresh.onEnvelope = (envelope) => fresh.ack(envelope);
    expect((await a.send(envelopeTo(bob, 1))).code).toBe("delivered");
    expect([a.sessions.stats().sockets, b.sessions.stats().sockets]).toEqual([0, 1]);
  });

  test("is welcomed after the deliveries in flight in another process have ended", async () => {
    const { a, b } = await pair();
    const [begun, gate] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
    const { store } = b.cache.mailbox;
    b.cache.mailbox.store = async (...entry) => {
      begun.resolve();
      await gate.promise;
      return store.apply(b.cache.mailbox, entry);
    };
    const sending = b.send(envelopeTo(bob, 1));
    await begun.promise;
    let welcomed = false;
    const joining = live(a).then((client) => {
      welcomed = true;
      return client;
    });
    await pause(150, "it would be welcomed too early");
    expect(welcomed).toBe(false);
    gate.resolve();
    expect((await sending).code).toBe("cached");
    await joining;
    expect(await held(a, bob.did)).toEqual([uuidOf(1)]);
  });
});

/**
 * Two Relays over a NATS server; what the second one is offered waits for `release`, which resolves
 * when it was handled.
 */
async function latePair(options: TestRelayOptions = {}) {
  const server = await startNats();
  cleanups.push(server.end);
  const open = () => openNatsBus(natsOptions.parse({ servers: [server.url] }), { log: () => {} });
  const [first, second] = await Promise.all([open(), open()]);
  cleanups.push(() => Promise.all([first.close(), second.close()]));
  const [came, gate, handled] = [0, 1, 2].map(() => Promise.withResolvers<void>());
  const delayed = (handler: BusReceiver): BusReceiver => {
    return async (message) => {
      came!.resolve();
      await gate!.promise;
      const answer = await handler(message);
      handled!.resolve();
      return answer;
    };
  };
  const subscribe: Bus["subscribe"] = (subject, handler, more) =>
    second.subscribe(subject, subject.startsWith("relay.live.") ? delayed(handler) : handler, more);
  const a = await createTestRelay({ ...options, bus: first });
  const b = await createTestRelay({
    ...options,
    bus: Object.create(second, { subscribe: { value: subscribe } }),
    beside: a,
  });
  a.recipients.add(bob);
  cleanups.push(a.close, b.close);
  const release = async () => {
    await came!.promise;
    gate!.resolve();
    await handled!.promise;
  };
  return { a, b, release };
}

describe.skipIf(natsAbsence() !== null)(
  "an envelope that is late at another process, over NATS,",
  () => {
    test("does not come after it was acknowledged", async () => {
      const { a, b, release } = await latePair();
      const [phone, laptop] = [await live(a, "phone"), await live(b, "laptop")];
      phone.onEnvelope = (envelope) => phone.ack(envelope);
      expect((await a.send(envelopeTo(bob, 1))).details).toEqual({ channel: "live" });
      await release();
      expect(laptop.frames.length).toBe(1);
    });

    test("does not come after it went to a Cache, and one in time does", async () => {
      const { a, b, release } = await latePair({ settings: { live_ack_timeout: 500 } });
      const laptop = await live(b, "laptop");
      expect((await a.send(envelopeTo(bob, 1))).code).toBe("cached");
      await release();
      expect(laptop.frames.length).toBe(1);
      laptop.onEnvelope = (envelope) => laptop.ack(envelope);
      expect((await a.send(envelopeTo(bob, 2))).code).toBe("delivered");
      expect(laptop.frames.slice(1)).toEqual([envelopeTo(bob, 2)]);
    });
  },
);
