/**
 * The executable by itself, in empty folders without node_modules: it starts, describes itself,
 * checks configurations, runs the examples, loads a storage plugin from a file, and ends as it
 * should.
 */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { chmodSync, cpSync, existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { connect, type Socket } from "node:net";
import { join } from "node:path";
import { webFiles } from "#web";
import {
  executable,
  freePort,
  type RunningNode,
  run,
  scratchFolder,
  startNode,
} from "../support/executable.ts";

const examples = join(import.meta.dir, "..", "..", "examples");
const scratch = scratchFolder();
const cwd = scratch.path;
beforeAll(async () => {
  await executable();
}, 120_000);
afterAll(() => scratch.remove());

/** An example with its first listener on a free port and the others left out. */
function placeExample(name: string, folder: string): { readonly url: string } {
  const port = freePort();
  const text = readFileSync(join(examples, name), "utf8")
    .replace(/^listen = .*$/m, `listen = ["127.0.0.1:${port}"]`)
    .replace(/^admin_listen = .*$/m, "")
    .replace(/^path = .*$/m, 'path = "data"');
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, "waypost.toml"), text);
  return { url: `http://127.0.0.1:${port}` };
}

test("it prints its version and its commands", async () => {
  expect((await run(["--version"], { cwd })).stdout.trim()).toMatch(/^\d+\.\d+\.\d+$/);
  const help = await run(["--help"], { cwd });
  for (const command of ["serve", "dev", "config", "doctor", "did", "send", "receive"]) {
    expect(help.stdout).toContain(command);
  }
});

test("it prints the licenses of what it contains, and holds nothing of the folder where it was built", async () => {
  const { stdout } = await run(["licenses"], { cwd });
  const { dependencies } = JSON.parse(readFileSync(join(examples, "..", "package.json"), "utf8"));
  const missing = Object.entries(dependencies).filter(
    ([name, version]) => !stdout.includes(`${name} ${version} (`),
  );
  expect(missing).toEqual([]);
  for (const text of [
    "The OpenLDAP Public License",
    "GNU GENERAL PUBLIC LICENSE",
    "Apache License",
  ])
    expect(stdout).toContain(text);
  expect(readFileSync(await executable()).includes(join(examples, "..", "node_modules"))).toBe(
    false,
  );
});

test("files in the folder where it starts have no effect", async () => {
  const folder = join(cwd, "around");
  mkdirSync(folder, { recursive: true });
  const mark = join(folder, "ran");
  writeFileSync(
    join(folder, "preload.ts"),
    `require("node:fs").writeFileSync(${JSON.stringify(mark)}, "");`,
  );
  writeFileSync(join(folder, "bunfig.toml"), 'preload = ["./preload.ts"]\n');
  writeFileSync(join(folder, ".env"), "WAYPOST_KEYS=elsewhere\n");
  expect((await run(["--version"], { cwd: folder })).code).toBe(0);
  expect(existsSync(mark)).toBe(false);
  await run(["did", "create", "--name", "a"], {
    cwd: folder,
    env: { WAYPOST_URL: "http://127.0.0.1:1" },
  });
  expect(existsSync(join(folder, "elsewhere"))).toBe(false);
});

test("if its native addon can't be unpacked, a store reports it, and commands without a store work", async () => {
  const folder = join(cwd, "unpacked");
  placeExample("cache.toml", folder);
  const env = { TMPDIR: join(cwd, "nowhere") };
  const { code, stderr } = await run(["serve"], { cwd: folder, env });
  expect([code, stderr.trim().split("\n").length, stderr.includes("TMPDIR")]).toEqual([1, 1, true]);
  expect((await run(["--version"], { cwd: folder, env })).code).toBe(0);
});

