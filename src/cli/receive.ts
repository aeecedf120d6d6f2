/**
 * `waypost receive` fetches the messages that wait in the Caches of an identity, writes each file to disk, and only then
 * acknowledges it; with `--follow` it fetches again whenever a stream of a Cache announces a message. `waypost listen`
 * receives files live from the Relay until interrupted, and those sent before from the Caches; it reconnects by itself.
 * `waypost query` lists waiting messages without fetching them, `waypost purge` removes them unread.
 * Source: docs/ledger.md 3.2 and 3.3, rules sections 5 ("Live sessions") and 6.
 */
import { type Command, Option } from "commander";
import { failed, failedInResult, timedOut } from "../app/failure.ts";
import { isComplete, listPending, messageIdsOf, type PendingMessage } from "../client/copies.ts";
import type { ClientError } from "../client/http.ts";
import type { Identity } from "../client/keys.ts";
import type { WaypostEvent } from "../client/message.ts";
import { cachesOf, liveEndpoints } from "../client/reader.ts";
import { removeUnread } from "../client/retrieve.ts";
import { trustOf } from "../client/trust/trust.ts";
import {
  addIdentityFlag,
  clientCommand,
  countOf,
  parseWait,
  printable,
  renderBar,
  renderBytes,
  type Session,
} from "./command.ts";
import { defaultConfigFile } from "./config.ts";
import { confirmed, rotateIfDue } from "./did-change.ts";
import { stateFolder } from "./files/files.ts";
import { type Inbox, openInbox, type Problem, type Received, type Round } from "./files/inbox.ts";
import { askNode } from "./operations.ts";

type ReceiveFlags = {
  readonly out: string;
  readonly device: string;
  readonly follow?: boolean;
  readonly waitFor?: number;
};

const deviceOption = (): Option => new Option("--device <id>", "the device to read as").default("", "none");

/** Pause between two reads while waiting. */
const pollMs = 1_000;

export function registerReceiveCommands(program: Command): void {
  registerReceive(program);
  registerListen(program);
  registerQuery(program);
  registerPurge(program);
}

function registerReceive(program: Command): void {
  const command = program
    .command("receive")
    .description("fetch, decrypt and store waiting messages, then acknowledge them")
    .requiredOption("--out <folder>", "folder for the files")
    .addOption(deviceOption())
    .option(
      "--wait-for <duration>",
      "wait for messages, for at most this long: 30s, 5m (default: do not wait)",
      parseWait,
    )
    .option("--follow", "keep receiving until interrupted");
  clientCommand(addIdentityFlag(command), async (session, flags: ReceiveFlags) => {
    const identity = await rotateIfDue(session, await session.identity());
    const work = (inbox: Inbox) =>
      flags.follow === true
        ? follow(session, inbox, { device: null, relays: 0 })
        : receiveWaiting(session, inbox, flags.waitFor ?? 0);
    await withInbox(session, identity, { place: { folder: flags.out, device: flags.device }, work });
  });
}

async function receiveWaiting(session: Session, inbox: Inbox, waitMs: number): Promise<void> {
  const begunMs = performance.now();
  let round = await inbox.receive();
  while (round.received.length === 0 && performance.now() - begunMs < waitMs) {
    session.report.progress("nothing yet");
    await Bun.sleep(Math.min(pollMs, waitMs));
    round = await inbox.receive();
  }
  if (waitMs > 0 && round.received.length + round.unreadable.length + round.failed.length === 0)
    throw timedOut("nothing arrived");
  session.report.result(renderRound(round), describeRound(round).join("\n") || "Nothing is waiting.");
  if (round.failed.length > 0) throw failedInResult(`not received: ${countOf(round.failed.length, "message")}`);
}

// ------------------------------------------------------------------------------------------------- listen

type ListenFlags = { readonly out: string; readonly device: string };

function registerListen(program: Command): void {
  const command = program
    .command("listen")
    .description("receive live, until interrupted")
    .requiredOption("--out <folder>", "folder for the files")
    .option("--device <id>", "the name of this device", "cli");
  clientCommand(addIdentityFlag(command), async (session, flags: ListenFlags) => {
    const identity = await rotateIfDue(session, await session.identity());
    const relays = await liveEndpoints(session.client, identity, flags.device);
    const work = (inbox: Inbox) => follow(session, inbox, { device: flags.device, relays: relays.length });
    // Caches are read for all devices: the name is only that of the live session.
    await withInbox(session, identity, { place: { folder: flags.out, device: "" }, work });
  });
}

type Following = { readonly device: string | null; readonly relays: number };

