/**
 * One round of receiving, shared by `receive` and `listen`: everything that is complete is stored, then
 * acknowledged; one message that fails does not hold up the others.
 * Source: docs/ledger.md 3.2 and 3.3, decisions section 6.
 */
import { join, resolve } from "node:path";
import type { CacheClient } from "../client/cache.ts";
import { cachesOf, recipientOf } from "../client/client.ts";
import { ClientError } from "../client/http.ts";
import { type Journal, openJournal } from "../client/journal.ts";
import { type Identity, stateFolder } from "../client/keys.ts";
import { openPieces, type Pieces } from "../client/pieces.ts";
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
import type { Session } from "./connection.ts";
import { printable, renderBar, renderBytes } from "./report.ts";

export type Inbox = {
  readonly identity: Identity;
  readonly caches: readonly CacheClient[];
  readonly recipient: Recipient;
  readonly folder: string;
  readonly journal: Journal;
  readonly pieces: Pieces;
  readonly temporaryPrefix: string;
};

export type InboxPlace = { readonly folder: string; readonly device: string };

/** Opens what an identity receives into, for this process alone, and closes it after the work. */
export async function withInbox(
  session: Session,
  identity: Identity,
  { place, work }: { readonly place: InboxPlace; readonly work: (inbox: Inbox) => Promise<void> },
): Promise<void> {
  const state = stateFolder(session.keysFolder, identity.name);
  const journal = await openJournal(state, Date.now());
  try {
    const folder = resolve(place.folder);
    const temporaryPrefix = `.waypost-${identity.did.slice("did:svc:".length)}-`;
    await sweepTemporaries(folder, temporaryPrefix);
    await work({
      identity,
      caches: await cachesOf(session.client, identity, place.device),
      recipient: recipientOf(session.client, identity),
      folder,
      journal,
      pieces: await openPieces(join(state, "pieces"), Date.now()),
      temporaryPrefix,
    });
  } finally {
    await journal.close();
  }
}

type Trouble = { readonly what: string; readonly code: string; readonly message: string };

export type Round = {
  readonly received: Received[];
  /** Chunk sets of which pieces are missing so far. */
  readonly incomplete: { readonly message_group_id: string | null; readonly held: number; readonly total: number }[];
  /** Messages that can't be opened: they stay where they are until they expire or are purged. */
  readonly failed: Trouble[];
  /** Caches that could not be read, or not be told. */
  readonly unreachable: Trouble[];
};

/** Everything that is complete in `caches` and on this machine. */
export async function receiveRound(session: Session, inbox: Inbox, caches: readonly CacheClient[]): Promise<Round> {
  const round: Round = { received: [], incomplete: [], failed: [], unreachable: [] };
  const { parcels, unreachable } = await listParcels(caches, inbox.pieces.held());
  for (const { endpoint, error } of unreachable) round.unreachable.push(trouble(endpoint, error));
  for (const parcel of parcels) {
    const known = wasReceived(parcel, inbox.journal);
    if (!known && !isComplete(parcel)) {
      round.incomplete.push({ message_group_id: parcel.groupId, held: parcel.parts.length, total: parcel.total });
    } else if (known || (await receiveParcel(session, inbox, { parcel, round }))) {
      await inbox.pieces.remove(parcel.held.map(({ messageId }) => messageId));
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

export function renderRound(round: Round): Record<string, unknown> {
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

export function describeRound(round: Round): string[] {
  return [
    ...round.received.map((one) => `${one.path} (${renderBytes(one.sizeBytes)}) ${describeSender(one)}`),
    ...round.incomplete.map(({ held, total }) => `a file is on its way: ${held} of ${total} pieces so far`),
    ...[...round.failed, ...round.unreachable].map(({ what, message, code }) =>
      printable(`${what}: ${message} (${code})`),
    ),
  ];
}

function describeSender({ from }: Received): string {
  if (from === null) return "from an unnamed sender";
  if (from.verified === true) return `from ${from.did}`;
  return `claims to be from ${from.did}: ${from.verified === null ? "not checked" : "ITS SIGNATURE DOES NOT HOLD"}`;
}

/**
 * Tells of rounds as they come: what was received, and each trouble once. With `--json` one line for each
 * round that brought something.
 */
export function createTeller(session: Session): (round: Round) => void {
  const told = new Set<string>();
  return (round) => {
    const isNew = ({ what, code }: Trouble) => !told.has(`${what} ${code}`);
    const shown: Round = {
      ...round,
      incomplete: [],
      failed: round.failed.filter(isNew),
      unreachable: round.unreachable.filter(isNew),
    };
    for (const { what, code } of [...shown.failed, ...shown.unreachable])
      if (told.size < 10_000) told.add(`${what} ${code}`);
    if (shown.received.length + shown.failed.length + shown.unreachable.length === 0) return;
    session.report.result(renderRound(shown), describeRound(shown).join("\n"));
  };
}

/** Aborted by Ctrl-C and SIGTERM, for commands that go on until then. */
export function untilInterrupted(): AbortSignal {
  const stop = new AbortController();
  for (const name of ["SIGINT", "SIGTERM"]) process.once(name, () => stop.abort());
  return stop.signal;
}

/** Waits, but not beyond an interruption. */
export function pause(ms: number, signal: AbortSignal): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>();
  if (signal.aborted) return Promise.resolve();
  const timer = setTimeout(resolve, ms);
  const abort = () => resolve();
  signal.addEventListener("abort", abort);
  return promise.finally(() => {
    clearTimeout(timer);
    signal.removeEventListener("abort", abort);
  });
}
