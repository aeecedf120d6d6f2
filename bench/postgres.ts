/**
 * PostgreSQL: what group commit is worth, and what one database carries for 1, 2 and 4 nodes. Each
 * row is measured in the same run on a server of its own that syncs; a plain insert over as many
 * connections is the reference. Then the processor time that the database takes for a page of a
 * mailbox with ten messages: in an empty database, and in one with five partitions of messages of
 * others, in which the ten are spread. `bun bench/postgres.ts [seconds] [messages] [shared
 * buffers]`.
 */
import { readFileSync } from "node:fs";
import { SQL } from "bun";
import type { MailboxKey, Uuid } from "../src/core/codec/did.ts";
import { postgresOptions } from "../src/plugins/postgres/postgres.ts";
import { migrateSchema } from "../src/plugins/postgres/schema.ts";
import { openPool, openPostgres } from "../src/plugins/postgres/store.ts";
import type { BatchLimits } from "../src/storage/batcher.ts";
import type { Mailbox, MailboxEntry, Store } from "../src/storage/contract.ts";
import { shortDigest } from "../src/storage/mailbox-rules.ts";
import type { MailboxQuota } from "../src/storage/quota.ts";
import { postgresAbsence, startPostgres } from "../test/support/postgres.ts";

const absence = postgresAbsence();
if (absence !== null) throw new Error(absence);
const seconds = Number(process.argv[2] ?? 4);
const heldMessages = Number(process.argv[3] ?? 200_000);
const sharedBuffers = process.argv[4] ?? "2GB";
const connections = 8;
const recipients = 10_000;
const envelopeBytes = 1_024;
const server = await startPostgres([
  "fsync=on",
  "max_connections=80",
  `shared_buffers=${sharedBuffers}`,
  "max_wal_size=4GB",
]);

const quota: MailboxQuota = {
  recipientEntriesMax: 10_000,
  recipientBytesMax: 256 << 20,
  places: [
    {
      own: { label: "new:net:a", entriesMax: 1_000, bytesMax: 1 << 24 },
      pool: "new",
      poolMax: { entries: 1_000, bytes: 1 << 24 },
      isRest: false,
    },
  ],
  storeEntriesMax: 10_000_000,
  storeBytesMax: 2 ** 40,
  storeShare: null,
};

const envelope = new Uint8Array(envelopeBytes).fill(7);

function newEntry(): MailboxEntry {
  const nowMs = Date.now();
  return {
    recipient:
      `did:svc:${String(Math.floor(Math.random() * recipients)).padStart(20, "1")}` as MailboxKey,
    messageId: crypto.randomUUID() as Uuid,
    chunk: null,
    storedAtMs: nowMs,
    expiresAtMs: nowMs + 86_400_000,
    keptUntilMs: nowMs + 86_400_000,
    onExpiry: "DeleteOnExpiry",
    headerPreview: null,
    labels: ["new"],
    envelope,
    digest: shortDigest(envelope),
  };
}

/** Operations a second and the 99th percentile of their time, with `callers` at work at once. */
async function measure(
  callers: number,
  operation: (caller: number) => Promise<unknown>,
): Promise<[number, number]> {
  const times: number[] = [];
  const endMs = performance.now() + seconds * 1_000;
  const begunMs = performance.now();
  const work = async (caller: number): Promise<void> => {
    while (performance.now() < endMs) {
      const atMs = performance.now();
      await operation(caller);
      times.push(performance.now() - atMs);
    }
  };
  await Promise.all(Array.from({ length: callers }, (_, caller) => work(caller)));
  times.sort((a, b) => a - b);
  return [
    times.length / ((performance.now() - begunMs) / 1_000),
    times[Math.floor(times.length * 0.99)] ?? 0,
  ];
}

let schemas = 0;
async function openNodes(count: number, batches?: BatchLimits): Promise<Store[]> {
  const options = postgresOptions.parse({
    urls: [server.url],
    schema: `bench_${schemas++}`,
    connections,
  });
  const pool = await openPool(options);
  await migrateSchema(pool, options).finally(() => pool.close());
  const environment = { now: Date.now, log: () => {}, fatal: () => {} };
  const test = batches === undefined ? {} : { batches };
  return Promise.all(Array.from({ length: count }, () => openPostgres(options, environment, test)));
}

async function report(
  name: string,
  callers: number,
  operation: (caller: number) => Promise<unknown>,
): Promise<number> {
  const [rate, p99] = await measure(callers, operation);
  console.log(
    `${name.padEnd(52)} ${String(Math.round(rate)).padStart(7)}/s  p99 ${p99.toFixed(1)} ms`,
  );
  return rate;
}

async function reportNodes(
  name: string,
  count: number,
  callers: number,
  batches?: BatchLimits,
): Promise<number> {
  const stores = await openNodes(count, batches);
  const mailboxes = stores.map((store) => store.capabilities.mailbox as Mailbox);
  await mailboxes[0]!.store(newEntry(), quota);
  const rate = await report(name, callers, (caller) =>
    mailboxes[caller % count]!.store(newEntry(), quota),
  );
  await Promise.all(stores.map((store) => store.close()));
  return rate;
}

const spanMs = 6 * 3_600_000;

/**
 * A tenth as many mailboxes; the ten messages of each came at different times and expire over 30
 * hours.
 */
