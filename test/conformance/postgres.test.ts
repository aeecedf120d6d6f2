/**
 * The PostgreSQL driver keeps the contract, on a server of its own. Reports when this machine has
 * no server. `WAYPOST_TEST_WHOLE=1` plays all random games, which take a minute of processor time
 * in the server. `WAYPOST_TEST_POSTGRES=postgres://user@host:5432/database bun test
 * test/conformance/postgres.test.ts --timeout 60000` uses an empty database that is given, such as
 * one with Citus.
 */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { isFault } from "../../src/core/fault.ts";
import { type PostgresOptions, postgresPlugin } from "../../src/plugins/postgres/postgres.ts";
import {
  migratePostgres,
  openPool,
  openPostgres,
  shardOptions,
} from "../../src/plugins/postgres/store.ts";
import type { Ledger, Mailbox, Store, StoreEnvironment } from "../../src/storage/contract.ts";
import { type Identity, identityOf, registrationOf } from "../support/identity.ts";
import { type PostgresServer, postgresAbsence, startPostgres } from "../support/postgres.ts";
import { folderInMemory } from "../support/scratch.ts";
import { inTurn } from "./in-turn.ts";
import { runConformance, testEnvironment } from "./kit.ts";
import { optionsOf } from "./options.ts";
import { chunkOf, did, entry, id, ids, kinds, listAll, pageOf, quota } from "./samples.ts";

const given = process.env["WAYPOST_TEST_POSTGRES"];
const absence = given === undefined ? postgresAbsence() : null;
let server: Pick<PostgresServer, "url" | "end"> | null = null;

const settings = (schema: string) =>
  optionsOf(postgresPlugin, {
    urls: [server?.url],
    schema,
    partition_ms: 1_000,
    block_time_ms: 60,
    connections: 3,
  });

/**
 * Three databases: the schemas `sharded`, `sharded_east` and `sharded_west` have a third of the
 * places each.
 */
const sharded = () => ({
  ...settings("sharded"),
  shards: Object.fromEntries(
    ["east", "west"].map((name) => [name, { urls: [server!.url], schema: `sharded_${name}` }]),
  ),
});

/** A table without a row is left as it is: to empty one takes a file of its own. */
const empty = `do $$ declare one text; used boolean; begin
  for one in select kind || '_' || upper_ms from {s}.part loop
    execute format('drop table {s}.%I', one);
  end loop;
  foreach one in array array['mailbox', 'share', 'part', 'tally', 'writer', 'claim', 'receipt', 'ledger'] loop
    execute format('select exists (select from {s}.%I)', one) into used;
    if used then execute format('truncate {s}.%I restart identity', one); end if;
  end loop;
end $$`;

/**
 * As a newer program leaves a schema that this one may read: another version, and a column more in
 * each table.
 */
const upgrade = `do $$ declare one record; begin
  for one in select c.oid::regclass as name from pg_class c where c.relnamespace = '{s}'::regnamespace
    and c.relkind in ('r', 'p') and not c.relispartition and c.relname not in ('place', 'meta')
  loop
    execute format('alter table %s add column if not exists newer bigint', one.name);
  end loop;
  update {s}.meta set version = 99;
end $$`;

const migrated = new Set<string>();
/** A connection to each schema that lasts, by its name. */
const cleaners = new Map<string, Awaited<ReturnType<typeof openPool>>>();

/**
 * Schemas without a row: made at their first use, which takes longer than most laws, and emptied
 * from then on.
 */
async function emptied(options: PostgresOptions, statements = [empty]): Promise<PostgresOptions> {
  if (!migrated.has(options.schema)) await migratePostgres(options, undefined, 1);
  migrated.add(options.schema);
  for (const [, one] of shardOptions(options)) {
    const cleaner = cleaners.get(one.schema) ?? (await openPool({ ...one, connections: 1 }));
    cleaners.set(one.schema, cleaner);
    for (const statement of statements) await cleaner.query(statement);
  }
  return options;
}

