/**
 * The schema of the database: its version and its partitions. `waypost storage migrate` makes it; a
 * node opens a schema that its version may read. Tables and functions are in `schema.sql`.
 */
/// <reference path="./sql.d.ts" />
import { dayMs } from "../../core/codec/time.ts";
import { StoreError } from "../../storage/contract.ts";
import { clockMsMax } from "./clock.ts";
import type { Pool } from "./pool.ts";
import type { PostgresOptions } from "./postgres.ts";
import definitions from "./schema.sql" with { type: "text" };

// -------------------------------------------------------------------------------------- partitions

const idleMailboxesAtOnce = 1_000;

/**
 * A write makes the partitions that it needs; they are dropped when their span of time is over and
 * the clocks of all nodes are past it. Several nodes may try at once: the database lets one do it.
 */
export class Expiry {
  /** The search for idle mailboxes continues at this number. */
  private idleAfter = 0;
  private idleLookedAtMs = Number.NEGATIVE_INFINITY;

  constructor(
    private readonly pool: Pool,
    /**
     * How long ago a span must have ended: longer than clocks of nodes differ
     * and than any write lasts.
     */
    private readonly graceMs: number,
  ) {}

  /** Each step is a transaction of its own: what it locks is free before the next. */
  async expire(nowMs: number, limit: number): Promise<number> {
    let freed = 0;
    for (let step = 1; step > 0 && freed < limit; freed += step) {
      const given = [nowMs, this.graceMs, limit - freed];
      const [row] = await this.pool.query("select {s}.expire($1, $2, $3) as freed", given);
      step = Number(row?.["freed"]);
    }
    await this.dropIdle(nowMs);
    return freed;
  }

  /** Checks one page of mailboxes per second: ten million in three hours. */
  private async dropIdle(nowMs: number): Promise<void> {
    if (nowMs - this.idleLookedAtMs < 1_000 && nowMs >= this.idleLookedAtMs) return;
    this.idleLookedAtMs = nowMs;
    const [row] = await this.pool.query("select {s}.drop_idle($1, $2, $3, $4) as last", [
      this.idleAfter,
      nowMs,
      dayMs,
      idleMailboxesAtOnce,
    ]);
    this.idleAfter = Number(row?.["last"] ?? 0);
  }
}

// ----------------------------------------------------------------------------------------- version

const schemaVersion = 1;

export const allPlaces: readonly number[] = Array.from({ length: 1_024 }, (_, no) => no);

/** The span of time that one row of the sums of the store counts. */
const tallySpanMs = 60_000;

/** A database answers, and its schema does not fit. */
export class SchemaProblem extends StoreError {}

/**
 * Locks of the ledger and of moves are the server's own, so all nodes use one:
 * with Citus, its coordinator.
 */
async function refuseWorker(pool: Pool): Promise<void> {
  const [found] = await pool.query(
    "select to_regclass('pg_dist_local_group') is not null as citus",
  );
  if (found?.["citus"] !== true) return;
  const isWorker =
    (await pool.query("select 1 from pg_dist_local_group where groupid <> 0")).length > 0;
  if (isWorker)
    throw new SchemaProblem("unavailable", "a worker of Citus: `urls` must name the coordinator");
}

/**
 * The version of the schema, or `null` when there is none; throws when this
 * program is too old for it.
 */
async function readVersion(pool: Pool): Promise<number | null> {
  await refuseWorker(pool);
  const [found] = await pool.query("select to_regclass('{s}.meta') is not null as there");
  if (found?.["there"] !== true) return null;
  const [row] = await pool.query("select to_json(m)::text as meta from {s}.meta m");
  if (row === undefined) return null;
  const meta = JSON.parse(String(row["meta"])) as Record<string, number>;
  const { version = 0, readable_by = version } = meta;
  if (version < 0)
    throw new SchemaProblem(
      "unavailable",
      "an import into the schema has not finished: run it again",
    );
  if (readable_by > schemaVersion) {
    const versions = `the schema has version ${version}, and this program knows ${schemaVersion}`;
    throw new SchemaProblem(
      "unavailable",
      `${versions}: use the program that migrated it, or a newer one`,
    );
  }
  return version;
}

/** Throws when this program can't work with the schema. */
export async function checkSchema(pool: Pool, schema: string): Promise<void> {
  if ((await readVersion(pool)) !== null) return;
  throw new SchemaProblem(
    "unavailable",
    `the database has no schema "${schema}": run \`waypost storage migrate\``,
  );
}

/** A schema whose version is below zero is not whole. */
export async function setUnfinished(pool: Pool, isUnfinished: boolean): Promise<void> {
  await pool.query("update {s}.meta set version = $1", [
    isUnfinished ? -schemaVersion : schemaVersion,
  ]);
}

/** Removes what an import has left that did not finish. */
export async function dropUnfinished(pool: Pool): Promise<void> {
  const [found] = await pool.query("select to_regclass('{s}.meta') is not null as there");
  if (found?.["there"] !== true) return;
  const [row] = await pool.query("select version from {s}.meta");
  if (Number(row?.["version"] ?? 0) < 0) await pool.query("drop schema {s} cascade");
}

/** One statement each: the next begins a line. */
function statementsOf(script: string): string[] {
  const text = script.replace(/^--.*\n/gm, "").replaceAll("{skew}", String(clockMsMax));
  return text.split(/;\n(?=\n*(?:create|do) )/).map((one) => one.trim().replace(/;$/, ""));
}

/**
 * Makes the schema in one transaction; returns what was done. `places` are the first that it has.
 */
export async function migrateSchema(
  pool: Pool,
  { schema, partition_ms }: Pick<PostgresOptions, "schema" | "partition_ms">,
  {
    tallyMs = tallySpanMs,
    places = allPlaces,
  }: { readonly tallyMs?: number; readonly places?: readonly number[] } = {},
): Promise<string> {
  const before = await readVersion(pool);
  if (before !== null) return `schema "${schema}" has version ${before} already`;
  const values = [schemaVersion, schemaVersion, partition_ms, tallyMs].join(", ");
  await pool.transaction(async (query) => {
    // Of several programs that migrate at once, the later ones wait here and fail.
    await query("select pg_advisory_xact_lock(hashtextextended('{s}', 0))");
    const [now] = await query("select to_regclass('{s}.meta') is not null as there");
    if (now?.["there"] === true)
      throw new StoreError("unavailable", "another program migrates this schema");
    await query("create schema if not exists {s}");
    for (const statement of statementsOf(definitions)) await query(statement);
    await query(
      `insert into {s}.meta (version, readable_by, partition_ms, tally_ms) values (${values})`,
    );
    await query(
      "insert into {s}.place select n::integer, 'here' from unnest(string_to_array($1, ',')) n",
      [places.join(",")],
    );
  }, "none");
  return `schema "${schema}" was created with version ${schemaVersion}`;
}
