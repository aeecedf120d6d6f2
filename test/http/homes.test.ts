/**
 * Two providers, each with a Directory, a Relay and a Cache of its own: their people find each
 * other by `alias@home`, write, reply and get receipts; and a provider that lies, is silent or
 * floods is not believed, harms no one else and is not asked more than its share.
 */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { ClientError } from "../../src/client/base/failure.ts";
import {
  changeAsOwner,
  type OwnerUpdate,
  replaceDocument,
} from "../../src/client/identity/change.ts";
import type { WaypostOptions } from "../../src/client/identity/opening.ts";
import { memoryKeys } from "../../src/client/keys/key-stores.ts";
import { sourceOf } from "../../src/client/mail/content.ts";
import { planSend } from "../../src/client/mail/plan.ts";
import { buildEnvelope } from "../../src/client/mail/send.ts";
import { memoryStore } from "../../src/client/store/driver.ts";
import { senderOf } from "../../src/client/trust/client.ts";
import { Waypost } from "../../src/client/waypost.ts";
import type { ConfigInput } from "../../src/config/schema.ts";
import type { Did } from "../../src/core/codec/did.ts";
import type { DidDocument, Service } from "../../src/core/ledger/account.ts";
import { homeServiceType } from "../../src/core/ledger/home.ts";
import { deriveDid } from "../../src/core/ledger/names.ts";
import { freePort } from "../support/executable.ts";
import { lyingDirectory } from "../support/lying-directory.ts";
import { startTestNodes } from "../support/nodes.ts";
import {
  type Inbox,
  openInbox,
  type Provider,
  startProvider,
  until,
} from "../support/providers.ts";
import { pause } from "../support/wait.ts";

const waiting = { timeoutMs: 60_000, intervalMs: 20 };
/** Short enough for a test, and no two alike. */
const soon = { directory: { home_fresh: 50, home_failure: 100 } };
/**
 * Until no answer and no failure of a home counts any more. The node counts by its own clock, in
 * this process.
 */
const untilForgotten = () => pause(160, "longer than home_fresh and home_failure");
const stops: (() => unknown)[] = [];
afterAll(async () => {
  for (const stop of stops.toReversed()) await stop();
});

async function start(
  more: ConfigInput["directory"] = {},
  port = freePort(),
  others: object = soon,
): Promise<Provider> {
  const provider = await startProvider({ port, directory: more }, others);
  stops.push(provider.stop);
  return provider;
}
const inboxOf = (me: Waypost): Inbox => {
  const inbox = openInbox(me);
  stops.push(inbox.close);
  return inbox;
};
const open = (at: { readonly home: string }, options: Partial<WaypostOptions> = {}) =>
  Waypost.open({
    url: `http://${at.home}`,
    keys: memoryKeys(),
    waiting,
    rotateMs: false,
    ...options,
  });
const nameOf = (name: string) => `${name}-${crypto.randomUUID().slice(0, 8)}`;

const codeOf = (work: Promise<unknown>): Promise<string> =>
  work.then(
    () => "believed",
    (error: unknown) => (error instanceof ClientError ? error.code : String(error)),
  );

let [north, south]: Provider[] = [];
const providers = () => {
  if (north === undefined || south === undefined) throw new Error("not started");
  return { north, south };
};
beforeAll(async () => {
  [north, south] = await Promise.all([start(), start()]);
});

