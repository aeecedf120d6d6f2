/**
 * The layout of a store against its format number: a fixed story is written, and all files are
 * hashed. When this fails because a layout was changed on purpose, older stores would be read
 * wrongly: raise `formatNumber` in `plugins/lmdb/data-file.ts`, note it in CHANGELOG.md as
 * INCOMPATIBLE, and write the new number and hash here.
 */
import { afterAll, expect, test } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { open } from "lmdb";
import { lmdbPlugin } from "../../src/plugins/lmdb/lmdb.ts";
import { openLmdb } from "../../src/plugins/lmdb/store.ts";
import { testEnvironment } from "../conformance/kit.ts";
import { optionsOf } from "../conformance/options.ts";
import { bytesOf, chunkOf, did, entry, id, quota } from "../conformance/samples.ts";
import { addAlias, alice, never, register, settled, stage } from "../support/embedded-stage.ts";

const path = mkdtempSync(join(tmpdir(), "waypost-format-"));
afterAll(() => rmSync(path, { recursive: true, force: true }));

const format = {
  number: "waypost lmdb store, format 1",
  store: "145fd90a82cc0ecf416c1dc131177ce5b050655789802ac9092861a72a4a60ab",
  ledger: "df4be4821399d4c5d0c55c9f17dd0700f07fbac5bacbef3ebf9f3db75d9e781b",
};

/** All that a hash needs to be the same again: keys and values in order, each with its length. */
function digest(rows: readonly (readonly [Uint8Array, Uint8Array])[]): string {
  const hash = new Bun.CryptoHasher("sha256");
  for (const part of rows.flat()) hash.update(`${part.length} `).update(part);
  return hash.digest("hex");
}

/** Every kind of record: kept, chunked, acknowledged, cut to its preview. */
async function writeStory(): Promise<void> {
  const store = await openLmdb(optionsOf(lmdbPlugin, { path }), testEnvironment());
  const { mailbox, replay, receipts } = store.capabilities;
  const [to, more] = [did(1), quota()];
  await mailbox?.store(entry(1, { recipient: to }), more);
  await mailbox?.store(entry(2, { recipient: to, chunk: chunkOf(1, 0, 2) }), more);
  await mailbox?.store(
    entry(3, { recipient: to, onExpiry: "KeepHeaderPreview", headerPreview: bytesOf(3, 8) }),
    more,
  );
  await mailbox?.store(
    entry(4, { recipient: to, onExpiry: "TombstoneReference", expiresAtMs: 2_500 }),
    more,
  );
  await mailbox?.remove(to, [id(1)], 2_000);
  for (let n = 5; n < 12; n++) await mailbox?.store(entry(n, { recipient: did(2) }), more);
  await mailbox?.expire(3_000, 100);
  await replay?.claim("tag", 5_000, 1_000);
  await receipts?.put("key", bytesOf(9, 20), 5_000);
  await store.close();
}

async function readStore(): Promise<Map<string, [Uint8Array, Uint8Array][]>> {
  const root = open<Buffer, Buffer>({
    path,
    encoding: "binary",
    keyEncoding: "binary",
    maxDbs: 16,
  });
  const found = new Map<string, [Uint8Array, Uint8Array][]>();
  for (const key of [...root.getKeys()]) {
    const name = Buffer.from(key).toString().replace(/\0$/, "");
    const database = root.openDB<Buffer, Buffer>({
      name,
      encoding: "binary",
      keyEncoding: "binary",
    });
    const rows = [...database.getRange({})].map(
      (row) => [Buffer.from(row.key), Buffer.from(row.value)] as const,
    );
    found.set(
      name,
      rows.map(([first, second]) => [first, second]),
    );
  }
  await root.close();
  return found;
}

test("what lies in a store is what its format number says", async () => {
  await writeStory();
  const databases = await readStore();
  const mark =
    databases.get("meta")?.find(([key]) => Buffer.from(key).toString() === "format")?.[1] ??
    new Uint8Array();
  // The table is the ledger's, whose operator and first block are drawn again: it has a story of
  // its own.
  const rows = [...databases]
    .filter(([name]) => name !== "table" && name !== "meta")
    .sort(([a], [b]) => (a < b ? -1 : 1));
  const reported = rows.flatMap(([name, pairs]) => [
    [Buffer.from(name), new Uint8Array()] as const,
    ...pairs,
  ]);
  expect(rows.filter(([, pairs]) => pairs.length === 0).map(([name]) => name)).toEqual([]);
  expect([Buffer.from(mark).toString(), digest(reported)]).toEqual([format.number, format.store]);
});

test("so is what the ledger keeps in its table", async () => {
  const made = stage();
  const first = await made.open();
  await register(first, alice);
  await settled(first, await first.submit(addAlias(alice, "settled"), "add_alias"));
  await first.close();
  made.blockTimeMs = never;
  const second = await made.open();
  await second.submit(addAlias(alice, "pending", 1n), "add_alias");
  const rows = made.table
    .range("", { limit: 1_000 })
    .map(([key, value]) => [Buffer.from(key), value] as const);
  await second.close();
  expect(
    new Set(made.table.range("", { limit: 1_000 }).map(([key]) => key.split("/")[0])).size,
  ).toBeGreaterThan(6);
  expect(digest(rows)).toBe(format.ledger);
});
