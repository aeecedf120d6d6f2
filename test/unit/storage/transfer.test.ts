/** Which records an import takes: what has ended by then is left out and counted. */
import { expect, test } from "bun:test";
import type { StoreRecord } from "../../../src/storage/contract.ts";
import { encodeExportLine, importRecords, parseRecord } from "../../../src/storage/transfer.ts";
import {
  alice,
  bob,
  bytesOf,
  chunkOf,
  entry,
  failureOf,
  holding,
  id,
  ids,
  listAll,
  pageOf,
} from "../../conformance/samples.ts";
import { failOn, openMemory } from "../../support/directory.ts";

const nowMs = 10_000;
const message = (
  n: number,
  state: "active" | "acked" | "kept",
  ends: { expiresAtMs: number; keptUntilMs: number },
) => {
  const onExpiry = "TombstoneReference";
  return {
    kind: "message",
    state,
    entry: entry(n, { ...ends, storedAtMs: 1_000, onExpiry }),
  } as const;
};

async function* each(records: readonly StoreRecord[]): AsyncGenerator<StoreRecord> {
  yield* records;
}

test("what ends at this millisecond is left out, and what ends with the next is there", async () => {
  const store = await openMemory(1_000)({ now: () => nowMs, log: () => {}, fatal: failOn });
  const { mailbox, replay, receipts } = store.capabilities;
  const target = {
    mailbox: mailbox!,
    replay: replay!,
    receipts: receipts!,
    putLedger: async () => {},
  };
  const report = await importRecords(
    { import: (fill) => fill(target) },
    each([
      message(1, "active", { expiresAtMs: nowMs, keptUntilMs: nowMs + 1 }),
      message(2, "kept", { expiresAtMs: 2_000, keptUntilMs: nowMs }),
      // An acknowledged id is remembered until its expiry only.
      message(3, "acked", { expiresAtMs: nowMs, keptUntilMs: nowMs + 1 }),
      message(4, "active", { expiresAtMs: nowMs + 1, keptUntilMs: nowMs + 2 }),
      { kind: "claim", tag: "over", untilMs: nowMs },
      { kind: "claim", tag: "there", untilMs: nowMs + 1 },
      { kind: "receipt", key: "over", value: new Uint8Array(1), untilMs: nowMs },
    ]),
    nowMs,
  );
  expect(report).toEqual({
    ...{ messages: 2, claims: 1, receipts: 0, ledger: 0, expired: 1 },
    over: { messages: 2, claims: 1, receipts: 1 },
  });
  const states = await Promise.all([1, 2, 3, 4].map((n) => mailbox!.message(alice, id(n), nowMs)));
  expect(states.map(({ state }) => state)).toEqual(["expired", "absent", "absent", "active"]);
  expect(await replay!.claim("there", nowMs + 9, nowMs)).toBe(false);
  await store.close();
});

test("a record that comes twice is refused", async () => {
  const store = await openMemory(1_000)({ now: () => nowMs, log: () => {}, fatal: failOn });
  const { mailbox, replay, receipts } = store.capabilities;
  const target = {
    mailbox: mailbox!,
    replay: replay!,
    receipts: receipts!,
    putLedger: async () => {},
  };
  const later = { expiresAtMs: 20_000, keptUntilMs: 30_000 };
  const claim = { kind: "claim", tag: "one", untilMs: 20_000 } as const;
  for (const record of [message(1, "active", later), message(2, "acked", later), claim]) {
    const twice = importRecords({ import: (fill) => fill(target) }, each([record, record]), nowMs);
    expect(await failureOf(() => twice)).toMatchObject({ code: "corrupt" });
  }
  await store.close();
});

test("what was stored while the clock ran ahead ends nothing that has not ended", async () => {
  const store = await openMemory(1_000)({ now: () => nowMs, log: () => {}, fatal: failOn });
  const { mailbox, replay, receipts } = store.capabilities;
  const target = {
    mailbox: mailbox!,
    replay: replay!,
    receipts: receipts!,
    putLedger: async () => {},
  };
  const soon = { expiresAtMs: 20_000, keptUntilMs: 20_000 };
  const ahead = { storedAtMs: 30_000, expiresAtMs: 40_000, keptUntilMs: 40_000 };
  const report = await importRecords(
    { import: (fill) => fill(target) },
    each([
      message(1, "active", soon),
      message(2, "acked", soon),
      { kind: "message", state: "active", entry: entry(3, ahead) },
      message(4, "active", soon),
    ]),
    nowMs,
  );
  expect(report).toMatchObject({ messages: 4, over: { messages: 0 } });
  expect(ids(await listAll(mailbox!, alice, pageOf({ nowMs })))).toEqual([1, 3, 4].map(id));
  expect((await mailbox!.message(alice, id(2), nowMs)).state).toBe("acked");
  await store.close();
});

test("of an acknowledged id, its author and the digest of its envelope are imported", async () => {
  const store = await openMemory(1_000)({ now: () => nowMs, log: () => {}, fatal: failOn });
  const { mailbox, replay, receipts } = store.capabilities;
  const target = {
    mailbox: mailbox!,
    replay: replay!,
    receipts: receipts!,
    putLedger: async () => {},
  };
  const labels = ["via:1", "from:a"];
  const before = entry(1, { expiresAtMs: 20_000, keptUntilMs: 20_000, labels });
  const without = { ...before, envelope: new Uint8Array(0) };
  const line = encodeExportLine({ kind: "message", state: "acked", entry: without });
  const record = parseRecord(line) as StoreRecord;
  await importRecords({ import: (fill) => fill(target) }, each([record]), nowMs);
  const known = { expiresAtMs: 20_000, author: "from:a" };
  expect(await mailbox!.known(alice, before, nowMs)).toEqual({ ...known, isSame: true });
  const other = holding(before, bytesOf(2, 100));
  expect(await mailbox!.known(alice, other, nowMs)).toEqual({ ...known, isSame: false });
  await store.close();
});

test("many that have ended and are kept do not stand in the way of one that is there", async () => {
  const store = await openMemory(10_000)({ now: () => nowMs, log: () => {}, fatal: failOn });
  const { mailbox, replay, receipts } = store.capabilities;
  const target = {
    mailbox: mailbox!,
    replay: replay!,
    receipts: receipts!,
    putLedger: async () => {},
  };
  const kept = Array.from({ length: 1_500 }, (_, n) =>
    message(n, "kept", { expiresAtMs: 2_000, keptUntilMs: 20_000 }),
  );
  const place = {
    recipient: bob,
    chunk: chunkOf(1, 0, 2),
    keptUntilMs: 30_000,
    onExpiry: "TombstoneReference",
  } as const;
  const before = entry(2_000, { ...place, expiresAtMs: 2_900 });
  const after = entry(2_001, { ...place, storedAtMs: 3_000, expiresAtMs: 20_000 });
  const records = [
    ...kept,
    { kind: "message", state: "kept", entry: before },
    { kind: "message", state: "active", entry: after },
  ] as const;
  const report = await importRecords({ import: (fill) => fill(target) }, each(records), nowMs);
  expect(report).toMatchObject({ messages: 1_502, over: { messages: 0 } });
  expect((await mailbox!.message(bob, id(2_001), nowMs)).state).toBe("active");
  await store.close();
});