describe("people of two providers", () => {
  test("write to each other by alias and home, reply, and get receipts", async () => {
    const { north, south } = providers();
    const [alice, alias] = [
      await open(north, { store: memoryStore(), receipts: true }),
      nameOf("bob"),
    ];
    const bob = await open(south, { alias, store: memoryStore(), receipts: true });
    await bob.store.savePerson(alice.did, { isKnown: true });
    const [atAlice, atBob] = [inboxOf(alice), inboxOf(bob)];
    const sent = await alice.send(`${alias}@${south.home}`, "hello");
    expect(sent.recipient).toEqual({ did: bob.did, trust: "proven", name: "told" });
    expect((await sent.delivered)?.last?.code).toBe("forwarded");
    const read = await atBob.next();
    expect([read.text, read.from, read.verified, read.trust]).toEqual([
      "hello",
      alice.did,
      true,
      "proven",
    ]);
    expect((await read.reply("hi yourself")).recipient).toEqual({
      did: alice.did,
      trust: "proven",
      name: null,
    });
    const answer = await atAlice.next();
    expect([answer.text, answer.verified, answer.replyTo]).toEqual(["hi yourself", true, sent.id]);
    await until(() => atAlice.events.some(({ type }) => type === "receipt"));
    expect(atAlice.events).toContainEqual({
      type: "receipt",
      from: bob.did,
      messageIds: [sent.id],
    });
    expect((await alice.send(`${alias.toUpperCase()}@${south.home}`, "again")).recipient.name).toBe(
      "remembered",
    );
    expect((await alice.send(`${bob.did}@${south.home}`, "by DID")).recipient.name).toBeNull();
  }, 60_000);

  test("learn what the policies of the other side allow, and send files in parts that fit", async () => {
    const { north, south } = providers();
    const [alice, bob] = [await open(north), await open(south)];
    const inbox = inboxOf(bob);
    const signer = { keyId: "root", seed: bob.identity.rootSeed };
    const update = (one: OwnerUpdate) => changeAsOwner(bob.client, one, { signer, waiting });
    const policy = { effective_ttl: 14_400, max_message_bytes: 30_000, cache_eligible: true };
    await update({ extrinsic: "set_delivery_policy", did: bob.did, value: policy });
    await update({
      extrinsic: "set_delivery_policy_links",
      did: bob.did,
      value: { tag_policies: ["news"] },
    });
    const path = (query: string) => `/delivery-resolution/${bob.did}?home=${south.home}${query}`;
    const allowed = async (query: string) =>
      (await (await read(north.home, path(query))).json()) as {
        policy: { effective_constraints: object };
      };
    const bounds = {
      max_chunk_bytes: 30_000,
      max_unchunked_message_bytes: 30_000,
      max_message_bytes: 30_000,
    };
    expect((await allowed("")).policy.effective_constraints).toMatchObject(bounds);
    expect((await allowed("&tag=news")).policy.effective_constraints).toMatchObject(bounds);
    expect(await codeAt(north.home, path("&tag=spam"))).toBe("policy_denied");
    const file = new Uint8Array(100_000).map((_, i) => i);
    await alice.send(`${bob.did}@${south.home}`, new File([file], "long.bin"));
    expect((await inbox.next()).bytes()).toEqual(file);
  }, 60_000);
});

/** A signed envelope, as another client of the interface posts it. */
async function envelopeFrom(me: Waypost, to: Did, text: string) {
  const relations = { replyTo: null, group: null, wantsReceipt: false };
  const source = await sourceOf(text, {}, relations);
  const plan = await planSend(me.client, to, source.file, {
    sender: await senderOf(me.client, me.identity),
  });
  const { body } = await buildEnvelope(plan, 0, new TextEncoder().encode(text));
  return JSON.parse(new TextDecoder().decode(body)) as Record<string, unknown>;
}

async function post(home: string, envelope: object, headers: Record<string, string> = {}) {
  const body = JSON.stringify(envelope);
  const answer = await fetch(`http://${home}/relay`, {
    method: "POST",
    headers: { "content-type": "application/json", ...headers },
    body,
  });
  const { code } = (await answer.json()) as { code: string };
  return code;
}

const read = (at: string, path: string, headers: Record<string, string> = {}) =>
  fetch(`http://${at}${path}`, { headers });
const codeAt = async (
  at: string,
  path: string,
  headers: Record<string, string> = {},
): Promise<string> => {
  const answer = await read(at, path, headers);
  return answer.ok ? "found" : ((await answer.json()) as { code: string }).code;
};
const proofPath = (did: string, home: string) => `/dids/${did}/proof?home=${home}`;

