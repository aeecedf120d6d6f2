/**
 * Every setting acts: nodes hold the sections of the configuration, so a setting acts when the
 * running process reads it. Each leaf of the schema gets an odd value of its own, a node runs with
 * these, and the test sees which leaves were read. Those that `/limits` shows must show their own
 * value.
 */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { ed25519 } from "@noble/curves/ed25519.js";
import { startNodes } from "../../src/app/compose.ts";
import { checkConfig, reload } from "../../src/config/config.ts";
import { renderDurationSetting } from "../../src/config/kinds.ts";
import { listSettings } from "../../src/config/reference.ts";
import { type Config, sectionNames } from "../../src/config/schema.ts";
import { encodeBase64, renderPublicKey, utf8 } from "../../src/core/codec/bytes.ts";
import { renderDuration } from "../../src/core/codec/time.ts";
import { encodeSenderText } from "../../src/core/message/proof.ts";
import { freePort, scratchFolder } from "../support/executable.ts";
import { keyFiles, testKey } from "../support/logs.ts";
import { scratchPaths } from "../support/scratch.ts";

const port = freePort();
const url = `http://127.0.0.1:${port}`;

const files = keyFiles();
afterAll(files.remove);
const signingKeyFile = scratchPaths("settings")();
writeFileSync(signingKeyFile, "5b".repeat(32), { mode: 0o600 });

const folder = scratchFolder();
afterAll(folder.remove);
const adminSocket = join(folder.path, "admin.sock");

/** What an odd number would break: addresses, names, switches and relations. */
const fixed = {
  server: { listen: [`127.0.0.1:${port}`], admin_listen: [`unix:${adminSocket}`] },
  directory: {
    enabled: true,
    unsigned_updates: "deny",
    log_key_file: files.fileOf(testKey("odd.example/log", "log")),
    public_endpoint: url,
  },
  witness: { key_file: files.fileOf(testKey("odd.example/witness", "witness")) },
  relay: {
    enabled: true,
    attempts: 7,
    public_id: "odd",
    public_endpoints: [url],
    allow_http: true,
    allow_private: ["127.0.0.0/8"],
  },
  cache: {
    enabled: true,
    stranger_share: 98,
    public_endpoints: [url],
    signing_key_file: signingKeyFile,
  },
  push: { enabled: true, contact: "mailto:odd@odd.example" },
} as const;

/**
 * A value that no other setting has: the default and a few per mille more, by the place in the
 * list.
 */
function oddValue(place: number, defaultText: string, form: string): unknown {
  const value: unknown = JSON.parse(defaultText);
  const more = place + 5;
  if (typeof value === "number") return value + more;
  if (form === "size") return partsOf(String(value)) + more;
  if (form === "duration") return renderDurationSetting(partsOf(String(value)) + more);
  return undefined;
}

const units: Readonly<Record<string, number>> = {
  ms: 1,
  s: 1e3,
  m: 6e4,
  h: 3.6e6,
  d: 8.64e7,
  KiB: 2 ** 10,
  MiB: 2 ** 20,
  GiB: 2 ** 30,
};
const partsOf = (text: string): number =>
  [...text.matchAll(/(\d+)([a-zA-Z]+)/g)].reduce(
    (sum, [, count, unit = ""]) => sum + Number(count) * (units[unit] ?? 1),
    0,
  );

function oddConfig(): Config {
  const sections: Record<string, Record<string, unknown>> = {};
  listSettings().forEach(({ section, name, defaultText, form }, place) => {
    const odd = defaultText === null ? undefined : oddValue(place, defaultText, form);
    if (odd !== undefined) sections[section] = { ...sections[section], [name]: odd };
  });
  for (const [section, values] of Object.entries(fixed))
    sections[section] = { ...sections[section], ...values };
  const checked = checkConfig({
    ...sections,
    stores: { main: { plugin: "memory", block_time_ms: 20 } },
  });
  if (!checked.ok) throw new Error(JSON.stringify(checked.problems));
  return checked.config;
}

const config = oddConfig();
// The shares of networks are for clients that are not of this machine.
config.cache.rate_limit_loopback = true;
const reads = new Set<string>();
/** Those since the start: what is read once and kept would not change with a reload. */
let readsWhileRunning = new Set<string>();

/**
 * A section that notes which settings are read one by one. Copying a section reads none of them.
 */
function watched<T extends object>(section: string, values: T): T {
  let copied = 0;
  return new Proxy(values, {
    ownKeys: (target) => {
      copied = Reflect.ownKeys(target).length;
      return Reflect.ownKeys(target);
    },
    get: (target, name) => {
      if (copied > 0) copied -= 1;
      else reads.add(`${section}.${String(name)}`);
      return Reflect.get(target, name);
    },
  });
}

