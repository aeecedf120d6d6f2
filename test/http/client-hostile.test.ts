/**
 * A hostile Cache or Relay against the SDK: what it puts under the id of a message, signs again, or
 * lists next to it, never removes a message that was not opened, and never names another author.
 */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { receivedFiles } from "../../src/cli/files/received.ts";
import { ClientError } from "../../src/client/base/failure.ts";
import { change } from "../../src/client/identity/change.ts";
import { signEd25519 } from "../../src/client/keys/crypto.ts";
import { memoryKeys } from "../../src/client/keys/key-stores.ts";
import { renderIdentity } from "../../src/client/keys/keys.ts";
import { bytesSource } from "../../src/client/mail/content.ts";
import type { Message, WaypostEvent } from "../../src/client/mail/message.ts";
import { planSend } from "../../src/client/mail/plan.ts";
import { openEnvelope, recipientOf } from "../../src/client/mail/retrieve.ts";
import { sealPayload } from "../../src/client/mail/seal.ts";
import { buildEnvelope, recipientKey } from "../../src/client/mail/send.ts";
import {
  type CacheClient,
  type EnvelopeJson,
  isComplete,
  listPending,
} from "../../src/client/net/caches.ts";
import { askBytes, endpoint } from "../../src/client/net/http.ts";
import { memoryStore } from "../../src/client/store/driver.ts";
import { cachesOf } from "../../src/client/trust/caches.ts";
import { activeDocument, senderOf } from "../../src/client/trust/client.ts";
import { Waypost } from "../../src/client/waypost.ts";
import { encodeBase64, utf8 } from "../../src/core/codec/bytes.ts";
import { encodeSenderText } from "../../src/core/message/proof.ts";
import { clientCode } from "../support/client-code.ts";
import { freePort } from "../support/executable.ts";
import { startTestNodes, type TestNodes } from "../support/nodes.ts";
import { pause } from "../support/wait.ts";

const waiting = { timeoutMs: 60_000, intervalMs: 20 };
const scratch = mkdtempSync(join(tmpdir(), "waypost-hostile-"));
let nodes: TestNodes;
/** A Cache of somebody else, which stores whatever the test puts there. */
let other: TestNodes;

beforeAll(async () => {
  nodes = await startTestNodes();
  const address = `127.0.0.1:${freePort()}`;
  other = await startTestNodes({
    server: { listen: [address], recipients: nodes.url, drain_timeout: "2s" },
    directory: { enabled: false },
    relay: { enabled: false },
    cache: { enabled: true, public_endpoints: [`http://${address}`] },
  });
});
afterAll(async () => {
  await Promise.all([nodes.stop(), other.stop()]);
  rmSync(scratch, { recursive: true, force: true });
});

const open = (options: { readonly announce?: boolean } = {}) =>
  Waypost.open({ url: nodes.url, keys: memoryKeys(), waiting, ...options });

/** A recipient whose document names the other Cache first. */
async function openWithTwoCaches(): Promise<Waypost> {
  const me = await open();
  const service = {
    id: `${me.did}#cache-2`,
    type: "SvcCacheService",
    serviceEndpoint: [other.url],
    authorization: [`${me.did}#root`],
    priority: 1,
  };
  const signer = { keyId: "root", seed: me.identity.rootSeed };
  await change(me.client, { action: "AddService", did: me.did, service }, { signer, waiting });
  return me;
}

/** An envelope of a message of one chunk, and one of a stranger under the same id. */
async function envelopesOf(
  from: Waypost,
  to: Waypost,
): Promise<{ honest: EnvelopeJson; forged: EnvelopeJson }> {
  const parse = ({ body }: { body: Uint8Array }): EnvelopeJson =>
    JSON.parse(new TextDecoder().decode(body));
  const build = async (text: string, sender: Awaited<ReturnType<typeof senderOf>> | null) => {
    const { file } = bytesSource("", "text/plain", utf8(text));
    return { ...(await planSend(from.client, to.did, file, { sender, id })), seed };
  };
  const [id, seed] = [crypto.randomUUID(), crypto.getRandomValues(new Uint8Array(32))];
  const honest = await build("true", await senderOf(from.client, from.identity));
  const forged = await build("forged", null);
  return {
    honest: parse(await buildEnvelope(honest, 0, utf8("true"))),
    forged: parse(await buildEnvelope(forged, 0, utf8("forged"))),
  };
}

