/** A read of a byte stream that never keeps more than its cap. */
import { joinBytes } from "./bytes.ts";

/**
 * All bytes of `body`; `over` when there are more than the cap. Rejects when the stream
 * fails. Else it is cancelled.
 */
export async function readCapped(
  body: ReadableStream<Uint8Array> | null,
  { bytesMax }: { readonly bytesMax: number },
): Promise<Uint8Array | "over"> {
  if (body === null) return new Uint8Array(0);
  const reader = body.getReader();
  const chunks: Uint8Array[] = [];
  let size = 0;
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return joinBytes(chunks);
      size += value.length;
      if (size > bytesMax) return "over";
      chunks.push(value);
    }
  } finally {
    // Cancelling a stream that has ended does nothing.
    reader.cancel().catch(() => undefined);
  }
}
