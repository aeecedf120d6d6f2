/**
 * `bun run release --key`: a key that no program would accept is refused before anything is built.
 */
import { afterAll, expect, test } from "bun:test";
import { join } from "node:path";
import { scratchFolder } from "../support/executable.ts";

const folder = scratchFolder();
afterAll(folder.remove);

test.skipIf(Bun.which("minisign") === null)("a key that is not listed is refused at once", () => {
  const [secret, pub] = [join(folder.path, "release.key"), join(folder.path, "release.pub")];
  const made = Bun.spawnSync(["minisign", "-G", "-W", "-s", secret, "-p", pub]);
  expect(made.exitCode).toBe(0);
  const root = join(import.meta.dir, "../..");
  const words = [process.execPath, "release.ts", "--platforms", "own", "--fast", "--key", secret];
  const { exitCode, stdout, stderr } = Bun.spawnSync(words, { cwd: root });
  expect([exitCode, stdout.toString(), stderr.toString()]).toEqual([
    1,
    "",
    expect.stringContaining("release-keys.txt does not list this key"),
  ]);
});
