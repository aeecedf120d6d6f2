/**
 * `waypost receive`: fetches what waits in the Caches of an identity, writes each file to disk, and only
 * then acknowledges it. With `--follow` it continues when the streams of the Caches announce an arrival.
 * Source: rules section 6.
 */
import type { Command } from "commander";
import { failedInResult, timedOut } from "../app/failure.ts";
import type { CacheClient } from "../client/cache.ts";
import { ClientError } from "../client/http.ts";
import { parseWait } from "./arguments.ts";
import {
  addConnectionFlags,
  addIdentityFlag,
  type ConnectionFlags,
  chooseIdentity,
  runSession,
  type Session,
} from "./connection.ts";
import { rotateIfDue } from "./did-agreement.ts";
import type { Inbox } from "./files/inbox.ts";
import { createRoundReporter, describeRound, pause, renderRound, untilInterrupted, withInbox } from "./inbox.ts";
import { countOf } from "./report.ts";

type ReceiveFlags = ConnectionFlags & {
  readonly as?: string;
  readonly out: string;
  readonly device: string;
  readonly follow?: boolean;
  readonly waitFor?: number;
};

/** Between two looks while waiting, and the longest pause between two when the streams are silent. */
const pollMs = 1_000;
const followPollMs = 30_000;
const reconnectMs = 2_000;

export function registerReceiveCommand(program: Command): void {
  const command = program
    .command("receive")
    .description("fetch, decrypt and store what has arrived, then acknowledge it")
    .requiredOption("--out <folder>", "where files go")
    .option("--device <id>", "the device to read as", "")
    .option("--wait-for <duration>", "wait for something to arrive, for at most this long: 30s, 5m", parseWait)
    .option("--follow", "keep receiving until interrupted");
  addIdentityFlag(addConnectionFlags(command)).action((flags: ReceiveFlags) =>
    runSession(flags, async (session) => {
      const identity = await rotateIfDue(session, await chooseIdentity(session, flags.as));
      const work = (inbox: Inbox) =>
        flags.follow === true ? follow(session, inbox) : receiveWaiting(session, inbox, flags.waitFor ?? 0);
      await withInbox(session, identity, { place: { folder: flags.out, device: flags.device }, work });
    }),
  );
}

async function receiveWaiting(session: Session, inbox: Inbox, waitMs: number): Promise<void> {
  const begunMs = performance.now();
  let round = await inbox.receive(inbox.caches);
  while (round.received.length === 0 && performance.now() - begunMs < waitMs) {
    session.report.progress("nothing yet");
    await Bun.sleep(Math.min(pollMs, waitMs));
    round = await inbox.receive(inbox.caches);
  }
  if (waitMs > 0 && round.received.length + round.unreadable.length + round.failed.length === 0)
    throw timedOut("nothing arrived");
  session.report.result(renderRound(round), describeRound(round).join("\n") || "Nothing is waiting.");
  if (round.failed.length > 0) throw failedInResult(`not received: ${countOf(round.failed.length, "message")}`);
}

async function follow(session: Session, inbox: Inbox): Promise<void> {
  const signal = untilInterrupted();
  const reportRound = createRoundReporter(session);
  const news = createSignal(signal);
  for (const cache of inbox.caches) void signalOnNews(cache, news.ring, signal);
  while (!signal.aborted) {
    const quiet = news.next(followPollMs);
    try {
      reportRound(await inbox.receive(inbox.caches));
    } catch (error) {
      if (!(error instanceof ClientError)) throw error;
      session.report.note(`${error.message} (${error.code})`);
    }
    await quiet;
  }
}

/** Wakes who waits; a ring while nobody waits is lost, so `next` is called before looking. */
function createSignal(signal: AbortSignal) {
  let rung = Promise.withResolvers<void>();
  signal.addEventListener("abort", () => rung.resolve());
  return {
    ring: () => rung.resolve(),
    next: (timeoutMs: number): Promise<void> => {
      rung = Promise.withResolvers<void>();
      if (signal.aborted) rung.resolve();
      const timer = setTimeout(rung.resolve, timeoutMs);
      return rung.promise.finally(() => clearTimeout(timer));
    },
  };
}

async function signalOnNews(cache: CacheClient, ring: () => void, signal: AbortSignal): Promise<void> {
  while (!signal.aborted) {
    await cache.stream(ring, signal).catch((error: unknown) => {
      if (!(error instanceof ClientError)) throw error;
    });
    await pause(reconnectMs, signal);
  }
}
