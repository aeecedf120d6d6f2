/** Temporary folders of a test file, removed after its tests. */
import { afterAll } from "bun:test";
import { mkdtempSync, rmSync, statfsSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

/** Answers a function that gives a path below a fresh folder each time: nothing is there yet. */
export function scratchPaths(name: string, parent = tmpdir()): () => string {
  const base = mkdtempSync(join(parent, `waypost-${name}-`));
  afterAll(() => rmSync(base, { recursive: true, force: true }));
  let made = 0;
  return () => join(base, String(made++));
}

const roomBytesMin = 2 * 1024 ** 3;

/**
 * A folder in memory where Linux has one with room, else the usual one. For stores whose laws are
 * tested and not what a disk keeps: thousands of syncs cost nothing there.
 */
export function folderInMemory(): string {
  try {
    const { bavail, bsize } = statfsSync("/dev/shm");
    return bavail * bsize >= roomBytesMin ? "/dev/shm" : tmpdir();
  } catch {
    return tmpdir();
  }
}
