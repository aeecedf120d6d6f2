/**
 * `waypost reports`: what members have reported to the operator. Each command takes what waits in
 * the mailbox of the operator's identity, opens it with that identity's keys, and keeps it sealed
 * on this machine until it is closed: no node can read a report. What it says of authors counts as
 * far as their signatures hold.
 * Source: docs/run.md "Reports".
 */
import { join } from "node:path";
import type { Command } from "commander";
import { failed } from "../app/failure.ts";
import { attempt, ClientError } from "../client/base/failure.ts";
import { isTextType, reportType } from "../client/mail/content.ts";
import { essenceOf, jsonIn } from "../client/mail/message.ts";
import { parseReport, type Reported } from "../client/mail/report.ts";
import { verifyAuthor } from "../client/mail/reported.ts";
import { type Recipient, readMessage, recipientOf, removeUnread } from "../client/mail/retrieve.ts";
import {
  isComplete,
  listPending,
  messageIdsOf,
  type PendingMessage,
  versionsOf,
} from "../client/net/caches.ts";
import { cachesOf } from "../client/trust/caches.ts";
import type { Waypost } from "../client/waypost.ts";
import { decodeUtf8 } from "../core/codec/bytes.ts";
import type { Did } from "../core/codec/did.ts";
import { addIdentityFlag, clientCommand, countOf, printable, renderBytes } from "./command.ts";
import type { CommandSession } from "./command-session.ts";
import { confirmed } from "./did-change.ts";
import { stateFolder } from "./files/files.ts";
import {
  type KeptReport,
  KeptReports,
  keptPerReporter,
  type SignedReport,
} from "./files/kept-reports.ts";
import {
  addPlaceFlags,
  askBlocks,
  askNode,
  blockQuestion,
  guestsOf,
  type NodeFlags,
} from "./operations.ts";

export function registerReportsCommand(program: Command): void {
  const reports = program
    .command("reports")
    .description("what members have reported to the operator's identity");
  clientCommand(
    addIdentityFlag(
      reports
        .command("list")
        .description("list reports, of one reporter the first five")
        .option("--from <did>", "all by this reporter"),
    ),
    listReports,
  );
  clientCommand(
    addIdentityFlag(
      reports
        .command("show <id>")
        .description("show a report and which signatures hold, by the beginning of its id"),
    ),
    showReport,
  );
  const closing = reports
    .command("close [id...]")
    .description("remove reports for good")
    .option("--from <did>", "all by this reporter")
    .option("--invitation <id>", "all by those whom this invitation let in")
    .option("--yes", "do not ask before all of an invitation are removed");
  clientCommand(addIdentityFlag(addPlaceFlags(closing)), closeReports);
  const block = reports
    .command("block <id>")
    .description("block the authors in a report whose signatures hold, on the running node")
    .option("--sender", "only as senders: they still receive")
    .option("--invitation", "everybody whom their invitations let in, too")
    .option("--network <network...>", "these networks, too")
    .option("--yes", "do not ask");
  clientCommand(addIdentityFlag(addPlaceFlags(block)), blockAuthors);
}

// ----------------------------------------------------------------------------------------- reading

/** Envelopes of the largest report; a longer message is none. */
const chunksMax = 8;

/** Another command that has the reports open is over within this time. */
const busyMs = 10_000;

/** With all that waits; closed after the work. */
async function withReports(
  session: CommandSession,
  work: (kept: KeptReports) => Promise<void>,
): Promise<void> {
  const { client, identity } = await session.open();
  const path = join(stateFolder(session.keysFolder, identity.name), "reports.sqlite");
  const kept = await openUntilFree(path, identity.storeKey);
  try {
    await fetchInto(kept, session, { client, identity });
    await work(kept);
  } finally {
    await kept.close();
  }
}

async function openUntilFree(path: string, storeKey: Uint8Array): Promise<KeptReports> {
  for (const endMs = performance.now() + busyMs; ; await Bun.sleep(100)) {
    const opened = await attempt(() => KeptReports.open(path, storeKey));
    if (!(opened instanceof ClientError)) return opened;
    if (opened.code !== "busy" || performance.now() > endMs) throw opened;
  }
}

/** A report leaves the mailbox once it is on the disk here. Other messages stay there. */
async function fetchInto(
  kept: KeptReports,
  { report: said }: CommandSession,
  { client, identity }: Pick<Waypost, "client" | "identity">,
): Promise<void> {
  const { pending, unreachable } = await listPending(await cachesOf(client, identity));
  for (const { endpoint, error } of unreachable)
    said.note(printable(`${endpoint}: ${error.message} (${error.code})`));
  const recipient = recipientOf(client, identity);
  const full = new Set<Did>();
  for (const one of pending.filter((each) => isComplete(each) && each.parts.length <= chunksMax))
    for (const waiting of await versionsOf(one)) {
      const signed = await attempt(() => openReport(waiting, recipient));
      if (signed instanceof ClientError) {
        const [id = "?"] = messageIdsOf(waiting);
        said.note(printable(`${id}: ${signed.message} (${signed.code})`));
      } else if (signed !== null && !(await kept.add(signed))) full.add(signed.reporter);
      else if (signed !== null) await removeFromMailbox(waiting, said);
    }
  for (const reporter of full)
    said.note(`${reporter} has ${keptPerReporter} open reports: others wait in the mailbox`);
}

