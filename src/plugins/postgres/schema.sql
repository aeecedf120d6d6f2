-- The schema of the database: tables, and the functions that write. `{s}` is its name.
--
-- Messages are partitioned by the time of their end, and are dropped with their partition: `held` and `acked` by expiry,
-- `kept` by the end of the remains. Single rows are deleted only for acknowledged messages, replay claims and receipts.
--
-- A function does all the operations that arrived in one turn of a node, in one transaction. Rows of `mailbox` are the
-- locks, always acquired in the order of their keys, so calls of several nodes wait for each other and never in a circle.
-- Decisions use only what is read after the locks.
--
-- A database may hold some of the 1,024 places of a store. A key belongs to the place that the first ten bits of its
-- DID's hash name. What belongs to a place that is not here is refused as WP002, and the node looks for the place again.

---------------------------------------------------------------------------------------------------------------- tables

create table {s}.meta (
  one boolean primary key default true check (one),
  version integer not null,
  -- The oldest version of the program that works with the schema.
  readable_by integer not null,
  partition_ms bigint not null,
  tally_ms bigint not null
);
-- One row a mailbox: its lock, its sums, its last place in the order of arrival.
create table {s}.mailbox (
  no bigint generated always as identity primary key,
  key text collate "C" not null unique,
  entries bigint not null default 0,
  bytes bigint not null default 0,
  last_arrival bigint not null default 0,
  -- What had expired at this time is not in the sums.
  settled_ms bigint not null default -1,
  -- Nothing of this mailbox lasts longer.
  until_ms bigint not null default 0,
  -- What it holds expires between the two, so that a page asks no other partition. It may hold less.
  soonest_ms bigint not null default 0,
  latest_ms bigint not null default 9223372036854775807,
  -- Whether `share` has its sums.
  counted boolean not null default false
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);
-- Sums of a mailbox by label, of what its own sums count: to add them up for each message would cost as much as the
-- mailbox holds.
create table {s}.share (
  mailbox_no bigint not null,
  label text collate "C" not null,
  entries bigint not null,
  bytes bigint not null,
  primary key (mailbox_no, label)
) with (fillfactor = 50);
-- Envelopes that are neither acknowledged nor dropped.
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
  -- As in mailbox-rules.ts.
  digest bytea not null,
  envelope bytea not null
) partition by range (expires_ms);
-- Envelopes are encrypted: they are not compressed. Citus can't say so, and they cost some processor time there.
do $$ begin
  alter table {s}.held alter column envelope set storage external;
exception when feature_not_supported then
end $$;
create index held_id on {s}.held (mailbox_no, id);
create index held_arrival on {s}.held (mailbox_no, arrival);
create index held_group on {s}.held (mailbox_no, group_id) where group_id is not null;
-- Ids that were acknowledged, until their expiry. Of the labels, that of the author.
create table {s}.acked (
  mailbox_no bigint not null,
  id uuid not null,
  expires_ms bigint not null,
  digest bytea not null,
  labels text[]
) partition by range (expires_ms);
create index acked_id on {s}.acked (mailbox_no, id);
-- Remains of messages after their expiry.
create table {s}.kept (
  mailbox_no bigint not null,
  id uuid not null,
  expires_ms bigint not null,
  kept_ms bigint not null,
  preview bytea
) partition by range (kept_ms);
create index kept_id on {s}.kept (mailbox_no, id);
-- All partitions.
create table {s}.part (
  kind text not null,
  upper_ms bigint not null,
  -- Mailboxes up to this number no longer count what the partition holds.
  settled_no bigint not null default 0,
  primary key (kind, upper_ms)
);
-- Sums of the whole store by span of expiry, in one row a writer and span.
create table {s}.tally (
  upper_ms bigint not null,
  writer uuid not null,
  entries bigint not null,
  bytes bigint not null,
  primary key (upper_ms, writer)
) with (fillfactor = 50);
-- The last write of each connection with its outcome: a lost answer is found here.
create table {s}.writer (
  id uuid primary key,
  seq bigint not null default 0,
  outcome json,
  used_at timestamptz not null default now()
) with (fillfactor = 50);
-- `place`: where it belongs; that of an acknowledgement with its mailbox.
create table {s}.claim (tag bytea primary key, until_ms bigint not null, at_ms bigint not null, place integer not null)
  with (autovacuum_vacuum_scale_factor = 0.05);
create index claim_until on {s}.claim (until_ms);
create table {s}.receipt (key bytea primary key, value bytea not null, until_ms bigint not null, at_ms bigint not null)
  with (autovacuum_vacuum_scale_factor = 0.05);
create index receipt_until on {s}.receipt (until_ms);
create table {s}.ledger (key text collate "C" primary key, value bytea not null);
-- What a function that stores gets for each message.
create type {s}.room as (
  own text, own_entries bigint, own_bytes bigint, pool text, pool_entries bigint, pool_bytes bigint, is_rest boolean
);
create type {s}.entry as (
  n integer, round integer, box text, id uuid, at bigint, expires bigint, kept bigint, size integer, start integer,
  group_id uuid, sequence bigint, total bigint, labels text[], digest bytea, preview bytea,
  entries_max bigint, bytes_max bigint, first_place {s}.room, second_place {s}.room, store_entries_max bigint, store_bytes_max bigint
);
-- The same for one acknowledgement, and for one receipt.
create type {s}.removal as (n integer, box text, at bigint, ids uuid[], tag bytea, until bigint);
create type {s}.writing as (
  key bytea, how text, until bigint, at bigint, start integer, size integer
);
-- The places that are here. One that leaves is read here and written nowhere; `gone` and `arriving` with one `move` are
-- a whole copy that has not been opened yet.
create table {s}.place (
  no integer primary key,
  state text not null check (state in ('here', 'leaving', 'gone', 'arriving')),
  move uuid
);
-- Of a mailbox: all of one DID are in one place. Not in SQL: `convert_to` is stable, so each statement that calls it would
-- plan the body anew.
create function {s}.place_of(p_key text) returns integer language plpgsql immutable as $$
declare
  hash bytea := sha256(convert_to(split_part(p_key, '~', 1), 'UTF8'));
