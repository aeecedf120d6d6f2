/** Passes at the Cache: who shows one is known, whatever floods and whatever was acknowledged. */
import { describe, expect, test } from "bun:test";
import type { Did } from "../../src/core/codec/did.ts";
import type { JsonObject } from "../../src/core/codec/json.ts";
import { dayMs } from "../../src/core/codec/time.ts";
import {
  makePass,
  type Pass,
  passName,
  passPeriod,
  showPass,
} from "../../src/core/message/pass.ts";
import { type Receipts, StoreError } from "../../src/storage/contract.ts";
import { connectionFrom, respond } from "../support/app.ts";
import {
  ackBody,
  cachesKnowing,
  createPerson,
  envelopeTo,
  outcomeOf,
  proofHeaders,
  signedBy,
  type TestCache,
  type TestCacheOptions,
  testNowMs,
  uuidOf,
} from "../support/cache-node.ts";
import { cacheDefault } from "../support/settings.ts";

const bob = createPerson(1);
const alice = createPerson(2);
const { stranger_share } = cacheDefault;
const carol = createPerson(3);
const caches = cachesKnowing(bob, alice, carol);
const cacheFor = (more: TestCacheOptions = {}) =>
  caches({ recipient_entries_max: 400, stranger_share, ...more });

const secret = new Uint8Array(32).fill(7);
const encode = (bytes: Uint8Array) => Buffer.from(bytes).toString("base64url");
const body = { secret: encode(secret), passes: 20, revoked: [] as string[] };
const passOf = (person: string, by = secret): Pass =>
  makePass({ secret: by, namingKey: new Uint8Array(32) }, person as Did, passPeriod(testNowMs));

async function put(node: TestCache, wanted: unknown, signed = wanted): Promise<Response> {
  const hash = new Bun.CryptoHasher("sha256").update(JSON.stringify(signed)).digest("hex");
  return respond(
    node.app,
    new Request(`http://cache.example/cache/pass/${bob.did}`, {
      method: "PUT",
      headers: {
        "content-type": "application/json",
        ...proofHeaders(bob, { operation: "pass", subject: hash }),
      },
      body: JSON.stringify(wanted),
    }),
    connectionFrom("198.51.100.200"),
  );
}

let sent = 100;
async function store(
  node: TestCache,
  { pass, sender, place = 250 }: { pass?: Pass; sender?: typeof alice; place?: number },
): Promise<string> {
  const timestamp = new Date(node.clock.nowMs).toISOString();
  const plain: JsonObject = { ...envelopeTo(bob, ++sent), timestamp };
  const text = JSON.stringify(sender === undefined ? plain : signedBy(sender, plain));
  const headers: Record<string, string> = { "content-type": "application/json" };
  if (pass !== undefined) headers["svc-pass"] = showPass(pass, new TextEncoder().encode(text));
  const request = new Request("http://cache.example/cache/store", {
    method: "POST",
    headers,
    body: text,
  });
  return outcomeOf(respond(node.app, request, connectionFrom(`198.51.100.${place}`)));
}

/** Until newcomers of every network are refused. */
async function flood(node: TestCache): Promise<void> {
  for (let place = 1; place < 200; place++) while ((await store(node, { place })) === "202 ok");
}

describe("a mailbox with passes", () => {
  test("takes a sender with one through any flood, signed or not, and no other", async () => {
    const node = await cacheFor();
    expect((await put(node, body)).status).toBe(200);
    await flood(node);
    expect(await store(node, { pass: passOf("did:svc:alice") })).toBe("202 ok");
    expect(await store(node, { pass: passOf("did:svc:carol"), sender: alice })).toBe("202 ok");
    expect(await store(node, {})).toBe("507 mailbox_full");
    const forged = passOf("did:svc:alice", new Uint8Array(32));
    expect(await store(node, { pass: forged })).toBe("507 mailbox_full");
  });

  test("gives each pass a floor, which the others can't take", async () => {
    const node = await cacheFor();
    await put(node, body);
    const greedy = passOf("did:svc:greedy");
    let taken = 0;
    while ((await store(node, { pass: greedy, place: (taken % 200) + 1 })) === "202 ok") taken++;
    // Of floors of 160 a twenty-fourth, and half of the rest of 100.
    expect(taken).toBe(6 + 51);
    for (let n = 0; n < 6; n++)
      expect(await store(node, { pass: passOf("did:svc:alice") })).toBe("202 ok");
  });

  test("makes nobody known by an acknowledgement, and forgets nobody", async () => {
    const node = await cacheFor();
    const befriend = async () => {
      expect(await store(node, { sender: alice })).toBe("202 ok");
      expect((await node.ack(ackBody(bob, [uuidOf(sent)]))).status).toBe(200);
    };
    await put(node, body);
    await befriend();
    await flood(node);
    expect(await store(node, { sender: alice })).toBe("507 mailbox_full");
    const before = await cacheFor();
    expect(await store(before, { sender: alice })).toBe("202 ok");
    expect((await before.ack(ackBody(bob, [uuidOf(sent)]))).status).toBe(200);
    await put(before, body);
    await flood(before);
    expect(await store(before, { sender: alice })).toBe("202 ok");
  });

  test("revokes one, and changes its secret with the one before in force", async () => {
    const node = await cacheFor();
    const next = encode(new Uint8Array(32).fill(8));
    const [kept, gone] = [passOf("did:svc:alice"), passOf("did:svc:mallory")];
    const revoked = [passName(gone.id)];
    expect((await put(node, { ...body, secret: next, before: body.secret, revoked })).status).toBe(
      200,
    );
    await flood(node);
    expect(await store(node, { pass: gone })).toBe("507 mailbox_full");
    expect(await store(node, { pass: kept })).toBe("202 ok");
    await put(node, { ...body, secret: next });
    expect(await store(node, { pass: kept })).toBe("507 mailbox_full");
  });
});

