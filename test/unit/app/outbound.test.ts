/**
 * The outbound requests of a process: each purpose has places of its own and the slots of a host
 * that suit it. Names of hosts are never resolved here, so that each request that was begun is
 * seen, and none ends.
 */
import { afterEach, expect, test } from "bun:test";
import { outboundOf } from "../../../src/app/outbound.ts";
import { configSchema } from "../../../src/config/schema.ts";
import type { Egress } from "../../../src/nodes/egress/egress.ts";

const own = "https://own.example.org";
const config = configSchema.parse({ relay: { public_endpoints: [own] } });

let resolved: string[] = [];
const outbound = outboundOf(config, {
  resolve: (host) => {
    resolved.push(host);
    return new Promise(() => {});
  },
});
const opened: Pick<Egress, "close">[] = [];
afterEach(() => {
  for (const egress of opened.splice(0)) egress.close();
  resolved = [];
});

function open(egress: Egress): Egress {
  opened.push(egress);
  return egress;
}

/**
 * Begins so many requests, each for a client of another network, and counts those whose host was
 * looked up.
 */
async function begun(egress: Egress, count: number, hostOf: (at: number) => string) {
  const before = resolved.length;
  for (let at = 0; at < count; at++) {
    void egress.send({
      endpoint: `https://${hostOf(at)}`,
      suffix: "",
      body: null,
      wantsBody: () => false,
      client: `198.51.${at >> 8}.${at & 255}`,
      timeoutMs: 60_000,
    });
  }
  await new Promise(setImmediate);
  return resolved.length - before;
}

const otherHosts = (at: number) => `host${at}.example${at}.org`;
const oneHost = () => "one.example.org";

test("confirmations at hosts that hang take no place of a push, and pushes none of a confirmation", async () => {
  const { egress, confirmations } = outbound.pushes();
  for (const one of [egress, confirmations]) open(one);
  expect(await begun(confirmations, 100, otherHosts)).toBe(32);
  expect(await begun(egress, 100, otherHosts)).toBe(64);
});

test("a push service takes 32 requests at once, whatever its hosts are called", async () => {
  const { egress, confirmations } = outbound.pushes();
  for (const one of [egress, confirmations]) open(one);
  expect(await begun(egress, 60, (at) => `web${at}.push.example.org`)).toBe(32);
  expect(await begun(confirmations, 60, (at) => `web${at}.push.example.org`)).toBe(32);
});

test("16 bundles are asked for at one Cache at once, and 128 in all", async () => {
  expect(await begun(open(outbound.bundles()), 40, oneHost)).toBe(16);
  expect(await begun(open(outbound.bundles()), 200, otherHosts)).toBe(128);
});

test("4 deliveries and 4 key proofs are on their way to one host at once", async () => {
  expect(await begun(open(outbound.deliveries()), 20, oneHost)).toBe(4);
  expect(await begun(open(outbound.homes()), 20, oneHost)).toBe(4);
});

test("a delivery to this Relay itself is refused, which would be a loop, and a question to its host is not", () => {
  const relay = `${own}/relay`;
  expect(open(outbound.deliveries()).refuses(relay)).toBe(true);
  for (const egress of [open(outbound.bundles()), open(outbound.homes())])
    expect(egress.refuses(relay)).toBe(false);
});
