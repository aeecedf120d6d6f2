/**
 * A clock that this process and nodes share and that goes where a campaign wants it. Needs Linux
 * and libfaketime (Debian's `faketime`), which stands between a node and its wall clock; the
 * monotonic clock is left alone.
 */
import { existsSync, renameSync, writeFileSync } from "node:fs";
import { join } from "node:path";

export const shiftLibrary = "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1";

export type ShiftedClock = {
  readonly offsetMs: () => number;
  readonly setOffset: (ms: number) => void;
  /** For a node's process. */
  readonly environment: Readonly<Record<string, string>>;
};

/** Ends the program with 2 where the library is missing. The file is in `folder`. */
export function shiftClock(folder: string, library = shiftLibrary): ShiftedClock {
  if (!existsSync(library)) {
    console.log(`${library} is missing: install faketime`);
    process.exit(2);
  }
  const file = join(folder, "offset");
  let offsetMs = 0;
  const realNow = Date.now;
  Date.now = () => realNow() + offsetMs;
  const setOffset = (ms: number): void => {
    offsetMs = Math.round(ms);
    const text = `${offsetMs < 0 ? "-" : "+"}${(Math.abs(offsetMs) / 1_000).toFixed(3)}\n`;
    // Replaced as a whole: the node reads it at every look at its clock.
    writeFileSync(`${file}.new`, text);
    renameSync(`${file}.new`, file);
  };
  setOffset(0);
  return {
    offsetMs: () => offsetMs,
    setOffset,
    environment: {
      LD_PRELOAD: library,
      FAKETIME_TIMESTAMP_FILE: file,
      FAKETIME_NO_CACHE: "1",
      FAKETIME_DONT_FAKE_MONOTONIC: "1",
      DONT_FAKE_MONOTONIC: "1",
    },
  };
}
