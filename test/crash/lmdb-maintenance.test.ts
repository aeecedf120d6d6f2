/**
 * Backup next to a writer, restore, and moving a store by its export: nothing that was answered
 * before is lost, and an interrupted copy is never taken for a store.
 */
import { describe, expect, test } from "bun:test";
import {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { lmdbPlugin } from "../../src/plugins/lmdb/lmdb.ts";
import {
  backupStore,
  compactStore,
  exportRecords,
  restoreStore,
  verifyStore,
} from "../../src/plugins/lmdb/maintenance.ts";
import { openLmdb } from "../../src/plugins/lmdb/store.ts";
import { type Store, StoreError, type StoreRecord } from "../../src/storage/contract.ts";
import { encodeExportLine, importRecords, parseRecord } from "../../src/storage/transfer.ts";
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
} from "../conformance/samples.ts";
import { alice, register } from "../support/embedded-stage.ts";
import { scratchPaths } from "../support/scratch.ts";

const folder = scratchPaths("maintenance");
const later = { expiresAtMs: 4e12, keptUntilMs: 8e12 };
const startMs = 1_800_000_000_000;
const open = (path: string, blockTimeMs = 3_600_000) =>
  openLmdb(
    optionsOf(lmdbPlugin, { path, block_time_ms: blockTimeMs, reserve_bytes: 8 * 1024 * 1024 }),
    {
      ...testEnvironment(),
      now: () => startMs,
    },
  );
const mailboxOf = (store: Store) => store.capabilities.mailbox!;

async function held(store: Store): Promise<Record<string, string[]>> {
  const found: Record<string, string[]> = {};
  for (let r = 0; r < 5; r++) {
    const all = await listAll(mailboxOf(store), did(r), pageOf());
    found[did(r)] = all.map(({ messageId, envelope }) => `${messageId} ${Bun.hash(envelope)}`);
  }
  return found;
}

describe("a backup beside a writer", () => {
  test("holds all that was answered before it began, and is sound", async () => {
    const [path, to, back] = [folder(), folder(), folder()];
    const store = await open(path);
    const mailbox = mailboxOf(store);
    let n = 0;
    const storeOne = () => {
      const k = n++;
      return mailbox.store(
        entry(k, { recipient: did(k % 5), ...later, envelope: bytesOf(k, 2_000) }),
        quota(),
      );
    };
    for (let round = 0; round < 20; round++)
      await Promise.all(Array.from({ length: 50 }, storeOne));
    await mailbox.remove(did(0), [id(0), id(5)], 2_000);
    const before = await held(store);
    let isDone = false;
    const writer = (async () => {
      while (!isDone) {
        await Promise.all(Array.from({ length: 20 }, storeOne));
        await mailbox.remove(did(1), [id(n - 15)], 2_000);
      }
    })();
    // Again until the writer has had a second turn while one ran, however slow the disk is.
    for (let copies = 0; copies === 0 || n <= 1_020; copies++) {
      rmSync(to, { recursive: true, force: true });
      expect(await backupStore(path, to)).toContain("the copy was verified");
    }
    isDone = true;
    await writer;
    await store.close();
    await restoreStore(back, to);
    const restored = await open(back);
    const after = await held(restored);
    for (const [recipient, messages] of Object.entries(before)) {
      expect(after[recipient]!.slice(0, messages.length)).toEqual(messages);
    }
    expect(await mailboxOf(restored).message(did(0), id(5), 2_000)).toMatchObject({
      state: "acked",
    });
    expect(
      await mailboxOf(restored).store(entry(900_000, { recipient: did(1), ...later }), quota()),
    ).toEqual({
      kind: "stored",
    });
    await restored.close();
    expect((await verifyStore(back)).problems).toEqual([]);
  }, 120_000);

  test("into a folder that holds a store is refused", async () => {
    const path = folder();
    await (await open(path)).close();
    expect(await failureOf(() => backupStore(path, path))).toBeInstanceOf(StoreError);
  });
});

/**
 * Of messages of 20 KB, one in ten waits; the others were acknowledged, and their blocks are free.
 */
