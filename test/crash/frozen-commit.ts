/** A worker that begins a commit of the ledger, tells so, and then runs nothing any more. */
import type { PostgresOptions } from "../../src/plugins/postgres/postgres.ts";
import { PostgresTable } from "../../src/plugins/postgres/records.ts";
import { openPool } from "../../src/plugins/postgres/store.ts";

self.onmessage = async ({ data }: MessageEvent<PostgresOptions>) => {
  const table = new PostgresTable(await openPool(data));
  await table.commit(() => {
    postMessage("holds the lock");
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0);
  });
};
