/** The LMDB driver keeps the contract, with folds after a few operations and across reopening. */
import { lmdbPlugin } from "../../src/plugins/lmdb/lmdb.ts";
import { openLmdb } from "../../src/plugins/lmdb/store.ts";
import type { Store, StoreEnvironment } from "../../src/storage/contract.ts";
import { folderInMemory, scratchPaths } from "../support/scratch.ts";
import { runConformance } from "./kit.ts";
import { optionsOf } from "./options.ts";

const newPath = scratchPaths("lmdb", folderInMemory());
const paths = new WeakMap<Store, string>();

async function openAt(path: string, environment: StoreEnvironment): Promise<Store> {
  const options = optionsOf(lmdbPlugin, { path, block_time_ms: 20, reserve_bytes: 1024 * 1024 });
  // Folds after a few operations, so that every case meets pages and journals of all ages.
  const store = await openLmdb(options, environment, {
    fold: { operationsMax: 7, recordsMax: 5 },
    commitMsMax: 60_000,
  });
  paths.set(store, path);
  return store;
}

runConformance({
  name: "lmdb",
  provides: lmdbPlugin.provides,
  open: (environment) => openAt(newPath(), environment),
  reopen: (store, environment) => openAt(paths.get(store)!, environment),
});
