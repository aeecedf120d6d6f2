/**
 * Strangers at the Cache: their rate, their pools of a mailbox, and how a sender becomes known.
 * Known senders get through however much strangers store.
 */
import { describe, expect, test } from "bun:test";
import type { JsonObject } from "../../src/core/codec/json.ts";
import { dayMs } from "../../src/core/codec/time.ts";
import { connectionFrom, respond } from "../support/app.ts";
import {
  ackBody,
  cachesKnowing,
  createPerson,
  createTestCache,
  envelopeTo,
  outcomeOf,
  proofHeaders,
  signedBy,
  type TestCache,
  type TestCacheOptions,
  testNowMs,
  uuidOf,
} from "../support/cache-node.ts";

import { policyOf } from "../support/policies.ts";
import { cacheDefault } from "../support/settings.ts";

const bob = createPerson(1);
const alice = createPerson(2);
const carol = createPerson(3);
const dave = createPerson(4);
const crowd = [5, 6, 7, 8, 9, 10, 11, 12].map((number) => createPerson(number));
type TestPerson = typeof alice;

/**
 * Of 400 entries: floors of 160 and a rest of 100 for known people, floors of 120 and a rest of 100
 * for newcomers.
 */
const { stranger_share } = cacheDefault;
const quota = { recipient_entries_max: 400, stranger_share };

const caches = cachesKnowing(bob, alice, carol, dave);
const cacheFor = (options: TestCacheOptions = {}): Promise<TestCache> =>
  caches({ ...quota, ...options });

/** Stores from a client at this address. */
function storeFrom(node: TestCache, client: string, envelope: JsonObject): Promise<string> {
  return outcomeOf(respond(node.app, storeRequest(envelope), connectionFrom(client)));
}

function storeRequest(envelope: JsonObject): Request {
  return new Request("http://cache.example/cache/store", {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(envelope),
  });
}

/** The answer of the same, whatever it is. */
async function storeFromFor(
  node: TestCache,
  client: string,
  envelope: JsonObject,
): Promise<JsonObject> {
  const response = await respond(node.app, storeRequest(envelope), connectionFrom(client));
  return (await response.json()) as JsonObject;
}

const network = (number: number) => `198.51.100.${number}`;
const times = (count: number) => Array.from({ length: count }, (_, i) => i);

describe("the rate of a client network", () => {
  test("counts acknowledgements by themselves, malformed ones too", async () => {
    const node = await cacheFor({ client_rate: 1, client_burst: 2 });
    const acknowledged = async () => (await node.ack({})).status;
    expect([await acknowledged(), await acknowledged(), await acknowledged()]).toEqual([
      400, 400, 429,
    ]);
    expect(await outcomeOf(node.store(envelopeTo(bob, 1)))).toBe("202 ok");
    node.clock.nowMs += 1_000;
    expect(await acknowledged()).toBe(400);
  });

  test("is bounded before the body is read, each network by itself", async () => {
    const node = await cacheFor({ client_rate: 1, client_burst: 3 });
    const codes: string[] = [];
    for (const i of times(5)) codes.push(await storeFrom(node, network(1), envelopeTo(bob, i + 1)));
    expect(codes).toEqual(["202 ok", "202 ok", "202 ok", "429 rate_limited", "429 rate_limited"]);
    expect(await storeFrom(node, network(2), envelopeTo(bob, 9))).toBe("202 ok");
    node.clock.nowMs += 1_000;
    expect(await storeFrom(node, network(1), envelopeTo(bob, 10))).toBe("202 ok");
  });

  test("counts a large envelope once for each 256 KiB", async () => {
    const node = await cacheFor({ client_rate: 1, client_burst: 5 });
    const payload = { ciphertext_b64: "A".repeat(1 << 20) };
    expect(await storeFrom(node, network(1), envelopeTo(bob, 1, { payload }))).toBe("202 ok");
    expect(await storeFrom(node, network(1), envelopeTo(bob, 2))).toBe("429 rate_limited");
    expect(await storeFrom(node, network(2), envelopeTo(bob, 2))).toBe("202 ok");
  });

  test("spares clients of this machine where they are exempt", async () => {
    const node = await cacheFor({ client_rate: 1, client_burst: 1, rate_limit_loopback: false });
    for (const i of times(5))
      expect(await storeFrom(node, "127.0.0.1", envelopeTo(bob, i + 1))).toBe("202 ok");
  });
});

