/**
 * Pushes next to a flood: who subscribes at hosts that hang keeps no device from being woken, and
 * no host is flooded.
 */
import { afterEach, expect, test } from "bun:test";
import { openPushKey } from "../../src/app/keys.ts";
import { encodeHex, utf8 } from "../../src/core/codec/bytes.ts";
import { sha256 } from "../../src/core/codec/crypto.ts";
import { createEgress } from "../../src/nodes/egress/egress.ts";
import {
  cachesKnowing,
  createPerson,
  envelopeTo,
  type Person,
  proofHeaders,
  type TestCache,
} from "../support/cache-node.ts";
import { type Device, type PushService, startPushService } from "../support/push-service.ts";
import { scratchPaths } from "../support/scratch.ts";
import { relayDefault } from "../support/settings.ts";

const honest = Array.from({ length: 8 }, (_, n) => createPerson(n + 1));
const hostile = Array.from({ length: 50 }, (_, n) => createPerson(n + 101));
const pathOf = scratchPaths("push-flood");
const key = await openPushKey(pathOf(), () => {});
const cacheFor = cachesKnowing(...honest, ...hostile);
const proxy = "192.0.2.7";

const open: { stop: () => unknown }[] = [];
afterEach(() => {
  for (const one of open.splice(0)) one.stop();
});

async function nodeFor(changed: Partial<typeof relayDefault> = {}): Promise<TestCache> {
  const local = { allow_http: true, allow_private: ["127.0.0.0/8"] };
  const settings = { ...relayDefault, ...local, ...changed };
  const egressOf = (requestsMax: number) =>
    createEgress({
      settings,
      requestsMax,
      byRegisteredName: true,
      resolve: async () => ["127.0.0.1"],
    });
  const node = await cacheFor({
    push_interval: 40,
    trustedProxies: [proxy],
    push: {
      key,
      egress: egressOf(64),
      confirmations: egressOf(32),
      settings: { enabled: true, contact: "mailto:operator@odd.example" },
    },
  });
  open.push({ stop: () => node.cache.close() });
  return node;
}

async function serviceFor(): Promise<PushService> {
  const service = await startPushService();
  open.push(service);
  return service;
}

/** As `client`. `endpoint` replaces that of the device. */
async function put(
  node: TestCache,
  person: Person,
  { id = "phone", client = "198.51.100.1", ...subscription }: Record<string, unknown>,
): Promise<string> {
  const body = JSON.stringify(subscription);
  const proof = proofHeaders(person, {
    operation: "push",
    subject: `${id},${encodeHex(sha256(utf8(body)))}`,
    timestamp: new Date(node.clock.nowMs).toISOString(),
  });
  const headers = { ...proof, "content-type": "application/json", "x-forwarded-for": `${client}` };
  const answer = await node.ask(`/cache/push/${person.did}/${id}`, {
    method: "PUT",
    headers,
    body,
  });
  const { code, state } = (await answer.json()) as { code?: string; state?: string };
  return `${answer.status} ${code ?? state}`;
}

/** Subscribes and returns the token; at another name of the service, if one is given. */
async function confirmed(
  node: TestCache,
  person: Person,
  { service, id = "phone", host }: { service: PushService; id?: string; host?: string },
) {
  const name = `${person.did.slice(-8)}-${id}`;
  const device = service.device(name);
  const endpoint = new URL(device.subscription.endpoint);
  if (host !== undefined) endpoint.hostname = host;
  const client = `198.51.100.${person.did.charCodeAt(12)}`;
  const subscription = { ...device.subscription, id, client, endpoint: endpoint.href };
  const before = service.heard.length;
  expect(await put(node, person, subscription)).toBe("202 unconfirmed");
  await service.atLeast(before + 1);
  const token = device.token();
  expect(await put(node, person, { ...subscription, token })).toBe("200 confirmed");
  return device;
}

const never = () => new Promise<Response>(() => undefined);
let count = 0;

async function store(node: TestCache, person: Person): Promise<void> {
  const timestamp = new Date(node.clock.nowMs).toISOString();
  expect((await node.store(envelopeTo(person, ++count, { timestamp }))).status).toBe(202);
}

