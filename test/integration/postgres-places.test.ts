/**
 * One store over several databases: what is away closes its own places only, and places move while
 * nodes work.
 */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { SQL } from "bun";
import type { Did, MailboxKey, Uuid } from "../../src/core/codec/did.ts";
import { checkProbes } from "../../src/nodes/http/status.ts";
import { openBlocks } from "../../src/nodes/parties/blocks.ts";
import { openResults } from "../../src/nodes/results.ts";
import { openLocalBus } from "../../src/plugins/bus/local.ts";
import {
  type PostgresOptions,
  postgresOptions,
  postgresPlugin,
} from "../../src/plugins/postgres/postgres.ts";
import { migratePostgres, openPostgres } from "../../src/plugins/postgres/store.ts";
import { type Mailbox, type Store, StoreError } from "../../src/storage/contract.ts";
import { bytesOf, entry, failureOf, ids, listAll, pageOf, quota } from "../conformance/samples.ts";
import { type PostgresServer, postgresAbsence, startPostgres } from "../support/postgres.ts";
import { folderInMemory } from "../support/scratch.ts";

const absence = postgresAbsence();
const suite = absence === null ? describe : () => test(`skipped: ${absence}`, () => {});
const environment = { now: Date.now, log: () => {}, fatal: () => {} };
const settings = ["full_page_writes=off", "max_connections=60", "shared_buffers=64MB"];
let home: PostgresServer;
let east: PostgresServer;
let schemas = 0;
const open: Store[] = [];

/** Without `east`, and with it: a schema in each of two servers. */
function optionsPair(): { readonly alone: PostgresOptions; readonly both: PostgresOptions } {
  const schema = `place_${schemas++}`;
  const input = { urls: [home.url], schema, connections: 3, block_time_ms: 200 };
  const shards = { east: { urls: [east.url], schema } };
  return { alone: postgresOptions.parse(input), both: postgresOptions.parse({ ...input, shards }) };
}

async function opened(options: PostgresOptions): Promise<Store> {
  const store = await openPostgres(options, environment);
  open.push(store);
  return store;
}

const boxes = Array.from({ length: 40 }, (_, n) => `did:svc:box${n}` as MailboxKey);
/** The first ten bits of the SHA-256. */
const placeOf = (box: string): number =>
  new Bun.CryptoHasher("sha256").update(box).digest().readUInt16BE(0) >> 6;
const inFirstHalf = (box: MailboxKey) => placeOf(box) < 512;

async function codeOf(operation: () => Promise<unknown>): Promise<string> {
  const error = await failureOf(operation);
  return error instanceof StoreError ? error.code : error === null ? "none" : String(error);
}

type Load = {
  readonly held: Map<string, MailboxKey>;
  readonly acked: Set<string>;
  wrong: string[];
  answered: number;
};

/**
 * Stores, acknowledges and reads all mailboxes until `until` settles, at two nodes; a model says
 * what must be there.
 */
async function workUntil(nodes: readonly Mailbox[], until: Promise<unknown>): Promise<Load> {
  const load: Load = { held: new Map(), acked: new Set(), wrong: [], answered: 0 };
  let over = false;
  const work = async (box: MailboxKey, n: number): Promise<void> => {
    const own: Uuid[] = [];
    for (let round = 0; !over; round++) {
      const at = nodes[(n + round) % nodes.length]!;
      const messageId = crypto.randomUUID() as Uuid;
      const stored = await at.store(
        entry(0, { recipient: box, messageId, envelope: bytesOf(round, 500) }),
        quota(),
      );
      if (stored.kind !== "stored") load.wrong.push(`${messageId} is ${stored.kind}`);
      own.push(messageId);
      load.held.set(messageId, box);
      load.answered++;
      if (round % 3 === 2) {
        const oldest = own.shift()!;
        const claim = { tag: `ack ${oldest}`, untilMs: 9_000 };
        const removed = await nodes[(n + round + 1) % nodes.length]!.claimAndRemove(
          claim,
          box,
          [oldest],
          2_000,
        );
        if (removed?.length !== 1) load.wrong.push(`${oldest} was not there to acknowledge`);
        load.held.delete(oldest);
        load.acked.add(oldest);
      }
      const listed = new Set<string>(ids(await listAll(at, box, pageOf())));
      for (const id of own) if (!listed.has(id)) load.wrong.push(`${id} is not listed`);
      if (listed.size !== own.length)
        load.wrong.push(`${box} has ${listed.size} and not ${own.length}`);
    }
  };
  const all = Promise.all(boxes.slice(0, 8).map(work));
  await until.finally(() => {
    over = true;
  });
  await all;
  return load;
}

