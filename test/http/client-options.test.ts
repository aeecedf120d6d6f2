/**
 * Each option of `open` has its effect, without a store and with one: the compiler can't notice
 * that one of them is not handed on. The canary is an option that the list lacks: a new one must
 * get its row.
 */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import type { ClientError } from "../../src/client/base/failure.ts";
import { optionShapes, type WaypostOptions } from "../../src/client/identity/opening.ts";
import { memoryKeys } from "../../src/client/keys/key-stores.ts";
import type { WaypostEvent } from "../../src/client/mail/message.ts";
import { memoryStore } from "../../src/client/store/driver.ts";
import { activeDocument } from "../../src/client/trust/client.ts";
import { Waypost } from "../../src/client/waypost.ts";
import { announcesBundle } from "../../src/core/ledger/account.ts";
import { startTestNodes, type TestNodes } from "../support/nodes.ts";
import { waiting, waitingCount } from "../support/people.ts";

let nodes: TestNodes;
/**
 * Says that its ledger has no rules for self-certifying DIDs, and otherwise what the nodes say.
 * Counts what is asked.
 */
let front: { url: string; asked: string[]; isPending: boolean; stop: () => unknown };
const opened: Waypost[] = [];

beforeAll(async () => {
  nodes = await startTestNodes();
  const asked: string[] = [];
  const server = Bun.serve({
    hostname: "127.0.0.1",
    port: 0,
    fetch: async (request) => {
      const { pathname, search } = new URL(request.url);
      asked.push(`${request.method} ${pathname}`);
      const body = request.method === "GET" ? {} : { body: await request.bytes() };
      const { method, headers } = request;
      const answer = await fetch(`${nodes.url}${pathname}${search}`, { method, headers, ...body });
      if (front.isPending && pathname.startsWith("/registration-status/"))
        return Response.json({ registration_status: "pending", tx_id: `0x${"00".repeat(32)}` });
      if (pathname !== "/limits") return new Response(await answer.bytes(), answer);
      return Response.json({ ...(await answer.json()), self_certifying_dids: false });
    },
  });
  const url = `http://127.0.0.1:${server.port}`;
  front = { url, asked, isPending: false, stop: () => server.stop(true) };
});
afterAll(async () => {
  await Promise.all(opened.map((me) => me.close()));
  front.stop();
  await nodes.stop();
});

const codeOf = async (work: Promise<unknown> | undefined): Promise<string> =>
  (await work?.then(() => "nothing thrown").catch((error: ClientError) => error.code)) ?? "none";

async function until<T>(look: () => Promise<T | null> | T | null): Promise<T> {
  for (;;) {
    const found = await look();
    if (found !== null) return found;
    await Bun.sleep(10);
  }
}

