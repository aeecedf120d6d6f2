/**
 * A backup whose reader gives up, one that comes byte by byte, and one of many rows that are mostly
 * keys.
 */
import { expect, test } from "bun:test";
import { backup, restore } from "../../src/client/identity/backup.ts";
import { memoryKeys } from "../../src/client/keys/key-stores.ts";
import { createIdentity, freshSeed, renderIdentity } from "../../src/client/keys/keys.ts";
import { memoryStore } from "../../src/client/store/driver.ts";
import { Table } from "../../src/client/store/table.ts";

/** A store of as many rows, each a piece of a backup, and how often it was read. */
async function storeOf(rows: number) {
  const driver = memoryStore();
  const reads = { count: 0 };
  const scan: typeof driver.scan = (range) => {
    reads.count++;
    return driver.scan({ ...range, limit: 1 });
  };
  const table = await Table.open({ ...driver, scan }, freshSeed());
  for (let n = 0; n < rows; n++)
    await driver.apply([[`${table.place}key${n}`, new Uint8Array(900_000).fill(n)]]);
  return { table, reads };
}

test("a reader that gives up lets the store go on at once", async () => {
  const { table, reads } = await storeOf(20);
  const reader = backup("identity", table, "p").getReader();
  for (let n = 0; n < 3; n++) await reader.read();
  await reader.cancel();
  await table.change(async (batch) => batch.put("next", 1));
  expect(reads.count).toBeLessThan(5);
});

test("a file that comes in single bytes is restored", async () => {
  const { table } = await storeOf(1);
  const text = renderIdentity(createIdentity("alice"));
  const saved = await new Response(backup(text, table, "p")).bytes();
  let at = 0;
  const bytes = new ReadableStream<Uint8Array>({
    pull: (controller) => {
      if (at < saved.length) controller.enqueue(saved.subarray(at, ++at));
      else controller.close();
    },
  });
  const [keys, store] = [memoryKeys(), memoryStore()];
  await restore(bytes, { passphrase: "p", keys, store, areOthersLost: false });
  expect(await keys.load("default")).toBe(text);
  const [row] = await store.scan({ from: table.place, to: `${table.place}~`, limit: 1 });
  expect(row?.[1].length).toBe(900_000);
}, 30_000);

test("rows that are small beside their keys are restored", async () => {
  const [driver, identity] = [memoryStore(), createIdentity("alice")];
  const table = await Table.open(driver, identity.storeKey);
  // As the places of reactions in the log for own devices.
  const key = (n: number) => `${table.place}n/r/${String(n).padStart(98, "0")}`;
  await driver.apply(Array.from({ length: 50_000 }, (_, n) => [key(n), new Uint8Array(44)]));
  const store = memoryStore();
  await restore(backup(renderIdentity(identity), table, "p"), {
    passphrase: "p",
    keys: memoryKeys(),
    store,
    areOthersLost: false,
  });
  expect((await store.scan({ from: key(49_998), to: key(50_000), limit: 3 })).length).toBe(2);
}, 30_000);
