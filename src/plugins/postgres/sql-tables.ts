/**
 * Version 1 of the tables. Messages lie in partitions by the time at which they are over, and go with
 * their partition: `held` and `acked` by expiry, `kept` by the end of what is kept. Nothing is deleted row
 * by row but what is acknowledged, replay claims and receipts.
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

/** `{s}` is the schema, quoted. */
export const tables = `
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
