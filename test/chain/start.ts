/**
 * A chain of the reference runtime on a loopback port, from the raw chain specification and without
 * any network: Chopsticks builds a block on request, or as soon as extrinsics wait, and `host.ts`
 * runs the wasm.
 *
 *   bun run start [--port 9944] [--mode batch|instant|manual]
 */

import { setupWithServer } from "@acala-network/chopsticks";
import {
  Block,
  Blockchain,
  BuildBlockMode,
  getAuraSlotDuration,
  getRuntimeVersion,
  taskHandler,
  timeTravel,
} from "@acala-network/chopsticks-core";

import { GenericExtrinsic } from "@polkadot/types";
import { stringToHex } from "@polkadot/util";
import { isWhole } from "../support/whole.ts";
import { compareWithLibrary } from "./compared.ts";
import { callRuntime, readVersion } from "./host.ts";

/** Of a block, in the reference runtime. */
export const slotMs = 6_000;

export const specificationFile = new URL(
  "../../runtime/artifacts/waypost-dev.raw.json",
  import.meta.url,
).pathname;

const modes = {
  batch: BuildBlockMode.Batch,
  instant: BuildBlockMode.Instant,
  manual: BuildBlockMode.Manual,
} as const;
export type BlockMode = keyof typeof modes;

export type TestChain = {
  /** `ws://127.0.0.1:<port>` */
  readonly endpoint: string;
  /** Builds one block of what waits in the pool, also in the automatic modes. */
  readonly buildBlock: () => Promise<void>;
  /** The next block's time is at least this. */
  readonly setTime: (ms: number) => Promise<void>;
  readonly stop: () => Promise<void>;
};

/** Port 0 takes a free one. */
export async function startChain({
  port,
  mode,
}: {
  port: number;
  mode: BlockMode;
}): Promise<TestChain> {
  letPoolTakeGeneralExtrinsics();
  giveTrueRoots();
  runHere();
  const server = await setupWithServer({
    "chain-spec": specificationFile,
    "build-block-mode": modes[mode],
    host: "127.0.0.1",
    port,
  });
  await keepCode(server.chain);
  // The library builds the first block at once, and reads the clock for its slot and again for its
  // timestamp: when a slot ends between the two, the runtime refuses that block and the chain stays
  // at its genesis.
  if (server.chain.head.number === 0) {
    await timeTravel(server.chain, Date.now());
    await server.chain.newBlock();
  }
  return {
    endpoint: `ws://${server.addr}`,
    buildBlock: async () => {
      await server.chain.newBlock();
    },
    setTime: (ms) => timeTravel(server.chain, ms),
    stop: () => server.close(),
  };
}

/**
 * The header that the runtime gave the last block: the library takes only its parts from elsewhere.
 */
let sealed: `0x${string}` = "0x";

/**
 * The library hashes all extrinsics in a row where a header has the root of a trie, and a driver
 * that takes that for a root can be shown another body. So each block gets the root that the
 * runtime has computed for it. Before the first one.
 */
export function giveTrueRoots(): void {
  const register = Blockchain.prototype.onNewBlock;
  Blockchain.prototype.onNewBlock = async function (this: Blockchain, block: Block) {
    const parent = this.head;
    const [registry, header, extrinsics, storageDiff] = await Promise.all([
      block.registry,
      block.header,
      block.extrinsics,
      block.storageDiff(),
    ]);
    const { extrinsicsRoot } = registry.createType("Header", sealed);
    const rooted = registry.createType("Header", { ...header.toJSON(), extrinsicsRoot });
    await register.call(
      this,
      new Block(this, block.number, rooted.hash.toHex() as `0x${string}`, parent, {
        header: rooted,
        extrinsics,
        storage: parent.storage,
        storageDiff,
      }),
    );
  };
}

/** Whether the library's interpreter answers each call too, and a difference fails it. */
let isCompared = isWhole;
export function compareAll(): void {
  isCompared = true;
}

/** Runs the calls of all chains of this process in `host.ts`. */
export function runHere(): void {
  Block.prototype.call = callHere;
  // What the library would start its interpreter for, in a thread of its own.
  answerWith(getRuntimeVersion.cache, readVersion);
  answerWith(getAuraSlotDuration.cache, async () => slotMs);
}

/**
 * Keeps the runtime's code where the library finds it at once: it looks at the specification last.
 */
export async function keepCode({ head }: Blockchain): Promise<void> {
  head.pushStorageLayer().set(stringToHex(":code"), await head.wasm);
}

function answerWith(
  cache: typeof getRuntimeVersion.cache,
  answer: (code: string) => Promise<unknown>,
): void {
  cache.has = () => true;
  cache.get = answer;
}

async function callHere(this: Block, ...[method, args, isMocked]: Parameters<Block["call"]>) {
  const call = { code: await this.wasm, method, args, isMocked };
  const called = await callRuntime(call, taskHandler(this)).catch((error: Error) => error);
  if (isCompared) await compareWithLibrary(call, taskHandler(this), called);
  // A block is many calls, and between them the node answers others.
  await new Promise((resolve) => setImmediate(resolve));
  if (called instanceof Error) throw called;
  if (method === "BlockBuilder_finalize_block") sealed = called.result;
  return { ...called, offchainStorageDiff: [], runtimeLogs: [] };
}

/**
 * The pool of Chopsticks notes the signer of each extrinsic that it is given, and a general
 * extrinsic has none: the library throws where the pool expects a name. The name is used for
 * nothing but counting the pending extrinsics of an account, so a general extrinsic gets one that
 * no account has.
 */
export function letPoolTakeGeneralExtrinsics(): void {
  const inherited = findGetter(GenericExtrinsic.prototype, "signer");
  Object.defineProperty(GenericExtrinsic.prototype, "signer", {
    configurable: true,
    get(this: GenericExtrinsic) {
      return this.isGeneral() ? "none" : inherited.call(this);
    },
  });
}

function findGetter(prototype: object, name: string): () => unknown {
  for (let at: object | null = prototype; at !== null; at = Object.getPrototypeOf(at)) {
    const getter = Object.getOwnPropertyDescriptor(at, name)?.get;
    if (getter !== undefined) return getter;
  }
  throw new Error(`no getter ${name}`);
}

function option(name: string, otherwise: string): string {
  const at = process.argv.indexOf(`--${name}`);
  return (at < 0 ? undefined : process.argv[at + 1]) ?? otherwise;
}

if (import.meta.main) {
  const mode = option("mode", "batch");
  if (!(mode in modes)) throw new Error("--mode is batch, instant or manual");
  const chain = await startChain({ port: Number(option("port", "9944")), mode: mode as BlockMode });
  console.log(`the reference runtime listens on ${chain.endpoint}`);
}