describe("pools of a mailbox", () => {
  test("leave newcomers of each network two entries whatever one network fills, and friends theirs", async () => {
    const node = await cacheFor();
    await befriend(node, alice);
    // Its floor, and half of the rest.
    expect(await fillFrom(node, network(1))).toBe(2 + 51);
    for (const n of [2, 3])
      expect(await storeFrom(node, network(98), envelopeTo(bob, 9_000 + n))).toBe("202 ok");
    await fillNewcomers(node);
    expect(await storeFrom(node, network(199), envelopeTo(bob, 9_001))).toBe("507 mailbox_full");
    expect(await storeFrom(node, network(198), signedBy(carol, envelopeTo(bob, 9_006)))).toBe(
      "507 mailbox_full",
    );
    expect(await storeFrom(node, network(5), signedBy(alice, envelopeTo(bob, 9_007)))).toBe(
      "202 ok",
    );
  });

  test("leave each known sender its floor whatever another one fills", async () => {
    const node = await cacheFor({ recipient_entries_max: 2_000, client_rate: 100_000 });
    await befriend(node, alice);
    await befriend(node, carol, 78);
    // Of 800 entries a floor of an eighth, and half of a rest of 400.
    expect(await fillFrom(node, network(1), alice)).toBe(100 + 201);
    expect(await fillFrom(node, network(1), carol)).toBe(100 + 100);
    expect(await storeFrom(node, network(2), envelopeTo(bob, 9_003))).toBe("202 ok");
    const metrics = await node.cacheMetrics.render();
    expect(metrics).toContain('cache_share_refusals_total{scope="known"} 2');
  });

  test("count for a loopback address as well", async () => {
    const node = await cacheFor({ recipient_entries_max: 1_000, rate_limit_loopback: false });
    expect(await fillFrom(node, "127.0.0.1")).toBe(2 + 51);
    expect(await storeFrom(node, "127.0.0.2", envelopeTo(bob, 9_002))).toBe("202 ok");
  });

  test("are named by what refuses", async () => {
    const node = await cacheFor();
    await fillFrom(node, network(1));
    const refused = await storeFromFor(node, network(1), envelopeTo(bob, 9_004));
    expect(refused).toMatchObject({ code: "mailbox_full" });
    expect(String(refused["detail"])).toContain("new-rest");
  });

  test("a repeated envelope is not a new entry", async () => {
    const node = await cacheFor({ recipient_entries_max: 100 });
    for (const i of times(100)) await storeFrom(node, network(1), envelopeTo(bob, i + 1));
    expect(await storeFrom(node, network(1), envelopeTo(bob, 1))).toBe("202 ok");
  });

  test("report whose mailbox refuses: one log line a minute, and a metric", async () => {
    const node = await cacheFor();
    for (const i of times(58)) await storeFrom(node, network(1), envelopeTo(bob, i + 1));
    const lines = node.cacheLines.filter((line) => line.message === "a mailbox refuses envelopes");
    expect(lines).toMatchObject([{ level: "warn", fields: { scope: "new" } }]);
    expect(JSON.stringify(lines)).not.toContain(bob.did);
    expect(await node.cacheMetrics.render()).toContain('cache_share_refusals_total{scope="new"} 5');
    node.clock.nowMs += 60_000;
    await storeFrom(node, network(1), envelopeTo(bob, 106));
    expect(node.cacheLines.length).toBe(2);
  });

  test("leave a small mailbox to whoever comes first", async () => {
    const node = await cacheFor({ recipient_entries_max: 2 });
    const codes = [];
    for (const i of times(3)) codes.push(await storeFrom(node, network(1), envelopeTo(bob, i + 1)));
    expect(codes).toEqual(["202 ok", "202 ok", "507 mailbox_full"]);
  });
});

