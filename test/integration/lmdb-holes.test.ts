/** The LMDB driver where the file system sets no room aside: ext2, which has no `fallocate`. */
import { expect, test } from "bun:test";
import { mkdirSync, truncateSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { lmdbPlugin } from "../../src/plugins/lmdb/lmdb.ts";
import { openLmdb } from "../../src/plugins/lmdb/store.ts";
import { testEnvironment } from "../conformance/kit.ts";
import { optionsOf } from "../conformance/options.ts";
import { bytesOf, did, entry, id, quota } from "../conformance/samples.ts";
import { scratchPaths } from "../support/scratch.ts";

const mebibyte = 1024 * 1024;
const paths = scratchPaths("lmdb-holes");

/** An ext2 file system of 64 MiB, or `null` where this user can mount none. */
function mounted(): string | null {
  const folder = paths();
  const [image, path] = [join(folder, "image"), join(folder, "disk")];
  mkdirSync(path, { recursive: true });
  writeFileSync(image, "");
  truncateSync(image, 64 * mebibyte);
  if (process.platform !== "linux" || process.getuid?.() !== 0) return null;
  if (Bun.which("mkfs.ext2") === null) return null;
  const isMade = Bun.spawnSync(["mkfs.ext2", "-q", "-m", "0", image]).success;
  return isMade && Bun.spawnSync(["mount", "-o", "loop", image, path]).success ? path : null;
}

test("a disk that others fill, without fallocate, leaves what was set aside for reads and acknowledgements", async () => {
  const path = mounted();
  if (path === null) return;
  try {
    const sizes = { reserve_bytes: 8 * mebibyte, free_space_floor_bytes: mebibyte };
    const options = optionsOf(lmdbPlugin, { path: join(path, "store"), ...sizes });
    const environment = testEnvironment();
    let store = await openLmdb(options, environment);
    const put = (n: number) =>
      store.capabilities.mailbox!.store(
        entry(n, { recipient: did(1), envelope: bytesOf(n, 3_000) }),
        quota(),
      );
    const numbers = Array.from({ length: 2_000 }, (_, n) => n);
    await Promise.all(numbers.map(put));
    expect(() => writeFileSync(join(path, "ballast"), new Uint8Array(64 * mebibyte))).toThrow();
    for (let n = 0; n < 500; n++) {
      expect(await store.capabilities.replay!.claim(`${n}`, 600_000, 1_000)).toBe(true);
      const removed = await store.capabilities.mailbox!.remove(did(1), [id(n)], 2_000);
      expect(removed.length).toBe(1);
    }
    while ((await store.capabilities.mailbox!.expire(2_000, 256)) > 0);
    await store.close();
    store = await openLmdb(options, environment);
    expect(await store.capabilities.replay!.claim("0", 600_000, 1_000)).toBe(false);
    await store.close();
    expect(environment.fatals).toEqual([]);
  } finally {
    Bun.spawnSync(["umount", "-l", path]);
  }
}, 60_000);