describe("a clock that jumps", () => {
  test("beyond the last day of a pass hides what it is worth, until it is back", async () => {
    const node = await cacheFor();
    await put(node, body);
    await flood(node);
    const pass = passOf("did:svc:alice");
    const { lastDay } = passPeriod(testNowMs);
    node.clock.nowMs = (lastDay + 1) * dayMs - 1;
    await flood(node);
    expect(await store(node, { pass })).toBe("202 ok");
    node.clock.nowMs++;
    expect(await store(node, { pass })).toBe("507 mailbox_full");
    node.clock.nowMs = testNowMs;
    expect(await store(node, { pass })).toBe("202 ok");
  });

  test("beyond the end of the record hides it, and the next owner's word counts when it is back", async () => {
    const node = await cacheFor();
    await put(node, body);
    node.clock.nowMs += 401 * dayMs;
    await flood(node);
    expect(await store(node, { pass: passOf("did:svc:alice") })).toBe("507 mailbox_full");
    node.clock.nowMs = testNowMs;
    await flood(node);
    expect(await store(node, { pass: passOf("did:svc:alice") })).toBe("202 ok");
  });
});

describe("a store that fails", () => {
  test("for want of room refuses new passes, and those of before count", async () => {
    let isFull = false;
    const receipts = (held: Receipts): Partial<Receipts> => ({
      put: (...given) =>
        isFull ? Promise.reject(new StoreError("full", "test")) : held.put(...given),
    });
    const node = await cacheFor({ receipts });
    await put(node, body);
    isFull = true;
    const refused = put(node, { ...body, secret: encode(new Uint8Array(32).fill(8)) });
    expect(await outcomeOf(refused)).toBe("507 storage_full");
    await flood(node);
    expect(await store(node, { pass: passOf("did:svc:alice") })).toBe("202 ok");
  });

  test("for a moment makes an acknowledgement forget none of those who are known", async () => {
    let failures = 0;
    const receipts = (held: Receipts): Partial<Receipts> => ({
      get: (...given) =>
        failures-- > 0 ? Promise.reject(new StoreError("unavailable", "test")) : held.get(...given),
    });
    const node = await cacheFor({ receipts });
    const befriend = async (sender: typeof alice) => {
      expect(await store(node, { sender })).toBe("202 ok");
      expect((await node.ack(ackBody(bob, [uuidOf(sent)]))).status).toBe(200);
    };
    await befriend(alice);
    expect(await store(node, { sender: carol })).toBe("202 ok");
    // Passes and known senders are both read.
    failures = 2;
    expect((await node.ack(ackBody(bob, [uuidOf(sent)]))).status).toBe(200);
    failures = 0;
    await flood(node);
    expect(await store(node, { sender: alice })).toBe("202 ok");
  });
});

describe("PUT /cache/pass", () => {
  test("answers what it keeps, and until when", async () => {
    const answer = await put(await cacheFor(), { ...body, revoked: ["00".repeat(8)] });
    expect(await answer.json()).toEqual({
      passes: 20,
      revoked: 1,
      expires_at: "2027-08-20T12:00:00.000Z",
    });
  });

  test.each([
    [{ ...body, secret: encode(new Uint8Array(31)) }, "/secret"],
    [{ ...body, secret: "A".repeat(42).concat("+") }, "/secret"],
    [{ ...body, before: "" }, "/before"],
    [{ ...body, passes: 1_025 }, "/passes"],
    [{ ...body, passes: -1 }, "/passes"],
    [{ ...body, revoked: ["xx"] }, "/revoked/0"],
    [{ ...body, revoked: new Array(257).fill("00".repeat(8)) }, "/revoked"],
    [{ ...body, name: "bob" }, "/name"],
    [{ passes: 1, revoked: [] }, "/secret"],
  ])("refuses what it does not understand, number %#", async (wanted, pointer) => {
    const answer = await put(await cacheFor(), wanted);
    expect(answer.status).toBe(400);
    expect(JSON.stringify(await answer.json())).toContain(`"${pointer}"`);
  });

  test("refuses a body that the proof does not cover", async () => {
    const answer = await put(await cacheFor(), body, { ...body, passes: 1 });
    expect(await outcomeOf(Promise.resolve(answer))).toBe("401 proof_invalid");
  });
});
