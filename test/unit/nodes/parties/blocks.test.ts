/**
 * The block list of several processes over one table: no change is lost, and each process knows the
 * last list.
 */
import { afterEach, expect, test } from "bun:test";
import type { Did } from "../../../../src/core/codec/did.ts";
import { type Blocks, openBlocks } from "../../../../src/nodes/parties/blocks.ts";
import { openLocalBus } from "../../../../src/plugins/bus/local.ts";
import { memoryPlugin } from "../../../../src/plugins/memory/memory.ts";
import { type Receipts, StoreError } from "../../../../src/storage/contract.ts";
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
  const changed = await Promise.all([
    one.change(adding("192.0.2.1")),
    other.change(adding("192.0.2.2")),
  ]);
  expect(changed).toEqual([
    { added: 1, replaced: 0, removed: 0, missing: [] },
    { added: 1, replaced: 0, removed: 0, missing: [] },
  ]);
  for (let turn = 0; turn < 100 && subjectsOf(one).length + subjectsOf(other).length < 4; turn++)
    await new Promise((resolve) => setImmediate(resolve));
  expect([subjectsOf(one), subjectsOf(other), subjectsOf(await open(receipts))]).toEqual([
    both,
    both,
    both,
  ]);
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

test("a long list is found again whole, and what is removed leaves nothing behind", async () => {
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
  const networks = Array.from({ length: 2_500 }, (_, n) => `198.51.${n >> 8}.${n & 255}`);
  await blocks.change(adding(...networks));
  expect(subjectsOf(await open(receipts))).toEqual(networks.sort());
  await blocks.change({ add: [], remove: networks.slice(1) });
  expect([keys.size, subjectsOf(await open(receipts)).length]).toEqual([1, 1]);
});

test("a change that fails in the middle says so, and is whole when it is repeated", async () => {
  const receipts = await table();
  let puts = 0;
  const put: Receipts["put"] = async (key, value, untilMs) => {
    puts += 1;
    if (puts === 2) throw new StoreError("full", "the disk is full");
    await receipts.put(key, value, untilMs);
  };
  const blocks = await open(withMethods("receipts", receipts, { put }));
  expect(await blocks.change(adding("192.0.2.1"))).toEqual({
    added: 1,
    replaced: 0,
    removed: 0,
    missing: [],
  });
  const wanted = { ...adding("192.0.2.2", "192.0.2.3"), remove: ["192.0.2.1"] };
  expect(await blocks.change(wanted).catch((error: unknown) => error)).toMatchObject({
    code: "full",
  });
  const both = ["192.0.2.2", "192.0.2.3"];
  expect(await blocks.change(wanted)).toMatchObject({ added: 1, replaced: 1 });
  expect([subjectsOf(blocks), subjectsOf(await open(receipts))]).toEqual([both, both]);
});

test("who is blocked altogether stays so when a report blocks them as sender, until they are removed", async () => {
  const blocks = await open(await table());
  const did = `did:svc:${"1".repeat(20)}` as Did;
  const as = (kind: "did" | "sender") => ({ subject: did, kind, reason: null });
  await blocks.change({ add: [as("did")], remove: [] });
  await blocks.change({ add: [as("sender")], remove: [] });
  expect(blocks.checkDid(did)?.code).toBe("policy_denied");
  await blocks.change({ add: [as("sender")], remove: [did] });
  expect([blocks.checkDid(did), blocks.list().map(({ kind }) => kind)]).toEqual([null, ["sender"]]);
  await blocks.change({ add: [as("did")], remove: [] });
  expect(blocks.checkDid(did)?.code).toBe("policy_denied");
});
