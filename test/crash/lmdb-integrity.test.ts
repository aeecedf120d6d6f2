/**
 * A damaged or cut-short file of the LMDB driver is reported before anything is answered from it, and a
 * store of format 2 is migrated with its identities and its mail.
 */
import { describe, expect, test } from "bun:test";
import { cpSync, existsSync, mkdirSync, readFileSync, rmSync, truncateSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { gunzipSync } from "node:zlib";
import type { Did } from "../../src/core/codec/did.ts";
import { DataFile } from "../../src/plugins/lmdb/data-file.ts";
import { Scrub, verifyFile } from "../../src/plugins/lmdb/integrity.ts";
import { lmdbPlugin } from "../../src/plugins/lmdb/lmdb.ts";
import { openLmdb } from "../../src/plugins/lmdb/store.ts";
import { type Mailbox, type Store, StoreError } from "../../src/storage/contract.ts";
import { buildShim, diskAfter, loggedWrites } from "../campaigns/storage-shim.ts";
import { testEnvironment } from "../conformance/kit.ts";
import { optionsOf } from "../conformance/options.ts";
import {
  bytesOf,
  chunkOf,
  did,
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

const folder = scratchPaths("integrity");
const file = (path: string) => join(path, "data.mdb");
const open = (path: string) =>
  openLmdb(optionsOf(lmdbPlugin, { path, block_time_ms: 3_600_000, reserve_bytes: 1024 * 1024 }), testEnvironment());

/** Enough of everything for trees of two levels and values on pages of their own. */
async function filled(path: string): Promise<void> {
  const store = await open(path);
  const { mailbox, replay, receipts } = store.capabilities;
  const writes: Promise<unknown>[] = [];
  for (let n = 0; n < 300; n++) {
    writes.push(mailbox!.store(entry(n, { recipient: did(n % 7), envelope: bytesOf(n, 300) }), quota()));
    writes.push(replay!.claim(`tag ${n}`, 5_000, 1_000));
    writes.push(receipts!.put(`key ${n}`, bytesOf(n, n === 9 ? 20_000 : 60), 5_000));
  }
  await Promise.all(writes);
  await store.close();
}

const whole = folder();
const sound = filled(whole);

async function copied(): Promise<string> {
  await sound;
  const path = folder();
  cpSync(whole, path, { recursive: true });
  return path;
}

describe("a file that is sound", () => {
  test("has every record and no problem", async () => {
    const report = verifyFile(file(await copied()));
    expect(report.problems).toEqual([]);
    expect(report.records).toBeGreaterThan(600);
  });

  test("is read from any key on as from the beginning", async () => {
    const data = DataFile.open(file(await copied()));
    const tree = data.trees().find(({ name }) => name === "receipts")!;
    expect(tree.depth).toBeGreaterThan(1);
    const keys = [...data.records(tree)].map(({ key }) => key.toString("hex"));
    for (const at of [0, 1, 57, 150, 298, 299]) {
      const rest = [...data.records(tree, Buffer.from(keys[at]!, "hex"))].map(({ key }) => key.toString("hex"));
      expect(rest).toEqual(keys.slice(at));
    }
    data.close();
  });
});

describe("a file that is cut short", () => {
  test.each([0.02, 0.3, 0.7, 0.95])("to %d of its length is refused as such, and never mapped", async (share) => {
    const path = await copied();
    const length = readFileSync(file(path)).length;
    truncateSync(file(path), Math.floor((length * share) / 512) * 512);
    const error = await failureOf(() => open(path));
    expect(error).toBeInstanceOf(StoreError);
    expect((error as StoreError).code).toBe("corrupt");
    expect((error as StoreError).message).toContain("cut short");
    expect((error as StoreError).message).toContain("storage restore");
  });
});

describe("a flipped bit", () => {
  test("anywhere is found by verify, refused at the opening, or changes no answer", async () => {
    const random = seeded(77);
    const expected = await copied().then(async (path) => {
      const store = await open(path);
      const answers = await answersOf(store);
      await store.close();
      return answers;
    });
    const counts = { refused: 0, found: 0, harmless: 0 };
    for (let round = 0; round < 40; round++) {
      const path = await copied();
      const bytes = readFileSync(file(path));
      bytes[Math.floor(random() * bytes.length)]! ^= 1 << Math.floor(random() * 8);
      writeFileSync(file(path), bytes);
      const problems = await Promise.try(() => verifyFile(file(path)).problems).catch((error) => [String(error)]);
      const store = await open(path).catch((error: StoreError) => error.code);
      if (typeof store === "string") {
        counts.refused++;
        continue;
      }
      const answers = await answersOf(store);
      await store.close();
      if (answers === expected) counts.harmless++;
      else {
        expect(problems).not.toEqual([]);
        counts.found++;
      }
    }
    expect(counts.refused + counts.found).toBeGreaterThan(3);
    expect(counts.refused + counts.found + counts.harmless).toBe(40);
  }, 60_000);

  test("in the key of a record is refused at the opening: its absence is never answered", async () => {
    const path = await copied();
    const bytes = readFileSync(file(path));
    const needle = Buffer.from("key 123", "utf16le");
    for (let at = bytes.indexOf(needle); at >= 0; at = bytes.indexOf(needle, at + 1))
      bytes[at + needle.length - 2]! ^= 8;
    writeFileSync(file(path), bytes);
    expect(await failureOf(() => open(path))).toMatchObject({ code: "corrupt" });
  });
});

describe("the saved index", () => {
  const saved = (path: string) => join(path, "index.saved");

  /** Opens, and says whether the index was built from the data file instead. */
  async function answersAt(path: string): Promise<{ answers: string; isBuilt: boolean }> {
    const logged: string[] = [];
    const host = { ...testEnvironment(), log: (_: string, message: string) => void logged.push(message) };
    const store = await openLmdb(optionsOf(lmdbPlugin, { path, block_time_ms: 3_600_000 }), host);
    expect(existsSync(saved(path))).toBe(false);
    const answers = await answersOf(store);
    await store.close();
    return { answers, isBuilt: logged.some((message) => message.includes("rebuilt")) };
  }

  test("is used once, and holds what pages and journal hold", async () => {
    const [path, crashed] = [await copied(), await copied()];
    rmSync(saved(crashed));
    const [used, built] = [await answersAt(path), await answersAt(crashed)];
    expect(used.answers).toBe(built.answers);
    expect([used.isBuilt, built.isBuilt]).toEqual([false, true]);
  });

  test("is not used when a bit has flipped, or when it is torn", async () => {
    const random = seeded(78);
    const expected = await answersAt(await copied());
    for (let round = 0; round < 40; round++) {
      const path = await copied();
      const bytes = readFileSync(saved(path));
      const at = Math.floor(random() * bytes.length);
      bytes[at]! ^= 1 << Math.floor(random() * 8);
      writeFileSync(saved(path), round % 4 === 0 ? bytes.subarray(0, at) : bytes);
      expect(await answersAt(path)).toEqual({ ...expected, isBuilt: true });
    }
  }, 60_000);

  test("of an earlier state is not used, nor for a file that was restored", async () => {
    const path = await copied();
    const [early, data] = [readFileSync(saved(path)), readFileSync(file(path))];
    const store = await open(path);
    await store.capabilities.mailbox!.store(entry(999, { recipient: did(1) }), quota());
    await store.close();
    const late = readFileSync(saved(path));
    writeFileSync(saved(path), early);
    const after = await answersAt(path);
    expect(after.isBuilt).toBe(true);
    writeFileSync(file(path), data);
    writeFileSync(saved(path), late);
    const before = await answersAt(path);
    expect(before.isBuilt).toBe(true);
    expect(before.answers).not.toBe(after.answers);
  });

  type Work = (mailbox: Mailbox) => Promise<unknown>;
  const storing = (n: number) => (mailbox: Mailbox) => mailbox.store(entry(n, { recipient: did(1) }), quota());
  const acknowledging = (r: number) => (mailbox: Mailbox) => {
    const numbers = Array.from({ length: 300 }, (_, n) => n);
    return mailbox.remove(did(r), numbers.map(id), 2_000);
  };

  /** A copy of a store in which this was done. */
  async function changed(work: Work, end: "clean" | "crash" = "clean", of = whole): Promise<string> {
    const [path, crashed] = [folder(), folder()];
    await sound;
    cpSync(of, path, { recursive: true });
    const store = await open(path);
    await work(store.capabilities.mailbox!);
    cpSync(path, crashed, { recursive: true });
    await store.close();
    return end === "clean" ? path : crashed;
  }

  /** That an index of the one store, beside the data of the other, is ignored. */
  async function checkIgnored(one: string, other: string): Promise<void> {
    const [expected, path] = [folder(), folder()];
    for (const copy of [expected, path]) cpSync(other, copy, { recursive: true });
    rmSync(saved(expected), { force: true });
    cpSync(saved(one), saved(path));
    expect(await answersAt(path)).toEqual({ ...(await answersAt(expected)), isBuilt: true });
  }

  const lengthOf = (path: string) => readFileSync(file(path)).length;

  test("of another store is not used, though that has as many transactions", async () => {
    const [one, other] = [await changed(storing(998)), await changed(storing(999))];
    expect(lengthOf(one)).toBe(lengthOf(other));
    await checkIgnored(one, other);
  });

  test("of the state before a crash is not used, though the file was no longer", async () => {
    // Free pages, so that the next commit does not lengthen the file.
    const before = await changed(acknowledging(2));
    const after = await changed(acknowledging(1), "crash", before);
    expect(lengthOf(after)).toBe(lengthOf(before));
    await checkIgnored(before, after);
  });

  test("is not used for a file of another length", async () => {
    const [path, longer] = [await copied(), await copied()];
    writeFileSync(file(longer), Buffer.concat([readFileSync(file(path)), Buffer.alloc(4_096)]));
    await checkIgnored(path, longer);
  });
});

async function answersOf(store: Store): Promise<string> {
  const { mailbox, replay, receipts } = store.capabilities;
  const answers: unknown[] = [await mailbox!.stats(2_000)];
  for (let r = 0; r < 7; r++) answers.push(ids(await listAll(mailbox!, did(r), pageOf())));
  for (let n = 0; n < 300; n += 11) {
    const value = await receipts!.get(`key ${n}`, 2_000).catch((error: StoreError) => error.code);
    answers.push(value instanceof Uint8Array ? Bun.hash(value).toString() : value);
    answers.push(await replay!.claim(`tag ${n}`, 5_000, 2_000).catch((error: StoreError) => error.code));
  }
  return JSON.stringify(answers);
}

describe("the scrub", () => {
  function scrubOf(path: string, bytesPerSecond = 1e12) {
    const [logged, failed]: [string[], string[]] = [[], []];
    const log = (_level: string, message: string) => void logged.push(message);
    const scrub = new Scrub({
      path: file(path),
      bytesPerSecond,
      log,
      fail: (reason) => void failed.push(reason),
    });
    const untilPasses = (passes: number) => {
      for (let step = 0; step < 10_000 && scrub.report.passes < passes; step++) scrub.step();
      scrub.stop();
    };
    return { scrub, logged, failed, untilPasses };
  }

  test("reads every record, again and again, and reports nothing of a sound store", async () => {
    const path = await copied();
    const { scrub, logged, untilPasses } = scrubOf(path);
    untilPasses(2);
    expect(scrub.report).toMatchObject({ passes: 2, problems: 0, records: 2 * verifyFile(file(path)).records });
    expect(logged).toEqual([]);
  });

  test("waits as long as its pace asks, also beyond the range of timers", async () => {
    const { scrub } = scrubOf(await copied(), 0.01);
    scrub.start();
    await Bun.sleep(50);
    expect(scrub.report.records).toBe(0);
    scrub.step();
    const { records } = scrub.report;
    await Bun.sleep(50);
    expect(scrub.report.records).toBe(records);
    scrub.stop();
  });

  test("reports a damaged message, and ends a store whose receipts are damaged", async () => {
    const message = Buffer.concat([Buffer.from(id(5).replaceAll("-", ""), "hex"), bytesOf(5, 40)]);
    const receipt = Buffer.concat([Buffer.from([0x13, 0x88, 0, 0, 0, 60]), bytesOf(7, 60)]);
    for (const [needle, isFatal] of [
      [message, false],
      [receipt, true],
    ] as const) {
      const path = await copied();
      const bytes = readFileSync(file(path));
      expect(bytes.includes(needle)).toBe(true);
      // Free pages hold older copies.
      for (let at = bytes.indexOf(needle); at >= 0; at = bytes.indexOf(needle, at + 1)) bytes[at + 20]! ^= 16;
      writeFileSync(file(path), bytes);
      const { scrub, logged, failed, untilPasses } = scrubOf(path);
      untilPasses(1);
      expect([scrub.report.problems > 0, logged.length > 0, failed.length > 0]).toEqual([true, true, isFatal]);
    }
  });

  test("does not mistake a commit during its reading for damage", async () => {
    const path = await copied();
    const store = await open(path);
    const { scrub, logged, failed } = scrubOf(path);
    for (let round = 0; round < 15; round++) {
      const writes = Array.from({ length: 30 }, (_, i) => {
        const n = 10_000 + round * 30 + i;
        return store.capabilities.mailbox!.store(
          entry(n, { recipient: did(n % 7), envelope: bytesOf(n, 900) }),
          quota(),
        );
      });
      for (let step = 0; step < 8; step++) {
        scrub.step();
        await Bun.sleep(0);
      }
      await Promise.all(writes);
      await store.capabilities.mailbox!.remove(did(round % 7), [id(10_000 + round * 30)], 2_000);
    }
    scrub.stop();
    await store.close();
    expect([scrub.report.problems, logged, failed]).toEqual([0, [], []]);
    expect(scrub.report.records).toBeGreaterThan(1_000);
  }, 120_000);
});

function vector(name: string): Buffer {
  const text = readFileSync(join(import.meta.dir, `../vectors/lmdb/${name}.base64`), "utf8");
  return Buffer.from(gunzipSync(Buffer.from(text, "base64")));
}

test.skipIf(process.platform !== "linux")(
  "the file does not become the memory of the process as it is written and read",
  async () => {
    const residentBytes = () => Number(readFileSync("/proc/self/statm", "utf8").split(" ")[2]) * 4_096;
    const store = await open(folder());
    const mailbox = store.capabilities.mailbox!;
    const before = residentBytes();
    const envelope = bytesOf(1, 60_000);
    for (let round = 0; round < 50; round++) {
      const numbers = Array.from({ length: 40 }, (_, n) => round * 40 + n);
      await Promise.all(numbers.map((n) => mailbox.store(entry(n, { recipient: did(n), envelope }), quota())));
      await Promise.all(numbers.map((n) => listAll(mailbox, did(n), pageOf())));
    }
    // A look at it is taken each second.
    for (let waited = 0; waited < 100 && residentBytes() - before >= 48 * 1024 * 1024; waited++) await Bun.sleep(100);
    expect(residentBytes() - before).toBeLessThan(48 * 1024 * 1024);
    expect((await mailbox.stats(2_000)).bytes).toBe(120_000_000);
    expect(await mailbox.message(did(7), id(7), 2_000)).toMatchObject({ state: "active", message: { envelope } });
    await store.close();
  },
  60_000,
);

const missing = process.platform !== "linux" || Bun.which("cc") === null ? "a C compiler on Linux" : null;

/** Migrates a store in a process of its own, with the shim between it and the disk. */
async function migratedElsewhere(path: string, shim: Readonly<Record<string, string>>): Promise<boolean> {
  const script = `
    const { migrateLmdb } = await import(${JSON.stringify(join(import.meta.dir, "../../src/plugins/lmdb/migrate.ts"))});
    await migrateLmdb(process.argv[1]);`;
  const env = { ...process.env, LD_PRELOAD: buildShim(shimFolder), ...shim };
  const child = Bun.spawn([process.execPath, "-e", script, path], { env, stdout: "ignore", stderr: "ignore" });
  return (await child.exited) === 0;
}

async function everythingIn(path: string): Promise<string[]> {
  const records: string[] = [];
  const skipped = (problem: string) => records.push(problem);
  for await (const record of lmdbPlugin.maintenance!.records(optionsOf(lmdbPlugin, { path }), skipped)) {
    records.push(JSON.stringify(record, (_, value) => (value instanceof Uint8Array ? value.toHex() : value)));
  }
  return records.sort();
}

const shimFolder = folder();
mkdirSync(shimFolder);

describe.skipIf(missing !== null)("a migration that does not come to its end", () => {
  async function migrated(data: Buffer): Promise<{ path: string; text: string }> {
    const path = folder();
    mkdirSync(path);
    writeFileSync(file(path), data);
    return { path, text: await lmdbPlugin.migrate!(optionsOf(lmdbPlugin, { path })) };
  }

  test("is finished by the next one, killed at any write or cut off at any sync", async () => {
    const [before, path] = [vector("format-2"), folder()];
    mkdirSync(path);
    writeFileSync(file(path), before);
    const log = join(path, "log");
    expect(await migratedElsewhere(path, { WAYPOST_SHIM_LOG: log })).toBe(true);
    const expected = await everythingIn(path);
    expect(expected.length).toBeGreaterThan(10);
    const writes = loggedWrites(readFileSync(log));
    expect(writes.length).toBeGreaterThan(2);
    const finished = new Set<boolean>();
    for (let end = 0; end <= writes.length; end++) {
      for (const keepsLoose of [true, false]) {
        const { path, text } = await migrated(diskAfter(before, writes.slice(0, end), keepsLoose));
        finished.add(text.includes("has the current format"));
        expect(await everythingIn(path)).toEqual(expected);
      }
    }
    expect(finished).toEqual(new Set([true, false]));
  }, 60_000);

  test("because the disk is full leaves a store that the next one finishes", async () => {
    const expected = await everythingIn((await migrated(vector("format-2"))).path);
    let failed = 0;
    for (const n of [1, 2, 4, 7]) {
      const path = folder();
      mkdirSync(path);
      writeFileSync(file(path), vector("format-2"));
      if (!(await migratedElsewhere(path, { WAYPOST_SHIM_FAIL: `enospc:${n}` }))) failed++;
      await lmdbPlugin.migrate!(optionsOf(lmdbPlugin, { path }));
      expect(await everythingIn(path)).toEqual(expected);
    }
    expect(failed).toBeGreaterThan(0);
  }, 60_000);
});

describe("a store of format 2", () => {
  /** Written by the version before: 9 messages, a claim, a receipt, a registered DID with its block. */
  const written = vector("format-2");
  const registered = "did:svc:53dqKmNEcgmbp5KfmcVRYS" as Did;

  test("is refused with what to do, and keeps identities and mail when it is migrated", async () => {
    const path = folder();
    mkdirSync(path);
    writeFileSync(file(path), written);
    const refused = await failureOf(() => open(path));
    expect((refused as Error).message).toContain("waypost storage migrate");
    const options = optionsOf(lmdbPlugin, { path });
    expect(await lmdbPlugin.migrate!(options)).toContain("7 records");
    expect(await lmdbPlugin.migrate!(options)).toContain("has the current format");
    expect(verifyFile(file(path)).problems).toEqual([]);
    const store = await open(path);
    const { mailbox, replay, receipts, ledger } = store.capabilities;
    expect(ids(await listAll(mailbox!, did(1), pageOf()))).toEqual([id(2), id(3)]);
    expect(await mailbox!.message(did(1), id(1), 2_000)).toMatchObject({ state: "acked" });
    expect(await mailbox!.store(entry(9, { recipient: did(1), chunk: chunkOf(1, 0, 2) }), quota())).toEqual({
      kind: "chunk_conflict",
    });
    expect((await listAll(mailbox!, did(2), pageOf())).map((one) => one.envelope)).toEqual(
      [5, 6, 7, 8, 9, 10, 11].map((n) => bytesOf(n, 100)),
    );
    expect(await replay!.claim("tag", 4e12, 2_000)).toBe(false);
    expect(await receipts!.get("key", 2_000)).toEqual(bytesOf(9, 20));
    expect((await ledger!.account(registered)).record).not.toBeNull();
    expect((await ledger!.head()).finalized.number).toBe(1n);
    await store.close();
  });

  test("keeps the checksums of its mail, beside those of new mail", async () => {
    const path = folder();
    mkdirSync(path);
    writeFileSync(file(path), written);
    await lmdbPlugin.migrate!(optionsOf(lmdbPlugin, { path }));
    const store = await open(path);
    await store.capabilities.mailbox!.store(entry(22, { recipient: did(1) }), quota());
    await store.close();
    const flipped = readFileSync(file(path));
    // The slot of a body of each version, wherever a copy of it lies: the same flip is found in both.
    for (const n of [3, 22]) {
      const body = Buffer.concat([Buffer.from(id(n).replaceAll("-", ""), "hex"), bytesOf(n, 8)]);
      for (let at = flipped.indexOf(body); at >= 0; at = flipped.indexOf(body, at + 1)) flipped[at - 9]! ^= 1;
    }
    writeFileSync(file(path), flipped);
    expect(verifyFile(file(path)).problems.length).toBeGreaterThan(0);
    const again = await open(path);
    expect(ids(await listAll(again.capabilities.mailbox!, did(1), pageOf()))).toEqual([id(2)]);
    await again.close();
  });

  test("is not migrated when a record is damaged: it gets no new checksum", async () => {
    const path = folder();
    mkdirSync(path);
    const damaged = Buffer.from(written);
    const at = damaged.indexOf(Buffer.from(bytesOf(9, 20)));
    expect(at).toBeGreaterThan(0);
    damaged[at + 3]! ^= 1;
    writeFileSync(file(path), damaged);
    expect(await failureOf(() => lmdbPlugin.migrate!(optionsOf(lmdbPlugin, { path })))).toMatchObject({
      code: "corrupt",
    });
  });
});
