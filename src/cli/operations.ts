/**
 * What an operator asks of a running node. `waypost health <url>` asks `GET /readyz`, for supervisors and images that
 * hold no other client (exit code 0 ready, 1 not ready, 2 not ready within `--wait`). `waypost top` draws the status
 * page in a terminal. `waypost reload` and `waypost block` change the node over a Unix socket of `server.admin_listen`:
 * only users who may open that socket can use them. `waypost bench` measures from outside how much the node can handle.
 */
import { existsSync } from "node:fs";
import { join } from "node:path";
import { type Command, Option } from "commander";
import { failed, timedOut } from "../app/failure.ts";
import { cachesOf } from "../client/client.ts";
import { waitingDefault } from "../client/directory.ts";
import { endpoint, exchange, jsonBody, timeoutMsDefault } from "../client/http.ts";
import { createIdentity } from "../client/keys.ts";
import { firstDocument, register, settleRegistration } from "../client/registration.ts";
import type { Did } from "../core/codec/did.ts";
import { errorText } from "../core/fault.ts";
import { withoutTrailingSlashes } from "../core/message/proof.ts";
import {
  askJson,
  type ConnectionFlags,
  clientCommand,
  createReport,
  parseBetween,
  parseSeconds,
  parseUrl,
  printable,
  probeTimeoutMs,
  renderBytes,
  type Session,
} from "./command.ts";
import { defaultConfigFile, readConfig } from "./config.ts";

const askTimeoutMs = 60_000;

export function registerOperationsCommands(program: Command): void {
  registerHealth(program);
  registerTop(program);
  registerReload(program);
  registerBlock(program);
  registerBench(program);
}

type Answered = Readonly<Record<string, unknown>>;

/** The running node: that of a configuration file, or the one behind a socket. */
type NodeFlags = { readonly config?: string; readonly socket?: string; readonly json?: boolean };

function addNodeFlags(command: Command): Command {
  return command
    .option("-c, --config <file>", `configuration file of the running node (default: "${defaultConfigFile}")`)
    .option("--socket <path>", "Unix socket of the node's admin_listen, instead of --config")
    .option("--json", "print the result as JSON");
}

/** Data of `waypost dev`, and its admin socket in there. */
export const devFolder = ".waypost";
export const devSocketName = "admin.sock";

/** In a folder without a configuration file where `waypost dev` runs, the commands ask that node. */
async function socketOf({ config, socket }: NodeFlags): Promise<string> {
  if (socket !== undefined) return socket;
  const ofDev = join(devFolder, devSocketName);
  if (config === undefined && !existsSync(defaultConfigFile) && existsSync(ofDev)) return ofDev;
  const { server } = await readConfig(config ?? defaultConfigFile);
  const address = server.admin_listen.find((one) => one.startsWith("unix:"));
  if (address !== undefined) return address.slice("unix:".length);
  const example = 'admin_listen = ["unix:/var/lib/waypost/admin.sock"]';
  throw failed(`server.admin_listen names no Unix socket, which this command needs; set ${example} and restart`);
}

/** Asks a running node over its admin socket. */
export async function askNode(flags: NodeFlags, path: string, body?: unknown): Promise<Answered> {
  const socket = await socketOf(flags);
  const json = { "content-type": "application/json" };
  const sent = body === undefined ? {} : { method: "POST", headers: json, body: JSON.stringify(body) };
  try {
    const response = await fetch(`http://localhost${path}`, {
      unix: socket,
      signal: AbortSignal.timeout(askTimeoutMs),
      ...sent,
    });
    const answer = (await response.json()) as Answered;
    if (response.ok) return answer;
    throw failed(printable(`the node refused: ${String(answer["detail"] ?? response.status)}`));
  } catch (error) {
    if (error instanceof Error && error.name === "CommandFailure") throw error;
    throw failed(`no node answers at ${socket}: ${errorText(error)}`);
  }
}

