/**
 * `GET /delivery-resolution/{target}?keys=`: a node fetches the key bundle from the Caches that the
 * document names, and hands on what its owner signed for now, whatever a Cache hides, repeats,
 * mixes, or never ends to say.
 */
import { afterEach, describe, expect, test } from "bun:test";
import { renderAgreementKey, utf8 } from "../../src/core/codec/bytes.ts";
import { verifyEd25519 } from "../../src/core/codec/crypto.ts";
import type { JsonObject } from "../../src/core/codec/json.ts";
import { dayMs, minuteMs, secondMs, weekMs } from "../../src/core/codec/time.ts";
import { bundleAgreement } from "../../src/core/ledger/account.ts";
import { bundleDigest, type KeyBundle, renderBundle } from "../../src/core/message/bundle.ts";
import { createEgress } from "../../src/nodes/egress/egress.ts";
import { createMetrics } from "../../src/nodes/http/metrics.ts";
import { resolutionRoute } from "../../src/nodes/parties/admission.ts";
import { createBundles } from "../../src/nodes/parties/bundles.ts";
import { testApp } from "../support/app.ts";
import { bundleKey, bundleOf } from "../support/bundles.ts";
import {
  cacheEndpoint,
  createPerson,
  createTestCache,
  type Person,
  testNowMs,
} from "../support/cache-node.ts";
import { limitsDefault, relayDefault } from "../support/settings.ts";

const stops: (() => unknown)[] = [];
afterEach(async () => {
  for (const stop of stops.splice(0)) await stop();
});

const eve = createPerson(2);

/** A person whose document announces bundles, at these Caches. */
function announcing(caches: readonly string[]): Person {
  const person = createPerson(
    1,
    caches.map((cache) => ({ serviceEndpoint: [cache] })),
  );
  const { did, document } = person;
  const agreement = (id: string, type: string, publicKeyMultibase: string) => ({
    id: `${did}#${id}`,
    type,
    controller: did,
    publicKeyMultibase,
  });
  const keyAgreement = [
    agreement("x1", "X25519KeyAgreementKey2020", renderAgreementKey(new Uint8Array(32).fill(9))),
    agreement("v2", bundleAgreement.type, bundleAgreement.publicKeyMultibase),
  ];
  return { ...person, document: { ...document, keyAgreement } };
}

/** What a Cache answers now; `asked` counts. */
type FakeCache = {
  answer: () => Response | Promise<Response>;
  asked: number;
  readonly requests: { method: string; url: string; names: string[] }[];
  readonly url: string;
};

function openCache(): FakeCache {
  const server = Bun.serve({
    port: 0,
    hostname: "127.0.0.1",
    idleTimeout: 0,
    fetch: ({ method, url, headers }) => {
      fake.asked++;
      fake.requests.push({ method, url, names: [...headers.keys()].sort() });
      return fake.answer();
    },
  });
  stops.push(() => server.stop(true));
  const fake: FakeCache = {
    url: `http://127.0.0.1:${server.port}`,
    asked: 0,
    requests: [],
    answer: () => Response.json({ code: "not_found" }, { status: 404 }),
  };
  return fake;
}

const shows = (bundle: KeyBundle) => () => Response.json(renderBundle(bundle));

async function openNode() {
  const own = await createTestCache();
  const clock = { nowMs: testNowMs };
  const metrics = createMetrics();
  const settings = {
    ...relayDefault,
    allow_http: true,
    allow_private: ["127.0.0.0/8"],
    public_endpoints: [],
  };
  const bundles = createBundles({
    metrics,
    egress: createEgress({ settings }),
    verify: verifyEd25519,
    own: { endpoints: [cacheEndpoint], bundle: own.cache.bundle },
    skewMs: limitsDefault.clock_skew,
    now: () => clock.nowMs,
  });
  stops.push(bundles.close);
  const route = resolutionRoute({
    recipients: own.recipients,
    limits: limitsDefault,
    unavailable: "service_unavailable",
    ledger: null,
    bundles,
  });
  const app = testApp([route], { now: () => clock.nowMs });
  const ask = async (did: string, query = "?keys=") => {
    const response = await app.ask(`/delivery-resolution/${did}${query}`);
    return { status: response.status, body: (await response.json()) as JsonObject };
  };
  const put = (did: string, bundle: KeyBundle) =>
    own.capabilities.receipts.put(
      `bundle:${did}`,
      utf8(JSON.stringify(renderBundle(bundle))),
      bundle.notAfterMs,
    );
  return { ask, put, clock, metrics, recipients: own.recipients };
}

const shownOf = ({ body }: { readonly body: JsonObject }) =>
  body["key_bundle"] ?? body["key_bundle_missing"] ?? body["key_bundle_sha256"];

/** A node, a Cache and a person there. */
async function scene(caches = 1) {
  const node = await openNode();
  const fakes = Array.from({ length: caches }, openCache);
  const [cache] = fakes as [FakeCache, ...FakeCache[]];
  const bob = announcing(fakes.map(({ url }) => url));
  node.recipients.add(bob);
  return { node, cache, fakes, bob };
}

