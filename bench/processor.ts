/** Processor time of another process. */
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";

/**
 * User and system time of all threads of a process; 0 where there is no /proc. Ended threads are
 * left out.
 */
export function cpuSeconds(pid: number): number {
  const folder = `/proc/${pid}/task`;
  if (!existsSync(folder)) return 0;
  const nanosOf = (thread: string): number => {
    try {
      return Number(readFileSync(join(folder, thread, "schedstat"), "utf8").split(" ")[0]);
    } catch {
      return 0;
    }
  };
  return readdirSync(folder).reduce((sum, thread) => sum + nanosOf(thread), 0) / 1e9;
}
