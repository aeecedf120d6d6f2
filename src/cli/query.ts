/**
 * `waypost query`: what waits in the Caches of an identity, without fetching or removing anything.
 * Source: docs/ledger.md 3.3, decisions section 6 ("Further reads").
 */
import type { Command } from "commander";
import { cachesOf } from "../client/client.ts";
import { isComplete, listParcels } from "../client/retrieve.ts";
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
    .description("list what waits, without taking it")
    .option("--device <id>", "the device to read as", "");
  addIdentityFlag(addConnectionFlags(command)).action((flags: QueryFlags) =>
    runSession(flags, (session) => query(session, flags)),
  );
}

async function query(session: Session, flags: QueryFlags): Promise<void> {
  const identity = await chooseIdentity(session, flags.as);
  const { parcels, unreachable } = await listParcels(await cachesOf(session.client, identity, flags.device));
  const waiting = parcels.map((parcel) => ({
    message_group_id: parcel.groupId,
    message_ids: parcel.held.map(({ messageId }) => messageId),
    held: parcel.parts.length,
    total: parcel.total,
    complete: isComplete(parcel),
    expires_at: new Date(Math.min(...parcel.parts.map(({ expiresAtMs }) => expiresAtMs))).toISOString(),
    caches: [...new Set(parcel.held.flatMap(({ at }) => at.map(({ reader }) => reader.at.url)))],
  }));
  const lines = waiting.map(
    ({ message_group_id, message_ids, held, total, expires_at }) =>
      `${message_group_id ?? message_ids[0]} ${held} of ${total}, until ${expires_at}`,
  );
  const troubles = unreachable.map(({ endpoint, error }) => ({
    what: endpoint,
    code: error.code,
    message: error.message,
  }));
  for (const { what, message } of troubles) session.report.note(printable(`${what}: ${message}`));
  session.report.result(
    { ok: true, count: waiting.length, waiting, unreachable: troubles },
    lines.join("\n") || `Nothing is waiting${troubles.length === 0 ? "" : " where an answer came"}.`,
  );
}
