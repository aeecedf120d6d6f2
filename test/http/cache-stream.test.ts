/** GET /cache/stream/{did}: no gap and no repeat from a cursor, and every bound of a stream. */
import { describe, expect, test } from "bun:test";
import { mailboxOf } from "../../src/core/codec/did.ts";
import { hourMs, minuteMs } from "../../src/core/codec/time.ts";
import type { Service, VerificationMethod } from "../../src/core/ledger/account.ts";
import { createStreams } from "../../src/nodes/cache/stream.ts";
import { noSignal } from "../../src/nodes/signals.ts";
import { type Mailbox, StoreError } from "../../src/storage/contract.ts";
import { quota } from "../conformance/samples.ts";
import { listenForTest } from "../support/app.ts";
import {
  ackBody,
  cachesKnowing,
  createPerson,
  envelopeTo,
  outcomeOf,
  type Person,
  proofHeaders,
  type TestCache,
  type TestCacheOptions,
  testNowMs,
  uuidOf,
} from "../support/cache-node.ts";
import { cacheDefault } from "../support/settings.ts";

const bob = createPerson(1);
const alice = createPerson(2);

const cacheFor = cachesKnowing(bob, alice);

type StreamEvent = { id: string; data: { message_id: string } };

/** Reads a stream of server-sent events chunk by chunk. */
class EventReader {
  private readonly reader: ReadableStreamDefaultReader<Uint8Array>;
  private text = "";
  comments = 0;

  constructor(response: Response) {
    if (response.body === null) throw new Error("no body");
    this.reader = response.body.getReader();
  }

  /** The next event, or `null` at the end of the stream. */
  async next(): Promise<StreamEvent | null> {
    for (;;) {
      const end = this.text.indexOf("\n\n");
      if (end < 0) {
        const { done, value } = await this.reader.read();
        if (done) return null;
        this.text += new TextDecoder().decode(value);
        continue;
      }
      const block = this.text.slice(0, end);
      this.text = this.text.slice(end + 2);
      const lines = new Map(
        block.split("\n").map((line) => [line.slice(0, line.indexOf(":")), line.slice(line.indexOf(":") + 2)]),
      );
      if (block.startsWith(":")) this.comments++;
      if (lines.has("data")) return { id: lines.get("id") ?? "", data: JSON.parse(lines.get("data") ?? "") };
    }
  }

  async take(count: number): Promise<StreamEvent[]> {
    const events: StreamEvent[] = [];
    while (events.length < count) {
      const event = await this.next();
      if (event === null) throw new Error("the stream ended");
      events.push(event);
    }
    return events;
  }

  close(): Promise<void> {
    return this.reader.cancel();
  }
}

async function follow(
  node: TestCache,
  options: { query?: string; headers?: Record<string, string> } = {},
): Promise<EventReader> {
  const headers = {
    ...proofHeaders(bob, { operation: "stream", timestamp: String(node.clock.nowMs) }),
    ...options.headers,
  };
  const response = await node.read(`/cache/stream/${bob.did}${options.query ?? ""}`, headers);
  expect(response.status).toBe(200);
  expect(response.headers.get("content-type")).toBe("text/event-stream");
  return new EventReader(response);
}

/** As another process would: this node does not know. */
async function storeElsewhere(node: TestCache, number: number): Promise<void> {
  const entry = {
    recipient: mailboxOf(bob.did, 0),
    messageId: uuidOf(number) as never,
    envelope: new Uint8Array(2),
    chunk: null,
    storedAtMs: testNowMs,
    expiresAtMs: testNowMs + hourMs,
    onExpiry: "DeleteOnExpiry",
    keptUntilMs: testNowMs + hourMs,
    headerPreview: null,
    labels: [],
  } as const;
  await node.mailbox.store(entry, quota());
}