describe("a key bundle for a sender", () => {
  test("comes as it was signed, once, and not at all where nobody asks", async () => {
    const { node, cache, bob } = await scene();
    const bundle = bundleOf(bob, testNowMs);
    cache.answer = shows(bundle);
    const plain = await node.ask(bob.did, "");
    expect(Object.keys(plain.body)).not.toContain("key_bundle_sha256");
    expect(cache.asked).toBe(0);
    const full = await node.ask(bob.did);
    const digest = bundleDigest(bundle);
    expect([full.status, full.body["key_bundle"], full.body["key_bundle_sha256"]]).toEqual([
      200,
      renderBundle(bundle),
      digest,
    ]);
    expect(full.body).toMatchObject(plain.body);
    const known = await node.ask(bob.did, `?keys=${digest}`);
    expect(known.body).toEqual({ ...plain.body, key_bundle_sha256: digest });
    const other = await node.ask(bob.did, `?keys=${"0".repeat(64)}`);
    expect(shownOf(other)).toEqual(renderBundle(bundle));
    expect(cache.asked).toBe(1);
    expect(await node.metrics.render()).toContain('key_bundles_total{outcome="found"} 3');
  });

  test("is remembered for ten minutes, and fetched again after them", async () => {
    const { node, cache, bob } = await scene();
    const [first, second] = [bundleOf(bob, testNowMs), bundleOf(bob, testNowMs + 1)];
    cache.answer = shows(first);
    await node.ask(bob.did);
    cache.answer = shows(second);
    node.clock.nowMs += 10 * minuteMs - 1;
    expect(shownOf(await node.ask(bob.did))).toEqual(renderBundle(first));
    node.clock.nowMs += 1;
    expect(shownOf(await node.ask(bob.did))).toEqual(renderBundle(second));
    expect(cache.asked).toBe(2);
  });

  test("is asked for by the node, which says nothing of who wants it", async () => {
    const { node, cache, bob } = await scene();
    await node.ask(bob.did);
    const names = ["accept", "accept-encoding", "connection", "host", "user-agent"];
    expect(cache.requests).toEqual([
      { method: "GET", url: `${cache.url}/cache/keys/${bob.did}`, names },
    ]);
  });

  test("is not fetched for a document that announces none", async () => {
    const { node, cache, bob } = await scene();
    const { document } = bob;
    const keyAgreement = document.keyAgreement.slice(0, 1);
    node.recipients.add({ ...bob, document: { ...document, keyAgreement } });
    expect(shownOf(await node.ask(bob.did))).toBe("not_announced");
    expect(cache.asked).toBe(0);
  });

  test("is 400 for what is no digest", async () => {
    const { node, bob } = await scene();
    expect((await node.ask(bob.did, "?keys=abc")).status).toBe(400);
  });

  test("comes from the Cache of the node itself as soon as it is there", async () => {
    const node = await openNode();
    const bob = announcing([cacheEndpoint]);
    node.recipients.add(bob);
    expect(shownOf(await node.ask(bob.did))).toBe("none");
    for (const bundle of [bundleOf(bob, testNowMs), bundleOf(bob, testNowMs + 1)]) {
      await node.put(bob.did, bundle);
      expect(shownOf(await node.ask(bob.did))).toEqual(renderBundle(bundle));
    }
  });
});

describe("several Caches", () => {
  test("the newest counts, whoever shows it", async () => {
    const { node, fakes, bob } = await scene(4);
    const at = (ms: number) => bundleOf(bob, testNowMs + ms);
    for (const [i, ms] of [3, 9, 5, 1].entries()) (fakes[i] as FakeCache).answer = shows(at(ms));
    expect(shownOf(await node.ask(bob.did))).toEqual(renderBundle(at(9)));
  });

  test("one that is away, hides or lies takes nothing from the others", async () => {
    const { node, fakes, bob } = await scene(4);
    const [gone, hiding, lying, honest] = fakes as [FakeCache, FakeCache, FakeCache, FakeCache];
    gone.answer = () => new Response("", { status: 502 });
    hiding.answer = () => Response.json({ code: "not_found" }, { status: 404 });
    lying.answer = shows(bundleOf({ ...bob, seed: eve.seed }, testNowMs + minuteMs));
    honest.answer = shows(bundleOf(bob, testNowMs));
    expect(shownOf(await node.ask(bob.did))).toEqual(renderBundle(bundleOf(bob, testNowMs)));
  });

  test("no more than four are asked", async () => {
    const { node, fakes, bob } = await scene(6);
    await node.ask(bob.did);
    expect(fakes.map(({ asked }) => asked)).toEqual([1, 1, 1, 1, 0, 0]);
  });
});

