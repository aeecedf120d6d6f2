/**
 * A client that asked for it leaves an envelope to the next destination, which is tried at once.
 */
import { afterEach, expect, test } from "bun:test";
import { createPerson, envelopeTo } from "../support/cache-node.ts";
import { createTestRelay, held, relayEndpoint, type TestRelay } from "../support/relay-node.ts";
import { type Frame, goLive, type LiveClient } from "./live-client.ts";

const cleanups: (() => unknown)[] = [];
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
});

const bob = createPerson(1, [{ type: "SvcRelayService", serviceEndpoint: [relayEndpoint] }, {}]);

/** A Relay, by default without an end of the wait for an acknowledgement. */
async function relayFor(liveAckMs = 600_000): Promise<TestRelay> {
  const relay = await createTestRelay({ settings: { live_ack_timeout: liveAckMs } });
  relay.recipients.add(bob);
  cleanups.push(relay.close);
  return relay;
}

async function live(relay: TestRelay, deviceId: string, query = "?pass=1"): Promise<LiveClient> {
  const client = await goLive(relay.serve(), bob, deviceId, query);
  cleanups.push(() => client.terminate());
  return client;
}

const pass = (client: LiveClient) => (envelope: Frame) =>
  client.send({ type: "pass", message_id: envelope["message_id"] });
/** No destination but the session. */
const direct = (id: number) => ({ ...envelopeTo(bob, id), delivery_hint: "direct" });

test("a session that passes gets the next envelope all the same", async () => {
  const relay = await relayFor();
  const client = await live(relay, "phone");
  client.onEnvelope = pass(client);
  for (let id = 1; id <= 100; id++)
    expect(await relay.send(envelopeTo(bob, id))).toMatchObject({ code: "cached", retry_count: 0 });
  expect((await held(relay, bob.did)).length).toBe(100);
  const left = await relay.send(direct(101));
  expect(left.ndr?.attempts).toMatchObject([{ channel: "live", error: "destination_unavailable" }]);
  client.onEnvelope = (envelope) => client.ack(envelope);
  expect((await relay.send(envelopeTo(bob, 102))).details).toEqual({ channel: "live" });
  expect(relay.sessions.stats().sockets).toBe(1);
});

test("another device may still acknowledge it", async () => {
  const relay = await relayFor();
  const [phone, laptop] = [await live(relay, "phone"), await live(relay, "laptop", "")];
  phone.onEnvelope = pass(phone);
  const sending = relay.send(envelopeTo(bob, 1));
  const [, envelope] = await laptop.until(2);
  await phone.until(2);
  await phone.roundTrip();
  laptop.ack(envelope!);
  expect((await sending).details).toEqual({ channel: "live" });
  expect(await held(relay, bob.did)).toEqual([]);
});

test("a session that has not asked for it can't pass", async () => {
  const relay = await relayFor(100);
  const client = await live(relay, "phone", "");
  client.onEnvelope = pass(client);
  const silent = await relay.send(direct(1));
  expect(silent.ndr?.attempts).toMatchObject([{ channel: "live", error: "not_acknowledged" }]);
});
