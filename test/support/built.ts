/** What several workers of one run need is built by one of them; the others wait for it. */
import { existsSync, mkdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { Glob } from "bun";

export const repository = join(import.meta.dir, "..", "..");
export const cacheFolder = join(repository, "node_modules", ".cache");

/** Builds under a lock of this name, unless what is there is current. */
export async function builtOnce(
  name: string,
  isCurrent: () => boolean,
  build: () => Promise<unknown>,
): Promise<void> {
  if (!isCurrent()) await underLock(name, async () => isCurrent() || (await build()));
}

/** Of all processes that work in this checkout one at a time. */
export async function underLock<T>(name: string, work: () => Promise<T>): Promise<T> {
  const lock = join(cacheFolder, `${name}.lock`);
  mkdirSync(dirname(lock), { recursive: true });
  while (isTaken(lock)) await Bun.sleep(100);
  try {
    return await work();
  } finally {
    rmSync(lock);
  }
}

/** Whether a process that lives holds the lock; otherwise it is this one's from now on. */
function isTaken(lock: string): boolean {
  try {
    writeFileSync(lock, String(process.pid), { flag: "wx" });
    return false;
  } catch {
    const holder = existsSync(lock) ? readFileSync(lock, "utf8") : "";
    const isAlive = holder === "" || existsSync(`/proc/${holder}`);
    if (!isAlive) rmSync(lock, { force: true });
    return true;
  }
}

/** Whether a file is newer than all files that the patterns name in the repository. */
export function isNewer(path: string, patterns: readonly string[]): boolean {
  const builtMs = statSync(path, { throwIfNoEntry: false })?.mtimeMs ?? 0;
  const parts = patterns.flatMap((one) => [...new Glob(one).scanSync({ cwd: repository })]);
  return parts.every((part) => statSync(join(repository, part)).mtimeMs < builtMs);
}
