/**
 * Streams of the ids of new envelopes, as server-sent events. A stream reads the mailbox from its cursor
 * like any client that pages, so that nothing can fall into a gap. A store wakes it before the next heartbeat, over
 * the bus also a store of another process; while the bus is unreachable, the heartbeat finds it.
 * Before each read the stream's proof is checked against the document again, so that a withdrawn key gets
 * nothing more.
 * Bounded: all streams together and those of a recipient, entries per read, and the life of a stream, after which the
 * client returns with a new proof and its last event id.
 * Source: rules section 6 ("Further reads"), `docs/rules.md` ("Streams").
 */
import type { Config } from "../../config/schema.ts";
import { utf8 } from "../../core/codec/bytes.ts";
import type { MailboxKey } from "../../core/codec/did.ts";
import { secondMs } from "../../core/codec/time.ts";
import { type Fault, fault, isFault } from "../../core/fault.ts";
import { Waiters } from "../../core/std/bounded.ts";
import type { Cursor, Mailbox, MessageSummary, Page } from "../../storage/contract.ts";
import type { Answer } from "../http/route.ts";
import { networkPlaces } from "../rates.ts";
import type { StoredSignal } from "../signals.ts";
import { renderSummaryEntry } from "./entries.ts";

type StreamParts = {
  readonly mailbox: Mailbox;
  readonly now: () => number;
  readonly settings: StreamSettings;
  readonly signal: StoredSignal;
};

type StreamSettings = Pick<
  Config["cache"],
  "streams_max" | "recipient_streams_max" | "stream_heartbeat" | "stream_life" | "page_entries_max"
>;

export type Streams = {
  /** Refuses with 429 `rate_limited`, or as the mailbox does for a cursor that it can't read. */
  readonly open: (recipient: MailboxKey, from: StreamStart) => Promise<Answer | Fault>;
  /** Something was stored for the recipient. */
  readonly wake: (recipient: MailboxKey) => void;
  readonly isOpen: (recipient: MailboxKey) => boolean;
  readonly close: () => void;
};

type StreamStart = {
  readonly after: Cursor | null;
  /** One client network gets at most half of all streams. */
  readonly client: string;
  readonly signal: AbortSignal;
  /** Whether the proof that opened the stream is still authorized. */
  readonly isPermitted: () => Promise<boolean>;
};

type Stream = {
  readonly recipient: MailboxKey;
  readonly client: string;
  readonly isPermitted: () => Promise<boolean>;
  readonly endsAtMs: number;
  cursor: Cursor | null;
  /** Something was stored since the last read began. */
  stale: boolean;
  ended: boolean;
  /** It became stale, or ended. */
  readonly news: Waiters;
  /** Ends its subscription of the bus. */
  unfollow: () => void;
};

export function createStreams(parts: StreamParts): Streams {
  const { settings, now, signal } = parts;
  const open = new Map<MailboxKey, Set<Stream>>();
  const networks = networkPlaces(() => settings.streams_max);
  let closed = false;

  const add = (stream: Stream) => {
    const own = open.get(stream.recipient) ?? new Set();
    own.add(stream);
    open.set(stream.recipient, own);
  };
  const end = (stream: Stream) => {
    const own = open.get(stream.recipient);
    if (own?.delete(stream) === true) networks.give(stream.client);
    if (own?.size === 0) open.delete(stream.recipient);
    stream.unfollow();
    stream.ended = true;
    stream.news.release();
  };

  const wake = (stream: Stream): void => {
    stream.stale = true;
    stream.news.release();
  };

  return {
    async open(recipient, { after, signal: aborted, isPermitted, client }) {
      if (closed) return fault("shutting_down", "the node is shutting down");
      const isFull = (open.get(recipient)?.size ?? 0) >= settings.recipient_streams_max;
      if (isFull || !networks.take(client))
        return fault("rate_limited", "too many streams are open", { retryAfterSeconds: 30 });
      const endsAtMs = now() + settings.stream_life;
      const fresh = { cursor: after, stale: false, ended: false, news: new Waiters(), unfollow: () => undefined };
      const stream: Stream = { recipient, client, isPermitted, endsAtMs, ...fresh };
      // Added before the first read: what is stored from here on makes the stream read again.
      add(stream);
      stream.unfollow = await signal.follow(recipient, () => wake(stream));
      const first = await readPage(parts, stream).catch((error: unknown) => {
        end(stream);
        throw error;
      });
      if (isFault(first)) {
        end(stream);
        return first;
      }
      if (aborted.aborted) end(stream);
      aborted.addEventListener("abort", () => end(stream), { once: true });
      return renderStream(
        readable(eventsOf(parts, { stream, first, end }), () => end(stream)),
        settings,
      );
    },
    wake: (recipient) => open.get(recipient)?.forEach(wake),
    isOpen: (recipient) => open.has(recipient),
    close() {
      closed = true;
      for (const own of [...open.values()]) for (const stream of [...own]) end(stream);
    },
  };
}

function renderStream(content: ReadableStream<Uint8Array>, settings: StreamSettings): Answer {
  return {
    status: 200,
    headers: { "x-accel-buffering": "no" },
    body: { contentType: "text/event-stream", content },
    // Three heartbeats; the listener knows at most 255 seconds.
    idleSeconds: Math.min(255, Math.max(1, Math.ceil((3 * settings.stream_heartbeat) / secondMs))),
  };
}

function readPage(parts: StreamParts, stream: Stream): Promise<Page<MessageSummary> | Fault> {
  stream.stale = false;
  const page = { after: stream.cursor, entriesMax: parts.settings.page_entries_max, bytesMax: 0, nowMs: parts.now() };
  return parts.mailbox.summary(stream.recipient, page);
}

type OpenedStream = {
  readonly stream: Stream;
  readonly first: Page<MessageSummary>;
  readonly end: (stream: Stream) => void;
};

/**
 * Events of the next entries, or a comment when nothing came for a heartbeat, each time the client has read the last: a
 * slow client holds one page, not a queue.
 */
async function* eventsOf(parts: StreamParts, { stream, first, end }: OpenedStream): AsyncGenerator<Uint8Array> {
  const { now, settings } = parts;
  let page: Page<MessageSummary> | Fault = first;
  try {
    yield utf8("retry: 2000\n\n");
    while (!isFault(page) && !stream.ended && now() < stream.endsAtMs) {
      const last = page.entries.at(-1);
      if (last !== undefined) {
        stream.cursor = last.cursor;
        yield utf8(page.entries.map(renderEvent).join(""));
      } else if (!stream.stale) {
        await stream.news.wait(settings.stream_heartbeat);
        if (!stream.stale && !stream.ended) yield utf8(": \n\n");
      }
      if (!(await stream.isPermitted())) return;
      page = await readPage(parts, stream);
    }
  } catch {
    // The store is away: the client returns with its last event id.
  } finally {
    end(stream);
  }
}

function readable(events: AsyncGenerator<Uint8Array>, cancel: () => void): ReadableStream<Uint8Array> {
  return new ReadableStream({
    cancel,
    async pull(controller) {
      const next = await events.next();
      if (next.done !== true) controller.enqueue(next.value);
      else controller.close();
    },
  });
}

function renderEvent(entry: MessageSummary): string {
  return `id: ${entry.cursor}\nevent: message\ndata: ${JSON.stringify(renderSummaryEntry(entry))}\n\n`;
}
