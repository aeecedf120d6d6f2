/**
 * `waypost receive`: fetches what waits in the Caches of an identity, writes each file to disk, and only
 * then acknowledges it. Names come from strangers: they never leave the folder and replace nothing.
 * Source: chain-facts 3.2 and 3.3, decisions section 6.
 */
import { resolve } from "node:path";
import type { Command } from "commander";
import type { CacheClient } from "../client/cache.ts";
import { cachesOf, recipientOf } from "../client/client.ts";
import { ClientError } from "../client/http.ts";
import { type Journal, openJournal } from "../client/journal.ts";
import { type Identity, stateFolder } from "../client/keys.ts";
import {
  acknowledge,
  isComplete,
  listParcels,
  type Parcel,
  type Received,
  type Recipient,
  storeParcel,
  sweepTemporaries,
  wasReceived,
} from "../client/retrieve.ts";
import {
  addConnectionFlags,
  addIdentityFlag,
  type ConnectionFlags,
  chooseIdentity,
  parseWait,
  runSession,
  type Session,
} from "./connection.ts";
import { failed, timedOut } from "./outcome.ts";
import { printable, renderBar, renderBytes } from "./report.ts";

type ReceiveFlags = ConnectionFlags & {
  readonly as?: string;
  readonly out: string;
  readonly device: string;
  readonly follow?: boolean;
  readonly waitFor?: number;
};

const pollMs = 2_000;

export function registerReceiveCommand(program: Command): void {
  const command = program
    .command("receive")
    .description("fetch, decrypt and store what has arrived, then acknowledge it")
    .requiredOption("--out <folder>", "where files go")
    .option("--device <id>", "the device to read as", "")
    .option("--wait-for <duration>", "wait until something arrives, at most so long: 30s, 5m", parseWait)
    .option("--follow", "go on until interrupted");
  addIdentityFlag(addConnectionFlags(command)).action((flags: ReceiveFlags) =>
    runSession(flags, (session) => receive(session, flags)),
  );
}

async function receive(session: Session, flags: ReceiveFlags): Promise<void> {
  const identity = await chooseIdentity(session, flags.as);
  const journal = await openJournal(stateFolder(session.keysFolder, identity.name), Date.now());
  try {
    const inbox = await openInbox(session, identity, { folder: resolve(flags.out), device: flags.device, journal });
    if (flags.follow === true) await follow(session, inbox);
    else await receiveWaiting(session, inbox, flags.waitFor ?? 0);
  } finally {
    await journal.close();
  }
}

export type Inbox = {
  readonly caches: readonly CacheClient[];
  readonly recipient: Recipient;
  readonly folder: string;
  readonly journal: Journal;
  readonly temporaryPrefix: string;
};

async function openInbox(
  session: Session,
  identity: Identity,
  where: { readonly folder: string; readonly device: string; readonly journal: Journal },
): Promise<Inbox> {
  const temporaryPrefix = `.waypost-${identity.name}-`;
  await sweepTemporaries(where.folder, temporaryPrefix);
  return {
    caches: await cachesOf(session.client, identity, where.device),
    recipient: recipientOf(session.client, identity),
    folder: where.folder,
    journal: where.journal,
    temporaryPrefix,
  };
}

type Trouble = { readonly what: string; readonly code: string; readonly message: string };

type Round = {
  readonly received: Received[];
  /** Chunk sets of which pieces are missing so far. */
  readonly incomplete: { readonly message_group_id: string | null; readonly held: number; readonly total: number }[];
  /** Messages that can't be opened: they stay in the Cache until they expire or are purged. */
  readonly failed: Trouble[];
  /** Caches that could not be read, or not be told. */
  readonly unreachable: Trouble[];
};