begin
  return get_byte(hash, 0) * 4 + get_byte(hash, 1) / 64;
end $$;
create index mailbox_place on {s}.mailbox ({s}.place_of(key));

---------------------------------------------------------------------------------------------------------------- writes

-- Nodes give the time, and the database's own bounds it: a node whose clock is ahead removes nothing before its end.
create function {s}.clock_ms() returns bigint language sql volatile as $$
  select (extract(epoch from clock_timestamp()) * 1000)::bigint
$$;
-- For a write, which replaces what has ended by its time.
create function {s}.check_time(p_now bigint) returns void language plpgsql as $$
begin
  if p_now > {s}.clock_ms() + {skew} then
    raise exception 'the time of a write is % s ahead of the database''s', (p_now - {s}.clock_ms()) / 1000
      using errcode = 'WP003';
  end if;
end $$;-- For a write of a node with `standby = "required"`. Without the right to see them, all standbys that follow count.
create function {s}.need_standby() returns void language plpgsql as $$
begin
  if current_setting('synchronous_standby_names') = '' or not exists (
    select 1 from pg_stat_replication where coalesce(sync_state, 'sync') in ('sync', 'quorum')
  ) then
    raise exception 'the primary waits for no standby' using errcode = 'WP004';
  end if;
end $$;

-- Begins a write: returns its outcome if it was committed before, else null. The row lock waits for a lost copy of it.
create function {s}.begin_write(p_writer uuid, p_seq bigint) returns json language plpgsql as $$
declare
  last record;
begin
  loop
    select seq, outcome into last from {s}.writer where id = p_writer for update;
    exit when found;
    insert into {s}.writer (id) values (p_writer) on conflict do nothing;
  end loop;
  if last.seq > p_seq then
    raise exception 'a later write of this connection stands' using errcode = 'WP001';
  end if;
  return case when last.seq = p_seq then last.outcome end;
end $$;
create function {s}.end_write(p_writer uuid, p_seq bigint, p_outcome json) returns json language plpgsql as $$
begin
  update {s}.writer set seq = p_seq, outcome = p_outcome, used_at = now() where id = p_writer;
  return p_outcome;
end $$;

---------------------------------------------------------------------------------------------------------------- places

-- Keys of receipts begin with the ten bits of their place.
create function {s}.place_of(p_key bytea) returns integer language sql immutable as $$
  select get_byte(p_key, 0) * 4 + get_byte(p_key, 1) / 64
$$;
-- The first key of a place; that of 1,024 is beyond all.
create function {s}.place_begin(p_no integer) returns bytea language sql immutable as $$
  select case when p_no > 1023 then decode(repeat('ff', 40), 'hex') else decode(lpad(to_hex(p_no * 64), 4, '0'), 'hex') end
$$;
-- For a write. A move waits for the lock, so for all writes that saw the place here.
create function {s}.check_places(p_nos integer[]) returns void language plpgsql as $$
begin
  perform pg_advisory_xact_lock_shared(hashtextextended('{s}', 4));
  if exists (
    select 1 from unnest(p_nos) n left join {s}.place p on p.no = n and p.state = 'here' where p.no is null
  ) then
    raise exception 'the place is not here' using errcode = 'WP002';
  end if;
end $$;
-- For a read.
create function {s}.check_here(p_no integer) returns void language plpgsql stable as $$
begin
  perform 1 from {s}.place where no = p_no and state in ('here', 'leaving');
  if not found then
    raise exception 'the place is not here' using errcode = 'WP002';
  end if;
end $$;
-- The number of a mailbox, or null when there is none.
create function {s}.box_no(p_key text) returns bigint language plpgsql stable as $$
declare
  box record;
begin
  select m.no into box from {s}.place p left join {s}.mailbox m on m.key = p_key
    where p.no = {s}.place_of(p_key) and p.state in ('here', 'leaving');
  if not found then
    raise exception 'the place is not here' using errcode = 'WP002';
  end if;
  return box.no;
end $$;
-- Of the process that moves the place: it holds the lock to the end.
create function {s}.place_lock(p_no integer) returns bigint language sql immutable as $$
  select hashtextextended('{s} place', p_no)
$$;
create function {s}.leave(p_no integer, p_move uuid) returns void language plpgsql as $$
begin
  update {s}.place set state = 'leaving', move = p_move where no = p_no and state in ('here', 'leaving');
  if not found then
    raise exception 'place % is not here', p_no using errcode = 'WP002';
  end if;
end $$;
-- Places whose mover has died are open again.
create function {s}.reopen() returns void language plpgsql as $$
declare
  left_no integer;
begin
  for left_no in select no from {s}.place where state = 'leaving' loop
    if pg_try_advisory_xact_lock({s}.place_lock(left_no)) then
      update {s}.place set state = 'here', move = null where no = left_no and state = 'leaving';
    end if;
  end loop;
end $$;
-- Removes some of what a place left behind; returns how many rows.
create function {s}.purge(p_no integer, p_limit integer) returns integer language plpgsql as $$
declare
  span bigint := (select tally_ms from {s}.meta);
  nos bigint[];
  freed integer;
begin
  -- The mover and a node that clears after one take turns.
  if (select state from {s}.place where no = p_no for update) in ('here', 'leaving') then
    raise exception 'place % is here', p_no;
  end if;
  nos := array(select no from {s}.mailbox where {s}.place_of(key) = p_no order by key limit p_limit for update);
  with gone as (
    delete from {s}.held where mailbox_no = any (nos) returning expires_ms, size
  )
  insert into {s}.tally as t (upper_ms, writer, entries, bytes)
  select (expires_ms + span - 1) / span * span, '00000000-0000-0000-0000-000000000000', -count(*), -sum(size)
  from gone group by 1 order by 1
  on conflict (upper_ms, writer) do update
    set entries = t.entries + excluded.entries, bytes = t.bytes + excluded.bytes;
  delete from {s}.acked where mailbox_no = any (nos);
  delete from {s}.kept where mailbox_no = any (nos);
  delete from {s}.share where mailbox_no = any (nos);
  delete from {s}.mailbox where no = any (nos);
  delete from {s}.claim where place = p_no;
  get diagnostics freed = row_count;
  delete from {s}.receipt where key >= {s}.place_begin(p_no) and key < {s}.place_begin(p_no + 1);
  freed := freed + cardinality(nos);
  if freed = 0 then
    update {s}.place set move = null where no = p_no and state = 'gone';
  end if;
  return freed;
