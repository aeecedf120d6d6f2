/**
 * The figures of docs/scaling.md that a database has: the processor time of its connections for
 * each operation in an empty database and in one with many messages in five partitions, the bytes
 * of log for each, and what is kept of an message, of an acknowledgement and of a claim. Rounds
 * alternate between the two databases, with 64 callers. `bun bench/scaling.ts [messages] [shared
 * buffers]`: a million takes some minutes and 3 GB of disk.
 */
import { readFileSync } from "node:fs";
import type { MailboxKey, Uuid } from "../src/core/codec/did.ts";
import { postgresOptions } from "../src/plugins/postgres/postgres.ts";
import { migrateSchema } from "../src/plugins/postgres/schema.ts";
import { openPool, openPostgres } from "../src/plugins/postgres/store.ts";
import type { MailboxEntry, Store } from "../src/storage/contract.ts";
import { shortDigest } from "../src/storage/mailbox-rules.ts";
import { quota } from "../test/conformance/samples.ts";
import { postgresAbsence, startPostgres } from "../test/support/postgres.ts";

const absence = postgresAbsence();
if (absence !== null) throw new Error(absence);
const messages = Number(process.argv[2] ?? 1_000_000);
const sharedBuffers = process.argv[3] ?? "1GB";
const callers = 64;
const rounds = 5;
const operations = 4_000;
const bodyBytes = 300;
const spanMs = 6 * 3_600_000;
const roomy = quota({ recipientEntriesMax: 10_000, storeEntriesMax: 10_000_000 });
const server = await startPostgres([
  "fsync=on",
  "max_connections=60",
  `shared_buffers=${sharedBuffers}`,
  "max_wal_size=4GB",
]);

type Filled = { readonly schema: string; readonly store: Store; readonly boxes: number };

async function opened(schema: string, held: number): Promise<Filled> {
  const options = postgresOptions.parse({ urls: [server.url], schema });
  const pool = await openPool(options);
  await migrateSchema(pool, options).finally(() => pool.close());
  await fill(schema, held);
  const store = await openPostgres(options, { now: Date.now, log: () => {}, fatal: () => {} });
  return { schema, store, boxes: held / 10 };
}

/**
 * A tenth as many mailboxes; the ten messages of each came at different times and expire over 30
 * hours.
 */
async function fill(schema: string, held: number): Promise<void> {
  const firstMs = Math.ceil(Date.now() / spanMs) * spanMs;
  for (let n = 0; n <= 5; n++)
    for (const kind of ["acked", "held"])
      await server.sql(`select ${schema}.add_part('${kind}', ${firstMs + n * spanMs})`);
  const boxes = held / 10;
  const bounds = `${Date.now()}, ${firstMs + 5 * spanMs}`;
  await server.sql(`insert into ${schema}.mailbox (key, entries, bytes, last_arrival, soonest_ms, latest_ms)
    select 'box' || n, 10, ${10 * bodyBytes}, 10, ${bounds} from generate_series(0, ${boxes - 1}) n`);
  await server.sql(`insert into ${schema}.held (mailbox_no, arrival, id, digest, expires_ms, size, envelope)
    select m.no, n + 1, gen_random_uuid(), sha256(n::text::bytea), ${Date.now() + 600_000} + n::bigint * ${4 * spanMs} / ${held},
      ${bodyBytes}, substring(decode(repeat(md5(n::text), 20), 'hex') for ${bodyBytes})
    from generate_series(0, ${held - 1}) n join ${schema}.mailbox m on m.key = 'box' || (n::bigint * 7919) % ${boxes}`);
  await server.sql("vacuum analyze");
  await server.sql("checkpoint");
}

/** Of the connections of all stores so far, in microseconds. */
async function serverMicros(): Promise<number> {
  const text = "select pid from pg_stat_activity where application_name = 'waypost'";
  const pids = (await server.sql(text)).match(/\d+/g) ?? [];
  return pids
    .map((pid) => Number(readFileSync(`/proc/${pid}/schedstat`, "utf8").split(" ")[0]) / 1_000)
    .reduce((sum, one) => sum + one, 0);
}

const logBytes = async () => Number(await server.sql("select pg_current_wal_lsn() - '0/0'"));

type Cost = { readonly micros: number; readonly logged: number };

async function costOf(work: () => Promise<unknown>): Promise<Cost> {
  const [micros, logged] = [await serverMicros(), await logBytes()];
  let left = operations;
  const run = async () => {
    while (left-- > 0) await work();
  };
  await Promise.all(Array.from({ length: callers }, run));
  return {
    micros: ((await serverMicros()) - micros) / operations,
    logged: ((await logBytes()) - logged) / operations,
  };
}

