/**
 * The reads of the Cache: messages, chunks, summaries, states, acknowledgements and event proofs.
 */
import { describe, expect, test } from "bun:test";
import { ed25519 } from "@noble/curves/ed25519.js";
import { decodeBase64 } from "../../src/core/codec/bytes.ts";
import type { JsonObject } from "../../src/core/codec/json.ts";
import { createSigner } from "../../src/core/codec/native.ts";
import { hourMs } from "../../src/core/codec/time.ts";
import { encodeEventProof } from "../../src/core/message/proof.ts";
import {
  ackBody,
  cacheEndpoint,
  cachesKnowing,
  chunkTo,
  createPerson,
  encodedDid,
  envelopeTo,
  outcomeOf,
  type Person,
  proofHeaders,
  type TestCache,
  testNowMs,
  uuidOf,
} from "../support/cache-node.ts";
import { policyOf } from "../support/policies.ts";

const bob = createPerson(1);
const alice = createPerson(2);

const cacheFor = cachesKnowing(bob, alice);

type Entry = JsonObject & { message_id: string; envelope: JsonObject; proof: JsonObject };
type MessagesAnswer = {
  count: number;
  messages: Entry[];
  has_more?: boolean;
  next_cursor?: string;
};
type ChunksAnswer = {
  count: number;
  chunks: Entry[];
  complete: boolean;
  total_chunks: number | null;
  next_cursor?: string;
  has_more?: boolean;
};

/** Proofs are made at the node's own time, so that tests may move the clock. */
const at = (node: TestCache) => ({ timestamp: String(node.clock.nowMs) });

async function messages(node: TestCache, person: Person, query = ""): Promise<MessagesAnswer> {
  const response = await node.read(
    `/cache/messages/${encodedDid(person)}${query}`,
    proofHeaders(person, at(node)),
  );
  expect(response.status).toBe(200);
  return (await response.json()) as MessagesAnswer;
}

async function chunks(node: TestCache, group: string, query = ""): Promise<ChunksAnswer> {
  const headers = proofHeaders(bob, { operation: "chunks", subject: group, ...at(node) });
  const response = await node.read(`/cache/chunks/${encodedDid(bob)}/${group}${query}`, headers);
  expect(response.status).toBe(200);
  return (await response.json()) as ChunksAnswer;
}

async function state(node: TestCache, id: string): Promise<JsonObject> {
  const headers = proofHeaders(bob, { operation: "pull_message", subject: id, ...at(node) });
  const response = await node.read(`/cache/message/${encodedDid(bob)}/${id}`, headers);
  expect(response.status).toBe(200);
  return (await response.json()) as JsonObject;
}

const idsOf = (answer: MessagesAnswer) => answer.messages.map((entry) => entry.message_id);
const storeAll = async (node: TestCache, envelopes: JsonObject[]) => {
  for (const envelope of envelopes) expect((await node.store(envelope)).status).toBe(202);
};

test("forty pulls in one moment read four mailboxes at once, and all are answered", async () => {
  let [reading, most] = [0, 0];
  const node = await cacheFor({
    wrap: (held) => ({
      list: async (...asked) => {
        most = Math.max(most, ++reading);
        await Promise.resolve();
        reading--;
        return held.list(...asked);
      },
    }),
  });
  await node.store(envelopeTo(bob, 1));
  const answers = await Promise.all(Array.from({ length: 40 }, () => messages(node, bob)));
  expect(answers.map(({ count }) => count)).toEqual(Array.from({ length: 40 }, () => 1));
  expect(most).toBe(4);
});

