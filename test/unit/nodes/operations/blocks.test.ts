/** The block list of several processes over one table: no change is lost, and each process knows the last list. */
import { afterEach, expect, test } from "bun:test";
import type { Did } from "../../../../src/core/codec/did.ts";
import { type Blocks, openBlocks } from "../../../../src/nodes/operations/blocks.ts";
import { openLocalBus } from "../../../../src/plugins/bus/local.ts";
import { memoryPlugin } from "../../../../src/plugins/memory/memory.ts";
import type { Receipts } from "../../../../src/storage/contract.ts";
import { optionsOf, withMethods } from "../../../conformance/options.ts";

const environment = { now: Date.now, log: () => undefined, fatal: () => undefined };
const log = environment.log;
const opened: Blocks[] = [];
afterEach(() => {
  for (const blocks of opened.splice(0)) blocks.close();
});

async function table(): Promise<Receipts> {
  const store = await memoryPlugin.open(optionsOf(memoryPlugin, {}), environment);
  const { receipts } = store.capabilities;
  if (receipts === undefined) throw new Error("the memory driver has receipts");
  return receipts;
}

/** A process with its own view of the list; a bus of its own tells it nothing of the others. */
async function open(receipts: Receipts, bus = openLocalBus({ log })): Promise<Blocks> {
  const blocks = await openBlocks({ receipts, bus, now: Date.now, log });
  opened.push(blocks);
  return blocks;
}

const adding = (...networks: string[]) => ({
  add: networks.map((subject) => ({ subject, kind: "network" as const, reason: null })),
  remove: [],
});
const subjectsOf = (blocks: Blocks): string[] =>
  blocks
    .list()
    .map(({ subject }) => subject)
    .sort();

test("of two changes at once in two processes both survive, and both processes tell their followers", async () => {
  const receipts = await table();
  const bus = openLocalBus({ log });
  const [one, other] = [await open(receipts, bus), await open(receipts, bus)];
  const told = { one: [] as string[][], other: [] as string[][] };
  one.follow(() => told.one.push(subjectsOf(one)));
  other.follow(() => told.other.push(subjectsOf(other)));
  const both = ["192.0.2.1", "192.0.2.2"];
  const changed = await Promise.all([one.change(adding("192.0.2.1")), other.change(adding("192.0.2.2"))]);
  expect(changed).toEqual([
    { added: 1, removed: 0 },
    { added: 1, removed: 0 },
  ]);
  for (let turn = 0; turn < 100 && subjectsOf(one).length + subjectsOf(other).length < 4; turn++)
    await new Promise((resolve) => setImmediate(resolve));
  expect([subjectsOf(one), subjectsOf(other), subjectsOf(await open(receipts))]).toEqual([both, both, both]);
  expect([told.one.at(-1), told.other.at(-1)]).toEqual([both, both]);
});

test("a process that missed many changes decides its own on the last list, and a new one finds it", async () => {
  const receipts = await table();
  const [busy, late] = [await open(receipts), await open(receipts)];
  const networks = Array.from({ length: 37 }, (_, n) => `198.51.100.${n}`);
  for (const network of networks) await busy.change(adding(network));
  await late.change({ add: [], remove: networks.slice(1) });
  expect(subjectsOf(late)).toEqual([networks[0]!]);
  expect(subjectsOf(await open(receipts))).toEqual([networks[0]!]);
});

test("a long list has several pages, of which a change leaves none behind", async () => {
  const receipts = await table();
  const keys = new Set<string>();
  const put: Receipts["put"] = async (key, value, untilMs) => {
    keys.add(key);
    await receipts.put(key, value, untilMs);
  };
  const remove: Receipts["remove"] = async (key) => {
    keys.delete(key);
    await receipts.remove(key);
  };
  const blocks = await open(withMethods("receipts", receipts, { put, remove }));
  const networks = Array.from({ length: 200 }, (_, n) => `198.51.100.${n}`);
  await blocks.change(adding(...networks));
  expect(keys.size).toBe(4);
  await blocks.change({ add: [], remove: networks.slice(1) });
  expect([keys.size, subjectsOf(await open(receipts)).length]).toEqual([1, 1]);
});

test("a list that lost a page is not taken for a shorter one", async () => {
  const receipts = await table();
  let page = "";
  const put: Receipts["put"] = async (key, value, untilMs) => {
    page = key;
    await receipts.put(key, value, untilMs);
  };
  const bound = withMethods("receipts", receipts, { put });
  const did = "did:svc:1111111111111111111111" as Did;
  await (await open(bound)).change({ add: [{ subject: did, kind: "did", reason: null }], remove: [] });
  await receipts.remove(page);
  await expect(open(receipts)).rejects.toMatchObject({ code: "corrupt" });
});
