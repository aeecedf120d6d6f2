/**
 * Measures the hot paths, each beside its references, and compares the ratios with `baseline.json`: exit code 1 when
 * one has fallen. `--json` prints the report, `--out <file>` writes it, `--short` takes a tenth of the time, for CI;
 * `--only <text>` measures the paths whose names hold the text, `--baseline <file>` compares with another file.
 * How to read the numbers: `bench/README.md`.
 */
import { parseArgs } from "node:util";
import { measure } from "mitata";
import { type Contender, type HotPath, hotPaths } from "./hotpath.ts";
import { report, round } from "./report.ts";

type Reference = { readonly name: string; readonly nsPerRun: number; readonly ratio: number };
type Result = {
  readonly name: string;
  readonly bytes: number;
  readonly ours: { readonly name: string; readonly nsPerRun: number };
  readonly references: readonly Reference[];
};

const { values: flags } = parseArgs({
  options: {
    json: { type: "boolean", default: false },
    short: { type: "boolean", default: false },
    out: { type: "string" },
    only: { type: "string", default: "" },
    baseline: { type: "string" },
  },
});
/** CPU time of one sample series. Series of a pair alternate, so that a noisy moment hits both. */
const seriesNs = flags.short ? 4e7 : 4e8;
const rounds = 3;

/**
 * The fastest sample of all rounds, in nanoseconds, for each contender. A median of megabyte texts shows how often
 * the collector ran between two samples: it moved by a factor of four from run to run.
 */
async function fastest(contenders: readonly Contender[]): Promise<number[]> {
  const best = contenders.map(() => Number.POSITIVE_INFINITY);
  for (let round = 0; round < rounds; round++) {
    for (const [i, contender] of contenders.entries()) {
      const stats = await measure(contender.run, { min_cpu_time: seriesNs, inner_gc: false });
      best[i] = Math.min(best[i] as number, stats.min);
    }
  }
  return best;
}

async function measurePath(path: HotPath): Promise<Result> {
  const [ours, ...others] = await fastest([path.ours, ...path.references]);
  const oursNs = ours as number;
  const references = path.references.map((reference, i) => {
    const nsPerRun = others[i] as number;
    return { name: reference.name, nsPerRun, ratio: nsPerRun / oursNs };
  });
  return {
    name: path.name,
    bytes: path.bytes,
    ours: { name: path.ours.name, nsPerRun: oursNs },
    references,
  };
}

function renderNs(ns: number): string {
  if (ns < 1e3) return `${ns.toFixed(0)} ns`;
  return ns < 1e6 ? `${(ns / 1e3).toFixed(2)} µs` : `${(ns / 1e6).toFixed(2)} ms`;
}

function print(result: Result): void {
  const rate = (result.bytes / result.ours.nsPerRun) * 1e3;
  console.log(`\n${result.name} (${result.bytes} bytes)`);
  console.log(
    `  ${result.ours.name.padEnd(24)} ${renderNs(result.ours.nsPerRun).padStart(10)}  ${rate.toFixed(0)} MB/s`,
  );
  for (const { name, nsPerRun, ratio } of result.references) {
    console.log(
      `  ${name.padEnd(24)} ${renderNs(nsPerRun).padStart(10)}  ours is ${round(ratio)} times as fast`,
    );
  }
}

const results: Result[] = [];
for (const path of hotPaths().filter(({ name }) => name.includes(flags.only))) {
  const result = await measurePath(path);
  results.push(result);
  if (!flags.json) print(result);
}
const ratios = Object.fromEntries(
  results.flatMap(({ name, references }) =>
    references.map((one) => [`${name} / ${one.name}`, one.ratio]),
  ),
);
const { json, out, baseline } = flags;
process.exit(
  report({
    part: "hotPaths",
    ratios,
    results,
    json,
    out,
    baseline,
    only: (name) => name.includes(flags.only),
  }),
);
