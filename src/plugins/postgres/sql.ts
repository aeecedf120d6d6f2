/**
 * The functions of the schema that mailboxes, claims and receipts call: one call does all the operations that arrived in
 * one turn of a node, in one transaction. Rows of `mailbox` are the locks, always acquired in the order of their keys, so
 * calls of several nodes wait for each other and never in a circle. Decisions use only what is read after the locks.
 */

/** Begins a write: answers its outcome if it was committed before, else null. The row lock waits for a lost copy of it. */
const writes = `
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
  update {s}.writer set seq = p_seq, outcome = p_outcome, used_at = clock_timestamp() where id = p_writer;
  return p_outcome;
end $$;
`;

const boxes = `
create function {s}.open_boxes(p_keys text[]) returns void language plpgsql as $$
declare
  locked bigint;
begin
  loop
    insert into {s}.mailbox (key)
      select k from unnest(p_keys) k
      where not exists (select 1 from {s}.mailbox m where m.key = k) order by k collate "C"
      on conflict do nothing;
    perform 1 from {s}.mailbox m where m.key = any (p_keys) order by m.key for update;
    get diagnostics locked = row_count;
    -- An idle mailbox may have been dropped between the two.
    exit when locked >= cardinality(p_keys);
  end loop;
end $$;
-- Takes what is over at a time out of the sums of mailboxes, whose rows are locked.
create function {s}.settle(p_nos bigint[], p_at bigint) returns void language plpgsql as $$
begin
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
`;

const entryType = `
create type {s}.entry as (
  n integer, round integer, box text, id uuid, at bigint, expires bigint, kept bigint, size integer, start integer,
  group_id uuid, sequence bigint, total bigint, labels text[], preview bytea,
  entries_max bigint, bytes_max bigint, shares json, store_entries_max bigint, store_bytes_max bigint
);
`;

/** Since version 2: shares that shrink. Arguments of nodes of version 1 keep their meaning. */
export const storeRound = `
-- Entries of one mailbox have different rounds; a round decides and writes one entry of each mailbox.
create or replace function {s}.store_round(
  p_writer uuid, p_entries {s}.entry[], p_round integer, p_bytes bytea, p_store_entries bigint, p_store_bytes bigint
) returns json language plpgsql as $$
declare
  span bigint := (select tally_ms from {s}.meta);
  answers json;
begin
  with given as materialized (
    select e.*, m.no, m.entries, m.bytes, m.settled_ms, m.last_arrival,
      known.until as known_until, known.digest as known_digest, known.arrival as known_arrival
    from unnest(p_entries) e join {s}.mailbox m on m.key = e.box
    left join lateral (
      (select h.expires_ms as until, h.digest, h.arrival from {s}.held h
        where h.mailbox_no = m.no and h.id = e.id and h.expires_ms > e.at limit 1)
      union all
      (select a.expires_ms, a.digest, a.arrival from {s}.acked a
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
      -- The sums of the mailbox bound those of a label, so most entries read no sum of a label. What is left to a
      -- share of a part is at least that part of its limit, less what the mailbox holds.
      (
        select s.label from json_to_recordset(g.shares) as s(
          ord integer, label text, entries bigint, bytes bigint,
          part float8, among text, entries_min bigint, bytes_min bigint)
        where (
          g.entries + 1 > coalesce(floor(s.part * s.entries), s.entries)
          or g.bytes + g.size > coalesce(floor(s.part * s.bytes), s.bytes)
        ) and exists (
          select 1 from (
            select
              count(*) filter (where h.labels @> array[s.label]) as entries,
              coalesce(sum(h.size) filter (where h.labels @> array[s.label]), 0) as bytes,
              count(*) filter (where s.among is null or h.labels @> array[s.among]) as all_entries,
              coalesce(sum(h.size) filter (where s.among is null or h.labels @> array[s.among]), 0) as all_bytes
            from {s}.held h
            where h.mailbox_no = g.no and h.expires_ms > g.at
          ) used
          where used.entries + 1 > coalesce(
              greatest(s.entries_min, floor(s.part * (s.entries - greatest(0, used.all_entries - used.entries)))),
              s.entries)
            or used.bytes + g.size > coalesce(
              greatest(s.bytes_min, floor(s.part * (s.bytes - greatest(0, used.all_bytes - used.bytes)))),
              s.bytes)
        )
        order by s.ord limit 1
      ) as share
    from given g
  ), summed as materialized (
    select d.*, greatest(d.last_arrival + 1, least(d.at, 4398046511104) * 1024) as arrival,
      count(*) filter (where d.refusal is null and d.share is null) over before as entries_before,
      coalesce(sum(d.size) filter (where d.refusal is null and d.share is null) over before, 0) as bytes_before
    from decided d
    window before as (order by d.n)
  ), final as materialized (
    select s.*,
      case
        when s.refusal is not null then s.refusal
        when s.share is not null then 'share'
        when p_store_entries + s.entries_before > s.store_entries_max
          or p_store_bytes + s.bytes_before > s.store_bytes_max then 'store'
        else 'stored'
      end as outcome
    from summed s
  ), new_held as (
    insert into {s}.held
      (mailbox_no, arrival, id, expires_ms, size, group_id, sequence, total, labels, digest, envelope)
    select no, arrival, id, expires, size, group_id, sequence, total, labels, digest,
      substring(p_bytes from start for size)
    from final where outcome = 'stored'
  ), new_kept as (
    insert into {s}.kept (mailbox_no, id, expires_ms, kept_ms, preview)
    select no, id, expires, kept, preview from final where outcome = 'stored' and kept > expires
  ), new_sums as (
    update {s}.mailbox m
    set entries = m.entries + case when f.expires > m.settled_ms then 1 else 0 end,
      bytes = m.bytes + case when f.expires > m.settled_ms then f.size else 0 end,
      last_arrival = f.arrival,
      until_ms = greatest(m.until_ms, f.expires, f.kept)
    from final f where m.no = f.no and f.outcome = 'stored'
  ), new_tally as (
    insert into {s}.tally as t (upper_ms, writer, entries, bytes)
    select (expires + span - 1) / span * span, p_writer, count(*), sum(size) from final where outcome = 'stored'
    group by 1 order by 1
    on conflict (upper_ms, writer) do update
      set entries = t.entries + excluded.entries, bytes = t.bytes + excluded.bytes
  )
  select json_agg(json_build_array(n, outcome, known_until, share, case when outcome = 'stored' then size end,
    encode(known_digest, 'hex'), known_arrival))
  into answers from final;
  return answers;
end $$;
`;