async function fill(schema: string, messages: number): Promise<void> {
  const firstMs = Math.ceil(Date.now() / spanMs) * spanMs;
  for (let n = 0; n <= 5; n++)
    await server.sql(`select ${schema}.add_part('held', ${firstMs + n * spanMs})`);
  const boxes = messages / 10;
  const bounds = `${Date.now()}, ${firstMs + 5 * spanMs}`;
  await server.sql(`insert into ${schema}.mailbox (key, entries, bytes, last_arrival, soonest_ms, latest_ms)
    select 'box' || n, 10, 10240, ${2 ** 52}, ${bounds} from generate_series(0, ${boxes - 1}) n`);
  await server.sql(`insert into ${schema}.held (mailbox_no, arrival, id, expires_ms, size, envelope)
    select m.no, n + 1, gen_random_uuid(), ${Date.now() + 60_000} + n::bigint * ${4 * spanMs} / ${messages}, 1024,
      decode(repeat(md5(n::text), 64), 'hex')
    from generate_series(0, ${messages - 1}) n join ${schema}.mailbox m on m.key = 'box' || (n::bigint * 7919) % ${boxes}`);
  await server.sql("vacuum analyze");
}

/** Processor time of the server's connections so far, in microseconds. */
async function serverTime(): Promise<number> {
  const pids = (
    await server.sql("select pid from pg_stat_activity where backend_type = 'client backend'")
  ).match(/\d+/g);
  const ofEach = (pids ?? []).flatMap((pid) => {
    try {
      return Number(readFileSync(`/proc/${pid}/schedstat`, "utf8").split(" ")[0]) / 1_000;
    } catch {
      return [];
    }
  });
  return ofEach.reduce((sum, one) => sum + one, 0);
}

const pagesInTurn = 200;
/**
 * A connection meets each page of the shared memory for the first time once, which costs about a
 * microsecond.
 */
const pagesBefore = 20_000;

/** Of a page of ten, and of an empty one behind it: medians of 20 turns with one caller. */
async function measurePages(messages: readonly number[]): Promise<number[][]> {
  const stores: Store[] = [];
  for (const held of messages) {
    stores.push(...(await openNodes(1)));
    await fill(`bench_${schemas - 1}`, held);
  }
  const list = (n: number, after: string | null) => {
    const key = `box${Math.floor(Math.random() * (messages[n]! / 10))}` as MailboxKey;
    const page = { after, entriesMax: 10, bytesMax: 1 << 20, nowMs: Date.now() };
    return stores[n]!.capabilities.mailbox!.list(key, page);
  };
  const times = messages.map(() => [[], []] as [number[], number[]]);
  for (let page = 0; page < pagesBefore; page++)
    for (const n of messages.keys()) await list(n, null);
  for (let turn = 0; turn < 20; turn++)
    for (const n of messages.keys())
      for (const [kind, after] of [null, `c${(2 ** 52).toString(36)}`].entries()) {
        const begun = await serverTime();
        for (let page = 0; page < pagesInTurn; page++) await list(n, after);
        times[n]![kind]!.push(((await serverTime()) - begun) / pagesInTurn);
      }
  await Promise.all(stores.map((store) => store.close()));
  return times.map((of) => of.map((list) => list.toSorted((a, b) => a - b)[list.length >> 1]!));
}

try {
  const plain = new SQL({ url: server.url, max: connections });
  await plain.unsafe(
    "create table plain (box text, id uuid primary key, expires bigint, envelope bytea)",
  );
  const callers = 512;
  await report("plain insert, a statement each", callers, () => {
    const { recipient, messageId, expiresAtMs, envelope } = newEntry();
    return plain.unsafe("insert into plain values ($1, $2, $3, $4)", [
      recipient,
      messageId,
      expiresAtMs,
      envelope,
    ]);
  });
  await plain.close();
  const single = { operationsMax: 1, bytesMax: 1 << 23, runningMax: connections, turnsMax: 0 };
  const alone = await reportNodes("store, a statement each", 1, callers, single);
  const grouped = await reportNodes("store, group commit, 1 node", 1, callers);
  console.log(`group commit: ${(grouped / alone).toFixed(1)} times a statement each`);
  await reportNodes("store, group commit, 2 nodes", 2, callers);
  await reportNodes("store, group commit, 4 nodes", 4, callers);
  await reportNodes("store, group commit, 1 node, 1 caller", 1, 1);
  const [store] = await openNodes(1);
  const { mailbox, replay, receipts } = store!.capabilities;
  const held: MailboxEntry[] = [];
  await report("store, 1 node, kept for the rows below", 256, async () => {
    const entry = newEntry();
    await mailbox!.store(entry, quota);
    held.push(entry);
  });
  await report("list of a mailbox", 64, () => {
    const { recipient } = held[Math.floor(Math.random() * held.length)]!;
    return mailbox!.list(recipient, {
      after: null,
      entriesMax: 100,
      bytesMax: 1 << 20,
      nowMs: Date.now(),
    });
  });
  await report("acknowledgement of one message", 256, async () => {
    const { recipient, messageId } = held.pop() ?? newEntry();
    await mailbox!.remove(recipient, [messageId], Date.now());
  });
  await report("replay claim", 256, () =>
    replay!.claim(crypto.randomUUID(), Date.now() + 600_000, Date.now()),
  );
  const value = new Uint8Array(300);
  await report("receipt", 256, () =>
    receipts!.put(crypto.randomUUID(), value, Date.now() + 600_000),
  );
  await store!.close();
  const [empty, full] = await measurePages([1_000, heldMessages]);
  for (const [kind, name] of ["a page of ten", "an empty page"].entries()) {
    const [before, now] = [empty![kind]!, full![kind]!];
    const figures = `${before.toFixed(0)} us in an empty database, ${now.toFixed(0)} us with ${heldMessages} messages`;
    console.log(
      `${name}: ${figures} in five partitions and ${sharedBuffers} (${(now / before).toFixed(2)})`,
    );
  }
} finally {
  await server.end();
}
