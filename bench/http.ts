/**
 * What a node answers over HTTP: stores, unsigned and signed, relayed envelopes, pages of ten,
 * empty pages, acknowledgements of one and of twenty, records and `/healthz` a second at 1, 16, 64
 * and 512 connections, beside a bare server that only parses the same bodies, in turn with it in
 * the same run. `--short` takes a fifth of the time; `--drivers`, `--paths` and `--connections`
 * choose, as lists with commas; `--against <folder>` measures another checkout of the program,
 * `--p99` the time at half of the best rate. Prints one JSON object; `ratio` is our answers a
 * second divided by those of the other. `--check` compares the processor time of an answer, as the
 * bare server's divided by ours, with `baseline.json`: exit code 1 when one has fallen.
 */
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { type Load, measureLoad, measureP99 } from "./http-load.ts";
import { cpuSeconds } from "./processor.ts";
import { type Registered, registered } from "./registered.ts";
import { report } from "./report.ts";
import {
  acknowledging,
  getting,
  payloadBytes,
  posting,
  postingSigned,
  pulling,
} from "./requests.ts";

type Server = {
  readonly name: string;
  readonly url: string;
  readonly pid: number;
  /** Paths that it has answered often enough. */
  readonly warm: Set<string>;
  readonly stop: () => Promise<void>;
};
/**
 * A server and whom to write to there: `full` takes all stores, `small` keeps ten envelopes,
 * `empty` none.
 */
type Target = Server & {
  readonly full: string;
  readonly small: Registered;
  readonly empty: Registered;
};
/** Of one lap, which may end by their number and not by its time. */
type Requests = Pick<Load, "request"> & Partial<Pick<Load, "requestsMax" | "durationMs">>;
type Row = {
  readonly path: string;
  readonly driver: string;
  readonly connections: number;
  readonly perSecond: Readonly<Record<string, number>>;
  readonly ratio: Readonly<Record<string, number>>;
  /**
   * Processor time of the server for one answer; neighbours move it less than the rate. Linux only.
   */
  readonly cpuMicros: Readonly<Record<string, number>>;
  /** Of ours, at half of the best rate. */
  readonly p99Ms?: number;
};

const { values: flags } = parseArgs({
  options: {
    short: { type: "boolean", default: false },
    drivers: { type: "string", default: "memory,lmdb" },
    paths: {
      type: "string",
      default: "healthz,store,signed,relay,messages,pull,ack,ack20,resolve,nonces",
    },
    connections: { type: "string", default: "1,16,64,512" },
    against: { type: "string" },
    /** Measures the 99th percentile at half of the best rate too. */
    p99: { type: "boolean", default: false },
    out: { type: "string" },
    /** Compares with `baseline.json`. */
    check: { type: "boolean", default: false },
  },
});
const rounds = 3;
const lapMs = flags.short ? 400 : 2_000;
/**
 * Answers before anything is measured: each thread compiles what answers them by itself, which
 * takes about a second of processor time and is over after 15,000 answers.
 */
const warmAnswers = 15_000;
const warmMsMax = 10_000;
const smallEntries = 10;
const ackEntries = 20;
/** Acknowledgements of that many entries in one lap, which are stored before it. */
const acksMax = flags.short ? 500 : 2_000;

const makers: Readonly<Record<string, (target: Target) => () => Buffer<ArrayBuffer>>> = {
  healthz: () => getting("/healthz"),
  store: (target) => posting("/cache/store", target.full),
  signed: (target) => postingSigned("/cache/store", target.full, target.small),
  relay: (target) => posting("/relay", target.full),
  messages: (target) => pulling(target.small),
  pull: (target) => pulling(target.empty),
  ack: (target) => acknowledging(target.empty, () => [crypto.randomUUID()]),
  resolve: (target) => getting(`/resolve/${target.small.did}`),
  nonces: (target) => getting(`/dids/${target.small.did}/nonces`),
};

const rows: Row[] = [];
for (const driver of flags.drivers.split(",")) rows.push(...(await measureDriver(driver)));
const ratios = Object.fromEntries(
  rows.map(({ path, driver, connections, cpuMicros }) => [
    `${path} ${driver} ${connections}`,
    (cpuMicros["bare"] ?? 0) / (cpuMicros["ours"] ?? 1),
  ]),
);
const measured = { payloadBytes, rounds, lapMs, rows };
const only = (name: string): boolean => flags.check && name in ratios;
const fallen = report({
  part: "http",
  ratios: flags.check ? ratios : {},
  results: measured,
  json: !flags.check,
  out: flags.out,
  only,
});
process.exit(flags.check ? fallen : 0);

async function measureDriver(driver: string): Promise<Row[]> {
  const folder = mkdtempSync(join(tmpdir(), "waypost-bench-"));
  const here = join(import.meta.dir, "..");
  const nodes = [
    ["ours", here] as const,
    ...(flags.against === undefined ? [] : [["other", flags.against] as const]),
  ];
  const targets: Target[] = [];
  try {
    for (const [name, checkout] of nodes) {
      targets.push(await populate(await start(name, [checkout, driver, join(folder, name)])));
    }
    const bare = await start("bare", [here, "bare"]);
    targets.push({ ...(targets[0] as Target), ...bare });
    const found: Row[] = [];
    for (const path of flags.paths.split(",")) {
      for (const connections of flags.connections.split(",").map(Number)) {
        found.push(await measureRow({ path, driver, connections }, targets));
      }
    }
    for (const { name, pid } of targets)
      console.error(`${driver} ${name}: ${residentMebibytes(pid)} MiB resident`);
    return found;
  } finally {
    await Promise.all(targets.map((target) => target.stop()));
    rmSync(folder, { recursive: true, force: true });
  }
}

