/**
 * Each setting has the effect of its own value. The compiler can't notice a swap of two settings of
 * one kind, so each gets a value that no other has, and the test finds that value in its effect: in
 * the largest accepted size, in the first refused request, in what a store or a destination sees.
 * The canary swaps two settings and must be noticed.
 */
import { afterAll, describe, expect, test } from "bun:test";
import { listSettings } from "../../src/config/reference.ts";
import type { Config, ConfigInput } from "../../src/config/schema.ts";
import { encodeBase64, utf8 } from "../../src/core/codec/bytes.ts";
import { minuteMs } from "../../src/core/codec/time.ts";
import { isFault } from "../../src/core/fault.ts";
import {
  checkEnvelopeTime,
  decodeEnvelope,
  type Envelope,
  longestTtlMs,
} from "../../src/core/message/envelope.ts";
import { planDelivery } from "../../src/core/message/plan.ts";
import { createCapacity } from "../../src/nodes/http/capacity.ts";
import type { Mailbox } from "../../src/storage/contract.ts";
import type { MailboxQuota } from "../../src/storage/quota.ts";
import {
  createPerson,
  createTestCache,
  envelopeTo,
  type Person,
  proofHeaders,
  testNowMs,
} from "../support/cache-node.ts";
import { firstTimeout } from "../support/delivery-shape.ts";
import { registerBodyOf, testDirectory } from "../support/directory.ts";
import { identityOf } from "../support/identity.ts";
import { settings } from "../support/settings.ts";
import { LiveClient, sessionUrl } from "./live-client.ts";
import { cleanUp, inboxAt, inboxFor, relayFor, status } from "./relay-scenario.ts";

afterAll(cleanUp);

/** Small enough to be reached, and no two alike. */
const own = {
  server: { requests_max: 1_031, body_bytes_in_flight: 1_100_003, drain_timeout: "331ms" },
  limits: {
    body_bytes_max: 50_021,
    unchunked_bytes_max: 20_011,
    chunk_bytes_max: 9_001,
    header_bytes_max: 307,
    ttl_max: "41h",
    clock_skew: "7m",
  },
  directory: { enabled: true, registration_rate: 1 },
  relay: {
    public_endpoints: ["https://relay.example"],
    attempts: 2,
    delivery_budget: "8713ms",
    sessions_max: 6,
    client_rate: 9,
    recipient_rate: 3,
  },
  cache: {
    recipient_entries_max: 1_009,
    recipient_bytes_max: 50_000_021,
    stranger_share: 61,
    client_rate: 11,
    store_entries_max: 100_003,
    store_bytes_max: 90_000_049,
    page_bytes_max: 12_007,
  },
} satisfies ConfigInput;

/** What the running parts show of each setting. */
type Seen = Map<string, unknown>;

/** The largest number that is accepted: the search knows nothing of the value it looks for. */
async function largest(
  max: number,
  accepts: (n: number) => boolean | Promise<boolean>,
): Promise<number> {
  let [low, high] = [0, max];
  while (low < high) {
    const middle = Math.ceil((low + high) / 2);
    if (await accepts(middle)) low = middle;
    else high = middle - 1;
  }
  return low;
}

/** Requests that pass before one is refused with `code`. */
async function passedBefore(
  refusal: number,
  max: number,
  ask: (n: number) => Promise<{ status: number }>,
) {
  for (let n = 0; n < max; n++) if ((await ask(n)).status === refusal) return n;
  return max;
}

const bob = createPerson(1);
const openToAll = { require_sender_signature: false };
const bytesOf = (value: unknown): Uint8Array => utf8(JSON.stringify(value));

// --------------------------------------------------------------------------------------- observers

