/**
 * The journey of the SDK over running nodes: identities that are found again, messages of every
 * kind both ways, live and waiting, each once and none acknowledged unasked, garbage that stops
 * nothing, receipts, reactions and replaced keys.
 */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { ClientError } from "../../src/client/base/failure.ts";
import type { WaypostOptions } from "../../src/client/identity/opening.ts";
import { x25519PublicKey } from "../../src/client/keys/crypto.ts";
import { memoryKeys } from "../../src/client/keys/key-stores.ts";
import type { Message, WaypostEvent } from "../../src/client/mail/message.ts";
import { planSend } from "../../src/client/mail/plan.ts";
import type { LiveEnvelope } from "../../src/client/net/caches.ts";
import { listenLive } from "../../src/client/net/connections.ts";
import { memoryStore } from "../../src/client/store/driver.ts";
import { liveEndpoints } from "../../src/client/trust/readers.ts";
import { Waypost } from "../../src/client/waypost.ts";
import { lyingDirectory } from "../support/lying-directory.ts";
import { startTestNodes, type TestNodes } from "../support/nodes.ts";
import { waitingCount } from "../support/people.ts";

let nodes: TestNodes;
beforeAll(async () => {
  nodes = await startTestNodes();
});
afterAll(() => nodes.stop());

const waiting = { timeoutMs: 60_000, intervalMs: 20 };
const open = (options: Partial<WaypostOptions> = {}) =>
  Waypost.open({ url: nodes.url, keys: memoryKeys(), waiting, ...options });

/** Takes `count` messages and acknowledges them unless the test says otherwise. */
async function take(me: Waypost, count: number, { ack = true } = {}): Promise<Message[]> {
  const taken: Message[] = [];
  for await (const message of me.messages()) {
    taken.push(message);
    if (ack) await message.ack();
    if (taken.length === count) break;
  }
  return taken;
}

describe("an identity", () => {
  test("belongs to the ledger of its first use, and signs nothing for another", async () => {
    const keys = memoryKeys();
    const me = await open({ keys, rotateMs: false });
    const { genesis_hash: own } = (await (await fetch(`${nodes.url}/limits`)).json()) as {
      genesis_hash: string;
    };
    expect(`0x${me.identity.ledger}`).toBe(own);
    const posted: string[] = [];
    for (const change of [
      { genesis_hash: `0x${"ab".repeat(32)}` },
      { authorization_proofs: ["plain"] },
    ]) {
      const other = Bun.serve({
        hostname: "127.0.0.1",
        port: 0,
        fetch: async (request) => {
          const { pathname } = new URL(request.url);
          if (request.method !== "GET") posted.push(pathname);
          const answer = await fetch(`${nodes.url}${pathname}`);
          if (pathname !== "/limits") return new Response(await answer.bytes(), answer);
          return Response.json(
            { ...((await answer.json()) as object), ...change },
            { status: answer.status },
          );
        },
      });
      const elsewhere = await open({
        directoryUrl: `http://127.0.0.1:${other.port}`,
        keys,
        rotateMs: 0,
      }).catch((error: unknown) => error);
      // A rotation that fails is an event, and the identity goes on.
      expect(elsewhere).toBeInstanceOf(Waypost);
      const failures: string[] = [];
      if (elsewhere instanceof Waypost) {
        elsewhere.on((event) => event.type === "failed" && failures.push(event.error.code));
        await elsewhere.rotate();
      }
      await other.stop(true);
      expect(failures).toEqual(["other_ledger"]);
    }
    expect(posted).toEqual([]);
  });

  test("is made once and found again", async () => {
    const keys = memoryKeys();
    const first = await open({ keys });
    const again = await open({ keys });
    expect(again.did).toBe(first.did);
  });
});