/** The recipient's document with one thing changed in its Cache service. */
function changeService(node: TestCache, change: Partial<Service>): void {
  const service = bob.document.service.map((one) => ({ ...one, ...change }));
  node.recipients.add({ ...bob, document: { ...bob.document, service } });
}

function giveKeyTo(node: TestCache, other: Person): void {
  const { publicKeyMultibase } = other.document.verificationMethod[0] as VerificationMethod;
  const verificationMethod = bob.document.verificationMethod.map((one) => ({ ...one, publicKeyMultibase }));
  node.recipients.add({ ...bob, document: { ...bob.document, verificationMethod } });
}

const idsOf = (events: StreamEvent[]) => events.map((event) => event.data.message_id);

describe("a stream", () => {
  test("sends what is held, then what is stored, with the members of a summary", async () => {
    const node = await cacheFor();
    await node.store(envelopeTo(bob, 1));
    const stream = await follow(node);
    expect((await stream.take(1))[0]?.data).toEqual({
      message_id: uuidOf(1),
      expires_at: "2026-07-17T12:00:00.000Z",
      chunked: false,
    } as never);
    const later = stream.take(2);
    await node.store(envelopeTo(alice, 7));
    await node.store(envelopeTo(bob, 2));
    await node.store(envelopeTo(bob, 2));
    await node.store(envelopeTo(bob, 3));
    expect(idsOf(await later)).toEqual([uuidOf(2), uuidOf(3)]);
    await stream.close();
  });

  test("goes on behind the cursor or the last event id, without gap or repeat", async () => {
    const node = await cacheFor();
    for (const number of [1, 2, 3]) await node.store(envelopeTo(bob, number));
    const first = await follow(node);
    const [, second] = await first.take(2);
    await first.close();
    await node.store(envelopeTo(bob, 4));
    for (const options of [
      { query: `?cursor=${second?.id}` },
      { headers: { "Last-Event-ID": second?.id ?? "" }, query: "?cursor=ignored" },
    ]) {
      const again = await follow(node, options);
      expect(idsOf(await again.take(2))).toEqual([uuidOf(3), uuidOf(4)]);
      await again.close();
    }
  });

  test("sends every one of many concurrent stores exactly once, in pages and across reconnects", async () => {
    const node = await cacheFor({ page_entries_max: 7 });
    const count = 300;
    const storing = (async () => {
      for (let number = 1; number <= count; number += 10)
        await Promise.all(Array.from({ length: 10 }, (_, i) => node.store(envelopeTo(bob, number + i))));
    })();
    const seen: string[] = [];
    let query = "";
    while (seen.length < count) {
      const stream = await follow(node, { query });
      for (let taken = 0; taken < 40 && seen.length < count; taken++) {
        const event = await stream.next();
        seen.push(event?.data.message_id ?? "");
        query = `?cursor=${event?.id}`;
      }
      await stream.close();
    }
    await storing;
    expect(seen.length).toBe(count);
    expect(new Set(seen).size).toBe(count);
  });

  test("still gets new entries after another stream of its recipient ended", async () => {
    const node = await cacheFor();
    const [first, second] = [await follow(node), await follow(node)];
    await first.close();
    const event = second.take(1);
    await node.store(envelopeTo(bob, 1));
    expect(idsOf(await event)).toEqual([uuidOf(1)]);
    await second.close();
  });

  test("sees at once what is stored between its read of an empty mailbox and its wait", async () => {
    const read = Promise.withResolvers<void>();
    const answer = Promise.withResolvers<void>();
    let reads = 0;
    const node = await cacheFor({
      wrap: (mailbox) => ({
        summary: async (recipient, page) => {
          const found = await mailbox.summary(recipient, page);
          if (++reads !== 3) return found;
          read.resolve();
          await answer.promise;
          return found;
        },
      }),
    });
    const stream = await follow(node);
    const first = stream.take(1);
    await node.store(envelopeTo(bob, 1));
    expect(idsOf(await first)).toEqual([uuidOf(1)]);
    // The third read finds nothing and is held up while the second message comes.
    const second = stream.take(1);
    await read.promise;
    await node.store(envelopeTo(bob, 2));
    answer.resolve();
    expect(idsOf(await second)).toEqual([uuidOf(2)]);
    await stream.close();
  });

  test("does not send what was acknowledged or has expired", async () => {
    const node = await cacheFor();
    await node.store(envelopeTo(bob, 1));
    await node.store(envelopeTo(bob, 2, { ttl: "1h" }));
    await node.store(envelopeTo(bob, 3));
    await node.ack(ackBody(bob, [uuidOf(1)]));
    node.clock.nowMs = testNowMs + hourMs;
    const stream = await follow(node);
    expect(idsOf(await stream.take(1))).toEqual([uuidOf(3)]);
    await stream.close();
  });

  test("refuses a cursor that can't be read, and leaves no stream behind", async () => {
    const node = await cacheFor({ recipient_streams_max: 1 });
    for (let round = 0; round < 3; round++) {
      const headers = proofHeaders(bob, { operation: "stream" });
      expect(await outcomeOf(node.read(`/cache/stream/${bob.did}?cursor=x`, headers))).toBe("400 invalid_request");
    }
    await (await follow(node)).close();
  });

  test("sends a comment when nothing comes for a heartbeat, and then sees what another process stored", async () => {
    const node = await cacheFor({ stream_heartbeat: 5 });
    const stream = await follow(node);
    const event = stream.next();
    await Bun.sleep(25);
    await storeElsewhere(node, 1);
    expect((await event)?.data.message_id).toBe(uuidOf(1));
    expect(stream.comments).toBeGreaterThan(0);
    await stream.close();
  });

  test("ends after its longest life, so that the client must prove itself again", async () => {
    const node = await cacheFor({ stream_heartbeat: 5, stream_life: minuteMs });
    const stream = await follow(node);
    node.clock.nowMs = testNowMs + minuteMs;
    expect(await stream.next()).toBeNull();
  });

  const withdrawals: [name: string, withdraw: (node: TestCache) => void][] = [
    ["when the service lists the key no more", (node) => changeService(node, { authorization: [] })],
    ["when the service names another Cache", (node) => changeService(node, { serviceEndpoint: ["https://b.example"] })],
    ["when another key takes its id", (node) => giveKeyTo(node, alice)],
    ["when its recipient is deactivated", (node) => node.recipients.add(bob, { deactivated: true })],
    ["when its recipient was deleted and has registered again", (node) => node.recipients.add(bob, { life: 1 })],
    ["when its recipient can't be asked about", (node) => Object.assign(node.recipients, { reachable: false })],
  ];
  for (const [name, withdraw] of withdrawals) {
    test(`ends at its next check ${name}`, async () => {
      const node = await cacheFor({ stream_heartbeat: 5 });
      const stream = await follow(node);
      await node.store(envelopeTo(bob, 1));
      await stream.take(1);
      withdraw(node);
      expect(await stream.next()).toBeNull();
    });
  }

  test("ends when the node closes, and none opens after that", async () => {
    const node = await cacheFor();
    const stream = await follow(node);
    const event = stream.next();
    node.cache.endStreams();
    expect(await event).toBeNull();
    const refused = node.read(`/cache/stream/${bob.did}`, proofHeaders(bob, { operation: "stream" }));
    expect(await outcomeOf(refused)).toBe("503 shutting_down");
  });

  test("ends when the mailbox fails", async () => {
    let reads = 0;
    const node = await cacheFor({
      wrap: (mailbox) => ({
        summary: (recipient, page) =>
          reads++ === 0 ? mailbox.summary(recipient, page) : Promise.reject(new StoreError("unavailable", "test")),
      }),
    });
    const stream = await follow(node);
    const event = stream.next();
    await node.store(envelopeTo(bob, 1));
    expect(await event).toBeNull();
  });
});

