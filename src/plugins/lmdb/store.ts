/**
 * The LMDB store, put together: every capability in one environment. Loaded only when a store is opened,
 * because it brings the native addon along.
 */
import { join, resolve } from "node:path";
import type { Store, StoreEnvironment } from "../../storage/contract.ts";
import { ledgerImport, openLedger } from "../drivers.ts";
import { type Environment, openEnvironment } from "./environment.ts";
import { openReceipts, openReplay } from "./expiring.ts";
import { dataFile } from "./folder.ts";
import { openLmdbMailbox } from "./mailbox.ts";
import type { LmdbOptions } from "./options.ts";
import type { FoldLimits } from "./pages.ts";
import { Scrub } from "./scrub.ts";
import type { Disk } from "./space.ts";
import { openTable } from "./table.ts";

/** Tests give their own disk, shorter folds, and commits as long as a busy machine needs. */
export type LmdbTestSettings = { readonly disk?: Disk; readonly fold?: FoldLimits; readonly commitMsMax?: number };

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
    ...(test.commitMsMax === undefined ? {} : { commitMsMax: test.commitMsMax }),
  });
  try {
    const fold = test.fold === undefined ? {} : { fold: test.fold };
    const mailbox = openLmdbMailbox(environment, { rowsMax: options.message_ids_max, ...fold }, host.log);
    let opening = true;
    const table = openTable(environment, () => (opening ? "removal" : "record"));
    const { ledger, followHead } = await openLedger(table, options.block_time_ms, host);
    opening = false;
    let closed: Promise<void> | null = null;
    const scrub = openScrub(options, environment, host);
    scrub.start();
    const close = async () => {
      scrub.stop();
      await ledger.close();
      await mailbox.close();
      await environment.close();
    };
    return {
      plugin: "lmdb",
      durability: "flushed",
      capabilities: { mailbox, replay: openReplay(environment), receipts: openReceipts(environment), ledger },
      importLedger: ledgerImport(table),
      followHead,
      scrubbed: () => scrub.report,
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

function openScrub(options: LmdbOptions, environment: Environment, host: StoreEnvironment): Scrub {
  return new Scrub({
    path: join(resolve(options.path), dataFile),
    bytesPerSecond: options.scrub_bytes_per_second,
    log: host.log,
    fail: (reason) => environment.fail(reason, null),
  });
}