end $$;
-- The same for what a dead mover left of one move: a copy that stays closed, or a place that went elsewhere.
create function {s}.clear_place(p_no integer, p_move uuid, p_limit integer) returns integer language plpgsql as $$
declare
  freed integer;
begin
  perform 1 from {s}.place where no = p_no and state in ('gone', 'arriving') and move = p_move for update;
  if not found then
    return 0;
  end if;
  freed := {s}.purge(p_no, p_limit);
  if freed = 0 then
    delete from {s}.place where no = p_no and state = 'arriving';
  end if;
  return freed;
end $$;
create function {s}.arrive(p_no integer, p_move uuid) returns void language plpgsql as $$
begin
  insert into {s}.place values (p_no, 'arriving', p_move)
    on conflict (no) do update set state = 'arriving', move = p_move where place.state in ('gone', 'arriving');
end $$;
-- What reads a table and inserts is one statement with parts: Citus 13 sends an `insert` that selects with a broken condition.
create function {s}.copy_in(
  p_writer uuid, p_seq bigint, p_no integer, p_move uuid, p_kind text, p_given text
) returns json language plpgsql as $$
declare
  done json := {s}.begin_write(p_writer, p_seq);
  span bigint := (select tally_ms from {s}.meta);
  rows json := p_given::json;
  copied bigint;
begin
  if done is not null then
    return done;
  end if;
  perform 1 from {s}.place where no = p_no and state = 'arriving' and move = p_move for update;
  if not found then
    raise exception 'another process moves place %', p_no;
  end if;
  perform {s}.ensure_parts('{acked,held}', array(
    select r.expires_ms from json_to_recordset(rows) r(expires_ms bigint) where r.expires_ms is not null));
  perform {s}.ensure_parts('{kept}', array(
    select r.kept_ms from json_to_recordset(rows) r(kept_ms bigint) where r.kept_ms is not null));
  if p_kind = 'mailbox' then
    insert into {s}.mailbox (key, last_arrival, until_ms)
    select r.key, r.last_arrival, r.until_ms
    from json_to_recordset(rows) r(key text, last_arrival bigint, until_ms bigint);
  elsif p_kind = 'held' then
    with given as materialized (
      select m.no as mailbox_no, r.*
      from json_to_recordset(rows) r(
        key text, arrival bigint, id uuid, expires_ms bigint, size integer, group_id uuid, sequence bigint,
        total bigint, labels text[], digest bytea, envelope bytea)
      join {s}.mailbox m on m.key = r.key
    ), new_held as (
      insert into {s}.held
        (mailbox_no, arrival, id, expires_ms, size, group_id, sequence, total, labels, digest, envelope)
      select mailbox_no, arrival, id, expires_ms, size, group_id, sequence, total, labels, digest, envelope
      from given
    ), new_sums as (
      update {s}.mailbox m set entries = m.entries + g.entries, bytes = m.bytes + g.bytes
      from (select mailbox_no, count(*) as entries, sum(size) as bytes from given group by 1) g
      where m.no = g.mailbox_no
    )
    insert into {s}.tally as t (upper_ms, writer, entries, bytes)
    select (expires_ms + span - 1) / span * span, '00000000-0000-0000-0000-000000000000', count(*), sum(size)
    from given group by 1 order by 1
    on conflict (upper_ms, writer) do update
      set entries = t.entries + excluded.entries, bytes = t.bytes + excluded.bytes;
  elsif p_kind = 'acked' then
    with given as materialized (
      select m.no, r.* from json_to_recordset(rows) r(key text, id uuid, expires_ms bigint, digest bytea, labels text[])
      join {s}.mailbox m on m.key = r.key
    ), new_acked as (
      insert into {s}.acked (mailbox_no, id, expires_ms, digest, labels)
      select no, id, expires_ms, digest, labels from given
    )
    select count(*) into copied from given;
  elsif p_kind = 'kept' then
    with given as materialized (
      select m.no, r.* from json_to_recordset(rows) r(
        key text, id uuid, expires_ms bigint, kept_ms bigint, preview bytea)
      join {s}.mailbox m on m.key = r.key
    ), new_kept as (
      insert into {s}.kept (mailbox_no, id, expires_ms, kept_ms, preview)
      select no, id, expires_ms, kept_ms, preview from given
    )
    select count(*) into copied from given;
  elsif p_kind = 'claim' then
    insert into {s}.claim select * from json_populate_recordset(null::{s}.claim, rows) on conflict do nothing;
  else
    insert into {s}.receipt select * from json_populate_recordset(null::{s}.receipt, rows);
  end if;
  return {s}.end_write(p_writer, p_seq, json_build_array(json_array_length(rows)));
end $$;

------------------------------------------------------------------------------------------------------------- mailboxes

create function {s}.open_boxes(p_keys text[]) returns void language plpgsql as $$
declare
  locked bigint;
begin
  loop
    insert into {s}.mailbox (key)
      select k from unnest(p_keys) k left join {s}.mailbox m on m.key = k
      where m.key is null order by k collate "C"
      on conflict do nothing;
    perform 1 from {s}.mailbox m where m.key = any (p_keys) order by m.key for update;
    get diagnostics locked = row_count;
    -- An idle mailbox may have been dropped between the two.
    exit when locked >= cardinality(p_keys);
  end loop;
end $$;
-- Whether nothing is active, as far as the sums know: not where a clock that was ahead has come back.
create function {s}.is_empty(p_entries bigint, p_settled bigint, p_at bigint) returns boolean
language sql immutable as $$
  select p_entries = 0 and p_settled <= p_at
