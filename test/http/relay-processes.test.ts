/** Relay processes on one shared port, as in `examples/relay-a.toml`, with a Directory in this process. */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { join } from "node:path";
import type { Subprocess } from "bun";
import { utf8 } from "../../src/core/codec/bytes.ts";
import { sha256 } from "../../src/core/codec/crypto.ts";
import { emptyDocument } from "../../src/core/ledger/document.ts";
import type { Person } from "../support/cache-node.ts";
import { simpleDocument } from "../support/directory.ts";
import { freePort, scratchFolder } from "../support/executable.ts";
import { identityOf } from "../support/identity.ts";
import { registerAt, startTestNodes, type TestNodes } from "../support/nodes.ts";

const root = join(import.meta.dir, "..", "..");
const scratch = scratchFolder();
const shared = `http://127.0.0.1:${freePort()}`;
const endpoint = "https://relay.example.org";
type Letter = "a" | "b";
/** Each process also listens on a port of its own, so that a test can choose whom it asks. */
const own = { a: `http://127.0.0.1:${freePort()}`, b: `http://127.0.0.1:${freePort()}` };
const admin = (letter: Letter): string => join(scratch.path, `admin-${letter}.sock`);
const started: Subprocess[] = [];
const running: Partial<Record<Letter, Subprocess>> = {};
let nodes: TestNodes;
let example: string;

const carol = identityOf("carol of two processes");
const person: Person = {
  did: carol.did,
  seed: sha256(utf8(`waypost test key ${carol.label}`)),
  keyId: `${carol.did}#k1`,
  serviceId: `${carol.did}#relay`,
  document: emptyDocument(carol.did),
};

beforeAll(async () => {
  example = await Bun.file(join(root, "examples", "relay-a.toml")).text();
  nodes = await startTestNodes({ relay: {} });
  const services = [
    { id: person.serviceId, type: "SvcRelayService", serviceEndpoint: [endpoint], authorization: [person.keyId] },
    { id: `${carol.did}#cache`, type: "SvcCacheService", serviceEndpoint: [nodes.url], authorization: [person.keyId] },
  ];
  const document = { ...simpleDocument(carol), service: services };
  await registerAt(nodes.url, carol, document);
}, 120_000);

afterAll(async () => {
  for (const child of started) child.kill("SIGKILL");
  await Promise.all(started.map((child) => child.exited));
  await nodes.stop();
  scratch.remove();
});

/** The example, but for places and ports. */
function configOf(letter: Letter): string {
  const swapped = (_all: string, of: Letter): string => (of === "a" ? "-b" : "-a");
  const named = letter === "a" ? example : example.replace(/-([ab])\b/g, swapped);
  const listening = `"${shared.slice(7)}", "${own[letter].slice(7)}"`;
  const text = named
    .replace('"127.0.0.1:7410"', listening)
    .replaceAll("/run/waypost", scratch.path)
    .replaceAll("/var/lib/waypost", scratch.path)
    .replace("https://directory.example.org", nodes.url);
  return `${text}allow_http = true\nallow_private = ["127.0.0.0/8"]\nrate_limit_loopback = false\n`;
}

async function start(letter: Letter): Promise<void> {
  const file = join(scratch.path, `relay-${letter}.toml`);
  await Bun.write(file, configOf(letter));
  const child = Bun.spawn([process.execPath, join(root, "src", "main.ts"), "serve", "--config", file], {
    env: { PATH: "/usr/bin:/bin", HOME: scratch.path },
    stdout: "ignore",
    stderr: "pipe",
  });
  started.push(child);
  // The admin socket listens last.
  const answers = () =>
    metric(letter, "http_requests_total").then(
      () => true,
      () => false,
    );
  while (child.exitCode === null && !(await answers())) await Bun.sleep(20);
  running[letter] = child;
}

/** The value of a metric, asked at the process's own admin socket. */
async function metric(letter: Letter, name: string): Promise<number> {
  const text = await (await fetch("http://admin/metrics", { unix: admin(letter) })).text();
  const lines = text.split("\n").filter((line) => line.startsWith(`waypost_${name}`));
  return lines.reduce((sum, line) => sum + Number(line.split(" ").at(-1)), 0);
}

test("the example of the documentation runs as two processes on one port, which both take connections", async () => {
  expect(example).toContain("share_port = true");
  await Promise.all([start("a"), start("b")]);
  const before = { a: await metric("a", "http_requests_total"), b: await metric("b", "http_requests_total") };
  for (let i = 0; i < 40; i++) await fetch(`${shared}/limits`, { headers: { connection: "close" } });
  expect(await metric("a", "http_requests_total")).toBeGreaterThan(before.a);
  expect(await metric("b", "http_requests_total")).toBeGreaterThan(before.b);
}, 120_000);

test("a process that does not share may not listen on the port", async () => {
  const file = join(scratch.path, "third.toml");
  const text = configOf("b").replace("share_port = true", "");
  await Bun.write(file, text.replaceAll("-b", "-third").replace(own.b.slice(7), `127.0.0.1:${freePort()}`));
  const child = Bun.spawn([process.execPath, join(root, "src", "main.ts"), "serve", "--config", file], {
    stdout: "ignore",
    stderr: "pipe",
  });
  started.push(child);
  expect(await child.exited).toBe(1);
  expect(await new Response(child.stderr).text()).toContain("can't be listened on");
}, 120_000);
