/**
 * `waypost receive` fetches the messages that wait in the Caches of an identity, writes each file to disk, and only then
 * acknowledges it; with `--follow` it receives until interrupted, live from the Relays too, and reconnects by itself.
 * `waypost query` lists waiting messages without fetching them, `waypost purge` removes them unread.
 * Source: rules sections 5 ("Live sessions") and 6.
 */
import { existsSync } from "node:fs";
import type { Command } from "commander";
import { failed, failedInResult, timedOut } from "../app/failure.ts";
import { cachesOf, isComplete, listPending, messageIdsOf, type PendingMessage } from "../client/caches.ts";
import { removeUnread } from "../client/retrieve.ts";
import {
  addIdentityFlag,
  clientCommand,
  countOf,
  describeTrust,
  parseWait,
  printable,
  renderBar,
  renderBytes,
  type Session,
} from "./command.ts";
import { withStore } from "./device.ts";
import { confirmed } from "./did-change.ts";
import { stateFolder } from "./files/files.ts";
import { type Inbox, openInbox, type Problem, type Received, type Round } from "./files/inbox.ts";
import { storePath } from "./files/store.ts";

export function registerReceiveCommands(program: Command): void {
  const receiveCommand = program
    .command("receive")
    .description("fetch, decrypt and store waiting messages, then acknowledge them")
    .requiredOption("--out <folder>", "folder for the files")
    .option(
      "--wait-for <duration>",
      "wait for messages, for at most this long: 30s, 5m (default: do not wait)",
      parseWait,
    )
    .option("--follow", "keep receiving until interrupted, live too");
  clientCommand(addIdentityFlag(receiveCommand), receive);
  const queryCommand = program.command("query").description("list waiting messages without removing them");
  clientCommand(addIdentityFlag(queryCommand), query);
  const purgeCommand = program
    .command("purge")
    .description("remove waiting messages without reading them; they can't be recovered")
    .option("--id <id...>", "message ids or group ids")
    .option("--all", "all waiting messages")
    .option("--yes", "do not ask for confirmation");
  clientCommand(addIdentityFlag(purgeCommand), purge);
}

// ------------------------------------------------------------------------------------------------------------ receive

type ReceiveFlags = { readonly out: string; readonly follow?: boolean; readonly waitFor?: number };

/** Pause between two reads while waiting. */
const pollMs = 1_000;

/** The inbox is this process's alone until the work is done. */
async function receive(session: Session, { out: folder, follow, waitFor = 0 }: ReceiveFlags): Promise<void> {
  const { keysFolder, report } = session;
  const { name } = await session.identity();
  // Of a linked device the others get what it receives.
  const me = await session.open(existsSync(storePath(keysFolder, name)) ? withStore(session, name) : {});
  const onChunk = (done: number, total: number) => report.progress(`receiving ${renderBar(done, total)}`);
  const inbox = await openInbox(me, { folder, state: stateFolder(keysFolder, name), onChunk });
  const work = follow === true ? followInbox(session, inbox) : receiveWaiting(session, inbox, waitFor);
  await work.finally(inbox.close);
}

async function receiveWaiting({ report }: Session, inbox: Inbox, waitMs: number): Promise<void> {
  const begunMs = performance.now();
  let round = await inbox.receive();
  while (round.received.length === 0 && performance.now() - begunMs < waitMs) {
    report.progress("nothing yet");
    await Bun.sleep(Math.min(pollMs, waitMs));
    round = await inbox.receive();
  }
  if (waitMs > 0 && round.received.length + round.unreadable.length + round.failed.length === 0)
    throw timedOut("nothing arrived");
  report.result(renderRound(round), describeRound(round).join("\n") || "Nothing is waiting.");
  if (round.failed.length > 0) throw failedInResult(`not received: ${countOf(round.failed.length, "message")}`);
}

async function followInbox({ report }: Session, inbox: Inbox): Promise<void> {
  const stop = new AbortController();
  for (const name of ["SIGINT", "SIGTERM"]) process.once(name, () => stop.abort());
  // Each problem is reported once.
  const reported = new Set<string>();
  const onRound = (round: Round) => {
    const problems = [...round.unreadable, ...round.failed, ...round.unreachable];
    const isNew = problems.every(({ what, code }) => !reported.has(`${what} ${code}`));
    if (!isNew || round.received.length + problems.length === 0) return;
    for (const { what, code } of problems) if (reported.size < 10_000) reported.add(`${what} ${code}`);
    report.result(renderRound(round), describeRound(round).join("\n"));
  };
  await inbox.follow(onRound, stop.signal);
}