test.each([
  ["of one name", (n: number) => `a${n}.evil.example`],
  ["of many names", (n: number) => `a.evil${n}.example`],
])(
  "subscriptions at hosts that hang, %s, leave all devices awake, whichever networks they come from",
  async (_, hostOf) => {
    const [node, push, hanging] = [await nodeFor(), await serviceFor(), await serviceFor()];
    const devices: Device[] = [];
    for (const person of honest) devices.push(await confirmed(node, person, { service: push }));
    hanging.answer(never);
    const { port } = new URL(hanging.url);
    const flood = async (n: number) => {
      const person = hostile[n % hostile.length] as Person;
      const endpoint = `http://${hostOf(n)}:${port}/`;
      const { keys } = hanging.device(`${n}`).subscription;
      const id = `d${n % 10}`;
      await put(node, person, { endpoint, keys, id, client: `203.0.113.${n % 50}` });
    };
    for (let n = 0; n < 200; n++) await flood(n);
    expect(hanging.heard.length).toBeGreaterThan(0);
    for (const person of honest) await store(node, person);
    // The flood goes on until all are awake: places that come free by time go to it as well.
    const sleeping = () => devices.filter((device) => device.woken().length === 0).length;
    for (let n = 200; sleeping() > 0 && n < 1_000; n++) await flood(n);
    expect(sleeping()).toBe(0);
  },
);

test("pushes to hosts that hang leave all other devices awake", async () => {
  const [node, push, hanging] = [await nodeFor(), await serviceFor(), await serviceFor()];
  const devices: Device[] = [];
  for (const person of honest) devices.push(await confirmed(node, person, { service: push }));
  const ids = ["a", "b", "c", "d"];
  for (const [n, person] of hostile.entries())
    for (const id of ids)
      await confirmed(node, person, { service: hanging, id, host: `${id}.evil${n}.example` });
  const before = hanging.heard.length;
  hanging.answer(never);
  for (const person of hostile) await store(node, person);
  await hanging.atLeast(before + 32);
  for (const person of honest) await store(node, person);
  await push.atLeast(2 * honest.length);
  expect(devices.map((device) => device.woken().length)).toEqual(devices.map(() => 1));
}, 30_000);

test("a network subscribes a hundred times at once, at one host or many, and others meanwhile", async () => {
  const [node, service] = [await nodeFor(), await serviceFor()];
  const { keys } = service.device("a").subscription;
  const { port } = new URL(service.url);
  const answers = new Map<string, number>();
  for (let n = 0; n < 110; n++) {
    const endpoint = `http://${n < 60 ? "push" : `push${n}`}.example:${port}/`;
    const person = hostile[n % hostile.length] as Person;
    const answer = await put(node, person, { endpoint, keys, id: `d${Math.floor(n / 50)}` });
    answers.set(answer, (answers.get(answer) ?? 0) + 1);
  }
  expect(Object.fromEntries(answers)).toEqual({ "202 unconfirmed": 100, "429 rate_limited": 10 });
  const { subscription } = service.device("b");
  const [first] = honest as [Person];
  expect(await put(node, first, { ...subscription, client: "198.51.100.2" })).toBe(
    "202 unconfirmed",
  );
  node.clock.nowMs += 2_000;
  expect(await put(node, first, subscription)).toBe("202 unconfirmed");
});

test("an address that is never asked, and a port of another service, are refused at once", async () => {
  const service = await serviceFor();
  const { keys } = service.device("a").subscription;
  const [first] = honest as [Person];
  const plain = await nodeFor({ allow_http: false, allow_private: [] });
  for (const endpoint of [
    "https://10.1.2.3/x",
    "https://169.254.169.254/",
    "https://[::1]/",
    "https://127.0.0.1:8443/",
    "https://localhost/",
    "https://push.odd-service.net:8443/",
    "https://push.odd-service.net:22/",
    "http://push.odd-service.net/",
  ])
    expect([endpoint, await put(plain, first, { endpoint, keys })]).toEqual([
      endpoint,
      "400 invalid_request",
    ]);
  expect(await put(plain, first, { endpoint: "https://push.odd-service.net/", keys })).toBe(
    "202 unconfirmed",
  );
  const open = await nodeFor();
  const { subscription } = service.device("b");
  expect(await put(open, first, subscription)).toBe("202 unconfirmed");
});
