/**
 * What an operator asks of a running node. `waypost health <url>` asks `GET /readyz`. `waypost
 * reload` and `waypost block` change the node over a Unix socket of `server.admin_listen`: only
 * users who may open that socket can use them.
 */
import { createReadStream, existsSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import type { Command } from "commander";
import { failed, failedInResult } from "../app/failure.ts";
import { isRecord } from "../client/base/shapes.ts";
import type { Config } from "../config/schema.ts";
import { isDid } from "../core/codec/did.ts";
import { parseNetwork } from "../core/message/address.ts";
import { askJson, createReport, defaultConfigFile, parseUrl, printable } from "./command.ts";
import type { ReadOptions } from "./config.ts";
import { confirmed } from "./did-change.ts";

const askTimeoutMs = 60_000;

type OperationAnswer = Readonly<Record<string, unknown>>;

/** The running node: that of a configuration file, or the one behind a socket. */
export type NodeFlags = {
  readonly config?: string;
  readonly socket?: string;
  readonly json?: boolean;
};

export function addPlaceFlags(command: Command): Command {
  return command
    .option(
      "-c, --config <file>",
      `configuration file of the running node (default: "${defaultConfigFile}")`,
    )
    .option("--socket <path>", "Unix socket of the node's admin_listen, instead of --config");
}

export const addNodeFlags = (command: Command): Command =>
  addPlaceFlags(command).option("--json", "print the result as JSON");

/** Data of `waypost dev`, and its admin socket in there. */
export const devFolder = ".waypost";
export const devSocketName = "admin.sock";

/** A command with `--socket` does without the schema, which takes longer to load than the rest. */
async function configOf(file: string | undefined, options: ReadOptions = {}): Promise<Config> {
  const { readConfig } = await import("./config.ts");
  return readConfig(file ?? defaultConfigFile, options);
}

/**
 * In a folder without a configuration file where `waypost dev` runs, the commands ask that node.
 */
async function socketOf({ config, socket }: NodeFlags): Promise<string> {
  if (socket !== undefined) return socket;
  if (config === undefined && !existsSync(defaultConfigFile)) {
    const ofDev = join(devFolder, devSocketName);
    if (existsSync(ofDev)) return ofDev;
    throw failed(
      `no ${defaultConfigFile} is here: name the node by --config, or by --socket <data>/${devSocketName}`,
    );
  }
  const { server } = await configOf(config);
  const address = server.admin_listen.find((one) => one.startsWith("unix:"));
  if (address !== undefined) return address.slice("unix:".length);
  const example = 'admin_listen = ["unix:/var/lib/waypost/admin.sock"]';
  throw failed(
    `server.admin_listen names no Unix socket, which this command needs; set ${example} and restart`,
  );
}

/** Asks a running node over its admin socket. */
export async function askNode(
  flags: NodeFlags,
  path: string,
  body?: unknown,
): Promise<OperationAnswer> {
  const socket = await socketOf(flags);
  const reply = await askJson("http://localhost", path, {
    unix: socket,
    body,
    timeoutMs: askTimeoutMs,
  });
  if (typeof reply === "string") throw failed(`no node answers at ${socket}: ${reply}`);
  const { status, json } = reply;
  if (status >= 200 && status < 300) return json;
  throw failed(printable(`the node refused: ${String(json["detail"] ?? status)}`));
}

export function registerOperationsCommands(program: Command): void {
  addNodeFlags(
    program.command("reload").description("apply a changed configuration file to the running node"),
  ).action(reload);
  addNodeFlags(
    program
      .command("log <subject> [file]")
      .description(
        "print the log lines about a message id, or a recipient by DID or digest; without a file, of standard input",
      ),
  ).action(printLog);
  registerBlock(
    program.command("block").description("block DIDs, senders and networks on the running node"),
  );
  program
    .command("health")
    .description("ask a node whether it is ready")
    .argument("<url>", "base URL of the node", parseUrl)
    .action(askHealth);
}

async function reload(flags: NodeFlags): Promise<void> {
  // A file with a problem is reported here, with its place, and never reaches the node.
  if (flags.socket === undefined) await configOf(flags.config, { toServe: true });
  const answer = await askNode(flags, "/operations/reload", {});
  if (answer["ok"] !== true)
    throw failed(printable(`nothing was changed: ${String(answer["reason"])}`));
  const namesIn = (member: string): string => [answer[member]].flat().join(", ") || "nothing";
  createReport(flags.json === true).result(
    answer,
    `changed: ${namesIn("changed")}\nneeds a restart: ${namesIn("needs_restart")}`,
  );
}

/** The node alone knows the digest under which its log names a recipient. */
async function printLog(
  subject: string,
  file: string | undefined,
  flags: NodeFlags,
): Promise<void> {
  const named = isDid(subject)
    ? (await askNode(flags, "/operations/explain", { recipient: subject, sender: null }))["digest"]
    : subject;
  const matching = [
    `"message_id":${JSON.stringify(named)}`,
    `"recipient":${JSON.stringify(named)}`,
  ];
  const input = file === undefined ? process.stdin : createReadStream(file);
  for await (const line of createInterface({ input }))
    if (matching.some((text) => line.includes(text))) console.log(printable(line));
}

// ------------------------------------------------------------------------------------------- block

type BlockFlags = NodeFlags & {
  readonly invitation?: string;
  readonly sender?: boolean;
  readonly reason?: string | null;
  readonly yes?: boolean;
};

/** Such as `0.0.0.0/0`: more than an operator blocks on purpose. */
function isBroad(subject: string): boolean {
  const network = parseNetwork(subject);
  return (
    network !== null && network.prefixBits < (network.address.toByteArray().length === 4 ? 8 : 20)
  );
}

function registerBlock(block: Command): void {
  addNodeFlags(
    block
      .command("add [subject...]")
      .description(
        "block DIDs and networks (203.0.113.7, 203.0.113.0/24), from the next request on",
      )
      .option("--sender", "block the DIDs only as senders: they still receive")
      .option(
        "--invitation <id>",
        "everyone whom this invitation let in, by the beginning of its id",
      )
      .option("--reason <text>", "why, for the list")
      .option("--yes", "do not ask, also for a network of millions of clients"),
  ).action(
    async (
      named: string[],
      { sender = false, reason = null, yes = false, invitation, ...flags }: BlockFlags,
    ) => {
      const guests = invitation === undefined ? [] : await guestsOf(invitation, flags);
      const subjects = [...named, ...guests];
      if (subjects.length === 0) throw failed("name whom to block, or an --invitation");
      const broad = yes ? undefined : subjects.find(isBroad);
      if (broad !== undefined) throw failed(`${broad} has millions of clients: confirm with --yes`);
      if (guests.length > 0) confirmed(blockQuestion(subjects), { yes });
      await changeBlocks(flags, {
        add: subjects.map((subject) => ({ subject, sender_only: sender, reason })),
        remove: [],
      });
    },
  );
  addNodeFlags(
    block
      .command("remove <subject...>")
      .description("unblock DIDs and networks from the next request on"),
  ).action((subjects: string[], flags: NodeFlags) =>
    changeBlocks(flags, { add: [], remove: subjects }),
  );
  addNodeFlags(
    block.command("list").description("list what is blocked, since when and why"),
  ).action(async (flags: NodeFlags) => {
    const answer = await askNode(flags, "/operations/blocks");
    const blocks = Array.isArray(answer["blocks"]) ? (answer["blocks"] as OperationAnswer[]) : [];
    const lines = blocks.map(({ since, kind, subject, reason }) =>
      printable(
        `${since}  ${String(kind).padEnd(7)}  ${subject}${reason === null ? "" : `  (${reason})`}`,
      ),
    );
    createReport(flags.json === true).result(answer, lines.join("\n") || "Nothing is blocked.");
  });
}

/** Each subject in a line of its own. */
export const blockQuestion = (subjects: readonly string[]): string =>
  `To be blocked:\n${subjects.map((one) => `  ${printable(one)}\n`).join("")}Block them?`;

/** An invitation in the answer of the socket. */
export type ListedInvitation = Readonly<Record<"id" | "expires_at", string>> & {
  readonly revoked_at: string | null;
  readonly uses_max: number;
  readonly note: string | null;
  readonly uses: readonly { readonly did: string | null; readonly at: string }[];
};

/**
 * To be blocked: DIDs that registered by an invitation, as `waypost invite list` shows
 * them, but for the operator's.
 */
export async function guestsOf(id: string, flags: NodeFlags): Promise<string[]> {
  const { invitations } = await askNode(flags, "/operations/invitations");
  const found = (invitations as readonly ListedInvitation[]).filter((one) => one.id.startsWith(id));
  const [one] = found;
  if (id.length < 6 || one === undefined || found.length > 1)
    throw failed(
      `${printable(id)} is not the beginning of one invitation's id, of six characters or more`,
    );
  const { operator } = await askNode(flags, "/node");
  const own = isRecord(operator) ? operator["did"] : null;
  const guests = one.uses.flatMap(({ did }) => did ?? []).filter((did) => did !== own);
  if (guests.length === 0) throw failed("this invitation let no one in who can be blocked");
  return guests;
}

type BlockRow = { readonly subject: string };
type BlockBody<T extends BlockRow> = {
  readonly add: readonly T[];
  readonly remove: readonly string[];
};

/** A body has at most 4,096 values. */
const subjectsPerRequest = 500;

/** In several requests where there are many; the counts of all. */
export async function askBlocks<T extends BlockRow>(
  flags: NodeFlags,
  { add, remove }: BlockBody<T>,
): Promise<OperationAnswer> {
  const sums = { added: 0, replaced: 0, removed: 0 };
  const missing: string[] = [];
  let entries: unknown = 0;
  for (let at = 0; at < Math.max(1, add.length, remove.length); at += subjectsPerRequest) {
    const some = <V>(all: readonly V[]) => all.slice(at, at + subjectsPerRequest);
    const body = { add: some(add), remove: some(remove) };
    const answer = await askNode(flags, "/operations/blocks", body);
    for (const name of ["added", "replaced", "removed"] as const)
      sums[name] += Number(answer[name]);
    if (Array.isArray(answer["missing"])) missing.push(...answer["missing"].map(String));
    ({ entries } = answer);
  }
  return { ...sums, missing, entries };
}

async function changeBlocks(flags: NodeFlags, body: BlockBody<BlockRow>): Promise<void> {
  const answer = await askBlocks(flags, body);
  const { added, replaced, removed, entries } = answer;
  const missing = Array.isArray(answer["missing"]) ? answer["missing"].map(String) : [];
  const counts = `added ${added}, changed ${replaced}, removed ${removed}`;
  const report = createReport(flags.json === true);
  report.result({ ok: missing.length === 0, ...answer }, `${counts}; the list has ${entries} now`);
  if (missing.length > 0) throw failedInResult(printable(`not on the list: ${missing.join(", ")}`));
}

// ---------------------------------------------------------------------------------- waypost health

async function askHealth(url: string): Promise<void> {
  const reply = await askJson(url, "/readyz");
  if (typeof reply === "string") throw failed(`${url}: ${reply}`);
  const text = reply.text.slice(0, 4_096);
  if (reply.status !== 200) throw failed(text);
  console.log(text);
}