async function observeLimits({ limits }: Config, seen: Seen): Promise<void> {
  const ciphertext = (bytes: number) => ({
    payload: { ciphertext_b64: encodeBase64(new Uint8Array(bytes)) },
  });
  const chunk = {
    message_group_id: crypto.randomUUID(),
    sequence_number: 0,
    total_chunks: 2,
    delivery_hint: "chunked",
  };
  const header = (bytes: number) => ({
    encrypted_header: encodeBase64(new Uint8Array(bytes)),
    header_nonce: "AAAA",
    header_key_id: "k",
    schema_version: "1",
  });
  const takes = (more: ReturnType<typeof envelopeTo>) =>
    !isFault(decodeEnvelope(bytesOf(envelopeTo(bob, 1, more)), limits));
  seen.set(
    "limits.unchunked_bytes_max",
    await largest(100_000, (n) => n === 0 || takes(ciphertext(n))),
  );
  seen.set(
    "limits.chunk_bytes_max",
    await largest(100_000, (n) => n === 0 || takes({ ...ciphertext(n), ...chunk })),
  );
  seen.set("limits.header_bytes_max", await largest(100_000, (n) => n === 0 || takes(header(n))));
  seen.set("limits.ttl_max", longestTtlMs(limits, null));
  const envelope = decodeEnvelope(bytesOf(envelopeTo(bob, 1)), limits) as Envelope;
  const isInTime = (aheadMs: number) =>
    checkEnvelopeTime(envelope, testNowMs - aheadMs, limits) === null;
  seen.set("limits.clock_skew", await largest(60 * minuteMs, isInTime));
  const relay = await relayFor({ limits });
  const isTaken = async (bytes: number) => {
    const text = JSON.stringify(envelopeTo(bob, 1));
    return (await relay.raw(text + " ".repeat(Math.max(0, bytes - text.length)))).status !== 413;
  };
  const tested = await relayFor({
    limits,
    settings: { client_burst: 1e6, client_rate: 1e6, recipient_burst: 1e6 },
  });
  const [route] = tested.relay.routes;
  seen.set("limits.body_bytes_max", route === undefined ? null : (route.bodyBytesMax ?? null));
  expect([await isTaken(limits.body_bytes_max), await isTaken(limits.body_bytes_max + 1)]).toEqual([
    true,
    false,
  ]);
}

async function observeServer(config: Config, seen: Seen): Promise<void> {
  const { normal } = createCapacity(config.server);
  seen.set("server.requests_max", normal.work.max);
  seen.set("server.body_bytes_in_flight", normal.bodyBytes.max);
}

async function observeDirectory({ directory: options }: Config, seen: Seen): Promise<void> {
  const directory = await testDirectory({ options });
  await directory.register(identityOf("odd"));
  const forged = {
    ...registerBodyOf(identityOf("pace"), directory.nowMs()),
    signature: encodeBase64(new Uint8Array(64)),
  };
  const passed = await passedBefore(429, 2_000, () =>
    directory.ask("POST", "/register-did", forged),
  );
  // The registration above was the first.
  seen.set("directory.registration_rate", (passed + 1) / 300);
  await directory.close();
}

async function observeRelayPaces({ relay: configured }: Config, seen: Seen): Promise<void> {
  const relay = await relayFor({ settings: { ...configured, ...openToAll } });
  relay.recipients.add(bob);
  const toBob = await passedBefore(429, 1_000, (n) => relay.raw(envelopeTo(bob, n)));
  seen.set("relay.recipient_rate", toBob / 10);
  const others = Array.from({ length: 200 }, (_, n) => createPerson((n % 250) + 3));
  const toOthers = await passedBefore(429, 200, (n) =>
    relay.raw(envelopeTo(others[n] as Person, n)),
  );
  // The refused one to Bob took a token of the client as well.
  seen.set("relay.client_rate", (toBob + 1 + toOthers) / 4);
  const url = sessionUrl(relay.serve(), bob, "phone");
  const sockets: LiveClient[] = [];
  const opened = await passedBefore(0, 30, async () => {
    const client = new LiveClient(url);
    sockets.push(client);
    return { status: (await client.opened) ? 101 : 0 };
  });
  seen.set("relay.sessions_max", opened);
  for (const socket of sockets) socket.terminate();
}

async function observeDeliveries({ relay: settings }: Config, seen: Seen): Promise<void> {
  const inbox = inboxFor(status(500));
  const relay = await relayFor({
    settings: { ...settings, ...openToAll, allow_http: true, allow_private: ["127.0.0.0/8"] },
  });
  const carol = createPerson(7, [inboxAt(inbox.url)]);
  relay.recipients.add(carol);
  await relay.raw(envelopeTo(carol, 1));
  seen.set("relay.attempts", inbox.bodies.length);
  const services = createPerson(8, [inboxAt("https://inbox.example")]).document.service;
  const plan = planDelivery({
    ...{
      messageId: "m" as never,
      recipient: bob.did,
      hint: "standard",
      expiresAtMs: testNowMs * 2,
      services,
    },
    ...{
      live: false,
      hops: 0,
      cacheEligible: false,
      replication: 1,
      ownEndpoints: [],
      limits: settings,
    },
  });
  seen.set("relay.delivery_budget", await firstTimeout(plan, testNowMs));
}

