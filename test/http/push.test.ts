/** Pushes: who subscribes, what a push service is sent and when, and what its answers change. */
import { afterEach, describe, expect, test } from "bun:test";
import { openPushKey } from "../../src/app/keys.ts";
import { encodeHex, utf8 } from "../../src/core/codec/bytes.ts";
import { sha256 } from "../../src/core/codec/crypto.ts";
import { mailboxOf } from "../../src/core/codec/did.ts";
import type { JsonObject } from "../../src/core/codec/json.ts";
import { hourMs } from "../../src/core/codec/time.ts";
import { forgetPushes } from "../../src/nodes/cache/push.ts";
import { createEgress } from "../../src/nodes/egress/egress.ts";
import {
  ackBody,
  cachesKnowing,
  createPerson,
  envelopeTo,
  type Person,
  proofHeaders,
  signedBy,
  type TestCache,
  uuidOf,
} from "../support/cache-node.ts";
import { startOwnTime } from "../support/own-time.ts";
import {
  type Device,
  type PushService,
  startPushService,
  vapidClaims,
} from "../support/push-service.ts";
import { scratchPaths } from "../support/scratch.ts";
import { relayDefault } from "../support/settings.ts";

const [bob, alice] = [createPerson(1), createPerson(2)];
const pathOf = scratchPaths("push");
const key = await openPushKey(pathOf(), () => {});
const cacheFor = cachesKnowing(bob, alice);
/** Of one look to the next; by the test's own clock, of one push to the next. */
const interval = 40;

const open: { stop: () => unknown }[] = [];
afterEach(() => {
  for (const one of open.splice(0)) one.stop();
});

type Stage = { readonly node: Awaited<ReturnType<typeof nodeAt>>; readonly service: PushService };

async function service(): Promise<PushService> {
  const started = await startPushService();
  open.push(started);
  return started;
}

async function nodeAt({
  connected = () => false,
  beside,
}: {
  connected?: () => boolean;
  beside?: TestCache;
} = {}) {
  const network = { ...relayDefault, allow_http: true, allow_private: ["127.0.0.0/8"] };
  const settings = { enabled: true, contact: "mailto:operator@odd.example" };
  let looked = 0;
  const node = await cacheFor({
    push_interval: interval,
    push: {
      key,
      egress: createEgress({ settings: network }),
      confirmations: createEgress({ settings: network }),
      settings,
    },
    bell: { ring: () => undefined, isHeard: connected },
    receipts: (receipts) => ({
      scan: (prefix, page) => {
        if (prefix === "/push-due/") looked++;
        return receipts.scan(prefix, page);
      },
    }),
    ...(beside === undefined ? {} : { shared: beside.capabilities }),
  });
  open.push({ stop: () => node.cache.close() });
  return { ...node, looked: () => looked };
}

/** The mailbox knows alice. */
async function stage(options: Parameters<typeof nodeAt>[0] = {}): Promise<Stage> {
  const node = await nodeAt(options);
  await acknowledge(node, [await store(node, known)]);
  return { service: await service(), node };
}

type Asked = {
  readonly method?: string;
  readonly id?: string;
  readonly subject?: string;
  readonly person?: Person;
};

async function ask(
  node: TestCache,
  body: unknown,
  { method = "PUT", id = "phone", ...rest }: Asked = {},
) {
  const { person = bob } = rest;
  const text = body === null ? "" : typeof body === "string" ? body : JSON.stringify(body);
  const subject = rest.subject ?? `${id},${encodeHex(sha256(utf8(text)))}`;
  const timestamp = new Date(node.clock.nowMs).toISOString();
  const headers = proofHeaders(person, { operation: "push", subject, timestamp });
  const sent = body === null ? {} : { body: text };
  const path = [person.did, ...(id === "" ? [] : [id])].join("/");
  const answer = await node.ask(`/cache/push/${path}`, {
    method,
    headers: { ...headers, ...(body === null ? {} : { "content-type": "application/json" }) },
    ...sent,
  });
  const { code, state, ids } = (await answer.json()) as {
    code?: string;
    state?: string;
    ids?: string[];
  };
  return `${answer.status} ${code ?? state ?? ids?.join(" ")}`;
}