describe("a sender of another provider", () => {
  test("is verified with the header, counts as unsigned without, and is refused with a wrong signature", async () => {
    const { north, south } = providers();
    const [alice, bob] = [await open(north), await open(south)];
    const inbox = inboxOf(bob);
    const place = `${bob.did}@${south.home}`;
    await alice.send(place, "first");
    await inbox.next();
    const other = await start();
    const [carol, mail] = [await open(other), () => envelopeFrom(carol, bob.did, "second")];
    await carol.send(`${bob.did}@${south.home}`, "so that its Directory knows Bob");
    await inbox.next();
    const forge = async () => ({
      ...(await mail()),
      sender_signature: Buffer.alloc(64, 7).toString("base64"),
    });
    const unknown = await start();
    const there = await open(unknown);
    const dan = await envelopeFrom(carol, bob.did, "third");
    // The Directory of the recipient has seen Carol, so it knows her home.
    expect(await post(south.home, await forge())).toBe("sender_signature_invalid");
    expect(await post(south.home, dan)).toMatch(/^(delivered|cached)$/);
    expect((await inbox.next()).verified).toBe(true);
    // Of a stranger nothing is known: the signature is absent, and wrong only where a home is
    // named.
    const strange = { ...(await mail()), from: there.did, sender_key_id: `${there.did}#root` };
    const hint = { "svc-sender-home": unknown.home };
    expect(await post(south.home, { ...strange, message_id: crypto.randomUUID() }, hint)).toBe(
      "sender_signature_invalid",
    );
    const again = { ...strange, message_id: crypto.randomUUID() };
    const silent = {
      ...again,
      from: `did:svc:wp${"3".repeat(28)}`,
      sender_key_id: `did:svc:wp${"3".repeat(28)}#root`,
    };
    expect(await post(south.home, silent)).toMatch(/^(delivered|cached|cache_unavailable)$/);
    expect(await post(south.home, { ...silent, message_id: crypto.randomUUID() }, hint)).not.toBe(
      "sender_signature_invalid",
    );
  }, 60_000);

  test("is verified by the recipient's client when the envelope came without a home", async () => {
    const { north, south } = providers();
    const [erin, bob] = [await open(north), await open(south)];
    await erin.client.trust.tellHome(bob.did, south.home);
    const envelope = await envelopeFrom(erin, bob.did, "sealed home");
    expect(await codeAt(south.home, `/dids/${erin.did}/proof`)).toBe("did_not_found");
    expect(await post(south.home, envelope)).toMatch(/^(delivered|cached)$/);
    const message = await inboxOf(bob).next();
    expect([message.text, message.verified, message.from]).toEqual(["sealed home", true, erin.did]);
  }, 60_000);
});

// -------------------------------------------------------------------------------- a home that lies

type Lie = (path: string, request: Request) => Response | Promise<Response> | null;
type Liar = { readonly home: string; readonly behind: Provider; lie: Lie; asked: string[] };

/** A home in front of a true Directory, whose people name it. */
async function startLiar(): Promise<Liar> {
  const port = freePort();
  const behind = await start({ public_endpoint: `http://localhost:${port}` });
  const liar: Liar = { home: `localhost:${port}`, behind, lie: () => null, asked: [] };
  const server = Bun.serve({
    hostname: "127.0.0.1",
    port,
    idleTimeout: 30,
    fetch: async (request) => {
      const { pathname, search } = new URL(request.url);
      liar.asked.push(pathname);
      const told = await liar.lie(decodeURIComponent(pathname), request);
      return (
        told ?? fetch(`http://${behind.home}${pathname}${search}`, { headers: request.headers })
      );
    },
  });
  stops.push(() => server.stop(true));
  return liar;
}

const proofOf = async (at: string, did: string) => (await read(at, `/dids/${did}/proof`)).bytes();

