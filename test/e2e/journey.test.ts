/**
 * The journey of the README on the executable, in an empty folder: two identities, files from one to the
 * other through Relay and Cache, a node that is killed in the middle, and everything found again.
 */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { createHash, randomBytes } from "node:crypto";
import { existsSync, mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import {
  executable,
  freePort,
  type Ran,
  type RunningNode,
  run,
  scratchFolder,
  startNode,
} from "../support/executable.ts";

const scratch = scratchFolder();
const cwd = scratch.path;
const port = freePort();
const url = `http://127.0.0.1:${port}`;
const env = { WAYPOST_URL: url };
let node: RunningNode;

const start = async (): Promise<void> => {
  node = await startNode(["dev", "--port", String(port)], { cwd, url });
};
const waypost = (...args: string[]): Promise<Ran> => run(args, { cwd, env });
const json = async (...args: string[]): Promise<Record<string, unknown>> => {
  const ran = await waypost(...args, "--json");
  if (ran.code !== 0) throw new Error(`${args.join(" ")}: ${ran.code} ${ran.stdout}${ran.stderr}`);
  return JSON.parse(ran.stdout) as Record<string, unknown>;
};
const digest = (path: string): string => createHash("sha256").update(readFileSync(path)).digest("hex");
const filesOf = { "note.txt": "Meet me at noon.\n", "empty.txt": "" } as const;

beforeAll(async () => {
  await executable();
  await start();
  for (const [name, text] of Object.entries(filesOf)) writeFileSync(join(cwd, name), text);
  writeFileSync(join(cwd, "photo.bin"), randomBytes(20_000_000));
}, 120_000);
afterAll(async () => {
  await node.kill("SIGKILL");
  scratch.remove();
});

test("two identities are made and confirmed, with keys that only their owner can read", async () => {
  for (const name of ["alice", "bob"]) {
    const { code, stdout } = await waypost("did", "create", "--name", name);
    expect([code, stdout.trim()]).toEqual([0, expect.stringMatching(/^\w+ is did:svc:[1-9A-Za-z]+ \(confirmed\)$/)]);
  }
  const folder = join(cwd, ".waypost", "keys");
  const keys = readdirSync(folder).filter((name) => statSync(join(folder, name)).isFile());
  expect(keys.length).toBeGreaterThan(0);
  for (const name of keys) expect(statSync(join(folder, name)).mode & 0o777).toBe(0o600);
});

test("a file is sent, waits in the Cache, and arrives once", async () => {
  expect((await waypost("send", "--as", "alice", "--to", "bob", "--file", "note.txt")).code).toBe(0);
  expect((await waypost("receive", "--as", "bob", "--out", "inbox")).code).toBe(0);
  expect(readFileSync(join(cwd, "inbox", "note.txt"), "utf8")).toBe(filesOf["note.txt"]);
  expect((await waypost("receive", "--as", "bob", "--out", "again")).code).toBe(0);
  expect(existsSync(join(cwd, "again", "note.txt"))).toBe(false);
});

test("what was answered is there after the node was killed, and the rest is sent on", async () => {
  expect((await waypost("send", "--as", "alice", "--to", "bob", "--file", "empty.txt")).code).toBe(0);
  const sending = waypost("send", "--as", "alice", "--to", "bob", "--file", "photo.bin");
  await untilHeld(3);
  await node.kill("SIGKILL");
  await start();
  const sent = await sending;
  if (sent.code !== 0)
    expect((await waypost("send", "--as", "alice", "--to", "bob", "--file", "photo.bin")).code).toBe(0);
  await node.kill("SIGKILL");
  await start();
  expect((await waypost("receive", "--as", "bob", "--out", "inbox")).code).toBe(0);
  expect(readFileSync(join(cwd, "inbox", "empty.txt"), "utf8")).toBe("");
  expect(digest(join(cwd, "inbox", "photo.bin"))).toBe(digest(join(cwd, "photo.bin")));
}, 120_000);

test("identities are still confirmed after everything", async () => {
  const shown = await json("did", "show", "--as", "alice");
  expect(JSON.stringify(shown)).toContain("did:svc:");
});

test("Ctrl-C stops it cleanly, and starting again finds everything", async () => {
  expect((await waypost("send", "--as", "bob", "--to", "alice", "--file", "note.txt")).code).toBe(0);
  expect(await node.kill("SIGINT")).toBe(0);
  expect(await node.output()).toContain("Stopped.");
  await start();
  expect((await waypost("receive", "--as", "alice", "--out", "back")).code).toBe(0);
  expect(readFileSync(join(cwd, "back", "note.txt"), "utf8")).toBe(filesOf["note.txt"]);
});

test("what it prints at the start can be pasted", async () => {
  await node.kill("SIGINT");
  const [, pasted = ""] = (await node.output()).split("in this folder:\n");
  await start();
  const folder = join(cwd, "pasted");
  mkdirSync(folder);
  const lines = pasted.slice(0, pasted.indexOf("Stopped."));
  const shell = Bun.spawn(["sh", "-e", "-c", lines], {
    cwd: folder,
    env: { PATH: "/usr/bin:/bin", HOME: folder },
    stdout: "pipe",
  });
  expect([await shell.exited, await new Response(shell.stdout).text()]).toEqual([
    0,
    expect.stringContaining(join(folder, "inbox", "note.txt")),
  ]);
});

test("bench measures the node and leaves nothing behind", async () => {
  const measured = (await json("bench", "--count", "200", "--clients", "16")) as { laps: { perSecond: number }[] };
  expect(measured.laps.length).toBe(3);
  for (const lap of measured.laps) expect(lap.perSecond).toBeGreaterThan(1);
  expect(await (await fetch(`${url}/metrics`)).text()).toContain('waypost_mailbox_entries{store="main"} 0');
}, 120_000);

test("an unreachable node is a failure that says so", async () => {
  const { code, stderr } = await run(["did", "show", "--as", "alice"], {
    cwd,
    env: { WAYPOST_URL: `http://127.0.0.1:${freePort()}` },
  });
  expect([code === 0, stderr.length > 0]).toEqual([false, true]);
});

/** Waits until the Cache holds so many entries. */
async function untilHeld(entries: number): Promise<void> {
  for (let i = 0; i < 400; i++) {
    const text = await (await fetch(`${url}/metrics`)).text();
    const held = /^waypost_mailbox_entries\{store="main"\} (\d+)$/m.exec(text)?.[1];
    if (Number(held ?? 0) >= entries) return;
    await Bun.sleep(5);
  }
  throw new Error(`the Cache never held ${entries} entries`);
}