let stop: () => Promise<void>;
let limits: Record<string, unknown>;

beforeAll(async () => {
  const sections = Object.fromEntries(
    sectionNames.map((section) => [section, watched(section, config[section])]),
  );
  const nodes = await startNodes(
    { ...config, ...sections },
    {
      log: () => undefined,
      onFatal: (reason) => {
        throw new Error(reason);
      },
    },
  );
  stop = nodes.stop;
  const readAtStart = new Set(reads);
  reads.clear();
  limits = (await (await fetch(`${url}/limits`)).json()) as Record<string, unknown>;
  await useEverything();
  readsWhileRunning = new Set(reads);
  await nodes.stop();
  for (const setting of readAtStart) reads.add(setting);
}, 60_000);
afterAll(() => stop());

/** The runtime's own WebSocket, which takes headers. */
const Socket = WebSocket as typeof WebSocket &
  (new (
    url: string,
    options: Bun.WebSocketOptions,
  ) => Bun.WebSocket);
const json = { "content-type": "application/json" };
const post = (path: string, body: unknown): Promise<Response> =>
  fetch(url + path, { method: "POST", headers: json, body: JSON.stringify(body) });

/** One registration, one delivery to an inbox that fails, one store, one read, one live session. */
async function useEverything(): Promise<void> {
  const seed = ed25519.utils.randomSecretKey();
  const did = `did:svc:${"oddSettings".padEnd(22, "2")}`;
  const key = renderPublicKey(ed25519.getPublicKey(seed));
  const service = (name: string, type: string, endpoint: string) => ({
    id: `${did}#${name}`,
    type,
    serviceEndpoint: [endpoint],
    authorization: [`${did}#root`],
  });
  const document = {
    id: did,
    verificationMethod: [
      { id: `${did}#root`, type: "Multikey", controller: did, publicKeyMultibase: key },
    ],
    authentication: [`${did}#root`],
    service: [
      service("inbox", "SvcInboxService", `http://127.0.0.1:${freePort()}`),
      service("relay", "SvcRelayService", url),
      service("cache", "SvcCacheService", url),
    ],
  };
  const timestamp = new Date().toISOString();
  const signature = encodeBase64(ed25519.sign(utf8(`${did}|${timestamp}`), seed));
  expect(
    (await post("/register-did", { did, timestamp, signature, did_document: document })).status,
  ).toBe(202);
  const prepared = { did, action: "RemoveAuthentication", id: `${did}#root` };
  for (;;) {
    const status = (await (await fetch(`${url}/registration-status/${did}`)).json()) as {
      registered: boolean;
    };
    if (status.registered) break;
    await Bun.sleep(20);
  }
  expect((await post(`/dids/${did}/prepare`, prepared)).status).toBe(200);
  const alias = { did, action: "add_alias", alias: "odd" };
  const toSign = await (await post(`/dids/${did}/prepare`, alias)).json();
  const taken = { ...alias, ...toSign.request, signature: encodeBase64(new Uint8Array(64)) };
  expect((await post(`/dids/${did}/aliases`, taken)).status).toBe(403);
  expect((await fetch(`${url}/aliases/odd?home=directory.invalid`)).status).toBe(503);
  const envelope = () => {
    const sender = { from: did, sender_key_id: `${did}#root` };
    const named = { message_id: crypto.randomUUID(), to: did, timestamp, payload: {}, ...sender };
    return {
      ...named,
      sender_signature: encodeBase64(ed25519.sign(encodeSenderText(named), seed)),
    };
  };
  expect((await fetch(`${url}/node`)).status).toBe(200);
  const rights = await fetch("http://localhost/operations/rights", { unix: adminSocket });
  expect(rights.status).toBe(200);
  expect((await post("/relay", envelope())).status).toBe(202);
  expect((await post("/cache/store", envelope())).status).toBe(202);
  const unsigned = () => ({ message_id: crypto.randomUUID(), to: did, timestamp, payload: {} });
  expect((await post("/cache/store", unsigned())).status).toBe(202);
  expect((await post("/relay", unsigned())).status).toBe(202);
  const preflight = { origin: "https://page.example", "access-control-request-method": "GET" };
  expect((await fetch(`${url}/limits`, { method: "OPTIONS", headers: preflight })).status).toBe(
    204,
  );
  const headers = (operation: string, name: string) =>
    proofHeaders({ did, seed, operation, service: `${did}#${name}` });
  const read = await fetch(`${url}/cache/messages/${did}`, { headers: headers("pull", "cache") });
  expect(await read.json()).toMatchObject({ count: 4 });
  const socket = new Socket(`${url.replace("http", "ws")}/ws/${did}/phone`, {
    headers: proofHeaders({
      did,
      seed,
      operation: "connect",
      service: `${did}#relay`,
      device: "phone",
    }),
  });
  await new Promise((resolve) => {
    socket.onmessage = resolve;
    socket.onclose = resolve;
  });
  socket.close();
  const keys = {
    p256dh:
      "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4",
    auth: "BTBZMqHH6r4Tts7J_aSIgg",
  };
  const body = JSON.stringify({ endpoint: `${url}/wake`, keys });
  const proof = { did, seed, operation: "push", service: `${did}#cache` };
  const subject = `phone,${new Bun.CryptoHasher("sha256").update(body).digest("hex")}`;
  const push = {
    method: "PUT",
    headers: { ...json, ...proofHeaders({ ...proof, subject }) },
    body,
  };
  expect((await fetch(`${url}/cache/push/${did}/phone`, push)).status).toBe(202);
  while (!reads.has("push.contact")) await Bun.sleep(5);
}

