/**
 * The LMDB driver: its options, every capability in one environment on a local disk, and the folder
 * of a store. Its answers are `flushed`: they survive the death of the machine. One process at a
 * time; a failed commit ends the program. A refusal by the operating system is reported to the
 * operator, who can repair it.
 */
import {
  chmodSync,
  closeSync,
  existsSync,
  fsyncSync,
  mkdirSync,
  openSync,
  readdirSync,
  rmSync,
  statSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { z } from "zod";
import { errorText } from "../../core/fault.ts";
import { type StoragePlugin, StoreError } from "../../storage/contract.ts";
import type { OpenLocalTable } from "../../storage/table.ts";
import { parseWith, sizeOption } from "../shared/drivers.ts";

const mebibyte = 1024 * 1024;

export const lmdbOptions = z.strictObject({
  path: z.string().min(1).describe("Folder of the store, on a local disk; created with mode 0700"),
  block_time_ms: z
    .int()
    .min(10)
    .max(3_600_000)
    .default(6_000)
    .describe("Milliseconds between two blocks"),
  message_ids_max: z
    .int()
    .min(1)
    .max(100_000_000)
    .default(10_000_000)
    .describe(
      "Most message ids that are held, remembered or kept at a time; about 130 bytes of memory each",
    ),
  free_space_floor_bytes: sizeOption(128 * mebibyte, mebibyte).describe(
    "Below this much free space on the file system, stores are refused with 507",
  ),
  reserve_bytes: sizeOption(32 * mebibyte, 8 * mebibyte).describe(
    "Disk space set aside, so that retrieval and acknowledgement still work when stores are refused",
  ),
});

export type LmdbOptions = z.output<typeof lmdbOptions>;

/** For a driver whose store lies elsewhere. */
export const openLocalTable: OpenLocalTable = async (place, environment) =>
  (await loadNative(() => import("./store.ts"))).openTable(place, environment);

const maintenance = () => loadNative(() => import("./maintenance.ts"));

export const lmdbPlugin: StoragePlugin<LmdbOptions> = {
  name: "lmdb",
  provides: ["mailbox", "replay", "receipts", "ledger", "logs"],
  parseOptions: (input) => parseWith(lmdbOptions, input),
  open: async (options, environment) =>
    (await loadNative(() => import("./store.ts"))).openLmdb(options, environment),
  migrate: async ({ path }) => (await maintenance()).migrateStore(path),
  maintenance: (options) => ({
    async *records(skipped) {
      yield* (await maintenance()).exportRecords(options.path, skipped);
    },
    import: async (...work) => (await maintenance()).importStore(options, ...work),
    files: {
      backup: async (to) => (await maintenance()).backupStore(options.path, to),
      restore: async (from) => (await maintenance()).restoreStore(options.path, from),
      verify: async () => (await maintenance()).verifyStore(options.path),
      compact: async () => (await maintenance()).compactStore(options.path),
    },
  }),
};

// ------------------------------------------------------------------------------------------ folder

export const dataFile = "data.mdb";
/** A copy that is not finished. */
export const partialFile = "data.mdb.partial";
/** Where the library writes a copy. */
export const copyFolder = "copy";
export const lockFile = "owner.lock";

/** Of an interrupted copy, next to a whole data file: only for the process that has both locks. */
export function removeUnfinished(path: string): void {
  for (const name of [partialFile, `${partialFile}-lock`, copyFolder])
    rmSync(join(path, name), { recursive: true, force: true });
}

/** What is missing for `path` to hold a store, or `null`. */
export function storeAbsence(path: string): string | null {
  return existsSync(join(path, dataFile)) ? null : `${path} has no store yet`;
}

/**
 * An executable unpacks the addon before it can be loaded: that fails where nothing can be
 * unpacked.
 */
export async function loadNative<T>(load: () => Promise<T>): Promise<T> {
  try {
    return await load();
  } catch (error) {
    if (!(error instanceof Error && "code" in error && error.code === "ERR_DLOPEN_FAILED"))
      throw error;
    throw new StoreError(
      "unavailable",
      `the native part of this program can't be loaded from ${tmpdir()}: set TMPDIR to a folder that this user may ` +
        "write, on a file system that is not mounted noexec",
      { cause: error },
    );
  }
}

/** Creates the directory with mode 0700, or makes sure that it is empty or ours. */
export function prepareDirectory(path: string): void {
  try {
    mkdirSync(path, { recursive: true, mode: 0o700 });
    // The root of a mounted file system has a folder of this name.
    const names = readdirSync(path).filter((name) => name !== "lost+found");
    if (names.includes(partialFile) && !names.includes(dataFile)) {
      throw new StoreError(
        "unavailable",
        `${path} has an unfinished copy: run \`waypost storage restore\` or \`import\` again`,
      );
    }
    const isThere = names.includes(dataFile);
    if (names.length > 0 && !isThere && !names.includes(lockFile)) {
      throw new StoreError("unavailable", `${path} is not empty, but has no store`);
    }
    if (names.length > 0 && (!isThere || statSync(join(path, dataFile)).size === 0)) {
      throw new StoreError(
        "unavailable",
        `${path} had a store, and its ${dataFile} is ${isThere ? "empty" : "missing"}: is the volume mounted? Restore a ` +
          "backup, or empty the folder to begin a new store",
      );
    }
    chmodSync(path, 0o700);
  } catch (error) {
    if (error instanceof StoreError) throw error;
    throw unusable(path, error);
  }
}

/** A refusal by the operating system. */
export function unusable(path: string, cause: unknown): StoreError {
  return new StoreError("unavailable", `${path} can't be used: ${errorText(cause)}`, { cause });
}

/** Of a folder, or of a file (`r+`). */
export function syncPath(path: string, flags: "r" | "r+" = "r"): void {
  const descriptor = openSync(path, flags);
  try {
    fsyncSync(descriptor);
  } finally {
    closeSync(descriptor);
  }
}
