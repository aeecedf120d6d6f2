/**
 * Measures the hot paths, each beside its references, and compares the ratios with `baseline.json`:
 * exit code 1 when one has fallen. `--json` prints the report, `--out <file>` writes it, `--short`
 * takes a fifth of the time, for CI; `--only <text>` measures the paths whose names hold the text,
 * `--baseline <file>` compares with another file. How to read the numbers: `bench/README.md`.
 */
import { join } from "node:path";
import { parseArgs } from "node:util";
import { report, round } from "./report.ts";
import { median, type Result } from "./turns.ts";

const { values: flags } = parseArgs({
  options: {
    json: { type: "boolean", default: false },
    short: { type: "boolean", default: false },
    out: { type: "string" },
    only: { type: "string", default: "" },
    baseline: { type: "string" },
  },
});
const processes = flags.short ? 3 : 5;
const how = flags.short ? "short" : "whole";

async function measureOnce(): Promise<Result[]> {
  const args = [join(import.meta.dir, "turns.ts"), how, flags.only];
  const child = Bun.spawn([process.execPath, ...args], { stdout: "pipe", stderr: "inherit" });
  const results = (await new Response(child.stdout).json()) as Result[];
  if ((await child.exited) !== 0) throw new Error("bench/turns.ts failed");
  return results;
}

/** Each ratio is the median of those of all processes. */
function medianOf(all: readonly Result[][]): Result[] {
  return all[0]!.map((first, path) => {
    const times = all.map((results) => results[path]!);
    const ours = { ...first.ours, nsPerRun: median(times.map((one) => one.ours.nsPerRun)) };
    const references = first.references.map(({ name }, i) => {
      const found = times.map((one) => one.references[i]!);
      const ratio = median(found.map((one) => one.ratio));
      return { name, nsPerRun: median(found.map((one) => one.nsPerRun)), ratio };
    });
    return { ...first, ours, references };
  });
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

const measured: Result[][] = [];
while (measured.length < processes) measured.push(await measureOnce());
const results = medianOf(measured);
if (!flags.json) results.forEach(print);
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
