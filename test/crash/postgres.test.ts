/**
 * The PostgreSQL driver when servers and connections fail: an answer is true, nothing is stored
 * twice, an unreachable server is `unavailable`, and everything works again by itself.
 */

import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { SQL } from "bun";
import type { MailboxKey, Uuid } from "../../src/core/codec/did.ts";
import { isFault } from "../../src/core/fault.ts";
import { type PostgresOptions, postgresOptions } from "../../src/plugins/postgres/postgres.ts";
import { migrateSchema } from "../../src/plugins/postgres/schema.ts";
import { openPool, openPostgres } from "../../src/plugins/postgres/store.ts";
import {
  type Mailbox,
  type Store,
  StoreError,
  type StoreOutcome,
} from "../../src/storage/contract.ts";
import { bytesOf, entry, failureOf, listAll, pageOf, quota } from "../conformance/samples.ts";
import { identityOf, registrationOf } from "../support/identity.ts";
import { type PostgresServer, postgresAbsence, startPostgres } from "../support/postgres.ts";
import { pause } from "../support/wait.ts";
import { openCutter } from "./cutter.ts";

const absence = postgresAbsence();
const environment = { now: Date.now, log: () => {}, fatal: () => {} };
let server: PostgresServer;
let schemas = 0;

function optionsFor(changes: Partial<PostgresOptions> = {}): PostgresOptions {
  const urls = changes.urls ?? [server.url];
  return {
    ...postgresOptions.parse({ urls, schema: `fault_${schemas++}`, connections: 3 }),
    ...changes,
  };
}

async function openFresh(changes: Partial<PostgresOptions> = {}): Promise<Store> {
  const options = optionsFor(changes);
  const pool = await openPool(options);
  await migrateSchema(pool, options).finally(() => pool.close());
  return openPostgres(options, environment);
}

/** Of a primary that has a standby. */
const replicated = ["fsync=on", "max_connections=40", "shared_buffers=64MB", "max_wal_senders=4"];

const box = (n: number) => `did:svc:box${n}` as MailboxKey;
const open: Store[] = [];

function mailboxOf(store: Store): Mailbox {
  open.push(store);
  return store.capabilities.mailbox!;
}

type Load = {
  readonly stored: [MailboxKey, Uuid][];
  readonly failed: string[];
  readonly odd: StoreOutcome[];
};

const callersMax = 40;

/** Waits for so many answers from now on, however slow the machine is. */
type UntilStored = (count: number) => Promise<void>;
/** Waits until each caller has had an answer from now on. */
type UntilEach = () => Promise<void>;

/**
 * Stores fresh messages at 40 callers until `faults` settles. A fresh message is never a duplicate.
 */
async function storeDuring(
  mailbox: Mailbox,
  faults: (untilStored: UntilStored, untilEach: UntilEach) => Promise<void>,
): Promise<Load> {
  const load: Load = { stored: [], failed: [], odd: [] };
  const answers: number[] = Array(callersMax).fill(0);
  const untilStored: UntilStored = async (count) => {
    const due = load.stored.length + count;
    await untilWorks(async () => {
      if (load.stored.length < due) throw new Error(`${load.stored.length} of ${due} were stored`);
    });
  };
  const untilEach: UntilEach = async () => {
    const before = [...answers];
    await untilWorks(async () => {
      const late = answers.filter((count, caller) => count === before[caller]).length;
      if (late > 0) throw new Error(`${late} callers have had no answer`);
    });
  };
  let over = false;
  const callers = Array.from({ length: callersMax }, async (_, caller) => {
    while (!over) {
      const message = entry(0, {
        recipient: box(caller % 7),
        messageId: crypto.randomUUID() as Uuid,
      });
      try {
        const outcome = await mailbox.store(message, quota());
        if (outcome.kind === "stored") load.stored.push([message.recipient, message.messageId]);
        else load.odd.push(outcome);
        answers[caller] = (answers[caller] ?? 0) + 1;
      } catch (error) {
        if (!(error instanceof StoreError) || error.code !== "unavailable") throw error;
        load.failed.push(error.message);
        await Bun.sleep(20);
      }
    }
  });
  await faults(untilStored, untilEach).finally(() => {
    over = true;
  });
  await Promise.all(callers);
  return load;
}

