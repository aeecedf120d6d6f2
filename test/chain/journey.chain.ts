/**
 * The journey of the README on the compiled executable with `examples/chain.toml`: only the places
 * are others. Then the process is killed with registrations on their way, and the chain is taken
 * away.
 */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { readAccountState } from "../../src/plugins/chain/metadata.ts";
import { registerBodyOf } from "../support/directory.ts";
import {
  executable,
  freePort,
  type RunningNode,
  run,
  scratchFolder,
  startNode,
} from "../support/executable.ts";
import { type Identity, identityOf } from "../support/identity.ts";
import { pause } from "../support/wait.ts";
import { chainExampleAt } from "./example.ts";
import { type NodeProxy, openProxy } from "./proxy.ts";
import { endStand, type Node, startNode as startChain, until } from "./stand.ts";

const scratch = scratchFolder();
const cwd = scratch.path;
const url = `http://127.0.0.1:${freePort()}`;
const env = { WAYPOST_URL: url };
/** What a provider of nodes puts behind the host, to know its customers by. */
const secrets = ["0123456789abcdef", "fedcba98"] as const;
let chain: Node;
let proxy: NodeProxy;
let node: RunningNode;
const started: RunningNode[] = [];

const start = async (): Promise<void> => {
  node = await startNode(["serve", "--config", "chain.toml"], { cwd, url });
  started.push(node);
};
const waypost = (...args: string[]) => run(args, { cwd, env });

beforeAll(async () => {
  chain = await startChain({ intervalMs: 50 });
  proxy = openProxy(chain.endpoint);
  await executable();
  const endpoint = `${proxy.endpoint}/v1/${secrets[0]}?apikey=${secrets[1]}`;
  writeFileSync(
    join(cwd, "chain.toml"),
    chainExampleAt(join(cwd, "data"), url)
      .replace("ws://127.0.0.1:9944", endpoint)
      // A busy machine is no outage.
      .replace('plugin = "chain"\n', 'plugin = "chain"\nrequest_timeout_ms = 60000\n')
      // Sixty people come from one network here.
      .replace("[directory]\n", "[directory]\nregistration_rate = 1000\n"),
  );
  mkdirSync(join(cwd, "data"));
  writeFileSync(join(cwd, "data", "operator.key"), "//Alice\n", { mode: 0o600 });
  await start();
});
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
  expect((await waypost("send", "--as", "alice", "--to", "bob", "--file", "note.txt")).code).toBe(
    0,
  );
  expect((await waypost("receive", "--as", "bob", "--out", "inbox")).code).toBe(0);
  expect(readFileSync(join(cwd, "inbox", "note.txt"), "utf8")).toBe("Meet me at noon.\n");
});

/**
 * The storage key of `System.Account` for the account of the development chain that the key file
 * names.
 */
const operatorAccount =
  "0x26aa394eea5630e07c48ae0c9558cef7b99d880ec681799c0cf30e8886371da9de1e86a9a8c739864cf3cc5ec2bea59fd43593c715fdd31c61141abd04a99fd6822c8558854ccde39a5684e7a56da27d";

/**
 * By the finalized state: the node's pool counts an extrinsic twice that comes again while a block
 * is built.
 */
async function usedNonces(): Promise<number> {
  const head = await chain.ask<string>("chain_getFinalizedHead");
  const account = await chain.ask<string | null>("state_getStorage", [operatorAccount, head]);
  return readAccountState(account === null ? null : Uint8Array.fromHex(account.slice(2))).nonce;
}

const registrations = 60;
/** Longer than for one condition: it is so many. */
const allMs = 270_000;

test(`${registrations} registrations all end confirmed, each once, though the process is killed among them`, async () => {
  const usedBefore = await usedNonces();
  const people = Array.from({ length: registrations }, () => identityOf(crypto.randomUUID()));
  const answered = new Set<string>();
  const firstAnswers = Promise.withResolvers<number>();
  const register = async (person: Identity) => {
    const body = JSON.stringify(registerBodyOf(person, Date.now()));
    const headers = { "content-type": "application/json" };
    const reply = await fetch(`${url}/register-did`, { method: "POST", headers, body }).catch(
      () => null,
    );
    if (reply !== null) expect([202, 409]).toContain(reply.status);
    if (reply?.status !== 202) return;
    if (answered.add(person.did).size === registrations / 6)
      firstAnswers.resolve(node.kill("SIGKILL"));
  };
  /** Those that are not confirmed yet; what no one has answered is sent again, as a client does. */
  const waiting = async (): Promise<Identity[]> => {
    const states = await Promise.all(
      people.map(async (person) => ({ person, state: await stateOf(person) })),
    );
    for (const { person, state } of states)
      if (answered.has(person.did)) expect(state).not.toBe("missing");
    const left = states.filter(({ state }) => state !== "confirmed").map(({ person }) => person);
    await Promise.all(left.filter(({ did }) => !answered.has(did)).map(register));
    await pause(200, "the pace of a client that asks again");
    return left;
  };
  const sent = Promise.all(people.map(register));
  await firstAnswers.promise;
  await sent;
  await start();
  expect((await waiting()).length).toBeGreaterThan(registrations / 4);
  await until("a half", async () => (await waiting()).length < registrations / 2, allMs);
  await node.kill("SIGKILL");
  await start();
  await until("all of them", async () => (await waiting()).length === 0, allMs);
  // Each took one extrinsic of the operator, so none was handed in twice.
  expect((await usedNonces()) - usedBefore).toBe(registrations);
});

/** The status of a registration. A confirmed one is the DID's first record. */
async function stateOf({ did }: Identity): Promise<string> {
  const answer = await fetch(`${url}/registration-status/${did}`);
  const { registration_status: state, version } = (await answer.json()) as Record<string, unknown>;
  if (state === "confirmed") expect(version).toBe(1);
  return String(state);
}

test("without the chain reads answer 502 and never that something is missing, until it is back", async () => {
  const { did } = identityOf(crypto.randomUUID());
  const statusOf = async (path: string) => {
    const answer = await fetch(`${url}${path}`);
    const text = await answer.text();
    for (const secret of secrets) expect(text).not.toContain(secret);
    return answer.status;
  };
  expect(await statusOf(`/resolve/${did}`)).toBe(404);
  proxy.cut();
  await until("the loss to be noticed", async () => (await statusOf("/readyz")) === 503);
  for (const path of [`/resolve/${did}`, `/registration-status/${did}`, `/dids/${did}/nonces`])
    expect(await statusOf(path)).toBe(502);
  proxy.mend();
  await until("the chain", async () => (await statusOf("/readyz")) === 200);
  expect(await statusOf(`/resolve/${did}`)).toBe(404);
});

test("it ends when it is asked to", async () => {
  expect(await node.kill("SIGTERM")).toBe(0);
});

test("nothing that it wrote shows the part of an endpoint after its host", async () => {
  const outputs = await Promise.all(started.map(({ output }) => output()));
  expect(outputs.join("\n")).toContain("an endpoint of the chain can't be used");
  for (const secret of secrets) expect(outputs.join("\n")).not.toContain(secret);
});
