/** A node whose database is away: what clients get, and how much the log says. */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { postgresPlugin } from "../../src/plugins/postgres/postgres.ts";
import { optionsOf } from "../conformance/options.ts";
import { startTestNodes } from "../support/nodes.ts";
import { type PostgresServer, postgresAbsence, startPostgres } from "../support/postgres.ts";

const absence = postgresAbsence();
if (absence !== null) console.log(`SKIPPED: ${absence}`);

let server: PostgresServer;
beforeAll(async () => {
  if (absence === null) server = await startPostgres();
}, 120_000);
afterAll(() => server?.end());

const minutes = 3 * 60_000;

test.skipIf(absence !== null)(
  "is one line for requests, sweeps, blocks and lists together, and an answer that names no chain",
  async () => {
    const main = { urls: [server.url], connections: 4, block_time_ms: 200 };
    await postgresPlugin.migrate?.(optionsOf(postgresPlugin, main));
    const nodes = await startTestNodes({ stores: { main: { plugin: "postgres", ...main } } });
    const complaints = () =>
      nodes.lines.filter(({ level }) => level === "warn" || level === "error");
    const before = complaints().length;
    await server.stop("immediate");
    const beganMs = performance.now();
    const codes = new Set<string>();
    // Long enough for some sweeps and blocks; a busy machine only makes it longer.
    while (performance.now() - beganMs < 3_000 || complaints().length === before) {
      const answer = await fetch(`${nodes.url}/resolve/did:svc:1111111111111111111111`);
      codes.add(`${answer.status} ${((await answer.json()) as { code: string }).code}`);
      await fetch(`${nodes.url}/readyz`);
    }
    expect([...codes]).toEqual(["503 service_unavailable"]);
    expect(complaints().slice(before)).toHaveLength(1);
    await server.start();
    await nodes.stop();
  },
  minutes,
);
