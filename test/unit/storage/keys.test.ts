/** The codecs that drivers share: cursors, and the order of keys. */
import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { compareUtf8, decodeCursor, encodeCursor } from "../../../src/storage/keys.ts";

const text = fc.string({ unit: "binary", maxLength: 12 });

describe("cursors", () => {
  test("are printable, short, and read back as the position", () => {
    fc.assert(
      fc.property(fc.maxSafeNat(), (position) => {
        const cursor = encodeCursor(position);
        expect(cursor).toMatch(/^[A-Za-z0-9_-]{1,64}$/);
        expect(decodeCursor(cursor)).toBe(position);
      }),
    );
  });

  test("that nobody wrote are refused, and no text but the written one means a position", () => {
    for (const cursor of ["", "c", "0", "c01", "c-1", "cG", "c 1", "czzzzzzzzzzz", "c1 ", "C1"]) {
      expect(decodeCursor(cursor)).toBeNull();
    }
    fc.assert(
      fc.property(fc.string({ maxLength: 14 }), (some) => {
        const position = decodeCursor(some);
        if (position !== null) expect(encodeCursor(position)).toBe(some);
      }),
      { numRuns: 2_000 },
    );
  });
});

test("strings compare as their UTF-8 bytes do", () => {
  const edges = [
    "",
    "a",
    "ab",
    "\u{7f}",
    "\u{80}",
    "\u{7ff}",
    "\u{800}",
    "\u{d7ff}",
    "\u{e000}",
    "\u{ffff}",
    "\u{10000}",
  ];
  const compare = (a: string, b: string) => {
    expect(Math.sign(compareUtf8(a, b))).toBe(Math.sign(Buffer.compare(Buffer.from(a), Buffer.from(b))));
  };
  for (const a of edges) for (const b of edges) compare(`x${a}`, `x${b}`);
  fc.assert(fc.property(text, text, compare), { numRuns: 5_000 });
});
