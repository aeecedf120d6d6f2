/** Reading a stream up to a cap: whole, over, late, failed. */
import { describe, expect, test } from "bun:test";
import { late } from "../../../../src/core/std/deadline.ts";
import { readCapped } from "../../../../src/core/std/read-capped.ts";

const never = () => new Promise<never>(() => undefined);

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

  test("a stream that stalls is late, and is cancelled", async () => {
    let cancelled = false;
    const stalled = new ReadableStream<Uint8Array>({
      pull: never,
      cancel: () => {
        cancelled = true;
      },
    });
    expect(await readCapped(stalled, { bytesMax: 3, timeoutMs: 5 })).toBe(late);
    expect(cancelled).toBe(true);
  });

  test("a stream that fails rejects", async () => {
    const failing = new ReadableStream<Uint8Array>({ pull: (controller) => controller.error(new Error("cut")) });
    await expect(readCapped(failing, { bytesMax: 3, timeoutMs: 1_000 })).rejects.toThrow("cut");
  });
});
