/** By which runtimes blocks were read, and what is kept of them over a restart. */
import { expect, test } from "bun:test";
import type { Endpoints } from "../../../../src/plugins/chain/endpoints.ts";
import { History } from "../../../../src/plugins/chain/history.ts";
import {
  type RuntimeMetadata,
  readMetadata,
  runtimeName,
} from "../../../../src/plugins/chain/metadata.ts";
import type { Header } from "../../../../src/plugins/chain/rpc.ts";
import type { ChainHead } from "../../../../src/plugins/chain/session.ts";
import { MemoryTable } from "../../../../src/plugins/memory/table.ts";

const file = new URL("../../../../runtime/artifacts/waypost-runtime.metadata.hex", import.meta.url);
const hex = (await Bun.file(file).text()).trim() as `0x${string}`;
const genesis = new Uint8Array(32);
const runtime = (specVersion: number): RuntimeMetadata => {
  const version = { specName: "waypost", specVersion, transactionVersion: 1 };
  const read = readMetadata(hex, { version, genesis });
  if (Array.isArray(read)) throw new Error(read.join());
  return read;
};
const [former, newest] = [runtime(1), runtime(2)];

const header = (number: number, changesRuntime = false): Header => ({
  number: BigInt(number),
  parentHash: `0x${number - 1}`,
  extrinsicsRoot: "",
  hash: `0x${number}`,
  changesRuntime,
});
const headOf = (number: number, metadata: RuntimeMetadata): ChainHead => ({
  number: BigInt(number),
  hash: `0x${number}`,
  timeMs: 0,
  metadata,
  nonce: 0,
  free: 0n,
  proofs: { genesisHash: genesis, bound: true, plain: true, selfCertifying: true },
});

/** Endpoints that have the runtimes after some blocks, and what another one gives as metadata. */
function historyOver(
  table: MemoryTable,
  {
    states = {},
    other = null,
  }: { states?: Record<string, RuntimeMetadata>; other?: string | null },
) {
  const lines: string[] = [];
  const endpoints = {
    agreedRuntime: async (hash: string) => states[hash] ?? null,
    runtimeAfter: async (hash: string) => states[hash] ?? null,
    elsewhere: (async () => other) as Endpoints["elsewhere"],
  };
  const log = (_: string, message: string) => void lines.push(message);
  return { history: new History({ table, endpoints, log, runtimes: new Map() }), lines };
}

async function commit(history: History, table: MemoryTable, number: number): Promise<void> {
  const runtimes = await history.newRuntimes();
  const to = { number: BigInt(number), hash: `0x${number}` };
  await table.commit((view) => history.write(view, to, runtimes));
  history.moved(to);
}

/** A history that has reached a head with the former runtime. */
async function reachedFormer(other: string | null): Promise<MemoryTable> {
  const table = new MemoryTable(1 << 24);
  const { history } = historyOver(table, { states: { "0x9": former }, other });
  history.begin();
  expect(await history.runtimeOf(header(10), headOf(10, former))).toBe(former);
  history.reached(headOf(10, former));
  await commit(history, table, 10);
  return table;
}

test("the runtime of the last block is that of the next, also over a restart and without any state", async () => {
  for (const other of [null, hex]) {
    const { history } = historyOver(await reachedFormer(other), {});
    const found = await history.runtimeOf(header(11), headOf(900, newest));
    expect(runtimeName(found.frame)).toBe("1/1");
    expect(found.frame.callIndices).toEqual(former.frame.callIndices);
  }
});

test("metadata that another endpoint gives otherwise is not kept", async () => {
  const { history } = historyOver(await reachedFormer("0x00"), {});
  expect(await history.runtimeOf(header(11), headOf(900, newest))).toBe(newest);
});

test("a block whose runtime no endpoint has is a gap once a header changes the runtime, and no earlier", async () => {
  const table = new MemoryTable(1 << 24);
  const { history, lines } = historyOver(table, {});
  history.begin();
  expect(await history.runtimeOf(header(3), headOf(900, newest))).toBe(newest);
  for (const number of [3, 4]) history.passed(header(number));
  await commit(history, table, 4);
  expect([history.place.gap, history.place.assumed, lines.length]).toEqual([null, 3, 0]);
  history.begin();
  history.passed(header(5, true));
  await commit(history, table, 5);
  expect([history.place.gap, history.place.assumed, lines.length]).toEqual([3n, null, 1]);
});

test("a runtime that changed without a word in a header makes what was read by the former one a gap", async () => {
  const table = await reachedFormer(null);
  const { history, lines } = historyOver(table, {});
  history.begin();
  await history.runtimeOf(header(20), headOf(900, newest));
  history.reached(headOf(900, newest));
  await commit(history, table, 900);
  expect([history.place.gap, history.place.runtime, lines.length]).toEqual([20n, "2/1", 1]);
});

test("reading goes on from the last place that was kept each 256 blocks", async () => {
  const table = new MemoryTable(1 << 24);
  const { history } = historyOver(table, {});
  for (const number of [200, 256, 300, 511, 520, 600]) {
    history.begin();
    await commit(history, table, number);
  }
  const places: bigint[] = [];
  for (let n = 0; n < 3; n++) {
    history.stepBack();
    places.push(history.place.number);
  }
  expect(places).toEqual([520n, 256n, 0n]);
});
