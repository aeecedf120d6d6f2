/**
 * A node of several threads over real sockets: connections spread, limits hold for all together, each answers what
 * another stored, sessions are reached from all of them, and the end of one ends the process.
 */
import { afterAll, describe, expect, test } from "bun:test";
import { connect as connectSocket } from "node:net";
import { cachesOf, connect, liveEndpoints } from "../../src/client/client.ts";
import { waitingDefault } from "../../src/client/directory.ts";
import { createIdentity, type Identity } from "../../src/client/keys.ts";
import { listenLive, proofHeaders, type Reader, readersOf } from "../../src/client/reader.ts";
import { firstDocument, register, settleRegistration } from "../../src/client/registration.ts";
import { listPending } from "../../src/client/retrieve.ts";
import type { ConfigInput } from "../../src/config/schema.ts";
import { freePort } from "../support/executable.ts";
import { startTestNodes, type TestNodes } from "../support/nodes.ts";

const started: TestNodes[] = [];
afterAll(async () => {
  await Promise.all(started.map((nodes) => nodes.stop()));
}, 60_000);

/** The series of one family. */
function seriesOf(metrics: string, family: string): { readonly line: string; readonly value: number }[] {
  const lines = metrics.split("\n").filter((line) => line.startsWith(`${family}{`) || line.startsWith(`${family} `));
  return lines.map((line) => ({ line, value: Number(line.split(" ").at(-1)) }));
}

/** All three nodes; `more` is put beside the usual settings of a section. */
async function nodesWith(
  threads: number,
  more: Pick<ConfigInput, "server" | "relay" | "cache" | "limits"> = {},
): Promise<TestNodes> {
  const address = `127.0.0.1:${freePort()}`;
  const url = `http://${address}`;
  const nodes = await startTestNodes({
    server: { listen: [address], drain_timeout: "2s", workers: threads, ...more.server },
    relay: {
      enabled: true,
      public_endpoints: [url],
      allow_http: true,
      allow_private: ["127.0.0.0/8"],
      rate_limit_loopback: false,
      ...more.relay,
    },
    cache: { enabled: true, public_endpoints: [url], rate_limit_loopback: false, ...more.cache },
    ...(more.limits === undefined ? {} : { limits: more.limits }),
  });
  started.push(nodes);
  return nodes;
}

/** Each request on a connection of its own, so that the system spreads them. */
const alone = { headers: { connection: "close", "content-type": "application/json" } };

/** By the lines of the log, which the main thread writes without a `worker`. */
function answeredBy(nodes: TestNodes, route: string): unknown[] {
  const requests = nodes.lines.filter(
    ({ message, fields }) => message === "request" && fieldOf(fields, "route") === route,
  );
  return requests.map(({ fields }) => fieldOf(fields, "worker"));
}

function workersOf(nodes: TestNodes, route: string): Set<unknown> {
  return new Set(answeredBy(nodes, route));
}

function ofMain(nodes: TestNodes, route: string): number {
  return answeredBy(nodes, route).filter((worker) => worker === undefined).length;
}

function fieldOf(fields: unknown, name: string): unknown {
  return typeof fields === "object" && fields !== null ? Reflect.get(fields, name) : undefined;
}

function codeOf(error: unknown): string {
  return String(fieldOf(error, "code"));
}

async function until(holds: () => boolean | Promise<boolean>): Promise<void> {
  for (const endMs = performance.now() + 10_000; !(await holds()); await Bun.sleep(20)) {
    if (performance.now() > endMs) throw new Error("it did not come to that in time");
  }
}

async function enrol(nodes: TestNodes, name: string): Promise<Identity> {
  const client = connect({ directoryUrl: nodes.url, relayUrl: nodes.url });
  const identity = createIdentity(name);
  const document = await firstDocument(identity, { relayUrl: nodes.url, cacheUrl: nodes.url });
  const waiting = { ...waitingDefault, timeoutMs: 10_000, intervalMs: 20 };
  await settleRegistration(client, await register(client, identity, { document, alias: null }), waiting);
  return identity;
}

