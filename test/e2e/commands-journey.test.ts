/**
 * The journey of the commands: files of all sizes as `send` and `receive` handle them,
 * `receive --follow`, and the executable itself. What must not happen: a second copy, a name
 * outside of the folder, an acknowledgement of what is not on disk.
 */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { type ReceivedFile, receivedFiles } from "../../src/cli/files/received.ts";
import { type KeyStore, memoryKeys } from "../../src/client/keys/key-stores.ts";
import { type Identity, renderIdentity } from "../../src/client/keys/keys.ts";
import type { WaypostEvent } from "../../src/client/mail/message.ts";
import { removeUnread } from "../../src/client/mail/retrieve.ts";
import { buildEnvelope, chunkCount, type SendPlan, sendPlan } from "../../src/client/mail/send.ts";
import { listPending, type PendingMessage } from "../../src/client/net/caches.ts";
import { waitingDefault } from "../../src/client/net/directory.ts";
import { memoryStore, type StoreDriver } from "../../src/client/store/driver.ts";
import { cachesOf } from "../../src/client/trust/caches.ts";
import { type Client, connect, senderOf } from "../../src/client/trust/client.ts";
import { Waypost } from "../../src/client/waypost.ts";
import { enrolAt } from "../support/enrolled.ts";
import { run } from "../support/executable.ts";
import { startTestNodes, type TestNodes } from "../support/nodes.ts";
import { planOf, sendFile } from "../support/sent-files.ts";

const scratch = mkdtempSync(join(tmpdir(), "waypost-journey-"));
const waiting = { ...waitingDefault, timeoutMs: 60_000, intervalMs: 20 };
let nodes: TestNodes;
let client: Client;
let alice: Identity;
let bob: Identity;

const enrol = (name: string): Promise<Identity> =>
  enrolAt(client, name, { relayUrl: nodes.url, cacheUrl: nodes.url });

beforeAll(async () => {
  // A newcomer may fill half of the rest of his side, which 20 MB exceed in a mailbox of the
  // default size.
  nodes = await startTestNodes({}, { cache: { recipient_bytes_max: 2 ** 30 } });
  client = connect({ directoryUrl: nodes.url, relayUrl: nodes.url });
  [alice, bob] = await Promise.all([enrol("alice"), enrol("bob")]);
});
afterAll(async () => {
  await nodes.stop();
  rmSync(scratch, { recursive: true, force: true });
});

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

const stores = new Map<string, StoreDriver>();

/**
 * Receives what is complete as files, as `waypost receive` does; `refused`: codes of what can't be
 * opened.
 */
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

describe("receive --follow", () => {
  const keys = memoryKeys();
  let carol: Waypost;
  beforeAll(async () => {
    carol = await Waypost.open({ url: nodes.url, keys, waiting });
  });
  afterAll(() => carol.close());
  const sent = async (name: string, length: number, parts: Partial<SendPlan> = {}) => {
    const path = writeFile(name, new Uint8Array(length).fill(7));
    const plan = { chunkBytes: 1_000, ...parts };
    return (await sendFile({ client, to: carol.did, path, parts: plan })).last?.delivery_mode;
  };

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

  /**
   * Receives while `work` runs, which waits until so many files are stored; returns their names.
   */
  async function whileFollowing(work: (stored: (count: number) => Promise<void>) => Promise<void>) {
    const names: string[] = [];
    const following = await follow(keys, "in", (name) => names.push(name));
    await work(async (count) => {
      while (names.length < count) await Bun.sleep(5);
    });
    await following.close();
    const [cache] = await cachesOf(client, carol.identity);
    expect((await cache?.summary())?.count).toBe(0);
    return names;
  }

  test("a store is given what comes live, and takes chunks from the Cache", async () => {
    const names = await whileFollowing(async (stored) => {
      expect(await sent("whole.bin", 500)).toBe("direct");
      await stored(1);
      expect(await sent("chunked.bin", 2_500)).toBe("cache");
      await stored(2);
    });
    expect(names).toEqual(["whole.bin", "chunked.bin"]);
  }, 60_000);

  test("a store is given what its session says a Cache has stored, and acknowledges it", async () => {
    const names = await whileFollowing(async (stored) => {
      expect(await sent("first.bin", 10, { hint: "cache" })).toBe("cache");
      await stored(1);
      // No look is due for half a minute: only the session tells of this one.
      expect(await sent("announced.bin", 10, { hint: "cache" })).toBe("cache");
      await stored(2);
    });
    expect(names).toEqual(["first.bin", "announced.bin"]);
  }, 60_000);

  test("a store is given what is sealed to a key that another program on the same keys has published meanwhile", async () => {
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
    await carol.send(first.did, "sealed to the new key", { name: "new.txt" });
    expect(await stored.promise).toBe("new.txt");
    await following.close();
    await Promise.all([first.close(), later.close()]);
  }, 60_000);
});

describe("commands", () => {
  const keys = join(scratch, "keys");
  const waypost = (...args: string[]) =>
    run(args, { cwd: scratch, env: { WAYPOST_URL: nodes.url, WAYPOST_KEYS: keys } });
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
