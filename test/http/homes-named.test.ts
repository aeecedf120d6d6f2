/** What a request may name as a home, and what a named home costs a node. */
import { afterAll, expect, test } from "bun:test";
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
