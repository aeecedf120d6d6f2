/**
 * An upgrade of the executable under load: each new process takes the address over from the one before. Every request
 * is answered as usual, what was answered is kept, and live sessions and large bodies work in the process that followed.
 */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { Agent, request } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { isAlive } from "../../src/app/takeover.ts";
import { cachesOf, connect, liveEndpoints } from "../../src/client/client.ts";
import { waitingDefault } from "../../src/client/directory.ts";
import { createIdentity, type Identity } from "../../src/client/keys.ts";
import { listenLive } from "../../src/client/reader.ts";
import { firstDocument, register, settleRegistration } from "../../src/client/registration.ts";
import { listPending } from "../../src/client/retrieve.ts";
import { executable, freePort, type RunningNode, run, scratchFolder, startNode } from "../support/executable.ts";

const scratch = scratchFolder();
const running: RunningNode[] = [];
const upgrades = 3;

/** With it the kernel gives connections that a closing socket has not accepted to another of the same port. */
const migrates = (): boolean => {
  const path = "/proc/sys/net/ipv4/tcp_migrate_req";
  return existsSync(path) && readFileSync(path, "utf8").trim() === "1";
};

type Place = { readonly cwd: string; readonly url: string; readonly port: number; readonly bob: Identity };

/** A node that runs, started with `--take-over`: nobody ran before, so it is an ordinary start. */
async function begin(workers: number): Promise<Place> {
  const port = freePort();
  const [cwd, url] = [join(scratch.path, `node-${port}`), `http://127.0.0.1:${port}`];
  mkdirSync(cwd);
  const sections = [
    `[server]\nlisten = ["127.0.0.1:${port}"]\nadmin_listen = ["unix:admin.sock"]\nworkers = ${workers}\nlog_level = "info"\ndrain_timeout = "10s"`,
    '[stores.main]\nplugin = "lmdb"\npath = "data"\nblock_time_ms = 50',
    "[directory]\nenabled = true",
    `[relay]\nenabled = true\npublic_endpoints = ["${url}"]\nallow_http = true\nallow_private = ["127.0.0.0/8"]\nrate_limit_loopback = false`,
    `[cache]\nenabled = true\npublic_endpoints = ["${url}"]\nnetwork_share = 100\nstranger_share = 100\nrecipient_entries_max = 100000`,
  ];
  writeFileSync(join(cwd, "waypost.toml"), `${sections.join("\n")}\n`);
  running.push(await startNode(["serve", "--take-over"], { cwd, url }));
  const client = connect({ directoryUrl: url, relayUrl: url });
  const bob = createIdentity("bob");
  const document = await firstDocument(bob, { relayUrl: url, cacheUrl: url });
  const waiting = { ...waitingDefault, timeoutMs: 20_000, intervalMs: 20 };
  await settleRegistration(client, await register(client, bob, { document, alias: null }), waiting);
  return { cwd, url, port, bob };
}

beforeAll(async () => {
  await executable();
}, 180_000);
afterAll(async () => {
  await Promise.all(running.map((node) => node.kill("SIGKILL")));
  scratch.remove();
});

type Outcome = { readonly messageId: string; readonly status: number | string; readonly reused: boolean };

function store(
  { bob, port }: Place,
  agent: Agent | false,
  payload: unknown = { ciphertext_b64: "AAAA" },
): Promise<Outcome> {
  const messageId = crypto.randomUUID();
  const body = JSON.stringify({
    message_id: messageId,
    to: bob.did,
    timestamp: new Date().toISOString(),
    ttl: "1h",
    payload,
  });
  const headers = { "content-type": "application/json", "content-length": Buffer.byteLength(body) };
  const { promise, resolve } = Promise.withResolvers<Outcome>();
  const sent = request(
    { host: "127.0.0.1", port, path: "/cache/store", method: "POST", agent, headers },
    (response) => {
      const end = (status: number | string) => resolve({ messageId, status, reused: sent.reusedSocket });
      response.resume();
      response.on("end", () => end(response.statusCode ?? 0));
      response.on("error", (error) => end(error.message));
    },
  );
  sent.on("error", (error) => resolve({ messageId, status: error.message, reused: sent.reusedSocket }));
  sent.end(body);
  return promise;
}

type Load = { readonly isOver: () => boolean; readonly keepsConnection: boolean; readonly pauseMs: number };

