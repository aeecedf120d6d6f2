/**
 * Notices for live sessions: a frame that says that a Cache stored something for the recipient, so that a client
 * that asked for them pulls at once and never polls. An envelope that no session could take, because it was too
 * large for the bus, say, becomes known this way. A client that did not ask gets envelopes only.
 * Source: docs/interface.md, "Live sessions".
 */
import { errorText } from "../../../core/std/error-text.ts";
import { storedNotice } from "./frames.ts";
import type { SessionRegistry, SessionWebSocket } from "./registry.ts";

/** One notice stands for everything that was stored in this time. */
const gatherMs = 100;

export type StoredNotices = { readonly ready: Promise<void>; readonly end: () => void };

/** `null` for a session that gets none. `ready` never rejects. */
export function followStored(registry: SessionRegistry, socket: SessionWebSocket): StoredNotices | null {
  const { permit, wishes } = socket.data;
  if (!wishes.storedNotices || permit === null || registry.stored === undefined) return null;
  let timer: ReturnType<typeof setTimeout> | null = null;
  let ended = false;
  const notify = () => {
    timer = null;
    // What waits in the socket is read before a notice could be, and makes the client pull as well.
    if (socket.data.state === "live" && socket.getBufferedAmount() === 0) socket.sendText(storedNotice);
    else if (!ended) timer = setTimeout(notify, gatherMs);
  };
  const following = registry.stored.follow(
    permit.mailbox,
    () => {
      if (!ended) timer ??= setTimeout(notify, gatherMs);
    },
    "every process",
  );
  return {
    ready: following.then(
      () => {},
      (error: unknown) => registry.log("warn", "a live session gets no notices", { error: errorText(error) }),
    ),
    end: () => {
      ended = true;
      if (timer !== null) clearTimeout(timer);
      following.then((unfollow) => unfollow()).catch(() => {});
    },
  };
}
