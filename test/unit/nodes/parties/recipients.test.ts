/** What Relay and Cache learn about DIDs from a Directory: reading, remembering, failing. */
import { describe, expect, test } from "bun:test";
import { utf8 } from "../../../../src/core/codec/bytes.ts";
import type { Did } from "../../../../src/core/codec/did.ts";
import { createMemo } from "../../../../src/nodes/parties/memo.ts";
import { directoryRecipients, ledgerRecipients } from "../../../../src/nodes/parties/recipients.ts";
import type { Bus, BusReceiver } from "../../../../src/storage/bus.ts";
import { type LedgerReader, StoreError } from "../../../../src/storage/contract.ts";

const did = "did:svc:1111111111111111111111" as Did;
const other = "did:svc:2222222222222222222222" as Did;

const record = {
  did,
  document: {
    id: did,
    verificationMethod: [],
    authentication: [],
    keyAgreement: [],
    service: [
      {
        id: `${did}#c`,
        type: "SvcCacheService",
        serviceEndpoint: ["https://c.net"],
        authorization: [],
        priority: 3,
      },
    ],
  },
  aliases: [],
  root_pubkey: null,
  version: 1,
  deactivated: false,
  updated_at: "2026-07-16T12:00:00.000Z",
  delivery_policy_links: { recipient_policy: null, tag_policies: ["a"], persona_policies: [other] },
};

type Reply = { status: number; body: unknown };

/** A Directory of scripted answers that counts questions. */
function directory(replies: Record<string, Reply | "down">, bus?: Bus) {
  const asked: string[] = [];
  let nowMs = 0;
  const source = directoryRecipients("https://directory.net/", {
    ...(bus === undefined ? {} : { bus }),
    now: () => nowMs,
    fetch: async (url, init) => {
      asked.push(url);
      expect([init.redirect, init.proxy]).toEqual(["error", false]);
      await Promise.resolve();
      const reply = replies[new URL(url).pathname] ?? "down";
      if (reply === "down") throw new TypeError("unreachable");
      return new Response(
        typeof reply.body === "string" ? reply.body : JSON.stringify(reply.body),
        {
          status: reply.status,
        },
      );
    },
  });
  return {
    source,
    asked,
    replies,
    pass: (ms: number) => {
      nowMs += ms;
    },
  };
}

const resolvePath = `/resolve/${encodeURIComponent(did)}`;
const otherPath = `/resolve/${encodeURIComponent(other)}`;
const absent = (code: string): Reply => ({ status: 404, body: { code, error: code } });
const failure = async (outcome: unknown) => {
  const error = await Promise.resolve(outcome).then(
    () => null,
    (reason: unknown) => reason,
  );
  return error instanceof StoreError ? error.code : error;
};

/** A bus whose one subscription the test plays. */
function playedBus() {
  const heard: { receive?: BusReceiver; missed?: (() => void) | undefined } = {};
  const bus: Bus = {
    plugin: "played",
    messageBytesMax: 1_024,
    publish: () => undefined,
    subscribe: (_subject, receive, options) => {
      Object.assign(heard, { receive, missed: options?.missed });
      return { ready: Promise.resolve(), unsubscribe: () => undefined };
    },
    mayReach: () => true,
    request: async () => "unanswered",
    stats: () => ({ connected: true, subscriptions: 1, dropped: 0 }),
    close: async () => undefined,
  };
  return { bus, heard };
}

describe("what the bus announces", () => {
  const twoRecords = {
    [resolvePath]: { status: 200, body: record },
    [otherPath]: absent("did_not_found"),
  };

  test("is asked for again at once, and no other DID is", async () => {
    const { bus, heard } = playedBus();
    const { source, asked, pass } = directory(twoRecords, bus);
    const read = () => Promise.all([source.subject(did), source.subject(other)]);
    await read();
    await heard.receive?.(utf8(did));
    await read();
    expect(asked.length).toBe(3);
    // Until the change is final, its answers are short-lived.
    pass(2_000);
    await source.subject(did);
    expect(asked.length).toBe(4);
  });

  test("and may have been lost, so everything is asked for again", async () => {
    const { bus, heard } = playedBus();
    const { source, asked } = directory(twoRecords, bus);
    const read = () => Promise.all([source.subject(did), source.subject(other)]);
    await read();
    await read();
    expect(asked.length).toBe(2);
    heard.missed?.();
    await read();
    expect(asked.length).toBe(4);
  });
});

