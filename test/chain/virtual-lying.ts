/**
 * One endpoint of one to three does one thing wrong for three minutes, for half an hour, or for
 * good, in the virtual world: every kind of lie and of silence. Nothing that was accepted may be
 * lost, doubled or said wrongly, and once the endpoint is honest again, or another one is, nothing
 * may wait.
 *
 * `bun run chain:lying [schedules of each kind] [calls] [endpoints]` prints a line for each kind
 * with a finding.
 */
import { type Lasting, runSchedule } from "./virtual-schedule.ts";
import type { Verdict } from "./virtual-verdict.ts";

const minuteMs = 60_000;
const endMs = 4 * 60 * minuteMs;
const faults: readonly Lasting["fault"][] = [
  "stands",
  "gone",
  "silent",
  "swallows",
  "bans",
  "head",
  "version",
  "keys",
  "block",
  "genesis",
  "garbage",
  "nonce",
  "hash",
  "body",
  "root node",
  "numbers",
  "runtime",
  "expiry",
  "records",
  "reasons",
];
const lengthsMs = [3 * minuteMs, 30 * minuteMs, null];
/**
 * Two that disagree about a state for good: what it decides waits for as long, and the log says so.
 */
const ofTwo: readonly Lasting["fault"][] = ["nonce", "version", "expiry", "records", "reasons"];

type Kind = {
  readonly fault: Lasting["fault"];
  readonly endpoints: number;
  readonly node: number;
  readonly lengthMs: number | null;
};

/** Whether calls may wait until the end: the only endpoint, or one of two, still lies. */
function mayWait({ fault, endpoints, lengthMs }: Kind): boolean {
  if (lengthMs !== null || endpoints > 2) return false;
  return endpoints === 1 || ofTwo.includes(fault);
}

/** Reads come from the endpoint in use. */
const hidesRecords = ({ fault, node }: Kind): boolean => fault === "records" && node === 0;

function findingsOf(kind: Kind, verdict: Verdict): string[] {
  const excused = { stuck: mayWait(kind), falselyMissing: hidesRecords(kind) };
  const counted = ["lost", "doubled", "falselyEnded", "falselyMissing", "stuck"] as const;
  return counted
    .filter((name) => verdict[name] > 0 && !(name in excused && excused[name as "stuck"]))
    .map((name) => `${name} ${verdict[name]}`);
}

function kindsFor(endpoints: number): Kind[] {
  const nodes = Array.from({ length: Math.min(endpoints, 2) }, (_, node) => node);
  return faults.flatMap((fault) =>
    nodes.flatMap((node) => lengthsMs.map((lengthMs) => ({ fault, endpoints, node, lengthMs }))),
  );
}

const [schedules = 2, calls = 10, only = 0] = process.argv.slice(2).map(Number);
let [ran, accepted, ended, waiting, bad] = [0, 0, 0, 0, 0];
for (const endpoints of only === 0 ? [1, 2, 3] : [only])
  for (const kind of kindsFor(endpoints))
    for (let seed = 1; seed <= schedules; seed++) {
      const { fault, node, lengthMs } = kind;
      const fromMs = minuteMs * (2 + 3 * seed);
      const until = lengthMs === null ? {} : { untilMs: fromMs + lengthMs };
      const lasting: readonly Lasting[] = [{ node, fault, fromMs, nonceAhead: 1_000, ...until }];
      const verdict = await runSchedule(seed, { calls, endpoints, endMs, lasting });
      ran++;
      accepted += verdict.accepted;
      ended += verdict.waits.length;
      waiting += verdict.stuck;
      const findings = findingsOf(kind, verdict);
      if (findings.length === 0) continue;
      bad++;
      const length = lengthMs === null ? "for good" : `for ${lengthMs / minuteMs} min`;
      console.log(
        `${fault} ${length}, place ${node} of ${endpoints}, seed ${seed}: ${findings.join(", ")}`,
      );
      for (const note of verdict.notes.filter((one) => !one.includes(": null ")).slice(0, 3))
        console.log(`  ${note}`);
    }
console.log(
  `${ran} schedules, ${accepted} calls accepted, ${ended} ended, ${waiting} still wait; ${bad} with a finding`,
);
process.exit(bad === 0 ? 0 : 1);