async function mostlyFree(path: string) {
  const store = await open(path);
  const mailbox = mailboxOf(store);
  const numbers = Array.from({ length: 600 }, (_, n) => n);
  const large = (n: number) =>
    entry(n, { recipient: did(n % 5), ...later, envelope: bytesOf(n, 20_000) });
  await Promise.all(numbers.map((n) => mailbox.store(large(n), quota())));
  const over = numbers.filter((n) => n % 10 !== 3);
  for (const n of over) await mailbox.remove(did(n % 5), [id(n)], 2_000);
  for (let sweeps = 0; sweeps < 3; sweeps++) await mailbox.expire(2_000, 1_000);
  const messages = await held(store);
  await store.close();
  const aliveBytes = (numbers.length - over.length) * 20_000;
  return { messages, aliveBytes };
}

const sizeOf = (path: string) => statSync(join(path, "data.mdb")).size;

describe("a store that is compacted", () => {
  test("takes what it holds, and all that it knew is there", async () => {
    const path = folder();
    const { messages, aliveBytes } = await mostlyFree(path);
    expect(sizeOf(path)).toBeGreaterThan(8 * aliveBytes);
    expect(await compactStore(path)).toContain(`in ${sizeOf(path)} bytes, of `);
    expect(sizeOf(path)).toBeLessThan(1.5 * aliveBytes);
    expect(readdirSync(path).toSorted()).toEqual(["data.mdb", "owner.lock"]);
    const store = await open(path);
    expect(await held(store)).toEqual(messages);
    const mailbox = mailboxOf(store);
    expect(await mailbox.message(did(0), id(5), 2_000)).toMatchObject({ state: "acked" });
    expect(await mailbox.store(entry(900_000, { recipient: did(1), ...later }), quota())).toEqual({
      kind: "stored",
    });
    await store.close();
    expect((await verifyStore(path)).problems).toEqual([]);
  });

  test("is not one that a node has open, with or without its lock file", async () => {
    const path = folder();
    const store = await open(path);
    await mailboxOf(store).store(entry(1, { recipient: did(1), ...later }), quota());
    for (let tries = 0; tries < 2; tries++) {
      expect(((await failureOf(() => compactStore(path))) as Error).message).toContain(
        "already open by another process",
      );
      rmSync(join(path, "owner.lock"), { force: true });
    }
    await store.close();
  });

  test("and killed meanwhile has lost nothing, and is compacted by the next try", async () => {
    const path = folder();
    const { messages, aliveBytes } = await mostlyFree(path);
    const script = `import { compactStore } from ${JSON.stringify(join(import.meta.dir, "../../src/plugins/lmdb/maintenance.ts"))};
      console.log("begin"); await compactStore(${JSON.stringify(path)});`;
    for (const delayMs of [0, 3, 8, 15, 30, 60]) {
      const child = Bun.spawn([process.execPath, "-e", script], {
        stdout: "pipe",
        stderr: "ignore",
      });
      await child.stdout.getReader().read();
      await Bun.sleep(delayMs);
      child.kill("SIGKILL");
      await child.exited;
      const found = await open(path);
      expect(await held(found)).toEqual(messages);
      await found.close();
    }
    await compactStore(path);
    expect(sizeOf(path)).toBeLessThan(1.5 * aliveBytes);
    expect(readdirSync(path).toSorted()).toEqual(["data.mdb", "owner.lock"]);
  }, 60_000);
});

