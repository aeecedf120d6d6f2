/**
 * What the engine keeps after many batches of the log, counted by kind: what is kept for a time
 * stays within its bound, and only entries and the tiles over them grow.
 */
import { expect, test } from "bun:test";
import { utf8 } from "../../src/core/codec/bytes.ts";
import type { Did } from "../../src/core/codec/did.ts";
import { openEnvironment } from "../../src/plugins/lmdb/environment.ts";
import { DiskTable } from "../../src/plugins/lmdb/store.ts";
import { appendTouched, openLogs, prepareLog } from "../../src/storage/embedded-log.ts";
import { aliasKey, headKey } from "../../src/storage/embedded-records.ts";
import { testEnvironment } from "../conformance/kit.ts";
import { alice, bob } from "../support/embedded-stage.ts";
import { scratchPaths } from "../support/scratch.ts";

const mebibyte = 1024 * 1024;
const folder = scratchPaths("lmdb-growth");
const tileWidth = 256;
/** States that a proof can be made of. */
const undoMax = 256;

test("after 300 and after 600 batches there are 256 undo records, as many pages of the map, and a tile for 256 entries", async () => {
  const environment = await openEnvironment({
    path: folder(),
    space: { floorBytes: 0, reserveBytes: mebibyte },
    host: testEnvironment(),
  });
  const table = new DiskTable(environment, "table");
  await table.commit((view) => {
    prepareLog(view);
    view.put(headKey, new Uint8Array(1));
  });
  const count = (kind: string) => table.range(`l/${kind}/`, { limit: 10_000 }).length;
  /** The alias goes from one to the other: two entries a batch, and one leaf of the map. */
  const move = (holder: Did) =>
    table.commit((view) => {
      view.put(aliasKey("wanderer"), utf8(holder));
      appendTouched(view, { dids: new Set(), aliases: new Set(["wanderer"]) });
    });
  const logs = openLogs(table);
  const kept = [];
  for (const batches of [300, 600]) {
    for (let n = batches - 299; n <= batches; n++) await move(n % 2 === 0 ? alice.did : bob.did);
    const size = (await logs.head(""))?.size ?? 0;
    expect(size).toBe(1 + 2 * batches);
    kept.push({ undo: count("u"), pages: count("m"), bundles: count("e"), tiles: count("t") });
  }
  const [early, late] = kept;
  expect([early?.undo, late?.undo]).toEqual([undoMax, undoMax]);
  expect(late?.pages).toBe(early?.pages ?? 0);
  expect([early?.bundles, late?.bundles]).toEqual(
    [601, 1_201].map((size) => Math.ceil(size / tileWidth)),
  );
  expect(late?.tiles).toBe(1);
  await environment.close();
}, 60_000);
