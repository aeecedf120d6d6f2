/**
 * `waypost receive` and `waypost send` killed at any moment: run again, each message is one whole
 * file of its recipient. A killed `receive` has its store, a killed `send` of a file in chunks its
 * plan. A `send` is killed at one of its requests, which is counted on the way to the nodes: so
 * many attempts suffice on a machine of any pace.
 */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileKeys, stateFolder } from "../../src/cli/files/files.ts";
import { renderKept } from "../../src/client/base/shapes.ts";
import { keptPlan } from "../../src/client/mail/send.ts";
import { executable } from "../support/executable.ts";
import { startTestNodes, type TestNodes } from "../support/nodes.ts";
import { plan } from "../support/send-plan.ts";
import { times } from "../support/whole.ts";

const kills = Number(process.env["WAYPOST_TEST_KILLS"] ?? times(3, 6));
const base = mkdtempSync(join(tmpdir(), "waypost-commands-"));
const main = await executable();
let nodes: TestNodes;
beforeAll(async () => {
  nodes = await startTestNodes();
  for (const name of ["alice", "bob"])
    expect(await waypost(["did", "create", "--name", name])).toBe(0);
});
afterAll(async () => {
  await nodes.stop();
  rmSync(base, { recursive: true, force: true });
});

function start(words: readonly string[], url = nodes.url) {
  const env = { ...process.env, WAYPOST_URL: url, WAYPOST_KEYS: join(base, "keys") };
  return Bun.spawn([main, ...words], {
    cwd: base,
    env,
    stdout: "pipe",
    stderr: "ignore",
  });
}

/** The exit code; 137 when it was killed after so many milliseconds. */
async function waypost(words: readonly string[], killedAfterMs?: number): Promise<number> {
  const child = start(words);
  const timer =
    killedAfterMs === undefined
      ? undefined
      : setTimeout(() => child.kill("SIGKILL"), killedAfterMs);
  const code = await child.exited;
  clearTimeout(timer);
  return code;
}

async function timeOf(work: () => Promise<unknown>): Promise<number> {
  const begunMs = performance.now();
  await work();
  return performance.now() - begunMs;
}

const textsIn = (folder: string): string[] =>
  readdirSync(join(base, folder))
    .filter((name) => name.endsWith(".txt"))
    .map((name) => readFileSync(join(base, folder, name), "utf8"))
    .sort();

const send = (file: string) => [
  "send",
  "--as",
  "alice",
  "--to",
  "bob",
  "--file",
  file,
  "--chunk-bytes",
  "1000",
];

test(
  `what waits is one file each over ${kills} kills of receive`,
  async () => {
    const receive = ["receive", "--as", "bob", "--out", "inbox"];
    const texts = Array.from({ length: 2 * kills }, (_, i) =>
      `${i} `.repeat(i % 3 === 0 ? 1_000 : 1),
    );
    for (const [i, text] of texts.entries()) writeFileSync(join(base, `${i}.txt`), text);
    const files = texts.map((_, i) => `${i}.txt`);
    expect(await Promise.all(files.slice(0, 4).map((file) => waypost(send(file))))).toEqual([
      0, 0, 0, 0,
    ]);
    const wholeMs = await timeOf(() => waypost(receive));
    let killed = 0;
    for (let sent = 4; sent < files.length || killed < kills; sent += 2) {
      await Promise.all(files.slice(sent, sent + 2).map((file) => waypost(send(file))));
      if ((await waypost(receive, wholeMs * (0.3 + 0.7 * Math.random()))) !== 0) killed++;
      if (sent > 20 * kills) break;
    }
    expect(await waypost(receive)).toBe(0);
    expect(textsIn("inbox")).toEqual(texts.sort());
    expect(readdirSync(join(base, "inbox")).filter((name) => name.startsWith("."))).toEqual([]);
  },
  kills * 30_000,
);

/** Of alice, which her next send would continue. */
async function plansLeft(): Promise<number> {
  const kept = await fileKeys(join(base, "keys")).load("alice/sending");
  return kept === null ? 0 : JSON.parse(kept).plans.length;
}

async function waitingForBob(): Promise<{ readonly complete: boolean }[]> {
  return JSON.parse(await new Response(start(["query", "--as", "bob", "--json"]).stdout).text())
    .waiting;
}

const filesWaiting = async () => (await waitingForBob()).filter(({ complete }) => complete).length;

type Kill = {
  /** 1 for the first request of the command. */
  readonly request: number;
  /** Before the node has the request, when it has taken it, or when its answer is on the way. */
  readonly at: "request" | "taken" | "answer";
};

