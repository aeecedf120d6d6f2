/** Every failure of a proof on every route that needs one, and that a nonce works exactly once. */
import { describe, expect, test } from "bun:test";
import type { JsonObject } from "../../src/core/codec/json.ts";
import { minuteMs } from "../../src/core/codec/time.ts";
import {
  ackBody,
  createPerson,
  createTestCache,
  envelopeTo,
  freshNonce,
  outcomeOf,
  type Person,
  type ProofValues,
  proofHeaders,
  type TestCache,
  testNowMs,
  uuidOf,
} from "../support/cache-node.ts";
import { pause } from "../support/wait.ts";

const bob = createPerson(1, [
  {},
  { type: "SvcRelayService" },
  { serviceEndpoint: ["https://other.example"] },
  { authorization: null },
  { authorization: [] },
]);
const mallory = createPerson(2);

async function cacheForBob(): Promise<TestCache> {
  const node = await createTestCache();
  node.recipients.add(bob);
  return node;
}

type Damage = (sent: Record<string, unknown>) => void;
/**
 * A request of one route, signed by a person with some values of the proof changed, then damaged.
 */
type RouteCase = {
  name: string;
  ask: (
    node: TestCache,
    change: Partial<ProofValues>,
    extra?: { signer?: Person; damage?: Damage },
  ) => Promise<Response>;
  /** Under which name the route takes a value of the proof. */
  names: Record<"service" | "endpoint" | "key" | "timestamp" | "nonce" | "signature", string>;
};

const headerNames = {
  service: "X-Service-Id",
  endpoint: "X-Cache-Endpoint",
  key: "X-Key-Id",
  timestamp: "X-Timestamp",
  nonce: "X-Nonce",
  signature: "X-Signature",
};
const memberNames = {
  service: "service_id",
  endpoint: "cache_endpoint",
  key: "key_id",
  timestamp: "timestamp",
  nonce: "nonce",
  signature: "signature_b64",
};

function read(name: string, path: string, values: Partial<ProofValues>): RouteCase {
  return {
    name,
    names: headerNames,
    ask: (node, change, { signer = bob, damage } = {}) => {
      const headers = proofHeaders(signer, {
        did: bob.did,
        keyId: bob.keyId,
        serviceId: bob.serviceId,
        ...values,
        ...change,
      });
      damage?.(headers);
      return node.read(path, headers);
    },
  };
}

const routes: RouteCase[] = [
  read("messages", `/cache/messages/${bob.did}`, { operation: "pull" }),
  read("chunks", `/cache/chunks/${bob.did}/${uuidOf(9)}`, {
    operation: "chunks",
    subject: uuidOf(9),
  }),
  read("summary", `/cache/summary/${bob.did}`, { operation: "summary" }),
  read("device summary", `/cache/summary/${bob.did}/phone-1`, { operation: "summary" }),
  read("message", `/cache/message/${bob.did}/${uuidOf(1)}`, {
    operation: "pull_message",
    subject: uuidOf(1),
  }),
  {
    name: "ack",
    names: memberNames,
    ask: (node, change, { signer = bob, damage } = {}) => {
      const values = { did: bob.did, keyId: bob.keyId, serviceId: bob.serviceId, ...change };
      const body = ackBody(signer, [uuidOf(1)], values);
      damage?.(body);
      return node.ack(body);
    },
  },
];

const settled = async (response: Promise<Response>) => outcomeOf(await response);

const service = (place: number) => ({ serviceId: `${bob.did}#cache${place}` });

