/**
 * Live reception over running nodes: envelopes of a live session are on disk before they are acknowledged, and streams
 * of a Cache announce messages. With the SDK that `listen` and `receive --follow` use.
 */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { mkdtempSync, readdirSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { openInbox, type Round, storeMessage } from "../../src/cli/files/inbox.ts";
import { openJournal, openLiveChunks } from "../../src/cli/files/journal.ts";
import { fileSource } from "../../src/cli/files/outbox.ts";
import { activeDocument, connect } from "../../src/client/client.ts";
import { listenLive } from "../../src/client/connections.ts";
import type { LiveEnvelope } from "../../src/client/copies.ts";
import { digestOf, isComplete, listPending } from "../../src/client/copies.ts";
import { settleRegistration, waitingDefault } from "../../src/client/directory.ts";
import { ClientError } from "../../src/client/http.ts";
import { createIdentity, type Identity } from "../../src/client/keys.ts";
import { cachesOf, liveEndpoints } from "../../src/client/reader.ts";
import { firstDocument, register } from "../../src/client/registration.ts";
import { recipientOf } from "../../src/client/retrieve.ts";
import { recipientKey, retryingDefault, type SendPlan, sendPlan } from "../../src/client/send.ts";
import { startTestNodes, type TestNodes } from "../support/nodes.ts";

const scratch = mkdtempSync(join(tmpdir(), "waypost-live-"));
let nodes: TestNodes;
let client: ReturnType<typeof connect>;
let bob: Identity;

beforeAll(async () => {
  nodes = await startTestNodes();
  client = connect({ directoryUrl: nodes.url, relayUrl: nodes.url });
  bob = createIdentity("bob");
  const document = await firstDocument(bob, { relayUrl: nodes.url, cacheUrl: nodes.url });
  const waiting = { ...waitingDefault, timeoutMs: 10_000, intervalMs: 20 };
  await settleRegistration(client, await register(client, bob, { document, alias: null }), waiting);
});
afterAll(async () => {
  await nodes.stop();
  rmSync(scratch, { recursive: true, force: true });
});

async function send(name: string, length: number, chunkBytes = 1_000): Promise<string> {
  const path = join(scratch, name);
  writeFileSync(path, new Uint8Array(length).fill(7));
  const source = await fileSource(path, "application/octet-stream");
  const plan: SendPlan = {
    seed: crypto.getRandomValues(new Uint8Array(32)),
    to: bob.did,
    name: null,
    recipient: recipientKey(await activeDocument(client, bob.did)),
    file: source.file,
    chunkBytes,
    timestamp: new Date().toISOString(),
    ttl: "1h",
    tag: null,
    hint: null,
    sender: null,
  };
  const options = { relay: client.relay, retrying: retryingDefault, from: 0, onDelivered: () => undefined };
  return (await sendPlan(plan, source, options)).last?.delivery_mode ?? "";
}

/** Listens with `onEnvelope` while `work` runs; answers when the session has ended. */
async function whileListening(onEnvelope: (chunk: LiveEnvelope) => Promise<boolean>, work: () => Promise<void>) {
  const [post] = await liveEndpoints(client, bob, "laptop");
  if (post === undefined) throw new Error("no Relay to listen at");
  const stop = new AbortController();
  const ready = Promise.withResolvers<void>();
  const ended = listenLive(post, { onReady: ready.resolve, onEnvelope }, stop.signal);
  await Promise.race([ready.promise, ended]);
  await work();
  stop.abort();
  await ended;
}

test("a chunk set that comes live is on disk before it is acknowledged, and makes the file", async () => {
  const folder = join(scratch, "chunks");
  const chunks = await openLiveChunks(folder, Date.now());
  const kept: string[] = [];
  await whileListening(
    async (chunk) => {
      const put = await chunks.put(chunk);
      kept.push(chunk.messageId);
      expect(readdirSync(folder).filter((name) => name.endsWith(".json")).length).toBe(kept.length);
      return put;
    },
    async () => expect(await send("live.bin", 2_500)).toBe("direct"),
  );
  expect(new Set(kept).size).toBe(3);
  expect((await listPending(await cachesOf(client, bob, ""))).pending).toEqual([]);

  // A later run finds the chunks, makes the file, and forgets them.
  const again = await openLiveChunks(folder, Date.now());
  const { pending } = await listPending([], { local: again.held() });
  expect(pending.map(isComplete)).toEqual([true]);
  const journal = await openJournal(join(scratch, "state"), Date.now());
  const out = join(scratch, "out");
  for (const message of pending) {
    const options = { folder: out, journal, temporaryPrefix: ".t-" };
    expect((await storeMessage(message, recipientOf(client, bob), options)).sizeBytes).toBe(2_500);
    await again.remove(message.parts.flat());
  }
  await journal.close();
  expect(readdirSync(out)).toEqual(["live.bin"]);
  expect(readdirSync(folder)).toEqual([]);
});

/** An inbox that follows while `work` runs; returns the paths of what it stored. */
async function whileFollowing(device: string | null, work: (received: Promise<void>) => Promise<void>) {
  const inbox = await openInbox(client, bob, {
    folder: join(scratch, "in"),
    state: join(scratch, "in-state"),
    deviceId: "",
  });
  const stop = new AbortController();
  const [ready, received] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  const paths: string[] = [];
  const onRound = (round: Round) => {
    paths.push(...round.received.map(({ path }) => path));
    if (paths.length > 0) received.resolve();
    // Without a live session the first look shows that it follows.
    if (device === null) ready.resolve();
  };
  const ended = inbox.follow(
    { device, onRound, onEvent: ({ type }) => type === "connected" && ready.resolve() },
    stop.signal,
  );
  await Promise.race([ready.promise, ended]);
  await work(received.promise);
  stop.abort();
  await ended;
  await inbox.close();
  return paths;
}

test("an inbox that follows stores a live file in chunks, and leaves nothing behind", async () => {
  const paths = await whileFollowing("laptop", async (received) => {
    expect(await send("followed.bin", 2_500)).toBe("direct");
    await received;
  });
  expect(paths).toEqual([join(scratch, "in", "followed.bin")]);
  expect(readdirSync(join(scratch, "in-state", "chunks"))).toEqual([]);
  const [cache] = await cachesOf(client, bob, "");
  expect((await cache?.summary())?.count).toBe(0);
}, 60_000);

test("an inbox that follows the Caches alone stores what a stream announces, and acknowledges it", async () => {
  const paths = await whileFollowing(null, async (received) => {
    expect(await send("announced.bin", 10)).toBe("cache");
    await received;
  });
  expect(paths).toEqual([join(scratch, "in", "announced.bin")]);
  const [cache] = await cachesOf(client, bob, "");
  expect((await cache?.summary())?.count).toBe(0);
}, 60_000);

test("what is not kept is not acknowledged, and waits in the Cache", async () => {
  let offered = 0;
  await whileListening(
    async () => {
      offered++;
      return false;
    },
    async () => expect(await send("refused.bin", 10)).toBe("cache"),
  );
  expect(offered).toBe(1);
  const [cache] = await cachesOf(client, bob, "");
  const waiting = await cache?.summary();
  expect(waiting?.count).toBe(1);
  await cache?.ack(waiting?.messages.map(({ message_id }) => message_id) ?? []);
}, 120_000);

test("chunks that have expired are dropped when the folder is opened", async () => {
  const folder = join(scratch, "expired");
  // One fixed time: a busy machine took longer than the chunk lives.
  const nowMs = Date.now();
  const chunks = await openLiveChunks(folder, nowMs);
  const messageId = crypto.randomUUID();
  const envelope = { message_id: messageId };
  await chunks.put({ messageId, expiresAtMs: nowMs + 1_000, envelope });
  expect((await openLiveChunks(folder, nowMs)).has(digestOf(envelope))).toBe(true);
  expect((await openLiveChunks(folder, nowMs + 1_001)).has(digestOf(envelope))).toBe(false);
  expect(readdirSync(folder)).toEqual([]);
});

test("a chunk file that can't be read is kept: it may be the only copy", async () => {
  const folder = join(scratch, "unreadable");
  const chunks = await openLiveChunks(folder, Date.now());
  const messageId = crypto.randomUUID();
  const envelope = { message_id: messageId };
  await chunks.put({ messageId, expiresAtMs: Date.now() + 60_000, envelope });
  // A link to itself fails every read, whoever reads.
  symlinkSync("again.json", join(folder, "again.json"));
  expect(await openLiveChunks(folder, Date.now()).catch((error: NodeJS.ErrnoException) => error.code)).toBe("ELOOP");
  expect(readdirSync(folder).sort()).toEqual([`${digestOf(envelope)}.json`, "again.json"].sort());
});

test("a proof by a key that the document does not authorize ends the session with its code", async () => {
  const [post] = await liveEndpoints(client, bob, "laptop");
  if (post === undefined) throw new Error("no Relay to listen at");
  const forged = { ...post, signer: { ...post.signer, seed: new Uint8Array(32).fill(9) } };
  const events = { onReady: () => undefined, onEnvelope: async () => true };
  const error = await listenLive(forged, events, new AbortController().signal).catch((cause: unknown) => cause);
  expect(error instanceof ClientError && [error.kind, error.code]).toEqual(["refused", "proof_invalid"]);
});

test("a stream of a Cache announces a stored envelope", async () => {
  const [cache] = await cachesOf(client, bob, "");
  if (cache === undefined) throw new Error("no Cache");
  const stop = new AbortController();
  const news = Promise.withResolvers<void>();
  const ended = cache
    .stream({ onOpen: () => undefined, onNews: news.resolve }, stop.signal)
    .catch((cause: unknown) => cause);
  await send("news.bin", 10);
  await news.promise;
  stop.abort();
  await ended;
});
