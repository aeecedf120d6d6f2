/** Clocks that jump after the start of a node that shares its database with others. */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { hourMs, minuteMs } from "../../src/core/codec/time.ts";
import { postgresPlugin } from "../../src/plugins/postgres/postgres.ts";
import type { Mailbox } from "../../src/storage/contract.ts";
import { optionsOf } from "../conformance/options.ts";
import { alice, entry, failureOf, id, listAll, pageOf, quota } from "../conformance/samples.ts";
import { startTestNodes } from "../support/nodes.ts";
import { type PostgresServer, postgresAbsence, startPostgres } from "../support/postgres.ts";
import { pause } from "../support/wait.ts";

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
    // A partition goes as a whole, when all that it may hold has ended.
    const main = {
      urls: [server.url],
      connections: 4,
      block_time_ms: 200,
      partition_ms: 15 * minuteMs,
    };
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

test.skipIf(absence !== null)(
  "after the clocks of a node and its database were hours ahead, proofs are accepted, once each",
  async () => {
    const schema = "both_ahead";
    const main = { urls: [server.url], schema, connections: 2 };
    await postgresPlugin.migrate?.(optionsOf(postgresPlugin, main));
    let aheadMs = 0;
    const now = () => Date.now() + aheadMs;
    const setClocks = (ms: number) => {
      aheadMs = ms;
      const text = `(extract(epoch from clock_timestamp()) * 1000)::bigint + ${ms}`;
      return server.sql(`create or replace function ${schema}.clock_ms() returns bigint
        language sql as $$ select ${text} $$`);
    };
    const environment = { now: Date.now, log: () => {}, fatal: () => {} };
    const store = await postgresPlugin.open(optionsOf(postgresPlugin, main) as never, environment);
    const { mailbox, replay } = store.capabilities;
    const claim = (tag: string, lifeMs: number) => replay!.claim(tag, now() + lifeMs, now());
    expect(await claim("used", hourMs)).toBe(true);
    await setClocks(6 * hourMs);
    expect(await claim("ahead", minuteMs)).toBe(true);
    await setClocks(7 * hourMs);
    // That time has lasted: what ended by it is forgotten.
    expect(await replay!.expire(now(), 1_000)).toBe(2);
    await setClocks(0);
    expect(await claim("new", 10 * minuteMs)).toBe(true);
    expect(await claim("new", 10 * minuteMs)).toBe(false);
    await storeOne(mailbox!, 1, now());
    const proof = { tag: "acknowledgement", untilMs: now() + 10 * minuteMs };
    expect(await mailbox!.claimAndRemove(proof, alice, [id(1)], now())).toHaveLength(1);
    await store.close();
  },
  60_000,
);

test.skipIf(absence !== null)(
  "a claim is kept for as long as the clock of a node may be behind the database's",
  async () => {
    const schema = "kept_claims";
    const main = { urls: [server.url], schema, connections: 2 };
    await postgresPlugin.migrate?.(optionsOf(postgresPlugin, main));
    const environment = { now: Date.now, log: () => {}, fatal: () => {} };
    const store = await postgresPlugin.open(optionsOf(postgresPlugin, main) as never, environment);
    const replay = store.capabilities.replay!;
    const nowMs = Date.now();
    expect(await replay.claim("proof", nowMs + 1, nowMs)).toBe(true);
    await pause(5, "the claim ends by the clock of this node");
    expect(await replay.expire(Date.now(), 1_000)).toBe(0);
    // By the clock of another node it has not ended.
    expect(await replay.claim("proof", nowMs + 1, nowMs - 4_000)).toBe(false);
    await store.close();
  },
  60_000,
);
