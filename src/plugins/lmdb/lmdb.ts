/**
 * The LMDB driver: every capability in one environment on a local disk. What it answers is `flushed`:
 * it survives the death of the machine. One process at a time; a failed commit ends the program.
 */
import { resolve } from "node:path";
import { z } from "zod";
import type { StoragePlugin, Store, StoreEnvironment } from "../../storage/contract.ts";
import { openLedger } from "../embedded.ts";
import { parseWith } from "../options.ts";
import { environmentAbsence, openEnvironment } from "./environment.ts";
import { openReceipts, openReplay } from "./expiring.ts";
import { openLmdbMailbox } from "./mailbox.ts";
import type { FoldLimits } from "./pages.ts";
import type { Disk } from "./space.ts";
import { openTable } from "./table.ts";

const mebibyte = 1024 * 1024;

const optionsSchema = z.strictObject({
  path: z.string().min(1).describe("Directory of the store, on a local disk; created with mode 0700"),
  block_time_ms: z.int().min(10).max(3_600_000).default(6_000).describe("Milliseconds between two blocks"),
  message_ids_max: z
    .int()
    .min(1)
    .max(100_000_000)
    .default(10_000_000)
    .describe("Message ids that are held, remembered or kept at a time; about 130 bytes of memory each"),
  free_space_floor_bytes: z
    .int()
    .min(0)
    .default(128 * mebibyte)
    .describe("Below this much free space on the file system, stores are refused with 507"),
  reserve_bytes: z
    .int()
    .min(mebibyte)
    .default(32 * mebibyte)
    .describe("Disk space set aside, so that pulls and acknowledgements go on when stores are refused"),
});

export type LmdbOptions = z.output<typeof optionsSchema>;

/** Tests give their own disk and shorter folds. */
export type LmdbTestSettings = { readonly disk?: Disk; readonly fold?: FoldLimits };

export const lmdbPlugin: StoragePlugin<LmdbOptions> = {
  name: "lmdb",
  provides: ["mailbox", "replay", "receipts", "ledger"],
  parseOptions: (input) => parseWith(optionsSchema, input),
  open: (options, environment) => openLmdb(options, environment),
  absence: ({ path }) => environmentAbsence(resolve(path)),
};

export async function openLmdb(
  options: LmdbOptions,
  host: StoreEnvironment,
  test: LmdbTestSettings = {},
): Promise<Store> {
  const environment = await openEnvironment({
    path: resolve(options.path),
    space: { floorBytes: options.free_space_floor_bytes, reserveBytes: options.reserve_bytes },
    host,
    ...(test.disk === undefined ? {} : { disk: test.disk }),
  });
  try {
    const fold = test.fold === undefined ? {} : { fold: test.fold };
    const mailbox = openLmdbMailbox(environment, { rowsMax: options.message_ids_max, ...fold }, host.log);
    let opening = true;
    const table = openTable(environment, () => (opening ? "removal" : "record"));
    const ledger = await openLedger(table, options.block_time_ms, host);
    opening = false;
    let closed: Promise<void> | null = null;
    const close = async () => {
      await ledger.close();
      await mailbox.close();
      await environment.close();
    };
    return {
      plugin: "lmdb",
      durability: "flushed",
      capabilities: { mailbox, replay: openReplay(environment), receipts: openReceipts(environment), ledger },
      async probe() {
        environment.checkHealth();
      },
      close() {
        closed ??= close();
        return closed;
      },
    };
  } catch (error) {
    await environment.close();
    throw error;
  }
}