test("what an operator forgot is reported by name: a signing key that others may read, an option that is required", async () => {
  const folder = join(cwd, "forgotten");
  const { url } = placeExample("cache.toml", folder);
  expect((await run(["key", "new", "signing-key"], { cwd: folder })).code).toBe(0);
  const path = join(folder, "waypost.toml");
  writeFileSync(
    path,
    readFileSync(path, "utf8").replace("[cache]", '[cache]\nsigning_key_file = "signing-key"'),
  );
  expect((await run(["doctor"], { cwd: folder })).stdout).not.toContain("chmod 600 signing-key");
  chmodSync(join(folder, "signing-key"), 0o644);
  expect((await run(["doctor"], { cwd: folder })).stdout).toMatch(
    /^warn {2}setting cache\.signing_key_file: .*chmod 600 signing-key/m,
  );
  const node = await startNode(["serve"], { cwd: folder, url });
  await node.kill("SIGTERM");
  expect(await node.output()).toContain("chmod 600 signing-key");
  writeFileSync(path, `${readFileSync(path, "utf8")}[witness]\nkey_file = "signing-key"\n`);
  for (const words of [["doctor"], ["config", "check"]]) {
    const { code, stderr } = await run(words, { cwd: folder });
    const said = expect.stringContaining(
      "witness.key_file: signing-key must hold a key that waypost key new --witness",
    );
    expect([code, stderr]).toEqual([1, said]);
  }
  expect((await run(["send", "--help"], { cwd: folder })).stdout).toMatch(
    /--file <path> +the file \(required\)/,
  );
});

test("a misspelt command fails with 1", async () => {
  const { code, stderr } = await run(["srve"], { cwd });
  expect([code, stderr.includes("srve")]).toEqual([1, true]);
});

describe("configuration", () => {
  test("every problem is reported, first of settings and then between them, and the exit code is 1", async () => {
    const problems = async (text: string) => {
      writeFileSync(join(cwd, "bad.toml"), text);
      const { code, stderr } = await run(["config", "check", "--config", "bad.toml"], { cwd });
      return [
        code,
        [...stderr.matchAll(/^ {2}bad\.toml(?::\d+:\d+)?: (\S+): /gm)]
          .map((m) => m[1] as string)
          .sort(),
      ];
    };
    const stores = '[stores.main]\nplugin = "lmdb"\npth = "data"\n[stores.two]\nplugin = "lmbd"\n';
    const directory = '[directory]\nenabled = true\nstore = "four"\nledger = "main"\n';
    expect(
      await problems(
        `[server]\nlistn = 1\n${stores}[stores.three]\n${directory}[relay]\nenabled = true\nstore = 5\n[cache]\nenabled = 1\n`,
      ),
    ).toEqual([1, ["cache.enabled", "relay.store", "server.listn", "stores.three.plugin"]]);
    expect(await problems(stores + directory)).toEqual([
      1,
      ["directory.store", "stores.main.path", "stores.main.pth", "stores.two.plugin"],
    ]);
  });

  test("problems of stores are reported under their names", async () => {
    const text =
      '[stores.main]\nplugin = "lmdb"\npath = "data"\ncolour = 1\n[directory]\nenabled = true\nledger = "other"\n';
    writeFileSync(join(cwd, "bad.toml"), text);
    const { code, stderr } = await run(["config", "check", "--config", "bad.toml"], { cwd });
    expect([
      code,
      stderr.includes("stores.main.colour"),
      stderr.includes("directory.ledger"),
    ]).toEqual([1, true, true]);
  });

  test("a missing file is a failure and no crash", async () => {
    const { code, stderr } = await run(["serve", "--config", "none.toml"], { cwd });
    expect([code, stderr.trim()]).toEqual([1, "none.toml: there is no such file"]);
  });
});

