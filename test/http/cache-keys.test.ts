/** Key bundles at the Cache: their owner puts them, everybody reads them, and a later one stays. */
import { describe, expect, test } from "bun:test";
import { dayMs, minuteMs, secondMs, weekMs } from "../../src/core/codec/time.ts";
import { type KeyBundle, renderBundle } from "../../src/core/message/bundle.ts";
import { connectionFrom, respond } from "../support/app.ts";
import { bundleKey, bundleOf } from "../support/bundles.ts";
import {
  cachesKnowing,
  createPerson,
  outcomeOf,
  proofHeaders,
  type TestCache,
  testNowMs,
} from "../support/cache-node.ts";

const bob = createPerson(1);
const eve = createPerson(2);
const cacheFor = cachesKnowing(bob, eve);
const at = (ms: number, change: Parameters<typeof bundleOf>[2] = {}) =>
  bundleOf(bob, testNowMs + ms, change);

const hashOf = (text: string) => new Bun.CryptoHasher("sha256").update(text).digest("hex");

async function put(
  node: TestCache,
  bundle: KeyBundle | string,
  { owner = bob, signed, operation = "keys" as const }: PutOptions = {},
): Promise<Response> {
  const body = typeof bundle === "string" ? bundle : JSON.stringify(renderBundle(bundle));
  const timestamp = new Date(node.clock.nowMs).toISOString();
  const subject = hashOf(signed ?? body);
  return respond(
    node.app,
    new Request(`http://cache.example/cache/keys/${bob.did}`, {
      method: "PUT",
      headers: {
        "content-type": "application/json",
        ...proofHeaders(owner, { did: bob.did, operation, subject, timestamp }),
      },
      body,
    }),
    connectionFrom("198.51.100.200"),
  );
}

type PutOptions = {
  readonly owner?: typeof bob;
  readonly signed?: string;
  readonly operation?: "keys" | "pass";
};

const read = (node: TestCache, did: string = bob.did) => node.read(`/cache/keys/${did}`, {});

