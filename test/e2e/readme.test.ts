/**
 * The README against the executable: the journey runs line by line in an empty folder and prints
 * the text of the README, except ids, keys, times and paths. Then the node is killed in the middle
 * of a file, stopped, and started again.
 */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { createHash, randomBytes } from "node:crypto";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
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

const readme = await Bun.file(join(import.meta.dir, "..", "..", "README.md")).text();
const scratch = scratchFolder();
const cwd = scratch.path;
const port = freePort();
const url = `http://127.0.0.1:${port}`;
let node: RunningNode;

const start = async (): Promise<void> => {
  node = await startNode(["dev", "--port", String(port)], { cwd, url });
};
const waypost = (...args: string[]): Promise<Ran> => run(args, { cwd, env: { WAYPOST_URL: url } });
const digest = (path: string): string =>
  createHash("sha256").update(readFileSync(path)).digest("hex");

beforeAll(async () => {
  await executable();
  await start();
}, 120_000);
afterAll(async () => {
  await node.kill("SIGKILL");
  scratch.remove();
});

/** What differs from run to run, made the same. */
function plain(text: string): string {
  return text
    .replaceAll(String(port), "7400")
    .replaceAll(cwd, "…")
    .replace(/did:svc:[1-9A-HJ-NP-Za-km-z]+/g, "<did>")
    .replace(/\bz[1-9A-HJ-NP-Za-km-z]{40,}/g, "<key>")
    .replace(/\d{4}-\d\d-\d\dT[\d:.]+Z/g, "<time>")
    .replace(/[0-9a-f]{64}/g, "<sha256>")
    .replace(/[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}/g, "<id>");
}

const block = /```console\n([\s\S]*?)```/.exec(readme)?.[1] ?? "";
const steps = block
  .split(/^\$ /m)
  .slice(1)
  .map((step) => [step.slice(0, step.indexOf("\n")), step.slice(step.indexOf("\n") + 1)] as const);

test("the journey of the README prints what stands there", async () => {
  expect(steps.length).toBeGreaterThan(5);
  const prefix = "npx -y bun@1.4.5 run waypost ";
  for (const [line, expected] of steps) {
    if (line.startsWith(prefix)) {
      const ran = await waypost(...line.slice(prefix.length).split(" "));
      expect([line, ran.code, plain(ran.stdout), ran.stderr]).toEqual([
        line,
        0,
        plain(expected),
        "",
      ]);
    } else {
      const shell = Bun.spawn(["sh", "-c", line], { cwd, stdout: "pipe" });
      expect([line, await shell.exited, await new Response(shell.stdout).text()]).toEqual([
        line,
        0,
        expected,
      ]);
    }
  }
});

test("what was answered is there after the node was killed, and the rest is sent on", async () => {
  writeFileSync(join(cwd, "empty.txt"), "");
  writeFileSync(join(cwd, "photo.bin"), randomBytes(20_000_000));
  const send = (file: string): Promise<Ran> =>
    waypost("send", "--as", "alice", "--to", "bob", "--file", file);
  expect((await send("empty.txt")).code).toBe(0);
  const sending = send("photo.bin");
  await untilHeld(3);
  await node.kill("SIGKILL");
  await start();
  if ((await sending).code !== 0) expect((await send("photo.bin")).code).toBe(0);
  await node.kill("SIGKILL");
  await start();
  expect((await waypost("receive", "--as", "bob", "--out", "killed")).code).toBe(0);
  expect(readFileSync(join(cwd, "killed", "empty.txt"), "utf8")).toBe("");
  expect(digest(join(cwd, "killed", "photo.bin"))).toBe(digest(join(cwd, "photo.bin")));
}, 120_000);

test("Ctrl-C stops it cleanly, starting again finds everything, and what it prints can be pasted", async () => {
  expect((await waypost("send", "--as", "bob", "--to", "alice", "--file", "note.txt")).code).toBe(
    0,
  );
  expect(await node.kill("SIGINT")).toBe(0);
  const [, pasted = ""] = (await node.output()).split("in this folder:\n");
  expect(pasted).toContain("Stopped.");
  await start();
  expect((await waypost("receive", "--as", "alice", "--out", "back")).code).toBe(0);
  expect(readFileSync(join(cwd, "back", "note.txt"), "utf8")).toBe("Meet me at noon.\n");
  const folder = join(cwd, "pasted");
  mkdirSync(folder);
  const shell = Bun.spawn(["sh", "-e", "-c", pasted.slice(0, pasted.indexOf("Stopped."))], {
    cwd: folder,
    env: { PATH: "/usr/bin:/bin", HOME: folder },
    stdout: "pipe",
  });
  expect([await shell.exited, await new Response(shell.stdout).text()]).toEqual([
    0,
    expect.stringContaining(join(folder, "inbox", "note.txt")),
  ]);
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
