/**
 * The LMDB driver: every capability in one environment on a local disk. What it answers is `flushed`:
 * it survives the death of the machine. One process at a time; a failed commit ends the program.
 */
import { resolve } from "node:path";
import type { StoragePlugin } from "../../storage/contract.ts";
import { parseWith } from "../drivers.ts";
import { loadNative, storeAbsence } from "./folder.ts";
import { type LmdbOptions, lmdbOptions } from "./options.ts";

export const lmdbPlugin: StoragePlugin<LmdbOptions> = {
  name: "lmdb",
  provides: ["mailbox", "replay", "receipts", "ledger"],
  parseOptions: (input) => parseWith(lmdbOptions, input),
  async open(options, environment) {
    const { openLmdb } = await loadNative(() => import("./store.ts"));
    return openLmdb(options, environment);
  },
  async migrate({ path }) {
    const { migrateLmdb } = await loadNative(() => import("./migrate.ts"));
    return migrateLmdb(path);
  },
  maintenance: {
    async backup({ path }, to, bytesPerSecondMax) {
      const { backupStore } = await loadNative(() => import("./copies.ts"));
      return backupStore(path, to, bytesPerSecondMax);
    },
    async restore({ path }, from) {
      const { restoreStore } = await loadNative(() => import("./copies.ts"));
      return restoreStore(path, from);
    },
    async verify({ path }) {
      const { verifyStore } = await loadNative(() => import("./copies.ts"));
      return verifyStore(path);
    },
    async compact({ path }) {
      const { compactStore } = await loadNative(() => import("./copies.ts"));
      return compactStore(path);
    },
    async *records({ path }, skipped) {
      const { exportRecords } = await loadNative(() => import("./export.ts"));
      yield* exportRecords(path, skipped);
    },
  },
  absence: ({ path }) => storeAbsence(resolve(path)),
};