async function load(place: Place, { isOver, keepsConnection, pauseMs }: Load): Promise<Outcome[]> {
  const agent = keepsConnection ? new Agent({ keepAlive: true, maxSockets: 1 }) : false;
  const outcomes: Outcome[] = [];
  while (!isOver()) {
    outcomes.push(await store(place, agent));
    await Bun.sleep(pauseMs);
  }
  if (agent !== false) agent.destroy();
  return outcomes;
}

async function takeOver({ cwd, url }: Place): Promise<void> {
  const former = running.at(-1) as RunningNode;
  const next = await startNode(["serve", "--take-over"], { cwd, url });
  running.push(next);
  // `url` is served by the former process until then. One that does not follow says why.
  const ended = await Promise.race([former.ended(), next.ended().then(next.output)]);
  if (ended !== 0) throw new Error(`it did not follow: ${ended}; the former: ${former.printed()}`);
  await untilReady(next);
}

/** Waits until the node is ready again; one that has ended says why. */
async function untilReady(node: RunningNode): Promise<void> {
  let isOver = false;
  void node.ended().then(() => {
    isOver = true;
  });
  while ((await fetch(`${node.url}/readyz`, { keepalive: false }).catch(() => null))?.status !== 200) {
    if (isOver) throw new Error(`it ended with ${await node.ended()}: ${await node.output()}`);
    await Bun.sleep(20);
  }
}

/** Waits until it has printed this. */
async function untilPrinted(node: RunningNode, text: string): Promise<void> {
  for (const endMs = performance.now() + 30_000; !node.printed().includes(text); await Bun.sleep(5)) {
    if (performance.now() > endMs) throw new Error(`not printed: ${text}; but: ${node.printed()}`);
  }
}

async function pendingOf({ url, bob }: Place): Promise<Set<string>> {
  const pending = await listPending(await cachesOf(connect({ directoryUrl: url, relayUrl: url }), bob, ""));
  return new Set(pending.pending.flatMap((one) => one.held.map(({ messageId }) => messageId)));
}

/** Ends its own first thread, and a worker goes on. 60 is `exit` on x86-64, 93 on arm64. Source: syscalls(2). */
const endsFirstThread = `const { dlopen, FFIType: { i64 } } = require("bun:ffi");
  const { symbols } = dlopen("libc.so.6", { syscall: { args: [i64, i64], returns: i64 } });
  const worker = new Worker("data:text/javascript,postMessage(0);setInterval(() => {}, 1_000)");
  worker.onmessage = () => symbols.syscall(process.arch === "x64" ? 60 : 93, 0);`;

test.skipIf(process.platform !== "linux")("a process lives until its last thread has ended", async () => {
  const child = Bun.spawn([process.execPath, "-e", endsFirstThread], { stdout: "ignore", stderr: "ignore" });
  const state = () => /\) (\S)/.exec(readFileSync(`/proc/${child.pid}/stat`, "utf8"))?.[1];
  while (state() !== "Z" && child.exitCode === null) await Bun.sleep(5);
  expect([child.exitCode, isAlive(child.pid)]).toEqual([null, true]);
  child.kill("SIGKILL");
  await child.exited;
  expect(isAlive(child.pid)).toBe(false);
});

