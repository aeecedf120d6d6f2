/**
 * `waypost reports`: what members have reported to the operator. A report waits in the mailbox of the operator's identity,
 * sealed, until it is closed: no node can read it, and this command opens it with that identity's keys. What it says of
 * authors counts as far as their signatures hold.
 * Source: docs/run.md "Reports".
 */
import type { Command } from "commander";
import { failed } from "../app/failure.ts";
import { attempt, ClientError } from "../client/base/failure.ts";
import { isTextType, reportType } from "../client/mail/content.ts";
import { essenceOf, jsonIn } from "../client/mail/message.ts";
import { parseReport, type Report, type Reported } from "../client/mail/report.ts";
import { verifyAuthor } from "../client/mail/reported.ts";
import { readMessage, recipientOf, removeUnread } from "../client/mail/retrieve.ts";
import {
  isComplete,
  listPending,
  messageIdsOf,
  type PendingMessage,
  versionsOf,
} from "../client/net/caches.ts";
import { cachesOf } from "../client/trust/caches.ts";
import { decodeUtf8 } from "../core/codec/bytes.ts";
import type { Did } from "../core/codec/did.ts";
import {
  addIdentityFlag,
  type CommandSession,
  clientCommand,
  countOf,
  printable,
  renderBytes,
} from "./command.ts";
import { confirmed } from "./did-change.ts";
import { addPlaceFlags, askNode, blockQuestion, guestsOf, type NodeFlags } from "./operations.ts";

export function registerReportsCommand(program: Command): void {
  const reports = program
    .command("reports")
    .description("what members have reported to the operator's identity");
  clientCommand(addIdentityFlag(reports.command("list").description("list reports")), listReports);
  clientCommand(
    addIdentityFlag(
      reports
        .command("show <id>")
        .description("show a report and which signatures hold, by the beginning of its id"),
    ),
    showReport,
  );
  clientCommand(
    addIdentityFlag(
      reports
        .command("close [id...]")
        .description("remove reports for good")
        .option("--from <did>", "all by this reporter"),
    ),
    close,
  );
  const block = reports
    .command("block <id>")
    .description("block the authors in a report whose signatures hold, on the running node")
    .option("--sender", "only as senders: they still receive")
    .option("--invitation", "everybody whom their invitations let in, too")
    .option("--network <network...>", "these networks, too")
    .option("--yes", "do not ask");
  clientCommand(addIdentityFlag(addPlaceFlags(block)), blockAuthors);
}

// ------------------------------------------------------------------------------------------------------ reading

type Found = Report & {
  readonly id: string;
  /** Who signed the report. */
  readonly reporter: Did;
  readonly sentMs: number;
  readonly waiting: PendingMessage;
};

/** Envelopes of the largest report; a longer message is none. */
const chunksMax = 8;

/** The oldest first. Other messages stay as they are. */
async function reportsOf(session: CommandSession): Promise<Found[]> {
  const { client, identity } = await session.open();
  const { pending, unreachable } = await listPending(await cachesOf(client, identity));
  for (const { endpoint, error } of unreachable)
    session.report.note(printable(`${endpoint}: ${error.message} (${error.code})`));
  const recipient = recipientOf(client, identity);
  const found: Found[] = [];
  for (const one of pending.filter((each) => isComplete(each) && each.parts.length <= chunksMax))
    for (const waiting of await versionsOf(one)) {
      const read = await attempt(() => readMessage(waiting, recipient));
      if (read instanceof ClientError) {
        const [id = "?"] = messageIdsOf(waiting);
        session.report.note(printable(`${id}: ${read.message} (${read.code})`));
        continue;
      }
      const { id, from, verified, sentMs, data } = read;
      const report = essenceOf(read) === reportType ? parseReport(jsonIn(data)) : null;
      // An unsigned report has no author, and what it shows was signed for somebody else.
      if (report === null || from === null || verified !== true) continue;
      found.push({ id, reporter: from, sentMs, waiting, ...report });
    }
  return found.sort((a, b) => a.sentMs - b.sentMs);
}

async function reportNamed(session: CommandSession, named: string): Promise<Found> {
  return namedIn(await reportsOf(session), named);
}

function namedIn(reports: readonly Found[], named: string): Found {
  const found = reports.filter(({ id }) => id.startsWith(named.toLowerCase()));
  const [one] = found;
  if (named.length >= 6 && one !== undefined && found.length === 1) return one;
  throw failed(
    `${printable(named)} is not the beginning of one report's id, of six characters or more`,
  );
}

const timeOf = (ms: number): string => new Date(ms).toISOString();