async function store(at: TestNodes, envelope: EnvelopeJson): Promise<void> {
  expect(await statusOfStore(at, envelope)).toBe(202);
}

async function statusOfStore(at: TestNodes, envelope: EnvelopeJson): Promise<number> {
  const headers = { "Content-Type": "application/json" };
  const stored = await fetch(`${at.url}/cache/store`, {
    method: "POST",
    body: JSON.stringify(envelope),
    headers,
  });
  return stored.status;
}

async function counts(me: Waypost): Promise<Record<string, number>> {
  const caches = await cachesOf(me.client, me.identity);
  const summaries = await Promise.all(caches.map((cache) => cache.summary()));
  return Object.fromEntries(
    caches.map((cache, i) => [
      cache.reader.at.url === other.url ? "other" : "own",
      summaries[i]?.count ?? -1,
    ]),
  );
}

async function take(
  me: Waypost,
  count: number,
  each: (message: Message) => Promise<void>,
): Promise<Message[]> {
  const taken: Message[] = [];
  for await (const message of me.messages()) {
    taken.push(message);
    await each(message);
    if (taken.length === count) break;
  }
  return taken;
}

test("two messages under one id are both handed over, the verified one first, and acknowledged one by one", async () => {
  const [alice, bob] = await Promise.all([open(), openWithTwoCaches()]);
  const { honest, forged } = await envelopesOf(alice, bob);
  expect(forged["message_id"]).toBe(honest["message_id"]);
  await store(other, forged);
  await store(nodes, honest);
  const got = await take(bob, 2, async (message) => {
    if (message.verified === true) await message.ack();
  });
  expect(got.map(({ text, from, verified }) => [text, from, verified])).toEqual([
    ["true", alice.did, true],
    ["forged", null, null],
  ]);
  expect(await counts(bob)).toEqual({ own: 0, other: 1 });
});

test("the same envelope in two Caches is one message, and acknowledged in both", async () => {
  const [alice, bob] = await Promise.all([open(), openWithTwoCaches()]);
  const { honest } = await envelopesOf(alice, bob);
  await store(other, honest);
  await store(nodes, honest);
  const got = await take(bob, 1, (message) => message.ack());
  expect(got.map(({ text }) => text)).toEqual(["true"]);
  expect(await counts(bob)).toEqual({ own: 0, other: 0 });
});

test("a Cache with garbage under the id of a message loses nothing of it, even when the garbage is discarded", async () => {
  const [alice, bob] = await Promise.all([open(), openWithTwoCaches()]);
  const { honest, forged } = await envelopesOf(alice, bob);
  const payload = {
    ...(forged["payload"] as object),
    ciphertext_b64: encodeBase64(new Uint8Array(64)),
  };
  await store(other, { ...forged, payload });
  await store(nodes, honest);
  const reported = Promise.withResolvers<Extract<WaypostEvent, { type: "unreadable" }>>();
  bob.on((event) => event.type === "unreadable" && reported.resolve(event));
  const got = await take(bob, 1, async () => (await reported.promise).discard());
  expect(got.map(({ text }) => text)).toEqual(["true"]);
  expect(await counts(bob)).toEqual({ own: 1, other: 0 });
});

/** The envelopes of a message in three chunks, and garbage under the id of one. */
async function chunksOf(from: Waypost, to: Waypost) {
  const { file, read } = bytesSource(
    "three.bin",
    "application/octet-stream",
    new Uint8Array(30).fill(7),
  );
  const sender = await senderOf(from.client, from.identity);
  const plan = await planSend(from.client, to.did, file, { sender, chunkBytes: 10 });
  const bodies = await Promise.all(
    [0, 1, 2].map(async (i) => buildEnvelope(plan, i, await read(10 * i, 10 * i + 10))),
  );
  const chunks = bodies.map(({ body }): EnvelopeJson => JSON.parse(new TextDecoder().decode(body)));
  const garbage = (i: number): EnvelopeJson => {
    const { from: _, sender_key_id: __, sender_signature: ___, ...unsigned } = chunks[i] ?? {};
    const payload = {
      ...(unsigned["payload"] as object),
      ciphertext_b64: encodeBase64(new Uint8Array(64)),
    };
    return { ...unsigned, payload } as EnvelopeJson;
  };
  return { chunks, garbage };
}

