/**
 * Reading a stream of bytes that somebody else controls: up to a size and, if wanted, up to a time.
 */
import { type late, withDeadline } from "./deadline.ts";

type ReadCap = {
  readonly bytesMax: number;
  /** For the whole stream, from the call on. */
  readonly timeoutMs?: number;
};

/**
 * All bytes of `body` (none: empty), or why not: `over` when there are more than the cap, `late` when they did not all
 * come in time. In both cases, and when the stream fails, which rejects, the stream is cancelled.
 */
export function readCapped(
  body: ReadableStream<Uint8Array> | null,
  cap: { readonly bytesMax: number; readonly timeoutMs?: never },
): Promise<Uint8Array | "over">;
export function readCapped(
  body: ReadableStream<Uint8Array> | null,
  cap: ReadCap,
): Promise<Uint8Array | "over" | typeof late>;
export async function readCapped(
  body: ReadableStream<Uint8Array> | null,
  cap: ReadCap,
): Promise<Uint8Array | "over" | typeof late> {
  if (body === null) return new Uint8Array(0);
  const reader = body.getReader();
  try {
    const reading = readAll(reader, cap.bytesMax);
    return await (cap.timeoutMs === undefined ? reading : withDeadline(reading, cap.timeoutMs));
  } finally {
    // Cutting a stream that is at its end does nothing.
    reader.cancel().catch(() => undefined);
  }
}

async function readAll(
  reader: ReadableStreamDefaultReader<Uint8Array>,
  bytesMax: number,
): Promise<Uint8Array | "over"> {
  const chunks: Uint8Array[] = [];
  let size = 0;
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return joinBytes(chunks, size);
    size += value.length;
    if (size > bytesMax) return "over";
    chunks.push(value);
  }
}

/** One array of all chunks, whose lengths add up to `size`. A single chunk is not copied. */
export function joinBytes(chunks: readonly Uint8Array[], size: number): Uint8Array {
  const [first] = chunks;
  if (first !== undefined && chunks.length === 1) return first;
  const joined = new Uint8Array(size);
  let at = 0;
  for (const chunk of chunks) {
    joined.set(chunk, at);
    at += chunk.length;
  }
  return joined;
}