describe("a restore", () => {
  test("that was interrupted is named, begun again, and sets the former store aside", async () => {
    const [path, to, target] = [folder(), folder(), folder()];
    const store = await open(path);
    for (let n = 0; n < 30; n++)
      await mailboxOf(store).store(entry(n, { recipient: did(n % 5), ...later }), quota());
    const before = await held(store);
    await backupStore(path, to);
    await store.close();
    mkdirSync(target);
    writeFileSync(
      join(target, "data.mdb.partial"),
      readFileSync(join(to, "data.mdb")).subarray(0, 20_000),
    );
    expect(((await failureOf(() => open(target))) as Error).message).toContain(
      "waypost storage restore",
    );
    await restoreStore(target, to);
    const restored = await open(target);
    expect(await held(restored)).toEqual(before);
    await mailboxOf(restored).remove(did(0), [id(0)], 2_000);
    await restored.close();
    expect(await restoreStore(target, to)).toContain("the previous store is");
    expect(readdirSync(target).filter((name) => name.startsWith("data.mdb.before-"))).toHaveLength(
      1,
    );
    const again = await open(target);
    expect(await held(again)).toEqual(before);
    await again.close();
  });

  test("that is killed in the middle leaves the former store or the restored one", async () => {
    const [path, to, target] = [folder(), folder(), folder()];
    const store = await open(path);
    const numbers = Array.from({ length: 400 }, (_, n) => n);
    const large = (n: number) =>
      entry(n, { recipient: did(n % 5), ...later, envelope: bytesOf(n, 40_000) });
    await Promise.all(numbers.map((n) => mailboxOf(store).store(large(n), quota())));
    const before = await held(store);
    await backupStore(path, to);
    await store.close();
    const former = await open(target);
    await mailboxOf(former).store(entry(1, { recipient: did(1), ...later }), quota());
    await former.close();
    const script = `import { restoreStore } from ${JSON.stringify(join(import.meta.dir, "../../src/plugins/lmdb/maintenance.ts"))};
      console.log("begin"); await restoreStore(${JSON.stringify(target)}, ${JSON.stringify(to)});`;
    const outcomes = new Set<string>();
    for (const delayMs of [0, 3, 8, 15, 30, 60]) {
      const child = Bun.spawn([process.execPath, "-e", script], {
        stdout: "pipe",
        stderr: "ignore",
      });
      await child.stdout.getReader().read();
      await Bun.sleep(delayMs);
      child.kill("SIGKILL");
      await child.exited;
      if (!existsSync(join(target, "data.mdb"))) {
        expect(((await failureOf(() => open(target))) as Error).message).toContain(
          "waypost storage restore",
        );
        outcomes.add("named");
        continue;
      }
      const found = await open(target);
      const messages = await held(found);
      await found.close();
      const isFormer = Object.values(messages).flat().length === 1;
      if (!isFormer) expect(messages).toEqual(before);
      outcomes.add(isFormer ? "former" : "restored");
    }
    expect(outcomes.size).toBeGreaterThan(0);
    await restoreStore(target, to);
    const whole = await open(target);
    expect(await held(whole)).toEqual(before);
    await whole.close();
  }, 60_000);

  test("of a damaged backup changes nothing", async () => {
    const [path, to] = [folder(), folder()];
    const store = await open(path);
    await store.capabilities.receipts!.put("key", bytesOf(9, 200), 4e12);
    await backupStore(path, to);
    await store.close();
    const bytes = readFileSync(join(to, "data.mdb"));
    for (
      let at = bytes.indexOf(bytesOf(9, 100));
      at >= 0;
      at = bytes.indexOf(bytesOf(9, 100), at + 1)
    )
      bytes[at + 7]! ^= 2;
    writeFileSync(join(to, "data.mdb"), bytes);
    expect(await failureOf(() => restoreStore(path, to))).toMatchObject({ code: "corrupt" });
    const same = await open(path);
    expect(await same.capabilities.receipts!.get("key", 2_000)).toEqual(bytesOf(9, 200));
    await same.close();
  });
});

describe("a backup and its restore", () => {
  test("give free pages back and keep every message", async () => {
    const path = folder();
    const store = await open(path);
    const all = Array.from({ length: 600 }, (_, n) => n);
    await Promise.all(
      all.map((n) =>
        mailboxOf(store).store(
          entry(n, { recipient: did(n % 5), ...later, envelope: bytesOf(n, 9_000) }),
          quota(),
        ),
      ),
    );
    for (let r = 0; r < 5; r++) {
      const some = all.filter((n) => n % 5 === r && n > 20).map((n) => id(n));
      await mailboxOf(store).remove(did(r), some, 2_000);
    }
    const before = await held(store);
    await store.close();
    const size = statSync(join(path, "data.mdb")).size;
    await backupStore(path, `${path}-copy`);
    await restoreStore(path, `${path}-copy`);
    expect(statSync(join(path, "data.mdb")).size).toBeLessThan(size / 2);
    const again = await open(path);
    expect(await held(again)).toEqual(before);
    await again.close();
  }, 120_000);
});

