/**
 * The first of several databases, which has the ledger, is away: the mailboxes in the others are
 * served, what can't be is refused at once, and the ledger is read from a standby that has all of
 * it.
 */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { firstDocument, register } from "../../src/client/identity/registration.ts";
import { memoryKeys } from "../../src/client/keys/key-stores.ts";
import { createIdentity, type Identity } from "../../src/client/keys/keys.ts";
import { settleRegistration } from "../../src/client/net/directory.ts";
import { cachesOf } from "../../src/client/trust/caches.ts";
import { connect } from "../../src/client/trust/client.ts";
import { Waypost } from "../../src/client/waypost.ts";
import type { ConfigInput } from "../../src/config/schema.ts";
import { secondMs } from "../../src/core/codec/time.ts";
import { postgresPlugin } from "../../src/plugins/postgres/postgres.ts";
import { placeOf } from "../../src/plugins/postgres/records.ts";
import { openPool } from "../../src/plugins/postgres/store.ts";
import { optionsOf } from "../conformance/options.ts";
import { freePort } from "../support/executable.ts";
import { type OtherConstants, startTestNodes } from "../support/nodes.ts";
import { type PostgresServer, postgresAbsence, startPostgres } from "../support/postgres.ts";
import { PostgresPair } from "../support/postgres-pair.ts";
import { type PushService, startPushService } from "../support/push-service.ts";
import { scratchPaths } from "../support/scratch.ts";
import { pause } from "../support/wait.ts";

const absence = postgresAbsence();
if (absence !== null) console.log(`SKIPPED: ${absence}`);
const settings = ["fsync=on", "max_connections=60", "shared_buffers=64MB"];

let east: PostgresServer;
let home: PostgresPair;
beforeAll(async () => {
  if (absence !== null) return;
  [home, east] = await Promise.all([PostgresPair.start(settings), startPostgres(settings)]);
}, 120_000);
afterAll(async () => {
  await Promise.all([home?.end(), east?.end()]);
});

const waiting = { timeoutMs: 60_000, intervalMs: 50 };

/** One whose mailbox is in the database that has this half of the places. */
async function registered(url: string, half: "home" | "east") {
  const isThere = ({ did }: Identity) => placeOf(did) < 512 === (half === "home");
  let identity = createIdentity(half);
  while (!isThere(identity)) identity = createIdentity(half);
  const client = connect({ directoryUrl: url, relayUrl: url });
  const document = await firstDocument(identity, { relayUrl: url, cacheUrl: url });
  const submitted = await register(client, identity, { document, alias: null });
  await settleRegistration(client, submitted, waiting);
  const [cache] = await cachesOf(client, identity);
  return { identity, cache: cache! };
}

async function send(url: string, path: string, to: Pick<Identity, "did">): Promise<number> {
  const body = JSON.stringify({
    message_id: crypto.randomUUID(),
    to: to.did,
    timestamp: new Date().toISOString(),
    payload: { ciphertext_b64: "AAAA" },
  });
  const headers = { "content-type": "application/json" };
  return (await fetch(`${url}${path}`, { method: "POST", headers, body })).status;
}

/**
 * A question to the home that gets no answer ends after so long: what is faster has asked nothing
 * there.
 */
const homeMs = 5 * secondMs;

async function timed<T>(work: Promise<T>): Promise<readonly [T, number]> {
  const begunMs = performance.now();
  return [await work, performance.now() - begunMs];
}

const pathOf = scratchPaths("postgres-home");

async function nodesOver(schema: string, given: ConfigInput = {}, others: OtherConstants = {}) {
  const main = {
    urls: home.urls,
    schema,
    shards: { east: { urls: [east.url], schema } },
    connections: 4,
    block_time_ms: 200,
  };
  await postgresPlugin.migrate?.(optionsOf(postgresPlugin, main));
  return startTestNodes({ stores: { main: { plugin: "postgres", ...main } }, ...given }, others);
}

test.skipIf(absence !== null)(
  "a frozen first database stops its own mailboxes only, and they are refused at once",
  async () => {
    const nodes = await nodesOver("away");
    const { url } = nodes;
    const [here, there] = [await registered(url, "home"), await registered(url, "east")];
    for (const { identity, cache } of [here, there])
      for (const path of ["/relay", "/cache/store"]) {
        expect(await send(url, path, identity)).toBe(202);
        expect((await cache.messages(undefined, 10)).messages.length).toBeGreaterThan(0);
      }
    home.freezePrimary();
    try {
      // The first find out that it is away.
      await Promise.all([send(url, "/relay", here.identity), send(url, "/relay", there.identity)]);
      for (let n = 0; n < 5; n++)
        for (const path of ["/relay", "/cache/store"]) {
          const [stored, storeMs] = await timed(send(url, path, there.identity));
          expect([stored, storeMs < homeMs]).toEqual([202, true]);
          const [page, pageMs] = await timed(there.cache.messages(undefined, 50));
          expect([page.messages.length > 2, pageMs < homeMs]).toEqual([true, true]);
          const [refused, refusedMs] = await timed(send(url, path, here.identity));
          expect([refused, refusedMs < homeMs]).toEqual([503, true]);
        }
      const ready = await fetch(`${url}/readyz`);
      expect([ready.status, await ready.text()]).toEqual([200, expect.stringContaining("home")]);
      // From the standby, of one that no message was for.
      const resolved = await fetch(`${url}/resolve/${here.identity.did}`);
      expect(resolved.status).toBe(200);
    } finally {
      home.thawPrimary();
    }
    while ((await send(url, "/relay", here.identity)) !== 202) await Bun.sleep(50);
    await nodes.stop();
  },
  120_000,
);

