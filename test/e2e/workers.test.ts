/**
 * The executable with workers, over LMDB: it reads its configuration again on SIGHUP, drains on SIGTERM, and exits with
 * code 1 when a worker dies; after that, or after `kill -9` under load, everything that was answered is there. While
 * the main thread hangs, the workers refuse requests that need it.
 */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { cachesOf, connect } from "../../src/client/client.ts";
import { waitingDefault } from "../../src/client/directory.ts";
import { createIdentity, type Identity } from "../../src/client/keys.ts";
import { firstDocument, register, settleRegistration } from "../../src/client/registration.ts";
import { listPending } from "../../src/client/retrieve.ts";
import { executable, freePort, type RunningNode, run, scratchFolder, startNode } from "../support/executable.ts";

const scratch = scratchFolder();
const running: RunningNode[] = [];
beforeAll(async () => {
  await executable();
}, 120_000);
afterAll(async () => {
  await Promise.all(running.map((node) => node.kill("SIGKILL")));
  scratch.remove();
});

type Place = { readonly folder: string; readonly url: string };

function place(name: string, workers: number): Place {
  const folder = join(scratch.path, name);
  const address = `127.0.0.1:${freePort()}`;
  const url = `http://${address}`;
  const sections = [
    `[server]\nlisten = ["${address}"]\nworkers = ${workers}\ndrain_timeout = "5s"`,
    '[stores.main]\nplugin = "lmdb"\npath = "data"\nblock_time_ms = 50',
    "[directory]\nenabled = true\nrate_limit_loopback = false",
    `[relay]\nenabled = true\npublic_endpoints = ["${url}"]\nallow_http = true\nallow_private = ["127.0.0.0/8"]\nrate_limit_loopback = false`,
    `[cache]\nenabled = true\npublic_endpoints = ["${url}"]`,
  ];
  mkdirSync(folder);
  writeFileSync(join(folder, "waypost.toml"), `${sections.join("\n")}\n`);
  return { folder, url };
}

async function start({ folder, url }: Place, env: Readonly<Record<string, string>> = {}): Promise<RunningNode> {
  const node = await startNode(["serve"], { cwd: folder, url, env });
  running.push(node);
  return node;
}

async function enrol(url: string): Promise<Identity> {
  const client = connect({ directoryUrl: url, relayUrl: url });
  const identity = createIdentity("bob");
  const document = await firstDocument(identity, { relayUrl: url, cacheUrl: url });
  const waiting = { ...waitingDefault, timeoutMs: 20_000, intervalMs: 20 };
  await settleRegistration(client, await register(client, identity, { document, alias: null }), waiting);
  return identity;
}

async function store(url: string, to: string, messageId: string): Promise<number> {
  const payload = { ciphertext_b64: "AAAA" };
  const body = { message_id: messageId, to, timestamp: new Date().toISOString(), ttl: "1h", payload };
  const headers = { "content-type": "application/json", connection: "close" };
  const response = await fetch(`${url}/cache/store`, { method: "POST", headers, body: JSON.stringify(body) });
  await response.arrayBuffer();
  return response.status;
}

/** Waits for a line of the log that has all of these. */
async function untilPrinted(node: RunningNode, ...texts: string[]): Promise<void> {
  const isPrinted = () =>
    node
      .printed()
      .split("\n")
      .some((line) => texts.every((text) => line.includes(text)));
  for (const endMs = performance.now() + 10_000; !isPrinted(); await Bun.sleep(20)) {
    if (performance.now() > endMs) throw new Error(`not printed: ${texts}; but: ${node.printed()}`);
  }
}

/** A thread whose lines end like this. */
async function untilRefused(node: RunningNode, end: string): Promise<void> {
  const pattern = new RegExp(`"status":403,"code":"[a-z_]+","ms":[0-9.]+${end}$`, "m");
  for (const endMs = performance.now() + 10_000; !pattern.test(node.printed()); await Bun.sleep(20)) {
    if (performance.now() > endMs) throw new Error(`no line like ${pattern}; but: ${node.printed()}`);
  }
}

describe.each([2, 4])("the executable with %d threads", (workers) => {
  test("holds everything it answered when it is killed in the middle", async () => {
    const at = place(`killed-${workers}`, workers);
    let node = await start(at);
    const bob = await enrol(at.url);
    const answered: string[] = [];
    for (let round = 0; round < 3; round++) {
      let open = true;
      const sender = async (): Promise<void> => {
        while (open) {
          const id = crypto.randomUUID();
          // A connection that breaks was not answered.
          if ((await store(at.url, bob.did, id).catch(() => 0)) === 202) answered.push(id);
        }
      };
      const senders = Array.from({ length: 16 }, sender);
      const before = answered.length;
      while (answered.length < before + 60) await Bun.sleep(5);
      await node.kill("SIGKILL");
      open = false;
      await Promise.all(senders);
      node = await start(at);
    }
    const caches = await cachesOf(connect({ directoryUrl: at.url, relayUrl: at.url }), bob, "");
    const { pending } = await listPending(caches);
    const held = new Set(pending.flatMap((message) => message.held.map(({ messageId }) => messageId)));
    expect(answered.length).toBeGreaterThanOrEqual(180);
    expect(answered.filter((id) => !held.has(id))).toEqual([]);
    expect(await node.kill("SIGTERM")).toBe(0);
  }, 120_000);

  test("reads its configuration again in every thread, and ends in order", async () => {
    const at = place(`reloaded-${workers}`, workers);
    const node = await start(at);
    expect((await run(["health", at.url], { cwd: at.folder })).code).toBe(0);
    expect((await run(["doctor"], { cwd: at.folder })).stdout).toContain("ok    running node");
    const bob = await enrol(at.url);
    expect(await store(at.url, bob.did, crypto.randomUUID())).toBe(202);
    const file = join(at.folder, "waypost.toml");
    writeFileSync(file, `${readFileSync(file, "utf8")}deny_recipients = ["${bob.did}"]\n`);
    node.hangUp();
    await untilPrinted(node, "the configuration was reloaded");
    // The workers hear of it within the same turn of the main thread.
    await Bun.sleep(100);
    const refused = await Promise.all(Array.from({ length: 24 }, () => store(at.url, bob.did, crypto.randomUUID())));
    expect(new Set(refused)).toEqual(new Set([403]));
    // One of two threads is that of the stores, which does not name itself.
    const ends = workers === 2 ? ["}", `,"worker":1}`] : [0, 1, 2, 3].map((worker) => `,"worker":${worker}}`);
    for (const end of ends) await untilRefused(node, end);
    expect(await node.kill("SIGTERM")).toBe(0);
    expect(await node.output()).toContain('"stopped"');
  }, 60_000);
});

