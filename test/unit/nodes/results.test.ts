/**
 * What a node remembers of envelopes for its operator: results of a pair, the digest of a
 * recipient.
 */
import { expect, test } from "bun:test";
import type { Did, Uuid } from "../../../src/core/codec/did.ts";
import { type EnvelopeResult, openResults } from "../../../src/nodes/results.ts";
import { memoryPlugin } from "../../../src/plugins/memory/memory.ts";
import { type Receipts, StoreError } from "../../../src/storage/contract.ts";
import { optionsOf } from "../../conformance/options.ts";

const [alice, bob, carol] = ["1", "2", "3"].map(
  (digit) => `did:svc:${digit.repeat(22)}` as Did,
) as [Did, Did, Did];

async function table(): Promise<Receipts> {
  const environment = { now: () => 0, log: () => undefined, fatal: () => undefined };
  const { receipts } = (await memoryPlugin.open(optionsOf(memoryPlugin, {}), environment))
    .capabilities;
  if (receipts === undefined) throw new Error("the memory driver has receipts");
  return receipts;
}

const result = (atMs: number, more: Partial<EnvelopeResult> = {}): EnvelopeResult => ({
  messageId: "0190b3b4-0000-7000-8000-000000000001" as Uuid,
  to: bob,
  from: alice,
  atMs,
  requestId: `r${atMs}`,
  route: "/cache/store",
  status: 202,
  code: null,
  detail: null,
  ...more,
});

async function open(receipts?: Receipts) {
  return openResults({ receipts: receipts ?? (await table()), now: () => 0 });
}

test("the last four results of a pair are remembered, the newest first", async () => {
  const results = await open();
  for (let atMs = 1; atMs <= 6; atMs++) results.add(result(atMs));
  results.add(result(7, { from: carol }));
  results.add(result(8, { to: carol }));
  expect(results.of(bob, alice).map(({ atMs }) => atMs)).toEqual([6, 5, 4, 3]);
  expect(results.of(bob, null).map(({ atMs }) => atMs)).toEqual([7, 6, 5, 4, 3]);
  expect(results.of(alice, null)).toEqual([]);
});

test("the digest of a recipient is the same for all processes of a store, and another elsewhere", async () => {
  const receipts = await table();
  const [one, two, other] = [await open(receipts), await open(receipts), await open()];
  expect(one.digest(bob)).toMatch(/^[0-9a-f]{16}$/);
  expect(two.digest(bob)).toBe(one.digest(bob));
  expect([one.digest(alice), other.digest(bob)]).not.toContain(one.digest(bob));
});

test("a full store keeps no node from starting, whether it has a key or not", async () => {
  const receipts = await table();
  const refuse = () => Promise.reject(new StoreError("full", "the disk is full for this store"));
  const full: Receipts = {
    ...receipts,
    get: receipts.get.bind(receipts),
    put: refuse,
    putIfAbsent: refuse,
  };
  expect((await open(full)).digest(bob)).toMatch(/^[0-9a-f]{16}$/);
  const before = await open(receipts);
  expect((await open(full)).digest(bob)).toBe(before.digest(bob));
});