test("a chunk that another Cache has in another form is not acknowledged with its message", async () => {
  const [alice, bob] = await Promise.all([open(), openWithTwoCaches()]);
  const { chunks, garbage } = await chunksOf(alice, bob);
  for (const chunk of chunks) await store(nodes, chunk);
  await store(other, chunks[0] as EnvelopeJson);
  await store(other, garbage(1));
  const got = await take(bob, 1, (message) => message.ack());
  expect(got.map(({ sizeBytes, verified }) => [sizeBytes, verified])).toEqual([[30, true]]);
  expect(await counts(bob)).toEqual({ own: 0, other: 1 });
});

test("discarding garbage in the place of a chunk spares the chunks of the message beside it", async () => {
  const [alice, bob] = await Promise.all([open(), openWithTwoCaches()]);
  const { chunks, garbage } = await chunksOf(alice, bob);
  await store(nodes, chunks[0] as EnvelopeJson);
  for (const chunk of [garbage(0), ...chunks.slice(1)]) await store(other, chunk);
  const reported = Promise.withResolvers<Extract<WaypostEvent, { type: "unreadable" }>>();
  bob.on((event) => event.type === "unreadable" && reported.resolve(event));
  const got = await take(bob, 1, async () => (await reported.promise).discard());
  expect(got.map(({ sizeBytes, verified }) => [sizeBytes, verified])).toEqual([[30, true]]);
  expect(await counts(bob)).toEqual({ own: 1, other: 2 });
});

test("what a Relay brings live under the id of a message in the Cache acknowledges nothing of it", async () => {
  const [alice, bob] = await Promise.all([open(), open()]);
  const { honest, forged } = await envelopesOf(alice, bob);
  const connected = Promise.withResolvers<void>();
  bob.on((event) => event.type === "connected" && event.what === "live" && connected.resolve());
  const taking = take(bob, 3, async (message) => {
    expect((await counts(bob))["own"]).toBe(message.text === "true" ? 1 : 0);
    await message.ack();
    if (message.verified !== true) await store(nodes, honest);
  });
  await connected.promise;
  // It arrives when the reader has caught up with its Caches.
  await alice.send(bob.did, "live", { hint: "direct" });
  const headers = { "Content-Type": "application/json" };
  const relayed = await fetch(`${nodes.url}/relay`, {
    method: "POST",
    body: JSON.stringify(forged),
    headers,
  });
  expect(((await relayed.json()) as { delivery_mode: string }).delivery_mode).toBe("direct");
  expect((await taking).map(({ text, verified }) => [text, verified])).toEqual([
    ["live", true],
    ["forged", null],
    ["true", true],
  ]);
  expect((await counts(bob))["own"]).toBe(0);
});

/** The same identity with a store of its own, of which it writes files. */
async function withFiles(me: Waypost, folder: string) {
  const keys = memoryKeys();
  await keys.replace("default", null, renderIdentity(me.identity));
  const unreadable: string[] = [];
  const onEvent = (event: WaypostEvent) =>
    event.type === "unreadable" && void unreadable.push(event.code);
  const options = {
    url: nodes.url,
    keys,
    store: memoryStore(),
    waiting,
    onEvent,
    acknowledge: "by-hand",
  } as const;
  const opened = await Waypost.open(options);
  const receive = async () => {
    const { isComplete } = await opened.receiveWaiting();
    return { isComplete, received: await Array.fromAsync(receivedFiles(opened, folder)) };
  };
  return { receive, unreadable, close: () => opened.close() };
}