describe("a key bundle", () => {
  test("is read by everybody as it was put", async () => {
    const node = await cacheFor();
    expect(await outcomeOf(read(node))).toBe("404 not_found");
    const bundle = at(0);
    const answer = await put(node, bundle);
    expect([answer.status, await answer.json()]).toEqual([
      200,
      {
        key_id: bundle.keyId,
        issued_at: "2026-07-16T12:00:00.000Z",
        not_after: "2026-07-23T12:00:00.000Z",
      },
    ]);
    const shown = await read(node);
    expect([shown.status, await shown.json()]).toEqual([200, renderBundle(bundle)]);
    expect(await outcomeOf(read(node, eve.did))).toBe("404 not_found");
  });

  test("gives way to a later one, and to no earlier one", async () => {
    const node = await cacheFor();
    const [first, second] = [at(-minuteMs), at(0, { publicKey: bundleKey(8) })];
    expect(await outcomeOf(put(node, second))).toBe("200 ok");
    expect(await outcomeOf(put(node, first))).toBe("409 bundle_stale");
    const beside = at(0, { publicKey: bundleKey(9) });
    expect(await outcomeOf(put(node, beside))).toBe("409 bundle_stale");
    expect(await outcomeOf(put(node, second))).toBe("200 ok");
    expect(await (await read(node)).json()).toEqual(renderBundle(second));
    const third = at(1, { publicKey: bundleKey(9) });
    expect(await outcomeOf(put(node, third))).toBe("200 ok");
    expect(await (await read(node)).json()).toEqual(renderBundle(third));
  });

  test("ends by itself, and an earlier one that lasts longer does not come back", async () => {
    const node = await cacheFor();
    const short = at(0, { notAfterMs: testNowMs + dayMs });
    expect(await outcomeOf(put(node, short))).toBe("200 ok");
    node.clock.nowMs += dayMs - 1;
    expect(await outcomeOf(read(node))).toBe("200 ok");
    node.clock.nowMs += 1;
    expect(await outcomeOf(read(node))).toBe("404 not_found");
    expect(await outcomeOf(put(node, at(-secondMs)))).toBe("409 bundle_stale");
    node.clock.nowMs = testNowMs + weekMs;
    const key = `bundle:${bob.did}`;
    expect(await node.capabilities.receipts.get(key, node.clock.nowMs)).toBeNull();
  });

  test("gives way to an earlier one when it is of the future, since the clock was set back", async () => {
    const node = await cacheFor();
    node.clock.nowMs += 8 * dayMs;
    expect(await outcomeOf(put(node, at(8 * dayMs)))).toBe("200 ok");
    node.clock.nowMs -= 8 * dayMs;
    expect(await outcomeOf(read(node))).toBe("404 not_found");
    expect(await outcomeOf(put(node, at(0)))).toBe("200 ok");
    expect(await outcomeOf(put(node, at(-1)))).toBe("409 bundle_stale");
    expect(await (await read(node)).json()).toEqual(renderBundle(at(0)));
  });

  test("of many puts at once is the latest", async () => {
    const node = await cacheFor();
    const all = Array.from({ length: 16 }, (_, i) =>
      at((i * 7) % 16, { publicKey: bundleKey(i % 12) }),
    );
    const outcomes = await Promise.all(all.map((bundle) => outcomeOf(put(node, bundle))));
    expect(new Set(outcomes)).toEqual(new Set(["200 ok", "409 bundle_stale"]));
    const latest = all.find(({ issuedAtMs }) => issuedAtMs === testNowMs + 15) as KeyBundle;
    expect(await (await read(node)).json()).toEqual(renderBundle(latest));
  });

  test("is not of another life of its DID, nor of a deactivated one", async () => {
    const node = await cacheFor();
    await put(node, at(0));
    node.recipients.add(bob, { life: 1 });
    expect(await outcomeOf(read(node))).toBe("404 not_found");
    node.recipients.add(bob, { deactivated: true });
    expect(await outcomeOf(read(node))).toBe("404 not_found");
  });
});

describe("PUT /cache/keys", () => {
  const skewMs = 5 * minuteMs;
  test.each([
    ["of another DID", bundleOf(eve, testNowMs), "400 invalid_request"],
    [
      "signed by another key",
      bundleOf({ ...bob, seed: eve.seed }, testNowMs),
      "403 invalid_signature",
    ],
    ["by an unlisted method", at(0, { signer: `${bob.did}#k2` }), "403 invalid_signature"],
    ["of the future", at(skewMs + 1), "400 invalid_request"],
    ["that has ended", at(-weekMs), "400 invalid_request"],
    ["longer than a week", at(0, { notAfterMs: testNowMs + weekMs + 1 }), "400 invalid_request"],
    ["that is not JSON", "{", "400 invalid_json"],
    ["that is too long", " ".repeat(5_000), "413 too_large"],
  ])("refuses one %s", async (_, bundle, outcome) => {
    expect(await outcomeOf(put(await cacheFor(), bundle))).toBe(outcome);
  });

  test("takes one of a clock that is ahead by the skew", async () => {
    expect(await outcomeOf(put(await cacheFor(), at(skewMs)))).toBe("200 ok");
  });

  test("refuses a body that the proof does not cover, another operation, and another's proof", async () => {
    const node = await cacheFor();
    expect(await outcomeOf(put(node, at(0), { signed: "{}" }))).toBe("401 proof_invalid");
    const asPass = { operation: "pass" } as const;
    expect(await outcomeOf(put(node, at(0), asPass))).toBe("401 proof_invalid");
    const ofEve = { owner: eve };
    expect(await outcomeOf(put(node, at(0), ofEve))).toBe("403 proof_not_authorized");
    expect(await outcomeOf(read(node))).toBe("404 not_found");
  });
});