describe("a home that can't be believed", () => {
  let liar: Liar;
  let victim: Waypost;
  beforeAll(async () => {
    liar = await startLiar();
    victim = await open(liar.behind);
  });

  const lies: readonly (readonly [name: string, lie: (bytes: Uint8Array) => Response])[] = [
    ["redirects", () => Response.redirect(`http://${providers().north.home}/healthz`, 302)],
    ["answers 64 KiB and a byte", () => new Response(new Uint8Array(65_537))],
    [
      "answers without end",
      () => new Response(new ReadableStream({ pull: (to) => to.enqueue(new Uint8Array(4_096)) })),
    ],
    [
      "answers a compressed body",
      (bytes) =>
        new Response(Bun.gzipSync(bytes.slice()), { headers: { "content-encoding": "gzip" } }),
    ],
    ["answers garbage", () => new Response("hello")],
    ["answers nothing", () => new Response("")],
    ["answers another status", () => new Response("", { status: 500 })],
    ["says 404 without a code", () => new Response("no such page", { status: 404 })],
    [
      "changes a byte",
      (bytes) => new Response(bytes.with(bytes.length - 30, (bytes.at(-30) as number) ^ 1).slice()),
    ],
  ];
  test.each(lies)(
    "that %s proves nothing, and the client is told that it is silent",
    async (_, lie) => {
      const { south } = providers();
      const bytes = await proofOf(liar.behind.home, victim.did);
      const stranger = await open(liar.behind);
      liar.lie = (path) => (path.endsWith("/proof") ? lie(bytes) : null);
      expect(await codeAt(south.home, proofPath(stranger.did, liar.home))).toBe(
        "service_unavailable",
      );
      liar.lie = () => null;
      await untilForgotten();
      expect(await codeAt(south.home, proofPath(stranger.did, liar.home))).toBe("found");
    },
  );

  test("that says nothing of its people's policies leaves the limits of the node", async () => {
    const { south } = providers();
    const { did } = await open(liar.behind);
    for (const said of ["", "{}", "garbage"]) {
      liar.lie = (path) => (path.startsWith("/delivery-resolution/") ? new Response(said) : null);
      const answer = await read(south.home, `/delivery-resolution/${did}?home=${liar.home}`);
      const { policy } = (await answer.json()) as { policy: { effective_constraints: object } };
      expect(policy.effective_constraints).not.toHaveProperty("max_message_bytes");
      await untilForgotten();
    }
    liar.lie = () => null;
  });

  test("that gives an alias to a person of another home is not believed", async () => {
    const { north, south } = providers();
    const eve = await open(north);
    expect(await codeAt(south.home, proofPath(eve.did, north.home))).toBe("found");
    const alias = nameOf("taken");
    liar.lie = (path) =>
      path === `/aliases/${alias}` ? Response.json({ alias, did: eve.did }) : null;
    expect(await codeAt(south.home, `/aliases/${alias}?home=${liar.home}`)).toBe(
      "service_unavailable",
    );
    liar.lie = () => null;
  });

  test("that shows another DID's proof, or that of another ledger or home, proves nothing", async () => {
    const { north, south } = providers();
    const [stranger, other] = [await open(liar.behind), await open(north)];
    for (const bytes of [
      await proofOf(liar.behind.home, victim.did),
      await proofOf(north.home, other.did),
    ]) {
      liar.lie = (path) => (path.endsWith("/proof") ? new Response(bytes.slice()) : null);
      expect(await codeAt(south.home, proofPath(stranger.did, liar.home))).toBe(
        "service_unavailable",
      );
      await untilForgotten();
    }
    // A true proof of somebody who is at home elsewhere: each alias would be anybody's.
    expect(await codeAt(south.home, proofPath(other.did, liar.home))).toBe("service_unavailable");
    const others = liar.lie;
    liar.lie = (path, request) =>
      path.startsWith("/aliases/")
        ? Response.json({ alias: "x", did: other.did })
        : others(path, request);
    expect(await codeAt(south.home, `/aliases/x?home=${liar.home}`)).toBe("service_unavailable");
    // The first root key makes another name on another ledger.
    expect(deriveDid(new Uint8Array(32), new Uint8Array(32))).not.toBe(
      deriveDid(new Uint8Array(32).fill(1), new Uint8Array(32)),
    );
    liar.lie = () => null;
  });

  test("that shows an older proof, or falls silent, leaves what is remembered in force", async () => {
    const { south } = providers();
    const stranger = await open(liar.behind);
    const old = await proofOf(liar.behind.home, stranger.did);
    const edited = (document: DidDocument) => ({ ...document, keyAgreement: [] });
    await replaceDocument(stranger.client, stranger.did, {
      rootSeed: stranger.identity.rootSeed,
      edited,
      waiting,
    });
    const now = await proofOf(liar.behind.home, stranger.did);
    const seen = async () => (await read(south.home, proofPath(stranger.did, liar.home))).bytes();
    expect(await seen()).toEqual(now);
    for (const lie of [() => new Response(old.slice()), () => new Response("", { status: 503 })]) {
      await untilForgotten();
      liar.lie = lie;
      expect(await seen()).toEqual(now);
    }
    liar.lie = () => null;
    await untilForgotten();
    expect(await seen()).toEqual(now);
    expect(
      south.lines.some(({ fields }) => JSON.stringify(fields).includes("record_went_back")),
    ).toBe(true);
  });

  test("that is slow holds nobody else up, and is given up after five seconds", async () => {
    const { north, south } = providers();
    const [stranger, bob] = [await open(liar.behind), await open(north)];
    let ends = (): void => undefined;
    const end = new Promise<void>((resolve) => {
      ends = resolve;
    });
    liar.lie = (path) => (path.endsWith("/proof") ? end.then(() => new Response("")) : null);
    const startMs = performance.now();
    const slow = codeAt(south.home, proofPath(stranger.did, liar.home));
    expect(await codeAt(south.home, proofPath(bob.did, north.home))).toBe("found");
    expect(await slow).toBe("service_unavailable");
    expect(performance.now() - startMs).toBeGreaterThan(4_500);
    ends();
    liar.lie = () => null;
  }, 30_000);
});