async function observeCache({ cache: settings }: Config, seen: Seen): Promise<void> {
  const quotas: MailboxQuota[] = [];
  const pages: number[] = [];
  const wrap = (mailbox: Mailbox): Partial<Mailbox> => ({
    store: (entry, quota) => {
      quotas.push(quota);
      return mailbox.store(entry, quota);
    },
    list: (recipient, page) => {
      pages.push(page.bytesMax);
      return mailbox.list(recipient, page);
    },
  });
  const { public_endpoints: _, ...changed } = { ...settings, ...openToAll };
  const retrieve_bytes_max = 30_011;
  const cache = await createTestCache({
    ...changed,
    retrieve_bytes_max,
    wrap,
    trustedProxies: ["192.0.2.7"],
  });
  for (let n = 1; n < 20; n++) cache.recipients.add(createPerson(n));
  const payload = { ciphertext_b64: encodeBase64(new Uint8Array(1_000)) };
  const stored = await passedBefore(429, 200, (n) => cache.store(envelopeTo(bob, n, { payload })));
  seen.set("cache.client_rate", stored / 4);
  const [quota] = quotas;
  seen.set("cache.recipient_entries_max", quota?.recipientEntriesMax);
  seen.set("cache.recipient_bytes_max", quota?.recipientBytesMax);
  seen.set("cache.store_entries_max", quota?.storeEntriesMax);
  seen.set("cache.store_bytes_max", quota?.storeBytesMax);
  const newcomers = (quota?.places ?? []).reduce((sum, { poolMax }) => sum + poolMax.bytes, 0);
  const percent = (100 * newcomers) / (quota?.recipientBytesMax ?? 1);
  seen.set("cache.stranger_share", Math.round(percent));
  const read = await cache.read(`/cache/messages/${bob.did}`, proofHeaders(bob));
  const answered = ((await read.json()) as { messages: unknown[] }).messages;
  const sizes = answered.map((_one, n) => bytesOf(envelopeTo(bob, n, { payload })).length);
  const sum = sizes.reduce((all, size) => all + size, 0);
  // One more envelope of this size would have been too much.
  expect([sum <= retrieve_bytes_max, sum + (sizes[0] ?? 0) > retrieve_bytes_max]).toEqual([
    true,
    true,
  ]);
  // A read of everything asks for no more than the smaller of the two; a page asks for its own.
  await cache.read(`/cache/messages/${bob.did}?limit=50`, proofHeaders(bob));
  seen.set("cache.page_bytes_max", pages.at(-1));
}

async function observeSignatures({ relay, cache }: Config, seen: Seen): Promise<void> {
  const unsigned = envelopeTo(bob, 9);
  const strictRelay = await relayFor({
    settings: { require_sender_signature: relay.require_sender_signature },
  });
  const strictCache = await createTestCache({
    require_sender_signature: cache.require_sender_signature,
  });
  for (const { recipients } of [strictRelay, strictCache]) recipients.add(bob);
  seen.set("relay.require_sender_signature", (await strictRelay.raw(unsigned)).status === 403);
  seen.set("cache.require_sender_signature", (await strictCache.store(unsigned)).status === 403);
}

const observers = [
  observeLimits,
  observeServer,
  observeDirectory,
  observeRelayPaces,
  observeDeliveries,
  observeCache,
  observeSignatures,
];

async function observe(config: Config): Promise<Seen> {
  const seen: Seen = new Map();
  for (const observer of observers) await observer(config, seen);
  return seen;
}

function settingIn(config: Config | ConfigInput, setting: string): unknown {
  const [section = "", name = ""] = setting.split(".");
  return Reflect.get(Reflect.get(config, section) ?? {}, name);
}

function put(config: ConfigInput, setting: string, value: unknown): void {
  const [section = "", name = ""] = setting.split(".");
  Reflect.set(Reflect.get(config, section) ?? {}, name, value);
}

