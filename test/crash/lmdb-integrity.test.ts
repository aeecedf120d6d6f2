/**
 * A damaged or cut-short file of the LMDB driver is reported, and never answered as what it is not.
 */
import { describe, expect, test } from "bun:test";
import { cpSync, readFileSync, truncateSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { checkDataFile, openRoot, tablesOf } from "../../src/plugins/lmdb/data-file.ts";
import { lmdbPlugin } from "../../src/plugins/lmdb/lmdb.ts";
import { verifyStore } from "../../src/plugins/lmdb/maintenance.ts";
import { openLmdb } from "../../src/plugins/lmdb/store.ts";
import { type Store, StoreError } from "../../src/storage/contract.ts";
import { testEnvironment } from "../conformance/kit.ts";
import { optionsOf } from "../conformance/options.ts";
import {
  alice,
  bytesOf,
  did,
  entry,
  failureOf,
  id,
  ids,
  listAll,
  pageOf,
  quota,
  removedOf,
  seeded,
} from "../conformance/samples.ts";
import { scratchPaths } from "../support/scratch.ts";
import { answersOf } from "./store-answers.ts";

const folder = scratchPaths("integrity");
const file = (path: string) => join(path, "data.mdb");
const open = (path: string) =>
  openLmdb(
    optionsOf(lmdbPlugin, { path, block_time_ms: 3_600_000, reserve_bytes: 8 * 1024 * 1024 }),
    testEnvironment(),
  );

/** Enough of everything for trees of two levels and values on pages of their own. */
async function filled(path: string): Promise<void> {
  const store = await open(path);
  const { mailbox, replay, receipts } = store.capabilities;
  const writes: Promise<unknown>[] = [];
  for (let n = 0; n < 300; n++) {
    writes.push(
      mailbox!.store(entry(n, { recipient: did(n % 7), envelope: bytesOf(n, 300) }), quota()),
    );
    writes.push(replay!.claim(`tag ${n}`, 5_000, 1_000));
    writes.push(receipts!.put(`key-${n}`, bytesOf(n, n === 9 ? 20_000 : 60), 5_000));
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

/** A copy of the sound store whose file was changed. */
async function changed(change: (bytes: Buffer) => void): Promise<string> {
  const path = await copied();
  const bytes = readFileSync(file(path));
  change(bytes);
  writeFileSync(file(path), bytes);
  return path;
}

async function expectSound(path: string): Promise<void> {
  const store: Store = await open(path);
  expect(ids(await listAll(store.capabilities.mailbox!, did(1), pageOf())).length).toBe(43);
  expect((await verifyStore(path)).problems).toEqual([]);
  await store.close();
}

test("a file that is sound has every record and no problem", async () => {
  const report = await verifyStore(await copied());
  expect(report.problems).toEqual([]);
  expect(report.records).toBeGreaterThan(600);
});

describe("a file that is cut short", () => {
  test.each([0.02, 0.3, 0.7, 0.95, 0.999])(
    "to %d of its pages is refused as such, and keeps its length",
    async (share) => {
      const path = await copied();
      const length = Math.floor(((checkDataFile(file(path)) ?? 0) * share) / 512) * 512;
      truncateSync(file(path), length);
      const error = await failureOf(() => open(path));
      expect(error).toBeInstanceOf(StoreError);
      expect((error as StoreError).code).toBe("corrupt");
      expect((error as StoreError).message).toContain("cut short");
      expect((error as StoreError).message).toContain("storage restore");
      expect((await verifyStore(path)).problems).not.toEqual([]);
      expect(readFileSync(file(path)).length).toBe(length);
    },
  );

  test("within what is set aside behind its pages is not damaged", async () => {
    const path = await copied();
    truncateSync(file(path), checkDataFile(file(path)) ?? 0);
    await expectSound(path);
  });

  test("by more than that is refused before anything is mapped", async () => {
    const path = await changed((bytes) => {
      for (const page of [0, 4_096])
        bytes.writeBigUInt64LE(bytes.readBigUInt64LE(page + 144) + 5_000n, page + 144);
    });
    expect(((await failureOf(() => open(path))) as Error).message).toContain("cut short");
  });
});

describe("a flipped bit", () => {
  /** Offsets of the first pages, the one of the last transaction in front. */
  const byAge = (bytes: Buffer): number[] =>
    [0, 4_096].sort((a, b) =>
      bytes.readBigUInt64LE(a + 152) > bytes.readBigUInt64LE(b + 152) ? -1 : 1,
    );
  /** Roots of both trees and the last page: what leads on from a first page. */
  const leading = [94, 143, 151];

  test("in what the first pages say of the file is refused, never given to the library", async () => {
    // Number, kind, magic, version, size of pages, transaction.
    const fields = [0, 1, 18, 24, 27, 28, 29, 31, 48, 49, 51, 153, 159];
    for (const age of [0, 1]) {
      for (const field of age === 0 ? [...fields, ...leading] : fields) {
        for (const bit of [0, 3, 7]) {
          const path = await changed((bytes) => {
            bytes[byAge(bytes)[age]! + field]! ^= 1 << bit;
          });
          const error = await failureOf(() => open(path));
          expect([age, field, bit, error instanceof StoreError]).toEqual([age, field, bit, true]);
        }
      }
    }
  }, 60_000);

  test("in where the older first page leads harms nothing", async () => {
    for (const field of leading) {
      const path = await changed((bytes) => {
        bytes[byAge(bytes)[1]! + field]! ^= 8;
      });
      await expectSound(path);
    }
  });

  test("anywhere is found by verify, refused at the opening, ends the process, or changes no answer", async () => {
    const random = seeded(77);
    const expected = await answersApart([await copied()]);
    expect(expected[0]).toStartWith("answers ");
    const paths: string[] = [];
    const end = checkDataFile(file(await copied())) ?? 0;
    for (let round = 0; round < 40; round++) {
      paths.push(
        await changed((bytes) => {
          bytes[Math.floor(random() * end)]! ^= 1 << Math.floor(random() * 8);
        }),
      );
    }
    const answers = await answersApart(paths);
    const reports = await answersApart(paths, "verify");
    const counts = { refused: 0, found: 0, harmless: 0 };
    for (const [round, answer] of answers.entries()) {
      if (answer === expected[0]) counts.harmless++;
      else if (!answer.startsWith("answers ")) counts.refused++;
      else {
        expect([round, reports[round]]).not.toEqual([round, "sound"]);
        counts.found++;
      }
    }
    expect(counts.refused + counts.found).toBeGreaterThan(3);
    expect(counts.refused + counts.found + counts.harmless).toBe(40);
  }, 120_000);

  test("in the key of a record is found by verify, also where a branch leads past a record", async () => {
    const path = await changed((bytes) => {
      const needle = Buffer.from("key-123");
      for (let at = bytes.indexOf(needle); at >= 0; at = bytes.indexOf(needle, at + 1))
        bytes[at + needle.length - 1]! ^= 8;
    });
    expect((await verifyStore(path)).problems).not.toEqual([]);
  });

  /**
   * What processes of their own say about stores, one after the other; a process that a signal ends
   * is replaced.
   */
  async function answersApart(
    paths: readonly string[],
    work: "ask" | "verify" = "ask",
  ): Promise<string[]> {
    const said: string[] = [];
    while (said.length < paths.length) {
      const script = join(import.meta.dir, "store-answers.ts");
      const child = Bun.spawn([process.execPath, script, work, ...paths.slice(said.length)], {
        stdout: "pipe",
        stderr: "ignore",
      });
      said.push(...(await new Response(child.stdout).text()).split("\n").slice(0, -1));
      await child.exited;
      if (child.signalCode !== null) said.push(`signal ${child.signalCode}`);
    }
    return said;
  }
});

describe("how many records a table has", () => {
  /** Removes or adds a record as damage could: without the record that counts. */
  async function behindItsBack(
    table: "receipts" | "claims" | "texts",
    change: "remove" | "add",
  ): Promise<string> {
    const path = await copied();
    const root = openRoot(path);
    const opened = tablesOf(root)[table];
    const [key] = opened.getKeys({ limit: 1 });
    if (change === "add") await opened.put(Buffer.alloc(30, 1), Buffer.alloc(30));
    else await opened.remove(key === undefined ? Buffer.alloc(8) : Buffer.from(key));
    await root.close();
    return path;
  }

  test.each([
    ["receipts", "remove"],
    ["claims", "remove"],
    ["receipts", "add"],
    ["texts", "add"],
  ] as const)("is compared by verify: %s, %s", async (table, change) => {
    const path = await behindItsBack(table, change);
    expect((await verifyStore(path)).problems.join()).toContain(`table "${table}" has`);
  });

  test("stays right whatever comes and goes within a commit", async () => {
    const path = await copied();
    const store = await open(path);
    const { receipts, replay, mailbox } = store.capabilities;
    const twice = Array.from({ length: 40 }, (_, n) => [
      receipts!.put(`key-${n}`, bytesOf(n, 9), 9_000),
      receipts!.remove(`key-${n}`),
      receipts!.put(`key-${n % 3}`, bytesOf(n, 12), 8_000),
      receipts!.remove(`absent ${n}`),
      replay!.claim(`more ${n}`, 9_000, 1_000),
      mailbox!.store(entry(1_000 + n), quota()),
    ]);
    await Promise.all(twice.flat());
    await receipts!.expire(6_000, 1_000);
    await replay!.expire(6_000, 1_000);
    await mailbox!.expire(100_000, 1_000);
    await store.close();
    expect((await verifyStore(path)).problems).toEqual([]);
    const again = await open(path);
    expect(await answersOf(again)).toBeString();
    await again.close();
  });
});

/** Flips one bit of the first place in the file where the bytes stand. */
function flipBit(path: string, needle: Uint8Array): void {
  const bytes = readFileSync(file(path));
  let flipped = 0;
  for (let at = bytes.indexOf(needle); at >= 0; at = bytes.indexOf(needle, at + 1)) {
    bytes[at + 20]! ^= 4;
    flipped++;
  }
  expect(flipped).toBeGreaterThan(0);
  writeFileSync(file(path), bytes);
}

describe("a flipped bit on the disk", () => {
  test("in a message hides only that message, and is reported", async () => {
    const path = folder();
    const store = await open(path);
    for (let n = 0; n < 9; n++) await store.capabilities.mailbox!.store(entry(n), quota());
    await store.close();
    flipBit(path, bytesOf(4, 60));
    const logged: string[] = [];
    const environment = {
      ...testEnvironment(),
      log: (_: string, message: string) => void logged.push(message),
    };
    const again = await openLmdb(optionsOf(lmdbPlugin, { path }), environment);
    const mailbox = again.capabilities.mailbox!;
    const seen = ids(await listAll(mailbox, alice, pageOf({ entriesMax: 2 })));
    expect(seen).toEqual([0, 1, 2, 3, 5, 6, 7, 8].map(id));
    expect(logged.length).toBeGreaterThan(0);
    expect(await failureOf(() => mailbox.message(alice, id(4), 2_000))).toMatchObject({
      code: "corrupt",
    });
    expect(await mailbox.remove(alice, [id(4)], 2_000)).toEqual(removedOf([id(4)]));
    await again.close();
  });

  test("in a receipt, or in the index, is reported as corrupt, never answered", async () => {
    const path = folder();
    const store = await open(path);
    await store.capabilities.receipts!.put("key", bytesOf(9, 200), 5_000);
    await store.capabilities.mailbox!.store(entry(1), quota());
    await store.close();
    const sound = readFileSync(file(path));
    const reading = async () => {
      const store = await open(path);
      await store.capabilities.receipts!.get("key", 1_000).finally(() => store.close());
    };
    for (const needle of [bytesOf(9, 100), Buffer.from(alice.slice(0, 24))]) {
      writeFileSync(file(path), sound);
      flipBit(path, needle);
      const message = expect.stringContaining("waypost storage verify");
      expect(await failureOf(reading)).toMatchObject({ code: "corrupt", message });
    }
    writeFileSync(file(path), sound);
    const again = await open(path);
    expect(await again.capabilities.receipts!.get("key", 1_000)).toEqual(bytesOf(9, 200));
    await again.close();
  });
});
