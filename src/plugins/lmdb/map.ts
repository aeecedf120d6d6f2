/**
 * Gives back the memory of the library's map of the data file. What is read stays mapped, and
 * counts as this process's memory although the system can drop it: a container of 256 MiB would be
 * charged for the whole file. The pages stay in the system's cache, so that to read them again
 * costs a fault of about a microsecond and no disk.
 */
import { readFileSync, realpathSync } from "node:fs";
import { secondMs } from "../../core/codec/time.ts";
import { type SystemCalls, systemCalls } from "./system.ts";

const dontNeed = 4;
const pageBytes = 4_096;
const mappedBytesMax = 16 * 1024 * 1024;

/** Between two looks, of 20 µs each. A busy store maps 6 MiB meanwhile, in pieces of 64 KiB. */
const betweenLooksMs = 20;

export type ReleasedMap = {
  /** While the store is used: each commit calls it. */
  readonly used: () => void;
  readonly end: () => void;
};

/**
 * Releases the map of a file when more than 16 MiB of files are mapped beyond those of the
 * start. It looks once a second, for what only reads, and with commits more often.
 */
export function releaseMapOf(file: string): ReleasedMap {
  const system = systemCalls;
  if (system === null) return { used: () => {}, end: () => {} };
  const path = realpathSync(file);
  const first = mappedBytes() ?? 0;
  let dueMs = 0;
  const look = (): void => {
    dueMs = performance.now() + betweenLooksMs;
    if ((mappedBytes() ?? 0) - first > mappedBytesMax) release(path, system);
  };
  const timer = setInterval(look, secondMs);
  timer.unref();
  const used = (): void => {
    if (performance.now() >= dueMs) look();
  };
  return { used, end: () => clearInterval(timer) };
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