suite("a store over several databases", () => {
  beforeAll(async () => {
    [home, east] = await Promise.all([
      startPostgres(settings, folderInMemory()),
      startPostgres(settings, folderInMemory()),
    ]);
  }, 60_000);
  afterAll(async () => {
    await Promise.all(open.map((store) => store.close()));
    await Promise.all([home.end(), east.end()]);
  }, 60_000);

  test("new databases share the places, and one that is added later has none until they are moved", async () => {
    const { alone, both } = optionsPair();
    await migratePostgres(both);
    expect(await home.sql(`select count(*), max(no) from ${both.schema}.place`)).toBe("512|511\n");
    expect(await east.sql(`select count(*), min(no) from ${both.schema}.place`)).toBe("512|512\n");
    const later = optionsPair();
    await migratePostgres(later.alone);
    await migratePostgres(later.both);
    expect(await home.sql(`select count(*) from ${later.alone.schema}.place`)).toBe("1024\n");
    expect(await east.sql(`select count(*) from ${later.alone.schema}.place`)).toBe("0\n");
    expect(alone.shards).toEqual({});
  }, 60_000);

  test("a database that is away closes its own places only, at the start of a node too, and comes back", async () => {
    const { both } = optionsPair();
    await migratePostgres(both);
    const store = await opened(both);
    const mailbox = store.capabilities.mailbox!;
    for (const box of boxes) await mailbox.store(entry(1, { recipient: box }), quota());
    expect(await codeOf(() => store.probe())).toBe("none");
    await east.stop("immediate");
    try {
      const late = await opened(both);
      expect(await codeOf(() => late.probe())).toBe("partial");
      // What operators decide is in the first database, so a node starts.
      const parts = { receipts: late.capabilities.receipts!, now: Date.now, log: () => {} };
      const blocks = await openBlocks({ ...parts, bus: openLocalBus(parts) });
      blocks.close();
      expect((await openResults(parts)).digest("did:svc:a" as Did)).toBe(
        (await openResults({ ...parts, receipts: store.capabilities.receipts! })).digest(
          "did:svc:a" as Did,
        ),
      );
      // The node is ready and says which part is not.
      const [check] = await checkProbes({ "store main": () => late.probe() });
      expect(check).toMatchObject({ ok: true, text: expect.stringContaining("east") });
      for (const box of boxes) {
        const code = await codeOf(() => mailbox.store(entry(2, { recipient: box }), quota()));
        expect([box, code]).toEqual([box, inFirstHalf(box) ? "none" : "unavailable"]);
        const other = await codeOf(() => late.capabilities.mailbox!.list(box, pageOf()));
        expect([box, other]).toEqual([box, inFirstHalf(box) ? "none" : "unavailable"]);
        // What a Cache and a Relay note about a mailbox is where the mailbox is.
        const { replay, receipts } = late.capabilities;
        const claimed = await codeOf(() => replay!.claim(`proof:${box}:nonce`, 9_000, 1_000));
        expect([box, claimed]).toEqual([box, inFirstHalf(box) ? "none" : "unavailable"]);
        const noted = await codeOf(() => receipts!.get(`relay:${box}:id`, 1_000));
        expect([box, noted]).toEqual([box, inFirstHalf(box) ? "none" : "unavailable"]);
        const nextLife = await codeOf(() =>
          store.capabilities.mailbox!.list(`${box}~1` as MailboxKey, pageOf()),
        );
        expect([box, nextLife]).toEqual([box, inFirstHalf(box) ? "none" : "unavailable"]);
      }
      // What the other holds is known from before.
      expect((await mailbox.stats(2_000)).entries).toBeGreaterThanOrEqual(
        boxes.filter(inFirstHalf).length * 2,
      );
    } finally {
      await east.start();
    }
    for (const node of open.slice(-2)) {
      for (
        const endMs = Date.now() + 60_000;
        (await codeOf(() => node.probe())) !== "none";
        await Bun.sleep(50)
      ) {
        if (Date.now() > endMs) throw new Error("the database does not come back");
      }
      for (const box of boxes)
        await node.capabilities.mailbox!.store(entry(3, { recipient: box }), quota());
    }
    expect((await mailbox.list(boxes[0]!, pageOf())) as object).toHaveProperty("entries");
    const refused = failureOf(() => migratePostgres(both, { places: [1, 0], to: "east" }));
    expect(await refused).toMatchObject({ message: expect.stringContaining("place 0") });
  }, 90_000);

  test("places move to another database and back under load, and what was answered is there once", async () => {
    const { alone, both } = optionsPair();
    await migratePostgres(alone);
    await migratePostgres(both);
    const nodes = [await opened(both), await opened(both)];
    const [first, second] = nodes.map((node) => node.capabilities.mailbox!);
    const { receipts, replay } = nodes[0]!.capabilities;
    await receipts!.put("kept", bytesOf(1, 20), 9_000);
    expect(await replay!.claim("used", 9_000, 1_000)).toBe(true);
    await first!.store(
      entry(900, { recipient: boxes[30]!, onExpiry: "TombstoneReference" }),
      quota(),
    );
    await first!.store(entry(901, { recipient: boxes[30]!, labels: ["via:1", "from:a"] }), quota());
    await first!.remove(boxes[30]!, [entry(901).messageId], 2_000);
    const busy = [...new Set([...boxes.slice(0, 8), boxes[30]!].map(placeOf))];
    const moves = async () => {
      await migratePostgres(both, { places: busy, to: "east" });
      await migratePostgres(both, { places: busy, to: "home" });
      await migratePostgres(both, { places: busy, to: "east" });
    };
    const load = await workUntil([first!, second!], moves());
    expect(load.wrong).toEqual([]);
    expect(load.answered).toBeGreaterThan(50);
    const listed = (
      await Promise.all(boxes.slice(0, 8).map((box) => listAll(second!, box, pageOf())))
    ).flatMap(ids);
    expect(new Set<string>(listed)).toEqual(new Set(load.held.keys()));
    expect(listed.length).toBe(load.held.size);
    expect(await home.sql(`select count(*) from ${both.schema}.held`)).toBe("0\n");
    expect(await first!.stats(2_000)).toEqual(await second!.stats(2_000));
    // Everything of a place went along: what was acknowledged, kept, claimed and noted.
    const texts = ["used", "kept"].map(placeOf);
    await migratePostgres(both, { places: texts, to: "east" });
    expect(await second!.store(entry(901, { recipient: boxes[30]! }), quota())).toEqual({
      kind: "duplicate",
      expiresAtMs: 10_000,
      isSame: true,
      author: "from:a",
    });
    const left = await second!.message(boxes[30]!, entry(900).messageId, entry(900).expiresAtMs);
    expect(left.state).toBe("expired");
    expect(await replay!.claim("used", 9_000, 1_000)).toBe(false);
    expect(await receipts!.get("kept", 1_000)).toEqual(bytesOf(1, 20));
    for (const table of ["held", "acked", "kept", "claim", "receipt", "mailbox"])
      expect([table, await home.sql(`select count(*) from ${both.schema}.${table}`)]).toEqual([
        table,
        "0\n",
      ]);
  }, 300_000);

  test("what a dead mover left is removed by a node's sweep, and nothing of one that lives", async () => {
    const { alone, both } = optionsPair();
    await migratePostgres(alone);
    await migratePostgres(both);
    const { schema } = both;
    const box = boxes[0]!;
    const no = placeOf(box);
    const move = crypto.randomUUID();
    const mover = new SQL({ url: home.url, max: 1 });
    const begun = await mover.reserve();
    await begun.unsafe("begin");
    await begun.unsafe(`select pg_advisory_xact_lock(${schema}.place_lock(${no}))`);
    await home.sql(`select ${schema}.leave(${no}, '${move}')`);
    await east.sql(`select ${schema}.arrive(${no}, '${move}')`);
    await east.sql(`insert into ${schema}.mailbox (key, entries, bytes) values ('${box}', 1, 10)`);
    await east.sql(`insert into ${schema}.claim values ('\\x00', 9000, 1000, ${no})`);
    const left = () =>
      east.sql(`select (select count(*) from ${schema}.place), (select count(*) from ${schema}.mailbox),
        (select count(*) from ${schema}.claim where until_ms = 9000)`);
    const sweep = async () => (await opened(both)).capabilities.mailbox!.expire(0, 10);
    await sweep();
    expect(await left()).toBe("1|1|1\n");
    await begun.unsafe("rollback");
    begun.release();
    await mover.close();
    await sweep();
    expect(await left()).toBe("0|0|0\n");
    const state = `select state from ${schema}.place where no = ${no}`;
    expect(await home.sql(state)).toBe("here\n");
    // One that died before it removed the place where it was.
    await migratePostgres(both, { places: [no], to: "east" });
    await home.sql(`insert into ${schema}.mailbox (key) values ('${box}')`);
    await home.sql(`update ${schema}.place set move = '${move}' where no = ${no}`);
    await sweep();
    expect(await home.sql(`select count(*) from ${schema}.mailbox`)).toBe("0\n");
    expect([await home.sql(state), await east.sql(state)]).toEqual(["gone\n", "here\n"]);
  }, 60_000);

  test("a mover that is killed leaves no place closed and nothing lost, wherever it was", async () => {
    const { alone, both } = optionsPair();
    await migratePostgres(alone);
    await migratePostgres(both);
    const nodes = [await opened(both), await opened(both)].map(
      (node) => node.capabilities.mailbox!,
    );
    const places = [...new Set(boxes.slice(0, 8).map(placeOf))];
    const kills = async () => {
      for (let n = 0; n < 8; n++) {
        const mover = new Worker(new URL("postgres-mover.ts", import.meta.url).href);
        const started = new Promise((resolve) => {
          mover.onmessage = resolve;
        });
        mover.postMessage({ options: both, move: { places, to: n % 2 === 0 ? "east" : "home" } });
        await started;
        await Bun.sleep(20 + n * 30);
        const killed =
          "pg_terminate_backend(pid) from pg_stat_activity where application_name = 'waypost' and pid <> 0";
        mover.terminate();
        if (n % 3 === 2) await (n % 2 === 0 ? home : east).sql(`select ${killed}`);
        await Bun.sleep(150);
      }
    };
    const load = await workUntil(nodes, kills());
    expect(load.wrong).toEqual([]);
    const listed = (
      await Promise.all(boxes.slice(0, 8).map((box) => listAll(nodes[1]!, box, pageOf())))
    ).flatMap(ids);
    expect(new Set<string>(listed)).toEqual(new Set(load.held.keys()));
    expect(listed.length).toBe(load.held.size);
    // The same command once more finishes what was begun.
    await migratePostgres(both, { places, to: "east" });
    expect(await home.sql(`select count(*) from ${both.schema}.held`)).toBe("0\n");
  }, 300_000);
});

test("two shards in one schema of a database are refused before anything opens", () => {
  const urls = ["postgres://waypost@127.0.0.1:5432/waypost"];
  const settingsOf = (shards: object) => postgresPlugin.parseOptions({ urls, shards });
  expect(settingsOf({ east: { urls, schema: "east" } }).ok).toBe(true);
  const [shared, own] = [
    settingsOf({ east: { urls } }),
    settingsOf({ east: { urls, schema: "e" }, west: { urls, schema: "e" } }),
  ];
  for (const result of [shared, own])
    expect(result).toMatchObject({ ok: false, problems: [{ setting: "shards" }] });
});