describe("a Directory asks other homes", () => {
  let liar: Liar;
  beforeAll(async () => {
    liar = await startLiar();
  });
  const did = (n: number) => `did:svc:wp${String(n).replaceAll("0", "a").padStart(28, "2")}`;

  test("once for a DID however many ask at once, and not again while a failure stands", async () => {
    const home = await start({}, freePort(), {
      directory: { ...soon.directory, home_failure: 60_000 },
    });
    liar.asked = [];
    liar.lie = () => Bun.sleep(30).then(() => new Response("", { status: 503 }));
    const codes = await Promise.all(
      Array.from({ length: 20 }, () => codeAt(home.home, proofPath(did(1), liar.home))),
    );
    expect(new Set(codes)).toEqual(new Set(["service_unavailable"]));
    expect(await codeAt(home.home, proofPath(did(1), liar.home))).toBe("service_unavailable");
    expect(liar.asked).toEqual([`/dids/${did(1)}/proof`]);
    liar.lie = () => null;
  });

  test("no more often than the share of a client network allows, whoever is invented", async () => {
    const home = await start({}, freePort(), {
      directory: { ...soon.directory, home_rate: 1 / 3_600, home_burst: 3 },
    });
    liar.asked = [];
    for (let n = 2; n < 22; n++) await codeAt(home.home, proofPath(did(n), liar.home));
    expect(liar.asked).toHaveLength(3);
  });

  test("never for another Directory, and never itself", async () => {
    const home = await start();
    const alice = await open(liar.behind);
    liar.asked = [];
    const asDirectory = { "svc-hops": "1" };
    expect(await codeAt(home.home, proofPath(alice.did, liar.home), asDirectory)).toBe(
      "did_not_found",
    );
    expect(await codeAt(home.home, proofPath(did(30), home.home))).toBe("did_not_found");
    expect(await codeAt(home.home, `/aliases/nobody?home=${home.home}`)).toBe("alias_not_found");
    expect(liar.asked).toEqual([]);
    expect(await codeAt(home.home, proofPath(alice.did, liar.home))).toBe("found");
    for (const path of [
      proofPath(alice.did, liar.home),
      `/resolve/${alice.did}`,
      `/delivery-resolution/${alice.did}`,
    ])
      expect(await codeAt(home.home, path, asDirectory)).toBe("did_not_found");
    expect(await codeAt(home.home, `/resolve/${alice.did}`)).toBe("found");
  });

  test("by name and HTTPS only, and at no private address, whatever the name says", async () => {
    const home = await start();
    expect(await codeAt(home.home, proofPath(did(31), "rebound.example.org"))).toBe(
      "service_unavailable",
    );
  });

  test("as far as the operator allows", async () => {
    const alice = await open(liar.behind);
    const path = proofPath(alice.did, liar.home);
    const codeWith = async (homes: string[]) => codeAt((await start({ homes })).home, path);
    expect(await codeWith(["*", `!${liar.home}`])).toBe("did_not_found");
    expect(await codeWith(["directory.example.org"])).toBe("did_not_found");
    expect(await codeWith([])).toBe("did_not_found");
    expect(await codeWith([liar.home])).toBe("found");
    const closed = await startTestNodes({});
    stops.push(closed.stop);
    expect(await codeAt(closed.url.slice("http://".length), path)).toBe("did_not_found");
  });
});

