/**
 * Replay claims and receipts over PostgreSQL, and the functions of the schema that decide them by their primary keys: an
 * insert that meets a row waits for it, in the order of keys. Keys are texts of any characters, U+0000 among them, which
 * no text of the database can hold, so their digests are the keys there.
 */
import { encodeHex } from "../../core/codec/bytes.ts";
import { blake2b256 } from "../../core/codec/crypto.ts";
import type { Receipts, Replay } from "../../storage/contract.ts";
import { checkReceipt, checkText } from "../drivers.ts";
import { Batcher, type Pool } from "./pool.ts";

type Claim = { readonly tag: string; readonly until: number; readonly at: number };

/** Distinct texts have distinct digests, lone surrogates included: the form of two bytes a character is exact. */
export function digestOf(text: string): string {
  return encodeHex(blake2b256(new Uint8Array(Buffer.from(text, "utf16le"))));
}

async function expireRecords(pool: Pool, table: string, nowMs: number, limit: number): Promise<number> {
  const [row] = await pool.query("select {s}.expire_records($1, $2, $3) as freed", [table, nowMs, limit]);
  return Number(row?.["freed"]);
}

export function openPostgresReplay(pool: Pool): Replay {
  const claims = new Batcher<Claim, boolean>(async (given) => {
    const won = new Set((await pool.write("claim_tags", [JSON.stringify(given)])) as string[]);
    return given.map(({ tag }) => won.has(tag));
  }, 1);
  return {
    async claim(tag, untilMs, nowMs) {
      checkText("tag", tag);
      const given = { tag: digestOf(tag), until: untilMs, at: nowMs };
      return claims.add({ given, bytes: 128, key: given.tag });
    },
    expire: (nowMs, limit) => expireRecords(pool, "claim", nowMs, limit),
  };
}

type Writing = {
  readonly key: string;
  readonly how: "put" | "absent" | "remove";
  readonly value: Uint8Array;
  readonly until: number;
  readonly at: number;
};

export function openPostgresReceipts(pool: Pool): Receipts {
  const writes = new Batcher<Writing, Uint8Array | null>((given) => writeBatch(pool, given), 1);
  const add = (writing: Writing) => writes.add({ given: writing, bytes: writing.value.length + 256, key: writing.key });
  const nothing = new Uint8Array(0);
  return {
    async put(key, value, untilMs) {
      checkReceipt(key, value);
      await add({ key: digestOf(key), how: "put", value, until: untilMs, at: 0 });
    },
    async putIfAbsent(key, value, untilMs, nowMs) {
      checkReceipt(key, value);
      return add({ key: digestOf(key), how: "absent", value, until: untilMs, at: nowMs });
    },
    async get(key, nowMs) {
      const parameters = [digestOf(key), nowMs];
      const [row] = await pool.query(
        "select value from {s}.receipt where key = decode($1, 'hex') and until_ms > $2",
        parameters,
      );
      return row === undefined ? null : new Uint8Array(row["value"] as Uint8Array);
    },
    async remove(key) {
      await add({ key: digestOf(key), how: "remove", value: nothing, until: 0, at: 0 });
    },
    expire: (nowMs, limit) => expireRecords(pool, "receipt", nowMs, limit),
  };
}

/** For each write the value that excludes it, or null. */
async function writeBatch(pool: Pool, given: readonly Writing[]): Promise<(Uint8Array | null)[]> {
  const bytes = new Uint8Array(given.reduce((sum, { value }) => sum + value.length, 0));
  let start = 0;
  const rows = given.map(({ value, ...writing }) => {
    bytes.set(value, start);
    start += value.length;
    return { ...writing, start: start - value.length + 1, size: value.length };
  });
  const answer = (await pool.write("write_receipts", [JSON.stringify(rows), bytes])) as [string, string][];
  const standing = new Map(answer);
  return given.map(({ key }) => {
    const value = standing.get(key);
    return value === undefined ? null : new Uint8Array(Buffer.from(value, "base64"));
  });
}

// -------------------------------------------------------------------------------------------- functions

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

/** For each key that a standing value excludes, key and value. */
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
