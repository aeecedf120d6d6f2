/**
 * A chain of the reference runtime on a loopback port, from the raw chain specification and without any
 * network: the wasm runs under Chopsticks, which builds a block on request, or as soon as
 * extrinsics wait.
 *
 *   bun run start [--port 9944] [--mode batch|instant|manual]
 */

import { setupWithServer } from "@acala-network/chopsticks";
import {
  Block,
  Blockchain,
  BuildBlockMode,
  taskHandler,
  timeTravel,
} from "@acala-network/chopsticks-core";
import { run_task } from "@acala-network/chopsticks-executor";
import { GenericExtrinsic } from "@polkadot/types";

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
  const server = await setupWithServer({
    "chain-spec": specificationFile,
    "build-block-mode": modes[mode],
    host: "127.0.0.1",
    port,
  });
  await runFaster(server.chain);
  // The library builds the first block at once, and reads the clock for its slot and again for its timestamp:
  // when a slot ends between the two, the runtime refuses that block and the chain stays at its genesis.
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

const packedMagic = "0x52bc537646db8e05";

/**
 * The library unpacks a packed runtime again for each call, of which a block is four or more, and asks for each value
 * over the border of a thread (`callHere`): without the two, a block costs a quarter less.
 */
export async function runFaster({ head }: Blockchain): Promise<void> {
  const code = await head.wasm;
  if (!code.startsWith(packedMagic)) return;
  const packed = Uint8Array.fromHex(code.slice(packedMagic.length));
  head.setWasm(`0x${Bun.zstdDecompressSync(packed).toHex()}`);
}

type Outcome = { readonly Call: Awaited<ReturnType<Block["call"]>> } | { readonly Error: string };

/** The header that the runtime gave the last block: the library takes only its parts from elsewhere. */
let sealed: `0x${string}` = "0x";

/**
 * The library hashes all extrinsics in a row where a header has the root of a trie, and a driver that takes that for a
 * root can be shown another body. So each block gets the root that the runtime has computed for it. Before the first one.
 */
export function giveTrueRoots(): void {
  Block.prototype.call = callHere;
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

async function callHere(this: Block, ...[method, args, isMocked]: Parameters<Block["call"]>) {
  const { allowUnresolvedImports, runtimeLogLevel } = this.chain;
  const rest = {
    storageProofSize: 0,
    mockSignatureHost: isMocked ? 2 : 0,
    allowUnresolvedImports,
    runtimeLogLevel,
  };
  const task = { id: 0, wasm: await this.wasm, calls: [[method, args]], ...rest };
  const response: Outcome = await run_task(task, taskHandler(this));
  // A block is many calls, and between them the node answers others.
  await new Promise((resolve) => setImmediate(resolve));
  if (!("Call" in response)) throw new Error(response.Error);
  if (method === "BlockBuilder_finalize_block") sealed = response.Call.result as typeof sealed;
  return response.Call;
}

/**
 * The pool of Chopsticks notes the signer of each extrinsic that it is given, and a general extrinsic
 * has none: the library throws where the pool expects a name. The name is used for nothing but counting
 * the pending extrinsics of an account, so a general extrinsic gets one that no account has.
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
