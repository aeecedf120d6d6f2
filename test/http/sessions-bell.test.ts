/**
 * A session that passes learns of what its Cache has stored, at most once a second, and while its
 * document authorizes it.
 */
import { afterEach, expect, test } from "bun:test";
import type { LedgerCall } from "../../src/core/ledger/calls.ts";
import { announceChange } from "../../src/nodes/parties/signals.ts";
import type { SessionParts } from "../../src/nodes/relay/live/registry.ts";
import { openLocalBus } from "../../src/plugins/bus/local.ts";
import { createPerson, envelopeTo } from "../support/cache-node.ts";
import { createTestRelay, relayEndpoint } from "../support/relay-node.ts";
import { goLive, type LiveClient } from "./live-client.ts";

const cleanups: (() => unknown)[] = [];
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
});

const bob = createPerson(1, [{ type: "SvcRelayService", serviceEndpoint: [relayEndpoint] }, {}]);

async function stage(sessions: SessionParts["bounds"] = {}) {
  const bus = openLocalBus({ log: () => {} });
  const relay = await createTestRelay({ bus, sessions });
  relay.recipients.add(bob);
  cleanups.push(relay.close);
  const url = relay.serve();
  const live = async (deviceId: string, query: string): Promise<LiveClient> => {
    const client = await goLive(url, bob, deviceId, query);
    cleanups.push(() => client.terminate());
    return client;
  };
  return { relay, bus, phone: await live("phone", "?pass=1"), laptop: await live("laptop", "") };
}

const rung = async (client: LiveClient, times: number) => {
  while (client.rings < times) await Bun.sleep(5);
};

test("what goes straight to the Cache rings, and at sessions that don't pass never", async () => {
  const { relay, phone, laptop } = await stage();
  expect(await relay.send({ ...envelopeTo(bob, 1), delivery_hint: "cache" })).toMatchObject({
    code: "cached",
  });
  await rung(phone, 1);
  await laptop.roundTrip();
  expect([laptop.rings, laptop.frames.length, phone.frames.length]).toEqual([0, 1, 1]);
});

test("what is stored together rings once, and between two rings is a second", async () => {
  const { relay, phone } = await stage();
  const store = async (id: number) =>
    expect((await relay.cache.store(envelopeTo(bob, id))).status).toBe(202);
  for (let id = 1; id <= 20; id++) await store(id);
  await rung(phone, 1);
  const startMs = performance.now();
  for (let id = 21; id <= 40; id++) await store(id);
  await rung(phone, 2);
  expect(performance.now() - startMs).toBeGreaterThanOrEqual(900);
  await phone.roundTrip();
  expect(phone.rings).toBe(2);
});

const withoutKey = { ...bob, document: { ...bob.document, verificationMethod: [] } };

test("a session whose key was removed learns of nothing, and ends when something is stored", async () => {
  const { relay, phone } = await stage();
  relay.recipients.add(withoutKey);
  await relay.cache.store(envelopeTo(bob, 1));
  expect(await phone.closed).toBe(4403);
  expect([phone.rings, phone.frames.length]).toEqual([0, 1]);
});

test("a session whose key was removed ends without any message: soon after the change, or at the next look", async () => {
  const { relay, phone, laptop, bus } = await stage();
  relay.recipients.add(withoutKey);
  announceChange(bus)({ did: bob.did } as LedgerCall);
  expect(await Promise.all([phone.closed, laptop.closed])).toEqual([4403, 4403]);
  expect(relay.sessions.stats()).toEqual({ sockets: 0, unproven: 0, dids: 0 });
  const elsewhere = await stage({ lookMs: 20 });
  elsewhere.relay.recipients.add(withoutKey);
  expect(await elsewhere.phone.closed).toBe(4403);
});