describe("a Directory", () => {
  test("answers document, links and deactivation", async () => {
    const { source, asked } = directory({ [resolvePath]: { status: 200, body: record } });
    const subject = await source.subject(did);
    expect(subject?.document?.service[0]).toMatchObject({
      type: "SvcCacheService",
      priority: 3,
      authorization: [],
    });
    expect(subject?.links).toEqual({
      recipientPolicy: null,
      tagPolicies: ["a"],
      personaPolicies: [other],
    });
    expect(subject?.deactivated).toBe(false);
    expect(asked).toEqual([`https://directory.net${resolvePath}`]);
  });

  test("is asked once for concurrent questions, and again after 30 seconds", async () => {
    const world = directory({ [resolvePath]: { status: 200, body: record } });
    await Promise.all(Array.from({ length: 50 }, () => world.source.subject(did)));
    world.pass(29_999);
    await world.source.subject(did);
    expect(world.asked.length).toBe(1);
    world.pass(1);
    await world.source.subject(did);
    expect(world.asked.length).toBe(2);
  });

  test("that can't be reached is asked again after two seconds, never answered for from older knowledge", async () => {
    const world = directory({ [resolvePath]: { status: 200, body: record } });
    await world.source.subject(did);
    world.pass(30_000);
    world.replies[resolvePath] = "down";
    expect(await failure(world.source.subject(did))).toBe("unavailable");
    world.replies[resolvePath] = { status: 200, body: record };
    world.pass(1_999);
    expect(await failure(world.source.subject(did))).toBe("unavailable");
    expect(world.asked.length).toBe(2);
    world.pass(1);
    expect((await world.source.subject(did))?.did).toBe(did);
  });

  test("that does not know a DID is asked for it again within two seconds", async () => {
    const world = directory({ [resolvePath]: absent("did_not_found") });
    expect(await world.source.subject(did)).toBeNull();
    world.replies[resolvePath] = { status: 200, body: { ...record, life: 2 } };
    world.pass(1_999);
    expect(await world.source.subject(did)).toBeNull();
    world.pass(1);
    expect(await world.source.subject(did)).toMatchObject({ did, life: 2 });
  });

  const known: [string, Reply][] = [["an unknown DID", absent("did_not_found")]];
  test.each(known)("%s is known absence and is remembered", async (_name, reply) => {
    const world = directory({ [resolvePath]: reply });
    expect(await world.source.subject(did)).toBeNull();
    expect(await world.source.subject(did)).toBeNull();
    expect(world.asked.length).toBe(1);
  });

  const unusable: [string, Reply | "down"][] = [
    ["no connection", "down"],
    ["a 404 of something else", absent("not_found")],
    ["a 404 page", { status: 404, body: "<html>" }],
    ["an error", { status: 502, body: { code: "chain_unavailable" } }],
    ["no JSON", { status: 200, body: "hello" }],
    ["a list", { status: 200, body: [] }],
    [
      "another DID's document",
      { status: 200, body: { ...record, document: { ...record.document, id: other } } },
    ],
    ["no word on deactivation", { status: 200, body: { ...record, deactivated: undefined } }],
    [
      "links of a wrong type",
      { status: 200, body: { ...record, delivery_policy_links: { tag_policies: [1] } } },
    ],
    ["an answer without end", { status: 200, body: " ".repeat(300_000) }],
    ["a broken document", { status: 200, body: { ...record, document: { id: did, service: 7 } } }],
  ];
  test.each(unusable)("%s gives no knowledge", async (_name, reply) => {
    expect(await failure(directory({ [resolvePath]: reply }).source.subject(did))).toBe(
      "unavailable",
    );
  });

  test("answers policies of recipients, tags and personas, and the block time", async () => {
    const key = encodeURIComponent(did);
    const policy = { effective_ttl: 10, max_message_bytes: 100, cache_eligible: false };
    const full = {
      ...policy,
      replication: 2,
      encrypted_header_preview_bytes: 4,
      expiration_behavior: "KeepHeaderPreview",
    };
    const priced = { ...full, release_pricing: { base_fee: "1", per_kib_fee: "2" } };
    const persona = {
      allowed_relays: ["r1"],
      release_pricing: { asset: "X", amount: "5" },
      expiration_behavior: { mode: "DeleteOnExpiry" },
    };
    const { source, asked } = directory({
      [`/delivery-policies/recipients/${key}`]: {
        status: 200,
        body: { did, scope: "recipient", policy },
      },
      [`/delivery-policies/tags/${key}`]: {
        status: 200,
        body: { did, scope: "tag", policy: priced },
      },
      [`/delivery-policies/personas/${key}`]: {
        status: 200,
        body: { did, scope: "persona", policy: persona },
      },
      [`/delivery-policies/recipients/${encodeURIComponent(other)}`]: absent("policy_not_found"),
      "/limits": { status: 200, body: { block_time_ms: 500 } },
    });
    expect(await source.policy("recipient", did)).toEqual({
      effectiveTtlBlocks: 10,
      maxMessageBytes: 100,
      cacheEligible: false,
      replication: null,
      encryptedHeaderPreviewBytes: null,
      releasePricing: null,
      expirationBehavior: null,
    });
    expect(await source.policy("tag", did)).toMatchObject({
      replication: 2,
      encryptedHeaderPreviewBytes: 4,
      releasePricing: { baseFee: 1n, perKibFee: 2n },
      expirationBehavior: "KeepHeaderPreview",
    });
    expect(await source.persona(did)).toEqual({
      releasePricing: { asset: "X", amount: 5n },
      expirationBehavior: { mode: "DeleteOnExpiry", retainUntilMs: null },
      allowedRelays: ["r1"],
    });
    expect(await source.policy("recipient", other)).toBeNull();
    expect(await source.blockTimeMs()).toBe(500);
    const before = asked.length;
    expect([await source.policy("tag", "news"), await source.persona("bob")]).toEqual([null, null]);
    expect(asked.length).toBe(before);
  });
});