/**
 * Rounds alternate between the servers, so that a noisy neighbour hits all; the best round counts.
 */
async function measureRow(
  row: Pick<Row, "path" | "driver" | "connections">,
  targets: readonly Target[],
): Promise<Row> {
  const best: Record<string, number> = {};
  const cpuMicros: Record<string, number> = {};
  for (let round = 0; round < rounds; round++) {
    for (const target of targets) {
      const load = { url: target.url, connections: row.connections };
      if (round === 0) await warm(load, target, row.path);
      const requests = await requestsOf(row.path, target);
      const cpuBefore = cpuSeconds(target.pid);
      const { answers, perSecond } = await measureLoad({ ...load, durationMs: lapMs, ...requests });
      const micros = ((cpuSeconds(target.pid) - cpuBefore) * 1e6) / answers;
      cpuMicros[target.name] = Math.min(
        cpuMicros[target.name] ?? Number.POSITIVE_INFINITY,
        Math.round(micros * 10) / 10,
      );
      best[target.name] = Math.max(best[target.name] ?? 0, Math.round(perSecond));
    }
  }
  const ours = best["ours"] ?? 0;
  const others = Object.entries(best).filter(([name]) => name !== "ours");
  const ratio = Object.fromEntries(
    others.map(([name, rate]) => [name, Math.round((ours / rate) * 100) / 100]),
  );
  console.error(
    `${row.path} ${row.driver} ${row.connections}: ${JSON.stringify(best)} ${JSON.stringify(ratio)} cpu ${JSON.stringify(cpuMicros)}`,
  );
  const [first] = targets;
  if (!flags.p99 || first === undefined || row.path === "ack20")
    return { ...row, perSecond: best, ratio, cpuMicros };
  const load = { url: first.url, connections: row.connections, durationMs: lapMs };
  const p99Ms =
    Math.round(
      (await measureP99({ ...load, ...(await requestsOf(row.path, first)) }, ours / 2)) * 10,
    ) / 10;
  console.error(
    `${row.path} ${row.driver} ${row.connections}: p99 at half of the rate ${p99Ms} ms`,
  );
  return { ...row, perSecond: best, ratio, cpuMicros, p99Ms };
}

/** Once for each path: another number of connections runs the same code. */
async function warm(
  load: Pick<Load, "url" | "connections">,
  target: Target,
  path: string,
): Promise<void> {
  if (target.warm.has(path)) return;
  target.warm.add(path);
  const endsAtMs = performance.now() + warmMsMax;
  for (let done = 0; done < warmAnswers && performance.now() < endsAtMs; )
    done += (await measureLoad({ ...load, durationMs: 250, ...(await requestsOf(path, target)) }))
      .answers;
}

/** Resident memory of a process, measured under the load that went before. */
function residentMebibytes(pid: number): number {
  const file = `/proc/${pid}/status`;
  const found = existsSync(file) ? /VmRSS:\s+(\d+)/.exec(readFileSync(file, "utf8")) : null;
  return Math.round(Number(found?.[1] ?? 0) / 1_024);
}

async function start(name: string, args: readonly string[]): Promise<Server> {
  const script = join(import.meta.dir, "http-server.ts");
  const child = Bun.spawn([process.execPath, script, ...args], {
    stdin: "pipe",
    stdout: "pipe",
    stderr: "inherit",
  });
  let url = "";
  for await (const chunk of child.stdout) {
    url += new TextDecoder().decode(chunk);
    if (url.endsWith("\n")) break;
  }
  const stop = async (): Promise<void> => {
    await child.stdin.end();
    await child.exited;
  };
  return { name, url: url.trim(), pid: child.pid, warm: new Set(), stop };
}

// ---------------------------------------------------------------------------------------- requests

async function populate(server: Server): Promise<Target> {
  const full = await registered(server.url);
  const small = await registered(server.url);
  const next = posting("/cache/store", small.did);
  for (let i = 0; i < smallEntries; i++) await storeOne(server.url, next());
  return { ...server, full: full.did, small, empty: await registered(server.url) };
}

/** The requests of one lap. */
async function requestsOf(path: string, target: Target): Promise<Requests> {
  if (path === "ack20") return acknowledgingStored(target);
  const make = makers[path];
  if (make === undefined) throw new Error(`no path ${path}`);
  return { request: make(target) };
}

/**
 * Stores what the acknowledgements remove. The lap removes all of it: the pages of later paths hold
 * what is left.
 */
async function acknowledgingStored({ name, url, empty }: Target): Promise<Requests> {
  const ids = Array.from({ length: acksMax * ackEntries }, () => crypto.randomUUID());
  const stored = ids.values();
  const request = posting(
    "/cache/store",
    empty.did,
    () => stored.next().value ?? crypto.randomUUID(),
  );
  const durationMs = 60_000;
  if (name !== "bare")
    await measureLoad({ url, connections: 64, requestsMax: ids.length, durationMs, request });
  return {
    request: acknowledging(empty, () => ids.splice(-ackEntries)),
    requestsMax: acksMax,
    durationMs,
  };
}

async function storeOne(url: string, request: Buffer<ArrayBuffer>): Promise<void> {
  const body = request.subarray(request.indexOf("\r\n\r\n") + 4);
  const headers = { "content-type": "application/json" };
  const response = await fetch(`${url}/cache/store`, { method: "POST", headers, body });
  if (!response.ok) throw new Error(await response.text());
}
