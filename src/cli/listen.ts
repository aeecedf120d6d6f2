/**
 * `waypost listen`: takes files live from the Relay as they are sent, and from the Caches what was sent
 * before; until interrupted. It connects again by itself.
 * Source: rules section 5 ("Live sessions").
 */
import type { Command } from "commander";
import type { Reader } from "../client/cache.ts";
import { liveEndpoints } from "../client/client.ts";
import { ClientError } from "../client/http.ts";
import { type LiveEvents, listenLive } from "../client/live.ts";
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
import { createRoundReporter, pause, untilInterrupted, withInbox } from "./inbox.ts";

type ListenFlags = ConnectionFlags & { readonly as?: string; readonly out: string; readonly device: string };

const pausesMs = [1_000, 2_000, 4_000, 8_000, 16_000, 30_000];

export function registerListenCommand(program: Command): void {
  const command = program
    .command("listen")
    .description("receive live, until interrupted")
    .requiredOption("--out <folder>", "where files go")
    .option("--device <id>", "the name of this device", "cli");
  addIdentityFlag(addConnectionFlags(command)).action((flags: ListenFlags) =>
    runSession(flags, async (session) => {
      const identity = await rotateIfDue(session, await chooseIdentity(session, flags.as));
      const posts = await liveEndpoints(session.client, identity, flags.device);
      const work = (inbox: Inbox) => listen(session, inbox, posts);
      // Caches are read for all devices: the name is only that of the live session.
      await withInbox(session, identity, { place: { folder: flags.out, device: "" }, work });
    }),
  );
}

/** One Relay after the other, in turn; a proof that is refused at the first attempt ends it. */
async function listen(session: Session, inbox: Inbox, posts: readonly Reader[]): Promise<void> {
  const signal = untilInterrupted();
  let failures = 0;
  for (let turn = 0; !signal.aborted; turn++) {
    const post = posts[turn % posts.length] as Reader;
    let admitted = false;
    const rounds = createRounds(session, inbox);
    const events: LiveEvents = {
      onReady: () => {
        admitted = true;
        failures = 0;
        session.report.note(`listening at ${post.at.url}`);
        rounds.request("everywhere");
      },
      onEnvelope: async (chunk) => {
        const kept = await inbox.keep(chunk);
        if (kept) rounds.request("here");
        return kept;
      },
    };
    try {
      await listenLive(post, events, signal);
    } catch (error) {
      if (!(error instanceof ClientError) || (error.kind === "refused" && !admitted && turn < posts.length))
        throw error;
      session.report.note(`${error.message} (${error.code})`);
    } finally {
      await rounds.idle();
    }
    await pause(pausesMs[Math.min(failures++, pausesMs.length - 1)] as number, signal);
  }
}

type Where = "here" | "everywhere";

/** Rounds one after the other; requests that come during one are answered by one more. */
function createRounds(session: Session, inbox: Inbox) {
  const reportRound = createRoundReporter(session);
  let wanted: Where | null = null;
  let running: Promise<void> | null = null;
  const run = async () => {
    while (wanted !== null) {
      const caches = wanted === "everywhere" ? inbox.caches : [];
      wanted = null;
      try {
        reportRound(await inbox.receive(caches));
      } catch (error) {
        if (!(error instanceof ClientError)) throw error;
        session.report.note(`${error.message} (${error.code})`);
      }
    }
    running = null;
  };
  return {
    request: (where: Where) => {
      if (wanted !== "everywhere") wanted = where;
      running ??= run();
    },
    idle: () => running ?? Promise.resolve(),
  };
}
