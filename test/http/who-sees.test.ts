/**
 * Who sees what of a message (SECURITY.md): what stands in the store of a node, in its log and in
 * the request that brings a message, and what does not. A name that is promised to be there is
 * looked for too, so that the search itself is proven.
 */
import { beforeAll, expect, test } from "bun:test";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { memoryKeys } from "../../src/client/keys/key-stores.ts";
import { createIdentity } from "../../src/client/keys/keys.ts";
import { OwnIdentity } from "../../src/client/mail/own-identity.ts";
import { Passing } from "../../src/client/store/passing.ts";
import { Waypost } from "../../src/client/waypost.ts";
import { freePort } from "../support/executable.ts";
import { startTestNodes, type TestNodes } from "../support/nodes.ts";
import { scratchPaths } from "../support/scratch.ts";

/** The address that documents name, and where the nodes listen behind it. */
const url = `http://127.0.0.1:${freePort()}`;
const inner = `127.0.0.1:${freePort()}`;
const path = scratchPaths("who-sees")();
let nodes: TestNodes;
let [alice, bob, carol]: Waypost[] = [];
const words = {
  text: "the words of the letter",
  name: "the-name-of-the-file.txt",
  type: "text/x-the-media-type",
};
/** What the disk of the stopped node has, and what it logged. */
let disk = Buffer.alloc(0);
let log = "";
/** What the Relay was sent: signed by Alice, then by somebody who does not sign. */
const sent: string[] = [];
const front = Bun.serve({
  port: Number(new URL(url).port),
  hostname: "127.0.0.1",
  fetch: async (request) => {
    const { pathname, search } = new URL(request.url);
    const body = request.body === null ? null : await request.text();
    if (pathname.startsWith("/relay")) sent.push(body ?? "");
    const { method, headers } = request;
    return fetch(`http://${inner}${pathname}${search}`, { method, headers, body });
  },
});

beforeAll(async () => {
  nodes = await startTestNodes({
    server: { listen: [inner], log_level: "debug", drain_timeout: "2s" },
    stores: { main: { plugin: "lmdb", path, block_time_ms: 50 } },
    relay: { enabled: true, public_endpoints: [url] },
    cache: { enabled: true, public_endpoints: [url] },
  });
  const open = () =>
    Waypost.open({
      url,
      keys: memoryKeys(),
      waiting: { timeoutMs: 60_000, intervalMs: 20 },
    });
  [alice, bob, carol] = [await open(), await open(), await open()];
  const file = new File([words.text], words.name, { type: words.type });
  await alice.send(bob.did, file);
  const identity = createIdentity("unsigned");
  const unsigned = new OwnIdentity(carol.client, identity, { keys: memoryKeys() });
  const passing = await Passing.open(unsigned);
  await passing.send(bob.did, file, { anonymous: true });
  passing.close();
  for (const one of [alice, bob, carol]) await one.close();
  await nodes.stop();
  await front.stop(true);
  disk = Buffer.concat(readdirSync(path).map((name) => readFileSync(join(path, name))));
  log = JSON.stringify(nodes.lines);
}, 60_000);

/**
 * Where a text is: in the store, in the log, in the request that was signed, in the one that was
 * not.
 */
const placesOf = (text: string) => [
  disk.includes(text),
  log.includes(text),
  ...sent.map((body) => body.includes(text)),
];
const nowhere = [false, false, false, false];

test("two messages are on the disk, in the log by their id, and in two requests", () => {
  expect(sent.length).toBe(2);
  const ids = sent.map((body) => (JSON.parse(body) as { message_id: string }).message_id);
  for (const [i, id] of ids.entries()) expect(placesOf(id)).toEqual([true, true, i === 0, i === 1]);
});

test("what was written, the name of a file and its type are nowhere", () => {
  for (const text of Object.values(words)) {
    expect(placesOf(text)).toEqual(nowhere);
    expect(placesOf(btoa(text).slice(0, -4))).toEqual(nowhere);
  }
});

test("the recipient is on the disk and in each request, and not in the log", () => {
  expect(placesOf(bob?.did ?? "?")).toEqual([true, false, true, true]);
});

test("who signs outside is on the disk and in the request, and not in the log", () => {
  expect(placesOf(alice?.did ?? "?")).toEqual([true, false, true, false]);
});

test("who does not sign is in neither request", () => {
  expect(placesOf(carol?.did ?? "?")).toEqual([true, false, false, false]);
  expect(JSON.parse(sent[1] ?? "")).not.toHaveProperty("from");
});