async function listReports(session: CommandSession): Promise<void> {
  const found = await reportsOf(session);
  const lines = found.map(({ id, reporter, sentMs, reason, messages }) => {
    const authors = [...new Set(messages.map(({ from }) => from ?? "an unnamed author"))];
    const said = reason === "" ? "" : `: ${reason}`;
    const about = `${countOf(messages.length, "message")} of ${authors.join(", ")}`;
    return `${id.slice(0, 8)}  ${timeOf(sentMs)}  ${reporter} reports ${about}${said}`;
  });
  const reports = found.map(({ id, reporter, sentMs, reason, messages }) => ({
    id,
    reporter,
    sent_at: timeOf(sentMs),
    reason,
    messages: messages.length,
    authors: [...new Set(messages.flatMap(({ from }) => from ?? []))],
  }));
  const text = lines.map(printable).join("\n") || "There are no reports.";
  session.report.result({ ok: true, reports }, text);
}

// ------------------------------------------------------------------------------------------------------ showing

/** A signature inside covers the record, and of the envelope a digest alone. */
const coversTime = ({ authorship, holds }: Judged): boolean =>
  holds === true && authorship?.is === "outside";

type Judged = Reported & { readonly holds: boolean | null };

async function judge(session: CommandSession, { reporter, messages }: Found): Promise<Judged[]> {
  return Promise.all(
    messages.map(async (one) => ({
      ...one,
      holds: await verifyAuthor(session.client, reporter, one),
    })),
  );
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

async function showReport(session: CommandSession, _flags: object, named: string | undefined) {
  const found = await reportNamed(session, named ?? "");
  const judged = await judge(session, found);
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
    signature: one.holds === null ? "unknown" : one.holds ? "holds" : "fails",
    time_signed: coversTime(one),
    content: reportedContent(one),
  }));
  const shown = { ok: true, id, reporter, sent_at: timeOf(sentMs), reason, messages };
  session.report.result(shown, lines.map(printable).join("\n"));
}

// ------------------------------------------------------------------------------------------------------- acting

type CloseFlags = { readonly from?: string };

/** Nothing is closed when one of the ids names no report. */
async function close(
  session: CommandSession,
  { from }: CloseFlags,
  named: readonly string[] | undefined = [],
): Promise<void> {
  if (named.length === 0 && from === undefined)
    throw failed("name the reports to close, or their reporter with --from");
  const found = await reportsOf(session);
  const theirs = found.filter(({ reporter }) => reporter === from);
  const closing = [...new Set([...named.map((one) => namedIn(found, one)), ...theirs])];
  const copies = closing.flatMap(({ waiting }) => waiting.parts.flat());
  const [failure] = await removeUnread(copies, { isAccepted: false });
  if (failure !== undefined) throw failure.error;
  const ids = closing.map(({ id }) => id);
  const text = ids.map((id) => `closed ${id}`).join("\n");
  session.report.result(
    { ok: true, closed: ids },
    text || "There are no reports of this reporter.",
  );
}

type BlockFlags = NodeFlags & {
  readonly sender?: boolean;
  readonly invitation?: boolean;
  readonly network?: readonly string[];
  readonly yes?: boolean;
};

async function blockAuthors(
  session: CommandSession,
  { sender = false, invitation = false, network = [], yes = false, ...flags }: BlockFlags,
  named: string | undefined,
): Promise<void> {
  const found = await reportNamed(session, named ?? "");
  const judged = await judge(session, found);
  const authors = new Set(
    judged.flatMap(({ holds, from }) => (holds === true ? (from ?? []) : [])),
  );
  if (authors.size === 0)
    throw failed("no signature in this report holds; `waypost block add` blocks without one");
  const guests = invitation ? await guestsBeside([...authors], flags) : [];
  // A report must not harm its reporter, who may have come by the same invitation.
  const others = guests.filter((did) => did !== found.reporter);
  const subjects = [...new Set<string>([...authors, ...others, ...network])];
  confirmed(blockQuestion(subjects), { yes });
  const reason = `report ${found.id.slice(0, 8)}`;
  const add = subjects.map((subject) => ({ subject, sender_only: sender, reason }));
  const answer = await askNode(flags, "/operations/blocks", { add, remove: [] });
  session.report.result(
    { ok: true, id: found.id, blocked: subjects, ...answer },
    `blocked ${subjects.map(printable).join(", ")}; the report is still open`,
  );
}

/** Everybody whom the invitations of these members let in. */
async function guestsBeside(dids: readonly string[], flags: NodeFlags): Promise<string[]> {
  const ids = new Set<string>();
  for (const member of dids) {
    const { invitation } = await askNode(flags, "/operations/member", { member });
    if (typeof invitation === "string") ids.add(invitation);
  }
  if (ids.size === 0) throw failed("none of the authors registered by an invitation");
  return (await Promise.all([...ids].map((id) => guestsOf(id, flags)))).flat();
}
