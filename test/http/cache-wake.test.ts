/** The wake hook against a real listener: its content, its rate, and that its failures affect nothing else. */
import { afterEach, describe, expect, test } from "bun:test";
import { connect } from "../../src/client/client.ts";
import { settleRegistration, waitingDefault } from "../../src/client/directory.ts";
import { createIdentity } from "../../src/client/keys.ts";
import { firstDocument, register } from "../../src/client/registration.ts";
import { utf8 } from "../../src/core/codec/bytes.ts";
import { sha256 } from "../../src/core/codec/crypto.ts";
import { createWakeHook, type WakeHook } from "../../src/nodes/cache/wake.ts";
import { createPerson } from "../support/cache-node.ts";
import { freePort } from "../support/executable.ts";
import { startTestNodes } from "../support/nodes.ts";
import { cacheDefault } from "../support/settings.ts";

const bob = createPerson(1);
const alice = createPerson(2);
const digest = (did: string) => sha256(utf8(did)).toHex();

type Heard = { body: unknown; contentType: string | null };
const open: { stop: () => unknown }[] = [];
afterEach(async () => {
  for (const one of open.splice(0)) await one.stop();
});

/** A listener that keeps what it gets and answers with `answer`. */
function listener(answer: () => Response | Promise<Response>) {
  const heard: Heard[] = [];
  const arrivals: (() => void)[] = [];
  const server = Bun.serve({
    port: 0,
    hostname: "127.0.0.1",
    fetch: async (request) => {
      heard.push({ body: await request.json(), contentType: request.headers.get("content-type") });
      for (const arrive of arrivals.splice(0)) arrive();
      return answer();
    },
  });
  open.push({ stop: () => server.stop(true) });
  const atLeast = async (count: number) => {
    while (heard.length < count) await new Promise<void>((resolve) => arrivals.push(resolve));
  };
  return { url: `http://127.0.0.1:${server.port}/wake`, heard, atLeast };
}

function hook(
  url: string,
  change: Parameters<typeof createWakeHook>[2] & { readonly wake_interval?: number } = {},
): { hook: WakeHook; lines: string[] } {
  const lines: string[] = [];
  const made = createWakeHook(
    { url, settings: { ...cacheDefault, ...change } },
    (_, message) => lines.push(message),
    change,
  );
  open.push({ stop: () => made.close() });
  return { hook: made, lines };
}

describe("the wake hook", () => {
  test("sends a digest and a count, and nothing else", async () => {
    const { url, heard, atLeast } = listener(() => new Response(null, { status: 204 }));
    hook(url).hook.stored(bob.did, false);
    await atLeast(1);
    expect(heard).toEqual([{ body: { recipient_digest: digest(bob.did), count: 1 }, contentType: "application/json" }]);
  });

  test("calls once per recipient and interval, and reports what came in between", async () => {
    const { url, heard, atLeast } = listener(() => new Response());
    const { hook: wake } = hook(url, { wake_interval: 60 });
    for (let i = 0; i < 5; i++) wake.stored(bob.did, false);
    wake.stored(alice.did, false);
    await atLeast(3);
    expect(heard.map(({ body }) => body)).toEqual([
      { recipient_digest: digest(bob.did), count: 1 },
      { recipient_digest: digest(alice.did), count: 1 },
      { recipient_digest: digest(bob.did), count: 4 },
    ]);
  });

  test("makes no call while a stream of the recipient is open, or after its own end", async () => {
    const { url, heard, atLeast } = listener(() => new Response());
    const { hook: wake } = hook(url);
    wake.stored(bob.did, true);
    wake.stored(alice.did, false);
    await atLeast(1);
    wake.close();
    wake.stored(bob.did, false);
    expect(heard.map(({ body }) => body)).toEqual([{ recipient_digest: digest(alice.did), count: 1 }]);
  });

  test("keeps what it could not report while too many calls are in flight", async () => {
    const release = Promise.withResolvers<Response>();
    const { url, heard, atLeast } = listener(() => release.promise);
    const { hook: wake } = hook(url, { wake_interval: 40, inFlightMax: 1 });
    wake.stored(bob.did, false);
    wake.stored(alice.did, false);
    await atLeast(1);
    // A second call at once would come now, and this is longer than it takes.
    await Bun.sleep(100);
    expect(heard.length).toBe(1);
    release.resolve(new Response());
    await atLeast(2);
    expect(heard.map(({ body }) => body)).toEqual([
      { recipient_digest: digest(bob.did), count: 1 },
      { recipient_digest: digest(alice.did), count: 1 },
    ]);
  });

  test("remembers a bounded number of recipients", async () => {
    const { url, heard, atLeast } = listener(() => new Response());
    const { hook: wake } = hook(url, { recipientsMax: 1, wake_interval: 40 });
    wake.stored(bob.did, false);
    wake.stored(alice.did, false);
    wake.stored(bob.did, false);
    await atLeast(2);
    expect(heard.map(({ body }) => body)).toEqual(
      [1, 1].map((count) => ({ recipient_digest: digest(bob.did), count })),
    );
  });

  test.each([
    ["an error", () => new Response(null, { status: 500 })],
    ["a redirect", () => new Response(null, { status: 307, headers: { location: "http://127.0.0.1:1/" } })],
    ["no answer", () => new Promise<Response>(() => {})],
  ] as const)("logs %s and goes on", async (_, answer) => {
    const { url, heard, atLeast } = listener(answer);
    const { hook: wake, lines } = hook(url, { wake_interval: 30, timeoutMs: 300 });
    wake.stored(bob.did, false);
    wake.stored(bob.did, false);
    await atLeast(2);
    // A call without an answer ends later than the next interval begins.
    while (lines.length === 0) await Bun.sleep(5);
    expect(heard).toHaveLength(2);
  });
});

describe("nodes of a configuration with cache.wake_url", () => {
  test("report what waits, each recipient by its digest", async () => {
    const { url, heard, atLeast } = listener(() => new Response(null, { status: 204 }));
    const address = `127.0.0.1:${freePort()}`;
    const nodes = await startTestNodes(
      {
        server: { listen: [address], drain_timeout: "2s" },
        cache: { enabled: true, public_endpoints: [`http://${address}`], wake_url: url },
      },
      { cache: { wake_interval: 1_000 } },
    );
    open.push({ stop: nodes.stop });
    const client = connect({ directoryUrl: nodes.url, relayUrl: nodes.url });
    const identity = createIdentity("sleeper");
    const document = await firstDocument(identity, { relayUrl: nodes.url, cacheUrl: nodes.url });
    const registered = await register(client, identity, { document, alias: null });
    await settleRegistration(client, registered, { ...waitingDefault, timeoutMs: 10_000, intervalMs: 20 });
    for (let i = 0; i < 3; i++) {
      const timestamp = new Date().toISOString();
      const payload = { ciphertext_b64: "AAAA" };
      const envelope = { message_id: crypto.randomUUID(), to: identity.did, timestamp, payload };
      const init = { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(envelope) };
      expect((await fetch(`${nodes.url}/relay`, init)).status).toBe(202);
    }
    await atLeast(2);
    expect(heard.map(({ body }) => body)).toEqual([
      { recipient_digest: digest(identity.did), count: 1 },
      { recipient_digest: digest(identity.did), count: 2 },
    ]);
  });
});
