/**
 * Gives back the memory of the library's map of the data file. What is read stays mapped, and
 * counts as this process's memory although the system can drop it: a container of 256 MiB would be
 * charged for the whole file. The pages stay in the system's cache, so that to read them again
 * costs a fault of about a microsecond and no disk.
 */
import { readFileSync, realpathSync } from "node:fs";
import { type SystemCalls, systemCalls } from "./system.ts";

const dontNeed = 4;
const pageBytes = 4_096;
const mappedBytesMax = 16 * 1024 * 1024;

/** Between two looks, of 20 µs each, pass at most so long of commits, */
const betweenLooksMs = 20;
/** or so much that reads may have mapped: the system maps 64 KiB around a page that is read. */
const betweenLooksBytes = 8 * 1024 * 1024;
const aroundBytes = 64 * 1024;

export type ReleasedMap = {
  /** With the length of each record that is read. */
  readonly read: (bytes: number) => void;
  /** After each commit, which maps what it changes in the library's thread. */
  readonly committed: () => void;
};

/**
 * Releases the map of a file when more than 16 MiB of files are mapped beyond those of the
 * start.
 */
export function releaseMapOf(file: string): ReleasedMap {
  const system = systemCalls;
  if (system === null) return { read: () => {}, committed: () => {} };
  const path = realpathSync(file);
  const first = mappedBytes() ?? 0;
  let dueMs = 0;
  let readBytes = 0;
  const look = (): void => {
    dueMs = performance.now() + betweenLooksMs;
    readBytes = 0;
    if ((mappedBytes() ?? 0) - first > mappedBytesMax) release(path, system);
  };
  const read = (bytes: number): void => {
    readBytes += aroundBytes + bytes;
    if (readBytes >= betweenLooksBytes) look();
  };
  const committed = (): void => {
    if (performance.now() >= dueMs) look();
  };
  return { read, committed };
}

function release(path: string, system: SystemCalls): void {
  for (const line of readTextOrNull("/proc/self/maps")?.split("\n") ?? []) {
    const [range = "", mode] = line.split(" ");
    if (mode !== "r--s" || !line.endsWith(` ${path}`)) continue;
    const [from = 0, to = 0] = range.split("-").map((hex) => Number.parseInt(hex, 16));
    system.madvise(from, to - from, dontNeed);
  }
}

/** What of mapped files is in the memory of this process. */
function mappedBytes(): number | null {
  const text = readTextOrNull("/proc/self/statm");
  return text === null ? null : Number(text.split(" ")[2]) * pageBytes;
}

/** `null` while descriptors are used up. */
function readTextOrNull(path: string): string | null {
  try {
    return readFileSync(path, "latin1");
  } catch {
    return null;
  }
}
