/**
 * The SDK and the commands over running nodes: identities, every change, files of all sizes, several
 * Caches, and what must not happen: a second copy, an acknowledgement of what is not on disk.
 */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { ed25519 } from "@noble/curves/ed25519.js";
import { type ReceivedFile, receivedFiles } from "../../src/cli/files/received.ts";
import { fileSource } from "../../src/cli/files/source.ts";
import { ClientError } from "../../src/client/base/failure.ts";
import { change, changeAsOwner, signIntent } from "../../src/client/identity/change.ts";
import { firstDocument, register } from "../../src/client/identity/registration.ts";
import type { Signer } from "../../src/client/keys/crypto.ts";
import { memoryKeys } from "../../src/client/keys/key-stores.ts";
import { createIdentity, type Identity, renderIdentity } from "../../src/client/keys/keys.ts";
import type { WaypostEvent } from "../../src/client/mail/message.ts";
import { readMessage, recipientOf, removeUnread } from "../../src/client/mail/retrieve.ts";
import {
  buildEnvelope,
  chunkCount,
  recipientKey,
  type SendPlan,
  sendPlan,
} from "../../src/client/mail/send.ts";
import { type CacheClient, listPending, type PendingMessage } from "../../src/client/net/caches.ts";
import { settleRegistration, waitingDefault } from "../../src/client/net/directory.ts";
import { memoryStore, type StoreDriver } from "../../src/client/store/driver.ts";
import { activeDocument, connect, lookUp, senderOf } from "../../src/client/trust/client.ts";
import { cachesOf } from "../../src/client/trust/readers.ts";
import { Waypost } from "../../src/client/waypost.ts";
import type { Intent } from "../../src/core/ledger/actions.ts";
import { freePort } from "../support/executable.ts";
import { startTestNodes, type TestNodes } from "../support/nodes.ts";

const scratch = mkdtempSync(join(tmpdir(), "waypost-journey-"));
const waiting = { ...waitingDefault, timeoutMs: 60_000, intervalMs: 20 };
let nodes: TestNodes;
let second: TestNodes;
let client: ReturnType<typeof connect>;
let alice: Identity;
let bob: Identity;

async function enrol(name: string, cacheUrl = nodes.url): Promise<Identity> {
  const identity = createIdentity(name);
  const document = await firstDocument(identity, { relayUrl: nodes.url, cacheUrl });
  await settleRegistration(
    client,
    await register(client, identity, { document, alias: name }),
    waiting,
  );
  return identity;
}

beforeAll(async () => {
  // A newcomer may fill half of the rest of his side, which 20 MB exceed in a mailbox of the default size.
  nodes = await startTestNodes({}, { cache: { recipient_bytes_max: 2 ** 30 } });
  const address = `127.0.0.1:${freePort()}`;
  second = await startTestNodes({
    server: { listen: [address], recipients: nodes.url, drain_timeout: "2s" },
    directory: { enabled: false },
    relay: { enabled: false },
    cache: { enabled: true, public_endpoints: [`http://${address}`] },
  });
  client = connect({ directoryUrl: nodes.url, relayUrl: nodes.url });
  [alice, bob] = await Promise.all([enrol("alice"), enrol("bob")]);
});
afterAll(async () => {
  await Promise.all([nodes.stop(), second.stop()]);
  rmSync(scratch, { recursive: true, force: true });
});

async function refusal(work: Promise<unknown>): Promise<string> {
  const error = await work.then(() => "nothing was refused").catch((cause: unknown) => cause);
  return error instanceof ClientError ? error.code : String(error);
}

const root = (identity: Identity): Signer => ({ keyId: "root", seed: identity.rootSeed });
let count = 0;
const freshFolder = () => join(scratch, `out${count++}`);

async function planFor(path: string, to: Identity, parts: Partial<SendPlan> = {}) {
  const source = await fileSource(path, "application/octet-stream");
  const plan: SendPlan = {
    id: crypto.randomUUID(),
    seed: crypto.getRandomValues(new Uint8Array(32)),
    to: to.did,
    name: null,
    trust: "unproven",
    recipient: recipientKey(await activeDocument(client, to.did)),
    file: source.file,
    chunkBytes: 1_000_000,
    timestamp: new Date().toISOString(),
    ttl: "1h",
    tag: null,
    hint: null,
    sender: null,
    ...parts,
  };
  return { plan, source };
}