describe("an export", () => {
  async function filled(path: string): Promise<void> {
    const store = await open(path, 20);
    const { mailbox, replay, receipts, ledger } = store.capabilities;
    await mailbox!.store(
      entry(1, { recipient: did(1), ...later, labels: ["new", "net:a"] }),
      quota(),
    );
    await mailbox!.store(
      entry(2, { recipient: did(1), ...later, chunk: chunkOf(1, 0, 2) }),
      quota(),
    );
    await mailbox!.store(entry(3, { recipient: did(1), ...later }), quota());
    await mailbox!.remove(did(1), [id(3)], 2_000);
    const preview = { onExpiry: "KeepHeaderPreview", headerPreview: bytesOf(4, 9) } as const;
    await mailbox!.store(entry(4, { recipient: did(1), ...preview, keptUntilMs: 4e12 }), quota());
    await mailbox!.expire(20_000, 100);
    await replay!.claim("tag \u0000", 4e12, 1_000);
    await receipts!.put("key", bytesOf(9, 20), 4e12);
    await register(ledger as never, alice);
    await store.close();
  }

  const lines = async (path: string) => {
    const found: string[] = [];
    for await (const record of exportRecords(path, (problem) => void found.push(problem)))
      found.push(encodeExportLine(record));
    return found;
  };

  async function* recordsOf(written: readonly string[]): AsyncGenerator<StoreRecord> {
    for (const line of written) {
      const record = parseRecord(line);
      if (typeof record === "string") throw new Error(record);
      yield record;
    }
  }

  async function checkMoved(store: Store): Promise<void> {
    const { mailbox, replay, receipts } = store.capabilities;
    expect(ids(await listAll(mailbox!, did(1), pageOf({ nowMs: 20_000 })))).toEqual([id(1), id(2)]);
    expect(await mailbox!.message(did(1), id(3), 20_000)).toMatchObject({ state: "acked" });
    expect(await mailbox!.message(did(1), id(4), 20_000)).toMatchObject({
      state: "expired",
      headerPreview: bytesOf(4, 9),
    });
    const [removed] = await mailbox!.remove(did(1), [id(1)], 20_000);
    expect([...removed!.labels].sort()).toEqual(["net:a", "new"]);
    expect(await replay!.claim("tag \u0000", 4e12, 20_000)).toBe(false);
    expect(await receipts!.get("key", 20_000)).toEqual(bytesOf(9, 20));
  }

  test("moves a store to a new one, and to no other", async () => {
    const [path, other] = [folder(), folder()];
    await filled(path);
    const written = await lines(path);
    expect(written.length).toBeGreaterThan(8);
    const target = lmdbPlugin.maintenance!(
      optionsOf(lmdbPlugin, { path: other, reserve_bytes: 8 * 1024 * 1024 }),
    );
    const report = await importRecords(target, recordsOf(written), 20_000);
    expect(report).toMatchObject({ messages: 4, claims: 1, receipts: 1, over: { messages: 0 } });
    const again = await open(other);
    await checkMoved(again);
    expect((await again.capabilities.ledger!.account(alice.did)).record).not.toBeNull();
    expect(await failureOf(() => importRecords(target, recordsOf(written), 20_000))).toMatchObject({
      code: "unavailable",
    });
    await again.close();
  });

  test("leaves out damaged records and reports them", async () => {
    const path = folder();
    await filled(path);
    const file = join(path, "data.mdb");
    const bytes = readFileSync(file);
    for (
      let at = bytes.indexOf(bytesOf(1, 60));
      at >= 0;
      at = bytes.indexOf(bytesOf(1, 60), at + 1)
    )
      bytes[at + 30]! ^= 1;
    writeFileSync(file, bytes);
    const written = await lines(path);
    expect(written.filter((line) => line.includes("is damaged"))).toHaveLength(1);
    expect(written.filter((line) => line.includes('"kind":"message"'))).toHaveLength(3);
  });

  test.each(['{"kind":"x"}', "[]", "null", "no"])("line %s is refused in words", (line) => {
    expect(parseRecord(line)).toBeString();
  });
});
