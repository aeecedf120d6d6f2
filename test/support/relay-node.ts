/**
 * A Relay for tests: the real node over the memory driver next to a real Cache, real local servers
 * as inboxes, and a clock that only sleeping moves, so that retries cost no time.
 */

import type { Config } from "../../src/config/schema.ts";
import { verifyEd25519 } from "../../src/core/codec/crypto.ts";
import type { JsonObject } from "../../src/core/codec/json.ts";
import type { DeliveryResult } from "../../src/core/message/delivery.ts";
import { createEgress, type Egress } from "../../src/nodes/egress/egress.ts";
import { type HostLimits, hostLimits } from "../../src/nodes/egress/host-limiter.ts";
import type { Log } from "../../src/nodes/http/log.ts";
import { createMetrics } from "../../src/nodes/http/metrics.ts";
import { type HttpListener, listen } from "../../src/nodes/http/server.ts";
import { createBell } from "../../src/nodes/parties/signals.ts";
import type { SessionParts } from "../../src/nodes/relay/live/registry.ts";
import { createSessions, type LiveSessions } from "../../src/nodes/relay/live/session.ts";
import { createRelay, type Relay } from "../../src/nodes/relay/relay.ts";
import { openLocalBus } from "../../src/plugins/bus/local.ts";
import { memoryPlugin } from "../../src/plugins/memory/memory.ts";
import type { Bus } from "../../src/storage/bus.ts";
import type { Receipts, Replay } from "../../src/storage/contract.ts";
import { type TestApp, testApp } from "./app.ts";
import {
  cacheEndpoint,
  createTestCache,
  type TestCache,
  type TestCacheOptions,
  type TestRecipients,
} from "./cache-node.ts";
import { expectDeliveryResult } from "./delivery-shape.ts";
import { limitsDefault, relayDefault } from "./settings.ts";

export const relayEndpoint = "https://relay.example";

export type TestRelay = TestApp & {
  readonly relay: Relay;
  readonly cache: TestCache;
  readonly recipients: TestRecipients;
  readonly clock: { nowMs: number };
  readonly sleeps: number[];
  readonly egress: Egress;
  readonly sessions: LiveSessions;
  readonly receipts: Receipts;
  /** Sends an envelope and checks the shape of the answer. */
  readonly send: (envelope: unknown, more?: SendMore) => Promise<DeliveryResult>;
  readonly raw: (envelope: unknown, more?: SendMore) => Promise<Response>;
  /** Binds relay and sessions to a free port; the base URL. */
  readonly serve: () => string;
  readonly close: () => Promise<void>;
};

export type SendMore = { readonly path?: string; readonly headers?: Record<string, string> };

export type TestRelayOptions = {
  readonly settings?: Partial<Config["relay"]>;
  readonly limits?: Partial<Config["limits"]>;
  readonly sessions?: SessionParts["bounds"];
  readonly server?: Partial<Config["server"]>;
  readonly hosts?: HostLimits;
  readonly bus?: Bus;
  readonly cache?: TestCacheOptions;
  /** Shares clock, recipients and Cache with another Relay. */
  readonly beside?: TestRelay;
  readonly receipts?: Receipts;
  readonly replay?: Replay;
  readonly endpoint?: string;
  readonly trustedProxies?: string[];
  readonly log?: Log;
  /** The Cache of the process is reached over HTTP only. */
  readonly withoutLocalCache?: boolean;
};

