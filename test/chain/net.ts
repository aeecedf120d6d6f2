/**
 * The campaign on real nodes: `bun run chain:net`. Three validators on loopback make and finalize
 * blocks, three Directories register on them while one validator after the other is killed or cut
 * off and the runtime is upgraded; then a light client reads and registers without trusting a node.
 * It ends with 0 when every registration that was answered with 202 is on the chain exactly once.
 *
 *   bun run chain:net [--node FILE] [--next FILE] [--registrations 1000] [--minutes 5]
 *   [--no-upgrade]
 *
 * `--node` is the node and `--next` the runtime with the next version number;
 * `runtime/build.sh --node` builds both.
 */
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { scratchFolder } from "../support/executable.ts";
import { Chain } from "./net-chain.ts";
import { type Directory, openDirectory, type Person, registerAll } from "./net-directories.ts";
import { asLight } from "./net-light.ts";
import { builtFile, compressed, type Network, type NetworkNode, startNetwork } from "./network.ts";
import { until } from "./stand.ts";

const { values } = parseArgs({
  options: {
    node: { type: "string" },
    next: { type: "string" },
    registrations: { type: "string", default: "1000" },
    minutes: { type: "string", default: "5" },
    "no-upgrade": { type: "boolean", default: false },
  },
});
const binary = builtFile(values.node, "release/waypost-node");
const registrations = Number(values.registrations);
const loadMs = Number(values.minutes) * 60_000;

const scratch = scratchFolder();
const nextRuntime = values["no-upgrade"]
  ? null
  : compressed(builtFile(values.next, "waypost-next.wasm"), scratch.path);
const beganMs = Date.now();
const say = (text: string) =>
  console.log(`${((Date.now() - beganMs) / 1_000).toFixed(0).padStart(5)} s  ${text}`);

/** How long a busy machine may take for what takes seconds on a quiet one. */
const patienceMs = 900_000;

/** Finality needs more than two thirds of three, so without any one of them it stands still. */
async function withoutOne(
  network: Network,
  node: NetworkNode,
  given: {
    readonly what: string;
    readonly away: () => Promise<void>;
    readonly back: () => Promise<void>;
  },
): Promise<void> {
  const witness = network.validators.find((other) => other !== node) as NetworkNode;
  await given.away();
  say(`${node.name} is ${given.what}`);
  const before = await standstill(witness);
  const awayBlocks = 3;
  const blocksCame = async () => (await headsOf(witness)).best >= before.best + awayBlocks;
  await until(`blocks without ${node.name}`, blocksCame, patienceMs);
  const after = await headsOf(witness);
  if (after.final !== before.final) throw new Error(`finality went on without ${node.name}`);
  await given.back();
  await until(
    "finality to come back",
    async () => (await headsOf(witness)).final > after.best,
    patienceMs,
  );
  say(
    `${node.name} is back: finality stood at ${after.final} up to block ${after.best}, and goes on`,
  );
}

/**
 * What was voted for before may become final still: waits until two blocks have come without a
 * final one.
 */
async function standstill(witness: NetworkNode): Promise<Heads> {
  let before = await headsOf(witness);
  await until(
    "finality to stand still",
    async () => {
      await Bun.sleep(1_000);
      const now = await headsOf(witness);
      if (now.final === before.final) return now.best >= before.best + 2;
      before = now;
      return false;
    },
    patienceMs,
  );
  return headsOf(witness);
}

type Heads = { readonly final: number; readonly best: number };

async function headsOf({ ask }: NetworkNode): Promise<Heads> {
  const numberOf = async (hash: string) =>
    Number((await ask<{ number: string }>("chain_getHeader", [hash])).number);
  const [final, best] = await Promise.all([
    ask<string>("chain_getFinalizedHead"),
    ask<string>("chain_getBlockHash"),
  ]);
  return { final: await numberOf(final), best: await numberOf(best) };
}

