/**
 * The memory that the Relay keeps for clients of live sessions that do not read, or come all at
 * once: bounded, and only for a short time.
 */
import { afterEach, expect, test } from "bun:test";
import { connect, type Socket } from "node:net";
import { createPerson, envelopeTo, type Person, uuidOf } from "../support/cache-node.ts";
import {
  createTestRelay,
  relayEndpoint,
  type TestRelay,
  type TestRelayOptions,
} from "../support/relay-node.ts";
import { authHeaders, goLive, LiveClient, sessionUrl } from "./live-client.ts";

const cleanups: (() => unknown)[] = [];
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
});

const bob = createPerson(1, [{ type: "SvcRelayService", serviceEndpoint: [relayEndpoint] }, {}]);

async function world(
  given: TestRelayOptions & { readonly liveAckMs: number },
): Promise<[TestRelay, string]> {
  const relay = await createTestRelay({
    ...given,
    settings: { ...given.settings, live_ack_timeout: given.liveAckMs },
  });
  relay.recipients.add(bob);
  cleanups.push(relay.close);
  return [relay, relay.serve()];
}

/** More than the kernel keeps for a connection whose other side does not read. */
const large = { payload: { ciphertext_b64: "A".repeat(14 * 1024 * 1024) } };

/** A proven session whose client reads the welcome and nothing after it. */
async function goUnread(base: string, person: Person): Promise<Socket> {
  const { hostname, port, pathname } = new URL(sessionUrl(base, person, "unread"));
  const headers = {
    Host: hostname,
    Upgrade: "websocket",
    Connection: "Upgrade",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": btoa("0123456789abcdef"),
    ...authHeaders(person, "unread"),
  };
  const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}`);
  const socket = connect(Number(port), hostname);
  cleanups.push(() => socket.destroy());
  socket.on("error", () => undefined);
  socket.write([`GET ${pathname} HTTP/1.1`, ...lines, "", ""].join("\r\n"));
  await new Promise<void>((resolve) => {
    let heard = "";
    socket.on("data", (bytes) => {
      heard += bytes.toString("latin1");
      if (heard.includes("welcome")) resolve();
    });
  });
  socket.removeAllListeners("data");
  socket.pause();
  return socket;
}

/** A text frame as a client sends it; a mask of zeros leaves the text as it is. */
function frameOf(text: string): Uint8Array {
  return Buffer.concat([Buffer.of(0x81, 0x80 | text.length, 0, 0, 0, 0), Buffer.from(text)]);
}

async function emptied(relay: TestRelay): Promise<void> {
  while (relay.sessions.stats().sockets > 0) await Bun.sleep(2);
}

test("a client that has not read its envelope when its time is over loses the session", async () => {
  const [relay, url] = await world({ liveAckMs: 300 });
  await goUnread(url, bob);
  expect((await relay.send(envelopeTo(bob, 1, large))).code).toBe("cached");
  await emptied(relay);
});

test("a client that acknowledges what it has not read loses the session", async () => {
  const [relay, url] = await world({ liveAckMs: 30_000 });
  const socket = await goUnread(url, bob);
  const sending = relay.send(envelopeTo(bob, 1, large));
  const ack = frameOf(JSON.stringify({ type: "ack", message_id: uuidOf(1) }));
  const guessing = setInterval(() => socket.write(ack), 20);
  cleanups.push(() => clearInterval(guessing));
  expect((await sending).code).toBe("delivered");
  await emptied(relay);
});

test("a client that does not read holds up no envelope behind the one that it has", async () => {
  const [relay, url] = await world({ liveAckMs: 600_000 });
  const socket = await goUnread(url, bob);
  const first = relay.send(envelopeTo(bob, 1, large));
  while (relay.relay.stats().inFlight === 0) await Bun.sleep(1);
  for (let id = 2; id <= 20; id++)
    expect((await relay.send(envelopeTo(bob, id))).code).toBe("cached");
  socket.destroy();
  expect((await first).code).toBe("cached");
});

test("a client that reads and stays silent keeps it", async () => {
  const [relay, url] = await world({ liveAckMs: 2_000 });
  const client = await goLive(url, bob);
  cleanups.push(() => client.terminate());
  expect((await relay.send(envelopeTo(bob, 1, large))).code).toBe("cached");
  expect((await client.until(2))[1]?.["message_id"]).toBe(uuidOf(1));
  client.onEnvelope = (envelope) => client.ack(envelope);
  expect((await relay.send(envelopeTo(bob, 2))).code).toBe("delivered");
});

test("beyond the bytes that all sessions may hold, envelopes go on to the Cache", async () => {
  const [relay, url] = await world({
    liveAckMs: 30_000,
    sessions: { unackedBytesTotalMax: 3_000 },
  });
  const carol = createPerson(3, [
    { type: "SvcRelayService", serviceEndpoint: [relayEndpoint] },
    {},
  ]);
  relay.recipients.add(carol);
  const [first, second] = [await goLive(url, bob), await goLive(url, carol)];
  cleanups.push(
    () => first.terminate(),
    () => second.terminate(),
  );
  const payload = { payload: { ciphertext_b64: "A".repeat(2_000) } };
  const waiting = relay.send(envelopeTo(bob, 1, payload));
  await first.until(2);
  expect((await relay.send(envelopeTo(carol, 1, payload))).code).toBe("cached");
  first.ack(first.frames[1] as Record<string, unknown>);
  expect((await waiting).code).toBe("delivered");
  second.onEnvelope = (envelope) => second.ack(envelope);
  expect((await relay.send(envelopeTo(carol, 2, payload))).code).toBe("delivered");
});

test("upgrades whose proof is being verified are bounded, and so is what a rush of clients takes", async () => {
  const gate = Promise.withResolvers<void>();
  let verifying = 0;
  const claim = async () => {
    verifying++;
    await gate.promise;
    return true;
  };
  const replay = { claim, expire: async () => 0 };
  const [, url] = await world({ server: { requests_max: 4 }, replay, liveAckMs: 1_000 });
  const dial = (device: string) => {
    const client = new LiveClient(sessionUrl(url, bob, device), authHeaders(bob, device));
    cleanups.push(() => client.terminate());
    return client;
  };
  const begun = ["a", "b"].map(dial);
  while (verifying < 2) await Bun.sleep(2);
  const third = () => dial("c").opened;
  expect(await third()).toBe(false);
  gate.resolve();
  expect(await Promise.all(begun.map(({ opened }) => opened))).toEqual([true, true]);
  expect(await third()).toBe(true);
});

test("sessions whose proofs are verified at the same time are no more than there may be", async () => {
  const gate = Promise.withResolvers<void>();
  let verifying = 0;
  const claim = async () => {
    verifying++;
    await gate.promise;
    return true;
  };
  const settings = { sessions_max: 2 };
  const [relay, url] = await world({
    settings,
    replay: { claim, expire: async () => 0 },
    liveAckMs: 1_000,
  });
  const dialed = ["a", "b", "c"].map((device) => {
    const client = new LiveClient(sessionUrl(url, bob, device), authHeaders(bob, device));
    cleanups.push(() => client.terminate());
    return client;
  });
  while (verifying < 3) await Bun.sleep(2);
  gate.resolve();
  const opened = await Promise.all(dialed.map((client) => client.opened));
  expect(opened.filter(Boolean).length).toBe(2);
  expect(relay.app.inFlight().requests).toBe(0);
});
