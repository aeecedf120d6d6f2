/** What `waypost send` and `waypost did create` ask of nodes, and what they show of events. */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { existsSync, readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileKeys } from "../../src/cli/files/files.ts";
import { checkHomes } from "../../src/client/identity/registration.ts";
import { memoryKeys } from "../../src/client/keys/key-stores.ts";
import { connect } from "../../src/client/trust/client.ts";
import { Waypost } from "../../src/client/waypost.ts";
import { clientCode } from "../support/client-code.ts";
import { executable } from "../support/executable.ts";
import { startTestNodes, type TestNodes } from "../support/nodes.ts";
import { scratchPaths } from "../support/scratch.ts";

const freshFolder = scratchPaths("send-commands");
let nodes: TestNodes;
beforeAll(async () => {
  nodes = await startTestNodes();
});
afterAll(async () => {
  await nodes.stop();
});

const main = await executable();
const waiting = { timeoutMs: 60_000, intervalMs: 20 };
const open = (folder: string, name: string) =>
  Waypost.open({ url: nodes.url, keys: fileKeys(folder), name, waiting });

async function run(...words: string[]) {
  const child = Bun.spawn([main, ...words], { stdout: "pipe", stderr: "pipe" });
  const [out, errors] = await Promise.all([
    new Response(child.stdout).text(),
    new Response(child.stderr).text(),
  ]);
  return { code: await child.exited, out, errors };
}

/** Nodes behind an address that keeps what it was asked. `answer` comes first. */
function watched(answer: (request: Request) => Response | null = () => null) {
  const asked: string[] = [];
  const server = Bun.serve({
    port: 0,
    hostname: "127.0.0.1",
    fetch: async (request) => {
      const { pathname, search } = new URL(request.url);
      const { method, headers } = request;
      const body = method === "GET" ? null : await request.text();
      asked.push(
        decodeURIComponent(`${method} ${pathname}${search}`) + JSON.stringify(headers) + body,
      );
      return answer(request) ?? fetch(nodes.url + pathname + search, { method, headers, body });
    },
  });
  return {
    asked,
    url: `http://127.0.0.1:${server.port}`,
    [Symbol.dispose]: () => void server.stop(true),
  };
}

test("an anonymous message names no identity of the machine to any node, and needs none", async () => {
  const [folder, none] = [freshFolder(), freshFolder()];
  const alice = await open(folder, "alice");
  const bob = await open(freshFolder(), "bob");
  const file = `${folder}.txt`;
  writeFileSync(file, "hi");
  for (const keys of [folder, none]) {
    using proxy = watched();
    const ran = await run(
      "send",
      "--to",
      bob.did,
      "--file",
      file,
      "--anonymous",
      "--keys",
      keys,
      "--url",
      proxy.url,
    );
    expect([ran.code, ran.errors]).toEqual([0, ""]);
    expect(proxy.asked.filter((one) => one.includes(alice.did))).toEqual([]);
    expect(proxy.asked.some((one) => one.startsWith(`POST /relay/${bob.did}`))).toBe(true);
  }
  // Of several it can't know whose memory of the recipient counts.
  await open(folder, "carol");
  const unclear = await run(
    "send",
    "--to",
    bob.did,
    "--file",
    file,
    "--anonymous",
    "--keys",
    folder,
    "--url",
    nodes.url,
  );
  expect([unclear.code, unclear.errors.includes("--as")]).toEqual([1, true]);
  for await (const message of bob.messages()) {
    expect([message.text, message.from]).toEqual(["hi", null]);
    break;
  }
}, 60_000);

