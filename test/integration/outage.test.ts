/** A node whose database is away: what clients get, and how much the log says. */
import { afterAll, beforeAll, expect, test } from "bun:test";
import type { InterfaceDescription } from "../../src/nodes/http/openapi.ts";
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

const away = "502 chain_unavailable";

async function codeOf(url: string): Promise<string> {
  const answer = await fetch(url);
  return `${answer.status} ${((await answer.json()) as { code: string }).code}`;
}

/**
 * Every read of the Directory, with the example of each value, and the limits, which are the
 * ledger's too.
 */
async function ledgerReads(url: string): Promise<string[]> {
  const { paths } = (await (await fetch(`${url}/openapi.json`)).json()) as InterfaceDescription;
  const reads = Object.entries(paths).flatMap(([path, { get }]) => {
    if (get?.tags[0] !== "Directory") return [];
    const values = get.parameters.filter((one) => one.in === "path");
    const fill = (text: string, { name, schema }: (typeof values)[number]) =>
      text.replace(`{${name}}`, encodeURIComponent(schema.examples?.[0] ?? ""));
    return [values.reduce(fill, path)];
  });
  expect(reads.length).toBeGreaterThanOrEqual(10);
  return [...reads, "/limits"];
}

const minutes = 3 * 60_000;

test.skipIf(absence !== null)(
  "is one line for requests, sweeps, blocks and lists together, and 502 for each read of the ledger",
  async () => {
    const main = { urls: [server.url], connections: 4, block_time_ms: 200 };
    await postgresPlugin.migrate?.(optionsOf(postgresPlugin, main));
    const nodes = await startTestNodes({ stores: { main: { plugin: "postgres", ...main } } });
    const reads = await ledgerReads(nodes.url);
    const complaints = () =>
      nodes.lines.filter(({ level }) => level === "warn" || level === "error");
    const before = complaints().length;
    await server.stop("immediate");
    const beganMs = performance.now();
    const codes = new Set<string>();
    // Long enough for some sweeps and blocks; a busy machine only makes it longer.
    while (performance.now() - beganMs < 3_000 || complaints().length === before) {
      codes.add(await codeOf(`${nodes.url}/resolve/did:svc:1111111111111111111111`));
      await fetch(`${nodes.url}/readyz`);
    }
    expect([...codes]).toEqual(["502 chain_unavailable"]);
    for (const path of reads) expect([path, await codeOf(nodes.url + path)]).toEqual([path, away]);
    expect(complaints().slice(before)).toHaveLength(1);
    await server.start();
    await nodes.stop();
  },
  minutes,
);