describe("a sender is known", () => {
  const isStranger = async (node: TestCache, number: number) => {
    // Newcomers have used up their side, so only a known sender gets through.
    await fillNewcomers(node);
    const envelope = envelopeTo(bob, number, {
      timestamp: new Date(node.clock.nowMs).toISOString(),
    });
    return (await storeFrom(node, network(9), signedBy(alice, envelope))) !== "202 ok";
  };

  test("once the recipient has acknowledged a signed envelope of it, for 90 days", async () => {
    const node = await cacheFor();
    expect(await isStranger(node, 1)).toBe(true);
    const second = await cacheFor();
    await befriend(second, alice);
    expect(await isStranger(second, 1)).toBe(false);
    second.clock.nowMs = testNowMs + 91 * dayMs;
    expect(await storeFrom(second, network(1), { ...envelopeTo(bob, 5), ...fresh(second) })).toBe(
      "202 ok",
    );
  });

  test("unless the acknowledgement says that the user has not accepted it", async () => {
    const node = await cacheFor();
    const sent = await storeFrom(node, network(200), signedBy(alice, envelopeTo(bob, 77)));
    expect(sent).toBe("202 ok");
    const request = new Request("http://cache.example/cache/ack", {
      method: "POST",
      headers: { "content-type": "application/json", "svc-accepted": "none" },
      body: JSON.stringify(ackBody(bob, [uuidOf(77)])),
    });
    expect((await respond(node.app, request, connectionFrom(network(1)))).status).toBe(200);
    expect(await isStranger(node, 2)).toBe(true);
  });

  test("in the mailbox of this recipient only", async () => {
    const node = await cacheFor();
    await befriend(node, alice);
    await fillNewcomers(node, carol);
    expect(await storeFrom(node, network(9), signedBy(alice, envelopeTo(carol, 1)))).toBe(
      "507 mailbox_full",
    );
  });
});

describe("the share of a network in the whole store", () => {
  test("is half of it, over all mailboxes, with a metric", async () => {
    const node = await cacheFor({
      recipient_entries_max: 2_000,
      store_entries_max: 1_000,
      client_rate: 100_000,
    });
    for (const person of crowd) node.recipients.add(person);
    const fill = async (client: string, sender?: TestPerson): Promise<[number, string]> => {
      let [count, last] = [0, ""];
      for (const to of crowd) {
        for (;;) {
          const envelope = envelopeTo(to, ++filled);
          last = await storeFrom(
            node,
            client,
            sender === undefined ? envelope : signedBy(sender, envelope),
          );
          if (last !== "202 ok") break;
          count++;
        }
      }
      return [count, last];
    };
    expect(await fill(network(1))).toEqual([500, "507 storage_full"]);
    expect(await storeFrom(node, network(3), envelopeTo(bob, ++filled))).toBe("202 ok");
    expect(await node.cacheMetrics.render()).toContain(
      'cache_share_refusals_total{scope="store"} ',
    );
  });

  test("counts envelopes of known senders as well", async () => {
    const node = await cacheFor({
      recipient_entries_max: 2_000,
      store_entries_max: 400,
      client_rate: 100_000,
    });
    await befriend(node, alice);
    expect(await fillFrom(node, network(1), alice, "507 storage_full")).toBe(200);
    expect(await storeFrom(node, network(1), envelopeTo(bob, 9_001))).toBe("507 storage_full");
    expect(await storeFrom(node, network(2), signedBy(alice, envelopeTo(bob, 9_002)))).toBe(
      "202 ok",
    );
  });
});