$$;
-- Takes what has expired at a time out of the sums of mailboxes, whose rows are locked.
create function {s}.settle(p_nos bigint[], p_at bigint) returns void language plpgsql as $$
begin
  update {s}.share s set entries = s.entries - over.entries, bytes = s.bytes - over.bytes
  from (
    select b.no, label, count(*) as entries, sum(h.size) as bytes
    from {s}.mailbox b
    join {s}.held h on h.mailbox_no = b.no and h.expires_ms > b.settled_ms and h.expires_ms <= p_at
    cross join unnest(h.labels) label
    where b.no = any (p_nos) and b.settled_ms < p_at and b.counted
    group by b.no, label
  ) over
  where s.mailbox_no = over.no and s.label = over.label;
  update {s}.mailbox m
  set entries = m.entries - over.entries, bytes = m.bytes - over.bytes, settled_ms = p_at
  from (
    select b.no, count(h.id) as entries, coalesce(sum(h.size), 0) as bytes
    from {s}.mailbox b
    left join {s}.held h on h.mailbox_no = b.no and h.expires_ms > b.settled_ms and h.expires_ms <= p_at
    where b.no = any (p_nos) and b.settled_ms < p_at
    group by b.no
  ) over
  where m.no = over.no;
end $$;
-- Sums by label are kept from the eighth entry of a mailbox on, until it is empty. What has expired is taken out first.
create function {s}.count_labels(p_keys text[], p_at bigint) returns void language plpgsql as $$
declare
  emptied bigint[] := array(
    select m.no from {s}.mailbox m where m.key = any (p_keys) and m.counted and m.entries = 0);
  over bigint[] := array(
    select m.no from {s}.mailbox m where m.key = any (p_keys) and (m.counted or m.entries >= 8)
      and m.settled_ms < p_at and m.soonest_ms <= p_at);
  fresh bigint[];
begin
  if cardinality(emptied) > 0 then
    delete from {s}.share s where s.mailbox_no = any (emptied);
    update {s}.mailbox m set counted = false where m.no = any (emptied);
  end if;
  if cardinality(over) > 0 then
    perform {s}.settle(over, p_at);
    update {s}.mailbox m set soonest_ms = coalesce(
      (select min(h.expires_ms) from {s}.held h where h.mailbox_no = m.no and h.expires_ms > p_at), m.soonest_ms)
    where m.no = any (over);
  end if;
  fresh := array(
    select m.no from {s}.mailbox m where m.key = any (p_keys) and not m.counted and m.entries >= 8);
  if cardinality(fresh) > 0 then
    insert into {s}.share (mailbox_no, label, entries, bytes)
    select m.no, label, count(*), sum(h.size)
    from {s}.mailbox m
    join {s}.held h on h.mailbox_no = m.no and h.expires_ms > m.settled_ms
    cross join unnest(h.labels) label
    where m.no = any (fresh) and label not like 'via:%'
    group by m.no, label;
    update {s}.mailbox m set counted = true where m.no = any (fresh);
  end if;
end $$;
-- As in mailbox-rules.ts.
create function {s}.author_in(p_labels text[]) returns text language sql immutable as $$
  select label from unnest(p_labels) label where label like 'from:%' limit 1
$$;
-- Whether a place has room for one more entry. The sums of the mailbox bound those of its labels: while no more waits than
-- the sender's part, no sum of a label is read.
create function {s}.has_room(
  p_box bigint, p_counted boolean, p_at bigint, p_size bigint, p_entries bigint, p_bytes bigint, p_place {s}.room
) returns boolean language plpgsql stable as $$
declare
  held record;
begin
  if p_size > least(p_place.own_bytes, p_place.pool_bytes) then
    return false;
  end if;
  if p_entries < least(p_place.own_entries, p_place.pool_entries)
    and p_bytes + p_size <= least(p_place.own_bytes, p_place.pool_bytes)
    and (not p_place.is_rest or (2 * p_entries <= p_place.pool_entries and 2 * p_bytes <= p_place.pool_bytes)) then
    return true;
  end if;
  if p_counted then
    select coalesce(max(s.entries) filter (where s.label = p_place.pool), 0) as entries,
      coalesce(max(s.bytes) filter (where s.label = p_place.pool), 0) as bytes,
      coalesce(max(s.entries) filter (where s.label = p_place.own), 0) as own_entries,
      coalesce(max(s.bytes) filter (where s.label = p_place.own), 0) as own_bytes
    into held from {s}.share s where s.mailbox_no = p_box and s.label in (p_place.pool, p_place.own);
  else
    select count(*) filter (where p_place.pool = any (h.labels)) as entries,
      coalesce(sum(h.size) filter (where p_place.pool = any (h.labels)), 0) as bytes,
      count(*) filter (where p_place.own = any (h.labels)) as own_entries,
      coalesce(sum(h.size) filter (where p_place.own = any (h.labels)), 0) as own_bytes
    into held from {s}.held h where h.mailbox_no = p_box and h.expires_ms > p_at;
  end if;
  return held.entries < p_place.pool_entries and held.bytes + p_size <= p_place.pool_bytes
    and held.own_entries < p_place.own_entries and held.own_bytes + p_size <= p_place.own_bytes
    and (not p_place.is_rest or (held.own_entries <= p_place.pool_entries - held.entries
      and held.own_bytes <= p_place.pool_bytes - held.bytes));
end $$;
-- The place that an entry takes: 1 or 2, 0 where none has room; null for an entry without places.
create function {s}.place_taken(
  p_box bigint, p_counted boolean, p_at bigint, p_size bigint, p_entries bigint, p_bytes bigint,
  p_first {s}.room, p_second {s}.room
) returns integer language sql stable as $$
  select case
    when (p_first).pool is null then null
    when {s}.has_room(p_box, p_counted, p_at, p_size, p_entries, p_bytes, p_first) then 1
    when (p_second).pool is null then 0
    when {s}.has_room(p_box, p_counted, p_at, p_size, p_entries, p_bytes, p_second) then 2
    else 0
  end
$$;
create function {s}.labels_at(p_labels text[], p_place {s}.room) returns text[] language sql immutable as $$
  select coalesce(p_labels, '{}')
    || array(select label from unnest(array[(p_place).own, (p_place).pool]) label
      where label <> all (coalesce(p_labels, '{}')))
$$;
-- Entries of one mailbox have different rounds; a round decides and writes one entry of each mailbox.
create function {s}.store_round(
  p_writer uuid, p_entries {s}.entry[], p_round integer, p_bytes bytea, p_store_entries bigint, p_store_bytes bigint
) returns json language plpgsql as $$
declare
  span bigint := (select tally_ms from {s}.meta);
  answers json;
