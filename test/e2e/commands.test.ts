/**
 * What a person sees who gets a command wrong, on the executable: one line that says what is wrong, the
 * exit code of a failure, no stack; and the same as an object with `--json`.
 */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
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

const scratch = scratchFolder();
const cwd = scratch.path;
const port = freePort();
const url = `http://127.0.0.1:${port}`;
let node: RunningNode;
const waypost = (...args: string[]): Promise<Ran> => run(args, { cwd, env: { WAYPOST_URL: url } });

beforeAll(async () => {
  await executable();
  node = await startNode(["dev", "--port", String(port)], { cwd, url });
  writeFileSync(join(cwd, "note.txt"), "Meet me at noon.\n");
  mkdirSync(join(cwd, "folder"));
  expect((await waypost("did", "create", "--name", "alice")).code).toBe(0);
  expect((await waypost("did", "create", "--name", "bob")).code).toBe(0);
  expect((await waypost("send", "--as", "alice", "--to", "bob", "--file", "note.txt")).code).toBe(0);
}, 120_000);
afterAll(async () => {
  await node.kill("SIGKILL");
  scratch.remove();
});

describe("a failure is one line and exit code 1", () => {
  const cases: readonly (readonly string[])[] = [
    ["receive", "--as", "bob", "--out", "note.txt"],
    ["receive", "--as", "bob", "--out", "/proc/nowhere"],
    ["key", "new", "/proc/nowhere"],
    ["key", "show", "folder"],
    ["did", "create", "--name", "carol", "--keys", "note.txt"],
    ["did", "list", "--keys", "note.txt"],
    ["did", "prepare", "alice", "deactivate_did", "--out", "/proc/nowhere"],
    ["did", "submit", "folder", "--signature", "00".repeat(64)],
    ["send", "--as", "alice", "--to", "bob", "--file", "folder"],
    ["send", "--as", "alice", "--to", "nobody", "--file", "note.txt"],
    ["did", "show", "alice", "--url", "http://127.0.0.1:1"],
    ["did", "add-service", "#x", "--as", "alice", "--type", "inbox", "--endpoint", "nowhere"],
    ["did", "add-key", "#a/b", "--as", "alice"],
    ["config", "check", "--config", "folder"],
    ["send", "--as", "alice", "--to", "bob"],
    ["did", "bogus"],
  ];
  test.each(cases.map((args) => [args.join(" "), args] as const))("%s", async (_name, args) => {
    const { code, stderr } = await waypost(...args);
    const lines = stderr.trim().split("\n");
    const usage = lines.filter((line) => line !== "" && !line.startsWith("Add --help"));
    expect([code, usage.length, /^\s+at /m.test(stderr)]).toEqual([1, 1, false]);
  });
});

test("with --json a folder that can't be written is an object on standard error", async () => {
  const { code, stdout, stderr } = await waypost("receive", "--as", "bob", "--out", "note.txt", "--json");
  expect([code, stdout]).toEqual([1, ""]);
  expect(JSON.parse(stderr)).toMatchObject({ ok: false, code: "failed", status: null });
});

test("a message that could not be written is still there", async () => {
  expect((await waypost("receive", "--as", "bob", "--out", "inbox")).code).toBe(0);
  expect(readFileSync(join(cwd, "inbox", "note.txt"), "utf8")).toBe("Meet me at noon.\n");
});

test("an input error of a node says which member is wrong", async () => {
  const { code, stderr } = await waypost("did", "prepare", "alice", "AddService", "--json");
  expect(code).toBe(1);
  expect(JSON.parse(stderr)).toMatchObject({ code: "invalid_request", message: expect.stringContaining("/service") });
});

test("a key held elsewhere adds a service: prepared here, signed by a file, submitted", async () => {
  const key = (await waypost("key", "new", "external.key")).stdout.trim();
  expect((await waypost("did", "add-key", "#ext", "--as", "alice", "--auth", "--public", key)).code).toBe(0);
  const body = JSON.stringify({ service: { id: "#s", type: "Example", serviceEndpoint: "https://example.org/" } });
  const prepare = ["did", "prepare", "alice", "AddService", "--body", body, "--signer", "#ext", "--out", "p.json"];
  expect(await waypost(...prepare)).toMatchObject({ code: 0, stderr: "" });
  const { payload_to_sign: payload } = JSON.parse(readFileSync(join(cwd, "p.json"), "utf8"));
  const signature = (await waypost("key", "sign", "external.key", "--payload", payload)).stdout.trim();
  expect(await waypost("did", "submit", "p.json", "--signature", signature)).toMatchObject({ code: 0, stderr: "" });
});
