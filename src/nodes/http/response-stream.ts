/**
 * Long answers on their way out. A client that reads slowly, or not at all, holds the bytes of its answer
 * in memory; so they go out in pieces as they are taken, are counted until the last piece is, and are
 * cut off when that takes too long. Short answers are left to the server.
 * Cost of an unread answer without this: three copies of it for 30 s.
 * Source: decisions section 9 ("Long answers").
 */
import { createShares } from "./fair-share.ts";

export type OutgoingLimits = {
  /** Sum of the long answers that clients have not taken yet; one client's are at most half of it. */
  readonly bytesMax: number;
  /** For one answer to be taken. */
  readonly deadlineMs: number;
};

export type Outgoing = {
  /** The content as a stream; `null` when clients keep too much waiting already. */
  readonly send: (content: Uint8Array, client: string) => ReadableStream<Uint8Array> | null;
  readonly bytes: () => number;
};

/** Answers up to this size are not counted. */
export const shortAnswerBytesMax = 64 * 1024;
const pieceBytes = 256 * 1024;

export function createOutgoing(limits: OutgoingLimits): Outgoing {
  // One answer always goes, however large it is.
  const shares = createShares(limits.bytesMax, { alone: true });
  return {
    bytes: shares.bytes,
    send: (content, client) => {
      if (!shares.take(client, content.length)) return null;
      return inPieces(content, limits.deadlineMs, () => shares.give(client, content.length));
    },
  };
}

function inPieces(content: Uint8Array, deadlineMs: number, ended: () => void): ReadableStream<Uint8Array> {
  let left: Uint8Array | null = content;
  let timer: ReturnType<typeof setTimeout> | undefined;
  const end = (): void => {
    if (left === null) return;
    left = null;
    clearTimeout(timer);
    ended();
  };
  return new ReadableStream<Uint8Array>(
    {
      start(controller) {
        timer = setTimeout(() => {
          end();
          controller.error(new Error("the client did not take its answer in time"));
        }, deadlineMs);
      },
      pull(controller) {
        if (left === null) return;
        controller.enqueue(left.subarray(0, pieceBytes));
        left = left.subarray(pieceBytes);
        if (left.length > 0) return;
        end();
        controller.close();
      },
      cancel: end,
    },
    { highWaterMark: 0 },
  );
}
