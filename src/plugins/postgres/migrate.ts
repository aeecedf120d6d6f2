/**
 * The versions of the schema. `waypost storage migrate` brings a database to the version of this program;
 * a node opens a database of its own version only, and one that is newer is left alone. A migration keeps
 * the functions of the version before under their names, so that nodes of both run side by side while they
 * are exchanged one by one.
 */
import { StoreError } from "../../storage/contract.ts";
import type { Row } from "./connection.ts";
import type { PostgresOptions } from "./options.ts";
import type { Pool, Session } from "./pool.ts";
import { mailboxFunctions } from "./sql-mailbox.ts";
import { recordFunctions } from "./sql-records.ts";
import { tables } from "./sql-tables.ts";

/** Migration `n` leads from version `n` to `n + 1`. */
const migrations: readonly string[] = [tables + mailboxFunctions + recordFunctions];

export const schemaVersion = migrations.length;

/** The span of time that one row of the sums of the store stands for. */
export const tallySpanMs = 60_000;

export type SchemaSettings = {
  readonly version: number;
  readonly partitionMs: number;
};

/** `null` when there is no schema. */
export async function readSchema(pool: Pool, schema: string): Promise<SchemaSettings | null> {
  const [found] = await pool.query("select to_regclass($1) is not null as there", [`${schema}.meta`]);
  if (found?.["there"] !== true) return null;
  const [row] = await pool.query("select version, partition_ms from {s}.meta");
  return row === undefined ? null : settingsOf(row);
}

function settingsOf(row: Row): SchemaSettings {
  return { version: Number(row["version"]), partitionMs: Number(row["partition_ms"]) };
}

/** The settings of the schema; throws when this program can't work with it. */
export async function checkSchema(pool: Pool, schema: string): Promise<SchemaSettings> {
  const found = await readSchema(pool, schema);
  if (found === null) {
    throw new StoreError("unavailable", `the database has no schema "${schema}": run \`waypost storage migrate\``);
  }
  if (found.version < schemaVersion) {
    const versions = `version ${found.version}, this program needs ${schemaVersion}`;
    throw new StoreError("unavailable", `the schema has ${versions}: run \`waypost storage migrate\``);
  }
  checkNotNewer(found.version);
  return found;
}

function checkNotNewer(version: number): void {
  if (version <= schemaVersion) return;
  const versions = `the schema has version ${version}, and this program knows ${schemaVersion}`;
  throw new StoreError("unavailable", `${versions}: use the program that migrated it, or a newer one`);
}

/** Brings the schema to this program's version, in one transaction; answers what was done. */
export async function migrateSchema(
  pool: Pool,
  options: Pick<PostgresOptions, "schema" | "partition_ms">,
  tallyMs = tallySpanMs,
): Promise<string> {
  const before = (await readSchema(pool, options.schema))?.version ?? 0;
  checkNotNewer(before);
  if (before === schemaVersion) return `schema "${options.schema}" has version ${schemaVersion} already`;
  await pool.session((session) => runMigrations(session, { pool, options, tallyMs, before }));
  return `schema "${options.schema}" was brought from version ${before} to ${schemaVersion}`;
}

async function runMigrations(
  session: Session,
  given: {
    readonly pool: Pool;
    readonly options: Pick<PostgresOptions, "schema" | "partition_ms">;
    readonly tallyMs: number;
    readonly before: number;
  },
): Promise<void> {
  const { pool, options, tallyMs, before } = given;
  const { schema, partition_ms } = options;
  // Of several programs that migrate at once, the later ones fail at the check of the version.
  const guard = `
    do $$ begin
      perform pg_advisory_xact_lock(hashtextextended('${schema}', 0));
      if to_regclass('${schema}.meta') is ${before === 0 ? "not null" : "null"} then
        raise exception 'another program migrates this schema at the same time';
      end if;
    end $$;
  `;
  const first = `insert into {s}.meta (version, partition_ms, tally_ms) values (0, ${partition_ms}, ${tallyMs});`;
  const steps = migrations.slice(before).join("\n");
  const end = `update {s}.meta set version = ${schemaVersion} where version = ${before};`;
  const text = `begin; ${guard} create schema if not exists {s}; ${steps} ${before === 0 ? first : ""} ${end} commit;`;
  await session.script(pool.named(text));
}