describe("messages", () => {
  test("that wait arrive with text, JSON, bytes, names and a verified sender", async () => {
    const [alice, bob] = await Promise.all([open(), open()]);
    await alice.send(bob.did, "hello");
    await alice.send(bob.did, { n: 1 });
    await alice.send(bob.did, Uint8Array.of(0xff, 0));
    await alice.send(bob.did, new File(["a,b"], "t.csv", { type: "text/csv" }));
    await alice.send(bob.did, "unsigned", { anonymous: true });
    const got = await take(bob, 5);
    expect(got.map(({ text }) => text)).toEqual(["hello", '{"n":1}', null, "a,b", "unsigned"]);
    expect(got[1]?.json()).toEqual({ n: 1 });
    expect(got[2]?.bytes()).toEqual(Uint8Array.of(0xff, 0));
    expect([got[3]?.file.name, got[3]?.mediaType]).toEqual(["t.csv", "text/csv"]);
    expect(got.map(({ from }) => from)).toEqual([...Array(4).fill(alice.did), null]);
    expect(got.map(({ verified }) => verified)).toEqual([...Array(4).fill(true), null]);
    expect(Math.abs((got[0]?.sentAt.getTime() ?? 0) - Date.now())).toBeLessThan(60_000);
    expect(await waitingCount(bob)).toBe(0);
  });

  test("arrive live, and answers come back", async () => {
    const [alice, bob] = await Promise.all([open(), open()]);
    const echo = (async () => {
      for await (const message of bob.messages()) {
        await message.reply(`echo: ${message.text}`);
        await message.ack();
        break;
      }
    })();
    const connected = new Promise<void>((resolve) =>
      bob.on((event) => event.type === "connected" && event.what === "live" && resolve()),
    );
    await connected;
    const sent = await alice.send(bob.did, "ping");
    expect(sent.last?.delivery_mode).toBe("direct");
    await echo;
    const [answer] = await take(alice, 1);
    expect([answer?.text, answer?.from, answer?.replyTo]).toEqual(["echo: ping", bob.did, sent.id]);
    expect(await waitingCount(bob)).toBe(0);
  });

  test("in chunks are put together, with progress, whole or not at all", async () => {
    const [alice, bob] = await Promise.all([open(), open()]);
    const bytes = crypto.getRandomValues(new Uint8Array(60_000));
    const progress: number[] = [];
    const receiving = take(bob, 1);
    const sent = await alice.send(bob.did, bytes, {
      name: "data.bin",
      chunkBytes: 20_000,
      onProgress: ({ sentBytes }) => progress.push(sentBytes),
    });
    expect([sent.chunks, progress]).toEqual([3, [20_000, 40_000, 60_000]]);
    const [message] = await receiving;
    expect(message?.bytes()).toEqual(bytes);
    expect([message?.id, message?.messageIds.length]).toEqual([sent.id, 3]);
    expect(await waitingCount(bob)).toBe(0);
  }, 120_000);

  test("many that wait come in order, each once", async () => {
    const [alice, bob] = await Promise.all([open(), open()]);
    for (let i = 0; i < 40; i++) await alice.send(bob.did, `message ${i}`);
    const got = await take(bob, 40);
    expect(got.map(({ text }) => text)).toEqual(
      Array.from({ length: 40 }, (_, i) => `message ${i}`),
    );
  }, 120_000);

  test("that were not acknowledged are offered again, and those that were are not", async () => {
    const keys = memoryKeys();
    const [alice, bob] = await Promise.all([open(), open({ keys })]);
    await alice.send(bob.did, "one");
    await alice.send(bob.did, "two");
    for await (const message of bob.messages()) {
      if (message.text === "one") await message.ack();
      else break;
    }
    expect(await waitingCount(bob)).toBe(1);
    const [again] = await take(await open({ keys }), 1);
    expect(again?.text).toBe("two");
  });

  test("a live message that the program leaves goes to the Cache, and is acknowledged there when it is", async () => {
    const [alice, bob] = await Promise.all([open(), open()]);
    const connected = new Promise<void>((resolve) =>
      bob.on((event) => event.type === "connected" && event.what === "live" && resolve()),
    );
    const reading = bob.messages();
    const first = reading.next();
    await connected;
    const sent = await alice.send(bob.did, "slow");
    expect(sent.last?.delivery_mode).toBe("cache");
    const { value } = await first;
    expect(value?.text).toBe("slow");
    expect(await waitingCount(bob)).toBe(1);
    await value?.ack();
    for (let i = 0; i < 50 && (await waitingCount(bob)) > 0; i++) await Bun.sleep(100);
    expect(await waitingCount(bob)).toBe(0);
    await reading.return(undefined);
  }, 120_000);
});

