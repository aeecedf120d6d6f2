/**
 * Registrations a second over PostgreSQL, from the first submission until all are finalized: `bun
 * bench/registrations.ts [count] [nodes] [callers]`. Server, nodes and callers share the machine.
 * Also their processor time for each, which is the same on a busy machine.
 */
import { readFileSync } from "node:fs";

import { isFault } from "../src/core/fault.ts";
import { postgresOptions } from "../src/plugins/postgres/postgres.ts";
import { migrateSchema } from "../src/plugins/postgres/schema.ts";
import { openPool, openPostgres } from "../src/plugins/postgres/store.ts";
import { identityOf, registrationOf } from "../test/support/identity.ts";
import { postgresAbsence, startPostgres } from "../test/support/postgres.ts";

const absence = postgresAbsence();
if (absence !== null) throw new Error(absence);
const [count = 3_000, nodes = 1, callers = 256] = process.argv.slice(2).map(Number);
const server = await startPostgres(["fsync=on", "max_connections=80", "shared_buffers=256MB"]);
const options = postgresOptions.parse({ urls: [server.url], block_time_ms: 1_000 });
const pool = await openPool(options);
await migrateSchema(pool, options).finally(() => pool.close());
const environment = { now: Date.now, log: () => {}, fatal: () => {} };
const stores = await Promise.all(
  Array.from({ length: nodes }, () => openPostgres(options, environment)),
);
const ledgers = stores.map((store) => store.capabilities.ledger!);
const timestamp = String(Date.now());
const calls = Array.from({ length: count }, (_, n) =>
  registrationOf(identityOf(`registration ${n}`), { timestamp }),
);

/** Of this process, and of the server's connections, in milliseconds. */
async function processorMs(): Promise<number> {
  const pids = (
    await server.sql("select pid from pg_stat_activity where application_name = 'waypost'")
  ).match(/\d+/g);
  const ofServer = (pids ?? []).map(
    (pid) => Number(readFileSync(`/proc/${pid}/schedstat`, "utf8").split(" ")[0]) / 1e6,
  );
  const { user, system } = process.cpuUsage();
  return ofServer.reduce((sum, ms) => sum + ms, (user + system) / 1_000);
}

const begunMs = performance.now();
const begunProcessorMs = await processorMs();
const hashes: string[] = [];
let next = 0;
const submitAll = async (_: unknown, caller: number): Promise<void> => {
  for (let call = calls[next++]; call !== undefined; call = calls[next++]) {
    const submission = await ledgers[caller % nodes]!.submit(call, "register");
    if (isFault(submission)) throw new Error(submission.detail);
    hashes.push(submission.txHash);
  }
};
await Promise.all(Array.from({ length: callers }, submitAll));
const acceptedMs = performance.now();
for (const hash of hashes) {
  while ((await ledgers[0]!.submission(hash))?.state !== "finalized") await Bun.sleep(20);
}
const finalizedMs = performance.now();
const eachMs = ((await processorMs()) - begunProcessorMs) / count;

const rate = (endMs: number) => Math.round((count / (endMs - begunMs)) * 1_000);
console.log(
  `${nodes} nodes, ${callers} callers: ${rate(acceptedMs)} accepted, ${rate(finalizedMs)} finalized a second, ${eachMs.toFixed(2)} ms each`,
);
await Promise.all(stores.map((store) => store.close()));
await server.end();
