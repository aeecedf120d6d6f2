/**
 * What waits in the Caches of an identity: `waypost query` lists it without fetching anything, `waypost purge` removes
 * it without reading. A purge acknowledges what was never stored, so it asks first. With `--recipient` it is the
 * operator's: the running node removes what waits for that DID, without a proof of the recipient.
 * Source: docs/ledger.md 3.3 ("Replication"), rules section 6 ("Further reads").
 */
import type { Command } from "commander";
import { failed } from "../app/failure.ts";
import { cachesOf } from "../client/client.ts";
import { acknowledge, isComplete, listPending, type PendingMessage } from "../client/retrieve.ts";
import { defaultConfigFile } from "./config.ts";
import {
  addConnectionFlags,
  addIdentityFlag,
  type ConnectionFlags,
  chooseIdentity,
  runSession,
  type Session,
} from "./connection.ts";
import { confirmed } from "./did-change.ts";
import { askNode } from "./operations.ts";
import { countOf, createReport, printable, renderBytes } from "./report.ts";

type QueryFlags = ConnectionFlags & { readonly as?: string; readonly device: string };

export function registerQueryCommand(program: Command): void {
  const command = program
    .command("query")
    .description("list waiting messages without removing them")
    .option("--device <id>", "the device to read as", "");
  addIdentityFlag(addConnectionFlags(command)).action((flags: QueryFlags) =>
    runSession(flags, (session) => query(session, flags)),
  );
}

async function query(session: Session, flags: QueryFlags): Promise<void> {
  const identity = await chooseIdentity(session, flags.as);
  const { pending, unreachable } = await listPending(await cachesOf(session.client, identity, flags.device));
  const waiting = pending.map((message) => ({
    message_group_id: message.groupId,
    message_ids: message.held.map(({ messageId }) => messageId),
    held: message.parts.length,
    total: message.total,
    complete: isComplete(message),
    expires_at: new Date(Math.min(...message.parts.map(({ expiresAtMs }) => expiresAtMs))).toISOString(),
    caches: [...new Set(message.held.flatMap(({ at }) => at.map(({ reader }) => reader.at.url)))],
  }));
  const lines = waiting.map(
    ({ message_group_id, message_ids, held, total, expires_at }) =>
      `${message_group_id ?? message_ids[0]} ${held} of ${total}, until ${expires_at}`,
  );
  const problems = unreachable.map(({ endpoint, error }) => ({
    what: endpoint,
    code: error.code,
    message: error.message,
  }));
  for (const { what, message } of problems) session.report.note(printable(`${what}: ${message}`));
  session.report.result(
    { ok: true, count: waiting.length, waiting, unreachable: problems },
    lines.join("\n") || `Nothing is waiting${problems.length === 0 ? "" : " where an answer came"}.`,
  );
}

// -------------------------------------------------------------------------------------------------- purge

type PurgeFlags = ConnectionFlags & {
  readonly as?: string;
  readonly device: string;
  readonly id?: string[];
  readonly all?: boolean;
  readonly yes?: boolean;
  readonly recipient?: string;
  readonly config?: string;
  readonly socket?: string;
};

export function registerPurgeCommand(program: Command): void {
  const command = program
    .command("purge")
    .description("remove waiting messages without reading them; they can't be recovered")
    .option("--id <id...>", "message ids or group ids")
    .option("--all", "everything that waits")
    .option("--device <id>", "the device to read as", "")
    .option("--yes", "do it without asking")
    .option("--recipient <did>", "for operators: everything that waits for this DID on the running node of --config")
    .option("-c, --config <file>", `configuration file of that node (default: "${defaultConfigFile}")`)
    .option("--socket <path>", "Unix socket of that node's admin_listen, in place of --config");
  addIdentityFlag(addConnectionFlags(command)).action((flags: PurgeFlags) =>
    flags.recipient === undefined
      ? runSession(flags, (session) => purge(session, flags))
      : purgeRecipient(flags.recipient, flags),
  );
}

async function purgeRecipient(recipient: string, flags: PurgeFlags): Promise<void> {
  if (flags.all !== undefined || flags.id !== undefined || flags.as !== undefined)
    throw failed("--recipient stands without --id, --all and --as");
  confirmed(`Remove everything that waits for ${printable(recipient)}?`, flags);
  const answer = await askNode(flags, "/operations/purge", { recipient });
  const { entries, bytes } = answer;
  const text = `${countOf(Number(entries), "message")} removed, ${renderBytes(Number(bytes))}.`;
  createReport(flags.json === true).result({ ok: true, recipient, entries, bytes }, text);
}

async function purge(session: Session, flags: PurgeFlags): Promise<void> {
  if ((flags.all === true) === (flags.id !== undefined)) throw failed("say which: --id <id...> or --all");
  const identity = await chooseIdentity(session, flags.as);
  const { pending, unreachable } = await listPending(await cachesOf(session.client, identity, flags.device));
  for (const { endpoint, error } of unreachable) session.report.note(printable(`${endpoint}: ${error.message}`));
  const chosen = flags.all === true ? pending : pending.filter((message) => names(message, flags.id ?? []));
  const messageIds = chosen.flatMap((message) => message.held.map(({ messageId }) => messageId));
  if (messageIds.length > 0) confirmed(`Remove ${countOf(messageIds.length, "message")} unread?`, flags);
  const failures = await acknowledge(chosen);
  if (failures[0] !== undefined) throw failures[0].error;
  session.report.result(
    { ok: true, removed: messageIds.length, message_ids: messageIds },
    messageIds.length === 0 ? "Nothing to remove." : `${countOf(messageIds.length, "message")} removed.`,
  );
}

/** A group is named by its own id or by that of any of its messages: chunks alone are worth nothing. */
function names(message: PendingMessage, ids: readonly string[]): boolean {
  const wanted = new Set(ids.map((id) => id.toLowerCase()));
  return wanted.has(message.groupId ?? "") || message.held.some(({ messageId }) => wanted.has(messageId));
}
