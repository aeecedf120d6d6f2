/**
 * A running node applies every reloadable setting at once, and keeps the others until a restart.
 */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { checkConfig } from "../../src/config/config.ts";
import type { Config, ConfigInput } from "../../src/config/schema.ts";
import type { Did } from "../../src/core/codec/did.ts";
import { freePort } from "../support/executable.ts";
import {
  registerSelfSender,
  type SelfSender,
  startTestNodes,
  type TestNodes,
} from "../support/nodes.ts";

const port = freePort();
const url = `http://127.0.0.1:${port}`;
const input = {
  server: { listen: [`127.0.0.1:${port}`], drain_timeout: "2s", log_level: "info" },
  stores: { main: { plugin: "memory", block_time_ms: 20 } },
  directory: { enabled: true, unsigned_updates: "allow" },
  relay: { enabled: true, public_endpoints: [url], allow_http: true, rate_limit_loopback: false },
  cache: { enabled: true, public_endpoints: [url] },
} satisfies ConfigInput;

type Changes = {
  readonly [Section in "server" | "limits" | "directory" | "relay" | "cache"]?: Partial<
    ConfigInput[Section]
  >;
};

function configWith(changes: Changes): Config {
  const checked = checkConfig({
    ...input,
    server: { ...input.server, ...changes.server },
    limits: { ...changes.limits },
    directory: { ...input.directory, ...changes.directory },
    relay: { ...input.relay, ...changes.relay },
    cache: { ...input.cache, ...changes.cache },
  });
  if (!checked.ok) throw new Error(JSON.stringify(checked.problems));
  return checked.config;
}

let nodes: TestNodes;
let self: SelfSender;
beforeAll(async () => {
  nodes = await startTestNodes(input);
  self = await registerSelfSender(url, "did:svc:reLoadTestReLoadTest22" as Did);
});
afterAll(() => nodes.stop());

const json = { "content-type": "application/json" };

type Sent = {
  readonly signed?: true;
  readonly headers?: Record<string, string>;
  /** Characters of payload. */
  readonly padding?: number;
};

/** The status of an envelope from the recipient to itself, stored or relayed. */
async function statusAt(
  path: "/cache/store" | "/relay",
  { signed, headers, padding = 0 }: Sent = {},
): Promise<number> {
  const body = self.envelope({ signed, payload: { padding: "x".repeat(padding) } });
  return (await fetch(url + path, { method: "POST", headers: { ...json, ...headers }, body }))
    .status;
}

describe("the server", () => {
  test("stops writing a line for each request at the level warn", async () => {
    await nodes.reload(configWith({ server: { log_level: "warn" } }));
    const before = nodes.lines.length;
    await statusAt("/cache/store");
    expect(nodes.lines.length).toBe(before);
    await nodes.reload(configWith({}));
    await statusAt("/cache/store");
    expect(nodes.lines.length).toBeGreaterThan(before);
  });

  test("names what needs a restart and keeps it", async () => {
    const next = configWith({
      relay: { public_id: "r7" },
      cache: { require_sender_signature: true },
    });
    expect(await nodes.reload(next)).toEqual({
      changed: [],
      needsRestart: ["relay.public_id", "cache.require_sender_signature"],
    });
    expect(await statusAt("/cache/store")).toBe(202);
    await nodes.reload(configWith({}));
  });
});

describe("rates", () => {
  test("of every node act on the next request, and /limits shows them", async () => {
    const limitsOf = async () =>
      (await (await fetch(`${url}/limits`)).json()) as Record<string, unknown>;
    const before = await limitsOf();
    const plan = await nodes.reload(
      configWith({ relay: { client_rate: 7 }, directory: { registration_rate: 3 } }),
    );
    expect(plan).toEqual({
      changed: ["directory.registration_rate", "relay.client_rate"],
      needsRestart: [],
    });
    expect(await limitsOf()).toMatchObject({
      client_rate_per_second: 7,
      client_burst: 28,
      registration_rate_per_second: 3,
      registration_burst: 900,
    });
    await nodes.reload(configWith({}));
    expect(await limitsOf()).toEqual(before);
  });

  test("a lower rate refuses who was welcome before", async () => {
    expect(await statusAt("/relay", { headers: {} })).toBe(202);
    await nodes.reload(configWith({ relay: { client_rate: 1, rate_limit_loopback: true } }));
    const statuses = await Promise.all(Array.from({ length: 12 }, () => statusAt("/relay")));
    expect(statuses.filter((status) => status === 429).length).toBeGreaterThan(5);
    await nodes.reload(configWith({}));
    expect(await statusAt("/relay")).toBe(202);
  });
});