async function cacheReader(nodes: TestNodes, { did, methods, ...identity }: Identity): Promise<Reader> {
  const document = await firstDocument({ did, methods, ...identity }, { relayUrl: nodes.url, cacheUrl: nodes.url });
  const seedOf = async (id: string) => methods.find((key) => key.id === id)?.secret ?? null;
  const options = { serviceType: "SvcCacheService", seedOf, deviceId: "", timeoutMs: 10_000 } as const;
  const [reader] = await readersOf(did, document, options);
  if (reader === undefined) throw new Error("no Cache to read at");
  return reader;
}

function envelope(to: string, messageId: string = crypto.randomUUID()): string {
  const payload = { ciphertext_b64: "AAAA" };
  return JSON.stringify({ message_id: messageId, to, timestamp: new Date().toISOString(), ttl: "1h", payload });
}

async function post(url: string, body: string): Promise<{ status: number; answer: Record<string, unknown> }> {
  const response = await fetch(url, { method: "POST", body, ...alone });
  return { status: response.status, answer: (await response.json()) as Record<string, unknown> };
}

describe.each([2, 4])("a node of %d threads", (threads) => {
  /** Beside the thread of the stores, which answers where there are two. */
  const workers = threads === 2 ? 1 : threads;

  test("spreads connections, gives what any of them stored, and counts as one process", async () => {
    const nodes = await nodesWith(threads);
    expect(nodes.workers).toBe(threads);
    const bob = await enrol(nodes, "bob");
    const ids = Array.from({ length: 40 }, () => crypto.randomUUID());
    const stored = await Promise.all(ids.map((id) => post(`${nodes.url}/cache/store`, envelope(bob.did, id))));
    expect(new Set(stored.map(({ status }) => status))).toEqual(new Set([202]));
    const again = await Promise.all(ids.map((id) => post(`${nodes.url}/cache/store`, envelope(bob.did, id))));
    expect(new Set(again.map(({ status }) => status))).toEqual(new Set([202]));
    const caches = await cachesOf(connect({ directoryUrl: nodes.url, relayUrl: nodes.url }), bob, "");
    const { pending } = await listPending(caches);
    expect(pending.length).toBe(40);
    await until(() => workersOf(nodes, "/cache/store").size === threads);

    const metrics = await (await fetch(`${nodes.url}/metrics`)).text();
    const stores = seriesOf(metrics, "waypost_http_requests_total").filter(({ line }) =>
      line.includes('route="/cache/store"'),
    );
    expect(stores.map(({ value }) => value)).toEqual([80]);
    expect(seriesOf(metrics, "waypost_workers")[0]?.value).toBe(threads);
    expect(seriesOf(metrics, "waypost_mailbox_entries")[0]?.value).toBe(40);
    expect(seriesOf(metrics, "waypost_http_requests_in_flight").length).toBe(1);
  }, 60_000);

  test("asks the thread of the stores for an account once in each worker, until a block changes the ledger", async () => {
    const nodes = await nodesWith(threads);
    const bob = await enrol(nodes, "bob");
    const ledger = nodes.stores.capability("directory.ledger", "ledger");
    const read = ledger.account.bind(ledger);
    let asked = 0;
    ledger.account = (did) => {
      asked += did === bob.did ? 1 : 0;
      return read(did);
    };
    const resolveOften = (): Promise<unknown> =>
      Promise.all(
        Array.from({ length: 40 }, async () => {
          const answer = await fetch(`${nodes.url}/resolve/${bob.did}`, alone);
          expect([answer.status, await answer.json()]).toMatchObject([200, { did: bob.did }]);
        }),
      );
    await resolveOften();
    await resolveOften();
    const inMain = () => ofMain(nodes, "/resolve/:did");
    expect(asked - inMain()).toBeLessThanOrEqual(workers);
    await enrol(nodes, "carol");
    const before = inMain();
    asked = 0;
    await resolveOften();
    expect(asked).toBeGreaterThan(0);
    // The block that ends the registration may come between two reads.
    expect(asked - (inMain() - before)).toBeLessThanOrEqual(2 * workers);
  }, 60_000);

  test("refuses a blocked DID in every worker from the next request on", async () => {
    const unix = `/tmp/waypost-${process.pid}-${threads}.sock`;
    const nodes = await nodesWith(threads, { server: { admin_listen: [`unix:${unix}`] } });
    const bob = await enrol(nodes, "bob");
    const change = (body: object): Promise<Response> =>
      fetch("http://localhost/operations/blocks", { unix, method: "POST", body: JSON.stringify(body), ...alone });
    const statuses = async (): Promise<Set<number>> => {
      const asked = Array.from({ length: 16 }, () => post(`${nodes.url}/cache/store`, envelope(bob.did)));
      return new Set((await Promise.all(asked)).map(({ status }) => status));
    };
    for (let round = 0; round < 5; round++) {
      await change({ add: [{ subject: bob.did, sender_only: false, reason: null }], remove: [] });
      expect(await statuses()).toEqual(new Set([403]));
      await change({ add: [], remove: [bob.did] });
      expect(await statuses()).toEqual(new Set([202]));
    }
  }, 60_000);

  test("has one rate for a client, whichever workers its connections reach", async () => {
    // Four times the rate at once.
    const nodes = await nodesWith(threads, { relay: { rate_limit_loopback: true, client_rate: 2 } });
    const startMs = performance.now();
    const answers = await Promise.all(Array.from({ length: 40 }, () => post(`${nodes.url}/relay`, "{}")));
    const seconds = (performance.now() - startMs) / 1_000;
    const taken = answers.filter(({ status }) => status !== 429).length;
    expect(taken).toBeGreaterThanOrEqual(8);
    expect(taken).toBeLessThanOrEqual(8 + Math.ceil(2 * seconds));
    await until(() => workersOf(nodes, "/relay").size === threads);
  }, 60_000);

  test("has one budget of bodies, whichever worker holds them", async () => {
    const limits = {
      body_bytes_max: 500_000,
      unchunked_bytes_max: 300_000,
      chunk_bytes_max: 300_000,
      header_bytes_max: 1_024,
    };
    const nodes = await nodesWith(threads, { server: { body_bytes_in_flight: "1MiB" }, limits });
    const { hostname, port } = new URL(nodes.url);
    // Of 1 MiB one client may have half; 400 KiB of it arrive and stay.
    const head = `POST /cache/store HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 500000\r\n\r\n`;
    const slow = connectSocket(Number(port), hostname, () => slow.write(head + "x".repeat(400 * 1024)));
    const held = async () => {
      const metrics = await (await fetch(`${nodes.url}/metrics`, alone)).text();
      return seriesOf(metrics, "waypost_http_body_bytes_in_flight")[0]?.value ?? 0;
    };
    await until(async () => (await held()) >= 400 * 1024);
    const large = "x".repeat(200 * 1024);
    const answers = await Promise.all(Array.from({ length: 12 }, () => post(`${nodes.url}/cache/store`, large)));
    expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([503]));
    slow.destroy();
    await until(async () => (await held()) === 0);
    expect((await post(`${nodes.url}/cache/store`, large)).status).toBe(400);
  }, 60_000);

  test("has one bound of sessions for a recipient, and a device that connects again keeps its place", async () => {
    const nodes = await nodesWith(threads);
    const bob = await enrol(nodes, "bob");
    const client = connect({ directoryUrl: nodes.url, relayUrl: nodes.url });
    const stop = new AbortController();
    const listening = new Set<string>();
    const begin = async (device: string): Promise<boolean> => {
      const [place] = await liveEndpoints(client, bob, device);
      if (place === undefined) throw new Error("no Relay to listen at");
      const ready = Promise.withResolvers<boolean>();
      const events = { onReady: () => ready.resolve(true), onEnvelope: async () => true };
      void listenLive(place, events, stop.signal).then(
        () => ready.resolve(false),
        () => ready.resolve(false),
      );
      const isReady = await ready.promise;
      if (isReady) listening.add(device);
      return isReady;
    };
    const devices = Array.from({ length: 24 }, (_, at) => `device-${at}`);
    await Promise.all(devices.map(begin));
    expect(listening.size).toBe(16);
    const [one = ""] = listening;
    // Wherever its connections arrive: each ends the one before.
    for (let again = 0; again < 6; again++) expect(await begin(one)).toBe(true);
    expect(await begin("another")).toBe(false);
    stop.abort();
  }, 60_000);

  test("has one bound of streams for a recipient", async () => {
    const nodes = await nodesWith(threads);
    const bob = await enrol(nodes, "bob");
    await post(`${nodes.url}/cache/store`, envelope(bob.did));
    const [cache] = await cachesOf(connect({ directoryUrl: nodes.url, relayUrl: nodes.url }), bob, "");
    const stop = new AbortController();
    const outcomes = await Promise.all(
      Array.from({ length: 24 }, () => {
        const { promise, resolve } = Promise.withResolvers<string>();
        void cache?.stream(() => resolve("open"), stop.signal).catch((error: unknown) => resolve(codeOf(error)));
        return promise;
      }),
    );
    stop.abort();
    expect(outcomes.filter((one) => one === "open").length).toBe(8);
    expect(new Set(outcomes)).toEqual(new Set(["open", "rate_limited"]));
  }, 60_000);

  test("gives one network half of all streams, again and again under load, and others the rest", async () => {
    const server = { trusted_proxies: ["127.0.0.0/8"] };
    const nodes = await nodesWith(threads, { server, cache: { streams_max: 20 } });
    const people = await Promise.all(["ann", "bob", "eve", "joe", "kim"].map((name) => enrol(nodes, name)));
    const readers = await Promise.all(people.map((identity) => cacheReader(nodes, identity)));
    // Recipients of their own for the others: each recipient has a bound too, which the greedy network may use up.
    const [ofGreedy, ofOthers] = [readers.slice(0, 3), readers.slice(3)];
    /** One stream of each reader in turn, from this client; resolves with the status of each. */
    const open = (client: string, of: typeof readers, count: number, signal: AbortSignal) =>
      Promise.all(
        Array.from({ length: count }, async (_, n) => {
          const reader = of[n % of.length]!;
          const headers = {
            ...(await proofHeaders(reader, "stream", "*")),
            ...alone.headers,
            "x-forwarded-for": client,
          };
          const response = await fetch(`${nodes.url}/cache/stream/${reader.did}`, { headers, signal });
          if (response.status !== 200) await response.arrayBuffer();
          return response.status;
        }),
      );
    const count = (statuses: readonly number[]) => statuses.filter((status) => status === 200).length;
    let [stored, kept, isOver] = [0, 0, false];
    const load = Array.from({ length: 8 }, async () => {
      while (!isOver) {
        const { status } = await post(`${nodes.url}/cache/store`, envelope(people[stored % people.length]!.did));
        expect(status).toBe(202);
        stored++;
      }
    });
    for (let round = 0; round < 3; round++) {
      const stop = new AbortController();
      // Places of the round before are free as soon as the node has noticed.
      await until(async () => {
        const greedy = await open("203.0.113.7", ofGreedy, 30, stop.signal);
        kept += count(greedy);
        expect(new Set(greedy)).toContain(429);
        expect(kept).toBeLessThanOrEqual(10 * (round + 1));
        return kept === 10 * (round + 1);
      });
      expect(count(await open("198.51.100.4", ofOthers, 5, stop.signal))).toBe(5);
      stop.abort();
    }
    isOver = true;
    await Promise.all(load);
    expect(stored).toBeGreaterThan(8);
  }, 60_000);

  test("delivers to a live session from every worker, and one message once", async () => {
    const nodes = await nodesWith(threads);
    const bob = await enrol(nodes, "bob");
    const client = connect({ directoryUrl: nodes.url, relayUrl: nodes.url });
    const [place] = await liveEndpoints(client, bob, "laptop");
    if (place === undefined) throw new Error("no Relay to listen at");
    const stop = new AbortController();
    const ready = Promise.withResolvers<void>();
    const got: string[] = [];
    const onEnvelope = async ({ messageId }: { readonly messageId: string }) => got.push(messageId) > 0;
    const ended = listenLive(place, { onReady: ready.resolve, onEnvelope }, stop.signal);
    await Promise.race([ready.promise, ended]);
    const ids = Array.from({ length: 20 }, () => crypto.randomUUID());
    const bodies = ids.map((id) => envelope(bob.did, id));
    // Each is handed in three times at once, so that several workers have the same message.
    const sent = await Promise.all(
      bodies.flatMap((body) => [body, body, body].map((one) => post(`${nodes.url}/relay`, one))),
    );
    expect(new Set(sent.map(({ status, answer }) => `${status} ${answer["delivery_mode"]}`))).toEqual(
      new Set(["200 direct"]),
    );
    expect(got.sort()).toEqual([...ids].sort());
    await until(() => workersOf(nodes, "/relay").size === threads);
    stop.abort();
    await ended;
    const after = await post(`${nodes.url}/relay`, envelope(bob.did));
    expect(after.status).toBe(202);
  }, 60_000);
});