describe.each(routes)("a proof for $name", ({ ask, names }) => {
  test("is accepted when everything is right, and with slashes at the end of the endpoint", async () => {
    const node = await cacheForBob();
    expect(await settled(ask(node, {}))).toBe("200 ok");
    expect(await settled(ask(node, { endpoint: "https://cache.example//" }))).toBe("200 ok");
    expect(await settled(ask(node, { timestamp: String(testNowMs / 1_000) }))).toBe("200 ok");
    expect(await settled(ask(node, { timestamp: String(testNowMs - 5 * minuteMs) }))).toBe(
      "200 ok",
    );
  });

  test.each(Object.keys(names) as (keyof typeof names)[])(
    "without its %s is proof_missing, and names it",
    async (value) => {
      const node = await cacheForBob();
      for (const damage of [
        (sent: Record<string, unknown>) => void delete sent[names[value]],
        (sent: Record<string, unknown>) => void Object.assign(sent, { [names[value]]: "" }),
      ]) {
        const response = await ask(node, {}, { damage });
        expect(response.status).toBe(401);
        const body = (await response.json()) as JsonObject;
        expect(body["code"]).toBe("proof_missing");
        expect(body["detail"]).toContain(names[value]);
      }
    },
  );

  test.each<[string, Partial<ProofValues>, string]>([
    ["a malformed timestamp", { timestamp: "now" }, "401 proof_invalid"],
    ["a short nonce", { nonce: "1234567" }, "401 proof_invalid"],
    ["a nonce with a space", { nonce: "1234 5678" }, "401 proof_invalid"],
    [
      "a timestamp too old",
      { timestamp: String(testNowMs - 5 * minuteMs - 1) },
      "401 proof_expired",
    ],
    [
      "a timestamp too far ahead",
      { timestamp: String(testNowMs + 5 * minuteMs + 1) },
      "401 proof_expired",
    ],
    ["another endpoint", { endpoint: "https://other.example" }, "403 proof_not_authorized"],
    ["an unknown service", { serviceId: `${bob.did}#none` }, "403 proof_not_authorized"],
    ["a service of another type", service(1), "403 proof_not_authorized"],
    ["a service at another endpoint", service(2), "403 proof_not_authorized"],
    ["a service without authorization", service(3), "403 proof_not_authorized"],
    ["a service that authorizes nobody", service(4), "403 proof_not_authorized"],
    ["a key that is not authorized", { keyId: `${bob.did}#k2` }, "403 proof_not_authorized"],
    ["a key of another DID", { keyId: mallory.keyId }, "403 proof_not_authorized"],
  ])("with %s is refused", async (_, change, outcome) => {
    const node = await cacheForBob();
    expect(await settled(ask(node, change))).toBe(outcome);
  });

  test("signed by another key, or over another text, is proof_invalid", async () => {
    const node = await cacheForBob();
    expect(await settled(ask(node, {}, { signer: mallory }))).toBe("401 proof_invalid");
    for (const value of ["nonce", "timestamp", "endpoint"] as const) {
      const other = {
        nonce: freshNonce(),
        timestamp: String(testNowMs + 1),
        endpoint: "https://cache.example/",
      }[value];
      const damage: Damage = (sent) => void Object.assign(sent, { [names[value]]: other });
      expect(await settled(ask(node, {}, { damage }))).toBe("401 proof_invalid");
    }
    for (const wrong of ["x", "A".repeat(86), "A".repeat(200)]) {
      const damage: Damage = (sent) => void Object.assign(sent, { [names.signature]: wrong });
      expect(await settled(ask(node, {}, { damage }))).toBe("401 proof_invalid");
    }
    expect(await settled(ask(node, { operation: "connect" }))).toBe("401 proof_invalid");
    expect(await settled(ask(node, { subject: "other" }))).toBe("401 proof_invalid");
  });

  test("of an unknown or deactivated DID gets the same refusal", async () => {
    const node = await cacheForBob();
    const words = async (change: Partial<ProofValues>) => {
      const { request_id: _, ...body } = (await (await ask(node, change)).json()) as JsonObject;
      return JSON.stringify(body);
    };
    const bodies = new Set([
      await words({ serviceId: "x" }),
      await words({ keyId: "x" }),
      await words(service(1)),
    ]);
    // The endpoint is the node's own business: which one it has, it says to everybody.
    const elsewhere = await words({ endpoint: "https://x.example" });
    expect(elsewhere).toContain("this node is https://");
    node.recipients.add(bob, { deactivated: true });
    bodies.add(await words({}));
    node.recipients.subjects.clear();
    bodies.add(await words({}));
    expect(await words({ endpoint: "https://x.example" })).toBe(elsewhere);
    expect(bodies.size).toBe(1);
    expect([...bodies][0]).toContain("proof_not_authorized");
  });

  test("works once: a second request with its nonce is proof_replayed, also with another timestamp", async () => {
    const node = await cacheForBob();
    const nonce = freshNonce();
    expect(await settled(ask(node, { nonce }))).toBe("200 ok");
    expect(await settled(ask(node, { nonce }))).toBe("409 proof_replayed");
    expect(await settled(ask(node, { nonce, timestamp: String(testNowMs + 1_000) }))).toBe(
      "409 proof_replayed",
    );
  });

  test("cannot be replayed at any moment at which its timestamp is fresh", async () => {
    const node = await cacheForBob();
    const proof = { nonce: freshNonce(), timestamp: String(testNowMs + 5 * minuteMs) };
    expect(await settled(ask(node, proof))).toBe("200 ok");
    for (const laterMs of [0, 1, 5 * minuteMs, 10 * minuteMs]) {
      node.clock.nowMs = testNowMs + laterMs;
      expect(await settled(ask(node, proof))).toBe("409 proof_replayed");
    }
    node.clock.nowMs = testNowMs + 10 * minuteMs + 1;
    expect(await settled(ask(node, proof))).toBe("401 proof_expired");
  });

  test("does not spend its nonce when it is refused", async () => {
    const node = await cacheForBob();
    const nonce = freshNonce();
    expect(await settled(ask(node, { nonce }, { signer: mallory }))).toBe("401 proof_invalid");
    expect(await settled(ask(node, { nonce, endpoint: "https://x.example" }))).toBe(
      "403 proof_not_authorized",
    );
    expect(await settled(ask(node, { nonce }))).toBe("200 ok");
  });

  test("of 20 concurrent requests with one nonce lets exactly one win", async () => {
    const node = await cacheForBob();
    const nonce = freshNonce();
    const outcomes = await Promise.all(
      Array.from({ length: 20 }, () => settled(ask(node, { nonce }))),
    );
    expect(outcomes.filter((outcome) => outcome === "200 ok")).toHaveLength(1);
    expect(outcomes.filter((outcome) => outcome === "409 proof_replayed")).toHaveLength(19);
  });

  test("is checked for form, time and endpoint before the DID is looked up", async () => {
    const node = await cacheForBob();
    await settled(ask(node, { timestamp: "0" }));
    await settled(ask(node, { endpoint: "https://other.example" }));
    expect(node.recipients.asked).toBe(0);
  });

  test("is 503 when the source can't be reached, and its nonce stays good", async () => {
    const node = await cacheForBob();
    const nonce = freshNonce();
    node.recipients.reachable = false;
    expect(await settled(ask(node, { nonce }))).toBe("503 service_unavailable");
    node.recipients.reachable = true;
    expect(await settled(ask(node, { nonce }))).toBe("200 ok");
  });
});

