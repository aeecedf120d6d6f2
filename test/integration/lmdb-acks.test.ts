/**
 * Acknowledgements on disk: they write little, are found again by a start and by an export, and
 * concern no row that gets the slot later, also when there are more of them than are kept.
 */
import { expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import type { Uuid } from "../../src/core/codec/did.ts";
import { openRoot, tablesOf } from "../../src/plugins/lmdb/data-file.ts";
import { lmdbPlugin } from "../../src/plugins/lmdb/lmdb.ts";
import { verifyStore } from "../../src/plugins/lmdb/maintenance.ts";
import { openLmdb } from "../../src/plugins/lmdb/store.ts";
import type { Mailbox } from "../../src/storage/contract.ts";
import { testEnvironment } from "../conformance/kit.ts";
import { optionsOf } from "../conformance/options.ts";
import { did, entry, id, quota, seeded } from "../conformance/samples.ts";
import { folderInMemory, scratchPaths } from "../support/scratch.ts";

const newPath = scratchPaths("acks", folderInMemory());
const open = (path: string) => openLmdb(optionsOf(lmdbPlugin, { path }), testEnvironment());
const mailboxes = 50;
const lot = 20;
const lives = (n: number) => ({ expiresAtMs: n % 2 === 0 ? 10_000 : 90_000, keptUntilMs: 99_000 });

async function storeAll(mailbox: Mailbox, from: number, count: number): Promise<void> {
  for (let at = from; at < from + count; at += 2_000)
    await Promise.all(
      Array.from({ length: Math.min(2_000, from + count - at) }, (_, n) =>
        mailbox.store(
          entry(at + n, { recipient: did((at + n) % mailboxes), ...lives(at + n) }),
          quota({ recipientEntriesMax: 1e6, storeEntriesMax: 1e6 }),
        ),
      ),
    );
}

/** In lots of one mailbox whose rows lie far apart, as many at once as fit in a commit. */
async function ackAll(mailbox: Mailbox, numbers: readonly number[]): Promise<void> {
  const random = seeded(5);
  const lots: { readonly of: number; readonly ids: Uuid[] }[] = [];
  for (let of = 0; of < mailboxes; of++) {
    const mine = numbers.filter((n) => n % mailboxes === of).sort(() => random() - 0.5);
    for (let at = 0; at < mine.length; at += lot)
      lots.push({ of, ids: mine.slice(at, at + lot).map(id) });
  }
  lots.sort(() => random() - 0.5);
  for (let at = 0; at < lots.length; at += 32) {
    const some = lots.slice(at, at + 32);
    const removed = await Promise.all(
      some.map(({ of, ids }) => mailbox.remove(did(of), ids, 2_000)),
    );
    expect(removed.map(({ length }) => length)).toEqual(some.map(({ ids }) => ids.length));
  }
}

async function sweep(mailbox: Mailbox, nowMs: number): Promise<void> {
  while ((await mailbox.expire(nowMs, 256)) === 256);
}

async function stateOf(mailbox: Mailbox, n: number, nowMs = 2_000): Promise<string> {
  return (await mailbox.message(did(n % mailboxes), id(n), nowMs)).state;
}

async function recordsIn(path: string, table: "acks"): Promise<number> {
  const root = openRoot(path, { readOnly: true });
  const records = [...tablesOf(root)[table].getKeys()].length;
  await root.close();
  return records;
}

const written = () => Number(/wchar: (\d+)/.exec(readFileSync("/proc/self/io", "utf8"))?.[1]);

test.if(process.platform === "linux")(
  "write at most 0.3 KiB each",
  async () => {
    const store = await open(newPath());
    const mailbox = store.capabilities.mailbox!;
    await storeAll(mailbox, 0, 10_000);
    const before = written();
    await ackAll(
      mailbox,
      Array.from({ length: 10_000 }, (_, n) => n),
    );
    expect((written() - before) / 10_000 / 1_024).toBeLessThan(0.3);
    await store.close();
  },
  60_000,
);

test("are found again after any number of them, and concern no later row of a slot", async () => {
  const path = newPath();
  let store = await open(path);
  const count = 75_000;
  const isAcked = (n: number) => n % 10 !== 0;
  await storeAll(store.capabilities.mailbox!, 0, count);
  const numbers = Array.from({ length: count }, (_, n) => n).filter(isAcked);
  await ackAll(store.capabilities.mailbox!, numbers.slice(0, 40_000));
  const reopened = async () => {
    await store.close();
    store = await open(path);
    return store.capabilities.mailbox!;
  };
  // Half of them by a start, the others by this process; then more than are kept.
  const middle = await reopened();
  await ackAll(middle, numbers.slice(40_000));
  const before = await recordsIn(path, "acks");
  for (let n = 0; n < 40; n++) await sweep(middle, 3_000);
  expect(await recordsIn(path, "acks")).toBeLessThan(before);
  const check = async (mailbox: Mailbox) => {
    expect(await mailbox.stats(2_000)).toMatchObject({ entries: count - numbers.length });
    for (let n = 0; n < count; n += 37)
      expect([n, await stateOf(mailbox, n)]).toEqual([n, isAcked(n) ? "acked" : "active"]);
  };
  await check(await reopened());
  // Rows with an even number end, and others get their slots.
  await sweep(store.capabilities.mailbox!, 10_000);
  await storeAll(store.capabilities.mailbox!, count, 5_000);
  const last = await reopened();
  for (let n = count; n < count + 5_000; n += 17)
    expect([n, await stateOf(last, n)]).toEqual([n, "active"]);
  for (let n = 1; n < count; n += 38)
    expect([n, await stateOf(last, n)]).toEqual([n, isAcked(n) ? "acked" : "active"]);
  expect((await verifyStore(path)).problems).toEqual([]);
  await store.close();
}, 60_000);

test("are in an export", async () => {
  const path = newPath();
  const store = await open(path);
  await storeAll(store.capabilities.mailbox!, 0, 200);
  await ackAll(store.capabilities.mailbox!, [3, 50, 120]);
  const states = { active: 0, acked: 0, kept: 0 };
  for await (const record of lmdbPlugin.maintenance!(optionsOf(lmdbPlugin, { path })).records(
    () => {},
  ))
    if (record.kind === "message") states[record.state]++;
  expect(states).toEqual({ active: 197, acked: 3, kept: 0 });
  await store.close();
});