/** Everything that was answered is there, once. */
async function expectKept(mailbox: Mailbox, load: Load): Promise<void> {
  expect(load.odd).toEqual([]);
  expect(load.stored.length).toBeGreaterThan(100);
  const held = new Map<string, number>();
  for (let n = 0; n < 7; n++) {
    for (const { messageId } of await listAll(mailbox, box(n), pageOf())) {
      held.set(`${box(n)} ${messageId}`, (held.get(`${box(n)} ${messageId}`) ?? 0) + 1);
    }
  }
  const lost = load.stored.filter(([recipient, id]) => held.get(`${recipient} ${id}`) !== 1);
  expect(lost).toEqual([]);
  expect([...held.values()].every((count) => count === 1)).toBe(true);
}

async function codeOf(operation: () => Promise<unknown>): Promise<string> {
  const error = await failureOf(operation);
  return error instanceof StoreError ? error.code : error === null ? "none" : String(error);
}

/** Tries until it works, and says how long that took. */
async function untilWorks(operation: () => Promise<unknown>, msMax = 60_000): Promise<void> {
  const endMs = performance.now() + msMax;
  for (let last: unknown; ; await Bun.sleep(50)) {
    last = await failureOf(operation);
    if (last === null) return;
    if (performance.now() > endMs) throw last;
  }
}

/** Until a statement of a store waits for a lock that another transaction has. */
async function untilLockAwaited(): Promise<void> {
  const waiting =
    "select count(*) from pg_stat_activity where application_name = 'waypost' and wait_event_type = 'Lock'";
  await untilWorks(async () => expect(await server.sql(waiting)).toBe("1\n"));
}

/** Has run `statement` in a transaction of a connection of its own, which lasts until `end`. */
async function transactionOf(statement: string): Promise<{ readonly end: () => Promise<void> }> {
  const client = new SQL({ url: server.url, max: 1 });
  await client.unsafe("begin");
  await client.unsafe(statement);
  return {
    end: async () => {
      await client.unsafe("commit");
      await client.close();
    },
  };
}

const suite = absence === null ? describe : () => test(`skipped: ${absence}`, () => {});

