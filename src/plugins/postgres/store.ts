/** Composes the PostgreSQL store. Loaded only when a store is opened or migrated. */
import { readFile } from "node:fs/promises";
import { errorText } from "../../core/fault.ts";
import { withDeadline } from "../../core/std/bounded.ts";
import type { BatchLimits } from "../../storage/batcher.ts";
import {
  type PlaceMove,
  type Store,
  type StoreEnvironment,
  StoreError,
} from "../../storage/contract.ts";
import { openLogs } from "../../storage/embedded-log.ts";
import { openLedger } from "../shared/drivers.ts";
import { PostgresMailbox } from "./mailbox.ts";
import { movePlaces } from "./move.ts";
import { openShards, Places, probeShards, readPlaces, Shard } from "./places.ts";
import { Pool, type PoolContext } from "./pool.ts";
import { refusePooler } from "./pooler.ts";
import type { PostgresOptions } from "./postgres.ts";
import { openPostgresReceipts, openPostgresReplay, PostgresTable } from "./records.ts";
import { allPlaces, checkSchema, Expiry, migrateSchema, SchemaProblem } from "./schema.ts";
import type { SqlPoolSettings } from "./servers.ts";
import { StoreTotals } from "./totals.ts";
import { watchContext, watchDatabases } from "./watch.ts";

/** Tests give shorter times, and benchmarks other batches. */
type PostgresTestSettings = {
  readonly graceMs?: number;
  readonly totalsAgeMs?: number;
  readonly batches?: BatchLimits;
};

/** Longer than clocks of nodes differ and than any write lasts. */
const graceMs = 600_000;
const totalsAgeMs = 1_000;
/** A start waits so long for databases other than the first. */
const openingMsMax = 3_000;

export async function settingsOf(options: PostgresOptions): Promise<SqlPoolSettings> {
  const { tls_ca_file } = options;
  return { ...options, ca: tls_ca_file === null ? null : await readCertificates(tls_ca_file) };
}

export async function openPool(options: PostgresOptions, context?: PoolContext): Promise<Pool> {
  return new Pool(await settingsOf(options), context);
}

function readCertificates(file: string): Promise<string> {
  return readFile(file, "utf8").catch((error: unknown) => {
    throw new StoreError("unavailable", `${file} can't be read: ${errorText(error)}`);
  });
}

/** The databases of a store: the first has the ledger and its log, and is named `home`. */
export function shardOptions({
  shards,
  ...home
}: PostgresOptions): (readonly [name: string, PostgresOptions])[] {
  const more = Object.entries(shards).map(
    ([name, own]) => [name, { ...home, ...own, shards: {} }] as const,
  );
  return [["home", { ...home, shards: {} }], ...more];
}

/** Schemas that are made now share the places that no other has. */
async function migrateShards(
  options: PostgresOptions,
  pools: readonly Pool[],
  tallyMs?: number,
): Promise<string[]> {
  const ones = shardOptions(options).map(([, one], n) => ({ one, pool: pools[n]! }));
  const found = await Promise.all(ones.map(({ pool }) => hasPlaces(pool)));
  const taken = new Set(found.flatMap((places) => [...(places ?? [])]));
  const left = allPlaces.filter((no) => !taken.has(no));
  const fresh = ones.filter((_, n) => found[n] === null);
  const done: string[] = [];
  for (const { one, pool } of ones) {
    const at = fresh.findIndex((given) => given.pool === pool);
    const places = left.filter((_, n) => Math.floor((n * fresh.length) / left.length) === at);
    done.push(
      await migrateSchema(pool, one, { places, ...(tallyMs === undefined ? {} : { tallyMs }) }),
    );
  }
  return done;
}

async function hasPlaces(pool: Pool): Promise<readonly number[] | null> {
  const [row] = await pool.query("select to_regclass('{s}.place') is not null as there");
  return row?.["there"] === true ? [...(await readPlaces({ pool })).keys()] : null;
}