const fresh = (node: TestCache) => ({ timestamp: new Date(node.clock.nowMs).toISOString() });

/** Bob acknowledges a signed envelope of the sender. */
async function befriend(node: TestCache, sender: TestPerson, number = 77): Promise<void> {
  expect(await storeFrom(node, network(200), signedBy(sender, envelopeTo(bob, number)))).toBe(
    "202 ok",
  );
  expect((await node.ack(ackBody(bob, [uuidOf(number)]))).status).toBe(200);
}

/** Networks fill the rest, then others their floors, until newcomers have all that they get. */
async function fillNewcomers(node: TestCache, to = bob): Promise<void> {
  for (let place = 2; place < 192; place++) {
    for (;;) {
      const outcome = await storeFrom(node, network(place), envelopeTo(to, ++filled));
      if (outcome !== "202 ok") break;
    }
  }
}

/** Stores until it is refused, and says how many were taken. */
async function fillFrom(
  node: TestCache,
  client: string,
  sender?: TestPerson,
  refusal = "507 mailbox_full",
): Promise<number> {
  for (let count = 0; ; count++) {
    const envelope = envelopeTo(bob, ++filled);
    const outcome = await storeFrom(
      node,
      client,
      sender === undefined ? envelope : signedBy(sender, envelope),
    );
    if (outcome !== "202 ok") {
      expect(outcome).toBe(refusal);
      return count;
    }
  }
}
let filled = 10_000;

async function held(node: TestCache): Promise<number> {
  const response = await node.read(
    `/cache/summary/${bob.did}`,
    proofHeaders(bob, { operation: "summary" }),
  );
  return ((await response.json()) as { count: number }).count;
}

test("an envelope belongs to the life of the DID for which it was admitted", async () => {
  const node = await cacheFor();
  expect((await node.store(envelopeTo(bob, 1))).status).toBe(202);
  node.recipients.add(bob, { life: 1 });
  expect(await held(node)).toBe(0);
  expect((await node.store(envelopeTo(bob, 1))).status).toBe(202);
  expect(await held(node)).toBe(1);
  expect(
    ((await (await node.ack(ackBody(bob, [uuidOf(1)]))).json()) as { acked: number }).acked,
  ).toBe(1);
});

test("lets nobody lift the recipient's policy with a tag of his own", async () => {
  const node = await createTestCache();
  node.recipients.add(bob);
  node.recipients.policies.set(
    `recipient:${bob.did}`,
    policyOf({ cacheEligible: false, maxMessageBytes: 1_000 }),
  );
  node.recipients.policies.set(
    "tag:mine",
    policyOf({ cacheEligible: true, maxMessageBytes: 1_000_000 }),
  );
  expect(await outcomeOf(node.store(envelopeTo(bob, 1, { tag: "mine" })))).toBe(
    "403 policy_denied",
  );
  node.recipients.add(bob, {
    links: { recipientPolicy: null, tagPolicies: ["mine"], personaPolicies: [] },
  });
  expect(await outcomeOf(node.store(envelopeTo(bob, 1, { tag: "mine" })))).toBe(
    "403 policy_denied",
  );
});

test("answers an expiry that is the timestamp and the applied life, whatever the block time", async () => {
  const node = await createTestCache();
  node.recipients.add(bob);
  node.recipients.policies.set(`recipient:${bob.did}`, policyOf({ effectiveTtlBlocks: 7 }));
  node.recipients.blockTimeMs = async () => 1_500;
  const receipt = (await (await node.store(envelopeTo(bob, 1))).json()) as Record<string, string>;
  expect([receipt["applied_ttl"], receipt["max_ttl"]]).toEqual(["PT10S", "PT10S"]);
  expect(receipt["expires_at"]).toBe(new Date(testNowMs + 10_000).toISOString());
});