async function send(path: string, to: Identity, parts: Partial<SendPlan> = {}) {
  const { plan, source } = await planFor(path, to, parts);
  const options = { relay: client.relay };
  return sendPlan(plan, source, options);
}

function writeFile(name: string, content: string | Uint8Array): string {
  const path = join(scratch, name);
  writeFileSync(path, content);
  return path;
}

const stores = new Map<string, StoreDriver>();

/** Receives what is complete as files, as `waypost receive` does; `refused`: codes of what can't be opened. */
async function receive(
  identity: Identity,
  folder: string,
  refused: string[] = [],
): Promise<ReceivedFile[]> {
  const store = stores.get(identity.name) ?? memoryStore();
  stores.set(identity.name, store);
  const keys = memoryKeys();
  const storeKey = new Uint8Array(32).fill(1);
  await keys.save("default", renderIdentity({ ...identity, storeKey }));
  const onEvent = (event: WaypostEvent) =>
    event.type === "unreadable" && void refused.push(event.code);
  const me = await Waypost.open({
    url: nodes.url,
    keys,
    store,
    waiting,
    onEvent,
    acknowledge: "by-hand",
  });
  try {
    expect((await me.receiveWaiting()).isComplete).toBe(true);
    return await Array.fromAsync(receivedFiles(me, folder));
  } finally {
    await me.close();
  }
}

describe("files", () => {
  const random = (length: number) => {
    const bytes = new Uint8Array(length);
    for (let at = 0; at < length; at += 65_536)
      crypto.getRandomValues(bytes.subarray(at, at + 65_536));
    return bytes;
  };
  const rows: [name: string, content: Uint8Array, chunks: number][] = [
    ["text", new TextEncoder().encode("Meet me at noon.\n"), 1],
    ["nothing", new Uint8Array(0), 1],
    ["exactly one chunk", random(1_000_000), 1],
    ["one byte more", random(1_000_001), 2],
    ["20 MB", random(20_000_000), 20],
  ];
  for (const [name, content, chunks] of rows) {
    test(`${name} arrives as it was, once, and is gone from the Cache`, async () => {
      const path = writeFile(`${name}.bin`, content);
      const sender = await senderOf(client, alice);
      expect((await send(path, bob, { sender })).chunks).toBe(chunks);
      const folder = freshFolder();
      const [received] = await receive(bob, folder);
      expect(readdirSync(folder)).toEqual([`${name}.bin`]);
      expect(Buffer.compare(readFileSync(join(folder, `${name}.bin`)), content)).toBe(0);
      expect(received?.message).toMatchObject({
        from: alice.did,
        verified: true,
        trust: "unproven",
        distrusted: null,
      });
      expect((await listPending(await cachesOf(client, bob))).pending).toEqual([]);
    });
  }

  test("a file that is offered again is not stored twice", async () => {
    const { plan, source } = await planFor(writeFile("once.txt", "once"), bob);
    const { body } = await buildEnvelope(plan, 0, await source.read(0, 4));
    const headers = { "Content-Type": "application/json" };
    const folder = freshFolder();
    for (const count of [1, 0]) {
      expect(
        (await fetch(`${nodes.url}/cache/store`, { method: "POST", body, headers })).status,
      ).toBe(202);
      expect((await receive(bob, folder)).length).toBe(count);
    }
    expect(readdirSync(folder)).toEqual(["once.txt"]);
    expect((await listPending(await cachesOf(client, bob))).pending).toEqual([]);
  });

  test("a set that lacks a chunk waits, and is received when the chunk arrives", async () => {
    const path = writeFile("late.bin", new Uint8Array(2_500));
    const { plan, source } = await planFor(path, bob, { chunkBytes: 1_000 });
    const options = { relay: client.relay };
    await sendPlan(plan, source, { ...options, from: 1 });
    const folder = freshFolder();
    expect(await receive(bob, folder)).toEqual([]);
    const { pending } = await listPending(await cachesOf(client, bob));
    expect(pending.map((message: PendingMessage) => [message.parts.length, message.total])).toEqual(
      [[2, 3]],
    );
    await sendPlan(plan, source, { ...options, from: 0 });
    expect((await receive(bob, folder)).length).toBe(1);
  });

  test("a chunk that is not what was sealed leaves no file and stays in the Cache", async () => {
    const path = writeFile("forged.bin", new Uint8Array(10).fill(1));
    const { plan } = await planFor(path, bob);
    const forged = { ...plan, file: { ...plan.file, sha256: new Uint8Array(32) } };
    const { body } = await buildEnvelope(forged, 0, new Uint8Array(10).fill(1));
    expect(chunkCount(forged)).toBe(1);
    const posted = await fetch(`${nodes.url}/relay`, {
      method: "POST",
      body,
      headers: { "Content-Type": "application/json" },
    });
    expect(posted.status).toBe(202);
    const folder = freshFolder();
    const refused: string[] = [];
    expect(await receive(bob, folder, refused)).toEqual([]);
    expect(refused).toEqual(["not_authentic"]);
    expect(readdirSync(folder)).toEqual([]);
    const { pending } = await listPending(await cachesOf(client, bob));
    expect(pending.length).toBe(1);
    await removeUnread(
      pending.flatMap(({ parts }) => parts.flat()),
      { isAccepted: true },
    );
  });

  test("names from the network stay inside the folder and replace nothing", async () => {
    const path = writeFile("note.txt", "x");
    const { plan, source } = await planFor(path, bob);
    const options = { relay: client.relay };
    for (const name of ["../../escape.txt", "escape.txt", "/etc/escape.txt"]) {
      const file = { ...plan.file, name };
      await sendPlan(
        {
          ...plan,
          file,
          id: crypto.randomUUID(),
          seed: crypto.getRandomValues(new Uint8Array(32)),
        },
        source,
        options,
      );
    }
    const folder = freshFolder();
    await receive(bob, folder);
    const names = readdirSync(folder).sort();
    const taken = expect.stringMatching(/^escape \([0-9a-f]{8}\)\.txt$/);
    expect(names).toEqual([taken, taken, "escape.txt"]);
    const file = { ...plan.file, name: `${" ".repeat(400_000)}long${" ".repeat(400_000)}.txt` };
    await sendPlan(
      { ...plan, file, id: crypto.randomUUID(), seed: crypto.getRandomValues(new Uint8Array(32)) },
      source,
      options,
    );
    const [long] = await receive(bob, folder);
    expect([long?.message.name.length, readdirSync(folder).length]).toEqual([1_024, 4]);
  });
});

