/**
 * Retrieval by a client that knows the interface but no cursor: whole messages, whole groups, and
 * answers that take little memory however long they are and however slowly they are read.
 */
import { describe, expect, test } from "bun:test";
import { connect } from "node:net";
import type { JsonObject } from "../../src/core/codec/json.ts";
import type { Mailbox } from "../../src/storage/contract.ts";
import { listenForTest } from "../support/app.ts";
import {
  ackBody,
  chunkTo,
  createPerson,
  createTestCache,
  envelopeTo,
  proofHeaders,
  type TestCache,
  type TestCacheOptions,
  uuidOf,
} from "../support/cache-node.ts";
import { pause } from "../support/wait.ts";

const bob = createPerson(1);

async function cacheFor(options: TestCacheOptions = {}): Promise<TestCache> {
  const node = await createTestCache(options);
  node.recipients.add(bob);
  return node;
}

type Entry = { message_id: string; envelope: JsonObject };
type Messages = { count: number; messages: Entry[]; has_more?: boolean; next_cursor?: string };
type Chunks = {
  count: number;
  chunks: Entry[];
  complete: boolean;
  total_chunks: number | null;
  has_more?: boolean;
};

async function pull(node: TestCache, query = ""): Promise<Messages> {
  const response = await node.read(`/cache/messages/${bob.did}${query}`, proofHeaders(bob));
  expect(response.status).toBe(200);
  return (await response.json()) as Messages;
}

async function chunksOf(node: TestCache, group: number, query = ""): Promise<Chunks> {
  const headers = proofHeaders(bob, { operation: "chunks", subject: uuidOf(group) });
  const response = await node.read(`/cache/chunks/${bob.did}/${uuidOf(group)}${query}`, headers);
  expect(response.status).toBe(200);
  return (await response.json()) as Chunks;
}

async function storeAll(node: TestCache, envelopes: JsonObject[]): Promise<void> {
  for (const envelope of envelopes) expect((await node.store(envelope)).status).toBe(202);
}

const sized = (bytes: number) => ({ payload: { ciphertext_b64: "A".repeat(bytes) } });
const setOf = (group: number, total: number, bytes = 4): JsonObject[] =>
  Array.from({ length: total }, (_, sequence) => ({
    ...chunkTo(bob, group * 1_000 + sequence, { group, sequence, total }),
    ...sized(bytes),
  }));
const idsOf = (entries: readonly Entry[]) => entries.map((entry) => entry.message_id);
const idsIn = (envelopes: readonly JsonObject[]) =>
  envelopes.map((envelope) => String(envelope["message_id"]));

/** Counts the calls of the store. */
function counted() {
  const calls: string[] = [];
  const noted =
    <A extends unknown[], R>(name: string, call: (...request: A) => R) =>
    (...request: A): R => {
      calls.push(name);
      return call(...request);
    };
  const wrap = (mailbox: Mailbox): Partial<Mailbox> => ({
    list: noted("list", mailbox.list.bind(mailbox)),
    summary: noted("summary", mailbox.summary.bind(mailbox)),
    read: noted("read", mailbox.read.bind(mailbox)),
    chunks: noted("chunks", mailbox.chunks.bind(mailbox)),
  });
  return { calls, wrap };
}

describe("GET /cache/messages/{did} without a cursor", () => {
  test("answers many messages beyond one page, in the order of arrival", async () => {
    const node = await cacheFor();
    const envelopes = Array.from({ length: 30 }, (_, i) => envelopeTo(bob, i + 1, sized(120_000)));
    await storeAll(node, envelopes);
    const answer = await pull(node);
    expect(answer.messages.map((entry) => entry.envelope)).toEqual(envelopes);
    expect(answer).toMatchObject({ count: 30 });
    expect([answer.has_more, "next_cursor" in answer]).toEqual([false, false]);
  });

  test("has a bounded number of entries, and a cursor to the next ones", async () => {
    const node = await cacheFor({ retrieve_entries_max: 4 });
    await storeAll(
      node,
      Array.from({ length: 6 }, (_, i) => envelopeTo(bob, i + 1)),
    );
    const first = await pull(node);
    expect([first.count, first.has_more]).toEqual([4, true]);
    const rest = await pull(node, `?cursor=${first.next_cursor}`);
    expect(idsOf(rest.messages)).toEqual([uuidOf(5), uuidOf(6)]);
    await node.ack(ackBody(bob, idsOf(first.messages)));
    expect(idsOf((await pull(node)).messages)).toEqual([uuidOf(5), uuidOf(6)]);
  });

  test("passes over an unfinished set and one that is too large, and its cursor reaches them", async () => {
    const node = await cacheFor({ retrieve_entries_max: 3 });
    const unfinished = setOf(7, 3).slice(0, 2);
    const large = setOf(8, 4);
    const behind = [envelopeTo(bob, 1), envelopeTo(bob, 2)];
    await storeAll(node, [...unfinished, ...large, ...behind]);
    const first = await pull(node);
    expect(idsOf(first.messages)).toEqual(idsIn(behind));
    expect(first.has_more).toBe(true);
    const rest = await pull(node, `?limit=100&cursor=${first.next_cursor}`);
    expect(idsOf(rest.messages)).toEqual(idsIn([...unfinished, ...large, ...behind]));
    expect(idsOf((await chunksOf(node, 8)).chunks)).toEqual(idsIn(large));
  });

  test("answers a set of chunks of 1 MiB whole", async () => {
    const node = await cacheFor();
    const set = setOf(7, 5, 1_400_000);
    await storeAll(node, [...set, envelopeTo(bob, 1)]);
    const answer = await pull(node);
    expect(idsOf(answer.messages)).toEqual([...idsIn(set), uuidOf(1)]);
    expect(answer.messages[3]?.envelope).toEqual(set[3] as JsonObject);
  });

  test("is one call of the store when one page holds everything", async () => {
    const { calls, wrap } = counted();
    const node = await cacheFor({ wrap });
    await storeAll(node, [envelopeTo(bob, 1), ...setOf(7, 2)]);
    expect((await pull(node)).count).toBe(3);
    expect(calls).toEqual(["list"]);
  });

  test("counts the entries that it has, even if some are removed while it is sent", async () => {
    const node = await cacheFor();
    await storeAll(
      node,
      Array.from({ length: 20 }, (_, i) => envelopeTo(bob, i + 1, sized(300_000))),
    );
    const response = await node.read(`/cache/messages/${bob.did}`, proofHeaders(bob));
    await node.ack(ackBody(bob, [uuidOf(20), uuidOf(19)]));
    const answer = (await response.json()) as Messages;
    expect([answer.count, answer.messages.length]).toEqual([18, 18]);
  });
});