/** Subscribes, and returns the token. */
async function subscribe(
  { node, service }: Pick<Stage, "node" | "service">,
  device: Device,
  id = "phone",
): Promise<void> {
  const before = service.heard.length;
  const subscription = { ...device.subscription, data: "New message" };
  expect(await ask(node, subscription, { id })).toBe("202 unconfirmed");
  await service.atLeast(before + 1);
  expect(await ask(node, { ...subscription, token: device.token() }, { id })).toBe("200 confirmed");
}

let count = 100;
async function store(
  node: TestCache,
  change: JsonObject = {},
  headers: Record<string, string> = {},
): Promise<string> {
  const id = ++count;
  const envelope = envelopeTo(bob, id, {
    timestamp: new Date(node.clock.nowMs).toISOString(),
    ...change,
  });
  const body = JSON.stringify(change["from"] === undefined ? envelope : signedBy(alice, envelope));
  const init = {
    method: "POST",
    headers: { "content-type": "application/json", ...headers },
    body,
  };
  expect((await node.ask("/cache/store", init)).status).toBe(202);
  return uuidOf(id);
}

/** Since the call, a whole look for what is due has begun and ended, and with it what it sent. */
async function looks({ looked }: Stage["node"]): Promise<void> {
  const before = looked();
  while (looked() < before + 2) await Bun.sleep(5);
}
const known = { from: alice.did };

async function acknowledge(node: TestCache, ids: readonly string[]): Promise<void> {
  const timestamp = new Date(node.clock.nowMs).toISOString();
  expect((await node.ack(ackBody(bob, ids, { timestamp }))).status).toBe(200);
}