describe("several Caches", () => {
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
      expect((await fetch(`${url}/cache/store`, { method: "POST", body, headers })).status).toBe(
        202,
      );
    }
    const { pending } = await listPending(await cachesOf(client, carol));
    expect(pending.map(({ parts }) => parts.map((copies) => copies.length))).toEqual([[2]]);
    const folder = freshFolder();
    await receive(carol, folder);
    expect(readdirSync(folder)).toEqual(["twice.txt"]);
    for (const cache of await cachesOf(client, carol))
      expect((await cache.summary()).count).toBe(0);
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
    const read = await Promise.all(
      pending.map((one) => readMessage(one, recipientOf(client, dave))),
    );
    expect(read.map(({ name }) => name)).toEqual(["kept.txt"]);
  });
});

describe("changes", () => {
  test("every component, alias and key can be changed and is seen in the record", async () => {
    const dave = await enrol("dave");
    const { did } = dave;
    const options = { signer: root(dave), waiting };
    const key = (id: string) => ({
      id: `${did}#${id}`,
      type: "Multikey",
      controller: did,
      publicKeyMultibase: "z6MkvDqGT54cXesYGvABpF1UapVNwjCqRcafi4Px6Thv5T3Z",
    });
    const service = {
      id: `${did}#inbox`,
      type: "SvcInboxService",
      serviceEndpoint: ["https://inbox.example"],
      authorization: null,
      priority: 3,
    };
    const newSeed = ed25519.utils.randomSecretKey();
    const intents: Intent[] = [
      { action: "AddVerificationMethod", did, verificationMethod: key("k1") },
      {
        action: "UpdateVerificationMethod",
        did,
        verificationMethod: { ...key("k1"), type: "Ed25519VerificationKey2020" },
      },
      { action: "AddAuthentication", did, id: `${did}#k1` },
      { action: "RemoveAuthentication", did, id: `${did}#k1` },
      { action: "RemoveVerificationMethod", did, id: `${did}#k1` },
      { action: "AddKeyAgreement", did, keyAgreement: key("x2") },
      {
        action: "UpdateKeyAgreement",
        did,
        keyAgreement: { ...key("x2"), type: "X25519KeyAgreementKey2020" },
      },
      { action: "RemoveKeyAgreement", did, id: `${did}#x2` },
      { action: "AddService", did, service },
      { action: "UpdateService", did, service: { ...service, priority: null, authorization: [] } },
      { action: "RemoveService", did, id: service.id },
      { action: "add_alias", did, alias: "dave.two" },
      { action: "update_alias", did, oldAlias: "dave.two", newAlias: "dave.three" },
      { action: "remove_alias", did, alias: "dave.three" },
      { action: "UpdateRootPubkey", did, newRootPubkey: ed25519.getPublicKey(newSeed) },
    ];
    let version = 1;
    for (const intent of intents) {
      await change(client, intent, options);
      const { version: shown } = await client.directory.resolve(did);
      expect([intent.action, shown]).toEqual([intent.action, ++version]);
    }
    const renewed = { ...options, signer: { keyId: "root", seed: newSeed } };
    const alias = { extrinsic: "set_alias" as const, did, value: "only" };
    await changeAsOwner(client, alias, renewed);
    expect((await client.directory.resolve(did)).aliases).toEqual(["only"]);
    expect(await lookUp(client, "Only")).toBe(did);
    const deactivate: Intent = { action: "deactivate_did", did };
    await change(client, deactivate, renewed);
    expect((await client.directory.resolve(did)).deactivated).toBe(true);
    expect(await refusal(activeDocument(client, did))).toBe("did_deactivated");
  }, 120_000);

  test("a deleted DID is gone, and its alias names nobody", async () => {
    const erin = await enrol("erin");
    const intent: Intent = { action: "delete_did", did: erin.did };
    await change(client, intent, { signer: root(erin), waiting });
    expect(await refusal(client.directory.resolve(erin.did))).toBe("did_not_found");
    expect(await refusal(lookUp(client, "erin"))).toBe("alias_not_found");
  });

  test("another's key and a used counter value are refused with the node's code", async () => {
    const intent: Intent = { action: "add_alias", did: bob.did, alias: "stolen" };
    expect(await refusal(change(client, intent, { signer: root(alice), waiting }))).toBe(
      "invalid_signature",
    );
    const stale = await signIntent(intent, root(bob), { nonce: 99n, nowMs: Date.now() });
    const error = await client.directory.submit(stale).catch((cause: unknown) => cause);
    expect(
      error instanceof ClientError && [error.code, error.status, error.extra.expected],
    ).toEqual(["nonce_mismatch", 409, "0"]);
  });

  test("a wait ends when its time is over", async () => {
    const gone = connect({ directoryUrl: "http://127.0.0.1:1", relayUrl: nodes.url });
    const never = { did: bob.did, tx_id: `0x${"00".repeat(32)}` };
    const error = await settleRegistration(gone, never, { timeoutMs: 100, intervalMs: 20 }).catch(
      (cause: unknown) => cause,
    );
    expect(error instanceof ClientError && error.kind).toBe("timed_out");
  });
});