test("a store keeps both, and acknowledges only what it has", async () => {
  const [alice, bob] = await Promise.all([open(), openWithTwoCaches()]);
  const { honest, forged } = await envelopesOf(alice, bob);
  const folder = join(scratch, "in");
  const inbox = await withFiles(bob, folder);
  try {
    await store(nodes, honest);
    expect((await inbox.receive()).received.length).toBe(1);
    expect(await counts(bob)).toEqual({ own: 0, other: 0 });
    await store(other, forged);
    const [second] = (await inbox.receive()).received;
    expect([second?.message.from, second?.message.messageIds]).toEqual([
      null,
      [String(honest["message_id"])],
    ]);
    // There, the id belongs to what was acknowledged first.
    expect(await statusOfStore(other, honest)).toBe(409);
    expect((await inbox.receive()).received).toEqual([]);
    expect(await counts(bob)).toEqual({ own: 0, other: 0 });
  } finally {
    await inbox.close();
  }
  const texts = readdirSync(folder).map((name) => readFileSync(join(folder, name), "utf8"));
  expect(texts.sort()).toEqual(["forged", "true"]);
});

test("no envelope that a Cache makes up ends a store, at once or at its next look", async () => {
  const [alice, bob] = await Promise.all([open(), open()]);
  const { honest } = await envelopesOf(alice, bob);
  const payload = {
    ...(honest["payload"] as object),
    ciphertext_b64: encodeBase64(new Uint8Array(64)),
  };
  const unreadable = { toString: 1 };
  const deep = `${"[".repeat(20_000)}${"]".repeat(20_000)}`;
  const makeUp: readonly ((id: string) => unknown)[] = [
    () => null,
    () => [],
    () => ({ message_id: unreadable, to: bob.did, payload }),
    () => ({ message_id: unreadable, to: bob.did, payload, tag: "\ud800" }),
    (id) => ({ ...honest, message_id: id, ttl: unreadable, timestamp: unreadable, payload }),
    (id) => ({ ...honest, message_id: id, from: unreadable }),
    (id) => ({
      ...honest,
      message_id: id,
      from: alice.did,
      sender_key_id: unreadable,
      sender_signature: unreadable,
    }),
    (id) => ({ message_id: id, to: bob.did, payload: null, context: null }),
    (id) => ({ message_id: id, to: bob.did, payload: JSON.parse(deep) }),
    (id) => ({ ...honest, message_id: id, tag: JSON.parse(deep) }),
  ];
  const listed = new Map(makeUp.map((make) => [crypto.randomUUID() as string, make]));
  // It also goes on to offer what was received, and says no time for it.
  listed.set(String(honest["message_id"]), () => honest);
  const hostile = Bun.serve({
    port: 0,
    hostname: "127.0.0.1",
    fetch: ({ url }) => {
      const { pathname } = new URL(url);
      const entries = [...listed].map(([message_id, make]) => ({
        message_id,
        expires_at: "soon",
        envelope: make(message_id),
      }));
      if (pathname.startsWith("/cache/summary/"))
        return Response.json({ count: entries.length, messages: entries, has_more: false });
      if (pathname.startsWith("/cache/messages/"))
        return Response.json({ count: 0, messages: [], has_more: false });
      const message = entries.find(({ message_id }) => pathname.endsWith(message_id));
      return Response.json({ state: "active", message, messages: [], acked: 0, message_ids: [] });
    },
  });
  const service = {
    id: `${bob.did}#cache-2`,
    type: "SvcCacheService",
    serviceEndpoint: [`http://127.0.0.1:${hostile.port}`],
    authorization: [`${bob.did}#root`],
    priority: 1,
  };
  const signer = { keyId: "root", seed: bob.identity.rootSeed };
  await change(bob.client, { action: "AddService", did: bob.did, service }, { signer, waiting });
  await store(nodes, honest);
  const inbox = await withFiles(bob, join(scratch, "made-up"));
  try {
    for (const count of [1, 0]) {
      const { received, isComplete } = await inbox.receive();
      expect(received.length).toBe(count);
      expect(inbox.unreadable.length + Number(!isComplete)).toBeGreaterThan(0);
    }
    await inbox.close();
  } finally {
    await hostile.stop(true);
  }
});

