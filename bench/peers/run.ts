/**
 * One store, by Waypost and by servers that others trust with messages: 1.3 KiB each, durable
 * before the answer, over the same number of connections, in turn in the same run, the servers on
 * the first processor and the load on the last; with `--spread` all of them on all processors, for
 * several nodes. `bun bench/peers/run.ts [--connections 64] [--rounds 5] [--seconds 2] [--only
 * redis,waypost] [--spread] [--out file]`. Prints a table, and writes JSON. Not run by CI: it
 * starts what the machine happens to have.
 */
import { availableParallelism } from "node:os";
import { parseArgs } from "node:util";
import { writeReport } from "../report.ts";
import { measure } from "./load.ts";
import { type Peer, starters } from "./servers.ts";

const { values: flags } = parseArgs({
  options: {
    connections: { type: "string", default: "64" },
    rounds: { type: "string", default: "5" },
    seconds: { type: "string", default: "2" },
    only: { type: "string" },
    spread: { type: "boolean", default: false },
    out: { type: "string" },
  },
});
const connections = Number(flags.connections);
const durationMs = Number(flags.seconds) * 1_000;
const chosen = flags.only?.split(",");
/**
 * Answers of a server before it is measured: what compiles its code while it runs has done so by
 * then.
 */
const warmAnswers = 20_000;

/** Children inherit the processors of this process. */
function pin(processor: number): void {
  if (!flags.spread && availableParallelism() > 1 && Bun.which("taskset") !== null)
    Bun.spawnSync(["taskset", "-a", "-cp", String(processor), String(process.pid)]);
}

type Lap = { readonly perSecond: number; readonly cpuMicros: number; readonly p99Ms: number };

async function lapOf(peer: Peer): Promise<Lap> {
  const before = peer.cpuSeconds();
  const {
    answers,
    durationMs: tookMs,
    p99Ms,
  } = await measure({ ...peer, connections, durationMs });
  const cpuMicros = ((peer.cpuSeconds() - before) * 1e6) / answers;
  return { perSecond: (answers * 1_000) / tookMs, cpuMicros, p99Ms };
}

async function warm(peer: Peer): Promise<void> {
  const endsAtMs = performance.now() + 20_000;
  for (let done = 0; done < warmAnswers && performance.now() < endsAtMs; )
    done += (await measure({ ...peer, connections, durationMs: 1_000 })).answers;
}

function median(values: readonly number[]): number {
  return values.toSorted((a, b) => a - b)[values.length >> 1] ?? 0;
}

const processors = availableParallelism();
pin(0);
const peers: Peer[] = [];
const absent: Record<string, string> = {};
const laps = new Map<Peer, Lap[]>();
try {
  for (const { name, start } of starters.filter((one) => chosen?.includes(one.name) ?? true)) {
    const peer = await start();
    if (typeof peer === "string") absent[name] = peer;
    else peers.push(peer);
  }
  pin(processors - 1);
  for (const peer of peers) await warm(peer);
  for (let round = 0; round < Number(flags.rounds); round++)
    for (const peer of peers) laps.set(peer, [...(laps.get(peer) ?? []), await lapOf(peer)]);
} finally {
  for (const peer of peers) await peer.end();
}

const rows = peers.map((peer) => {
  const all = laps.get(peer) ?? [];
  const cpuMicros = median(all.map((lap) => lap.cpuMicros));
  return {
    name: peer.name,
    promise: peer.promise,
    perSecond: Math.round(median(all.map((lap) => lap.perSecond))),
    cpuMicros: Math.round(cpuMicros * 10) / 10,
    perCpuSecond: Math.round(1e6 / cpuMicros),
    p99Ms: Math.round(median(all.map((lap) => lap.p99Ms)) * 10) / 10,
  };
});
console.log(
  `| server | before it answers | stores/s | CPU a store | stores a CPU second | p99 |\n|---|---|---|---|---|---|`,
);
for (const row of rows)
  console.log(
    `| ${row.name} | ${row.promise} | ${row.perSecond} | ${row.cpuMicros} µs | ${row.perCpuSecond} | ${row.p99Ms} ms |`,
  );
for (const [name, reason] of Object.entries(absent)) console.log(`${name} is missing: ${reason}`);
if (flags.out !== undefined) writeReport(flags.out, { connections, durationMs, rows, absent });
