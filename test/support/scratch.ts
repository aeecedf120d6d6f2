/** Folders of a test file's own, removed when its tests are over. */
import { afterAll } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

/** Answers a function that gives a path below a fresh folder each time: nothing is there yet. */
export function scratchPaths(name: string): () => string {
  const base = mkdtempSync(join(tmpdir(), `waypost-${name}-`));
  afterAll(() => rmSync(base, { recursive: true, force: true }));
  let made = 0;
  return () => join(base, String(made++));
}