describe("GET /cache/messages/{did}", () => {
  test("answers an entry with exactly the members of the interface", async () => {
    const node = await cacheFor();
    const envelope = envelopeTo(bob, 1);
    await node.store(envelope);
    expect(await messages(node, bob)).toEqual({
      count: 1,
      has_more: false,
      messages: [
        {
          message_id: uuidOf(1),
          recipient: bob.did,
          expires_at: "2026-07-17T12:00:00.000Z",
          chunked: false,
          envelope,
          proof: {
            event_type: "retrieval",
            message_id: uuidOf(1),
            recipient_did: bob.did,
            timestamp: "2026-07-16T12:00:00.000Z",
            reason: null,
            signature: null,
          },
        },
      ],
    } as never);
  });

  test("answers count 0 and an empty list when nothing is pending", async () => {
    expect(await messages(await cacheFor(), bob)).toEqual({
      count: 0,
      messages: [],
      has_more: false,
    });
  });

  test("answers the oldest first, removes nothing, and mixes no recipients", async () => {
    const node = await cacheFor();
    await storeAll(node, [
      envelopeTo(bob, 3),
      envelopeTo(alice, 4),
      envelopeTo(bob, 1),
      envelopeTo(bob, 2),
    ]);
    for (let round = 0; round < 2; round++)
      expect(idsOf(await messages(node, bob))).toEqual([3, 1, 2].map(uuidOf));
    expect(idsOf(await messages(node, alice))).toEqual([uuidOf(4)]);
  });

  test("adds chunk members to entries of chunks", async () => {
    const node = await cacheFor();
    const places = [2, 0, 1];
    await storeAll(
      node,
      places.map((sequence) => chunkTo(bob, sequence + 1, { group: 9, sequence, total: 3 })),
    );
    const { messages: entries } = await messages(node, bob);
    expect(entries.map((entry) => [entry["chunked"], entry["chunk"]])).toEqual(
      places.map((sequence) => [
        true,
        { message_group_id: uuidOf(9), sequence_number: sequence, total_chunks: 3 },
      ]),
    );
  });

  test("pages by entries, each one exactly once", async () => {
    const node = await cacheFor({ page_entries_max: 3 });
    await storeAll(
      node,
      Array.from({ length: 8 }, (_, i) => envelopeTo(bob, i + 1)),
    );
    const seen: string[] = [];
    let query = "?limit=3";
    for (let page = 0; page < 3; page++) {
      const answer = await messages(node, bob, query);
      expect(answer.count).toBe(page < 2 ? 3 : 2);
      seen.push(...idsOf(answer));
      expect(["next_cursor" in answer, answer.has_more]).toEqual(
        page < 2 ? [true, true] : [false, false],
      );
      query = `?cursor=${answer.next_cursor}`;
    }
    expect(seen).toEqual(Array.from({ length: 8 }, (_, i) => uuidOf(i + 1)));
  });

  test("pages by bytes, but always answers the first", async () => {
    const node = await cacheFor({ page_bytes_max: 1_500 });
    const large = (number: number) =>
      envelopeTo(bob, number, { payload: { ciphertext_b64: "A".repeat(2_000) } });
    await storeAll(node, [envelopeTo(bob, 1), large(2), envelopeTo(bob, 3), envelopeTo(bob, 4)]);
    const first = await messages(node, bob, "?limit=1000");
    expect(idsOf(first)).toEqual([uuidOf(1)]);
    const second = await messages(node, bob, `?cursor=${first.next_cursor}`);
    expect(idsOf(second)).toEqual([uuidOf(2)]);
    expect(idsOf(await messages(node, bob, `?cursor=${second.next_cursor}`))).toEqual([
      uuidOf(3),
      uuidOf(4),
    ]);
  });

  test.each(["0", "1001", "-1", "1.5", "", "x", "1&limit=1"])(
    "refuses the limit %p",
    async (limit) => {
      const node = await cacheFor();
      const response = node.read(`/cache/messages/${bob.did}?limit=${limit}`, proofHeaders(bob));
      expect(await outcomeOf(response)).toBe("400 invalid_request");
    },
  );

  test.each(["x", "%00", "null", "a".repeat(65), "0&cursor=0"])(
    "refuses the cursor %p",
    async (cursor) => {
      const node = await cacheFor();
      const response = node.read(`/cache/messages/${bob.did}?cursor=${cursor}`, proofHeaders(bob));
      expect(await outcomeOf(response)).toBe("400 invalid_request");
    },
  );

  test("hides what has expired at once", async () => {
    const node = await cacheFor();
    await storeAll(node, [envelopeTo(bob, 1, { ttl: "1h" }), envelopeTo(bob, 2, { ttl: "2h" })]);
    node.clock.nowMs = testNowMs + hourMs - 1;
    expect(idsOf(await messages(node, bob))).toEqual([uuidOf(1), uuidOf(2)]);
    node.clock.nowMs = testNowMs + hourMs;
    expect(idsOf(await messages(node, bob))).toEqual([uuidOf(2)]);
  });

  test("accepts a percent-encoded DID in either case and refuses anything else", async () => {
    const node = await cacheFor();
    for (const path of [bob.did.replaceAll(":", "%3A"), bob.did.replaceAll(":", "%3a"), bob.did])
      expect((await node.read(`/cache/messages/${path}`, proofHeaders(bob))).status).toBe(200);
    expect(await outcomeOf(node.read("/cache/messages/did:web:x", proofHeaders(bob)))).toBe(
      "400 invalid_did",
    );
  });
});

