/**
 * Power cuts under the LMDB driver. A shim records every write and every sync of a writer that is
 * killed. From the record, disks are made as a power cut may leave them: what was synced is there,
 * and of what was written since each write is there, missing, or torn at a sector, and each new
 * length of the file is there or missing. Every disk must hold what was answered.
 *
 * `bun test/campaigns/storage-power.ts --cuts 500` prints the figures; with `--unsafe` the writer
 * answers before the sync, and the campaign must find it. Needs Linux and a C compiler.
 */
import {
  copyFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  truncateSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { checkDataFile } from "../../src/plugins/lmdb/data-file.ts";
import { seeded } from "../conformance/samples.ts";
import { findings, killedWriter, openStore, Said } from "../crash/store-rig.ts";
import { buildShim, diskAfter, type Logged, loggedWrites, withWrite } from "./storage-shim.ts";

const { values } = parseArgs({
  options: {
    cuts: { type: "string", default: "500" },
    seed: { type: "string", default: "1" },
    unsafe: { type: "boolean", default: false },
  },
});
const cuts = Number(values.cuts);
const random = seeded(Number(values.seed));
const disksPerRun = 5;
const sectorBytes = 512;

/** What is on the disk for certain, and what was written since the last sync. */
function replayed(
  before: Buffer,
  log: Buffer,
): { readonly disk: Buffer; readonly loose: Logged[] } {
  const writes = loggedWrites(log);
  const synced = writes.findLastIndex(({ type }) => type === "S");
  return {
    disk: diskAfter(before, writes, false),
    loose: writes.filter(({ type }, n) => type === "W" && n > synced),
  };
}

/** One of the disks that a power cut may leave. */
function cutDisk(disk: Buffer, loose: readonly Logged[]): Buffer {
  let left: Buffer = Buffer.from(disk);
  const share = random();
  for (const { at, bytes } of loose) {
    if (random() > share) continue;
    // The file was made longer: a write of no bytes at its new end.
    if (bytes.length === 0) left = withWrite(left, { at, bytes });
    for (let from = 0; from < bytes.length; from += sectorBytes) {
      const isTorn = random() < 0.1;
      if (!isTorn)
        left = withWrite(left, { at: at + from, bytes: bytes.subarray(from, from + sectorBytes) });
    }
  }
  return left;
}

const base = mkdtempSync(join(tmpdir(), "waypost-power-"));
const wrong: string[] = [];
const counts = { cuts: 0, loose: 0 };
try {
  const shim = buildShim(base);
  const [path, log] = [join(base, "store"), join(base, "log")];
  const said = new Said();
  mkdirSync(path);
  const data = join(path, "data.mdb");
  for (let round = 0; counts.cuts < cuts; round++) {
    const before = existsSync(data) ? readFileSync(data) : Buffer.alloc(0);
    rmSync(log, { force: true });
    const environment = { LD_PRELOAD: shim, WAYPOST_SHIM_LOG: log, WAYPOST_SHIM_SLOW: "10000" };
    await killedWriter(
      {
        path,
        seed: round,
        mode: values.unsafe ? "unsafe" : "safe",
        lifeMs: 50 + Math.random() * 400,
        environment,
      },
      said,
    );
    const { disk, loose } = replayed(before, readFileSync(log));
    for (let n = 0; n < disksPerRun && counts.cuts < cuts; n++) {
      writeFileSync(data, cutDisk(disk, loose));
      rmSync(join(path, "lock.mdb"), { force: true });
      const store = await openStore(path).catch((error: Error) => error.message);
      if (typeof store === "string") wrong.push(`cut ${counts.cuts}: ${store}`);
      else {
        wrong.push(
          ...(await findings(store, said)).map((finding) => `cut ${counts.cuts}: ${finding}`),
        );
        await store.close();
      }
      counts.cuts++;
      counts.loose += loose.length;
    }
    // The next writer goes on from one of them, and makes the file longer first.
    if (wrong.length === 0) truncateSync(data, checkDataFile(data) ?? 0);
    else copyFileSync(data, join(base, "wrong.mdb"));
    if (wrong.length > 20) break;
  }
  const { size } = said.of("did store");
  console.log(
    `${counts.cuts} power cuts, ${(counts.loose / counts.cuts).toFixed(1)} writes in flight each, ${size} stores`,
  );
  console.log(`lost, doubled or wrong: ${wrong.length}`);
  for (const finding of wrong.slice(0, 20)) console.log(`  ${finding}`);
} finally {
  rmSync(base, { recursive: true, force: true });
}
process.exit(wrong.length === 0 ? 0 : 1);
