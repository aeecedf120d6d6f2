/**
 * The two ways by which `core/codec/json.ts` reads: a short compact text by its length, any other
 * by a scan. White space behind a text makes it too long for the first way and changes nothing
 * else. And texts that stand near every bound.
 */
import { concatBytes, utf8 } from "../../src/core/codec/bytes.ts";
import type { readJson } from "../../src/core/codec/json.ts";
import { isFault } from "../../src/core/fault.ts";

type Read = typeof readJson;

const whiteSpace = utf8(" ".repeat(4_096));

/** What is read of these bytes, or the refusal, as one text. */
function outcomeOf(read: Read, bytes: Uint8Array, opaque: string | null): string {
  const reading = read(bytes, opaque);
  if (isFault(reading)) return `${reading.code}: ${reading.detail}`;
  return `${shown(reading.value)} ${reading.unsafeInteger}`;
}

/** As JSON, which would write -0 as 0 and numbers that are not finite as null. */
function shown(value: unknown): string {
  return JSON.stringify(value, (_, inner) =>
    typeof inner === "number" && (Object.is(inner, -0) || !Number.isFinite(inner))
      ? `number ${Object.is(inner, -0) ? "-0" : inner}`
      : inner,
  );
}

/** `null` where both ways say the same; else what each of them says. */
export function disagreement(read: Read, bytes: Uint8Array, opaque: string | null): string | null {
  const first = outcomeOf(read, bytes, opaque);
  const scanned = outcomeOf(read, concatBytes(bytes, whiteSpace), opaque);
  return first === scanned ? null : `${first}\n${scanned}`;
}

// ------------------------------------------------------------------------------------------- texts

type Dice = (below: number) => number;
const pick = <T>(dice: Dice, list: readonly T[]): T => list[dice(list.length)] as T;

const names = [
  ...["", "a", "b", "1", "0", "payload", "constructor", "prototype", "__proto__", "toString"],
  ...["é", "\u2028", "😀", "\\u0061", "\\ud83d\\ude00", "\\ud800", "\\udc00", "__proto\\u005f_"],
];
const strings = [
  ...["", "x", '\\"', "\\\\", "\\/", "\\n", "\\u0000", "\\ud800", "\\udfffx", "\\ud83d\\ude00"],
  ...["é", "€", "😀", "\u007f", "{[,:]}", "__proto__", "constructor", "x".repeat(40)],
];
const numbers = [
  ...["0", "-0", "7", "10", "99", "100", "999", "1000", "-1", "-999", "-1000", "0.5", "1.0", "0e0"],
  ...["1e1", "1e2", "9e2", "10e1", "1e3", "1E3", "1e7", "-1e7", "1e-6", "1e21", "1e400", "-1e400"],
  ...["1e-400", "9007199254740991", "9007199254740992", "18446744073709551616", "123456.789"],
];
const words = ["true", "false", "null"];

function valueText(dice: Dice, depth: number): string {
  const kind = dice(depth === 0 ? 4 : 7);
  if (kind === 0) return pick(dice, words);
  if (kind === 1) return `"${pick(dice, strings)}"`;
  if (kind < 4) return pick(dice, numbers);
  const inner = Array.from({ length: dice(4) }, () => valueText(dice, depth - 1));
  const space = dice(40) === 0 ? pick(dice, [" ", "\n", "\t", "\r\n"]) : "";
  if (kind === 4) return `[${inner.join(`,${space}`)}]`;
  return `{${inner.map((one) => `"${pick(dice, names)}":${space}${one}`).join(",")}}`;
}

const opening = { array: "[", object: '{"a":', payload: '{"payload":' };
const closing = { array: "]", object: "}", payload: "}" };

/** So many containers around a value. */
function nested(dice: Dice, text: string, depth: number): string {
  const kinds = Array.from({ length: depth }, () => pick(dice, ["array", "object"] as const));
  const all = [dice(2) === 0 ? ("payload" as const) : ("array" as const), ...kinds.slice(1)];
  const closed = all.toReversed().map((kind) => closing[kind]);
  return all.map((kind) => opening[kind]).join("") + text + closed.join("");
}

/**
 * A list of so many values, each of a single character: longer than a text that is read by its
 * length.
 */
const longList = (length: number) => `[${Array(length).fill("1").join(",")}]`;

/** A text of about 4,096 characters, which is the most that is read by its length. */
function nearBound(dice: Dice, text: string): string {
  const length = 4_092 + dice(8);
  const filling = "x".repeat(Math.max(0, length - text.length - '[,""]'.length));
  return `[${text},"${filling}"]`;
}

const pieces = [
  ...[
    "{",
    "}",
    "[",
    "]",
    '"',
    ",",
    ":",
    " ",
    "\n",
    "\\",
    "\\u0061",
    "\\ud800",
    "0",
    "1",
    "-",
    "e3",
  ],
  ...['"a":1,', '"":0,', '"":1e7', "1e7", '"__proto__":1,', '"constructor":1,', "\ufeff", "é"],
];

function changed(dice: Dice, text: string): string {
  const at = dice(text.length + 1);
  return text.slice(0, at) + pick(dice, pieces) + text.slice(at + dice(4) * dice(2));
}

/**
 * A text in JSON, or nearly: names twice and forbidden ones, numbers of every form, depth and
 * length near their bounds.
 */
export function nextText(dice: Dice): string {
  let text = valueText(dice, 3);
  if (dice(20) === 0) text = nested(dice, text, 28 + dice(6));
  if (dice(50) === 0) text = nearBound(dice, text);
  if (dice(1_000) === 0) text = longList(4_094 + dice(6));
  for (let changes = dice(2) * dice(4); changes > 0; changes--) text = changed(dice, text);
  return text;
}

/** The same as bytes, of which some are changed. */
export function nextBytes(dice: Dice): Uint8Array {
  const bytes = utf8(nextText(dice));
  if (dice(5) === 0 && bytes.length > 0) bytes[dice(bytes.length)] = dice(256);
  return bytes;
}
