/**
 * The schema of the database: its tables, and its versions. `waypost storage migrate` brings a database to the version
 * of this program; a node opens a database of its own version only, and leaves a newer one alone. A migration keeps
 * the functions of the version before under their names, so that nodes of both versions run side by side while they
 * are exchanged one by one.
 *
 * Messages lie in partitions by the time at which they are over, and go with their partition: `held` and `acked` by
 * expiry, `kept` by the end of what is kept. Rows are deleted one by one only for acknowledged messages, replay claims
 * and receipts.
 *
 *   mailbox   one row a mailbox: its lock, its sums, its last place in the order of arrival
 *   held      envelopes that are neither acknowledged nor dropped
 *   acked     ids that were acknowledged, until their expiry
 *   kept      what a message leaves behind after its expiry
 *   part      the partitions there are
 *   tally     sums of the whole store by span of expiry, in one row a writer and span
 *   writer    the last write of each connection with its outcome: a lost answer is found here
 *   claim, receipt, ledger   replay claims, receipts, the embedded ledger
 */
import { StoreError } from "../../storage/contract.ts";
import { partitionFunctions } from "./partitions.ts";
import type { Pool, Row, Session } from "./pool.ts";
import type { PostgresOptions } from "./postgres.ts";
import { recordFunctions } from "./records.ts";
import { mailboxFunctions, storeRound } from "./sql-mailbox.ts";

// ----------------------------------------------------------------------------------------------------- tables

/** `{s}` is the schema, quoted. */
const tables = `
create table {s}.meta (
  one boolean primary key default true check (one),
  version integer not null,
  partition_ms bigint not null,
  tally_ms bigint not null
);
create table {s}.mailbox (
  no bigint generated always as identity primary key,
  key text collate "C" not null unique,
  entries bigint not null default 0,
  bytes bigint not null default 0,
  last_arrival bigint not null default 0,
  -- What was over at this time counts no more.
  settled_ms bigint not null default -1,
  -- Nothing of this mailbox lasts longer.
  until_ms bigint not null default 0
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);
create table {s}.held (
  mailbox_no bigint not null,
  arrival bigint not null,
  id uuid not null,
  expires_ms bigint not null,
  size integer not null,
  group_id uuid,
  sequence bigint,
  total bigint,
  labels text[],
  envelope bytea not null
) partition by range (expires_ms);
create index held_id on {s}.held (mailbox_no, id);
create index held_arrival on {s}.held (mailbox_no, arrival);
create index held_group on {s}.held (mailbox_no, group_id) where group_id is not null;
create table {s}.acked (mailbox_no bigint not null, id uuid not null, expires_ms bigint not null)
  partition by range (expires_ms);
create index acked_id on {s}.acked (mailbox_no, id);
create table {s}.kept (
  mailbox_no bigint not null,
  id uuid not null,
  expires_ms bigint not null,
  kept_ms bigint not null,
  preview bytea
) partition by range (kept_ms);
create index kept_id on {s}.kept (mailbox_no, id);
create table {s}.part (
  kind text not null,
  upper_ms bigint not null,
  -- Mailboxes up to this number no longer count what the partition holds.
  settled_no bigint not null default 0,
  primary key (kind, upper_ms)
);
create table {s}.tally (
  upper_ms bigint not null,
  writer uuid not null,
  entries bigint not null,
  bytes bigint not null,
  primary key (upper_ms, writer)
) with (fillfactor = 50);
create table {s}.writer (
  id uuid primary key,
  seq bigint not null default 0,
  outcome json,
  used_at timestamptz not null default now()
) with (fillfactor = 50);
create table {s}.claim (tag bytea primary key, until_ms bigint not null, at_ms bigint not null)
  with (autovacuum_vacuum_scale_factor = 0.05);
create index claim_until on {s}.claim (until_ms);
create table {s}.receipt (key bytea primary key, value bytea not null, until_ms bigint not null, at_ms bigint not null)
  with (autovacuum_vacuum_scale_factor = 0.05);
create index receipt_until on {s}.receipt (until_ms);
create table {s}.ledger (key text collate "C" primary key, value bytea not null);
alter table {s}.held alter column envelope set storage external;
`;

// --------------------------------------------------------------------------------------------------- versions

/** Migration `n` leads from version `n` to `n + 1`. */
const migrations: readonly string[] = [tables + mailboxFunctions + recordFunctions + partitionFunctions, storeRound];

const schemaVersion = migrations.length;

/** The span of time that one row of the sums of the store stands for. */
const tallySpanMs = 60_000;

type SchemaSettings = {
  readonly version: number;
  readonly partitionMs: number;
};

/** `null` when there is no schema. */
async function readSchema(pool: Pool, schema: string): Promise<SchemaSettings | null> {
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
