/** `waypost audit`: who did what on the running node, over its Unix socket. */
import type { Command } from "commander";
import { createReport, parseBetween, printable } from "./command.ts";
import { addNodeFlags, askNode, type NodeFlags } from "./operations.ts";

type AuditFlags = NodeFlags & {
  readonly user?: string;
  readonly action?: string;
  readonly about?: string;
  readonly limit: number;
};

export function registerAuditCommand(program: Command): void {
  addNodeFlags(
    program
      .command("audit")
      .description("show who did what on the running node, newest first")
      .option("--user <name>", "only what this Unix user did")
      .option("--action <name>", "only this action, such as members.erase, or those of an area")
      .option("--about <text>", "only what concerns this, such as a DID")
      .option("--limit <number>", "how many", parseBetween(1, 10_000), 100),
  ).action(showAudit);
}

/** A record as it travels. */
type AuditQuery = Readonly<Record<"at" | "until" | "action" | "outcome", string>> & {
  readonly user: string | null;
  readonly about: readonly string[];
  readonly said: readonly string[];
  readonly times: number;
};

async function showAudit(flags: AuditFlags): Promise<void> {
  const { user = null, action = null, about = null, limit } = flags;
  const answer = await askNode(flags, "/operations/audit", { user, action, about, limit });
  const lines = (answer["records"] as readonly AuditQuery[]).map((one) =>
    printable(auditLine(one)),
  );
  const isChosen = user !== null || action !== null || about !== null;
  const none = isChosen ? "no record matches" : "Nothing was done yet.";
  createReport(flags.json === true).result(answer, lines.join("\n") || none);
}

/** What an operator wrote stands in quotes, so that it can't look like a subject. */
const plainText = /^(?:[+-] |from |tier )?[\w:./@%-]+$/;
const aboutText = (one: string): string => (plainText.test(one) ? one : JSON.stringify(one));

function auditLine(record: AuditQuery): string {
  const { at, user, action, about, said, outcome, times, until } = record;
  const words = [...about.map(aboutText), ...said.map((text) => JSON.stringify(text))].join(" ");
  const marks = [
    ...(outcome === "done" ? [] : [`refused: ${outcome}`]),
    ...(times === 1 ? [] : [`${times} times until ${until}`]),
  ];
  const end = marks.length === 0 ? "" : `  (${marks.join(", ")})`;
  return `${at}  ${(user ?? "-").padEnd(12)}  ${action.padEnd(20)}  ${words}${end}`.trimEnd();
}
