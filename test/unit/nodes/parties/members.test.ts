/**
 * What a node keeps of its members, over a store in memory: first registration, days, counts, and
 * what is forgotten.
 */
import { expect, test } from "bun:test";
import type { Did } from "../../../../src/core/codec/did.ts";
import { dayMs } from "../../../../src/core/codec/time.ts";
import { createMembers } from "../../../../src/nodes/parties/members.ts";
import { memoryPlugin } from "../../../../src/plugins/memory/memory.ts";
import type { Receipts } from "../../../../src/storage/contract.ts";
import { optionsOf, withMethods } from "../../../conformance/options.ts";

const startMs = Date.parse("2026-05-01T12:00:00Z");
const did = (n: number): Did => `did:svc:member${String(n).padStart(4, "1")}` as Did;

async function openReceipts(): Promise<Receipts> {
  const environment = { now: () => startMs, log: () => undefined, fatal: () => undefined };
  const store = await memoryPlugin.open(optionsOf(memoryPlugin, {}), environment);
  const { receipts } = store.capabilities;
  if (receipts === undefined) throw new Error("the memory driver has receipts");
  return receipts;
}

const membersOver = (receipts: Receipts, keepsDays = true) =>
  createMembers({ receipts, keepsDays, log: () => undefined });

/** A member is noted as seen in the background. */
async function settled(): Promise<void> {
  for (let turn = 0; turn < 20; turn++) await Promise.resolve();
}

test("the first registration of a DID stays, and a later day replaces an earlier one", async () => {
  const members = membersOver(await openReceipts());
  await members.registered(did(1), "invitation", startMs);
  await members.registered(did(1), "another", startMs + 1);
  members.seen(did(1), startMs);
  await settled();
  members.seen(did(1), startMs + dayMs);
  await settled();
  expect(await members.of(did(1), startMs + dayMs)).toEqual({
    did: did(1),
    sinceMs: startMs,
    invitation: "invitation",
    lastSeen: "2026-05-02",
  });
});

test("who is seen without a registration is a member since then", async () => {
  const members = membersOver(await openReceipts());
  members.seen(did(1), startMs);
  await settled();
  expect(await members.of(did(1), startMs)).toMatchObject({ sinceMs: startMs, invitation: null });
  expect(await members.of(did(2), startMs)).toBeNull();
});

test("a DID costs one write a day, and is tried again where the store failed", async () => {
  const receipts = await openReceipts();
  let [puts, fails] = [0, true];
  const put: Receipts["put"] = async (...asked) => {
    puts += 1;
    if (fails) throw new Error("the disk is full");
    await receipts.put(...asked);
  };
  const members = membersOver(withMethods("receipts", receipts, { put }));
  members.seen(did(1), startMs);
  await settled();
  fails = false;
  for (let time = 0; time < 5; time++) {
    members.seen(did(1), startMs + time);
    await settled();
  }
  expect(puts).toBe(2);
});

test("without days, none is kept or shown", async () => {
  const receipts = await openReceipts();
  const members = membersOver(receipts, false);
  members.seen(did(1), startMs);
  await settled();
  expect(await members.of(did(1), startMs)).toMatchObject({ lastSeen: null });
  expect(await membersOver(receipts).of(did(1), startMs)).toMatchObject({ lastSeen: null });
});

test("pages hold each member once, and the counts go by days", async () => {
  const members = membersOver(await openReceipts());
  const ages = [0, 1, 2, 7, 8, 30, 31];
  for (const [n, age] of ages.entries()) {
    members.seen(did(n), startMs - age * dayMs);
    await settled();
  }
  await members.registered(did(99), null, startMs);
  const first = await members.page(null, 5, startMs);
  const second = await members.page(first.at(-1)?.did ?? null, 5, startMs);
  const dids = [...first, ...second].map((one) => one.did);
  expect(dids.sort()).toEqual([...ages.keys(), 99].map(did).sort());
  expect(await members.counts(startMs)).toEqual({ all: 8, day: 2, week: 4, month: 6 });
});

test("who is forgotten is gone with their day, and may come again", async () => {
  const members = membersOver(await openReceipts());
  members.seen(did(1), startMs);
  await settled();
  await members.forget(did(1));
  expect(await members.of(did(1), startMs)).toBeNull();
  await members.registered(did(1), null, startMs + 5);
  expect(await members.of(did(1), startMs)).toMatchObject({ sinceMs: startMs + 5, lastSeen: null });
  members.seen(did(1), startMs);
  await settled();
  expect(await members.of(did(1), startMs)).toMatchObject({ lastSeen: "2026-05-01" });
});
