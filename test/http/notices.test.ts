/**
 * Notices of the operator, by the commands: signed elsewhere, published here, and nothing that the
 * operator did not sign.
 */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { checkConfig } from "../../src/config/config.ts";
import type { ConfigInput } from "../../src/config/schema.ts";
import { minuteMs } from "../../src/core/codec/time.ts";
import { freePort, run, scratchFolder } from "../support/executable.ts";
import { relayAt, startTestNodes, type TestNodes } from "../support/nodes.ts";

const folder = scratchFolder();
const cwd = folder.path;
const url = `http://127.0.0.1:${freePort()}`;
const socket = join(cwd, "admin.sock");
const input: ConfigInput = {
  server: {
    listen: [url.slice("http://".length)],
    admin_listen: [`unix:${socket}`],
    drain_timeout: "2s",
  },
  stores: { main: { plugin: "lmdb", path: join(cwd, "store"), block_time_ms: 20 } },
  directory: { enabled: true, rate_limit_loopback: false },
  relay: relayAt(url),
  cache: { enabled: true, public_endpoints: [url] },
};

/** Of the node; commands have the machine's. */
const clock = { aheadMs: 0 };
const realNow = Date.now;

let nodes: TestNodes;
const dids: Record<string, string> = {};
beforeAll(async () => {
  Date.now = () => realNow() + clock.aheadMs;
  nodes = await startTestNodes(input);
  for (const name of ["operator", "mallory"]) {
    const made = await run(["did", "create", "--name", name, "--url", url, "--json"], { cwd });
    dids[name] = (JSON.parse(made.stdout) as { did: string }).did;
  }
}, 60_000);
afterAll(async () => {
  Date.now = realNow;
  await nodes.stop();
  folder.remove();
});

async function signedBy(name: string, text: string): Promise<Record<string, string>> {
  const words = ["notice", "sign", text, "--as", name, "--url", url];
  return JSON.parse((await run(words, { cwd })).stdout) as Record<string, string>;
}

async function publish(form: object | null) {
  const file = join(cwd, "notice.json");
  writeFileSync(file, JSON.stringify(form));
  return run(["notice", "publish", file, "--socket", socket], { cwd });
}

const shown = async () =>
  ((await (await fetch(`${url}/node`)).json()) as { notice: unknown }).notice;

test("a notice of the operator is shown, outlives a restart, and ends", async () => {
  const operator = { did: dids["operator"] ?? null };
  const next = checkConfig({ ...input, operator });
  if (!next.ok) throw new Error(JSON.stringify(next.problems));
  await nodes.reload(next.config);
  const form = await signedBy("operator", "We move on Sunday.");
  const published = await publish(form);
  expect([published.code, published.stdout]).toEqual([0, "everybody is shown the notice\n"]);
  expect(await shown()).toEqual(form);
  await nodes.stop();
  nodes = await startTestNodes({ ...input, operator });
  expect(await shown()).toEqual(form);
  expect((await run(["notice", "remove", "--socket", socket], { cwd })).code).toBe(0);
  expect(await shown()).toBeNull();
}, 60_000);

test("another's notice, other words and another time are refused", async () => {
  const form = await signedBy("operator", "We move on Sunday.");
  const forged = [
    await signedBy("mallory", "Send me your keys."),
    { ...form, text: "We move on Monday." },
    { ...form, issued_at: "2026-01-01T00:00:00.000Z" },
    { ...(await signedBy("mallory", "Send me your keys.")), did: form["did"] },
  ];
  for (const one of forged) {
    const refused = await publish(one);
    expect([refused.code, refused.stderr]).toEqual([
      1,
      expect.stringMatching(/not of operator\.did|has not signed the notice/),
    ]);
  }
  expect(await shown()).toBeNull();
}, 60_000);

test("what is not a notice removes none, and a removed or older one stays away", async () => {
  const older = await signedBy("operator", "We move on Friday.");
  const form = await signedBy("operator", "We move on Sunday.");
  expect((await publish(form)).code).toBe(0);
  const refused = await publish(null);
  expect([refused.code, refused.stderr]).toEqual([1, expect.stringContaining("not the output")]);
  expect(await shown()).toEqual(form);
  expect((await publish(form)).code).toBe(0);
  expect((await publish(older)).stderr).toContain("signed before the last notice");
  expect((await run(["notice", "remove", "--socket", socket], { cwd })).code).toBe(0);
  for (const one of [form, older]) {
    const again = await publish(one);
    expect([again.code, again.stderr]).toEqual([1, expect.stringContaining("sign it again")]);
  }
  expect(await shown()).toBeNull();
  const later = await signedBy("operator", "We moved.");
  expect((await publish(later)).code).toBe(0);
  expect(await shown()).toEqual(later);
}, 60_000);

test("one that was signed by a clock that is ahead is refused, since no other would count until then", async () => {
  const form = await signedBy("operator", "From tomorrow.");
  const before = await shown();
  clock.aheadMs = -10 * minuteMs;
  const refused = await publish(form);
  clock.aheadMs = 0;
  expect([refused.code, refused.stderr]).toEqual([1, expect.stringContaining("clock")]);
  expect(await shown()).toEqual(before);
  expect((await publish(form)).code).toBe(0);
}, 60_000);