const dropEarlier = `
-- A new life of an id replaces what an earlier one left.
create function {s}.drop_earlier(p_entries {s}.entry[]) returns void language plpgsql as $$
begin
  with gone as (
    delete from {s}.held h using unnest(p_entries) e, {s}.mailbox m
    where m.key = e.box and h.mailbox_no = m.no and h.id = e.id and h.expires_ms <= e.at
    returning h.mailbox_no, h.expires_ms, h.size
  )
  update {s}.mailbox m set entries = m.entries - g.entries, bytes = m.bytes - g.bytes
  from (
    select gone.mailbox_no, count(*) as entries, sum(gone.size) as bytes
    from gone join {s}.mailbox b on b.no = gone.mailbox_no and gone.expires_ms > b.settled_ms
    group by gone.mailbox_no
  ) g
  where m.no = g.mailbox_no;
  delete from {s}.acked a using unnest(p_entries) e, {s}.mailbox m
    where m.key = e.box and a.mailbox_no = m.no and a.id = e.id and a.expires_ms <= e.at;
  delete from {s}.kept k using unnest(p_entries) e, {s}.mailbox m
    where m.key = e.box and k.mailbox_no = m.no and k.id = e.id and k.expires_ms <= e.at;
end $$;
`;

const store = `
create or replace function {s}.store(
  p_writer uuid, p_seq bigint, p_given text, p_bytes bytea, p_store_entries bigint, p_store_bytes bigint
) returns json language plpgsql as $$
declare
  done json := {s}.begin_write(p_writer, p_seq);
  given {s}.entry[];
  nearly_full bigint[];
  earlier {s}.entry[];
  answers json[] := '{}';
  round_answers json;
  store_entries bigint := p_store_entries;
  store_bytes bigint := p_store_bytes;
begin
  if done is not null then
    return done;
  end if;
  given := array(select row(
      e.n, e.round, e.box, e.id, e.at, e.expires, e.kept, e.size, e.start, e.group_id, e.sequence, e.total,
      string_to_array(e.labels, ','), decode(e.preview, 'base64'), e.entries_max, e.bytes_max, e.shares,
      e.store_entries_max, e.store_bytes_max, decode(e.digest, 'hex'))::{s}.entry
    from json_to_recordset(p_given::json) as e(
      n integer, round integer, box text, id uuid, at bigint, expires bigint, kept bigint, size integer,
      start integer, group_id uuid, sequence bigint, total bigint, labels text, preview text, entries_max bigint,
      bytes_max bigint, shares json, store_entries_max bigint, store_bytes_max bigint, digest text)
    order by e.n);
  perform {s}.open_boxes(array(select distinct e.box from unnest(given) e));
  -- The sums of a mailbox may count what is over; that matters only where they reach a quota.
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
    select e from unnest(given) e join {s}.mailbox m on m.key = e.box
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
    perform {s}.drop_earlier(array(select e from unnest(earlier) e join unnest(answers) a
      on (a ->> 0)::integer = e.n and a ->> 1 = 'stored'));
  end if;
  return {s}.end_write(p_writer, p_seq, array_to_json(answers));
end $$;
`;