test("a message that somebody else signs again is not verified, and one that names no author still is", async () => {
  // In the second version the envelope is bound: nothing changed opens at all.
  const [alice, bob, mallory] = await Promise.all([open(), open({ announce: false }), open()]);
  const sign = async (envelope: EnvelopeJson, by: Waypost): Promise<EnvelopeJson> => {
    const signer = await senderOf(by.client, by.identity);
    const members: EnvelopeJson = { ...envelope, from: by.did, sender_key_id: signer.keyId };
    return {
      ...members,
      sender_signature: encodeBase64(await signEd25519(encodeSenderText(members), signer.seed)),
    };
  };
  const { honest, forged: unsigned } = await envelopesOf(alice, bob);
  const recipient = recipientOf(bob.client, bob.identity);
  expect((await openEnvelope(honest, recipient)).from).toEqual({
    did: alice.did,
    verified: true,
    trust: "proven",
    distrusted: null,
  });
  for (const stolen of [honest, unsigned]) {
    const signed = await sign(stolen, mallory);
    const times = { sentAtMs: null, foundMs: performance.now() };
    expect(await recipient.senderOf(signed, { essence: "text/plain", home: null }, times)).toEqual({
      did: mallory.did,
      verified: true,
      trust: "proven",
      distrusted: null,
    });
    expect((await openEnvelope(signed, recipient)).from).toEqual({
      did: mallory.did,
      verified: false,
      trust: null,
      distrusted: null,
    });
  }

  const data = utf8("as others write it");
  const binding = { messageId: String(honest["message_id"]), to: bob.did, chunk: null };
  const { file } = bytesSource("", "text/plain", data);
  const entropy = { ephemeralSecret: new Uint8Array(32).fill(1), nonce: new Uint8Array(12) };
  const to = recipientKey(await activeDocument(bob.client, bob.did));
  const payload = await sealPayload({ binding, file, data, recipient: to, entropy });
  const opened = await openEnvelope(
    await sign({ ...honest, payload: { ...payload } }, alice),
    recipient,
  );
  expect([opened.from, opened.file.mediaType]).toEqual([
    { did: alice.did, verified: true, trust: "proven", distrusted: null },
    "text/plain",
  ]);
});

test("no message under new keys is called forged, however soon after a look at the former ones it comes", async () => {
  const stored = { url: nodes.url, keys: memoryKeys(), store: memoryStore(), waiting };
  const [alice, bob] = await Promise.all([Waypost.open(stored), open()]);
  const recipient = recipientOf(bob.client, bob.identity);
  const newEnvelope = async () => (await envelopesOf(alice, bob)).honest;
  const verdict = async (envelope: EnvelopeJson) =>
    (await openEnvelope(envelope, recipient)).from?.verified;
  expect(await verdict(await newEnvelope())).toBe(true);
  for (let round = 1; round <= 2; round++) {
    await alice.devices.replaceKeys();
    const two = [await newEnvelope(), await newEnvelope()];
    expect(await Promise.all(two.map(verdict))).toEqual([true, true]);
  }
});

test("an envelope with both names of a member is refused, because a signature covers only one of them", async () => {
  const [alice, bob] = await Promise.all([open(), open()]);
  const recipient = recipientOf(bob.client, bob.identity);
  const { honest } = await envelopesOf(alice, bob);
  const { timestamp = "", to = "", ...rest } = honest;
  expect(
    (await openEnvelope({ ...rest, to, created_at: timestamp }, recipient)).from?.verified,
  ).toBe(true);
  expect(
    (await openEnvelope({ ...rest, recipient: to, timestamp }, recipient)).from?.verified,
  ).toBe(true);
  const forgedTime = { ...honest, created_at: timestamp, timestamp: "2020-01-01T00:00:00Z" };
  for (const forged of [forgedTime, { ...honest, recipient: to }])
    expect(await clientCode(() => openEnvelope(forged, recipient))).toBe("not_authentic");
});