test("the executable ends with code 1 and the reason when a worker dies, and holds what it answered", async () => {
  const at = place("dying", 2);
  const [die, preload] = [join(at.folder, "die"), join(at.folder, "preload.js")];
  // Runs in the executable before its program: ends a worker once the file is there.
  const ending = `process.once("worker", (worker) => {
    const timer = setInterval(() => {
      if (!require("node:fs").existsSync(${JSON.stringify(die)})) return;
      clearInterval(timer);
      worker.terminate();
    }, 5);
  });`;
  writeFileSync(preload, ending);
  const node = await start(at, { BUN_OPTIONS: `--preload ${preload}` });
  const bob = await enrol(at.url);
  const answered: string[] = [];
  let open = true;
  const senders = Array.from({ length: 8 }, async () => {
    while (open) {
      const id = crypto.randomUUID();
      if ((await store(at.url, bob.did, id).catch(() => 0)) === 202) answered.push(id);
    }
  });
  while (answered.length < 40) await Bun.sleep(5);
  writeFileSync(die, "");
  const output = await node.output();
  open = false;
  await Promise.all(senders);
  expect(await node.kill("SIGKILL")).toBe(1);
  expect(output).toMatch(/"message":"the node must stop","reason":"worker 1 ended: exit code 1"/);
  const again = await start(at);
  const caches = await cachesOf(connect({ directoryUrl: at.url, relayUrl: at.url }), bob, "");
  const { pending } = await listPending(caches);
  const held = new Set(pending.flatMap((message) => message.held.map(({ messageId }) => messageId)));
  expect(answered.filter((id) => !held.has(id))).toEqual([]);
  expect(await again.kill("SIGTERM")).toBe(0);
}, 120_000);

/** How long the main thread hangs, and within which time everything must be answered: 5 to 6 s and some for this machine. */
const hangMs = 12_000;
const answeredMsMax = 9_000;
const hanging = `
  const { isMainThread } = require("node:worker_threads");
  if (isMainThread) process.on("SIGUSR2", () => { for (const endMs = Date.now() + ${hangMs}; Date.now() < endMs;); });
`;

test("while the thread of the stores hangs, requests end with 503 in time; afterwards it goes on", async () => {
  const at = place("hanging", 3);
  const preload = join(at.folder, "hang.cjs");
  writeFileSync(preload, hanging);
  const node = await start(at, { BUN_OPTIONS: `--preload ${preload}` });
  const status = () => readFileSync(`/proc/${node.pid}/status`, "utf8");
  const residentMib = () => Number(/VmRSS:\s+(\d+)/.exec(status())?.[1]) / 1024;
  const bob = await enrol(at.url);
  const held: string[] = [];
  let slowestMs = 0;
  const seen = new Set<number>();
  let open = true;
  const sender = async (): Promise<void> => {
    while (open) {
      const id = crypto.randomUUID();
      const begunMs = performance.now();
      const answer = await store(at.url, bob.did, id);
      slowestMs = Math.max(slowestMs, performance.now() - begunMs);
      seen.add(answer);
      if (answer === 202) held.push(id);
      else await Bun.sleep(20);
    }
  };
  const senders = Array.from({ length: 16 }, sender);
  while (held.length < 100) await Bun.sleep(20);
  const before = { held: held.length, mib: residentMib() };
  process.kill(node.pid, "SIGUSR2");
  await Bun.sleep(hangMs - 1_000);
  expect(seen).toEqual(new Set([202, 503]));
  expect(slowestMs).toBeLessThan(answeredMsMax);
  const during = held.length;
  expect(during - before.held).toBeLessThan(200);
  expect(residentMib() - before.mib).toBeLessThan(100);
  while (held.length < during + 100) await Bun.sleep(20);
  open = false;
  await Promise.all(senders);
  const caches = await cachesOf(connect({ directoryUrl: at.url, relayUrl: at.url }), bob, "");
  const { pending } = await listPending(caches);
  const known = new Set(pending.flatMap((message) => message.held.map(({ messageId }) => messageId)));
  expect(held.filter((id) => !known.has(id))).toEqual([]);
  await untilPrinted(node, "the thread of the stores did not answer");
  expect(await node.kill("SIGTERM")).toBe(0);
}, 90_000);
