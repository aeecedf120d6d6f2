/**
 * `waypost receive` fetches the messages that wait in the Caches of an identity, saves each before
 * it is acknowledged, and writes it as a file; with `--follow` it receives until interrupted, live
 * from the Relays too, and reconnects by itself. `waypost query` lists waiting messages without
 * fetching them, `waypost purge` removes them unread.
 * Source: rules sections 5 ("Live sessions") and 6.
 */
import type { Command } from "commander";
import { failed, failedInResult, timedOut } from "../app/failure.ts";
import type { WaypostEvent } from "../client/mail/message.ts";
import { removeUnread } from "../client/mail/retrieve.ts";
import {
  isComplete,
  listPending,
  messageIdsOf,
  type PendingMessage,
  type Unreachable,
} from "../client/net/caches.ts";
import type { StoredMessage } from "../client/store/shown.ts";
import { cachesOf } from "../client/trust/caches.ts";
import type { Waypost } from "../client/waypost.ts";
import {
  addIdentityFlag,
  clientCommand,
  countOf,
  describeTrust,
  parseWait,
  printable,
  renderBytes,
} from "./command.ts";
import type { CommandSession } from "./command-session.ts";
import { withStore } from "./device.ts";
import { confirmed } from "./did-change.ts";
import { type ReceivedFile, receivedFiles } from "./files/received.ts";

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
    .option("--follow", "keep receiving until interrupted, live too")
    .option("--accept", "accept who signed what is received: their files may then be large")
    .option("--without-history", "on a linked device: no longer wait for people and groups");
  clientCommand(addIdentityFlag(receiveCommand), receiveMessages);
  const queryCommand = program
    .command("query")
    .description("list waiting messages without removing them");
  clientCommand(addIdentityFlag(queryCommand), query);
  const purgeCommand = program
    .command("purge")
    .description("remove waiting messages without reading them; they can't be recovered")
    .option("--id <id...>", "message ids or group ids")
    .option("--all", "all waiting messages")
    .option("--yes", "do not ask for confirmation");
  clientCommand(addIdentityFlag(purgeCommand), purge);
}

// ----------------------------------------------------------------------------------------- receive

type ReceiveFlags = {
  readonly out: string;
  readonly follow?: boolean;
  readonly accept?: boolean;
  readonly waitFor?: number;
  readonly withoutHistory?: boolean;
};

/**
 * A Cache that could not be read (its address), or a message that can't be
 * opened or saved (its id).
 */
type Problem = {
  readonly what: string;
  readonly code: string;
  readonly message: string;
  readonly remove?: string;
};
type Round = { readonly received: readonly ReceivedFile[]; readonly problems: readonly Problem[] };

/** Pause between two reads while waiting. */
const pollMs = 1_000;

/** Messages are saved in the identity's store, acknowledged, and then written as files. */
async function receiveMessages(
  session: CommandSession,
  { out, follow, accept: acceptRequests = false, waitFor = 0, withoutHistory }: ReceiveFlags,
): Promise<void> {
  const { store, acknowledge } = withStore(session, (await session.identity()).name);
  const how = follow === true ? { store } : { store, acknowledge };
  const me = await session.open({ ...how, acceptRequests });
  if (withoutHistory === true) await me.devices.goOn();
  if (follow === true) return followInto(session, out, me);
  const unreadable = new Map<string, Problem>();
  me.on(
    (event) =>
      event.type === "unreadable" && unreadable.set(event.messageIds[0] ?? "", unreadableOf(event)),
  );
  const received: ReceivedFile[] = [];
  for (const endMs = performance.now() + waitFor; ; await Bun.sleep(Math.min(pollMs, waitFor))) {
    session.report.progress("receiving");
    const { isComplete, unreachable, failed: missed } = await me.receiveWaiting();
    try {
      for await (const file of receivedFiles(me, out)) received.push(file);
    } catch (error) {
      // Nothing else reports these files.
      if (received.length > 0) reportRound(session, { received, problems: [] }, false);
      throw error;
    }
    if (received.length === 0 && performance.now() < endMs) continue;
    // Opening has no time to end what is due.
    await me.rotate();
    const problems = [...unreadable.values(), ...[...unreachable, ...missed].map(unreachableOf)];
    if (waitFor > 0 && isComplete && received.length + problems.length === 0)
      throw timedOut("nothing arrived");
    reportRound(session, { received, problems }, isComplete && problems.length === 0);
    if (!isComplete) throw failedInResult("something could not be fetched: receive again");
    if (problems.length > 0)
      throw failedInResult(`${countOf(problems.length, "message")} can't be opened`);
    return;
  }
}