test("one nonce may serve two operations, and two people", async () => {
  const node = await cacheForBob();
  node.recipients.add(mallory);
  const nonce = freshNonce();
  const outcomes = routes
    .filter(({ name }) => name !== "device summary")
    .map(({ ask }) => settled(ask(node, { nonce })));
  outcomes.push(
    outcomeOf(node.read(`/cache/messages/${mallory.did}`, proofHeaders(mallory, { nonce }))),
  );
  expect(new Set(await Promise.all(outcomes))).toEqual(new Set(["200 ok"]));
});

describe("the device line", () => {
  test("is empty for pull, whatever header is sent", async () => {
    const node = await cacheForBob();
    const headers = { ...proofHeaders(bob), "X-Device-Id": "phone-1" };
    expect(await outcomeOf(node.read(`/cache/messages/${bob.did}`, headers))).toBe("200 ok");
    expect(
      await outcomeOf(
        node.read(`/cache/messages/${bob.did}`, proofHeaders(bob, { deviceId: "phone-1" })),
      ),
    ).toBe("401 proof_invalid");
  });

  test.each(routes.slice(1, 5))("is the header's value for $name", async ({ ask }) => {
    const node = await cacheForBob();
    expect(await settled(ask(node, { deviceId: "phone-1" }))).toBe("200 ok");
    const other: Damage = (sent) => void Object.assign(sent, { "X-Device-Id": "phone-2" });
    expect(await settled(ask(node, { deviceId: "phone-1" }, { damage: other }))).toBe(
      "401 proof_invalid",
    );
    const none: Damage = (sent) => void delete sent["X-Device-Id"];
    expect(await settled(ask(node, { deviceId: "phone-1" }, { damage: none }))).toBe(
      "401 proof_invalid",
    );
  });

  test("of a read may be any text, sent as UTF-8 or, where that has it, as Latin-1", async () => {
    const node = await cacheForBob();
    const path = `/cache/summary/${bob.did}`;
    for (const [deviceId, form] of [
      ["Büro", "utf8"],
      ["電話", "utf8"],
      ["Büro", "latin1"],
    ] as const) {
      const headers = proofHeaders(bob, { operation: "summary", deviceId });
      // A header is bytes: each character stands for one of them.
      const asBytes = Buffer.from(deviceId, form).toString("latin1");
      expect(await outcomeOf(node.read(path, { ...headers, "X-Device-Id": asBytes }))).toBe(
        "200 ok",
      );
    }
  });

  test("of an acknowledgement is the body's, and holds no line feed", async () => {
    const node = await cacheForBob();
    const ack = (deviceId: string) => outcomeOf(node.ack(ackBody(bob, [uuidOf(1)], { deviceId })));
    expect(await ack("Büro")).toBe("200 ok");
    expect(await ack("d".repeat(128))).toBe("200 ok");
    expect(await ack("a\nservice_id=b")).toBe("401 proof_invalid");
    expect(await ack("d".repeat(129))).toBe("401 proof_invalid");
  });
});

