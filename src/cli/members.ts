/**
 * `waypost members`: who is on the running node, over its Unix socket. Nothing here is a secret of
 * theirs; what waits for them is counted and can't be read.
 */
import { writeFile } from "node:fs/promises";
import { type Command, Option } from "commander";
import type { MemberRow } from "../nodes/operations/members.ts";
import { countOf, createReport, print, printable, renderBytes } from "./command.ts";
import { addNodeFlags, askNode, type NodeFlags } from "./operations.ts";

export function registerMembersCommand(program: Command): void {
  const members = program.command("members").description("who is on the running node");
  addNodeFlags(members.command("list").description("list the members")).action((flags: NodeFlags) =>
    listMembers(null, flags),
  );
  addNodeFlags(
    members
      .command("search <text>")
      .description("list members by a part of their DID, alias or invitation"),
  ).action(listMembers);
  addNodeFlags(
    members.command("show <member>").description("show one member, by DID or alias"),
  ).action(showMember);
  addNodeFlags(
    members
      .command("set-tier <member> <tier>")
      .description("give a member a tier of the configuration; `default` takes it away"),
  ).action(setTier);
  addNodeFlags(members.command("export [file]").description("write all members as CSV"))
    .addOption(new Option("--search <text>", "only those that `search` lists"))
    .action(exportAll);
}

async function listMembers(search: string | null, flags: NodeFlags): Promise<void> {
  const report = createReport(flags.json === true);
  const all: MemberRow[] = [];
  for await (const page of pagesOf(search, flags)) {
    all.push(...page);
    if (flags.json === true || page.length === 0) continue;
    const header = all.length === page.length ? [`${"since".padEnd(10)}  last seen   member`] : [];
    const lines = page.map((one) => printable(memberLine(one)));
    report.result(null, [...header, ...lines].join("\n"));
  }
  const total = search === null ? countOf(all.length, "member") : `${all.length} found`;
  report.result({ members: all }, total);
}

async function showMember(named: string, flags: NodeFlags): Promise<void> {
  const answer = await askNode(flags, "/operations/member", { member: named });
  const lines = Object.entries(memberTexts(answer as MemberRow)).map(
    ([name, value]) => `${name.padEnd(16)} ${value}`,
  );
  createReport(flags.json === true).result(answer, lines.map(printable).join("\n"));
}

async function setTier(member: string, tier: string, flags: NodeFlags): Promise<void> {
  const body = { member, tier: tier === "default" ? null : tier };
  const answer = await askNode(flags, "/operations/tier", body);
  createReport(flags.json === true).result(answer, `${answer["did"]} has the tier ${tier}`);
}

type ExportFlags = NodeFlags & { readonly search?: string };

async function exportAll(
  file: string | undefined,
  { search = null, ...flags }: Omit<ExportFlags, "search"> & { search?: string | null },
): Promise<void> {
  const rows: MemberRow[] = [];
  for await (const page of pagesOf(search, flags)) rows.push(...page);
  const csv = renderCsv(rows);
  const report = createReport(flags.json === true);
  // As in a file: the lines of CSV end with CR LF.
  if (file === undefined) {
    if (flags.json === true) report.result({ csv }, "");
    else print(csv);
    return;
  }
  await writeFile(file, csv, { mode: 0o600 });
  report.result({ file, members: rows.length }, `${countOf(rows.length, "member")} in ${file}`);
}

async function* pagesOf(
  search: string | null,
  flags: NodeFlags,
): AsyncGenerator<readonly MemberRow[]> {
  for (let after: unknown = null; ; ) {
    const answer = await askNode(flags, "/operations/members", { search, after });
    yield answer["members"] as readonly MemberRow[];
    after = answer["next"];
    if (after === null) return;
  }
}

function memberLine(member: MemberRow): string {
  const { since, seen, waiting, blocked } = memberTexts(member);
  const tier = member.tier === null ? "" : `tier ${tierText(member)}`;
  const names = [member.did, ...member.aliases].join(" ");
  const { invitation } = member;
  const invited = invitation === null ? "" : `invitation ${invitation.slice(0, 12)}`;
  const marks = [tier, waiting, blocked, invited].filter((text) => text !== "").join(", ");
  return `${since.slice(0, 10)}  ${seen.padEnd(10)}  ${names}${marks === "" ? "" : `  (${marks})`}`;
}

/** What each member of the answer says to a person. */
function memberTexts(member: MemberRow) {
  const { did, aliases, state, since, invitation, last_seen, blocked } = member;
  const entries = member.waiting_entries ?? 0;
  return {
    did,
    aliases: aliases.join(" ") || "none",
    record: recordText(state),
    since,
    invitation: invitation ?? "none",
    tier: tierText(member),
    seen: last_seen ?? "-",
    waiting:
      entries === 0
        ? ""
        : `${countOf(entries, "message")} waiting, ${renderBytes(member.waiting_bytes ?? 0)}`,
    blocked: blocked === null ? "" : `blocked${blocked === "sender" ? " as a sender" : ""}`,
  };
}

function tierText({ tier, tier_lost }: MemberRow): string {
  if (tier === null) return "default";
  return tier_lost ? `${tier}: has no table in the configuration, so the default counts` : tier;
}

function recordText(state: MemberRow["state"]): string {
  if (state === null) return "at another Directory";
  return state === "none" ? "none: not registered, or deleted" : state;
}

const columns = [
  "did",
  "aliases",
  "state",
  "since",
  "invitation",
  "last_seen",
  "waiting_entries",
  "waiting_bytes",
  "tier",
  "blocked",
] as const satisfies readonly (keyof MemberRow)[];

/**
 * RFC 4180, with a line of names. No value can hold a comma, a quote or the end of a
 * line, and none is a formula.
 */
function renderCsv(rows: readonly MemberRow[]): string {
  const cellOf = (value: MemberRow[keyof MemberRow]) => {
    const text = value === null ? "" : [value].flat().join(" ");
    // A spreadsheet would compute it: an alias may begin with a minus.
    return /^[=+@-]/.test(text) ? `'${text}` : text;
  };
  const lines = rows.map((row) => columns.map((name) => cellOf(row[name])).join(","));
  return [columns.join(","), ...lines].map((line) => `${line}\r\n`).join("");
}
