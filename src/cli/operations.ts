/**
 * `waypost reload` and `waypost block`: what an operator changes on a running node. They speak to a Unix socket of
 * `server.admin_listen`, so whoever may open that socket may use them.
 */
import { existsSync } from "node:fs";
import { join } from "node:path";
import type { Command } from "commander";
import { failed } from "../app/failure.ts";
import { errorText } from "../core/fault.ts";
import { parseBetween } from "./arguments.ts";
import { defaultConfigFile, readConfig } from "./config.ts";
import { createReport, printable } from "./report.ts";

const askTimeoutMs = 60_000;

export type Answered = Readonly<Record<string, unknown>>;

/** Which running node: that of a configuration file, or the one behind a socket. */
export type NodeFlags = { readonly config?: string; readonly socket?: string; readonly json?: boolean };

export function addNodeFlags(command: Command): Command {
  return command
    .option("-c, --config <file>", `configuration file of the running node (default: "${defaultConfigFile}")`)
    .option("--socket <path>", "Unix socket of the node's admin_listen, in place of --config")
    .option("--json", "print the result as JSON");
}

/** Data of `waypost dev`, and its admin socket in there. */
export const devFolder = ".waypost";
export const devSocketName = "admin.sock";

/** In a folder without a configuration file, where `waypost dev` runs, its node is meant. */
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

export function registerReloadCommand(program: Command): void {
  const command = program
    .command("reload")
    .description("let the running node take over what changed in its configuration file")
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

export function registerBlockCommand(program: Command): void {
  const block = program.command("block").description("block DIDs, senders and networks on the running node");
  addNodeFlags(
    block
      .command("add <subject...>")
      .description("block DIDs and networks (203.0.113.7, 203.0.113.0/24), from the next request on")
      .option("--sender", "block the DIDs as senders alone: they still receive")
      .option("--reason <text>", "why, for the list"),
  ).action(async (subjects: string[], flags: NodeFlags & { readonly sender?: true; readonly reason?: string }) => {
    const add = subjects.map((subject) => ({
      subject,
      sender_only: flags.sender === true,
      reason: flags.reason ?? null,
    }));
    await change(flags, { add, remove: [] });
  });
  addNodeFlags(block.command("remove <subject...>").description("unblock them")).action(
    async (subjects: string[], flags: NodeFlags) => {
      await change(flags, { add: [], remove: subjects });
    },
  );
  addNodeFlags(block.command("list").description("list what is blocked")).action(async (flags: NodeFlags) => {
    const answer = await askNode(flags, "/operations/blocks");
    const blocks = Array.isArray(answer["blocks"]) ? (answer["blocks"] as Answered[]) : [];
    const lines = blocks.map(({ since, kind, subject, reason }) =>
      printable(`${since}  ${String(kind).padEnd(7)}  ${subject}${reason === null ? "" : `  (${reason})`}`),
    );
    createReport(flags.json === true).result(answer, lines.length === 0 ? "Nothing is blocked." : lines.join("\n"));
  });
}

async function change(flags: NodeFlags, body: unknown): Promise<void> {
  const answer = await askNode(flags, "/operations/blocks", body);
  const { added, removed, entries } = answer;
  const text = `added ${added}, removed ${removed}; the list has ${entries} now`;
  createReport(flags.json === true).result({ ok: true, ...answer }, text);
}
