/** Reads all records of a schema as of one moment, and fills a new one. */
import type { MailboxKey, Uuid } from "../../core/codec/did.ts";
import {
  type FillStore,
  type ImportTarget,
  type MailboxEntry,
  StoreError,
  type StoreRecord,
} from "../../storage/contract.ts";
import { shortDigest, storedAtOf } from "../../storage/mailbox-rules.ts";
import { SqlConnection } from "./connection.ts";
import { chunkOfRow } from "./mailbox.ts";
import type { Pool } from "./pool.ts";
import type { PostgresOptions } from "./postgres.ts";
import { Pulse } from "./pulse.ts";
import { PostgresTable, textOfRow, textOfTag } from "./records.ts";
import { checkSchema, dropUnfinished, migrateSchema, setUnfinished } from "./schema.ts";
import { Servers, type SqlPoolSettings, type SqlRow } from "./servers.ts";
import { openPool, settingsOf, shardOptions, shardsOf } from "./store.ts";

const nothing = new Uint8Array(0);
const columnBytes = (value: unknown): Uint8Array => new Uint8Array(value as Uint8Array);

// ----------------------------------------------------------------------------------------- reading

/** Of one fetch: the largest envelopes fit in memory so many times. */
const rowsAtOnce = 32;

type TableExport = readonly [sql: string, record: (row: SqlRow) => StoreRecord];

/** A null preview of what remains of a message is a tombstone. */
const tablesAt = (nowMs: number): readonly TableExport[] => [
  [
    "select * from {s}.ledger",
    ({ key, value }) => ({ kind: "ledger", key: String(key), value: columnBytes(value) }),
  ],
  [
    "select * from {s}.claim",
    ({ tag, until_ms }) => ({
      kind: "claim",
      tag: textOfTag(columnBytes(tag)),
      untilMs: Number(until_ms),
    }),
  ],
  [
    "select * from {s}.receipt",
    ({ key, value, until_ms }) => ({
      kind: "receipt",
      key: textOfRow(columnBytes(key)),
      value: columnBytes(value),
      untilMs: Number(until_ms),
    }),
  ],
  [
    `select b.key as box, h.*, k.kept_ms, k.preview from {s}.held h join {s}.mailbox b on b.no = h.mailbox_no
     left join {s}.kept k on k.mailbox_no = h.mailbox_no and k.id = h.id and k.expires_ms = h.expires_ms
     order by h.mailbox_no, h.arrival`,
    (row) => messageRecord(row, Number(row["expires_ms"]) > nowMs ? "active" : "kept"),
  ],
  [
    "select b.key as box, a.* from {s}.acked a join {s}.mailbox b on b.no = a.mailbox_no",
    (row) => messageRecord(row, "acked"),
  ],
  [
    `select b.key as box, k.* from {s}.kept k join {s}.mailbox b on b.no = k.mailbox_no where not exists (
       select 1 from {s}.held h where h.mailbox_no = k.mailbox_no and h.id = k.id and h.expires_ms = k.expires_ms)`,
    (row) => messageRecord(row, "kept"),
  ],
];

function messageRecord(row: SqlRow, state: "active" | "acked" | "kept"): StoreRecord {
  const expiresAtMs = Number(row["expires_ms"]);
  const [keptMs, preview] = [row["kept_ms"], row["preview"]];
  const isKept = keptMs !== null && keptMs !== undefined;
  const keeping = preview === null ? "TombstoneReference" : "KeepHeaderPreview";
  const arrival = row["arrival"];
  const entry: MailboxEntry = {
    recipient: String(row["box"]) as MailboxKey,
    messageId: String(row["id"]) as Uuid,
    chunk: "group_id" in row ? chunkOfRow(row) : null,
    // Not known of what is no longer there.
    storedAtMs: arrival === undefined ? 0 : storedAtOf(Number(arrival), expiresAtMs),
    expiresAtMs,
    onExpiry: isKept ? keeping : "DeleteOnExpiry",
    keptUntilMs: isKept ? Number(keptMs) : expiresAtMs,
    headerPreview: isKept && preview !== null ? columnBytes(preview) : null,
    labels: (row["labels"] as string[] | null | undefined) ?? [],
    envelope: state === "active" ? columnBytes(row["envelope"]) : nothing,
    // What remains after the expiry has none, and its id is free.
    digest: "digest" in row ? columnBytes(row["digest"]) : shortDigest(nothing),
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

async function* recordsOf(settings: SqlPoolSettings): AsyncGenerator<StoreRecord> {
  const connection = new SqlConnection(new Servers(settings), new Pulse(async () => {}));
  const query = (text: string) => connection.query(text.replaceAll("{s}", settings.schema));
  try {
    await query("begin isolation level repeatable read read only");
    // The first rows come at once, in the order of an index.
    await query("set local enable_sort = off");
    for (const [sql, record] of tablesAt(Date.now())) {
      await query(`declare records no scroll cursor for ${sql}`);
      for (let more = true; more; ) {
        const rows = await query(`fetch ${rowsAtOnce} from records`);
        yield* rows.map(record);
        more = rows.length === rowsAtOnce;
      }
      await query("close records");
    }
    await query("commit");
  } catch (error) {
    throw error instanceof StoreError
      ? error
      : new StoreError("unavailable", String(error), { cause: error });
  } finally {
    await connection.close();
  }
}

// ----------------------------------------------------------------------------------------- filling

/** What was here is from an import that did not finish, or nothing. */
export async function importPostgres(options: PostgresOptions, fill: FillStore): Promise<void> {
  if (Object.keys(options.shards).length > 0)
    throw new StoreError(
      "unavailable",
      "import into one database, then add the shards and move places",
    );
  const pool = await openPool(options);
  try {
    await dropUnfinished(pool);
    await migrateSchema(pool, options);
    await refuseUsed(pool, options.schema);
    const target = await targetOf(options, pool);
    await setUnfinished(pool, true);
    await fill(target);
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

async function targetOf(options: PostgresOptions, pool: Pool): Promise<ImportTarget> {
  const { mailbox, replay, receipts } = await shardsOf(options, [pool])[0]!.parts();
  const table = new PostgresTable(pool);
  const putLedger: ImportTarget["putLedger"] = (pairs) =>
    table.commit((view) => {
      for (const [key, value] of pairs) view.put(key, value);
    });
  return { mailbox, replay, receipts, putLedger };
}