/**
 * `null` for other messages. An unsigned report has no author, and what it shows was
 * signed for somebody else.
 */
async function openReport(
  waiting: PendingMessage,
  recipient: Recipient,
): Promise<SignedReport | null> {
  const read = await readMessage(waiting, recipient);
  const { id, from, verified, sentMs, data } = read;
  const report = essenceOf(read) === reportType ? parseReport(jsonIn(data)) : null;
  if (report === null || from === null || verified !== true) return null;
  return { id, reporter: from, sentMs, report };
}

/** What stays is taken again, and counts once. Who reports becomes known to no mailbox. */
async function removeFromMailbox(
  { parts }: PendingMessage,
  said: CommandSession["report"],
): Promise<void> {
  const failures = await removeUnread(parts.flat(), { isAccepted: false });
  for (const { endpoint, error } of failures)
    said.note(printable(`${endpoint}: ${error.message} (${error.code})`));
}

function namedIn(reports: readonly KeptReport[], named: string): KeptReport {
  const found = reports.filter(({ id }) => id.startsWith(named.toLowerCase()));
  const [one] = found;
  if (named.length >= 6 && one !== undefined && found.length === 1) return one;
  throw failed(
    `${printable(named)} is not the beginning of one report's id, of six characters or more`,
  );
}

const timeOf = (ms: number): string => new Date(ms).toISOString();

/** Of one reporter, so that a flood hides no other's. */
const linesPerReporter = 5;

type ListFlags = { readonly from?: string };

const listReports = (session: CommandSession, { from }: ListFlags) =>
  withReports(session, async (kept) => {
    const found = (await kept.list()).filter(
      ({ reporter }) => from === undefined || reporter === from,
    );
    const lines = [...Map.groupBy(found, ({ reporter }) => reporter)].flatMap(([who, theirs]) => {
      const shown = from === undefined ? theirs.slice(0, linesPerReporter) : theirs;
      const more = theirs.length - shown.length;
      const rest = `          and ${more} more of ${who}: \`waypost reports list --from ${who}\``;
      return [...shown.map(lineOf), ...(more === 0 ? [] : [rest])];
    });
    const reports = found.map(({ id, reporter, sentMs, reason, count, authors }) => ({
      id,
      reporter,
      sent_at: timeOf(sentMs),
      reason,
      messages: count,
      authors: authors.filter((one) => one !== null),
    }));
    const people = new Set(found.map(({ reporter }) => reporter)).size;
    const by = people === 1 ? "1 reporter" : `${people} reporters`;
    const total = `${countOf(found.length, "report")} of ${by}`;
    const text = found.length === 0 ? "There are no reports." : [...lines, total];
    session.report.result({ ok: true, reports }, [text].flat().map(printable).join("\n"));
  });

function lineOf({ id, reporter, sentMs, reason, count, authors }: KeptReport): string {
  const names = authors.map((one) => one ?? "an unnamed author").join(", ");
  const said = reason === "" ? "" : `: ${reason}`;
  const about = `${countOf(count, "message")} of ${names}`;
  return `${id.slice(0, 8)}  ${timeOf(sentMs)}  ${reporter} reports ${about}${said}`;
}

// ----------------------------------------------------------------------------------------- showing

/** A signature inside covers the record, and of the envelope a digest alone. */
const coversTime = ({ authorship, holds }: Judged): boolean =>
  holds === true && authorship?.is === "outside";

type Judged = Reported & { readonly holds: boolean | null };

async function judge(
  session: CommandSession,
  kept: KeptReports,
  named: KeptReport,
): Promise<Judged[]> {
  const { reporter } = named;
  const { messages } = await kept.reportOf(named);
  return Promise.all(
    messages.map(async (one) => ({
      ...one,
      holds: await verifyAuthor(session.client, reporter, one),
    })),
  );
}

function signatureState(holds: boolean | null): "unknown" | "holds" | "fails" {
  if (holds === null) return "unknown";
  return holds ? "holds" : "fails";
}

const reportVerdict = (judged: Judged): string => {
  const { holds } = judged;
  const isTimeSigned = coversTime(judged);
  if (holds === null) return "nothing shows who wrote it";
  const timeNote = isTimeSigned ? "" : ", for its words and not for the time";
  return holds
    ? `its signature holds${timeNote}`
    : "ITS SIGNATURE DOES NOT HOLD by the author's present keys";
};