/** Until it is interrupted, or can neither save nor write. */
async function followInto(session: CommandSession, out: string, me: Waypost): Promise<void> {
  const ended = Promise.withResolvers<void>();
  for (const name of ["SIGINT", "SIGTERM"]) process.once(name, () => ended.resolve());
  let writing = Promise.resolve();
  const write = () => {
    writing = writing.then(async () => {
      for await (const file of receivedFiles(me, out))
        reportRound(session, { received: [file], problems: [] });
    });
    writing.catch(ended.reject);
  };
  const reportProblem = (problem: Problem) =>
    reportRound(session, { received: [], problems: [problem] });
  me.on((event) => {
    if (event.type === "changed" && event.what !== "removed") write();
    else if (event.type === "unreadable") reportProblem(unreadableOf(event));
    else if (event.type === "disconnected" && event.what === "cache" && event.error !== null)
      reportProblem(unreachableOf({ endpoint: event.url, error: event.error }));
    else if (event.type === "failed" && event.what === "store") ended.reject(event.error);
  });
  write();
  await ended.promise;
  await writing;
}

function unreadableOf({
  messageIds: [what = "?"],
  code,
  reason,
}: Extract<WaypostEvent, { type: "unreadable" }>) {
  return { what, code, message: reason, remove: `waypost purge --id ${what}` };
}

const unreachableOf = ({ endpoint: what, error: { code, message } }: Unreachable): Problem => ({
  what,
  code,
  message,
});

function reportRound(
  { report }: CommandSession,
  { received, problems }: Round,
  isWhole = true,
): void {
  const files = received.map(({ message, path, sha256 }) => ({
    path,
    name: message.name,
    media_type: message.mediaType,
    size_bytes: message.sizeBytes,
    sha256,
    message_ids: message.messageIds,
    from: message.from,
    from_verified: message.verified,
    from_trust: message.trust,
    from_distrusted: message.distrusted,
  }));
  const lines = received.map(
    ({ message, path }) => `${path} (${renderBytes(message.sizeBytes)}) ${describeSender(message)}`,
  );
  for (const { what, message, code, remove } of problems) {
    const removal = remove === undefined ? "" : `; to remove it unread: ${remove}`;
    report.note(printable(`${what}: ${message} (${code})${removal}`));
  }
  const nothing = problems.length === 0 ? "Nothing is waiting." : "Nothing was received.";
  report.result(
    { ok: isWhole, received: files, problems },
    lines.map(printable).join("\n") || nothing,
  );
}

function describeSender({ from, verified, trust, distrusted }: StoredMessage): string {
  if (from === null) return "from an unnamed sender";
  if (verified === true) return `from ${from}${describeTrust(trust)}`;
  if (distrusted !== null) return `claims to be from ${from}: NOT BELIEVED (${distrusted})`;
  return `claims to be from ${from}: ${verified === null ? "not checked" : "ITS SIGNATURE DOES NOT VERIFY"}`;
}

// ------------------------------------------------------------------------------------------- query

/** What waits; Caches that don't answer are named with it. */
async function waitingOf(session: CommandSession) {
  const caches = await cachesOf(session.client, await session.identity());
  const { pending, unreachable } = await listPending(caches);
  const problems = unreachable.map(unreachableOf);
  for (const { what, message } of problems) session.report.note(printable(`${what}: ${message}`));
  return { pending, unreachable: problems };
}

async function query(session: CommandSession): Promise<void> {
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
  session.report.result(
    { ok: true, count: waiting.length, waiting, unreachable },
    lines.join("\n") || nothing,
  );
}

// ------------------------------------------------------------------------------------------- purge

type PurgeFlags = {
  readonly as?: string;
  readonly id?: string[];
  readonly all?: boolean;
  readonly yes?: boolean;
};

/** Acknowledges messages without storing them, so it asks first. */
async function purge(session: CommandSession, flags: PurgeFlags): Promise<void> {
  if ((flags.all === true) === (flags.id !== undefined))
    throw failed("choose the messages: --id <id...> or --all");
  const { pending } = await waitingOf(session);
  const chosen =
    flags.all === true ? pending : pending.filter((message) => namesAny(message, flags.id ?? []));
  const messageIds = chosen.flatMap(messageIdsOf);
  const count = countOf(messageIds.length, "message");
  if (messageIds.length > 0) confirmed(`Remove ${count} unread?`, flags);
  const [failure] = await removeUnread(
    chosen.flatMap(({ parts }) => parts.flat()),
    // What is not read accepts no one.
    { isAccepted: false },
  );
  if (failure !== undefined) throw failure.error;
  session.report.result(
    { ok: true, removed: messageIds.length, message_ids: messageIds },
    messageIds.length === 0 ? "Nothing to remove." : `${count} removed.`,
  );
}

/** The id of any of its messages names a whole group: single chunks are useless. */
function namesAny(message: PendingMessage, ids: readonly string[]): boolean {
  const wanted = new Set(ids.map((id) => id.toLowerCase()));
  return (
    wanted.has(message.groupId ?? "") ||
    messageIdsOf(message).some((messageId) => wanted.has(messageId))
  );
}
