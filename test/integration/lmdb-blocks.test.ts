/**
 * Blocks of messages: what a few messages keep of them is packed anew, and the library's map is
 * given back.
 */
import { expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { openRoot, tableBytes, tablesOf } from "../../src/plugins/lmdb/data-file.ts";
import { lmdbPlugin } from "../../src/plugins/lmdb/lmdb.ts";
import { verifyStore } from "../../src/plugins/lmdb/maintenance.ts";
import { openLmdb } from "../../src/plugins/lmdb/store.ts";
import type { Mailbox } from "../../src/storage/contract.ts";
import { testEnvironment } from "../conformance/kit.ts";
import { optionsOf } from "../conformance/options.ts";
import {
  answered,
  bytesOf,
  did,
  entry,
  id,
  listAll,
  pageOf,
  quota,
} from "../conformance/samples.ts";
import { folderInMemory, scratchPaths } from "../support/scratch.ts";

const newPath = scratchPaths("blocks", folderInMemory());
const open = (path: string) => openLmdb(optionsOf(lmdbPlugin, { path }), testEnvironment());
const count = 4_000;
/** Each 20th is never acknowledged; of each 10th a preview is kept after its expiry. */
const isKept = (n: number) => n % 20 === 0;
const hasPreview = (n: number) => n % 10 === 1;
const bytes = (n: number) => bytesOf(n, 700 + (n % 500));

async function fill(mailbox: Mailbox): Promise<void> {
  const wide = quota({ recipientEntriesMax: 1e6, storeEntriesMax: 1e6 });
  for (let at = 0; at < count; at += 500)
    await Promise.all(
      Array.from({ length: 500 }, (_, i) => {
        const n = at + i;
        const life = hasPreview(n)
          ? { onExpiry: "KeepHeaderPreview" as const, headerPreview: bytesOf(n, 60) }
          : {};
        const times = { expiresAtMs: hasPreview(n) ? 5_000 : 90_000, keptUntilMs: 95_000 };
        const given = { recipient: did(n % 7), envelope: bytes(n), ...times, ...life };
        return mailbox.store(entry(n, given), wide);
      }),
    );
}

async function blocksIn(path: string): Promise<number> {
  const root = openRoot(path, { readOnly: true });
  const blocks = [...tablesOf(root).blocks.getKeys()].length;
  await root.close();
  return blocks;
}

test("take at most 2.5 times what waits and a mebibyte, however many went before", async () => {
  const path = newPath();
  const store = await open(path);
  const mailbox = store.capabilities.mailbox!;
  const wide = quota({ recipientEntriesMax: 1e6, storeEntriesMax: 1e6 });
  const [turns, perTurn, each] = [12, 2_000, 300];
  // One in forty waits, so that nearly every block of 24 has one.
  const waits = (n: number) => n % 40 === 3;
  for (let turn = 0; turn < turns; turn++) {
    const numbers = Array.from({ length: perTurn }, (_, n) => turn * perTurn + n);
    const times = { expiresAtMs: 90_000, keptUntilMs: 95_000 };
    const given = { recipient: did(1), envelope: bytesOf(turn, each), ...times };
    await Promise.all(numbers.map((n) => mailbox.store(entry(n, given), wide)));
    await mailbox.remove(did(1), numbers.filter((n) => !waits(n)).map(id), 2_000);
    for (let sweeps = 0; sweeps < 2; sweeps++) await mailbox.expire(2_000, 1_000);
  }
  await store.close();
  const root = openRoot(path, { readOnly: true });
  const taken = tableBytes(tablesOf(root).blocks);
  await root.close();
  expect(taken).toBeLessThan(2.5 * ((turns * perTurn) / 40) * each + 1024 ** 2);
});

test("that are mostly unneeded are packed anew, some with each sweep, and lose nothing", async () => {
  const path = newPath();
  let store = await open(path);
  let mailbox = store.capabilities.mailbox!;
  await fill(mailbox);
  const full = await blocksIn(path);
  const acknowledged = Array.from({ length: count }, (_, n) => n).filter(
    (n) => !isKept(n) && !hasPreview(n),
  );
  for (let of = 0; of < 7; of++)
    await mailbox.remove(did(of), acknowledged.filter((n) => n % 7 === of).map(id), 2_000);
  const check = async () => {
    const held: number[] = [];
    for (let of = 0; of < 7; of++)
      for (const { messageId, envelope } of await listAll(
        mailbox,
        did(of),
        pageOf({ nowMs: 6_000 }),
      )) {
        const n = Array.from({ length: count }, (_, i) => i).find((i) => id(i) === messageId)!;
        expect([n, Buffer.from(envelope).equals(bytes(n))]).toEqual([n, true]);
        held.push(n);
      }
    expect(held.length).toBe(count / 20);
    for (let n = 1; n < count; n += 190)
      expect(await mailbox.message(did(n % 7), id(n), 6_000)).toMatchObject({
        state: "expired",
        headerPreview: bytesOf(n, 60),
      });
  };
  const before = await blocksIn(path);
  for (let n = 0; n < 12; n++) while ((await mailbox.expire(6_000, 256)) === 256);
  const after = await blocksIn(path);
  expect([full > 450, before > full * 0.9, after < full / 4]).toEqual([true, true, true]);
  await check();
  await store.close();
  expect((await verifyStore(path)).problems).toEqual([]);
  store = await open(path);
  mailbox = store.capabilities.mailbox!;
  await check();
  // After a start it is known of each block how much of it is needed.
  for (let of = 0; of < 7; of++)
    await mailbox.remove(
      did(of),
      Array.from({ length: count / 100 }, (_, k) => 100 * k)
        .filter((n) => n % 7 === of)
        .map(id),
      6_000,
    );
  await mailbox.expire(6_000, 256);
  expect(await mailbox.stats(6_000)).toMatchObject({ entries: count / 20 - count / 100 });
  await store.close();
}, 60_000);

/** What of files is mapped. A folder in memory counts as shared. */
function mappedMib(): number {
  const status = readFileSync("/proc/self/status", "utf8");
  const kibibytes = ["RssFile", "RssShmem"].map((name) =>
    Number(new RegExp(`${name}:\\s+(\\d+)`).exec(status)?.[1]),
  );
  return kibibytes.reduce((sum, one) => sum + one, 0) / 1_024;
}

const large = quota({ recipientBytesMax: 1e9, storeBytesMax: 1e9 });
const mebibyte = 2 ** 20;

async function storeMebibytes(mailbox: Mailbox, mebibytes: number): Promise<void> {
  for (let n = 0; n < mebibytes; n++) {
    const given = entry(n, { recipient: did(1), envelope: new Uint8Array(mebibyte) });
    await mailbox.store(given, large);
  }
}

/** The most that is mapped beside `before` while pages are read to the end. */
async function mostMapped(mailbox: Mailbox, of: number, bytesMax: number): Promise<number> {
  let most = 0;
  let after: string | null = null;
  do {
    after = answered(await mailbox.list(did(of), pageOf({ bytesMax, after }))).next;
    most = Math.max(most, mappedMib());
  } while (after !== null);
  return most;
}

test.if(process.platform === "linux")(
  "a store that is only read has little of its file in memory at any time",
  async () => {
    const store = await open(newPath());
    const mailbox = store.capabilities.mailbox!;
    await storeMebibytes(mailbox, 60);
    const before = mappedMib();
    const most = await mostMapped(mailbox, 1, 2 * mebibyte);
    expect(most - before).toBeLessThan(30);
    await store.close();
  },
  20_000,
);

test.if(process.platform === "linux")(
  "nor where the messages of a mailbox lie far apart, and a look at one maps its surroundings",
  async () => {
    const store = await open(newPath());
    const mailbox = store.capabilities.mailbox!;
    const mailboxes = 40;
    for (let n = 0; n < 60 * mailboxes; n += mailboxes)
      await Promise.all(
        Array.from({ length: mailboxes }, (_, of) =>
          mailbox.store(
            entry(n + of, { recipient: did(of), envelope: bytesOf(of, 30_000) }),
            large,
          ),
        ),
      );
    const before = mappedMib();
    let most = 0;
    for (let of = 0; of < mailboxes; of++)
      most = Math.max(most, await mostMapped(mailbox, of, mebibyte));
    expect(most - before).toBeLessThan(30);
    await store.close();
  },
  60_000,
);

test.if(process.platform === "linux")(
  "a store that is read and written has little of its file in memory at any time",
  async () => {
    const store = await open(newPath());
    const mailbox = store.capabilities.mailbox!;
    await storeMebibytes(mailbox, 120);
    const before = mappedMib();
    let most = 0;
    let after: string | null = null;
    for (let n = 1_000; n === 1_000 || after !== null; n++) {
      const page = pageOf({ bytesMax: 2 * mebibyte, after });
      after = answered(await mailbox.list(did(1), page)).next;
      await mailbox.store(entry(n, { recipient: did(2) }), large);
      most = Math.max(most, mappedMib() - before);
    }
    expect(most).toBeLessThan(80);
    await store.close();
  },
  20_000,
);
