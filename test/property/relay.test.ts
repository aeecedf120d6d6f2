/**
 * The Relay under arbitrary bodies, paths and headers: always a DeliveryResult, never a failure of
 * its own.
 */
import { afterAll, expect, test } from "bun:test";
import fc from "fast-check";
import { createPerson, envelopeTo } from "../support/cache-node.ts";
import { expectDeliveryResult } from "../support/delivery-shape.ts";
import { createTestRelay } from "../support/relay-node.ts";

const everything = {
  client_rate: 1e9,
  client_burst: 1e9,
  recipient_rate: 1e9,
  recipient_burst: 1e9,
};
const relay = await createTestRelay({ settings: everything });
const bob = createPerson(1);
relay.recipients.add(bob);
afterAll(relay.close);

const good = envelopeTo(bob, 1);
const member = fc.oneof(
  fc.constantFrom(
    ...Object.keys(good),
    "ttl",
    "tag",
    "context",
    "delivery_hint",
    "from",
    "recipient",
    "total_chunks",
    "__proto__",
  ),
  fc.string(),
);
const spoiled = fc
  .tuple(member, fc.jsonValue({ maxDepth: 3 }), fc.boolean())
  .map(([name, value, removed]) => {
    const members = Object.entries(good).filter(([known]) => known !== name);
    return JSON.stringify(Object.fromEntries(removed ? members : [...members, [name, value]]));
  });
const cut = fc
  .nat(JSON.stringify(good).length)
  .map((length) => JSON.stringify(good).slice(0, length));
const flipped = fc
  .tuple(fc.nat(JSON.stringify(good).length - 1), fc.string({ minLength: 1, maxLength: 1 }))
  .map(([at, char]) => {
    const text = JSON.stringify(good);
    return text.slice(0, at) + char + text.slice(at + 1);
  });
const body = fc.oneof(
  spoiled,
  cut,
  flipped,
  fc.string(),
  fc.json(),
  fc.constant(JSON.stringify(good)),
);
const path = fc.oneof(
  fc.constantFrom(
    "/relay",
    `/relay/${encodeURIComponent(bob.did)}`,
    "/relay/",
    "/relay/%ff",
    "/relay/..%2f",
  ),
  fc.string().map((text) => `/relay/${encodeURIComponent(text.toWellFormed())}`),
);
const headers = fc.record(
  { "svc-hops": fc.constantFrom("0", "3", "999", "-1", "x", "") },
  { requiredKeys: [] },
);

test("whatever is sent, the answer is a DeliveryResult that blames the sender or delivers", async () => {
  const codes = new Set<string>();
  await fc.assert(
    fc.asyncProperty(body, path, headers, async (text, where, extra) => {
      const response = await relay.raw(text, { path: where, headers: extra });
      const result = (await response.json()) as Record<string, unknown>;
      expectDeliveryResult(result);
      expect(result["http_status"]).toBe(response.status);
      expect(response.status).toBeLessThan(500);
      codes.add(String(result["code"]));
    }),
    { numRuns: 2_000 },
  );
  expect(codes.has("cached")).toBe(true);
  expect(codes.size).toBeGreaterThan(4);
});
