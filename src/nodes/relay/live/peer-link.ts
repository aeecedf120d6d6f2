/**
 * One open link to a peer: a queue of what the socket has not taken yet, questions that wait for their
 * answers, and a sign of life each second. The law: every question ends, by its answer, by its time, or
 * with the link; and a link ends when the other is silent, does not read, or says what is no frame.
 * The runtime's sockets take part of a write and leave the rest to the caller, so the queue stands here.
 * Source: decisions section 5 "One process or several".
 */
import type { Socket, SocketHandler } from "bun";
import { createPeerReader, encodePeerFrame, type PeerEnd, type PeerFrame, type PeerQuestion } from "./peer-frames.ts";

export type LinkLimits = {
  /** Longest frame that is read. */
  readonly frameBytesMax: number;
  /** What may wait for the socket. */
  readonly queuedBytesMax: number;
  /** Questions that may wait for their answers. */
  readonly questionsMax: number;
  readonly pingMs: number;
  /** After this long without a byte the other counts as gone. */
  readonly silentMs: number;
};

/** `late`: no answer in time. `lost`: the link has ended. `full`: the question was not asked, for want of room. */
export type AnswerEnd = PeerEnd | "late" | "lost" | "full";

type Unnumbered<Q> = Q extends PeerQuestion ? Omit<Q, "id"> : never;

export type Link = {
  /** `false` when the link has ended, or the frame can't be sent. */
  send(frame: PeerFrame): boolean;
  /** The number of the question, and how it ends. */
  ask(question: Unnumbered<PeerQuestion>, timeoutMs: number): { readonly id: number; readonly end: Promise<AnswerEnd> };
  /** Idempotent; `said` is sent as a last word. */
  end(reason: string, said?: PeerFrame): void;
};

export type LinkEvents = {
  /** Every frame but answers and pings. */
  readonly frame: (frame: PeerFrame) => void;
  /** Once, also when this side ended it. */
  readonly ended: (reason: string) => void;
};

/** What the socket's events need of its link. */
export type LinkSocket = { wire: Wire | null };
type Wire = { received(chunk: Uint8Array): void; flush(): void; ended(reason: string): void };

/** Events of the sockets of a listener or of a dial; `opened` says what a new one is for. */
export function linkSocketEvents(opened: (socket: Socket<LinkSocket>) => void): SocketHandler<LinkSocket> {
  return {
    open: (socket) => {
      socket.data = { wire: null };
      opened(socket);
    },
    data: (socket, chunk) => socket.data.wire?.received(chunk),
    drain: (socket) => socket.data.wire?.flush(),
    close: (socket) => socket.data?.wire?.ended("it closed the link"),
    error: (socket, error) => {
      socket.data?.wire?.ended(String(error));
      socket.terminate();
    },
    connectError: () => undefined,
  };
}

/** Written frames that may stand before the others in the queue. */
const queueTrimAt = 1_024;

export function createLink(socket: Socket<LinkSocket>, limits: LinkLimits, events: LinkEvents): Link {
  const reader = createPeerReader(limits.frameBytesMax);
  const waiting = new Map<number, (end: AnswerEnd) => void>();
  const queue: Uint8Array[] = [];
  let queueAt = 0;
  let queuedBytes = 0;
  let lastId = 0;
  let over = false;
  let heardMs = performance.now();
  let tickedMs = heardMs;

  const flush = (): void => {
    while (queueAt < queue.length && !over) {
      const part = queue[queueAt] as Uint8Array;
      const written = Math.max(0, socket.write(part));
      queuedBytes -= written;
      if (written < part.length) {
        queue[queueAt] = part.subarray(written);
        break;
      }
      queueAt++;
    }
    // Taking the front off each time would move the whole of a long queue.
    if (queueAt === queue.length || queueAt >= queueTrimAt) {
      queue.splice(0, queueAt);
      queueAt = 0;
    }
  };

  const send = (frame: PeerFrame): boolean => {
    const parts = over ? null : encodePeerFrame(frame);
    if (parts === null) return false;
    for (const part of parts) {
      queue.push(part);
      queuedBytes += part.length;
    }
    if (queuedBytes > limits.queuedBytesMax) end("it does not read");
    else flush();
    return true;
  };

  const ended = (reason: string): void => {
    if (over) return;
    over = true;
    clearInterval(pulse);
    queue.length = 0;
    for (const settle of [...waiting.values()]) settle("lost");
    events.ended(reason);
  };

  const end = (reason: string, said?: PeerFrame): void => {
    if (said !== undefined) send(said);
    ended(reason);
    socket.terminate();
  };

  /** A process that was stopped itself has heard nothing either: it listens once more before it judges. */
  const pulse = setInterval(() => {
    const nowMs = performance.now();
    if (nowMs - tickedMs > 2 * limits.pingMs) heardMs = nowMs;
    tickedMs = nowMs;
    if (nowMs - heardMs > limits.silentMs) end("it is silent");
    else send({ kind: "ping" });
  }, limits.pingMs);

  const received = (chunk: Uint8Array): void => {
    heardMs = performance.now();
    const frames = over ? [] : reader.push(chunk);
    if (frames === null) {
      end("it sends what is no frame");
      return;
    }
    for (const frame of frames) {
      if (over) return;
      if (frame.kind === "answer") waiting.get(frame.id)?.(frame.end);
      else if (frame.kind !== "ping") events.frame(frame);
    }
  };

  socket.data.wire = { received, flush, ended };
  return {
    send,
    ask(question, timeoutMs) {
      const id = ++lastId;
      if (over) return { id, end: Promise.resolve("lost") };
      if (waiting.size >= limits.questionsMax) return { id, end: Promise.resolve("full") };
      const { promise, resolve } = Promise.withResolvers<AnswerEnd>();
      const settle = (how: AnswerEnd): void => {
        clearTimeout(timer);
        waiting.delete(id);
        resolve(how);
      };
      const timer = setTimeout(() => settle("late"), timeoutMs);
      waiting.set(id, settle);
      if (!send({ ...question, id } as PeerQuestion)) settle(over ? "lost" : "full");
      return { id, end: promise };
    },
    end,
  };
}
