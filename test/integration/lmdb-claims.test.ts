/**
 * Claims of the LMDB driver compared with a plain map: which win, which are forgotten, and what is
 * left after a restart.
 */
import { expect, test } from "bun:test";
import { openRoot, tablesOf } from "../../src/plugins/lmdb/data-file.ts";
import { lmdbPlugin } from "../../src/plugins/lmdb/lmdb.ts";
import { openLmdb } from "../../src/plugins/lmdb/store.ts";
import type { Replay, Store } from "../../src/storage/contract.ts";
import { testEnvironment } from "../conformance/kit.ts";
import { optionsOf } from "../conformance/options.ts";
import { did, entry, id, quota } from "../conformance/samples.ts";
import { folderInMemory, scratchPaths } from "../support/scratch.ts";

const newPath = scratchPaths("claims", folderInMemory());
const open = (path: string, claimsMax?: number): Promise<Store> =>
  openLmdb(
    optionsOf(lmdbPlugin, { path }),
    testEnvironment(),
    claimsMax === undefined ? {} : { claimsMax },
  );
const replayOf = (store: Store): Replay => store.capabilities.replay!;

/** As the file is now: the store may be open. */
async function recordsIn(path: string): Promise<number> {
  const root = openRoot(path, { readOnly: true });
  const records = [...tablesOf(root).claims.getKeys()].length;
  await root.close();
  return records;
}

test("claims of many ends, renewed and forgotten in steps, are those of a plain map, also after restarts", async () => {
  const path = newPath();
  const model = new Map<string, number>();
  let store = await open(path);
  let seed = 7;
  const random = (below: number) => {
    seed = (Math.imul(seed, 1_103_515_245) + 12_345) >>> 0;
    return (seed >>> 8) % below;
  };
  for (let round = 0; round < 60; round++) {
    const nowMs = 1_000 + 100 * round;
    // The number of claims rises and falls, so that the table grows and shrinks.
    const count = round < 25 ? 1_200 : 60;
    const claims: Promise<void>[] = [];
    for (let n = 0; n < count; n++) {
      const [tag, untilMs] = [`tag ${random(40_000)}`, nowMs + 1 + random(1_500)];
      const isFree = (model.get(tag) ?? 0) <= nowMs;
      const claimed = replayOf(store).claim(tag, untilMs, nowMs);
      claims.push(claimed.then((isFirst) => expect(isFirst).toBe(isFree)));
      if (isFree) model.set(tag, untilMs);
      if (n % 100 === 0) await claimed;
    }
    await Promise.all(claims);
    while ((await replayOf(store).expire(nowMs, 700)) > 0);
    if (round % 12 !== 11) continue;
    await store.close();
    store = await open(path);
  }
  const endMs = Math.max(...model.values());
  const lasting = [...model].filter(([, untilMs]) => untilMs > 1_000 + 100 * 59);
  for (const [tag, untilMs] of lasting)
    expect(await replayOf(store).claim(tag, endMs + 1, untilMs - 1)).toBe(false);
  let freed = 0;
  for (let step = 0; step < 1_000; step++) {
    const now = await replayOf(store).expire(endMs, 100);
    expect(now).toBeLessThanOrEqual(100);
    freed += now;
    if (now === 0) break;
  }
  expect(freed).toBeGreaterThanOrEqual(Math.max(lasting.length, 50));
  await store.close();
  expect(await recordsIn(path)).toBe(0);
}, 60_000);

test("claims of a commit share records, with those of acknowledgements, and go when the last has ended", async () => {
  const path = newPath();
  const store = await open(path);
  const mailbox = store.capabilities.mailbox!;
  await mailbox.store(entry(1, { recipient: did(1) }), quota());
  await Promise.all([
    ...Array.from({ length: 50 }, (_, n) => replayOf(store).claim(`tag ${n}`, 5_000 + n, 1_000)),
    mailbox.claimAndRemove({ tag: "proof", untilMs: 6_000 }, did(1), [id(1)], 2_000),
  ]);
  expect(await replayOf(store).expire(4_999, 100)).toBe(0);
  expect([await replayOf(store).expire(5_999, 20), await recordsIn(path)]).toEqual([20, 2]);
  expect([await replayOf(store).expire(5_999, 100), await recordsIn(path)]).toEqual([30, 1]);
  expect([await replayOf(store).expire(6_000, 100), await recordsIn(path)]).toEqual([1, 0]);
  await replayOf(store).claim("next", 7_000, 6_000);
  expect([await replayOf(store).expire(7_000, 100), await recordsIn(path)]).toEqual([1, 0]);
  await store.close();
});

