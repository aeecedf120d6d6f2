/**
 * `waypost query`: what waits in the Caches of an identity, without fetching or removing anything.
 * Source: docs/ledger.md 3.3, rules section 6 ("Further reads").
 */
import type { Command } from "commander";
import { cachesOf } from "../client/client.ts";
import { isComplete, listPending } from "../client/retrieve.ts";
import {
  addConnectionFlags,
  addIdentityFlag,
  type ConnectionFlags,
  chooseIdentity,
  runSession,
  type Session,
} from "./connection.ts";
import { printable } from "./report.ts";

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