describe("what can't be opened", () => {
  test("is an event that can remove it, and does not stop later messages", async () => {
    const [alice, bob] = await Promise.all([open(), open()]);
    const envelope = {
      message_id: crypto.randomUUID(),
      to: bob.did,
      timestamp: new Date().toISOString(),
      payload: { ciphertext_b64: "AAAA" },
    };
    const headers = { "Content-Type": "application/json" };
    const stored = await fetch(`${nodes.url}/cache/store`, {
      method: "POST",
      headers,
      body: JSON.stringify(envelope),
    });
    expect(stored.status).toBe(202);
    await alice.send(bob.did, "behind it");
    const events: WaypostEvent[] = [];
    bob.on((event) => events.push(event));
    const [message] = await take(bob, 1);
    expect(message?.text).toBe("behind it");
    const unreadable = events.find((event) => event.type === "unreadable");
    expect(unreadable).toMatchObject({
      messageIds: [envelope.message_id],
      code: "unknown_profile",
    });
    expect(await waitingCount(bob)).toBe(1);
    if (unreadable?.type === "unreadable") await unreadable.discard();
    expect(await waitingCount(bob)).toBe(0);
  });
});

describe("conversations", () => {
  test("a receipt comes back when both sides want one, and needs a store", async () => {
    const options = () => ({ store: memoryStore(), receipts: true });
    const [alice, bob] = await Promise.all([open(options()), open(options())]);
    await bob.store.savePerson(alice.did, { isKnown: true });
    const receipt = new Promise<WaypostEvent>((resolve) =>
      alice.on((event) => event.type === "receipt" && resolve(event)),
    );
    const sent = await alice.send(bob.did, "did you get this?");
    expect(await receipt).toEqual({ type: "receipt", from: bob.did, messageIds: [sent.id] });
    await Promise.all([alice.close(), bob.close()]);
    const unstored = await open({ receipts: true }).catch((error: unknown) => error);
    expect(unstored).toMatchObject({ kind: "local", code: "no_store" });
    const carol = await open();
    const asked = await carol
      .send(bob.did, "and this?", { receipt: true })
      .catch((error: unknown) => error);
    expect(asked).toMatchObject({ kind: "local", code: "no_store" });
  });

  test("a receipt waits until the Directory can say whose it is", async () => {
    const proxy = lyingDirectory(nodes.url);
    const alice = await open({ directoryUrl: proxy.url, receipts: true, store: memoryStore() });
    const bob = await open({ receipts: true, store: memoryStore() });
    await bob.store.savePerson(alice.did, { isKnown: true });
    const receipt = new Promise<WaypostEvent>((resolve) =>
      alice.on((event) => event.type === "receipt" && resolve(event)),
    );
    const sent = await alice.send(bob.did, "did you get this?");
    await sent.delivered;
    proxy.lie = { refuses: `/dids/${bob.did}/proof` };
    // It may have come live, and be passed on to the Cache.
    while (proxy.refused === 0 || (await waitingCount(alice)) === 0) await Bun.sleep(5);
    proxy.lie = {};
    expect(await receipt).toEqual({ type: "receipt", from: bob.did, messageIds: [sent.id] });
    await Promise.all([alice.close(), bob.close()]);
    await proxy.stop();
  });

  test("a reaction names the message it is for", async () => {
    const [alice, bob] = await Promise.all([open(), open()]);
    const sent = await alice.send(bob.did, "hello");
    await bob.react(alice.did, sent.id, "👍");
    const [reaction] = await take(alice, 1);
    expect(reaction?.reaction).toEqual({ to: sent.id, author: null, reaction: "👍" });
  });
});