test("a claim that ended before it was written does not take away the next one of its tag", async () => {
  const store = await open(newPath());
  const replay = replayOf(store);
  const first = replay.claim("tag", 5_000, 1_000);
  // Its commit is under way.
  await new Promise<void>((next) => void setImmediate(next));
  const next = replay.claim("tag", 9_000, 5_000);
  expect([await first, await next, await replay.claim("tag", 9_500, 5_000)]).toEqual([
    true,
    true,
    false,
  ]);
  await store.close();
});

test("one tag after the other leaves nothing behind", async () => {
  const store = await open(newPath(), 1);
  for (let n = 0; n < 12; n++) {
    expect(await replayOf(store).claim("tag", 2_000 + n, 1_999 + n)).toBe(true);
    expect(await replayOf(store).expire(2_000 + n, 100)).toBe(1);
  }
  await store.close();
});

test("a record that was forgotten in part does not shorten the one that follows under its number", async () => {
  const store = await open(newPath());
  const replay = replayOf(store);
  const claimAll = (from: number, untilMs: number) =>
    Promise.all(
      Array.from({ length: 10 }, (_, n) => replay.claim(`tag ${from + n}`, untilMs, 1_000)),
    );
  await claimAll(0, 5_000);
  await claimAll(10, 6_000);
  expect(await replay.expire(5_000, 4)).toBe(4);
  await claimAll(20, 5_500);
  expect([await replay.expire(5_500, 100), await replay.expire(6_000, 100)]).toEqual([16, 10]);
  await store.close();
});

test("claims that come together are on the disk in records of 36, which fit into one page", async () => {
  const path = newPath();
  const tags = Array.from({ length: 3_000 }, (_, n) => `${n} `.padEnd(100, "x"));
  const claimAll = (store: Store) =>
    Promise.all(tags.map((tag) => replayOf(store).claim(tag, 5_000, 1_000)));
  const store = await open(path);
  expect((await claimAll(store)).every((isFirst) => isFirst)).toBe(true);
  await store.close();
  // Each of up to three commits begins a record.
  expect(await recordsIn(path)).toBeLessThanOrEqual(3_000 / 36 + 3);
  const again = await open(path);
  expect((await claimAll(again)).some((isFirst) => isFirst)).toBe(false);
  await again.close();
});

test("claims that wait for the disk are bounded", async () => {
  const store = await open(newPath());
  const claims = Array.from({ length: 50_000 }, (_, n) =>
    replayOf(store).claim(`${n} `.padEnd(512, "☃"), 5_000, 1_000),
  );
  const settled = await Promise.allSettled(claims);
  const refused = settled.find((one) => one.status === "rejected");
  expect(String(refused?.reason)).toContain("too many operations are waiting");
  await store.close();
}, 120_000);

test("tags that are no sequence of characters differ from each other, also on the disk", async () => {
  const path = newPath();
  const tags = ["\ud800", "\udc00", "\ufffd", "6\ud800", "8", "6", "\u3600\ud800", "a\ud800"];
  const store = await open(path);
  for (const tag of tags)
    expect([tag, await replayOf(store).claim(tag, 5_000, 1_000)]).toEqual([tag, true]);
  await store.close();
  const again = await open(path);
  for (const tag of tags)
    expect([tag, await replayOf(again).claim(tag, 9_000, 4_999)]).toEqual([tag, false]);
  await again.close();
  const found: string[] = [];
  for await (const record of lmdbPlugin.maintenance!(optionsOf(lmdbPlugin, { path })).records(
    () => {},
  )) {
    if (record.kind === "claim") found.push(record.tag);
  }
  expect(found.sort()).toEqual(tags.toSorted());
});

test("more claims than the store knows are refused, written or not, until some have ended", async () => {
  const store = await open(newPath(), 10);
  const replay = replayOf(store);
  for (let n = 0; n < 5; n++) await replay.claim(`tag ${n}`, 5_000, 1_000);
  const unwritten = Array.from({ length: 5 }, (_, n) => replay.claim(`tag ${5 + n}`, 5_000, 1_000));
  await expect(replay.claim("more", 5_000, 1_000)).rejects.toThrow("the store knows 10 claims");
  expect(await replay.claim("tag 1", 9_000, 4_999)).toBe(false);
  await Promise.all(unwritten);
  expect(await replay.expire(5_000, 100)).toBe(10);
  expect(await replay.claim("more", 9_000, 5_000)).toBe(true);
  await store.close();
});
