/** Reads all records of a schema as of one moment, and fills a new one. */
import type { MailboxKey, Uuid } from "../../core/codec/did.ts";
import { minuteMs } from "../../core/codec/time.ts";
import {
  type ImportTarget,
  type MailboxEntry,
  StoreError,
  type StoreMaintenance,
  type StoreRecord,
} from "../../storage/contract.ts";
import { storedAtOf } from "../../storage/mailbox-rules.ts";
import { Connection, type Parameter, type PoolSettings, type Row, Timelines } from "./connection.ts";
import { chunkOf, PostgresMailbox } from "./mailbox.ts";
import type { Pool } from "./pool.ts";
import type { PostgresOptions } from "./postgres.ts";
import { openPostgresReceipts, openPostgresReplay, PostgresTable, textOfRow, textOfTag } from "./records.ts";
import { checkSchema, dropUnfinished, migrateSchema, Partitions, setUnfinished } from "./schema.ts";
import { openPool, settingsOf, shardOptions } from "./store.ts";
import { LabelTotals, StoreSums, StoreTotals } from "./totals.ts";

const nothing = new Uint8Array(0);
const bytesOf = (value: unknown): Uint8Array => new Uint8Array(value as Uint8Array);

// ---------------------------------------------------------------------------------------------------- reading

/** Rows of a page; at most so many bytes of envelopes, beside the first. */
const rowsMax = 500;
const pageBytesMax = 8 * 1024 ** 2;

type Table = {
  readonly sql: string;
  /** Places of the last row, for the next page. */
  readonly after: (row: Row) => readonly Parameter[];
  readonly first: readonly Parameter[];
  readonly record: (row: Row) => StoreRecord;
};

const keyed = (table: string, column: string): string =>
  `select * from {s}.${table} where ${column} > $1 order by ${column} limit ${rowsMax}`;

/** What remains of a message; a null preview is a tombstone. */
const remains = "k.kept_ms, k.preview";

function tablesAt(nowMs: number): Table[] {
  return [
    {
      sql: keyed("ledger", "key"),
      first: [""],
      after: (row) => [String(row["key"])],
      record: (row) => ({ kind: "ledger", key: String(row["key"]), value: bytesOf(row["value"]) }),
    },
    {
      sql: keyed("claim", "tag"),
      first: [nothing],
      after: (row) => [bytesOf(row["tag"])],
      record: (row) => ({ kind: "claim", tag: textOfTag(bytesOf(row["tag"])), untilMs: Number(row["until_ms"]) }),
    },
    {
      sql: keyed("receipt", "key"),
      first: [nothing],
      after: (row) => [bytesOf(row["key"])],
      record: ({ key, value, until_ms }) => ({
        kind: "receipt",
        key: textOfRow(bytesOf(key)),
        value: bytesOf(value),
        untilMs: Number(until_ms),
      }),
    },
    {
      sql: `select b.key as box, p.*, ${remains} from (
          select h.*, sum(h.size) over (order by h.mailbox_no, h.arrival) as running,
            row_number() over (order by h.mailbox_no, h.arrival) as nth
          from (select * from {s}.held where (mailbox_no, arrival) > ($1, $2) order by mailbox_no, arrival limit ${rowsMax}) h
        ) p join {s}.mailbox b on b.no = p.mailbox_no
        left join {s}.kept k on k.mailbox_no = p.mailbox_no and k.id = p.id and k.expires_ms = p.expires_ms
        where p.nth = 1 or p.running <= ${pageBytesMax} order by p.mailbox_no, p.arrival`,
      first: [0, 0],
      after: (row) => [BigInt(String(row["mailbox_no"])), BigInt(String(row["arrival"]))],
      record: (row) => messageOf(row, Number(row["expires_ms"]) > nowMs ? "active" : "kept"),
    },
    {
      sql: `select b.key as box, a.* from (
          select * from {s}.acked where (mailbox_no, id) > ($1, $2::uuid) order by mailbox_no, id limit ${rowsMax}
        ) a join {s}.mailbox b on b.no = a.mailbox_no order by a.mailbox_no, a.id`,
      first: [0, noId],
      after: (row) => [BigInt(String(row["mailbox_no"])), String(row["id"])],
      record: (row) => messageOf(row, "acked"),
    },
    {
      sql: `select b.key as box, k.* from (
          select * from {s}.kept o where (mailbox_no, id) > ($1, $2::uuid) and not exists (
            select 1 from {s}.held h where h.mailbox_no = o.mailbox_no and h.id = o.id and h.expires_ms = o.expires_ms
          ) order by mailbox_no, id limit ${rowsMax}
        ) k join {s}.mailbox b on b.no = k.mailbox_no order by k.mailbox_no, k.id`,
      first: [0, noId],
      after: (row) => [BigInt(String(row["mailbox_no"])), String(row["id"])],
      record: (row) => messageOf(row, "kept"),
    },
  ];
}

