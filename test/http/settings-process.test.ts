/**
 * Addresses, stores, names and sources of a process act under their own setting: each has a value
 * that no other setting of its kind has, and shows where it acts.
 */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { join } from "node:path";
import { checkEnvironment } from "../../src/cli/config.ts";
import type { ConfigInput } from "../../src/config/schema.ts";
import { utf8 } from "../../src/core/codec/bytes.ts";
import { cacheEndpoint, envelopeTo } from "../support/cache-node.ts";
import { registerBodyOf } from "../support/directory.ts";
import { executable, freePort, scratchFolder } from "../support/executable.ts";
import { identityOf } from "../support/identity.ts";
import { startTestNodes, type TestNodes } from "../support/nodes.ts";
import { startOwnTime } from "../support/own-time.ts";

const [main, admin] = [`127.0.0.1:${freePort()}`, `127.0.0.1:${freePort()}`];
const storeNames = ["led", "dir", "rel", "cac"];
const ofProcess = {
  server: {
    listen: [main],
    admin_listen: [admin],
    recipients: "ledger:cac",
    trusted_proxies: ["127.0.0.1"],
    cors_origins: ["https://page.example"],
    drain_timeout: "331ms",
  },
  stores: Object.fromEntries(
    storeNames.map((name) => [name, { plugin: "memory", block_time_ms: 20 }]),
  ),
  directory: { enabled: true, ledger: "led", store: "dir" },
  relay: { enabled: true, store: "rel", public_id: "odd", public_endpoints: ["https://relay.odd"] },
  cache: { enabled: true, store: "cac", public_endpoints: [cacheEndpoint] },
} satisfies ConfigInput;

describe("a process", () => {
  let nodes: TestNodes;
  beforeAll(async () => {
    nodes = await startTestNodes(ofProcess);
  });
  afterAll(() => nodes.stop());
  const at = (address: string, path: string, init: RequestInit = {}) =>
    fetch(`http://${address}${path}`, init);
  const post = (path: string, body: unknown) =>
    at(main, path, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify(body),
    });

  test("listens for everybody and for its operator where it is named", async () => {
    expect([(await at(main, "/limits")).status, (await at(main, "/metrics")).status]).toEqual([
      200, 404,
    ]);
    expect((await at(admin, "/metrics")).status).toBe(200);
  });

  test("allows the pages that are named, and believes the proxy that is named", async () => {
    const headers = { origin: "https://page.example", "access-control-request-method": "GET" };
    const answer = await at(main, "/limits", { method: "OPTIONS", headers });
    expect(answer.headers.get("access-control-allow-origin")).toBe("https://page.example");
    await at(main, "/limits", { headers: { "x-forwarded-for": "203.0.113.9" } });
    const requests = nodes.lines.filter(({ message }) => message === "request");
    expect(JSON.stringify(requests.map(({ fields }) => fields))).toContain("203.0.113.0/24");
  });

  test("has its names", async () => {
    expect(await (await at(main, "/node")).json()).toMatchObject({
      relay_public_id: "odd",
      relay_endpoints: ["https://relay.odd"],
      cache_endpoints: [cacheEndpoint],
    });
  });

  test("keeps identities in the ledger that is named, and asks for recipients where the setting says", async () => {
    const identity = identityOf("stores");
    expect((await post("/register-did", registerBodyOf(identity, Date.now()))).status).toBe(202);
    const known = async () => {
      const accounts = storeNames.map((name) =>
        nodes.stores.stores.get(name)?.capabilities.ledger?.account(identity.did),
      );
      return (await Promise.all(accounts)).map((account) => account?.record !== null);
    };
    while (!(await known())[0]) await Bun.sleep(10);
    expect(await known()).toEqual([true, false, false, false]);
    const envelope = { ...envelopeTo(identity, 1), timestamp: new Date().toISOString() };
    const codeOf = async (path: string) =>
      ((await (await post(path, envelope)).json()) as { code: string }).code;
    for (const path of ["/relay", "/cache/store"])
      expect([path, await codeOf(path)]).toEqual([path, "recipient_not_found"]);
  });

  test("binds each node to its own store", () => {
    for (const [setting, name] of [
      ["directory.store", "dir"],
      ["relay.store", "rel"],
      ["cache.store", "cac"],
    ] as const) {
      const own = nodes.stores.stores.get(name)?.capabilities.replay;
      expect([setting, nodes.stores.capability(setting, "replay") === own]).toEqual([
        setting,
        true,
      ]);
    }
  });

  test("waits for what is under way as long as the setting says, and no longer", async () => {
    const unfinished = new ReadableStream({ start: (controller) => controller.enqueue(utf8("{")) });
    const asked = at(main, "/register-did", { method: "POST", body: unfinished }).catch(() => null);
    while (
      !/^waypost_http_body_bytes_in_flight [1-9]/m.test(await (await at(admin, "/metrics")).text())
    )
      await Bun.sleep(5);
    const [beganMs, elapsedMs] = [performance.now(), startOwnTime()];
    await nodes.stop();
    const [tookMs, ownMs] = [performance.now() - beganMs, elapsedMs()];
    await asked;
    expect(tookMs).toBeGreaterThan(300);
    expect(ownMs).toBeLessThan(3_000);
  });
});

test("a process never starts without certificate checks", () => {
  expect(() => checkEnvironment({ NODE_TLS_REJECT_UNAUTHORIZED: "0" })).toThrow(
    "NODE_TLS_REJECT_UNAUTHORIZED",
  );
});

test("a process uses the bus that is named: one over a server is not connected while the server is away", async () => {
  const connected = async (bus: ConfigInput["bus"]) => {
    const nodes = await startTestNodes({
      ...ofProcess,
      server: { listen: [main], admin_listen: [admin] },
      bus,
    });
    try {
      const text = await (await fetch(`http://${admin}/metrics`)).text();
      return /^waypost_bus_connected (\d)$/m.exec(text)?.[1];
    } finally {
      await nodes.stop();
    }
  };
  expect(await connected({ plugin: "local" })).toBe("1");
  expect(await connected({ plugin: "nats", servers: [`nats://127.0.0.1:${freePort()}`] })).toBe(
    "0",
  );
}, 120_000);

test("the log of `serve` begins at the level that is named, and follows a changed one on SIGHUP", async () => {
  const scratch = scratchFolder();
  const [file, socket] = [join(scratch.path, "waypost.toml"), join(scratch.path, "node.sock")];
  const write = (level: string) =>
    Bun.write(
      file,
      `[server]\nlisten = ["unix:${socket}"]\nlog_level = "${level}"\n[stores.main]\nplugin = "memory"\n[directory]\nenabled = true\n`,
    );
  await write("warn");
  const command = [await executable(), "serve", "--config", file];
  const child = Bun.spawn(command, {
    env: { PATH: "/usr/bin:/bin", HOME: scratch.path },
    stdout: "pipe",
  });
  try {
    const ask = () => fetch("http://node/limits", { unix: socket }).catch(() => null);
    while (child.exitCode === null && (await ask()) === null) await Bun.sleep(20);
    await write("info");
    child.kill("SIGHUP");
    let printed = "";
    for await (const bytes of child.stdout) {
      printed += new TextDecoder().decode(bytes);
      if (printed.includes('"message":"request"')) break;
      await ask();
    }
    const messages = printed.match(/(?<="message":")[^"]+/g) ?? [];
    // The start, which is logged at "info", is not in the log; requests after the signal are.
    expect(messages).not.toContain("waypost is ready");
    expect(messages).toContain("request");
  } finally {
    child.kill("SIGKILL");
    await child.exited;
    scratch.remove();
  }
}, 60_000);
