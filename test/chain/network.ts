/**
 * A network of real nodes on loopback: validators of the preset `local_testnet` with the kept
 * runtime, each a process with a database of its own, and one node that makes no blocks. Tests end
 * them, start them again and cut them off from the others. The node is built once by
 * `runtime/build.sh --node`; nothing here builds.
 */
import { closeSync, existsSync, mkdirSync, openSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { blake2AsHex, xxhashAsHex } from "@polkadot/util-crypto";
import { concatBytes, encodeBase58 } from "../../src/core/codec/bytes.ts";
import { freePort } from "../support/executable.ts";
import { keyPair } from "../support/identity.ts";
import { until } from "./stand.ts";

export type NetworkNode = {
  readonly name: string;
  readonly endpoint: string;
  readonly ask: <T>(method: string, params?: readonly unknown[]) => Promise<T>;
  /** Waits until it answers. */
  readonly start: () => Promise<void>;
  /** Ends the process at once, as a crash does. */
  readonly kill: () => Promise<void>;
  /** Stops the process where it is: its connections stay open, and no one gets an answer. */
  readonly cut: () => Promise<void>;
  readonly mend: () => Promise<void>;
};

export type Network = {
  readonly validators: readonly NetworkNode[];
  /** Makes no blocks, and lets any peer in: a light client finds the chain by it. */
  readonly full: NetworkNode;
  /** Raw, with the address of `full` in it. */
  readonly specification: string;
  readonly close: () => Promise<void>;
};

/** `:code`. */
const codeKey = "0x3a636f6465";
const upgradeKey = `${xxhashAsHex("Authorities", 128)}${xxhashAsHex("Upgrade", 128).slice(2)}`;
const keptRuntime = new URL(
  "../../runtime/artifacts/waypost-runtime.compact.compressed.wasm",
  import.meta.url,
);

/** Where `runtime/build.sh --node` puts them; throws with that command when one is missing. */
export function builtFile(given: string | undefined, built: string): string {
  const path = given ?? new URL(`../../runtime/node/target/${built}`, import.meta.url).pathname;
  if (existsSync(path)) return path;
  throw new Error(
    `${path} is missing: build it once with runtime/build.sh --node, or name another one`,
  );
}

/**
 * As a chain stores it, in a file of the folder: a call may not be as long as the code is without
 * compression.
 */
export function compressed(runtime: string, folder: string): string {
  const path = join(folder, "next.compressed.wasm");
  const marker = Uint8Array.of(82, 188, 83, 118, 70, 219, 142, 5);
  writeFileSync(
    path,
    concatBytes(marker, Bun.zstdCompressSync(readFileSync(runtime), { level: 19 })),
  );
  return path;
}

type Plan = {
  readonly name: string;
  readonly seed: string;
  readonly peer: string;
  readonly port: number;
  readonly wsPort: number;
  readonly rpcPort: number;
};

/**
 * `upgrade`: the runtime for which a majority has voted, and the block in which its day of waiting
 * is over.
 */
type Upgrade = { readonly file: string; readonly block: number };

export async function startNetwork(
  binary: string,
  folder: string,
  upgrade: Upgrade | null,
): Promise<Network> {
  mkdirSync(folder, { recursive: true });
  const plans = ["alice", "bob", "charlie", "full"].map(planOf);
  const specification = join(folder, "specification.json");
  const full = plans.at(-1) as Plan;
  const bootNodes = [`/ip4/127.0.0.1/tcp/${full.wsPort}/ws/p2p/${full.peer}`];
  await writeSpecification(binary, specification, { bootNodes, upgrade });
  const nodes = plans.map((plan) => nodeOf(plan, { binary, folder, specification, plans }));
  await Promise.all(nodes.map((node) => node.start()));
  return {
    validators: nodes.slice(0, -1),
    full: nodes.at(-1) as NetworkNode,
    specification,
    close: async () => {
      await Promise.all(nodes.map((node) => node.kill()));
    },
  };
}

function planOf(name: string, index: number): Plan {
  const seed = new Uint8Array(32).fill(index + 1);
  // A peer id is the multihash "identity" of the key in protobuf: type 1 (Ed25519), 32 bytes.
  const prefix = Uint8Array.fromHex("002408011220");
  const peer = encodeBase58(concatBytes(prefix, keyPair(seed).publicKey));
  return {
    name,
    seed: seed.toHex(),
    peer,
    port: freePort(),
    wsPort: freePort(),
    rpcPort: freePort(),
  };
}

async function writeSpecification(
  binary: string,
  path: string,
  {
    bootNodes,
    upgrade,
  }: { readonly bootNodes: readonly string[]; readonly upgrade: Upgrade | null },
): Promise<void> {
  const args = ["export-chain-spec", "--chain", "local", "--raw", "--output", path];
  const child = Bun.spawn([binary, ...args], { stdout: "ignore", stderr: "pipe" });
  const [code, text] = await Promise.all([child.exited, new Response(child.stderr).text()]);
  if (code !== 0) throw new Error(`the node wrote no specification: ${text}`);
  const specification = JSON.parse(readFileSync(path, "utf8")) as {
    genesis: { raw: { top: Record<string, string> } };
  };
  // The node carries the runtime that was kept when it was built.
  const { top } = specification.genesis.raw;
  top[codeKey] = `0x${readFileSync(keptRuntime).toHex()}`;
  if (upgrade !== null) {
    const block = new Uint8Array(4);
    new DataView(block.buffer).setUint32(0, upgrade.block, true);
    top[upgradeKey] = `${blake2AsHex(readFileSync(upgrade.file), 256)}${block.toHex()}`;
  }
  writeFileSync(path, JSON.stringify({ ...specification, bootNodes }));
}

const addressOf = ({ port, peer }: Plan): string => `/ip4/127.0.0.1/tcp/${port}/p2p/${peer}`;

function argumentsOf(plan: Plan, { folder, specification, plans }: Parts): string[] {
  const { name, seed, port, wsPort, rpcPort } = plan;
  const reserved = plans
    .filter((other) => other !== plan)
    .flatMap((other) => ["--reserved-nodes", addressOf(other)]);
  const role = name === "full" ? ["--name", name] : [`--${name}`, "--reserved-only"];
  return [
    ...[
      "--chain",
      specification,
      "--base-path",
      join(folder, name),
      "--database",
      "paritydb",
      ...role,
    ],
    ...["--node-key", seed, "--listen-addr", `/ip4/127.0.0.1/tcp/${port}`],
    ...[
      "--listen-addr",
      `/ip4/127.0.0.1/tcp/${wsPort}/ws`,
      "--no-mdns",
      "--allow-private-ip",
      ...reserved,
    ],
    ...["--rpc-port", String(rpcPort), "--rpc-methods", "unsafe", "--rpc-max-connections", "1000"],
    ...["--rpc-max-request-size", "32", "--no-prometheus", "--no-telemetry"],
  ];
}

type Parts = {
  readonly binary: string;
  readonly folder: string;
  readonly specification: string;
  readonly plans: readonly Plan[];
};

function nodeOf(plan: Plan, parts: Parts): NetworkNode {
  const { name, rpcPort } = plan;
  let child: ReturnType<typeof Bun.spawn> | null = null;
  const ask = async <T>(method: string, params: readonly unknown[] = []): Promise<T> => {
    const reply = await fetch(`http://127.0.0.1:${rpcPort}`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ jsonrpc: "2.0", id: 1, method, params }),
      signal: AbortSignal.timeout(30_000),
    });
    const { result, error } = (await reply.json()) as { result: T; error?: { message: string } };
    if (error !== undefined) throw new Error(`${name}: ${method}: ${error.message}`);
    return result;
  };
  const answers = () =>
    ask("system_health").then(
      () => true,
      () => false,
    );
  return {
    name,
    endpoint: `ws://127.0.0.1:${rpcPort}`,
    ask,
    async start() {
      const log = openSync(join(parts.folder, `${name}.log`), "a");
      child = Bun.spawn([parts.binary, ...argumentsOf(plan, parts)], { stdout: log, stderr: log });
      closeSync(log);
      const { exited } = child;
      const ended = exited.then((code) => {
        throw new Error(`${name} ended with ${code}: see ${join(parts.folder, `${name}.log`)}`);
      });
      // A later end is what `kill` wants.
      ended.catch(() => {});
      await Promise.race([until(`${name} to answer`, answers, 300_000), ended]);
    },
    async kill() {
      child?.kill("SIGKILL");
      await child?.exited;
      child = null;
    },
    async cut() {
      child?.kill("SIGSTOP");
    },
    async mend() {
      child?.kill("SIGCONT");
    },
  };
}