describe("GET /cache/chunks/{did}/{messageGroupId}", () => {
  test("answers chunks by sequence number and says when the group is complete", async () => {
    const node = await cacheFor();
    const place = (sequence: number) => ({ group: 9, sequence, total: 3 });
    await storeAll(node, [chunkTo(bob, 1, place(2)), chunkTo(bob, 2, place(0))]);
    const partial = await chunks(node, uuidOf(9));
    expect(partial).toMatchObject({ count: 2, complete: false, total_chunks: 3 });
    await storeAll(node, [chunkTo(bob, 3, place(1))]);
    const whole = await chunks(node, uuidOf(9));
    expect(whole).toMatchObject({ count: 3, complete: true, total_chunks: 3 });
    expect(whole.chunks.map((entry) => (entry["chunk"] as JsonObject)["sequence_number"])).toEqual([
      0, 1, 2,
    ]);
    expect(whole.chunks[0]?.envelope).toEqual(chunkTo(bob, 2, place(0)));
    expect(whole.chunks[0]?.proof["event_type"]).toBe("retrieval");
  });

  test("answers an unknown group with nothing", async () => {
    expect(await chunks(await cacheFor(), uuidOf(9))).toEqual({
      count: 0,
      has_more: false,
      chunks: [],
      complete: false,
      total_chunks: null,
    });
  });

  test("takes the group id in either case; the subject is its text as sent", async () => {
    const node = await cacheFor();
    await node.store(chunkTo(bob, 1, { group: 0xab, sequence: 0, total: 1 }));
    expect((await chunks(node, uuidOf(0xab).toUpperCase())).count).toBe(1);
    const headers = proofHeaders(bob, { operation: "chunks", subject: uuidOf(0xab) });
    const path = `/cache/chunks/${bob.did}/${uuidOf(0xab).toUpperCase()}`;
    expect(await outcomeOf(node.read(path, headers))).toBe("401 proof_invalid");
  });

  test("reports whether the group is complete, not the page", async () => {
    const node = await cacheFor({ page_entries_max: 2 });
    await storeAll(
      node,
      [0, 1, 2].map((sequence) => chunkTo(bob, sequence + 1, { group: 9, sequence, total: 3 })),
    );
    const first = await chunks(node, uuidOf(9), "?limit=2");
    expect(first).toMatchObject({ count: 2, complete: true, has_more: true });
    const rest = await chunks(node, uuidOf(9), `?cursor=${first.next_cursor}`);
    expect(rest).toMatchObject({ count: 1, complete: true });
    expect("next_cursor" in rest).toBe(false);
  });

  test("counts once for each hundred chunks of the group, whatever the page holds", async () => {
    const node = await cacheFor({ client_rate: 1, client_burst: 1_000 });
    for (let sequence = 0; sequence < 400; sequence++)
      await node.store(chunkTo(bob, sequence + 1, { group: 9, sequence, total: 400 }));
    // 5 each: 200 of them, and no more in this second.
    for (let n = 0; n < 200; n++) await chunks(node, uuidOf(9), "?limit=1");
    const ask = () =>
      outcomeOf(
        node.read(
          `/cache/chunks/${encodedDid(bob)}/${uuidOf(9)}?limit=1`,
          proofHeaders(bob, { operation: "chunks", subject: uuidOf(9), ...at(node) }),
        ),
      );
    expect(await ask()).toBe("429 rate_limited");
    expect((await messages(node, bob, "?limit=1")).count).toBe(1);
    node.clock.nowMs += 1_000;
    expect(await ask()).toBe("200 ok");
    expect(await ask()).toBe("429 rate_limited");
  });

  test("counts for many requests at once as for one after the other", async () => {
    const node = await cacheFor({ client_rate: 1, client_burst: 400 });
    for (let sequence = 0; sequence < 400; sequence++)
      await node.store(chunkTo(bob, sequence + 1, { group: 9, sequence, total: 400 }));
    const ask = () => {
      const headers = proofHeaders(bob, { operation: "chunks", subject: uuidOf(9), ...at(node) });
      return outcomeOf(node.read(`/cache/chunks/${encodedDid(bob)}/${uuidOf(9)}?limit=1`, headers));
    };
    // 5 each: ten more.
    for (let n = 0; n < 70; n++) await chunks(node, uuidOf(9), "?limit=1");
    const outcomes = await Promise.all(Array.from({ length: 20 }, ask));
    expect(outcomes.filter((one) => one === "200 ok").length).toBe(10);
  });

  test("refuses a path that names no UUID", async () => {
    const node = await cacheFor();
    const headers = proofHeaders(bob, { operation: "chunks", subject: "group" });
    expect(await outcomeOf(node.read(`/cache/chunks/${bob.did}/group`, headers))).toBe(
      "400 invalid_request",
    );
  });
});

