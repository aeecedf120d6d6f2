/**
 * Several Caches of one recipient: one that can't be reached, copies in two of them, and others
 * that lie about what they hold. With the parts of the SDK that list, read and acknowledge.
 */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { receivedFiles } from "../../src/cli/files/received.ts";
import { change } from "../../src/client/identity/change.ts";
import type { Signer } from "../../src/client/keys/crypto.ts";
import { memoryKeys } from "../../src/client/keys/key-stores.ts";
import { type Identity, renderIdentity } from "../../src/client/keys/keys.ts";
import { readMessage, recipientOf, removeUnread } from "../../src/client/mail/retrieve.ts";
import { buildEnvelope, type SendPlan } from "../../src/client/mail/send.ts";
import { type CacheClient, listPending } from "../../src/client/net/caches.ts";
import { waitingDefault } from "../../src/client/net/directory.ts";
import { memoryStore } from "../../src/client/store/driver.ts";
import { cachesOf } from "../../src/client/trust/caches.ts";
import { type Client, connect } from "../../src/client/trust/client.ts";
import { Waypost } from "../../src/client/waypost.ts";
import { enrolAt } from "../support/enrolled.ts";
import { freePort } from "../support/executable.ts";
import { startTestNodes, type TestNodes } from "../support/nodes.ts";
import { planOf, sendFile } from "../support/sent-files.ts";

const scratch = mkdtempSync(join(tmpdir(), "waypost-caches-"));
const waiting = { ...waitingDefault, timeoutMs: 60_000, intervalMs: 20 };
let nodes: TestNodes;
let second: TestNodes;
let client: Client;

const enrol = (name: string, cacheUrl = nodes.url): Promise<Identity> =>
  enrolAt(client, name, { relayUrl: nodes.url, cacheUrl });

beforeAll(async () => {
  nodes = await startTestNodes();
  const address = `127.0.0.1:${freePort()}`;
  second = await startTestNodes({
    server: { listen: [address], recipients: nodes.url, drain_timeout: "2s" },
    directory: { enabled: false },
    relay: { enabled: false },
    cache: { enabled: true, public_endpoints: [`http://${address}`] },
  });
  client = connect({ directoryUrl: nodes.url, relayUrl: nodes.url });
});
afterAll(async () => {
  await Promise.all([nodes.stop(), second.stop()]);
  rmSync(scratch, { recursive: true, force: true });
});

const root = (identity: Identity): Signer => ({ keyId: "root", seed: identity.rootSeed });
let count = 0;
const freshFolder = () => join(scratch, `out${count++}`);

const planFor = (path: string, to: Identity, parts: Partial<SendPlan> = {}) =>
  planOf({ client, to: to.did, path, parts });
const send = (path: string, to: Identity, parts: Partial<SendPlan> = {}) =>
  sendFile({ client, to: to.did, path, parts });
function writeFile(name: string, content: string | Uint8Array): string {
  const path = join(scratch, name);
  writeFileSync(path, content);
  return path;
}

/** Receives what is complete as files, as `waypost receive` does. */
async function receive(identity: Identity, folder: string): Promise<void> {
  const keys = memoryKeys();
  await keys.save("default", renderIdentity({ ...identity, storeKey: new Uint8Array(32).fill(1) }));
  const me = await Waypost.open({
    url: nodes.url,
    keys,
    store: memoryStore(),
    waiting,
    acknowledge: "by-hand",
  });
  try {
    expect((await me.receiveWaiting()).isComplete).toBe(true);
    await Array.fromAsync(receivedFiles(me, folder));
  } finally {
    await me.close();
  }
}

test("one that can't be reached does not delay the other, and is named", async () => {
  const carol = await enrol("carol");
  const service = {
    id: `${carol.did}#cache-2`,
    type: "SvcCacheService",
    serviceEndpoint: ["http://127.0.0.1:1/"],
    authorization: [`${carol.did}#root`],
    priority: 1,
  };
  await change(
    client,
    { action: "AddService", did: carol.did, service },
    { signer: root(carol), waiting },
  );
  await send(writeFile("two.txt", "two"), carol);
  const caches = await cachesOf(client, carol);
  expect(caches.map(({ reader }) => reader.at.url)).toEqual(["http://127.0.0.1:1", nodes.url]);
  const { pending, unreachable } = await listPending(caches);
  expect(pending.length).toBe(1);
  expect(unreachable.map(({ endpoint, error }) => [endpoint, error.code])).toEqual([
    ["http://127.0.0.1:1", "unreachable"],
  ]);
});