test("a connection of a stream may be silent for three heartbeats, whatever the life of the stream", async () => {
  const mailbox = { summary: async () => ({ entries: [], next: null }) };
  const streams = createStreams({
    mailbox: mailbox as Partial<Mailbox> as Mailbox,
    now: () => testNowMs,
    settings: { ...cacheDefault, stream_heartbeat: 7_000, stream_life: 100_000 },
    signal: noSignal,
  });
  const opened = await streams.open(mailboxOf(bob.did, 0), {
    after: null,
    client: "192.0.2.7",
    signal: new AbortController().signal,
    isPermitted: async () => true,
  });
  expect(opened).toMatchObject({ status: 200, idleSeconds: 21 });
  streams.close();
});

describe("the number of streams", () => {
  const limited = (change: TestCacheOptions) => cacheFor(change);
  const open = (node: TestCache, person = bob) =>
    node.read(`/cache/stream/${person.did}`, proofHeaders(person, { operation: "stream" }));

  test("is bounded per recipient; one that closes makes room", async () => {
    const node = await limited({ recipient_streams_max: 2 });
    const streams = [await follow(node), await follow(node)];
    const refused = await open(node);
    expect(refused.headers.get("retry-after")).toBe("30");
    expect(await outcomeOf(refused)).toBe("429 rate_limited");
    const other = await open(node, alice);
    expect(other.status).toBe(200);
    await other.body?.cancel();
    await streams[0]?.close();
    await (await follow(node)).close();
    await streams[1]?.close();
  });

  test("is bounded in all", async () => {
    const node = await limited({ streams_max: 1 });
    const stream = await follow(node);
    expect(await outcomeOf(open(node, alice))).toBe("429 rate_limited");
    await stream.close();
    const after = await open(node, alice);
    expect(after.status).toBe(200);
    await after.body?.cancel();
  });

  test("is bounded for a client network at half of all, whoever the recipients are", async () => {
    const node = await limited({ streams_max: 4, trustedProxies: ["192.0.2.7"] });
    const from = (client: string, person: Person) => {
      const headers = proofHeaders(person, { operation: "stream" });
      return node.read(`/cache/stream/${person.did}`, { ...headers, "x-forwarded-for": client });
    };
    const own = [await from("198.51.100.1", bob), await from("198.51.100.1", alice)];
    expect(own.map(({ status }) => status)).toEqual([200, 200]);
    expect(await outcomeOf(from("198.51.100.1", bob))).toBe("429 rate_limited");
    const other = await from("203.0.113.1", bob);
    expect(other.status).toBe(200);
    await own[0]!.body?.cancel();
    const again = await from("198.51.100.1", bob);
    expect(again.status).toBe(200);
    for (const open of [own[1]!, other, again]) await open.body?.cancel();
  });

  test("falls when a client goes away on a real socket", async () => {
    const node = await limited({ recipient_streams_max: 1, stream_heartbeat: 20 });
    const { url, stop } = listenForTest(node.app);
    const gone = new AbortController();
    const ask = (signal?: AbortSignal) =>
      fetch(`${url}/cache/stream/${bob.did}`, {
        headers: proofHeaders(bob, { operation: "stream" }),
        ...(signal === undefined ? {} : { signal }),
      });
    const first = await ask(gone.signal);
    expect(first.status).toBe(200);
    const reading = new EventReader(first).next().catch(() => null);
    await node.store(envelopeTo(bob, 1));
    expect((await reading)?.data.message_id).toBe(uuidOf(1));
    expect((await ask()).status).toBe(429);
    gone.abort();
    let status = 429;
    for (let attempt = 0; attempt < 100 && status === 429; attempt++) {
      await Bun.sleep(10);
      const next = await ask();
      status = next.status;
      await next.body?.cancel();
    }
    expect(status).toBe(200);
    node.cache.endStreams();
    await stop();
  });
});
