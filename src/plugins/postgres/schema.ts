/**
 * The schema of the database: its tables, and its versions. `waypost storage migrate` brings a database to the version
 * of this program; a node opens only a database of its own version. A migration keeps the functions of the previous
 * version under their names, so that nodes of both versions run side by side while they are replaced one by one.
 *
 * Messages are partitioned by the time of their end, and are dropped with their partition: `held` and `acked` by expiry,
 * `kept` by the end of the remains. Single rows are deleted only for acknowledged messages, replay claims and receipts.
 *
 *   mailbox   one row a mailbox: its lock, its sums, its last place in the order of arrival
 *   held      envelopes that are neither acknowledged nor dropped
 *   acked     ids that were acknowledged, until their expiry
 *   kept      remains of messages after their expiry
 *   part      all partitions
 *   tally     sums of the whole store by span of expiry, in one row a writer and span
 *   writer    the last write of each connection with its outcome: a lost answer is found here
 *   claim, receipt, ledger   replay claims, receipts, the embedded ledger
 */
import { dayMs } from "../../core/codec/time.ts";
import { type MailboxEntry, StoreError } from "../../storage/contract.ts";
import type { Pool } from "./pool.ts";
import type { PostgresOptions } from "./postgres.ts";
import {
  claimAndRemove,
  deliveryDigests,
  mailboxFunctions,
  recordFunctions,
  storeRound,
  writeReceipts,
} from "./sql.ts";

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

// -------------------------------------------------------------------------------------------- functions

/**
 * Drops what has ended. The first version locked mailboxes after it had dropped a partition of acknowledged ids, for
 * which a store waited that had its mailbox already: a deadlock, which ended the sweep or delayed the store for a second.
 */
const expireFunction = `
create or replace function {s}.expire(p_now bigint, p_grace bigint, p_limit integer) returns integer language plpgsql as $$
declare
  due record;
  nos bigint[];
  freed integer := 0;
  patience text := current_setting('lock_timeout');
begin
  if not pg_try_advisory_xact_lock(hashtextextended('{s}', 2)) then
    return 0;
  end if;
  for due in
    select kind, upper_ms, settled_no from {s}.part where upper_ms <= p_now - p_grace order by upper_ms, kind
  loop
    exit when freed >= p_limit;
    if due.kind = 'held' then
      -- Locks on mailboxes and on a whole partition are never held together: what follows a drop is the next call's.
      exit when freed > 0;
      nos := {s}.settle_part(due.upper_ms, due.settled_no, p_limit - freed);
      freed := freed + cardinality(nos);
      update {s}.part set settled_no = coalesce((select max(n) from unnest(nos) n), settled_no)
        where kind = due.kind and upper_ms = due.upper_ms;
      exit when cardinality(nos) > 0;
    end if;
    -- A table in use is dropped at the next call: nobody may wait for long behind the lock that it needs.
    begin
      perform set_config('lock_timeout', '200ms', true);
      execute format('drop table {s}.%I', due.kind || '_' || due.upper_ms);
      perform set_config('lock_timeout', patience, true);
    exception when lock_not_available then
      exit;
    end;
    delete from {s}.part where kind = due.kind and upper_ms = due.upper_ms;
    freed := freed + 1;
  end loop;
  delete from {s}.tally where upper_ms <= p_now - p_grace;
  return freed;
end $$;
`;

/** A partition holds what ends after \`upper - partition_ms\` and not after \`upper\`. */
const partitionFunctions = `
create function {s}.add_part(p_kind text, p_upper bigint) returns void language plpgsql as $$
declare
  span bigint := (select partition_ms from {s}.meta);
  name text := p_kind || '_' || p_upper;
begin
  perform pg_advisory_xact_lock(hashtextextended('{s}', 1));
  if exists (select 1 from {s}.part where kind = p_kind and upper_ms = p_upper) then
    return;
  end if;
  execute format('create table {s}.%I (like {s}.%I including defaults including storage)', name, p_kind);
  if p_kind = 'held' then
    execute format('alter table {s}.%I set (autovacuum_vacuum_scale_factor = 0.05)', name);
  end if;
  execute format('alter table {s}.%I attach partition {s}.%I for values from (%s) to (%s)',
    p_kind, name, p_upper - span + 1, p_upper + 1);
  insert into {s}.part (kind, upper_ms) values (p_kind, p_upper);
end $$;
-- Mailboxes that count what a partition holds are settled in steps, oldest partition first, then it is dropped.
create function {s}.settle_part(p_upper bigint, p_after bigint, p_limit integer) returns bigint[] language plpgsql as $$
declare
  nos bigint[];
begin
  execute format('select array(select mailbox_no from {s}.%I where mailbox_no > $1 group by 1 order by 1 limit $2)',
    'held_' || p_upper) into nos using p_after, p_limit;
  perform 1 from {s}.mailbox m where m.no = any (nos) order by m.key for update;
  perform {s}.settle(nos, p_upper);
  return nos;
end $$;
${expireFunction}-- Mailboxes of which nothing is left, from a number on; answers the number to go on from, or null at the end.
create function {s}.drop_idle(p_after bigint, p_before_ms bigint, p_limit integer) returns bigint language plpgsql as $$
declare
  last bigint;
begin
  select max(no) into last from (select no from {s}.mailbox where no > p_after order by no limit p_limit) page;
  delete from {s}.mailbox where no in (
    select no from {s}.mailbox where no > p_after and no <= last and until_ms < p_before_ms for update skip locked);
  delete from {s}.writer where used_at < now() - interval '7 days';
  return last;
end $$;
`;

// ------------------------------------------------------------------------------------------------- tables and versions

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
const migrations: readonly string[] = [
  tables + mailboxFunctions + recordFunctions + partitionFunctions,
  storeRound,
  claimAndRemove,
  writeReceipts,
  deliveryDigests,
  expireFunction,
];

const schemaVersion = migrations.length;

/** The span of time that one row of the sums of the store counts. */
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
  return row === undefined ? null : { version: Number(row["version"]), partitionMs: Number(row["partition_ms"]) };
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
  { schema, partition_ms }: Pick<PostgresOptions, "schema" | "partition_ms">,
  tallyMs = tallySpanMs,
): Promise<string> {
  const before = (await readSchema(pool, schema))?.version ?? 0;
  checkNotNewer(before);
  if (before === schemaVersion) return `schema "${schema}" has version ${schemaVersion} already`;
  // Of several programs that migrate at once, the later ones fail at the check of the version.
  const guard = `
    do $$ begin
      perform pg_advisory_xact_lock(hashtextextended('{s}', 0));
      if to_regclass('{s}.meta') is ${before === 0 ? "not null" : "null"} then
        raise exception 'another program migrates this schema at the same time';
      end if;
    end $$;
  `;
  const first = `insert into {s}.meta (version, partition_ms, tally_ms) values (0, ${partition_ms}, ${tallyMs});`;
  const steps = migrations.slice(before).join("\n");
  const end = `update {s}.meta set version = ${schemaVersion} where version = ${before};`;
  await pool.script(
    `begin; ${guard} create schema if not exists {s}; ${steps} ${before === 0 ? first : ""} ${end} commit;`,
  );
  return `schema "${schema}" was brought from version ${before} to ${schemaVersion}`;
}