begin
  with given as materialized (
    select e.*, m.no, m.entries, m.bytes, m.settled_ms, m.last_arrival, m.counted,
      known.until as known_until, known.same, known.author
    from unnest(p_entries) e join {s}.mailbox m on m.key = e.box
    left join lateral (
      (select h.expires_ms as until, h.digest = e.digest as same, {s}.author_in(h.labels) as author
        from {s}.held h
        where h.mailbox_no = m.no and h.id = e.id and h.expires_ms > e.at limit 1)
      union all
      (select a.expires_ms, a.digest = e.digest, {s}.author_in(a.labels)
        from {s}.acked a
        where a.mailbox_no = m.no and a.id = e.id and a.expires_ms > e.at limit 1)
      limit 1
    ) known on true
    where e.round = p_round
  ), decided as materialized (
    select g.*,
      case
        when g.known_until is not null then 'duplicate'
        when g.group_id is not null and exists (
          select 1 from {s}.held h
          where h.mailbox_no = g.no and h.group_id = g.group_id and h.expires_ms > g.at
            and (h.total <> g.total or h.sequence = g.sequence)
        ) then 'chunk_conflict'
        when g.entries + 1 > g.entries_max or g.bytes + g.size > g.bytes_max then 'recipient'
      end as refusal,
      {s}.place_taken(g.no, g.counted, g.at, g.size, g.entries, g.bytes, g.first_place, g.second_place) as room
    from given g
  ), summed as materialized (
    select d.*, greatest(d.last_arrival + 1, least(d.at, 4398046511104) * 1024) as arrival,
      count(*) filter (where d.refusal is null and d.room is distinct from 0) over before as entries_before,
      coalesce(sum(d.size) filter (where d.refusal is null and d.room is distinct from 0) over before, 0) as bytes_before
    from decided d
    window before as (order by d.n)
  ), final as materialized (
    select s.*,
      case
        when s.refusal is not null then s.refusal
        when s.room = 0 then 'pool'
        when p_store_entries + s.entries_before > s.store_entries_max
          or p_store_bytes + s.bytes_before > s.store_bytes_max then 'store'
        else 'stored'
      end as outcome,
      case s.room
        when 1 then {s}.labels_at(s.labels, s.first_place)
        when 2 then {s}.labels_at(s.labels, s.second_place)
        else s.labels
      end as all_labels
    from summed s
  ), new_held as (
    insert into {s}.held
      (mailbox_no, arrival, id, expires_ms, size, group_id, sequence, total, labels, digest, envelope)
    select no, arrival, id, expires, size, group_id, sequence, total, all_labels, digest,
      substring(p_bytes from start for size)
    from final where outcome = 'stored'
  ), new_shares as (
    insert into {s}.share as s (mailbox_no, label, entries, bytes)
    select f.no, label, 1, f.size from final f cross join unnest(f.all_labels) label
    where f.outcome = 'stored' and f.counted and f.expires > f.settled_ms and label not like 'via:%'
    on conflict (mailbox_no, label) do update
      set entries = s.entries + 1, bytes = s.bytes + excluded.bytes
  ), new_kept as (
    insert into {s}.kept (mailbox_no, id, expires_ms, kept_ms, preview)
    select no, id, expires, kept, preview from final where outcome = 'stored' and kept > expires
  ), new_sums as (
    update {s}.mailbox m
    set entries = m.entries + case when f.expires > m.settled_ms then 1 else 0 end,
      bytes = m.bytes + case when f.expires > m.settled_ms then f.size else 0 end,
      last_arrival = f.arrival,
      soonest_ms = case when {s}.is_empty(m.entries, m.settled_ms, f.at) then f.expires else least(m.soonest_ms, f.expires) end,
      latest_ms = case when {s}.is_empty(m.entries, m.settled_ms, f.at) then f.expires else greatest(m.latest_ms, f.expires) end,
      until_ms = greatest(m.until_ms, f.expires, f.kept)
    from final f where m.no = f.no and f.outcome = 'stored'
  ), new_tally as (
    insert into {s}.tally as t (upper_ms, writer, entries, bytes)
    select (expires + span - 1) / span * span, p_writer, count(*), sum(size) from final where outcome = 'stored'
    group by 1 order by 1
    on conflict (upper_ms, writer) do update
      set entries = t.entries + excluded.entries, bytes = t.bytes + excluded.bytes
  )
  select json_agg(json_build_array(n, outcome, known_until,
    case when room = 0 then coalesce((second_place).pool, (first_place).pool) end, case when outcome = 'stored' then size end, same,
    author))
  into answers from final;
  return answers;
end $$;
-- A new life of an id replaces what an earlier one left.
create function {s}.drop_earlier(p_entries {s}.entry[]) returns void language plpgsql as $$
begin
  with gone as (
    delete from {s}.held h using unnest(p_entries) e, {s}.mailbox m
    where m.key = e.box and h.mailbox_no = m.no and h.id = e.id and h.expires_ms <= e.at
    returning h.mailbox_no, h.expires_ms, h.size, h.labels
  ), uncounted as materialized (
    select gone.* from gone join {s}.mailbox b on b.no = gone.mailbox_no and gone.expires_ms > b.settled_ms
  ), new_shares as (
    update {s}.share s set entries = s.entries - u.entries, bytes = s.bytes - u.bytes
    from (
      select mailbox_no, label, count(*) as entries, sum(size) as bytes
      from uncounted cross join unnest(labels) label group by mailbox_no, label
    ) u
    where s.mailbox_no = u.mailbox_no and s.label = u.label
  )
  update {s}.mailbox m set entries = m.entries - g.entries, bytes = m.bytes - g.bytes
  from (
    select mailbox_no, count(*) as entries, sum(size) as bytes from uncounted group by mailbox_no
  ) g
  where m.no = g.mailbox_no;
  delete from {s}.acked a using unnest(p_entries) e, {s}.mailbox m
    where m.key = e.box and a.mailbox_no = m.no and a.id = e.id and a.expires_ms <= e.at;
  delete from {s}.kept k using unnest(p_entries) e, {s}.mailbox m
    where m.key = e.box and k.mailbox_no = m.no and k.id = e.id and k.expires_ms <= e.at;
