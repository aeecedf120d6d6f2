/**
 * How many statements the ledger over PostgreSQL takes: each is a round trip while the ledger's
 * lock is held.
 */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { isFault } from "../../src/core/fault.ts";
import { Pool, type Query } from "../../src/plugins/postgres/pool.ts";
import { postgresOptions } from "../../src/plugins/postgres/postgres.ts";
import { PostgresTable } from "../../src/plugins/postgres/records.ts";
import { migrateSchema } from "../../src/plugins/postgres/schema.ts";
import { openEmbeddedLedger } from "../../src/storage/embedded.ts";
import { identityOf, registrationOf } from "../support/identity.ts";
import { type PostgresServer, postgresAbsence, startPostgres } from "../support/postgres.ts";

const absence = postgresAbsence();
const environment = { now: Date.now, log: () => {} };
let server: PostgresServer;
let schemas = 0;

class CountingPool extends Pool {
  statements = 0;
  /** Of one transaction. */
  most = 0;

  override transaction<T>(
    work: (query: Query) => Promise<T>,
    numbering?: "numbered" | "none",
  ): Promise<T> {
    const counting = (query: Query) => {
      let own = 0;
      return work((text, given) => {
        this.statements++;
        this.most = Math.max(this.most, ++own);
        return query(text, given);
      });
    };
    return super.transaction(counting, numbering);
  }
}

async function openCounting(): Promise<CountingPool> {
  const options = postgresOptions.parse({
    urls: [server.url],
    schema: `counted_${schemas++}`,
    connections: 3,
  });
  const pool = new CountingPool({ ...options, ca: null });
  await migrateSchema(pool, options);
  return pool;
}

describe.skipIf(absence !== null)("the ledger over PostgreSQL", () => {
  beforeAll(async () => {
    server = await startPostgres();
  }, 60_000);
  afterAll(() => server.end());

  test("changes of the ledger that commit together read all their keys with one statement", async () => {
    const pool = await openCounting();
    const table = new PostgresTable(pool);
    const commit = (n: number) =>
      table.commit((view) => {
        const keys = Array.from({ length: 5 }, (_, k) => `key-${n}-${k}`);
        view.prefetch(keys);
        for (const key of keys) view.put(key, new Uint8Array([(view.get(key)?.[0] ?? 0) + 1]));
        const total = view.get("total")?.[0] ?? 0;
        view.put("total", new Uint8Array([total + 1]));
      });
    for (const round of [1, 2]) {
      pool.statements = 0;
      await Promise.all(Array.from({ length: 50 }, (_, n) => commit(n)));
      // The first change goes alone or with all: for each of two commits the lock, two reads, one
      // write.
      expect(pool.statements).toBeLessThanOrEqual(8);
      expect(await table.read((view) => view.get("total")?.[0])).toBe(50 * round);
      expect(await table.read((view) => view.get("key-49-4")?.[0])).toBe(round);
    }
    await pool.close();
  }, 60_000);

  test("a block reads all its keys with few statements, also while it forgets settled calls", async () => {
    const pool = await openCounting();
    const ledger = await openEmbeddedLedger({
      table: new PostgresTable(pool),
      blockTimeMs: 200,
      ...environment,
      operator: new Uint8Array(32),
      limits: { retainedMax: 10n },
    });
    pool.most = 0;
    for (let round = 0; round < 3; round++) {
      const submitted = await Promise.all(
        Array.from({ length: 30 }, (_, n) =>
          ledger.submit(
            registrationOf(identityOf(`${round} ${n}`), { timestamp: String(Date.now()) }),
            "register",
          ),
        ),
      );
      const last = submitted.at(-1)!;
      if (isFault(last)) throw new Error(last.detail);
      while ((await ledger.submission(last.txHash))?.state !== "finalized") await Bun.sleep(20);
    }
    // And the lock, the puts, the removals, and pages of the log's map: how deep they lie depends
    // on the names, so these are fixed.
    expect(pool.most).toBeLessThanOrEqual(8);
    await ledger.close();
    await pool.close();
  }, 60_000);
});