type Proof = {
  did: string;
  seed: Uint8Array;
  operation: string;
  service: string;
  device?: string;
  subject?: string;
};

function proofHeaders({
  did,
  seed,
  operation,
  service,
  device = "",
  subject = device || "*",
}: Proof): Record<string, string> {
  const [timestamp, nonce] = [new Date().toISOString(), crypto.randomUUID()];
  const lines = [
    "svc:cache:retrieval-proof:v1",
    `operation=${operation}`,
    `did=${did}`,
    `device_id=${device}`,
    `service_id=${service}`,
    `cache_endpoint=${url}`,
    `key_id=${did}#root`,
    `timestamp=${timestamp}`,
    `nonce=${nonce}`,
    `subject=${subject}`,
  ];
  return {
    "x-service-id": service,
    "x-cache-endpoint": url,
    "x-key-id": `${did}#root`,
    "x-timestamp": timestamp,
    "x-nonce": nonce,
    "x-signature": encodeBase64(ed25519.sign(utf8(lines.join("\n")), seed)),
    ...(device === "" ? {} : { "x-device-id": device }),
  };
}

test("the odd values are all different", () => {
  const numbers = listSettings()
    .map(({ section, name }) => Reflect.get(config[section], name) as unknown)
    .filter((value) => typeof value === "number");
  expect(new Set(numbers).size).toBe(numbers.length);
  expect(numbers.length).toBeGreaterThan(20);
});

test("every setting is read where it acts", () => {
  const all = listSettings().map(({ section, name }) => `${section}.${name}`);
  const unread = all.filter((setting) => !reads.has(setting));
  expect(unread).toEqual([]);
});

test("every setting that a reload changes is read again by a running node", () => {
  const all = listSettings().map(({ section, name }) => {
    const next = { ...config, [section]: { ...config[section], [name]: "another value" } };
    return reload(structuredClone(config), next).changed;
  });
  expect(all.flat().length).toBeGreaterThan(5);
  expect(all.flat().filter((setting) => !readsWhileRunning.has(setting))).toEqual([]);
});

describe("/limits shows the own value of", () => {
  const shown: readonly (readonly [limit: string, value: () => unknown])[] = [
    ["max_http_body_bytes", () => config.limits.body_bytes_max],
    ["max_unchunked_bytes", () => config.limits.unchunked_bytes_max],
    ["max_chunk_bytes", () => config.limits.chunk_bytes_max],
    ["max_header_bytes", () => config.limits.header_bytes_max],
    ["default_ttl", () => renderDuration(config.limits.ttl_default)],
    ["max_ttl", () => renderDuration(config.limits.ttl_max)],
    ["attempts_per_destination", () => config.relay.attempts],
    ["registration_rate_per_second", () => config.directory.registration_rate],
    ["registration_burst", () => config.directory.registration_burst],
    ["client_rate_per_second", () => config.relay.client_rate],
    ["client_burst", () => config.relay.client_burst],
    ["recipient_rate_per_second", () => config.relay.recipient_rate],
    ["recipient_burst", () => config.relay.recipient_burst],
    ["max_mailbox_entries", () => config.cache.recipient_entries_max],
    ["max_mailbox_bytes", () => config.cache.recipient_bytes_max],
    ["max_page_entries", () => config.cache.page_entries_max],
    ["max_page_bytes", () => config.cache.page_bytes_max],
  ];
  test.each(shown)("%s", (limit, value) =>
    expect([limit, limits[limit]]).toEqual([limit, value()]),
  );
});