end $$;
create function {s}.store(
  p_writer uuid, p_seq bigint, p_given text, p_bytes bytea, p_store_entries bigint, p_store_bytes bigint
) returns json language plpgsql as $$
declare
  done json := {s}.begin_write(p_writer, p_seq);
  given {s}.entry[];
  boxes text[];
  ends bigint[];
  kept_ends bigint[];
  nearly_full bigint[];
  earlier integer[];
  answers json[] := '{}';
  round_answers json;
  store_entries bigint := p_store_entries;
  store_bytes bigint := p_store_bytes;
begin
  if done is not null then
    return done;
  end if;
  given := array(select e from json_populate_recordset(null::{s}.entry, p_given::json) e order by e.n);
  perform {s}.check_time((select max(e.at) from unnest(given) e));
  select array_agg(distinct e.box), array_agg(distinct e.expires), array_agg(distinct e.kept) filter (where e.kept > e.expires)
    into boxes, ends, kept_ends from unnest(given) e;
  perform {s}.check_places(array(select distinct {s}.place_of(b) from unnest(boxes) b));
  perform {s}.ensure_parts('{acked,held}', ends);
  perform {s}.ensure_parts('{kept}', kept_ends);
  perform {s}.open_boxes(boxes);
  perform {s}.count_labels(boxes, (select max(e.at) from unnest(given) e));
  -- The sums of a mailbox may count what has expired; that matters only where they reach a quota.
  nearly_full := array(
    select m.no from {s}.mailbox m join (
      select e.box, count(*) as entries, sum(e.size) as bytes, min(e.entries_max) as entries_max,
        min(e.bytes_max) as bytes_max
      from unnest(given) e group by e.box
    ) b on b.box = m.key
    where m.entries + b.entries > b.entries_max or m.bytes + b.bytes > b.bytes_max);
  if cardinality(nearly_full) > 0 then
    perform {s}.settle(nearly_full, (select max(e.at) from unnest(given) e));
  end if;
  earlier := array(
    select e.n from unnest(given) e join {s}.mailbox m on m.key = e.box
    where exists (select 1 from {s}.held h where h.mailbox_no = m.no and h.id = e.id and h.expires_ms <= e.at)
      or exists (select 1 from {s}.acked a where a.mailbox_no = m.no and a.id = e.id and a.expires_ms <= e.at)
      or exists (select 1 from {s}.kept k where k.mailbox_no = m.no and k.id = e.id and k.expires_ms <= e.at));
  for r in 0 .. (select max(e.round) from unnest(given) e) loop
    round_answers := {s}.store_round(p_writer, given, r, p_bytes, store_entries, store_bytes);
    answers := answers || array(select json_array_elements(round_answers));
    select store_entries + count(*), store_bytes + coalesce(sum((a ->> 4)::bigint), 0)
      into store_entries, store_bytes
      from json_array_elements(round_answers) a where a ->> 1 = 'stored';
  end loop;
  if cardinality(earlier) > 0 then
    perform {s}.drop_earlier(array(
      select e from unnest(given) e join unnest(answers) a on (a ->> 0)::integer = e.n
      where a ->> 1 = 'stored' and e.n = any (earlier)));
  end if;
  return {s}.end_write(p_writer, p_seq, array_to_json(answers));
end $$;
-- Entries with a tag are removed only when its claim succeeds; of several with one tag, the first does.
create function {s}.claim_and_remove(p_writer uuid, p_seq bigint, p_given text) returns json language plpgsql as $$
declare
  done json := {s}.begin_write(p_writer, p_seq);
  span bigint := (select tally_ms from {s}.meta);
  given {s}.removal[] := array(select g from json_populate_recordset(null::{s}.removal, p_given::json) g);
  replayed integer[] := '{}';
begin
  if done is not null then
    return done;
  end if;
  perform {s}.check_time((select max(g.at) from unnest(given) g));
  perform {s}.check_places(array(select distinct {s}.place_of(g.box) from unnest(given) g));
  with tagged as materialized (
    select distinct on (g.tag) g.tag, g.n, g.until, g.at, {s}.place_of(g.box) as place from unnest(given) g
    where g.tag is not null order by g.tag, g.n
  ), won as (
    insert into {s}.claim as c (tag, until_ms, at_ms, place) select tag, until, at, place from tagged order by tag
    on conflict (tag) do update
      set until_ms = excluded.until_ms, at_ms = excluded.at_ms, place = excluded.place
      where c.until_ms <= excluded.at_ms
    returning c.tag
  )
  select coalesce(array_agg(g.n), '{}') into replayed from unnest(given) g
  where g.tag is not null and g.n not in (select t.n from tagged t join won using (tag));
  perform 1 from {s}.mailbox m where m.key in (select g.box from unnest(given) g) order by m.key for update;
  with asked as materialized (
    select g.n, g.at, m.no, m.settled_ms, unnest(g.ids) as id
    from unnest(given) g join {s}.mailbox m on m.key = g.box and g.n <> all (replayed)
  ), gone as (
    delete from {s}.held h using asked g
    where h.mailbox_no = g.no and h.id = g.id and h.expires_ms > g.at
    returning g.n, g.settled_ms, h.mailbox_no, h.id, h.expires_ms, h.size, h.labels,
      h.digest
  ), new_acked as (
    insert into {s}.acked (mailbox_no, id, expires_ms, digest, labels)
    select mailbox_no, id, expires_ms, digest,
      case when {s}.author_in(labels) is not null then array[{s}.author_in(labels)] end
    from gone
  ), new_shares as (
    update {s}.share s set entries = s.entries - g.entries, bytes = s.bytes - g.bytes
    from (
      select mailbox_no, label, count(*) as entries, sum(size) as bytes
      from gone cross join unnest(labels) label where expires_ms > settled_ms group by mailbox_no, label
    ) g
    where s.mailbox_no = g.mailbox_no and s.label = g.label
  ), gone_kept as (
    delete from {s}.kept k using gone g where k.mailbox_no = g.mailbox_no and k.id = g.id
  ), new_sums as (
    update {s}.mailbox m set entries = m.entries - g.entries, bytes = m.bytes - g.bytes
    from (
      select mailbox_no, count(*) as entries, sum(size) as bytes from gone where expires_ms > settled_ms
      group by mailbox_no
    ) g
    where m.no = g.mailbox_no
  ), new_tally as (
    insert into {s}.tally as t (upper_ms, writer, entries, bytes)
    select (expires_ms + span - 1) / span * span, p_writer, -count(*), -sum(size) from gone group by 1 order by 1
    on conflict (upper_ms, writer) do update
      set entries = t.entries + excluded.entries, bytes = t.bytes + excluded.bytes
  )
  select coalesce(json_agg(json_build_array(n, id, labels, size)), '[]') into done from gone;
  return {s}.end_write(p_writer, p_seq, json_build_object('replayed', replayed, 'gone', done));
