/**
 * Three clients send as fast as they may to inboxes of their own that answer after 5 s. An honest
 * delivery to a healthy inbox must stay fast. From an attacker's own network it must not, or this
 * test proves nothing.
 */
import { afterEach, expect, test } from "bun:test";
import { hostLimits } from "../../src/nodes/egress/host-limiter.ts";
import { connectionFrom, respond, testApp } from "../support/app.ts";
import { createPerson, envelopeTo, type Person, uuidOf } from "../support/cache-node.ts";
import { startOwnTime } from "../support/own-time.ts";
import { createTestRelay } from "../support/relay-node.ts";
import { pause } from "../support/wait.ts";

const cleanups: (() => unknown)[] = [];
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
});

const attackers = 3;
const attackPerSecond = 100;
const inboxesPerAttacker = 30;
const seconds = 4;
const everything = {
  client_rate: 1e9,
  client_burst: 1e9,
  recipient_rate: 1e9,
  recipient_burst: 1e9,
};

function serve(answerAfterMs: number): number {
  const server = Bun.serve({
    hostname: "0.0.0.0",
    port: 0,
    fetch: async () => {
      await Bun.sleep(answerAfterMs);
      return new Response("taken");
    },
  });
  cleanups.push(() => server.stop(true));
  return server.port as number;
}

/** Times of honest deliveries from a client during the attack, sorted. */
async function attack(honest: string): Promise<number[]> {
  const [slow, fast] = [serve(5_000), serve(0)];
  const relay = await createTestRelay({
    settings: everything,
    hosts: { ...hostLimits, failuresToOpen: 1_000 },
  });
  cleanups.push(relay.close);
  const { app } = testApp(relay.relay.routes, {
    now: () => relay.clock.nowMs,
    server: { requests_max: 1_024 },
  });
  const inboxOf = (number: number, url: string): Person => {
    const person = createPerson(number, [{ type: "SvcInboxService", serviceEndpoint: [url] }]);
    relay.recipients.add(person);
    return person;
  };
  let ids = 0;
  const send = async (client: string, to: Person): Promise<string> => {
    const envelope = { ...envelopeTo(to, 0), message_id: uuidOf(++ids) };
    const headers = { "content-type": "application/json" };
    const request = new Request("http://relay.example/relay", {
      method: "POST",
      headers,
      body: JSON.stringify(envelope),
    });
    const connection = connectionFrom(client);
    return ((await (await respond(app, request, connection)).json()) as { code: string }).code;
  };
  const victims = Array.from({ length: attackers * inboxesPerAttacker }, (_, i) =>
    inboxOf(10 + i, `http://127.0.1.${i + 1}:${slow}/in`),
  );
  const friend = inboxOf(1, `http://127.0.0.1:${fast}/in`);
  const timers = Array.from({ length: attackers }, (_, attacker) => {
    let turn = 0;
    return setInterval(() => {
      const to = victims[attacker * inboxesPerAttacker + (turn++ % inboxesPerAttacker)] as Person;
      send(`198.51.100.${attacker + 1}`, to).catch(() => undefined);
    }, 1_000 / attackPerSecond);
  });
  const times: number[] = [];
  await pause(2_000, "the attack has what it can get before anything is measured");
  for (let i = 0; i < seconds * 20; i++) {
    const elapsedMs = startOwnTime();
    const code = await send(honest, friend);
    const tookMs = code === "delivered" ? elapsedMs() : Number.POSITIVE_INFINITY;
    times.push(tookMs);
    if (tookMs > 2_000) break;
    await Bun.sleep(50);
  }
  for (const timer of timers) clearInterval(timer);
  return times.sort((a, b) => a - b);
}

const percentile = (times: readonly number[], share: number) =>
  times[Math.ceil(times.length * share) - 1] as number;

test("an honest delivery to a healthy inbox stays below 500 ms at the 99th percentile", async () => {
  const times = await attack("203.0.113.1");
  expect(times.length).toBe(seconds * 20);
  expect(percentile(times, 0.99)).toBeLessThan(500);
}, 120_000);

test("in the network of an attacker the same attack is noticed", async () => {
  expect(percentile(await attack("198.51.100.1"), 0.99)).toBeGreaterThan(500);
}, 120_000);
