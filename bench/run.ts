/**
 * Measures the hot paths and compares their ratios with `baseline.json`. Exit code 1 when a ratio is
 * above its limit. `--json` prints one JSON object, `--short` takes a tenth of the time, for CI.
 * How to read the numbers: `bench/README.md`.
 */
import { readFileSync } from "node:fs";
import { measure } from "mitata";
import { type Contender, type HotPath, hotPaths } from "./hotpath.ts";

type Limits = Readonly<Record<string, Readonly<Record<string, number>>>>;
type Reference = { name: string; nsPerRun: number; ratio: number; limit: number | null; within: boolean };
type Result = { name: string; bytes: number; ours: { name: string; nsPerRun: number }; references: Reference[] };

const json = process.argv.includes("--json");
const short = process.argv.includes("--short");
/** CPU time of one sample series. Series of a pair alternate, so that a noisy moment hits both. */
const seriesNs = short ? 4e7 : 4e8;
const rounds = 3;

const limits: Limits = JSON.parse(readFileSync(new URL("baseline.json", import.meta.url), "utf8")).limits;

/** The median of the quietest of the rounds, in nanoseconds, for each contender. */
async function quietest(contenders: readonly Contender[]): Promise<number[]> {
  const best = contenders.map(() => Number.POSITIVE_INFINITY);
  for (let round = 0; round < rounds; round++) {
    for (const [i, contender] of contenders.entries()) {
      const stats = await measure(contender.run, { min_cpu_time: seriesNs, inner_gc: false });
      best[i] = Math.min(best[i] as number, stats.p50);
    }
  }
  return best;
}

async function measurePath(path: HotPath): Promise<Result> {
  const [ours, ...others] = await quietest([path.ours, ...path.references]);
  const oursNs = ours as number;
  const references = path.references.map((reference, i) => {
    const nsPerRun = others[i] as number;
    const ratio = oursNs / nsPerRun;
    const limit = limits[path.name]?.[reference.name] ?? null;
    return { name: reference.name, nsPerRun, ratio, limit, within: limit !== null && ratio <= limit };
  });
  return { name: path.name, bytes: path.bytes, ours: { name: path.ours.name, nsPerRun: oursNs }, references };
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
  for (const reference of result.references) {
    const verdict = reference.within ? "within" : "ABOVE";
    const share = `ours / this = ${reference.ratio.toFixed(3)}, ${verdict} the limit ${reference.limit ?? "(none set)"}`;
    console.log(`  ${reference.name.padEnd(24)} ${renderNs(reference.nsPerRun).padStart(10)}  ${share}`);
  }
}

const results: Result[] = [];
for (const path of hotPaths()) {
  const result = await measurePath(path);
  results.push(result);
  if (!json) print(result);
}
const within = results.every((result) => result.references.every((reference) => reference.within));
if (json) console.log(JSON.stringify({ bun: Bun.version, arch: process.arch, short, within, results }, null, 2));
else console.log(within ? "\nEvery ratio is within its limit." : "\nA ratio is above its limit.");
process.exit(within ? 0 : 1);