test("init writes what serve runs, and replaces nothing", async () => {
  const folder = join(cwd, "init");
  mkdirSync(folder);
  // The next one is for metrics.
  const port = freePort(2);
  const url = `http://127.0.0.1:${port}`;
  const flags = ["init", "--url", url, "--data", folder];
  expect((await run(flags, { cwd: folder })).code).toBe(0);
  const written = readFileSync(join(folder, "waypost.toml"), "utf8");
  writeFileSync(
    join(folder, "waypost.toml"),
    written
      .replaceAll("127.0.0.1:7400", `127.0.0.1:${port}`)
      .replaceAll("127.0.0.1:7401", `127.0.0.1:${port + 1}`),
  );
  expect((await run(["doctor", "--config", "waypost.toml"], { cwd: folder })).stdout).not.toContain(
    "FAIL",
  );
  const node = await startNode(["serve"], { cwd: folder, url });
  expect((await run(["health", url], { cwd: folder })).code).toBe(0);
  const beside = await run(["doctor"], { cwd: folder });
  expect(beside.stdout).toContain(
    `ok    public endpoint ${url} (cache): answers under this address`,
  );
  expect([beside.code, beside.stdout.includes("FAIL")]).toEqual([0, false]);
  expect((await fetch(`http://127.0.0.1:${port + 1}/metrics`)).status).toBe(200);
  expect(await node.kill("SIGTERM")).toBe(0);
  const again = await run(flags, { cwd: folder });
  const refused = expect.stringContaining("already exists; nothing was written");
  expect([again.code, again.stderr]).toEqual([1, refused]);
});

async function untilPrinted(node: RunningNode, text: string): Promise<void> {
  for (let tries = 0; !node.printed().includes(text); tries++) {
    if (tries > 2_400) throw new Error(`not printed: ${text}; but: ${node.printed()}`);
    await Bun.sleep(25);
  }
}

test("the unit's reload fails with a bad file and signals nobody; without a change it is no warning", async () => {
  const folder = join(cwd, "unit-reload");
  const { url } = placeExample("cache.toml", folder);
  const path = join(folder, "waypost.toml");
  const text = readFileSync(path, "utf8");
  const unit = readFileSync(join(examples, "waypost.service"), "utf8");
  const [check, signal] = [...unit.matchAll(/^ExecReload=\S+\/(\S+) (.*)$/gm)].map(
    ([, name, rest]) => [name, rest],
  );
  expect([check?.[0], signal]).toEqual(["waypost", ["kill", "-HUP $MAINPID"]]);
  const node = await startNode(["serve"], { cwd: folder, url });
  // As systemd does: in order, and none after one that failed.
  const reload = async () => {
    const words = check?.[1]?.split(" ").map((word) => word.replace(/^\/etc.*/, path)) ?? [];
    const { code } = await run(words, { cwd: folder });
    if (code === 0) node.hangUp();
    return code;
  };
  writeFileSync(path, `${text}\ncolour = 1\n`);
  expect(await reload()).toBe(1);
  expect(node.printed()).not.toContain("reloaded");
  writeFileSync(path, text);
  expect(await reload()).toBe(0);
  await untilPrinted(node, "the configuration was reloaded");
  expect(node.printed()).toMatch(/"level":"info","message":"the configuration was reloaded"/);
  await node.kill("SIGTERM");
});

test("SIGHUP reads the file again: a mistake is logged and changes nothing, a change is taken over", async () => {
  const folder = join(cwd, "hangup");
  const { url } = placeExample("cache.toml", folder);
  const path = join(folder, "waypost.toml");
  const text = readFileSync(path, "utf8");
  const node = await startNode(["serve"], { cwd: folder, url });
  writeFileSync(path, `${text}\ncolour = 1\n`);
  node.hangUp();
  await untilPrinted(node, "the configuration was not reloaded");
  writeFileSync(
    path,
    text.replace(
      "[server]",
      `[server]\nlog_level = "error"\nrequests_max = 99\nadmin_listen = ["127.0.0.1:${freePort()}"]`,
    ),
  );
  node.hangUp();
  await untilPrinted(
    node,
    '"changed":["server.log_level"],"needs_restart":["server.admin_listen","server.requests_max"]',
  );
  expect((await fetch(`${url}/healthz`)).status).toBe(200);
  expect(await node.kill("SIGTERM")).toBe(0);
});