suite("the PostgreSQL store when things break", () => {
  beforeAll(async () => {
    server = await startPostgres(["fsync=on", "max_connections=60", "shared_buffers=64MB"]);
  }, 60_000);
  afterAll(async () => {
    await Promise.all(open.map((store) => store.close()));
    await server.end();
  }, 60_000);

  test("a server that is killed and started again loses nothing that was answered", async () => {
    const mailbox = mailboxOf(await openFresh());
    const kills = async (untilStored: UntilStored) => {
      for (let i = 0; i < 2; i++) {
        await untilStored(100);
        await server.stop("immediate");
        await server.start();
      }
      await untilStored(100);
    };
    await expectKept(mailbox, await storeDuring(mailbox, kills));
  }, 90_000);

  test("connections that are cut again and again cost no answer, and nothing is stored twice", async () => {
    const mailbox = mailboxOf(await openFresh());
    const cuts = async (_: UntilStored, untilEach: UntilEach) => {
      // A call is tried again a few times: one that is cut each time is told so.
      for (let i = 0; i < 15; i++) {
        await untilEach();
        await server.sql(
          "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'waypost'",
        );
      }
    };
    const load = await storeDuring(mailbox, cuts);
    await expectKept(mailbox, load);
    expect(load.failed).toEqual([]);
  }, 90_000);

  test("when the answer to a commit is lost, the outcome is found out and not guessed", async () => {
    const cutter = await openCutter(server.port);
    try {
      const url = `postgres://waypost@127.0.0.1:${cutter.port}/postgres`;
      const store = await openFresh({ urls: [url], connections: 1 });
      const mailbox = mailboxOf(store);
      const { replay, receipts } = store.capabilities;
      for (let n = 1; n <= 5; n++) {
        cutter.loseNextAnswers(1);
        expect(await mailbox.store(entry(n), quota())).toEqual({ kind: "stored" });
        cutter.loseNextAnswers(1);
        expect(await replay!.claim(`tag ${n}`, 9_000, 1_000)).toBe(true);
        cutter.loseNextAnswers(1);
        expect(await receipts!.putIfAbsent(`key ${n}`, bytesOf(n, 10), 9_000, 1_000)).toBeNull();
        cutter.loseNextAnswers(1);
        const [removed] = await mailbox.remove(entry(n).recipient, [entry(n).messageId], 2_000);
        expect(removed?.messageId).toBe(entry(n).messageId);
      }
      expect(cutter.lost()).toBe(20);
    } finally {
      await cutter.close();
    }
  }, 60_000);

  test("when the answer to a commit of the ledger is lost, the call is taken once and settles", async () => {
    const cutter = await openCutter(server.port);
    try {
      const urls = [`postgres://waypost@127.0.0.1:${cutter.port}/postgres`];
      const store = await openFresh({ urls, connections: 1, block_time_ms: 100 });
      open.push(store);
      const ledger = store.capabilities.ledger!;
      for (let n = 0; n < 4; n++) {
        const identity = identityOf(crypto.randomUUID());
        cutter.loseNextAnswers(1, "commit");
        const submission = await ledger.submit(
          registrationOf(identity, { timestamp: String(Date.now()) }),
          "register",
        );
        expect(isFault(submission)).toBe(false);
        await untilWorks(async () => {
          const { record } = await ledger.account(identity.did);
          if (record === null) throw new Error("not yet");
          expect(record.version).toBe(1n);
        });
      }
      expect(cutter.lost()).toBeGreaterThan(2);
    } finally {
      await cutter.close();
    }
  }, 60_000);

  test("a transaction whose connection broke runs no further statement, and begins again", async () => {
    const options = optionsFor();
    const pool = await openPool(options);
    await migrateSchema(pool, options);
    let attempts = 0;
    await pool.transaction(async (query) => {
      attempts++;
      const [own] = await query("select pg_backend_pid() as pid");
      if (attempts === 1) {
        const alive = `select count(*) from pg_stat_activity where pid = ${own!["pid"]}`;
        await server.sql(`select pg_terminate_backend(${own!["pid"]})`);
        await untilWorks(async () => expect(await server.sql(alive)).toBe("0\n"));
      }
      await query("insert into {s}.ledger values ($1, '')", [`attempt ${attempts}`]);
    });
    await pool.close();
    expect(await server.sql(`select key from ${options.schema}.ledger`)).toBe("attempt 2\n");
  }, 60_000);

  test("a node that freezes in a commit of the ledger holds the others for two seconds", async () => {
    const options = optionsFor({ statement_timeout_ms: 60_000 });
    const pool = await openPool(options);
    await migrateSchema(pool, options).finally(() => pool.close());
    const frozen = new Worker(new URL("frozen-commit.ts", import.meta.url).href);
    await new Promise<unknown>((resolve) => {
      frozen.onmessage = resolve;
      frozen.postMessage(options);
    });
    const store = await openPostgres(options, environment);
    open.push(store);
    const submitted = store.capabilities.ledger!.submit(
      registrationOf(identityOf(crypto.randomUUID()), { timestamp: String(Date.now()) }),
      "register",
    );
    expect(isFault(await submitted)).toBe(false);
    frozen.terminate();
  }, 40_000);

  test("a statement that takes too long is unavailable, leaves nothing behind, and the next one works", async () => {
    const options = { statement_timeout_ms: 2_000 };
    const store = await openFresh(options);
    const mailbox = mailboxOf(store);
    await mailbox.store(entry(1), quota());
    const schema = `fault_${schemas - 1}`;
    const lock = await transactionOf(`lock table ${schema}.mailbox`);
    expect(await codeOf(() => mailbox.store(entry(2), quota()))).toBe("unavailable");
    await lock.end();
    expect(await mailbox.store(entry(2), quota())).toEqual({ kind: "stored" });
  }, 60_000);

  test("an exhausted pool answers unavailable in time and recovers", async () => {
    const mailbox = mailboxOf(await openFresh({ connections: 2, statement_timeout_ms: 500 }));
    await mailbox.store(entry(1), quota());
    const lock = await transactionOf(`lock table fault_${schemas - 1}.mailbox`);
    const begunMs = performance.now();
    const reads = Array.from({ length: 200 }, () =>
      codeOf(() => mailbox.message(box(0), entry(1).messageId, 2_000)),
    );
    expect(new Set(await Promise.all(reads))).toEqual(new Set(["unavailable"]));
    expect(performance.now() - begunMs).toBeLessThan(30_000);
    await lock.end();
    await untilWorks(() => mailbox.store(entry(2), quota()));
  }, 60_000);

  test("a receipt that another node inserts meanwhile stands, and is the answer", async () => {
    const schema = `fault_${schemas}`;
    const store = await openFresh();
    open.push(store);
    const receipts = store.capabilities.receipts!;
    // Two bytes of its place, then the key.
    const place = new Bun.CryptoHasher("sha256").update("key").digest().readUInt16BE(0) & 0xffc0;
    const bytes =
      place.toString(16).padStart(4, "0") + Buffer.from("key", "utf16le").swap16().toString("hex");
    const row = `('\\x${bytes}', '\\x07', 5000, 1000)`;
    // No one sees its row before the commit, and meanwhile it excludes every other.
    const other = await transactionOf(`insert into ${schema}.receipt values ${row}`);
    const answer = receipts.putIfAbsent("key", bytesOf(1, 20), 5_000, 1_000);
    await untilLockAwaited();
    await other.end();
    expect(await answer).toEqual(new Uint8Array([7]));
    expect(await receipts.get("key", 1_000)).toEqual(new Uint8Array([7]));
  }, 60_000);

  test("a database that takes no writes is unavailable, and works again when it does", async () => {
    const store = await openFresh();
    const mailbox = mailboxOf(store);
    await server.sql("alter system set default_transaction_read_only = on");
    await server.sql("select pg_reload_conf()");
    await untilWorks(async () =>
      expect(await codeOf(() => mailbox.store(entry(1), quota()))).toBe("unavailable"),
    );
    expect(await codeOf(() => store.probe())).toBe("unavailable");
    await server.sql("alter system reset default_transaction_read_only");
    await server.sql("select pg_reload_conf()");
    await untilWorks(() => mailbox.store(entry(1), quota()));
  }, 60_000);

  test("a partition that somebody reads for long is dropped later, and expiry does not fail", async () => {
    const schema = `fault_${schemas}`;
    const mailbox = mailboxOf(await openFresh({ partition_ms: 1_000 }));
    await mailbox.store(entry(1), quota());
    const late = 10_000 + 600_000 + 1_000;
    const reader = await transactionOf(`select count(*) from ${schema}.held`);
    expect(await mailbox.expire(late, 100)).toBeLessThan(3);
    expect(await server.sql(`select count(*) from ${schema}.part where kind = 'held'`)).toBe("1\n");
    await reader.end();
    for (let step = 0; step < 4; step++) await mailbox.expire(late, 100);
    expect(await server.sql(`select count(*) from ${schema}.part`)).toBe("0\n");
    expect(await server.sql(`select sum(entries) from ${schema}.mailbox`)).toBe("0\n");
  }, 60_000);

  test("expiry waits for a mailbox without a lock that a store needs", async () => {
    const schema = `fault_${schemas}`;
    const mailbox = mailboxOf(await openFresh({ partition_ms: 1_000 }));
    await mailbox.store(entry(1), quota());
    const late = 10_000 + 600_000 + 1_000;
    // A store that has its mailbox, and needs the acknowledged ids next.
    const storing = await transactionOf(`select 1 from ${schema}.mailbox for update`);
    const expiring = mailbox.expire(late, 100);
    await untilLockAwaited();
    expect(await server.sql(`select count(*) from ${schema}.acked`)).toBe("0\n");
    await storing.end();
    expect(await expiring).toBe(3);
    expect(await server.sql(`select count(*) from ${schema}.part`)).toBe("0\n");
  }, 60_000);

  test("a fail-over to a synchronous standby under load loses nothing that was answered", async () => {
    const primary = await startPostgres(replicated);
    const standby = await primary.standby();
    try {
      await primary.sql("alter system set synchronous_standby_names = '*'");
      await primary.sql("select pg_reload_conf()");
      const mailbox = mailboxOf(await openFresh({ urls: [primary.url, standby.url] }));
      const failOver = async (untilStored: UntilStored) => {
        await untilStored(100);
        await primary.stop("immediate");
        await standby.sql("alter system set synchronous_standby_names = ''");
        await standby.promote();
        await untilStored(100);
      };
      await expectKept(mailbox, await storeDuring(mailbox, failOver));
    } finally {
      await Promise.all([primary.end(), standby.end()]);
    }
  }, 120_000);

  test("that a write was committed before is answered only when the standby has it", async () => {
    const primary = await startPostgres(replicated);
    const standby = await primary.standby();
    try {
      const mailbox = mailboxOf(await openFresh({ urls: [primary.url] }));
      await mailbox.store(entry(1), quota());
      await primary.sql("alter system set synchronous_standby_names = '*'");
      await primary.sql("select pg_reload_conf()");
      await standby.stop("fast");
      let answered = false;
      const stored = mailbox.store(entry(2), quota()).finally(() => {
        answered = true;
      });
      const waiting = "from pg_stat_activity where wait_event = 'SyncRep'";
      await untilWorks(async () =>
        expect(await primary.sql(`select count(*) ${waiting}`)).toBe("1\n"),
      );
      // The first commit ends here, without the standby; the same write again finds its outcome and
      // waits too.
      await primary.sql(`select pg_terminate_backend(pid) ${waiting}`);
      await untilWorks(async () =>
        expect(await primary.sql(`select count(*) ${waiting}`)).toBe("1\n"),
      );
      await pause(500, "a wrong answer would come");
      expect(answered).toBe(false);
      await standby.start();
      expect(await stored).toEqual({ kind: "stored" });
      expect((await listAll(mailbox, entry(1).recipient, pageOf())).length).toBe(2);
    } finally {
      await Promise.all(open.splice(0).map((store) => store.close()));
      await Promise.all([primary.end(), standby.end()]);
    }
  }, 120_000);

  test("an old primary that comes back beside the new one gets no statement, read or write", async () => {
    const primary = await startPostgres(replicated);
    const options = optionsFor({ urls: [primary.url] });
    const pool = await openPool(options);
    await migrateSchema(pool, options).finally(() => pool.close());
    const standby = await primary.standby();
    try {
      const urls = [primary.url, standby.url];
      const during = await openPostgres({ ...options, urls }, environment);
      await mailboxOf(during).store(entry(1), quota());
      await untilWorks(async () => {
        const held = await standby.sql(`select count(*) from ${options.schema}.held`);
        if (held !== "1\n") throw new Error("the standby is behind");
      });
      // The standby is promoted while the old primary serves on: both take writes.
      await standby.promote();
      const after = await openPostgres({ ...options, urls }, environment);
      expect((await mailboxOf(after).store(entry(2), quota())).kind).toBe("stored");
      expect((await listAll(mailboxOf(after), entry(1).recipient, pageOf())).length).toBe(2);
      // The node that was there before finds the new one within seconds, and then neither reads nor
      // writes the old.
      await untilWorks(async () => {
        if ((await listAll(mailboxOf(during), entry(1).recipient, pageOf())).length !== 2)
          throw new Error("stale");
      }, 60_000);
      for (let n = 3; n < 20; n++)
        expect((await mailboxOf(during).store(entry(n), quota())).kind).toBe("stored");
      expect(await primary.sql(`select count(*) from ${options.schema}.held`)).toBe("1\n");
      expect(await standby.sql(`select count(*) from ${options.schema}.held`)).toBe("19\n");
    } finally {
      await Promise.all(open.splice(0).map((store) => store.close()));
      await Promise.all([primary.end(), standby.end()]);
    }
  }, 120_000);
});