/** The exit code of a command that is killed at one of its requests, and how many it made. */
async function waypostKilledAt(kill: Kill, words: readonly string[]) {
  let requests = 0;
  const counting = Bun.serve({
    hostname: "127.0.0.1",
    port: 0,
    fetch: async (request) => {
      const isLast = ++requests === kill.request;
      if (isLast && kill.at === "request") child.kill("SIGKILL");
      const { pathname, search } = new URL(request.url);
      const { method, headers } = request;
      const body = method === "GET" ? null : await request.bytes();
      const answer = await fetch(`${nodes.url}${pathname}${search}`, { method, headers, body });
      const bytes = await answer.bytes();
      if (isLast && kill.at === "taken") child.kill("SIGKILL");
      if (isLast && kill.at === "answer") setTimeout(() => child.kill("SIGKILL"), 1);
      return new Response(bytes, answer);
    },
  });
  const child = start(words, `http://127.0.0.1:${counting.port}`);
  const code = await child.exited;
  await counting.stop(true);
  return { code, requests };
}

/** One of so many requests, or a later one: then the command ends by itself. */
function anyKill(requests: number): Kill {
  const at = (["request", "taken", "answer"] as const)[Math.floor(3 * Math.random())] ?? "answer";
  return { request: 1 + Math.floor(1.2 * requests * Math.random()), at };
}

test(
  `a file in chunks arrives once over ${kills} kills of send`,
  async () => {
    const texts = Array.from({ length: kills }, (_, i) => `${i} of many `.repeat(3_000));
    writeFileSync(join(base, "timed.txt"), "timed ".repeat(5_000));
    const never: Kill = { request: 0, at: "request" };
    const whole = await waypostKilledAt(never, send("timed.txt"));
    // A request for each chunk, at the least.
    expect([whole.code, whole.requests > 30]).toEqual([0, true]);
    for (const [i, text] of texts.entries()) {
      writeFileSync(join(base, `long-${i}.txt`), text);
      while ((await waypostKilledAt(anyKill(whole.requests), send(`long-${i}.txt`))).code !== 0)
        // Killed between its end and its exit code: nothing is left to be sent, and all of it
        // waits.
        if ((await plansLeft()) === 0 && (await filesWaiting()) === i + 2) break;
    }
    expect(await waypost(["receive", "--as", "bob", "--out", "long"])).toBe(0);
    expect(textsIn("long").filter((text) => !text.startsWith("timed"))).toEqual(texts.sort());
    // Each run continued the set of the one before: no part of another set waits.
    expect(await waitingForBob()).toEqual([]);
  },
  kills * 60_000,
);

test("the seed of a send that was given up goes when its time has ended, and all state goes with the identity", async () => {
  const keys = join(base, "keys");
  expect(await waypost(["did", "create", "--name", "carol"])).toBe(0);
  await fileKeys(keys).save("carol/sending", renderKept({ plans: [keptPlan(plan, 1)] }));
  expect(await waypost(["receive", "--as", "carol", "--out", "carol"])).toBe(0);
  expect(await fileKeys(keys).load("carol/sending")).toBeNull();
  expect(existsSync(stateFolder(keys, "carol"))).toBe(true);
  expect(await waypost(["did", "delete", "--as", "carol", "--yes"])).toBe(0);
  expect(existsSync(stateFolder(keys, "carol"))).toBe(false);
}, 60_000);

test("receive --follow goes on after another command has replaced the keys", async () => {
  expect(await waypost(["did", "create", "--name", "dora"])).toBe(0);
  const child = start(["receive", "--follow", "--as", "dora", "--out", "followed"]);
  try {
    for (const [i, rotate] of [
      [0, ["did", "rotate", "--as", "dora"]] as const,
      [1, ["did", "show", "dora"]] as const,
    ]) {
      writeFileSync(join(base, `followed-${i}.txt`), `${i}`);
      expect(
        await waypost(["send", "--as", "alice", "--to", "dora", "--file", `followed-${i}.txt`]),
      ).toBe(0);
      const file = join(base, "followed", `followed-${i}.txt`);
      for (
        const endMs = performance.now() + 15_000;
        !existsSync(file) && performance.now() < endMs;
      )
        await Bun.sleep(50);
      expect(existsSync(file)).toBe(true);
      expect(await waypost([...rotate])).toBe(0);
    }
  } finally {
    child.kill("SIGKILL");
    await child.exited;
  }
}, 60_000);