test("a second process on the same address or the same data is refused in one line", async () => {
  const folder = join(cwd, "second");
  const { url } = placeExample("cache.toml", folder);
  const other = join(cwd, "other");
  const { url: otherUrl } = placeExample("cache.toml", other);
  const node = await startNode(["serve"], { cwd: folder, url });
  const sameData = await run(["serve"], { cwd: folder });
  expect([sameData.code, sameData.stderr.trim().split("\n").length]).toEqual([1, 1]);
  const path = join(other, "waypost.toml");
  writeFileSync(path, readFileSync(path, "utf8").replace(otherUrl.slice(7), url.slice(7)));
  const sameAddress = await run(["serve"], { cwd: other });
  expect([sameAddress.code, sameAddress.stderr.includes("can't be listened on")]).toEqual([
    1,
    true,
  ]);
  expect(await node.kill("SIGTERM")).toBe(0);
});

test("a Unix socket that a killed process left behind is taken over, one in use is not", async () => {
  const folder = join(cwd, "socket");
  const { url } = placeExample("cache.toml", folder);
  const path = join(folder, "waypost.toml");
  const port = JSON.stringify(url.slice("http://".length));
  writeFileSync(path, readFileSync(path, "utf8").replace(`[${port}]`, `[${port}, "unix:w.sock"]`));
  const first = await startNode(["serve"], { cwd: folder, url });
  // The listener may answer before the socket is there.
  await untilPrinted(first, "waypost is ready");
  await first.kill("SIGKILL");
  const second = await startNode(["serve"], { cwd: folder, url });
  await untilPrinted(second, "waypost is ready");
  expect((await fetch("http://localhost/healthz", { unix: join(folder, "w.sock") })).status).toBe(
    200,
  );
  const other = join(cwd, "socket-other");
  placeExample("cache.toml", other);
  writeFileSync(
    join(other, "waypost.toml"),
    readFileSync(join(other, "waypost.toml"), "utf8").replace(
      /^listen = .*$/m,
      `listen = ["unix:${join(folder, "w.sock")}"]`,
    ),
  );
  expect((await run(["serve"], { cwd: other })).code).toBe(1);
  expect((await fetch("http://localhost/healthz", { unix: join(folder, "w.sock") })).status).toBe(
    200,
  );
  expect(await second.kill("SIGTERM")).toBe(0);
});

describe("examples", () => {
  test.each(["all-in-one.toml", "relay.toml", "cache.toml", "container.toml"])(
    "%s starts, serves and ends",
    async (name) => {
      const folder = join(cwd, name);
      const { url } = placeExample(name, folder);
      expect((await run(["config", "check"], { cwd: folder })).code).toBe(0);
      const node = await startNode(["serve"], { cwd: folder, url });
      const description = (await (await fetch(`${url}/openapi.json`)).json()) as { paths: object };
      const has = (path: string): boolean => Object.hasOwn(description.paths, path);
      const expected = name.startsWith("relay")
        ? [true, false]
        : name.startsWith("cache")
          ? [false, true]
          : [true, true];
      expect([has("/relay"), has("/cache/store")]).toEqual(expected);
      expect((await fetch(`${url}/limits`)).status).toBe(200);
      expect(await node.kill("SIGTERM")).toBe(0);
      expect(existsSync(join(folder, "data"))).toBe(true);
    },
  );

  test("the admin listener has the metrics and the public one has not", async () => {
    const folder = join(cwd, "admin");
    const { url } = placeExample("all-in-one.toml", folder);
    const adminPort = freePort();
    const path = join(folder, "waypost.toml");
    writeFileSync(
      path,
      readFileSync(path, "utf8").replace(
        "[server]",
        `[server]\nadmin_listen = ["127.0.0.1:${adminPort}"]`,
      ),
    );
    const node = await startNode(["serve"], { cwd: folder, url });
    expect((await fetch(`${url}/metrics`)).status).toBe(404);
    const metrics = await (await fetch(`http://127.0.0.1:${adminPort}/metrics`)).text();
    expect(metrics).toContain("waypost_http_requests_total");
    expect(metrics).toContain('waypost_mailbox_entries{store="main"} 0');
    expect((await fetch(`http://127.0.0.1:${adminPort}/limits`)).status).toBe(200);
    expect((await run(["health", url], { cwd })).code).toBe(0);
    expect(await node.kill("SIGTERM")).toBe(0);
    expect((await run(["health", url], { cwd })).code).toBe(1);
  });
});