describe.each([
  ["without a store", false],
  ["with a store", true],
] as const)("%s", (_, isStored) => {
  const stored = () => (isStored ? { store: memoryStore() } : {});
  const open = async (options: Partial<WaypostOptions> = {}): Promise<Waypost> => {
    const given = { url: nodes.url, keys: memoryKeys(), waiting, ...stored(), ...options };
    const me = await Waypost.open(given);
    opened.push(me);
    return me;
  };
  /** Whether the Relay has it. */
  const arrives = async (me: Waypost, to: string): Promise<string> => {
    const sent = await me.send(to, "hello").catch((error: ClientError) => error.code);
    if (typeof sent === "string") return sent;
    return sent.delivered === undefined ? "nothing thrown" : codeOf(sent.delivered);
  };

  const rows: Readonly<Record<keyof WaypostOptions, () => Promise<void>>> = {
    url: async () => {
      expect((await open()).client.directory.endpoint.url).toBe(nodes.url);
    },
    directoryUrl: async () => {
      const before = front.asked.length;
      await open({ directoryUrl: front.url, allowRandom: true });
      expect(front.asked.slice(before)).toContain("POST /register-did");
    },
    relayUrl: async () => {
      const me = await open({ relayUrl: nodes.url, url: nodes.url });
      expect(me.client.relay.url).toBe(nodes.url);
      const keys = memoryKeys();
      await open({ keys });
      const behind = await open({ keys, relayUrl: front.url, ...stored() });
      const before = front.asked.length;
      expect(await arrives(behind, me.did)).toBe("nothing thrown");
      expect(front.asked.slice(before)).toContain(`POST /relay/${encodeURIComponent(me.did)}`);
    },
    cacheUrl: async () => {
      // It goes into the document, so it must be the address that the Cache gives itself.
      const refused = open({ cacheUrl: front.url }).catch((error: ClientError) => error);
      expect(await refused).toMatchObject({ code: "invalid_url" });
      expect(((await refused) as ClientError).message).toContain(`the Cache at ${front.url}`);
    },
    allowRandom: async () => {
      const directoryUrl = front.url;
      expect(await codeOf(open({ directoryUrl }))).toBe("proof_missing");
      expect((await open({ directoryUrl, allowRandom: true })).did).not.toStartWith("did:svc:wp");
    },
    keys: async () => {
      const keys = memoryKeys();
      expect((await open({ keys })).did).toBe((await open({ keys })).did);
    },
    name: async () => {
      const keys = memoryKeys();
      const [one, other] = [await open({ keys }), await open({ keys, name: "other" })];
      expect(one.did).not.toBe(other.did);
      expect(await keys.load("other")).toContain(other.did);
    },
    store: async () => {
      const me = await open();
      const usage = codeOf(Promise.resolve().then(() => me.store.usage()));
      expect(await usage).toBe(isStored ? "nothing thrown" : "no_store");
    },
    acknowledge: async () => {
      if (!isStored) {
        expect(await codeOf(open({ acknowledge: "saved" }))).toBe("no_store");
        return;
      }
      const [me, friend] = [await open({ acknowledge: "by-hand" }), await open()];
      await arrives(friend, me.did);
      for await (const message of me.messages()) {
        expect(await me.store.messages(friend.did)).toEqual([]);
        await message.ack();
        break;
      }
      expect(await me.store.messages(friend.did)).toHaveLength(1);
    },
    alias: async () => {
      const alias = `o${Date.now()}${isStored}`;
      const me = await open({ alias });
      expect((await me.client.directory.alias(alias)).did).toBe(me.did);
    },
    invitation: async () => {
      const before = front.asked.length;
      const invited: string[] = [];
      const server = Bun.serve({
        hostname: "127.0.0.1",
        port: 0,
        fetch: async (request) => {
          const { pathname, search } = new URL(request.url);
          const invitation = request.headers.get("svc-invitation");
          if (invitation !== null) invited.push(invitation);
          const body = request.method === "GET" ? {} : { body: await request.bytes() };
          const { method, headers } = request;
          const answer = await fetch(`${nodes.url}${pathname}${search}`, {
            method,
            headers,
            ...body,
          });
          return new Response(await answer.bytes(), answer);
        },
      });
      await open({ directoryUrl: `http://127.0.0.1:${server.port}`, invitation: "a-code" });
      server.stop(true);
      expect([before <= front.asked.length, invited]).toEqual([true, ["a-code"]]);
    },
    device: async () => {
      const sockets = sessionsAt();
      const me = await open({ relayUrl: nodes.url, device: "phone-7" });
      const receiving = me.messages().next();
      expect(await until(() => sockets.find((url) => url.includes("/phone-7")) ?? null)).toContain(
        me.did,
      );
      await me.close();
      await receiving;
      sockets.end();
    },
    acceptRequests: async () => {
      if (!isStored) {
        expect(await codeOf(open({ acceptRequests: true }))).toBe("no_store");
        return;
      }
      const friend = await open();
      for (const acceptRequests of [false, true]) {
        const me = await open({ acceptRequests });
        await friend.send(me.did, "hello");
        for await (const _ of me.messages()) break;
        expect((await me.store.person(friend.did))?.isKnown).toBe(acceptRequests);
      }
    },
    receipts: async () => {
      if (!isStored) {
        expect(await codeOf(open({ receipts: true }))).toBe("no_store");
        return;
      }
      const [me, friend] = [await open({ receipts: true }), await open({ receipts: true })];
      await friend.store.savePerson(me.did, { isKnown: true });
      const sent = await me.send(friend.did, "seen?");
      await until(async () =>
        (await me.store.message(sent.id))?.delivery?.state === "received" ? true : null,
      );
    },
    trust: async () => {
      const random = await Waypost.open({
        directoryUrl: front.url,
        allowRandom: true,
        relayUrl: nodes.url,
        cacheUrl: nodes.url,
        keys: memoryKeys(),
        waiting,
      });
      opened.push(random);
      expect(random.did.startsWith("did:svc:wp")).toBe(false);
      expect(await arrives(await open(), random.did)).toBe("nothing thrown");
      const careful = await open({ trust: "proven" });
      expect(await arrives(careful, random.did)).toBe("proof_missing");
      expect(await codeOf(careful.fingerprint(random.did))).toBe("proof_missing");
      expect(await codeOf(open({ trust: "proven", directoryUrl: front.url }))).toBe(
        "proof_missing",
      );
      if (!isStored) return;
      expect(await codeOf(careful.groups.create("g", [random.did]))).toBe("proof_missing");
      // It learns of typing only when it is proven: nothing is posted.
      await careful.store.savePerson(random.did, { isKnown: true });
      await careful.store.saveProfile({ isOpen: true });
      const before = await waitingCount(random);
      await careful.typing(random.did);
      expect(await waitingCount(random)).toBe(before);
    },
    policy: async () => {
      expect(await codeOf(open({ policy: "no policy" }))).toBe("policy_invalid");
    },
    announce: async () => {
      const shows = async (me: Waypost) => announcesBundle(await activeDocument(me.client, me.did));
      expect(await shows(await open({ announce: true }))).toBe(true);
      expect(await shows(await open({ announce: false }))).toBe(false);
    },
    rotateMs: async () => {
      const keys = memoryKeys();
      const published = async (me: Waypost) =>
        (await me.client.directory.resolve(me.did)).document?.keyAgreement[0]?.publicKeyMultibase;
      const before = await published(await open({ keys, rotateMs: false }));
      expect(await published(await open({ keys, rotateMs: false }))).toBe(before);
      const me = await open({ keys, rotateMs: 0 });
      await until(async () => ((await published(me)) === before ? null : true));
    },
    nowMs: async () => {
      const keys = memoryKeys();
      await open({ keys });
      const events: string[] = [];
      const nowMs = () => Date.now() + 8 * 86_400_000;
      await open({ keys, nowMs, onEvent: ({ type }) => events.push(type) });
      await until(() => (events.includes("rotated") ? true : null));
    },
    timeoutMs: async () => {
      expect((await open({ timeoutMs: 7_777 })).client.timeoutMs).toBe(7_777);
      const silent = Bun.serve({
        hostname: "127.0.0.1",
        port: 0,
        fetch: () => new Promise<Response>(() => undefined),
      });
      const url = `http://127.0.0.1:${silent.port}`;
      expect(await codeOf(open({ url, timeoutMs: 50, retries: 0 }))).toBe("timed_out");
      silent.stop(true);
      // Trying again goes on for as long, and no longer: the second try alone would come after more
      // than 500 ms.
      const startedMs = performance.now();
      const gone = open({ url: "http://127.0.0.1:1", timeoutMs: 400, retries: 1_000 });
      expect(await codeOf(gone)).toBe("unreachable");
      expect(performance.now() - startedMs).toBeLessThan(5_000);
    },
    pollMs: async () => {
      const keys = memoryKeys();
      const friend = await open();
      await open({ keys, device: "first" });
      // Without WebSocket a message comes by the next look alone.
      const socket = globalThis.WebSocket;
      Object.assign(globalThis, { WebSocket: undefined });
      const me = await open({ keys, pollMs: 50 });
      const received = me.messages().next();
      await until(async () => ((await waitingCount(me)) === 0 ? true : null));
      await arrives(friend, me.did);
      const arrivedMs = performance.now();
      expect(((await received).value as { text: string }).text).toBe("hello");
      // Without the option the next look would come after half a minute.
      expect(performance.now() - arrivedMs).toBeLessThan(20_000);
      Object.assign(globalThis, { WebSocket: socket });
    },
    retries: async () => {
      const asked: string[] = [];
      const busy = Bun.serve({
        hostname: "127.0.0.1",
        port: 0,
        fetch: (request) => {
          asked.push(request.url);
          return Response.json({ code: "busy" }, { status: 503 });
        },
      });
      const url = `http://127.0.0.1:${busy.port}`;
      expect(await codeOf(open({ url, retries: 0 }))).toBe("busy");
      expect(asked).toHaveLength(1);
      expect(await codeOf(open({ url, retries: 1 }))).toBe("busy");
      expect(asked).toHaveLength(3);
      busy.stop(true);
    },
    waiting: async () => {
      const seen: string[] = [];
      const onProgress = (_ms: number, state: string) => void seen.push(state);
      const never = {
        timeoutMs: 50,
        intervalMs: 10,
        onProgress,
      };
      front.isPending = true;
      const code = await codeOf(
        open({ directoryUrl: front.url, allowRandom: true, waiting: never, retries: 0 }),
      );
      front.isPending = false;
      expect([code, seen.length > 0]).toEqual(["timed_out", true]);
    },
    onEvent: async () => {
      const events: WaypostEvent[] = [];
      const me = await open({ onEvent: (event) => events.push(event) });
      const receiving = me.messages().next();
      await until(() => (events.some(({ type }) => type === "connected") ? true : null));
      await me.close();
      await receiving;
    },
    signal: async () => {
      const stop = new AbortController();
      const opening = codeOf(open({ signal: stop.signal }));
      stop.abort();
      expect(await opening).toBe("aborted");
      expect(await codeOf(open({ signal: AbortSignal.abort() }))).toBe("aborted");
    },
  };

  test.each(Object.keys(rows))("%s", async (name) => {
    await rows[name as keyof WaypostOptions]();
  });

  test("has a row for each option, and an unknown one is refused", async () => {
    expect(Object.keys(rows).sort()).toEqual(Object.keys(optionShapes).sort());
    const wrong = { strore: memoryStore() } as Partial<WaypostOptions>;
    expect(await codeOf(open(wrong))).toBe("invalid_argument");
  });

  test.each([
    { timeoutMs: -1 },
    { timeoutMs: 0 },
    { timeoutMs: "1s" },
    { timeoutMs: 2 ** 31 },
    { pollMs: 0 },
    { pollMs: Number.NaN },
    { rotateMs: "never" },
    { retries: -1 },
    { acknowledge: "by hand" },
    { device: "a\n" },
    { device: "x".repeat(129) },
    { invitation: 5 },
    { alias: 5 },
    { signal: {} },
    { store: memoryStore },
    { store: {} },
    { announce: "no" },
    { onEvent: "show" },
    { url: 1 },
    { url: null, directoryUrl: "http://127.0.0.1:1" },
    { relayUrl: {} },
  ])("%j of another kind than the option's is refused", async (wrong) => {
    expect(await codeOf(open(wrong as object))).toBe("invalid_argument");
  });

  test.each([
    { name: 5 },
    { mediaType: 5 },
    { chunkBytes: -4 },
    { chunkBytes: "x" },
    { retries: "x" },
    { mentions: "x" },
    { replyTo: 5 },
    { hint: "x" },
  ])("a message with %j is refused, and not sent", async (wrong) => {
    const me = await open();
    expect(await codeOf(me.send(me.did, "hello", wrong as object))).toBe("invalid_argument");
  });

  test("what is given as undefined counts as not given, and options are an object", async () => {
    const me = await open({ timeoutMs: undefined, onEvent: undefined } as object);
    expect(await codeOf(me.send(me.did, "hello", { ttl: undefined } as object))).toBe(
      "nothing thrown",
    );
    expect(await codeOf(Reflect.apply(Waypost.open, Waypost, []))).toBe("invalid_argument");
    const unkept = { url: nodes.url, keys: memoryKeys() };
    expect(await codeOf(Reflect.apply(Waypost.link, Waypost, [unkept]))).toBe("no_store");
  });

  test("messages that are asked for after the end receive nothing", async () => {
    const me = await open();
    await me.close();
    expect(await me.messages().next()).toEqual({ done: true, value: undefined });
  });

  test("calls that are unknown, over or stopped throw", async () => {
    const [me, friend] = [await open(), await open()];
    const wrong = { ttls: "1h" } as object;
    const aborted = AbortSignal.abort();
    expect(await codeOf(me.send(friend.did, "hello", wrong))).toBe("invalid_argument");
    expect(await codeOf(me.messages({ sgnal: aborted } as object).next())).toBe("invalid_argument");
    const kept = await open({ store: memoryStore() });
    const page = { limt: 5 } as object;
    expect(await codeOf(kept.store.messages(me.did, page))).toBe("invalid_argument");
    expect(await codeOf(kept.store.choose(me.did, page))).toBe("invalid_argument");
    for (const content of [new Map([["a", 1]]), { deep: [new Set([1])] }])
      expect(await codeOf(me.send(friend.did, content as object as { a: 1 }))).toBe(
        "invalid_argument",
      );
    expect(await codeOf(me.send(friend.did, "hello", { signal: aborted }))).toBe("aborted");
    const stop = new AbortController();
    const loop = friend.messages({ signal: stop.signal });
    const next = loop.next();
    stop.abort();
    expect((await next).done).toBe(true);
    await me.close();
    expect(await codeOf(me.send(friend.did, "late"))).toBe("closed");
  });
});

/** The addresses of live sessions that begin. */
function sessionsAt(): string[] & { end: () => void } {
  const real = globalThis.WebSocket;
  const seen: string[] = [];
  class Seen extends real {
    constructor(url: string) {
      super(url);
      seen.push(decodeURIComponent(url));
    }
  }
  Object.assign(globalThis, { WebSocket: Seen });
  return Object.assign(seen, { end: () => Object.assign(globalThis, { WebSocket: real }) });
}