test("members of a form that no text has end no program: the signature is wrong", async () => {
  const [alice, bob] = await Promise.all([open(), open({ announce: false })]);
  const recipient = recipientOf(bob.client, bob.identity);
  const { honest } = await envelopesOf(alice, bob);
  for (const change of [
    { ttl: { toString: 1 } },
    { encrypted_header: "\ud800" },
    { tag: { toString: null } },
  ])
    expect((await openEnvelope({ ...honest, ...change }, recipient)).from).toEqual({
      did: alice.did,
      verified: false,
      trust: null,
      distrusted: null,
    });
});

test("a sender whom this Directory does not know has no wrong signature", async () => {
  const elsewhere = await startTestNodes();
  try {
    const bob = await open();
    const stranger = await Waypost.open({ url: elsewhere.url, keys: memoryKeys(), waiting });
    const { file } = bytesSource("", "text/plain", utf8("hello"));
    const sender = await senderOf(stranger.client, stranger.identity);
    const plan = await planSend(bob.client, bob.did, file, { sender });
    const { body } = await buildEnvelope(plan, 0, utf8("hello"));
    const opened = await openEnvelope(
      JSON.parse(new TextDecoder().decode(body)),
      recipientOf(bob.client, bob.identity),
    );
    expect(opened.from).toEqual({
      did: stranger.did,
      verified: null,
      trust: null,
      distrusted: null,
    });
  } finally {
    await elsewhere.stop();
  }
});

test("a Cache that lists a hundred thousand ids hides nothing of the others", async () => {
  const [alice, bob] = await Promise.all([open(), open()]);
  const { honest: envelope } = await envelopesOf(alice, bob);
  await store(nodes, envelope);
  const [honest] = (await cachesOf(bob.client, bob.identity)) as [CacheClient];
  const page = Array.from({ length: 100_000 }, () => crypto.randomUUID());
  const listing = page.map((message_id) => ({ message_id, expires_at: "2030-01-01T00:00:00Z" }));
  const at = { ...honest.reader.at, url: "http://127.0.0.1:1" };
  const liar = {
    ...honest,
    reader: { ...honest.reader, at },
    summary: async () => ({ count: listing.length, messages: listing }),
  };
  const { pending } = await listPending([liar, honest]);
  const ids = pending.filter(isComplete).map(({ parts }) => parts[0]?.[0]?.messageId);
  expect(ids.indexOf(String(envelope["message_id"]))).toBeLessThanOrEqual(1);
  expect(ids.indexOf(String(envelope["message_id"]))).toBeGreaterThanOrEqual(0);
});

test("a Cache that lists without end, or does not give what it lists, delays the others for a moment only", async () => {
  const bob = await open();
  const [honest] = (await cachesOf(bob.client, bob.identity)) as [CacheClient];
  const reader = {
    ...honest.reader,
    at: { ...honest.reader.at, url: "http://127.0.0.1:1", timeoutMs: 100 },
  };
  let asked = 0;
  const liar: CacheClient = {
    ...honest,
    reader,
    summary: async () => {
      await pause(5, "the pace of a Cache");
      const messages = [{ message_id: crypto.randomUUID(), expires_at: "2030-01-01T00:00:00Z" }];
      return { count: 1, messages, next_cursor: crypto.randomUUID() };
    },
    messages: async () => ({ count: 0, messages: [] }),
    message: async () => {
      asked++;
      throw new ClientError("timed_out", "timed_out", "it did not answer");
    },
  };
  const { pending } = await listPending([liar, honest]);
  expect(pending.length).toBeGreaterThan(0);
  for (const { parts } of pending)
    expect(await clientCode(async () => parts[0]?.[0]?.read())).toBe("timed_out");
  expect(asked).toBe(1);
});

test("an answer of the largest size is read, and one byte more is refused", async () => {
  const server = Bun.serve({
    port: 0,
    hostname: "127.0.0.1",
    fetch: () => new Response(new Uint8Array(1_000)),
  });
  const to = endpoint(`http://127.0.0.1:${server.port}`);
  const read = (bytesMax: number) => askBytes(to, { method: "GET", path: "/" }, bytesMax);
  expect((await read(1_000)).length).toBe(1_000);
  expect(await clientCode(() => read(999))).toBe("too_large");
  await server.stop(true);
});
