/**
 * Relay processes as `docs/operating.md` says to run them: the example of "More than one Relay process",
 * on one shared port, killed and stopped while envelopes are under way. A Directory and a Cache stand
 * beside them in this process.
 */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { join } from "node:path";
import type { Subprocess } from "bun";
import { utf8 } from "../../src/core/codec/bytes.ts";
import { sha256 } from "../../src/core/codec/hash.ts";
import { emptyDocument } from "../../src/core/ledger/document.ts";
import { envelopeTo, type Person } from "../support/cache-node.ts";
import { registerBodyOf, simpleDocument } from "../support/directory.ts";
import { freePort, scratchFolder } from "../support/executable.ts";
import { identityOf } from "../support/identity.ts";
import { authFrame, LiveClient, sessionUrl } from "../support/live-client.ts";
import { startTestNodes, type TestNodes } from "../support/nodes.ts";

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
  const page = await Bun.file(join(root, "docs", "operating.md")).text();
  example = /## More than one Relay process[\s\S]*?```toml\n([\s\S]*?)```/.exec(page)?.[1] ?? "";
  nodes = await startTestNodes({ relay: {} });
  const services = [
    { id: person.serviceId, type: "SvcRelayService", serviceEndpoint: [endpoint], authorization: [person.keyId] },
    { id: `${carol.did}#cache`, type: "SvcCacheService", serviceEndpoint: [nodes.url], authorization: [person.keyId] },
  ];
  const document = { ...simpleDocument(carol), service: services };
  await post(`${nodes.url}/register-did`, registerBodyOf(carol, Date.now(), { did_document: document }));
  const path = `${nodes.url}/registration-status/${encodeURIComponent(carol.did)}`;
  while (((await (await fetch(path)).json()) as { registered: boolean }).registered !== true) await Bun.sleep(20);
}, 30_000);

afterAll(async () => {
  for (const child of started) child.kill("SIGKILL");
  await Promise.all(started.map((child) => child.exited));
  await nodes.stop();
  scratch.remove();
});

async function post(url: string, body: unknown) {
  const headers = { "content-type": "application/json", connection: "close" };
  const response = await fetch(url, { method: "POST", headers, body: JSON.stringify(body) });
  return (await response.json()) as Record<string, unknown>;
}

/** The example as it stands in the documentation, but for places and ports. */
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
  const answers = () =>
    fetch(`${own[letter]}/healthz`).then(
      (response) => response.ok,
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

async function until(holds: () => Promise<boolean>): Promise<void> {
  while (!(await holds())) await Bun.sleep(10);
}

const linked = async (): Promise<boolean> =>
  (await metric("a", "relay_peer_linked{")) === 1 && (await metric("b", "relay_peer_linked{")) === 1;

async function live(letter: Letter): Promise<LiveClient> {
  const client = new LiveClient(sessionUrl(own[letter], person, "phone"));
  await client.opened;
  client.send(authFrame(person, "phone", { endpoint, timestamp: new Date().toISOString() }));
  const end = await Promise.race([client.closed, client.until(1)]);
  if (typeof end === "number") throw new Error(`the session was refused with ${end}`);
  return client;
}

const envelope = (number: number) => ({ ...envelopeTo(person, number), timestamp: new Date().toISOString() });
const send = (letter: Letter, number: number) => post(`${own[letter]}/relay`, envelope(number));

test("the example of the documentation runs as two processes on one port, which both take connections", async () => {
  expect(example).toContain("share_port = true");
  await Promise.all([start("a"), start("b")]);
  await until(linked);
  const before = { a: await metric("a", "http_requests_total"), b: await metric("b", "http_requests_total") };
  for (let i = 0; i < 40; i++) await fetch(`${shared}/limits`, { headers: { connection: "close" } });
  expect(await metric("a", "http_requests_total")).toBeGreaterThan(before.a);
  expect(await metric("b", "http_requests_total")).toBeGreaterThan(before.b);
}, 30_000);

test("a process that does not share may not listen on the port", async () => {
  const file = join(scratch.path, "third.toml");
  const text = configOf("b")
    .replace("share_port = true", "")
    .replace(/^peer.*$/gm, "");
  await Bun.write(file, text.replaceAll("-b", "-third").replace(own.b.slice(7), `127.0.0.1:${freePort()}`));
  const child = Bun.spawn([process.execPath, join(root, "src", "main.ts"), "serve", "--config", file], {
    stdout: "ignore",
    stderr: "pipe",
  });
  started.push(child);
  expect(await child.exited).toBe(1);
  expect(await new Response(child.stderr).text()).toContain("can't be listened on");
}, 20_000);

test("an envelope at one process is delivered to a client at the other", async () => {
  const client = await live("a");
  client.onEnvelope = (got) => client.ack(got);
  expect(await send("b", 1)).toMatchObject({ code: "delivered", details: { channel: "live" } });
  client.terminate();
}, 20_000);

test("a process that is killed loses nothing: what was with it goes to the Cache at once", async () => {
  const client = await live("a");
  const sending = send("b", 2);
  await client.until(2);
  const startMs = performance.now();
  running.a?.kill("SIGKILL");
  expect((await sending)["code"]).toBe("cached");
  expect(performance.now() - startMs).toBeLessThan(2_000);
  expect(await metric("b", "relay_peer_sessions")).toBe(0);
  // Its socket is left behind, and is no hindrance to the next.
  await start("a");
  await until(linked);
  const again = await live("a");
  again.onEnvelope = (got) => again.ack(got);
  expect((await send("b", 3))["code"]).toBe("delivered");
  again.terminate();
}, 40_000);

test("a process that is stopped holds nothing up for longer than the link's patience", async () => {
  const client = await live("a");
  await until(async () => (await metric("b", "relay_peer_sessions")) === 1);
  running.a?.kill("SIGSTOP");
  const startMs = performance.now();
  const [sent, other] = await Promise.all([send("b", 4), live("b")]);
  expect(sent["code"]).toBe("cached");
  expect(performance.now() - startMs).toBeLessThan(8_000);
  expect(await metric("b", "relay_peer_linked{")).toBe(0);
  // Without the link nothing waits any more.
  other.onEnvelope = (got) => other.ack(got);
  const aloneMs = performance.now();
  expect((await send("b", 5))["code"]).toBe("delivered");
  expect(performance.now() - aloneMs).toBeLessThan(1_000);
  running.a?.kill("SIGCONT");
  await until(linked);
  client.terminate();
  other.terminate();
}, 40_000);

test("a process that is told to end says goodbye to its peers", async () => {
  const client = await live("a");
  await until(async () => (await metric("b", "relay_peer_sessions")) === 1);
  running.a?.kill("SIGTERM");
  expect(await client.closed).toBe(1001);
  expect(await running.a?.exited).toBe(0);
  expect((await send("b", 6))["code"]).toBe("cached");
}, 40_000);