/** Everything that is complete now. One message that fails does not hold up the others. */
async function receiveRound(session: Session, inbox: Inbox): Promise<Round> {
  const round: Round = { received: [], incomplete: [], failed: [], unreachable: [] };
  const { parcels, unreachable } = await listParcels(inbox.caches);
  for (const { endpoint, error } of unreachable) round.unreachable.push(trouble(endpoint, error));
  for (const parcel of parcels) {
    const { groupId, parts, total } = parcel;
    const known = wasReceived(parcel, inbox.journal);
    if (!known && !isComplete(parcel)) {
      round.incomplete.push({ message_group_id: groupId, held: parts.length, total });
    } else if (known || (await receiveParcel(session, inbox, { parcel, round }))) {
      for (const { endpoint, error } of await acknowledge([parcel])) round.unreachable.push(trouble(endpoint, error));
    }
  }
  return round;
}

async function receiveParcel(
  session: Session,
  inbox: Inbox,
  { parcel, round }: { readonly parcel: Parcel; readonly round: Round },
): Promise<boolean> {
  const { recipient, folder, journal, temporaryPrefix } = inbox;
  const onPart = (done: number, total: number) => session.report.progress(`receiving ${renderBar(done, total)}`);
  try {
    round.received.push(await storeParcel(parcel, recipient, { folder, journal, temporaryPrefix, onPart }));
    return true;
  } catch (error) {
    if (!(error instanceof ClientError)) throw error;
    round.failed.push(trouble(parcel.groupId ?? parcel.parts[0]?.messageId ?? "?", error));
    return false;
  }
}

const trouble = (what: string, error: ClientError): Trouble => ({ what, code: error.code, message: error.message });

async function receiveWaiting(session: Session, inbox: Inbox, waitMs: number): Promise<void> {
  const begunMs = performance.now();
  let round = await receiveRound(session, inbox);
  while (round.received.length === 0 && performance.now() - begunMs < waitMs) {
    session.report.progress("nothing yet");
    await Bun.sleep(Math.min(pollMs, waitMs));
    round = await receiveRound(session, inbox);
  }
  if (waitMs > 0 && round.received.length === 0 && round.failed.length === 0) throw timedOut("nothing arrived");
  session.report.result(renderRound(round), describe(round).join("\n") || "Nothing is waiting.");
  if (round.failed.length > 0) throw failed(`${round.failed.length} message(s) could not be opened`);
}

/** Prints what arrives as it arrives: with `--json` one object for each round that brought something. */
async function follow(session: Session, inbox: Inbox): Promise<void> {
  const stop = Promise.withResolvers<void>();
  process.once("SIGINT", stop.resolve).once("SIGTERM", stop.resolve);
  let stopped = false;
  void stop.promise.then(() => {
    stopped = true;
  });
  const told = new Set<string>();
  while (!stopped) {
    const round = await receiveRound(session, inbox).catch((error: unknown) => {
      if (!(error instanceof ClientError)) throw error;
      session.report.note(`${error.message} (${error.code})`);
      return null;
    });
    const news = round?.failed.filter(({ what }) => !told.has(what)) ?? [];
    for (const { what } of news) told.add(what);
    if (round !== null && round.received.length + news.length > 0) {
      const shown = { ...round, failed: news };
      session.report.result(renderRound(shown), describe(shown).join("\n"));
    }
    await Promise.race([stop.promise, Bun.sleep(pollMs)]);
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
  }));
  const { incomplete, unreachable } = round;
  return { ok: round.failed.length === 0, received, incomplete, failed: round.failed, unreachable };
}

function describe(round: Round): string[] {
  return [
    ...round.received.map((one) => `${one.path} (${renderBytes(one.sizeBytes)}) ${describeSender(one)}`),
    ...round.incomplete.map(({ held, total }) => `a file is on its way: ${held} of ${total} pieces so far`),
    ...round.failed.map(({ what, message, code }) => printable(`${what}: ${message} (${code})`)),
    ...round.unreachable.map(({ what, message, code }) => printable(`${what}: ${message} (${code})`)),
  ];
}

function describeSender({ from }: Received): string {
  if (from === null) return "from an unnamed sender";
  if (from.verified === true) return `from ${from.did}`;
  return `claims to be from ${from.did}: ${from.verified === null ? "not checked" : "ITS SIGNATURE DOES NOT HOLD"}`;
}