describe("GET /cache/chunks/{did}/{group} without a cursor", () => {
  test("answers the whole group, whatever its size", async () => {
    const node = await cacheFor();
    const set = setOf(7, 20, 1_400_000);
    await storeAll(node, set.toReversed());
    const answer = await chunksOf(node, 7);
    expect(answer).toMatchObject({ count: 20, complete: true, total_chunks: 20 });
    expect(idsOf(answer.chunks)).toEqual(idsIn(set));
    expect(answer.has_more).toBe(false);
    const page = await chunksOf(node, 7, "?limit=1000");
    expect(page).toMatchObject({ count: 1, complete: true, has_more: true });
  });

  test("answers what an unfinished group has", async () => {
    const node = await cacheFor();
    await storeAll(node, setOf(7, 5, 700_000).slice(1));
    expect(await chunksOf(node, 7)).toMatchObject({ count: 4, complete: false, total_chunks: 5 });
  });

  test("asks the store for the group alone, however much else is held", async () => {
    const { calls, wrap } = counted();
    const node = await cacheFor({ wrap });
    await storeAll(node, [envelopeTo(bob, 1), ...setOf(7, 3), ...setOf(8, 2)]);
    expect((await chunksOf(node, 7)).count).toBe(3);
    expect((await chunksOf(node, 7, "?limit=2")).count).toBe(2);
    expect((await chunksOf(node, 9)).count).toBe(0);
    expect(calls).toEqual(["chunks", "read", "chunks", "read", "chunks"]);
  });
});

describe("slow clients", () => {
  /** Asks for the group and takes its answer only when the test reads it. */
  function slowClient(url: string, group: number) {
    const headers = proofHeaders(bob, { operation: "chunks", subject: uuidOf(group) });
    const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}`);
    const { hostname, port } = new URL(url);
    const socket = connect(Number(port), hostname);
    const path = `/cache/chunks/${encodeURIComponent(bob.did)}/${uuidOf(group)}`;
    socket.write(
      [`GET ${path} HTTP/1.1`, `Host: ${hostname}`, "Connection: close", ...lines, "", ""].join(
        "\r\n",
      ),
    );
    // The server resets a connection that reads nothing for 30 s, which a busy machine reaches.
    socket.on("error", () => undefined);
    socket.pause();
    return socket;
  }

  test("100 of them with a group of 25 MiB each hold little memory", async () => {
    const total = 18;
    const node = await cacheFor();
    await storeAll(node, setOf(7, total, 1_400_000));
    const { url, stop } = listenForTest(node.app);
    Bun.gc(true);
    const before = process.memoryUsage.rss();
    const first = slowClient(url, 7);
    // One that has its place.
    while (node.app.waitingAnswerBytes() === 0) await Bun.sleep(2);
    const others = Array.from({ length: 99 }, () => slowClient(url, 7));
    await pause(1_500, "the others would have their answers built");
    const grown = process.memoryUsage.rss() - before;
    // 100 answers of 25 MiB are 2.5 GB (150 MiB were measured); a chunk each and what the kernel
    // and the server buffer stay far below.
    expect(grown).toBeLessThan(400 * 1024 ** 2);
    for (const socket of others) socket.destroy();
    let bytes = 0;
    let tail = "";
    for await (const part of first) {
      bytes += (part as Buffer).length;
      tail = (tail + (part as Buffer).toString("latin1")).slice(-200);
    }
    expect(bytes).toBeGreaterThan(total * 1_400_000);
    expect(tail).toContain(
      `"count":${total},"complete":true,"total_chunks":${total},"has_more":false}`,
    );
    await stop();
  }, 120_000);
});