test("copies in two Caches are one file, and are acknowledged in both", async () => {
  const carol = await enrol("carol.two");
  const service = {
    id: `${carol.did}#cache-2`,
    type: "SvcCacheService",
    serviceEndpoint: [second.url],
    authorization: [`${carol.did}#root`],
    priority: 1,
  };
  await change(
    client,
    { action: "AddService", did: carol.did, service },
    { signer: root(carol), waiting },
  );
  const { plan, source } = await planFor(writeFile("twice.txt", "twice"), carol);
  const { body } = await buildEnvelope(plan, 0, await source.read(0, 5));
  for (const { url } of [nodes, second]) {
    const headers = { "Content-Type": "application/json" };
    expect((await fetch(`${url}/cache/store`, { method: "POST", body, headers })).status).toBe(202);
  }
  const { pending } = await listPending(await cachesOf(client, carol));
  expect(pending.map(({ parts }) => parts.map((copies) => copies.length))).toEqual([[2]]);
  const folder = freshFolder();
  await receive(carol, folder);
  expect(readdirSync(folder)).toEqual(["twice.txt"]);
  for (const cache of await cachesOf(client, carol)) expect((await cache.summary()).count).toBe(0);
});

test("one that names another place in another file gets its own copy acknowledged, and no other", async () => {
  const dave = await enrol("dave.named");
  await send(writeFile("true.txt", "true"), dave);
  const [honest] = (await cachesOf(client, dave)) as [CacheClient];
  const place = { message_group_id: crypto.randomUUID(), sequence_number: 1, total_chunks: 1 };
  const summary: CacheClient["summary"] = async (cursor) => {
    const page = await honest.summary(cursor);
    return { ...page, messages: page.messages.map((message) => ({ ...message, ...place })) };
  };
  const reported: (readonly string[])[] = [];
  const ack: CacheClient["ack"] = async (ids) => {
    reported.push(ids);
    return { acked: ids.length, message_ids: [...ids] };
  };
  const liar = { ...honest, summary, ack };
  for (const caches of [[liar, honest] as const, [honest, liar] as const]) {
    const { pending } = await listPending(caches);
    expect(pending.map(({ parts }) => parts.map((copies) => copies.length))).toEqual([[1], [1]]);
    await removeUnread(
      pending.filter(({ groupId }) => groupId !== null).flatMap(({ parts }) => parts.flat()),
      { isAccepted: true },
    );
  }
  expect(reported.length).toBe(2);
  const folder = freshFolder();
  await receive(dave, folder);
  expect(readdirSync(folder)).toEqual(["true.txt"]);
});

test("one that answers the same page for ever is left after the second", async () => {
  const dave = await enrol("dave.round");
  await send(writeFile("round.txt", "round"), dave);
  const [honest] = (await cachesOf(client, dave)) as [CacheClient];
  let pages = 0;
  const summary: CacheClient["summary"] = async () => {
    if (++pages > 5) throw new Error("it is still listening");
    return { ...(await honest.summary()), next_cursor: `page-${pages}` };
  };
  const { pending } = await listPending([{ ...honest, summary }]);
  expect(pages).toBe(2);
  expect(pending.map(({ parts }) => parts.map((copies) => copies.length))).toEqual([[1]]);
});

test("one that answers with unreadable messages does not keep the others from being asked", async () => {
  const dave = await enrol("dave.kept");
  await send(writeFile("kept.txt", "kept"), dave);
  const [honest] = (await cachesOf(client, dave)) as [CacheClient];
  const message: CacheClient["message"] = async (id) => {
    const answer = await honest.message(id);
    const spoiled = { ...answer.message?.envelope, payload: { ciphertext_b64: "AAAA" } };
    return { ...answer, message: { ...answer.message, envelope: spoiled } } as typeof answer;
  };
  const { pending } = await listPending([{ ...honest, message }, honest]);
  const read = await Promise.all(pending.map((one) => readMessage(one, recipientOf(client, dave))));
  expect(read.map(({ name }) => name)).toEqual(["kept.txt"]);
});
