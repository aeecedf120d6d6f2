/** Small files that are replaced on a disk without room: the head of a log that was signed last. */
import { describe, expect, test } from "bun:test";
import { mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { writeDurably, writeInTurn } from "../../src/app/files.ts";
import { openKeys } from "../../src/app/keys.ts";
import { renderSignerKey } from "../../src/core/trust/note.ts";
import { testKey } from "../support/logs.ts";
import { scratchPaths } from "../support/scratch.ts";
import { settings } from "../support/settings.ts";

const paths = scratchPaths("full-disk");
/** A file system of 64 KiB, or `null` where this user may mount none. */
function smallDisk(): string | null {
  const path = paths();
  mkdirSync(path);
  const mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", path];
  if (process.platform !== "linux" || !Bun.spawnSync(mount).success) return null;
  return path;
}

const textOf = (n: number) => `head ${n} ${"x".repeat(n * 17)}`;

describe("a file that is written in turn", () => {
  test("as the signed head of a log is replaced on a full disk, where one that is written anew is not", async () => {
    const folder = smallDisk();
    if (folder === null) return;
    try {
      const file = join(folder, "log.key.head");
      const { key, seed } = testKey("north.example", "log");
      const keyFile = join(folder, "log.key");
      writeFileSync(keyFile, renderSignerKey(key, seed));
      const directory = { enabled: true, log_key_file: keyFile };
      const { logKey } = await openKeys(settings({ directory }), () => {});
      for (const n of [1, 2]) await logKey!.writeSigned(textOf(n));
      expect(() => writeFileSync(join(folder, "ballast"), new Uint8Array(2 ** 20))).toThrow();
      await expect(writeDurably(join(folder, "other"), "x")).rejects.toThrow("ENOSPC");
      for (const n of [9, 3, 200]) {
        await logKey!.writeSigned(textOf(n));
        expect(await logKey!.readSigned()).toBe(readFileSync(file, "utf8"));
        expect(readFileSync(file, "utf8")).toBe(textOf(n));
      }
    } finally {
      Bun.spawnSync(["umount", "-l", folder]);
    }
  });

  test("is the former or the new one after a crash at any step, and is written again", async () => {
    const folder = paths();
    const file = join(folder, "head");
    for (const n of [1, 2, 3]) await writeInTurn(file, textOf(n));
    expect(readdirSync(folder).sort()).toEqual(["head", "head.spare"]);
    // Between the two exchanges of names.
    renameSync(`${file}.spare`, `${file}.former`);
    await writeInTurn(file, textOf(4));
    expect(readFileSync(file, "utf8")).toBe(textOf(4));
    // Before them, with a name that was left.
    writeFileSync(`${file}.former`, "left");
    await writeInTurn(file, textOf(5));
    rmSync(`${file}.spare`);
    await writeInTurn(file, textOf(6));
    expect(readFileSync(file, "utf8")).toBe(textOf(6));
    expect(readdirSync(folder).sort()).toEqual(["head", "head.spare"]);
  });
});
