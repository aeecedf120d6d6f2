/**
 * The schema of the database: its version and its partitions. `waypost storage migrate` makes it; a node opens only a
 * schema of its own version. Tables and functions are in `schema.sql`.
 */
/// <reference path="./sql.d.ts" />
import { dayMs } from "../../core/codec/time.ts";
import { type MailboxEntry, StoreError } from "../../storage/contract.ts";
import type { Pool } from "./pool.ts";
import type { PostgresOptions } from "./postgres.ts";
import definitions from "./schema.sql" with { type: "text" };

// ---------------------------------------------------------------------------------------------------------- partitions

type PartitionSettings = {
  readonly partitionMs: number;
  /** How long ago a span must have ended: longer than clocks of nodes differ and than any write lasts. */
  readonly graceMs: number;
};

type Kind = "held" | "acked" | "kept";

const idleMailboxesAtOnce = 1_000;

/**
 * Partitions are made before the first entry of their span of time, and dropped when the span is over and the clocks of
 * all nodes are past it. Several nodes may try both at once: the database lets one do it.
 */
export class Partitions {
  private readonly known = new Set<string>();
  /** The search for idle mailboxes continues at this number. */
  private idleAfter = 0;
  private idleLookedAtMs = Number.NEGATIVE_INFINITY;

  constructor(
    private readonly pool: Pool,
    private readonly settings: PartitionSettings,
  ) {}

  async ensure(entries: readonly MailboxEntry[]): Promise<void> {
    const missing = new Map<string, { kind: Kind; upperMs: number }>();
    const need = (kind: Kind, ms: number): void => {
      const upperMs = Math.ceil(ms / this.settings.partitionMs) * this.settings.partitionMs;
      const name = `${kind} ${upperMs}`;
      if (!this.known.has(name)) missing.set(name, { kind, upperMs });
    };
    for (const { expiresAtMs, keptUntilMs, onExpiry } of entries) {
      need("held", expiresAtMs);
      need("acked", expiresAtMs);
      if (onExpiry !== "DeleteOnExpiry" && keptUntilMs > expiresAtMs) need("kept", keptUntilMs);
    }
    for (const [name, { kind, upperMs }] of missing) {
      await this.pool.query("select {s}.add_part($1, $2)", [kind, upperMs]);
      this.known.add(name);
    }
  }

  /** Another node dropped a partition that this one knows, perhaps that of acknowledged ids but not yet of their messages. */
  async restore(): Promise<void> {
    this.known.clear();
    await this.pool.query("select {s}.add_part('acked', upper_ms) from {s}.part where kind = 'held'");
  }

  /** Each step is a transaction of its own: what it locks is free before the next. */
  async expire(nowMs: number, limit: number): Promise<number> {
    let freed = 0;
    for (let step = 1; step > 0 && freed < limit; freed += step) {
      const given = [nowMs, this.settings.graceMs, limit - freed];
      const [row] = await this.pool.query("select {s}.expire($1, $2, $3) as freed", given);
      step = Number(row?.["freed"]);
    }
    if (freed > 0) this.known.clear();
    await this.dropIdle(nowMs);
    return freed;
  }

  /** Checks one page of mailboxes per second: ten million in three hours. */
  private async dropIdle(nowMs: number): Promise<void> {
    if (nowMs - this.idleLookedAtMs < 1_000 && nowMs >= this.idleLookedAtMs) return;
    this.idleLookedAtMs = nowMs;
    const [row] = await this.pool.query("select {s}.drop_idle($1, $2, $3) as last", [
      this.idleAfter,
      nowMs - dayMs,
      idleMailboxesAtOnce,
    ]);
    this.idleAfter = Number(row?.["last"] ?? 0);
  }
}

// --------------------------------------------------------------------------------------------------- version

const schemaVersion = 1;

/** The span of time that one row of the sums of the store counts. */
const tallySpanMs = 60_000;

type SchemaSettings = {
  readonly version: number;
  readonly partitionMs: number;
};

/** The settings of the schema, or `null` when there is none; throws when a newer program made it. */
async function readSchema(pool: Pool, schema: string): Promise<SchemaSettings | null> {
  const [found] = await pool.query("select to_regclass($1) is not null as there", [`${schema}.meta`]);
  if (found?.["there"] !== true) return null;
  const [row] = await pool.query("select version, partition_ms from {s}.meta");
  if (row === undefined) return null;
  const version = Number(row["version"]);
  if (version !== schemaVersion) {
    const versions = `the schema has version ${version}, and this program knows ${schemaVersion}`;
    throw new StoreError("unavailable", `${versions}: use the program that migrated it, or a newer one`);
  }
  return { version, partitionMs: Number(row["partition_ms"]) };
}

/** The settings of the schema; throws when this program can't work with it. */
export async function checkSchema(pool: Pool, schema: string): Promise<SchemaSettings> {
  const found = await readSchema(pool, schema);
  if (found !== null) return found;
  throw new StoreError("unavailable", `the database has no schema "${schema}": run \`waypost storage migrate\``);
}

/** Makes the schema in one transaction, unless it exists; returns what was done. */
export async function migrateSchema(
  pool: Pool,
  { schema, partition_ms }: Pick<PostgresOptions, "schema" | "partition_ms">,
  tallyMs = tallySpanMs,
): Promise<string> {
  if ((await readSchema(pool, schema)) !== null) return `schema "${schema}" has version ${schemaVersion} already`;
  // Of several programs that migrate at once, the later ones wait here and fail.
  const guard = `
    do $$ begin
      perform pg_advisory_xact_lock(hashtextextended('{s}', 0));
      if to_regclass('{s}.meta') is not null then
        raise exception 'another program migrates this schema at the same time';
      end if;
    end $$;
  `;
  const settings = `insert into {s}.meta (version, partition_ms, tally_ms) values (${schemaVersion}, ${partition_ms}, ${tallyMs});`;
  await pool.script(`begin; ${guard} create schema if not exists {s}; ${definitions} ${settings} commit;`);
  return `schema "${schema}" was created with version ${schemaVersion}`;
}