/** Ends when every Relay refused before one of them accepted a live session. */
async function follow(session: Session, inbox: Inbox, { device, relays }: Following): Promise<void> {
  const stop = new AbortController();
  for (const name of ["SIGINT", "SIGTERM"]) process.once(name, () => stop.abort());
  const refused = new Map<string, ClientError>();
  let isAdmitted = false;
  const isHopeless = () => !isAdmitted && relays > 0 && refused.size === relays;
  const onEvent = (event: WaypostEvent) => {
    if (event.type === "connected" && event.what === "live") {
      isAdmitted = true;
      session.report.note(`listening at ${event.url}`);
    } else if (event.type === "disconnected" && event.error !== null) {
      session.report.note(`${event.error.message} (${event.error.code})`);
      if (event.what === "live" && event.error.kind === "refused") refused.set(event.url, event.error);
      if (isHopeless()) stop.abort();
    }
  };
  await inbox.follow({ device, onRound: createRoundReporter(session), onEvent }, stop.signal);
  const [failure] = refused.values();
  if (isHopeless()) throw failure;
}

// ------------------------------------------------------------------------------------------------- rounds

type InboxPlace = { readonly folder: string; readonly device: string };

/** Opens the inbox of an identity for this process alone, and closes it after the work. */
async function withInbox(
  session: Session,
  identity: Identity,
  { place, work }: { readonly place: InboxPlace; readonly work: (inbox: Inbox) => Promise<void> },
): Promise<void> {
  const inbox = await openInbox(session.client, identity, {
    folder: place.folder,
    state: stateFolder(session.keysFolder, identity.name),
    deviceId: place.device,
    onChunk: (done, total) => session.report.progress(`receiving ${renderBar(done, total)}`),
  });
  try {
    await work(inbox);
  } finally {
    await inbox.close();
  }
}

function renderRound(round: Round): Record<string, unknown> {
  const received = round.received.map((one) => ({
    path: one.path,
    name: one.name,
    media_type: one.mediaType,
    size_bytes: one.sizeBytes,
    sha256: one.sha256,
    message_ids: one.messageIds,
    from: one.from?.did ?? null,
    from_verified: one.from?.verified ?? null,
    from_trust: one.from?.verified === true ? trustOf(one.from.did) : null,
    from_distrusted: one.from?.distrusted ?? null,
  }));
  const incomplete = round.incomplete.map(({ groupId, held, total }) => ({ message_group_id: groupId, held, total }));
  const unreadable = round.unreadable.map((one) => ({ ...one, remove: removal(one) }));
  const { failed, unreachable } = round;
  return { ok: failed.length === 0, received, incomplete, unreadable, failed, unreachable };
}

function describeRound(round: Round): string[] {
  return [
    ...round.received.map((one) => printable(`${one.path} (${renderBytes(one.sizeBytes)}) ${describeSender(one)}`)),
    ...round.incomplete.map(({ held, total }) => `a file is on its way: ${held} of ${total} chunks so far`),
    ...round.unreadable.map((one) =>
      printable(`${one.what}: ${one.message} (${one.code}); to remove it unread: ${removal(one)}`),
    ),
    ...[...round.failed, ...round.unreachable].map(({ what, message, code }) =>
      printable(`${what}: ${message} (${code})`),
    ),
  ];
}

const removal = ({ what }: Problem): string => `waypost purge --id ${what}`;

function describeSender({ from }: Received): string {
  if (from === null) return "from an unnamed sender";
  if (from.verified === true)
    return `from ${from.did}${trustOf(from.did) === "proven" ? "" : ", whose keys are unproven"}`;
  if (from.distrusted !== null) return `claims to be from ${from.did}: NOT BELIEVED (${from.distrusted})`;
  return `claims to be from ${from.did}: ${from.verified === null ? "not checked" : "ITS SIGNATURE DOES NOT VERIFY"}`;
}

/**
 * Reports rounds as they come: what was received, and each problem once. With `--json` one line for each
 * round that brought something.
 */
function createRoundReporter(session: Session): (round: Round) => void {
  const reported = new Set<string>();
  return (round) => {
    const isNew = ({ what, code }: Problem) => !reported.has(`${what} ${code}`);
    const shown: Round = {
      ...round,
      incomplete: [],
      unreadable: round.unreadable.filter(isNew),
      failed: round.failed.filter(isNew),
      unreachable: round.unreachable.filter(isNew),
    };
    for (const { what, code } of [...shown.unreadable, ...shown.failed, ...shown.unreachable])
      if (reported.size < 10_000) reported.add(`${what} ${code}`);
    const lists = [shown.received, shown.unreadable, shown.failed, shown.unreachable];
    if (lists.every((list) => list.length === 0)) return;
    session.report.result(renderRound(shown), describeRound(shown).join("\n"));
  };
}

// --------------------------------------------------------------------------------------------------------------- query

type QueryFlags = { readonly device: string };