test("an identity is made only where Relay and Cache are", async () => {
  const check = (url: string) =>
    clientCode(() => checkHomes(connect({ directoryUrl: url, relayUrl: url }), homes(url)));
  const homes = (url: string) => ({ relayUrl: url, cacheUrl: url });
  const about = Response.json({ roles: ["directory"], directory_endpoints: ["https://d.example"] });
  const isNode = ({ url }: Request) => url.endsWith("/node");
  using directory = watched((one) =>
    isNode(one) ? about.clone() : Response.json({}, { status: 404 }),
  );
  expect(await check(directory.url)).toBe("invalid_url");
  const folder = freshFolder();
  const ran = await run("did", "create", "--name", "eve", "--keys", folder, "--url", directory.url);
  expect([ran.code, await fileKeys(folder).load("eve")]).toEqual([1, null]);
  expect(ran.errors).toContain(`no Relay answers at ${directory.url}`);
  // One that does not describe itself, and a router that gives this route to the Directory.
  using silent = watched(() => Response.json({}, { status: 404 }));
  using routed = watched((one) => (isNode(one) ? about.clone() : null));
  await checkHomes(connect({ directoryUrl: silent.url, relayUrl: silent.url }), homes(silent.url));
  await checkHomes(connect({ directoryUrl: routed.url, relayUrl: routed.url }), homes(routed.url));
}, 60_000);

test("a command shows that a due key could not be replaced", async () => {
  const folder = freshFolder();
  const week = 8 * 86_400_000;
  const options = { url: nodes.url, keys: fileKeys(folder), name: "alice", waiting };
  const alice = await Waypost.open({ ...options, nowMs: () => Date.now() - week });
  const file = `${folder}.txt`;
  writeFileSync(file, "hi");
  const refusal = { success: false, code: "ledger_unavailable", message: "no blocks", status: 503 };
  using proxy = watched(({ method }) =>
    method === "PUT" ? Response.json(refusal, { status: 503 }) : null,
  );
  const directory = ["--directory", proxy.url, "--url", nodes.url];
  const ran = await run("send", "--to", alice.did, "--file", file, "--keys", folder, ...directory);
  expect([ran.code, ran.errors]).toEqual([0, expect.stringContaining("ledger_unavailable")]);
}, 60_000);

test("an identity is used where it was made, unless an address is given", async () => {
  const [folder, out] = [freshFolder(), freshFolder()];
  const keys = ["--keys", folder];
  const made = await run("did", "create", "--name", "ann", "--url", nodes.url, ...keys);
  expect([made.code, made.errors]).toEqual([0, ""]);
  const note = join(folder, "note.txt");
  writeFileSync(note, "Meet me at noon.");
  const sent = await run("send", "--as", "ann", "--to", "ann", "--file", note, ...keys);
  expect([sent.code, sent.errors]).toEqual([0, ""]);
  const received = await run("receive", "--out", out, "--json", ...keys);
  expect([received.code, received.out]).toEqual([0, expect.stringContaining("note.txt")]);
  const elsewhere = await run("did", "show", "--url", "http://127.0.0.1:1", "--json", ...keys);
  expect(JSON.parse(elsewhere.errors)).toMatchObject({ code: "unreachable" });
});

test("dev in memory says in one line of JSON where it is, and keeps no file", async () => {
  const folder = freshFolder();
  const child = Bun.spawn([main, "dev", "--memory", "--port", "0", "--json", "--data", folder], {
    stdout: "pipe",
    stderr: "pipe",
  });
  const { value } = await child.stdout.getReader().read();
  const said = JSON.parse(new TextDecoder().decode(value));
  expect(said).toEqual({
    url: expect.stringMatching(/^http:\/\/127\.0\.0\.1:\d+$/),
    app: expect.stringMatching(/^http:\/\/127\.0\.0\.1:\d+$/),
    data: null,
  });
  const me = await Waypost.open({ url: said.url, keys: memoryKeys() });
  // People paste the first address that they see, which is the app's.
  const pasted = Waypost.open({ url: said.app, keys: memoryKeys() });
  await expect(pasted).rejects.toMatchObject({
    code: "not_a_node",
    message: expect.stringContaining(said.url),
  });
  await me.close();
  child.kill("SIGTERM");
  expect(await child.exited).toBe(0);
  expect(existsSync(folder) ? readdirSync(folder) : []).toEqual([]);
});
