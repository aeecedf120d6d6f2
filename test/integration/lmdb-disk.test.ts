/**
 * The LMDB driver on a disk without room: what is refused and how, what goes on, and that nothing
 * is lost.
 */
import { describe, expect, jest, test } from "bun:test";
import { mkdirSync, renameSync, rmSync, statSync, truncateSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { LedgerCall } from "../../src/core/ledger/calls.ts";
import type { LogHead } from "../../src/core/trust/log.ts";
import { verifyConsistency } from "../../src/core/trust/tree.ts";
import { checkDataFile, openRoot, tablesOf } from "../../src/plugins/lmdb/data-file.ts";
import { lmdbPlugin } from "../../src/plugins/lmdb/lmdb.ts";
import { exportRecords } from "../../src/plugins/lmdb/maintenance.ts";
import { type Disk, openDisk } from "../../src/plugins/lmdb/space.ts";
import { openLmdb } from "../../src/plugins/lmdb/store.ts";
import {
  type Mailbox,
  StoreError,
  type StoreErrorCode,
  type Submission,
} from "../../src/storage/contract.ts";
import type { EmbeddedLedger } from "../../src/storage/embedded.ts";
import { testEnvironment } from "../conformance/kit.ts";
import { optionsOf } from "../conformance/options.ts";
import { bytesOf, did, entry, id, listAll, pageOf, quota } from "../conformance/samples.ts";
import {
  addAlias,
  alice as aliceIdentity,
  bob as bobIdentity,
  register,
  registration,
  settled,
  startMs,
} from "../support/embedded-stage.ts";
import { scratchPaths } from "../support/scratch.ts";

const mebibyte = 1024 * 1024;
const folder = scratchPaths("lmdb-disk");

function codeOf(error: unknown): StoreErrorCode | null {
  return error instanceof StoreError ? error.code : null;
}

/**
 * A disk of so many bytes, for the file alone; `reserves` is whether its file system can set room
 * aside.
 */
function smallDisk(file: string, bytes: number, reserves = true): Disk & { bytes: number } {
  return {
    bytes,
    reserves,
    freeBytes() {
      return this.bytes - (reserves ? this.fileBytes() : this.usedBytes());
    },
    fileBytes: () => statSync(file).size,
    usedBytes: () => checkDataFile(file) ?? 0,
    extend(to) {
      if (reserves && to > this.bytes) return false;
      if (to > this.fileBytes()) truncateSync(file, to);
      return true;
    },
    close() {},
  };
}

/** Stores until it is refused, and answers what was stored and how the refusal was coded. */
async function fillUp(mailbox: Mailbox, from: number, size: number, max = 20_000) {
  const stored: number[] = [];
  for (let n = from; n < from + max; n += 16) {
    const some = Array.from({ length: 16 }, (_, i) => n + i);
    const outcomes = await Promise.allSettled(
      some.map((k) =>
        mailbox.store(entry(k, { recipient: did(k % 4), envelope: bytesOf(k, size) }), quota()),
      ),
    );
    for (const [i, one] of outcomes.entries())
      if (one.status === "fulfilled") stored.push(some[i]!);
    const refused = outcomes.find((one) => one.status === "rejected");
    if (refused !== undefined) return { stored, code: codeOf(refused.reason) };
  }
  return { stored, code: null };
}

async function allHeld(mailbox: Mailbox): Promise<number> {
  let held = 0;
  for (let r = 0; r < 4; r++)
    held += (await listAll(mailbox, did(r), pageOf({ bytesMax: mebibyte }))).length;
  return held;
}

type Opened = Awaited<ReturnType<typeof openLmdb>>;

/** As many reads as are taken, at most `max`. */
async function claimUp(store: Opened, round: number, max = Infinity): Promise<number> {
  const { replay } = store.capabilities;
  for (let taken = 0; taken < max; taken += 256) {
    const tags = Array.from({ length: 256 }, (_, n) => `${round}-${taken + n}`.padStart(64, "x"));
    const claims = tags.map((tag, n) => replay!.claim(tag, 1_100 + n, 1_000));
    const claimed = await Promise.allSettled(claims);
    if (claimed.some(({ status }) => status === "rejected")) return taken;
  }
  return max;
}

async function freeAll({ capabilities }: Opened, numbers: readonly number[]): Promise<void> {
  const { mailbox, replay } = capabilities;
  await ackAll(mailbox!, numbers);
  for (let some = 256; some > 0; ) some = await mailbox!.expire(2_000, 256);
  for (let some = 256; some > 0; ) some = await replay!.expire(2_000, 256);
}

async function ackAll(mailbox: Mailbox, numbers: readonly number[]): Promise<void> {
  for (let r = 0; r < 4; r++) {
    const mine = numbers.filter((n) => n % 4 === r).map(id);
    for (let at = 0; at < mine.length; at += 200)
      await mailbox.remove(did(r), mine.slice(at, at + 200), 2_000);
  }
}

test.if(process.platform === "linux")(
  "a disk is asked by the open file, whatever its folder is called, and its failure is unavailable",
  () => {
    const path = folder();
    mkdirSync(path);
    const file = join(path, "data.mdb");
    writeFileSync(file, new Uint8Array(64 * 1024));
    const disk = openDisk(file);
    renameSync(path, `${path}-elsewhere`);
    expect(disk.freeBytes()).toBeGreaterThan(0);
    disk.close();
    const asked = () => disk.freeBytes();
    expect(asked).toThrow(expect.objectContaining({ code: "unavailable" }));
    rmSync(`${path}-elsewhere`, { recursive: true });
  },
);

describe("a disk without room", () => {
  const systems = [
    { system: "sets room aside", reserves: true },
    { system: "can't set room aside", reserves: false },
  ];
  test.each(systems)(
    "whose file system $system refuses stores with full, goes on with the rest, and recovers",
    async ({ reserves }) => {
      const path = folder();
      mkdirSync(path, { mode: 0o700 });
      const disk = smallDisk(join(path, "data.mdb"), 32 * mebibyte, reserves);
      const settings = optionsOf(lmdbPlugin, {
        path,
        reserve_bytes: 8 * mebibyte,
        free_space_floor_bytes: mebibyte,
      });
      const logged: string[] = [];
      const log = (level: string, message: string) => void logged.push(`${level}: ${message}`);
      const store = await openLmdb(settings, { ...testEnvironment(), log }, { disk });
      const { mailbox, replay, receipts } = store.capabilities;
      await store.probe();
      const { stored, code } = await fillUp(mailbox!, 0, 6_000);
      expect([code, await store.probe().catch(codeOf)]).toEqual(["full", "full"]);
      // A warning comes first. Sixteen were refused, and the operator learns of it once.
      expect(logged.map((line) => line.slice(0, 24))).toEqual([
        "warn: the disk is nearly",
        "error: the disk is full:",
      ]);
      expect(stored.length).toBeGreaterThan(500);
      expect(await allHeld(mailbox!)).toBe(stored.length);
      expect(await replay!.claim("tag", 5_000, 1_000)).toBe(true);
      await receipts!.put("key", bytesOf(1, 50), 5_000);
      await ackAll(mailbox!, stored.slice(0, stored.length - 10));
      expect(await allHeld(mailbox!)).toBe(10);
      // What was freed lies inside the file; the disk itself is as full as before.
      await storesAgain(mailbox!, 100_000);
      // Room on the disk is used at once.
      const refusedAgain = await fillUp(mailbox!, 200_000, 6_000);
      expect(refusedAgain.code).toBe("full");
      disk.bytes *= 4;
      await storesAgain(mailbox!, 300_000);
      await store.probe();
      await store.close();
      expect(statSync(join(path, "data.mdb")).size).toBeLessThan(disk.bytes);
    },
    60_000,
  );

  test("that others have filled is warned of within a minute, long before a store is refused", async () => {
    const path = folder();
    mkdirSync(path, { mode: 0o700 });
    const disk = smallDisk(join(path, "data.mdb"), 1_024 * mebibyte);
    const sizes = { path, reserve_bytes: 8 * mebibyte, free_space_floor_bytes: mebibyte };
    const logged: string[] = [];
    const log = (level: string, message: string) => void logged.push(`${level}: ${message}`);
    jest.useFakeTimers();
    try {
      const settings = optionsOf(lmdbPlugin, sizes);
      const store = await openLmdb(settings, { ...testEnvironment(), log }, { disk });
      jest.advanceTimersByTime(60_000);
      expect(logged).toEqual([]);
      disk.bytes = disk.fileBytes() + mebibyte;
      jest.advanceTimersByTime(120_000);
      expect(logged).toEqual(["warn: the disk is nearly full: writes will be refused"]);
      expect((await fillUp(store.capabilities.mailbox!, 0, 6_000, 64)).code).toBe(null);
      await store.close();
    } finally {
      jest.useRealTimers();
    }
  }, 60_000);

  test("keeps room for sweeps and acknowledgements when free pages are too scattered for large messages", async () => {
    const path = folder();
    mkdirSync(path, { mode: 0o700 });
    const disk = smallDisk(join(path, "data.mdb"), 48 * mebibyte);
    const sizes = { path, reserve_bytes: 8 * mebibyte, free_space_floor_bytes: mebibyte };
    const store = await openLmdb(optionsOf(lmdbPlugin, sizes), testEnvironment(), { disk });
    const { mailbox } = store.capabilities;
    // Two pages each, of which every other one is free then.
    const { stored } = await fillUp(mailbox!, 0, 6_000);
    await ackAll(
      mailbox!,
      stored.filter((_, i) => i % 2 === 0),
    );
    await mailbox!.expire(2_000, 256);
    for (let round = 0; round < 5; round++)
      await fillUp(mailbox!, 100_000 + round * 1_000, 500_000, 16);
    await ackAll(
      mailbox!,
      stored.filter((_, i) => i % 2 === 1),
    );
    await mailbox!.expire(2_000, 256);
    expect((await fillUp(mailbox!, 500_000, 6_000, 160)).stored.length).toBe(160);
    await store.close();
  }, 60_000);

  test("keeps room for acknowledgements whatever is read, and takes stores again when all is acknowledged", async () => {
    const path = folder();
    mkdirSync(path, { mode: 0o700 });
    const disk = smallDisk(join(path, "data.mdb"), 32 * mebibyte);
    const sizes = { path, reserve_bytes: 8 * mebibyte, free_space_floor_bytes: mebibyte };
    const store = await openLmdb(optionsOf(lmdbPlugin, sizes), testEnvironment(), { disk });
    const { mailbox, replay } = store.capabilities;
    const { stored } = await fillUp(mailbox!, 0, 6_000);
    let taken = 0;
    // As many reads as were ever refused: each claims what was signed.
    for (let refused = 0; refused === 0; ) {
      const tags = Array.from({ length: 256 }, (_, n) => `${taken + n}`.padStart(64, "x"));
      const claims = tags.map((tag) => replay!.claim(tag, 600_000, 1_000));
      for (const { status } of await Promise.allSettled(claims))
        if (status === "fulfilled") taken++;
        else refused++;
    }
    expect(taken).toBeGreaterThan(20_000);
    await ackAll(mailbox!, stored);
    await mailbox!.expire(2_000, 256);
    await storesAgain(mailbox!, 100_000);
    await replay!.claim("one more", 600_000, 1_000);
    await store.close();
  }, 60_000);

  test("takes reads again when all is acknowledged, however often reads have filled it up", async () => {
    const path = folder();
    mkdirSync(path, { mode: 0o700 });
    const disk = smallDisk(join(path, "data.mdb"), 24 * mebibyte);
    const sizes = { path, reserve_bytes: 8 * mebibyte, free_space_floor_bytes: mebibyte };
    const store = await openLmdb(optionsOf(lmdbPlugin, sizes), testEnvironment(), { disk });
    for (let round = 1; round <= 4; round++) {
      const { stored } = await fillUp(store.capabilities.mailbox!, round * 100_000, 6_000);
      expect(await claimUp(store, round)).toBeGreaterThan(5_000);
      await freeAll(store, stored);
    }
    await store.close();
  }, 60_000);

  test("takes large messages again where the file has room for them, and keeps room for reads", async () => {
    const path = folder();
    mkdirSync(path, { mode: 0o700 });
    const disk = smallDisk(join(path, "data.mdb"), 56 * mebibyte);
    const sizes = { path, reserve_bytes: 16 * mebibyte, free_space_floor_bytes: mebibyte };
    const store = await openLmdb(optionsOf(lmdbPlugin, sizes), testEnvironment(), { disk });
    const { mailbox } = store.capabilities;
    for (let round = 1; round <= 2; round++) {
      const { stored } = await fillUp(mailbox!, round * 100_000, 6_000);
      expect(await claimUp(store, round)).toBeGreaterThan(20_000);
      await freeAll(store, stored);
      const large: number[] = [];
      for (const size of [90_000, 500_000])
        for (let n = 0; n < 40; n += 4) {
          const some = Array.from({ length: 4 }, (_, k) => round * 100_000 + 50_000 + size + n + k);
          const put = (k: number) =>
            mailbox!.store(
              entry(k, { recipient: did(k % 4), envelope: bytesOf(k, size) }),
              quota(),
            );
          const outcomes = await Promise.allSettled(some.map(put));
          for (const [k, { status }] of outcomes.entries())
            if (status === "fulfilled") large.push(some[k]!);
        }
      expect(large.length).toBeGreaterThan(40);
      expect(await claimUp(store, 10 + round, 20_480)).toBe(20_480);
      await freeAll(store, large);
    }
    await store.close();
  }, 60_000);

  test("never grows beyond its disk while a backup keeps it from using free pages, and goes on after it", async () => {
    const path = folder();
    mkdirSync(path, { mode: 0o700 });
    const disk = smallDisk(join(path, "data.mdb"), 32 * mebibyte);
    const sizes = { path, reserve_bytes: 8 * mebibyte, free_space_floor_bytes: mebibyte };
    const store = await openLmdb(optionsOf(lmdbPlugin, sizes), testEnvironment(), { disk });
    const { mailbox, replay } = store.capabilities;
    const { stored } = await fillUp(mailbox!, 0, 1_500);
    await freeAll(store, stored.slice(0, 10_000));
    const reader = exportRecords(path, () => {});
    await reader.next();
    const rest = stored.slice(10_000);
    const refused = { claims: 0, acks: 0, sweeps: 0 };
    const count = (what: keyof typeof refused) => () => void refused[what]++;
    for (let n = 0; refused.acks === 0 || refused.claims === 0; n++) {
      const tags = Array.from({ length: 8 }, (_, k) => `${8 * n + k}`.padStart(64, "x"));
      const ack = mailbox!.remove(did(rest[n]! % 4), [id(rest[n]!)], 2_000);
      await Promise.all([
        ...tags.map((tag) => replay!.claim(tag, 600_000, 1_000).catch(count("claims"))),
        ack.catch(count("acks")),
      ]);
    }
    // All has ended.
    for (let sweep = 0; sweep < 50; sweep++)
      await mailbox!.expire(30_000, 256).catch(count("sweeps"));
    expect(disk.usedBytes()).toBeLessThanOrEqual(disk.bytes);
    expect(refused.sweeps).toBeGreaterThan(0);
    await reader.return(undefined);
    while ((await mailbox!.expire(30_000, 256)) > 0);
    expect(await replay!.claim("one more", 600_000, 1_000)).toBe(true);
    expect(disk.usedBytes()).toBeLessThanOrEqual(disk.bytes);
    disk.bytes *= 2;
    await storesAgain(mailbox!, 100_000);
    await store.close();
  }, 60_000);

  test("writes reads and acknowledgements in records of a page at most, which need no free pages side by side", async () => {
    const path = folder();
    mkdirSync(path, { mode: 0o700 });
    const disk = smallDisk(join(path, "data.mdb"), 32 * mebibyte);
    const sizes = { path, reserve_bytes: 8 * mebibyte, free_space_floor_bytes: mebibyte };
    const store = await openLmdb(optionsOf(lmdbPlugin, sizes), testEnvironment(), { disk });
    const { mailbox, replay, receipts } = store.capabilities;
    const { stored } = await fillUp(mailbox!, 0, 6_000);
    for (let n = 0; ; n++)
      if ((await receipts!.put(`${n}`, bytesOf(n, 60_000), 5_000).catch(codeOf)) !== undefined)
        break;
    const tags = Array.from({ length: 1_000 }, (_, n) => `${n}`.padStart(64, "x"));
    const claims = tags.map((tag) => replay!.claim(tag, 600_000, 1_000));
    expect(await Promise.all(claims)).not.toContain(false);
    await ackAll(mailbox!, stored);
    expect(await Promise.all(tags.map((tag) => replay!.claim(tag, 600_000, 1_000)))).not.toContain(
      true,
    );
    await store.close();
    const root = openRoot(path, { readOnly: true });
    for (const name of ["claims", "acks"] as const) {
      const lengths = [...tablesOf(root)[name].getRange()].map(({ value }) => value.length);
      expect(lengths.length).toBeGreaterThan(5);
      expect(Math.max(...lengths)).toBeLessThan(4_080);
    }
    await root.close();
  }, 60_000);

  test("takes many acknowledgements at once, also when records have used their part of the reserve", async () => {
    const path = folder();
    mkdirSync(path, { mode: 0o700 });
    const disk = smallDisk(join(path, "data.mdb"), 32 * mebibyte);
    const sizes = { path, reserve_bytes: 8 * mebibyte, free_space_floor_bytes: mebibyte };
    const store = await openLmdb(optionsOf(lmdbPlugin, sizes), testEnvironment(), { disk });
    const { mailbox, receipts } = store.capabilities;
    const { stored } = await fillUp(mailbox!, 0, 1_000);
    const put = (n: number) =>
      receipts!.put(`${n}`, bytesOf(n, 60_000), 5_000).then(() => true, codeOf);
    for (let n = 0; (await put(n)) === true; n++);
    // Twenty in each, far apart.
    const calls = Math.floor(stored.length / 80);
    expect(calls).toBeGreaterThan(60);
    const acks = Array.from({ length: 4 * calls }, (_, n) => {
      const some = Array.from({ length: 20 }, (_, k) => stored[4 * k * calls + n]!);
      return mailbox!.remove(did(n % 4), some.map(id), 2_000);
    });
    for (const ack of await Promise.allSettled(acks)) expect(ack.status).toBe("fulfilled");
    await store.close();
  }, 60_000);

  test("uses the room of acknowledged messages again before the next sweep", async () => {
    const path = folder();
    const sizes = { path, reserve_bytes: 8 * mebibyte, free_space_floor_bytes: mebibyte };
    const store = await openLmdb(optionsOf(lmdbPlugin, sizes), testEnvironment());
    for (let n = 0; n < 6_000; n += 200) {
      const some = Array.from({ length: 200 }, (_, i) => n + i);
      const given = (k: number) => entry(k, { recipient: did(1), envelope: bytesOf(k, 9_000) });
      await Promise.all(some.map((k) => store.capabilities.mailbox!.store(given(k), quota())));
      await store.capabilities.mailbox!.remove(did(1), some.map(id), 2_000);
    }
    await store.close();
    expect(statSync(join(path, "data.mdb")).size).toBeLessThan(40 * mebibyte);
  }, 60_000);

  test("stops blocks with their batches of the log, loses no call that was accepted, and goes on", async () => {
    const path = folder();
    mkdirSync(path, { mode: 0o700 });
    const disk = smallDisk(join(path, "data.mdb"), 24 * mebibyte);
    const sizes = { reserve_bytes: 8 * mebibyte, free_space_floor_bytes: mebibyte };
    const logged: string[] = [];
    const log = (_: string, message: string) => void logged.push(message);
    const environment = { ...testEnvironment(), log, now: () => startMs };
    const store = await openLmdb(
      optionsOf(lmdbPlugin, { path, ...sizes, block_time_ms: 3_000 }),
      environment,
      {
        disk,
      },
    );
    const { logs, ledger } = store.capabilities;
    const before = (await logs!.head("")) as LogHead;
    const note = (n: number) => logs!.keepNote(`${n}`, "", "n".repeat(mebibyte)).catch(codeOf);
    const call = registration(aliceIdentity);
    const accepted = (await ledger!.submit(call, call.name)) as Submission;
    let notes = 0;
    while ((await note(notes)) === true) notes++;
    expect([notes > 4, await note(notes)]).toEqual([true, "full"]);
    // What comes now is refused, also a copy of another log.
    const other = registration(bobIdentity);
    expect(await ledger!.submit(other, other.name).catch(codeOf)).toBe("full");
    const within = { ...before, proof: [] };
    expect(await logs!.copy("x", { after: 0, entries: [], within }).catch(codeOf)).toBe("full");
    while (!logged.includes("no block could be made; the ledger tries again")) await Bun.sleep(20);
    expect((await ledger!.submission(accepted.txHash))?.state).toBe("pending");
    expect(await logs!.head("")).toEqual(before);
    disk.bytes *= 2;
    while ((await ledger!.submission(accepted.txHash))?.state !== "finalized") await Bun.sleep(20);
    const after = (await logs!.head("")) as LogHead;
    const proof = (await logs!.consistency("", before.size, after.size)) ?? [];
    expect([after.size > before.size, verifyConsistency(before, after, proof)]).toEqual([
      true,
      true,
    ]);
    expect(await note(notes)).toBe(true);
    await store.close();
  }, 60_000);

  test("keeps room for mailboxes: at half of it registrations end, at three quarters changes", async () => {
    const path = folder();
    mkdirSync(path, { mode: 0o700 });
    const disk = smallDisk(join(path, "data.mdb"), 81 * mebibyte);
    const given = {
      path,
      reserve_bytes: 8 * mebibyte,
      free_space_floor_bytes: mebibyte,
      block_time_ms: 10,
    };
    const environment = { ...testEnvironment(), now: () => startMs };
    const store = await openLmdb(optionsOf(lmdbPlugin, given), environment, { disk });
    const ledger = store.capabilities.ledger as EmbeddedLedger;
    const grow = async (from: number, to: number) => {
      for (let i = from; i < to; i++)
        await store.capabilities.logs!.keepNote(`${i}`, "", "n".repeat(mebibyte));
    };
    const submit = (call: LedgerCall) => ledger.submit(call, call.name).catch(codeOf);
    await grow(0, 1); // notes stand in the ledger's table
    await register(ledger, aliceIdentity);
    await grow(1, 40);
    expect(await submit(registration(bobIdentity))).toBe("full");
    await settled(ledger, await submit(addAlias(aliceIdentity, "alice")));
    await grow(40, 60);
    expect(await submit(addAlias(aliceIdentity, "alice-two", 1n))).toBe("full");
    expect((await fillUp(store.capabilities.mailbox!, 0, 6_000)).stored.length).toBeGreaterThan(
      100,
    );
    await store.close();
  }, 60_000);

  test.if(process.platform === "linux" && process.getuid?.() === 0)(
    "never fills a real file system: stores are refused, acknowledgements work, and it recovers",
    async () => {
      const path = folder();
      mkdirSync(path);
      const mounted =
        Bun.spawnSync(["mount", "-t", "tmpfs", "-o", "size=40m", "tmpfs", path]).exitCode === 0;
      // Containers may not mount; the test above runs there with its own disk.
      if (!mounted) return;
      try {
        const settings = optionsOf(lmdbPlugin, {
          path: join(path, "store"),
          reserve_bytes: 8 * mebibyte,
          free_space_floor_bytes: 2 * mebibyte,
        });
        const environment = testEnvironment();
        let store = await openLmdb(settings, environment);
        let mailbox = store.capabilities.mailbox!;
        const { stored, code } = await fillUp(mailbox, 0, 3_000);
        expect(code).toBe("full");
        // Somebody else takes the rest.
        expect(() => writeFileSync(join(path, "ballast"), new Uint8Array(64 * mebibyte))).toThrow();
        expect((await fillUp(mailbox, 100_000, 3_000)).stored).toEqual([]);
        expect(await allHeld(mailbox)).toBe(stored.length);
        // A restart on the full disk finds the room that was set aside.
        await store.close();
        store = await openLmdb(settings, environment);
        mailbox = store.capabilities.mailbox!;
        expect((await fillUp(mailbox, 100_000, 3_000)).stored).toEqual([]);
        await ackAll(mailbox, stored);
        expect(await allHeld(mailbox)).toBe(0);
        rmSync(join(path, "ballast"));
        await storesAgain(mailbox, 200_000);
        expect(environment.fatals).toEqual([]);
        await store.close();
      } finally {
        Bun.spawnSync(["umount", "-l", path]);
      }
    },
    60_000,
  );

  test.if(process.platform === "linux" && process.getuid?.() === 0)(
    "frees a backlog of expired messages, loses none of the others, and stores again when there is room",
    async () => {
      const path = folder();
      mkdirSync(path);
      if (Bun.spawnSync(["mount", "-t", "tmpfs", "-o", "size=60m", "tmpfs", path]).exitCode !== 0)
        return;
      try {
        const sizes = { reserve_bytes: 8 * mebibyte, free_space_floor_bytes: 2 * mebibyte };
        const settings = optionsOf(lmdbPlugin, { path: join(path, "store"), ...sizes });
        const environment = testEnvironment();
        let store = await openLmdb(settings, environment);
        // Small ones, which the index outweighs; each 50th lives longer.
        const lifeOf = (n: number) => (n % 50 === 0 ? 25_000 : 10_000);
        const keptOf = (n: number) => (n % 50 === 0 ? 30_000 : 12_500);
        const mailboxOf = (n: number) => did(n % 97);
        const storeOne = (n: number) => {
          const lives = {
            expiresAtMs: lifeOf(n),
            keptUntilMs: keptOf(n),
            onExpiry: "KeepHeaderPreview",
          } as const;
          const given = {
            recipient: mailboxOf(n),
            envelope: bytesOf(n, 300),
            headerPreview: bytesOf(n, 100),
            ...lives,
          };
          return store.capabilities.mailbox!.store(entry(n, given), quota());
        };
        let count = 0;
        for (let isFull = false; !isFull; count += 256) {
          const outcomes = await Promise.allSettled(
            Array.from({ length: 256 }, (_, n) => storeOne(count + n)),
          );
          isFull = outcomes.some(({ status }) => status === "rejected");
          if (isFull) break;
        }
        expect(() => writeFileSync(join(path, "ballast"), new Uint8Array(64 * mebibyte))).toThrow();
        await store.close();
        store = await openLmdb(settings, environment);
        const mailbox = store.capabilities.mailbox!;
        let freed = 0;
        for (let some = 256; some === 256; freed += some) {
          some = await mailbox.expire(12_000, 256);
          // Senders go on next to it. Some find room that was freed; a refusal has its code.
          const refused = await storeOne(10_000_000 + freed).then(
            () => null,
            (error: unknown) => codeOf(error),
          );
          expect([null, "full", "unavailable"]).toContain(refused);
        }
        expect(freed).toBeGreaterThanOrEqual(count - Math.ceil(count / 50));
        for (let n = 0; n < count; n += 50)
          expect((await mailbox.message(mailboxOf(n), id(n), 12_000)).state).toBe("active");
        rmSync(join(path, "ballast"));
        while ((await mailbox.expire(13_000, 256)) > 0);
        await storesAgain(mailbox, 200_000_000);
        expect(environment.fatals).toEqual([]);
        await store.close();
      } finally {
        Bun.spawnSync(["umount", "-l", path]);
      }
    },
    60_000,
  );
});

/**
 * Stores until more than fifty were taken, for at most some seconds. Room comes back in steps, by
 * what is freed by sweeps, so a first attempt may find room for one and the next for all.
 */
async function storesAgain(mailbox: Mailbox, from: number): Promise<void> {
  let taken = 0;
  for (let attempt = 0; attempt < 120; attempt++) {
    await mailbox.expire(2_000, 256);
    taken += (await fillUp(mailbox, from + attempt * 1_000, 6_000, 160)).stored.length;
    if (taken > 50) return;
    await Bun.sleep(50);
  }
  throw new Error(`stores are not taken again: ${taken} in all`);
}