describe("GET /cache/summary/{did}", () => {
  test("lists ids, flat chunk members and expiry without envelopes, with and without a device", async () => {
    const node = await cacheFor();
    await storeAll(node, [
      envelopeTo(bob, 1),
      chunkTo(bob, 2, { group: 9, sequence: 1, total: 2 }),
    ]);
    const expected = {
      count: 2,
      has_more: false,
      messages: [
        { message_id: uuidOf(1), expires_at: "2026-07-17T12:00:00.000Z", chunked: false },
        {
          message_id: uuidOf(2),
          expires_at: "2026-07-17T12:00:00.000Z",
          chunked: true,
          message_group_id: uuidOf(9),
          sequence_number: 1,
          total_chunks: 2,
        },
      ],
    };
    for (const path of [`/cache/summary/${bob.did}`, `/cache/summary/${bob.did}/phone-1`]) {
      const plain = await node.read(path, proofHeaders(bob, { operation: "summary" }));
      expect(await plain.json()).toEqual(expected);
      const named = await node.read(
        path,
        proofHeaders(bob, { operation: "summary", deviceId: "phone-1" }),
      );
      expect(await named.json()).toEqual(expected);
    }
  });

  test("pages by its own number of ids", async () => {
    const node = await cacheFor({ page_entries_max: 1 });
    await storeAll(
      node,
      [1, 2, 3].map((number) => envelopeTo(bob, number)),
    );
    const first = (await (
      await node.read(
        `/cache/summary/${bob.did}?limit=2`,
        proofHeaders(bob, { operation: "summary" }),
      )
    ).json()) as MessagesAnswer;
    expect(first.count).toBe(2);
    const path = `/cache/summary/${bob.did}?cursor=${first.next_cursor}`;
    const rest = (await (
      await node.read(path, proofHeaders(bob, { operation: "summary" }))
    ).json()) as MessagesAnswer;
    expect(idsOf(rest)).toEqual([uuidOf(3)]);
  });
});

describe("GET /cache/message/{did}/{messageId}", () => {
  test("answers the entry while it is active", async () => {
    const node = await cacheFor();
    await node.store(envelopeTo(bob, 1));
    const { messages: listed } = await messages(node, bob);
    expect(await state(node, uuidOf(1))).toEqual({ state: "active", message: listed[0] as Entry });
  });

  test("answers what became of it", async () => {
    const node = await cacheFor();
    expect(await state(node, uuidOf(1))).toEqual({ state: "absent", message: null });
    await node.store(envelopeTo(bob, 1));
    await node.ack(ackBody(bob, [uuidOf(1)]));
    expect(await state(node, uuidOf(1))).toEqual({ state: "acked", message: null });
  });

  test("does not show another recipient's message", async () => {
    const node = await cacheFor();
    await node.store(envelopeTo(alice, 1));
    expect(await state(node, uuidOf(1))).toEqual({ state: "absent", message: null });
  });

  test("refuses a path that names no UUID", async () => {
    const node = await cacheFor();
    const headers = proofHeaders(bob, { operation: "pull_message", subject: "1" });
    expect(await outcomeOf(node.read(`/cache/message/${bob.did}/1`, headers))).toBe(
      "400 invalid_request",
    );
  });
});