end $$;

-- Each read checks the place first.
create function {s}.read(p_key text, p_ids uuid[], p_now bigint) returns table (
  id uuid, expires_ms bigint, group_id uuid, sequence bigint, total bigint, envelope bytea
) language plpgsql stable as $$
declare
  box bigint := {s}.box_no(p_key);
begin
  return query select h.id, h.expires_ms, h.group_id, h.sequence, h.total, h.envelope
    from {s}.held h where h.mailbox_no = box and h.id = any (p_ids) and h.expires_ms > p_now;
end $$;
create function {s}.message(p_key text, p_id uuid, p_now bigint) returns table (
  state text, id uuid, expires_ms bigint, group_id uuid, sequence bigint, total bigint, envelope bytea, preview bytea
) language plpgsql stable as $$
declare
  box bigint := {s}.box_no(p_key);
begin
  return query
    select 'active', h.id, h.expires_ms, h.group_id, h.sequence, h.total, h.envelope, null::bytea
      from {s}.held h where h.mailbox_no = box and h.id = p_id and h.expires_ms > p_now
    union all
    select 'acked', a.id, a.expires_ms, null, null, null, null, null
      from {s}.acked a where a.mailbox_no = box and a.id = p_id and a.expires_ms > p_now
    union all
    select 'expired', k.id, k.expires_ms, null, null, null, null, k.preview
      from {s}.kept k where k.mailbox_no = box and k.id = p_id and k.expires_ms <= p_now and k.kept_ms > p_now
    limit 1;
end $$;
create function {s}.known(p_key text, p_id uuid, p_now bigint) returns table (
  expires_ms bigint, digest bytea, author text
) language plpgsql stable as $$
declare
  box bigint := {s}.box_no(p_key);
begin
  return query
    select h.expires_ms, h.digest, {s}.author_in(h.labels) from {s}.held h
      where h.mailbox_no = box and h.id = p_id and h.expires_ms > p_now
    union all
    select a.expires_ms, a.digest, {s}.author_in(a.labels) from {s}.acked a
      where a.mailbox_no = box and a.id = p_id and a.expires_ms > p_now
    limit 1;
end $$;
create function {s}.chunks(p_key text, p_group uuid, p_now bigint) returns table (
  id uuid, expires_ms bigint, group_id uuid, sequence bigint, total bigint, size integer, place bigint, labels text[]
) language plpgsql stable as $$
declare
  box bigint := {s}.box_no(p_key);
begin
  return query select h.id, h.expires_ms, h.group_id, h.sequence, h.total, h.size, h.arrival, h.labels
    from {s}.held h where h.mailbox_no = box and h.group_id = p_group and h.expires_ms > p_now order by h.sequence;
end $$;
-- A row without an id says that more follow.
create function {s}.page(
  p_key text, p_after bigint, p_now bigint, p_entries bigint, p_bytes bigint, p_envelopes boolean
) returns table (
  id uuid, expires_ms bigint, group_id uuid, sequence bigint, total bigint, size integer, place bigint,
  labels text[], envelope bytea
) language plpgsql stable as $$
declare
  box record;
  n bigint := 0;
  bytes bigint := 0;
begin
  select m.*, {s}.is_empty(m.entries, m.settled_ms, p_now) as is_empty into box
    from {s}.place p left join {s}.mailbox m on m.key = p_key
    where p.no = {s}.place_of(p_key) and p.state in ('here', 'leaving');
  if not found then
    raise exception 'the place is not here' using errcode = 'WP002';
  end if;
  if box.no is null or box.is_empty or box.last_arrival <= p_after then
    return;
  end if;
  for id, expires_ms, group_id, sequence, total, size, place, labels, envelope in
    select h.id, h.expires_ms, h.group_id, h.sequence, h.total, h.size, h.arrival,
      case when not p_envelopes then h.labels end, case when p_envelopes then h.envelope end
    from {s}.held h
    where h.mailbox_no = box.no and h.arrival > p_after and h.expires_ms > p_now
      and h.expires_ms >= box.soonest_ms and h.expires_ms <= box.latest_ms
    order by h.arrival limit p_entries + 1
  loop
    n := n + 1;
    bytes := bytes + size;
    if n > p_entries or (n > 1 and bytes > p_bytes) then
      id := null;
      envelope := null;
      return next;
      return;
    end if;
    return next;
  end loop;
end $$;

---------------------------------------------------------------------------------------------------- claims and receipts

create function {s}.claim_tags(p_writer uuid, p_seq bigint, p_given text) returns json language plpgsql as $$
declare
  done json := {s}.begin_write(p_writer, p_seq);
begin
  if done is not null then
    return done;
  end if;
  perform {s}.check_time((select max(g.at) from json_to_recordset(p_given::json) as g(at bigint)));
  perform {s}.check_places(array(
    select distinct g.place from json_to_recordset(p_given::json) as g(place integer)));
  with won as (
    insert into {s}.claim as c (tag, until_ms, at_ms, place)
    select decode(g.tag, 'hex'), g.until, g.at, g.place
    from json_to_recordset(p_given::json) as g(tag text, until bigint, at bigint, place integer)
    order by 1
    on conflict (tag) do update
      set until_ms = excluded.until_ms, at_ms = excluded.at_ms, place = excluded.place
      where c.until_ms <= excluded.at_ms
    returning encode(c.tag, 'hex') as tag
  )
  select coalesce(json_agg(tag), '[]') into done from won;
  return {s}.end_write(p_writer, p_seq, done);
