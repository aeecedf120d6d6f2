/**
 * Small codecs that drivers share: cursors, and order-keeping forms of numbers and strings. Every form
 * is canonical: a text or key that decodes encodes to itself again.
 */
import type { Cursor } from "./contract.ts";

const cursorMark = "c";

/** `position` is a safe non-negative integer. */
export function encodeCursor(position: number): Cursor {
  return cursorMark + position.toString(36);
}

/** The position, or `null` when the text is no cursor. */
export function decodeCursor(cursor: Cursor): number | null {
  if (!/^c(?:0|[1-9a-z][0-9a-z]{0,10})$/.test(cursor)) return null;
  const position = Number.parseInt(cursor.slice(1), 36);
  return Number.isSafeInteger(position) ? position : null;
}

/** Order of the UTF-8 forms of two well-formed strings, without making them. */
export function compareUtf8(a: string, b: string): number {
  const length = Math.min(a.length, b.length);
  for (let i = 0; i < length; i++) {
    const [x, y] = [a.charCodeAt(i), b.charCodeAt(i)];
    if (x === y) continue;
    const [xHigh, yHigh] = [isSurrogate(x), isSurrogate(y)];
    // Surrogates stand for code points above all others, though their own numbers lie below U+E000.
    if (xHigh !== yHigh) return xHigh ? 1 : -1;
    return x - y;
  }
  return a.length - b.length;
}

function isSurrogate(unit: number): boolean {
  return unit >= 0xd800 && unit <= 0xdfff;
}
