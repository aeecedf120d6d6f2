/**
 * What the benchmarks answer: one JSON object with the machine, the commit and the ratios, and
 * whether a ratio has fallen. A ratio is our speed divided by that of the reference, in the same
 * run: more is better, and it carries over between machines, about. It has fallen when it is more
 * than a tenth below the one in `baseline.json` (of the hot paths, on the kind of processor that it
 * was measured on), or a quarter.
 */
import { spawnSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { availableParallelism, cpus, totalmem } from "node:os";

export type Ratios = Readonly<Record<string, number>>;

/** What of the baseline a ratio must keep. */
export const keptShares = { same: 0.9, other: 0.75 };

/**
 * A sentence for each ratio that has fallen, that has no baseline, or that should have been
 * measured.
 */
export function findFallen(measured: Ratios, baseline: Ratios, keptShare: number): string[] {
  const unknown = Object.keys(measured).filter((name) => baseline[name] === undefined);
  const fallen = Object.entries(baseline).flatMap(([name, before]) => {
    const now = measured[name];
    if (now === undefined) return [`${name}: not measured`];
    return now < keptShare * before
      ? [`${name}: ${round(now)}, and the baseline is ${round(before)}`]
      : [];
  });
  return [...unknown.map((name) => `${name}: no baseline`), ...fallen];
}

/** Three significant digits. */
export function round(ratio: number): number {
  return Number(ratio.toPrecision(3));
}

type Part = "hotPaths" | "http";
/** `processor`: on which the hot paths were measured. */
type Baseline = { readonly processor: string } & Readonly<Partial<Record<Part, Ratios>>>;

export type ReportOptions = {
  /** The part of `baseline.json` that this benchmark is compared with. */
  readonly part: Part;
  readonly ratios: Ratios;
  /** All that was measured. */
  readonly results: unknown;
  readonly json: boolean;
  /** A file for the report. */
  readonly out?: string | undefined;
  /** Another baseline. */
  readonly baseline?: string | undefined;
  /** Names of what was measured, when only some was: nothing else is missed. */
  readonly only?: ((name: string) => boolean) | undefined;
};

/** Prints or writes the report; answers the exit code. */
export function report(options: ReportOptions): number {
  const { part, ratios, results, only = () => true } = options;
  const file = options.baseline ?? new URL("baseline.json", import.meta.url);
  const { processor, ...parts } = JSON.parse(readFileSync(file, "utf8")) as Baseline;
  const isStable = part === "hotPaths" && processor === machine().processor;
  const keptShare = isStable ? keptShares.same : keptShares.other;
  const baseline = Object.fromEntries(
    Object.entries(parts[part] ?? {}).filter(([name]) => only(name)),
  );
  const fallen = findFallen(ratios, baseline, keptShare);
  const rounded = Object.fromEntries(
    Object.entries(ratios).map(([name, ratio]) => [name, round(ratio)]),
  );
  const whole = {
    part,
    bun: Bun.version,
    machine: machine(),
    commit: commit(),
    ratios: rounded,
    fallen,
    results,
  };
  const text = JSON.stringify(whole, null, 2);
  if (options.out !== undefined) writeFileSync(options.out, `${text}\n`);
  if (options.json) console.log(text);
  for (const line of fallen) console.error(`FALLEN ${line}`);
  if (fallen.length === 0)
    console.error(`No ratio is more than ${round(100 - 100 * keptShare)} % below its baseline.`);
  return fallen.length === 0 ? 0 : 1;
}

/** A file with the machine and the commit beside what was measured. */
export function writeReport(file: string, results: unknown): void {
  const whole = { bun: Bun.version, machine: machine(), commit: commit(), results };
  writeFileSync(file, `${JSON.stringify(whole, null, 2)}\n`);
}

function machine() {
  const [first] = cpus();
  return {
    system: `${process.platform} ${process.arch}`,
    processor: first?.model ?? "",
    cores: availableParallelism(),
    gibibytes: Math.round(totalmem() / 2 ** 30),
  };
}

/** The commit that was measured; `null` outside a checkout. A changed work tree is marked. */
function commit(): string | null {
  const git = (...args: string[]) =>
    spawnSync("git", args, { cwd: import.meta.dir, encoding: "utf8" });
  const head = git("rev-parse", "HEAD");
  if (head.status !== 0) return null;
  return `${head.stdout.trim()}${git("status", "--porcelain").stdout === "" ? "" : " (changed)"}`;
}
