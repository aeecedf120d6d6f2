/** A capped read: all up to the cap, nothing beyond it, and a failure as a rejection. */
import { describe, expect, test } from "bun:test";
import { readCapped } from "../../../../src/core/codec/stream.ts";

describe("readCapped", () => {
  const streamOf = (...sizes: number[]) =>
    new ReadableStream<Uint8Array>({
      start(controller) {
        for (const size of sizes) controller.enqueue(new Uint8Array(size).fill(size));
        controller.close();
      },
    });

  test("joins all chunks up to and including the cap", async () => {
    expect(await readCapped(streamOf(1, 2), { bytesMax: 3 })).toEqual(Uint8Array.of(1, 2, 2));
    expect(await readCapped(streamOf(), { bytesMax: 0 })).toEqual(new Uint8Array(0));
    expect(await readCapped(null, { bytesMax: 0 })).toEqual(new Uint8Array(0));
  });

  test("one byte more is over, and the stream is cancelled", async () => {
    let cancelled = false;
    const endless = new ReadableStream<Uint8Array>({
      pull: (controller) => controller.enqueue(new Uint8Array(2)),
      cancel: () => {
        cancelled = true;
      },
    });
    expect(await readCapped(endless, { bytesMax: 3 })).toBe("over");
    expect(cancelled).toBe(true);
  });

  test("a stream that fails rejects", async () => {
    const failing = new ReadableStream<Uint8Array>({
      pull: (controller) => controller.error(new Error("cut")),
    });
    await expect(readCapped(failing, { bytesMax: 3 })).rejects.toThrow("cut");
  });
});
