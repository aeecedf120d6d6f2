/**
 * `waypost storage compact` on the executable, as root and in a store of another user: what an
 * interrupted one left does not stop the next, the service can open its store afterwards, and a
 * linked data file is refused. Only root can mount a small disk and be another user, so others skip
 * this.
 */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import {
  chmodSync,
  chownSync,
  existsSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { lmdbPlugin } from "../../src/plugins/lmdb/lmdb.ts";
import { openLmdb } from "../../src/plugins/lmdb/store.ts";
import { testEnvironment } from "../conformance/kit.ts";
import { optionsOf } from "../conformance/options.ts";
import { executable, run, scratchFolder } from "../support/executable.ts";

const mebibyte = 1024 ** 2;
const folder = scratchFolder();
const disk = join(folder.path, "disk");
const path = join(disk, "data");
const data = join(path, "data.mdb");
const config = join(folder.path, "waypost.toml");
const [service, serviceGroup] = [64_020, 64_021];

/** Containers may not mount. */
function mounts(): boolean {
  if (process.platform !== "linux" || process.getuid?.() !== 0) return false;
  mkdirSync(disk);
  return Bun.spawnSync(["mount", "-t", "tmpfs", "-o", "size=60m", "tmpfs", disk]).exitCode === 0;
}
const isMounted = mounts();
afterAll(() => {
  if (isMounted) Bun.spawnSync(["umount", "-l", disk]);
  folder.remove();
});

const open = () =>
  openLmdb(
    optionsOf(lmdbPlugin, {
      path,
      reserve_bytes: 8 * mebibyte,
      free_space_floor_bytes: mebibyte,
    }),
    testEnvironment(),
  );
const compact = () => run(["storage", "compact", "--config", config], { cwd: folder.path });

function leaveUnfinished(): void {
  writeFileSync(`${data}.partial`, new Uint8Array(40 * mebibyte));
  mkdirSync(join(path, "copy"));
  writeFileSync(join(path, "copy", "data.mdb"), "half");
}
const unfinished = () => readdirSync(path).filter((name) => /partial|^copy$/.test(name));

describe.skipIf(!isMounted)("compact", () => {
  beforeAll(async () => {
    await executable();
    await (await open()).close();
    writeFileSync(
      config,
      `[server]
listen = ["127.0.0.1:1"]
[directory]
enabled = true
[stores.main]
plugin = "lmdb"
path = "${path}"
`,
    );
  }, 60_000);

  test("finds the room that an interrupted one had taken, and so does the start of a node", async () => {
    leaveUnfinished();
    const { code, stderr } = await compact();
    expect([code, stderr]).toEqual([0, ""]);
    expect(unfinished()).toEqual([]);
    leaveUnfinished();
    await (await open()).close();
    expect(unfinished()).toEqual([]);
  }, 60_000);

  test("keeps owner, group and mode, and leaves no file of root, whoever ran what before", async () => {
    for (const name of [".", "data.mdb"]) chownSync(join(path, name), service, serviceGroup);
    chmodSync(data, 0o640);
    for (const name of ["owner.lock", "lock.mdb"]) rmSync(join(path, name), { force: true });
    const verified = await run(["storage", "verify", "--config", config], { cwd: folder.path });
    expect(verified.code).toBe(0);
    const ofOthers = () =>
      readdirSync(path).filter((name) => {
        const { uid, gid } = statSync(join(path, name));
        return uid !== service || gid !== serviceGroup;
      });
    expect(ofOthers()).toEqual([]);
    expect((await compact()).code).toBe(0);
    expect(ofOthers()).toEqual([]);
    expect(existsSync(join(path, "owner.lock"))).toBe(true);
    expect((statSync(data).mode & 0o777).toString(8)).toBe("640");
  }, 60_000);

  test("does not put a file in the place of a link", async () => {
    const target = join(disk, "elsewhere.mdb");
    renameSync(data, target);
    symlinkSync(target, data);
    const { code, stdout, stderr } = await compact();
    expect([code, stdout + stderr]).toEqual([1, expect.stringContaining("data.mdb is a link")]);
    expect(lstatSync(data).isSymbolicLink()).toBe(true);
  }, 60_000);
});