end $$;
create function {s}.expire_claims(p_now bigint, p_limit integer) returns integer language plpgsql as $$
declare
  -- Nodes may be 5 s behind this clock, or behind that of the database which a place came from, and that one as much.
  ended bigint := least(p_now, {s}.clock_ms() - 15000);
  freed integer;
begin
  delete from {s}.claim where ctid = any (array(select ctid from {s}.claim
    where until_ms <= ended order by until_ms limit p_limit for update skip locked));
  get diagnostics freed = row_count;
  return freed;
end $$;
create function {s}.expire_receipts(p_now bigint, p_limit integer) returns integer language plpgsql as $$
declare
  ended bigint := least(p_now, {s}.clock_ms());
  freed integer;
begin
  delete from {s}.receipt where ctid = any (array(select ctid from {s}.receipt
    where until_ms <= ended order by until_ms limit p_limit for update skip locked));
  get diagnostics freed = row_count;
  return freed;
end $$;
create function {s}.receipt_of(p_key bytea, p_now bigint) returns bytea language plpgsql stable as $$
begin
  perform {s}.check_here({s}.place_of(p_key));
  return (select r.value from {s}.receipt r where r.key = p_key and r.until_ms > p_now);
end $$;
create function {s}.scan(p_first bytea, p_end bytea, p_after bytea, p_now bigint, p_limit bigint)
returns table (key bytea, value bytea) language plpgsql stable as $$
begin
  perform {s}.check_here({s}.place_of(p_first));
  return query select r.key, r.value from {s}.receipt r
    where r.key >= p_first and r.key < p_end and r.key > p_after and r.until_ms > p_now order by r.key limit p_limit;
end $$;
-- Returns key and value for each key that another value excludes.
create function {s}.write_receipts(p_writer uuid, p_seq bigint, p_given text, p_bytes bytea)
returns json language plpgsql as $$
declare
  done json := {s}.begin_write(p_writer, p_seq);
  given {s}.writing[] := array(select g from json_populate_recordset(null::{s}.writing, p_given::json) g);
  written bytea[];
begin
  if done is not null then
    return done;
  end if;
  perform {s}.check_time((select max(g.at) from unnest(given) g));
  perform {s}.check_places(array(select distinct {s}.place_of(g.key) from unnest(given) g));
  -- Rows are locked in the order of their keys, whatever happens to them.
  perform 1 from {s}.receipt r where r.key in (select g.key from unnest(given) g) order by r.key for update;
  delete from {s}.receipt r using unnest(given) g where r.key = g.key and g.how = 'remove'
    and (g.size is null or r.value = substring(p_bytes from g.start for g.size));
  with wanted as materialized (
    select g.key, g.how, g.until, g.at, substring(p_bytes from g.start for g.size) as value
    from unnest(given) g where g.how <> 'remove' order by 1
  ), won as (
    insert into {s}.receipt as r (key, value, until_ms, at_ms)
    select key, value, until, case how when 'put' then 9223372036854775807 else at end from wanted order by key
    on conflict (key) do update set value = excluded.value, until_ms = excluded.until_ms, at_ms = 0
      where r.until_ms <= excluded.at_ms
    returning r.key
  )
  select coalesce(array_agg(key), '{}') into written from won;
  -- Another statement, because a row that another node inserted meanwhile is not in the snapshot of the one before.
  select coalesce(json_agg(json_build_array(encode(g.key, 'hex'), encode(r.value, 'base64'))), '[]') into done
  from unnest(given) g join {s}.receipt r on r.key = g.key
  where g.how <> 'remove' and r.key <> all (written);
  return {s}.end_write(p_writer, p_seq, done);
end $$;

------------------------------------------------------------------------------------------------------------ partitions

-- A partition holds what ends after `upper - partition_ms` and not after `upper`.
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
-- Makes the partitions of what a write stores. Their lock comes before those of mailboxes.
create function {s}.ensure_parts(p_kinds text[], p_ends bigint[]) returns void language plpgsql as $$
declare
  span bigint := (select partition_ms from {s}.meta);
  ends bigint;
  upper bigint;
  new_kind text;
  seen bigint[] := '{}';
begin
  foreach ends in array coalesce(p_ends, '{}') loop
    upper := (ends + span - 1) / span * span;
    continue when upper = any (seen);
    seen := seen || upper;
    foreach new_kind in array p_kinds loop
      perform 1 from {s}.part p where p.kind = new_kind and p.upper_ms = upper;
      if not found then
        perform {s}.add_part(new_kind, upper);
      end if;
    end loop;
  end loop;
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
create function {s}.expire(p_now bigint, p_grace bigint, p_limit integer) returns integer language plpgsql as $$
declare
  ended bigint := least(p_now, {s}.clock_ms()) - p_grace;
  due record;
  nos bigint[];
  freed integer := 0;
  patience text := current_setting('lock_timeout');
begin
  if not pg_try_advisory_xact_lock(hashtextextended('{s}', 2)) then
    return 0;
  end if;
  -- Acknowledged ids go after the messages that may still become such.
  for due in
    select kind, upper_ms, settled_no from {s}.part where upper_ms <= ended order by upper_ms, kind desc
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
    -- A table in use is dropped at the next call: statements must not wait for long behind the lock that it needs.
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
  delete from {s}.tally where upper_ms <= ended;
  return freed;
end $$;
-- Drops empty mailboxes from a number on; returns the number to go on from, or null at the end.
create function {s}.drop_idle(
  p_after bigint, p_now bigint, p_idle_ms bigint, p_limit integer
) returns bigint language plpgsql as $$
declare
  before bigint := least(p_now, {s}.clock_ms()) - p_idle_ms;
  last bigint;
begin
  select max(no) into last from (select no from {s}.mailbox where no > p_after order by no limit p_limit) page;
  with gone as (
    delete from {s}.mailbox where no in (
      select no from {s}.mailbox where no > p_after and no <= last and until_ms < before for update skip locked)
    returning no
  )
  delete from {s}.share where mailbox_no in (select no from gone);
  delete from {s}.writer where used_at < now() - interval '7 days';
  return last;
end $$;