suite("a node that did nothing while a standby was promoted", () => {
  test("uses the new primary from its first statement on, though the old one is back", async () => {
    const primary = await startPostgres(replicated);
    const options = optionsFor({ urls: [primary.url], block_time_ms: 3_600_000 });
    const pool = await openPool(options);
    await migrateSchema(pool, options).finally(() => pool.close());
    const standby = await primary.standby();
    try {
      const idle = mailboxOf(
        await openPostgres({ ...options, urls: [primary.url, standby.url] }, environment),
      );
      const writes = await Promise.all([1, 2, 3].map((n) => idle.store(entry(n), quota())));
      expect(writes.map(({ kind }) => kind)).toEqual(["stored", "stored", "stored"]);
      await untilWorks(async () =>
        expect(await standby.sql(`select count(*) from ${options.schema}.held`)).toBe("3\n"),
      );
      await primary.stop("immediate");
      await standby.promote();
      const other = mailboxOf(await openPostgres({ ...options, urls: [standby.url] }, environment));
      await other.store(entry(4, { recipient: entry(1).recipient }), quota());
      await primary.start();
      const here = (await listAll(idle, entry(1).recipient, pageOf())).map(
        ({ messageId }) => messageId,
      );
      expect(here).toContain(entry(4).messageId);
      await idle.store(entry(5), quota());
      expect(await primary.sql(`select count(*) from ${options.schema}.held`)).toBe("3\n");
    } finally {
      await Promise.all(open.splice(0).map((store) => store.close()));
      await Promise.all([primary.end(), standby.end()]);
    }
  }, 120_000);
});