/** Sums of the store without lag, and no time of grace: so every law is exact here. */
const open = (options: PostgresOptions, environment: StoreEnvironment): Promise<Store> =>
  openPostgres(options, environment, { graceMs: 0, totalsAgeMs: 0 });

/** Three nodes on one schema: each operation goes to the next. */
const openThree = async (options: PostgresOptions, environment: StoreEnvironment): Promise<Store> =>
  inTurn(await Promise.all([1, 2, 3].map(() => open(options, environment))));

if (absence !== null) {
  test(`skipped: ${absence}`, () => {});
} else {
  beforeAll(async () => {
    if (given !== undefined) {
      server = { url: given, end: async () => {} };
      return;
    }
    const settings = [
      "autovacuum=off",
      "full_page_writes=off",
      "jit=off",
      "max_connections=50",
      "shared_buffers=16MB",
    ];
    server = await startPostgres(settings, folderInMemory());
  }, 60_000);
  afterAll(async () => {
    for (const cleaner of cleaners.values()) await cleaner.close();
    await server?.end();
  });
  runConformance({
    name: "postgres",
    provides: postgresPlugin.provides,
    expiry: "spans",
    gamesMax: 4,
    open: async (environment) => open(await emptied(settings("one")), environment),
    reopen: (_, environment) => open(settings("one"), environment),
  });

  runConformance({
    name: "postgres, three nodes in turn, on the schema of a newer program",
    provides: postgresPlugin.provides,
    expiry: "spans",
    gamesMax: 2,
    waivers: {
      "the quotas of the whole store are exact under concurrency":
        "a node does not see what others are just storing: contract.ts allows a store of several nodes that much",
    },
    open: async (environment) =>
      openThree(await emptied(settings("newer"), [empty, upgrade]), environment),
    reopen: (_, environment) => openThree(settings("newer"), environment),
  });

  runConformance({
    name: "postgres, three databases",
    // The ledger and its log are in the first database, as where there is no other.
    provides: ["mailbox", "replay", "receipts"],
    expiry: "spans",
    gamesMax: 2,
    waivers: {
      "the quotas of the whole store are exact under concurrency":
        "a database does not see what others are just storing: contract.ts allows a store of several that much",
    },
    open: async (environment) => open(await emptied(sharded()), environment),
    reopen: (_, environment) => open(sharded(), environment),
  });

  describe("three nodes on one schema", () => {
    const environment = testEnvironment();
    let nodes: Store[] = [];
    beforeAll(async () => {
      const options = await emptied(settings("one"));
      nodes = await Promise.all([1, 2, 3].map(() => open(options, environment)));
    });
    afterAll(() => Promise.all(nodes.map((node) => node.close())));
    const mailboxes = () => nodes.map((node) => node.capabilities.mailbox!);
    /** Calls go round the nodes. */
    const spread = <T>(
      count: number,
      call: (mailbox: Mailbox, n: number) => Promise<T>,
    ): Promise<T[]> =>
      Promise.all(Array.from({ length: count }, (_, n) => call(mailboxes()[n % 3]!, n)));

    test("of concurrent stores of one id exactly one is stored", async () => {
      for (const n of [1, 2, 3]) {
        const outcomes = await spread(90, (mailbox) => mailbox.store(entry(n), quota()));
        expect(kinds(outcomes)).toEqual({ stored: 1, duplicate: 89 });
      }
    });
    test("quotas and pools of a recipient are exact, and its order is the same at every node", async () => {
      const limits = quota({ recipientEntriesMax: 37 });
      const outcomes = await spread(120, (mailbox, n) =>
        mailbox.store(entry(n, { recipient: did(1) }), limits),
      );
      expect(kinds(outcomes)).toEqual({ stored: 37, full: 83 });
      const lists = await Promise.all(
        mailboxes().map((mailbox) => listAll(mailbox, did(1), pageOf({ entriesMax: 5 }))),
      );
      expect(lists.map(ids)).toEqual([ids(lists[0]!), ids(lists[0]!), ids(lists[0]!)]);
      expect(lists[0]!.length).toBe(37);
      const place = { pool: "floors", poolMax: { entries: 11, bytes: 1e6 }, isRest: false };
      const more = await spread(90, (mailbox, n) => {
        const own = { label: `f:${n % 10}`, entriesMax: 2, bytesMax: 1e6 };
        return mailbox.store(
          entry(n, { recipient: did(2) }),
          quota({ places: [{ ...place, own }] }),
        );
      });
      expect(kinds(more)).toEqual({ stored: 11, full: 79 });
    });
    test("of concurrent messages for one sequence number exactly one is stored", async () => {
      const outcomes = await spread(60, (mailbox, n) =>
        mailbox.store(entry(n, { recipient: did(3), chunk: chunkOf(7, 0, 2) }), quota()),
      );
      expect(kinds(outcomes)).toEqual({ stored: 1, chunk_conflict: 59 });
    });
    test("an acknowledged id is answered by one node and a claim won by one", async () => {
      await spread(40, (mailbox, n) => mailbox.store(entry(n, { recipient: did(4) }), quota()));
      const all = Array.from({ length: 40 }, (_, n) => id(n));
      const removed = await spread(9, (mailbox) => mailbox.remove(did(4), all, 2_000));
      expect(ids(removed.flat()).sort()).toEqual(all.sort());
      const claims = await Promise.all(
        Array.from({ length: 60 }, (_, n) =>
          nodes[n % 3]!.capabilities.replay!.claim("one tag", 9_000, 1_000),
        ),
      );
      expect(claims.filter(Boolean).length).toBe(1);
    });
    test("a call that one node took is finalized for all, and by the others when that node is gone", async () => {
      const ledgers = nodes.map((node) => node.capabilities.ledger!);
      const isKnown = async (ledger: Ledger, { did }: Identity) =>
        (await ledger.account(did)).record !== null;
      const until = async (holds: () => Promise<boolean>) => {
        for (const endMs = Date.now() + 60_000; !(await holds()); await Bun.sleep(10)) {
          if (Date.now() > endMs) throw new Error("it did not come to that");
        }
      };
      const call = (identity: Identity) =>
        registrationOf(identity, { timestamp: String(Date.now()) });
      const identity = identityOf(crypto.randomUUID());
      const outcomes = await Promise.all(
        ledgers.map((ledger) => ledger.submit(call(identity), "register")),
      );
      const hashes = new Set(outcomes.flatMap((one) => (isFault(one) ? [] : [one.txHash])));
      expect(hashes.size).toBe(1);
      for (const ledger of ledgers) await until(() => isKnown(ledger, identity));
      const submission = await ledgers[2]!.submission([...hashes][0]!);
      expect(submission?.state).toBe("finalized");
      for (const ledger of ledgers) {
        expect((await ledger.head()).finalized.number).toBeGreaterThanOrEqual(
          submission!.block!.number,
        );
      }
      const orphan = identityOf(crypto.randomUUID());
      const leaving = await open(settings("one"), environment);
      expect(isFault(await leaving.capabilities.ledger!.submit(call(orphan), "register"))).toBe(
        false,
      );
      await leaving.close();
      await until(() => isKnown(ledgers[1]!, orphan));
    });
    test("stores, acknowledgements and expiry of the same mailboxes at once come to an end, and the sums hold", async () => {
      const begin = (await mailboxes()[0]!.stats(2_000)).entries;
      let acked = 0;
      const outcomes = await spread(600, async (mailbox, n) => {
        const recipient = did(10 + (n % 5));
        const outcome = await mailbox.store(entry(1_000 + n, { recipient }), quota());
        const removed = n % 3 === 0 ? await mailbox.remove(recipient, [id(1_000 + n)], 2_000) : [];
        acked += removed.length;
        if (n % 50 === 0) await mailbox.expire(900, 100);
        return outcome;
      });
      expect(kinds(outcomes)).toEqual({ stored: 600 });
      expect(acked).toBe(200);
      expect((await mailboxes()[1]!.stats(2_000)).entries).toBe(begin + 400);
    });
  });
}
