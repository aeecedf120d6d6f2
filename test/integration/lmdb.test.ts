/** The LMDB driver beyond the contract: its files, its lock, its disk, damage, failure. */
import { describe, expect, test } from "bun:test";
import {
  cpSync,
  existsSync,
  linkSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  truncateSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { checkDataFile } from "../../src/plugins/lmdb/data-file.ts";
import { openEnvironment } from "../../src/plugins/lmdb/environment.ts";
import { lmdbPlugin } from "../../src/plugins/lmdb/lmdb.ts";
import { DiskTable, openLmdb } from "../../src/plugins/lmdb/store.ts";
import { MemoryTable } from "../../src/plugins/memory/table.ts";
import { type Store, StoreError, type StoreErrorCode } from "../../src/storage/contract.ts";
import { testEnvironment } from "../conformance/kit.ts";
import { optionsOf } from "../conformance/options.ts";
import {
  alice,
  bytesOf,
  entry,
  failureOf,
  id,
  ids,
  listAll,
  pageOf,
  quota,
  seeded,
} from "../conformance/samples.ts";
import { scratchPaths } from "../support/scratch.ts";

const mebibyte = 1024 * 1024;
const folder = scratchPaths("lmdb");
const options = (path: string) => optionsOf(lmdbPlugin, { path, reserve_bytes: 8 * mebibyte });

function codeOf(error: unknown): StoreErrorCode | null {
  return error instanceof StoreError ? error.code : null;
}

describe("the directory of a store", () => {
  test("is created with mode 0700, and made so when it was wider", async () => {
    const path = join(folder(), "deep", "er");
    await (await openLmdb(options(path), testEnvironment())).close();
    expect(statSync(path).mode & 0o777).toBe(0o700);
    const wide = folder();
    mkdirSync(wide, { mode: 0o755 });
    await (await openLmdb(options(wide), testEnvironment())).close();
    expect(statSync(wide).mode & 0o777).toBe(0o700);
  });

  test("may have a dot in its name", async () => {
    const path = join(folder(), "waypost.example");
    for (let i = 0; i < 2; i++) await (await openLmdb(options(path), testEnvironment())).close();
    expect(statSync(join(path, "data.mdb")).isFile()).toBe(true);
  });

  test("that holds other files is refused and left as it is", async () => {
    const path = folder();
    mkdirSync(path);
    const { mode } = statSync(path);
    writeFileSync(join(path, "letter.txt"), "dear");
    const error = await failureOf(() => openLmdb(options(path), testEnvironment()));
    expect(codeOf(error)).toBe("unavailable");
    expect([statSync(path).mode, existsSync(join(path, "data.mdb"))]).toEqual([mode, false]);
  });

  test("that is a fresh file system of its own is taken", async () => {
    const path = folder();
    mkdirSync(join(path, "lost+found"), { recursive: true });
    await (await openLmdb(options(path), testEnvironment())).close();
    expect(existsSync(join(path, "data.mdb"))).toBe(true);
  });

  test("can be open once, in this process and in others, and is free again afterwards", async () => {
    const path = folder();
    const store = await openLmdb(options(path), testEnvironment());
    const again = await failureOf(() => openLmdb(options(path), testEnvironment()));
    expect(codeOf(again)).toBe("busy");
    expect((again as Error).message).toContain("already open by another process");
    const script = `
      import { lmdbPlugin } from ${JSON.stringify(join(import.meta.dir, "../../src/plugins/lmdb/lmdb.ts"))};
      const parsed = lmdbPlugin.parseOptions({ path: ${JSON.stringify(path)} });
      const host = { now: Date.now, log() {}, fatal() {} };
      await lmdbPlugin.open(parsed.options, host).then((store) => store.close(), (error) => console.log(error.message));`;
    const other = () => Bun.spawnSync([process.execPath, "-e", script]).stdout.toString();
    expect(other()).toContain("already open by another process");
    await store.close();
    expect(other()).toBe("");
    await (await openLmdb(options(path), testEnvironment())).close();
  });

  test.if(process.platform === "linux")(
    "keeps its owner when owner.lock is removed, or the file is reached by another name",
    async () => {
      const [path, other] = [folder(), folder()];
      const store = await openLmdb(options(path), testEnvironment());
      rmSync(join(path, "owner.lock"));
      expect(codeOf(await failureOf(() => openLmdb(options(path), testEnvironment())))).toBe(
        "busy",
      );
      mkdirSync(other);
      linkSync(join(path, "data.mdb"), join(other, "data.mdb"));
      expect(codeOf(await failureOf(() => openLmdb(options(other), testEnvironment())))).toBe(
        "busy",
      );
      await store.capabilities.mailbox!.store(entry(1), quota());
      await store.close();
      await (await openLmdb(options(other), testEnvironment())).close();
    },
  );

  test("that another process writes ends the store before its next commit: nothing answered is overwritten", async () => {
    const path = folder();
    const environment = testEnvironment();
    const { mailbox } = (await openLmdb(options(path), environment)).capabilities;
    await mailbox!.store(entry(1), quota());
    await putForeign(path, "receipts", ["a", "b"]);
    expect(codeOf(await failureOf(() => mailbox!.store(entry(2), quota())))).toBe("unavailable");
    expect(codeOf(await failureOf(() => mailbox!.message(alice, id(1), 2_000)))).toBe(
      "unavailable",
    );
    expect(environment.fatals).toEqual([expect.stringContaining("another process has written")]);
  });

  test("with another name, or none, is unavailable; with its own again it goes on with all it had", async () => {
    const path = folder();
    const environment = testEnvironment();
    const store = await openLmdb(options(path), environment);
    const { mailbox } = store.capabilities;
    await mailbox!.store(entry(1), quota());
    renameSync(path, `${path}-elsewhere`);
    for (const isReplaced of [false, true]) {
      if (isReplaced) cpSync(`${path}-elsewhere`, path, { recursive: true });
      expect(codeOf(await failureOf(() => mailbox!.store(entry(2), quota())))).toBe("unavailable");
      expect(codeOf(await failureOf(() => mailbox!.remove(alice, [id(1)], 2_000)))).toBe(
        "unavailable",
      );
      expect(codeOf(await failureOf(() => store.probe()))).toBe("unavailable");
      expect((await mailbox!.message(alice, id(1), 2_000)).state).toBe("active");
    }
    rmSync(path, { recursive: true });
    renameSync(`${path}-elsewhere`, path);
    expect((await mailbox!.store(entry(2), quota())).kind).toBe("stored");
    await store.probe();
    expect(environment.fatals).toEqual([]);
    await store.close();
    const again = await openLmdb(options(path), testEnvironment());
    expect((await again.capabilities.mailbox!.stats(2_000)).entries).toBe(2);
    await again.close();
  });

  test.each(["missing", "empty"])("whose data file is %s gets no new store", async (what) => {
    const path = folder();
    await (await openLmdb(options(path), testEnvironment())).close();
    if (what === "missing") rmSync(join(path, "data.mdb"));
    else truncateSync(join(path, "data.mdb"), 0);
    const before = readdirSync(path);
    const error = await failureOf(() => openLmdb(options(path), testEnvironment()));
    expect(codeOf(error)).toBe("unavailable");
    expect((error as Error).message).toContain(`data.mdb is ${what}: is the volume mounted?`);
    expect(readdirSync(path)).toEqual(before);
    await expectFree(path);
  });

  /** Puts one value into one database of an LMDB file, as another program would. */
  async function putForeign(
    path: string,
    database: string,
    [key, value]: readonly [string, string],
  ): Promise<void> {
    const { open } = await import("lmdb");
    const root = open<Buffer, Buffer>({
      path,
      encoding: "binary",
      keyEncoding: "binary",
      maxDbs: 16,
    });
    const opened = root.openDB<Buffer, Buffer>({
      name: database,
      encoding: "binary",
      keyEncoding: "binary",
    });
    await opened.put(Buffer.from(key), Buffer.from(value));
    await root.close();
  }

  test.each(["2", "9"])(
    "with format %s says so and what to do, and is left as it is",
    async (number) => {
      const path = folder();
      const store = await openLmdb(options(path), testEnvironment());
      await store.close();
      await putForeign(path, "meta", ["format", `waypost lmdb store, format ${number}`]);
      const before = readFileSync(join(path, "data.mdb")).toBase64();
      const error = await failureOf(() => openLmdb(options(path), testEnvironment()));
      expect(codeOf(error)).toBe("unavailable");
      const migrating = await failureOf(() => lmdbPlugin.migrate!(options(path)));
      expect([codeOf(migrating), (migrating as Error).message]).toEqual([
        "unavailable",
        (error as Error).message,
      ]);
      for (const part of [
        path,
        `has format ${number}`,
        "reads format 1",
        "Start the version that wrote it",
      ])
        expect((error as Error).message).toContain(part);
      expect(readFileSync(join(path, "data.mdb")).toBase64() === before).toBe(true);
    },
  );

  test.each([
    ["with databases of another program", "songs", ["a", "b"]],
    ["with a mark of another program", "meta", ["format", "songs 1"]],
    ["with our databases, filled, and no mark", "receipts", ["a", "b"]],
  ] as const)("%s is not a store", async (_name, database, pair) => {
    const path = folder();
    mkdirSync(path);
    await putForeign(path, database, pair);
    const error = await failureOf(() => openLmdb(options(path), testEnvironment()));
    expect([
      codeOf(error),
      (error as Error).message.includes("LMDB file of another program"),
    ]).toEqual(["unavailable", true]);
    await expectFree(path);
  });

  /** After a refusal no one holds the folder. */
  async function expectFree(path: string): Promise<void> {
    for (const name of readdirSync(path)) rmSync(join(path, name));
    await (await openLmdb(options(path), testEnvironment())).close();
  }

  test("is as it should be for `storage migrate`, whether it has a store or none yet", async () => {
    const path = folder();
    expect(await lmdbPlugin.migrate!(options(path))).toContain("does not exist yet");
    await (await openLmdb(options(path), testEnvironment())).close();
    expect(await lmdbPlugin.migrate!(options(path))).toContain("has the current format");
  });

  test("that was begun and never marked is begun again", async () => {
    const path = folder();
    mkdirSync(path);
    const { open } = await import("lmdb");
    await open<Buffer, Buffer>({
      path,
      encoding: "binary",
      keyEncoding: "binary",
      maxDbs: 16,
    }).close();
    await (await openLmdb(options(path), testEnvironment())).close();
    await (await openLmdb(options(path), testEnvironment())).close();
  });
});

describe("options", () => {
  test("are read strictly, and every problem names its setting", () => {
    const parsed = lmdbPlugin.parseOptions({ block_time_ms: "6s", reserve_bytes: 5, size: 1 });
    if (parsed.ok) throw new Error("accepted");
    expect(parsed.problems.map(({ setting }) => setting).sort()).toEqual([
      "block_time_ms",
      "path",
      "reserve_bytes",
      "size",
    ]);
    expect(lmdbPlugin.parseOptions({ path: "x", block_time_ms: 500 })).toMatchObject({ ok: true });
  });
});

describe("blocks", () => {
  test("that no message needs are given back, and the file stops growing", async () => {
    const path = folder();
    const store = await openLmdb(options(path), testEnvironment());
    const mailbox = store.capabilities.mailbox!;
    let sizeAtEnd = 0;
    for (let round = 0; round < 12; round++) {
      const numbers = Array.from({ length: 600 }, (_, i) => round * 1_000 + i);
      await Promise.all(
        numbers.map((n) => mailbox.store(entry(n, { envelope: bytesOf(n, 2_000) }), quota())),
      );
      // A fourth stays: neighbours, so that most blocks are not needed any more.
      const acked = numbers.filter((n) => Math.floor(n / 25) % 4 !== 0).map(id);
      expect((await mailbox.remove(alice, acked, 2_000)).length).toBe(acked.length);
      await mailbox.expire(2_000, 256);
      sizeAtEnd = checkDataFile(join(path, "data.mdb")) ?? 0;
    }
    const held = await listAll(mailbox, alice, pageOf());
    expect(held.length).toBe(12 * 150);
    for (const one of held.slice(0, 20)) expect(one.envelope.length).toBe(2_000);
    await store.close();
    // 600 entries of 2 KB live at a time, and a fourth of all: 7 MB would do, and all together take
    // 20.
    expect(sizeAtEnd).toBeLessThan(12 * mebibyte);
    const again = await openLmdb(options(path), testEnvironment());
    const kept = await listAll(again.capabilities.mailbox!, alice, pageOf());
    expect(ids(kept)).toEqual(ids(held));
    for (const [i, one] of kept.entries())
      expect(Bun.hash(one.envelope)).toBe(Bun.hash(held[i]!.envelope));
    await again.close();
  }, 120_000);
});

describe("too much at once", () => {
  test("is refused as unavailable, and what was taken is kept", async () => {
    const store: Store = await openLmdb(options(folder()), testEnvironment());
    const mailbox = store.capabilities.mailbox!;
    const outcomes = await Promise.allSettled(
      Array.from({ length: 6_000 }, (_, n) => mailbox.store(entry(n), quota())),
    );
    const taken = outcomes.filter((one) => one.status === "fulfilled").length;
    expect(taken).toBeGreaterThan(2_000);
    expect(taken).toBeLessThan(6_000);
    const codes = new Set(
      outcomes.map((one) => (one.status === "rejected" ? codeOf(one.reason) : "stored")),
    );
    expect([...codes].sort()).toEqual(["stored", "unavailable"]);
    expect((await mailbox.stats(2_000)).entries).toBe(taken);
    await store.close();
  });
});

describe("a commit", () => {
  const open = (environment: ReturnType<typeof testEnvironment>, commitMsMax?: number) =>
    openEnvironment({
      path: folder(),
      space: { floorBytes: 0, reserveBytes: mebibyte },
      host: environment,
      ...(commitMsMax === undefined ? {} : { commitMsMax }),
    });
  const key = Buffer.from("key");
  const size = { kind: "record", bytes: 10 } as const;

  test("whose caller throws leaves nothing behind and does not affect others", async () => {
    const environment = testEnvironment();
    const opened = await open(environment);
    const table = new DiskTable(opened, "table");
    const failed = table.commit((view) => {
      view.put("key", bytesOf(1, 10));
      throw new RangeError("no");
    });
    const other = table.commit((view) => view.put("other", bytesOf(2, 10)));
    expect(await failureOf(() => failed)).toBeInstanceOf(RangeError);
    await other;
    expect(table.get("key")).toBeNull();
    expect(table.get("other")).toEqual(bytesOf(2, 10));
    expect(environment.fatals).toEqual([]);
    await opened.close();
  });

  test("that the library refuses ends the store: the program learns it once, and nothing is answered any more", async () => {
    const environment = testEnvironment();
    const opened = await open(environment);
    const tooLong = Buffer.alloc(5_000, 7);
    const error = await failureOf(() =>
      opened.join(size, (view) => view.put("table", tooLong, bytesOf(1, 10))),
    );
    expect(codeOf(error)).toBe("unavailable");
    expect(environment.fatals.length).toBe(1);
    expect(codeOf(await failureOf(() => opened.join(size, () => 1)))).toBe("unavailable");
    expect(codeOf(await failureOf(() => opened.get("table", key)))).toBe("unavailable");
    expect(environment.fatals.length).toBe(1);
    await opened.close();
  });

  test("is waited for by reads, of which 4,096 can wait", async () => {
    const opened = await open(testEnvironment());
    const written = opened.join(size, (batch) => batch.put("table", key, bytesOf(1, 10)));
    await new Promise<void>((next) => void setImmediate(next));
    const reads = Array.from({ length: 4_096 }, () =>
      opened.whenCommitted(() => opened.get("table", key)),
    );
    expect(codeOf(await failureOf(() => opened.whenCommitted(() => 1)))).toBe("unavailable");
    for (const found of await Promise.all(reads)) expect(found).toEqual(bytesOf(1, 10));
    await written;
    await opened.close();
  });

  test("that does not end in time ends the store", async () => {
    const environment = testEnvironment();
    const path = folder();
    const space = { floorBytes: 0, reserveBytes: mebibyte };
    const opened = await openEnvironment({ path, space, host: environment, commitMsMax: 200 });
    // Somebody who does not keep to the lock holds the write transaction.
    const script = `
      import { open } from ${JSON.stringify(Bun.resolveSync("lmdb", import.meta.dir))};
      const root = open({ path: ${JSON.stringify(path)}, encoding: "binary", overlappingSync: false, maxDbs: 16 });
      root.transactionSync(() => { console.log("held"); Bun.sleepSync(20_000); });`;
    const holder = Bun.spawn([process.execPath, "-e", script], { stdout: "pipe" });
    for await (const _ of holder.stdout) break;
    const error = await failureOf(() =>
      opened.join(size, (view) => view.put("table", key, bytesOf(1, 10))),
    );
    expect(codeOf(error)).toBe("unavailable");
    expect(environment.fatals.length).toBe(1);
    holder.kill("SIGKILL");
    await holder.exited;
    await opened.close();
  });
});

describe("the table on disk", () => {
  test("remembers what it has read only until that changes", async () => {
    const path = folder();
    const space = { floorBytes: mebibyte, reserveBytes: 8 * mebibyte };
    const environment = await openEnvironment({ path, space, host: testEnvironment() });
    const table = new DiskTable(environment, "table");
    const put = (n: number) => table.commit((view) => view.put("a", bytesOf(n, 9)));
    await put(1);
    for (let n = 2; n < 50; n++) {
      expect(table.get("a")).toEqual(bytesOf(n - 1, 9));
      expect(table.get("a")).toBe(table.get("a"));
      const written = put(n);
      let isWritten = false;
      void written.then(() => {
        isWritten = true;
      });
      // While it is being written, a read may find either, and nothing of that is remembered.
      for (; !isWritten; await new Promise(setImmediate))
        expect([bytesOf(n - 1, 9), bytesOf(n, 9)]).toContainEqual(table.get("a")!);
      expect(table.get("a")).toEqual(bytesOf(n, 9));
    }
    await table.commit((view) => view.remove("a"));
    expect(table.get("a")).toBeNull();
    await environment.close();
  });

  test("answers as the table in memory does, inside commits and between them", async () => {
    const opened = await openEnvironment({
      path: folder(),
      space: { floorBytes: 0, reserveBytes: mebibyte },
      host: testEnvironment(),
    });
    const tables = [new DiskTable(opened, "table"), new MemoryTable(1 << 24)];
    const random = seeded(7);
    const below = (n: number) => Math.floor(random() * n);
    const letters = ["a", "b", "/", "!", "~"];
    const keyOf = () =>
      Array.from({ length: 1 + below(3) }, () => letters[below(letters.length)]).join("");
    for (let step = 0; step < 60; step++) {
      const puts = Array.from(
        { length: below(5) },
        () => [keyOf(), bytesOf(below(99), below(40))] as const,
      );
      const removes = Array.from({ length: below(3) }, keyOf);
      const [prefix, after, fails] = [random() < 0.3 ? "" : keyOf(), keyOf(), random() < 0.2];
      const range = { limit: 1 + below(8), ...(random() < 0.5 ? { after } : {}) };
      const answers = [];
      for (const table of tables) {
        const inside: unknown[] = [];
        const failure = await failureOf(() =>
          table.commit((view) => {
            for (const [key, value] of puts) view.put(key, value);
            for (const key of removes) view.remove(key);
            inside.push(view.range(prefix, range), view.get(after));
            if (fails) throw new RangeError("no");
          }),
        );
        expect(failure instanceof RangeError).toBe(fails);
        answers.push([inside, table.range(prefix, range), table.get(after)]);
      }
      expect(answers[0]).toEqual(answers[1]!);
    }
    await opened.close();
  });
});
