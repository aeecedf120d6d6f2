/**
 * Moves places between the shards of a store while nodes work. A place that moves takes no writes
 * (nodes wait), and is read where it was until its copy is whole: `leaving` at the old shard,
 * `arriving` at the new one, then `gone` and `here`, each its own commit. When the process dies
 * before `gone`, any node opens the place where it was; after it, where it went. What a dead mover
 * left behind is removed by nodes (`Places.clear`), or by the next move.
 */
import { StoreError } from "../../storage/contract.ts";
import { endArrival, openArrived, type PlaceTable, readPlaces, type Shard } from "./places.ts";
import type { Query } from "./pool.ts";

/** Rows of a place by table, the largest first: so the size of one bounds those behind it. */
const ofBox = "from {s}.mailbox m join {s}.";
const here = "on m.no = t.mailbox_no where {s}.place_of(m.key) = $no";
const copied: readonly (readonly [kind: string, text: string])[] = [
  [
    "mailbox",
    "select m.key, m.last_arrival, m.until_ms, 200 as weight from {s}.mailbox m where {s}.place_of(m.key) = $no",
  ],
  [
    "held",
    `select m.key, t.arrival, t.id, t.expires_ms, t.size, t.group_id, t.sequence, t.total, t.labels, t.envelope,
       t.digest, t.size + 300 as weight ${ofBox}held t ${here} order by t.size desc`,
  ],
  [
    "acked",
    `select m.key, t.id, t.expires_ms, t.digest, t.labels, 250 as weight ${ofBox}acked t ${here}`,
  ],
  [
    "kept",
    `select m.key, t.id, t.expires_ms, t.kept_ms, t.preview, coalesce(length(t.preview), 0) + 200 as weight
     ${ofBox}kept t ${here} order by weight desc`,
  ],
  ["claim", "select t.*, 200 as weight from {s}.claim t where t.place = $no"],
  [
    "receipt",
    `select t.*, length(t.value) + 200 as weight from {s}.receipt t
     where t.key >= {s}.place_begin($no) and t.key < {s}.place_begin($no + 1)
     order by weight desc`,
  ],
];
const bytesAtOnce = 2 * 1024 ** 2;
const rowsAtOnce = 1_000;
const mailboxesAtOnce = 100;

/** Returns how many places had to move. */
export async function movePlaces(nos: readonly number[], shards: readonly Shard[], to: Shard) {
  let moved = 0;
  const tables = await settledTables(shards);
  for (const no of nos) {
    const from = shards[tables.findIndex((table) => isOpen(table, no))];
    if (from === undefined) throw new StoreError("unavailable", `place ${no} is in no database`);
    if (from !== to) {
      await movePlace(no, from, to);
      moved++;
    }
    for (const [n, table] of tables.entries())
      if (shards[n] !== to && table.has(no)) await purge(shards[n]!, no);
  }
  return moved;
}

function isOpen(table: PlaceTable, no: number): boolean {
  const state = table.get(no)?.state;
  return state === "here" || state === "leaving";
}

async function settledTables(shards: readonly Shard[]): Promise<PlaceTable[]> {
  const tables = await Promise.all(shards.map(readPlaces));
  return (await openArrived(shards, tables)) ? Promise.all(shards.map(readPlaces)) : tables;
}

async function movePlace(no: number, from: Shard, to: Shard): Promise<void> {
  const move = crypto.randomUUID();
  await from.pool.transaction(async (query) => {
    // Held to the end of the transaction: so nodes know that the process lives.
    const [lock] = await query("select pg_try_advisory_xact_lock({s}.place_lock($1)) as own", [no]);
    if (lock?.["own"] !== true)
      throw new StoreError("unavailable", `another process moves place ${no}`);
    await from.pool.query("select {s}.leave($1, $2::uuid)", [no, move]);
    // Waits for the writes that began before.
    await from.pool.query("select pg_advisory_xact_lock(hashtextextended('{s}', 4))");
    await purge(to, no);
    await to.pool.query("select {s}.arrive($1, $2::uuid)", [no, move]);
    for (const [kind, text] of copied) {
      await query(`declare moved no scroll cursor for select row_to_json(x)::text as row, x.weight from (
        ${text.replaceAll("$no", String(no))}) x`);
      await copy(query, to, [no, move, kind]);
      await query("close moved");
    }
    const left = await query(
      "update {s}.place set state = 'gone' where no = $1 and move = $2::uuid and state = 'leaving' returning no",
      [no, move],
    );
    if (left.length !== 1)
      throw new StoreError("unavailable", `place ${no} was opened again meanwhile`);
  });
  await endArrival(to, no, move);
}

type Copied = readonly [no: number, move: string, kind: string];

async function copy(query: Query, { pool }: Shard, given: Copied): Promise<void> {
  for (let count = 1; ; ) {
    const rows = await query(`fetch ${count} from moved`);
    const last = rows.at(-1);
    if (last === undefined) return;
    const texts = rows.map((row) => String(row["row"]));
    await pool.write("copy_in", [...given, `[${texts.join(",")}]`]);
    const fitting = Math.floor(bytesAtOnce / Number(last["weight"]));
    count = Math.max(1, Math.min(rowsAtOnce, fitting));
  }
}

async function purge({ pool }: Shard, no: number): Promise<void> {
  for (let freed = 1; freed > 0; ) {
    const [row] = await pool.query("select {s}.purge($1, $2) as freed", [no, mailboxesAtOnce]);
    freed = Number(row?.["freed"]);
  }
}