describe("a worker that", () => {
  const die = async (how: string): Promise<string> => {
    const { promise, resolve } = Promise.withResolvers<string>();
    const address = `127.0.0.1:${freePort()}`;
    const entry = new URL("./dying-worker.ts", import.meta.url);
    const server = { listen: [address], workers: 2, drain_timeout: "1s" };
    const nodes = await startTestNodes({ server }, {}, { onFatal: resolve, workerEntry: entry });
    const channel = new BroadcastChannel("waypost test: die");
    channel.postMessage(how);
    const reason = await promise;
    channel.close();

    await nodes.stop();
    return reason;
  };

  test("throws outside of any request ends the process", async () => {
    expect(await die("out of order")).toMatch(/^worker 1 ended: (out of order|exit code 1)$/);
  }, 120_000);

  test("exits ends the process", async () => {
    expect(await die("exit")).toMatch(/^worker 1 ended: exit code 7$/);
  }, 120_000);

  test("can't begin keeps the node from starting, with its reason", async () => {
    const address = `127.0.0.1:${freePort()}`;
    const server = { listen: [address], workers: 2 };
    const workerEntry = new URL("../support/no-such-worker.ts", import.meta.url);
    await expect(startTestNodes({ server }, {}, { workerEntry })).rejects.toThrow(
      /^worker 1 ended before it was ready: /,
    );
    // A thread that still listened would keep the process alive, with its stores closed.
    await expect(fetch(`http://${address}/healthz`)).rejects.toThrow();
  }, 120_000);
});

test("an address that somebody else listens on is refused, though workers share theirs", async () => {
  const other = Bun.serve({ hostname: "127.0.0.1", port: 0, reusePort: true, fetch: () => new Response() });
  const server = { listen: [`127.0.0.1:${other.port}`], workers: 2 };
  await expect(startTestNodes({ server })).rejects.toThrow("can't be listened on");
  await other.stop(true);
}, 120_000);

test("a node whose only address is a Unix socket runs without workers and says so", async () => {
  const nodes = await startTestNodes({ server: { listen: [`unix:/tmp/waypost-${process.pid}.sock`], workers: 2 } });
  started.push(nodes);
  expect(nodes.workers).toBe(1);
  expect(nodes.lines.map(({ message }) => message)).toContain("the node runs without workers");
});
