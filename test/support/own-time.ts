/**
 * Times on a busy machine: without those in which this thread was ready to work and others had the
 * processors. For bounds on what a function or the nodes in this process cost; Linux says it,
 * elsewhere it is the time that passed.
 * Source: Documentation/scheduler/sched-stats.rst, the second number in nanoseconds.
 */
import { readFileSync } from "node:fs";

function waitedMs(): number {
  try {
    return Number(readFileSync("/proc/thread-self/schedstat", "utf8").split(" ")[1]) / 1e6;
  } catch {
    return 0;
  }
}

/** Answers a function that gives the milliseconds from now on. */
export function startOwnTime(): () => number {
  const [begunMs, waitedBeforeMs] = [performance.now(), waitedMs()];
  return () => performance.now() - begunMs - (waitedMs() - waitedBeforeMs);
}