describe("commands", () => {
  const keys = join(scratch, "keys");
  async function waypost(...args: string[]) {
    const main = join(import.meta.dir, "..", "..", "src", "main.ts");
    const env = { ...process.env, WAYPOST_URL: nodes.url, WAYPOST_KEYS: keys };
    const child = Bun.spawn([process.execPath, main, ...args], {
      cwd: scratch,
      env,
      stdout: "pipe",
      stderr: "pipe",
    });
    const [stdout, stderr, code] = await Promise.all([
      new Response(child.stdout).text(),
      new Response(child.stderr).text(),
      child.exited,
    ]);
    return { code, stdout, stderr };
  }
  const parsed = async (...args: string[]) => JSON.parse((await waypost(...args, "--json")).stdout);

  test("make, send, look, receive and remove", async () => {
    await Promise.all([
      waypost("did", "create", "--name", "fay"),
      waypost("did", "create", "--name", "gil"),
    ]);
    const { identities } = await parsed("did", "list");
    expect(identities.map(({ name }: { name: string }) => name)).toEqual(["fay", "gil"]);
    writeFile("hello.txt", "hello");
    const sent = await parsed("send", "--as", "fay", "--to", "gil", "--file", "hello.txt");
    expect([sent.ok, sent.code, sent.delivery_mode, sent.chunks]).toEqual([
      true,
      "cached",
      "cache",
      1,
    ]);
    expect((await parsed("query", "--as", "gil")).count).toBe(1);
    const { received } = await parsed("receive", "--as", "gil", "--out", "mail");
    expect(received[0]).toMatchObject({
      name: "hello.txt",
      size_bytes: 5,
      from: identities[0].did,
      from_verified: true,
    });
    await parsed("send", "--as", "fay", "--to", "gil", "--file", "hello.txt");
    expect((await waypost("purge", "--as", "gil", "--all")).code).toBe(1);
    expect((await parsed("purge", "--as", "gil", "--all", "--yes")).removed).toBe(1);
    expect((await parsed("query", "--as", "gil")).count).toBe(0);
  }, 120_000);

  test("a rotated root key signs, reads and sends from then on", async () => {
    const before = await parsed("did", "show", "--as", "fay");
    expect((await waypost("did", "rotate", "--as", "fay")).code).toBe(0);
    const after = await parsed("did", "show", "--as", "fay");
    expect(after.root_pubkey).not.toBe(before.root_pubkey);
    expect(after.document.verificationMethod[0].publicKeyMultibase).toBe(after.root_pubkey);
    writeFile("reply.txt", "reply");
    expect((await waypost("send", "--as", "gil", "--to", "fay", "--file", "reply.txt")).code).toBe(
      0,
    );
    expect((await waypost("receive", "--as", "fay", "--out", "fays")).stdout).toContain(
      "reply.txt",
    );
    expect((await waypost("send", "--as", "fay", "--to", "gil", "--file", "reply.txt")).code).toBe(
      0,
    );
    const { received } = await parsed("receive", "--as", "gil", "--out", "mail");
    expect(received[0].from_verified).toBe(true);
  }, 120_000);

  test("a message that can't be opened is named on standard error, and the command fails", async () => {
    const { did } = await parsed("did", "show", "--as", "gil");
    const id = crypto.randomUUID();
    const payload = { profile: "svc:plaintext-cbor:v1", ciphertext_b64: "AAAA" };
    const envelope = { message_id: id, to: did, timestamp: new Date().toISOString(), payload };
    const stored = await fetch(`${nodes.url}/cache/store`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify(envelope),
    });
    expect(stored.status).toBe(202);
    const { code, stdout, stderr } = await waypost("receive", "--as", "gil", "--out", "mail");
    expect([code, stdout.trim()]).toEqual([1, "Nothing was received."]);
    expect(stderr).toContain(`waypost purge --id ${id}`);
    const asJson = await waypost("receive", "--as", "gil", "--out", "mail", "--json");
    expect([asJson.code, JSON.parse(asJson.stdout)]).toMatchObject([
      1,
      { ok: false, received: [], problems: [{ what: id, code: "unknown_profile" }] },
    ]);
    expect((await waypost("purge", "--as", "gil", "--id", id, "--yes")).code).toBe(0);
    expect((await waypost("receive", "--as", "gil", "--out", "mail")).code).toBe(0);
  }, 120_000);

  const failures: [name: string, args: string[], code: number, said: string][] = [
    ["a name that is taken", ["did", "create", "--name", "fay"], 1, "already exists"],
    [
      "an unknown recipient",
      ["send", "--as", "fay", "--to", "nobody.here", "--file", "hello.txt"],
      1,
      "alias_not_found",
    ],
    [
      "a file that is not there",
      ["send", "--as", "fay", "--to", "gil", "--file", "absent"],
      1,
      "no_file",
    ],
    ["no identity chosen among several", ["receive", "--out", "x"], 1, "--as"],
    ["a command that does not exist", ["fly"], 1, "unknown command"],
    [
      "nothing that arrives in time",
      ["receive", "--as", "gil", "--out", "x", "--wait-for", "1s"],
      2,
      "nothing arrived",
    ],
  ];
  for (const [name, args, code, said] of failures) {
    test(`${name}: exit code ${code}`, async () => {
      const ran = await waypost(...args);
      expect([ran.code, ran.stderr.includes(said)]).toEqual([code, true]);
    });
  }
});