/** Settings whose effect is not that of their value. */
function strangers(seen: Seen, config: Config): string[] {
  return [...seen].flatMap(([setting, found]) => {
    const value = settingIn(config, setting);
    const bracket = found as { atLeast?: number; below?: number } | null;
    const fits =
      typeof found === "object" && bracket?.atLeast !== undefined && typeof value === "number"
        ? bracket.atLeast <= value && value < (bracket.below ?? 0)
        : Bun.deepEquals(found, value);
    return fits ? [] : [setting];
  });
}

// ------------------------------------------------------------------------------------------- tests

const signed = { require_sender_signature: true };
const input = {
  ...own,
  relay: { ...own.relay, ...signed },
  cache: { ...own.cache, ...signed },
} satisfies ConfigInput;
const config = settings(input);
const seenOfAll = observe(config);

test("every number and switch acts with its own value", async () => {
  expect(strangers(await seenOfAll, config)).toEqual([]);
});

describe("a swap is noticed:", () => {
  const pairs = [
    ["limits.unchunked_bytes_max", "limits.chunk_bytes_max", observeLimits],
    ["relay.client_rate", "relay.recipient_rate", observeRelayPaces],
    ["cache.recipient_entries_max", "cache.store_entries_max", observeCache],
    ["cache.stranger_share", "cache.client_rate", observeCache],
  ] as const;

  test.each(pairs)("%s for %s", async (one, other, observer) => {
    const swapped = structuredClone(input) as ConfigInput;
    put(swapped, one, settingIn(input, other));
    put(swapped, other, settingIn(input, one));
    const seen: Seen = new Map();
    await observer(settings(swapped), seen);
    expect(strangers(seen, config).sort()).toEqual([one, other].sort());
  });
});

/** Settings whose effect this file does not show, and what does. */
const shownElsewhere: Readonly<Record<string, string>> = {
  ...Object.fromEntries(
    [
      ...[
        "server.listen",
        "server.admin_listen",
        "server.trusted_proxies",
        "server.cors_origins",
        "server.recipients",
        "server.drain_timeout",
      ],
      ...["server.log_level", "bus.plugin"],
      ...["directory.enabled", "directory.store", "directory.ledger"],
      ...["relay.enabled", "relay.store", "relay.public_id", "relay.public_endpoints"],
      ...["cache.enabled", "cache.store", "cache.public_endpoints"],
    ].map((setting) => [setting, "settings-process.test.ts"]),
  ),
  "server.admin_group": "e2e/admin-groups.test.ts",
  "server.admin_groups": "e2e/admin-groups.test.ts",
  "server.app": "app-host.test.ts",
  "server.tls_cert_file": "tls.test.ts",
  "server.tls_key_file": "tls.test.ts",
  "directory.registration_proofs": "directory/: the only list of its kind",
  "directory.self_certifying_only": "bound-proofs.test.ts",
  "directory.registration": "directory/invitations.test.ts",
  "directory.aliases": "unit/nodes/directory/aliases.test.ts",
  "directory.reserved_aliases": "directory/registration.scenarios.ts",
  "directory.alias_interval": "directory/rules.scenarios.ts",
  "directory.unsigned_updates": "directory/: the only setting of its kind",
  "directory.rate_limit_loopback": "directory/pace.test.ts",
  "cache.recipients": "closed-house.test.ts",
  "relay.allow_http": "egress.test.ts",
  "relay.allow_private": "egress.test.ts",
  "relay.rate_limit_loopback": "relay-refusals.test.ts",
  "cache.rate_limit_loopback": "cache-strangers.test.ts",
  "cache.signing_key_file": "event-key.test.ts",
  "directory.homes": "homes.test.ts",
  "directory.public_endpoint": "homes.test.ts",
  "directory.log_key_file": "log.test.ts",
  "directory.log_witnesses": "log.test.ts",
  "witness.key_file": "log.test.ts",
  "witness.store": "log.test.ts",
  "witness.logs": "log.test.ts",
  "server.last_seen": "members.test.ts",
  "operator.did": "operator.test.ts",
  "operator.contact": "operator.test.ts",
  "operator.rules": "operator.test.ts",
  "operator.welcome": "operator.test.ts",
  "push.enabled": "push.test.ts",
  "push.contact": "push.test.ts",
};

test("no setting is left out", async () => {
  const shown = new Set((await seenOfAll).keys());
  const missing = listSettings()
    .map(({ section, name }) => `${section}.${name}`)
    .filter((setting) => !shown.has(setting) && shownElsewhere[setting] === undefined);
  expect(missing).toEqual([]);
});