describe.skipIf(process.platform !== "linux").each([1, 2, 3])("serve --take-over with workers = %d", (workers) => {
  let place: Place;
  beforeAll(async () => {
    place = await begin(workers);
  }, 120_000);

  test("no request is refused, and everything that was answered is there", async () => {
    let over = false;
    const isOver = () => over;
    const loads = [1, 5, 5, 200].flatMap((pauseMs) =>
      [false, true].map((keepsConnection) => load(place, { isOver, keepsConnection, pauseMs })),
    );
    for (let i = 0; i < upgrades; i++) await takeOver(place);
    over = true;
    const outcomes = (await Promise.all(loads)).flat();
    const failed = outcomes.filter(({ status }) => status !== 202);
    // A connection that the kernel had taken and the closing socket had not is reset; nothing else may fail.
    expect(failed.filter(({ reused, status }) => reused || typeof status === "number")).toEqual([]);
    expect(failed.length).toBeLessThanOrEqual(migrates() ? 0 : upgrades);
    const held = await pendingOf(place);
    const stored = outcomes.filter(({ status }) => status === 202);
    expect(stored.length).toBeGreaterThan(100);
    expect(stored.filter(({ messageId }) => !held.has(messageId))).toEqual([]);
  }, 180_000);

  test("the process that followed takes large bodies and live sessions", async () => {
    const { url, bob } = place;
    expect((await store(place, false, { ciphertext_b64: "A".repeat(14 * 1_048_576) })).status).toBe(202);
    const client = connect({ directoryUrl: url, relayUrl: url });
    const [post] = await liveEndpoints(client, bob, "desk");
    const stop = new AbortController();
    const [ready, arrived] = [Promise.withResolvers<void>(), Promise.withResolvers<string>()];
    const events = {
      onReady: () => ready.resolve(),
      onEnvelope: async ({ messageId }: { readonly messageId: string }) => {
        arrived.resolve(messageId);
        return true;
      },
    };
    const session = listenLive(post as NonNullable<typeof post>, events, stop.signal);
    await ready.promise;
    const message_id = crypto.randomUUID();
    const timestamp = new Date().toISOString();
    const body = { message_id, to: bob.did, timestamp, ttl: "1h", payload: { ciphertext_b64: "AAAA" } };
    const reply = await fetch(`${url}/relay/${encodeURIComponent(bob.did)}`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify(body),
    });
    expect(await reply.json()).toMatchObject({ success: true, delivery_mode: "direct" });
    expect(await arrived.promise).toBe(message_id);
    stop.abort();
    await session.catch(() => undefined);
  }, 60_000);

  test("a process that ends before it has the stores changes nothing", async () => {
    const node = running.at(-1) as RunningNode;
    const { cwd } = place;
    const wrong = await run(["serve", "--take-over"], { cwd, env: { WAYPOST_CACHE__SIGNING_KEY_FILE: "none" } });
    expect([wrong.code, wrong.stderr]).toEqual([1, expect.stringContaining("signing_key_file")]);
    const next = Bun.spawn([await executable(), "serve", "--take-over"], { cwd, stdout: "ignore", stderr: "ignore" });
    await untilPrinted(node, "another process prepares to take over");
    next.kill("SIGKILL");
    await next.exited;
    expect((await store(place, false)).status).toBe(202);
    expect(node.printed()).not.toContain('"stopping"');
  }, 60_000);

  test("when the process that takes over dies before it serves, the former one goes on", async () => {
    const node = running.at(-1) as RunningNode;
    const { messageId } = await store(place, false);
    const env = { PATH: "/usr/bin:/bin", TMPDIR: tmpdir() };
    const argv = [await executable(), "serve", "--take-over"];
    const next = Bun.spawn(argv, { cwd: place.cwd, env, stdout: "ignore", stderr: "ignore" });
    await untilPrinted(node, "another process takes over");
    next.kill("SIGKILL");
    await next.exited;
    await untilPrinted(node, "ended before it served");
    await untilReady(node);
    expect((await store(place, false)).status).toBe(202);
    expect(await pendingOf(place)).toContain(messageId);
    await takeOver(place);
    expect((await store(place, false)).status).toBe(202);
  }, 90_000);

  test("a running node that takes six seconds to answer is taken over all the same", async () => {
    const { pid } = running.at(-1) as RunningNode;
    process.kill(pid, "SIGSTOP");
    setTimeout(() => process.kill(pid, "SIGCONT"), 6_000);
    await takeOver(place);
    expect((await store(place, false)).status).toBe(202);
  }, 60_000);

  test("without an admin socket it does not take over and says why", async () => {
    const alone = await run(["serve", "--take-over"], { cwd: place.cwd, env: { WAYPOST_SERVER__ADMIN_LISTEN: "[]" } });
    expect([alone.code, alone.stderr]).toEqual([1, expect.stringContaining("Unix socket of server.admin_listen")]);
    expect((await fetch(`${place.url}/readyz`)).status).toBe(200);
  }, 60_000);

  test("without --take-over a second process is refused, and the first goes on", async () => {
    const { cwd, port } = place;
    const second = await run(["serve"], { cwd });
    expect([second.code, second.stderr]).toEqual([1, expect.stringContaining("already open by another process")]);
    const other = await run(["serve"], { cwd, env: { WAYPOST_STORES__MAIN__PATH: "other" } });
    expect([other.code, other.stderr]).toEqual([1, expect.stringContaining(`127.0.0.1:${port} can't be listened on`)]);
    expect((await store(place, false)).status).toBe(202);
  }, 60_000);
});
