/**
 * What `receive` and `listen` share: an inbox that is opened for the work and closed after it, and how a
 * round of receiving is reported.
 * Source: docs/ledger.md 3.2 and 3.3, rules section 6.
 */

import type { Identity } from "../client/keys.ts";
import type { Session } from "./connection.ts";
import { type Inbox, openInbox, type Problem, type Round } from "./files/inbox.ts";
import { stateFolder } from "./files/key-files.ts";
import type { Received } from "./files/store-message.ts";
import { printable, renderBar, renderBytes } from "./report.ts";

export type InboxPlace = { readonly folder: string; readonly device: string };

/** Opens what an identity receives into, for this process alone, and closes it after the work. */
export async function withInbox(
  session: Session,
  identity: Identity,
  { place, work }: { readonly place: InboxPlace; readonly work: (inbox: Inbox) => Promise<void> },
): Promise<void> {
  const inbox = await openInbox(session.client, identity, {
    folder: place.folder,
    state: stateFolder(session.keysFolder, identity.name),
    deviceId: place.device,
    onPart: (done, total) => session.report.progress(`receiving ${renderBar(done, total)}`),
  });
  try {
    await work(inbox);
  } finally {
    await inbox.close();
  }
}

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
  const incomplete = round.incomplete.map(({ groupId, held, total }) => ({ message_group_id: groupId, held, total }));
  const unreadable = round.unreadable.map((one) => ({ ...one, remove: removal(one) }));
  const { failed, unreachable } = round;
  return { ok: failed.length === 0, received, incomplete, unreadable, failed, unreachable };
}

export function describeRound(round: Round): string[] {
  return [
    ...round.received.map((one) => `${one.path} (${renderBytes(one.sizeBytes)}) ${describeSender(one)}`),
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
  if (from.verified === true) return `from ${from.did}`;
  return `claims to be from ${from.did}: ${from.verified === null ? "not checked" : "ITS SIGNATURE DOES NOT HOLD"}`;
}

/**
 * Reports rounds as they come: what was received, and each problem once. With `--json` one line for each
 * round that brought something.
 */
export function createRoundReporter(session: Session): (round: Round) => void {
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
