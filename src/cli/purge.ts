/**
 * `waypost purge`: removes waiting messages without reading them. It is an acknowledgement of what was
 * never stored, so it asks first.
 * Source: docs/ledger.md 3.3 ("Replication").
 */
import type { Command } from "commander";
import { failed } from "../app/failure.ts";
import { cachesOf } from "../client/client.ts";
import { acknowledge, listPending, type PendingMessage } from "../client/retrieve.ts";
import {
  addConnectionFlags,
  addIdentityFlag,
  type ConnectionFlags,
  chooseIdentity,
  runSession,
  type Session,
} from "./connection.ts";
import { confirmed } from "./did-change.ts";
import { countOf, printable } from "./report.ts";

type PurgeFlags = ConnectionFlags & {
  readonly as?: string;
  readonly device: string;
  readonly id?: string[];
  readonly all?: boolean;
  readonly yes?: boolean;
};

export function registerPurgeCommand(program: Command): void {
  const command = program
    .command("purge")
    .description("remove waiting messages unread; they are gone for good")
    .option("--id <id...>", "message ids or group ids")
    .option("--all", "everything that waits")
    .option("--device <id>", "the device to read as", "")
    .option("--yes", "do it without asking");
  addIdentityFlag(addConnectionFlags(command)).action((flags: PurgeFlags) =>
    runSession(flags, (session) => purge(session, flags)),
  );
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