describe("a subscription", () => {
  test("counts when its device has returned the token of the first push", async () => {
    const { node, service } = await stage();
    const device = service.device("a");
    const subscription = { ...device.subscription, data: "New message" };
    expect(await ask(node, subscription)).toBe("202 unconfirmed");
    await service.atLeast(1);
    await store(node);
    expect(await ask(node, { ...subscription, token: "another" })).toBe("400 invalid_request");
    await looks(node);
    expect(device.woken()).toEqual([]);
    expect(await ask(node, { ...subscription, token: device.token() })).toBe("200 confirmed");
    // Again, as an app does at each start.
    expect(await ask(node, subscription)).toBe("200 confirmed");
    await store(node);
    await service.atLeast(2);
    expect(device.woken()).toEqual(["New message"]);
  });

  test("at another address or with other keys needs another token", async () => {
    const { node, service } = await stage();
    const [one, other] = [service.device("a"), service.device("b")];
    await subscribe({ node, service }, one);
    expect(await ask(node, { ...other.subscription, token: one.token() })).toBe(
      "400 invalid_request",
    );
    expect(await ask(node, other.subscription)).toBe("202 unconfirmed");
    await store(node);
    await looks(node);
    expect([one.woken(), other.woken()]).toEqual([[], []]);
  });

  test("is the tenth of a recipient at most, until one ends", async () => {
    const { node, service } = await stage();
    const device = service.device("a");
    for (let n = 0; n < 10; n++)
      expect(await ask(node, device.subscription, { id: `d${n}` })).toBe("202 unconfirmed");
    expect(await ask(node, device.subscription, { id: "d10" })).toBe("429 rate_limited");
    expect(await ask(node, device.subscription, { id: "d10", person: alice })).toBe(
      "202 unconfirmed",
    );
    expect(await ask(node, null, { id: "d3", method: "DELETE" })).toBe("200 removed");
    expect(await ask(node, device.subscription, { id: "d10" })).toBe("202 unconfirmed");
  });

  test("that its owner does not name any more ends, and the others stay", async () => {
    const { node, service } = await stage();
    const [phone, thief] = [service.device("a"), service.device("b")];
    await subscribe({ node, service }, phone);
    await subscribe({ node, service }, thief, "thief");
    const named = { ids: ["phone", "tablet"] };
    expect(await ask(node, named, { id: "", person: alice })).toBe("200 ");
    expect(await ask(node, named, { id: "", subject: `,${"0".repeat(64)}` })).toBe(
      "401 proof_invalid",
    );
    expect(await ask(node, { ids: ["a/b"] }, { id: "" })).toBe("400 invalid_request");
    await store(node, known);
    await service.atLeast(4);
    expect([phone.woken(), thief.woken()]).toEqual([["New message"], ["New message"]]);
    expect(await ask(node, named, { id: "" })).toBe("200 phone");
    node.clock.nowMs += interval;
    await store(node, known);
    await service.atLeast(5);
    await looks(node);
    expect([phone.woken().length, thief.woken().length]).toEqual([2, 1]);
  });

  test("that has ended gets no push", async () => {
    const { node, service } = await stage();
    const device = service.device("a");
    await subscribe({ node, service }, device);
    await store(node, known);
    await service.atLeast(2);
    await looks(node);
    expect(await ask(node, null, { method: "DELETE" })).toBe("200 removed");
    expect(await keptOf(node)).toEqual([]);
    node.clock.nowMs += interval;
    await store(node);
    await looks(node);
    expect(device.woken().length).toBe(1);
  });

  const device = {
    p256dh:
      "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4",
    auth: "BTBZMqHH6r4Tts7J_aSIgg",
  };
  const endpoint = "http://127.0.0.9:8999/wake";
  test.each([
    ["no JSON", "{", "400 invalid_json"],
    ["no keys", { endpoint }, "400 invalid_request"],
    [
      "a point beside the curve",
      { endpoint, keys: { ...device, p256dh: `B${"A".repeat(86)}` } },
      "400 invalid_request",
    ],
    ["a short secret", { endpoint, keys: { ...device, auth: "AAAA" } }, "400 invalid_request"],
    [
      "text for keys",
      { endpoint, keys: { ...device, auth: "*".repeat(22) } },
      "400 invalid_request",
    ],
    [
      "a long endpoint",
      { endpoint: `${endpoint}/${"a".repeat(1_000)}`, keys: device },
      "400 invalid_request",
    ],
    ["no URL", { endpoint: "phone", keys: device }, "400 invalid_request"],
    ["another scheme", { endpoint: "file:///etc/passwd", keys: device }, "400 invalid_request"],
    [
      "a port of another service",
      { endpoint: "http://127.0.0.1:25/", keys: device },
      "400 invalid_request",
    ],
    [
      "1,025 bytes to tell",
      { endpoint, keys: device, data: `${"é".repeat(512)}x` },
      "400 invalid_request",
    ],
    ["an unknown member", { endpoint, keys: device, topic: "x" }, "400 invalid_request"],
    ["1,024 bytes to tell", { endpoint, keys: device, data: "é".repeat(512) }, "202 unconfirmed"],
  ])("with %s is answered %#", async (_, body, expected) => {
    expect(await ask(await nodeAt(), body)).toBe(expected);
  });

  test("needs a proof over its id and its body", async () => {
    const { node, service } = await stage();
    const { subscription } = service.device("a");
    const hash = encodeHex(sha256(utf8(JSON.stringify(subscription))));
    expect(await ask(node, subscription, { subject: `other,${hash}` })).toBe("401 proof_invalid");
    expect(await ask(node, subscription, { subject: `phone,${"0".repeat(64)}` })).toBe(
      "401 proof_invalid",
    );
    expect(await ask(node, subscription, { id: "a.b", subject: `a.b,${hash}` })).toBe(
      "400 invalid_request",
    );
    expect(await ask(node, null, { method: "DELETE", subject: `phone,${hash}` })).toBe(
      "401 proof_invalid",
    );
  });
});