async function campaign(
  network: Network,
  chain: Chain,
  directories: readonly Directory[],
): Promise<void> {
  const [alice, bob, charlie] = network.validators as [NetworkNode, NetworkNode, NetworkNode];
  const load = registerAll(directories, { count: registrations, overMs: loadMs, label: "net" });
  await Bun.sleep(10_000);
  await withoutOne(network, charlie, { what: "killed", away: charlie.kill, back: charlie.start });
  await withoutOne(network, bob, { what: "cut off", away: bob.cut, back: bob.mend });
  if (nextRuntime !== null) await chain.upgrade(nextRuntime);
  say(`the runtime is version ${await chain.specVersion()}`);
  await withoutOne(network, alice, { what: "killed", away: alice.kill, back: alice.start });
  const people = await load;
  say(
    `${people.length} registrations were handed in, ${people.filter(({ taken }) => taken).length} answered 202`,
  );
  await until(
    "every registration to be confirmed",
    () => allConfirmed(directories, people),
    2 * patienceMs,
  );
  say("all are confirmed");
  await check(chain, directories, people);
}

async function allConfirmed(
  directories: readonly Directory[],
  people: readonly Person[],
): Promise<boolean> {
  await Bun.sleep(2_000);
  const states = await Promise.all(
    directories.map((directory) =>
      directory.states(people.filter((person) => person.directory === directory)),
    ),
  );
  const waiting = states.flat().filter((state) => state !== "confirmed").length;
  if (waiting > 0) say(`${waiting} are not confirmed yet`);
  return waiting === 0;
}

/**
 * By every finalized block: each registration in one extrinsic, which succeeded, and no extrinsic
 * for nothing.
 */
async function check(
  chain: Chain,
  directories: readonly Directory[],
  people: readonly Person[],
): Promise<void> {
  const found = await chain.registrations();
  const wrong = people.filter(({ identity }) => found.byDid.get(identity.did) !== 1);
  if (wrong.length > 0)
    throw new Error(`${wrong.length} are not on the chain once: ${wrong[0]?.identity.did}`);
  if (found.byDid.size !== people.length)
    throw new Error(`the chain has ${found.byDid.size} registrations`);
  if (found.failed > 0) throw new Error(`${found.failed} extrinsics of Directories failed`);
  const nonces = await Promise.all(directories.map(({ operator }) => chain.nonce(operator)));
  say(
    `${found.byDid.size} on the chain, once each, in ${found.blocks} blocks; nonces used: ${nonces.join(", ")}`,
  );
  if (nonces.reduce((sum, nonce) => sum + nonce, 0) !== people.length)
    throw new Error("the operators' nonces are not the registrations");
}

let failure: unknown = null;
let network: Network | null = null;
const directories: Directory[] = [];
let chain: Chain | null = null;
try {
  // A day would pass between the vote and the upgrade: the first state has the vote, and this block
  // its end.
  const upgrade = nextRuntime === null ? null : { file: nextRuntime, block: 20 };
  network = await startNetwork(binary, join(scratch.path, "nodes"), upgrade);
  say("three validators and a full node run");
  // A node that makes no blocks may fall behind on a busy machine; the validator that goes last is
  // asked first.
  chain = await Chain.open(network.validators);
  await until(
    "a first final block",
    async () => (await headsOf(network?.full as NetworkNode)).final > 0,
    patienceMs,
  );
  const operators = ["//Operator//0", "//Operator//1", "//Operator//2", "//Operator//3"];
  await chain.endow(operators, 10_000n * 10n ** 12n);
  for (const [n, operator] of operators.slice(0, 3).entries()) {
    const folder = join(scratch.path, `directory-${n}`);
    mkdirSync(join(folder, "data"), { recursive: true });
    writeFileSync(join(folder, "data", "operator.key"), `${operator}\n`, { mode: 0o600 });
    const endpoints = [0, 1].map((next) => network?.validators[(n + next) % 3]?.endpoint as string);
    directories.push(await openDirectory({ folder, endpoints, operator: chain.account(operator) }));
  }
  say("three Directories run");
  await campaign(network, chain, directories);
  const light = await asLight({
    network,
    chain,
    folder: scratch.path,
    operator: operators[3] as string,
  });
  say(`the light client ${light}`);
} catch (error) {
  failure = error;
} finally {
  await Promise.all(directories.map((directory) => directory.close()));
  await chain?.close();
  await network?.close();
}
if (failure === null) {
  scratch.remove();
  say("passed");
} else {
  console.error(failure);
  console.error(`the nodes' and Directories' logs are in ${scratch.path}`);
}
process.exit(failure === null ? 0 : 1);
