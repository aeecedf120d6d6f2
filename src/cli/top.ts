/**
 * `waypost top`: the status page in a terminal. It asks the running node for the same figures and draws their last
 * minutes; `--once` prints one picture, for scripts and tickets.
 */
import type { Command } from "commander";
import { failed } from "../app/failure.ts";
import { parseUrl } from "./arguments.ts";
import { askJson } from "./health.ts";
import { type Answered, addNodeFlags, askNode, type NodeFlags } from "./operations.ts";
import { createReport, printable, renderBytes } from "./report.ts";

type Flags = NodeFlags & { readonly url?: string; readonly once?: true };

/** The node takes a sample every ten seconds; the terminal follows closer, so that a stop shows at once. */
const refreshMs = 2_000;

export function registerTopCommand(program: Command): void {
  const command = program
    .command("top")
    .description("show in this terminal what the running node does")
    .option("--url <url>", "ask this admin listener in place of a Unix socket", parseUrl)
    .option("--once", "print one picture and end");
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

/** Until a key such as Ctrl-C ends the process. The terminal is given back as it was. */
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
  ["in work", "inFlight", numberText],
  ["live sessions", "liveSessions", numberText],
  ["envelopes waiting", "entries", numberText],
  ["bytes waiting", "entryBytes", renderBytes],
  ["memory", "residentBytes", renderBytes],
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

/** One character a sample, the largest of them full; a sample without a value is a gap. */
export function sparkline(values: readonly (number | null)[]): string {
  const most = Math.max(...values.map((value) => value ?? 0), Number.MIN_VALUE);
  const of = (value: number): string => bars[Math.round((Math.max(0, value) / most) * (bars.length - 1))] ?? "";
  return values.map((value) => (value === null ? " " : of(value))).join("");
}