test("the description comes out of the executable", async () => {
  const folder = join(cwd, "docs");
  const { url } = placeExample("all-in-one.toml", folder);
  const node = await startNode(["serve"], { cwd: folder, url });
  expect(await (await fetch(`${url}/openapi.json`)).text()).toContain("/registration-status/{did}");
  await node.kill("SIGTERM");
});

test.skipIf(process.platform !== "linux")(
  "connections that use up all descriptors end nothing, and the admin listener goes on",
  async () => {
    const folder = join(cwd, "descriptors");
    const { url } = placeExample("all-in-one.toml", folder);
    const admin = `127.0.0.1:${freePort()}`;
    const env = { WAYPOST_SERVER__ADMIN_LISTEN: JSON.stringify([admin]) };
    const node = await startNode(["serve"], { cwd: folder, url, env, descriptorsMax: 100 });
    await untilPrinted(node, "waypost is ready");
    const metrics = async () => {
      const init = { headers: { connection: "close" }, signal: AbortSignal.timeout(20_000) };
      return (await fetch(`http://${admin}/metrics`, init)).text();
    };
    expect(await metrics()).toContain("waypost_process_max_fds 100\n");
    const sockets: Socket[] = [];
    let hasBeenFull = false;
    const beganMs = performance.now();
    for (
      let ms = 0;
      ms < 4_000 || (ms < 30_000 && !hasBeenFull);
      ms = performance.now() - beganMs
    ) {
      await Bun.sleep(100);
      hasBeenFull ||= node.printed().includes("file descriptors are used up");
      for (let i = 0; i < 50; i++) {
        const socket = connect({ host: "127.0.0.1", port: Number(new URL(url).port) });
        socket.on("error", () => undefined);
        socket.write("GET / HTTP/1.1\r\n");
        sockets.push(socket);
      }
    }
    expect(hasBeenFull).toBe(true);
    // While the connections are still held: several tools of an operator at once.
    const read = await Promise.all(Array.from({ length: 4 }, metrics));
    const inUse = read.map((text) => Number(/^waypost_process_open_fds (\d+)$/m.exec(text)?.[1]));
    expect(inUse.every((count) => count > 60)).toBe(true);
    for (const socket of sockets) socket.destroy();
    const isReady = () =>
      fetch(`${url}/readyz`, { headers: { connection: "close" } }).then(
        ({ status }) => status === 200,
        () => false,
      );
    while (!(await isReady())) await Bun.sleep(100);
    expect(await node.kill("SIGTERM")).toBe(0);
    const output = await node.output();
    expect(output).not.toContain('"level":"error"');
    expect(output.split("file descriptors are used up")).toHaveLength(2);
  },
  60_000,
);

test("a second signal ends it at once", async () => {
  const folder = join(cwd, "signals");
  const { url } = placeExample("cache.toml", folder);
  const admin = `127.0.0.1:${freePort()}`;
  const env = { WAYPOST_SERVER__ADMIN_LISTEN: JSON.stringify([admin]) };
  const node = await startNode(["serve"], { cwd: folder, url, env });
  // A request whose body never ends holds the drain up.
  const stuck = fetch(`${url}/cache/store`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: new ReadableStream({ start: (controller) => controller.enqueue(new Uint8Array(10)) }),
  }).catch(() => null);
  const metrics = async () => (await fetch(`http://${admin}/metrics`)).text();
  while (!/^waypost_http_body_bytes_in_flight [1-9]/m.test(await metrics())) await Bun.sleep(5);
  void node.kill("SIGTERM");
  await untilPrinted(node, '"stopping"');
  expect(await node.kill("SIGTERM")).toBe(1);
  await stuck;
});

