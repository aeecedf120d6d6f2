/**
 * The functions of replay claims and receipts, and of the partitions. Claims and receipts are decided by
 * their primary keys: an insert that meets a row waits for it, in the order of keys.
 */

const claims = `
create function {s}.claim_tags(p_writer uuid, p_seq bigint, p_given text) returns json language plpgsql as $$
declare
  done json := {s}.begin_write(p_writer, p_seq);
begin
  if done is not null then
    return done;
  end if;
  with won as (
    insert into {s}.claim as c (tag, until_ms, at_ms)
    select decode(g.tag, 'hex'), g.until, g.at
    from json_to_recordset(p_given::json) as g(tag text, until bigint, at bigint) order by 1
    on conflict (tag) do update set until_ms = excluded.until_ms, at_ms = excluded.at_ms
      where c.until_ms <= excluded.at_ms
    returning encode(c.tag, 'hex') as tag
  )
  select coalesce(json_agg(tag), '[]') into done from won;
  return {s}.end_write(p_writer, p_seq, done);
end $$;
create function {s}.write_receipts(p_writer uuid, p_seq bigint, p_given text, p_bytes bytea)
returns json language plpgsql as $$
declare
  done json := {s}.begin_write(p_writer, p_seq);
begin
  if done is not null then
    return done;
  end if;
  -- Rows are locked in the order of their keys, whatever happens to them.
  perform 1 from {s}.receipt r where r.key in (
    select decode(g.key, 'hex') from json_to_recordset(p_given::json) as g(key text)) order by r.key for update;
  delete from {s}.receipt r using json_to_recordset(p_given::json) as g(key text, how text)
    where r.key = decode(g.key, 'hex') and g.how = 'remove';
  with given as materialized (
    select decode(g.key, 'hex') as key, g.how, g.until, g.at, substring(p_bytes from g.start for g.size) as value
    from json_to_recordset(p_given::json) as g(key text, how text, until bigint, at bigint, start integer, size integer)
    where g.how <> 'remove' order by 1
  ), won as (
    insert into {s}.receipt as r (key, value, until_ms, at_ms)
    select key, value, until, case how when 'put' then 9223372036854775807 else at end from given order by key
    on conflict (key) do update set value = excluded.value, until_ms = excluded.until_ms, at_ms = 0
      where r.until_ms <= excluded.at_ms
    returning r.key
  )
  select coalesce(json_agg(json_build_array(encode(g.key, 'hex'), encode(r.value, 'base64'))), '[]') into done
  from given g join {s}.receipt r on r.key = g.key
  where not exists (select 1 from won w where w.key = g.key);
  return {s}.end_write(p_writer, p_seq, done);
end $$;
`;

/** A partition holds what is over after \`upper - partition_ms\` and not after \`upper\`. */
const partitions = `
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
create function {s}.expire(p_now bigint, p_grace bigint, p_limit integer) returns integer language plpgsql as $$
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
      nos := {s}.settle_part(due.upper_ms, due.settled_no, p_limit - freed);
      freed := freed + cardinality(nos);
      update {s}.part set settled_no = coalesce((select max(n) from unnest(nos) n), settled_no)
        where kind = due.kind and upper_ms = due.upper_ms;
      -- Locks on mailboxes and on a whole partition are never held together.
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
create function {s}.expire_records(p_table text, p_now bigint, p_limit integer) returns integer language plpgsql as $$
declare
  freed integer;
begin
  execute format('delete from {s}.%I where ctid = any (array(select ctid from {s}.%I
    where until_ms <= $1 order by until_ms limit $2 for update skip locked))', p_table, p_table)
    using p_now, p_limit;
  get diagnostics freed = row_count;
  return freed;
end $$;
-- Mailboxes of which nothing is left, from a number on; answers the number to go on from, or null at the end.
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

export const recordFunctions = claims + partitions;