describe("the SDK", () => {
  test("refuses an alias whose DID says that it is at home elsewhere, and a random DID at a home", async () => {
    const { north, south } = providers();
    const alias = nameOf("carol");
    await open(south, { alias });
    const proxy = lyingDirectory(`http://${north.home}`);
    stops.push(proxy.stop);
    const eve = await open(north);
    const alice = await open(north, { directoryUrl: proxy.url });
    proxy.lie = { shows: { [`/aliases/${alias}`]: { alias, did: eve.did } } };
    expect(await codeOf(alice.send(`${alias}@${south.home}`, "hello"))).toBe("home_differs");
    proxy.lie = {
      shows: { [`/aliases/${alias}`]: { alias, did: "did:svc:2222222222222222222222" } },
    };
    expect(await codeOf(alice.send(`${alias}@${south.home}`, "hello"))).toBe("proof_missing");
    proxy.lie = {};
    expect(await codeOf(alice.send(`${alias}@${south.home}`, "hello"))).toBe("believed");
  });

  test("tells that a person has moved to another ledger, when old and new DID say so", async () => {
    const { north, south } = providers();
    const [alice, old, next] = [await open(north), await open(south), await open(north)];
    const link = (me: Waypost, way: "To" | "From", url: string): Service => ({
      ...{
        id: `${me.did}#moved`,
        type: `SvcMoved${way}Service`,
        serviceEndpoint: [url],
        authorization: null,
        priority: null,
      },
    });
    const add = (me: Waypost, service: Service) => {
      const edited = (document: DidDocument) => ({
        ...document,
        service: [...document.service, service],
      });
      return replaceDocument(me.client, me.did, {
        rootSeed: me.identity.rootSeed,
        edited,
        waiting,
      });
    };
    await alice.send(`${old.did}@${south.home}`, "before");
    await add(old, link(old, "To", `http://${north.home}/resolve/${next.did}`));
    await untilForgotten();
    // One of them alone may say what it likes.
    expect(await codeOf(alice.send(old.did, "one side"))).toBe("believed");
    await add(next, link(next, "From", `http://${south.home}/resolve/${old.did}`));
    const error = await alice.send(old.did, "both").catch((thrown: unknown) => thrown);
    expect([(error as ClientError).code, (error as ClientError).extra.expected]).toEqual([
      "identity_moved",
      next.did,
    ]);
    expect(await codeOf(alice.send(next.did, "there"))).toBe("believed");
  });

  test("follows a person whose Directory has another host now", async () => {
    const { south } = providers();
    const [before, after] = [await startLiar(), freePort()];
    const person = await open(before.behind);
    expect(await codeAt(south.home, proofPath(person.did, before.home))).toBe("found");
    const server = Bun.serve({
      hostname: "127.0.0.1",
      port: after,
      fetch: (request) => fetch(`http://${before.behind.home}${new URL(request.url).pathname}`),
    });
    stops.push(() => server.stop(true));
    const move = (service: Service) =>
      service.type === homeServiceType
        ? { ...service, serviceEndpoint: [`http://localhost:${after}`] }
        : service;
    const edited = (document: DidDocument) => ({
      ...document,
      service: document.service.map(move),
    });
    await replaceDocument(person.client, person.did, {
      rootSeed: person.identity.rootSeed,
      edited,
      waiting,
    });
    await untilForgotten();
    const resolved = async () =>
      ((await (await read(south.home, `/resolve/${person.did}`)).json()) as { home: string }).home;
    expect(await resolved()).toBe(`localhost:${after}`);
    before.asked = [];
    await untilForgotten();
    expect([await resolved(), before.asked]).toEqual([`localhost:${after}`, []]);
  });
});
