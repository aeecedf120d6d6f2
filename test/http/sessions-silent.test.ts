/** Sessions that never acknowledge hold the senders to them up, and no one else. */
import { afterAll, expect, test } from "bun:test";
import { createPerson, envelopeTo, type Person } from "../support/cache-node.ts";
import { relayEndpoint } from "../support/relay-node.ts";
import { goLive, type LiveClient } from "./live-client.ts";
import { cleanUp, inboxAt, inboxFor, relayAt, relayFor } from "./relay-scenario.ts";

afterAll(cleanUp);

test("a known sender and a newcomer get through beside five networks whose sessions never acknowledge", async () => {
  const relay = await relayFor({
    trustedProxies: ["192.0.2.7"],
    settings: { live_ack_timeout: 2_000 },
  });
  const url = relay.serve();
  const silent: Person[] = Array.from({ length: 5 }, (_, n) =>
    createPerson(20 + n, [relayAt(relayEndpoint)]),
  );
  const sockets: LiveClient[] = [];
  for (const person of silent) {
    relay.recipients.add(person);
    sockets.push(await goLive(url, person));
  }
  const bob = createPerson(1, [inboxAt(inboxFor().url)]);
  relay.recipients.add(bob);
  const from = (network: number, envelope: unknown) =>
    relay.raw(envelope, { headers: { "x-forwarded-for": `198.51.100.${network}` } });
  let [id, answered] = [1_000, 0];
  const flood = silent.flatMap((person, network) =>
    Array.from({ length: 40 }, () => from(network + 1, envelopeTo(person, id++)).catch(() => null)),
  );
  for (const answer of flood) void answer.finally(() => answered++);
  while (answered < 200 - 62) await Bun.sleep(5);
  const times: number[] = [];
  for (let n = 0; n < 20; n++) {
    const beganMs = performance.now();
    const answer = await from(n % 2 === 0 ? 90 : 100 + n, envelopeTo(bob, n));
    times.push(performance.now() - beganMs);
    expect(answer.status).toBe(200);
  }
  expect(Math.max(...times)).toBeLessThan(500);
  for (const socket of sockets) socket.terminate();
  const refused = (await Promise.all(flood)).filter((answer) => answer?.status === 503).length;
  // Of the 64 places of those that wait, these five networks have at most 32, 16, 8, 4 and 2.
  expect(refused).toBeGreaterThanOrEqual(200 - 62);
});
