/**
 * Directory, Relay and Cache as nodes of their own, as an operator would run them: the Relay and
 * the Cache learn about recipients from the Directory's public endpoints, and the Relay reaches the
 * Cache over HTTP.
 */
import { afterAll, expect, test } from "bun:test";
import { directoryRecipients } from "../../src/nodes/parties/recipients.ts";
import { envelopeTo, uuidOf } from "../support/cache-node.ts";
import { expectDeliveryResult } from "../support/delivery-shape.ts";
import { simpleDocument } from "../support/directory.ts";
import { freePort } from "../support/executable.ts";
import { type Identity, identityOf } from "../support/identity.ts";
import { registerAt, startTestNodes, type TestNodes } from "../support/nodes.ts";

const running: TestNodes[] = [];
afterAll(async () => {
  for (const nodes of running.reverse()) await nodes.stop();
});

const listener = () => {
  const url = `http://127.0.0.1:${freePort()}`;
  return { url, server: { listen: [url.slice("http://".length)], drain_timeout: "500ms" } };
};

async function start(input: Parameters<typeof startTestNodes>[0]): Promise<TestNodes> {
  const nodes = await startTestNodes({ relay: {}, cache: {}, directory: {}, ...input });
  running.push(nodes);
  return nodes;
}

async function post(url: string, body: unknown) {
  const response = await fetch(url, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body),
  });
  return { status: response.status, body: (await response.json()) as Record<string, unknown> };
}

function register(
  directory: string,
  identity: Identity,
  services: Record<string, unknown>[],
): Promise<void> {
  return registerAt(directory, identity, { ...simpleDocument(identity), service: services });
}

test("an envelope crosses three nodes that know each other by URL only", async () => {
  const directoryAt = listener();
  await start({
    server: directoryAt.server,
    directory: { enabled: true, unsigned_updates: "allow" },
  });
  const cacheAt = listener();
  await start({
    server: { ...cacheAt.server, recipients: directoryAt.url },
    cache: { enabled: true, public_endpoints: [cacheAt.url] },
  });
  const relayAt = listener();
  await start({
    server: { ...relayAt.server, recipients: directoryAt.url },
    relay: {
      enabled: true,
      public_endpoints: [relayAt.url],
      allow_http: true,
      allow_private: ["127.0.0.0/8"],
    },
  });
  const carol = identityOf("carol of three nodes");
  const key = `${carol.did}#k1`;
  const gone = `http://127.0.0.1:${freePort()}/`;
  await register(directoryAt.url, carol, [
    { id: `${carol.did}#inbox`, type: "SvcInboxService", serviceEndpoint: [gone] },
    {
      id: `${carol.did}#cache`,
      type: "SvcCacheService",
      serviceEndpoint: [cacheAt.url],
      authorization: [key],
    },
  ]);

  const timestamp = new Date().toISOString();
  const envelope = { ...envelopeTo(carol, 1), timestamp };
  const sent = await post(`${relayAt.url}/relay`, envelope);
  expectDeliveryResult(sent.body);
  expect([sent.status, sent.body["code"], sent.body["retry_count"]]).toEqual([202, "cached", 2]);
  expect(sent.body["cache_result"]).toMatchObject({
    accepted: true,
    deduped: false,
    message_id: uuidOf(1),
    applied_ttl: "PT24H",
  });
  const repeated = await post(`${relayAt.url}/relay/${encodeURIComponent(carol.did)}`, envelope);
  expect(repeated.body["details"]).toEqual({ deduped: true });

  const unknown = await post(`${relayAt.url}/relay`, {
    ...envelopeTo(identityOf("nobody at all"), 2),
    timestamp,
  });
  expect([unknown.status, unknown.body["code"]]).toEqual([404, "recipient_not_found"]);

  const source = directoryRecipients(directoryAt.url);
  const subject = await source.subject(carol.did);
  expect(subject?.document?.service.map((service) => service.type)).toEqual([
    "SvcInboxService",
    "SvcCacheService",
  ]);
  expect(await source.policy("recipient", carol.did)).toBeNull();
  expect(await source.policy("tag", carol.did)).toBeNull();
  expect(await source.persona(carol.did)).toBeNull();
  expect(await source.blockTimeMs()).toBe(50);
}, 120_000);

test("a Cache is ready once the Directory that it asks answers", async () => {
  const directoryAt = listener();
  const cacheAt = listener();
  await start({
    server: { ...cacheAt.server, recipients: directoryAt.url },
    cache: { enabled: true, public_endpoints: [cacheAt.url] },
  });
  const early = await fetch(`${cacheAt.url}/readyz`);
  expect([early.status, await early.json()]).toMatchObject([
    503,
    { detail: "not ready: recipients" },
  ]);

  await start({
    server: directoryAt.server,
    directory: { enabled: true, unsigned_updates: "allow" },
  });
  let ready = await fetch(`${cacheAt.url}/readyz`);
  // A failure is remembered for two seconds.
  for (const endsAt = performance.now() + 60_000; !ready.ok && performance.now() < endsAt; ) {
    await Bun.sleep(50);
    ready = await fetch(`${cacheAt.url}/readyz`);
  }
  expect([ready.status, await ready.json()]).toMatchObject([200, { checks: { recipients: "ok" } }]);
}, 120_000);
