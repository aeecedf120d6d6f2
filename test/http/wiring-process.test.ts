/**
 * What a process keeps once for all its roles is in the store of its first one, of Cache, Relay,
 * Directory and witness in this order: blocks, results and the audit. And a process that ends says
 * so to its live sessions.
 */
import { afterAll, describe, expect, test } from "bun:test";
import { join } from "node:path";
import { memoryKeys, Waypost } from "../../src/client/package.ts";
import type { ConfigInput } from "../../src/config/schema.ts";
import { freePort, scratchFolder } from "../support/executable.ts";
import { relayAt, startTestNodes } from "../support/nodes.ts";
import { calls } from "../support/recording-plugin.ts";

const plugin = join(import.meta.dir, "../support/recording-plugin.ts");
const storeOf = (name: string) => ({ plugin, name, block_time_ms: 50 });
const folder = scratchFolder();
afterAll(folder.remove);

const own = `http://127.0.0.1:${freePort()}`;
const directory = { enabled: true, ledger: "ledger", store: "records" };
const relay = { ...relayAt(own), store: "results" };
const cache = { enabled: true, store: "mail", public_endpoints: [own] };
const none = { enabled: false };

type Process = {
  readonly name: string;
  readonly roles: Pick<ConfigInput, "directory" | "relay" | "cache" | "stores">;
  /** The store of its first role. */
  readonly store: string;
};

const [ledger, records, results, mail] = ["ledger", "records", "results", "mail"].map(storeOf);
const processes: readonly Process[] = [
  {
    name: "all roles",
    roles: { directory, relay, cache, stores: { ledger, records, results, mail } as never },
    store: "mail",
  },
  {
    name: "a Directory and a Relay",
    roles: { directory, relay, cache: none, stores: { ledger, records, results } as never },
    store: "results",
  },
  {
    name: "a Directory",
    roles: { directory, relay: none, cache: none, stores: { ledger, records } as never },
    store: "records",
  },
];

describe("what is decided for the process is kept in the store of its first role", () => {
  test.each(processes)("$name", async ({ roles, store }) => {
    const socket = join(folder.path, `${store}.sock`);
    calls.length = 0;
    const nodes = await startTestNodes({
      ...roles,
      server: { listen: [own.slice("http://".length)], admin_listen: [`unix:${socket}`] },
    });
    try {
      const opened = calls.filter((call) => call.endsWith("receipts.scan"));
      expect(new Set(opened)).toContain(`${store}: receipts.scan`);
      calls.length = 0;
      const block = { subject: "203.0.113.0/24", sender_only: false, reason: null };
      const reply = await fetch("http://localhost/operations/blocks", {
        unix: socket,
        method: "POST",
        headers: { "content-type": "application/json" },
        body: JSON.stringify({ add: [block], remove: [] }),
      });
      expect(reply.status).toBe(200);
      const written = calls.filter((call) => /receipts\.(?!scan|get|find)/.test(call));
      expect(written.length).toBeGreaterThan(0);
      expect(new Set(written.map((call) => call.split(":")[0]))).toEqual(new Set([store]));
    } finally {
      await nodes.stop();
    }
  });
});

test("the description of the interface names the addresses of Relay and Cache, each once", async () => {
  const cacheUrl = "https://cache.waypost.test";
  const both = { ...cache, store: "main", public_endpoints: [own, cacheUrl] };
  const nodes = await startTestNodes({ relay: relayAt(own), cache: both });
  const described = (await (await fetch(`${nodes.url}/openapi.json`)).json()) as {
    readonly servers: readonly unknown[];
  };
  expect(described.servers).toEqual([{ url: own }, { url: cacheUrl }]);
  await nodes.stop();
});

test("a Relay whose Directory does not answer is not ready", async () => {
  const nodes = await startTestNodes({
    directory: none,
    cache: none,
    relay: relayAt(own),
    server: {
      listen: [own.slice("http://".length)],
      recipients: `http://127.0.0.1:${freePort()}`,
    },
  });
  const answer = await fetch(`${nodes.url}/readyz`);
  expect(answer.status).toBe(503);
  expect(JSON.stringify(await answer.json())).toContain("recipients");
  await nodes.stop();
});

test("a mailbox that refuses is logged under the digest by which the operator finds its recipient", async () => {
  const socket = join(folder.path, "digest.sock");
  const nodes = await startTestNodes(
    {
      server: { listen: [own.slice("http://".length)], admin_listen: [`unix:${socket}`] },
      relay: relayAt(own),
      cache: { enabled: true, public_endpoints: [own] },
    },
    { cache: { recipient_entries_max: 1, rate_limit_loopback: false } },
  );
  const bob = await Waypost.open({ url: nodes.url, keys: memoryKeys() });
  const store = () =>
    fetch(`${nodes.url}/cache/store`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({
        message_id: crypto.randomUUID(),
        to: bob.did,
        timestamp: new Date().toISOString(),
        payload: { ciphertext_b64: "aGVsbG8=" },
      }),
    });
  while ((await store()).status === 202);
  const line = nodes.lines.find(({ message }) => message === "a mailbox refuses envelopes");
  const asked = { recipient: bob.did, sender: null };
  const reply = await fetch("http://localhost/operations/explain", {
    unix: socket,
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(asked),
  });
  const { digest } = (await reply.json()) as { readonly digest: string };
  expect(digest).toMatch(/^[0-9a-f]{16}$/);
  expect(line?.fields).toMatchObject({ recipient: digest });
  await bob.close();
  await nodes.stop();
});

test("a process that ends says so to its live sessions, and waits for none", async () => {
  const nodes = await startTestNodes();
  const did = "did:svc:3vQB7B6MrGQZaxCuFg4oh1";
  const socket = new WebSocket(`${nodes.url.replace("http", "ws")}/ws/${did}/phone`);
  const closed = new Promise<CloseEvent>((resolve) => {
    socket.onclose = resolve;
  });
  await new Promise((resolve) => {
    socket.onopen = resolve;
  });
  await nodes.stop();
  // A server that ends closes what is left with the same code and without a reason.
  const { code, reason } = await closed;
  expect([code, reason]).toEqual([1001, "the node is shutting down"]);
});
