/**
 * Each constant outside of the settings has the effect of its own value. Like the settings
 * (`settings-values.test.ts`), each gets a value that no other has, and the test finds that value
 * in its effect. The canaries swap two constants.
 */
import { afterAll, describe, expect, test } from "bun:test";
import { listSettings } from "../../src/config/reference.ts";
import type { Config } from "../../src/config/schema.ts";
import { minuteMs, secondMs } from "../../src/core/codec/time.ts";
import { planDelivery } from "../../src/core/message/plan.ts";
import { createCapacity } from "../../src/nodes/http/capacity.ts";
import type { Mailbox, Receipts } from "../../src/storage/contract.ts";
import { withMethods } from "../conformance/options.ts";
import { post, serverSettings, take, testApp, testRoute } from "../support/app.ts";
import {
  createPerson,
  createTestCache,
  envelopeTo,
  proofHeaders,
  testNowMs,
} from "../support/cache-node.ts";
import { firstTimeout } from "../support/delivery-shape.ts";
import { openMemory, registerBodyOf, testDirectory } from "../support/directory.ts";
import { identityOf } from "../support/identity.ts";
import { relayEndpoint } from "../support/relay-node.ts";
import { relayDefault, settings } from "../support/settings.ts";
import { authFrame, LiveClient, sessionUrl } from "./live-client.ts";
import {
  alice,
  cleanUp,
  inboxAt,
  inboxFor,
  knownBob,
  relayAt,
  relayFor,
  status,
} from "./relay-scenario.ts";

afterAll(cleanUp);

type Values = Record<string, Record<string, number>>;
type Seen = Map<string, number>;

/**
 * Small enough to be reached, and no two of a section alike. Rates are below one a second, so that
 * a wait names them.
 */
const own = {
  server: { body_deadline: 733, refusal_delay: 311 },
  limits: { ttl_default: 7 * minuteMs },
  directory: {
    prepared_life: 263_000,
    registration_burst: 5,
    change_rate: 1 / 8,
    change_burst: 3,
    pending_blocks: 41,
  },
  relay: {
    retry_delay: 211,
    request_timeout: 4_001,
    live_ack_timeout: 3_001,
    recipient_sessions_max: 2,
    client_burst: 13,
    recipient_burst: 6,
    results_rate: 1 / 50,
    results_burst: 4,
    results_life_beyond: 77_000,
  },
  cache: {
    client_burst: 9,
    retrieve_entries_max: 7,
    page_entries_max: 4,
  },
} satisfies Values;

/** Constants whose effect another file shows. */
const shownElsewhere: Readonly<Record<string, string>> = {
  "server.show_signed_text": "explained-proofs.test.ts",
  "server.shows_status": "e2e/commands.test.ts",
  "directory.network_day_bytes": "directory/pace.test.ts",
  "directory.authorization_max_ahead": "directory/prepare.scenarios.ts",
  ...Object.fromEntries(
    ["home_fresh", "home_failure", "home_rate", "home_burst"].map((name) => [
      `directory.${name}`,
      "homes.test.ts",
    ]),
  ),
  "cache.retrieve_bytes_max": "settings-values.test.ts",
  "relay.connect_timeout": "egress.test.ts",
  "cache.push_interval": "push.test.ts",
  "witness.log_bytes_max": "log.test.ts",
  "relay.destination_requests_max": "unit/nodes/relay/host-limiter.test.ts",
};

const bob = createPerson(1, [relayAt(relayEndpoint), {}]);

async function passedBefore(
  refusal: number,
  ask: (n: number) => Promise<{ readonly status: number }>,
) {
  for (let n = 0; n < 100; n++) if ((await ask(n)).status === refusal) return n;
  return 100;
}

// --------------------------------------------------------------------------------------- observers

async function observeServer({ server }: Values, seen: Seen): Promise<void> {
  const waiting = testRoute({ path: "/wait", handle: () => new Promise<never>(() => undefined) });
  const { ask } = testApp([waiting, take], { server: { ...server, requests_max: 2 } });
  /** How long an answer takes; a busy machine adds to what the constant says. */
  const elapsed = async (expected: number, path: string, init?: RequestInit) => {
    const startedMs = performance.now();
    await ask(path, init);
    const ms = performance.now() - startedMs;
    return ms > expected - 5 && ms < 2 * expected ? expected : ms;
  };
  const expected = { ...serverSettings, ...server };
  seen.set(
    "server.body_deadline",
    await elapsed(expected.body_deadline, "/things", post(new ReadableStream())),
  );
  void ask("/wait");
  seen.set("server.refusal_delay", await elapsed(expected.refusal_delay, "/wait"));
}