describe("a key that is replaced", () => {
  test("by another program on the same keys is followed: what was sealed to the old and to the new key opens in both", async () => {
    const phoneKeys = memoryKeys();
    const phone = await open({ keys: phoneKeys });
    const alice = await open();
    await alice.send(phone.did, "sealed to the old key");
    const weekLater = Date.now() + 7 * 86_400_000;
    const rotating = await open({ keys: phoneKeys, nowMs: () => weekLater });
    await alice.send(phone.did, "sealed to the new key");
    const before = phone.identity.agreements.length;
    const got = await take(phone, 2, { ack: false });
    expect(got.map(({ text }) => text)).toEqual(["sealed to the old key", "sealed to the new key"]);
    expect([before, phone.identity.agreements.length]).toEqual([1, 2]);
    expect((await take(rotating, 2)).length).toBe(2);
    // The Caches let an envelope live for two days: then, and an hour later, the old secret is
    // gone.
    const done = await open({ keys: phoneKeys, nowMs: () => weekLater + 50 * 3_600_000 });
    expect(done.identity.agreements.length).toBe(1);
    expect(await phoneKeys.load("default")).not.toContain(
      phone.identity.agreements[0]?.secret.toHex() as string,
    );
  }, 120_000);

  test("is found by a sender whose answers come from a node that has no ledger to prove it by", async () => {
    const proxy = lyingDirectory(nodes.url);
    const isResolution = (path: string) => path.startsWith("/delivery-resolution/");
    proxy.lie = {
      json: ({ path, json }) => (isResolution(path) ? { ...json, key_proof: undefined } : null),
    };
    const [alice, bob] = await Promise.all([
      open({ directoryUrl: proxy.url }),
      open({ rotateMs: 0, announce: false }),
    ]);
    const facts = {
      name: "message",
      mediaType: "text/plain",
      sizeBytes: 1,
      sha256: new Uint8Array(32),
    };
    const sealsTo = async () =>
      (await planSend(alice.client, bob.did, facts, { sender: null })).recipient.publicKey.toHex();
    const publicKeys = async () =>
      (await Promise.all(bob.identity.agreements.map(({ secret }) => x25519PublicKey(secret)))).map(
        (key) => key.toHex(),
      );
    const before = await sealsTo();
    await bob.rotate();
    const inForce = (await publicKeys()).at(-1);
    expect(inForce).not.toBe(before);
    expect(await sealsTo()).toBe(String(inForce));
    await proxy.stop();
  });
});

describe("a live session", () => {
  /** Listens with `onEnvelope` while `work` runs; answers when the session has ended. */
  async function whileListening(
    bob: Waypost,
    onEnvelope: (chunk: LiveEnvelope) => Promise<boolean>,
    work: () => Promise<void>,
  ) {
    const [post] = await liveEndpoints(bob.client, bob.identity);
    if (post === undefined) throw new Error("no Relay to listen at");
    const stop = new AbortController();
    const ready = Promise.withResolvers<void>();
    const ended = listenLive(post, "laptop", { onReady: ready.resolve, onEnvelope }, stop.signal);
    await Promise.race([ready.promise, ended]);
    await work();
    stop.abort();
    await ended;
  }

  test("what is not kept is not acknowledged, and waits in the Cache", async () => {
    const [alice, bob] = await Promise.all([open(), open()]);
    let offered = 0;
    await whileListening(
      bob,
      async () => {
        offered++;
        return false;
      },
      async () => expect((await alice.send(bob.did, "refused")).last?.delivery_mode).toBe("cache"),
    );
    expect(offered).toBe(1);
    expect(await waitingCount(bob)).toBe(1);
  }, 120_000);

  test("a proof by a key that the document does not authorize ends the session with its code", async () => {
    const bob = await open();
    const [post] = await liveEndpoints(bob.client, bob.identity);
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
});