const removalStart = `(p_writer uuid, p_seq bigint, p_given text) returns json language plpgsql as $$
declare
  done json := {s}.begin_write(p_writer, p_seq);
  span bigint := (select tally_ms from {s}.meta);
  replayed integer[] := '{}';
begin
  if done is not null then
    return done;
  end if;
`;

/** Removes the given entries, except those whose numbers are in `replayed`. */
const removal = `  perform 1 from {s}.mailbox m
    where m.key in (select g.box from json_to_recordset(p_given::json) as g(box text)) order by m.key for update;
  with given as materialized (
    select g.n, g.at, m.no, m.settled_ms, i.id::uuid as id
    from json_to_recordset(p_given::json) as g(n integer, box text, at bigint, ids text)
    join {s}.mailbox m on m.key = g.box and g.n <> all (replayed)
    cross join lateral unnest(string_to_array(g.ids, ',')) i(id)
  ), gone as (
    delete from {s}.held h using given g
    where h.mailbox_no = g.no and h.id = g.id and h.expires_ms > g.at
    returning g.n, g.settled_ms, h.mailbox_no, h.id, h.expires_ms, h.size, h.labels, h.digest, h.arrival
  ), new_acked as (
    insert into {s}.acked (mailbox_no, id, expires_ms, digest, arrival)
    select mailbox_no, id, expires_ms, digest, arrival from gone
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
`;

const remove = `create function {s}.remove${removalStart}${removal}  return {s}.end_write(p_writer, p_seq, done);
end $$;
`;

/** Since version 3: entries with a tag are removed only when its claim succeeds; of several with one tag, the first does. */
export const claimAndRemove = `create or replace function {s}.claim_and_remove${removalStart}
  with given as materialized (
    select distinct on (g.tag) decode(g.tag, 'hex') as tag, g.n, g.until, g.at
    from json_to_recordset(p_given::json) as g(n integer, tag text, until bigint, at bigint)
    where g.tag is not null order by g.tag, g.n
  ), won as (
    insert into {s}.claim as c (tag, until_ms, at_ms) select tag, until, at from given order by tag
    on conflict (tag) do update set until_ms = excluded.until_ms, at_ms = excluded.at_ms
      where c.until_ms <= excluded.at_ms
    returning c.tag
  )
  select coalesce(array_agg(g.n), '{}') into replayed
  from json_to_recordset(p_given::json) as g(n integer, tag text)
  where g.tag is not null and g.n not in (select given.n from given join won using (tag));
${removal}  return {s}.end_write(p_writer, p_seq, json_build_object('replayed', replayed, 'gone', done));
end $$;
`;

export const mailboxFunctions = writes + boxes + entryType + storeRound + dropEarlier + store + remove;

/**
 * Since version 5: the digest of a delivered envelope, and what names it when it was acknowledged. Nodes of version 4 send
 * no digest, and ignore the members of an answer that they don't know.
 */
export const deliveryDigests = `
alter table {s}.held add column digest bytea;
alter table {s}.acked add column digest bytea, add column arrival bigint;
alter type {s}.entry add attribute digest bytea;
${storeRound}${store}${claimAndRemove}`;

// -------------------------------------------------------------------------------------------- claims and receipts

export const recordFunctions = `
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
`;

/** Answers key and value for each key that another value excludes. */
export const writeReceipts = `
create or replace function {s}.write_receipts(p_writer uuid, p_seq bigint, p_given text, p_bytes bytea)
returns json language plpgsql as $$
declare
  done json := {s}.begin_write(p_writer, p_seq);
  written bytea[];
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
  select coalesce(array_agg(key), '{}') into written from won;
  -- Another statement, because a row that another node inserted meanwhile is not in the snapshot of the one before.
  select coalesce(json_agg(json_build_array(g.key, encode(r.value, 'base64'))), '[]') into done
  from json_to_recordset(p_given::json) as g(key text, how text) join {s}.receipt r on r.key = decode(g.key, 'hex')
  where g.how <> 'remove' and r.key <> all (written);
  return {s}.end_write(p_writer, p_seq, done);
end $$;
`;