function reportedContent({ data, mediaType, name, sizeBytes }: Judged): string {
  const isText = isTextType(mediaType) || mediaType.includes("json");
  const text = data !== null && isText ? decodeUtf8(data) : null;
  return text ?? `a file ${name} (${mediaType}, ${renderBytes(sizeBytes)})`;
}

const showReport = (session: CommandSession, _flags: object, named: string | undefined) =>
  withReports(session, async (kept) => {
    const found = namedIn(await kept.list(), named ?? "");
    const judged = await judge(session, kept, found);
    const { id, reporter, sentMs, reason } = found;
    const lines = [
      `report ${id} of ${timeOf(sentMs)} by ${reporter}`,
      ...(reason === "" ? [] : [`reason: ${reason}`]),
      ...judged.flatMap((one, i) => [
        `${i + 1}. ${timeOf(one.sentMs)}  ${one.from ?? "an unnamed author"}: ${reportVerdict(one)}`,
        ...reportedContent(one)
          .split("\n")
          .map((line) => `   ${line}`),
      ]),
    ];
    const messages = judged.map((one) => ({
      id: one.id,
      from: one.from,
      sent_at: timeOf(one.sentMs),
      group: one.group,
      media_type: one.mediaType,
      signature: signatureState(one.holds),
      time_signed: coversTime(one),
      content: reportedContent(one),
    }));
    const shown = { ok: true, id, reporter, sent_at: timeOf(sentMs), reason, messages };
    session.report.result(shown, lines.map(printable).join("\n"));
  });

// ------------------------------------------------------------------------------------------ acting

type CloseFlags = NodeFlags & {
  readonly from?: string;
  readonly invitation?: string;
  readonly yes?: boolean;
};

/** Nothing is closed when one of the ids names no report. */
const closeReports = (
  session: CommandSession,
  { from, invitation, yes = false, ...flags }: CloseFlags,
  named: readonly string[] | undefined = [],
) =>
  withReports(session, async (kept) => {
    if (named.length === 0 && from === undefined && invitation === undefined)
      throw failed("name the reports to close, or their reporters with --from or --invitation");
    const guests = invitation === undefined ? [] : await guestsOf(invitation, flags);
    const reporters = new Set<string | undefined>([from, ...guests]);
    const found = await kept.list();
    const theirs = found.filter(({ reporter }) => reporters.has(reporter));
    const closing = [...new Set([...named.map((one) => namedIn(found, one)), ...theirs])];
    const total = countOf(closing.length, "report");
    if (invitation !== undefined && closing.length > 0)
      confirmed(`Remove ${total} for good?`, { yes });
    await kept.remove(closing);
    const ids = closing.map(({ id }) => id);
    const each = ids.map((id) => `closed ${id}`).join("\n");
    const text = invitation === undefined || ids.length === 0 ? each : `closed ${total}`;
    session.report.result({ ok: true, closed: ids }, text || "There are no such reports.");
  });

type BlockFlags = NodeFlags & {
  readonly sender?: boolean;
  readonly invitation?: boolean;
  readonly network?: readonly string[];
  readonly yes?: boolean;
};

const blockAuthors = (
  session: CommandSession,
  { sender = false, invitation = false, network = [], yes = false, ...flags }: BlockFlags,
  named: string | undefined,
) =>
  withReports(session, async (kept) => {
    const found = namedIn(await kept.list(), named ?? "");
    const judged = await judge(session, kept, found);
    const authors = new Set(
      judged.flatMap(({ holds, from }) => (holds === true ? (from ?? []) : [])),
    );
    // The operator can't be blocked, and what it wrote may be among the others.
    authors.delete((await session.identity()).did);
    if (authors.size === 0)
      throw failed("no signature in this report holds; `waypost block add` blocks without one");
    const guests = invitation ? await guestsOfMembers([...authors], flags) : [];
    // A report must not harm its reporter, who may have come by the same invitation.
    const others = guests.filter((did) => did !== found.reporter);
    const subjects = [...new Set<string>([...authors, ...others, ...network])];
    confirmed(blockQuestion(subjects), { yes });
    const reason = `report ${found.id.slice(0, 8)}`;
    const add = subjects.map((subject) => ({ subject, sender_only: sender, reason }));
    const answer = await askBlocks(flags, { add, remove: [] });
    session.report.result(
      { ok: true, id: found.id, blocked: subjects, ...answer },
      `blocked ${subjects.map(printable).join(", ")}; the report is still open`,
    );
  });

/** Everybody whom the invitations of these members let in. */
async function guestsOfMembers(dids: readonly string[], flags: NodeFlags): Promise<string[]> {
  const ids = new Set<string>();
  for (const member of dids) {
    const { invitation } = await askNode(flags, "/operations/member", { member });
    if (typeof invitation === "string") ids.add(invitation);
  }
  if (ids.size === 0) throw failed("none of the authors registered by an invitation");
  return (await Promise.all([...ids].map((id) => guestsOf(id, flags)))).flat();
}
