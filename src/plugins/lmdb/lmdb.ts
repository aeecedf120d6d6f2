/**
 * The LMDB driver: its options, and every capability in one environment on a local disk. What it answers is
 * `flushed`: it survives the death of the machine. One process at a time; a failed commit ends the program.
 */
import { resolve } from "node:path";
import { z } from "zod";
import type { StoragePlugin } from "../../storage/contract.ts";
import { parseWith } from "../drivers.ts";
import { loadNative, storeAbsence } from "./folder.ts";

const mebibyte = 1024 * 1024;

const lmdbOptions = z.strictObject({
  path: z.string().min(1).describe("Folder of the store, on a local disk; created with mode 0700"),
  block_time_ms: z.int().min(10).max(3_600_000).default(6_000).describe("Milliseconds between two blocks"),
  message_ids_max: z
    .int()
    .min(1)
    .max(100_000_000)
    .default(10_000_000)
    .describe("Most message ids that are held, remembered or kept at a time; about 110 bytes of memory each"),
  free_space_floor_bytes: z
    .int()
    .min(0)
    .default(128 * mebibyte)
    .describe("Below this much free space on the file system, stores are refused with 507"),
  reserve_bytes: z
    .int()
    .min(mebibyte)
    .default(32 * mebibyte)
    .describe("Disk space set aside, so that retrieval and acknowledgement still work when stores are refused"),
});

export type LmdbOptions = z.output<typeof lmdbOptions>;

const maintenance = () => loadNative(() => import("./maintenance.ts"));

export const lmdbPlugin: StoragePlugin<LmdbOptions> = {
  name: "lmdb",
  provides: ["mailbox", "replay", "receipts", "ledger"],
  parseOptions: (input) => parseWith(lmdbOptions, input),
  open: async (options, environment) => (await loadNative(() => import("./store.ts"))).openLmdb(options, environment),
  migrate: async ({ path }) => (await maintenance()).migrateStore(path),
  maintenance: {
    backup: async ({ path }, to, bytesPerSecondMax) => (await maintenance()).backupStore(path, to, bytesPerSecondMax),
    restore: async ({ path }, from) => (await maintenance()).restoreStore(path, from),
    verify: async ({ path }) => (await maintenance()).verifyStore(path),
    compact: async ({ path }) => (await maintenance()).compactStore(path),
    async *records({ path }, skipped) {
      yield* (await maintenance()).exportRecords(path, skipped);
    },
  },
  absence: ({ path }) => storeAbsence(resolve(path)),
};
