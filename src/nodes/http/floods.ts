/**
 * Requests that a rate or the capacity refuses: the cheapest to make, so they must not fill
 * the log. Of each minute the first are logged, and then one of a hundred. Once a minute, a
 * `warn` names the client network that was refused most.
 */
import { minuteMs, secondMs } from "../../core/codec/time.ts";
import { BoundedMap } from "../../core/std/bounded.ts";
import type { Log } from "./log.ts";

/** Logged one by one, of each minute. */
const firstMax = 50;
/** After those, one of so many is logged. */
const loggedOneOf = 100;
/** Fewer in a minute are clients that slow down, not a flood. */
const floodMin = 100;
/** A flood is reported so soon after its first refusal. */
const soonMs = 5 * secondMs;
const networksMax = 1_000;

export type Floods = {
  /**
   * Counts a refusal for a client network, and answers how it is logged: `1` as itself,
   * `100` for so many, `0` not.
   */
  readonly refused: (network: string) => number;
};

type FloodParts = {
  readonly log: Log;
  readonly now: () => number;
  /** Runs something once, after a while. */
  readonly later?: (run: () => void, afterMs: number) => void;
};

const laterUnref = (run: () => void, afterMs: number): void => {
  setTimeout(run, afterMs).unref();
};

export function watchFloods({ log, now, later = laterUnref }: FloodParts): Floods {
  /** Refusals since the last report, by network. */
  let counts = new BoundedMap<string, number>(networksMax);
  let [sinceMs, total, reportedMs] = [0, 0, Number.NEGATIVE_INFINITY];
  let [minute, ofMinute] = [0, 0];
  const report = () => {
    const [network, times] = [...counts].reduce((a, b) => (b[1] > a[1] ? b : a));
    const seconds = Math.ceil((now() - sinceMs) / secondMs);
    const fields = { network, times, all: total, networks: counts.size, seconds };
    if (total >= floodMin) {
      log("warn", "requests are refused by their rate: a client network asks too often", fields);
      reportedMs = now();
    }
    [counts, total] = [new BoundedMap<string, number>(networksMax), 0];
  };
  return {
    refused: (network) => {
      if (total === 0) {
        sinceMs = now();
        const waitMs = Math.max(soonMs, reportedMs + minuteMs - sinceMs);
        later(report, waitMs);
      }
      total += 1;
      counts.set(network, (counts.get(network) ?? 0) + 1);
      const current = Math.floor(now() / minuteMs);
      if (current !== minute) [minute, ofMinute] = [current, 0];
      ofMinute += 1;
      if (ofMinute <= firstMax) return 1;
      return ofMinute % loggedOneOf === 0 ? loggedOneOf : 0;
    },
  };
}
