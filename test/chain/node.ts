/**
 * A node of the reference runtime as a process of its own, so that tests can kill it: block time
 * follows the clock, and blocks come at an interval or on command. The state is in memory. Its
 * `dev_*` calls are those of Chopsticks.
 *
 *   bun run node.ts [--port 9944] [--interval <ms>|--manual] [--idle <ms>] [--runtime <wasm file>]
 *   [--state <file>]
 *     [--strict]
 *
 * With an interval, waiting extrinsics get a block at most that long after they came; `--idle` adds
 * empty blocks at that distance; `--runtime` puts another runtime in the place of the
 * specification's; `--state` is what another version made of calls (before.ts), and the next block
 * upgrades it. Prints one line with the endpoint once it listens. Unless it is strict, the chain
 * takes proofs of every version, so that clients that know the interface alone can be tried on it.
 */
import { setupWithServer } from "@acala-network/chopsticks";
import { BuildBlockMode, setStorage } from "@acala-network/chopsticks-core";
import { bnToU8a, u8aToHex } from "@polkadot/util";
import { blake2AsHex, xxhashAsHex } from "@polkadot/util-crypto";
import {
  giveTrueRoots,
  keepCode,
  letPoolTakeGeneralExtrinsics,
  runHere,
  slotMs,
  specificationFile,
} from "./start.ts";

function option(name: string): string | undefined {
  const at = process.argv.indexOf(`--${name}`);
  return at < 0 ? undefined : process.argv[at + 1];
}

const intervalMs = process.argv.includes("--manual") ? 0 : Number(option("interval") ?? "500");
const idleMs = Number(option("idle") ?? "0");
const runtimeFile = option("runtime");
const stateFile = option("state");

letPoolTakeGeneralExtrinsics();
giveTrueRoots();
runHere();
const server = await setupWithServer({
  "chain-spec": specificationFile,
  "build-block-mode": BuildBlockMode.Manual,
  ...(runtimeFile !== undefined && { "wasm-override": runtimeFile }),
  host: "127.0.0.1",
  port: Number(option("port") ?? "9944"),
});
const { chain } = server;
await keepCode(chain);

/**
 * The library validates as many extrinsics at a time as come, each in an instance of the runtime of
 * its own, and with twenty of them it answers nothing for minutes: here they are validated one
 * after another. What waits already is not taken twice, as a node's pool does not.
 */
const submitOne = chain.submitExtrinsic.bind(chain);
let line: Promise<unknown> = Promise.resolve();
chain.submitExtrinsic = (extrinsic) => {
  const taken = line.then(async () => {
    if (chain.txPool.pendingExtrinsics.includes(extrinsic)) return blake2AsHex(extrinsic, 256);
    return submitOne(extrinsic);
  });
  line = taken.catch(() => {});
  return taken;
};

const keyOf = (pallet: string, item: string) =>
  `${xxhashAsHex(pallet, 128)}${xxhashAsHex(item, 128).slice(2)}` as const;
const u64 = (value: number) => u8aToHex(bnToU8a(value, { bitLength: 64 }));

const getBlock = chain.getBlock.bind(chain);
let built: Promise<unknown> = Promise.resolve();
chain.getBlock = async (hash) => {
  await built;
  return getBlock(hash);
};

/** Of the last block. The library makes the first one, a slot ahead of the clock. */
let timeMs = Date.now() + slotMs;
/**
 * The next block's time is the present, or just after the last one's. The library adds one slot to
 * the time of the block before, so that block has another time while the next one is made;
 * questions about blocks wait meanwhile, because the time of a block never changes.
 */
const buildNow = async () => {
  const { head } = chain;
  timeMs = Math.max(Date.now(), timeMs + 1);
  const beforeMs = timeMs - slotMs;
  head.pushStorageLayer().setAll([
    [keyOf("Timestamp", "Now"), u64(beforeMs)],
    [keyOf("Aura", "CurrentSlot"), u64(Math.floor(beforeMs / slotMs))],
  ]);
  try {
    await chain.newBlock();
  } finally {
    head.popStorageLayer();
  }
};
const build = () => {
  const work = buildNow();
  built = work.catch(() => {});
  return work;
};

if (!process.argv.includes("--strict"))
  await setStorage(chain, [[keyOf("DidRegistry", "PlainProofs"), "0x01"]]);
if (chain.head.number === 0) await build();
if (stateFile !== undefined) {
  const state = (await Bun.file(stateFile).json()) as Record<`0x${string}`, `0x${string}`>;
  // This chain goes on counting its own blocks.
  delete state[keyOf("System", "Number")];
  await setStorage(chain, Object.entries(state) as [`0x${string}`, `0x${string}`][]);
}
let builtAt = Date.now();
const turn = async () => {
  const waits = chain.txPool.pendingExtrinsics.length > 0;
  if (waits || (idleMs > 0 && Date.now() - builtAt >= idleMs)) {
    await build().catch((error: unknown) => console.error(String(error)));
    builtAt = Date.now();
  }
  setTimeout(turn, intervalMs);
};
if (intervalMs > 0) void turn();

console.log(`the reference runtime listens on ws://${server.addr}`);
