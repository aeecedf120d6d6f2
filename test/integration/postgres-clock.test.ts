/** Clocks that jump after the start of a node that shares its database with others. */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { hourMs, minuteMs } from "../../src/core/codec/time.ts";
import { postgresPlugin } from "../../src/plugins/postgres/postgres.ts";
import type { Mailbox } from "../../src/storage/contract.ts";
import { optionsOf } from "../conformance/options.ts";
import { alice, entry, failureOf, listAll, pageOf, quota } from "../conformance/samples.ts";
import { startTestNodes } from "../support/nodes.ts";
import { type PostgresServer, postgresAbsence, startPostgres } from "../support/postgres.ts";

const absence = postgresAbsence();
if (absence !== null) console.log(`SKIPPED: ${absence}`);

let server: PostgresServer;
beforeAll(async () => {
  if (absence === null) server = await startPostgres(["max_connections=60"]);
}, 120_000);
afterAll(() => server?.end());

const lives = 6 * hourMs;

async function storeOne(mailbox: Mailbox, n: number, nowMs: number) {
  const changes = { recipient: alice, storedAtMs: nowMs, expiresAtMs: nowMs + lives };
  return mailbox.store(entry(n, changes), quota());
}

test.skipIf(absence !== null)(
  "a node whose clock jumps ahead removes nothing, says so, is not ready, and works again when its clock is right",
  async () => {
    const main = { urls: [server.url], connections: 4, block_time_ms: 200 };
    await postgresPlugin.migrate?.(optionsOf(postgresPlugin, main));
    const stores = { main: { plugin: "postgres", ...main } };
    let aheadMs = 0;
    const right = await startTestNodes({ stores });
    const wrong = await startTestNodes({ stores }, {}, { now: () => Date.now() + aheadMs });
    const [here, there] = [right, wrong].map(
      (nodes) => nodes.stores.stores.get("main")!.capabilities,
    );
    for (let n = 0; n < 40; n++) await storeOne(here!.mailbox!, n, Date.now());
    await here!.replay!.claim("proof", Date.now() + 10 * minuteMs, Date.now());
    await here!.receipts!.put("noted", new Uint8Array(4), Date.now() + hourMs);
    // Its first write after the jump finds it out; sweeps come before and after.
    aheadMs = 10 * hourMs;
    for (const what of [there!.mailbox!, there!.replay!, there!.receipts!])
      await what.expire(Date.now() + aheadMs, 1_000).catch(() => {});
    const refused = await failureOf(() => storeOne(there!.mailbox!, 1, Date.now() + aheadMs));
    expect(String(refused)).toContain("clock is 36000 s ahead of");
    const ready = await fetch(`${wrong.url}/readyz`);
    expect([ready.status, await ready.text()]).toEqual([
      503,
      expect.stringContaining("not ready: store main"),
    ]);
    const metrics = await (await fetch(`${wrong.url}/metrics`)).text();
    const figure = /^waypost_store_clock_ahead_seconds\{store="main",database="home"\} (.+)$/m;
    expect(Number(figure.exec(metrics)?.[1])).toBeCloseTo(36_000, -1);
    expect(wrong.lines.filter(({ message }) => message.includes("36000 s ahead"))).toHaveLength(1);
    // In the database itself, whatever a node asks for.
    const later = Date.now() + aheadMs;
    for (const call of [
      `expire(${later}, 0, 1000)`,
      `drop_idle(0, ${later}, 0, 1000)`,
      `expire_claims(${later}, 1000)`,
      `expire_receipts(${later}, 1000)`,
    ])
      await server.sql(`select waypost.${call}`);
    expect((await listAll(here!.mailbox!, alice, pageOf({ nowMs: Date.now() }))).length).toBe(40);
    expect(await here!.replay!.claim("proof", Date.now() + minuteMs, Date.now())).toBe(false);
    expect(await here!.receipts!.get("noted", Date.now())).not.toBeNull();
    aheadMs = 0;
    for (
      const endMs = performance.now() + 30_000;
      (await fetch(`${wrong.url}/readyz`)).status !== 200;
      await Bun.sleep(50)
    )
      expect(performance.now()).toBeLessThan(endMs);
    expect((await storeOne(there!.mailbox!, 41, Date.now())).kind).toBe("stored");
    await Promise.all([right.stop(), wrong.stop()]);
  },
  120_000,
);

test.skipIf(absence !== null)(
  "a message of another node is not replaced by a write whose time is beyond its end",
  async () => {
    const schema = "replaced";
    const main = { urls: [server.url], schema, connections: 2 };
    await postgresPlugin.migrate?.(optionsOf(postgresPlugin, main));
    let aheadMs = 0;
    const now = () => Date.now() + aheadMs;
    const environment = { now, log: () => {}, fatal: () => {} };
    const store = await postgresPlugin.open(optionsOf(postgresPlugin, main) as never, environment);
    const mailbox = store.capabilities.mailbox!;
    await storeOne(mailbox, 1, Date.now());
    await store.capabilities.replay!.claim("once", Date.now() + minuteMs, Date.now());
    aheadMs = 10 * hourMs;
    expect(await failureOf(() => storeOne(mailbox, 1, now()))).not.toBeNull();
    const again = store.capabilities.replay!.claim("once", now() + minuteMs, now());
    expect(await failureOf(() => again)).not.toBeNull();
    expect(await server.sql(`select count(*) from ${schema}.held`)).toBe("1\n");
    expect(await server.sql(`select count(*) from ${schema}.claim`)).toBe("1\n");
    aheadMs = 0;
    await store.close();
  },
  60_000,
);