describe("expiry", () => {
  const header = {
    encrypted_header: "AAECAwQFBgc=",
    header_nonce: "AAAAAAAAAAAAAAAA",
    header_key_id: "k",
    schema_version: "1",
  };

  test.each([
    ["DeleteOnExpiry", { state: "absent", message: null }, null],
    ["KeepHeaderPreview", { state: "expired", header_preview: "AAECAwQ=" }, "absent"],
    ["TombstoneReference", { state: "expired", header_preview: null }, "absent"],
  ] as const)(
    "with %s leaves what the policy says",
    async (expirationBehavior, expected, later) => {
      const node = await cacheFor();
      const policy = policyOf({ expirationBehavior, encryptedHeaderPreviewBytes: 5 });
      node.recipients.policies.set(`recipient:${bob.did}`, policy);
      await node.store(envelopeTo(bob, 1, { ttl: "1h", ...header }));
      node.clock.nowMs = testNowMs + hourMs;
      for (let round = 0; round < 2; round++) {
        expect(await state(node, uuidOf(1))).toMatchObject(expected);
        expect((await messages(node, bob)).count).toBe(0);
        await node.mailbox.expire(node.clock.nowMs, 100);
      }
      if (expected.state === "expired")
        expect(await state(node, uuidOf(1))).toMatchObject({
          message: null,
          message_id: uuidOf(1),
          expires_at: "2026-07-16T13:00:00.000Z",
        });
      // As long again as it lived.
      node.clock.nowMs = testNowMs + 2 * hourMs - 1;
      expect((await state(node, uuidOf(1)))["state"]).toBe(expected.state);
      node.clock.nowMs = testNowMs + 2 * hourMs;
      if (later !== null) expect((await state(node, uuidOf(1)))["state"]).toBe(later);
    },
  );

  test("keeps no preview when the envelope has no header", async () => {
    const node = await cacheFor();
    const policy = policyOf({
      expirationBehavior: "KeepHeaderPreview",
      encryptedHeaderPreviewBytes: 5,
    });
    node.recipients.policies.set(`recipient:${bob.did}`, policy);
    await node.store(envelopeTo(bob, 1, { ttl: "1h" }));
    node.clock.nowMs = testNowMs + hourMs;
    expect(await state(node, uuidOf(1))).toMatchObject({ state: "expired", header_preview: null });
  });
});