function registerQuery(program: Command): void {
  const command = program
    .command("query")
    .description("list waiting messages without removing them")
    .addOption(deviceOption());
  clientCommand(addIdentityFlag(command), query);
}

async function query(session: Session, flags: QueryFlags): Promise<void> {
  const identity = await session.identity();
  const { pending, unreachable } = await listPending(await cachesOf(session.client, identity, flags.device));
  const waiting = pending.map((message) => ({
    message_group_id: message.groupId,
    message_ids: messageIdsOf(message),
    held: message.parts.length,
    total: message.total,
    complete: isComplete(message),
    expires_at: new Date(Math.min(...message.parts.flat().map(({ expiresAtMs }) => expiresAtMs))).toISOString(),
    caches: [...new Set(message.parts.flat().map(({ cache }) => cache?.reader.at.url))],
  }));
  const lines = waiting.map(
    ({ message_group_id, message_ids, held, total, expires_at }) =>
      `${message_group_id ?? message_ids[0]} ${held} of ${total}, until ${expires_at}`,
  );
  const problems = unreachable.map(({ endpoint: what, error: { code, message } }) => ({ what, code, message }));
  for (const { what, message } of problems) session.report.note(printable(`${what}: ${message}`));
  session.report.result(
    { ok: true, count: waiting.length, waiting, unreachable: problems },
    lines.join("\n") || `Nothing is waiting${problems.length === 0 ? "" : " in the Caches that answered"}.`,
  );
}

// -------------------------------------------------------------------------------------------------- purge

type PurgeFlags = {
  readonly as?: string;
  readonly device: string;
  readonly id?: string[];
  readonly all?: boolean;
  readonly yes?: boolean;
  readonly recipient?: string;
  readonly config?: string;
  readonly socket?: string;
};

function registerPurge(program: Command): void {
  const command = program
    .command("purge")
    .description("remove waiting messages without reading them; they can't be recovered")
    .option("--id <id...>", "message ids or group ids")
    .option("--all", "all waiting messages")
    .addOption(deviceOption())
    .option("--yes", "do not ask for confirmation")
    .option("--recipient <did>", "for operators: all envelopes that wait for this DID on the running node of --config")
    .option("-c, --config <file>", `configuration file of that node (default: "${defaultConfigFile}")`)
    .option("--socket <path>", "Unix socket of that node's admin_listen, instead of --config");
  clientCommand(addIdentityFlag(command), (session, flags: PurgeFlags) =>
    flags.recipient === undefined ? purge(session, flags) : purgeRecipient(session, flags, flags.recipient),
  );
}

/** For the operator: the running node removes all messages that wait for the DID, without a proof of the recipient. */
async function purgeRecipient({ report }: Session, flags: PurgeFlags, recipient: string): Promise<void> {
  if (flags.all !== undefined || flags.id !== undefined || flags.as !== undefined)
    throw failed("--recipient excludes --id, --all and --as");
  confirmed(`Remove everything that waits for ${printable(recipient)}?`, flags);
  const answer = await askNode(flags, "/operations/purge", { recipient });
  const { entries, bytes } = answer;
  const text = `${countOf(Number(entries), "message")} removed, ${renderBytes(Number(bytes))}.`;
  report.result({ ok: true, recipient, entries, bytes }, text);
}

/** Acknowledges messages without storing them, so it asks first. */
async function purge(session: Session, flags: PurgeFlags): Promise<void> {
  if ((flags.all === true) === (flags.id !== undefined)) throw failed("choose the messages: --id <id...> or --all");
  const identity = await session.identity();
  const { pending, unreachable } = await listPending(await cachesOf(session.client, identity, flags.device));
  for (const { endpoint, error } of unreachable) session.report.note(printable(`${endpoint}: ${error.message}`));
  const chosen = flags.all === true ? pending : pending.filter((message) => names(message, flags.id ?? []));
  const messageIds = chosen.flatMap(messageIdsOf);
  if (messageIds.length > 0) confirmed(`Remove ${countOf(messageIds.length, "message")} unread?`, flags);
  const failures = await removeUnread(chosen.flatMap(({ parts }) => parts.flat()));
  if (failures[0] !== undefined) throw failures[0].error;
  session.report.result(
    { ok: true, removed: messageIds.length, message_ids: messageIds },
    messageIds.length === 0 ? "Nothing to remove." : `${countOf(messageIds.length, "message")} removed.`,
  );
}

/** The id of any of its messages names a whole group: single chunks are useless. */
function names(message: PendingMessage, ids: readonly string[]): boolean {
  const wanted = new Set(ids.map((id) => id.toLowerCase()));
  return wanted.has(message.groupId ?? "") || messageIdsOf(message).some((messageId) => wanted.has(messageId));
}