async function observeDirectory({ directory }: Values, seen: Seen): Promise<void> {
  const blockTimeMs = 10;
  let pendingMs = 0;
  const stage = await testDirectory({
    options: directory as Partial<Config["directory"]>,
    blockTimeMs,
    open: async (environment) => {
      const store = await openMemory(blockTimeMs)(environment);
      const { receipts } = store.capabilities;
      if (receipts === undefined) throw new Error("memory has receipts");
      const put: Receipts["put"] = (key, value, untilMs) => {
        const { pendingUntilMs } = JSON.parse(new TextDecoder().decode(value)) as {
          pendingUntilMs?: number;
        };
        if (pendingUntilMs !== undefined) pendingMs = pendingUntilMs - environment.now();
        return receipts.put(key, value, untilMs);
      };
      return {
        ...store,
        capabilities: {
          ...store.capabilities,
          receipts: withMethods("receipts", receipts, { put }),
        },
      };
    },
  });
  const did = await stage.register(identityOf("constant"));
  seen.set("directory.pending_blocks", pendingMs / blockTimeMs);
  const prepared = await stage.ask("POST", `/dids/${did}/prepare`, {
    did,
    action: "RemoveAuthentication",
    id: `${did}#k1`,
  });
  const until = /"valid_until":"?(\d+)/.exec(JSON.stringify(prepared.body))?.[1];
  seen.set("directory.prepared_life", Number(until) - stage.nowMs());
  const change = () => stage.ask("PUT", `/dids/${did}/alias`, { nonsense: true });
  seen.set("directory.change_burst", await passedBefore(429, change));
  seen.set("directory.change_rate", 1 / Number((await change()).headers.get("retry-after")));
  const nonsense = { ...registerBodyOf(identityOf("pace"), stage.nowMs()), signature: "AAAA" };
  // The registration above was the first.
  seen.set(
    "directory.registration_burst",
    1 + (await passedBefore(429, () => stage.ask("POST", "/register-did", nonsense))),
  );
  await stage.close();
}

async function observeRelay({ relay: own, limits }: Values, seen: Seen): Promise<void> {
  const wide = { client_burst: 1_000, client_rate: 1_000, recipient_burst: 1_000 };
  const remembered: number[] = [];
  const relay = await relayFor({ settings: { ...own, ...wide } as Partial<Config["relay"]> });
  const store = await openMemory(10)({
    now: () => relay.clock.nowMs,
    log: () => {},
    fatal: () => {},
  });
  const { receipts } = store.capabilities;
  if (receipts === undefined) throw new Error("memory has receipts");
  const put: Receipts["put"] = (key, value, untilMs) => {
    remembered.push(untilMs - recording.clock.nowMs);
    return receipts.put(key, value, untilMs);
  };
  const recording = await relayFor({
    settings: { ...own, ...wide } as Partial<Config["relay"]>,
    limits: limits as Partial<Config["limits"]>,
    receipts: withMethods("receipts", receipts, { put }),
  });
  const { timestamp: _, ...undated } = envelopeTo(bob, 0);
  const known = knownBob(recording, [inboxAt(inboxFor().url)]);
  const deliver = async (n: number) => {
    await recording.send({
      ...undated,
      ...envelopeTo(known, n),
      timestamp: new Date(recording.clock.nowMs).toISOString(),
    });
    for (let turn = 0; turn < 20; turn++) await new Promise((resolve) => setImmediate(resolve));
  };
  for (let n = 0; n < 10; n++) await deliver(n);
  const longMs = remembered[0] ?? 0;
  seen.set("limits.ttl_default", longMs);
  seen.set("relay.results_burst", remembered.filter((ms) => ms === longMs).length);
  seen.set("relay.results_life_beyond", remembered.at(-1) ?? 0);
  let waitedMs = 0;
  while (remembered.at(-1) !== longMs && waitedMs < 100 * secondMs) {
    recording.clock.nowMs += secondMs;
    waitedMs += secondMs;
    await deliver(20 + waitedMs / secondMs);
  }
  seen.set("relay.results_rate", secondMs / waitedMs);
  const failing = knownBob(relay, [inboxAt(inboxFor(status(500)).url)]);
  await relay.raw(envelopeTo(failing, 1));
  seen.set("relay.retry_delay", relay.sleeps[0] ?? 0);
}

async function observeSteps({ relay: own }: Values, seen: Seen): Promise<void> {
  const step = (live: boolean) => {
    const plan = planDelivery({
      ...{
        messageId: "m" as never,
        recipient: bob.did,
        hint: "standard",
        expiresAtMs: testNowMs * 2,
        live,
      },
      ...{
        hops: 0,
        cacheEligible: false,
        replication: 1,
        ownEndpoints: [],
        limits: { ...relayDefault, ...own },
      },
      services: createPerson(8, [inboxAt("https://inbox.example")]).document.service,
    });
    return firstTimeout(plan, testNowMs);
  };
  seen.set("relay.request_timeout", await step(false));
  seen.set("relay.live_ack_timeout", await step(true));
}