export async function createTestRelay(given: TestRelayOptions = {}): Promise<TestRelay> {
  const changes = given.bus ?? openLocalBus({ log: () => {} });
  const bell = createBell(changes);
  const cache = given.beside?.cache ?? (await createTestCache({ bell, ...given.cache }));
  const { clock, recipients } = cache;
  const now = () => clock.nowMs;
  const parsed = memoryPlugin.parseOptions(undefined);
  if (!parsed.ok) throw new Error("the memory driver refuses its defaults");
  const store = await memoryPlugin.open(parsed.options, { now, log: () => {}, fatal: () => {} });
  const receipts = given.receipts ?? store.capabilities.receipts;
  const replay = given.replay ?? store.capabilities.replay;
  if (receipts === undefined || replay === undefined) throw new Error("memory lacks a capability");
  const sleeps: number[] = [];
  const metrics = createMetrics();
  const endpoint = given.endpoint ?? relayEndpoint;
  const settings: Config["relay"] = {
    ...relayDefault,
    public_id: "relay-1",
    public_endpoints: [endpoint],
    allow_http: true,
    allow_private: ["127.0.0.0/8"],
    ...given.settings,
  };
  const egress = createEgress({
    settings,
    // Scenarios fail on purpose more often than a circuit takes.
    hosts: given.hosts ?? { ...hostLimits, failuresToOpen: 1_000 },
    resolve: async () => [],
  });
  const sessions = createSessions({
    limits: limitsDefault,
    recipients,
    verify: verifyEd25519,
    replay,
    settings,
    bounds: given.sessions ?? {},
    ...(given.bus === undefined ? {} : { bus: given.bus }),
    changes,
    bell,
    now,
    log: () => {},
  });
  const relay = createRelay({
    recipients,
    verify: verifyEd25519,
    receipts,
    egress,
    localCache:
      given.withoutLocalCache === true ? null : { ...cache.cache, endpoints: [cacheEndpoint] },
    sessions,
    now,
    sleep: async (ms) => {
      sleeps.push(ms);
      clock.nowMs += ms;
    },
    random: () => 0.5,
    log: given.log ?? (() => {}),
    metrics,
    settings,
    limits: { ...limitsDefault, ...given.limits },
  });
  const app = {
    ...testApp([...relay.routes, ...sessions.routes], {
      now,
      server: { trusted_proxies: given.trustedProxies ?? [], ...given.server },
    }),
    metrics,
  };
  const raw: TestRelay["raw"] = (envelope, more = {}) =>
    app.ask(more.path ?? "/relay", {
      method: "POST",
      headers: { "content-type": "application/json", ...more.headers },
      body: typeof envelope === "string" ? envelope : JSON.stringify(envelope),
    });
  let listener: HttpListener | null = null;
  return {
    ...app,
    relay,
    cache,
    recipients,
    clock,
    sleeps,
    egress,
    sessions,
    receipts,
    raw,
    send: async (envelope, more) => {
      const response = await raw(envelope, more);
      const result = (await response.json()) as DeliveryResult;
      expectDeliveryResult(result);
      if (response.status !== result.http_status)
        throw new Error(`${response.status} is not ${result.http_status}`);
      return result;
    },
    serve: () => {
      listener ??= listen({ app: app.app, address: "127.0.0.1:0", websocket: sessions.websocket });
      return listener.url;
    },
    close: async () => {
      relay.close();
      await listener?.drain(500);
    },
  };
}

// ----------------------------------------------------------------------------------------- inboxes

export type Inbox = {
  readonly url: string;
  readonly bodies: string[];
  readonly headers: Headers[];
  /** What it answers; changed by tests while it runs. */
  answer: () => Response | Promise<Response>;
  readonly stop: () => void;
};

export function startInbox(
  answer: Inbox["answer"] = () => new Response("taken", { status: 200 }),
): Inbox {
  const server = Bun.serve({
    hostname: "127.0.0.1",
    port: 0,
    fetch: async (request) => {
      inbox.bodies.push(await request.text());
      inbox.headers.push(request.headers);
      return inbox.answer();
    },
  });
  const inbox: Inbox = {
    url: `http://127.0.0.1:${server.port}/in`,
    bodies: [],
    headers: [],
    answer,
    stop: () => server.stop(true),
  };
  return inbox;
}

/** What the recipient's mailbox holds. */
export async function held(relay: TestRelay, did: string): Promise<string[]> {
  const page = await relay.cache.mailbox.list(did as never, {
    after: null,
    entriesMax: 100,
    bytesMax: 1 << 20,
    nowMs: relay.clock.nowMs,
  });
  return "entries" in page ? page.entries.map((entry) => entry.messageId) : [];
}

export function withoutTo(envelope: JsonObject): JsonObject {
  const { to, ...rest } = envelope;
  return { ...rest, recipient: to as string };
}