function renderRound({ failed, unreachable, ...round }: Round): Record<string, unknown> {
  const received = round.received.map((one) => ({
    path: one.path,
    name: one.name,
    media_type: one.mediaType,
    size_bytes: one.sizeBytes,
    sha256: one.sha256,
    message_ids: one.messageIds,
    from: one.from,
    from_verified: one.verified,
    from_trust: one.trust,
    from_distrusted: one.distrusted,
  }));
  const incomplete = round.incomplete.map(({ groupId, held, total }) => ({ message_group_id: groupId, held, total }));
  const unreadable = round.unreadable.map((one) => ({ ...one, remove: removal(one) }));
  return { ok: failed.length === 0, received, incomplete, unreadable, failed, unreachable };
}

function describeRound({ received, incomplete, unreadable, failed, unreachable }: Round): string[] {
  const lines = [
    ...received.map((one) => `${one.path} (${renderBytes(one.sizeBytes)}) ${describeSender(one)}`),
    ...incomplete.map(({ held, total }) => `a file is on its way: ${held} of ${total} chunks so far`),
    ...unreadable.map((one) => `${describe(one)}; to remove it unread: ${removal(one)}`),
    ...[...failed, ...unreachable].map(describe),
  ];
  return lines.map(printable);
}

const describe = ({ what, message, code }: Problem): string => `${what}: ${message} (${code})`;
const removal = ({ what }: Problem): string => `waypost purge --id ${what}`;

function describeSender({ from, verified, trust, distrusted }: Received): string {
  if (from === null) return "from an unnamed sender";
  if (verified === true) return `from ${from}${describeTrust(trust)}`;
  if (distrusted !== null) return `claims to be from ${from}: NOT BELIEVED (${distrusted})`;
  return `claims to be from ${from}: ${verified === null ? "not checked" : "ITS SIGNATURE DOES NOT VERIFY"}`;
}

// --------------------------------------------------------------------------------------------------------------- query

/** What waits; Caches that don't answer are named beside it. */
async function waitingOf(session: Session) {
  const caches = await cachesOf(session.client, await session.identity());
  const { pending, unreachable } = await listPending(caches);
  const problems = unreachable.map(({ endpoint: what, error: { code, message } }) => ({ what, code, message }));
  for (const { what, message } of problems) session.report.note(printable(`${what}: ${message}`));
  return { pending, unreachable: problems };
}

async function query(session: Session): Promise<void> {
  const { pending, unreachable } = await waitingOf(session);
  const waiting = pending.map((message) => {
    const copies = message.parts.flat();
    return {
      message_group_id: message.groupId,
      message_ids: messageIdsOf(message),
      held: message.parts.length,
      total: message.total,
      complete: isComplete(message),
      expires_at: new Date(Math.min(...copies.map(({ expiresAtMs }) => expiresAtMs))).toISOString(),
      caches: [...new Set(copies.map(({ cache }) => cache?.reader.at.url))],
    };
  });
  const lines = waiting.map(
    ({ message_group_id, message_ids, held, total, expires_at }) =>
      `${message_group_id ?? message_ids[0]} ${held} of ${total}, until ${expires_at}`,
  );
  const nothing = `Nothing is waiting${unreachable.length === 0 ? "" : " in the Caches that answered"}.`;
  session.report.result({ ok: true, count: waiting.length, waiting, unreachable }, lines.join("\n") || nothing);
}

// -------------------------------------------------------------------------------------------------- purge

type PurgeFlags = {
  readonly as?: string;
  readonly id?: string[];
  readonly all?: boolean;
  readonly yes?: boolean;
};

/** Acknowledges messages without storing them, so it asks first. */
async function purge(session: Session, flags: PurgeFlags): Promise<void> {
  if ((flags.all === true) === (flags.id !== undefined)) throw failed("choose the messages: --id <id...> or --all");
  const { pending } = await waitingOf(session);
  const chosen = flags.all === true ? pending : pending.filter((message) => names(message, flags.id ?? []));
  const messageIds = chosen.flatMap(messageIdsOf);
  const count = countOf(messageIds.length, "message");
  if (messageIds.length > 0) confirmed(`Remove ${count} unread?`, flags);
  const [failure] = await removeUnread(chosen.flatMap(({ parts }) => parts.flat()));
  if (failure !== undefined) throw failure.error;
  session.report.result(
    { ok: true, removed: messageIds.length, message_ids: messageIds },
    messageIds.length === 0 ? "Nothing to remove." : `${count} removed.`,
  );
}

/** The id of any of its messages names a whole group: single chunks are useless. */
function names(message: PendingMessage, ids: readonly string[]): boolean {
  const wanted = new Set(ids.map((id) => id.toLowerCase()));
  return wanted.has(message.groupId ?? "") || messageIdsOf(message).some((messageId) => wanted.has(messageId));
}
