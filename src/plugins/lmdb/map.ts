/**
 * Gives back the memory of the library's map of the data file. What is read stays mapped, and counts as this process's
 * memory although the system can drop it: a container of 256 MiB would be charged for the whole file. The pages stay in
 * the system's cache, so that to read them again costs a fault of about a microsecond and no disk.
 */
import { readFileSync, realpathSync } from "node:fs";
import { secondMs } from "../../core/codec/time.ts";
import { type SystemCalls, systemCalls } from "./system.ts";

const dontNeed = 4;
const pageBytes = 4_096;
const mappedBytesMax = 16 * 1024 * 1024;

/** Once a second, while more than 16 MiB of files were mapped since the start. Returns how it ends. */
export function releaseMapOf(file: string): () => void {
  const system = systemCalls;
  if (system === null) return () => {};
  const path = realpathSync(file);
  const first = mappedBytes() ?? 0;
  const timer = setInterval(() => {
    if ((mappedBytes() ?? 0) - first > mappedBytesMax) release(path, system);
  }, secondMs);
  timer.unref();
  return () => clearInterval(timer);
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