function registerReload(program: Command): void {
  const command = program
    .command("reload")
    .description("apply a changed configuration file to the running node")
    .option("--pid <n>", "send SIGHUP to this process instead; its log has the answer", parseBetween(2, 2 ** 31 - 1));
  addNodeFlags(command).action(async (flags: NodeFlags & { readonly pid?: number }) => {
    // A file with a problem is reported here, with its place, and never reaches the node.
    if (flags.socket === undefined) await readConfig(flags.config ?? defaultConfigFile, { toServe: true });
    const report = createReport(flags.json === true);
    if (flags.pid !== undefined) {
      process.kill(flags.pid, "SIGHUP");
      report.result({ ok: true, pid: flags.pid }, `sent SIGHUP to ${flags.pid}; its log says what changed`);
      return;
    }
    const answer = await askNode(flags, "/operations/reload", {});
    if (answer["ok"] !== true) throw failed(printable(`nothing was changed: ${String(answer["reason"])}`));
    report.result(answer, renderReload(answer));
  });
}

function renderReload(answer: Answered): string {
  const names = (member: string): string => {
    const list = answer[member];
    return Array.isArray(list) && list.length > 0 ? list.join(", ") : "nothing";
  };
  return `changed: ${names("changed")}\nneeds a restart: ${names("needs_restart")}`;
}

// -------------------------------------------------------------------------------------------------- block

function registerBlock(program: Command): void {
  const block = program.command("block").description("block DIDs, senders and networks on the running node");
  addNodeFlags(
    block
      .command("add <subject...>")
      .description("block DIDs and networks (203.0.113.7, 203.0.113.0/24), from the next request on")
      .option("--sender", "block the DIDs only as senders: they still receive")
      .option("--reason <text>", "why, for the list"),
  ).action(async (subjects: string[], flags: NodeFlags & { readonly sender?: true; readonly reason?: string }) => {
    const add = subjects.map((subject) => ({
      subject,
      sender_only: flags.sender === true,
      reason: flags.reason ?? null,
    }));
    await change(flags, { add, remove: [] });
  });
  addNodeFlags(
    block.command("remove <subject...>").description("unblock DIDs and networks from the next request on"),
  ).action(async (subjects: string[], flags: NodeFlags) => {
    await change(flags, { add: [], remove: subjects });
  });
  addNodeFlags(block.command("list").description("list what is blocked, since when and why")).action(
    async (flags: NodeFlags) => {
      const answer = await askNode(flags, "/operations/blocks");
      const blocks = Array.isArray(answer["blocks"]) ? (answer["blocks"] as Answered[]) : [];
      const lines = blocks.map(({ since, kind, subject, reason }) =>
        printable(`${since}  ${String(kind).padEnd(7)}  ${subject}${reason === null ? "" : `  (${reason})`}`),
      );
      createReport(flags.json === true).result(answer, lines.length === 0 ? "Nothing is blocked." : lines.join("\n"));
    },
  );
}

async function change(flags: NodeFlags, body: unknown): Promise<void> {
  const answer = await askNode(flags, "/operations/blocks", body);
  const { added, removed, entries } = answer;
  const text = `added ${added}, removed ${removed}; the list has ${entries} now`;
  createReport(flags.json === true).result({ ok: true, ...answer }, text);
}

// --------------------------------------------------------------------------------------------------------- waypost top

type Flags = NodeFlags & { readonly url?: string; readonly once?: true };

/** The node takes a sample every ten seconds; the terminal asks more often, so that a stop shows soon. */
const refreshMs = 2_000;

function registerTop(program: Command): void {
  const command = program
    .command("top")
    .description("show the status of the running node in this terminal")
    .option("--url <url>", "ask this admin listener instead of a Unix socket", parseUrl)
    .option("--once", "print the status once and exit");
  addNodeFlags(command).action(async (flags: Flags) => {
    if (flags.json === true || flags.once === true || process.stdout.isTTY !== true) {
      const status = await readStatus(flags);
      createReport(flags.json === true).result(status, renderTop(status, plainWidth));
      return;
    }
    await follow(flags);
  });
}

async function readStatus({ url, ...node }: Flags): Promise<Answered> {
  if (url === undefined) return askNode(node, "/status.json");
  const reply = await askJson(url, "/status.json");
  if (typeof reply === "string") throw failed(`${url}: ${reply}`);
  if (reply.status !== 200) throw failed(`${url} shows no status: ask an address of server.admin_listen`);
  return reply.json;
}