test("a signal ends a start that waits for a store", async () => {
  const folder = join(cwd, "waiting");
  placeExample("cache.toml", folder);
  const path = join(folder, "waypost.toml");
  writeFileSync(
    path,
    readFileSync(path, "utf8")
      .replace('plugin = "lmdb"', 'plugin = "./waits.ts"')
      .replace(/^path = .*$/m, ""),
  );
  const opening = `require("node:fs").writeFileSync("opening", ""); return new Promise(() => {});`;
  const plugin = `{ name: "waits", provides: ["mailbox", "replay", "receipts"], parseOptions: () => ({ ok: true, options: null }), migrate: null, maintenance: null, open() { ${opening} } }`;
  writeFileSync(join(folder, "waits.ts"), `export default ${plugin};\n`);
  const child = Bun.spawn([await executable(), "serve"], {
    cwd: folder,
    stdout: "pipe",
    stderr: "pipe",
  });
  while (!existsSync(join(folder, "opening")) && child.exitCode === null) await Bun.sleep(10);
  child.kill("SIGTERM");
  expect(await child.exited).toBe(0);
  expect(await new Response(child.stdout).text()).toContain("stopped before the start");
});

/**
 * How often the thread that answers requests has waited. A busy machine makes it wait less often,
 * never more.
 */
function waitsOf(pid: number): number {
  const status = readFileSync(`/proc/${pid}/task/${pid}/status`, "utf8");
  return Number(/^voluntary_ctxt_switches:\s+(\d+)$/m.exec(status)?.[1]);
}

test.if(process.platform === "linux")(
  "a node at rest wakes at most ten times a second",
  async () => {
    const folder = join(cwd, "rest");
    const { url } = placeExample("all-in-one.toml", folder);
    const node = await startNode(["serve"], { cwd: folder, url });
    let most = Number.POSITIVE_INFINITY;
    // Compiling goes on for a moment after the start.
    for (let tried = 0; tried < 10 && most > 10; tried++) {
      const [before, beganMs] = [waitsOf(node.pid), performance.now()];
      await Bun.sleep(2_000);
      most = Math.min(most, ((waitsOf(node.pid) - before) * 1_000) / (performance.now() - beganMs));
    }
    await node.kill("SIGTERM");
    expect(most).toBeLessThanOrEqual(10);
  },
);

test("a storage plugin from a file is loaded and serves", async () => {
  const folder = join(cwd, "plugin");
  const { url } = placeExample("all-in-one.toml", folder);
  cpSync(join(import.meta.dir, "external-plugin.ts"), join(folder, "plugin.ts"));
  const path = join(folder, "waypost.toml");
  const text = readFileSync(path, "utf8").replace(
    "[directory]",
    '[stores.side]\nplugin = "./plugin.ts"\ngreeting = "hello"\n\n[directory]\nstore = "side"',
  );
  writeFileSync(path, text);
  const node = await startNode(["serve"], { cwd: folder, url });
  expect(await (await fetch(`${url}/readyz`)).json()).toMatchObject({
    checks: { "store side": "ok" },
  });
  await node.kill("SIGTERM");
  expect(await node.output()).toContain("hello from a plugin");
});

test("it holds the chat app: every file as the source makes it, on a port of its own", async () => {
  const port = freePort(2);
  const folder = join(cwd, "app");
  mkdirSync(folder, { recursive: true });
  const node = await startNode(["dev", "--port", String(port)], {
    cwd: folder,
    url: `http://127.0.0.1:${port}`,
  });
  const app = `http://127.0.0.1:${port + 1}`;
  expect(node.printed()).toContain(app);
  for (const [path, { bytes }] of await webFiles()) {
    const response = await fetch(app + path);
    const served = await response.bytes();
    // The server writes into these two what it knows.
    const isWritten = path === "/" || path === "/worker.js";
    expect([path, response.status, isWritten || Buffer.compare(served, bytes) === 0]).toEqual([
      path,
      200,
      true,
    ]);
  }
  expect(await node.kill("SIGTERM")).toBe(0);
}, 60_000);
