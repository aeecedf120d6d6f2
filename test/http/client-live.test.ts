/**
 * Live reception over running nodes: messages of a live session are files before they are acknowledged, and sessions
 * announce what Caches stored. With the store and the files of `receive --follow`.
 */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { receivedFiles } from "../../src/cli/files/received.ts";
import { fileSource } from "../../src/cli/files/source.ts";
import { ClientError } from "../../src/client/base/failure.ts";
import { type KeyStore, memoryKeys } from "../../src/client/keys/key-stores.ts";
import type { Identity } from "../../src/client/keys/keys.ts";
import { recipientKey, type SendPlan, sendPlan } from "../../src/client/mail/send.ts";
import type { LiveEnvelope } from "../../src/client/net/caches.ts";
import { listenLive } from "../../src/client/net/connections.ts";
import { memoryStore } from "../../src/client/store/driver.ts";
import { activeDocument, type Client } from "../../src/client/trust/client.ts";
import { cachesOf, liveEndpoints } from "../../src/client/trust/readers.ts";
import { Waypost } from "../../src/client/waypost.ts";
import { startTestNodes, type TestNodes } from "../support/nodes.ts";

const scratch = mkdtempSync(join(tmpdir(), "waypost-live-"));
let nodes: TestNodes;
let client: Client;
let me: Waypost;
const keys = memoryKeys();
let bob: Identity;

beforeAll(async () => {
  nodes = await startTestNodes();
  me = await Waypost.open({ url: nodes.url, keys, waiting: { timeoutMs: 60_000, intervalMs: 20 } });
  ({ client, identity: bob } = me);
});
afterAll(async () => {
  await me.close();
  await nodes.stop();
  rmSync(scratch, { recursive: true, force: true });
});

async function send(name: string, length: number, parts: Partial<SendPlan> = {}): Promise<string> {
  const path = join(scratch, name);
  writeFileSync(path, new Uint8Array(length).fill(7));
  const source = await fileSource(path, "application/octet-stream");
  const plan: SendPlan = {
    id: crypto.randomUUID(),
    seed: crypto.getRandomValues(new Uint8Array(32)),
    to: bob.did,
    name: null,
    trust: "unproven",
    recipient: recipientKey(await activeDocument(client, bob.did)),
    file: source.file,
    chunkBytes: 1_000,
    timestamp: new Date().toISOString(),
    ttl: "1h",
    tag: null,
    hint: null,
    sender: null,
    ...parts,
  };
  const options = { relay: client.relay };
  return (await sendPlan(plan, source, options)).last?.delivery_mode ?? "";
}

/** Listens with `onEnvelope` while `work` runs; answers when the session has ended. */
async function whileListening(
  onEnvelope: (chunk: LiveEnvelope) => Promise<boolean>,
  work: () => Promise<void>,
) {
  const [post] = await liveEndpoints(client, bob);
  if (post === undefined) throw new Error("no Relay to listen at");
  const stop = new AbortController();
  const ready = Promise.withResolvers<void>();
  const ended = listenLive(post, "laptop", { onReady: ready.resolve, onEnvelope }, stop.signal);
  await Promise.race([ready.promise, ended]);
  await work();
  stop.abort();
  await ended;
}

/** Writes what arrives as files, and calls back with the name of each. */
async function follow(keys: KeyStore, folder: string, onFile: (name: string) => void) {
  const ready = Promise.withResolvers<void>();
  let writing = Promise.resolve();
  const opened = await Waypost.open({
    url: nodes.url,
    keys,
    store: memoryStore(),
    onEvent: (event) => {
      if (event.type === "connected" && event.what === "live") ready.resolve();
      if (event.type !== "changed" || event.what !== "message") return;
      writing = writing.then(async () => {
        for await (const { path } of receivedFiles(opened, join(scratch, folder)))
          onFile(basename(path));
      });
    },
  });
  await ready.promise;
  return {
    close: async () => {
      await writing;
      await opened.close();
    },
  };
}

/** Receives while `work` runs, which waits until so many files are stored; returns their names. */
async function whileFollowing(work: (stored: (count: number) => Promise<void>) => Promise<void>) {
  const names: string[] = [];
  const following = await follow(keys, "in", (name) => names.push(name));
  await work(async (count) => {
    while (names.length < count) await Bun.sleep(5);
  });
  await following.close();
  const [cache] = await cachesOf(client, bob);
  expect((await cache?.summary())?.count).toBe(0);
  return names;
}

test("a store is given what comes live, and takes chunks from the Cache", async () => {
  const names = await whileFollowing(async (stored) => {
    expect(await send("whole.bin", 500)).toBe("direct");
    await stored(1);
    expect(await send("chunked.bin", 2_500)).toBe("cache");
    await stored(2);
  });
  expect(names).toEqual(["whole.bin", "chunked.bin"]);
}, 60_000);

test("a store is given what its session says a Cache has stored, and acknowledges it", async () => {
  const names = await whileFollowing(async (stored) => {
    expect(await send("first.bin", 10, { hint: "cache" })).toBe("cache");
    await stored(1);
    // No look is due for half a minute: only the session tells of this one.
    expect(await send("announced.bin", 10, { hint: "cache" })).toBe("cache");
    await stored(2);
  });
  expect(names).toEqual(["first.bin", "announced.bin"]);
}, 60_000);

test("a store is given what is sealed to a key that another program on the same keys has published meanwhile", async () => {
  const waiting = { timeoutMs: 60_000, intervalMs: 20 };
  const ownKeys = memoryKeys();
  const first = await Waypost.open({ url: nodes.url, keys: ownKeys, waiting });
  const stored = Promise.withResolvers<string>();
  const following = await follow(ownKeys, "new", stored.resolve);
  const weekLater = Date.now() + 7 * 86_400_000;
  const later = await Waypost.open({
    url: nodes.url,
    keys: ownKeys,
    waiting,
    nowMs: () => weekLater,
  });
  expect(later.identity.agreements.length).toBe(2);
  await me.send(first.did, "sealed to the new key", { name: "new.txt" });
  expect(await stored.promise).toBe("new.txt");
  await following.close();
  await Promise.all([first.close(), later.close()]);
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
  const [cache] = await cachesOf(client, bob);
  const waiting = await cache?.summary();
  expect(waiting?.count).toBe(1);
  await cache?.ack(waiting?.messages.map(({ message_id }) => message_id) ?? [], {
    isAccepted: true,
  });
}, 120_000);

test("a proof by a key that the document does not authorize ends the session with its code", async () => {
  const [post] = await liveEndpoints(client, bob);
  if (post === undefined) throw new Error("no Relay to listen at");
  const forged = { ...post, signer: { ...post.signer, seed: new Uint8Array(32).fill(9) } };
  const events = { onReady: () => undefined, onEnvelope: async () => true };
  const error = await listenLive(forged, "laptop", events, new AbortController().signal).catch(
    (cause: unknown) => cause,
  );
  expect(error instanceof ClientError && [error.kind, error.code]).toEqual([
    "refused",
    "proof_invalid",
  ]);
});