/** Runs until Ctrl-C or a signal, and restores the terminal. */
async function follow(flags: Flags): Promise<void> {
  const leave = (): void => void process.stdout.write("\u001b[?25h\u001b[?1049l");
  process.stdout.write("\u001b[?1049h\u001b[?25l");
  process.once("exit", leave);
  for (const signal of ["SIGINT", "SIGTERM"] as const) process.once(signal, () => process.exit(0));
  for (;;) {
    const text = await readStatus(flags).then(
      (status) => renderTop(status, process.stdout.columns || plainWidth),
      (error: unknown) => printable(error instanceof Error ? error.message : String(error)),
    );
    const lines = text.split("\n").slice(0, (process.stdout.rows || 40) - 1);
    process.stdout.write(`\u001b[H${lines.map((line) => `${line}\u001b[K`).join("\n")}\u001b[J`);
    await Bun.sleep(refreshMs);
  }
}

// ------------------------------------------------------------------------------------------------ picture

const plainWidth = 80;

type Sample = Readonly<Record<string, number | null>>;
type Row = readonly [name: string, member: string, form: (value: number) => string];

const perSecond = (value: number): string => `${numberText(value)}/s`;
const seconds = (value: number): string => (value < 1 ? `${Math.round(value * 1_000)} ms` : `${value.toFixed(1)} s`);

const rows: readonly Row[] = [
  ["requests", "requests", perSecond],
  ["refusals", "refusals", perSecond],
  ["server errors", "serverErrors", perSecond],
  ["latency p50", "p50", seconds],
  ["latency p99", "p99", seconds],
  ["envelopes stored", "stored", perSecond],
  ["envelopes relayed", "delivered", perSecond],
  ["active requests", "inFlight", numberText],
  ["live sessions", "liveSessions", numberText],
  ["envelopes waiting", "entries", numberText],
  ["bytes waiting", "entryBytes", renderBytes],
  ["memory", "residentBytes", renderBytes],
  ["processor", "processors", (value) => `${Math.round(value * 100)} %`],
  ["event loop delay", "loopLagSeconds", seconds],
];

/** The picture as lines of text, at most `width` wide. */
export function renderTop(status: Answered, width: number): string {
  const samples = listOf<Sample>(status["samples"]);
  const roles = listOf<string>(status["roles"]).join(", ");
  const upMinutes = Math.max(0, Math.floor((Date.now() - Number(status["started_at_ms"])) / 60_000));
  const state = status["ready"] === true ? "ready" : "NOT READY";
  const head = `waypost ${status["version"]}  ${roles}  ${state}  up ${Math.floor(upMinutes / 60)} h ${upMinutes % 60} min`;
  const plotWidth = Math.max(10, Math.min(60, width - 36));
  const figures = rows.map(([name, member, form]) => {
    const values = samples.map((sample) => sample[member] ?? null);
    const last = values.at(-1) ?? null;
    return `${name.padEnd(18)}${(last === null ? "–" : form(last)).padStart(14)}  ${sparkline(values.slice(-plotWidth))}`;
  });
  const checks = listOf<Answered>(status["checks"]).map(
    ({ name, ok }) => `  ${ok === true ? "ok  " : "FAIL"}  ${name}`,
  );
  const facts = listOf<Answered>(status["facts"]).map(({ name, value }) => `  ${String(name).padEnd(20)}  ${value}`);
  const warnings = listOf<Answered>(status["warnings"])
    .slice(-5)
    .reverse()
    .map(({ atMs, level, message }) => `  ${new Date(Number(atMs)).toISOString()}  ${level}  ${message}`);
  const blocks = [[head], figures, ["checks", ...checks], ["stores", ...facts]];
  if (samples.length === 0) blocks.splice(1, 1, ["the first figures come ten seconds after the start"]);
  if (warnings.length > 0) blocks.push(["warnings", ...warnings]);
  const lines = blocks.flatMap((block) => [...block, ""]).slice(0, -1);
  return lines.map((line) => printable(line).slice(0, width)).join("\n");
}

function listOf<T>(value: unknown): readonly T[] {
  return Array.isArray(value) ? value : [];
}

function numberText(value: number): string {
  if (value >= 10_000) return `${(value / 1_000).toFixed(1)} k`;
  return value >= 100 || Number.isInteger(value) ? value.toFixed(0) : value.toFixed(1);
}

const bars = "▁▂▃▄▅▆▇█";

/** One character per sample, the largest at full height; a sample without a value is a gap. */
function sparkline(values: readonly (number | null)[]): string {
  const most = Math.max(...values.map((value) => value ?? 0), Number.MIN_VALUE);
  const of = (value: number): string => bars[Math.round((Math.max(0, value) / most) * (bars.length - 1))] ?? "";
  return values.map((value) => (value === null ? " " : of(value))).join("");
}

// ------------------------------------------------------------------------------------------------------ waypost health

const againMs = 200;

function registerHealth(program: Command): void {
  program
    .command("health")
    .description("ask a node whether it is ready")
    .argument("<url>", "base URL of the node", parseUrl)
    .addOption(
      new Option("-w, --wait <duration>", "keep asking until it is ready, for at most this long: 20s, 2m")
        .argParser(parseSeconds)
        .default(0, "ask once"),
    )
    .action(async (url: string, { wait: waitMs }: { wait: number }) => {
      const endsAtMs = performance.now() + waitMs;
      let answer = await askReadiness(url);
      while (!answer.ready && performance.now() < endsAtMs) {
        await Bun.sleep(againMs);
        answer = await askReadiness(url);
      }
      if (!answer.ready) throw waitMs > 0 ? timedOut(answer.text) : failed(answer.text);
      console.log(answer.text);
    });
}

async function askReadiness(url: string): Promise<{ readonly ready: boolean; readonly text: string }> {
  try {
    const response = await fetch(`${withoutTrailingSlashes(url)}/readyz`, {
      signal: AbortSignal.timeout(probeTimeoutMs),
      proxy: false,
    });
    const text = (await response.text()).slice(0, 4_096).trim();
    if (text.startsWith("{")) return { ready: response.ok, text };
    return { ready: false, text: `${url} answered ${response.status} without JSON: is that the address of a node?` };
  } catch (error) {
    const isRefused = error instanceof Error && "code" in error && error.code === "ECONNREFUSED";
    return { ready: false, text: `${url}: ${isRefused ? "nobody listens there" : errorText(error)}` };
  }
}

// ------------------------------------------------------------------------------------------------------- waypost bench

/**
 * A throwaway identity is registered; envelopes for it are stored, looked for, fetched and acknowledged, and its status is
 * read. What it stores it removes again; the identity stays on the ledger.
 */
type BenchFlags = ConnectionFlags & {
  readonly count: number;
  readonly size: number;
  readonly clients: number;
};

/** One kind of request: how many, how fast, and how long each took. */
type Lap = {
  readonly name: string;
  readonly requests: number;
  readonly perSecond: number;
  readonly p50Ms: number;
  readonly p99Ms: number;
};

/** A mailbox holds 10,000 entries unless the operator says otherwise. */
const countMax = 10_000;

function registerBench(program: Command): void {
  const command = program
    .command("bench")
    .description("measure a running node from outside")
    .option("--count <number>", "envelopes to store", parseBetween(1, countMax), 2_000)
    .option("--size <bytes>", "bytes of the payload of each", parseBetween(1, 1_048_576), 1_024)
    .option("--clients <number>", "requests at once", parseBetween(1, 1_024), 64);
  clientCommand(command, bench);
}

async function bench(session: Session, flags: BenchFlags): Promise<void> {
  const { report, client, cacheUrl, relayUrl } = session;
  report.progress("registering a throwaway identity");
  const identity = createIdentity("bench");
  const registered = await register(client, identity, {
    document: await firstDocument(identity, { relayUrl, cacheUrl }),
    alias: null,
  });
  await settleRegistration(client, registered, waitingDefault);
  const [cache] = await cachesOf(client, identity, "");
  if (cache === undefined) throw failed("the identity has no Cache");
  const lap = (name: string, requests: number, one: (i: number) => Promise<void>): Promise<Lap> => {
    report.progress(`${name}: ${requests}`);
    return measure(name, requests, { clients: flags.clients, one });
  };
  const laps = [
    await lap("read a status", flags.count, async () => {
      await client.directory.registrationStatus(identity.did);
    }),
    await lap("store an envelope", flags.count, storing(cacheUrl, identity.did, flags.size)),
    await lap("fetch a page", Math.ceil(flags.count / 100), async () => {
      await cache.messages(undefined, 100);
    }),
  ];
  const removed = await removeAll(cache);
  if (removed !== flags.count) throw failed(`${flags.count} envelopes were stored, but only ${removed} were found`);
  report.result({ ok: true, ...flags, laps }, renderLaps(laps, flags));
}

/** Stores directly in the Cache, so that the figures are those of one node and one synced write. */
function storing(cacheUrl: string, to: Did, size: number): (i: number) => Promise<void> {
  const at = endpoint(cacheUrl, timeoutMsDefault);
  const ciphertext = crypto.getRandomValues(new Uint8Array(Math.min(size, 65_536)));
  const payload = { ciphertext_b64: repeated(ciphertext, size).toBase64() };
  return async () => {
    const timestamp = new Date().toISOString();
    const body = jsonBody({ message_id: crypto.randomUUID(), to, timestamp, ttl: "1h", payload });
    const { status } = await exchange(at, { method: "POST", path: "/cache/store", body });
    if (status !== 202) throw failed(`the Cache answered ${status}`);
  };
}

/** The platform gives at most 64 KiB of randomness at once; the rest repeats it. */
function repeated(bytes: Uint8Array, size: number): Uint8Array {
  const out = new Uint8Array(size);
  for (let at = 0; at < size; at += bytes.length) out.set(bytes.subarray(0, Math.min(bytes.length, size - at)), at);
  return out;
}

type CacheOf = Awaited<ReturnType<typeof cachesOf>>[number];

async function removeAll(cache: CacheOf): Promise<number> {
  let removed = 0;
  for (;;) {
    const { messages } = await cache.summary();
    if (messages.length === 0) return removed;
    removed += (await cache.ack(messages.map((message) => message.message_id))).acked;
  }
}

type Work = { readonly clients: number; readonly one: (i: number) => Promise<void> };

/** Runs `requests` of one kind with so many at once. */
async function measure(name: string, requests: number, { clients, one }: Work): Promise<Lap> {
  const tookMs = new Float64Array(requests);
  let next = 0;
  const client = async (): Promise<void> => {
    while (next < requests) {
      const i = next++;
      const startedMs = performance.now();
      await one(i);
      tookMs[i] = performance.now() - startedMs;
    }
  };
  const startedMs = performance.now();
  await Promise.all(Array.from({ length: Math.min(clients, requests) }, client));
  const seconds = (performance.now() - startedMs) / 1_000;
  tookMs.sort();
  const quantile = (share: number): number => tookMs[Math.min(requests - 1, Math.floor(requests * share))] ?? 0;
  return { name, requests, perSecond: requests / seconds, p50Ms: quantile(0.5), p99Ms: quantile(0.99) };
}

function renderLaps(laps: readonly Lap[], flags: BenchFlags): string {
  const rows = laps.map(({ name, requests, perSecond, p50Ms, p99Ms }) =>
    [
      name.padEnd(20),
      String(requests).padStart(8),
      `${perSecond.toFixed(0)}/s`.padStart(10),
      `${p50Ms.toFixed(1)} ms`.padStart(10),
      `${p99Ms.toFixed(1)} ms`.padStart(10),
    ].join(" "),
  );
  const head = `${"".padEnd(20)} ${"requests".padStart(8)} ${"rate".padStart(10)} ${"p50".padStart(10)} ${"p99".padStart(10)}`;
  return [`${flags.clients} at once, payloads of ${flags.size} bytes`, head, ...rows].join("\n");
}