/** One whose mailbox is in the other database, and whose device has subscribed to pushes. */
async function subscribedThere(url: string, at: PushService) {
  const open = () => Waypost.open({ url, keys: memoryKeys() });
  let me = await open();
  while (placeOf(me.did) < 512) me = await open();
  const device = at.device("there");
  const subscribed = me.push(device.subscription, { data: "wake" });
  await at.atLeast(1);
  const channel = new BroadcastChannel("waypost.push");
  channel.postMessage(device.told());
  await subscribed;
  channel.close();
  return { identity: { did: me.did }, device };
}

test.skipIf(absence !== null)(
  "a device whose mailbox is elsewhere gets its message at once, and is woken when the first database is back",
  async () => {
    const at = await startPushService();
    const keyFile = pathOf();
    await Bun.write(keyFile, "5b".repeat(32));
    const url = `http://127.0.0.1:${freePort()}`;
    const given = {
      server: { listen: [url.slice("http://".length)], drain_timeout: "2s" },
      cache: { enabled: true, public_endpoints: [url], signing_key_file: keyFile },
      relay: {
        enabled: true,
        public_endpoints: [url],
        allow_http: true,
        allow_private: ["127.0.0.0/8"],
      },
      push: { enabled: true, contact: "mailto:operator@odd.example" },
    };
    const nodes = await nodesOver("pushed", given, { cache: { push_interval: 20 } });
    const { identity, device } = await subscribedThere(url, at);
    expect(await send(url, "/cache/store", identity)).toBe(202);
    await at.atLeast(2);
    await pause(1_500, "five blocks: what is read of the registration is remembered");
    expect(await send(url, "/cache/store", identity)).toBe(202);
    while (device.woken().length < 2) await at.atLeast(at.heard.length + 1);
    home.freezePrimary();
    home.freezeStandby();
    try {
      await send(url, "/cache/store", identity);
      for (let n = 0; n < 5; n++) {
        const [stored, storeMs] = await timed(send(url, "/cache/store", identity));
        expect([stored, storeMs < homeMs]).toEqual([202, true]);
      }
      expect(device.woken()).toHaveLength(2);
    } finally {
      home.thawPrimary();
      home.thawStandby();
    }
    while (device.woken().length < 3) await at.atLeast(at.heard.length + 1);
    await nodes.stop();
    at.stop();
  },
  120_000,
);

test.skipIf(absence !== null)(
  "without a standby too the others are served with what was read, by a node that has met them",
  async () => {
    const nodes = await nodesOver("whole");
    const { url } = nodes;
    const there = await registered(url, "east");
    expect(await send(url, "/relay", there.identity)).toBe(202);
    await pause(1_500, "five blocks: what is read of the registration is remembered");
    expect(await send(url, "/relay", there.identity)).toBe(202);
    await there.cache.messages(undefined, 10);
    home.freezePrimary();
    home.freezeStandby();
    try {
      await send(url, "/relay", there.identity);
      for (let n = 0; n < 5; n++)
        for (const path of ["/relay", "/cache/store"]) {
          const [stored, storeMs] = await timed(send(url, path, there.identity));
          expect([stored, storeMs < homeMs]).toEqual([202, true]);
          const [page, pageMs] = await timed(there.cache.messages(undefined, 50));
          expect([page.messages.length > 1, pageMs < homeMs]).toEqual([true, true]);
        }
    } finally {
      home.thawPrimary();
      home.thawStandby();
    }
    await nodes.stop();
  },
  120_000,
);

test.skipIf(absence !== null)(
  "a standby that lacks the last block is not read",
  async () => {
    const nodes = await nodesOver("lagging");
    const { url } = nodes;
    const { identity } = await registered(url, "east");
    await home.pauseReplay();
    const other = await registered(url, "east");
    home.freezePrimary();
    try {
      const statuses = new Set<number>();
      for (const { did } of [identity, other.identity])
        for (let n = 0; n < 3; n++) statuses.add((await fetch(`${url}/resolve/${did}`)).status);
      expect([...statuses].every((status) => status >= 500)).toBe(true);
    } finally {
      home.thawPrimary();
      await home.resumeReplay();
    }
    while ((await fetch(`${url}/resolve/${other.identity.did}`)).status !== 200)
      await Bun.sleep(50);
    await nodes.stop();
  },
  120_000,
);

test.skipIf(absence !== null)(
  "a standby that has not replayed all that it got answers nothing, whatever a node knows",
  async () => {
    const given = { urls: home.urls, schema: "replayed", connections: 2 };
    const pool = await openPool(optionsOf(postgresPlugin, given));
    await home.sql("create table public.replayed (n integer)");
    await pool.query("insert into public.replayed values (1)");
    const rows = () => pool.askStandby("select n from public.replayed", []);
    const found = async () => {
      for (
        const endMs = performance.now() + 30_000;
        performance.now() < endMs;
        await Bun.sleep(50)
      ) {
        const answer = await rows();
        if (answer !== null) return answer.length;
      }
      return "nothing";
    };
    expect(await found()).toBe(1);
    await home.pauseReplay();
    try {
      await pool.query("insert into public.replayed values (2)");
      expect(await rows()).toBeNull();
    } finally {
      await home.resumeReplay();
    }
    expect(await found()).toBe(2);
    await pool.close();
  },
  120_000,
);