test("a Cache with several public endpoints takes envelopes and proofs for each of them", async () => {
  const node = await createTestCache({
    public_endpoints: ["https://first.example", "https://cache.example"],
  });
  node.recipients.add(bob);
  expect((await node.store(envelopeTo(bob, 1))).status).toBe(202);
  expect(await outcomeOf(node.read(`/cache/messages/${bob.did}`, proofHeaders(bob)))).toBe(
    "200 ok",
  );
});

test("a refused acknowledgement removes nothing", async () => {
  const node = await cacheForBob();
  await node.store(envelopeTo(bob, 1));
  const body = ackBody(bob, [uuidOf(1)]);
  expect(await outcomeOf(node.ack({ ...body, message_ids: [uuidOf(1), uuidOf(2)] }))).toBe(
    "401 proof_invalid",
  );
  expect(await outcomeOf(node.ack(ackBody(mallory, [uuidOf(1)], { did: bob.did })))).toBe(
    "403 proof_not_authorized",
  );
  expect((await node.mailbox.stats(testNowMs)).entries).toBe(1);
});

test("a pull is answered once its nonce is on disk, also when nothing waits", async () => {
  const disk = Promise.withResolvers<boolean>();
  let claims = 0;
  const node = await createTestCache({
    claim: () => {
      claims++;
      return disk.promise;
    },
  });
  node.recipients.add(bob);
  let isAnswered = false;
  const pull = outcomeOf(node.read(`/cache/messages/${bob.did}`, proofHeaders(bob))).finally(() => {
    isAnswered = true;
  });
  while (claims === 0) await Bun.sleep(1);
  await pause(5, "the pull would be answered without the claim");
  expect(isAnswered).toBe(false);
  disk.resolve(true);
  expect(await pull).toBe("200 ok");
});
