/** The schema of the PostgreSQL driver: what is missing, and what a newer program has made. */
import { describe, expect, test } from "bun:test";
import { postgresOptions } from "../../src/plugins/postgres/postgres.ts";
import { migrateSchema } from "../../src/plugins/postgres/schema.ts";
import { migratePostgres, openPool, openPostgres } from "../../src/plugins/postgres/store.ts";
import { failureOf } from "../conformance/samples.ts";
import { startPooler } from "../support/pooler.ts";
import { postgresAbsence, startPostgres } from "../support/postgres.ts";

const absence = postgresAbsence();
const suite = absence === null ? describe : () => test(`skipped: ${absence}`, () => {});
const environment = { now: Date.now, log: () => {}, fatal: () => {} };

suite("the schema", () => {
  test("one that is missing, newer, of another time or not synced is refused with what to do, and several programs may migrate at once", async () => {
    const own = await startPostgres(["max_connections=30"]);
    const options = postgresOptions.parse({ urls: [own.url], connections: 2 });
    try {
      expect(String(await failureOf(() => openPostgres(options, environment)))).toContain(
        "storage migrate",
      );
      const pools = await Promise.all([1, 2, 3].map(() => openPool(options)));
      const done = await Promise.allSettled(pools.map((pool) => migrateSchema(pool, options)));
      expect(done.some(({ status }) => status === "fulfilled")).toBe(true);
      expect(await migrateSchema(pools[0]!, options)).toContain("already");
      await Promise.all(pools.map((pool) => pool.close()));
      const store = await openPostgres(options, environment);
      await store.close();
      for (const [ms, problem] of [
        [20_000, "20 s ahead of"],
        [-20_000, "20 s behind"],
      ] as const) {
        const apart = { ...environment, now: () => Date.now() + ms };
        expect(String(await failureOf(() => openPostgres(options, apart)))).toContain(problem);
      }
      for (const weak of ["synchronous_commit", "fsync"]) {
        const set = async (value: "on" | "off") => {
          await own.sql(`alter system set ${weak} = ${value}`);
          await own.sql("select pg_reload_conf()");
          while (!(await own.sql(`show ${weak}`)).includes(value)) await Bun.sleep(20);
        };
        await set("off");
        expect(String(await failureOf(() => openPostgres(options, environment)))).toContain(
          "before it syncs",
        );
        await set("on");
      }
      // A newer program upgraded: this one goes on where that allows it, so the upgrade can be
      // taken back.
      await own.sql("update waypost.meta set version = 99");
      await (await openPostgres(options, environment)).close();
      expect(await migratePostgres(options)).toContain("version 99 already");
      await own.sql("update waypost.meta set readable_by = 99");
      expect(String(await failureOf(() => openPostgres(options, environment)))).toContain(
        "version 99",
      );
      // As on a worker of Citus, whose locks exclude no one at the coordinator.
      await own.sql("create table pg_dist_local_group as select 0 as groupid");
      await own.sql("update waypost.meta set readable_by = 1");
      await (await openPostgres(options, environment)).close();
      await own.sql("update pg_dist_local_group set groupid = 1");
      for (const begin of [
        () => openPostgres(options, environment),
        () => migratePostgres(options),
      ])
        expect(String(await failureOf(begin))).toContain("coordinator");
    } finally {
      await own.end();
    }
  }, 60_000);
});

suite("a pooler", () => {
  test("that gives each transaction another session is refused at the start", async () => {
    const own = await startPostgres(["max_connections=30"]);
    const pooler = await startPooler(own.port);
    try {
      const options = postgresOptions.parse({ urls: [own.url], connections: 2 });
      await migratePostgres(options);
      const pooled = { ...options, urls: [pooler.url] };
      expect(String(await failureOf(() => openPostgres(pooled, environment)))).toContain(
        "set its mode to session",
      );
      await (await openPostgres(options, environment)).close();
    } finally {
      pooler.end();
      await own.end();
    }
  }, 60_000);
});
