/** Composes the PostgreSQL store. Loaded only when a store is opened or migrated. */
import { readFile } from "node:fs/promises";
import { errorText } from "../../core/fault.ts";
import { type Durability, type Store, type StoreEnvironment, StoreError } from "../../storage/contract.ts";
import { openLogs } from "../../storage/embedded-log.ts";
import { openLedger } from "../drivers.ts";
import { LabelTotals, PostgresMailbox, StoreTotals } from "./mailbox.ts";
import { type BatchLimits, Pool } from "./pool.ts";
import type { PostgresOptions } from "./postgres.ts";
import { openPostgresReceipts, openPostgresReplay, PostgresTable } from "./records.ts";
import { checkSchema, migrateSchema, Partitions } from "./schema.ts";

/** Tests give shorter times, and benchmarks other batches. */
type PostgresTestSettings = {
  readonly graceMs?: number;
  readonly totalsAgeMs?: number;
  readonly batches?: BatchLimits;
};

/** Longer than clocks of nodes differ and than any write lasts. */
const graceMs = 600_000;
const totalsAgeMs = 1_000;
/** A scan of the store counts this many times as long as a sum. */
const labelsAgeFactor = 60;

export async function openPool(options: PostgresOptions): Promise<Pool> {
  const { tls_ca_file } = options;
  return new Pool({ ...options, ca: tls_ca_file === null ? null : await readCertificates(tls_ca_file) });
}

function readCertificates(file: string): Promise<string> {
  return readFile(file, "utf8").catch((error: unknown) => {
    throw new StoreError("unavailable", `${file} can't be read: ${errorText(error)}`);
  });
}

export async function migratePostgres(options: PostgresOptions): Promise<string> {
  const pool = await openPool(options);
  try {
    return await migrateSchema(pool, options);
  } finally {
    await pool.close();
  }
}

export async function openPostgres(
  options: PostgresOptions,
  environment: StoreEnvironment,
  test: PostgresTestSettings = {},
): Promise<Store> {
  const pool = await openPool(options);
  try {
    const { partitionMs } = await checkSchema(pool, options.schema);
    const durability = await readDurability(pool);
    const partitions = new Partitions(pool, { partitionMs, graceMs: test.graceMs ?? graceMs });
    const table = new PostgresTable(pool, environment.now);
    await table.readClock();
    const now = () => table.databaseNow();
    const ledger = await openLedger(table, options.block_time_ms, { ...environment, now });
    const ageMs = test.totalsAgeMs ?? totalsAgeMs;
    const totals = new StoreTotals(pool, ageMs);
    const labels = new LabelTotals(pool, ageMs * labelsAgeFactor);
    return {
      plugin: "postgres",
      durability,
      capabilities: {
        mailbox: new PostgresMailbox(pool, partitions, totals, labels, test.batches),
        replay: openPostgresReplay(pool),
        receipts: openPostgresReceipts(pool),
        ledger,
        logs: openLogs(table),
      },
      importLedger: null,
      async probe() {
        await pool.query("select 1");
      },
      async close() {
        await ledger.close();
        await pool.close();
      },
    };
  } catch (error) {
    await pool.close();
    throw error;
  }
}

/** `flushed` needs a server that syncs before it answers. */
async function readDurability(pool: Pool): Promise<Durability> {
  const [row] = await pool.query(
    "select current_setting('fsync') as fsync, current_setting('synchronous_commit') as sync",
  );
  return row?.["fsync"] === "on" && row["sync"] !== "off" ? "flushed" : "committed";
}
