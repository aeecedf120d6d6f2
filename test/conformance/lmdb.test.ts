/**
 * The LMDB driver keeps the contract, also across reopening. Drivers that bound the ids they
 * remember share them like entries.
 */
import { expect, test } from "bun:test";
import { lmdbPlugin } from "../../src/plugins/lmdb/lmdb.ts";
import { openLmdb } from "../../src/plugins/lmdb/store.ts";
import { memoryPlugin } from "../../src/plugins/memory/memory.ts";
import type { Mailbox, Store, StoreEnvironment } from "../../src/storage/contract.ts";
import { folderInMemory, scratchPaths } from "../support/scratch.ts";
import { runConformance, testEnvironment } from "./kit.ts";
import { optionsOf } from "./options.ts";
import { alice, bob, entry, failureOf, id, isFull, quota } from "./samples.ts";

const newPath = scratchPaths("lmdb", folderInMemory());
const paths = new WeakMap<Store, string>();

async function openAt(path: string, environment: StoreEnvironment): Promise<Store> {
  const options = optionsOf(lmdbPlugin, {
    path,
    block_time_ms: 50,
    reserve_bytes: 8 * 1024 * 1024,
  });
  const store = await openLmdb(options, environment, { commitMsMax: 60_000 });
  paths.set(store, path);
  return store;
}

runConformance({
  name: "lmdb",
  provides: lmdbPlugin.provides,
  open: (environment) => openAt(newPath(), environment),
  reopen: (store, environment) => openAt(paths.get(store)!, environment),
});

/** Stores under the label and acknowledges at once, until it is refused. */
async function useUp(mailbox: Mailbox, label: string, from: number): Promise<number> {
  const storeShare = { label, entriesMax: 1_000_000, bytesMax: 1 << 30 };
  for (let n = 0; n <= 100; n++) {
    const outcome = await mailbox.store(
      entry(from + n, { labels: [label] }),
      quota({ storeShare }),
    );
    if (outcome.kind !== "stored") {
      expect(outcome).toEqual({ kind: "full", scope: "store_share", label });
      return n;
    }
    await mailbox.remove(alice, [id(from + n)], 2_000);
  }
  throw new Error("nothing bounds the ids");
}

const drivers = [
  {
    name: "lmdb",
    open: (path: string) =>
      openLmdb(
        optionsOf(lmdbPlugin, { path, message_ids_max: 100, reserve_bytes: 8 * 1024 * 1024 }),
        testEnvironment(),
      ),
    again: true,
  },
  {
    name: "memory",
    open: () =>
      memoryPlugin.open(optionsOf(memoryPlugin, { message_ids_max: 100 }), testEnvironment()),
    again: false,
  },
];

test.each(drivers)(
  "$name: knows as many ids as it is told, acknowledged ones included",
  async ({ open }) => {
    const store = await open(newPath());
    const mailbox = store.capabilities.mailbox!;
    for (let n = 0; n < 100; n++)
      expect(await mailbox.store(entry(n), quota())).toEqual({ kind: "stored" });
    expect((await mailbox.remove(alice, [id(7)], 2_000)).length).toBe(1);
    expect(isFull(await failureOf(() => mailbox.store(entry(100), quota())))).toBe(true);
    await store.close();
  },
);

test.each(drivers)(
  "$name: whoever stores and acknowledges at once leaves ids for others",
  async ({ open, again }) => {
    const path = newPath();
    let store = await open(path);
    const mailbox = () => store.capabilities.mailbox!;
    expect(await useUp(mailbox(), "via:a", 0)).toBe(50);
    if (again) {
      await store.close();
      store = await open(path);
    }
    expect(await useUp(mailbox(), "via:a", 200)).toBe(0);
    // Others have room, also where no share is named.
    expect(await mailbox().store(entry(1, { recipient: bob }), quota())).toEqual({
      kind: "stored",
    });
    // Ids are free when their time is over and they were swept.
    expect(await mailbox().expire(10_000, 1_000)).toBe(50 + 1);
    const late = { storedAtMs: 10_000, expiresAtMs: 20_000, labels: ["via:a"] };
    expect(await mailbox().store(entry(500, late), quota())).toEqual({ kind: "stored" });
    await store.close();
  },
);