describe("a Cache that lies is not believed", () => {
  const bob = announcing([]);
  const good = bundleOf(bob, testNowMs);
  const changed = (change: Partial<KeyBundle>) => shows({ ...good, ...change });
  const lies: readonly (readonly [string, () => Response | Promise<Response>, string])[] = [
    ["a bundle of another DID", shows(bundleOf(eve, testNowMs)), "invalid"],
    [
      "another's key under this DID",
      shows(bundleOf({ ...bob, seed: eve.seed }, testNowMs)),
      "invalid",
    ],
    [
      "another's bundle with this DID in it",
      shows({ ...bundleOf(eve, testNowMs), did: bob.did, signer: bob.keyId }),
      "invalid",
    ],
    ["one that has ended", shows(bundleOf(bob, testNowMs - weekMs)), "invalid"],
    ["one of the future", shows(bundleOf(bob, testNowMs + 6 * minuteMs)), "invalid"],
    ["another end", changed({ notAfterMs: good.notAfterMs - 1 }), "invalid"],
    ["a later time", changed({ issuedAtMs: good.issuedAtMs + 1 }), "invalid"],
    ["another key", changed({ publicKey: bundleKey(8) }), "invalid"],
    ["a method that is not listed", changed({ signer: `${bob.did}#k2` }), "invalid"],
    ["no JSON", () => new Response("hello"), "invalid"],
    [
      "too much",
      () => new Response(JSON.stringify(renderBundle(good)) + " ".repeat(4_096)),
      "invalid",
    ],
    ["without end", () => new Response(endless()), "invalid"],
    ["nothing", () => Response.json({ code: "not_found" }, { status: 404 }), "none"],
    ["a page that is not there", () => new Response("no", { status: 404 }), "unavailable"],
    ["a redirect", () => Response.redirect("http://127.0.0.1:9/"), "unavailable"],
    ["an error", () => new Response("", { status: 500 }), "unavailable"],
  ];
  test.each(lies)("%s", async (_, answer, outcome) => {
    const { node, cache, bob: there } = await scene();
    cache.answer = answer;
    expect(shownOf(await node.ask(there.did))).toBe(outcome);
    // Its failure is remembered for a short time only.
    cache.answer = shows(good);
    node.clock.nowMs += 10 * secondMs;
    expect(shownOf(await node.ask(there.did))).toEqual(renderBundle(good));
  });

  test("hangs: the sender waits three seconds, and the answer has what the node knows", async () => {
    const { node, cache, bob: there } = await scene();
    cache.answer = () => new Promise<Response>(() => {});
    const startedMs = performance.now();
    expect(shownOf(await node.ask(there.did))).toBe("unavailable");
    expect(performance.now() - startedMs).toBeGreaterThan(2_900);
    await node.ask(there.did);
    expect(cache.asked).toBe(1);
  }, 20_000);

  test("what was seen is not undone by an earlier one, nor by silence", async () => {
    const { node, cache, bob: there } = await scene();
    const [first, second] = [bundleOf(bob, testNowMs), bundleOf(bob, testNowMs + 1)];
    const isSecond = async () =>
      expect(shownOf(await node.ask(there.did))).toEqual(renderBundle(second));
    cache.answer = shows(second);
    await isSecond();
    for (const answer of [
      shows(first),
      () => new Response("", { status: 500 }),
      shows(bundleOf(eve, 0)),
    ]) {
      cache.answer = answer;
      node.clock.nowMs += 10 * minuteMs;
      await isSecond();
    }
    expect(cache.asked).toBe(4);
    node.clock.nowMs = second.notAfterMs;
    cache.answer = shows(first);
    expect(shownOf(await node.ask(there.did))).toBe("invalid");
  });

  test("a signer that the document has dropped ends its bundle at once", async () => {
    const { node, cache, bob: there } = await scene();
    cache.answer = shows(good);
    expect(shownOf(await node.ask(there.did))).toEqual(renderBundle(good));
    const [method] = createPerson(3).document.verificationMethod;
    const { publicKeyMultibase = "" } = method ?? {};
    const keyId = `${there.did}#k9`;
    const next = { id: keyId, type: "Multikey", controller: there.did, publicKeyMultibase };
    node.recipients.add({
      ...there,
      document: { ...there.document, verificationMethod: [next], authentication: [keyId] },
    });
    expect(shownOf(await node.ask(there.did))).toBe("invalid");
    const renewed = bundleOf({ ...createPerson(3), did: there.did, keyId }, testNowMs);
    cache.answer = shows(renewed);
    node.clock.nowMs += dayMs / 24;
    expect(shownOf(await node.ask(there.did))).toEqual(renderBundle(renewed));
  });
});

test("a client network that asks too much gets a code, and no Cache is asked for it", async () => {
  const { node, cache } = await scene();
  const outcomes: unknown[] = [];
  for (let n = 0; n < 1_002; n++) {
    // A document that names another Cache makes another question.
    const bob = announcing([`${cache.url}/${n}`]);
    node.recipients.add(bob);
    outcomes.push(shownOf(await node.ask(bob.did)));
  }
  expect(outcomes.slice(0, 1_000)).toEqual(new Array(1_000).fill("none"));
  expect(outcomes.slice(1_000)).toEqual(["rate_limited", "rate_limited"]);
  expect(cache.asked).toBe(1_000);
}, 30_000);

function endless(): ReadableStream<Uint8Array> {
  return new ReadableStream({ pull: (to) => to.enqueue(new Uint8Array(1_024).fill(32)) });
}
