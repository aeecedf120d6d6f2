/**
 * Measures the hot paths once, in a process of its own: prints a JSON list of results.
 * `bench/run.ts` takes the median of several processes, because the runtime does not compile the
 * same code alike in each. Usage:
 * `bun bench/turns.ts short|whole [text in the names of the paths]`.
 */
import { type Contender, type HotPath, hotPaths } from "./hotpath.ts";

export type Reference = {
  readonly name: string;
  readonly nsPerRun: number;
  readonly ratio: number;
};
export type Result = {
  readonly name: string;
  readonly bytes: number;
  readonly ours: { readonly name: string; readonly nsPerRun: number };
  readonly references: readonly Reference[];
};

/** Processor time of one turn, in microseconds. */
const turnMicros = 1_000;
type Effort = {
  readonly turns: number;
  /** A contender is warm when it has not become faster for so many windows of so long. */
  readonly warmMicros: number;
  readonly warmWindows: number;
};
/** Of three processes each, the short medians were within 7 % of the whole ones. */
const efforts: Readonly<Record<"whole" | "short", Effort>> = {
  whole: { turns: 301, warmMicros: 30_000, warmWindows: 3 },
  short: { turns: 101, warmMicros: 15_000, warmWindows: 2 },
};
const warmWindowsMax = 20;

/**
 * Processor time of so many runs, in microseconds. That of a single thread is known to some
 * milliseconds only.
 */
function microsOf(run: () => unknown, runs: number): number {
  const before = process.cpuUsage();
  for (let i = 0; i < runs; i++) run();
  const { user, system } = process.cpuUsage(before);
  return user + system;
}

/** Warms a contender, and finds how many runs fill a turn. */
function runsOfTurn({ run }: Contender, effort: Effort): number {
  let [runs, best, since] = [1, Number.POSITIVE_INFINITY, 0];
  for (let window = 0; window < warmWindowsMax && since < effort.warmWindows; ) {
    const micros = microsOf(run, runs);
    if (micros < effort.warmMicros) {
      runs *= 2;
      continue;
    }
    since = micros / runs < best * 0.95 ? 0 : since + 1;
    best = Math.min(best, micros / runs);
    window++;
  }
  return Math.max(1, Math.round(turnMicros / best));
}

/**
 * Nanoseconds of a run in each turn, for each contender. They take turns of a millisecond, so that
 * whatever else the machine does hits all of them.
 */
function inTurns(contenders: readonly Contender[], effort: Effort): number[][] {
  const runs = contenders.map((one) => runsOfTurn(one, effort));
  const times: number[][] = contenders.map(() => []);
  for (let turn = 0; turn < effort.turns; turn++) {
    for (const [i, { run }] of contenders.entries())
      times[i]!.push((microsOf(run, runs[i]!) * 1e3) / runs[i]!);
  }
  return times;
}

export function median(values: readonly number[]): number {
  return values.toSorted((a, b) => a - b)[values.length >> 1]!;
}

/** A ratio is the median of those of all turns: a turn is long when the collector ran within it. */
function measurePath(path: HotPath, effort: Effort): Result {
  const [ours, ...others] = inTurns([path.ours, ...path.references], effort);
  const references = path.references.map(({ name }, i) => {
    const ratios = others[i]!.map((ns, turn) => ns / ours![turn]!);
    return { name, nsPerRun: median(others[i]!), ratio: median(ratios) };
  });
  return {
    name: path.name,
    bytes: path.bytes,
    ours: { name: path.ours.name, nsPerRun: median(ours!) },
    references,
  };
}

if (import.meta.main) {
  const [how = "short", only = ""] = process.argv.slice(2);
  const effort = how === "whole" ? efforts.whole : efforts.short;
  const paths = hotPaths().filter(({ name }) => name.includes(only));
  console.log(JSON.stringify(paths.map((path) => measurePath(path, effort))));
}