suite("a full disk", () => {
  test("a disk without room for messages is full, and takes messages again when there is room", async () => {
    const disk = await smallDisk();
    if (disk === null) return;
    const own = await startPostgres(["max_connections=30"]);
    try {
      await own.sql(`create tablespace small location '${disk.folder}'`);
      await own.sql("alter role waypost set default_tablespace = small");
      const mailbox = mailboxOf(await openFresh({ urls: [own.url] }));
      let outcome = "none";
      for (let n = 0; n < 200 && outcome === "none"; n++) {
        outcome = await codeOf(() =>
          mailbox.store(entry(n, { envelope: bytesOf(n, 1 << 20) }), quota()),
        );
      }
      expect(outcome).toBe("full");
      await disk.enlarge();
      expect(await mailbox.store(entry(900, { envelope: bytesOf(1, 1 << 20) }), quota())).toEqual({
        kind: "stored",
      });
    } finally {
      await Promise.all(open.splice(0).map((store) => store.close()));
      await own.end();
      await disk.end();
    }
  }, 90_000);
});

/** A file system of 40 MiB, where this user may make one. */
async function smallDisk() {
  const { mkdtempSync, rmSync, chmodSync, mkdirSync } = await import("node:fs");
  const folder = mkdtempSync("/tmp/waypost-disk-");
  const mounted =
    Bun.spawnSync(["mount", "-t", "tmpfs", "-o", "size=40m", "tmpfs", folder]).exitCode === 0;
  if (!mounted) {
    console.log("skipped: this user can't mount a small disk");
    rmSync(folder, { recursive: true });
    return null;
  }
  const inner = `${folder}/space`;
  mkdirSync(inner);
  chmodSync(inner, 0o700);
  Bun.spawnSync(["chown", "postgres", inner]);
  return {
    folder: inner,
    enlarge: async () => {
      Bun.spawnSync(["mount", "-o", "remount,size=80m", folder]);
    },
    end: async () => {
      Bun.spawnSync(["umount", folder]);
      rmSync(folder, { recursive: true, force: true });
    },
  };
}
