/** The PostgreSQL driver keeps the contract, on a server of its own; says so when there is none. */
import { afterAll, beforeAll, test } from "bun:test";
import { migrateSchema } from "../../src/plugins/postgres/migrate.ts";
import { postgresPlugin } from "../../src/plugins/postgres/postgres.ts";
import { openPool, openPostgres } from "../../src/plugins/postgres/store.ts";
import type { Store, StoreEnvironment } from "../../src/storage/contract.ts";
import { type PostgresServer, postgresAbsence, startPostgres } from "../support/postgres.ts";
import { runConformance } from "./kit.ts";
import { optionsOf } from "./options.ts";

const absence = postgresAbsence();
let server: PostgresServer | null = null;
let schemas = 0;
const schemaOf = new WeakMap<Store, string>();

const settings = (schema: string) =>
  optionsOf(postgresPlugin, { urls: [server?.url], schema, partition_ms: 1_000, block_time_ms: 20, connections: 3 });

/** Sums of the store without lag, and no time of grace: so every law is exact here. */
async function openAt(schema: string, environment: StoreEnvironment): Promise<Store> {
  const store = await openPostgres(settings(schema), environment, { graceMs: 0, totalsAgeMs: 0 });
  schemaOf.set(store, schema);
  return store;
}

async function openFresh(environment: StoreEnvironment): Promise<Store> {
  const schema = `case_${schemas++}`;
  const pool = await openPool(settings(schema));
  await migrateSchema(pool, settings(schema), 1).finally(() => pool.close());
  return openAt(schema, environment);
}

if (absence !== null) {
  test(`skipped: ${absence}`, () => {});
} else {
  beforeAll(async () => {
    server = await startPostgres(["fsync=off", "max_connections=50", "shared_buffers=64MB"]);
  }, 60_000);
  afterAll(() => server?.end());
  runConformance({
    name: "postgres",
    provides: postgresPlugin.provides,
    expiry: "spans",
    open: openFresh,
    reopen: (store, environment) => openAt(schemaOf.get(store)!, environment),
  });
}
