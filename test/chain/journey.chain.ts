/**
 * The journey of the README on the compiled executable with `examples/chain.toml`: only the ports are
 * others. Then the process is killed with registrations on their way, and the chain is taken away.
 */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { registerBodyOf } from "../support/directory.ts";
import { executable, freePort, type RunningNode, run, scratchFolder, startNode } from "../support/executable.ts";
import { identityOf } from "../support/identity.ts";
import { type NodeProxy, openProxy } from "./proxy.ts";
import { endStand, startNode as startChain, until } from "./stand.ts";

const scratch = scratchFolder();
const cwd = scratch.path;
const url = `http://127.0.0.1:${freePort()}`;
const env = { WAYPOST_URL: url };
let proxy: NodeProxy;
let node: RunningNode;

const start = async (): Promise<void> => {
  node = await startNode(["serve", "--config", "chain.toml"], { cwd, url });
};
const waypost = (...args: string[]) => run(args, { cwd, env });

beforeAll(async () => {
  const chain = await startChain({ intervalMs: 50 });
  proxy = openProxy(chain.endpoint);
  await executable();
  const example = readFileSync(new URL("../../examples/chain.toml", import.meta.url), "utf8");
  writeFileSync(
    join(cwd, "chain.toml"),
    example.replaceAll("127.0.0.1:7400", new URL(url).host).replace("ws://127.0.0.1:9944", proxy.endpoint),
  );
  mkdirSync(join(cwd, "data"));
  writeFileSync(join(cwd, "data", "operator.key"), "//Alice\n", { mode: 0o600 });
  await start();
}, 120_000);
afterAll(async () => {
  await node.kill("SIGKILL");
  proxy.close();
  await endStand();
  scratch.remove();
});

test("two identities are registered on the chain, and a file goes from one to the other", async () => {
  for (const name of ["alice", "bob"]) {
    expect((await waypost("did", "create", "--name", name)).stdout).toContain("(confirmed)");
  }
  writeFileSync(join(cwd, "note.txt"), "Meet me at noon.\n");
  expect((await waypost("send", "--as", "alice", "--to", "bob", "--file", "note.txt")).code).toBe(0);
  expect((await waypost("receive", "--as", "bob", "--out", "inbox")).code).toBe(0);
  expect(readFileSync(join(cwd, "inbox", "note.txt"), "utf8")).toBe("Meet me at noon.\n");
}, 60_000);

test("registrations that were answered are confirmed after the process was killed", async () => {
  const identities = Array.from({ length: 12 }, () => identityOf(crypto.randomUUID()));
  const answers = await Promise.all(
    identities.map((identity) =>
      fetch(`${url}/register-did`, {
        method: "POST",
        headers: { "content-type": "application/json" },
        body: JSON.stringify(registerBodyOf(identity, Date.now())),
      }),
    ),
  );
  expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([202]));
  await node.kill("SIGKILL");
  await start();
  for (const { did } of identities) {
    const confirmed = async () => {
      const answer = await fetch(`${url}/registration-status/${did}`);
      const { registration_status: status, version } = (await answer.json()) as {
        registration_status: string;
        version?: number;
      };
      expect(["pending", "confirmed"]).toContain(status);
      return status === "confirmed" && version === 1;
    };
    await until("the registration", confirmed);
  }
}, 60_000);

test("without the chain reads answer 502 and never that something is missing, until it is back", async () => {
  const { did } = identityOf(crypto.randomUUID());
  const statusOf = async (path: string) => (await fetch(`${url}${path}`)).status;
  expect(await statusOf(`/resolve/${did}`)).toBe(404);
  proxy.cut();
  await until("the loss to be noticed", async () => (await statusOf("/readyz")) === 503);
  for (const path of [`/resolve/${did}`, `/registration-status/${did}`, `/dids/${did}/nonces`])
    expect(await statusOf(path)).toBe(502);
  proxy.mend();
  await until("the chain", async () => (await statusOf("/readyz")) === 200);
  expect(await statusOf(`/resolve/${did}`)).toBe(404);
}, 60_000);

test("it ends by itself when it is told to", async () => {
  expect(await node.kill("SIGTERM")).toBe(0);
});