function entryFor(boxes: number): MailboxEntry {
  const nowMs = Date.now();
  const envelope = crypto.getRandomValues(new Uint8Array(bodyBytes));
  return {
    recipient: `box${Math.floor(Math.random() * boxes)}` as MailboxKey,
    messageId: crypto.randomUUID() as Uuid,
    chunk: null,
    storedAtMs: nowMs,
    expiresAtMs: nowMs + spanMs,
    keptUntilMs: nowMs + spanMs,
    onExpiry: "DeleteOnExpiry",
    headerPreview: null,
    labels: [],
    envelope,
    digest: shortDigest(envelope),
  };
}

const kinds = ["store", "claim", "acknowledgement", "page of ten", "empty page"] as const;

/** One round: what it stores it acknowledges, with a claim each. */
async function round({ store, boxes }: Filled): Promise<Cost[]> {
  const { mailbox, replay } = store.capabilities;
  const stored: MailboxEntry[] = [];
  const list = (after: string | null) => {
    const page = { after, entriesMax: 10, bytesMax: 1 << 20, nowMs: Date.now() };
    return mailbox!.list(entryFor(boxes).recipient, page);
  };
  const stores = await costOf(async () => {
    const entry = entryFor(boxes);
    await mailbox!.store(entry, roomy);
    stored.push(entry);
  });
  const claims = await costOf(() =>
    replay!.claim(crypto.randomUUID(), Date.now() + 600_000, Date.now()),
  );
  const acknowledged = await costOf(() => {
    const { recipient, messageId } = stored.pop()!;
    const claim = { tag: crypto.randomUUID(), untilMs: Date.now() + 600_000 };
    return mailbox!.claimAndRemove(claim, recipient, [messageId], Date.now());
  });
  const pages = await costOf(() => list(null));
  return [
    stores,
    claims,
    acknowledged,
    pages,
    await costOf(() => list(`c${(2 ** 52).toString(36)}`)),
  ];
}

const middle = (list: readonly number[]) => list.toSorted((a, b) => a - b)[list.length >> 1]!;

type SizeFunction = "pg_total_relation_size" | "pg_indexes_size";

async function bytesOfRows(
  schema: string,
  table: string,
  size: SizeFunction = "pg_total_relation_size",
): Promise<number> {
  const parts = `select '${schema}.${table}'::regclass::oid union
    select inhrelid from pg_inherits where inhparent = '${schema}.${table}'::regclass`;
  const bytes = await server.sql(`select sum(${size}(oid)) from (${parts}) p(oid)`);
  return Number(bytes) / Number(await server.sql(`select count(*) from ${schema}.${table}`));
}

try {
  const both = [await opened("bench_empty", 1_000), await opened("bench_full", messages)];
  // Connections meet the pages of the shared memory for the first time.
  for (const one of both) await round(one);
  const found: Cost[][][] = both.map(() => []);
  for (let n = 0; n < rounds; n++)
    for (const [which, one] of both.entries()) found[which]!.push(await round(one));
  const of = (which: number, kind: number, read: (cost: Cost) => number) =>
    middle(found[which]!.map((costs) => read(costs[kind]!)));
  console.log(
    `${bodyBytes} bytes, ${callers} callers, ${messages} messages, shared_buffers ${sharedBuffers}:`,
  );
  const sums = [0, 0];
  for (const [kind, name] of kinds.entries()) {
    const [empty, full] = [0, 1].map((which) => of(which, kind, ({ micros }) => micros));
    const logged = of(1, kind, (cost) => cost.logged);
    console.log(
      `${name.padEnd(16)} ${empty!.toFixed(0)} us of PostgreSQL empty, ${full!.toFixed(0)} us full (${(full! / empty!).toFixed(2)}), ${logged.toFixed(0)} bytes of log`,
    );
    if (kind === 4) continue;
    // A message is stored, its page claimed and read, and it is acknowledged.
    sums[0]! += empty!;
    sums[1]! += full!;
  }
  console.log(
    `a whole message  ${sums[0]!.toFixed(0)} us empty, ${sums[1]!.toFixed(0)} us full (${(sums[1]! / sums[0]!).toFixed(2)})`,
  );
  for (const [table, what] of [
    ["acked", "acknowledged id"],
    ["claim", "claim"],
  ] as const)
    console.log(`${(await bytesOfRows("bench_empty", table)).toFixed(0)} bytes for each ${what}`);
  const [whole, indexes] = [
    await bytesOfRows("bench_full", "held"),
    await bytesOfRows("bench_full", "held", "pg_indexes_size"),
  ];
  console.log(
    `${whole.toFixed(0)} bytes for each message of ${bodyBytes}, ${indexes.toFixed(0)} of them of indexes`,
  );
  await Promise.all(both.map(({ store }) => store.close()));
} finally {
  await server.end();
}