describe("a push", () => {
  test("names the operator and tells nothing about sender and message", async () => {
    const { node, service } = await stage();
    const device = service.device("a");
    await subscribe({ node, service }, device);
    const id = await store(node, known);
    await service.atLeast(2);
    const [first, push] = device.pushes();
    if (first === undefined || push === undefined) throw new Error("there is no push");
    const claims = vapidClaims(push.headers);
    expect(claims).toMatchObject({
      key: key.publicKey,
      claims: { aud: service.url, sub: "mailto:operator@odd.example" },
    });
    const names = ["content-encoding", "content-type", "ttl", "urgency", "topic"];
    expect(names.map((name) => push.headers.get(name))).toEqual([
      "aes128gcm",
      "application/octet-stream",
      "86400",
      "high",
      "waypost",
    ]);
    expect(push.body.length).toBe(first.body.length);
    const all = JSON.stringify([...push.headers, push.path]) + push.body.toString("latin1");
    for (const told of [bob.did, alice.did, id, "odd.example/"]) expect(all).not.toContain(told);
    // The content is what the device asked for, byte for byte.
    expect(device.woken()).toEqual(["New message"]);
  });

  test("goes to each device, once in an interval whatever is stored, and once more for what came in between", async () => {
    const { node, service } = await stage();
    const [phone, tablet] = [service.device("a"), service.device("b")];
    await subscribe({ node, service }, phone, "phone");
    await subscribe({ node, service }, tablet, "tablet");
    for (let n = 0; n < 5; n++) await store(node, known);
    await service.atLeast(4);
    await looks(node);
    expect([phone.woken().length, tablet.woken().length]).toEqual([1, 1]);
    node.clock.nowMs += interval;
    await looks(node);
    expect([phone.woken().length, tablet.woken().length]).toEqual([2, 2]);
    node.clock.nowMs += interval;
    await looks(node);
    expect(phone.woken().length).toBe(2);
  });

  test("goes out once from two nodes over one store", async () => {
    const { node, service } = await stage();
    const other = await nodeAt({ beside: node });
    const device = service.device("a");
    await subscribe({ node, service }, device);
    // Stored at both at the same moment, it is due at both.
    for (const count of [1, 2]) {
      await Promise.all([node, other, node, other].map((one) => store(one, known)));
      await Promise.all([node, other].map(looks));
      expect(device.woken().length).toBe(count);
      for (const one of [node, other]) one.clock.nowMs += interval;
      await Promise.all([node, other].map(looks));
      expect(device.woken().length).toBe(count);
    }
  });

  test("is not sent for what its sender calls not urgent", async () => {
    const { node, service } = await stage();
    const device = service.device("a");
    await subscribe({ node, service }, device);
    await store(node, known, { urgency: "low" });
    await store(node, known, { urgency: "very-low" });
    await looks(node);
    expect(device.woken()).toEqual([]);
    await store(node, known, { urgency: "normal" });
    await service.atLeast(2);
  });

  test("waits while a device is connected, and is not sent when everything was fetched", async () => {
    let isConnected = true;
    const { node, service } = await stage({ connected: () => isConnected });
    const device = service.device("a");
    await subscribe({ node, service }, device);
    const fetched = await store(node, known);
    await looks(node);
    expect(device.woken()).toEqual([]);
    await acknowledge(node, [fetched]);
    isConnected = false;
    await looks(node);
    expect(device.woken()).toEqual([]);
    isConnected = true;
    await store(node, known);
    isConnected = false;
    await service.atLeast(2);
    expect(device.woken().length).toBe(1);
  });

  test("is sent for strangers six times an hour, and for known senders as often as is due", async () => {
    const { node, service } = await stage();
    const device = service.device("a");
    await subscribe({ node, service }, device);
    for (let n = 0; n < 8; n++) {
      await store(node);
      await looks(node);
      node.clock.nowMs += interval;
    }
    expect(device.woken().length).toBe(6);
    const before = device.woken().length;
    await looks(node);
    for (let n = 0; n < 3; n++) {
      await store(node, known);
      await looks(node);
      node.clock.nowMs += interval;
    }
    expect(device.woken().length).toBe(before + 3);
    node.clock.nowMs += hourMs;
    await store(node);
    await looks(node);
    expect(device.woken().length).toBe(before + 4);
  });
});

test("an erased recipient leaves nothing of its pushes, and others keep theirs", async () => {
  const { node, service } = await stage();
  const [one, other] = [service.device("a"), service.device("b")];
  await subscribe({ node, service }, one);
  expect(await ask(node, other.subscription, { person: alice })).toBe("202 unconfirmed");
  await store(node);
  await service.atLeast(3);
  service.answer(() => new Response(null, { status: 500 }));
  node.clock.nowMs += interval;
  await store(node);
  await service.atLeast(4);
  await looks(node);
  const { receipts } = node.capabilities;
  const kept = async () =>
    (await receipts.scan("/push", { after: null, limit: 100, nowMs: 0 })).map(([key]) =>
      key.split("/").slice(1, 3),
    );
  expect(new Set((await kept()).filter(([, of]) => of === bob.did).map(([kind]) => kind))).toEqual(
    new Set(["push", "push-due", "push-pause", "push-strangers"]),
  );
  await forgetPushes(receipts, mailboxOf(bob.did, 0));
  expect(await kept()).toEqual([["push", alice.did]]);
});