describe("a memo", () => {
  test("stays within its entries and its loads", async () => {
    const gate = Promise.withResolvers<void>();
    let loads = 0;
    const memo = createMemo({
      load: async (key) => {
        loads++;
        if (key.startsWith("slow")) await gate.promise;
        return key;
      },
      valueMs: () => 1_000,
      failureMs: 100,
      entriesMax: 3,
      loadsMax: 2,
      now: () => 0,
    });
    for (const key of ["a", "b", "c", "d"]) await memo.get(key);
    expect(memo.size).toBe(3);
    const slow = [memo.get("slow1"), memo.get("slow2"), memo.get("slow1")];
    expect(await failure(memo.get("slow3"))).toBe("unavailable");
    gate.resolve();
    expect(await Promise.all(slow)).toEqual(["slow1", "slow2", "slow1"]);
    expect(loads).toBe(6);
  });

  test("stays within the bytes of its values", async () => {
    let loads = 0;
    const memo = createMemo({
      load: async (key) => {
        loads++;
        return key;
      },
      valueMs: () => 1_000,
      failureMs: 100,
      entriesMax: 10,
      bytes: { max: 6, of: (value) => value.length },
      loadsMax: 2,
      now: () => 0,
    });
    for (const key of ["aaa", "bbb", "bbb", "cccc", "cccc"]) await memo.get(key);
    expect([memo.size, loads]).toEqual([1, 3]);
  });

  test("a value that ends at once serves those who waited for it, and is not kept", async () => {
    let loads = 0;
    const memo = createMemo({
      load: async () => ++loads,
      valueMs: () => 0,
      failureMs: 100,
      entriesMax: 3,
      loadsMax: 2,
      now: () => 0,
    });
    expect(await Promise.all([memo.get("k"), memo.get("k")])).toEqual([1, 1]);
    expect(memo.size).toBe(0);
    expect(await memo.get("k")).toBe(2);
  });

  test("counts the age of a value from the question", async () => {
    let nowMs = 0;
    let loads = 0;
    const memo = createMemo({
      load: async () => {
        nowMs += 700;
        return ++loads;
      },
      valueMs: () => 1_000,
      failureMs: 100,
      entriesMax: 3,
      loadsMax: 2,
      now: () => nowMs,
    });
    expect(await memo.get("k")).toBe(1);
    nowMs = 999;
    expect(await memo.get("k")).toBe(1);
    nowMs = 1_000;
    expect(await memo.get("k")).toBe(2);
  });

  test("a source that throws at once does not stay in flight", async () => {
    let nowMs = 0;
    const memo = createMemo<number>({
      load: () => {
        throw new StoreError("unavailable", "no");
      },
      valueMs: () => 1_000,
      failureMs: 100,
      entriesMax: 3,
      loadsMax: 1,
      now: () => nowMs,
    });
    for (const key of ["a", "b", "a"]) {
      expect(await failure(memo.get(key))).toBe("unavailable");
      nowMs += 200;
    }
  });
});

test("the ledger of this process is read as it is", async () => {
  const account = {
    record: { document: null, deactivated: true, links: null },
    life: 2,
  };
  const ledger = {
    account: async (asked: Did) => (asked === did ? account : { record: null }),
    policy: async (scope: string, key: string) => `${scope} ${key}`,
    head: async () => ({ blockTimeMs: 6_000 }),
  };
  const source = ledgerRecipients(
    ledger as Partial<Record<keyof LedgerReader, unknown>> as LedgerReader,
  );
  expect(await source.subject(did)).toEqual({
    did,
    document: null,
    deactivated: true,
    links: null,
    life: 2,
  });
  expect(await source.subject(other)).toBeNull();
  expect(await source.persona("x")).toBe("persona x" as never);
  expect(await source.blockTimeMs()).toBe(6_000);
});

test("a subject of the own ledger is its account, and a failure is not an answer for others", async () => {
  let [life, fails] = [0, true];
  const ledger = {
    account: async () => {
      if (fails) throw new StoreError("unavailable", "away");
      return {
        record: life === 0 ? null : { document: null, deactivated: false, links: null },
        life,
      };
    },
  };
  const source = ledgerRecipients(
    ledger as Partial<Record<keyof LedgerReader, unknown>> as LedgerReader,
  );
  await expect(source.subject(did)).rejects.toThrow("away");
  fails = false;
  expect(await source.subject(did)).toBeNull();
  life = 2;
  expect(await source.subject(did)).toEqual({
    did,
    document: null,
    deactivated: false,
    links: null,
    life: 2,
  });
});
