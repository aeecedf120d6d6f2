/** What a request may name as a home, and what a named home costs a node. */
import { afterAll, expect, test } from "bun:test";
import { memoryKeys } from "../../src/client/keys/key-stores.ts";
import { Waypost } from "../../src/client/waypost.ts";
import { freePort } from "../support/executable.ts";
import { startTestNodes } from "../support/nodes.ts";
import { startProvider } from "../support/providers.ts";

const stops: (() => unknown)[] = [];
afterAll(async () => {
  for (const stop of stops.toReversed()) await stop();
});

const did = `did:svc:wp${"2".repeat(28)}`;

async function codeOf(url: string): Promise<string> {
  const answer = await fetch(url);
  return answer.ok ? "found" : ((await answer.json()) as { code: string }).code;
}

test("a text that names no home is refused on every route, and is no absence", async () => {
  const [provider, closed] = [await startProvider({ port: freePort() }), await startTestNodes()];
  stops.push(provider.stop, closed.stop);
  const texts = [
    "",
    "10.0.0.1",
    "[fd00::1]",
    "nodot",
    "user@host.example",
    "host.example/path",
    "x.example:99999",
    "xn--a.example",
    "127.0.0.1:1",
    "a b",
  ];
  const paths = [
    "/aliases/bob",
    `/resolve/${did}`,
    `/dids/${did}/proof`,
    `/delivery-resolution/${did}`,
  ];
  const ofLog = `/log/entry/${"00".repeat(32)}`;
  // Without a public endpoint a Directory asks no other, and has no route to the logs of others.
  for (const url of [`http://${provider.home}`, closed.url])
    for (const path of url === closed.url ? paths : [...paths, ofLog])
      for (const text of texts) {
        const code = await codeOf(`${url}${path}?home=${encodeURIComponent(text)}`);
        expect([path, text, code]).toEqual([path, text, "invalid_request"]);
      }
});

/** How often a node has been asked for a key proof. */
async function proofsServed(url: string): Promise<number> {
  const text = await (await fetch(`${url}/metrics`)).text();
  const rows = text.matchAll(/http_requests_total\{[^}]*route="\/dids\/:did\/proof"[^}]*\} (\d+)/g);
  return [...rows].reduce((sum, [, count]) => sum + Number(count), 0);
}

test("homes that are invented for a known DID cost no look-up and no question", async () => {
  const resolved: string[] = [];
  const resolve = async (host: string) => {
    resolved.push(host);
    return ["127.0.0.1"];
  };
  const own = `http://localhost:${freePort()}`;
  const [house, other] = [
    await startTestNodes(
      {
        server: { listen: [`127.0.0.1:${new URL(own).port}`], drain_timeout: "2s" },
        directory: { enabled: true, rate_limit_loopback: false, public_endpoint: own },
      },
      {},
      { resolve },
    ),
    await startProvider({ port: freePort() }),
  ];
  stops.push(house.stop, other.stop);
  const me = await Waypost.open({
    url: `http://${other.home}`,
    keys: memoryKeys(),
    waiting: { timeoutMs: 60_000, intervalMs: 20 },
  });
  stops.push(() => me.close());
  const path = `/resolve/${me.did}`;
  expect(await codeOf(`${own}${path}?home=${other.home}`)).toBe("found");
  expect(await codeOf(own + path)).toBe("found");
  const before = await proofsServed(`http://${other.home}`);
  resolved.length = 0;
  for (let n = 0; n < 50; n++)
    expect(await codeOf(`${own}${path}?home=x${n}.evil-homes.net`)).toBe("found");
  expect([await proofsServed(`http://${other.home}`), resolved]).toEqual([before, []]);
});