const noId = "00000000-0000-0000-0000-000000000000";

function messageOf(row: Row, state: "active" | "acked" | "kept"): StoreRecord {
  const expiresAtMs = Number(row["expires_ms"]);
  const [keptMs, preview] = [row["kept_ms"], row["preview"]];
  const isKept = keptMs !== null && keptMs !== undefined;
  const arrival = row["arrival"];
  const entry: MailboxEntry = {
    recipient: String(row["box"]) as MailboxKey,
    messageId: String(row["id"]) as Uuid,
    chunk: "group_id" in row ? chunkOf(row) : null,
    // Not known of what is no longer there.
    storedAtMs: arrival === undefined ? 0 : storedAtOf(Number(arrival), expiresAtMs),
    expiresAtMs,
    onExpiry: !isKept ? "DeleteOnExpiry" : preview === null ? "TombstoneReference" : "KeepHeaderPreview",
    keptUntilMs: isKept ? Number(keptMs) : expiresAtMs,
    headerPreview: isKept && preview !== null ? bytesOf(preview) : null,
    labels: (row["labels"] as string[] | null | undefined) ?? [],
    envelope: state === "active" ? bytesOf(row["envelope"]) : nothing,
  };
  return { kind: "message", state, entry };
}

/** One transaction a database sees the state of its beginning, whatever nodes write meanwhile. */
export async function* postgresRecords(options: PostgresOptions): AsyncGenerator<StoreRecord> {
  for (const [, one] of shardOptions(options)) {
    const pool = await openPool({ ...one, connections: 2 });
    try {
      await checkSchema(pool, one.schema);
    } finally {
      await pool.close();
    }
    yield* recordsOf(await settingsOf(one));
  }
}

async function* recordsOf(settings: PoolSettings): AsyncGenerator<StoreRecord> {
  const connection = new Connection(settings, new Timelines(settings));
  const query = (text: string, given: readonly Parameter[] = []) =>
    connection.query(text.replaceAll("{s}", settings.schema), given);
  try {
    await query("begin isolation level repeatable read read only");
    const nowMs = Date.now();
    for (const { sql, first, after, record } of tablesAt(nowMs)) {
      for (let [place, rows] = [first, await query(sql, first)]; rows.length > 0; rows = await query(sql, place)) {
        yield* rows.map(record);
        place = after(rows.at(-1) as Row);
      }
    }
    await query("commit");
  } catch (error) {
    throw error instanceof StoreError ? error : new StoreError("unavailable", String(error), { cause: error });
  } finally {
    await connection.close();
  }
}

// ---------------------------------------------------------------------------------------------------- filling

/** What was here is from an import that did not finish, or nothing. */
export async function importPostgres(
  options: PostgresOptions,
  ...[fill, check]: Parameters<StoreMaintenance["import"]>
): Promise<void> {
  if (Object.keys(options.shards).length > 0)
    throw new StoreError("unavailable", "import into one database, then add the shards and move places");
  const pool = await openPool(options);
  try {
    await dropUnfinished(pool);
    await migrateSchema(pool, options);
    await refuseUsed(pool, options.schema);
    await setUnfinished(pool, true);
    await fill(await targetOf(pool));
    await check(recordsOf(await settingsOf(options)));
    await setUnfinished(pool, false);
  } finally {
    await pool.close();
  }
}

async function refuseUsed(pool: Pool, schema: string): Promise<void> {
  const tables = ["ledger", "receipt", "claim", "mailbox"];
  const [row] = await pool.query(
    `select ${tables.map((one) => `exists (select 1 from {s}.${one})`).join(" or ")} as used`,
  );
  if (row?.["used"] !== false)
    throw new StoreError("unavailable", `schema "${schema}" is not empty: import into a new one`);
}

/** Nothing expires meanwhile. */
const partitionsGraceMs = 60 * minuteMs;

async function targetOf(pool: Pool): Promise<ImportTarget> {
  const [row] = await pool.query("select partition_ms from {s}.meta");
  const partitions = new Partitions(pool, { partitionMs: Number(row?.["partition_ms"]), graceMs: partitionsGraceMs });
  const table = new PostgresTable(pool, Date.now);
  const totals = new StoreTotals(pool, minuteMs);
  const sums = new StoreSums([totals], new LabelTotals([pool], minuteMs));
  return {
    mailbox: new PostgresMailbox(pool, partitions, totals, sums),
    replay: openPostgresReplay(pool),
    receipts: openPostgresReceipts(pool),
    putLedger: (pairs) =>
      table.commit((view) => {
        for (const [key, value] of pairs) view.put(key, value);
      }),
  };
}
