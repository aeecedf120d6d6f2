/**
 * Sizes that headers of pictures state, made by hand from the texts of the formats, and which of
 * them the app draws.
 */
import { expect, test } from "bun:test";
import { isShownPicture, smallPicture } from "../../../src/web/files.ts";
import { pictureSize } from "../../../src/web/picture-size.ts";

const bytes = (...parts: (string | readonly number[])[]): Uint8Array =>
  Uint8Array.from(
    parts.flatMap((part) =>
      typeof part === "string" ? [...part].map((char) => char.charCodeAt(0)) : part,
    ),
  );
const png = bytes([0x89], "PNG\r\n\x1a\n", [0, 0, 0, 13], "IHDR", [0, 0, 54, 176, 0, 0, 0, 7]);
const gif = bytes("GIF89a", [0x2c, 0x01, 0x90, 0x01]);
const lossy = bytes(
  "RIFF",
  [0, 0, 0, 0],
  "WEBPVP8 ",
  [0, 0, 0, 0, 0, 0, 0, 0x9d, 1, 0x2a, 0x20, 3, 0x58, 2],
);
const lossless = bytes("RIFF", [0, 0, 0, 0], "WEBPVP8L", [0, 0, 0, 0, 0x2f, 0x1f, 0xc3, 0x95, 0]);
const extended = bytes(
  "RIFF",
  [0, 0, 0, 0],
  "WEBPVP8X",
  [0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0x0f, 0, 1, 0, 0],
);
const jpeg = bytes([
  0xff, 0xd8, 0xff, 0xe0, 0, 4, 1, 2, 0xff, 0xff, 0xc4, 0, 2, 0xff, 0xc2, 0, 11, 8, 2, 0x58, 3,
  0x20,
]);

test.each([
  ["PNG", png, 14_000, 7],
  ["GIF", gif, 300, 400],
  ["lossy WebP", lossy, 800, 600],
  ["lossless WebP", lossless, 800, 600],
  ["extended WebP", extended, 4_096, 2],
  ["JPEG behind other segments", jpeg, 800, 600],
])("%s", (_name, head, width, height) => {
  expect(pictureSize(head)).toEqual({ width, height });
  for (let end = 0; end < head.length; end++) {
    const size = pictureSize(head.subarray(0, end));
    expect(size === null || size.width === width).toBe(true);
  }
});

test("other bytes, and a JPEG whose frame is not there, state none", () => {
  expect(pictureSize(bytes("<svg width='1'/>"))).toBeNull();
  expect(pictureSize(bytes([0xff, 0xd8, 0xff, 0xda, 0, 2, 1, 2, 3]))).toBeNull();
});

const pngOf = (width: number, height: number): Uint8Array<ArrayBuffer> => {
  const head = png.slice();
  const view = new DataView(head.buffer);
  view.setUint32(16, width);
  view.setUint32(20, height);
  return head;
};

test("a picture of a few bytes that stands for a gigabyte of pixels is not drawn, in a profile nor in a conversation", async () => {
  const drawn = async (width: number, height: number) =>
    (await smallPicture(new Blob([pngOf(width, height)]))) !== null;
  const sides = [
    [1_024, 1_024],
    [1_025, 1],
    [1, 1_025],
    [14_000, 14_000],
  ] as const;
  expect(await Promise.all(sides.map(([width, height]) => drawn(width, height)))).toEqual([
    true,
    false,
    false,
    false,
  ]);
  expect(isShownPicture(pngOf(8_000, 5_000), 24_000)).toBe(true);
  expect(isShownPicture(pngOf(14_000, 14_000), 24_000)).toBe(false);
});