export async function migratePostgres(
  options: PostgresOptions,
  move?: PlaceMove,
  tallyMs?: number,
): Promise<string> {
  const pools = await Promise.all(shardOptions(options).map(([, one]) => openPool(one)));
  try {
    const done = await migrateShards(options, pools, tallyMs);
    if (move === undefined) return done.join("; ");
    const shards = shardsOf(options, pools);
    const to = shards.find(({ name }) => name === move.to);
    if (to === undefined) throw new StoreError("unavailable", `there is no shard "${move.to}"`);
    if (to !== shards[0] && move.places.includes(0))
      throw new StoreError(
        "unavailable",
        "place 0 has what nodes need to start: it stays in the first database",
      );
    const moved = await movePlaces(move.places, shards, to);
    return `${move.places.length} places are in "${move.to}"; ${moved} moved`;
  } finally {
    await Promise.all(pools.map((pool) => pool.close()));
  }
}

export function shardsOf(
  options: PostgresOptions,
  pools: readonly Pool[],
  test: PostgresTestSettings = {},
): Shard[] {
  const totals = new StoreTotals(pools, test.totalsAgeMs ?? totalsAgeMs);
  return shardOptions(options).map(([name, { schema }], n) => {
    const pool = pools[n]!;
    const openAll = async () => {
      await checkSchema(pool, schema);
      await checkDurability(pool);
      await pool.probe();
      await refusePooler(pool);
      const expiry = new Expiry(pool, test.graceMs ?? graceMs);
      const mailbox = new PostgresMailbox(pool, expiry, totals, n, test.batches);
      return { mailbox, replay: openPostgresReplay(pool), receipts: openPostgresReceipts(pool) };
    };
    return new Shard(name, pool, openAll);
  });
}

export async function openPostgres(
  options: PostgresOptions,
  environment: StoreEnvironment,
  test: PostgresTestSettings = {},
): Promise<Store> {
  const ones = shardOptions(options);
  const pools = await Promise.all(
    ones.map(([name, one]) => openPool(one, watchContext(name, one, environment))),
  );
  const unwatch = watchDatabases(
    ones.map(([name], n) => [name, pools[n]!] as const),
    environment,
  );
  const closeAll = async () => {
    unwatch();
    await Promise.all(pools.map((pool) => pool.close()));
  };
  try {
    const shards = shardsOf(options, pools, test);
    const home = await shards[0]!.parts();
    const table = new PostgresTable(pools[0]!);
    const now = () => table.databaseNow();
    const ledger = await openLedger(table, options.block_time_ms, { ...environment, now });
    const places = new Places(shards, options.statement_timeout_ms);
    await places.look();
    await refuseUnfit(shards);
    return {
      plugin: "postgres",
      capabilities: { ...openShards(shards, places, home), ledger, logs: openLogs(table) },
      probe: () => probeShards(shards),
      async close() {
        await ledger.close();
        await closeAll();
      },
    };
  } catch (error) {
    await closeAll();
    throw error;
  }
}

/** A database that can't be used as it is stops the start; one that is away does not. */
async function refuseUnfit(shards: readonly Shard[]): Promise<void> {
  const opened = shards.map((shard) =>
    shard.parts().catch((error: unknown) => {
      if (error instanceof SchemaProblem) throw error;
    }),
  );
  await withDeadline(Promise.all(opened), openingMsMax);
}

/** What a `202` promises needs a server that syncs before it answers. */
async function checkDurability(pool: Pool): Promise<void> {
  const [row] = await pool.query(
    "select current_setting('fsync') as fsync, current_setting('synchronous_commit') as sync",
  );
  if (row?.["fsync"] === "on" && row["sync"] !== "off") return;
  throw new SchemaProblem(
    "unavailable",
    "the database answers before it syncs: set fsync and synchronous_commit to on",
  );
}