/** The kinds of records that are left of pushes. */
const keptOf = async (node: TestCache) =>
  (await node.capabilities.receipts.scan("/push", { after: null, limit: 100, nowMs: 0 })).map(
    ([key]) => key.split("/")[1],
  );

describe("a push service that answers", () => {
  test.each([404, 410])("%d has no such subscription any more", async (status) => {
    const { node, service } = await stage();
    const device = service.device("a");
    await subscribe({ node, service }, device);
    service.answer(() => new Response(null, { status }));
    await store(node, known);
    await service.atLeast(2);
    await looks(node);
    service.answer(() => new Response(null, { status: 201 }));
    node.clock.nowMs += hourMs;
    await store(node, known);
    await looks(node);
    expect(device.woken().length).toBe(1);
    expect(await keptOf(node)).toEqual([]);
    expect(await ask(node, device.subscription)).toBe("202 unconfirmed");
  });

  test.each([
    [429, "600", 600_000],
    [503, "7", 300_000],
    [500, null, 300_000],
    [307, null, 300_000],
    [429, "999999999", 6 * hourMs],
  ] as const)(
    "%d with Retry-After %s is asked again after %d ms",
    async (status, after, waitMs) => {
      const { node, service } = await stage();
      const device = service.device("a");
      await subscribe({ node, service }, device);
      const headers = {
        location: service.url,
        ...(after === null ? {} : { "retry-after": after }),
      };
      service.answer(() => new Response(null, { status, headers }));
      await store(node, { ...known, ttl: "48h" });
      await service.atLeast(2);
      await looks(node);
      service.answer(() => new Response(null, { status: 201 }));
      node.clock.nowMs += waitMs - 1_000;
      await looks(node);
      expect(service.heard.length).toBe(2);
      node.clock.nowMs += 1_000;
      await service.atLeast(3);
      await looks(node);
      expect(device.woken().length).toBe(2);
      expect(await node.cacheMetrics.render()).toContain(
        'waypost_push_requests_total{answer="taken"} 2',
      );
    },
  );

  test("with a pause does so for that subscription, and not for the next of the device", async () => {
    const { node, service } = await stage();
    const [before, after] = [service.device("a"), service.device("b")];
    await subscribe({ node, service }, before);
    service.answer(() => new Response(null, { status: 429, headers: { "retry-after": "21600" } }));
    await store(node, known);
    await service.atLeast(2);
    await looks(node);
    service.answer(() => new Response(null, { status: 201 }));
    await subscribe({ node, service }, after);
    node.clock.nowMs += 60_000;
    await service.atLeast(4);
    expect(after.woken()).toEqual(["New message"]);
  });

  test("401 or 403 is reported once", async () => {
    const { node, service } = await stage();
    const device = service.device("a");
    await subscribe({ node, service }, device);
    for (const status of [401, 403]) {
      service.answer(() => new Response(null, { status }));
      await store(node, known);
      await looks(node);
      node.clock.nowMs += hourMs;
    }
    expect(device.woken().length).toBeGreaterThan(1);
    const errors = node.cacheLines.filter(({ level }) => level === "error");
    expect(errors.map(({ fields }) => fields)).toEqual([
      { host: service.url.slice(7), status: 401 },
    ]);
  });

  test("nothing keeps no envelope from being stored", async () => {
    const { node, service } = await stage();
    const device = service.device("a");
    await subscribe({ node, service }, device);
    service.answer(() => new Promise(() => {}));
    const elapsedMs = startOwnTime();
    for (let n = 0; n < 3; n++) await store(node, known);
    expect(elapsedMs()).toBeLessThan(5_000);
    const [text = ""] =
      (await node.cache.explained.pushesOf?.(bob.did as never, node.clock.nowMs)) ?? [];
    expect(text).toContain("would be pushed to");
  });
});
