/**
 * What must not get lost without a word, on the executable: a store that a backup leaves out, the
 * key of a log, and the public half of every kind of key.
 */
import { afterAll, expect, test } from "bun:test";
import { existsSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { freePort, run, scratchFolder, startNode } from "../support/executable.ts";

const folder = scratchFolder();
const cwd = folder.path;
afterAll(folder.remove);
const waypost = (...args: string[]) => run(args, { cwd });
const logName = "directory.example/log";

const [port, file] = [freePort(), join(cwd, "waypost.toml")];
const url = `http://127.0.0.1:${port}`;
const configure = (more = "", stores = "") =>
  writeFileSync(
    file,
    `[server]
listen = ["127.0.0.1:${port}"]
[stores.main]
plugin = "lmdb"
path = "${join(cwd, "data")}"
block_time_ms = 20
${stores}
[directory]
enabled = true
${more}
`,
  );
const serve = () => startNode(["serve", "--config", file], { cwd, url });
/** Of a node that must not start. */
const refusal = async (): Promise<string> => {
  const { code, stderr } = await waypost("serve", "--config", file);
  expect(code).toBe(1);
  return stderr;
};

test("another key of the same log is refused, one that begins it anew is not, and the first one is not after that", async () => {
  configure('log_key_file = "log.key"');
  expect((await waypost("key", "new", "--log", logName, "log.key")).code).toBe(0);
  const vkey = (await waypost("key", "show", "log.key")).stdout.trim();
  await (await serve()).kill("SIGTERM");
  for (const name of ["log.key", "log.key.head"])
    if (existsSync(join(cwd, name))) renameSync(join(cwd, name), join(cwd, `${name}.lost`));
  await waypost("key", "new", "--log", logName, "log.key");
  const refused = await refusal();
  expect(refused).toContain(`signed by another key, ${vkey}`);
  expect(refused).toContain(`waypost key new --log ${logName}/2`);
  rmSync(join(cwd, "log.key"));
  await waypost("key", "new", "--log", `${logName}/2`, "log.key");
  expect(await (await serve()).kill("SIGTERM")).toBe(0);
  for (const name of ["log.key", "log.key.head"])
    if (existsSync(join(cwd, `${name}.lost`)))
      renameSync(join(cwd, `${name}.lost`), join(cwd, name));
  expect(await refusal()).toContain("signed by another key");
}, 60_000);

test("a key of another log than the one that the ledger's name covers is refused where nothing was remembered", async () => {
  rmSync(join(cwd, "data"), { recursive: true });
  const renew = async () => {
    for (const name of ["log.key", "log.key.head"]) rmSync(join(cwd, name), { force: true });
    await waypost("key", "new", "--log", logName, "log.key");
  };
  await renew();
  configure('log_key_file = "log.key"\nstore = "claims"', '[stores.claims]\nplugin = "memory"');
  await (await serve()).kill("SIGTERM");
  await (await serve()).kill("SIGTERM");
  await renew();
  expect(await refusal()).toContain("signed by another key, the key that its genesis names");
}, 60_000);

test("key show prints the public half of every kind of key", async () => {
  const show = async (name: string, ...flags: string[]) => {
    await waypost("key", "new", ...flags, name);
    return (await waypost("key", "show", name)).stdout.trim();
  };
  expect(await show("event.key")).toMatch(/^z6Mk/);
  expect(await show("other-log.key", "--log", "one.example")).toStartWith("one.example+");
  expect(await show("witness.key", "--witness", "two.example")).toStartWith("two.example+");
  writeFileSync(join(cwd, "event.key.push"), readFileSync(join(cwd, "event.key")));
  expect((await waypost("key", "show", "event.key.push")).stdout.trim()).toMatch(/^B[\w-]{86}$/);
  writeFileSync(join(cwd, "wrong.key"), "nothing");
  expect((await waypost("key", "show", "wrong.key")).code).toBe(1);
}, 60_000);

const bare = `export default () => {
  const replay = { claim: async () => true, expire: async () => 0 };
  const receipts = { get: async () => null, put: async () => {}, putIfAbsent: async () => null, remove: async () => {}, scan: async () => [], expire: async () => 0 };
  return {
    name: "bare", provides: ["receipts", "replay"], migrate: null, maintenance: null,
    parseOptions: () => ({ ok: true, options: null }),
    open: async () => ({ plugin: "bare", capabilities: { receipts, replay }, probe: async () => {}, close: async () => {} }),
  };
};
`;

test("a backup names the store that it leaves out and fails, unless the others are named", async () => {
  writeFileSync(join(cwd, "bare.mjs"), bare);
  configure('store = "claims"', '[stores.claims]\nplugin = "./bare.mjs"');
  const backup = (name: string, ...flags: string[]) =>
    waypost("storage", "backup", "--to", join(cwd, name), "--config", file, ...flags);
  const all = await backup("all");
  expect(all.code).toBe(1);
  expect(all.stdout).toContain("main: copied");
  expect(all.stdout).toContain("claims: LEFT OUT: its plugin has no backup");
  expect(all.stderr).toContain("the backup lacks claims");
  expect(existsSync(join(cwd, "all", "main", "data.mdb"))).toBe(true);
  const named = await backup("named", "--store", "main");
  expect([named.code, named.stdout.includes("LEFT OUT")]).toEqual([0, false]);
  configure('store = "claims"', '[stores.claims]\nplugin = "memory"');
  const memory = await backup("memory");
  expect([memory.code, memory.stdout]).toEqual([
    0,
    expect.stringContaining("claims: nothing to copy: it is in memory"),
  ]);
}, 60_000);
