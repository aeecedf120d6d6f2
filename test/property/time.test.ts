/**
 * Timestamps against their first parser, which reads each part by itself: the same value or none
 * for every text near the form. `TIMESTAMPS=10000000` tries more.
 */
import { expect, test } from "bun:test";
import { parseTimestamp } from "../../src/core/codec/time.ts";
import { createRandom } from "../campaigns/parser-kit.ts";
import { parseTimestamp as parseAsBefore } from "../oracles/time.ts";

const texts = Number(process.env["TIMESTAMPS"] ?? 200_000);

const dice = createRandom(20_261_129);
const pick = <T>(list: readonly T[]): T => list[dice(list.length)] as T;
const digits = (length: number): string => String(dice(10 ** length)).padStart(length, "0");

/** Of a part with two digits: mostly within its range, else at its ends or beyond. */
const part = (least: number, most: number): string =>
  String(
    dice(4) > 0 ? least + dice(most - least + 1) : pick([0, least, most, most + 1, 99]),
  ).padStart(2, "0");

function nextText(): string {
  const year = pick([
    "2026",
    "2024",
    "2000",
    "2100",
    "1970",
    "1969",
    "1968",
    "0000",
    "0069",
    "9999",
    digits(4),
  ]);
  const date = `${year}-${part(1, 12)}-${pick([part(1, 31), part(28, 31)])}`;
  const fraction = pick([
    "",
    ".",
    `.${digits(1)}`,
    `.${digits(2)}`,
    `.${digits(3)}`,
    `.${digits(1 + dice(10))}`,
  ]);
  const zone = pick([
    "Z",
    "Z",
    "z",
    "",
    `+${part(0, 23)}:${part(0, 59)}`,
    `-${part(0, 23)}:${part(0, 59)}`,
  ]);
  const text = `${date}T${part(0, 23)}:${part(0, 59)}:${part(0, 59)}${fraction}${zone}`;
  if (dice(8) > 0) return text;
  const at = dice(text.length);
  return (
    text.slice(0, at) +
    pick(["", "0", "9", ".", "-", ":", " ", "T", "٣", "/"]) +
    text.slice(at + dice(2))
  );
}

test(`${texts} texts are the timestamps that they were for the first parser`, () => {
  let read = 0;
  for (let i = 0; i < texts; i++) {
    const text = dice(20) === 0 ? digits(1 + dice(15)) : nextText();
    const ms = parseTimestamp(text);
    if (ms !== null) read++;
    if (ms !== parseAsBefore(text)) expect([text, ms]).toEqual([text, parseAsBefore(text)]);
  }
  // The texts reach both outcomes.
  expect(read).toBeGreaterThan(texts / 10);
  expect(read).toBeLessThan(texts);
}, 600_000);