async function observeRelayBounds({ relay: own }: Values, seen: Seen): Promise<void> {
  const relay = await relayFor({
    settings: { ...own, client_rate: 1, recipient_rate: 1 } as Partial<Config["relay"]>,
  });
  const to = knownBob(relay, [inboxAt(inboxFor().url)]);
  const toBob = await passedBefore(429, (n) => relay.raw(envelopeTo(to, n)));
  seen.set("relay.recipient_burst", toBob);
  const others = await passedBefore(429, (n) => relay.raw(envelopeTo(createPerson(20 + n), n)));
  // The refused one to Bob took a token of the client as well.
  seen.set("relay.client_burst", toBob + 1 + others);
  const url = relay.serve();
  const sockets: LiveClient[] = [];
  const isLive = async (device: string): Promise<{ status: number }> => {
    const client = new LiveClient(sessionUrl(url, bob, device));
    sockets.push(client);
    await client.opened;
    client.send(authFrame(bob, device));
    const isRefused = await Promise.race([
      client.closed.then(() => true),
      Bun.sleep(300).then(() => false),
    ]);
    return { status: isRefused ? 0 : 101 };
  };
  relay.recipients.add(bob);
  seen.set("relay.recipient_sessions_max", await passedBefore(0, (n) => isLive(`device${n}`)));
  for (const socket of sockets) socket.terminate();
}

async function observeCache({ cache: own }: Values, seen: Seen): Promise<void> {
  const asked: number[] = [];
  const wrap = (mailbox: Mailbox): Partial<Mailbox> => ({
    list: (recipient, page) => {
      asked.push(page.entriesMax);
      return mailbox.list(recipient, page);
    },
  });
  const cache = await createTestCache({ ...own, client_rate: 1, wrap });
  cache.recipients.add(alice);
  seen.set("cache.client_burst", await passedBefore(429, (n) => cache.store(envelopeTo(alice, n))));
  const read = async (query: string) => {
    const answer = await cache.read(`/cache/messages/${alice.did}${query}`, proofHeaders(alice));
    return (await answer.json()) as { messages: unknown[]; next_cursor?: string };
  };
  seen.set("cache.retrieve_entries_max", (await read("")).messages.length);
  const { next_cursor } = await read("?limit=1");
  await read(`?cursor=${next_cursor}`);
  seen.set("cache.page_entries_max", asked.at(-1) ?? 0);
}

const observers = [
  observeServer,
  observeDirectory,
  observeRelay,
  observeSteps,
  observeRelayBounds,
  observeCache,
];

async function observe(values: Values): Promise<Seen> {
  const seen: Seen = new Map();
  for (const observer of observers) await observer(values, seen);
  return seen;
}

/** Constants whose effect is not that of their value. */
function strangers(seen: Seen, values: Values): string[] {
  return [...seen].flatMap(([name, found]) => {
    const [section = "", constant = ""] = name.split(".");
    return found === values[section]?.[constant] ? [] : [name];
  });
}

// ------------------------------------------------------------------------------------------- tests

const seenOfAll = observe(own);

test("every constant acts with its own value", async () => {
  expect(strangers(await seenOfAll, own)).toEqual([]);
});

describe("a swap is noticed:", () => {
  test.each([
    ["directory", "change_burst", "registration_burst", observeDirectory],
    ["relay", "recipient_sessions_max", "recipient_burst", observeRelayBounds],
    ["relay", "live_ack_timeout", "request_timeout", observeSteps],
    ["cache", "retrieve_entries_max", "page_entries_max", observeCache],
  ] as const)("in %s, %s for %s", async (section, one, other, observer) => {
    const values: Values = structuredClone(own);
    const of = (name: string): number => Reflect.get(own[section], name);
    values[section] = { ...values[section], [one]: of(other), [other]: of(one) };
    const seen: Seen = new Map();
    await observer(values, seen);
    expect(strangers(seen, own)).toEqual(
      expect.arrayContaining([`${section}.${one}`, `${section}.${other}`]),
    );
  });
});

test("no constant is left out", async () => {
  const shown = new Set((await seenOfAll).keys());
  const listed = new Set(listSettings().map(({ section, name }) => `${section}.${name}`));
  const constants = Object.entries(settings()).flatMap(([section, values]) =>
    Object.keys(values)
      .map((name) => `${section}.${name}`)
      .filter((name) => !listed.has(name)),
  );
  expect(constants.length).toBeGreaterThan(20);
  expect(
    constants.filter((name) => !shown.has(name) && shownElsewhere[name] === undefined),
  ).toEqual([]);
});

test("bodies of acknowledgements and health have a quarter of the room beside the others", () => {
  const { normal, reserved } = createCapacity({ ...serverSettings, body_bytes_in_flight: 8_000 });
  const most = (share: typeof normal.bodyBytes) => {
    const clients = ["a", "b", "c"];
    while (clients.some((client) => share.take(client, 100)));
    return share.total;
  };
  // The first has half; the others have half of what is left of three quarters, or a little.
  expect([most(normal.bodyBytes), most(reserved.bodyBytes)]).toEqual([6_000, 2_000]);
});

test("slow bodies of two hundred networks leave room for those of another one", () => {
  const { bodyBytes } = createCapacity(serverSettings).normal;
  const networks = Array.from({ length: 200 }, (_, n) => `network ${n}`);
  // They grow side by side, as such bodies do.
  while (networks.filter((network) => bodyBytes.take(network, 32 * 1_024)).length > 0);
  expect(bodyBytes.total).toBeGreaterThan(0.7 * bodyBytes.max);
  expect(bodyBytes.take("another", 256 * 1_024)).toBe(true);
});