describe("POST /cache/ack", () => {
  const acked = async (node: TestCache, body: unknown) => {
    const response = await node.ack(body);
    expect(response.status).toBe(200);
    return response.json();
  };

  test("removes the named entries and answers the removed ids, sorted", async () => {
    const node = await cacheFor();
    await storeAll(
      node,
      [1, 2, 3].map((number) => envelopeTo(bob, number)),
    );
    const answer = await acked(node, ackBody(bob, [uuidOf(3), uuidOf(7), uuidOf(1)]));
    expect(answer).toEqual({ acked: 2, message_ids: [uuidOf(1), uuidOf(3)] });
    expect(idsOf(await messages(node, bob))).toEqual([uuidOf(2)]);
  });

  test("does not count what is already absent", async () => {
    const node = await cacheFor();
    await node.store(envelopeTo(bob, 1));
    await acked(node, ackBody(bob, [uuidOf(1)]));
    expect(await acked(node, ackBody(bob, [uuidOf(1)]))).toEqual({ acked: 0, message_ids: [] });
  });

  test("takes ids in any order, case and white space, and a device", async () => {
    const node = await cacheFor();
    await storeAll(node, [envelopeTo(bob, 0xa1), envelopeTo(bob, 0xb2)]);
    const ids = [` ${uuidOf(0xb2).toUpperCase()}`, "", uuidOf(0xa1), uuidOf(0xa1), "  "];
    const answer = await acked(node, ackBody(bob, ids, { deviceId: "phone-1" }));
    expect(answer).toEqual({ acked: 2, message_ids: [uuidOf(0xa1), uuidOf(0xb2)] });
  });

  test("takes an empty device_id as none", async () => {
    const node = await cacheFor();
    expect(await acked(node, { ...ackBody(bob, [uuidOf(1)]), device_id: "" })).toEqual({
      acked: 0,
      message_ids: [],
    });
  });

  test("removes nothing of another recipient", async () => {
    const node = await cacheFor();
    await node.store(envelopeTo(alice, 1));
    expect(await acked(node, ackBody(bob, [uuidOf(1)]))).toEqual({ acked: 0, message_ids: [] });
    expect((await messages(node, alice)).count).toBe(1);
  });

  test("is remembered, so that a late store is deduped and stays gone", async () => {
    const node = await cacheFor();
    await node.store(envelopeTo(bob, 1));
    await acked(node, ackBody(bob, [uuidOf(1)]));
    expect(await (await node.store(envelopeTo(bob, 1))).json()).toMatchObject({
      accepted: true,
      deduped: true,
    });
    expect((await messages(node, bob)).count).toBe(0);
  });

  const ids = (count: number) => Array.from({ length: count }, (_, i) => uuidOf(i + 1));
  test.each([
    ["not JSON", "{", "400 invalid_json"],
    ["a list", [], "400 invalid_request"],
    ["no did", { ...ackBody(bob, ids(1)), did: undefined }, "400 invalid_request"],
    ["a malformed did", { ...ackBody(bob, ids(1)), did: "bob" }, "400 invalid_did"],
    ["no message_ids", { ...ackBody(bob, ids(1)), message_ids: undefined }, "400 invalid_request"],
    [
      "message_ids as text",
      { ...ackBody(bob, ids(1)), message_ids: uuidOf(1) },
      "400 invalid_request",
    ],
    [
      "an id that is a number",
      { ...ackBody(bob, ids(1)), message_ids: [1] },
      "400 invalid_request",
    ],
    ["an id that is not a UUID", ackBody(bob, [uuidOf(1), "x"]), "400 invalid_request"],
    ["an empty list of ids", ackBody(bob, []), "400 invalid_request"],
    ["only blank ids", ackBody(bob, [" ", ""]), "400 invalid_request"],
    ["1,001 ids", ackBody(bob, ids(1_001)), "400 invalid_request"],
    ["an unknown member", { ...ackBody(bob, ids(1)), colour: 1 }, "400 invalid_request"],
    [
      "a device_id that is a number",
      { ...ackBody(bob, ids(1)), device_id: 1 },
      "400 invalid_request",
    ],
    [
      "a nonce that is a number",
      { ...ackBody(bob, ids(1)), nonce: 12345678 },
      "400 invalid_request",
    ],
  ] as const)("refuses %s", async (_, body, outcome) => {
    const node = await cacheFor();
    expect(await outcomeOf(node.ack(body))).toBe(outcome);
  });

  test("takes 1,000 ids", async () => {
    const node = await cacheFor();
    expect(await acked(node, ackBody(bob, ids(1_000)))).toEqual({ acked: 0, message_ids: [] });
  });

  test("points at the malformed id", async () => {
    const node = await cacheFor();
    const response = await node.ack(ackBody(bob, [uuidOf(1), "x"]));
    expect(await response.json()).toMatchObject({ errors: [{ pointer: "/message_ids/1" }] });
  });
});

describe("event proofs", () => {
  test("are signed by the node's key over the written text", async () => {
    const seed = new Uint8Array(32).fill(0x55);
    const node = await cacheFor({ sign: createSigner(seed) });
    const receipt = (await (await node.store(envelopeTo(bob, 1))).json()) as Entry;
    const [entry] = (await messages(node, bob)).messages;
    for (const [eventType, proof] of [
      ["delivery", receipt.proof],
      ["retrieval", entry?.proof as JsonObject],
    ] as const) {
      const text = encodeEventProof({
        eventType,
        messageId: uuidOf(1),
        recipientDid: bob.did,
        timestamp: "2026-07-16T12:00:00.000Z",
        reason: null,
        endpoint: cacheEndpoint,
      });
      expect(proof["event_type"]).toBe(eventType);
      const signature = decodeBase64(proof["signature"] as string) as Uint8Array;
      expect(ed25519.verify(signature, text, ed25519.getPublicKey(seed))).toBe(true);
    }
  });

  test("a signer needs a seed of 32 bytes", () => {
    expect(createSigner(new Uint8Array(31))).toBeNull();
  });
});
